//! The same work on the host's own file system, at equal durability.

use super::corpus::Corpus;
use super::table::Row;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

/// What kind of file system `dir` is on, in one word, and whether it survives a power cut.
pub fn kind(dir: &Path) -> (String, bool) {
    let Ok(stat) = rustix::fs::statfs(dir) else { return ("unknown".to_owned(), false) };
    match stat.f_type as u64 {
        0x0102_1994 => ("tmpfs".to_owned(), false),
        0xef53 => ("ext4".to_owned(), true),
        0x5846_5342 => ("xfs".to_owned(), true),
        0x9123_683e => ("btrfs".to_owned(), true),
        0x794c_7630 => ("overlayfs".to_owned(), true),
        other => (format!("fs {other:#x}"), true),
    }
}

fn row(work: &str, dir: &Path, durable: bool, ops: usize, start: Instant, calls: f64) -> Row {
    let (name, power_safe) = kind(dir);
    Row {
        work: work.to_owned(),
        system: "host".to_owned(),
        medium: name,
        durability: if durable { "durable" } else { "volatile" }.to_owned(),
        power_safe: durable && power_safe,
        ops: ops as u64,
        us_per_op: start.elapsed().as_secs_f64() * 1e6 / ops as f64,
        commands: calls,
        crossings: calls,
        copies: None,
        flushes: None,
    }
}

/// Stores the tree below `dir`: open, write, (fsync,) close per file.
pub fn store_tree(dir: &Path, corpus: &Corpus, durable: bool) -> io::Result<Row> {
    for folder in corpus.folders() {
        fs::create_dir_all(dir.join(folder))?;
    }
    let start = Instant::now();
    for entry in &corpus.files {
        let mut file = File::create(dir.join(&entry.name))?;
        file.write_all(&entry.bytes)?;
        if durable {
            file.sync_all()?;
        }
    }
    Ok(row("store a file", dir, durable, corpus.files.len(), start, if durable { 4.0 } else { 3.0 }))
}

/// Appends `count` records of `size` bytes and their checksum to one file: write, write, (fdatasync).
pub fn append_log(dir: &Path, count: usize, size: usize, durable: bool) -> io::Result<Row> {
    let mut file = OpenOptions::new().create(true).append(true).open(dir.join("log"))?;
    let mut data = vec![0x5au8; size];
    let start = Instant::now();
    for i in 0..count {
        data[..8].copy_from_slice(&(i as u64).to_le_bytes());
        file.write_all(&data)?;
        file.write_all(&crc32c::crc32c(&data).to_le_bytes())?;
        if durable {
            file.sync_data()?;
        }
    }
    Ok(row("append + checksum", dir, durable, count, start, if durable { 3.0 } else { 2.0 }))
}
