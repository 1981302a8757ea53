//! What a command asks for beside its effect, as its operands say: durability, the gate of names, work for reclaim,
//! a slot.

use weldfs_ciscops::program::Micro;
use weldfs_ciscops::{Access, Command, Durability, Op, OpenFlags, Paths, Placement};

use super::core::Core;
use super::session::SessionState;
use weldfs_fs::{HandleTable, SessionView};

/// A command and whose it is.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub core: &'a Core,
    pub session: &'a SessionState,
    pub cmd: &'a Command,
    pub paths: &'a Paths,
}

/// The micro-ops of a program.
fn program_of<'a>(asked: &Asked<'a>) -> impl Iterator<Item = &'a Micro> {
    asked.paths.program.iter().flat_map(|p| p.micros())
}

/// Durability as asked for: by the command, by the description's O_SYNC or O_DSYNC, by the device's default.
pub(super) fn wants_durable(asked: Asked<'_>) -> bool {
    let asks = asked.paths.program.as_ref().is_some_and(|p| p.is_durable());
    match asked.cmd.durability {
        _ if asks => true,
        Durability::Durable => true,
        Durability::Volatile => false,
        Durability::Default => asked.core.durable_default || synchronous(asked),
    }
}

fn synchronous(asked: Asked<'_>) -> bool {
    let sync = OpenFlags::SYNC | OpenFlags::DSYNC;
    let of_handle = |h| asked.session.handle(h).is_ok_and(|f| f.flags.intersects(sync));
    match asked.cmd.op {
        Op::Program { .. } => program_of(&asked).any(|m| match *m {
            Micro::Use { h, need, .. } => need.contains(Access::WRITE) && of_handle(h),
            Micro::Open { flags, .. } => flags.intersects(sync),
            _ => false,
        }),
        Op::Write { h, .. }
        | Op::SetAttr { h, .. }
        | Op::WriteVerified { h, .. }
        | Op::Truncate { h, .. }
        | Op::Fallocate { h, .. }
        | Op::AppendChecksumWrite { h, .. }
        | Op::ReadModifyWrite { h, .. } => of_handle(h),
        Op::OpenWriteClose { flags, .. } | Op::OpenReadWriteClose { flags, .. } => flags.intersects(sync),
        Op::TxnCommit { txn } => asked.session.staged(txn).is_ok_and(|s| s.sync),
        _ => false,
    }
}

/// Whether it makes, moves or removes names.
pub(super) fn changes_names(asked: Asked<'_>) -> bool {
    match &asked.cmd.op {
        Op::Program { .. } => program_of(&asked).any(|m| m.changes() && m.changes_file().is_none()),
        Op::Mkdir { .. }
        | Op::Rmdir { .. }
        | Op::Unlink { .. }
        | Op::Rename { .. }
        | Op::Link { .. }
        | Op::Symlink { .. }
        | Op::VirtRegister { .. } => true,
        Op::Open { flags, .. } | Op::OpenWriteClose { flags, .. } | Op::OpenReadWriteClose { flags, .. } => {
            flags.contains(OpenFlags::CREATE)
        }
        _ => false,
    }
}

/// Whether reclaim may have work after this command.
pub(super) fn leaves_garbage(asked: Asked<'_>) -> bool {
    match &asked.cmd.op {
        Op::Program { .. } => program_of(&asked).any(|m| m.changes() && !matches!(m, Micro::Write { .. })),
        Op::Unlink { .. } | Op::Rmdir { .. } | Op::Rename { .. } | Op::Truncate { .. } | Op::Fallocate { .. } => true,
        Op::SetAttr { .. } | Op::SetAttrPath { .. } => true,
        Op::Open { flags, .. } | Op::OpenWriteClose { flags, .. } | Op::OpenReadWriteClose { flags, .. } => {
            flags.contains(OpenFlags::TRUNC)
        }
        _ => false,
    }
}

/// Whether the compute stages of a command run in a slot.
#[inline]
pub(super) fn is_placed(cmd: &Command) -> bool {
    matches!(cmd.placement, Placement::Slot { .. })
}
