//! Payload that lies with the processor of the client comes near while the command's names are resolved and its room
//! is reserved: fetched when it is copied, it would take as long as a short command takes.

use weldfs_ciscops::{Op, SharedRegion};

/// Asks for the first bytes of a command's payload.
#[inline]
pub(super) fn near(op: &Op, pool: &SharedRegion) {
    let (range, write) = match *op {
        Op::Write { src, .. }
        | Op::WriteVerified { src, .. }
        | Op::AppendChecksumWrite { src, .. }
        | Op::OpenWriteClose { src, .. }
        | Op::OpenReadWriteClose { src, .. } => (src, false),
        Op::Read { out, .. } | Op::OpenReadClose { out, .. } | Op::ReadChecksumVerify { out, .. } => (out, true),
        _ => return,
    };
    if let Ok(bytes) = pool.slice(range) {
        bytes.come_near(write);
    }
}
