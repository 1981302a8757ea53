//! `weldfs bench mount`: how long a mount takes after a crash that left the log full, with few and with many files in
//! the tree. Nothing is loaded eagerly, so the tree's size should not show.
//!
//! The tree is built through the store directly, with checkpoints; then the log is filled by creating, writing and
//! renaming, and the device "dies". Every round mounts the same image: superblock copies and log are put back
//! between rounds, and a mount writes nothing else until there is work. Times by phase: the mount's own report.

use crate::head::Head;
use crate::report::{Machine, Ratio, median};
use serde::Serialize;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use weldfs_ciscops::{At, Handle, Op, OpenFlags, RenameFlags};
use weldfs_fs::driver::Direct;
use weldfs_journal::{SystemClock, SystemRandom};
use weldfs_media::{ImageKind, OpenMode};
use weldfs_store::MountOptions;
use weldfs_store::geometry::GeometryOptions;
use weldfs_store::mount::{MkfsOptions, RecoveryReport, format};

const SRC: u32 = 64 << 10;
/// Files in one directory of the tree.
const PER_DIR: u64 = 1000;

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the image goes: the medium that is measured.
    pub place: PathBuf,
    /// Sizes of the tree, in files.
    pub files: Vec<u64>,
    /// Bytes of the log.
    pub log: u64,
    /// Rounds behind each median.
    pub rounds: usize,
}

/// One tree.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Files in the tree when the log was empty.
    pub files: u64,
    /// Bytes of the log that were replayed.
    pub log_bytes: u64,
    /// Records of it.
    pub records: u64,
    /// Effects of them.
    pub effects: u64,
    /// Opening and mapping the file, and the whole mount; median, milliseconds.
    pub mount_ms: f64,
    /// Of it, opening and mapping the file.
    pub map_ms: f64,
    /// Superblock, root, zone map.
    pub open_ms: f64,
    /// Reading, verifying and applying the log.
    pub replay_ms: f64,
    /// Making the image ready for appending.
    pub ready_ms: f64,
    /// Finishing open transactions.
    pub finish_ms: f64,
    /// Least and most of the whole.
    pub range_ms: (f64, f64),
}

/// A finished experiment.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Which machine.
    pub machine: Machine,
    /// Where the image was.
    pub medium: String,
    /// Rounds behind each median.
    pub rounds: usize,
    /// The figures.
    pub rows: Vec<Row>,
    /// The comparisons.
    pub ratios: Vec<Ratio>,
}

fn other(e: impl std::fmt::Display) -> io::Error {
    io::Error::other(e.to_string())
}

fn options() -> MountOptions {
    MountOptions { memory: 1 << 30, ..MountOptions::new(Arc::new(SystemClock), Arc::new(SystemRandom)) }
}

fn ok(o: weldfs_ciscops::interp::Outcome) -> io::Result<u64> {
    if o.is_ok() { Ok(o.result) } else { Err(io::Error::from_raw_os_error(o.status)) }
}

/// Runs the experiment; `note` is told what is being measured.
///
/// # Errors
/// Those of the operating system and of the file system.
pub fn run(o: &Options, note: &mut dyn FnMut(&str)) -> io::Result<Report> {
    let mut rows = Vec::new();
    for files in &o.files {
        let folder = tempfile::Builder::new().prefix("weldfs-mount-").tempdir_in(&o.place)?;
        note(&format!("building a tree of {files} files"));
        rows.push(tree(folder.path(), *files, o, note)?);
    }
    let ratios = rows.iter().map(|r| {
        let what = format!("mount with a full log and {} files, seconds", r.files);
        Ratio::at_most(&what, r.mount_ms, 1000.0, 0.5)
    });
    let ratios = ratios.collect();
    let medium = format!("pmem image file in {}", o.place.display());
    Ok(Report { machine: Machine::here(), medium, rounds: o.rounds, rows, ratios })
}

fn tree(folder: &Path, files: u64, o: &Options, note: &mut dyn FnMut(&str)) -> io::Result<Row> {
    // 16 KiB pages hold some 50 files with name and inode; half empty, copied once: 1.5 KiB per file is ample.
    let size = (o.log * 5 + files * 1536 + (512 << 20)).next_multiple_of(1 << 20);
    let medium = weldfs_media::create(&folder.join("image"), ImageKind::Pmem, size, false).map_err(other)?;
    let geometry = GeometryOptions { log_len: Some(o.log), ..Default::default() };
    let mkfs = MkfsOptions { geometry, ..Default::default() };
    format(&medium, &mkfs, &SystemClock, &SystemRandom).map_err(other)?;
    let (store, _) = weldfs_fs::mount(medium.clone(), options()).map_err(other)?;
    let mut d = Direct::new(store, 1 << 20);
    build(&mut d, files)?;
    d.store().checkpoint().map_err(other)?;
    note("filling the log");
    fill(&mut d, files, o.log)?;
    let journal = d.store().journal().clone();
    journal.wait(journal.tail()).map_err(other)?;
    drop((d, journal));
    let head = Head::of(&*medium)?;
    drop(medium);
    let open = || weldfs_media::open(&folder.join("image"), ImageKind::Pmem, OpenMode::ReadWrite).map_err(other);
    let mut all: Vec<(f64, f64, RecoveryReport)> = Vec::new();
    for round in 0..o.rounds {
        note(&format!("mount {} of {}", round + 1, o.rounds));
        head.lay(&*open()?)?;
        // From here on as a process that starts: nothing of the file is mapped yet.
        let start = Instant::now();
        let medium = open()?;
        let mapped = start.elapsed();
        let (store, report) = weldfs_fs::mount(medium, options()).map_err(other)?;
        all.push((start.elapsed().as_secs_f64() * 1000.0, mapped.as_secs_f64() * 1000.0, report));
        drop(store);
    }
    let of = |f: &dyn Fn(&(f64, f64, RecoveryReport)) -> f64| median(&all.iter().map(f).collect::<Vec<_>>());
    let (.., last) = all.last().ok_or_else(|| io::Error::other("no rounds"))?;
    Ok(Row {
        files,
        log_bytes: last.log_bytes,
        records: last.records,
        effects: last.effects,
        mount_ms: of(&|(ms, ..)| *ms),
        map_ms: of(&|(_, ms, _)| *ms),
        open_ms: of(&|(.., r)| r.open_ns as f64 / 1e6),
        replay_ms: of(&|(.., r)| r.replay_ns as f64 / 1e6),
        ready_ms: of(&|(.., r)| r.ready_ns as f64 / 1e6),
        finish_ms: of(&|(.., r)| r.finish_ns as f64 / 1e6),
        range_ms: (all.iter().map(|a| a.0).fold(f64::INFINITY, f64::min), all.iter().map(|a| a.0).fold(0.0, f64::max)),
    })
}

