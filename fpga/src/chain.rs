//! Kernels one behind the other in one slot: what one makes, the next one takes, and nothing of it leaves the slot.
//!
//! The stages have FIFOs between them and work as a pipeline, as the sub-kernels of INSIDER do ("INSIDER: Designing
//! In-Storage Computing System for Emerging High-Performance Drive", USENIX ATC 2019, section 3.4): the slowest one
//! sets the pace, so the cycles of a packet are those of the stage that took the most.

use crate::kernel::{Fault, Kernel, Step};
use crate::worker::check;
use std::ops::RangeInclusive;

/// Stages that a chain may have at most.
pub(crate) const STAGES_MAX: usize = 8;
/// Bytes that wait between two stages at most.
const FIFO_BYTES: usize = 64 << 10;

/// One kernel of a chain.
pub struct Stage {
    /// What errors call it.
    pub name: String,
    /// The kernel.
    pub kernel: Box<dyn Kernel>,
    /// Its parameters, where the chain fixes them; the session gives them otherwise.
    pub params: Option<Vec<u32>>,
    /// How many it takes.
    pub words: RangeInclusive<usize>,
    /// How many debug ports it has.
    pub ports: u32,
}

/// What a stage is at in a packet.
#[derive(Default)]
struct At {
    /// Bytes that it made and the next one has not taken; how many of them are taken.
    fifo: Vec<u8>,
    given: usize,
    /// It may have more output of what it took.
    undrained: bool,
    done: bool,
    cycles: u64,
}

/// Stages as one kernel.
pub struct Chain {
    stages: Vec<Stage>,
    at: Vec<At>,
    room: Vec<u8>,
    /// Cycles of this packet that have been said.
    counted: u64,
    /// The stage that failed, and why: what it made before goes on to the end first.
    fault: Option<(usize, Fault)>,
}

/// What goes wrong in a stage, with its name.
fn of_stage(name: &str, fault: Fault) -> Fault {
    let said = |why: String| format!("stage {name}: {why}");
    match fault {
        Fault::Params(why) => Fault::Params(said(why)),
        Fault::Data(why) => Fault::Data(said(why)),
        Fault::Lost(why) => Fault::Lost(said(why)),
        Fault::TooLong(max) => Fault::TooLong(max),
    }
}

impl Chain {
    /// A chain of at least one stage.
    pub fn new(stages: Vec<Stage>) -> Chain {
        let at = stages.iter().map(|_| At::default()).collect();
        Chain { stages, at, room: vec![0; FIFO_BYTES], counted: 0, fault: None }
    }

    /// Divides a session's parameters among the stages that have none of their own: all of them go to the only one; of
    /// several, each has the number of its words before them.
    fn divide(&self, params: &[u32]) -> Result<Vec<Vec<u32>>, Fault> {
        let open = self.stages.iter().filter(|s| s.params.is_none()).count();
        let mut rest = params;
        let mut take = || {
            if open == 1 {
                return Some(std::mem::take(&mut rest).to_vec());
            }
            let (count, words) = rest.split_first()?;
            let (own, others) = words.split_at_checked(*count as usize)?;
            rest = others;
            Some(own.to_vec())
        };
        let mut all = Vec::new();
        for stage in &self.stages {
            let short = || Fault::Params(format!("stage {}: its words, with their number before them", stage.name));
            let words = match &stage.params {
                Some(fixed) => fixed.clone(),
                None => take().ok_or_else(short)?,
            };
            if !stage.words.contains(&words.len()) {
                let (least, most, count) = (stage.words.start(), stage.words.end(), words.len());
                return Err(Fault::Params(format!("stage {}: {least} to {most} words, not {count}", stage.name)));
            }
            all.push(words);
        }
        match rest.is_empty() {
            true => Ok(all),
            false => Err(Fault::Params(format!("{} words that no stage takes", rest.len()))),
        }
    }

