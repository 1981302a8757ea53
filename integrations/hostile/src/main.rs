//! What a hostile neighbour and a damaged image can do, measured.
//!
//! * `images`: thousands of damaged and forged images, each of which is refused, EIO or the truth.
#![forbid(unsafe_code)]

mod images;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser, Debug)]
#[command(name = "weldfs-hostile", about = "Hostile clients and damaged images", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    Images(images::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().what {
        What::Images(args) => images::run(&args),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            eprintln!("weldfs-hostile: {e}");
            ExitCode::from(2)
        }
    }
}
