//! Advisory locks, and the interrupts of those who wait for one.

use crate::channel::Request;
use crate::files::OpenFile;
use crate::fs::{Fs, Out, Said};
use crate::locks::Wanted;
use crate::wire;
use std::sync::Arc;
use weldfs::{LockKind, LockSpace, OpenFlags};
use weldfs_ciscops::Errno;

/// The last byte of a range that has no end.
const NO_END: u64 = i64::MAX as u64;

impl Fs {
    pub(crate) fn interrupt(&self, request: &Request<'_>) -> Result<Said, Errno> {
        let interrupt: wire::Interrupt = request.fixed()?;
        self.locks.interrupt(interrupt.unique);
        Ok(Said::Nothing)
    }

    /// The description that holds the byte-range locks of an owner. A new one where the file has a name: the one that
    /// the kernel names may be that of several owners, after a fork, and may lack the grant that a later lock needs.
    fn description(&self, node: u64, owner: u64, fh: u64) -> Result<Arc<OpenFile>, Errno> {
        if let Some(file) = self.locks.description(node, owner) {
            return Ok(file);
        }
        let description = self.fresh(node, owner, fh)?;
        Ok(self.locks.adopt(node, owner, description, fh))
    }

    /// A description for locks of an owner that has none yet.
    fn fresh(&self, node: u64, owner: u64, fh: u64) -> Result<Arc<OpenFile>, Errno> {
        let file = self.files.get(fh)?;
        let own = OpenFlags::from_linux(file.flags as i32) & (OpenFlags::READ | OpenFlags::WRITE);
        let again = |flags| self.open_again(&file.session, node, flags | OpenFlags::NOFOLLOW);
        let opened = again(OpenFlags::READ | OpenFlags::WRITE).or_else(|_| again(own));
        match opened {
            Ok((handle, _)) => Ok(Arc::new(OpenFile::new(file.session.clone(), handle, node, file.flags, false))),
            // Without a name it cannot be opened again: its own description serves one owner.
            Err(_) if file.lock_owner.lock().is_none_or(|other| other == owner) => Ok(file),
            Err(_) => Err(Errno::NOLCK),
        }
    }

    pub(crate) fn setlk(&self, request: &Request<'_>) -> Result<Said, Errno> {
        let lock: wire::Lock = request.fixed()?;
        let kind = LockKind::from_wire(lock.kind.into()).ok_or(Errno::INVAL)?;
        let node = request.head.nodeid;
        let pid = lock.pid.into();
        let wanted = if lock.lk_flags & wire::LK_FLOCK != 0 {
            Wanted { file: self.files.get(lock.fh)?, owner: 0, space: LockSpace::Flock, kind, start: 0, len: 0, pid }
        } else {
            if kind == LockKind::Unlock && self.locks.description(node, lock.owner).is_none() {
                return Ok(Said::Now);
            }
            let file = self.description(node, lock.owner, lock.fh)?;
            let (start, len) = range(&lock);
            Wanted { file, owner: lock.owner, space: LockSpace::OpenFile, kind, start, len, pid }
        };
        match wanted.ask() {
            Err(Errno::AGAIN) if request.head.opcode == wire::op::SETLKW => {
                self.locks.wait(request.head.unique, wanted)?;
                Ok(Said::Nothing)
            }
            Err(e) => Err(e),
            Ok(()) => {
                if wanted.space == LockSpace::OpenFile {
                    self.locks.changed(&wanted);
                }
                if kind == LockKind::Unlock {
                    self.locks.hurry();
                }
                Ok(Said::Now)
            }
        }
    }

    pub(crate) fn getlk(&self, request: &Request<'_>, out: &mut Out) -> Result<Said, Errno> {
        let lock: wire::Lock = request.fixed()?;
        let kind = LockKind::from_wire(lock.kind.into()).ok_or(Errno::INVAL)?;
        let node = request.head.nodeid;
        // Who only asks holds nothing, and must not take a nameless file's own description from one that will.
        let file = match self.locks.description(node, lock.owner) {
            Some(file) => file,
            None => self.fresh(node, lock.owner, lock.fh)?,
        };
        let (start, len) = range(&lock);
        let raw = file.session.raw();
        let found = raw.lock_get(file.handle, LockSpace::OpenFile, kind, start, len, lock.pid.into())?;
        let answer = match found {
            None => wire::LockOut { kind: libc::F_UNLCK as u32, ..wire::LockOut::default() },
            Some(held) => wire::LockOut {
                start: held.start,
                end: if held.len == 0 { NO_END } else { held.start + held.len - 1 },
                kind: held.kind.into(),
                // Of a description the device has no number to tell.
                pid: match held.owner {
                    u64::MAX => self.locks.holder(node, lock.owner, held.start, held.len) as u32,
                    owner => owner as u32,
                },
            },
        };
        out.put(&answer)
    }
}

/// First byte and length of a lock; 0 is to the end.
fn range(lock: &wire::Lock) -> (u64, u64) {
    let len = if lock.end >= NO_END { 0 } else { lock.end.saturating_sub(lock.start) + 1 };
    (lock.start, len)
}