    /// Has one stage go on, if it can: what it took of the packet, if it is the first, and what it put in `out`, if it
    /// is the last. None where it has nothing to do.
    fn advance(
        &mut self,
        stage: usize,
        input: &[u8],
        eop: bool,
        out: &mut [u8],
        drain: bool,
    ) -> Result<Option<Step>, Fault> {
        let last = stage + 1 == self.stages.len();
        let (before, from) = self.at.split_at_mut(stage);
        let before = before.last_mut();
        let (input, eop) = match &before {
            Some(at) => (&at.fifo[at.given..], at.done),
            None => (input, eop),
        };
        let at = &mut from[0];
        let room = match last {
            true => out,
            false => &mut self.room[..FIFO_BYTES - (at.fifo.len() - at.given)],
        };
        let something = !input.is_empty() || eop || (drain && at.undrained);
        if at.done || room.is_empty() || !something {
            return Ok(None);
        }
        let (given, most) = (input.len(), room.len());
        let Stage { name, kernel, .. } = &mut self.stages[stage];
        let step = kernel.step(input, eop, room).and_then(|s| check(&s, given, eop, most).map(|()| s));
        let step = step.map_err(|fault| of_stage(name, fault))?;
        at.cycles = at.cycles.saturating_add(step.cycles);
        at.undrained = !step.done && (step.taken > 0 || step.made > 0);
        at.done = step.done;
        if !last {
            if at.given > 0 {
                at.fifo.drain(..at.given);
                at.given = 0;
            }
            at.fifo.extend_from_slice(&self.room[..step.made]);
        }
        if let Some(before) = before {
            before.given += step.taken;
        }
        Ok((step.taken > 0 || step.made > 0 || step.done).then_some(step))
    }

    /// Cycles since they were last asked for: stages work at the same time.
    fn cycles(&mut self) -> u64 {
        let all = self.at.iter().map(|a| a.cycles).max().unwrap_or(0);
        all.saturating_sub(std::mem::replace(&mut self.counted, all))
    }

    fn begin(&mut self) {
        self.at.fill_with(At::default);
        (self.counted, self.fault) = (0, None);
    }
}

