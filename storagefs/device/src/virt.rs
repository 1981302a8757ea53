//! Virtual files that are open: what they stream through a kernel in one of the drive's slots.
//!
//! * this file: what an open one is, and which commands are about one.
//! * `open` resolves its spec on behalf of the session that opens, and pins the real files' ranges.
//! * `read` gives what the kernel makes of them; `write` takes what the kernel makes to the one real file.
//! * `stream` is the way of bytes through the kernel.
//!
//! State of a stream belongs to the open file description. Whoever works on it holds a ticket of that description,
//! which no other file and no other command is behind: so waiting for a slot or a kernel keeps nothing else waiting. A
//! real file is held only while a piece of it is copied out, or what the kernel made is committed to it.

mod open;
mod read;
mod stream;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weldfs_ciscops::{Errno, Handle, Op, OpenFlags, PoolRange, VirtSpec, Whence};
use weldfs_locks::Mutex;
use weldfs_scheduler::Mode;

use super::done::Done;
use super::opcx::{OpCx, answer, failed};
use super::session_ops;
use crate::open::{Description, OpenInode};
use weldfs_session::sets::Tickets;
use weldfs_store::Store;

pub(super) use open::open;
use stream::Stream;

/// Tickets with numbers from here on are of descriptions: inodes have smaller ones.
const STREAMS: u64 = 1 << 63;

/// How many virtual files are open in a device.
#[derive(Clone, Default)]
pub(super) struct Virtuals(Arc<AtomicUsize>);

/// One of them, as long as this lives.
pub(super) struct Counted(Arc<AtomicUsize>);

impl Virtuals {
    /// Whether there is one.
    #[inline]
    pub fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// One more.
    pub fn one_more(&self) -> Counted {
        self.0.fetch_add(1, Ordering::Relaxed);
        Counted(self.0.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An open virtual file: part of its description.
pub(super) struct Virtual {
    spec: VirtSpec,
    /// Of the real files, in the order of the spec.
    parts: Vec<Part>,
    stream: Mutex<Stream>,
}

/// A range of a real file, as it was when the virtual file was opened.
struct Part {
    file: OpenInode,
    /// Its first byte, and the one behind its last; of a range to be written to, as far as it may grow.
    from: u64,
    to: u64,
    /// Number of the description that it is a part of.
    owner: u64,
    pin: Mutex<Option<Pin>>,
}

/// Keeps the bytes of a range from being cut off.
struct Pin {
    store: Arc<Store>,
    file: weldfs_ciscops::InodeNo,
    number: u64,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.store.pins().remove(self.file, self.number);
    }
}

impl Part {
    fn pin(&self, store: &Arc<Store>) {
        let file = self.file.ino();
        let number = store.pins().add(file, self.from, self.to, self.owner);
        *self.pin.lock() = Some(Pin { store: store.clone(), file, number });
    }
}

impl Virtual {
    fn writes(&self) -> bool {
        self.spec.direction != weldfs_ciscops::Direction::Read
    }
}

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

/// The description that the command is about, if it is one of a virtual file. Costs a load where none is open.
#[inline]
pub(super) fn concerned(cx: &OpCx<'_>) -> Option<Arc<Description>> {
    if !cx.core.virtuals.any() {
        return None;
    }
    let description = cx.description(handle(&cx.cmd.op)?).ok()?;
    description.body.virt().is_some().then_some(description)
}

/// Runs a command on one.
pub(super) async fn run(cx: &OpCx<'_>, description: Arc<Description>) -> Done {
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
