//! Reaching the device of an image: the one that is serving it, else one embedded in this process.

use crate::failure::{Doing, Failure, Outcome, reason};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weldfs::Client;
use weldfs_kernel_shim::{Embedded, Source};
use weldfs_storagefs::device::DeviceConfig;

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
    embedded: Option<Embedded>,
    image: PathBuf,
}

/// The socket at which an image is served unless its server was told otherwise.
pub fn socket_of(image: &Path) -> PathBuf {
    let mut name = image.as_os_str().to_owned();
    name.push(".sock");
    name.into()
}

/// Whether this is the socket of a device, or of anything else.
pub fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
}

/// Where `image` is served if it is: its own socket, or itself when it is a device's socket.
pub fn socket_at(image: &Path) -> PathBuf {
    if is_socket(image) { image.to_owned() } else { socket_of(image) }
}

/// The failure of a verb that needs an image that nobody serves.
pub fn must_not_be_served(image: &Path) -> Result<(), Failure> {
    match served(image)? {
        None => Ok(()),
        Some(_) => {
            let socket = socket_at(image);
            Err(Failure::new(format!("{}: being served at {}; stop it first", image.display(), socket.display())))
        }
    }
}

/// A client of the device that serves `image` (which may also be a device's socket itself), if one does.
pub fn served(image: &Path) -> Result<Option<Client>, Failure> {
    let is_socket = is_socket(image);
    let socket = if is_socket { image.to_owned() } else { socket_of(image) };
    match Client::connect(&socket) {
        Ok(client) => Ok(Some(client)),
        Err(e) if is_socket => Err(Failure::new(format!("cannot attach to {}: {}", socket.display(), reason(&e)))),
        // Nobody has served it, or who did is gone: the socket file alone means nothing.
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Ok(None),
        // In the way, but no socket of a device: the image decides.
        Err(e) if !std::fs::metadata(&socket).is_ok_and(|meta| meta.file_type().is_socket()) => {
            tracing::debug!("{}: {e}", socket.display());
            Ok(None)
        }
        Err(e) => Err(Failure::new(format!("cannot attach to {}: {}", socket.display(), reason(&e)))),
    }
}

/// A client of the device that serves `image`; to fail where nobody does.
pub fn running(image: &Path) -> Result<Client, Failure> {
    served(image)?.ok_or_else(|| Failure::new(format!("nobody serves {}", image.display())))
}

/// Whether two names lead to one file system: one socket to attach to, or one image.
pub fn same(a: &Path, b: &Path) -> bool {
    let id = |image: &Path| {
        let meta = std::fs::metadata(socket_at(image)).or_else(|_| std::fs::metadata(image)).ok()?;
        Some((meta.dev(), meta.ino()))
    };
    a == b || id(a).is_some_and(|a| Some(a) == id(b))
}

/// Attaches to the device that serves `image`; where nobody does, opens the image in this process, with the exclusive
/// lock. An image that was not closed cleanly is recovered by that.
pub fn open(image: &Path, want: Want) -> Result<Device, Failure> {
    if let Some(client) = served(image)? {
        return Ok(Device { client, embedded: None, image: image.to_owned() });
    }
    let config = DeviceConfig { cores: 1, memory_bytes: 256 << 20, ..DeviceConfig::default() };
    let embedded = Embedded::open(&Source::Image(image.to_owned()), config).map_err(|e| Failure::new(e.to_string()))?;
    let client = Client::with(Arc::new(embedded.clone())).doing("open", image)?;
    if want == Want::Write && client.info().doing("open", image)?.read_only {
        return Err(Failure::new(format!("{}: the file system is read-only", image.display())));
    }
    Ok(Device { client, embedded: Some(embedded), image: image.to_owned() })
}

impl Device {
    /// The client to use.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Ends a verb that only looked.
    pub fn close(self) -> Result<(), Failure> {
        let Device { client, embedded, .. } = self;
        drop(client);
        embedded.map_or(Ok(()), |embedded| embedded.close().map_err(|e| Failure::new(e.to_string())))
    }

    /// Ends a verb that changed things: everything is durable on return.
    pub fn finish(self) -> Outcome {
        self.client.sync().doing("make the changes durable in", &self.image)?;
        self.close().map(|()| 0)
    }
}
