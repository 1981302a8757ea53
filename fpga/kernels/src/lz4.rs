//! lz4: LZ4 frames, compressed or decompressed.
//!
//! Of this project: the compression stage of fused commands. EISC (ICCAD'19) has Gzip in its place. The format is the
//! LZ4 frame format 1.6.
//!
//! * **Parameters.** Word 0: 0 compresses, 1 decompresses. Compressing may have two words more, the low and the high
//!   half of the content's length: the frame announces it then, as the frames of the device's commands do, and is the
//!   same as theirs to the last bit. Anything else is `Fault::Params`.
//! * **Input.** Any bytes; or one or more frames, with blocks of up to 4 MiB that may depend on each other. Skippable
//!   frames, dictionaries and the legacy format are not taken.
//! * **Output.** One frame with independent blocks of 64 KiB and the checksum of the content; or the content of the
//!   frames, one after the other.
//! * **Tails.** An empty packet compresses to a frame without blocks. Blocks do not depend on how the packet is cut.
//! * **Errors.** `Fault::Data`: other content than was announced; no frame, a cut or damaged one, bytes after the last.
//!   Of a frame whose damage shows late, blocks before it may have been put out.
//! * **Peek.** None.
//! * **Cycles.** 8 per flit: eight engines that take a byte in a cycle each. No RTL comes with it.

use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use std::io::{BufRead, Read, Write};
use weldfs_fpga::kernel::{Fault, Stream};

#[derive(Default)]
pub struct Lz4 {
    decompresses: bool,
    /// What the content's length is to be.
    announced: Option<u64>,
    /// Bytes of content that have come.
    content: u64,
    encoder: Option<FrameEncoder<Vec<u8>>>,
    frames: Frames,
}

impl Lz4 {
    fn encoder(&mut self) -> &mut FrameEncoder<Vec<u8>> {
        let announced = self.announced;
        self.encoder.get_or_insert_with(|| {
            let info = FrameInfo::new()
                .block_size(BlockSize::Max64KB)
                .block_mode(BlockMode::Independent)
                .content_size(announced)
                .content_checksum(true);
            FrameEncoder::with_frame_info(info, Vec::new())
        })
    }
}

impl Stream for Lz4 {
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
        *self = Lz4::default();
        match params {
            [0] => {}
            [1] => self.decompresses = true,
            [0, low, high] => self.announced = Some(u64::from(*low) | u64::from(*high) << 32),
            _ => return Err(Fault::Params("lz4 takes 0, 0 and the content's length in two words, or 1".into())),
        }
        Ok(())
    }

    fn chunk(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        if self.decompresses {
            return self.frames.chunk(input, out);
        }
        self.content += input.len() as u64;
        if self.announced.is_some_and(|n| self.content > n) {
            return Err(Fault::Data("more content than was announced".into()));
        }
        let encoder = self.encoder();
        encoder.write_all(input).map_err(bad)?;
        out.append(encoder.get_mut());
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
        if self.decompresses {
            return std::mem::take(&mut self.frames).finish();
        }
        self.encoder().try_finish().map_err(bad)?;
        out.append(self.encoder().get_mut());
        (self.encoder, self.content) = (None, 0);
        Ok(())
    }
}

fn bad(why: impl std::fmt::Display) -> Fault {
    Fault::Data(why.to_string())
}

/// The first word of a frame.
const MAGIC: [u8; 4] = 0x184d_2204u32.to_le_bytes();
/// Bits of the frame's flags (LZ4 frame format, "Frame Descriptor").
const BLOCK_CHECKSUMS: u8 = 1 << 4;
const CONTENT_SIZE: u8 = 1 << 3;
const CONTENT_CHECKSUM: u8 = 1 << 2;
const DICTIONARY: u8 = 1;
/// A block's length, without the bit that says that it is stored as it is.
const LENGTH_MASK: u32 = !(1 << 31);
const BLOCK_MAX: usize = 4 << 20;

