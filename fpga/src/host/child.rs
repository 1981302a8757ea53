//! A kernel's process, seen from the card.
//!
//! Input is copied into one of a few buffers and counts as taken; while the kernel works on it, the next ones are
//! copied into others and asked for ahead, and output of the one before is copied out: the process finds its next step
//! without sleeping. Where a step leaves something of its part, those that were asked for ahead are skipped, and asked
//! for again after it. What the process answers is checked before it is used.

use super::launch::Launch;
use super::memory::Shared;
use super::process::Process;
use super::wire::{BUFFER_BYTES, BUFFERS, Code, Reply, Request, Spin, input_at, output_at};
use crate::flit::{FLIT_BYTES, flits};
use crate::kernel::{Fault, Kernel, Step};
use crate::manifest::PARAMS_MAX;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Whoever waits for a process looks so often whether that is still wanted.
const LOOK: Duration = Duration::from_millis(20);

/// How long the end of a process that has closed its socket, or was killed, is waited for.
const END: Duration = Duration::from_secs(1);

/// What a kernel's process is reached by.
pub(super) struct Parts {
    pub process: Process,
    pub socket: OwnedFd,
    pub shared: Shared,
}

/// A part of the packet that was copied into an input buffer.
#[derive(Clone, Copy)]
struct Part {
    buffer: usize,
    from: usize,
    to: usize,
    eop: bool,
}

/// A running process with a kernel in it. Dropping it kills the process, and waits for nothing.
pub struct Child {
    parts: Parts,
    watchdog: Duration,
    given_up: Arc<AtomicBool>,
    left: Arc<AtomicBool>,
    cycles_per_flit: f64,
    /// What the process was asked for, in this order: the kernel works on the first.
    asked: VecDeque<Part>,
    /// What it left of a part, and the parts after that, which it skips: to be asked for next.
    again: VecDeque<Part>,
    /// The last part was left nothing of: asking ahead pays.
    ahead: bool,
    /// Those that follow are skipped until something is asked for that does not.
    skipping: bool,
    /// Output that has not been handed on: which buffer, and from where to where.
    output: Option<(usize, usize, usize)>,
    /// The buffer that is filled next.
    buffer: usize,
    /// The end of the packet is in a buffer, or was.
    ended: bool,
    /// The kernel has ended the packet.
    done: bool,
    /// Why the process was given up.
    lost: Option<String>,
    /// Of this packet: bytes in, and cycles counted for them.
    bytes_in: u64,
    bytes_out: u64,
    counted: u64,
}

impl Child {
    pub(super) fn new(parts: Parts, launch: &Launch) -> Child {
        Child {
            parts,
            watchdog: launch.watchdog,
            given_up: launch.given_up.clone(),
            left: launch.left.clone(),
            cycles_per_flit: launch.cycles_per_flit,
            asked: VecDeque::with_capacity(BUFFERS),
            again: VecDeque::with_capacity(BUFFERS),
            ahead: true,
            skipping: false,
            output: None,
            buffer: 0,
            ended: false,
            done: false,
            lost: None,
            bytes_in: 0,
            bytes_out: 0,
            counted: 0,
        }
    }

    /// The id of the process.
    pub fn id(&self) -> u32 {
        self.parts.process.id()
    }

    /// The first reply: the shared object is loaded, or why not.
    pub(super) fn ready(&mut self) -> Result<Reply, Fault> {
        self.receive()
    }

    /// The process is of no use any longer.
    fn give_up(&mut self, why: String) -> Fault {
        self.parts.process.kill();
        self.parts.process.ended(END);
        self.lost = Some(why.clone());
        Fault::Lost(why)
    }

