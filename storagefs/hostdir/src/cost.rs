//! What a command may cost its thread, and whether it must be made durable: by what it asks for.

use weldfs_ciscops::program::Program;
use weldfs_ciscops::{Durability, Op, OpenFlags};

use super::core::Core;
use super::session::SessionState;
use super::work::Work;

/// Payload bytes from which on a command takes long.
const LONG: u32 = 128 << 10;

/// Bytes of entries with attributes from which on a listing does.
const LONG_LISTING: u32 = 1 << 10;

/// Whether a command may have to wait for a medium of the host's: it is not known how long, and others are not to.
pub(super) fn waits_for_the_host(core: &Core, work: &Work) -> bool {
    use Op::*;
    matches!(work.cmd.op, Fsync { .. } | Fdatasync { .. } | Syncfs)
        || work.cmd.after_durable
        || (wants_durable(core, work) && changes(work))
}

/// Whether a command may keep its thread for longer than others should wait for the rings to be looked at, by what it
/// asks for, or by what those before it on its ring took.
pub(super) fn may_take_long(work: &Work) -> bool {
    is_large(work) || work.queue.pace.is_slow()
}

/// Whether it is one call of the host that may take however long.
pub(super) fn is_endless(work: &Work) -> bool {
    matches!(work.cmd.op, Op::Fallocate { .. } | Op::Truncate { .. })
}

/// Whether it has turns at the processors by itself, where it needs one.
pub(super) fn takes_turns(work: &Work) -> bool {
    matches!(work.cmd.op, Op::ChecksumRange { .. })
        || work.paths.program.as_ref().is_some_and(|program| program.computes().is_some())
}

/// Whether it is by what it asks for.
pub(super) fn is_large(work: &Work) -> bool {
    use Op::*;
    match work.cmd.op {
        // Of a file of whatever length.
        ChecksumRange { .. } | Fallocate { .. } | Truncate { .. } => true,
        Read { out, .. } | OpenReadClose { out, .. } if out.len >= LONG => true,
        ReadChecksumVerify { len, .. } if len >= LONG => true,
        // Of whatever: what its elements are is read when they run, and once.
        Batch { .. } => true,
        ReadDirPlus { out, .. } if out.len >= LONG_LISTING => true,
        Program { .. } if work.paths.program.as_ref().is_some_and(|p| is_long(p)) => true,
        Write { src, .. }
        | WriteVerified { src, .. }
        | AppendChecksumWrite { src, .. }
        | OpenWriteClose { src, .. }
            if src.len >= LONG =>
        {
            true
        }
        OpenReadWriteClose { out, src, .. } if out.len.max(src.len) >= LONG => true,
        _ => false,
    }
}

fn is_long(program: &Program) -> bool {
    program.computes().is_some() || program.write_bytes().max(program.scratch_bytes()) >= u64::from(LONG)
}

/// Whether a command changes something that can be made durable.
pub(super) fn changes(work: &Work) -> bool {
    use Op::*;
    match &work.cmd.op {
        Program { .. } => work.paths.program.as_ref().is_some_and(|p| p.changes()),
        Open { flags, .. } => flags.intersects(OpenFlags::CREATE | OpenFlags::TRUNC),
        Nop | Close { .. } | Read { .. } | Seek { .. } | Stat { .. } | StatPath { .. } | ReadDir { .. } => false,
        Lock { .. } | SetFlags { .. } | Statfs { .. } | Readlink { .. } | Access { .. } => false,
        GetXattr { .. } | ListXattr { .. } | VirtSpec { .. } | OpenReadClose { .. } | ReadChecksumVerify { .. } => {
            false
        }
        ReadDirPlus { .. } => false,
        _ => true,
    }
}

/// Durability as asked for: by a program itself, the command, the description's O_SYNC or O_DSYNC, the default.
pub(super) fn wants_durable(core: &Core, work: &Work) -> bool {
    match work.cmd.durability {
        _ if work.paths.program.as_ref().is_some_and(|p| p.is_durable()) => true,
        Durability::Durable => true,
        Durability::Volatile => false,
        Durability::Default => core.durable_default || synchronous(&work.queue.session, &work.cmd.op),
    }
}

fn synchronous(session: &SessionState, op: &Op) -> bool {
    let sync = OpenFlags::SYNC | OpenFlags::DSYNC;
    match *op {
        Op::Write { h, .. }
        | Op::WriteVerified { h, .. }
        | Op::Truncate { h, .. }
        | Op::Fallocate { h, .. }
        | Op::AppendChecksumWrite { h, .. }
        | Op::ReadModifyWrite { h, .. } => session.handles.with(h, |d| d.flags().intersects(sync)).unwrap_or(false),
        Op::OpenWriteClose { flags, .. } | Op::OpenReadWriteClose { flags, .. } => flags.intersects(sync),
        _ => false,
    }
}

/// Whether a command is fused and changes something: what a MacroTx would have to be all or nothing of.
pub(super) fn is_fused_change(work: &Work) -> bool {
    work.cmd.op.is_fused() && changes(work)
}
