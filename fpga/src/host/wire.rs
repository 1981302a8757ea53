//! The messages of a card and a kernel's process, over a socket pair of type SEQPACKET: one a datagram, in this
//! machine's byte order, for both ends are the same program on the same machine.

use crate::kernel::Fault;
use crate::manifest::shows_as_itself;
use std::time::{Duration, Instant};

/// Bytes of one input buffer, and of one output buffer.
pub const BUFFER_BYTES: usize = 256 << 10;
/// Buffers of each kind: some are filled or emptied while the kernel works on another.
pub const BUFFERS: usize = 4;
/// All shared memory: input buffers, then output buffers.
pub const SHARED_BYTES: usize = 2 * BUFFERS * BUFFER_BYTES;
/// Bytes of text that go with a reply at most.
const TEXT_BYTES: usize = 400;
const REQUEST_BYTES: usize = 20;
const REPLY_BYTES: usize = 40;

/// Where an input buffer is in the shared memory.
pub const fn input_at(buffer: usize) -> usize {
    (buffer % BUFFERS) * BUFFER_BYTES
}

/// Where an output buffer is.
pub const fn output_at(buffer: usize) -> usize {
    (BUFFERS + buffer % BUFFERS) * BUFFER_BYTES
}

/// How long one end of the socket looks for the other's next message before it sleeps. Going to sleep and being woken
/// takes longer than the other end works on a buffer, on virtual machines many times as long.
const SPIN: Duration = Duration::from_micros(50);

/// Looking again, for a while, with the processor left to others that want it.
#[derive(Default)]
pub struct Spin(Option<Instant>);

impl Spin {
    /// Whether to look again before sleeping. Others have had the processor meanwhile.
    pub fn again(&mut self) -> bool {
        std::thread::yield_now();
        self.0.get_or_insert_with(Instant::now).elapsed() < SPIN
    }
}

/// What the card asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Begin anew; so many parameter words are in input buffer 0.
    Reset { count: u32 },
    /// Compute on a part of an input buffer. One that follows is for after the step before it, and is skipped where
    /// that left something of its own part.
    Step { buffer: u32, from: u32, len: u32, eop: bool, follows: bool },
    /// A value of the debug port.
    Peek { port: u32 },
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(word)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let mut long = [0; 8];
    long.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(long)
}

