//! What can lie on a medium.

pub(crate) mod base;
pub(crate) mod draft;
pub mod frames;
pub mod image;
pub mod log;
pub mod page;
pub mod superblock;
pub mod values;

pub use base::{Base, Layout, number};
pub use draft::draft;
