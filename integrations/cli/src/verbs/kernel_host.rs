//! `weldfs kernel-host`: the process of a kernel that is a shared object. A device starts it; it is of no use by hand.

use crate::failure::Outcome;

/// Arguments of `weldfs kernel-host`: none, for the device says everything in the environment and over a socket.
#[derive(clap::Args, Debug)]
pub struct Args {}

/// Computes until the device has closed the socket.
pub fn run(_args: &Args) -> Outcome {
    Ok(weldfs_fpga::host::serve())
}
