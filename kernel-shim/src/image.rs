//! What a device runs on: an image file or block device, or memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use weldfs_journal::{Medium, SystemClock, SystemRandom};
use weldfs_storagefs::device::DeviceConfig;
use weldfs_storagefs::media::{self, ImageKind, OpenMode, RamMedium};
use weldfs_storagefs::mount::{MkfsOptions, RecoveryReport, format};
use weldfs_storagefs::store::{MountOptions, Store};
use weldfs_storagefs::superblock::Superblock;

use crate::ServeError;
use crate::creds;

/// `Superblock::medium_kind` of an image made for byte-addressable memory.
const MEDIUM_KIND_PMEM: u16 = 2;

/// What to run a device on.
#[derive(Clone, Debug)]
pub enum Source {
    /// An image made by mkfs; its exclusive lock is taken.
    Image(PathBuf),
    /// The same; a pmem image is used without write-back and fence instructions (a named mode for comparisons).
    ImageNoFlush(PathBuf),
    /// Fresh memory of this many bytes, formatted at once and gone with the device.
    Ram(u64),
}

/// A mounted store with what recovery said.
pub struct Opened {
    /// The store.
    pub store: Arc<Store>,
    /// What recovery found and did.
    pub recovery: RecoveryReport,
    /// The file system's label.
    pub label: String,
}

impl Opened {
    /// Opens and mounts; `memory_bytes` is what overlay and caches may take.
    pub fn open(source: &Source, memory_bytes: u64) -> Result<Opened, ServeError> {
        match source {
            Source::Image(path) => mount(open_image(path, true)?, memory_bytes, &path.display().to_string()),
            Source::ImageNoFlush(path) => mount(open_image(path, false)?, memory_bytes, &path.display().to_string()),
            Source::Ram(bytes) => {
                let medium: Arc<dyn Medium> = Arc::new(RamMedium::try_new(*bytes).ok_or_else(|| {
                    ServeError::Image(format!("memory: {bytes} bytes are more than this machine gives"))
                })?);
                let cred = creds::of_self();
                let options =
                    MkfsOptions { label: "ram".into(), owner: (cred.uid, cred.gid), ..MkfsOptions::default() };
                format(&medium, &options, &SystemClock, &SystemRandom)
                    .map_err(|e| ServeError::Image(format!("memory: {e}")))?;
                mount(medium, memory_bytes, "memory")
            }
        }
    }

    /// The configuration of a device on this store: `config` with what only the image knows.
    pub fn device_config(&self, config: DeviceConfig) -> DeviceConfig {
        DeviceConfig { label: self.label.clone(), ..config }
    }

    /// Checkpoints, sets the clean flag and lets go of the image.
    pub fn close(self) -> Result<(), ServeError> {
        self.store.unmount().map_err(|e| ServeError::Image(format!("unmount: {e}")))
    }
}

/// Opens an image as the kind of medium its superblock says. Nothing is written here, and a file that holds no file
/// system is only ever looked at.
fn open_image(path: &Path, flush: bool) -> Result<Arc<dyn Medium>, ServeError> {
    let refused = |e: media::OpenError| ServeError::Image(e.to_string());
    let look = media::open(path, ImageKind::Block, OpenMode::Snapshot).map_err(refused)?;
    let (sb, _) = Superblock::load(&*look).map_err(|e| ServeError::Image(format!("{}: {e}", path.display())))?;
    drop(look);
    let kind = match (sb.medium_kind, flush) {
        (MEDIUM_KIND_PMEM, true) => ImageKind::Pmem,
        (MEDIUM_KIND_PMEM, false) => ImageKind::PmemNoFlush,
        _ => ImageKind::Block,
    };
    media::open(path, kind, OpenMode::ReadWrite).map_err(refused)
}

fn mount(medium: Arc<dyn Medium>, memory_bytes: u64, name: &str) -> Result<Opened, ServeError> {
    let bad = |e: &dyn std::fmt::Display| ServeError::Image(format!("{name}: {e}"));
    let label = Superblock::load(&*medium).map(|(sb, _)| text(&sb.label)).map_err(|e| bad(&e))?;
    let options = MountOptions {
        memory: memory_bytes as usize,
        ..MountOptions::new(Arc::new(SystemClock), Arc::new(SystemRandom))
    };
    let (store, recovery) = Store::mount(medium, options).map_err(|e| bad(&e))?;
    Ok(Opened { store, recovery, label })
}

fn text(padded: &[u8]) -> String {
    let end = padded.iter().position(|b| *b == 0).unwrap_or(padded.len());
    String::from_utf8_lossy(&padded[..end]).into_owned()
}
