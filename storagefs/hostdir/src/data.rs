//! Calls on the content of files.

use std::io::IoSliceMut;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, fstat, ftruncate};
use rustix::io::ReadWriteFlags;
use weldfs_ciscops::limits::FILE_OFFSET_MAX;
use weldfs_ciscops::{
    Access, At, ChecksumState, Errno, FallocMode, Handle, OpenFlags, SharedBytes, Sink, Source, Whence, Written,
};

use super::scratch::PIECE;
use super::sys;
use super::txn::{FileRef, HostTxn, allow};

/// Reads until `buf` is full or the file ends.
pub(super) fn read_at(fd: impl AsFd, buf: &mut [u8], off: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < buf.len() {
        match rustix::io::pread(&fd, &mut buf[done..], off + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(done)
}

/// Fills a buffer with what the host has in memory; `None` when that is less, for whatever reason. `in_memory`: it has
/// all of this file there, and would not say so.
pub(super) fn read_cached(fd: impl AsFd, buf: &mut [u8], off: u64, in_memory: bool) -> Option<usize> {
    let whole = buf.len();
    match rustix::io::preadv2(&fd, &mut [IoSliceMut::new(buf)], off, ReadWriteFlags::NOWAIT) {
        Ok(n) if n == whole => Some(n),
        Err(rustix::io::Errno::OPNOTSUPP) if in_memory => read_at(fd, buf, off).ok(),
        _ => None,
    }
}

fn read_empty(fd: BorrowedFd<'_>, off: u64) -> rustix::io::Result<u64> {
    rustix::io::pread(fd, &mut [0; 0], off).map(|n: usize| n as u64)
}

/// Bytes that one call of the host moves.
const CALL_BYTES: usize = 128 << 10;

/// Writes all of `len` bytes, where `part` writes from so far on; after a failure, how far it came.
fn write_all(len: usize, mut part: impl FnMut(usize) -> Result<usize, Errno>) -> Result<(), (usize, Errno)> {
    let mut done = 0;
    while done < len {
        match part(done) {
            Ok(0) => return Err((done, Errno::IO)),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err((done, e)),
        }
    }
    Ok(())
}

/// Takes back the first `done` bytes of an append at `off` that failed midway, so that what was there before is as it
/// was; if even this fails, there is a longer file, and an error. Not where the file ends elsewhere: what is behind
/// them, or in their place, is another program's.
fn cut_back(fd: BorrowedFd<'_>, off: u64, done: u64) {
    if fstat(fd).is_ok_and(|stat| stat.st_size as u64 == off + done) {
        let _ = ftruncate(fd, off);
    }
}

impl HostTxn<'_> {
    pub(super) fn size_core(&self, f: FileRef) -> Result<u64, Errno> {
        Ok(fstat(self.fd(f))?.st_size as u64)
    }

    /// What is summed up is what the client gets: it goes through memory of this thread, piece by piece.
    pub(super) fn read_core(
        &mut self,
        f: FileRef,
        off: u64,
        len: u64,
        mut sink: Sink<'_>,
        mut sum: Option<&mut ChecksumState>,
    ) -> Result<u64, Errno> {
        allow(f, Access::READ)?;
        if len == 0 {
            // The host is asked all the same: a directory is one even if nothing is read.
            return Ok(read_empty(self.fd(f), off)?);
        }
        let private = matches!(sink, Sink::Private(_));
        let done = match (&mut sink, &mut sum) {
            (Sink::Shared(to), None) => {
                self.counted.copies += 1;
                self.read_shared(f, to.sub(0, len as usize), off)?
            }
            (Sink::Private(to), None) => read_at(self.fd(f), &mut to[..len as usize], off)? as u64,
            _ => {
                self.counted.copies += if private { 0 } else { 2 };
                self.read_pieces(f, off, len, &mut sink, sum)?
            }
        };
        if !private && !matches!(sink, Sink::Discard) {
            self.counted.bytes_out += done;
        }
        Ok(done)
    }

    /// Reads until `to` is full or the file ends, into the client's pool.
    fn read_shared(&mut self, f: FileRef, to: SharedBytes<'_>, off: u64) -> Result<u64, Errno> {
        let mut done = 0;
        while done < to.len() {
            let part = to.sub(done, (to.len() - done).min(CALL_BYTES));
            match sys::read_to(self.fd(f), part, off + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
            if done < to.len() {
                self.breathe();
            }
        }
        Ok(done as u64)
    }

    /// Writes all of `len` bytes in calls of the host that are not long; after a failure, how far it came. An append is
    /// one call: the end of the file, once looked at, may be another program's soon.
    fn write_calls(
        &mut self,
        at: At,
        len: usize,
        mut call: impl FnMut(&Self, Range<usize>) -> Result<usize, Errno>,
    ) -> Result<(), (usize, Errno)> {
        let mut from = 0;
        while from < len {
            let to = if at == At::End { len } else { len.min(from + CALL_BYTES) };
            write_all(to - from, |done| call(self, from + done..to)).map_err(|(done, e)| (from + done, e))?;
            from = to;
            if from < len {
                self.breathe();
            }
        }
        Ok(())
    }

    fn read_pieces(
        &mut self,
        f: FileRef,
        off: u64,
        len: u64,
        sink: &mut Sink<'_>,
        mut sum: Option<&mut ChecksumState>,
    ) -> Result<u64, Errno> {
        let mut piece = std::mem::take(&mut self.scratch.piece);
        let mut done = 0;
        let result = loop {
            let want = (len - done).min(PIECE as u64) as usize;
            if want == 0 {
                break Ok(done);
            }
            match read_at(self.fd(f), &mut piece[..want], off + done) {
                Err(e) => break Err(e),
                Ok(n) => {
                    if let Some(sum) = &mut sum {
                        sum.update(&piece[..n]);
                    }
                    sink.put(done as usize, &piece[..n]);
                    done += n as u64;
                    if n < want {
                        break Ok(done);
                    }
                    self.breathe();
                }
            }
        };
        self.scratch.piece = piece;
        result
    }

    /// Writes all or, when the host fails midway, at least no more of an append than it had before.
    pub(super) fn write_core(
        &mut self,
        f: FileRef,
        at: At,
        src: Source<'_>,
        sum: Option<&mut ChecksumState>,
    ) -> Result<Written, Errno> {
        allow(f, Access::WRITE)?;
        let len = src.len();
        let off = match at {
            At::Offset(off) => off,
            At::End => self.size_core(f)?,
            At::Current => return Err(Errno::INVAL),
        };
        if off.checked_add(len as u64).is_none_or(|end| end > FILE_OFFSET_MAX) {
            return Err(Errno::FBIG);
        }
        let wrote = match (src, sum) {
            (Source::Shared(from), None) => {
                self.counted.copies += 1;
                self.write_calls(at, len, |txn, part| {
                    sys::write_from(txn.fd(f), from.sub(part.start, part.len()), off + part.start as u64)
                })
            }
            (Source::Private(from) | Source::Taken(from), sum) => {
                let wrote = self.write_calls(at, len, |txn, part| {
                    Ok(rustix::io::pwrite(txn.fd(f), &from[part.clone()], off + part.start as u64)?)
                });
                if let Some(sum) = sum {
                    sum.update(from);
                }
                wrote
            }
            (Source::Shared(from), Some(sum)) => {
                self.counted.copies += 2;
                self.write_pieces(f, (at, off), from, sum)
            }
            (Source::Adopted { .. }, _) => return Err(Errno::INVAL),
        };
        if src.is_payload() {
            self.counted.bytes_in += len as u64;
        }
        if len > 0 {
            self.changed(f);
        }
        match wrote {
            Ok(()) => Ok(Written { off, len: len as u64 }),
            Err((done, e)) => {
                if at == At::End && done > 0 {
                    cut_back(self.fd(f), off, done as u64);
                }
                Err(e)
            }
        }
    }

    /// The bytes that are summed up are the bytes that are stored: of a copy that the client cannot reach.
    fn write_pieces(
        &mut self,
        f: FileRef,
        (at, off): (At, u64),
        from: SharedBytes<'_>,
        sum: &mut ChecksumState,
    ) -> Result<(), (usize, Errno)> {
        let mut piece = std::mem::take(&mut self.scratch.piece);
        let (mut done, mut result) = (0, Ok(()));
        while done < from.len() && result.is_ok() {
            let n = (from.len() - done).min(PIECE);
            let part = &mut piece[..n];
            from.sub(done, n).copy_to(part);
            sum.update(part);
            let fd = self.fd(f);
            let to = off + done as u64;
            result = write_all(n, |more| Ok(rustix::io::pwrite(fd, &part[more..], to + more as u64)?))
                .map_err(|(more, e)| (done + more, e));
            done += n;
            if at != At::End {
                self.breathe();
            }
        }
        self.scratch.piece = piece;
        result
    }

    pub(super) fn truncate_core(&mut self, f: FileRef, size: u64) -> Result<(), Errno> {
        allow(f, Access::WRITE)?;
        // One call of the host that may take however long.
        self.scratch.turn = None;
        ftruncate(self.fd(f), size)?;
        self.changed(f);
        Ok(())
    }

    pub(super) fn fallocate_core(&mut self, f: FileRef, mode: FallocMode, off: u64, len: u64) -> Result<(), Errno> {
        allow(f, Access::WRITE)?;
        let keep = FallocateFlags::KEEP_SIZE;
        let how = match mode {
            FallocMode::Reserve => FallocateFlags::empty(),
            FallocMode::KeepSize => keep,
            FallocMode::Punch => keep | FallocateFlags::PUNCH_HOLE,
            FallocMode::Zero => FallocateFlags::ZERO_RANGE,
            FallocMode::ZeroKeepSize => keep | FallocateFlags::ZERO_RANGE,
        };
        self.scratch.turn = None;
        let fd = self.fd(f);
        match fallocate(fd, how, off, len) {
            // A host that can only punch and reserve does both, under the one hold.
            Err(rustix::io::Errno::OPNOTSUPP) if how.contains(FallocateFlags::ZERO_RANGE) => {
                fallocate(fd, keep | FallocateFlags::PUNCH_HOLE, off, len)?;
                fallocate(fd, how.difference(FallocateFlags::ZERO_RANGE), off, len)?;
            }
            other => other?,
        }
        self.changed(f);
        Ok(())
    }

    pub(super) fn seek_core(&mut self, h: Handle, whence: Whence, off: i64) -> Result<u64, Errno> {
        if h == Handle::ROOT {
            return Err(Errno::BADF);
        }
        let d = self.session().description(h)?;
        if d.flags().contains(OpenFlags::PATH) {
            return Err(Errno::BADF);
        }
        let from = |base: u64| {
            let to = i64::try_from(base).ok().and_then(|b| b.checked_add(off)).ok_or(Errno::OVERFLOW)?;
            u64::try_from(to).map_err(|_| Errno::INVAL)
        };
        let look = |how: SeekFrom| rustix::fs::seek(&d.body.fd, how).map_err(Errno::from);
        let given = u64::try_from(off).map_err(|_| Errno::NXIO);
        let to = match whence {
            Whence::Set => from(0)?,
            Whence::Cur => from(d.offset())?,
            Whence::End => from(fstat(&d.body.fd)?.st_size as u64)?,
            Whence::Data => look(SeekFrom::Data(given?))?,
            Whence::Hole => look(SeekFrom::Hole(given?))?,
        };
        d.set_offset(to);
        Ok(to)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_failed_append_is_cut_back_but_not_what_another_program_appended_behind_it() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"before, part of it").unwrap();
        cut_back(file.as_fd(), 6, 12);
        assert_eq!(file.metadata().unwrap().len(), 6);
        file.write_all(b", part of it, and others").unwrap();
        let len = file.metadata().unwrap().len();
        cut_back(file.as_fd(), 6, 12);
        assert_eq!(file.metadata().unwrap().len(), len);
    }
}
