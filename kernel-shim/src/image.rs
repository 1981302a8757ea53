//! What a device runs on: an image file or block device, or memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weldfs_ciscops::limits::WATCH_NS;
use weldfs_device::{DeviceConfig, MediaModel, Profile, on_modelled};
use weldfs_journal::{Medium, SystemClock, SystemRandom};
use weldfs_media::{ImageKind, OpenMode, RamMedium};
use weldfs_store::mount::{MkfsOptions, RecoveryReport, format};
use weldfs_store::superblock::Superblock;
use weldfs_store::{MountOptions, Store};

use crate::ServeError;
use crate::creds;

/// `Superblock::medium_kind` of an image made for byte-addressable memory.
const MEDIUM_KIND_PMEM: u16 = 2;

/// Nanoseconds for which closing an image frees what was removed, before the rest is left to the next mount: with what
/// clients had published (three seconds at most) and a checkpoint less than the five in which a device ends.
const DRAIN_NS_MAX: u64 = 1_000_000_000;

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

/// What a device is going to run on, before anything in it has changed.
pub(crate) struct Taken {
    medium: Arc<dyn Medium>,
    media: Option<Arc<MediaModel>>,
    name: String,
    read_only: bool,
    /// When its lock was had.
    since: Instant,
}

/// A mounted store with what recovery said.
pub struct Opened {
    /// The store.
    pub store: Arc<Store>,
    /// What recovery found and did.
    pub recovery: RecoveryReport,
    /// The file system's label.
    pub label: String,
    medium: Arc<dyn Medium>,
    media: Option<Arc<MediaModel>>,
}

impl Source {
    /// The image, unless it is memory.
    pub fn image(&self) -> Option<&Path> {
        match self {
            Source::Image(path) | Source::ImageNoFlush(path) => Some(path),
            Source::Ram(_) => None,
        }
    }
}

impl Taken {
    fn image(path: &Path, mode: OpenMode, flush: bool) -> Result<Taken, ServeError> {
        let medium = open_image(path, mode, flush)?;
        let read_only = mode != OpenMode::ReadWrite;
        Ok(Taken { medium, media: None, name: path.display().to_string(), read_only, since: Instant::now() })
    }

    /// Opens an image and takes its lock, or takes fresh memory.
    pub fn take(source: &Source) -> Result<Taken, ServeError> {
        let image = |path: &Path, flush| Taken::image(path, OpenMode::ReadWrite, flush);
        match source {
            Source::Image(path) => image(path, true),
            Source::ImageNoFlush(path) => image(path, false),
            Source::Ram(bytes) => {
                let medium: Arc<dyn Medium> = Arc::new(RamMedium::try_new(*bytes).ok_or_else(|| {
                    ServeError::Image(format!("memory: {bytes} bytes are more than this machine gives"))
                })?);
                let cred = creds::of_self();
                let options =
                    MkfsOptions { label: "ram".into(), owner: (cred.uid, cred.gid), ..MkfsOptions::default() };
                format(&medium, &options, &SystemClock, &SystemRandom)
                    .map_err(|e| ServeError::Image(format!("memory: {e}")))?;
                Ok(Taken { medium, media: None, name: "memory".to_owned(), read_only: false, since: Instant::now() })
            }
        }
    }

    /// With the times of the medium that the profile models, if it does.
    pub fn modelled(self, profile: &Profile) -> Taken {
        let (medium, media) = on_modelled(self.medium, profile);
        Taken { medium, media, ..self }
    }

    /// Mounts it; `memory_bytes` is what overlay and caches may take.
    pub fn mount(self, memory_bytes: u64) -> Result<Opened, ServeError> {
        let Taken { medium, media, name, read_only, since } = self;
        let bad = |e: &dyn std::fmt::Display| ServeError::Image(format!("{name}: {e}"));
        let label = Superblock::load(&*medium).map(|(sb, _)| text(&sb.label)).map_err(|e| bad(&e))?;
        let options = MountOptions {
            memory: memory_bytes as usize,
            read_only,
            ..MountOptions::new(Arc::new(SystemClock), Arc::new(SystemRandom))
        };
        let (store, recovery) = weldfs_fs::mount(medium.clone(), options).map_err(|e| bad(&e))?;
        if !recovery.clean {
            // Clients of a device that died may still answer from what it said (`watches` of weldfs-device).
            std::thread::sleep(Duration::from_nanos(WATCH_NS).saturating_sub(since.elapsed()));
        }
        Ok(Opened { store, recovery, label, medium, media })
    }
}

impl Opened {
    /// Opens and mounts; `memory_bytes` is what overlay and caches may take.
    pub fn open(source: &Source, memory_bytes: u64) -> Result<Opened, ServeError> {
        Taken::take(source)?.mount(memory_bytes)
    }

    /// Opens an image to look at it: its shared lock is taken (others may look, too), leave to read it is enough, and
    /// nothing is written to it. One that was not closed cleanly is recovered in memory only: [`Opened::recovery`] says
    /// what of that is not final.
    pub fn open_read_only(path: &Path, memory_bytes: u64) -> Result<Opened, ServeError> {
        Taken::image(path, OpenMode::ReadOnly, true)?.mount(memory_bytes)
    }

    /// The configuration of a device on this store: `config` with what only the image knows.
    pub(crate) fn device_config(&self, config: DeviceConfig) -> DeviceConfig {
        DeviceConfig { label: self.label.clone(), media: self.media.clone(), ..config }
    }

    /// Frees what was removed just now (large files: for a second at most), checkpoints, sets the clean flag and
    /// lets go of the image.
    pub fn close(self) -> Result<(), ServeError> {
        if let Err(e) = self.store.reclaim_for(DRAIN_NS_MAX) {
            // What is damaged keeps its space; the rest is closed as ever.
            tracing::warn!("what was removed is not all free: {e}");
        }
        let unmounted = self.store.unmount().map_err(|e| ServeError::Image(format!("unmount: {e}")));
        // A thread that once used the device may keep it in memory; others may have the image now.
        self.medium.let_go();
        unmounted
    }
}

/// Opens an image as the kind of medium its superblock says. Nothing is written here, and a file that holds no file
/// system is only ever looked at.
fn open_image(path: &Path, mode: OpenMode, flush: bool) -> Result<Arc<dyn Medium>, ServeError> {
    let refused = |e: weldfs_media::OpenError| match e {
        weldfs_media::OpenError::InUse { .. } => ServeError::InUse(e.to_string()),
        _ => ServeError::Image(e.to_string()),
    };
    let look = weldfs_media::open(path, ImageKind::Block, OpenMode::Snapshot).map_err(refused)?;
    let (sb, _) = Superblock::load(&*look).map_err(|e| ServeError::Image(format!("{}: {e}", path.display())))?;
    drop(look);
    let kind = match (sb.medium_kind, flush) {
        (MEDIUM_KIND_PMEM, true) => ImageKind::Pmem,
        (MEDIUM_KIND_PMEM, false) => ImageKind::PmemNoFlush,
        _ => ImageKind::Block,
    };
    weldfs_media::open(path, kind, mode).map_err(refused)
}

fn text(padded: &[u8]) -> String {
    let end = padded.iter().position(|b| *b == 0).unwrap_or(padded.len());
    String::from_utf8_lossy(&padded[..end]).into_owned()
}
