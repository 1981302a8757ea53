//! Bytes of open files.

use crate::channel::Request;
use crate::fs::{Fs, Out, Said};
use crate::wire;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weldfs::{FallocMode, Whence};
use weldfs_ciscops::{At, Errno};

/// In builds with debug assertions, for tests: a write is under way for `WELDFS_WRITES_LINGER` microseconds before the
/// device has it, so that what must not depend on its haste is seen.
#[cfg(debug_assertions)]
fn linger() {
    use std::{sync::LazyLock, time::Duration};
    static LONGER: LazyLock<Option<Duration>> =
        LazyLock::new(|| Some(Duration::from_micros(std::env::var("WELDFS_WRITES_LINGER").ok()?.parse().ok()?)));
    if let Some(longer) = *LONGER {
        std::thread::sleep(longer);
    }
}

impl Fs {
    pub(crate) fn read(&self, request: &Request<'_>, out: &mut Out) -> Result<Said, Errno> {
        let read: wire::Read = request.fixed()?;
        let file = self.files.get(read.fh)?;
        out.fill(read.size as usize, |room| file.session.raw().read(file.handle, At::Offset(read.offset), room))
    }

    pub(crate) fn write(&self, request: &Request<'_>, out: &mut Out) -> Result<Said, Errno> {
        let (write, data): (wire::Write, _) = request.split()?;
        let data = data.get(..write.size as usize).ok_or(Errno::IO)?;
        let file = self.files.get(write.fh)?;
        let written_back = write.write_flags & wire::WRITE_CACHE != 0;
        let at = match write.flags & libc::O_APPEND as u32 != 0 && !written_back {
            true => At::End,
            false => At::Offset(write.offset),
        };
        #[cfg(debug_assertions)]
        linger();
        let written = file.session.raw().write(file.handle, at, data)?;
        if file.is_virtual {
            file.unended.store(true, Ordering::Relaxed);
        }
        out.put(&wire::WriteOut { size: written.len as u32, padding: 0 })
    }

    /// Each close of a descriptor: the locks of its process go, and a stream into a virtual file ends, so that what it
    /// ends with is told to whoever closes.
    pub(crate) fn flush(&self, request: &Request<'_>) -> Result<Said, Errno> {
        let flush: wire::Flush = request.fixed()?;
        self.locks.closed(request.head.nodeid, flush.lock_owner);
        let file = self.files.get(flush.fh)?;
        if file.unended.swap(false, Ordering::Relaxed) {
            file.session.raw().fdatasync(file.handle)?;
        }
        Ok(Said::Now)
    }

    pub(crate) fn fsync(&self, request: &Request<'_>) -> Result<Said, Errno> {
        let fsync: wire::Fsync = request.fixed()?;
        let file = self.files.get(fsync.fh)?;
        file.unended.store(false, Ordering::Relaxed);
        match fsync.flags & wire::FDATASYNC != 0 {
            true => file.session.raw().fdatasync(file.handle)?,
            false => file.session.raw().fsync(file.handle)?,
        }
        Ok(Said::Now)
    }

    pub(crate) fn lseek(&self, request: &Request<'_>, out: &mut Out) -> Result<Said, Errno> {
        let seek: wire::Lseek = request.fixed()?;
        let file = self.files.get(seek.fh)?;
        let whence = match seek.whence as i32 {
            libc::SEEK_DATA => Whence::Data,
            libc::SEEK_HOLE => Whence::Hole,
            _ => return Err(Errno::INVAL),
        };
        // The description's own offset moves, which nothing here goes by.
        let offset = file.session.raw().seek(file.handle, whence, seek.offset as i64)?;
        out.put(&wire::LseekOut { offset })
    }

    pub(crate) fn fallocate(&self, request: &Request<'_>) -> Result<Said, Errno> {
        let alloc: wire::Fallocate = request.fixed()?;
        let file = self.files.get(alloc.fh)?;
        const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
        const ZERO_KEEP: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
        let mode = match alloc.mode as i32 {
            0 => FallocMode::Reserve,
            KEEP => FallocMode::KeepSize,
            PUNCH => FallocMode::Punch,
            ZERO => FallocMode::Zero,
            ZERO_KEEP => FallocMode::ZeroKeepSize,
            _ => return Err(Errno::OPNOTSUPP),
        };
        file.session.raw().fallocate(file.handle, mode, alloc.offset, alloc.length)?;
        Ok(Said::Now)
    }

    /// Inside the device, if one session has both files: the kernel copies by itself where this is EXDEV.
    pub(crate) fn copy_file_range(&self, request: &Request<'_>, out: &mut Out) -> Result<Said, Errno> {
        let copy: wire::CopyFileRange = request.fixed()?;
        let (from, to) = (self.files.get(copy.fh_in)?, self.files.get(copy.fh_out)?);
        if !Arc::ptr_eq(&from.session, &to.session) {
            return Err(Errno::XDEV);
        }
        if from.is_virtual || to.is_virtual {
            return Err(Errno::OPNOTSUPP);
        }
        // The answer's number has 32 bits.
        let len = copy.len.min(u64::from(u32::MAX) & !0xfff);
        let raw = from.session.raw();
        let copied = raw.copy_range(from.handle, copy.off_in, len, to.handle, At::Offset(copy.off_out))?;
        out.put(&wire::WriteOut { size: copied as u32, padding: 0 })
    }
}
