//! `weldfs kernel-host`: the process in which a kernel runs that is not built in. Hidden: the device starts it.

use crate::failure::{Doing, Outcome};
use std::path::PathBuf;

/// Arguments of `weldfs kernel-host`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Drive a card through this library of XRT's; standard input is a socket of the parent's
    #[arg(long, value_name = "LIBRARY")]
    xrt: Option<PathBuf>,
}

/// Serves its parent until that ends.
pub fn run(args: &Args) -> Outcome {
    match &args.xrt {
        Some(library) => {
            weldfs_fpga::xrt::serve(library).doing("serve a kernel with", library)?;
            Ok(0)
        }
        None => Ok(weldfs_fpga::host::serve()),
    }
}
