//! The peers: the same work on a directory of the host's own file system, through plain system calls.
//!
//! Hypothesis of every comparison: several steps in one command cost less than the steps one by one. Compared class
//! with class: volatile with volatile, durable with durable, and a RAM-backed file system with emulated pmem.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use weldfs_hostdir::power;

/// A directory on a peer file system, with a name for the report.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The peer's name in tables and JSON.
    pub name: String,
    /// The directory that its files go to.
    pub dir: PathBuf,
    /// Where its bytes live, in words.
    pub medium: String,
}

/// Nanoseconds per open + write + close of a new file with `size` bytes, not synced.
pub fn open_write_close(peer: &Peer, round: usize, count: usize, size: usize) -> io::Result<f64> {
    let (dir, data) = (peer.dir.join(format!("owc-{round}")), vec![0x5au8; size]);
    fs::create_dir_all(&dir)?;
    let names: Vec<PathBuf> = (0..count).map(|i| dir.join(format!("f{i:06}"))).collect();
    let start = Instant::now();
    for name in &names {
        File::create(name)?.write_all(&data)?;
    }
    let ns = start.elapsed().as_nanos() as f64 / count as f64;
    fs::remove_dir_all(&dir)?;
    Ok(ns)
}

/// Nanoseconds per append of `size` bytes with a 4-byte CRC32C behind it, followed by fdatasync when `durable`.
pub fn append_checksum(peer: &Peer, round: usize, count: usize, size: usize, durable: bool) -> io::Result<f64> {
    let path = peer.dir.join(format!("acw-{round}"));
    let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
    let mut data = vec![0x5au8; size];
    let start = Instant::now();
    for i in 0..count {
        data[..8].copy_from_slice(&(i as u64).to_le_bytes());
        let sum = weldfs_functions::crc32c(&data);
        file.write_all(&data)?;
        file.write_all(&sum.to_le_bytes())?;
        if durable {
            file.sync_data()?;
        }
    }
    let ns = start.elapsed().as_nanos() as f64 / count as f64;
    drop(file);
    fs::remove_file(&path)?;
    Ok(ns)
}

/// Nanoseconds per append of `size` bytes, followed by fdatasync when `durable`.
pub fn append(peer: &Peer, round: usize, count: usize, size: usize, durable: bool) -> io::Result<f64> {
    let path = peer.dir.join(format!("app-{round}"));
    let (file, data) = (File::create(&path)?, vec![0x5au8; size]);
    let start = Instant::now();
    for i in 0..count {
        file.write_all_at(&data, (i * size) as u64)?;
        if durable {
            file.sync_data()?;
        }
    }
    let ns = start.elapsed().as_nanos() as f64 / count as f64;
    drop(file);
    fs::remove_file(&path)?;
    Ok(ns)
}

/// What a directory stands on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ground {
    /// The file system: "ext4", "xfs", "tmpfs", or its magic number.
    pub fs: String,
    /// Whether its bytes live in RAM: a tmpfs, or a loop device over a file in one.
    pub ram: bool,
    /// Whether the host says that what is synced there survives a power cut. What cannot be found out is not claimed.
    pub safe: bool,
}

/// Names of file systems by statfs(2)'s magic number.
const MAGIC: [(i64, &str); 6] = [
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x0102_1994, "tmpfs"),
    (0x9123_683e, "btrfs"),
    (0x794c_7630, "overlay"),
    (0x8584_58f6, "ramfs"),
];

/// Block devices with this major number are loop devices.
const LOOP_MAJOR: u32 = 7;

impl Ground {
    /// Looks.
    pub fn of(dir: &Path) -> io::Result<Ground> {
        let fs = Ground::name(dir)?;
        let device = dir.metadata()?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let in_ram = |fs: &str| fs == "tmpfs" || fs == "ramfs";
        let ram = in_ram(&fs) || (major == LOOP_MAJOR && Ground::backing(minor).is_some_and(|fs| in_ram(&fs)));
        let safe = power::is_safe(File::open(dir)?);
        Ok(Ground { fs, ram, safe })
    }

    fn name(dir: &Path) -> io::Result<String> {
        let magic = rustix::fs::statfs(dir)?.f_type as i64;
        let known = MAGIC.iter().find(|(number, _)| *number == magic);
        Ok(known.map_or_else(|| format!("{magic:#x}"), |(_, name)| (*name).to_owned()))
    }

    /// The file system that holds a loop device's file, which may have no name any more.
    fn backing(minor: u32) -> Option<String> {
        let text = std::fs::read_to_string(format!("/sys/dev/block/{LOOP_MAJOR}:{minor}/loop/backing_file")).ok()?;
        let folder = Path::new(text.trim()).parent()?.to_owned();
        Ground::name(&folder).ok()
    }

