//! The interpreter: runs a command's micro-ops in order over a Target.

use crate::command::Command;
use crate::paths::Paths;
use crate::target::Target;
use crate::{Cqe, SharedRegion};

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// 0 or a positive errno.
    pub status: i32,
    /// Micro-ops whose effects stand (0 when a MacroTx failed).
    pub micro_done: u16,
    /// 0, or 1 + the index of the micro-op that failed.
    pub micro_failed: u16,
    /// First result.
    pub result: u64,
    /// Second result.
    pub result2: u64,
}

impl Outcome {
    /// The CQE that reports it.
    pub fn to_cqe(&self, sequence: u64) -> Cqe {
        Cqe {
            sequence,
            status: self.status,
            micro_done: self.micro_done,
            micro_failed: self.micro_failed,
            result: self.result,
            result2: self.result2,
        }
    }
}

/// Runs `cmd`. On a status other than 0 the caller drops everything the target staged.
pub async fn run<T: Target>(cmd: &Command, paths: &Paths, pool: &SharedRegion, t: &mut T) -> Outcome {
    let _ = (cmd, paths, pool, t);
    unimplemented!()
}
