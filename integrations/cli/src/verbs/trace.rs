//! `weldfs trace`: what ran on each core of a device, as a file that Perfetto and chrome://tracing open.

mod chrome;

use crate::device::running;
use crate::failure::{Doing, Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::observe::{parse_seconds, sleep_until};
use crate::output::say;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use weldfs::Errno;
use weldfs_ciscops::trace::{TRACE_EVENTS_MAX, decode};
use weldfs_storagefs::device::trace::TraceFacts;

/// Arguments of `weldfs trace`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Only root and whoever runs the device may record, one at a time.\n\
docs/OBSERVABILITY.md says how to read the file.")]
pub struct Args {
    /// The device's socket, or the image it serves
    #[arg(value_name = "SOCKET|IMAGE")]
    device: PathBuf,
    /// The file to write; open it in ui.perfetto.dev or chrome://tracing
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Record for so long; until Ctrl-C by default
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    seconds: Option<Duration>,
    /// Record so many slices at most (64 bytes each in the device); what comes later is counted only
    #[arg(long, value_name = "EVENTS", default_value_t = 200_000,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(TRACE_EVENTS_MAX)))]
    limit: u32,
}

/// Nothing records for longer than that in one go.
const FOREVER: Duration = Duration::from_secs(30 * 86_400);

/// Runs the verb.
pub fn run(args: &Args) -> Outcome {
    let client = running(&args.device)?;
    // Before anything is recorded: a file that cannot be written costs nothing then.
    let file = std::fs::File::create(&args.output).doing("write", &args.output)?;
    let interrupt = Interrupt::catch()?;
    client.trace_start(args.limit).map_err(|e| refused(args, &e))?;
    if args.seconds.is_none() {
        say!("recording until Ctrl-C");
    }
    sleep_until(Instant::now() + args.seconds.unwrap_or(FOREVER), interrupt.flag());
    let bytes = client.trace_stop().doing("get the recording of", &args.device)?;
    let nonsense = |e: String| Failure::new(format!("{}: not a recording: {e}", args.device.display()));
    let (text, slices) = decode(&bytes).map_err(|e| nonsense(e.to_string()))?;
    let facts: TraceFacts = serde_json::from_str(text).map_err(|e| nonsense(e.to_string()))?;
    let mut out = BufWriter::new(file);
    chrome::write(&mut out, &facts, &slices).and_then(|()| out.flush()).doing("write", &args.output)?;
    let dropped: u64 = facts.cores.iter().map(|c| c.dropped).sum();
    say!("{} slices in {}", slices.len(), args.output.display());
    if dropped > 0 {
        say!("weldfs: {dropped} more slices had no room (see --limit)");
    }
    Ok(0)
}

fn refused(args: &Args, e: &std::io::Error) -> Failure {
    let device = args.device.display();
    match e.raw_os_error().map(Errno) {
        Some(Errno::PERM) => Failure::new(format!("{device}: only root and whoever runs the device may record")),
        Some(Errno::BUSY) => Failure::new(format!("{device}: somebody else is recording")),
        _ => Failure::new(format!("cannot record {device}: {}", crate::failure::reason(e))),
    }
}