    /// Never waits: a process that does not read what it is asked for is given up.
    fn send(&mut self, request: Request) -> Result<(), Fault> {
        if let Some(why) = &self.lost {
            return Err(Fault::Lost(why.clone()));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match rustix::net::send(&self.parts.socket, &request.encode(), flags) {
            Ok(_) => Ok(()),
            Err(rustix::io::Errno::AGAIN) => Err(self.give_up("it does not read what it is asked for".into())),
            Err(_) => Err(self.ended_how()),
        }
    }

    /// How the process ended, whose socket is closed.
    fn ended_how(&mut self) -> Fault {
        // One that closed its socket and lives on is ended here.
        let ended = self.parts.process.ended(END / 10);
        self.parts.process.kill();
        let why = match ended.or_else(|| self.parts.process.ended(END)) {
            Some(status) => format!("its process ended: {status}"),
            None => "its process ended".to_owned(),
        };
        self.lost = Some(why.clone());
        Fault::Lost(why)
    }

    fn receive(&mut self) -> Result<Reply, Fault> {
        let mut bytes = [0; Reply::bytes_max() + 1];
        let (mut until, mut spin) = (None, Spin::default());
        loop {
            match rustix::net::recv(&self.parts.socket, &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok((n, _)) if n > 0 => {
                    return Reply::decode(&bytes[..n]).map_err(|fault| self.give_up(fault_text(fault)));
                }
                Err(rustix::io::Errno::AGAIN) if spin.again() => continue,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                _ => return Err(self.ended_how()),
            }
            if self.given_up.load(Ordering::Acquire) {
                return Err(self.give_up("the card is gone".into()));
            }
            let now = Instant::now();
            let left = until.get_or_insert(now + self.watchdog).saturating_duration_since(now);
            if left.is_zero() {
                return Err(self.give_up(format!("no progress for {:?}: its process was killed", self.watchdog)));
            }
            let left = left.min(LOOK);
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.parts.socket, PollFlags::IN)], Some(&timeout)) {
                // One that answers soon is not killed: another would have to be started.
                Ok(0) if self.left.load(Ordering::Acquire) => {
                    return Err(self.give_up("its session has ended: its process was killed".into()));
                }
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(self.give_up(e.to_string())),
            }
        }
    }

    /// Copies as much of a packet as a buffer holds into the next one.
    fn fill(&mut self, input: &[u8], eop: bool) -> (Part, usize) {
        let n = input.len().min(BUFFER_BYTES);
        let buffer = self.buffer;
        self.parts.shared.put(input_at(buffer), &input[..n]);
        self.buffer = (buffer + 1) % BUFFERS;
        let eop = eop && n == input.len();
        self.ended |= eop;
        (Part { buffer, from: 0, to: n, eop }, n)
    }

    /// Asks the process for a part.
    fn ask(&mut self, part: Part) -> Result<(), Fault> {
        let Part { buffer, from, to, eop } = part;
        let follows = !self.asked.is_empty();
        self.skipping &= follows;
        self.asked.push_back(part);
        self.send(Request::Step { buffer: buffer as u32, from: from as u32, len: (to - from) as u32, eop, follows })
    }

    /// Asks for what there is, as far ahead as there are buffers: parts that come again first, then new ones. Returns
    /// how much of the input was taken. All output has been handed on.
    fn ask_ahead(&mut self, input: &[u8], eop: bool) -> Result<usize, Fault> {
        let mut taken = 0;
        if !self.again.is_empty() {
            if !self.asked.is_empty() {
                // They skip; what comes again comes after them.
                return Ok(0);
            }
            while let Some(part) = self.again.pop_front() {
                self.ask(part)?;
            }
        }
        let most = if self.ahead { BUFFERS } else { 1 };
        while self.asked.len() < most && !self.skipping {
            let left = &input[taken..];
            if left.is_empty() && (!eop || self.ended) {
                break;
            }
            let (part, n) = self.fill(left, eop);
            taken += n;
            self.ask(part)?;
        }
        Ok(taken)
    }

    /// Waits for what the kernel came to. Returns the cycles that took.
    fn collect(&mut self) -> Result<u64, Fault> {
        let Some(mut part) = self.asked.pop_front() else { return Ok(0) };
        let reply = self.receive()?;
        match reply.code {
            Code::Good => {}
            Code::Skipped if self.skipping => {
                self.again.push_back(part);
                return Ok(0);
            }
            Code::Data => {
                self.skipping = true;
                return Err(Fault::Data(reply.text));
            }
            Code::Params => return Err(self.give_up("it refuses parameters that it had taken".into())),
            Code::Skipped => return Err(self.give_up("it skips what it was asked for".into())),
            _ => return Err(self.give_up(reply.text)),
        }
        let checked = checked(&reply, part.to - part.from, part.eop).map_err(|why| self.give_up(why.into()))?;
        part.from += checked.taken;
        (self.bytes_in, self.bytes_out) = (self.bytes_in + checked.taken as u64, self.bytes_out + checked.made as u64);
        self.output = (checked.made > 0).then_some((part.buffer, 0, checked.made));
        self.done = checked.done;
        self.ahead = part.from == part.to && part.eop == checked.done;
        if !self.ahead {
            // It goes on in the same output buffer, which is emptied first.
            self.again.push_back(part);
            self.skipping = true;
        }
        Ok(self.cycles(&checked))
    }

    /// What the kernel counted, or what the manifest says.
    fn cycles(&mut self, step: &Step) -> u64 {
        if step.cycles > 0 {
            return step.cycles;
        }
        let taken = (self.bytes_in.div_ceil(FLIT_BYTES as u64) as f64 * self.cycles_per_flit).ceil() as u64;
        let all = if step.done { taken.max(flits(self.bytes_out)) } else { taken };
        let since = all.saturating_sub(self.counted);
        self.counted = self.counted.max(all);
        since
    }

    /// Hands output on.
    fn deliver(&mut self, out: &mut [u8]) -> usize {
        let Some((buffer, from, to)) = self.output else { return 0 };
        let n = out.len().min(to - from);
        self.parts.shared.get(output_at(buffer) + from, &mut out[..n]);
        self.output = (from + n < to).then_some((buffer, from + n, to));
        n
    }
}

