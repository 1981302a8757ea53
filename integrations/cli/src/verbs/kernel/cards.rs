//! `weldfs kernel cards`: which FPGA cards this machine has for kernels of the `xrt` kind.

use crate::failure::{Doing, Outcome};
use crate::output;
use std::path::Path;
use weldfs_fpga::xrt::{self, Card, State};

/// Arguments of `weldfs kernel cards`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Cards are looked for in sysfs: nothing is loaded, and no card is opened. A card is ready if one of\n\
XRT's drivers for users (xocl, zocl) has it. That there is none is no error."
)]
pub struct Args {
    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(serde::Serialize)]
struct Found {
    /// XRT's library, null where it is not installed.
    library: Option<String>,
    cards: Vec<Card>,
}

/// Lists them.
pub fn run(args: &Args) -> Outcome {
    let sys = Path::new("/sys");
    let cards = xrt::cards(sys).doing("look for cards in", sys)?;
    let library = xrt::library_file().map(|file| file.display().to_string());
    if args.json {
        output::json(&Found { library, cards })?;
        return Ok(0);
    }
    output::facts(|out| {
        for card in &cards {
            let driver = card.driver.as_deref().map_or_else(|| "no driver".to_owned(), |d| format!("driver {d}"));
            let state = match card.state {
                State::Ready => "ready",
                State::Management => "for its administrator; kernels run on its other function",
                State::Undriven => "not usable: no driver of XRT's for users (xocl) has it",
            };
            writeln!(out, "{}  {}  {driver}: {state}", card.address, card.model)?;
        }
        if cards.is_empty() {
            writeln!(out, "no card: no device of AMD's (Xilinx') on the PCI bus, and none of its driver zocl")?;
        }
        match &library {
            Some(file) => writeln!(out, "XRT's library: {file}"),
            None => writeln!(out, "XRT's library (libxrt_coreutil.so.2) is not installed"),
        }
    })?;
    Ok(0)
}
