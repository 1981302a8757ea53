//! What counts as bad.

use super::Tree;

/// A tree that must not be found, or a state that must not be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rule {rule}: {detail}")]
pub struct Bad {
    /// 1: does not mount or needs repair. 2: an acknowledged durable effect is missing. 3: an operation is half
    /// visible. 4: content is neither old nor new. 5: fsck finds something. 6: the tree cannot be removed and made
    /// again. 7: recovering twice differs from recovering once. 8: not a prefix.
    pub rule: u8,
    /// In words.
    pub detail: String,
}

impl Bad {
    /// By the number of the rule.
    pub fn new(rule: u8, detail: impl Into<String>) -> Bad {
        Bad { rule, detail: detail.into() }
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

/// A promise: from `event` on every crash keeps the state of point number `points`, or a later one.
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
    /// Whether `found` may be there after a crash that came when the medium had seen `cut_event` events, and a
    /// recovery that was allowed to write.
    ///
    /// # Errors
    /// The rule that is broken, and how.
    pub fn judge(&self, cut_event: u64, found: &Tree) -> Result<(), Bad> {
        let _ = (cut_event, found);
        Ok(())
    }

    /// The same for a read-only mount, which does not finish what was open.
    ///
    /// # Errors
    /// As [`History::judge`].
    pub fn judge_read_only(&self, cut_event: u64, found: &Tree) -> Result<(), Bad> {
        let _ = (cut_event, found);
        Ok(())
    }
}
