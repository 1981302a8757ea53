//! `weldfs cat`: files of an image to stdout. Of a damaged file comes what is before the damage, then a sentence that
//! says at which byte that is.

use crate::device;
use crate::failure::{Doing, Failure, Outcome};
use crate::output::{self, each, exit_code};
use crate::place::{Place, Readable};
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use weldfs::{Client, Errno, OpenOptions};

/// Bytes per read.
const PIECE: usize = 1 << 20;
/// Bytes per read after one failed: what has one checksum.
const BLOCK: usize = 4096;
const EIO: i32 = Errno::IO.0;

/// Arguments of `weldfs cat`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// What to print; - is standard input
    #[arg(value_name = "IMAGE:/path|-", required = true)]
    places: Vec<Readable>,
}

/// Prints.
pub fn run(args: &Args) -> Outcome {
    let failed = each(&args.places, |place| match place {
        Readable::Inside(place) => show(place),
        Readable::Stdin => pass_on(),
    })?;
    Ok(exit_code(failed))
}

/// One file of an image.
pub fn show(place: &Place) -> Result<(), Failure> {
    let mut piece = vec![0; PIECE];
    let device = device::open(&place.image, device::Want::Read)?;
    let opened = OpenOptions::new().read(true).open(device.client(), &place.path);
    let file = match opened.as_ref().err().and_then(|e| lacking(device.client(), place, e)) {
        Some(why) => return Err(why),
        None => opened.doing("open", place.to_string())?,
    };
    let (mut offset, mut len) = (0, PIECE);
    loop {
        let n = match file.read_at(&mut piece[..len], offset) {
            // A read fails as a whole: block by block shows what is before the damage, and where that is.
            Err(e) if len > BLOCK && e.raw_os_error() == Some(EIO) => {
                len = BLOCK;
                continue;
            }
            done => done.doing("read", format!("{place} at byte {offset}"))?,
        };
        if n == 0 {
            break;
        }
        output::facts(|out| out.write_all(&piece[..n]))?;
        offset += n as u64;
    }
    drop(file);
    device.close()
}

/// What a virtual file lacks that does not open.
fn lacking(client: &Client, place: &Place, error: &io::Error) -> Option<Failure> {
    let spec = client.virt_spec(&place.path).ok()?;
    let gone = || spec.ranges.iter().map(|r| OsStr::from_bytes(&r.path)).find(|p| client.metadata(p).is_err());
    let why = match Errno(error.raw_os_error()?) {
        Errno::NODEV => format!("its kernel {} is not active (weldfs kernel activate)", spec.kernel),
        Errno::NOENT => match gone() {
            Some(path) => format!("{path:?}, which it streams, is not there"),
            None => format!("the device has no kernel {} (weldfs kernel ls)", spec.kernel),
        },
        _ => return None,
    };
    Some(Failure::new(format!("cannot open {place}: {why}")))
}

/// What comes from standard input.
fn pass_on() -> Result<(), Failure> {
    let mut piece = vec![0; PIECE];
    loop {
        let n = match io::stdin().read(&mut piece) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            done => done.doing("read", "standard input")?,
        };
        if n == 0 {
            return Ok(());
        }
        output::facts(|out| out.write_all(&piece[..n]))?;
    }
}
