//! `weldfs kernel`: kernels of the user's own, from an empty folder to a slot of a device.

mod build;
mod cards;
mod cases;
mod compare;
mod device;
mod failing;
mod host;
mod new;
mod reference;
mod run;
mod test;

use crate::failure::Outcome;

/// Arguments of `weldfs kernel`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "docs/KERNELS.md is a tutorial of ten minutes: a kernel made, changed, tested, broken and loaded."
)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// Write a folder with a new kernel that works, to be changed
    New(new::Args),
    /// Build a kernel, and compare it with its reference
    Test(test::Args),
    /// Run a kernel here, from standard input to standard output
    Run(run::Args),
    /// Load a kernel into a running device
    Load(device::Load),
    /// Have a running device forget a kernel
    Unload(device::Unload),
    /// Let a kernel of a running device be used
    Activate(device::Named),
    /// Keep a kernel of a running device from being used
    Deactivate(device::Named),
    /// List the kernels of a running device
    Ls(device::List),
    /// Show debug ports of a kernel in a running device
    Peek(device::Peek),
    /// List the FPGA cards of this machine
    Cards(cards::Args),
}

/// Does what was asked for.
pub fn run(args: &Args) -> Outcome {
    match &args.what {
        What::New(args) => new::run(args),
        What::Test(args) => test::run(args),
        What::Run(args) => run::run(args),
        What::Load(args) => device::load(args),
        What::Unload(args) => device::unload(args),
        What::Activate(args) => device::activate(args),
        What::Deactivate(args) => device::deactivate(args),
        What::Ls(args) => device::list(args),
        What::Peek(args) => device::peek(args),
        What::Cards(args) => cards::run(args),
    }
}
