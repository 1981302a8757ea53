//! Scrub: reads everything that a file system holds, and finds what is not what was written: superblock copies, the
//! metadata zone's map, every page of the tree, the log, the data of every file and of every open transaction.
//!
//! Works on a store that is mounted, whether it is used meanwhile or not: what changes under the reader's eyes is
//! looked at again before it is called bad. Memory is bounded (a page per level of the tree, a megabyte of data, the
//! list of findings); time is as long as reading takes, or as the throttle says. Nothing is changed, nothing is
//! repaired.

mod data;
mod meta;
mod paths;

use crate::error::{Corrupt, FsError, FsResult, MountError, Place};
use crate::mount::RecoveryReport;
use crate::store::Store;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use weldfs_journal::{Lsn, ScanError};

/// Findings listed at most; the rest is only counted.
pub(crate) const FINDINGS_MAX: usize = 1000;
/// Sleeps of the throttle are cut in such pieces, so that a stop is heard.
const NAP: Duration = Duration::from_millis(50);

/// What was damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A copy of the superblock.
    Superblock,
    /// The map of the metadata zone.
    ZoneMap,
    /// A page of the tree; nothing below it could be looked at.
    TreePage,
    /// A key whose value cannot be.
    Key,
    /// A record of the log.
    Log,
    /// A block of a file.
    Data,
    /// A block that belongs to an open transaction.
    Input,
}

/// A place where something else stands than what was written.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// What was damaged.
    pub what: What,
    /// A sentence.
    pub detail: String,
    /// A path of the file, if it has one and it could be found.
    pub path: Option<String>,
    /// Inode, where one is concerned.
    pub inode: Option<u64>,
    /// Byte offset in the file, or of a page, copy or record on the medium.
    pub offset: u64,
    /// Block on the medium.
    pub block: Option<u64>,
    /// Checksum (or other value) that was promised.
    pub expected: u64,
    /// The value that was found.
    pub actual: u64,
}

/// What a scrub saw.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct ScrubReport {
    /// It saw everything, and nothing was wrong.
    pub clean: bool,
    /// It came to its end; else it was stopped, or could not begin.
    pub complete: bool,
    /// False: damage keeps the image from being mounted; it is the one finding, and nothing behind it was looked at.
    pub mountable: bool,
    /// What is damaged.
    pub findings: Vec<Finding>,
    /// Findings in all.
    pub finding_count: u64,
    /// Superblock copies that a crash left behind; the next mount for writing puts them right.
    pub warnings: Vec<String>,
    /// What is no damage and worth knowing: a torn tail of the log that the next mount drops.
    pub notes: Vec<String>,
    /// Superblock copies read.
    pub superblocks: u64,
    /// Pages of the zone map read.
    pub zone_pages: u64,
    /// Pages of the tree read.
    pub tree_pages: u64,
    /// Keys decoded.
    pub keys: u64,
    /// Records of the log verified.
    pub log_records: u64,
    /// Windows of files looked at.
    pub windows: u64,
    /// Data blocks verified.
    pub data_blocks: u64,
    /// Blocks known to be lost: merged over damage some time ago.
    pub lost_blocks: u64,
    /// Bytes read.
    #[serde(rename = "read_bytes")]
    pub bytes: u64,
    /// How long it took.
    pub seconds: f64,
}

/// How to scrub.
#[derive(Debug)]
pub struct ScrubOptions<'a> {
    /// Bytes per second at most; `None` for as fast as it goes.
    pub rate: Option<u64>,
    /// Set from outside to end it early.
    pub stop: &'a AtomicBool,
}

/// Who watches: progress in bytes, and findings as they come (their paths are found at the end).
pub trait Watch {
    /// About so many bytes will be read.
    fn expect(&mut self, _bytes: u64) {}
    /// So many have been read so far.
    fn reached(&mut self, _bytes: u64) {}
    /// A finding.
    fn found(&mut self, _finding: &Finding) {}
}

/// None.
impl Watch for () {}

pub(crate) struct Scrub<'a> {
    store: &'a Store,
    options: &'a ScrubOptions<'a>,
    watch: &'a mut dyn Watch,
    report: ScrubReport,
    started: Instant,
}

/// Reads all of `store` and says what is damaged.
///
/// # Errors
/// A medium that cannot be read at all; single blocks that cannot are findings.
pub fn scrub(store: &Store, options: &ScrubOptions<'_>, watch: &mut dyn Watch) -> FsResult<ScrubReport> {
    let stats = store.stats();
    watch.expect((stats.held_blocks + stats.zone_blocks) * crate::limits::BLOCK as u64);
    let report = ScrubReport { mountable: true, ..ScrubReport::default() };
    let mut s = Scrub { store, options, watch, report, started: Instant::now() };
    let ended = s.superblocks().and_then(|()| s.zone_map()).and_then(|()| s.log()).and_then(|()| s.tree());
    let ended = ended.and_then(|()| s.layers()).and_then(|()| s.inputs());
    match ended {
        Ok(()) => s.report.complete = true,
        Err(Ended::Stopped) => {}
        Err(Ended::Failed(e)) => return Err(e),
    }
    s.name_findings();
    s.report.clean = s.report.complete && s.report.finding_count == 0;
    s.report.seconds = s.started.elapsed().as_secs_f64();
    Ok(s.report)
}

