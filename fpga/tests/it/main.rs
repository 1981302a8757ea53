//! The card as its users see it.

mod card;
mod process;
mod rig;
