//! A file or block device behind O_DIRECT: writes through io_uring, persisted by fdatasync. Falls back to buffered
//! files and to pwrite where the system refuses.

use super::image::length;
use super::uring::Ring;
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use weldfs_journal::{AlignedBuf, FlushMode, IoWrite, Medium, MediumError, MediumInfo, MediumKind};
use weldfs_locks::{Mutex, RwLock};

/// See the module. Thread-safe: each caller takes a ring of its own.
pub struct BlockMedium {
    /// The description used for data: direct where allowed.
    io: File,
    /// Keeps the lock. Through the host's page cache: what is handed over goes this way.
    locked: File,
    len: u64,
    /// Reads and writes are multiples of this, in bytes; 1 without O_DIRECT.
    sector: usize,
    read_only: bool,
    poisoned: AtomicBool,
    flushes: Flushes,
    /// Made with the first batches that need them: the kernel ends a ring by work that interrupts the thread that made
    /// it some milliseconds later (EINTR), and a medium that is opened to see what it holds ends at once.
    rings: Mutex<Vec<Ring>>,
    /// io_uring has not been refused here.
    ring_works: AtomicBool,
}

impl BlockMedium {
    /// Over a locked file that `path` names. The lock stays with `locked`; direct I/O goes through a description of its
    /// own, where it is allowed.
    pub fn over(locked: File, path: &Path, read_only: bool) -> io::Result<BlockMedium> {
        let mut options = File::options();
        options.read(true).write(!read_only).custom_flags(OFlags::DIRECT.bits() as i32);
        let direct = options.open(path).ok().filter(|d| same_file(d, &locked));
        let len = length(&locked)?;
        let direct = direct.and_then(|d| probe(&d).map(|sector| (d, sector)));
        let (io, sector) = match direct {
            Some((file, sector)) => {
                // What the host caches of an image is of no use, and the large folios that writing it has left there
                // make each small write that is handed over slower. Advice only: what is dirty stays.
                let _ = rustix::fs::fadvise(&locked, 0, None, rustix::fs::Advice::DontNeed);
                (file, sector)
            }
            None => (locked.try_clone()?, 1),
        };
        Ok(BlockMedium {
            io,
            locked,
            len,
            sector,
            read_only,
            poisoned: AtomicBool::new(false),
            flushes: Flushes::default(),
            rings: Mutex::default(),
            ring_works: AtomicBool::new(true),
        })
    }

    /// Whether batches go through io_uring.
    pub(crate) fn uses_ring(&self) -> bool {
        self.ring_works.load(Ordering::Relaxed)
    }

    /// For tests and comparisons: pwrite from now on.
    pub fn without_ring(&self) {
        self.ring_works.store(false, Ordering::Relaxed);
    }

