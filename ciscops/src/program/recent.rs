//! Programs that came lately. A client sends the same few again and again, with other places in the pool, offsets or
//! names: of such a one only what differs is decoded, and it is verified again only where the verifier looks at that.

use super::body::{self, Layout};
use super::{Program, verify};
use crate::limits::PROGRAM_BODY_MAX;
use crate::{Errno, PoolRange, SharedRegion};

/// Programs that are kept, and bytes of the body of one, at most: some 16 KiB for each queue.
const KEPT_MAX: usize = 4;
const BODY_MAX: usize = 1024;
const _: () = assert!(BODY_MAX <= PROGRAM_BODY_MAX as usize);

/// The body that a program was decoded from; empty of one that is not kept.
#[derive(Default)]
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
        if body.len as usize > BODY_MAX {
            return Ok((Program::fetch(body, pool)?, Said::default()));
        }
        let bytes = pool.slice(body)?;
        self.private.resize(bytes.len(), 0);
        bytes.copy_to(&mut self.private);
        let (own, pool_bytes) = (&self.private, pool.len() as u32);
        if let Some(known) = self.kept.iter().rposition(|(_, said)| body::are_alike(&said.0, own)) {
            let (mut program, mut said) = self.kept.remove(known);
            if program.becomes(&said.0, own, pool_bytes).is_ok() {
                said.0.copy_from_slice(own);
                return Ok((program, said));
            }
            // What is wrong with it, the decoder says.
        }
        Ok((Program::boxed(own, pool_bytes)?, Said(own.as_slice().into())))
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
    /// Becomes what `body` says, from what `said` says, which it was decoded from and which is like it: each part of a
    /// program is decoded from its own bytes. Where that fails, it is no program any more.
    fn becomes(&mut self, said: &[u8], body: &[u8], pool_bytes: u32) -> Result<(), Errno> {
        let (before, now) = (Layout::of(said)?, Layout::of(body)?);
        let mut is_verified = true;
        for (index, (was, is)) in before.micros().zip(now.micros()).enumerate() {
            if was != is {
                self.micros[index] = body::micro(index, is)?;
                is_verified = false;
            }
        }
        for (range, bytes) in self.ranges.iter_mut().zip(now.ranges()) {
            let is = body::range(bytes);
            // Of a range the verifier looks at its bounds, here as there, and beside them at its length alone.
            verify::check_range(is, pool_bytes).map_err(|(errno, _)| errno)?;
            is_verified &= range.len == is.len;
            *range = is;
        }
        if before.tail() != now.tail() {
            for (string, bytes) in self.strings.iter_mut().zip(now.strings()) {
                *string = body::string(bytes, now.data().len())?;
            }
            self.data.copy_from_slice(now.data());
            is_verified = false;
        }
        if !is_verified {
            self.totals = verify::verify(self, pool_bytes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Builder, Bytes, Micro, Place, Value};
    use super::*;
    use crate::{Handle, OpenFlags};

    const POOL: u32 = 4096;

    /// A program that writes some of a pool range's bytes, and so many of `text`, into the file at a path.
    fn body(path: &[u8], text: &[u8], range: PoolRange) -> Vec<u8> {
        let mut b = Builder::new();
        let payload = b.pool(range.len);
        let file = b.open(Handle::ROOT, path, OpenFlags::WRITE, 0);
        let literal = b.literal(text);
        for from in [Bytes::Pool(payload), literal] {
            b.push(Micro::Write { file, place: Place::At(Value::Imm(0)), from, fold: None, at: None });
        }
        b.finish().unwrap().bind(&[range]).unwrap()
    }

    #[test]
    fn a_program_becomes_what_a_body_like_its_own_says() {
        let (near, far) = (PoolRange::new(0, 64), PoolRange::new(512, 64));
        let said = body(b"name", b"some", near);
        // The same length in all: what differs is where things lie, a name, and how the data is cut.
        let others = [body(b"name", b"some", far), body(b"mane", b"emos", near), body(b"n", b"longest", far)];
        for other in others {
            let mut program = Program::decode(&said, POOL).unwrap();
            assert_eq!(program.becomes(&said, &other, POOL), Ok(()));
            assert_eq!(program, Program::decode(&other, POOL).unwrap());
        }
        let outside = body(b"name", b"some", PoolRange::new(POOL - 63, 64));
        let mut empty = said.clone();
        let name = empty.windows(4).position(|b| b == b"name").unwrap();
        empty[name] = 0;
        for (wrong, errno) in [(outside, Errno::FAULT), (empty, Errno::INVAL)] {
            assert_eq!(Program::decode(&said, POOL).unwrap().becomes(&said, &wrong, POOL), Err(errno));
            assert_eq!(Program::decode(&wrong, POOL).map_err(Errno::from), Err(errno));
        }
    }
}
