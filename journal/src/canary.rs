//! Planted bugs: each names one rule of the protocol and, once planted, breaks it. The tier that is meant to find such
//! a bug is run with it planted and must fail; a rig that finds no planted bug proves nothing.
//! Builds with debug assertions (every test's) can plant them at run time; in a release build [`planted`] is a constant
//! `false` and every broken branch is compiled away.

/// The rules that can be broken, one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Canary {
    /// A durable operation is acknowledged although no flush was issued for it.
    FlushSkipped = 1,
    /// A durable operation is acknowledged before the watermark covers its record.
    AckBeforeWatermark,
    /// A record is made durable before the data it points to.
    RecordBeforeData,
    /// The log scan does not check records' CRC.
    ReplayCrcUnchecked,
    /// A micro commit is logged although the effects of its micro-op come later.
    CommitBeforeEffect,
    /// A checkpoint becomes durable before the log up to its cut is.
    CheckpointBeforeLog,
    /// A checkpoint leaves out the transactions open at its cut.
    CheckpointWithoutOpenTxns,
    /// The log is released before the superblock that makes it unnecessary is durable.
    LogReusedEarly,
    /// A freed block is handed out again at once.
    BlockReusedEarly,
    /// Records above the watermark are applied although their data does not match: the torn tail is accepted.
    TornTailAccepted,
    /// A valid-looking record inside another record's payload is taken for one.
    ForgedRecordAccepted,
    /// Damage in the middle of the durable log is taken for its end.
    MidLogRotTakenForTail,
    /// Records with the salt of a segment that has been left are accepted.
    OldSaltAccepted,
    /// Recovery finishes a transaction under a second begin record.
    SecondBegin,
    /// Recovery does not log that it finished a transaction: a second recovery finishes it again.
    DoubleFinish,
    /// A tree page that is older than its parent says is accepted.
    OlderPageAccepted,
    /// An effect of a MacroTx reaches the log before its other effects.
    MacroVisibleEarly,
    /// A file that was unlinked while open is not remembered over a crash.
    OrphanForgotten,
    /// A queue entry is read from shared memory a second time after it was checked.
    SqeReadTwice,
    /// An inode's cell outlives the layer that changed it, when that drops into the tree.
    StaleCell,
    /// A change does not end the watches of its inode.
    WatchKept,
    /// A command does not wait for what another ring had posted to its inode.
    LeaseUnbroken,
    /// What became of a posted change that failed is not remembered.
    PostedErrorSwallowed,
    /// A sync is answered while what was posted before it waits to be in one record with what was posted behind it.
    MergedAcrossSync,
    /// A row of posted appends begins where the one before it ended, whatever others have appended since.
    MergedOverAppend,
}

/// Every canary of this module.
pub const ALL: [Canary; 25] = [
    Canary::FlushSkipped,
    Canary::AckBeforeWatermark,
    Canary::RecordBeforeData,
    Canary::ReplayCrcUnchecked,
    Canary::CommitBeforeEffect,
    Canary::CheckpointBeforeLog,
    Canary::CheckpointWithoutOpenTxns,
    Canary::LogReusedEarly,
    Canary::BlockReusedEarly,
    Canary::TornTailAccepted,
    Canary::ForgedRecordAccepted,
    Canary::MidLogRotTakenForTail,
    Canary::OldSaltAccepted,
    Canary::SecondBegin,
    Canary::DoubleFinish,
    Canary::OlderPageAccepted,
    Canary::MacroVisibleEarly,
    Canary::OrphanForgotten,
    Canary::SqeReadTwice,
    Canary::StaleCell,
    Canary::WatchKept,
    Canary::LeaseUnbroken,
    Canary::PostedErrorSwallowed,
    Canary::MergedAcrossSync,
    Canary::MergedOverAppend,
];

/// Whether the rule `canary` names is to be broken.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn planted(_canary: Canary) -> bool {
    false
}

#[cfg(debug_assertions)]
mod live {
    use super::Canary;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

    static PLANTED: AtomicU8 = AtomicU8::new(0);
    static SEEN: AtomicU64 = AtomicU64::new(0);

    thread_local! {
        static HERE: Cell<u8> = const { Cell::new(0) };
    }

    /// Whether the rule `canary` names is to be broken.
    #[inline]
    pub fn planted(canary: Canary) -> bool {
        let yes = PLANTED.load(Ordering::Relaxed) == canary as u8 || HERE.get() == canary as u8;
        if yes {
            SEEN.fetch_add(1, Ordering::Relaxed);
        }
        yes
    }

    /// Breaks one rule in this whole process, or none. The count of [`seen`] starts again.
    pub fn plant(canary: Option<Canary>) {
        PLANTED.store(canary.map_or(0, |c| c as u8), Ordering::SeqCst);
        SEEN.store(0, Ordering::SeqCst);
    }

    /// Breaks one rule for what this thread does, or none: other threads of the process keep it.
    pub fn plant_here(canary: Option<Canary>) {
        HERE.set(canary.map_or(0, |c| c as u8));
    }

    /// How often the planted rule was met since it was planted: none means that the tier never came near it.
    pub fn seen() -> u64 {
        SEEN.load(Ordering::SeqCst)
    }
}

#[cfg(debug_assertions)]
pub use live::{plant, plant_here, planted, seen};
