//! `weldfs cat`: files of an image to stdout. Of a damaged file comes what is before the damage, then a sentence that
//! says at which byte that is.

use crate::device;
use crate::failure::{Doing, Failure, Outcome};
use crate::output::{self, each, exit_code};
use crate::place::{Place, Readable};
use crate::streams;
use std::io::{self, Read};
use weldfs::{Errno, OpenOptions};

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
    let told = |e: io::Error| streams::why(device.client(), &place.path, &e).map_or(e, io::Error::other);
    let opened = OpenOptions::new().read(true).open(device.client(), &place.path).map_err(told);
    let file = opened.doing("open", place.to_string())?;
    let (mut offset, mut len) = (0, PIECE);
    loop {
        let n = match file.read_at(&mut piece[..len], offset) {
            // A read fails as a whole: block by block shows what is before the damage, and where that is.
            Err(e) if len > BLOCK && e.raw_os_error() == Some(EIO) => {
                len = BLOCK;
                continue;
            }
            done => done.map_err(told).doing("read", format!("{place} at byte {offset}"))?,
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
