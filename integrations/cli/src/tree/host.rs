//! The host's file system as an end of a copy.

use super::{End, Kind, Look};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The host's file system.
pub struct Host;

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
        Ok(Look { id: (meta.dev(), meta.ino()), kind, mode: meta.mode() & 0o7777, size: meta.len(), times })
    }

    fn names(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn reader(&self, path: &Path, _size: u64) -> io::Result<Box<dyn Read + '_>> {
        Ok(Box::new(fs::File::open(path)?))
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        fs::read_link(path)
    }

    fn write(&self, path: &Path, mode: u32, from: &mut dyn Read) -> io::Result<u64> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?;
        io::copy(from, &mut file)
    }

    fn mkdir(&self, path: &Path, mode: u32) -> io::Result<()> {
        // Whatever it was, we must be able to fill it.
        match fs::DirBuilder::new().mode(mode | 0o700).create(path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && fs::metadata(path)?.is_dir() => Ok(()),
            done => done,
        }
    }

    fn symlink(&self, target: &Path, path: &Path) -> io::Result<()> {
        match std::os::unix::fs::symlink(target, path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && fs::symlink_metadata(path)?.is_symlink() => {
                fs::remove_file(path)?;
                std::os::unix::fs::symlink(target, path)
            }
            done => done,
        }
    }

    fn set_times(&self, path: &Path, times: [(i64, u32); 2]) -> io::Result<()> {
        let [last_access, last_modification] = times.map(|(sec, nsec)| Timespec { tv_sec: sec, tv_nsec: nsec.into() });
        let stamps = Timestamps { last_access, last_modification };
        Ok(rustix::fs::utimensat(CWD, path, &stamps, AtFlags::SYMLINK_NOFOLLOW)?)
    }
}