    fn check(&self, off: u64, len: usize) -> Result<(), MediumError> {
        match off.checked_add(len as u64) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(MediumError::OutOfRange { off, len: len as u64 }),
        }
    }

    fn writable(&self) -> Result<(), MediumError> {
        match (self.read_only, self.is_poisoned()) {
            (true, _) => Err(MediumError::ReadOnly),
            (_, true) => Err(MediumError::Poisoned),
            _ => Ok(()),
        }
    }

    fn is_aligned(&self, off: u64, len: usize) -> bool {
        off.is_multiple_of(self.sector as u64) && len.is_multiple_of(self.sector)
    }

    /// The whole sectors around a range, read into a buffer; and where the range starts in it.
    fn around(&self, off: u64, len: usize) -> Result<(AlignedBuf, u64, usize), MediumError> {
        let sector = self.sector as u64;
        let start = off / sector * sector;
        let end = (off + len as u64).next_multiple_of(sector).min(self.len);
        let mut buf = AlignedBuf::zeroed((end - start) as usize);
        let n = (end - start) as usize;
        self.io.read_exact_at(&mut buf[..n], start).map_err(failed("read", off, len))?;
        Ok((buf, start, n))
    }

    fn write_alone(&self, off: u64, buf: &[u8]) -> Result<(), MediumError> {
        if !self.is_aligned(off, buf.len()) {
            let (mut whole, start, n) = self.around(off, buf.len())?;
            let skip = (off - start) as usize;
            whole[skip..skip + buf.len()].copy_from_slice(buf);
            return write_all(&self.io, &whole[..n], start).map_err(failed("write", off, buf.len()));
        }
        let done = if (buf.as_ptr() as usize).is_multiple_of(self.sector) {
            write_all(&self.io, buf, off)
        } else {
            write_all(&self.io, &AlignedBuf::from_slice(buf)[..buf.len()], off)
        };
        done.map_err(failed("write", off, buf.len()))
    }

    /// A ring for one batch. Where the kernel has none, or its policy allows none, no other is asked for.
    fn ring(&self) -> Option<Ring> {
        let kept = self.rings.lock().pop();
        kept.or_else(|| {
            Ring::new()
                .inspect_err(|e| {
                    if matches!(e.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported) {
                        tracing::info!("io_uring is refused here ({e}); using pwrite");
                        self.without_ring();
                    }
                })
                .ok()
        })
    }

    fn write_ring(&self, writes: &[IoWrite<'_>]) -> Result<bool, MediumError> {
        let Some(mut ring) = self.ring() else { return Ok(false) };
        let result = ring.write_all(self.io.as_raw_fd(), self.sector, writes);
        self.rings.lock().push(ring);
        match result {
            Ok(()) => Ok(true),
            Err((off, os)) => Err(MediumError::Io { what: "write", off, len: 0, os }),
        }
    }
}

/// Flushes that may overlap. The kernel reports a failed write-back once for an open file description, to the first
/// flush that asks (errseq_t, Linux Documentation/core-api/errseq.rst): of two at a time the other one succeeds,
/// though it was its data that did not arrive. So a flush that succeeded counts only when those that overlapped with
/// it have ended, too, and their failure is known.
#[derive(Default)]
struct Flushes(RwLock<()>);

impl Flushes {
    /// Runs one; when it went well, returns after all that had begun before it ended.
    fn run<E>(&self, flush: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let under_way = self.0.read();
        let done = flush();
        drop(under_way);
        if done.is_ok() {
            drop(self.0.write());
        }
        done
    }
}

/// Whether two descriptions are of one file: the path may have been given to another one meanwhile.
fn same_file(a: &File, b: &File) -> bool {
    match (a.metadata(), b.metadata()) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino(), a.rdev()) == (b.dev(), b.ino(), b.rdev()),
        _ => false,
    }
}

fn failed(what: &'static str, off: u64, len: usize) -> impl FnOnce(io::Error) -> MediumError {
    move |e| MediumError::Io { what, off, len: len as u64, os: e.raw_os_error().unwrap_or(0) }
}

/// As `write_all_at`, by the system call itself, as the flush is: a caller of an embedded device may be here, and the C
/// library's calls end a thread for which pthread_cancel(3) was called, in the middle of a commit.
fn write_all(file: &File, mut buf: &[u8], mut off: u64) -> io::Result<()> {
    while !buf.is_empty() {
        match rustix::io::retry_on_intr(|| rustix::io::pwrite(file, buf, off))? {
            0 => return Err(ErrorKind::WriteZero.into()),
            n => (buf, off) = (&buf[n..], off + n as u64),
        }
    }
    Ok(())
}

/// The smallest transfer that direct I/O takes here: 512 or 4096 bytes; `None` when it takes neither.
fn probe(direct: &File) -> Option<usize> {
    let mut buf = AlignedBuf::zeroed(8192);
    // The address is a multiple of the size only, so that a larger demand on memory shows too.
    [512, 4096].into_iter().find(|&n| direct.read_exact_at(&mut buf[n..2 * n], n as u64).is_ok())
}

impl Medium for BlockMedium {
    fn info(&self) -> MediumInfo {
        MediumInfo {
            len: self.len,
            kind: MediumKind::Block,
            unit: 512,
            log_align: self.sector.max(512) as u32,
            power_safe: true,
            flush: FlushMode::Sync,
            byte_addressable: false,
            read_only: self.read_only,
        }
    }

