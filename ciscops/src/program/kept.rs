//! What a program that is started over need not do again.
//!
//! A program that computes lends what it holds to others. If they change something of it, what the program had read may
//! be so no longer, and it runs from its start. Mostly it is so still: another name was made in the directory, another
//! record appended to the log. So its state is kept, and the next run looks at files and names alone: it opens and
//! reads again, compares with what is kept, stages again what it had staged, and goes on where the first one was. Only
//! if something is found to be different, or if what it would be compared with is gone, everything is done again.
//! Without that, programs that compute would never come to an end beside busy neighbours.

use super::bulk::Piece;
use super::machine::Machine;
use super::micro::Micro;
use super::operand::{BufSlot, To, Value};
use super::slot::Summed;
use crate::Errno;
use crate::interp::Registers;
use crate::limits::{PROGRAM_BUFFERS, PROGRAM_FILES, PROGRAM_REGISTERS};
use crate::target::{Sink, Target};
use smallvec::SmallVec;

/// One micro-op that has run.
#[derive(Clone, Copy)]
pub(super) struct Ran {
    pub index: usize,
    /// What it was answered: a file's number, a size.
    pub answer: u64,
    /// How often the buffer that it filled had been changed then.
    pub version: u32,
}

/// State of a program that is started over.
pub(super) struct Kept {
    pub(super) ran: SmallVec<[Ran; 16]>,
    pub(super) buffers: [Vec<u8>; PROGRAM_BUFFERS],
    pub(super) versions: [u32; PROGRAM_BUFFERS],
    pub(super) registers: [u64; PROGRAM_REGISTERS],
    pub(super) ends: [Option<u64>; PROGRAM_FILES],
    pub(super) index: usize,
    pub(super) end: usize,
    pub(super) summed: Option<Summed>,
}

impl Kept {
    fn buffer(&self, b: BufSlot, version: u32) -> Option<&[u8]> {
        let at = usize::from(b.0);
        self.buffers.get(at).filter(|_| self.versions.get(at) == Some(&version)).map(Vec::as_slice)
    }
}

impl<F: Copy> Machine<'_, F> {
    /// The state, for another run.
    pub(super) fn take_kept(&mut self) -> Kept {
        let ends = self.files.map(|slot| slot.and_then(|slot| slot.end));
        let (ran, buffers) = (std::mem::take(&mut self.ran), std::mem::take(&mut self.buffers));
        let summed = self.summed.take();
        let Machine { versions, registers, index, end, .. } = *self;
        Kept { ran, buffers, versions, registers, ends, index, end, summed }
    }

    /// Goes on where the first run was, if what that saw is as it was. Else the answer is false, and the program is to
    /// be started over without what was kept.
    ///
    /// # Errors
    /// Those of the micro-ops.
    pub(super) async fn resume<T: Target<File = F>>(&mut self, kept: Kept, t: &mut T) -> Result<bool, Errno> {
        for ran in &kept.ran {
            let Some(micro) = self.program.micros().get(ran.index) else { return Ok(false) };
            self.index = ran.index;
            if !self.again(micro, ran, &kept, t).await? {
                return Ok(false);
            }
        }
        for (slot, end) in self.files.iter_mut().zip(kept.ends) {
            if let Some(slot) = slot {
                slot.end = end;
            }
        }
        (self.ran, self.buffers, self.versions) = (kept.ran, kept.buffers, kept.versions);
        (self.registers, self.index, self.end) = (kept.registers, kept.index, kept.end);
        self.summed = kept.summed;
        Ok(true)
    }

    /// Does what a micro-op did to files and names, and nothing else; whether its answer is the same.
    async fn again<T: Target<File = F>>(
        &mut self,
        micro: &Micro,
        ran: &Ran,
        kept: &Kept,
        t: &mut T,
    ) -> Result<bool, Errno> {
        match *micro {
            Micro::Open { .. }
            | Micro::Use { .. }
            | Micro::Close { .. }
            | Micro::Size { .. }
            | Micro::Unlink { .. }
            | Micro::Rmdir { .. }
            | Micro::Mkdir { .. }
            | Micro::Rename { .. }
            | Micro::Link { .. }
            | Micro::Symlink { .. }
            | Micro::SetAttr { size: None, .. } => {
                self.step(micro, t).await?;
                t.seal(ran.index as u16, &Registers::default()).await?;
                Ok(self.answer == ran.answer)
            }
            Micro::Read { file, off: Value::Imm(off), len: Value::Imm(len), to: To::Buffer(b), pad: false, .. } => {
                let file = self.slot(file)?.file;
                match kept.buffer(b, ran.version) {
                    Some(was) => holds(t, file, (off, len), was, &mut self.piece).await,
                    None => Ok(false),
                }
            }
            // They take bytes and numbers from buffers and registers that may have changed since, or what they gave is
            // not kept.
            Micro::Write { .. }
            | Micro::Truncate { .. }
            | Micro::SetAttr { .. }
            | Micro::CopyRange { .. }
            | Micro::Scan { .. }
            | Micro::Read { .. } => Ok(false),
            // What touches neither files nor names has been done.
            _ => Ok(true),
        }
    }
}

/// Whether a read of `len` bytes from `off` gives exactly `was`.
async fn holds<T: Target>(
    t: &mut T,
    file: T::File,
    (off, len): (u64, u64),
    was: &[u8],
    piece: &mut Piece,
) -> Result<bool, Errno> {
    let mut done = 0;
    loop {
        let part = piece.room(len - done);
        let n = t.read(file, off + done, part.len() as u64, Sink::Private(part), None).await?;
        let (start, end) = (done as usize, (done + n) as usize);
        if was.get(start..end) != part.get(..n as usize) {
            return Ok(false);
        }
        done += n;
        if n < part.len() as u64 || done >= len {
            return Ok(done == was.len() as u64);
        }
    }
}
