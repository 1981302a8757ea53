//! The card as its users see it.

mod card;
mod lend;
mod packages;
mod process;
mod rig;
mod streams;
mod time;
