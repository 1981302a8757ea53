//! Reaching the device of an image: the one that is serving it, else one embedded in this process.

use crate::failure::{Doing, Failure, Outcome};
use crate::find;
pub use crate::find::{is_socket, socket_of};
use crate::output::say;
use rustix::fs::Access;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use weldfs::Client;
use weldfs_device::DeviceConfig;
use weldfs_kernel_shim::{Embedded, Opened, ServeError, Source};
use weldfs_store::mount::RecoveryReport;

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

/// Where `image` is served if it is: where the holder of its lock says, else beside it; itself when it is a device's
/// socket.
pub fn socket_at(image: &Path) -> PathBuf {
    if is_socket(image) {
        return image.to_owned();
    }
    find::by_lock(image).map_or_else(|| socket_of(image), |found| found.socket)
}

/// The failure of a verb that needs an image that no device serves.
pub fn must_not_be_served(image: &Path) -> Result<(), Failure> {
    match served(image)? {
        None => Ok(()),
        Some(_) => {
            let socket = socket_at(image);
            Err(Failure::new(format!("{}: being served at {}; stop it first", image.display(), socket.display())))
        }
    }
}

/// The failure of a verb that is for images, named by a directory.
pub fn must_be_an_image(image: &Path, verb: &str) -> Result<(), Failure> {
    if !image.is_dir() {
        return Ok(());
    }
    Err(Failure::new(format!("{}: a directory; {verb} is for an image that no device serves", image.display())))
}

/// A client of the device that serves `image` (which may also be a device's socket itself), if one does. One that is
/// starting is waited for.
pub fn served(image: &Path) -> Result<Option<Client>, Failure> {
    find::client_of(image, Instant::now() + find::wait()?)
}

/// Where the device listens that serves `image`, if one does; also to a user who may not attach.
pub fn served_at(image: &Path) -> Option<PathBuf> {
    match find::by_lock(image) {
        Some(found) => Some(found.socket),
        None => served(image).ok().flatten().map(|_| socket_at(image)),
    }
}

/// A client of the device that serves `image`; to fail where none does.
pub fn running(image: &Path) -> Result<Client, Failure> {
    served(image)?.ok_or_else(|| Failure::new(format!("no device serves {}", image.display())))
}

/// Whether two names lead to one file system: one socket to attach to, or one image.
pub fn same(a: &Path, b: &Path) -> bool {
    let id = |image: &Path| {
        let meta = std::fs::metadata(socket_at(image)).or_else(|_| std::fs::metadata(image)).ok()?;
        Some((meta.dev(), meta.ino()))
    };
    a == b || id(a).is_some_and(|a| Some(a) == id(b))
}

/// Memory of a device in this process, bytes.
const MEMORY: u64 = 256 << 20;

/// Attaches to the device that serves `image`; where none does, opens the image in this process. To look, its shared
/// lock and leave to read it are enough, and nothing is written to it; to change things, the exclusive lock is taken,
/// and an image that was not closed cleanly is recovered by that. A process that has it open in passing, and a device
/// that is starting, are waited for.
pub fn open(image: &Path, want: Want) -> Result<Device, Failure> {
    let until = Instant::now() + find::wait()?;
    let opened = loop {
        if let Some(client) = find::client_of(image, until)? {
            return Ok(Device { client, embedded: None, image: image.to_owned() });
        }
        let opened = match want {
            Want::Read => Opened::open_read_only(image, MEMORY),
            Want::Write => Opened::open(&Source::Image(image.to_owned()), MEMORY),
        };
        match opened {
            Err(ServeError::InUse(_)) if Instant::now() < until => std::thread::sleep(find::PAUSE),
            opened => break opened.map_err(|e| refused(image, want, &e))?,
        }
    };
    match want {
        Want::Read => say_what_is_shown(image, &opened.recovery),
        Want::Write => say_what_is_gone(image, &opened.recovery),
    }
    let config = DeviceConfig { cores: 1, memory_bytes: MEMORY, ..DeviceConfig::default() };
    let embedded = Embedded::on(opened, config).map_err(|e| Failure::new(e.to_string()))?;
    let client = Client::with(Arc::new(embedded.clone())).doing("open", image)?;
    if want == Want::Write && client.info().doing("open", image)?.read_only {
        return Err(Failure::new(format!("{}: the file system is read-only", image.display())));
    }
    Ok(Device { client, embedded: Some(embedded), image: image.to_owned() })
}

/// Says what leave is missing, which is all that the system's own words do not.
pub fn refused(image: &Path, want: Want, error: &ServeError) -> Failure {
    let may = |access| rustix::fs::access(image, access).is_ok();
    let hint = match want {
        _ if !image.exists() || may(Access::WRITE_OK) => "",
        Want::Write if may(Access::READ_OK) => {
            " (you may only read it: ls, cat, get, stat, find, df and du work, what changes it does not)"
        }
        _ if !may(Access::READ_OK) => " (you may not read it; its owner, or a device that serves it, can let you)",
        _ => "",
    };
    Failure::new(format!("{error}{hint}"))
}

/// What is seen of an image that was not closed cleanly is what recovery would make of it, but for one thing.
pub fn say_what_is_shown(image: &Path, recovery: &RecoveryReport) {
    let image = image.display();
    if recovery.clean {
        return;
    }
    say!("weldfs: {image}: was not closed cleanly: shown as recovery would leave it; the image is not changed");
    for told in recovery.end_of_log().into_iter().chain(recovery.torn_tail()) {
        say!("weldfs: {image}: {told}");
    }
    if !recovery.txns.is_empty() {
        say!(
            "weldfs: {image}: {} operation(s) of several steps are shown as far as they came; `weldfs fsck -y {image}` \
             or the next change finishes them",
            recovery.txns.len()
        );
    }
}

/// Says what the log of an image that is about to change ended with: after the mount there is no trace of it.
pub fn say_what_is_gone(image: &Path, recovery: &RecoveryReport) {
    for told in recovery.end_of_log().into_iter().chain(recovery.torn_tail()) {
        say!("weldfs: {}: {told}", image.display());
    }
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