impl Request {
    /// As a datagram.
    pub fn encode(self) -> [u8; REQUEST_BYTES] {
        let words = match self {
            Request::Reset { count } => [1, count, 0, 0, 0],
            Request::Step { buffer, from, len, eop, follows } => {
                [2, buffer, from, len, u32::from(eop) | u32::from(follows) << 1]
            }
            Request::Peek { port } => [3, port, 0, 0, 0],
        };
        let mut bytes = [0; REQUEST_BYTES];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// From a datagram.
    pub fn decode(bytes: &[u8]) -> Option<Request> {
        if bytes.len() != REQUEST_BYTES {
            return None;
        }
        let [a, b, c, d] = [4, 8, 12, 16].map(|at| word(bytes, at));
        match word(bytes, 0) {
            1 => Some(Request::Reset { count: a }),
            2 => Some(Request::Step { buffer: a, from: b, len: c, eop: d & 1 != 0, follows: d & 2 != 0 }),
            3 => Some(Request::Peek { port: a }),
            _ => None,
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// Well.
    Good = 0,
    /// The parameters are wrong; there is no such port.
    Params = 1,
    /// The stream is not what the kernel takes.
    Data = 2,
    /// The kernel says that it failed, or broke a rule.
    Lost = 3,
    /// At the start: the file is no shared object.
    File = 4,
    /// At the start: a symbol is missing; the text is its name.
    Symbol = 5,
    /// At the start: another version of the interface, which is in `taken`.
    Abi = 6,
    /// At the start: the process could not be confined.
    Sandbox = 7,
    /// A step that follows one that left something: nothing was done.
    Skipped = 8,
}

/// All, by number.
const CODES: [Code; 9] = [
    Code::Good,
    Code::Params,
    Code::Data,
    Code::Lost,
    Code::File,
    Code::Symbol,
    Code::Abi,
    Code::Sandbox,
    Code::Skipped,
];

/// What the process answers. The numbers are what the kernel says, and may be anything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// How it ended.
    pub code: Code,
    /// Input bytes taken.
    pub taken: u64,
    /// Output bytes made.
    pub made: u64,
    /// Clock cycles.
    pub cycles: u64,
    /// The packet has ended.
    pub done: bool,
    /// A debug port's value.
    pub value: u32,
    /// What went wrong.
    pub text: String,
}

impl Reply {
    /// One that says nothing but how it ended.
    pub fn of(code: Code, text: impl Into<String>) -> Reply {
        Reply { code, taken: 0, made: 0, cycles: 0, done: false, value: 0, text: text.into() }
    }

    /// As a datagram.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(REPLY_BYTES + self.text.len());
        bytes.extend_from_slice(&(self.code as u32).to_ne_bytes());
        bytes.extend_from_slice(&u32::from(self.done).to_ne_bytes());
        for long in [self.taken, self.made, self.cycles] {
            bytes.extend_from_slice(&long.to_ne_bytes());
        }
        bytes.extend_from_slice(&self.value.to_ne_bytes());
        bytes.extend_from_slice(&0u32.to_ne_bytes());
        bytes.extend_from_slice(&self.text.as_bytes()[..self.text.len().min(TEXT_BYTES)]);
        bytes
    }

    /// From a datagram of a process that is not trusted.
    pub fn decode(bytes: &[u8]) -> Result<Reply, Fault> {
        let broken = || Fault::Lost("its process does not keep to the protocol".into());
        if !(REPLY_BYTES..=REPLY_BYTES + TEXT_BYTES).contains(&bytes.len()) {
            return Err(broken());
        }
        let code = *CODES.get(word(bytes, 0) as usize).ok_or_else(broken)?;
        let text = String::from_utf8_lossy(&bytes[REPLY_BYTES..]);
        let text = text.chars().map(|c| if shows_as_itself(c) { c } else { ' ' }).collect();
        let (taken, made, cycles) = (long(bytes, 8), long(bytes, 16), long(bytes, 24));
        Ok(Reply { code, taken, made, cycles, done: word(bytes, 4) != 0, value: word(bytes, 32), text })
    }

    /// The largest datagram.
    pub const fn bytes_max() -> usize {
        REPLY_BYTES + TEXT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_and_any_other_bytes_are_refused_or_harmless() {
        let requests = [
            Request::Reset { count: 7 },
            Request::Step { buffer: 1, from: 2, len: 3, eop: true, follows: false },
            Request::Step { buffer: 1, from: 2, len: 3, eop: false, follows: true },
            Request::Peek { port: 9 },
        ];
        for request in requests {
            assert_eq!(Request::decode(&request.encode()), Some(request));
        }
        let reply = Reply { taken: 1, made: 2, cycles: u64::MAX, done: true, value: 4, ..Reply::of(Code::Data, "no") };
        assert_eq!(Reply::decode(&reply.encode()), Ok(reply.clone()));
        for (number, code) in CODES.into_iter().enumerate() {
            assert_eq!(code as usize, number);
        }
        let good = reply.encode();
        for len in 0..REPLY_BYTES {
            assert!(Reply::decode(&good[..len]).is_err(), "{len} bytes");
        }
        assert!(Reply::decode(&[0; REPLY_BYTES + TEXT_BYTES + 1]).is_err(), "too long");
        let mut forged = good;
        forged[0] = 200;
        assert!(Reply::decode(&forged).is_err(), "a code that does not exist");
        assert_eq!(Reply::decode(&Reply::of(Code::Lost, "a\u{1b}[2Jb").encode()).unwrap().text, "a [2Jb");
        assert_eq!(Reply::of(Code::Lost, "x".repeat(5000)).encode().len(), Reply::bytes_max());
    }
}
