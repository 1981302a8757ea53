//! What a hostile neighbour and a damaged image can do, measured.
//!
//! * `clients`: hostile clients beside a victim of another user, family by family.
//! * `images`: thousands of damaged and forged images, each of which is refused, EIO or the truth.
#![forbid(unsafe_code)]

mod clients;
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
    Clients(clients::Args),
    Images(images::Args),
    #[command(hide = true)]
    Part(clients::PartArgs),
}

fn main() -> ExitCode {
    let done = match Cli::parse().what {
        What::Clients(args) => clients::run(&args),
        What::Part(args) => clients::part(&args),
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
