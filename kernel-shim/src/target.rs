//! What a program means by a target: the socket of a device, or an image. An image that a device serves is reached
//! through that device; one that none serves is opened in this process, with its exclusive lock, by one device for all
//! clients that name it, and closed with the last of them.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::Access;
use weldfs::{AttachOptions, Client, ClientOptions, Connector, PerProcess, Process, SocketConnector, Transport};
use weldfs_ciscops::Errno;
use weldfs_device::DeviceConfig;
use weldfs_locks::Mutex;
use weldfs_media::{ImageKind, OpenMode};
use weldfs_store::superblock::Superblock;

use crate::announce::device_of;
use crate::embedded::Embedded;
use crate::error::ServeError;
use crate::image::{Opened, Source};

/// Memory of a device in this process unless something else is asked for, bytes.
pub const MEMORY_BYTES: u64 = 256 << 20;
/// How long to wait for a device that starts or ends, and for an image that another process has open, unless
/// [`AttachOptions::wait`] says it: a program that opens its data does not expect to hang for long.
const WAIT: Duration = Duration::from_secs(5);
/// Between two looks at what is waited for.
const PAUSE: Duration = Duration::from_millis(10);

/// A client of the device of a target.
pub struct Reached {
    /// The client.
    pub client: Client,
    /// Whether the device is in this process. It ends when the last client of it (with its files and directories) is
    /// gone.
    pub embedded: bool,
}

/// Why a target could not be reached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The operating system, or the device at the socket, refused.
    #[error("{}: {source}", path.display())]
    System {
        /// The target.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// A directory was named.
    #[error("{}: a directory, and no image", .0.display())]
    Directory(PathBuf),
    /// The image cannot be opened here.
    #[error("{source}")]
    Image {
        /// The image.
        path: PathBuf,
        /// Why.
        source: ServeError,
    },
}

impl TargetError {
    fn system(path: &Path) -> impl FnOnce(io::Error) -> TargetError {
        |source| TargetError::System { path: path.to_owned(), source }
    }

    /// The errno that says it best: EBUSY (another process has the image), EACCES, EISDIR, EUCLEAN (no file system that
    /// can be mounted: another kind of file, another version, damage), or what the system said.
    pub fn errno(&self) -> Errno {
        match self {
            TargetError::System { source, .. }
            | TargetError::Image { source: ServeError::System { source, .. }, .. } => {
                Errno(source.raw_os_error().unwrap_or(Errno::IO.0))
            }
            TargetError::Directory(_) => Errno::ISDIR,
            TargetError::Image { source: ServeError::InUse(_), .. } => Errno::BUSY,
            TargetError::Image { path, .. } if !may(path, Access::READ_OK) => Errno::ACCES,
            TargetError::Image { .. } => Errno(libc::EUCLEAN),
        }
    }
}

/// A client of a target's device. `memory_bytes` is what a device in this process may take, if this call is the one
/// that starts it.
pub fn reach(target: &Path, options: ClientOptions, memory_bytes: u64) -> Result<Reached, TargetError> {
    let meta = std::fs::metadata(target).map_err(TargetError::system(target))?;
    let until = Instant::now() + options.attach.wait.unwrap_or(WAIT);
    if meta.file_type().is_socket() {
        let connector = SocketConnector::from_env(target);
        let client = connector.and_then(|c| connect(c, &options, until)).map_err(TargetError::system(target))?;
        return Ok(Reached { client, embedded: false });
    }
    if meta.is_dir() {
        return Err(TargetError::Directory(target.to_owned()));
    }
    let slot = slot_of((meta.dev(), meta.ino()));
    // Held until the device is there: of several threads that want it the first one starts it.
    let mut held = slot.held.lock();
    if held.device.is_none() {
        loop {
            if let Some(client) = serving(target, &meta, &options, until).map_err(TargetError::system(target))? {
                return Ok(Reached { client, embedded: false });
            }
            match embed(target, memory_bytes) {
                Err(ServeError::InUse(_)) if Instant::now() < until => std::thread::sleep(PAUSE),
                Err(source) => return Err(TargetError::Image { path: target.to_owned(), source }),
                Ok(device) => {
                    held.device = Some(device);
                    break;
                }
            }
        }
    }
    let Some(device) = held.device.clone() else { unreachable!("it was there, or has just been started") };
    held.users += 1;
    drop(held);
    // A device in this process has no tenants.
    let attach = AttachOptions { token: None, ..options.attach };
    let share = Arc::new(Share { slot, device, process: Process::current() });
    let client = Client::with_options(share, ClientOptions { attach, ..options });
    Ok(Reached { client: client.map_err(TargetError::system(target))?, embedded: true })
}

