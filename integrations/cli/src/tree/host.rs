//! The host's file system as an end of a copy.
//!
//! Names in an image are not the caller's: whoever made the image chose them. So what is written below the directory
//! that a copy makes is reached through that directory's descriptor alone, beneath it and through no symbolic link.

use super::content::{PIECE, Sparse};
use super::{Content, End, FILL, Kind, Look, Piece, Plain};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps};
use rustix::io::Errno;
use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The host's file system.
#[derive(Default)]
pub struct Host {
    /// What the caller named as the target: the one path at which a link to a directory is as good as a directory.
    named: PathBuf,
    /// The top of the tree being written.
    top: RefCell<Option<Pinned>>,
    /// The directory below it in which something was made last.
    last: RefCell<Option<Pinned>>,
}

/// A directory by its descriptor, whatever becomes of its name.
#[derive(Clone)]
struct Pinned {
    path: PathBuf,
    fd: Rc<OwnedFd>,
}

/// Where a name is: in a directory that is pinned, or (what the caller named) wherever its path leads.
enum Spot {
    Below(Rc<OwnedFd>, OsString),
    Named(PathBuf),
}

impl Spot {
    fn dir(&self) -> BorrowedFd<'_> {
        match self {
            Spot::Below(fd, _) => fd.as_fd(),
            Spot::Named(_) => CWD,
        }
    }

    fn name(&self) -> &Path {
        match self {
            Spot::Below(_, name) => Path::new(name),
            Spot::Named(path) => path,
        }
    }

    /// Whether a symbolic link with this name may be followed.
    fn flags(&self) -> OFlags {
        match self {
            Spot::Below(..) => OFlags::NOFOLLOW,
            Spot::Named(_) => OFlags::empty(),
        }
    }
}

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

impl Host {
    /// As the target of a copy to `named`.
    pub fn target(named: &Path) -> Host {
        Host { named: named.to_owned(), ..Host::default() }
    }

    fn spot(&self, path: &Path) -> io::Result<Spot> {
        let top = self.top.borrow();
        let Some((top, rest)) = top.as_ref().and_then(|t| Some((t, path.strip_prefix(&t.path).ok()?))) else {
            return Ok(Spot::Named(path.to_owned()));
        };
        let Some(name) = rest.file_name() else { return Ok(Spot::Named(path.to_owned())) };
        let parent = rest.parent().filter(|p| !p.as_os_str().is_empty());
        let fd = match parent {
            None => top.fd.clone(),
            Some(parent) => self.pinned(top, parent)?,
        };
        Ok(Spot::Below(fd, name.to_owned()))
    }

    fn pinned(&self, top: &Pinned, below: &Path) -> io::Result<Rc<OwnedFd>> {
        let path = top.path.join(below);
        let mut last = self.last.borrow_mut();
        if let Some(last) = last.as_ref().filter(|last| last.path == path) {
            return Ok(last.fd.clone());
        }
        let fd = Rc::new(rustix::fs::openat2(&*top.fd, below, DIRECTORY, Mode::empty(), BENEATH)?);
        *last = Some(Pinned { path, fd: fd.clone() });
        Ok(fd)
    }

    /// What comes below `path` is written through its descriptor from now on.
    fn pin(&self, path: &Path) -> io::Result<()> {
        let follow = if path == self.named { OFlags::empty() } else { OFlags::NOFOLLOW };
        let fd = Rc::new(rustix::fs::open(path, DIRECTORY | follow, Mode::empty())?);
        *self.top.borrow_mut() = Some(Pinned { path: path.to_owned(), fd });
        *self.last.borrow_mut() = None;
        Ok(())
    }

    fn is(spot: &Spot, kind: FileType) -> io::Result<bool> {
        let stat = rustix::fs::statat(spot.dir(), spot.name(), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(FileType::from_raw_mode(stat.st_mode) == kind)
    }
}

/// Whether a path stands for something this process was given open: the standard input, or what a shell puts in the
/// place of `<(command)`.
fn is_descriptor(path: &Path) -> bool {
    ["/dev/fd", "/proc/self/fd"].iter().any(|dir| path.starts_with(dir)) || path == Path::new("/dev/stdin")
}

impl End for Host {
    fn label(&self, path: &Path) -> String {
        path.display().to_string()
    }

