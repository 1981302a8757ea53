//! Whether what the host's file system has made durable survives loss of power: only where it lies on a device that is
//! none of memory. What cannot be found out is not claimed.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{fstat, fstatfs, major, minor};

/// File systems in memory.
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;
/// Loop devices over loop devices are looked through so many times.
const NESTED_MAX: usize = 8;

/// Whether all that is on the file system of `fd` lies in memory.
pub fn in_memory(fd: impl AsFd) -> bool {
    fstatfs(&fd).is_ok_and(|kind| [TMPFS, RAMFS].contains(&(kind.f_type as u64)))
}

/// Whether the file system that `fd` is on keeps what is durable over a power cut, as far as the host says.
pub fn is_safe(fd: impl AsFd) -> bool {
    look(fd, 0)
}

fn look(fd: impl AsFd, depth: usize) -> bool {
    let Ok(stat) = fstat(&fd) else { return false };
    if in_memory(&fd) || depth > NESTED_MAX {
        return false;
    }
    // A file system without a block device of its own (network, overlay, several devices): not known.
    let (major, minor) = (major(stat.st_dev), minor(stat.st_dev));
    let block = Path::new("/sys/dev/block").join(format!("{major}:{minor}"));
    let Ok(name) = std::fs::canonicalize(&block) else { return false };
    let name = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if name.starts_with("ram") || name.starts_with("zram") {
        return false;
    }
    if !name.starts_with("loop") {
        return true;
    }
    let backing = std::fs::read_to_string(block.join("loop/backing_file"));
    backing.is_ok_and(|path| std::fs::File::open(path.trim_end()).is_ok_and(|file| look(file, depth + 1)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn memory_is_not_safe() {
        let memory = rustix::fs::memfd_create("m", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert!(!super::is_safe(memory));
    }
}
