//! Open files: what the kernel's numbers of them stand for.

use crate::mapped::{Hold, Listed};
use crate::session::Session;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weldfs_ciscops::{Errno, Handle};
use weldfs_locks::{Mutex, RwLock};

/// An open file description of the device. Closed when dropped.
pub struct OpenFile {
    pub session: Arc<Session>,
    pub handle: Handle,
    /// The kernel's inode.
    pub node: u64,
    /// Linux's flags that it was opened with.
    pub flags: u32,
    /// Whether it streams through a kernel in the drive.
    pub is_virtual: bool,
    /// Whether bytes were written that such a stream has not been told the end of.
    pub unended: AtomicBool,
    /// Whose byte-range locks its description holds.
    pub lock_owner: Arc<Mutex<Option<u64>>>,
    /// The open file whose description it shares, and which closes that.
    of: Option<Arc<OpenFile>>,
    mapping: Mapping,
}

/// What an open file is to mappings of its file.
pub enum Mapping {
    /// Nothing.
    None,
    /// It is one, and this tells programs so.
    Is(Listed),
    /// It holds them off.
    HeldOff(#[expect(dead_code, reason = "held, and dropped")] Hold),
}

impl OpenFile {
    pub fn new(session: Arc<Session>, handle: Handle, node: u64, flags: u32, is_virtual: bool) -> OpenFile {
        let unended = AtomicBool::new(false);
        OpenFile {
            session,
            handle,
            node,
            flags,
            is_virtual,
            unended,
            lock_owner: Arc::default(),
            of: None,
            mapping: Mapping::None,
        }
    }

    /// Another open file of the same description, with its locks. Each read and write says its offset, so that is all
    /// they share.
    pub fn sharing(of: Arc<OpenFile>, flags: u32) -> OpenFile {
        OpenFile {
            session: of.session.clone(),
            handle: of.handle,
            node: of.node,
            flags,
            is_virtual: of.is_virtual,
            unended: AtomicBool::new(false),
            lock_owner: of.lock_owner.clone(),
            of: Some(of),
            mapping: Mapping::None,
        }
    }

    /// Whether the file is mapped by this one for the first time.
    pub fn is_first_mapping(&self) -> bool {
        matches!(&self.mapping, Mapping::Is(listed) if listed.first)
    }

    /// Its mapping may begin. ENOSYS: it is none.
    pub fn begin_mapping(&self) -> Result<(), Errno> {
        match &self.mapping {
            Mapping::Is(listed) => {
                listed.begin();
                Ok(())
            }
            _ => Err(Errno::NOSYS),
        }
    }

    /// The same, which is that to mappings until it is closed.
    pub fn with(mut self, mapping: Mapping) -> OpenFile {
        self.mapping = mapping;
        self
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if self.of.is_none() {
            // The kernel does not wait for this; errors of writes were told at the writes, and by FLUSH.
            let _ = self.session.raw().close(self.handle);
        }
    }
}

/// All of them.
#[derive(Default)]
pub struct Files {
    open: RwLock<HashMap<u64, Arc<OpenFile>>>,
    last: AtomicU64,
}

impl Files {
    /// Keeps one; returns its number.
    pub fn insert(&self, file: OpenFile) -> u64 {
        let fh = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.write().insert(fh, Arc::new(file));
        fh
    }

    /// The one of a number. EBADF: none.
    pub fn get(&self, fh: u64) -> Result<Arc<OpenFile>, Errno> {
        self.open.read().get(&fh).cloned().ok_or(Errno::BADF)
    }

    /// Takes one out.
    pub fn remove(&self, fh: u64) -> Option<Arc<OpenFile>> {
        self.open.write().remove(&fh)
    }

    /// Takes all out.
    pub fn clear(&self) {
        let open = std::mem::take(&mut *self.open.write());
        drop(open);
    }
}
