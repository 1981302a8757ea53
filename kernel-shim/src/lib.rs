//! The control plane the operating system would own.
