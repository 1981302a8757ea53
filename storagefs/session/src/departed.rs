//! What is still done for a client that is gone.
//!
//! A process that is killed leaves with the host what its calls had promised: what it wrote with a call that returned.
//! So it is here. Commands that change something and were published before their client went are executed, those that
//! begin within five seconds, posted ones whenever they come: a ring may hold a thousand writes of a mebibyte, and a
//! session 64 rings. What only
//! answers is dropped: nothing is there to answer. Batches that have not begun are dropped, too, and of a batch that
//! has begun the elements that have not; programs, which may compute for long, are begun and gone on with for a second.
//! When the device itself ends, what is left after three seconds is dropped whatever it is, so that an end takes a
//! bounded time: nothing of it was acknowledged. A command that is dropped has no effect, or, one that commits step by
//! step, those of the steps it had done.

use crate::clock::now_ns;
use weldfs_ciscops::{At, Op, OpenFlags};

/// Nanoseconds for which programs and elements of batches go on after their client went.
const PROGRAMS_NS: u64 = 1_000_000_000;
/// Nanoseconds in which what has effects begins after its client went.
const EFFECTS_NS: u64 = 5_000_000_000;
/// Nanoseconds for which anything goes on after the device began to end.
const END_NS: u64 = 3_000_000_000;

/// What a command is worth without its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Worth {
    /// It answers, and nothing that follows it in its ring depends on it.
    Nothing,
    /// It has effects, and may take long.
    Soon,
    /// It has effects, or what follows it may depend on it: where an offset stands, how a file is open, what a
    /// transaction holds.
    Effects,
}

/// What is lost when it is not done.
pub fn worth(op: &Op) -> Worth {
    use Op::*;
    match op {
        // Where the description's offset stands is what a later write goes by.
        Read { at: At::Current, .. } => Worth::Effects,
        Nop
        | Read { .. }
        | Stat { .. }
        | StatPath { .. }
        | ReadDir { .. }
        | Lock { .. }
        | Statfs { .. }
        | Outcome { .. }
        | ChecksumRange { .. }
        | ReadDirPlus { .. }
        | Readlink { .. }
        | Access { .. }
        | GetXattr { .. }
        | ListXattr { .. }
        | VirtSpec { .. }
        | ReadChecksumVerify { .. }
        | OpenReadClose { .. } => Worth::Nothing,
        Open { flags, .. } if !flags.intersects(OpenFlags::CREATE | OpenFlags::TRUNC) => Worth::Nothing,
        Program { .. } | Batch { .. } => Worth::Soon,
        Open { .. }
        | Close { .. }
        | Seek { .. }
        | SetFlags { .. }
        | SetKey { .. }
        | DropKey { .. }
        | TxnBegin
        | TxnWrite { .. }
        | TxnAbort { .. }
        | Write { .. }
        | WriteVerified { .. }
        | Truncate { .. }
        | Fallocate { .. }
        | Fsync { .. }
        | Fdatasync { .. }
        | Syncfs
        | SetAttr { .. }
        | SetAttrPath { .. }
        | TxnCommit { .. }
        | Mkdir { .. }
        | Rmdir { .. }
        | Unlink { .. }
        | Rename { .. }
        | Link { .. }
        | Symlink { .. }
        | SetXattr { .. }
        | RemoveXattr { .. }
        | VirtRegister { .. }
        | VirtParams { .. }
        | OpenWriteClose { .. }
        | OpenReadWriteClose { .. }
        | AppendChecksumWrite { .. }
        | ReadModifyWrite { .. } => Worth::Effects,
    }
}

/// The same of a client that has been gone since then, of what is ending since then.
pub fn goes_on_since(gone: u64, ending: Option<u64>, op: &Op, begun: bool) -> bool {
    let now = now_ns();
    let within = |since: u64, ns: u64| now.saturating_sub(since) < ns;
    let ends = ending.is_some_and(|since| !within(since, END_NS));
    match worth(op) {
        Worth::Nothing => false,
        Worth::Soon => !ends && within(gone, PROGRAMS_NS),
        Worth::Effects => !ends && (begun || within(gone, EFFECTS_NS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weldfs_ciscops::{Handle, PoolRange};

    #[test]
    fn what_a_client_had_asked_begins_for_a_bounded_time_after_it_went() {
        let path = PoolRange::new(0, 1);
        let change = Op::Mkdir { base: Handle::ROOT, path, mode: 0 };
        let (answer, program) = (Op::Readlink { base: Handle::ROOT, path, out: path }, Op::Program { body: path });
        let goes_on = |seconds: u64, ends: Option<u64>, op: &Op, begun: bool| {
            let ago = |s: u64| now_ns().saturating_sub(s * 1_000_000_000);
            goes_on_since(ago(seconds), ends.map(ago), op, begun)
        };
        if now_ns() < 60_000_000_000 {
            return println!("this machine's clock has just begun: nothing is known of a minute ago");
        }
        assert!(goes_on(1, None, &change, false) && goes_on(4, None, &change, false));
        assert!(!goes_on(6, None, &change, false), "not for ever");
        assert!(goes_on(6, None, &change, true) && !goes_on(6, Some(4), &change, true));
        assert!(goes_on(0, None, &program, false) && !goes_on(2, None, &program, true));
        assert!(!goes_on(0, None, &answer, false));
    }
}