    /// Whether it keeps anything for longer than the kernel runs: durable means nothing where it does not.
    pub(crate) fn keeps(&self) -> bool {
        !matches!(self.fs.as_str(), "tmpfs" | "ramfs")
    }

    /// Whether what was synced there survives a power cut.
    pub fn power_safe(&self) -> bool {
        self.keeps() && !self.ram && self.safe
    }

    /// Whether it lies on a disk: the equal of an image there, and not of emulated pmem.
    pub fn on_disk(&self) -> bool {
        self.keeps() && !self.ram
    }

    /// For reports.
    pub fn describe(&self) -> String {
        match (self.keeps(), self.ram) {
            (false, _) => self.fs.clone(),
            (_, true) => format!("{} on a loop device over RAM", self.fs),
            (_, false) => format!("{} on a disk", self.fs),
        }
    }
}

/// A file system over RAM that was mounted for an experiment: unmounted when dropped. Needs root.
pub struct LoopMount {
    mount: tempfile::TempDir,
}

fn run(command: &mut Command) -> io::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.output().map_err(|e| io::Error::new(e.kind(), format!("{name}: {e}")))?;
    if out.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{name}: {}", String::from_utf8_lossy(&out.stderr).trim())))
}

impl LoopMount {
    /// Makes and mounts an ext4 of `size` bytes on a loop device over a RAM-backed file.
    pub fn prepare(size: u64) -> io::Result<LoopMount> {
        LoopMount::make("ext4", size)
    }

    /// The same with an ext4 or an xfs, or mounts a tmpfs. NotFound where the tools to make it are not installed.
    pub fn make(fs: &str, size: u64) -> io::Result<LoopMount> {
        let mount = tempfile::Builder::new().prefix(&format!("weldfs-{fs}-")).tempdir()?;
        if fs == "tmpfs" {
            let size = format!("size={size},noatime");
            run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "weldfs-bench"]).arg(mount.path()))?;
            return Ok(LoopMount { mount });
        }
        let image = tempfile::Builder::new().prefix("weldfs-peer-").tempfile_in("/dev/shm")?;
        let mut mkfs = Command::new(format!("mkfs.{fs}"));
        match fs {
            "ext4" => mkfs.args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]),
            _ => mkfs.args(["-q", "-f"]),
        };
        if let Err(e) = Command::new(mkfs.get_program()).arg("-V").output() {
            return Err(io::Error::new(e.kind(), format!("{} is not installed", mkfs.get_program().to_string_lossy())));
        }
        // Written, not sparse, so that the loop device never has to allocate in the measured part.
        let (zeros, mut file) = (vec![0u8; 1 << 20], image.as_file());
        for _ in 0..size >> 20 {
            file.write_all(&zeros)?;
        }
        run(mkfs.arg(image.path()))?;
        run(Command::new("mount").args(["-o", "loop,noatime"]).arg(image.path()).arg(mount.path()))?;
        // The loop device holds the file, whose name goes here: nothing is left behind when the mount goes.
        Ok(LoopMount { mount })
    }

    /// The mounted directory.
    pub fn dir(&self) -> &Path {
        self.mount.path()
    }
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        let umount = |lazy: bool| {
            let mut command = Command::new("umount");
            run(if lazy { command.arg("-l") } else { &mut command }.arg(self.mount.path()))
        };
        // Another process may still look into it; a lazy one goes as soon as none does.
        if let Err(e) = umount(false).or_else(|_| umount(true)) {
            eprintln!("weldfs bench: could not unmount {}: {e}", self.mount.path().display());
        }
    }
}

/// Gives the calling thread, and the threads and processes it starts from now on, mounts of their own: what is mounted
/// here no other process sees, and it goes with the last of these processes, however they end. Needs root.
pub(crate) fn mounts_of_our_own() -> io::Result<()> {
    crate::own::mount_namespace()?;
    run(Command::new("mount").args(["--make-rprivate", "/"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lives_in_memory_is_known_to_keep_nothing() {
        let ground = Ground::of(Path::new("/dev/shm")).expect("it can be asked");
        if ground.fs == "tmpfs" {
            assert!(ground.ram && !ground.keeps() && !ground.power_safe() && ground.describe() == "tmpfs");
        }
        assert!(Ground::of(Path::new("/no/such/place")).is_err());
        let disk = Ground { fs: "ext4".into(), ram: false, safe: true };
        // Such as an overlay, or several devices: nothing says what it lies on.
        let unknown = Ground { safe: false, ..disk.clone() };
        assert!(unknown.on_disk() && !unknown.power_safe());
        assert!(disk.on_disk() && disk.keeps() && disk.power_safe() && disk.describe() == "ext4 on a disk");
        let image = Ground { ram: true, ..disk };
        assert!(image.keeps() && !image.power_safe() && !image.on_disk());
    }
}
