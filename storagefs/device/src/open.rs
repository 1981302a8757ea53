//! What an open file description of a store holds open: an inode; of a virtual file also what it streams.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use weldfs_ciscops::{Direction, InodeNo, VirtSpec};
use weldfs_locks::Mutex;
use weldfs_session::ofd;
use weldfs_store::Store;

use super::limits::OPEN_FILES_MAX;
use super::stream::Stream;

/// Open file descriptions of a store.
pub type OpenFiles = ofd::OpenFiles<OpenInode>;
/// One of them.
pub type Description = ofd::Description<OpenInode>;
/// The handles of a session.
pub type Handles = ofd::Handles<OpenInode>;

/// An inode held open in the store, as long as this lives.
pub struct OpenInode {
    store: Arc<Store>,
    ino: InodeNo,
    /// What a virtual file streams.
    virt: OnceLock<Box<Virtual>>,
    _counted: OnceLock<Counted>,
}

impl OpenInode {
    /// Holds it.
    pub fn new(store: &Arc<Store>, ino: InodeNo) -> OpenInode {
        store.open_ref(ino);
        OpenInode { store: store.clone(), ino, virt: OnceLock::new(), _counted: OnceLock::new() }
    }

    pub(super) fn ino(&self) -> InodeNo {
        self.ino
    }

    /// Of a virtual file: what it streams.
    #[inline]
    pub(super) fn virt(&self) -> Option<&Virtual> {
        self.virt.get().map(|virt| &**virt)
    }

    /// Makes it that of a virtual file, once.
    pub(super) fn set_virt(&self, virt: Virtual, all: &Virtuals) {
        let _ = self._counted.set(all.one_more());
        let _ = self.virt.set(Box::new(virt));
    }
}

impl Drop for OpenInode {
    fn drop(&mut self) {
        self.store.close_ref(self.ino);
    }
}

/// How many virtual files are open in a device.
#[derive(Clone, Default)]
pub(super) struct Virtuals(Arc<AtomicUsize>);

/// One of them, as long as this lives.
pub(super) struct Counted(Arc<AtomicUsize>);

impl Virtuals {
    /// Whether there is one.
    #[inline]
    pub fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// One more.
    pub fn one_more(&self) -> Counted {
        self.0.fetch_add(1, Ordering::Relaxed);
        Counted(self.0.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An open virtual file: part of its description.
pub(super) struct Virtual {
    pub spec: VirtSpec,
    /// Of the real files, in the order of the spec.
    pub parts: Vec<Part>,
    pub stream: Mutex<Stream>,
}

/// A range of a real file, as it was when the virtual file was opened.
pub(super) struct Part {
    pub file: OpenInode,
    /// Its first byte, and the one behind its last; of a range to be written to, as far as it may grow.
    pub from: u64,
    pub to: u64,
    /// Number of the description that it is a part of.
    pub owner: u64,
    pub pin: Mutex<Option<Pin>>,
}

/// Keeps the bytes of a range from being cut off.
pub(super) struct Pin {
    store: Arc<Store>,
    file: InodeNo,
    number: u64,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.store.pins().remove(self.file, self.number);
    }
}

impl Part {
    /// Keeps its bytes from being cut off.
    pub fn pin(&self, store: &Arc<Store>) {
        let file = self.file.ino();
        let number = store.pins().add(file, self.from, self.to, self.owner);
        *self.pin.lock() = Some(Pin { store: store.clone(), file, number });
    }
}

impl Virtual {
    /// Whether it is written, rather than read.
    pub fn writes(&self) -> bool {
        self.spec.direction != Direction::Read
    }
}

/// Those of a store: what is in the way of its files' changes is looked at.
pub(super) fn files_of(store: &Store) -> Arc<OpenFiles> {
    let files = OpenFiles::new(OPEN_FILES_MAX);
    // Weak, since what is open holds the store.
    let owners = Arc::downgrade(&files);
    store.pins().look_with(Box::new(move |owner| owners.upgrade().is_some_and(|files| files.let_go(owner))));
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use weldfs_ciscops::{Errno, OpenFlags};
    use weldfs_journal::{ManualClock, Medium, SeededRandom};
    use weldfs_media::RamMedium;
    use weldfs_session::tenants::{DeviceStock, Identity, TenantTable, TenantsConfig};
    use weldfs_store::MountOptions;
    use weldfs_store::cred::Cred;
    use weldfs_store::mount::{MkfsOptions, format};

    #[test]
    fn a_claim_that_meets_the_end_of_its_session_leaves_nothing_open() {
        let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(8 << 20));
        let (clock, random) = (Arc::new(ManualClock::default()), Arc::new(SeededRandom::new(1)));
        format(&medium, &MkfsOptions::default(), &*clock, &*random).unwrap();
        let (store, _) = weldfs_fs::mount(medium, MountOptions::new(clock, random)).unwrap();
        let files = OpenFiles::new(1);
        let has = DeviceStock {
            cores: 1,
            slots: 256,
            sessions: 64,
            queue_pairs: 64,
            pool_bytes: 1 << 20,
            handles: 64,
            placeholders: 64,
        };
        let tenants = TenantTable::new(TenantsConfig::default(), has, &SeededRandom::new(1));
        let handles = Handles::new(4, tenants.of(&Identity::from(Cred::root())));
        let handle = handles.reserve().unwrap();
        let description =
            files.describe(InodeNo::ROOT, OpenFlags::READ, OpenInode::new(&store, InodeNo::ROOT)).unwrap();
        handles.close_all();
        handles.fill(handle, description);
        assert_eq!(files.open(), 0);
        assert!(!store.is_open(InodeNo::ROOT));
        assert_eq!(handles.reserve(), Err(Errno::NODEV));
        assert_eq!(handles.count(), 0);
    }
}
