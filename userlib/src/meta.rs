//! What stat says, with the questions people ask of it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weldfs_ciscops::{StatBody, WireTime};

const S_IFMT: u32 = 0o170000;
const S_IFDIR: u32 = 0o040000;
const S_IFREG: u32 = 0o100000;
const S_IFLNK: u32 = 0o120000;

/// Attributes of a file as of one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata(StatBody);

impl From<StatBody> for Metadata {
    fn from(body: StatBody) -> Metadata {
        Metadata(body)
    }
}

/// Times before 1970 count backwards from it.
fn system_time(t: WireTime) -> SystemTime {
    let nanos = Duration::from_nanos(u64::from(t.nsec));
    match u64::try_from(t.sec) {
        Ok(after) => UNIX_EPOCH + Duration::from_secs(after) + nanos,
        Err(_) => UNIX_EPOCH - Duration::from_secs(t.sec.unsigned_abs()) + nanos,
    }
}

impl Metadata {
    /// Every field as the device reported it.
    pub fn body(&self) -> &StatBody {
        &self.0
    }

    /// Size in bytes.
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// Whether the size is zero.
    pub fn is_empty(&self) -> bool {
        self.0.size == 0
    }

    /// Type and permission bits, as st_mode.
    pub fn mode(&self) -> u32 {
        self.0.mode
    }

    /// Permission bits alone.
    pub fn permissions(&self) -> u32 {
        self.0.mode & 0o7777
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.0.mode & S_IFMT == S_IFDIR
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.0.mode & S_IFMT == S_IFREG
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.0.mode & S_IFMT == S_IFLNK
    }

    /// Inode number.
    pub fn ino(&self) -> u64 {
        self.0.ino
    }

    /// Hard links.
    pub fn nlink(&self) -> u32 {
        self.0.nlink
    }

    /// Owner.
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// Group.
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// Last access.
    pub fn accessed(&self) -> SystemTime {
        system_time(self.0.atime)
    }

    /// Last change of the content.
    pub fn modified(&self) -> SystemTime {
        system_time(self.0.mtime)
    }

    /// Last change of the attributes.
    pub fn changed(&self) -> SystemTime {
        system_time(self.0.ctime)
    }

    /// Birth.
    pub fn created(&self) -> SystemTime {
        system_time(self.0.btime)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_keep_their_nanoseconds() {
        let t = system_time(WireTime::new(-1, 250_000_000));
        assert_eq!(UNIX_EPOCH.duration_since(t).map(|d| d.as_millis()).ok(), Some(750));
    }
}
