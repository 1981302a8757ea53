//! Writing: what the client sends goes to the kernel, what that makes is committed to the range of the real file.

use std::any::Any;
use std::sync::Arc;

use weldfs_ciscops::limits::ATOMIC_WRITE_MAX;
use weldfs_ciscops::{Access, At, Command, Direction, Durability, Errno, Op, OpenFlags, Outcome, Paths, PoolRange};

use super::super::done::Done;
use super::super::opcode::by_opcode;
use super::super::opcx::{OpCx, durable, failed};
use super::super::staged;
use super::super::stream::{PIECE_BYTES, Stream};
use super::kernel::Event;
use crate::open::{Description, OpenInode, Part, Virtual};
use weldfs_fs::{FileRef, StagedWrite};

/// Bytes that are committed at a time: as many as one write may have.
const COMMIT_BYTES: usize = ATOMIC_WRITE_MAX as usize;
/// Bytes charged for a commit beside its own: the private blocks of its edges.
const EDGES: u64 = 8 << 10;

/// Runs a write: all of the bytes are the kernel's then, or an error ends the stream.
pub(super) async fn write(cx: &OpCx<'_>, d: &Arc<Description>, file: &Virtual, at: At, src: PoolRange) -> Done {
    if !file.writes() || !d.flags().access().contains(Access::WRITE) {
        return failed(Errno::BADF);
    }
    let bytes = match cx.queue.pool.slice(src) {
        Ok(bytes) => bytes.to_vec(),
        Err(e) => return failed(e),
    };
    let mut stream = take(file);
    let position = stream.position();
    let off = match at {
        At::Offset(off) => off,
        At::Current if !d.flags().contains(OpenFlags::APPEND) => d.offset(),
        _ => position,
    };
    let result = match stream.failed {
        Some(errno) => Err(errno),
        None if off != position => Err(Errno::SPIPE),
        None => feed(cx, d, file, &mut stream, &bytes).await,
    };
    *file.stream.lock() = stream;
    if let Err(errno) = result {
        return failed(errno);
    }
    if at == At::Current {
        d.set_offset(position + bytes.len() as u64);
    }
    let mut done = Done::from(Outcome::ok(bytes.len() as u64, position));
    done.took(bytes.len() as u64);
    done
}

fn take(file: &Virtual) -> Stream {
    std::mem::replace(&mut *file.stream.lock(), Stream::new(&file.spec, false))
}

async fn feed(cx: &OpCx<'_>, d: &Arc<Description>, file: &Virtual, s: &mut Stream, bytes: &[u8]) -> Result<(), Errno> {
    let fed = feed_all(cx, d, file, s, bytes).await;
    note(cx, d, file, s, fed).await?;
    s.rest_from_writing();
    Ok(())
}

async fn feed_all(
    cx: &OpCx<'_>,
    d: &Arc<Description>,
    file: &Virtual,
    s: &mut Stream,
    bytes: &[u8],
) -> Result<(), Errno> {
    there(cx, s)?;
    for piece in bytes.chunks(PIECE_BYTES as usize) {
        push(cx, d, file, s, (piece.to_vec(), false)).await?;
        s.took(piece.len() as u64);
    }
    Ok(())
}

/// ETIMEDOUT where the slot went to others while nothing was written: what the kernel knew is lost.
fn there(cx: &OpCx<'_>, s: &mut Stream) -> Result<(), Errno> {
    if s.resume(cx) { Ok(()) } else { Err(Errno::TIMEDOUT) }
}

/// An error ends the stream. What the kernel had made before gets to the file first, unless the slot or the
/// client is gone: how far the kernel was is not known then. Where there is no slot yet, nothing has begun.
async fn note(
    cx: &OpCx<'_>,
    d: &Arc<Description>,
    file: &Virtual,
    s: &mut Stream,
    result: Result<(), Errno>,
) -> Result<(), Errno> {
    if let Err(errno) = result
        && s.has_session()
    {
        s.failed = Some(errno);
        s.release();
        let known = errno != Errno::INTR && errno != Errno::TIMEDOUT;
        // One error is told: the first one.
        while known && !s.made.is_empty() && commit(cx, d, file, s).await.is_ok() {}
        s.made.clear();
    }
    result
}

/// Pushes one piece of input; what the kernel makes meanwhile is taken, and committed as soon as it is much. A kernel
/// that has failed is an error once all that it made before is taken.
async fn push(
    cx: &OpCx<'_>,
    d: &Arc<Description>,
    file: &Virtual,
    s: &mut Stream,
    (bytes, eop): (Vec<u8>, bool),
) -> Result<(), Errno> {
    s.push(cx, bytes, eop).await?;
    while s.is_pushing() || eop && !s.drained || s.refused().is_err() {
        if let Event::Made(pulled) = s.next(cx, COMMIT_BYTES).await? {
            s.made.extend_from_slice(&pulled.bytes);
        }
        while s.made.len() >= COMMIT_BYTES {
            commit(cx, d, file, s).await?;
        }
        cx.boundary().await;
    }
    Ok(())
}

