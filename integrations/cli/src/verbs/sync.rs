//! `weldfs sync`: what was changed is on the medium when it returns.

use crate::device::{self, Want};
use crate::failure::{Doing, Failure, Outcome};
use crate::output::{each, exit_code};
use crate::place::Whole;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use weldfs::OpenOptions;

/// Arguments of `weldfs sync`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Of a running device: all that any client has changed so far, or one file with IMAGE:/path.\n\
Of an image that no device serves: what the system still holds of the image file.")]
pub struct Args {
    /// Images, sockets of running devices, or files inside
    #[arg(value_name = "SOCKET|IMAGE|DIR|IMAGE:/path", required = true)]
    what: Vec<Whole>,
}

/// Syncs.
pub fn run(args: &Args) -> Outcome {
    each(&args.what, sync).map(exit_code)
}

fn sync(what: &Whole) -> Result<(), Failure> {
    let image = &what.image;
    match (device::served(image)?, &what.path) {
        (Some(client), None) => client.sync().doing("make the changes durable in", image),
        (Some(client), Some(path)) => {
            let file = OpenOptions::new().read(true).open(&client, path);
            let label = format!("{}:{}", image.display(), path.display());
            file.and_then(|file| file.sync_all()).doing("make durable", label)
        }
        (None, path) => image_file(image, path.as_deref()),
    }
}

/// Nothing runs on it, so nothing is in memory but what the system caches of the file itself.
fn image_file(image: &Path, path: Option<&Path>) -> Result<(), Failure> {
    if let Some(path) = path {
        // What is named must be there.
        let device = device::open(image, Want::Read)?;
        let label = format!("{}:{}", image.display(), path.display());
        device.client().metadata(path).doing("look at", label)?;
        device.close()?;
    }
    // Without a wait for who writes into a FIFO.
    let how = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(image, how, Mode::empty()).map(File::from).map_err(std::io::Error::from);
    let file = file.doing("open", image)?;
    let kind = file.metadata().doing("look at", image)?.file_type();
    if !kind.is_file() && !kind.is_block_device() && !kind.is_dir() {
        let why = "neither a file, a block device nor a directory";
        return Err(Failure::new(format!("{}: {why}", image.display())));
    }
    file.sync_all().doing("make durable", image)
}
