//! `weldfs kernel-host`: the process in which a kernel runs that is not built in. Hidden: the device starts it, and
//! tells it by its environment what to do.

use crate::failure::Outcome;

/// Serves its parent until that ends.
pub fn run() -> Outcome {
    Ok(weldfs_fpga::host::serve())
}
