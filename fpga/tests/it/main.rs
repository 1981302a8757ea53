//! The card as its users see it.

mod card;
mod chains;
mod modelled;
mod packages;
mod process;
mod rig;
mod streams;
mod time;
