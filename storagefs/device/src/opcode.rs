//! Commands by their opcodes, with the memory that they hold while they run: what is no sequence, and what no virtual
//! file answers in a way of its own (`virt` sees all of them first).

use weldfs_ciscops::{Errno, Op, Outcome};

use super::dataplane::file_system;
use super::done::Done;
use super::leases::note_failure;
use super::memory::held_by;
use super::opcx::{OpCx, answer, failed};
use super::{checksum, detect, session_ops, staged};

/// Runs one command that is no sequence, and that no virtual file answers in a way of its own.
pub(super) async fn by_opcode(cx: &OpCx<'_>) -> Done {
    let core = cx.core;
    let modelled = core.emulated.is_on();
    // On an emulated device payload crosses its memory both ways; else it is there on its way to a block medium only.
    let bytes = held_by(&cx.cmd, &cx.paths, modelled || !core.store.writes_directly(), modelled);
    // A posted one is small, and those that hold memory may be waiting for it.
    let bytes = if cx.cmd.is_posted() { 0 } else { bytes };
    let _held = match core.memory.reserve(&cx.queue.tenant, cx.at, bytes, &cx.queue.counters.memory_waits).await {
        Ok(held) => held,
        Err(errno) => return failed(errno),
    };
    let mut done = match cx.cmd.op {
        Op::Nop => Outcome::ok(0, 0).into(),
        Op::Syncfs => answer(session_ops::sync(cx, None).await),
        Op::Fsync { h } | Op::Fdatasync { h } => answer(session_ops::sync(cx, Some(h)).await),
        Op::Close { h } => answer(session_ops::close(cx, h).await),
        Op::SetFlags { h, flags } => answer(session_ops::set_flags(cx, h, flags).await),
        Op::Lock { .. } => session_ops::lock(cx).await,
        Op::SetKey { kind, bytes } => answer(session_ops::set_key(cx, kind, bytes)),
        Op::DropKey { key } => answer(session_ops::drop_key(cx, key)),
        Op::VirtParams { h, .. } => answer(cx.description(h).and(Err(Errno::INVAL))),
        Op::ChecksumRange { .. } => answer(Box::pin(checksum::run(cx)).await),
        Op::Outcome { client, queue, sequence, out } => answer(detect::answer(cx, client, queue, sequence, out).await),
        Op::TxnBegin | Op::TxnWrite { .. } | Op::TxnAbort { .. } => staged::run(cx),
        Op::TxnCommit { txn } => Box::pin(staged::commit(cx, txn)).await,
        _ => file_system(cx).await,
    };
    note_failure(&cx.queue, &cx.cmd, &done.outcome);
    cx.queue.counters.posted.add(u64::from(cx.cmd.is_posted()));
    done.bytes_in += (cx.paths.a.len() + cx.paths.b.len()) as u64;
    if let Op::Outcome { out, .. } = cx.cmd.op {
        // What it answers beside the numbers is one block.
        done.copied.metadata += u64::from(done.outcome.is_ok() && !out.is_empty());
    }
    done
}
