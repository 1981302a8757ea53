//! Virtual files that are open: what they stream through a kernel in one of the drive's slots.
//!
//! * this file: `perform`, which every command passes that is no sequence: what one of these files answers in a way of
//!   its own goes to it, all else goes by its opcode. What an open one is says `open`; `opening` makes it.
//! * `read` gives what the kernel makes of the real files; `write` takes what the kernel makes to the one real file.
//! * `kernel` is the way of bytes through the kernel, `stream` what is known of it between two commands.
//!
//! State of a stream belongs to the open file description. Whoever works on it holds a ticket of that description,
//! which no other file and no other command is behind: so waiting for a slot or a kernel keeps nothing else waiting. A
//! real file is held only while a piece of it is copied out, or what the kernel made is committed to it.

mod kernel;
mod read;
mod write;

use std::sync::Arc;

use weldfs_ciscops::{Errno, Handle, Op, OpenFlags, PoolRange, Whence};
use weldfs_scheduler::Mode;

use super::done::Done;
use super::opcode::by_opcode;
use super::opcx::{OpCx, answer, failed};
use super::open::{Description, Virtual};
use super::session_ops;
use weldfs_session::sets::Tickets;

/// Tickets with numbers from here on are of descriptions: inodes have smaller ones.
const STREAMS: u64 = 1 << 63;

/// The handle of a command that a virtual file answers in a way of its own.
fn handle(op: &Op) -> Option<Handle> {
    match *op {
        Op::Read { h, .. }
        | Op::Write { h, .. }
        | Op::WriteVerified { h, .. }
        | Op::Seek { h, .. }
        | Op::Fsync { h }
        | Op::Fdatasync { h }
        | Op::Close { h }
        | Op::VirtParams { h, .. } => Some(h),
        _ => None,
    }
}

/// Runs one command that is no sequence: by itself, or an element of one.
pub(super) async fn perform(cx: &OpCx<'_>) -> Done {
    match concerned(cx) {
        Some(description) => Box::pin(run(cx, description)).await,
        None => by_opcode(cx).await,
    }
}

/// The description that the command is about, if it is one of a virtual file. Costs a load where none is open.
#[inline]
fn concerned(cx: &OpCx<'_>) -> Option<Arc<Description>> {
    if !cx.core.virtuals.any() {
        return None;
    }
    let description = cx.description(handle(&cx.cmd.op)?).ok()?;
    description.body.virt().is_some().then_some(description)
}

/// Runs a command on one.
async fn run(cx: &OpCx<'_>, description: Arc<Description>) -> Done {
    let Some(file) = description.body.virt() else { return failed(Errno::IO) };
    let _turn = turn(cx, &description).await;
    // What a stream that waits for others' inodes holds is this description's alone.
    cx.core.board.unboost(cx.at);
    match cx.cmd.op {
        Op::Read { at, out, .. } => read::read(cx, &description, file, at, out).await,
        Op::Write { at, src, .. } => write::write(cx, &description, file, at, src).await,
        Op::Seek { whence, off, .. } => answer(seek(&description, file, whence, off)),
        Op::Fsync { h } | Op::Fdatasync { h } if !file.writes() => answer(session_ops::sync(cx, Some(h)).await),
        Op::Fsync { .. } | Op::Fdatasync { .. } => answer(write::sync(cx, &description, file).await),
        Op::Close { h } => answer(close(cx, &description, file, h).await),
        // What a kernel makes of bytes is not what was summed up.
        Op::WriteVerified { .. } => failed(Errno::OPNOTSUPP),
        Op::VirtParams { params, .. } => answer(set_params(cx, file, params)),
        _ => failed(Errno::INVAL),
    }
}

/// The description's turn: its commands come one after the other.
async fn turn<'c>(cx: &'c OpCx<'_>, description: &Description) -> Tickets<'c> {
    cx.hold(weldfs_ciscops::InodeNo(STREAMS | description.id), Mode::Exclusive).await
}

/// The last handle of a description ends what it writes.
async fn close(cx: &OpCx<'_>, d: &Arc<Description>, file: &Virtual, h: Handle) -> Result<(u64, u64), Errno> {
    let ended = match file.writes() && d.is_last_handle() {
        true => write::end(cx, d, file).await,
        false => Ok((0, 0)),
    };
    // Whatever came of it: the handle is gone, as a descriptor is.
    session_ops::close(cx, h).await?;
    ended
}

/// Parameters for the next stream.
fn set_params(cx: &OpCx<'_>, file: &Virtual, params: PoolRange) -> Result<(u64, u64), Errno> {
    let bytes = cx.queue.pool.slice(params)?.to_vec();
    let words = bytes.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]])).collect();
    file.stream.lock().set_params(words)?;
    Ok((0, 0))
}

/// Moves the description's offset to where reading can go on.
fn seek(d: &Description, file: &Virtual, whence: Whence, off: i64) -> Result<(u64, u64), Errno> {
    if d.flags().contains(OpenFlags::PATH) {
        return Err(Errno::BADF);
    }
    let base = match whence {
        Whence::Set => 0,
        Whence::Cur => d.offset(),
        _ => return Err(Errno::SPIPE),
    };
    let to = base.checked_add_signed(off).ok_or(Errno::INVAL)?;
    let mut stream = file.stream.lock();
    match (whence, off) {
        // Where it stands.
        (Whence::Cur, 0) => {}
        (Whence::Set, 0) if !file.writes() => stream.rewind(),
        _ if file.writes() && to == stream.position() => {}
        _ if !file.writes() && stream.can_give(to) => {}
        _ => return Err(Errno::SPIPE),
    }
    d.set_offset(to);
    Ok((to, 0))
}

#[cfg(test)]
mod tests;
