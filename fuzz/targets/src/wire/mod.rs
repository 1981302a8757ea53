//! What a client can put in front of a device.

pub mod attach;
pub mod commands;
pub mod program;
pub mod ring;
pub mod sqe;
pub mod text;