fn connect(connector: SocketConnector, options: &ClientOptions, until: Instant) -> io::Result<Client> {
    let left = until.saturating_duration_since(Instant::now());
    let attach = AttachOptions { wait: Some(left), ..options.attach.clone() };
    Client::with_options(Arc::new(connector), ClientOptions { attach, ..options.clone() })
}

/// No device listens, or it ended before it answered.
fn is_gone(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
        || e.raw_os_error() == Some(Errno::NODEV.0)
}

/// A client of the device that serves an image, if one does: the one that holds its lock, or answers beside it.
fn serving(
    image: &Path,
    meta: &std::fs::Metadata,
    options: &ClientOptions,
    until: Instant,
) -> io::Result<Option<Client>> {
    let uuid = || {
        let medium = weldfs_media::open(image, ImageKind::Block, OpenMode::Snapshot).ok()?;
        Superblock::load(&*medium).ok().map(|(superblock, _)| superblock.uuid)
    };
    let to = |socket: PathBuf| connect(SocketConnector::of_image(socket, Some(meta.uid()), uuid()), options, until);
    while let Some(found) = device_of(image)? {
        match to(found.socket) {
            Err(e) if is_gone(&e) && Instant::now() < until => std::thread::sleep(PAUSE),
            done => return done.map(Some),
        }
    }
    let mut beside = image.as_os_str().to_owned();
    beside.push(".sock");
    match to(beside.into()) {
        Ok(client) => Ok(Some(client)),
        Err(e) if e.raw_os_error() == Some(Errno::ACCES.0) => Err(e),
        // Not its device, whatever listens there: the image's lock decides.
        Err(_) => Ok(None),
    }
}

fn may(image: &Path, access: Access) -> bool {
    rustix::fs::access(image, access).is_ok()
}

/// A device in this process; one that only reads where the image may only be read.
fn embed(image: &Path, memory_bytes: u64) -> Result<Embedded, ServeError> {
    let config = DeviceConfig { cores: 1, memory_bytes, ..DeviceConfig::default() };
    if may(image, Access::READ_OK) && !may(image, Access::WRITE_OK) {
        return Embedded::on(Opened::open_read_only(image, memory_bytes)?, config);
    }
    Embedded::open(&Source::Image(image.to_owned()), config)
}

/// The device of one image in this process.
struct Slot {
    image: (u64, u64),
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    device: Option<Embedded>,
    /// Clients of it.
    users: usize,
}

/// Images that this process has had open, each once. A forked child begins with none.
static SLOTS: PerProcess<Mutex<Vec<Arc<Slot>>>> = PerProcess::new();

fn slot_of(image: (u64, u64)) -> Arc<Slot> {
    let mut slots = SLOTS.get(|_| Mutex::default()).lock();
    // What no client has, or is about to open, is forgotten.
    slots.retain(|slot| slot.image == image || Arc::strong_count(slot) > 1);
    if let Some(known) = slots.iter().find(|slot| slot.image == image) {
        return known.clone();
    }
    let slot = Arc::new(Slot { image, held: Mutex::default() });
    slots.push(slot.clone());
    slot
}

/// One client's share of a device in this process; the last one closes it.
///
/// A client's thread may keep a session alive long after the client itself is gone, so it is clients that are counted.
struct Share {
    slot: Arc<Slot>,
    device: Embedded,
    process: Process,
}

impl Connector for Share {
    fn attach(&self, options: &AttachOptions) -> io::Result<Box<dyn Transport>> {
        self.device.attach(options)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if !self.process.is_current() {
            // The parent's, and so may be the lock.
            return;
        }
        let mut held = self.slot.held.lock();
        held.users -= 1;
        if held.users == 0
            && let Some(device) = held.device.take()
            && let Err(e) = device.close()
        {
            tracing::error!("an embedded device did not end cleanly: {e}");
        }
    }
}
