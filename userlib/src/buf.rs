//! Operands of a call: bytes going in, room for bytes coming out. Either may be ordinary memory (copied once by the
//! library) or a [`PoolBuf`], memory that the device reaches by itself (not copied by the library at all).

use crate::channel::Channel;
use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::rc::Rc;
use weldfs_ciscops::{Errno, PoolRange, SharedBytes};

/// A buffer inside the shared pool of one queue pair: the device reads and writes it in place.
///
/// It belongs to the thread that made it (it is neither `Send` nor `Sync`), because its queue pair does. Calls that
/// take one run on that queue pair; two buffers named in one call must come from the same client and thread, else
/// EINVAL. In a forked child every use of a parent's buffer gives EBADF. Dropping it returns the memory.
pub struct PoolBuf {
    channel: Rc<Channel>,
    range: PoolRange,
}

impl PoolBuf {
    pub(crate) fn new(channel: Rc<Channel>, range: PoolRange) -> PoolBuf {
        PoolBuf { channel, range }
    }

    /// Bytes it holds.
    pub fn len(&self) -> usize {
        self.range.len as usize
    }

    /// Whether it holds no byte.
    pub fn is_empty(&self) -> bool {
        self.range.len == 0
    }

    /// Copies `bytes` in at `off`. EINVAL when they do not fit, EBADF in a forked child.
    pub fn put(&mut self, off: usize, bytes: &[u8]) -> Result<(), Errno> {
        self.channel.bytes(self.part(off, bytes.len())?)?.copy_from(bytes);
        Ok(())
    }

    /// Copies bytes out from `off`. EINVAL when there are fewer, EBADF in a forked child.
    pub fn get(&self, off: usize, into: &mut [u8]) -> Result<(), Errno> {
        self.channel.bytes(self.part(off, into.len())?)?.copy_to(into);
        Ok(())
    }

    /// The bytes in place. Empty in a forked child, where the memory is not there.
    pub fn bytes(&self) -> &[u8] {
        self.channel.view(self.range)
    }

    /// The bytes in place, writable. Empty in a forked child, where the memory is not there.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.channel.view_mut(self.range)
    }

    /// Names part of this buffer as what a call shall write. A range that is not inside gives EINVAL at the call.
    pub fn slice(&self, range: Range<usize>) -> Payload<'_> {
        Payload::Pool(self, range)
    }

    pub(crate) fn channel(&self) -> &Rc<Channel> {
        &self.channel
    }

    pub(crate) fn part(&self, off: usize, len: usize) -> Result<PoolRange, Errno> {
        if off.checked_add(len).is_none_or(|end| end > self.len()) {
            return Err(Errno::INVAL);
        }
        Ok(PoolRange::new(self.range.off + off as u32, len as u32))
    }
}

impl Drop for PoolBuf {
    fn drop(&mut self) {
        self.channel.free(self.range);
    }
}

impl fmt::Debug for PoolBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PoolBuf({} bytes)", self.len())
    }
}

/// Bytes that go to the device. Made with `.into()` from `&[u8]`, `&[u8; N]`, `&Vec<u8>`, `&PoolBuf`, `&[IoSlice]`.
#[derive(Clone)]
pub enum Payload<'a> {
    /// Ordinary memory, copied into the pool by the library.
    Bytes(&'a [u8]),
    /// Several pieces of ordinary memory, in order, as one payload.
    Gather(&'a [IoSlice<'a>]),
    /// Part of a pool buffer, not copied.
    Pool(&'a PoolBuf, Range<usize>),
}

