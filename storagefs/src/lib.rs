//! The file system in the device.
