//! A Zstandard frame (RFC 8878) being made, in short and even pieces.
//!
//! Left to itself, the library compresses a block of 128 KiB at once, when its last byte comes, and makes a context for
//! each frame: an allocation of a mebibyte, whose first touch takes as long as compressing 100 KiB. Here blocks end
//! every [`BLOCK_BYTES`] of content, wherever the pieces that come in end, and contexts are used again.

use crate::Error;
use std::sync::Mutex;
use zstd::zstd_safe::zstd_sys::ZSTD_EndDirective::{self, ZSTD_e_continue, ZSTD_e_end, ZSTD_e_flush};
use zstd::zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, ResetDirective};

/// The level that `zstd` uses when not told.
const LEVEL: i32 = 3;
/// Bytes of content in a block: some 0.1 ms of text. Frames of text are up to 2 % longer than with blocks of 128 KiB (a
/// test holds that).
const BLOCK_BYTES: usize = 16 << 10;
/// At most so many contexts rest until they are used again, of 1.2 to 4 MiB each.
const RESTING_MAX: usize = 4;

static RESTING: Mutex<Vec<CCtx<'static>>> = Mutex::new(Vec::new());

/// See the module.
pub struct Frame {
    /// `None` once it was given back.
    context: Option<CCtx<'static>>,
    out: Vec<u8>,
    limit: usize,
    /// Bytes that the block at the end has.
    in_block: usize,
}

impl Frame {
    /// Of exactly `len` bytes of content, and at most `limit` bytes in all.
    pub fn new(len: usize, limit: usize) -> Result<Frame, Error> {
        let resting = RESTING.lock().ok().and_then(|mut resting| resting.pop());
        let mut context = match resting {
            Some(context) => context,
            None => fresh()?,
        };
        context.set_pledged_src_size(Some(len as u64)).map_err(|_| Error::TooBig)?;
        let out = Vec::with_capacity(limit.min(super::Codec::Zstd.bound(len)));
        Ok(Frame { context: Some(context), out, limit, in_block: 0 })
    }

    /// The next bytes of the content.
    pub fn update(&mut self, mut chunk: &[u8]) -> Result<(), Error> {
        while !chunk.is_empty() {
            let (now, rest) = chunk.split_at(chunk.len().min(BLOCK_BYTES - self.in_block));
            self.in_block = (self.in_block + now.len()) % BLOCK_BYTES;
            self.run(now, if self.in_block == 0 { ZSTD_e_flush } else { ZSTD_e_continue })?;
            chunk = rest;
        }
        Ok(())
    }

    /// Ends the frame and gives it.
    pub fn finish(mut self) -> Result<Vec<u8>, Error> {
        self.run(&[], ZSTD_e_end)?;
        Ok(std::mem::take(&mut self.out))
    }

    fn run(&mut self, content: &[u8], then: ZSTD_EndDirective) -> Result<(), Error> {
        let Some(context) = &mut self.context else { return Err(Error::Invalid) };
        let mut input = InBuffer::around(content);
        loop {
            let at = self.out.len();
            let mut output = OutBuffer::around_pos(&mut self.out, at);
            let left = context.compress_stream2(&mut output, &mut input, then).map_err(|_| Error::TooBig)?;
            let written = output.pos();
            let over = input.pos() == content.len() && (left == 0 || then == ZSTD_e_continue);
            // What does not fit, though all of what a frame may take was made room for, is over the limit.
            let full = written > self.limit || (!over && written == self.out.capacity());
            match (full, over) {
                (true, _) => return Err(Error::TooBig),
                (false, true) => return Ok(()),
                (false, false) => (),
            }
        }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        let Some(mut context) = self.context.take() else { return };
        if context.reset(ResetDirective::SessionOnly).is_ok()
            && let Ok(mut resting) = RESTING.lock()
            && resting.len() < RESTING_MAX
        {
            resting.push(context);
        }
    }
}

fn fresh() -> Result<CCtx<'static>, Error> {
    let mut context = CCtx::try_create().ok_or(Error::TooBig)?;
    for parameter in
        [CParameter::CompressionLevel(LEVEL), CParameter::ChecksumFlag(true), CParameter::ContentSizeFlag(true)]
    {
        context.set_parameter(parameter).map_err(|_| Error::TooBig)?;
    }
    Ok(context)
}

/// Frees the contexts that rest: for a process that has had nothing to do for a while. Thread-safe.
pub fn give_back() {
    if let Ok(mut resting) = RESTING.lock() {
        resting.clear();
    }
}