/// A reply, if it can be true.
fn checked(reply: &Reply, given: usize, eop: bool) -> Result<Step, &'static str> {
    let taken = usize::try_from(reply.taken).ok().filter(|n| *n <= given);
    let made = usize::try_from(reply.made).ok().filter(|n| *n <= BUFFER_BYTES);
    let taken = taken.ok_or("it says that it took more than it was given")?;
    let made = made.ok_or("it made more than there was room for")?;
    if reply.done && !(eop && taken == given) {
        return Err("it ended a packet that has not ended");
    }
    if taken == 0 && made == 0 && !reply.done && (given > 0 || eop) {
        return Err("it neither takes nor makes anything");
    }
    Ok(Step { taken, made, done: reply.done, cycles: reply.cycles })
}

fn fault_text(fault: Fault) -> String {
    match fault {
        Fault::Lost(why) => why,
        other => other.to_string(),
    }
}

impl Kernel for Child {
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
        if params.len() > PARAMS_MAX as usize {
            return Err(Fault::Params(format!("{} words, at most {PARAMS_MAX}", params.len())));
        }
        while self.asked.pop_front().is_some() {
            self.receive()?;
        }
        self.again.clear();
        (self.ahead, self.skipping, self.output, self.buffer) = (true, false, None, 0);
        (self.ended, self.done, self.bytes_in, self.bytes_out, self.counted) = (false, false, 0, 0, 0);
        let bytes: Vec<u8> = params.iter().flat_map(|w| w.to_ne_bytes()).collect();
        self.parts.shared.put(input_at(0), &bytes);
        self.send(Request::Reset { count: params.len() as u32 })?;
        let reply = self.receive()?;
        match reply.code {
            Code::Good => Ok(()),
            Code::Params => Err(Fault::Params(reply.text)),
            _ => Err(self.give_up(reply.text)),
        }
    }

    fn step(&mut self, input: &[u8], eop: bool, out: &mut [u8]) -> Result<Step, Fault> {
        let mut step = Step::default();
        loop {
            step.made += self.deliver(&mut out[step.made..]);
            if self.output.is_some() {
                return Ok(step);
            }
            if self.done {
                (self.ended, self.done, self.bytes_in, self.bytes_out, self.counted) = (false, false, 0, 0, 0);
                step.done = true;
                return Ok(step);
            }
            step.taken += self.ask_ahead(&input[step.taken..], eop)?;
            // The kernel works on while the caller brings more, unless it waits for what there is.
            if self.asked.is_empty() || (!input.is_empty() && step.taken == input.len()) {
                return Ok(step);
            }
            step.cycles = step.cycles.saturating_add(self.collect()?);
        }
    }

    fn is_busy(&self) -> bool {
        !self.asked.is_empty()
    }

    fn peek(&mut self, port: u32) -> Option<u32> {
        if !self.asked.is_empty() {
            return None;
        }
        self.send(Request::Peek { port }).ok()?;
        let reply = self.receive().ok()?;
        (reply.code == Code::Good).then_some(reply.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_that_cannot_be_true_are_refused() {
        let good = Reply { taken: 5, made: 7, cycles: 9, ..Reply::of(Code::Good, "") };
        assert_eq!(checked(&good, 5, true), Ok(Step { taken: 5, made: 7, done: false, cycles: 9 }));
        let bad = [
            Reply { taken: 6, ..good.clone() },
            Reply { taken: u64::MAX, ..good.clone() },
            Reply { made: BUFFER_BYTES as u64 + 1, ..good.clone() },
            Reply { made: u64::MAX, ..good.clone() },
            Reply { taken: 4, done: true, ..good.clone() },
            Reply { taken: 0, made: 0, ..good.clone() },
        ];
        for reply in bad {
            assert!(checked(&reply, 5, true).is_err(), "{reply:?}");
        }
        assert!(checked(&Reply { done: true, ..good }, 5, false).is_err(), "the packet has not ended");
    }
}
