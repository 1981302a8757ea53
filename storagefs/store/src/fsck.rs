//! fsck: recovers in memory (writing nothing), then checks everything that is promised of the composed state: the
//! state a checkpoint would write. Bounded on any image: pages are verified before they are believed, every key is
//! visited once, problems are listed up to a limit.

mod below;
mod names;
mod space;
#[cfg(test)]
mod tests;

use crate::checkpoint::{Built, Merge, add_open, build};
use crate::error::{FsError, FsResult, MountError};
use crate::mount::RecoveryReport;
use crate::outcomes::Outcomes;
use crate::overlay::Base;
use crate::store::{MountOptions, Store};
use crate::superblock::Superblock;
use crate::tree::{Key, kind};
use std::sync::Arc;
use weldfs_journal::Medium;

/// Problems listed at most; the rest is only counted.
const PROBLEMS_MAX: usize = 1000;

/// What fsck found.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct FsckReport {
    /// Nothing is wrong.
    pub clean: bool,
    /// False: damage keeps the image from being mounted, and nothing behind it was looked at.
    pub mountable: bool,
    /// What is wrong, a sentence each.
    pub problems: Vec<String>,
    /// Problems found in all.
    pub problem_count: u64,
    /// Of them, superblock copies that no power cut leaves as they are.
    pub lost_copies: u64,
    /// What recovery did in memory.
    pub recovery: RecoveryReport,
    /// Inodes.
    pub inodes: u64,
    /// Of them, directories.
    pub directories: u64,
    /// Directory entries.
    pub entries: u64,
    /// Extended attributes.
    pub xattrs: u64,
    /// Blocks held by files.
    pub blocks: u64,
    /// Data blocks whose checksum was verified.
    pub verified_blocks: u64,
    /// Metadata pages.
    pub pages: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Orphans and cuts waiting for reclaim.
    pub reclaim: u64,
    /// Transactions that the next mount for writing will finish.
    pub open_transactions: u64,
    /// Keys that hold outcomes of detectable commands.
    pub outcome_keys: u64,
}

impl FsckReport {
    fn problem(&mut self, text: String) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(text);
        }
    }
}

/// Checks the image on `medium` without writing to it; `verify_data` also reads every data block.
///
/// # Errors
/// What is no image or one of a newer version (which is a typed error, one sentence), or a medium that cannot be read.
pub fn fsck(medium: Arc<dyn Medium>, mut options: MountOptions, verify_data: bool) -> Result<FsckReport, MountError> {
    options.read_only = true;
    // Nothing is finished where nothing is written.
    match Store::mount(medium, options, |_, _| Ok(())) {
        Ok((store, recovery)) => fsck_mounted(&store, recovery, verify_data),
        Err(e) if e.is_damage() => {
            let mut report = FsckReport::default();
            report.problem(e.to_string());
            Ok(report)
        }
        Err(e) => Err(e),
    }
}

/// Checks what a mount made of an image, as [`fsck`] does. Nothing is written; the store is of no use afterwards but to
/// be dropped.
///
/// # Errors
/// A medium that cannot be read.
pub fn fsck_mounted(store: &Store, recovery: RecoveryReport, verify_data: bool) -> Result<FsckReport, MountError> {
    // A torn or older superblock copy is what any crash leaves behind, and the mount puts it right: a warning in
    // `recovery.warnings`, no problem.
    let mut report = FsckReport { mountable: true, recovery, ..FsckReport::default() };
    let faults = Superblock::faults(&*store.medium, &store.writer.lock().sb);
    for (block, fault) in faults.into_iter().filter(|(_, fault)| !fault.by_power_cut) {
        report.lost_copies += 1;
        report.problem(format!("superblock copy in block {}: {}", block.0, fault.detail));
    }
    match check(store, verify_data, &mut report) {
        Ok(()) => {}
        Err(FsError::Medium(e)) => return Err(e.into()),
        // Damage below which nothing can be told.
        Err(e) => report.problem(e.to_string()),
    }
    report.clean = report.problem_count == 0;
    Ok(report)
}

fn check(store: &Store, verify_data: bool, report: &mut FsckReport) -> FsResult<()> {
    let base = store.overlay.base(0);
    let tail = store.journal().tail();
    let layers = store.overlay.freeze(tail.0);
    // Merged blocks get addresses beyond every medium.
    let mut merge = Merge::pretended(space::PRETENDED);
    let cut = store.txns.cut(tail);
    let mut built = build(&layers, &base, &mut merge)?;
    add_open(&mut built, &cut, &base)?;
    built.add(&store.outcomes.freeze());
    below::walk(store, &base, report);
    if let Some((field, value)) = store.worn() {
        report.problem(format!("{field} is {value}: the image can be read, and not written"));
    }
    let mut names = names::Names::new(store);
    let mut space = space::Space::new(store, verify_data, built.merged, merge.sources());
    let outcomes = Outcomes::new(usize::MAX / 2);
    each_entry(&base, &built, &mut |key, value, counts| {
        match key.kind {
            _ if !counts => below::replaced(store, key, value, report),
            // Where it stands no lookup finds it.
            kind::INODE | kind::FREE_GROUP if key.b != 0 => report.problem(format!("{key}: its last part is not zero")),
            kind::INODE => names.inode(key.a, value, report),
            kind::DIRENT => names.dirent(key, value, report),
            kind::XATTR => names.xattr(key, value, report),
            kind::RECLAIM => names.reclaim(key, value, report),
            kind::WINDOW => space.window(key, value, &mut names, report),
            // Each was decoded at mount.
            kind::FREE_GROUP => space.group(key, report),
            kind::TXN => {}
            kind::CLIENT | kind::OUTCOMES => match outcomes.load(key, value) {
                Ok(()) => report.outcome_keys += 1,
                Err(e) => report.problem(e.to_string()),
            },
            _ => report.problem(format!("unknown key {key}")),
        }
    })?;
    report.open_transactions = cut.open.len() as u64;
    space.sources(report);
    cut.open.iter().for_each(|txn| space.transaction(txn, report));
    if let Err(e) = outcomes.loaded() {
        report.problem(e.to_string());
    }
    names.finish(report);
    space.finish(&base, &built, report)
}

/// Visits the composed state in key order, tree entries with the changes of the overlay over them, and what these have
/// replaced: that counts no more.
fn each_entry(base: &Base, built: &Built, visit: &mut dyn FnMut(Key, &[u8], bool)) -> FsResult<()> {
    let mut changes = built.changes.iter().peekable();
    base.tree.scan(&base.slow, Key::MIN, Key::MAX, &mut |key, value| {
        while let Some((k, v)) = changes.next_if(|(k, _)| *k < key) {
            v.iter().for_each(|v| visit(*k, v, true));
        }
        let change = changes.next_if(|(k, _)| *k == key);
        visit(key, value, change.is_none());
        change.iter().filter_map(|(_, v)| v.as_ref()).for_each(|v| visit(key, v, true));
        true
    })?;
    for (k, v) in changes {
        v.iter().for_each(|v| visit(*k, v, true));
    }
    Ok(())
}
