//! Messages between this process and the helper: one to the helper, one back.
//!
//! A message is its kind (a byte), the length of its body (u32, little-endian), its body. Numbers in bodies are
//! little-endian, too.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Opens card, image and kernel: index u32, name and path with a NUL between.
pub const OPEN: u8 = 1;
/// Runs a packet: room for output u64, packet. Back come the output, or a fault.
pub const RUN: u8 = 2;
/// The parameters of packets from now on, u32 each.
pub const RESET: u8 = 3;
/// It is done; the body is what it came to.
pub const DONE: u8 = 16;
/// It is not; the body is a sentence.
pub const FAILED: u8 = 17;
/// The kernel returned an errno: u32.
pub const ERRNO: u8 = 18;
/// XRT opens no card of that number; the body is a sentence.
pub const NO_CARD: u8 = 19;

/// Bytes of the longest body: a packet has to fit into a buffer of the card's.
pub const BODY_MAX: usize = 1 << 30;

/// Whoever waits for the helper looks so often whether that is still wanted.
const LOOK: Duration = Duration::from_millis(20);

/// A socket that does not block, as one that blocks for a while.
pub struct Patient<'a> {
    pub socket: &'a UnixStream,
    /// How long it may be without progress: `TimedOut` after that.
    pub patience: Duration,
    /// Once set, there is no more waiting: `BrokenPipe`.
    pub given_up: &'a AtomicBool,
    /// Where set, there is no more waiting than for 20 ms: `ConnectionAborted`.
    pub left: &'a AtomicBool,
}

impl Patient<'_> {
    fn retry(&self, what: PollFlags, mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
        let until = Instant::now() + self.patience;
        loop {
            match call() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            let left = until.saturating_duration_since(Instant::now());
            if self.given_up.load(Ordering::Acquire) {
                return Err(io::ErrorKind::BrokenPipe.into());
            } else if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let left = left.min(LOOK);
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(self.socket, what)], Some(&timeout)) {
                Ok(0) if self.left.load(Ordering::Acquire) => return Err(io::ErrorKind::ConnectionAborted.into()),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl Read for Patient<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.retry(PollFlags::IN, || (&mut &*self.socket).read(bytes))
    }
}

impl Write for Patient<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.retry(PollFlags::OUT, || (&mut &*self.socket).write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends one.
///
/// # Errors
/// Those of the stream; `InvalidInput` for a body that is too long.
pub fn send(stream: &mut impl Write, kind: u8, body: &[&[u8]]) -> io::Result<()> {
    let len = body.iter().map(|part| part.len()).sum::<usize>();
    if len > BODY_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{len} bytes are more than {BODY_MAX}")));
    }
    let mut head = [kind, 0, 0, 0, 0];
    head[1..].copy_from_slice(&(len as u32).to_le_bytes());
    stream.write_all(&head)?;
    body.iter().try_for_each(|part| stream.write_all(part))
}

/// Receives one.
///
/// # Errors
/// Those of the stream; `UnexpectedEof` where the other side has ended; `InvalidData` for a body that is too long.
pub fn receive(stream: &mut impl Read) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if len > BODY_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {len} bytes")));
    }
    // What is not sent is not allocated for.
    let mut body = Vec::new();
    stream.take(len as u64).read_to_end(&mut body)?;
    if body.len() < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok((head[0], body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_back_and_a_short_or_long_one_is_refused() {
        let mut bytes = Vec::new();
        send(&mut bytes, RUN, &[b"ab", b"", b"c"]).unwrap();
        assert_eq!(receive(&mut bytes.as_slice()).unwrap(), (RUN, b"abc".to_vec()));
        for cut in 0..bytes.len() {
            let error = receive(&mut &bytes[..cut]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "cut at {cut}");
        }
        let error = receive(&mut [DONE, 255, 255, 255, 255].as_slice()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
