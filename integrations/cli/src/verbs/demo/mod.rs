//! `weldfs demo`: what a user gains, measured and shown on this machine.
//!
//! First the gain of one command in place of several, by `bench micro` and under its rules. Then what survives: an
//! image in a temporary folder, a device process of its own, a real tree through fused operations, four client
//! processes that append a checksummed log, SIGKILL of the device in the middle, recovery, proof that nothing
//! acknowledged as durable was lost; once on `pmem`, once on `block`. Then slots: grep and SQL in the drive, with what
//! crosses the link beside what a host moves, and the log again with checksums by a kernel, killed as before.

mod corpus;
mod device;
mod measure;
mod slots;
mod story;
mod table;
mod worker;

use crate::failure::{FAILED, Failure, Outcome, reason};
use std::io;
use std::path::PathBuf;

/// Arguments of `weldfs demo`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A shorter run: fewer rounds, files and appends (half a minute)
    #[arg(long)]
    quick: bool,
    /// Keep the images in this folder instead of a temporary one that is removed at the end
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Print the facts as one JSON object on stdout
    #[arg(long)]
    json: bool,
    /// The hidden role of a client process
    #[arg(long, hide = true, requires_all = ["socket", "notes", "most"])]
    worker: Option<u32>,
    #[arg(long, hide = true)]
    socket: Option<PathBuf>,
    #[arg(long, hide = true)]
    notes: Option<PathBuf>,
    #[arg(long, hide = true)]
    most: Option<u64>,
    #[arg(long, hide = true, requires = "worker")]
    slot: bool,
}

/// Exit code after Ctrl-C, as shells have it.
const INTERRUPTED: u8 = 130;

/// Runs the demo; fails when a promise was found broken.
pub fn run(args: &Args) -> Outcome {
    match tell(args) {
        Ok(true) => Ok(0),
        Ok(false) => Ok(FAILED),
        Err(e) if e.kind() == io::ErrorKind::Interrupted => {
            Err(Failure::new("the demo was interrupted").code(INTERRUPTED))
        }
        Err(e) => match e.downcast::<Failure>() {
            // Nothing reads the story any more: what it started has been ended on the way here.
            Ok(failure) => Err(failure),
            Err(e) => Err(Failure::new(format!("the demo could not go on: {}", reason(&e)))),
        },
    }
}

fn tell(args: &Args) -> io::Result<bool> {
    if let (Some(worker), Some(socket), Some(notes), Some(most)) = (args.worker, &args.socket, &args.notes, args.most) {
        return worker::run(socket, worker, most, notes, args.slot).map(|()| true);
    }
    let temporary = match &args.keep {
        Some(_) => None,
        None => Some(tempfile::Builder::new().prefix("weldfs-demo-").tempdir()?),
    };
    let folder = match (&args.keep, &temporary) {
        (Some(keep), _) => keep.clone(),
        (None, Some(temporary)) => temporary.path().to_owned(),
        (None, None) => unreachable!("one of the two is set just above"),
    };
    std::fs::create_dir_all(&folder)?;
    // The temporary folder will be gone at the next measurement; the one above it will not.
    let place = temporary.as_ref().map_or(folder.as_path(), |_| folder.parent().unwrap_or(&folder));
    story::tell(&folder, place, args.quick, args.json)
}
