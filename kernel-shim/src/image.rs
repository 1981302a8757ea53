//! What a device runs on: an image file or block device, or memory.

use std::path::PathBuf;
use std::sync::Arc;

use weldfs_journal::Medium;
use weldfs_storagefs::media::{self, RamMedium};
use weldfs_storagefs::store::{MkfsOptions, MountOptions, RecoveryReport, Store};

use crate::ServeError;

/// What to run a device on.
#[derive(Clone, Debug)]
pub enum Source {
    /// An image made by mkfs; its exclusive lock is taken.
    Image(PathBuf),
    /// Fresh memory of this many bytes, formatted at once and gone with the device.
    Ram(u64),
}

/// A mounted store with what recovery said.
pub struct Opened {
    /// The store.
    pub store: Arc<Store>,
    /// What recovery found and did.
    pub recovery: RecoveryReport,
}

impl Opened {
    /// Opens and mounts.
    pub fn open(source: &Source) -> Result<Opened, ServeError> {
        let medium: Arc<dyn Medium> = match source {
            Source::Image(path) => {
                media::open(path, false).map_err(|e| ServeError::Image(format!("{}: {e}", path.display())))?
            }
            Source::Ram(bytes) => {
                let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(*bytes));
                Store::format(&medium, &MkfsOptions::default()).map_err(|e| ServeError::Image(format!("memory: {e}")))?;
                medium
            }
        };
        let (store, recovery) = Store::mount(medium, MountOptions::default()).map_err(|e| match source {
            Source::Image(path) => ServeError::Image(format!("{}: {e}", path.display())),
            Source::Ram(_) => ServeError::Image(format!("memory: {e}")),
        })?;
        Ok(Opened { store, recovery })
    }

    /// Checkpoints, sets the clean flag and lets go of the image.
    pub fn close(self) -> Result<(), ServeError> {
        self.store.unmount().map_err(|e| ServeError::Image(format!("unmount: {e}")))
    }
}
