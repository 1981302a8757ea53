//! Transactions of several commands: what a session keeps for them is bounded, charged to it and its tenant, and gone
//! with it.

use std::sync::Arc;

use weldfs_ciscops::{Access, At, Errno, Handle, Op, OpenFlags};
use weldfs_fs::{FileRef, StagedWrite};

use super::dataplane::file_system;
use super::done::Done;
use super::opcx::{OpCx, answer, failed};

/// Bytes charged for a write beside its own: the private blocks of its edges when it commits.
const EDGES: u64 = 8 << 10;

/// What needs no inode.
pub(super) fn run(cx: &OpCx<'_>) -> Done {
    match cx.cmd.op {
        Op::TxnBegin => answer(begin(cx)),
        Op::TxnWrite { src, .. } => {
            let mut done = answer(write(cx));
            done.took(src.len.into());
            done
        }
        Op::TxnAbort { txn } => answer(abort(cx, txn)),
        _ => failed(Errno::INVAL),
    }
}

/// Begins a transaction; gives its handle.
fn begin(cx: &OpCx<'_>) -> Result<(u64, u64), Errno> {
    if cx.session().closing() {
        return Err(Errno::NODEV);
    }
    Ok((cx.session().staged_table().begin()?.to_wire(), 0))
}

/// Takes a write into a transaction: its bytes are copied out of the pool, once.
fn write(cx: &OpCx<'_>) -> Result<(u64, u64), Errno> {
    let Op::TxnWrite { txn, h, at, src } = cx.cmd.op else { return Err(Errno::INVAL) };
    let session = cx.session();
    let description = cx.description(h)?;
    let flags = description.flags();
    if flags.contains(OpenFlags::PATH) || !flags.access().contains(Access::WRITE) {
        return Err(Errno::BADF);
    }
    let at = if flags.contains(OpenFlags::APPEND) { At::End } else { at };
    let sync = flags.intersects(OpenFlags::SYNC | OpenFlags::DSYNC);
    // A medium that gets its data with the record holds it once more while it commits.
    let times = if cx.core.store.writes_directly() { 1 } else { 2 };
    let charge = u64::from(src.len) * times + EDGES;
    session.charge_staged(charge)?;
    let bytes = cx.queue.pool.slice(src).map(|s| s.to_vec().into_boxed_slice());
    let added = bytes.and_then(|bytes| {
        let file = FileRef { ino: description.ino, access: flags.access() };
        let keep: Arc<dyn std::any::Any + Send + Sync> = description;
        let write = StagedWrite { file, at, bytes, keep: Some(keep) };
        session.staged_table().write(txn, write, sync, charge)
    });
    match added {
        Ok(n) => Ok((u64::from(src.len), n)),
        Err(e) => {
            session.release_staged(charge);
            Err(e)
        }
    }
}

/// Ends a transaction without a trace.
fn abort(cx: &OpCx<'_>, txn: Handle) -> Result<(u64, u64), Errno> {
    let charged = cx.session().staged_table().abort(txn)?;
    cx.session().release_staged(charged);
    cx.core.note_reclaim();
    Ok((0, 0))
}

/// Commits a transaction, which is over then, whatever comes of it.
pub(super) async fn commit(cx: &OpCx<'_>, txn: Handle) -> Done {
    if let Err(errno) = cx.session().staged_table().close(txn) {
        return failed(errno);
    }
    let done = file_system(cx).await;
    let over = cx.session().staged_table().end(txn);
    cx.session().release_staged(over.unwrap_or(0));
    cx.core.note_reclaim();
    done
}
