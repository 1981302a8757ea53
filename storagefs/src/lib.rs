//! The file system in the device.

pub mod media;
