//! Images: files or block devices that hold a medium. Creating sizes and fills them, opening locks them.

use super::{BlockMedium, PmemMedium};
use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weldfs_journal::{AlignedBuf, BLOCK, Medium};

/// What kind of medium an image is opened as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImageKind {
    /// Behind O_DIRECT, flushed.
    Block,
    /// Mapped, persisted by instructions.
    Pmem,
    /// Mapped, no instructions: survives the process by luck of the page cache, nothing more is promised.
    PmemNoFlush,
}

/// What an image is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// Exclusive; refused while it is open.
    ReadWrite,
    /// Shared with other readers; refused while it is served.
    ReadOnly,
    /// As it lies there, even while it is served: the view may be torn.
    Snapshot,
}

/// Who holds an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Process id.
    pub pid: u32,
    /// Its name.
    pub name: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.name, self.pid)
    }
}

/// Why an image could not be created or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The operating system refused.
    #[error("{}: cannot {what}: {error}", path.display())]
    Io {
        /// The image.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why not.
        error: io::Error,
    },
    /// It is open elsewhere.
    #[error("{}: in use by {}", path.display(), holder.as_ref().map_or("another process".into(), Holder::to_string))]
    InUse {
        /// The image.
        path: PathBuf,
        /// Who, when the system says.
        holder: Option<Holder>,
    },
    /// Neither a file nor a block device, or of an impossible size.
    #[error("{}: {why}", path.display())]
    Unsuitable {
        /// The image.
        path: PathBuf,
        /// What is wrong.
        why: &'static str,
    },
}

struct At<'a>(&'a Path);

impl At<'_> {
    fn io(&self, what: &'static str) -> impl FnOnce(io::Error) -> OpenError {
        let path = self.0.to_path_buf();
        move |error| OpenError::Io { path, what, error }
    }
}

/// Creates an image of `size` bytes (a multiple of 4096) and opens it for writing. An existing file or device needs
/// `overwrite`; it is locked before anything in it changes. Every byte is allocated now: written with zeros on block
/// media, reserved and touched on mapped ones.
///
/// # Errors
/// `InUse` when it is open elsewhere, else the system's. An existing file is then as it was.
pub fn create(path: &Path, kind: ImageKind, size: u64, overwrite: bool) -> Result<Arc<dyn Medium>, OpenError> {
    create_showing(path, kind, size, overwrite, &mut |_| {})
}

/// As `create`; `zeroed` is told from time to time how many bytes of a block medium are written.
///
/// # Errors
/// As `create`.
pub fn create_showing(
    path: &Path,
    kind: ImageKind,
    size: u64,
    overwrite: bool,
    zeroed: &mut dyn FnMut(u64),
) -> Result<Arc<dyn Medium>, OpenError> {
    let at = At(path);
    if size == 0 || !size.is_multiple_of(BLOCK as u64) {
        return Err(OpenError::Unsuitable { path: path.into(), why: "the size is not a multiple of 4096" });
    }
    let mut options = File::options();
    options.read(true).write(true).mode(0o600);
    let (file, fresh) = match options.clone().create_new(true).open(path) {
        Err(e) if overwrite && e.kind() == io::ErrorKind::AlreadyExists => {
            (open_at_once(options.create(true), path).map_err(at.io("create"))?, false)
        }
        made => (made.map_err(at.io("create"))?, true),
    };
    lock(path, &file, OpenMode::ReadWrite)?;
    if is_device(&file).map_err(at.io("examine"))? {
        if length(&file).map_err(at.io("size"))? < size {
            return Err(OpenError::Unsuitable { path: path.into(), why: "the device is smaller than asked for" });
        }
    } else {
        let sized = fits(&file, size).and_then(|()| file.set_len(0)).and_then(|()| allocate(&file, size));
        if let Err(error) = sized {
            if fresh {
                let _ = std::fs::remove_file(path);
            }
            return Err(OpenError::Io { path: path.into(), what: "allocate", error });
        }
    }
    if kind == ImageKind::Block {
        zero(&file, size, zeroed).map_err(at.io("write zeros to"))?;
    }
    finish(path, file, kind, OpenMode::ReadWrite)
}

/// Whether the disk can hold `size` bytes in place of what the file has. Its content stays as it is.
fn fits(file: &File, size: u64) -> io::Result<()> {
    let disk = rustix::fs::fstatvfs(file)?;
    let meta = file.metadata()?;
    let free = disk.f_bfree.saturating_mul(disk.f_frsize).saturating_add(meta.blocks() * 512);
    // A file system without a limit of its own says that it has no blocks.
    if disk.f_blocks > 0 && free < size {
        return Err(rustix::io::Errno::NOSPC.into());
    }
    let extended = rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size);
    // Back to the length it had, whatever came of it.
    file.set_len(meta.len())?;
    match extended {
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Opens an existing image and locks it as the mode says.
///
/// # Errors
/// `InUse` when the lock is taken, else the system's.
pub fn open(path: &Path, kind: ImageKind, mode: OpenMode) -> Result<Arc<dyn Medium>, OpenError> {
    let at = At(path);
    let write = mode == OpenMode::ReadWrite;
    let file = open_at_once(File::options().read(true).write(write), path).map_err(at.io("open"))?;
    lock(path, &file, mode)?;
    let len = length(&file).map_err(at.io("size"))?;
    if len < BLOCK as u64 {
        return Err(OpenError::Unsuitable { path: path.into(), why: "too small to hold a file system" });
    }
    finish(path, file, kind, mode)
}

/// Opens what may be an image. A FIFO keeps nothing waiting: what it is shows when its length is asked for.
fn open_at_once(options: &mut std::fs::OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    // For the opening only: reads and writes of an image do wait.
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}

fn finish(path: &Path, file: File, kind: ImageKind, mode: OpenMode) -> Result<Arc<dyn Medium>, OpenError> {
    let at = At(path);
    let read_only = mode != OpenMode::ReadWrite;
    Ok(match kind {
        ImageKind::Block => Arc::new(BlockMedium::over(file, path, read_only).map_err(at.io("open"))?),
        ImageKind::Pmem => Arc::new(PmemMedium::map(file, read_only, true).map_err(at.io("map"))?),
        ImageKind::PmemNoFlush => Arc::new(PmemMedium::map(file, read_only, false).map_err(at.io("map"))?),
    })
}

fn lock(path: &Path, file: &File, mode: OpenMode) -> Result<(), OpenError> {
    let operation = match mode {
        OpenMode::ReadWrite => FlockOperation::NonBlockingLockExclusive,
        OpenMode::ReadOnly => FlockOperation::NonBlockingLockShared,
        OpenMode::Snapshot => return Ok(()),
    };
    match rustix::fs::flock(file, operation) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            Err(OpenError::InUse { path: path.into(), holder: file.metadata().ok().and_then(|meta| holder_of(&meta)) })
        }
        Err(e) => Err(OpenError::Io { path: path.into(), what: "lock", error: e.into() }),
    }
}

