//! The card as its users see it.

mod card;
mod chains;
mod hostile;
mod lend;
mod modelled;
mod packages;
mod process;
mod quick;
mod record;
mod rig;
mod streams;
mod tenants;
mod time;
mod xrt;
