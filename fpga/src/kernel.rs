//! What a kernel is, whichever back-end runs it: a stream of bytes in, a stream of bytes out, parameters.
//!
//! A kernel written in Rust implements [`Stream`], which is given bytes in pieces of any length; [`Model`] makes a
//! [`Kernel`] of it that stops where its output has no room, and counts the cycles that the hardware would take.

pub use crate::flit::{CYCLES_PER_FLIT_MAX, cycles_max};
use crate::flit::{FLIT_BYTES, flits};
use weldfs_ciscops::error::Errno;

/// What goes wrong in a kernel.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Too few or too many parameters, or a value out of range: EINVAL.
    #[error("parameters: {0}")]
    Params(String),
    /// The stream is not what the kernel takes: EBADMSG.
    #[error("data: {0}")]
    Data(String),
    /// The kernel broke the rules of its FIFOs, crashed, or hangs: EIO.
    #[error("the kernel failed: {0}")]
    Lost(String),
    /// The packet's output is longer than the caller allows: E2BIG.
    #[error("the output is longer than {0} bytes")]
    TooLong(usize),
}

impl Fault {
    /// As the errno that a command ends with.
    pub fn errno(&self) -> Errno {
        match self {
            Fault::Params(_) => Errno::INVAL,
            Fault::Data(_) => Errno::BADMSG,
            Fault::Lost(_) => Errno::IO,
            Fault::TooLong(_) => Errno::TOOBIG,
        }
    }
}

/// What one step came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Step {
    /// Bytes taken from the input.
    pub taken: usize,
    /// Bytes put in the output.
    pub made: usize,
    /// The whole packet, with its end, has been taken, and all of its output made.
    pub done: bool,
    /// Clock cycles that took.
    pub cycles: u64,
}

/// A kernel in a slot. One packet at a time; what it keeps between packets is gone with `reset`.
pub trait Kernel: Send {
    /// Begins anew with these parameters (32-bit words): nothing of an earlier packet is left.
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault>;
    /// Takes some of `input` and fills some of `out`. `eop` says that the packet ends with the last byte of `input`,
    /// and is repeated until that byte is taken. Unless there is nothing to take and no end, or no room, it takes or
    /// makes a byte, or is done.
    fn step(&mut self, input: &[u8], eop: bool, out: &mut [u8]) -> Result<Step, Fault>;
    /// It works on what it was given, though nothing waits for it: its debug ports are not to be had before it is done.
    fn is_busy(&self) -> bool {
        false
    }
    /// A value of its debug port.
    fn peek(&mut self, port: u32) -> Option<u32> {
        let _ = port;
        None
    }
}

/// A kernel's function, in Rust: the reference that back-ends are compared with.
pub trait Stream: Send {
    /// As [`Kernel::reset`].
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault>;
    /// The next bytes of the packet, cut anywhere. What they come to is appended to `out`.
    fn chunk(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault>;
    /// The packet has ended. What is left is appended to `out`; the next chunk is of another packet, with the same
    /// parameters.
    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Fault>;
    /// As [`Kernel::peek`].
    fn peek(&mut self, port: u32) -> Option<u32> {
        let _ = port;
        None
    }
}

/// Input that a model takes before its output is drained, bytes: larger pieces run faster, smaller ones hold less.
const PIECE_BYTES: usize = 64 << 10;

/// A [`Stream`] as a kernel.
pub struct Model<S> {
    stream: S,
    /// Cycles that the hardware takes for a flit of input.
    cycles_per_flit: f64,
    made: Vec<u8>,
    /// How much of `made` has been handed on.
    given: usize,
    finished: bool,
    /// What went wrong, once all that was made before has been handed on.
    fault: Option<Fault>,
    bytes_in: u64,
    bytes_out: u64,
    counted: u64,
}

impl<S: Stream> Model<S> {
    /// `cycles_per_flit`: at least 1 for a pipeline that takes one flit a cycle.
    pub fn new(stream: S, cycles_per_flit: f64) -> Model<S> {
        let (made, given, finished, fault) = (Vec::new(), 0, false, None);
        Model { stream, cycles_per_flit, made, given, finished, fault, bytes_in: 0, bytes_out: 0, counted: 0 }
    }

