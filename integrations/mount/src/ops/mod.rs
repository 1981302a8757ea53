//! What the kernel asks for, one method of [`crate::fs::Fs`] for each opcode.

mod attributes;
mod data;
mod directories;
mod handing;
mod locking;
mod names;
mod opening;
