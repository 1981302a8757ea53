//! What counts as bad, and which trees may be found.
//!
//! The history of a workload is a row of points, one for each command that changed something, in LSN order, and
//! promises: from this event of the medium on, this point or a later one. A crash at an event may leave exactly the
//! points from the last one promised by then up to the last one whose command had begun by then. Nothing else: a
//! single operation and a MacroTx are one point, a MicroTx too, because recovery finishes what began; only a read-only
//! mount may show its trees in between. Writes of more than one payload are one point per piece.
//!
//! A tree that may not be found breaks one of the numbered rules; which one is a matter of diagnosis, that it is bad is
//! not.

use super::Tree;
use crate::model::{BLOCK, TreeEntry};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Characters of a report on one state at most.
const DETAIL_CHARS_MAX: usize = 4000;

/// A tree that must not be found, or a state that must not be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rule {rule} ({}): {detail}", Bad::title(*.rule))]
pub struct Bad {
    /// 0: store and model differ without a crash. 1: does not mount or needs repair. 2: an acknowledged durable effect
    /// is missing. 3: an operation is half visible. 4: content is neither old nor new. 5: fsck finds something. 6: the
    /// tree cannot be removed and made again. 7: recovering twice differs from recovering once. 8: not a prefix.
    pub rule: u8,
    /// In words.
    pub detail: String,
}

impl Bad {
    /// By the number of the rule.
    pub fn new(rule: u8, detail: impl Into<String>) -> Bad {
        let mut detail = detail.into();
        if let Some((at, _)) = detail.char_indices().nth(DETAIL_CHARS_MAX) {
            let more = detail.len() - at;
            detail.truncate(at);
            detail.push_str(&format!(" ... and {more} bytes more"));
        }
        Bad { rule, detail }
    }

    /// What a rule forbids, in a few words.
    pub fn title(rule: u8) -> &'static str {
        match rule {
            0 => "store and model differ without a crash",
            1 => "does not mount without repair",
            2 => "an acknowledged durable effect is missing",
            3 => "an operation is half visible",
            4 => "content is neither old nor new",
            5 => "fsck finds a problem",
            6 => "the tree cannot be removed and made again",
            7 => "recovering twice gives another tree",
            8 => "not a prefix of what was done",
            _ => "no such rule",
        }
    }
}

/// A state that the workload went through.
#[derive(Clone, Debug)]
pub struct Point {
    /// Events of the medium before the command that leads here was submitted: no crash earlier may show it.
    pub from_event: u64,
    /// What led here.
    pub what: String,
    /// The tree.
    pub tree: Tree,
    /// Trees between the last point and this one that only a read-only mount may show: a MicroTx half way.
    pub between: Vec<Tree>,
}

/// A promise: from `event` on every crash keeps the state of point number `point`, or a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Events of the medium when the promise was made.
    pub event: u64,
    /// Number of the point (0: the tree at the start).
    pub point: usize,
}

/// What a workload went through: points in LSN order, the first being the tree at the start, and promises.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// In order.
    pub points: Vec<Point>,
    /// In order of events.
    pub acks: Vec<Ack>,
}

impl History {
    /// The points that a crash after `cut_event` events may leave.
    pub fn allowed(&self, cut_event: u64) -> RangeInclusive<usize> {
        let kept = self.acks.iter().filter(|a| a.event <= cut_event).map(|a| a.point).max().unwrap_or(0);
        // Whoever has begun at event n has written nothing before it.
        let begun = self.points.iter().rposition(|p| p.from_event < cut_event).unwrap_or(0);
        kept..=begun.max(kept)
    }

    /// Whether `found` may be there after a crash that came when the medium had seen `cut_event` events, and a
    /// recovery that was allowed to write.
    ///
    /// # Errors
    /// The rule that is broken, and how.
    pub fn judge(&self, cut_event: u64, found: &Tree) -> Result<(), Bad> {
        let allowed = self.allowed(cut_event);
        // The later points are the likelier ones.
        if self.points[allowed.clone()].iter().rev().any(|p| p.tree == *found) {
            return Ok(());
        }
        Err(self.diagnose(allowed, found))
    }

    /// The same for a read-only mount, which does not finish what was open.
    ///
    /// # Errors
    /// As [`History::judge`].
    pub fn judge_read_only(&self, cut_event: u64, found: &Tree) -> Result<(), Bad> {
        let allowed = self.allowed(cut_event);
        let open = allowed.start() + 1..allowed.end() + 1;
        if self.points[open].iter().any(|p| p.between.contains(found)) {
            return Ok(());
        }
        self.judge(cut_event, found)
    }

