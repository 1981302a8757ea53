//! Which files the kernel has mapped, for the programs of a run: the mount's side of the registry.

use std::sync::Arc;
use weldfs_ciscops::Errno;
use weldfs_ciscops::mapped::Registry;
use weldfs_locks::Mutex;

/// The registry, for whoever maps a file.
pub struct Listing {
    registry: Arc<Mutex<Registry>>,
}

impl Listing {
    pub fn new(registry: Registry) -> Listing {
        Listing { registry: Arc::new(Mutex::new(registry)) }
    }

    /// A mapping of a file. ENFILE: as many are as can be listed.
    pub fn list(&self, ino: u64) -> Result<Listed, Errno> {
        self.registry.lock().add(ino)?;
        Ok(Listed { registry: self.registry.clone(), ino })
    }
}

/// A mapping's line in the registry, for as long as the kernel has the file open for it.
pub struct Listed {
    registry: Arc<Mutex<Registry>>,
    ino: u64,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.registry.lock().remove(self.ino);
    }
}
