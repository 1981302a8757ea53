//! `weldfs kernel`: kernels of the user's own.

mod device;
mod verbs;
mod xrt;
