//! The copy of the preload library inside a released `weldfs`, and how it becomes a file.
//!
//! The file outlives the run: programs that were started with it may start others after `weldfs run` has ended. It is
//! believed only while it is this user's own and has the carried bytes, every one: anything else is replaced.

use rustix::fs::{OFlags, StatVfsMountFlags};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

#[cfg(carries_preload)]
const CARRIED: &[u8] = include_bytes!(env!("WELDFS_CARRIED"));
#[cfg(not(carries_preload))]
const CARRIED: &[u8] = &[];

/// What this program carries; nothing in a development build.
pub fn bytes() -> Option<&'static [u8]> {
    Some(CARRIED).filter(|bytes| !bytes.is_empty())
}

/// Where it may be kept. Only root's programs become another user's and still take LD_PRELOAD, so only root's place has
/// to be open to all.
pub fn places() -> Vec<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return vec![PathBuf::from("/var/cache/weldfs")];
    }
    let named = |name, below: &str| std::env::var_os(name).map(|dir| Path::new(&dir).join(below).join("weldfs"));
    let found = [named("XDG_CACHE_HOME", ""), named("HOME", ".cache")];
    found.into_iter().flatten().filter(|place| place.is_absolute()).collect()
}

/// The file in `dir` that has these bytes, written if it is not there.
pub fn put(bytes: &[u8], dir: &Path) -> io::Result<PathBuf> {
    let is_root = rustix::process::geteuid().is_root();
    DirBuilder::new().recursive(true).mode(if is_root { 0o755 } else { 0o700 }).create(dir)?;
    let meta = dir.symlink_metadata()?;
    if !meta.is_dir() || !is_ours_alone(&meta) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "not a folder that only this user can write to"));
    }
    if is_root && meta.mode() & 0o011 != 0o011 {
        // Made under a narrow umask.
        std::fs::set_permissions(dir, Permissions::from_mode(0o755))?;
    }
    if rustix::fs::statvfs(dir)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "mounted noexec"));
    }
    // A name of its own for each build: another one may be in use.
    let version = env!("CARGO_PKG_VERSION");
    let path = dir.join(format!("libweldfs_preload-{version}-{:08x}.so", crc32c::crc32c(bytes)));
    if !is_same(&path, bytes) {
        let mut file = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempfile_in(dir)?;
        // The umask may have taken some of them.
        file.as_file().set_permissions(Permissions::from_mode(0o755))?;
        file.write_all(bytes)?;
        file.persist(&path)?;
    }
    Ok(path)
}

/// No other user can change it.
fn is_ours_alone(meta: &std::fs::Metadata) -> bool {
    meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o022 == 0
}

fn is_same(path: &Path, bytes: &[u8]) -> bool {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let Ok(file) = OpenOptions::new().read(true).custom_flags(flags).open(path) else { return false };
    let sound = |meta: &std::fs::Metadata| {
        meta.is_file() && is_ours_alone(meta) && meta.mode() & 0o555 == 0o555 && meta.len() == bytes.len() as u64
    };
    file.metadata().is_ok_and(|meta| sound(&meta)) && has(file, bytes)
}

fn has(file: File, bytes: &[u8]) -> bool {
    let mut there = Vec::with_capacity(bytes.len());
    file.take(bytes.len() as u64 + 1).read_to_end(&mut there).is_ok() && there == bytes
}
