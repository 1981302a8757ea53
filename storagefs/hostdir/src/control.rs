//! The control plane's hold on a session.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use weldfs_ciscops::{Errno, Handle, OpenFlags};

use super::core::Core;
use super::session::{HostFile, SessionState};
use weldfs_session::rings::{Claimed, QueueParts};
use weldfs_session::tenants::Identity;

/// See the module; dropping it ends the session. Thread-safe.
pub struct HostSession {
    core: Arc<Core>,
    state: Arc<SessionState>,
}

impl HostSession {
    /// Of a new client; as [`super::HostDir::attach`].
    pub(super) fn attach(core: &Arc<Core>, who: Identity, client_id: [u8; 16]) -> Result<HostSession, Errno> {
        Ok(HostSession { core: core.clone(), state: core.attach(who, client_id)? })
    }

    /// The session's number.
    pub fn id(&self) -> u64 {
        self.state.id
    }

    /// The doorbell to hand to the client.
    pub fn doorbell(&self) -> &Arc<OwnedFd> {
        &self.state.doorbell
    }

    /// A queue pair, as the device's `Session::new_queue`.
    pub fn new_queue(&self, depth: u32, pool_bytes: u32) -> Result<QueueParts, Errno> {
        self.core.open_queue(&self.state, depth, pool_bytes, true)
    }

    /// The same in memory of this process.
    pub fn new_queue_local(&self, depth: u32, pool_bytes: u32) -> Result<QueueParts, Errno> {
        self.core.open_queue(&self.state, depth, pool_bytes, false)
    }

    /// Fresh placeholders: number and descriptor to send. EMFILE.
    pub fn placeholders(&self, count: u32) -> Result<Vec<(u32, OwnedFd)>, Errno> {
        if self.state.closing() {
            return Err(Errno::NODEV);
        }
        match self.state.handles.placeholders(count) {
            // Those of files that are not held any more count until a look has been taken.
            Err(Errno::MFILE) => {
                self.core.files.sweep();
                self.state.handles.placeholders(count)
            }
            other => other,
        }
    }

    /// Placeholders of files that are open in this session, for it to give away. EBADF, EEXIST (it came with one),
    /// EMFILE, ENODEV.
    pub fn share(&self, open: &[Handle]) -> Result<Vec<(u32, OwnedFd)>, Errno> {
        let (core, make) = (&self.core, |count| self.placeholders(count));
        core.files.share(&self.state.handles, open, make, || core.watch_placeholders())
    }

    /// A handle for the description that `fd` stands for, with the grant it was opened with. EBADF, EMFILE, ENODEV.
    pub fn claim(&self, fd: impl AsFd, anew: bool) -> Result<Claimed, Errno> {
        if self.state.closing() {
            return Err(Errno::NODEV);
        }
        let (mut description, placeholder) = self.core.files.claimed(fd)?;
        if anew {
            // Listings share the host's position.
            if description.body.mode & libc::S_IFMT == libc::S_IFDIR {
                return Err(Errno::OPNOTSUPP);
            }
            let flags = description.flags().difference(OpenFlags::APPEND);
            let twin = || -> Result<HostFile, Errno> {
                let fd = rustix::io::fcntl_dupfd_cloexec(&description.body.fd, 0)?;
                Ok(HostFile { fd, mode: description.body.mode, walk: Default::default() })
            };
            description = self.core.files.describe_with(description.ino, flags, twin)?;
        }
        let handle = self.state.handles.reserve()?;
        let (flags, ino, mode) = (description.flags(), description.ino, description.body.mode);
        self.state.handles.fill(handle, description);
        Ok(Claimed { handle, flags, ino: ino.0, mode, placeholder })
    }

    /// All counters and this session's own, as JSON.
    pub fn stats_json(&self) -> String {
        self.core.stats(Some(&self.state)).to_json()
    }

    /// Ends it now, whatever else holds it.
    pub fn end(&self) {
        self.core.close(&self.state);
    }

    /// True once the session is ending.
    pub fn is_closing(&self) -> bool {
        self.state.closing()
    }
}

impl Drop for HostSession {
    fn drop(&mut self) {
        self.core.close(&self.state);
    }
}
