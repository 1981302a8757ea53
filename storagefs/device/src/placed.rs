//! Commands whose compute stages run in slots.
//!
//! A stage is a packet (`packet`): its bytes go to a kernel, what comes back is what a core would have computed, to the
//! last bit.
//! The op waits for it as for a cold page, and its core does others meanwhile. It holds no file while it waits: an
//! append is summed up before it asks for its tickets, what is verified is read under the tickets and summed up without
//! them, and a program lends what it holds. So whoever holds a slot waits for nothing but the slot, and slots and
//! tickets cannot wait for each other. A slot that is lost is EIO to the one command that had it, or, where the command
//! allows that, the stage runs on a core, and is counted.

use std::sync::Arc;

use weldfs_ciscops::program::CRC32C;
use weldfs_ciscops::{
    Access, ChecksumState, Errno, Handle, Kernel, Op, OpenFlags, Outcome, SharedRegion, Sink, Target,
};
use weldfs_scheduler::Mode;

use super::done::Done;
use super::opcx::{OpCx, durable, failed};
use super::packet::{CRC_BYTES, at_once, crc32c};
pub use weldfs_fs::{FileRef, Hold, InodeSet, ROOT, Txn};
use weldfs_store::scratch;

/// What [`begin`] would do for an append whose checksum this core computes in the slot's place, without its future:
/// whether that is done.
pub(super) fn begin_at_once(cx: &OpCx<'_>) -> bool {
    let Op::AppendChecksumWrite { h, src, .. } = cx.cmd.op else { return false };
    if src.len as usize > cx.core.card.at_once_max() {
        return false;
    }
    let (Ok(_), Ok(bytes)) = (cx.description(h), cx.queue.pool.slice(src)) else { return false };
    let mut taken = scratch::list();
    bytes.append_to(&mut taken);
    let stage = Kernel { name: CRC32C, params: &[0], or_core: false };
    let Some(Ok(output)) = at_once(cx, &stage, &taken, CRC_BYTES) else {
        scratch::keep(taken);
        return false;
    };
    let Ok(crc) = output.try_into().map(u32::from_le_bytes) else { return false };
    let len = taken.len() as u64;
    cx.taken.set(Arc::new((taken, ChecksumState::resume(crc, len)))).is_ok()
}

/// Before a command that is placed in a slot asks for anything: takes the payload of an append, and has it summed up.
/// Answers a command that is over with that.
pub(super) async fn begin(cx: &OpCx<'_>) -> Option<Done> {
    match cx.cmd.op {
        Op::AppendChecksumWrite { h, src, .. } => {
            // What has no file fails as it does on a core.
            cx.description(h).ok()?;
            let taken = match cx.queue.pool.slice(src) {
                Ok(bytes) => {
                    let mut list = scratch::list();
                    bytes.append_to(&mut list);
                    list
                }
                Err(errno) => return Some(failed(errno)),
            };
            let len = taken.len() as u64;
            match crc32c(cx, 0, &taken).await {
                Ok(crc) => {
                    let _ = cx.taken.set(Arc::new((taken, ChecksumState::resume(crc, len))));
                    None
                }
                Err(errno) => Some(stage_failed(cx, errno, 1)),
            }
        }
        Op::ReadChecksumVerify { h, offset, len, .. } => {
            let mut done = Done::from(Outcome::default());
            done.outcome = match verify(cx, h, (offset, len), &mut done).await {
                Ok(outcome) => outcome,
                Err((index, errno)) => {
                    Outcome { status: errno.0, micro_done: 0, micro_failed: index + 1, ..Outcome::default() }
                }
            };
            Some(done)
        }
        _ => None,
    }
}

/// The micro-op at `index` failed in its slot: those before it stand, where each stands by itself.
fn stage_failed(cx: &OpCx<'_>, errno: Errno, index: u16) -> Done {
    let micro_done = if cx.cmd.commits_in_steps() { index } else { 0 };
    Outcome { status: errno.0, micro_done, micro_failed: index + 1, result: 0, result2: 0 }.into()
}

/// The micro-ops of `read_checksum_verify`: which one failed.
type Verified<T> = Result<T, (u16, Errno)>;

/// Reads payload and trailer under a shared ticket, gives that back, sums up, compares.
async fn verify(cx: &OpCx<'_>, h: Handle, (offset, len): (u64, u32), done: &mut Done) -> Verified<Outcome> {
    let Op::ReadChecksumVerify { out, .. } = cx.cmd.op else { return Err((0, Errno::INVAL)) };
    let (payload, trailer) = read_record(cx, h, offset, len).await?;
    if !out.is_empty() {
        hand_over(&cx.queue.pool, out, &payload).map_err(|e| (1, e))?;
        done.gave(len.into());
    }
    let crc = crc32c(cx, 0, &payload).await.map_err(|e| (1, e))?;
    scratch::keep(payload);
    let trailer = trailer.map_err(|e| (2, e))?;
    if cx.cmd.after_durable {
        durable(cx, cx.core.store.journal().owned_end()).await.map_err(|e| (0, e))?;
    }
    let (result, result2) = (len.into(), crc.into());
    if trailer == crc.to_le_bytes() {
        return Ok(Outcome { status: 0, micro_done: 4, micro_failed: 0, result, result2 });
    }
    Ok(Outcome { status: Errno::BADMSG.0, micro_done: 0, micro_failed: 4, result, result2 })
}

fn hand_over(pool: &SharedRegion, out: weldfs_ciscops::PoolRange, payload: &[u8]) -> Result<(), Errno> {
    pool.slice(out)?.copy_from(payload);
    Ok(())
}

/// Payload, and the trailer if the file has it.
async fn read_record(cx: &OpCx<'_>, h: Handle, offset: u64, len: u32) -> Verified<(Vec<u8>, Result<[u8; 4], Errno>)> {
    let access = Access::READ;
    let open = match h {
        Handle::ROOT => None,
        h => Some(cx.description(h).map_err(|e| (0, e))?),
    };
    let ino = open.as_ref().map_or(ROOT, |d| d.ino);
    let readable = |flags: OpenFlags| !flags.contains(OpenFlags::PATH) && flags.access().contains(access);
    if open.as_ref().is_some_and(|d| !readable(d.flags())) {
        return Err((0, Errno::BADF));
    }
    let held = cx.hold(ino, Mode::Shared).await;
    let mut set = InodeSet::new();
    set.add(ino, Hold::Shared);
    let core = cx.core;
    let mut txn = Txn::new(&core.store, &*cx.queue.session, &set, None, 0, core.clock.wall());
    txn.in_slices(cx);
    let (file, mut payload, mut trailer) = (FileRef { ino, access }, scratch::list_of(len as usize), [0; 4]);
    let n = txn.read(file, offset, len.into(), Sink::Private(&mut payload), None).await.map_err(|e| (1, e))?;
    if n < u64::from(len) {
        return Err((1, Errno::NODATA));
    }
    let behind = offset + u64::from(len);
    let trailer = match txn.read(file, behind, 4, Sink::Private(&mut trailer), None).await {
        Ok(4) => Ok(trailer),
        Ok(_) => Err(Errno::NODATA),
        Err(e) => Err(e),
    };
    drop(held);
    core.board.unboost(cx.at);
    Ok((payload, trailer))
}

#[cfg(test)]
pub(super) mod tests;