fn build(d: &mut Direct, files: u64) -> io::Result<()> {
    for i in 0..files {
        if i % PER_DIR == 0 {
            let path = d.put(0, format!("/d{}", i / PER_DIR).as_bytes());
            ok(d.run(Op::Mkdir { base: Handle::ROOT, path, mode: 0o755 }))?;
        }
        put(d, &format!("/d{}/file{i}", i / PER_DIR), 0, &[])?;
        if d.store().needs_checkpoint() {
            d.store().checkpoint().map_err(other)?;
        }
    }
    Ok(())
}

fn put(d: &mut Direct, path: &str, off: u64, bytes: &[u8]) -> io::Result<()> {
    let (path, src) = (d.put(0, path.as_bytes()), d.put(SRC, bytes));
    let (flags, at) = (OpenFlags::WRITE | OpenFlags::CREATE, At::Offset(off));
    ok(d.run(Op::OpenWriteClose { base: Handle::ROOT, path, flags, mode: 0o644, at, src })).map(drop)
}

/// Works until the log has no room for more: small writes in records, whole blocks, names that come, go and move.
fn fill(d: &mut Direct, files: u64, log: u64) -> io::Result<()> {
    let (old, mut i) = (files.max(1), 0u64);
    let before = d.store().stats().checkpoints;
    let mut used = 0;
    // A commit waits for a checkpoint when less than the longest record is left.
    let full = log - weldfs_journal::limits::record_bytes_max(log) - (128 << 10);
    while used < full {
        let near = i.wrapping_mul(0x9e37_79b9) % old;
        let path = format!("/d{}/file{near}", near / PER_DIR);
        match i % 8 {
            0..=3 => put(d, &format!("/new{}", i % 4096), (i / 4096) * 300 % 65_536, &[i as u8; 300])?,
            4 if files > 0 => put(d, &path, 0, &[i as u8; 200])?,
            5 => put(d, &format!("/new{}", i % 4096), 0, &[i as u8; 4096])?,
            6 => {
                let (from, to) = (format!("/new{}", i.wrapping_sub(6) % 4096), format!("/moved{}", i % 512));
                let (from, to) = (d.put(0, from.as_bytes()), d.put(4096, to.as_bytes()));
                let root = Handle::ROOT;
                let flags = RenameFlags::empty();
                ok(d.run(Op::Rename { from_base: root, from, to_base: root, to, flags }))?;
            }
            _ => put(d, &format!("/log{}", i % 64), (i / 64) * 100, &[7; 100])?,
        }
        i += 1;
        if d.store().stats().checkpoints != before {
            return Err(io::Error::other(format!("a checkpoint emptied the log when {used} of {log} bytes were used")));
        }
        used = d.store().journal().used();
    }
    Ok(())
}

impl Report {
    /// Prints for people.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{} ({} cores), {} build", self.machine.cpu, self.machine.cores, self.machine.build)?;
        writeln!(out, "{}, medians of {} rounds\n", self.medium, self.rounds)?;
        writeln!(
            out,
            "{:>9} {:>11} {:>9} {:>9} {:>9} {:>15} {:>8} {:>8} {:>9} {:>8} {:>8}",
            "files",
            "log bytes",
            "records",
            "effects",
            "mount ms",
            "least..most",
            "map",
            "open",
            "replay",
            "ready",
            "finish"
        )?;
        for r in &self.rows {
            let range = format!("{:.0}..{:.0}", r.range_ms.0, r.range_ms.1);
            writeln!(
                out,
                "{:>9} {:>11} {:>9} {:>9} {:>9.1} {range:>15} {:>8.1} {:>8.1} {:>9.1} {:>8.1} {:>8.1}",
                r.files,
                r.log_bytes,
                r.records,
                r.effects,
                r.mount_ms,
                r.map_ms,
                r.open_ms,
                r.replay_ms,
                r.ready_ms,
                r.finish_ms
            )?;
        }
        for r in &self.ratios {
            writeln!(out, "{}: {:.3} (aim {:.1}) {}", r.what, r.measured, r.bound, if r.holds { "yes" } else { "NO" })?;
        }
        Ok(())
    }
}