/// Frames that come in pieces. The decoder pulls, and loses what it has read of a block that is not whole: it is called
/// when a block is.
#[derive(Default)]
struct Frames {
    decoder: Option<FrameDecoder<Pending>>,
    /// The flags of the frame that the next byte belongs to.
    within: Option<u8>,
    /// Frames that have ended.
    ended: u64,
}

/// What has come and is not decoded yet.
#[derive(Default)]
struct Pending {
    bytes: Vec<u8>,
    at: usize,
}

impl Read for Pending {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let rest = &self.bytes[self.at..];
        let n = rest.len().min(into.len());
        into[..n].copy_from_slice(&rest[..n]);
        self.at += n;
        Ok(n)
    }
}

/// The bytes up to the end of the next block, as far as `have` says how many: with the header if a frame begins; and
/// the flags of the frame, unless that is its end.
struct Unit {
    len: usize,
    /// `len` is the whole, not only what it takes to learn more.
    known: bool,
    flags: Option<u8>,
}

impl Unit {
    fn of(have: &[u8], within: Option<u8>) -> Result<Unit, Fault> {
        let more = |len| Ok(Unit { len, known: false, flags: within });
        let (head, flags) = match (within, have) {
            (Some(flags), _) => (0, flags),
            (None, [_, _, _, _, flags, ..]) => {
                let optional = [(CONTENT_SIZE, 8), (DICTIONARY, 4)].iter().filter(|(bit, _)| flags & bit != 0);
                (7 + optional.map(|(_, n)| n).sum::<usize>(), *flags)
            }
            _ => return more(5),
        };
        if within.is_none() && !have.starts_with(&MAGIC) {
            return Err(Fault::Data("not the start of an LZ4 frame".into()));
        }
        let Some(length) = have.get(head..).and_then(|rest| rest.first_chunk::<4>()) else { return more(head + 4) };
        let length = u32::from_le_bytes(*length);
        let (body, checksum) =
            ((length & LENGTH_MASK) as usize, if length == 0 { CONTENT_CHECKSUM } else { BLOCK_CHECKSUMS });
        if body > BLOCK_MAX {
            return Err(Fault::Data(format!("a block of {body} bytes")));
        }
        let len = head + 4 + body + if flags & checksum != 0 { 4 } else { 0 };
        Ok(Unit { len, known: true, flags: (length != 0).then_some(flags) })
    }
}

impl Frames {
    fn chunk(&mut self, mut input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        loop {
            let decoder = self.decoder.get_or_insert_with(|| FrameDecoder::new(Pending::default()));
            let pending = decoder.get_mut();
            let unit = Unit::of(&pending.bytes, self.within)?;
            let n = unit.len.saturating_sub(pending.bytes.len()).min(input.len());
            pending.bytes.extend_from_slice(&input[..n]);
            input = &input[n..];
            if pending.bytes.len() < unit.len {
                return Ok(());
            }
            if !unit.known {
                continue;
            }
            let made = decoder.fill_buf().map_err(bad)?;
            let len = made.len();
            out.extend_from_slice(made);
            decoder.consume(len);
            let pending = decoder.get_mut();
            if pending.at != pending.bytes.len() {
                return Err(Fault::Data("a block that ends before its end".into()));
            }
            (pending.at, self.within) = (0, unit.flags);
            pending.bytes.clear();
            if unit.flags.is_none() {
                // The next frame gets a decoder of its own: one made for blocks of another length does not fit.
                (self.decoder, self.ended) = (None, self.ended + 1);
            }
        }
    }

    fn finish(self) -> Result<(), Fault> {
        let pending = self.decoder.is_some_and(|mut d| !d.get_mut().bytes.is_empty());
        match (self.ended, self.within.is_some() || pending) {
            (0, false) => Err(Fault::Data("no LZ4 frame".into())),
            (_, true) => Err(Fault::Data("the last LZ4 frame lacks its end".into())),
            _ => Ok(()),
        }
    }
}