/// Who holds the lock of an image, as far as the system says; the image is not opened.
pub fn holder(path: &Path) -> Option<Holder> {
    holder_of(&std::fs::metadata(path).ok()?)
}

/// As /proc/locks tells: "1: FLOCK  ADVISORY  WRITE 1234 08:02:131 0 EOF"; those that wait for it have an arrow. The
/// kernel tells it piece by piece, and counts lines between them: one is left out where another lock goes meanwhile.
fn holder_of(meta: &Metadata) -> Option<Holder> {
    (0..3).find_map(|_| holder_once(meta))
}

fn holder_once(meta: &Metadata) -> Option<Holder> {
    let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    let id = format!("{major:02x}:{minor:02x}:{}", meta.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let holds = |l: &&str| l.contains(" FLOCK ") && !l.contains("->") && l.split_whitespace().any(|w| w == id);
    let line = locks.lines().find(holds)?;
    let pid: u32 = line.split_whitespace().nth(4)?.parse().ok()?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(Holder { pid, name: name.trim().to_string() })
}

fn is_device(file: &File) -> io::Result<bool> {
    use std::os::unix::fs::FileTypeExt;
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a file nor a block device"));
    }
    Ok(kind.is_block_device())
}

/// Bytes of a file or block device, rounded down to whole blocks.
pub(super) fn length(file: &File) -> io::Result<u64> {
    let bytes =
        if is_device(file)? { rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))? } else { file.metadata()?.len() };
    Ok(bytes / BLOCK as u64 * BLOCK as u64)
}

fn allocate(file: &File, size: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size) {
        Ok(()) => Ok(()),
        // Some file systems cannot reserve: writing every block does the same.
        Err(rustix::io::Errno::OPNOTSUPP) => zero(file, size, &mut |_| {}),
        Err(e) => Err(e.into()),
    }
}

fn zero(file: &File, size: u64, zeroed: &mut dyn FnMut(u64)) -> io::Result<()> {
    let zeros = AlignedBuf::zeroed(1 << 20);
    let mut off = 0;
    while off < size {
        let n = (size - off).min(zeros.len() as u64);
        file.write_all_at(&zeros[..n as usize], off)?;
        off += n;
        zeroed(off);
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 256 << 10;

    fn expect_in_use(result: Result<Arc<dyn Medium>, OpenError>) {
        match result {
            Err(OpenError::InUse { holder: Some(h), .. }) => assert_eq!(h.pid, std::process::id()),
            Err(e) => panic!("{e}"),
            Ok(_) => panic!("opened twice"),
        }
    }

    #[test]
    fn an_image_has_one_writer_or_many_readers_and_a_snapshot_needs_no_leave() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        for kind in [ImageKind::Block, ImageKind::Pmem] {
            let path = dir.path().join(format!("{kind:?}"));
            let served = create(&path, kind, SIZE, false).expect("creates");
            served.write(4096, &[7; 4096]).expect("writes");
            served.barrier().expect("flushes");
            expect_in_use(open(&path, kind, OpenMode::ReadWrite));
            expect_in_use(open(&path, kind, OpenMode::ReadOnly));
            expect_in_use(create(&path, kind, SIZE, true));
            let torn = open(&path, kind, OpenMode::Snapshot).expect("a snapshot");
            assert!(matches!(torn.write(0, &[0; 512]), Err(weldfs_journal::MediumError::ReadOnly)));
            drop(served);
            let (a, b) = (open(&path, kind, OpenMode::ReadOnly), open(&path, kind, OpenMode::ReadOnly));
            let mut buf = [0; 4096];
            a.expect("one reader").read(4096, &mut buf).expect("reads");
            assert_eq!(buf, [7; 4096]);
            b.expect("another reader");
            assert!(matches!(create(&path, kind, SIZE, false), Err(OpenError::Io { .. })));
        }
    }

    #[test]
    fn an_image_is_allocated_when_it_is_made() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        for kind in [ImageKind::Block, ImageKind::Pmem] {
            let path = dir.path().join(format!("{kind:?}"));
            drop(create(&path, kind, SIZE, false).expect("creates"));
            let meta = std::fs::metadata(&path).expect("exists");
            assert_eq!(meta.len(), SIZE);
            assert!(meta.blocks() * 512 >= SIZE);
        }
    }
}
