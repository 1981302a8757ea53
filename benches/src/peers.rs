//! The peers: the same work on a directory of the host's own file system, through plain system calls.
//!
//! Hypothesis of every comparison: several steps in one command cost less than the steps one by one. Compared class
//! with class: volatile with volatile, durable with durable, and a RAM-backed file system with emulated pmem.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

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
        let sum = crc32c::crc32c(&data);
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

/// An ext4 on a loop device over a file in RAM: mounted by `prepare`, unmounted when dropped. Needs root.
pub struct LoopMount {
    mount: tempfile::TempDir,
    _image: tempfile::NamedTempFile,
}

fn run(command: &mut Command) -> io::Result<()> {
    let out = command.output().map_err(|e| io::Error::other(format!("{:?}: {e}", command.get_program())))?;
    if out.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{:?}: {}", command.get_program(), String::from_utf8_lossy(&out.stderr).trim())))
}

impl LoopMount {
    /// Makes and mounts an ext4 of `size` bytes over a RAM-backed file.
    pub fn prepare(size: u64) -> io::Result<LoopMount> {
        let image = tempfile::Builder::new().prefix("weldfs-peer-").tempfile_in("/dev/shm")?;
        // Written, not sparse, so that the loop device never has to allocate in the measured part.
        let (zeros, mut file) = (vec![0u8; 1 << 20], image.as_file());
        for _ in 0..size >> 20 {
            file.write_all(&zeros)?;
        }
        run(Command::new("mkfs.ext4")
            .args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
            .arg(image.path()))?;
        let mount = tempfile::Builder::new().prefix("weldfs-ext4-").tempdir()?;
        run(Command::new("mount").args(["-o", "loop,noatime"]).arg(image.path()).arg(mount.path()))?;
        Ok(LoopMount { mount, _image: image })
    }

    /// The mounted directory.
    pub fn dir(&self) -> &Path {
        self.mount.path()
    }
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        if let Err(e) = run(Command::new("umount").arg(self.mount.path())) {
            eprintln!("weldfs bench: could not unmount {}: {e}", self.mount.path().display());
        }
    }
}
