//! `weldfs kernel`: kernels of the user's own.

mod xrt;