impl Kernel for Chain {
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
        self.begin();
        let divided = self.divide(params)?;
        for (stage, words) in self.stages.iter_mut().zip(divided) {
            stage.kernel.reset(&words).map_err(|fault| of_stage(&stage.name, fault))?;
        }
        Ok(())
    }

    fn step(&mut self, input: &[u8], eop: bool, out: &mut [u8]) -> Result<Step, Fault> {
        let mut step = Step::default();
        let last = self.stages.len() - 1;
        let mut drain = false;
        loop {
            let mut moved = false;
            // Nothing goes on before a stage that has failed.
            let first = self.fault.as_ref().map_or(0, |(failed, _)| failed + 1);
            // The last one first: it makes room for those before it.
            for stage in (first..=last).rev() {
                let left = &input[step.taken..];
                let one = match self.advance(stage, left, eop, &mut out[step.made..], drain) {
                    Ok(one) => one,
                    Err(fault) => {
                        (self.fault, moved) = (Some((stage, fault)), true);
                        break;
                    }
                };
                let Some(one) = one else { continue };
                moved = true;
                step.taken += if stage == 0 { one.taken } else { 0 };
                step.made += if stage == last { one.made } else { 0 };
            }
            // What stages still have of what they took is fetched once none can do anything else: a stage that is a
            // process computes meanwhile.
            if (!moved && drain) || self.at[last].done {
                break;
            }
            drain = !moved;
        }
        let handed_on = step.taken == 0 && step.made == 0 && !out.is_empty();
        if let Some((_, fault)) = self.fault.take_if(|_| handed_on) {
            return Err(fault);
        }
        step.cycles = self.cycles();
        step.done = self.at[last].done;
        if step.done {
            self.begin();
        }
        Ok(step)
    }

    fn is_busy(&self) -> bool {
        self.stages.iter().any(|stage| stage.kernel.is_busy())
    }

    fn peek(&mut self, port: u32) -> Option<u32> {
        let mut first = 0;
        for stage in &mut self.stages {
            if port - first < stage.ports {
                return stage.kernel.peek(port - first);
            }
            first += stage.ports;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Model, Stream, run};

    /// Each byte so many times (0 to 255).
    #[derive(Default)]
    struct Times(usize, u32);

    impl Stream for Times {
        fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
            (self.0, self.1) = (params[0] as usize, 0);
            if self.0 < 256 { Ok(()) } else { Err(Fault::Params("at most 255".into())) }
        }

        fn chunk(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
            self.1 += input.len() as u32;
            let good = input.iter().position(|b| *b == 13).unwrap_or(input.len());
            out.extend(input[..good].iter().flat_map(|b| std::iter::repeat_n(*b, self.0)));
            if good < input.len() { Err(Fault::Data("13".into())) } else { Ok(()) }
        }

        fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
            out.push(b'.');
            Ok(())
        }

        fn peek(&mut self, port: u32) -> Option<u32> {
            (port == 0).then_some(self.1)
        }
    }

    fn stage(name: &str, params: Option<u32>, cycles: f64) -> Stage {
        let kernel = Box::new(Model::new(Times::default(), cycles));
        Stage { name: name.into(), kernel, params: params.map(|p| vec![p]), words: 1..=1, ports: 1 }
    }

    fn times(input: &[u8], n: usize) -> Vec<u8> {
        input.iter().flat_map(|b| std::iter::repeat_n(*b, n)).chain([b'.']).collect()
    }

    #[test]
    fn a_chain_is_its_stages_one_after_the_other_however_it_is_cut() {
        let mut chain = Chain::new(vec![stage("a", None, 1.0), stage("b", Some(2), 7.0), stage("c", Some(3), 1.0)]);
        chain.reset(&[5]).unwrap();
        for len in 0..=130u8 {
            let input: Vec<u8> = (0..len).map(|b| b | 128).collect();
            let expected = times(&times(&times(&input, 5), 2), 3);
            for (piece, room) in [(1, 1), (7, 3), (64, 64), (4096, 1 << 20)] {
                let (out, cycles) = run(&mut chain, &input, piece, room).unwrap();
                assert!(out == expected, "{len} bytes in pieces of {piece}, room of {room}");
                let [a, b] = [times(&input, 5), times(&times(&input, 5), 2)].map(|v| v.len() as u64);
                let slowest = (a.div_ceil(64) * 7).max(b.div_ceil(64)).max((expected.len() as u64).div_ceil(64));
                assert_eq!(cycles, slowest, "{len} bytes in pieces of {piece}, room of {room}");
            }
        }
        let long = vec![200; 300_000];
        let (out, _) = run(&mut chain, &long, 1 << 20, 1 << 16).unwrap();
        assert!(out == times(&times(&times(&long, 5), 2), 3), "more than the FIFOs hold");
    }

    #[test]
    fn parameters_go_to_the_stages_that_have_none_of_their_own() {
        let two = || Chain::new(vec![stage("a", None, 1.0), stage("b", None, 1.0)]);
        let mut chain = two();
        chain.reset(&[1, 2, 1, 4]).unwrap();
        assert_eq!(run(&mut chain, b"x", 1, 64).unwrap().0, times(&times(b"x", 2), 4));
        assert_eq!((chain.peek(0), chain.peek(1), chain.peek(2)), (Some(1), Some(3), None));
        for bad in [&[][..], &[1], &[1, 2], &[1, 2, 2, 4], &[1, 2, 1, 4, 9], &[u32::MAX, 2], &[0, 1, 4]] {
            assert!(matches!(two().reset(bad), Err(Fault::Params(_))), "{bad:?}");
        }
        assert!(matches!(two().reset(&[1, 256, 1, 1]), Err(Fault::Params(why)) if why.contains("stage a")));
        let mut none = Chain::new(vec![stage("a", Some(1), 1.0)]);
        assert!(none.reset(&[]).is_ok() && none.reset(&[1]).is_err());
    }

    #[test]
    fn what_stages_made_before_one_failed_comes_out_first_however_it_is_cut() {
        for (before, after) in [(1, 2), (2, 1), (3, 0)] {
            let stages = (0..before + after).map(|n| stage(&n.to_string(), Some(if n < before { 1 } else { 3 }), 1.0));
            let mut chain = Chain::new(stages.collect());
            let input: Vec<u8> = [vec![200; 100_000], vec![13], vec![200; 100_000]].concat();
            let expected = vec![200; 100_000 * 3_usize.pow(after)];
            for (piece, room) in [(100, 77), (1 << 20, 1 << 20), (70_000, 4096)] {
                chain.reset(&[]).unwrap();
                let (mut out, mut buffer, mut at) = (Vec::new(), vec![0; room], 0);
                let fault = loop {
                    let end = input.len().min(at + piece);
                    match chain.step(&input[at..end], end == input.len(), &mut buffer) {
                        Ok(step) => {
                            assert!(!step.done && step.taken + step.made > 0);
                            out.extend_from_slice(&buffer[..step.made]);
                            at += step.taken;
                        }
                        Err(fault) => break fault,
                    }
                };
                assert!(matches!(&fault, Fault::Data(why) if why == "stage 0: 13"), "{fault}");
                assert!(out == expected, "{} of {} bytes, {piece}, {room}", out.len(), expected.len());
            }
        }
    }

    #[test]
    fn a_stage_that_fails_is_named_and_a_reset_begins_anew() {
        let mut chain = Chain::new(vec![stage("first", Some(1), 1.0), stage("second", Some(0), 1.0)]);
        chain.reset(&[]).unwrap();
        let Err(Fault::Data(why)) = run(&mut chain, b"a\rb", 8, 8) else { panic!("it takes a 13") };
        assert!(why.contains("first"), "{why}");
        chain.reset(&[]).unwrap();
        assert_eq!(run(&mut chain, b"ab", 8, 8).unwrap().0, b".");
    }
}
