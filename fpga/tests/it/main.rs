//! The card as its users see it.

mod card;
mod chains;
mod dram;
mod hostile;
mod lend;
mod missing;
mod modelled;
mod packages;
mod process;
mod quick;
mod record;
mod rig;
mod shape;
mod streams;
mod tenants;
mod time;
mod xrt;
