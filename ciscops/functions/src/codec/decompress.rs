//! Decompressing, piece by piece of output.

use super::{Codec, ZSTD_WINDOW_LOG_MAX};
use crate::Error;
use std::io::Read;

/// Decompression being done. The input is there whole; the output comes in pieces. Several frames one after the other
/// are one content, as for the command-line tools; no frame at all, a cut one, or bytes behind the last are
/// [`Error::Corrupt`] (snappy, which has no end mark: only a cut chunk is).
pub struct Decompressor<'a> {
    run: Run<'a>,
    /// Bytes that may still come out.
    room: usize,
}

/// How a frame begins.
const LZ4_FRAME: [u8; 4] = 0x184d_2204u32.to_le_bytes();
/// How a frame of the legacy format begins, whose blocks need more memory than a run may take.
const LZ4_LEGACY: [u8; 4] = 0x184c_2102u32.to_le_bytes();

enum Run<'a> {
    Lz4(Box<lz4_flex::frame::FrameDecoder<Input<'a>>>),
    Zstd(zstd::stream::read::Decoder<'static, &'a [u8]>),
    Snappy(Box<snap::read::FrameDecoder<&'a [u8]>>),
}

/// Input that notices when more is asked of it than it has.
struct Input<'a> {
    rest: &'a [u8],
    starved: bool,
}

impl Read for Input<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let (now, rest) = self.rest.split_at(into.len().min(self.rest.len()));
        into[..now.len()].copy_from_slice(now);
        self.starved |= now.len() < into.len();
        self.rest = rest;
        Ok(now.len())
    }
}

fn corrupt(_: std::io::Error) -> Error {
    Error::Corrupt
}

impl<'a> Decompressor<'a> {
    /// Begins with the whole `input`; at most `limit` bytes will come out.
    pub fn new(codec: Codec, input: &'a [u8], limit: usize) -> Result<Decompressor<'a>, Error> {
        if input.is_empty() {
            return Err(Error::Corrupt);
        }
        let run = match codec {
            Codec::Lz4 => Run::Lz4(Box::new(lz4_flex::frame::FrameDecoder::new(Input { rest: input, starved: false }))),
            Codec::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(input).map_err(corrupt)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(corrupt)?;
                Run::Zstd(decoder)
            }
            Codec::Snappy => Run::Snappy(Box::new(snap::read::FrameDecoder::new(input))),
        };
        Ok(Decompressor { run, room: limit })
    }

    /// Appends at most `piece` (not 0) bytes more to `out`; `false` when that was the end and all checks passed.
    pub fn step(&mut self, out: &mut Vec<u8>, piece: usize) -> Result<bool, Error> {
        if self.room == 0 {
            return match self.read(&mut [0])? {
                Some(0) => Ok(true),
                Some(_) => Err(Error::TooBig),
                None => Ok(false),
            };
        }
        let start = out.len();
        out.resize(start + piece.min(self.room), 0);
        let got = self.read(&mut out[start..]);
        let n = got.unwrap_or_default().unwrap_or(0);
        out.truncate(start + n);
        self.room -= n;
        Ok(got?.is_some())
    }

    /// Bytes read, which may be 0 before the end; `None` at the end.
    fn read(&mut self, into: &mut [u8]) -> Result<Option<usize>, Error> {
        match &mut self.run {
            Run::Lz4(run) => {
                // Between blocks this can only be the start of a frame, or a block longer than any may be.
                if run.get_ref().rest.starts_with(&LZ4_LEGACY) {
                    return Err(Error::Corrupt);
                }
                let n = run.read(into).map_err(corrupt)?;
                let input = run.get_ref();
                match n {
                    // A frame that lacks its end passes for one that has it; only its hunger tells.
                    0 if input.starved => Err(Error::Corrupt),
                    0 if input.rest.is_empty() => Ok(None),
                    // Another frame. It gets a decoder of its own: one that was made for blocks of another length takes
                    // what it has for a mistake of its own.
                    0 if input.rest.starts_with(&LZ4_FRAME) => {
                        let rest = Input { rest: input.rest, starved: false };
                        **run = lz4_flex::frame::FrameDecoder::new(rest);
                        Ok(Some(0))
                    }
                    // An empty block.
                    n => Ok(Some(n)),
                }
            }
            Run::Zstd(run) => run.read(into).map_err(corrupt).map(some_bytes),
            Run::Snappy(run) => run.read(into).map_err(corrupt).map(some_bytes),
        }
    }
}

fn some_bytes(n: usize) -> Option<usize> {
    (n > 0).then_some(n)
}
