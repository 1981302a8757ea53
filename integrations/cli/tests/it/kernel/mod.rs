//! `weldfs kernel`: kernels of the user's own.

mod device;
mod trouble;
mod verbs;
mod xrt;
