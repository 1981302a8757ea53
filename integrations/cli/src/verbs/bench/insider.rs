//! `weldfs bench insider`.

use super::watch::Watcher;
use super::{ended, save, show};
use clap::builder::PossibleValuesParser;
use std::io;
use std::path::{Path, PathBuf};
use weldfs_benches::insider::{self, Options, Scale};

/// Arguments of `weldfs bench insider`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Modelled and wall times stand in separate columns; docs/INSIDER.md says how the modelled ones are\n\
computed. Answers of all forms are compared, and the run fails if one differs."
)]
pub(super) struct Args {
    /// Data of each application: small (512 KiB: shows that everything works, its times mean nothing), medium (64 MiB)
    /// or large (512 MiB)
    #[arg(long, default_value = "medium", value_name = "SCALE",
          value_parser = PossibleValuesParser::new(Scale::ALL.map(Scale::name)))]
    scale: String,
    /// Rounds behind each median
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Directory of the host for the POSIX form; without it /dev/shm, or the folder for temporary files
    #[arg(long, value_name = "DIR")]
    place: Option<PathBuf>,
    /// Write the report as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report as one HTML page, with plots, to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> io::Result<()> {
    let mut watcher = Watcher::new("insider")?;
    let shm = Path::new("/dev/shm");
    let options = Options {
        scale: Scale::ALL.into_iter().find(|s| s.name() == args.scale).unwrap_or(Scale::Medium),
        rounds: args.rounds as usize,
        place: match &args.place {
            Some(place) => place.clone(),
            None if shm.is_dir() => shm.to_owned(),
            None => std::env::temp_dir(),
        },
        command: format!("weldfs bench insider --scale {} --rounds {}", args.scale, args.rounds),
    };
    let report = insider::run(&options, &mut watcher)?;
    watcher.clear();
    show(|out| report.print(out))?;
    save(args.json.as_deref(), &report)?;
    if let Some(path) = &args.html {
        std::fs::write(path, report.html())?;
    }
    ended(report.interrupted, &[])?;
    if report.timeline.holds() { Ok(()) } else { Err(io::Error::other("a plateau is away from its max-min shares")) }
}
