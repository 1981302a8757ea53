//! What bytes persist on: the media that implement `weldfs_journal::Medium`.

pub mod ram;

pub use ram::RamMedium;
