//! What an open file description of a store holds open.

use std::sync::{Arc, OnceLock};

use weldfs_ciscops::{Errno, InodeNo, OpenFlags};
use weldfs_fs::{Finished, OpenedInfo};
use weldfs_session::ofd;
use weldfs_store::Store;
use weldfs_store::error::FsResult;

use super::core::Core;
use super::limits::OPEN_FILES_MAX;
use super::session::SessionState;
use super::virt::{Counted, Virtual, Virtuals};

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

/// Those of a store: what is in the way of its files' changes is looked at.
pub(super) fn files_of(store: &Store) -> Arc<OpenFiles> {
    let files = OpenFiles::new(OPEN_FILES_MAX);
    // Weak, since what is open holds the store.
    let owners = Arc::downgrade(&files);
    store.pins().look_with(Box::new(move |owner| owners.upgrade().is_some_and(|files| files.let_go(owner))));
    files
}

/// The description of what a command opened. Before the commit, so that a nameless file is held open from its first
/// moment.
pub(super) fn described(
    core: &Core,
    session: &SessionState,
    f: &Finished<'_>,
) -> FsResult<Option<(OpenedInfo, Arc<Description>)>> {
    let Some(o) = f.opened else { return Ok(None) };
    if o.placeholder != 0 && !session.handles.has_placeholder(o.placeholder) {
        return Err(Errno::INVAL.into());
    }
    let held = OpenInode::new(&core.store, o.ino);
    Ok(Some((o, core.files.describe(o.ino, kept_flags(o.flags), held)?)))
}

/// From now on a handle, and a placeholder, stand for the description.
pub(super) fn installed(core: &Core, session: &SessionState, o: &OpenedInfo, description: Arc<Description>) {
    if let Some(p) = session.handles.take_placeholder(o.placeholder) {
        core.files.bind(p, &description);
    }
    session.handles.fill(o.handle, description);
}

fn kept_flags(flags: OpenFlags) -> OpenFlags {
    flags.difference(OpenFlags::CREATE | OpenFlags::EXCL | OpenFlags::TRUNC | OpenFlags::NOFOLLOW)
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