    /// Cycles since the packet began: input and output overlap, the slower of both counts.
    fn cycles(&mut self) -> u64 {
        let taken = (self.bytes_in.div_ceil(FLIT_BYTES as u64) as f64 * self.cycles_per_flit).ceil() as u64;
        let all = if self.finished { taken.max(flits(self.bytes_out)) } else { taken };
        let since = all.saturating_sub(self.counted);
        self.counted = self.counted.max(all);
        since
    }
}

impl<S: Stream> Kernel for Model<S> {
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
        (self.given, self.finished, self.bytes_in, self.bytes_out, self.counted) = (0, false, 0, 0, 0);
        self.made.clear();
        self.fault = None;
        self.stream.reset(params)
    }

    fn step(&mut self, input: &[u8], eop: bool, out: &mut [u8]) -> Result<Step, Fault> {
        let mut step = Step::default();
        loop {
            let room = &mut out[step.made..];
            let n = room.len().min(self.made.len() - self.given);
            room[..n].copy_from_slice(&self.made[self.given..self.given + n]);
            (self.given, step.made) = (self.given + n, step.made + n);
            if self.given < self.made.len() {
                break;
            }
            (self.given, self.bytes_out) = (0, self.bytes_out + self.made.len() as u64);
            self.made.clear();
            if self.fault.is_some() {
                if step.taken > 0 || step.made > 0 {
                    // This step was good; the next one is not.
                    break;
                }
                return Err(self.fault.take().unwrap_or_else(|| Fault::Lost("it failed".into())));
            }
            if self.finished {
                step.done = true;
                break;
            }
            let left = &input[step.taken..];
            if !left.is_empty() {
                let piece = &left[..left.len().min(PIECE_BYTES)];
                match self.stream.chunk(piece, &mut self.made) {
                    Ok(()) => {
                        (step.taken, self.bytes_in) = (step.taken + piece.len(), self.bytes_in + piece.len() as u64);
                    }
                    Err(fault) => self.fault = Some(fault),
                }
            } else if eop {
                match self.stream.finish(&mut self.made) {
                    Ok(()) => self.finished = true,
                    Err(fault) => self.fault = Some(fault),
                }
            } else {
                break;
            }
        }
        step.cycles = self.cycles();
        if step.done {
            (self.finished, self.bytes_in, self.bytes_out, self.counted) = (false, 0, 0, 0);
        }
        Ok(step)
    }

    fn peek(&mut self, port: u32) -> Option<u32> {
        self.stream.peek(port)
    }
}

