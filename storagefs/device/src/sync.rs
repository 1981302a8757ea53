//! The atomics of files that a loom test runs over its own (`starved`).

pub use std::sync::atomic::{AtomicBool, Ordering, fence};
