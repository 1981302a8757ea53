//! `weldfs cat`: files of an image to stdout.

use crate::device;
use crate::failure::{Doing, Outcome};
use crate::place::Place;
use std::io::{ErrorKind, Write};
use weldfs::OpenOptions;

/// Bytes per read.
const PIECE: usize = 1 << 20;

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
        let mut offset = 0;
        loop {
            let n = file.read_at(&mut piece, offset).doing("read", place.to_string())?;
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