/// Bytes of pieces of memory in all.
pub(crate) fn total(parts: &[IoSlice<'_>]) -> usize {
    parts.iter().map(|part| part.len()).fold(0, usize::saturating_add)
}

/// Pieces of memory, one behind the other, into a part of the pool that is as long as all of them.
pub(crate) fn gather(parts: &[IoSlice<'_>], into: SharedBytes<'_>) {
    let mut off = 0;
    for part in parts {
        into.sub(off, part.len()).copy_from(part);
        off += part.len();
    }
}

impl Payload<'_> {
    /// The channel whose pool it lies in, if any.
    pub(crate) fn bound(&self) -> Option<&Rc<Channel>> {
        if let Payload::Pool(buf, _) = self { Some(buf.channel()) } else { None }
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        match self {
            Payload::Bytes(bytes) => bytes.len(),
            Payload::Gather(parts) => total(parts),
            Payload::Pool(_, range) => range.len(),
        }
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What ordinary memory an operand is made of, with variants `Bytes` and `Gather`.
macro_rules! from_ordinary_memory {
    ($operand:ident) => {
        impl<'a> From<&'a [u8]> for $operand<'a> {
            fn from(bytes: &'a [u8]) -> Self {
                $operand::Bytes(bytes)
            }
        }

        impl<'a, const N: usize> From<&'a [u8; N]> for $operand<'a> {
            fn from(bytes: &'a [u8; N]) -> Self {
                $operand::Bytes(bytes)
            }
        }

        impl<'a> From<&'a Vec<u8>> for $operand<'a> {
            fn from(bytes: &'a Vec<u8>) -> Self {
                $operand::Bytes(bytes)
            }
        }

        impl<'a> From<&'a [IoSlice<'a>]> for $operand<'a> {
            fn from(parts: &'a [IoSlice<'a>]) -> Self {
                $operand::Gather(parts)
            }
        }
    };
}
pub(crate) use from_ordinary_memory;

from_ordinary_memory!(Payload);

impl<'a> From<&'a PoolBuf> for Payload<'a> {
    fn from(buf: &'a PoolBuf) -> Self {
        Payload::Pool(buf, 0..buf.len())
    }
}

/// Room for bytes that come from the device. Made with `.into()` from `&mut [u8]`, `&mut [u8; N]`, `&mut Vec<u8>`
/// (its length, not its capacity), `&mut PoolBuf`, `&mut [IoSliceMut]`.
pub enum Room<'a> {
    /// Ordinary memory, copied into by the library.
    Bytes(&'a mut [u8]),
    /// Several pieces of ordinary memory, filled in order.
    Scatter(&'a mut [IoSliceMut<'a>]),
    /// A whole pool buffer, not copied.
    Pool(&'a mut PoolBuf),
}

impl Room<'_> {
    /// The channel whose pool it lies in, if any.
    pub(crate) fn bound(&self) -> Option<&Rc<Channel>> {
        if let Room::Pool(buf) = self { Some(buf.channel()) } else { None }
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        match self {
            Room::Bytes(bytes) => bytes.len(),
            Room::Scatter(parts) => parts.iter().map(|part| part.len()).fold(0, usize::saturating_add),
            Room::Pool(buf) => buf.len(),
        }
    }

    /// Whether there is no room.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a> From<&'a mut [u8]> for Room<'a> {
    fn from(bytes: &'a mut [u8]) -> Self {
        Room::Bytes(bytes)
    }
}

impl<'a, const N: usize> From<&'a mut [u8; N]> for Room<'a> {
    fn from(bytes: &'a mut [u8; N]) -> Self {
        Room::Bytes(bytes)
    }
}

impl<'a> From<&'a mut Vec<u8>> for Room<'a> {
    fn from(bytes: &'a mut Vec<u8>) -> Self {
        Room::Bytes(bytes)
    }
}

impl<'a> From<&'a mut [IoSliceMut<'a>]> for Room<'a> {
    fn from(parts: &'a mut [IoSliceMut<'a>]) -> Self {
        Room::Scatter(parts)
    }
}

impl<'a> From<&'a mut PoolBuf> for Room<'a> {
    fn from(buf: &'a mut PoolBuf) -> Self {
        Room::Pool(buf)
    }
}
