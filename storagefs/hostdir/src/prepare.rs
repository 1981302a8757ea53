//! What a command holds before it begins, and whether it holds it alone.

use weldfs_ciscops::{At, Handle, Op};
use weldfs_scheduler::Mode;

use super::txn::HostTxn;
use weldfs_session::sets::members;

impl HostTxn<'_> {
    /// Takes the tickets of a command that names its file by a handle, and of a program.
    pub async fn prepare(&mut self) {
        if let Some(program) = &self.work.paths.program {
            return self.prepare_program(program).await;
        }
        if let Some((h, mode)) = by_handle(&self.work.cmd.op)
            && let Ok(key) = self.key_of(h)
        {
            self.hold(members([(key.0, mode)])).await;
        }
    }
}

/// How strongly a command that names its file by a handle holds it.
fn by_handle(op: &Op) -> Option<(Handle, Mode)> {
    match *op {
        // What moves the offset of the description runs alone, as read(2) and lseek(2) lock it.
        Op::Read { h, at: At::Current, .. } | Op::Seek { h, .. } => Some((h, Mode::Exclusive)),
        Op::Read { h, .. } | Op::ReadDir { h, .. } | Op::ReadChecksumVerify { h, .. } => Some((h, Mode::Shared)),
        Op::Write { h, .. }
        | Op::WriteVerified { h, .. }
        | Op::Truncate { h, .. }
        | Op::Fallocate { h, .. }
        | Op::SetAttr { h, .. }
        | Op::AppendChecksumWrite { h, .. }
        | Op::ReadModifyWrite { h, .. } => Some((h, Mode::Exclusive)),
        _ => None,
    }
}
