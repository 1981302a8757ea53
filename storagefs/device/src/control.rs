//! What the control plane has of a session, and asks of the device on its behalf.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use weldfs_ciscops::{Errno, Handle, OpenFlags};
use weldfs_session::rings::{Claimed, QueueParts};

use super::core::Core;
use super::open::OpenInode;
use super::session::SessionState;

/// The control plane's hold on a session; dropping it ends the session. Thread-safe.
pub struct Session {
    core: Arc<Core>,
    state: Arc<SessionState>,
}

impl Session {
    pub(super) fn new(core: Arc<Core>, state: Arc<SessionState>) -> Session {
        Session { core, state }
    }

    /// The session's number.
    pub fn id(&self) -> u64 {
        self.state.id
    }

    /// The doorbell to hand to the client.
    pub fn doorbell(&self) -> &Arc<OwnedFd> {
        &self.state.doorbell
    }

    /// A queue pair of `depth` commands with a pool of `pool_bytes`, in a sealed memfd. EINVAL (numbers out of range),
    /// EMFILE (too many), ENOMEM (the device's memory is given out), ENODEV (the session is ending).
    pub fn new_queue(&self, depth: u32, pool_bytes: u32) -> Result<QueueParts, Errno> {
        self.core.new_queue(&self.state, (depth, pool_bytes, true))
    }

    /// The same in memory of this process (embedded mode).
    pub fn new_queue_local(&self, depth: u32, pool_bytes: u32) -> Result<QueueParts, Errno> {
        self.core.new_queue(&self.state, (depth, pool_bytes, false))
    }

    /// Fresh placeholders: number and descriptor to send. EMFILE.
    pub fn placeholders(&self, count: u32) -> Result<Vec<(u32, OwnedFd)>, Errno> {
        if self.state.closing() {
            return Err(Errno::NODEV);
        }
        let (core, handles) = (&self.core, &self.state.handles);
        let made = match handles.placeholders(count) {
            // Those of files closed a moment ago count until a look has been taken: a program that opens thousands of
            // files a second is faster than the regular look.
            Err(Errno::MFILE) if core.look_for_dead_placeholders() => handles.placeholders(count),
            other => other,
        }?;
        core.note_placeholders(made.len());
        Ok(made)
    }

    /// Placeholders of files that are open in this session, for it to give away. EBADF, EEXIST (it came with one),
    /// EMFILE, ENODEV.
    pub fn share(&self, open: &[Handle]) -> Result<Vec<(u32, OwnedFd)>, Errno> {
        let (core, make) = (&self.core, |count| self.placeholders(count));
        core.files.share(&self.state.handles, open, make, || core.maintenance.watch_placeholders())
    }

    /// A handle for the description that `fd` stands for, or (`anew`) for one of its own of that file, with that one's
    /// access mode and no O_APPEND. EBADF, EMFILE, ENFILE, ENODEV; EOPNOTSUPP: a virtual file has one stream.
    pub fn claim(&self, fd: impl std::os::fd::AsFd, anew: bool) -> Result<Claimed, Errno> {
        if self.state.closing() {
            return Err(Errno::NODEV);
        }
        let (mut description, placeholder) = self.core.files.claimed(fd)?;
        if anew {
            let core = &self.core;
            if description.body.virt().is_some() {
                return Err(Errno::OPNOTSUPP);
            }
            let (ino, flags) = (description.ino, description.flags().difference(OpenFlags::APPEND));
            // What it is claimed from holds the inode until this one does.
            description = core.files.describe_with(ino, flags, || Ok(OpenInode::new(&core.store, ino)))?;
        }
        let handle = self.state.handles.reserve()?;
        let (flags, ino) = (description.flags(), description.ino);
        self.state.handles.fill(handle, description);
        let mode = self.core.mode_of(ino);
        Ok(Claimed { handle, flags, ino: ino.0, mode, placeholder })
    }

    /// The device's counters and this session's own, as JSON; with `detail` (bits of `ciscops::attach::detail`) more.
    pub fn stats_json(&self, detail: u32) -> String {
        self.core.stats(Some(&self.state), detail).to_json()
    }

    /// The number of its tenant.
    pub fn tenant(&self) -> u64 {
        self.state.tenant.id.0.into()
    }

    /// Starts a recording of at most `limit` slices, and half as many spans of slots. EPERM (neither root nor the user
    /// that runs the device), EBUSY, EINVAL.
    pub fn trace_start(&self, limit: u32) -> Result<(), Errno> {
        if ![0, rustix::process::geteuid().as_raw()].contains(&self.state.uid()) {
            return Err(Errno::PERM);
        }
        self.core.trace.start(self.state.id, limit)
    }

    /// Ends it and returns its bytes, as `weldfs_ciscops::trace::decode` reads them. EINVAL: this session has none.
    pub fn trace_stop(&self) -> Result<Vec<u8>, Errno> {
        let recording = self.core.trace.stop(self.state.id)?;
        let facts = self.core.trace_facts(&recording);
        Ok(weldfs_ciscops::trace::encode(&facts, &recording.slices, &recording.spans))
    }

    /// True once the session is ending.
    pub fn is_closing(&self) -> bool {
        self.state.closing()
    }

    /// Ends it now, whatever else holds it.
    pub fn end(&self) {
        self.core.close_session(&self.state);
    }

    /// Handles and queues in use, for leak tests.
    pub fn usage(&self) -> (usize, usize) {
        (self.state.handles.count(), self.state.queues().0)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.core.close_session(&self.state);
    }
}
