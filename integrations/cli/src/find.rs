//! Finding the device of an image: by the image's lock, whatever socket the device listens at, else beside the image;
//! and waiting, within a bound, for a device that is starting or ending.

use crate::failure::{Failure, reason};
use crate::output::say;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weldfs::{AttachOptions, Client, ClientOptions, Errno, SocketConnector};
use weldfs_journal::Medium;
use weldfs_kernel_shim::announce::{Found, device_of};
use weldfs_media::{ImageKind, OpenError, OpenMode};
use weldfs_store::superblock::Superblock;

/// Between two looks at what is waited for.
pub const PAUSE: Duration = Duration::from_millis(10);

/// The socket at which an image or a directory is served unless its server was told otherwise.
pub fn socket_of(image: &Path) -> PathBuf {
    // Beside a directory, whatever slashes it is written with.
    let mut name = image.components().collect::<PathBuf>().into_os_string();
    name.push(".sock");
    name.into()
}

/// Whether this is the socket of a device, or of anything else.
pub fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
}

/// How long verbs wait for what is known to be starting: WELDFS_WAIT, seconds.
pub fn wait() -> Result<Duration, Failure> {
    match weldfs::wait_from_env() {
        Ok(wait) => Ok(wait.unwrap_or(weldfs::WAIT_DEFAULT)),
        Err(_) => Err(Failure::usage(format!("{} must be seconds, 0 to 86400", weldfs::WAIT_VARIABLE))),
    }
}

/// Seconds for arguments, 0 included.
pub fn parse_timeout(text: &str) -> Result<Duration, String> {
    weldfs::parse_wait(text).map_err(|_| format!("'{text}' is not a number of seconds from 0 to 86400"))
}

/// The device that holds the image's lock and serves it, or is about to.
pub fn by_lock(image: &Path) -> Option<Found> {
    device_of(image).ok().flatten()
}

/// Attaches; a device that listens and does not answer yet is waited for until then. EPERM: it is no device of
/// `device`, which is the socket itself, or the image or directory that it is looked for by.
pub fn connect(device: &Path, socket: &Path, until: Instant) -> io::Result<Client> {
    let left = until.saturating_duration_since(Instant::now());
    let attach = AttachOptions { wait: Some(left), ..AttachOptions::from_env()? };
    let options = ClientOptions { attach, ..ClientOptions::default() };
    Client::with_options(Arc::new(connector(device, socket)?), options)
}

/// The way to the device of `device` that listens at `socket`: not to any other that has taken its place.
pub fn connector(device: &Path, socket: &Path) -> io::Result<SocketConnector> {
    if device == socket {
        return SocketConnector::from_env(socket);
    }
    let meta = std::fs::metadata(device).ok();
    let uuid = meta.as_ref().filter(|meta| !meta.is_dir()).and_then(|_| uuid_of(device));
    Ok(SocketConnector::of_image(socket, meta.map(|meta| meta.uid()), uuid))
}

/// The UUID of an image that can be read, whoever has it open.
fn uuid_of(image: &Path) -> Option<[u8; 16]> {
    let medium = weldfs_media::open(image, ImageKind::Block, OpenMode::Snapshot).ok()?;
    Superblock::load(&*medium).ok().map(|(superblock, _)| superblock.uuid)
}

/// No device listens, or it ended before it answered.
pub fn is_gone(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
        || e.raw_os_error() == Some(Errno::NODEV.0)
}

/// The medium of an image that is not served. A process that has it open in passing, and a device that is ending, are
/// waited for.
pub fn medium(image: &Path, kind: ImageKind, mode: OpenMode) -> Result<Arc<dyn Medium>, Failure> {
    let until = Instant::now() + wait()?;
    loop {
        match weldfs_media::open(image, kind, mode) {
            Err(OpenError::InUse { .. }) if Instant::now() < until => std::thread::sleep(PAUSE),
            opened => return opened.map_err(|e| Failure::new(e.to_string())),
        }
    }
}

/// Why there is no client.
pub fn cannot_attach(socket: &Path, e: &io::Error) -> Failure {
    let may_connect = || rustix::fs::access(socket, rustix::fs::Access::WRITE_OK).is_ok();
    let more = match e.kind() {
        io::ErrorKind::ConnectionRefused => ": no device listens there; the socket was left behind",
        io::ErrorKind::PermissionDenied
            if e.raw_os_error() == Some(Errno::ACCES.0)
                && std::env::var_os(weldfs::TOKEN_VARIABLE).is_some()
                && may_connect() =>
        {
            ": WELDFS_TENANT_TOKEN is no token of this device (a token holds until its device ends)"
        }
        io::ErrorKind::PermissionDenied if e.raw_os_error() == Some(Errno::PERM.0) => {
            ": it is run by another user than root, you or the owner of what it serves (WELDFS_DEVICE_USER may name \
             one), or serves another file system"
        }
        io::ErrorKind::TimedOut => {
            "; it may be recovering its image: `weldfs wait` waits for it, and WELDFS_WAIT=SECONDS makes all verbs wait"
        }
        _ => "",
    };
    Failure::new(format!("cannot attach to {}: {}{more}", socket.display(), reason(e)))
}

/// A client of the device that serves `image` (or listens at it, when it is a socket), if one does. One whose lock says
/// that it is starting or ending is waited for until then.
pub fn client_of(image: &Path, until: Instant) -> Result<Option<Client>, Failure> {
    if is_socket(image) {
        return connect(image, image, until).map(Some).map_err(|e| cannot_attach(image, &e));
    }
    while let Some(found) = by_lock(image) {
        match connect(image, &found.socket, until) {
            Ok(client) => return Ok(Some(client)),
            // It does not listen yet, or no more: its lock tells which, in a moment.
            Err(e) if is_gone(&e) && Instant::now() < until => std::thread::sleep(PAUSE),
            Err(e) => return Err(cannot_attach(&found.socket, &e)),
        }
    }
    let socket = socket_of(image);
    match connect(image, &socket, until) {
        Ok(client) => Ok(Some(client)),
        // Not served, or its device is gone: the socket file alone means nothing.
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Ok(None),
        // In the way, but no socket of a device: the image decides.
        Err(e) if !is_socket(&socket) => {
            tracing::debug!("{}: {e}", socket.display());
            Ok(None)
        }
        // Nor of its device: that one would hold its lock. A directory has none to go by.
        Err(e) if e.raw_os_error() == Some(Errno::PERM.0) && !image.is_dir() => {
            say!("weldfs: {}", cannot_attach(&socket, &e));
            Ok(None)
        }
        Err(e) => Err(cannot_attach(&socket, &e)),
    }
}
