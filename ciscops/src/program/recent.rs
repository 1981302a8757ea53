//! Programs that came lately. A client sends the same ones again and again, with other places in the pool and nothing
//! else changed: such a one was decoded and verified before, and only its ranges are looked at.

use super::body::{RANGE_BYTES, decoded_range, ranges_at};
use super::{Program, verify};
use crate::limits::PROGRAM_BODY_MAX;
use crate::{Errno, PoolRange, SharedRegion};

/// Programs that are kept, and bytes of the body of one, at most: some 12 KiB for whoever keeps them.
const KEPT_MAX: usize = 4;
const BODY_MAX: usize = 1024;

/// The body that a program was decoded from; empty of one that is not kept.
pub struct Said(Box<[u8]>);

/// The programs that came last.
#[derive(Default)]
pub struct Recent {
    /// The one that came last is the last one.
    kept: Vec<(Box<Program>, Said)>,
    private: Vec<u8>,
}

impl Recent {
    /// Copies a body out of the pool, once, and believes it or not, as [`Program::fetch`] does. What it gives is given
    /// back with [`Recent::keep`], or it is no longer among those that are known.
    ///
    /// # Errors
    /// Those of [`Program::fetch`].
    pub fn fetch(&mut self, body: PoolRange, pool: &SharedRegion) -> Result<(Box<Program>, Said), Errno> {
        let bytes = pool.slice(body)?;
        if bytes.len() > PROGRAM_BODY_MAX as usize {
            return Err(Errno::TOOBIG);
        }
        self.private.resize(bytes.len(), 0);
        bytes.copy_to(&mut self.private);
        let own = &self.private;
        let Some(known) = self.kept.iter().rposition(|(program, said)| program.is_said_by(&said.0, own)) else {
            let said = if own.len() <= BODY_MAX { own.as_slice().into() } else { Box::default() };
            return Ok((Program::boxed(own, pool.len() as u32)?, Said(said)));
        };
        let (mut program, said) = self.kept.remove(known);
        program.put_ranges(own, pool.len() as u32)?;
        Ok((program, said))
    }

    /// Keeps a program with the body that it came with.
    pub fn keep(&mut self, program: Box<Program>, said: Said) {
        if said.0.is_empty() {
            return;
        }
        if self.kept.len() == KEPT_MAX {
            self.kept.remove(0);
        }
        self.kept.push((program, said));
    }
}

impl Program {
    /// Where the table of ranges lies in its body.
    fn ranges_in_body(&self) -> core::ops::Range<usize> {
        let at = ranges_at(self.micros.len());
        at..at + self.ranges.len() * RANGE_BYTES
    }

    /// Whether `body` says what `said` says, of which this program was decoded, but for where the pool's ranges begin.
    /// The header has all counts, so both have the same layout then.
    fn is_said_by(&self, said: &[u8], body: &[u8]) -> bool {
        let table = self.ranges_in_body();
        let same = |(a, b)| decoded_range(a).len == decoded_range(b).len;
        said.len() == body.len()
            && said[..table.start] == body[..table.start]
            && said[table.end..] == body[table.end..]
            && said[table.clone()].chunks_exact(RANGE_BYTES).zip(body[table].chunks_exact(RANGE_BYTES)).all(same)
    }

    /// Takes the ranges of a body that says it. All that the verifier knows of a range beside its bounds is its length.
    fn put_ranges(&mut self, body: &[u8], pool_bytes: u32) -> Result<(), Errno> {
        let table = self.ranges_in_body();
        for (range, bytes) in self.ranges.iter_mut().zip(body[table].chunks_exact(RANGE_BYTES)) {
            *range = decoded_range(bytes);
            verify::check_range(*range, pool_bytes).map_err(|(errno, _)| errno)?;
        }
        Ok(())
    }
}
