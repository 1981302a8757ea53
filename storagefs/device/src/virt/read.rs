//! Reading: pieces of the real files go to the kernel, what it makes goes to the client.

use std::sync::Arc;

use weldfs_ciscops::{Access, At, Errno, Outcome, PoolRange, Sink, Target};
use weldfs_scheduler::Mode;

use super::super::done::Done;
use super::super::opcx::{OpCx, failed};
use super::super::stream::{PIECE_BYTES, Stream};
use super::kernel::Event;
use crate::open::{Description, Part, Virtual};
use weldfs_fs::{FileRef, Hold, InodeSet, Txn};

/// Input after which a command that has something to give gives it, even where there is room for more, bytes.
const PATIENCE_BYTES: u64 = 8 << 20;

/// Runs a read: the bytes, or as far as an error came after some.
pub(super) async fn read(cx: &OpCx<'_>, d: &Arc<Description>, file: &Virtual, at: At, out: PoolRange) -> Done {
    let off = match at {
        _ if file.writes() || !d.flags().access().contains(Access::READ) => return failed(Errno::BADF),
        At::Offset(off) => off,
        At::Current => d.offset(),
        At::End => return failed(Errno::INVAL),
    };
    // The stream is this command's: it has the turn.
    let mut stream = std::mem::replace(&mut *file.stream.lock(), Stream::new(&file.spec, false));
    let bytes = fill(cx, file, &mut stream, off, out.len as usize).await;
    *file.stream.lock() = stream;
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(e) => return failed(e),
    };
    if let Err(e) = cx.queue.pool.slice(PoolRange::new(out.off, bytes.len() as u32)).map(|room| room.copy_from(&bytes))
    {
        return failed(e);
    }
    if at == At::Current {
        d.set_offset(off + bytes.len() as u64);
    }
    cx.queue.counters.virtual_reads.add(1);
    let mut done = Done::from(Outcome::ok(bytes.len() as u64, off));
    done.gave(bytes.len() as u64);
    done
}

/// The bytes at an offset: those that were given last, or the next ones.
async fn fill(cx: &OpCx<'_>, file: &Virtual, s: &mut Stream, off: u64, room: usize) -> Result<Vec<u8>, Errno> {
    if !s.can_give(off) {
        return Err(Errno::SPIPE);
    }
    let again = s.given(off);
    if !again.is_empty() {
        return Ok(again[..again.len().min(room)].to_vec());
    }
    if off != s.position() {
        s.rewind();
    }
    if let Some(errno) = s.failed {
        return Err(errno);
    }
    if !s.resume(cx) {
        s.begin_again(cx);
    }
    let (mut out, mut fed) = (Vec::new(), 0);
    while out.len() < room && !s.drained && (fed < PATIENCE_BYTES || out.is_empty()) {
        if let Err(errno) = step(cx, file, s, room, &mut out, &mut fed).await {
            // Where there is no slot yet, the stream has not begun: it can be tried again.
            s.failed = Some(errno).filter(|_| s.has_session());
            if out.is_empty() {
                if s.failed.is_some() {
                    s.release_slot();
                }
                return Err(errno);
            }
            break;
        }
    }
    if s.drained || s.failed.is_some() {
        s.release_slot();
    }
    s.give(&out);
    s.rest_from_reading();
    Ok(out)
}

/// Feeds the kernel if it has room, and takes what it has made.
async fn step(
    cx: &OpCx<'_>,
    file: &Virtual,
    s: &mut Stream,
    room: usize,
    out: &mut Vec<u8>,
    fed: &mut u64,
) -> Result<(), Errno> {
    if cx.queue.session.closing() {
        // Nothing is left to answer.
        return Err(Errno::INTR);
    }
    if !s.ended && !s.is_pushing() && s.refused().is_ok() {
        if out.is_empty() {
            // One that is long at it without a result makes room for others in between.
            s.rest_from_reading();
            if !s.resume(cx) {
                s.begin_again(cx);
            }
        }
        // First, so that a piece that was read has where to go.
        s.session(cx).await?;
        let (piece, last) = next_piece(cx, file, s).await?;
        *fed += piece.len() as u64;
        s.push(cx, piece, last).await?;
    }
    if let Event::Made(pulled) = s.next(cx, s.wants(room - out.len())).await? {
        out.extend_from_slice(s.fresh(&pulled.bytes)?);
    }
    cx.boundary().await;
    Ok(())
}

/// The next piece of input, and whether it is the last one. Parts without bytes are passed over.
async fn next_piece(cx: &OpCx<'_>, file: &Virtual, s: &mut Stream) -> Result<(Vec<u8>, bool), Errno> {
    while let Some(part) = file.parts.get(s.part) {
        let from = part.from + s.at;
        let want = (part.to - from).min(PIECE_BYTES);
        if want == 0 {
            (s.part, s.at) = (s.part + 1, 0);
            continue;
        }
        let piece = copy(cx, part, from, want).await?;
        s.at += want;
        let last = part.from + s.at == part.to && file.parts[s.part + 1..].iter().all(|p| p.from == p.to);
        return Ok((piece, last));
    }
    Ok((Vec::new(), true))
}

/// Copies bytes of a real file into memory of the device. They are pinned: all of them are there.
async fn copy(cx: &OpCx<'_>, part: &Part, from: u64, want: u64) -> Result<Vec<u8>, Errno> {
    let (core, ino) = (cx.core, part.file.ino());
    let held = cx.hold(ino, Mode::Shared).await;
    let mut set = InodeSet::new();
    set.add(ino, Hold::Shared);
    let mut txn = Txn::new(&core.store, &*cx.queue.session, &set, None, 0, core.clock.wall());
    let mut piece = vec![0; want as usize];
    let real = FileRef { ino, access: Access::READ };
    let n = txn.read(real, from, want, Sink::Private(&mut piece), None).await?;
    drop(txn);
    drop(held);
    // What waits for the kernel now keeps nothing of the file.
    core.board.unboost(cx.at);
    if n == want { Ok(piece) } else { Err(Errno::IO) }
}