/// Runs a whole packet through a kernel: its output, and the cycles it took. The input comes in pieces of `piece`
/// bytes, the output is drained `room` bytes at a time.
pub fn run(kernel: &mut dyn Kernel, input: &[u8], piece: usize, room: usize) -> Result<(Vec<u8>, u64), Fault> {
    let (mut out, mut buffer, mut at, mut cycles) = (Vec::new(), vec![0; room.max(1)], 0, 0);
    loop {
        let end = input.len().min(at + piece.max(1));
        let step = kernel.step(&input[at..end], end == input.len(), &mut buffer)?;
        out.extend_from_slice(&buffer[..step.made]);
        (at, cycles) = (at + step.taken, step.cycles.saturating_add(cycles));
        if step.done {
            return Ok((out, cycles));
        }
        if step.taken == 0 && step.made == 0 {
            return Err(Fault::Lost("it neither takes nor makes anything".into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each byte twice; how many there were at the end.
    #[derive(Default)]
    struct Twice(u8);

    impl Stream for Twice {
        fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
            self.0 = 0;
            if params.is_empty() { Ok(()) } else { Err(Fault::Params("it takes none".into())) }
        }

        fn chunk(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
            self.0 = self.0.wrapping_add(input.len() as u8);
            out.extend(input.iter().flat_map(|b| [*b, *b]));
            Ok(())
        }

        fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
            out.push(std::mem::take(&mut self.0));
            Ok(())
        }
    }

    /// Each byte as it came, up to a byte of 255; an end after an odd number of bytes is wrong, too.
    #[derive(Default)]
    struct Until(usize);

    impl Stream for Until {
        fn reset(&mut self, _params: &[u32]) -> Result<(), Fault> {
            self.0 = 0;
            Ok(())
        }

        fn chunk(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
            let good = input.iter().position(|b| *b == 255).unwrap_or(input.len());
            out.extend_from_slice(&input[..good]);
            self.0 += good;
            if good < input.len() { Err(Fault::Data("255".into())) } else { Ok(()) }
        }

        fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
            out.push(7);
            if self.0 % 2 == 1 { Err(Fault::Data("odd".into())) } else { Ok(()) }
        }
    }

    /// Like [`run`], of a kernel that fails: what it had made by then, and why it failed.
    fn run_to_fault(kernel: &mut dyn Kernel, input: &[u8], piece: usize, room: usize) -> (Vec<u8>, Fault) {
        let (mut out, mut buffer, mut at) = (Vec::new(), vec![0; room], 0);
        loop {
            let end = input.len().min(at + piece);
            match kernel.step(&input[at..end], end == input.len(), &mut buffer) {
                Ok(step) => {
                    assert!(!step.done && (step.taken > 0 || step.made > 0));
                    out.extend_from_slice(&buffer[..step.made]);
                    at += step.taken;
                }
                Err(fault) => return (out, fault),
            }
        }
    }

    #[test]
    fn what_a_model_made_before_it_failed_is_handed_on_first_however_it_is_cut() {
        let mut kernel = Model::new(Until::default(), 1.0);
        let long: Vec<u8> = (0..200_001).map(|i| (i % 251) as u8).collect();
        let (mut bad, mut odd) = (long.clone(), long.clone());
        bad[150_000] = 255;
        odd.push(7);
        for (input, expected, why) in
            [(&bad, &bad[..150_000], "255"), (&long, &odd[..], "odd"), (&bad, &bad[..150_000], "255")]
        {
            for (piece, room) in [(1, 1), (1000, 7), (100_000, 64), (300_000, 300_000)] {
                let (out, fault) = run_to_fault(&mut kernel, input, piece, room);
                assert!(out == expected, "{why}: {} bytes in pieces of {piece}, room of {room}", out.len());
                assert_eq!(fault, Fault::Data(why.into()));
                kernel.reset(&[]).unwrap();
            }
        }
        // What is left of one that failed is gone with the reset.
        assert_eq!(kernel.step(&[255], true, &mut []).unwrap_err(), Fault::Data("255".into()));
        kernel.reset(&[]).unwrap();
        assert_eq!(run(&mut kernel, &[1, 2], 2, 9).unwrap().0, [1, 2, 7]);
    }

    #[test]
    fn a_model_gives_the_same_however_input_and_output_are_cut() {
        let mut kernel = Model::new(Twice::default(), 2.0);
        for len in 0..=130u8 {
            let input: Vec<u8> = (0..len).collect();
            let mut expected: Vec<u8> = input.iter().flat_map(|b| [*b, *b]).collect();
            expected.push(len);
            for (piece, room) in [(1, 1), (7, 3), (64, 64), (4096, 4096)] {
                let (out, cycles) = run(&mut kernel, &input, piece, room).unwrap();
                assert_eq!(out, expected, "{len} bytes in pieces of {piece}, room of {room}");
                let slowest = (2 * u64::from(len).div_ceil(64)).max(flits(expected.len() as u64));
                assert_eq!(cycles, slowest, "cycles do not depend on the cut");
            }
        }
        assert_eq!(kernel.reset(&[1]), Err(Fault::Params("it takes none".into())));
    }
}
