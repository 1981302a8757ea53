//! What a command that commits step by step has collected.

use smallvec::SmallVec;
use weldfs_ciscops::{InodeNo, OpenFlags, Sqe};
use weldfs_store::Group;
use weldfs_store::micro::{Detect, Input};

/// The groups of a command so far, and what its begin record will say.
pub(super) struct Steps {
    pub sqe: Sqe,
    pub detect: Option<Detect>,
    pub dir: InodeNo,
    pub name: SmallVec<[u8; 48]>,
    pub flags: OpenFlags,
    pub groups: SmallVec<[Group; 2]>,
    pub inputs: SmallVec<[Input; 1]>,
    /// Client's bytes written by the micro-op that runs: file, offset, length.
    pub written: Option<(InodeNo, u64, u64)>,
    /// Content effects staged before the content of this micro-op was settled.
    pub settled_from: Option<usize>,
    /// Of a program: its micro-ops. Its groups are effects of any kind, and are planned as a whole.
    pub program: Option<u16>,
    /// Commits as one record whatever its groups: the transaction's records could not hold it.
    pub whole: bool,
}
