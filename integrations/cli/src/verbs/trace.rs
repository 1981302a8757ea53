//! `weldfs trace`: what ran on each core and in each slot of a device, as a file for Perfetto and chrome://tracing.

mod chrome;

use crate::device::running;
use crate::failure::{Doing, Failure, Outcome, reason};
use crate::interrupt::Interrupt;
use crate::observe::{parse_seconds, sleep_until};
use crate::output::{self, say};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weldfs::{Client, Errno};
use weldfs_ciscops::trace::{Decoded, TRACE_EVENTS_MAX, decode};
use weldfs_device::trace::TraceFacts;

/// Arguments of `weldfs trace`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Only root and the user that runs the device may record, one at a time.\n\
docs/OBSERVABILITY.md says how to read the file.")]
pub struct Args {
    /// The device's socket, or the image or directory that it serves
    #[arg(value_name = "SOCKET|IMAGE|DIR")]
    device: PathBuf,
    /// The file to write (- is standard output); open it in ui.perfetto.dev or chrome://tracing. One that is there
    /// keeps what it holds until the recording is over
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Record for so long; until Ctrl-C by default
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    seconds: Option<Duration>,
    /// Record so many slices at most (64 bytes each in the device), and half as many spans of slots; what comes later
    /// is counted only
    #[arg(long, value_name = "EVENTS", default_value_t = 200_000,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(TRACE_EVENTS_MAX)))]
    limit: u32,
}

/// Nothing records for longer than that in one go.
const FOREVER: Duration = Duration::from_secs(30 * 86_400);
/// Between two looks whether the device is still there.
const LOOK: Duration = Duration::from_secs(1);

/// Where the recording goes.
struct Target<'a> {
    /// `None`: standard output.
    file: Option<File>,
    path: &'a Path,
    /// Whether the file was made here, and nothing was put in it.
    fresh: bool,
}

impl<'a> Target<'a> {
    /// What is in the file stays until there is something to put in its place.
    fn open(path: &'a Path) -> Result<Target<'a>, Failure> {
        if path == Path::new("-") {
            return Ok(Target { file: None, path, fresh: false });
        }
        let (file, fresh) = match File::options().write(true).open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => (File::create(path), true),
            opened => (opened, false),
        };
        Ok(Target { file: Some(file.doing("write", path)?), path, fresh })
    }

    fn write(&mut self, facts: &TraceFacts, trace: &Decoded<'_>) -> Result<(), Failure> {
        let Some(file) = &mut self.file else {
            return output::facts(|out| chrome::write(out, facts, trace));
        };
        self.fresh = false;
        let emptied = match file.set_len(0) {
            // What has no length (a device, a pipe) holds nothing either.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok(()),
            done => done,
        };
        let mut out = BufWriter::new(file);
        let written = emptied.and_then(|()| chrome::write(&mut out, facts, trace)).and_then(|()| out.flush());
        written.doing("write", self.path)
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        if self.fresh && std::fs::symlink_metadata(self.path).is_ok_and(|meta| meta.is_file() && meta.len() == 0) {
            let _ = std::fs::remove_file(self.path);
        }
    }
}

/// Runs the verb.
pub fn run(args: &Args) -> Outcome {
    let client = running(&args.device)?;
    // Before anything is recorded: a file that cannot be written costs nothing then.
    let mut target = Target::open(&args.output)?;
    let interrupt = Interrupt::catch()?;
    client.trace_start(args.limit).map_err(|e| refused(args, &e))?;
    if args.seconds.is_none() {
        say!("recording until Ctrl-C");
    }
    record(args, &client, &interrupt)?;
    let bytes = client.trace_stop().doing("get the recording of", &args.device)?;
    let nonsense = |e: String| Failure::new(format!("{}: not a recording: {e}", args.device.display()));
    let trace = decode(&bytes).map_err(|e| nonsense(e.to_string()))?;
    let facts: TraceFacts = serde_json::from_str(trace.facts).map_err(|e| nonsense(e.to_string()))?;
    target.write(&facts, &trace)?;
    let dropped = chrome::dropped(&facts);
    let place =
        target.file.as_ref().map_or_else(|| "standard output".to_owned(), |_| args.output.display().to_string());
    say!("{} slices and {} spans of slots in {place}", trace.slices.len(), trace.spans.len());
    if dropped > 0 {
        say!("weldfs: {dropped} more had no room (see --limit)");
    }
    Ok(0)
}

/// Waits while the device records. One that is gone records nothing more, and what it had is gone with it.
fn record(args: &Args, client: &Client, interrupt: &Interrupt) -> Result<(), Failure> {
    let end = Instant::now() + args.seconds.unwrap_or(FOREVER);
    while sleep_until(end.min(Instant::now() + LOOK), interrupt.flag()) && Instant::now() < end {
        client.raw().nop().map_err(|e| {
            let why = reason(&e.into());
            Failure::new(format!("{}: the device is gone, and the recording with it: {why}", args.device.display()))
        })?;
    }
    Ok(())
}

fn refused(args: &Args, e: &io::Error) -> Failure {
    let why = match e.raw_os_error().map(Errno) {
        Some(Errno::PERM) => "only root and whoever runs the device may record",
        Some(Errno::BUSY) => "another client is recording",
        Some(Errno::OPNOTSUPP) => "a directory of the host is served there, which has no device to record",
        _ => return Failure::new(format!("cannot record {}: {}", args.device.display(), reason(e))),
    };
    Failure::new(format!("{}: {why}", args.device.display()))
}