    fn look(&self, path: &Path, follow: bool) -> io::Result<Look> {
        let meta = if follow { fs::metadata(path)? } else { fs::symlink_metadata(path)? };
        let kind = match meta.file_type() {
            t if t.is_dir() => Kind::Dir,
            t if t.is_file() => Kind::File,
            t if t.is_symlink() => Kind::Link,
            _ => Kind::Other,
        };
        let times = [(meta.atime(), meta.atime_nsec() as u32), (meta.mtime(), meta.mtime_nsec() as u32)];
        let (size, sparse) = (meta.len(), meta.blocks() * 512 < meta.len());
        Ok(Look { id: (meta.dev(), meta.ino()), kind, mode: meta.mode() & 0o7777, size, sparse, times })
    }

    fn names(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn stream(&self, path: &Path) -> io::Result<Option<Box<dyn Content + '_>>> {
        if path == Path::new("-") {
            return Ok(Some(Box::new(Plain(io::stdin()))));
        }
        if !is_descriptor(path) || self.look(path, true)?.kind != Kind::Other {
            return Ok(None);
        }
        Ok(Some(Box::new(Plain(File::open(path)?))))
    }

    fn enter(&self, dir: &Path) -> io::Result<()> {
        self.pin(dir)
    }

    fn reader(&self, path: &Path, _look: &Look) -> io::Result<Box<dyn Content + '_>> {
        Ok(Box::new(Sparse::new(File::open(path)?)))
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        fs::read_link(path)
    }

    fn write(&self, path: &Path, mode: u32, from: &mut dyn Content, begun: &mut bool) -> io::Result<u64> {
        let mut buf = vec![0; PIECE];
        // What cannot be read at all leaves the target as it is.
        let mut piece = from.next(&mut buf)?;
        let spot = self.spot(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | spot.flags();
        let file = rustix::fs::openat(spot.dir(), spot.name(), flags, Mode::from_raw_mode(mode))?;
        *begun = true;
        let mut file = File::from(file);
        let keeps_holes = file.metadata()?.is_file();
        let (mut at, mut ends_in_hole) = (0, false);
        loop {
            ends_in_hole = match piece {
                Piece::End => break,
                Piece::Data(n) => {
                    file.write_all(&buf[..n])?;
                    at += n as u64;
                    false
                }
                Piece::Hole(n) => {
                    at += n;
                    if keeps_holes {
                        file.seek(SeekFrom::Start(at))?;
                    } else {
                        io::copy(&mut io::repeat(0).take(n), &mut file)?;
                    }
                    keeps_holes
                }
            };
            piece = from.next(&mut buf)?;
        }
        if ends_in_hole {
            file.set_len(at)?;
        }
        Ok(at)
    }

    fn mkdir(&self, path: &Path, mode: u32) -> io::Result<bool> {
        let mode = mode | FILL;
        match self.spot(path)? {
            Spot::Named(path) => {
                let made = match fs::DirBuilder::new().mode(mode).create(&path) {
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists => false,
                    done => done.map(|()| true)?,
                };
                self.pin(&path)?;
                Ok(made)
            }
            spot => match rustix::fs::mkdirat(spot.dir(), spot.name(), Mode::from_raw_mode(mode)) {
                Err(Errno::EXIST) if Host::is(&spot, FileType::Directory)? => Ok(false),
                done => Ok(done.map(|()| true)?),
            },
        }
    }

    fn withdraw(&self, dir: &Path, bits: u32) -> io::Result<()> {
        // It was made here, and no link takes the place of a directory: neither is followed.
        let spot = self.spot(dir)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(spot.dir(), spot.name(), flags, Mode::empty())?;
        let mode = rustix::fs::fstat(&fd)?.st_mode & 0o7777 & !bits;
        Ok(rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode))?)
    }

    fn symlink(&self, target: &Path, path: &Path) -> io::Result<()> {
        let spot = self.spot(path)?;
        match rustix::fs::symlinkat(target, spot.dir(), spot.name()) {
            Err(Errno::EXIST) if Host::is(&spot, FileType::Symlink)? => {
                rustix::fs::unlinkat(spot.dir(), spot.name(), AtFlags::empty())?;
                Ok(rustix::fs::symlinkat(target, spot.dir(), spot.name())?)
            }
            done => Ok(done?),
        }
    }

    fn set_times(&self, path: &Path, times: [(i64, u32); 2]) -> io::Result<()> {
        let [last_access, last_modification] = times.map(|(sec, nsec)| Timespec { tv_sec: sec, tv_nsec: nsec.into() });
        let stamps = Timestamps { last_access, last_modification };
        let spot = self.spot(path)?;
        Ok(rustix::fs::utimensat(spot.dir(), spot.name(), &stamps, AtFlags::SYMLINK_NOFOLLOW)?)
    }
}
