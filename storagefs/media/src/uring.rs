//! One io_uring: submits a batch of writes and waits for all of them. Writes whose memory is not aligned for direct
//! I/O go through the ring's own registered buffers.

use io_uring::{IoUring, opcode, types};
use std::io;
use std::os::fd::RawFd;
use weldfs_journal::{AlignedBuf, IoWrite};

/// Writes in flight.
const DEPTH: usize = 64;
/// Bytes of one registered buffer.
const SLOT: usize = 64 << 10;
/// Registered buffers.
const SLOTS: usize = 8;
/// Longest single submission, bytes.
const PIECE: usize = 1 << 20;

/// A ring with its buffers. Used by one thread at a time.
pub(super) struct Ring {
    ring: IoUring,
    /// Boxed blocks: they do not move while the kernel knows their addresses.
    slots: Vec<AlignedBuf>,
    registered: bool,
}

/// A write in flight: how much the kernel must report.
struct Flight {
    len: usize,
    off: u64,
}

impl Ring {
    /// Fails where the kernel or its policy refuses io_uring.
    pub(super) fn new() -> io::Result<Ring> {
        let ring = IoUring::new(DEPTH as u32)?;
        let slots: Vec<AlignedBuf> = (0..SLOTS).map(|_| AlignedBuf::zeroed(SLOT)).collect();
        let vectors: Vec<libc::iovec> =
            slots.iter().map(|s| libc::iovec { iov_base: s.as_ptr().cast_mut().cast(), iov_len: SLOT }).collect();
        // SAFETY: the buffers live as long as the ring (same struct, the ring is dropped first) and never move.
        let registered = unsafe { ring.submitter().register_buffers(&vectors) }.is_ok();
        Ok(Ring { ring, slots, registered })
    }

    /// Writes all; returns when none is in flight any more. The error is the first one found, with its offset.
    pub(super) fn write_all(&mut self, fd: RawFd, align: usize, writes: &[IoWrite<'_>]) -> Result<(), (u64, i32)> {
        let mut pieces = writes.iter().flat_map(|w| {
            let buf = w.buf;
            let chunk = if (buf.as_ptr() as usize).is_multiple_of(align) { PIECE } else { SLOT };
            buf.chunks(chunk).enumerate().map(move |(i, part)| (w.off + (i * chunk) as u64, part))
        });
        loop {
            let mut flights: Vec<Flight> = Vec::with_capacity(DEPTH);
            let mut slot = 0;
            let mut more = false;
            for (off, part) in pieces.by_ref() {
                let (ptr, index) = if (part.as_ptr() as usize).is_multiple_of(align) {
                    (part.as_ptr(), None)
                } else {
                    let own = &mut self.slots[slot];
                    own[..part.len()].copy_from_slice(part);
                    slot += 1;
                    (own.as_ptr(), Some(slot as u16 - 1))
                };
                self.push(fd, ptr, part.len(), off, index, flights.len() as u64);
                flights.push(Flight { len: part.len(), off });
                if flights.len() == DEPTH || slot == SLOTS {
                    more = true;
                    break;
                }
            }
            self.settle(&flights)?;
            if !more {
                return Ok(());
            }
        }
    }

    fn push(&mut self, fd: RawFd, ptr: *const u8, len: usize, off: u64, index: Option<u16>, tag: u64) {
        let entry = match index {
            Some(i) if self.registered => {
                opcode::WriteFixed::new(types::Fd(fd), ptr, len as u32, i).offset(off).build()
            }
            _ => opcode::Write::new(types::Fd(fd), ptr, len as u32).offset(off).build(),
        };
        // SAFETY: the memory outlives the request: it is the caller's borrow or our own slot, and `settle` waits for
        // every request before `write_all` returns or reuses a slot.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(tag)) };
        assert!(pushed.is_ok(), "at most DEPTH entries are pushed between submissions");
    }

    /// Waits for all flights; a kernel that stops answering would leave memory in use, so nothing returns earlier.
    fn settle(&mut self, flights: &[Flight]) -> Result<(), (u64, i32)> {
        let mut left = flights.len();
        let mut failure = None;
        while left > 0 {
            match self.ring.submit_and_wait(left) {
                Ok(_) => {}
                Err(e) if e.raw_os_error() == Some(libc::EINTR) || e.raw_os_error() == Some(libc::EBUSY) => {}
                Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => {}
                // Requests may be in flight over borrowed memory: there is no safe way back.
                Err(e) => {
                    tracing::error!("io_uring stopped working with writes in flight: {e}");
                    std::process::abort();
                }
            }
            for done in self.ring.completion() {
                left -= 1;
                let flight = &flights[done.user_data() as usize];
                if done.result() < 0 {
                    failure.get_or_insert((flight.off, -done.result()));
                } else if done.result() as usize != flight.len {
                    failure.get_or_insert((flight.off, 0));
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }
}