/// The report on an image that damage keeps from being mounted: one finding, which says so.
///
/// # Errors
/// What is no damage of an image comes back.
pub fn unmountable(e: MountError) -> Result<ScrubReport, MountError> {
    let finding = match &e {
        MountError::Fs(FsError::Corrupt(c)) => match c.place {
            Place::Log(_) => Finding::of(What::Log, c),
            Place::Key(_) => Finding::of(What::Key, c),
            Place::Medium(_) | Place::File { .. } => Finding::of(What::TreePage, c),
        },
        MountError::Log(ScanError::Corrupt { from, .. }) => Finding::of_log(*from, e.to_string()),
        _ => return Err(e),
    };
    Ok(ScrubReport { findings: vec![finding], finding_count: 1, ..ScrubReport::default() })
}

impl ScrubReport {
    /// Adds what the recovery in memory before the scrub saw of the log.
    pub fn recovered(&mut self, recovery: &RecoveryReport) {
        self.log_records += recovery.records;
        self.notes.extend(recovery.end_of_log());
        if let Some(tail) = recovery.torn_tail() {
            self.notes.push(format!("the next mount drops {tail}"));
        }
    }
}

impl Finding {
    fn of(what: What, c: &Corrupt) -> Finding {
        let (mut offset, mut block) = (0, None);
        match c.place {
            Place::Medium(off) => (offset, block) = (off, Some(off / crate::limits::BLOCK as u64)),
            Place::File { off, .. } => offset = off,
            Place::Log(lsn) => offset = lsn.0,
            Place::Key(_) => {}
        }
        let (expected, actual) = (c.expected, c.actual);
        let (detail, inode) = (c.to_string(), c.inode());
        Finding { what, detail, path: None, inode, offset, block, expected, actual }
    }

    fn of_log(at: Lsn, detail: String) -> Finding {
        let (path, inode, block) = (None, None, None);
        Finding { what: What::Log, detail, path, inode, offset: at.0, block, expected: 0, actual: 0 }
    }
}

/// Why a part of the walk did not come to its end.
enum Ended {
    Stopped,
    Failed(FsError),
}

impl From<FsError> for Ended {
    fn from(e: FsError) -> Ended {
        Ended::Failed(e)
    }
}

type Walked = Result<(), Ended>;

impl Scrub<'_> {
    fn stopped(&self) -> bool {
        self.options.stop.load(Relaxed)
    }

    /// Books bytes that were read, and waits where the throttle says so.
    fn read_so_far(&mut self, bytes: u64) -> Walked {
        self.report.bytes += bytes;
        self.watch.reached(self.report.bytes);
        if let Some(rate) = self.options.rate.filter(|r| *r > 0) {
            let due = Duration::from_secs_f64(self.report.bytes as f64 / rate as f64);
            while let Some(left) = due.checked_sub(self.started.elapsed()).filter(|left| !left.is_zero()) {
                if self.stopped() {
                    break;
                }
                std::thread::sleep(left.min(NAP));
            }
        }
        if self.stopped() { Err(Ended::Stopped) } else { Ok(()) }
    }

    fn finding(&mut self, finding: Finding) {
        // A window of which the tree and the log know something is looked at twice.
        let same = |f: &Finding| (f.what, f.inode, f.offset) == (finding.what, finding.inode, finding.offset);
        if finding.inode.is_some() && self.report.findings.iter().any(same) {
            return;
        }
        self.report.finding_count += 1;
        self.watch.found(&finding);
        if self.report.findings.len() < FINDINGS_MAX {
            self.report.findings.push(finding);
        }
    }

    /// Damage as the store reports it.
    fn corrupt(&mut self, what: What, c: &Corrupt) {
        self.finding(Finding::of(what, c));
    }

    /// An error of one place: a finding. A medium that is gone ends everything.
    fn failed(&mut self, what: What, e: FsError, inode: Option<u64>, offset: u64) -> Walked {
        match e {
            FsError::Corrupt(c) => self.corrupt(what, &c),
            other if self.store.medium.is_poisoned() => return Err(Ended::Failed(other)),
            other => {
                let (detail, path, block) = (other.to_string(), None, None);
                self.finding(Finding { what, detail, path, inode, offset, block, expected: 0, actual: 0 });
            }
        }
        Ok(())
    }
}
