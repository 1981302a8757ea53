//! What a program computes before it does anything.
//!
//! Where nothing can be taken back, a program that has begun to change files cannot lend what it holds, nor start over;
//! and what it holds is not to be kept from others while it computes. So it is rehearsed first: it runs over a target
//! that only pretends to change anything and holds nothing, and what its codecs and ciphers make of what is kept, each
//! with what it was made of. When it runs in earnest they do not run again: where what one is to be given is, byte for
//! byte, what it was given then, what it made then is what it makes now. So it does not matter how well the rehearsal
//! pretends, and what others change meanwhile is noticed; the target says what becomes of a program where something is
//! different.

use super::machine::Machine;
use super::operand::{BufSlot, Transform};
use crate::Errno;
use crate::limits::PROGRAM_FORESEEN_MAX;
use crate::target::{Quiet, Target};

/// What one step made.
struct Made {
    index: usize,
    /// Which of the inputs it was made of, and what its operands were beside it.
    input: usize,
    beside: Vec<u8>,
    /// None once it has been used up.
    output: Option<Result<Vec<u8>, Errno>>,
}

/// What a rehearsal has kept.
#[derive(Default)]
pub(super) struct Foreseen {
    made: Vec<Made>,
    /// What buffers held: which, how often it had been changed, what.
    inputs: Vec<(BufSlot, u32, Vec<u8>)>,
    bytes: u64,
    /// There was more than may be kept.
    full: bool,
    /// Of this run: inputs that have been compared, and with which version of their buffer.
    same: Vec<(usize, u32)>,
}

impl Foreseen {
    /// Nothing has been compared with what the run to come will have.
    pub fn anew(mut self: Box<Self>) -> Box<Self> {
        self.same.clear();
        self
    }

    /// Forgets what a step made, and what it was made of if nothing else was.
    fn forget(&mut self, at: usize) {
        let gone = self.made.swap_remove(at);
        self.bytes -= gone.output.and_then(Result::ok).map_or(0, |output| output.len() as u64);
        if self.made.iter().all(|m| m.input != gone.input)
            && let Some((.., was)) = self.inputs.get_mut(gone.input)
        {
            self.bytes -= std::mem::take(was).len() as u64;
            self.same.retain(|(input, _)| *input != gone.input);
        }
    }

    fn weigh(&mut self, bytes: usize) -> Result<(), Errno> {
        self.bytes += bytes as u64;
        self.full |= self.bytes > PROGRAM_FORESEEN_MAX;
        if self.full { Err(Errno::TOOBIG) } else { Ok(()) }
    }
}

impl<F: Copy> Machine<'_, F> {
    /// Runs a codec or cipher, or takes what it made in the rehearsal.
    pub(super) async fn transform_or_recall<T: Target<File = F>>(
        &mut self,
        (buf, from, how): (BufSlot, BufSlot, Transform),
        t: &mut T,
    ) -> Result<(), Errno> {
        let Some(mut foreseen) = self.foreseen.take() else {
            t.quiet(Quiet::Computes);
            return self.transform(buf, from, how, t).await;
        };
        let done = self.recall(&mut foreseen, (buf, from, how), t).await;
        self.foreseen = Some(foreseen);
        done
    }

    async fn recall<T: Target<File = F>>(
        &mut self,
        foreseen: &mut Foreseen,
        (buf, from, how): (BufSlot, BufSlot, Transform),
        t: &mut T,
    ) -> Result<(), Errno> {
        let beside = self.beside(how)?;
        let version = self.versions.get(usize::from(from.0)).copied().unwrap_or(0);
        let known = foreseen.made.iter().position(|m| m.index == self.index && m.output.is_some());
        if let Some(at) = known {
            let (input, same) = (foreseen.made[at].input, foreseen.made[at].beside == beside);
            if same && self.is_same(foreseen, (input, from, version))? {
                let output = match t.is_rehearsal() {
                    true => foreseen.made[at].output.clone(),
                    false => foreseen.made[at].output.take(),
                };
                return self.put_buffer(buf, output.unwrap_or(Err(Errno::INVAL))?);
            }
            foreseen.forget(at);
        }
        if foreseen.full {
            return Err(Errno::TOOBIG);
        }
        let bytes = self.buffer(from)?.len() as u64;
        t.unforeseen(bytes.max(self.program.capacity(buf).into()))?;
        if !t.is_rehearsal() {
            return self.transform(buf, from, how, t).await;
        }
        // Before it runs: it may change the buffer that it takes.
        let input = self.note_input(foreseen, from, version)?;
        let done = self.transform(buf, from, how, t).await;
        let output = match done {
            // The program was interrupted, not what it computes.
            Err(Errno::INTR | Errno::AGAIN) => return done,
            Err(e) => Err(e),
            Ok(()) => Ok(self.buffer(buf)?.clone()),
        };
        foreseen.weigh(output.as_ref().map_or(0, Vec::len))?;
        foreseen.made.push(Made { index: self.index, input, beside, output: Some(output) });
        done
    }

    fn is_same(&self, foreseen: &mut Foreseen, (input, from, version): (usize, BufSlot, u32)) -> Result<bool, Errno> {
        if foreseen.same.contains(&(input, version)) {
            return Ok(true);
        }
        let same = foreseen.inputs.get(input).is_some_and(|i| i.0 == from) && {
            let (was, is) = (&foreseen.inputs[input].2, self.buffer(from)?);
            was == is
        };
        if same {
            foreseen.same.push((input, version));
        }
        Ok(same)
    }

    fn note_input(&self, foreseen: &mut Foreseen, from: BufSlot, version: u32) -> Result<usize, Errno> {
        let bytes = self.buffer(from)?;
        let known = foreseen.inputs.iter().position(|(b, _, was)| *b == from && was == bytes);
        if let Some(at) = known {
            foreseen.same.push((at, version));
            return Ok(at);
        }
        foreseen.weigh(bytes.len())?;
        foreseen.inputs.push((from, version, bytes.clone()));
        foreseen.same.push((foreseen.inputs.len() - 1, version));
        Ok(foreseen.inputs.len() - 1)
    }

    /// What a step is given beside its buffer, as far as it is not part of the program.
    fn beside(&self, how: Transform) -> Result<Vec<u8>, Errno> {
        Ok(match how {
            Transform::EncryptUnits { first, .. } | Transform::DecryptUnits { first, .. } => {
                self.value(first)?.to_le_bytes().to_vec()
            }
            Transform::Seal { bound: Some(bound), .. } | Transform::Open { bound: Some(bound), .. } => {
                let mut int = [0; 8];
                let source = self.source(bound, &mut int)?;
                let mut bytes = vec![0; source.len()];
                source.copy_to(0, &mut bytes);
                bytes
            }
            _ => Vec::new(),
        })
    }
}