/// fsync: the packet ends, and all of it is durable.
pub(super) async fn sync(cx: &OpCx<'_>, d: &Arc<Description>, file: &Virtual) -> Result<(u64, u64), Errno> {
    let ended = end(cx, d, file).await?;
    durable(cx, cx.core.store.journal().owned_end()).await?;
    Ok(ended)
}

/// The packet ends: what the kernel still makes is committed, the file is cut if its spec says so. Gives the bytes that
/// have got to the range.
pub(super) async fn end(cx: &OpCx<'_>, d: &Arc<Description>, file: &Virtual) -> Result<(u64, u64), Errno> {
    let mut stream = take(file);
    let result = finish(cx, d, file, &mut stream).await;
    let result = note(cx, d, file, &mut stream, result).await;
    let wrote = stream.wrote;
    *file.stream.lock() = stream;
    result.map(|()| (wrote, 0))
}

async fn finish(cx: &OpCx<'_>, d: &Arc<Description>, file: &Virtual, s: &mut Stream) -> Result<(), Errno> {
    if let Some(errno) = s.failed {
        return Err(errno);
    }
    if !s.has_session() {
        // Nothing was written since the packet before ended.
        return Ok(());
    }
    there(cx, s)?;
    push(cx, d, file, s, (Vec::new(), true)).await?;
    while !s.made.is_empty() {
        commit(cx, d, file, s).await?;
    }
    s.release();
    match (file.spec.direction, file.parts.first()) {
        (Direction::Write { cut: true }, Some(part)) => cut(cx, part, part.from + s.wrote).await,
        _ => Ok(()),
    }
}

/// Commits the first bytes that the kernel has made. Those that did not get to the file are still there.
async fn commit(cx: &OpCx<'_>, d: &Arc<Description>, file: &Virtual, s: &mut Stream) -> Result<(), Errno> {
    let part = file.parts.first().ok_or(Errno::IO)?;
    let at = part.from + s.wrote;
    // What fits is written, whatever does not.
    let n = (part.to - at).min(s.made.len().min(COMMIT_BYTES) as u64) as usize;
    if n == 0 {
        return Err(Errno::FBIG);
    }
    let bytes: Box<[u8]> = s.made[..n].into();
    let session = cx.session();
    // A medium that gets its data with the record holds it once more while it commits.
    let times = if cx.core.store.writes_directly() { 1 } else { 2 };
    let charge = n as u64 * times + EDGES;
    session.charge_staged(charge)?;
    let keep: Arc<dyn Any + Send + Sync> = d.clone();
    let target = FileRef { ino: part.file.ino(), access: Access::WRITE };
    let write = StagedWrite { file: target, at: At::Offset(at), bytes, keep: Some(keep) };
    let begun = session.staged_table().begin();
    let txn = begun.and_then(|txn| session.staged_table().write(txn, write, false, charge).map(|_| txn));
    let txn = txn.inspect_err(|_| session.release_staged(charge))?;
    let cmd = Command::new(cx.cmd.seq, Op::TxnCommit { txn }).with_durability(Durability::Volatile);
    let done = Box::pin(staged::commit(&cx.element(cmd, Paths::default(), false), txn)).await;
    if !done.outcome.is_ok() {
        return Err(Errno(done.outcome.status));
    }
    s.made.drain(..n);
    s.wrote += n as u64;
    Ok(())
}

/// Cuts the real file behind the last byte it got. Its own pin is not in the way, those of others are.
async fn cut(cx: &OpCx<'_>, part: &Part, size: u64) -> Result<(), Errno> {
    let (core, session) = (cx.core, cx.session());
    *part.pin.lock() = None;
    let handle = session.handles.reserve()?;
    let real = core.files.describe(part.file.ino(), OpenFlags::WRITE, OpenInode::new(&core.store, part.file.ino()));
    let done = match real {
        Ok(real) => {
            session.handles.fill(handle, real);
            let cmd = Command::new(cx.cmd.seq, Op::Truncate { h: handle, size });
            let cmd = cmd.with_durability(Durability::Volatile);
            Box::pin(by_opcode(&cx.element(cmd, Paths::default(), false))).await
        }
        Err(e) => failed(e),
    };
    // It is not there any more where the session has ended.
    let _ = session.handles.close(handle);
    part.pin(&core.store);
    if done.outcome.is_ok() { Ok(()) } else { Err(Errno(done.outcome.status)) }
}