    /// Names the rule that a tree breaks which may not be found.
    fn diagnose(&self, allowed: RangeInclusive<usize>, found: &Tree) -> Bad {
        let (first, last) = (*allowed.start(), *allowed.end());
        let may = format!("allowed are points {first} to {last} of {}", self.points.len() - 1);
        if let Some(at) = self.points.iter().position(|p| p.tree == *found) {
            let what = &self.points[at].what;
            if at < first {
                let lost = &self.points[at + 1].what;
                return Bad::new(2, format!("the tree is that of point {at}, {what}; {lost} is lost; {may}"));
            }
            return Bad::new(8, format!("the tree is that of point {at}, {what}, which had not begun; {may}"));
        }
        if let Some(p) = self.points.iter().find(|p| p.between.contains(found)) {
            return Bad::new(3, format!("{} was left half way, unfinished by recovery; {may}", p.what));
        }
        let nearest = allowed.clone().min_by_key(|i| differences(&self.points[*i].tree, found).len());
        let nearest = nearest.unwrap_or(first);
        let near = &self.points[nearest];
        let shown = show(&near.tree, found);
        let rule = self.rule_of_parts(allowed, found);
        Bad::new(rule, format!("nearest is point {nearest}, {}; {may}; {shown}", near.what))
    }

    /// Looks at every path by itself: from which points could it come?
    fn rule_of_parts(&self, allowed: RangeInclusive<usize>, found: &Tree) -> u8 {
        let mut paths: BTreeSet<&Vec<u8>> = found.entries.keys().collect();
        paths.extend(self.points.iter().flat_map(|p| p.tree.entries.keys()));
        let mut sources: Vec<Vec<usize>> = Vec::new();
        for path in paths {
            let entry = found.entries.get(path);
            let from = |p: &(usize, &Point)| p.1.tree.entries.get(path) == entry;
            let from: Vec<usize> = self.points.iter().enumerate().filter(from).map(|(i, _)| i).collect();
            if from.is_empty() {
                return self.rule_of_entry(path, entry);
            }
            sources.push(from);
        }
        let (first, last) = (*allowed.start(), *allowed.end());
        let half = |k: usize| sources.iter().all(|s| s.contains(&k) || s.contains(&(k + 1)));
        match () {
            () if (first..last).any(half) => 3,
            () if sources.iter().any(|s| s.iter().all(|k| *k < first)) => 2,
            () if (0..self.points.len() - 1).any(half) => 3,
            () => 8,
        }
    }

    /// A path that shows what it never showed: its bytes, or the rest of it.
    fn rule_of_entry(&self, path: &[u8], entry: Option<&TreeEntry>) -> u8 {
        let Some(entry) = entry else { return 3 };
        let same_bytes = |e: &TreeEntry| e.content == entry.content && e.target == entry.target;
        let known = self.points.iter().filter_map(|p| p.tree.entries.get(path));
        if known.clone().any(same_bytes) || (known.count() == 0 && entry.content.blocks().is_empty()) {
            return 3;
        }
        4
    }
}

/// The paths at which two trees differ.
fn differences<'a>(a: &'a Tree, b: &'a Tree) -> BTreeSet<&'a Vec<u8>> {
    let paths = a.entries.keys().chain(b.entries.keys());
    paths.filter(|p| a.entries.get(*p) != b.entries.get(*p)).collect()
}

/// Every difference, in words.
fn show(expected: &Tree, found: &Tree) -> String {
    let mut lines = Vec::new();
    for path in differences(expected, found) {
        let name = if path.is_empty() { "/".into() } else { String::from_utf8_lossy(path) };
        lines.push(match (expected.entries.get(path), found.entries.get(path)) {
            (Some(_), None) => format!("{name} is missing"),
            (None, Some(e)) => format!("{name} should not be there: {e:?}"),
            (Some(a), Some(b)) => format!("{name}: {}", show_entry(a, b)),
            (None, None) => continue,
        });
    }
    lines.join("; ")
}

fn show_entry(a: &TreeEntry, b: &TreeEntry) -> String {
    let mut parts = Vec::new();
    if a.stat != b.stat {
        parts.push(format!("{:?} where {:?} should be", b.stat, a.stat));
    }
    if a.first_path != b.first_path {
        let path = |p: &[u8]| String::from_utf8_lossy(p).into_owned();
        parts.push(format!(
            "an inode with {} where it should be one with {}",
            path(&b.first_path),
            path(&a.first_path)
        ));
    }
    if a.target != b.target {
        parts.push("another target".to_owned());
    }
    if a.xattrs != b.xattrs {
        parts.push(format!("attributes {:?} where {:?} should be", b.xattrs, a.xattrs));
    }
    if let Some(difference) = first_byte(a, b) {
        parts.push(difference);
    }
    parts.join(", ")
}

/// The first byte at which two contents differ.
fn first_byte(a: &TreeEntry, b: &TreeEntry) -> Option<String> {
    let blocks = a.content.blocks().iter().chain(b.content.blocks()).map(|(at, _)| *at);
    let at = blocks.filter(|at| a.content.block(*at) != b.content.block(*at)).min()?;
    let byte = |e: &TreeEntry, i: usize| e.content.block(at).map_or(0, |b| b[i]);
    let differs = |i: &usize| byte(a, *i) != byte(b, *i);
    let i = (0..BLOCK as usize).find(differs)?;
    let count = (0..BLOCK as usize).filter(differs).count();
    let off = at * BLOCK + i as u64;
    Some(format!("byte {off} is {:#04x} where {:#04x} should be, {count} differ in its block", byte(b, i), byte(a, i)))
}
