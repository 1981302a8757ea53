//! `weldfs bench insider` and `virtual-cat`.

use super::watch::Watcher;
use super::{ended, save, show};
use crate::output::parse_bytes;
use clap::builder::PossibleValuesParser;
use std::io;
use std::path::{Path, PathBuf};
use weldfs_benches::insider::{self, Options, Scale, cat};
use weldfs_device::Profile;

/// Arguments of `weldfs bench insider`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "In the drive a virtual file of a device is read to its end, with the kernel in a slot: its model,\n\
and RTL or HLS C++ where target/kernels, or the folder that WELDFS_KERNELS names, has its shared object\n\
(librtl_grep.so); what is not built is skipped, and said.\n\n\
Modelled and wall times stand in separate columns; docs/INSIDER.md says how the modelled ones are\n\
computed, and what is in the JSON. Answers of all forms are compared: if one differs, nothing is\n\
written, and the exit status is 1."
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
    /// Write the tables as Markdown to this file
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// Arguments of `weldfs bench virtual-cat`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Makes a device in memory with a text (a needle in one of ten rows of 64 KiB), has the host read and\n\
search it, and then reads a virtual file of it through the kernel grep. The exit status is 1 if the\n\
answers differ, or if the virtual file moved 2 % of the text or more over the link."
)]
pub(super) struct CatArgs {
    /// Size of the text, 1M at least; needs as much memory
    #[arg(long, default_value = "1G", value_name = "SIZE", value_parser = parse_text)]
    bytes: u64,
    /// Profile of the device; without it INSIDER's drive on eight lanes (profiles/insider-x8.toml)
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Write the report as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A size that a text can have.
fn parse_text(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    let range = cat::LEAST..=64 << 30;
    if range.contains(&bytes) { Ok(bytes) } else { Err(format!("'{text}' is not from 1M to 64G")) }
}

pub(super) fn run_cat(args: &CatArgs) -> io::Result<()> {
    let profile = match &args.profile {
        None => cat::insider_x8()?,
        Some(path) => {
            let told = |e: &dyn std::fmt::Display| io::Error::other(format!("{}: {e}", path.display()));
            let text = std::fs::read_to_string(path).map_err(|e| told(&e))?;
            Profile::parse(&text).map_err(|e| told(&e))?
        }
    };
    let command = format!("weldfs bench virtual-cat --bytes {}", args.bytes);
    let mut watcher = Watcher::new("virtual-cat")?;
    let report = cat::run(&cat::Options { bytes: args.bytes, profile, command }, &mut watcher)?;
    watcher.clear();
    let Some(report) = report else { return ended(true, &[]) };
    show(|out| report.print(out))?;
    save(args.json.as_deref(), &report)?;
    report.holds()
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
    let pages = [(&args.html, report.html()), (&args.markdown, report.markdown())];
    for (path, text) in pages.iter().filter_map(|(path, text)| path.as_ref().map(|path| (path, text))) {
        std::fs::write(path, text)?;
    }
    ended(report.interrupted, &[])?;
    if report.timeline.holds() { Ok(()) } else { Err(io::Error::other("a plateau is away from its max-min shares")) }
}
