//! The attacks, by what they go for.

pub mod load;
pub mod names;
pub mod rings;
pub mod sessions;