    fn read(&self, off: u64, buf: &mut [u8]) -> Result<(), MediumError> {
        self.check(off, buf.len())?;
        if self.is_aligned(off, buf.len()) && (buf.as_ptr() as usize).is_multiple_of(self.sector) {
            let len = buf.len();
            return self.io.read_exact_at(buf, off).map_err(failed("read", off, len));
        }
        let (whole, start, _) = self.around(off, buf.len())?;
        let skip = (off - start) as usize;
        buf.copy_from_slice(&whole[skip..skip + buf.len()]);
        Ok(())
    }

    fn write(&self, off: u64, buf: &[u8]) -> Result<(), MediumError> {
        self.writable()?;
        self.check(off, buf.len())?;
        self.write_alone(off, buf)
    }

    fn write_batch(&self, writes: &[IoWrite<'_>]) -> Result<(), MediumError> {
        self.writable()?;
        for w in writes {
            self.check(w.off, w.buf.len())?;
        }
        let ring = writes.len() > 1 && self.uses_ring() && writes.iter().all(|w| self.is_aligned(w.off, w.buf.len()));
        if ring && self.write_ring(writes)? {
            return Ok(());
        }
        writes.iter().try_for_each(|w| self.write_alone(w.off, w.buf))
    }

    /// Into the host's page cache, which a flush writes back: the two descriptions are of one file, and a failure to
    /// write back is told to the one that flushes.
    fn hand_over(&self, off: u64, pages: &[u8]) -> Result<(), MediumError> {
        self.writable()?;
        self.check(off, pages.len())?;
        write_all(&self.locked, pages, off).map_err(failed("write", off, pages.len()))
    }

    /// The persist point. A failure is final: what the device still holds of earlier writes is unknown.
    fn barrier(&self) -> Result<(), MediumError> {
        self.writable()?;
        let done = self.flushes.run(|| {
            rustix::io::retry_on_intr(|| rustix::fs::fdatasync(&self.io)).map_err(|e| {
                self.poison();
                failed("flush", 0, 0)(e.into())
            })
        });
        // One that overlapped with it may have been told of the failure in its place.
        done.and_then(|()| self.writable())
    }

    fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    fn poison(&self) {
        self.poisoned.store(true, Ordering::Release);
    }

    fn let_go(&self) {
        self.poison();
        super::unlock(&self.locked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// Attaching to an image looks at it and closes it again. The end of a ring would interrupt the thread that did so
    /// (EINTR) some time after that, in a call of the program's own.
    #[test]
    fn a_medium_that_is_only_looked_at_makes_no_ring() {
        let file = tempfile::NamedTempFile::new().expect("file");
        file.as_file().set_len(1 << 20).expect("room");
        let open = || File::options().read(true).write(true).open(file.path()).expect("open");
        let medium = BlockMedium::over(open(), file.path(), false).expect("medium");
        medium.read(4096, &mut [0; 4096]).expect("read");
        medium.write(8192, &[1; 4096]).expect("write");
        medium.barrier().expect("flush");
        assert!(medium.rings.lock().is_empty());
        let (a, b) = ([2; 4096], [3; 4096]);
        let batch = [IoWrite { off: 0, buf: &a }, IoWrite { off: 16384, buf: &b }];
        medium.write_batch(&batch).expect("batch");
        assert_eq!(medium.rings.lock().len(), usize::from(Ring::new().is_ok()));
    }

    #[test]
    fn a_flush_that_overlaps_with_a_failing_one_is_not_believed_before_the_failure_is_known() {
        let (flushes, poisoned) = (Flushes::default(), AtomicBool::new(false));
        let (begun, begins) = channel();
        std::thread::scope(|s| {
            s.spawn(|| {
                let failed = flushes.run(|| {
                    begun.send(()).expect("the other one waits for it");
                    // The kernel has told this one, which has yet to say so.
                    std::thread::sleep(Duration::from_millis(50));
                    poisoned.store(true, Ordering::Release);
                    Err(())
                });
                assert!(failed.is_err());
            });
            begins.recv().expect("it begins");
            assert!(flushes.run(|| Ok::<(), ()>(())).is_ok());
            assert!(poisoned.load(Ordering::Acquire), "the flush ended before the failure of the other was known");
        });
    }
}
