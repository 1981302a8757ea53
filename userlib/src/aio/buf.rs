//! Pool memory of an asynchronous queue, and operands.

use super::shared::Shared;
use crate::buf::{from_ordinary_memory, total};
use std::fmt;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use weldfs_ciscops::{Errno, PoolRange};

/// A buffer in an asynchronous queue's pool: the device reads and writes it in place. `Send` and `Sync`.
///
/// Commands may read from it while it is looked at; while one does, [`QueueBuf::bytes_mut`] gives EBUSY. Dropping it
/// gives the memory back, at once or as soon as no command in flight reads from it. In a forked child it is empty.
pub struct QueueBuf {
    shared: Arc<Shared>,
    /// As allocated.
    whole: PoolRange,
    /// Bytes of it that are shown, from the start.
    len: u32,
}

impl QueueBuf {
    pub(super) fn new(shared: Arc<Shared>, whole: PoolRange) -> QueueBuf {
        QueueBuf { shared, whole, len: whole.len }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// All of its memory.
    pub(super) fn whole(&self) -> PoolRange {
        self.whole
    }

    /// Lets go of the memory without giving it back: a command in flight has it now.
    pub(super) fn surrender(mut self) -> PoolRange {
        std::mem::take(&mut self.whole)
    }

    /// Bytes it holds.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether it holds no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory behind it: what [`QueueBuf::resize`] may ask for.
    pub fn capacity(&self) -> usize {
        self.whole.len as usize
    }

    /// Shows the first `len` bytes of its memory. EINVAL when that is more than there are.
    pub fn resize(&mut self, len: usize) -> Result<(), Errno> {
        if len > self.capacity() {
            return Err(Errno::INVAL);
        }
        self.len = len as u32;
        Ok(())
    }

    fn shown(&self) -> PoolRange {
        PoolRange::new(self.whole.off, self.len)
    }

    /// The part `range` of what is shown; EINVAL when it is not inside.
    pub(super) fn part(&self, range: &Range<usize>) -> Result<PoolRange, Errno> {
        if range.start > range.end || range.end > self.len() {
            return Err(Errno::INVAL);
        }
        Ok(PoolRange::new(self.whole.off + range.start as u32, (range.end - range.start) as u32))
    }

    /// The bytes in place. Empty in a forked child, where the memory is not there.
    pub fn bytes(&self) -> &[u8] {
        match self.shared.pool.slice(self.shown()) {
            // SAFETY: in bounds, and mapped as long as `shared`. The device, trusted as the kernel is, writes only to
            // ranges that a command in flight names as its room; a room has no `QueueBuf` until that command is done.
            Ok(bytes) if self.shared.is_ours() => unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) },
            _ => &[],
        }
    }

    /// The bytes in place, writable. EBUSY while a command in flight reads from them, EBADF in a forked child.
    pub fn bytes_mut(&mut self) -> Result<&mut [u8], Errno> {
        let whole = self.whole;
        if self.shared.with(|core, _| core.is_lent(whole))? {
            return Err(Errno::BUSY);
        }
        let bytes = self.shared.pool.slice(self.shown())?;
        // SAFETY: as in `bytes`; this buffer is borrowed mutably, so no command comes to read it meanwhile, and ranges
        // of different buffers never overlap.
        Ok(unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr(), bytes.len()) })
    }

    /// Copies bytes in at `off`. EINVAL when they do not fit; else as [`QueueBuf::bytes_mut`].
    pub fn put(&mut self, off: usize, bytes: &[u8]) -> Result<(), Errno> {
        let end = off.checked_add(bytes.len()).ok_or(Errno::INVAL)?;
        self.bytes_mut()?.get_mut(off..end).ok_or(Errno::INVAL)?.copy_from_slice(bytes);
        Ok(())
    }

    /// Part of it as an operand. A range that is not inside gives EINVAL at the call.
    pub fn slice(&self, range: Range<usize>) -> Input<'_> {
        Input::Buf(self, range)
    }
}

impl Drop for QueueBuf {
    fn drop(&mut self) {
        let whole = self.whole;
        if whole.len > 0 {
            // In a forked child there is nothing to give back.
            let _ = self.shared.with(|core, wakes| core.free(whole, wakes));
        }
    }
}

impl fmt::Debug for QueueBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueueBuf({} bytes)", self.len)
    }
}

/// Bytes that a command reads. Ordinary memory is copied into the pool when the command is submitted, and is the
/// caller's again at once; a [`QueueBuf`] is read in place, before the command completes. Made with `.into()` from
/// `&[u8]`, `&[u8; N]`, `&Vec<u8>`, `&[IoSlice]`, `&QueueBuf`.
#[derive(Clone)]
pub enum Input<'a> {
    /// Ordinary memory.
    Bytes(&'a [u8]),
    /// Several pieces of ordinary memory, in order.
    Gather(&'a [IoSlice<'a>]),
    /// Part of a buffer of the same queue; of another one, EINVAL.
    Buf(&'a QueueBuf, Range<usize>),
    /// Part of a buffer of the same queue, named by its address; see [`super::AsyncQueue::place`].
    Place(Place),
}

/// Part of a buffer, named by its address: for callers that keep buffers as C does. From [`super::AsyncQueue::place`].
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub(super) queue: u64,
    pub(super) range: PoolRange,
}

impl Input<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Input::Bytes(bytes) => bytes.len(),
            Input::Gather(parts) => total(parts),
            Input::Buf(_, range) => range.len(),
            Input::Place(place) => place.range.len as usize,
        }
    }
}

from_ordinary_memory!(Input);

impl<'a> From<&'a QueueBuf> for Input<'a> {
    fn from(buf: &'a QueueBuf) -> Self {
        Input::Buf(buf, 0..buf.len())
    }
}

/// Room for what a command gives. It is the command's until it completes, whatever becomes of the future.
#[derive(Debug)]
pub enum Space {
    /// So many bytes of the pool, found at submission.
    Fresh(usize),
    /// All of a buffer of the same queue.
    Buf(QueueBuf),
    /// Part of a buffer of the same queue, which stays its owner's; see [`super::AsyncQueue::place`].
    Place(Place),
}

impl From<usize> for Space {
    fn from(len: usize) -> Space {
        Space::Fresh(len)
    }
}

impl From<QueueBuf> for Space {
    fn from(buf: QueueBuf) -> Space {
        Space::Buf(buf)
    }
}

/// A submission that was refused: nothing was sent. EAGAIN: the ring or the pool is full now.
#[derive(Debug)]
pub struct Refused {
    /// Why.
    pub errno: Errno,
    /// The buffer given as room, if one was.
    pub buf: Option<QueueBuf>,
}

impl From<Refused> for Errno {
    fn from(refused: Refused) -> Errno {
        refused.errno
    }
}

impl From<Refused> for std::io::Error {
    fn from(refused: Refused) -> std::io::Error {
        refused.errno.into()
    }
}
