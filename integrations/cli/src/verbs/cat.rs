//! `weldfs cat`: files of an image to stdout. Of a damaged file comes what is before the damage, then a sentence that
//! says at which byte that is.

use crate::device;
use crate::failure::{Doing, Outcome};
use crate::place::Place;
use std::io::{ErrorKind, Write};
use weldfs::OpenOptions;

/// Bytes per read.
const PIECE: usize = 1 << 20;
/// Bytes per read after one failed: what has one checksum.
const BLOCK: usize = 4096;
const EIO: i32 = weldfs_ciscops::Errno::IO.0;

/// Arguments of `weldfs cat`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// What to print
    #[arg(value_name = "IMAGE:/path", required = true)]
    places: Vec<Place>,
}

/// Prints.
pub fn run(args: &Args) -> Outcome {
    let mut out = std::io::stdout().lock();
    let mut piece = vec![0; PIECE];
    for place in &args.places {
        let device = device::open(&place.image, device::Want::Read)?;
        let file = OpenOptions::new().read(true).open(device.client(), &place.path).doing("open", place.to_string())?;
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
            match out.write_all(&piece[..n]) {
                // Whoever reads has seen enough.
                Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(0),
                done => done.doing("write to", "stdout")?,
            }
            offset += n as u64;
        }
        drop(file);
        device.close()?;
    }
    match out.flush() {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(0),
        done => done.doing("write to", "stdout").map(|()| 0),
    }
}
