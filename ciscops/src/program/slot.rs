//! Stages of programs that run in FPGA slots: kernels that a program names, and, where the command is placed there,
//! its checksums and codecs. What a kernel does is not known here: it is named, and the Target runs it.

use super::Program;
use super::bulk::Sum;
use super::machine::Machine;
use super::micro::Micro;
use super::operand::{BufSlot, Bytes, Codec, Str, SumKind, Transform, Value};
use crate::command::Placement;
use crate::functions::crc32c_append;
use crate::limits::ATOMIC_WRITE_MAX;
use crate::target::{Kernel, Quiet, Sink, Source, Target, Written};
use crate::{At, Errno};

/// The kernel that sums up: parameter is the checksum to go on from, output are four bytes, little-endian.
pub const CRC32C: &[u8] = b"crc32c";
/// The kernel that compresses (parameters 0 and the content's length in two words) and decompresses (1) LZ4 frames.
const LZ4: &[u8] = b"lz4";

/// Bytes that are read, and summed up in a slot, at a time.
const PIECE_MAX: u64 = ATOMIC_WRITE_MAX as u64;

/// A CRC-32C as the kernel gives it.
pub(crate) fn crc_of(output: &[u8]) -> Result<u32, Errno> {
    output.try_into().map(u32::from_le_bytes).map_err(|_| Errno::IO)
}

impl Program {
    /// The first micro-op that computes what no kernel computes: the command cannot be placed in a slot, unless a core
    /// may do that.
    pub fn without_slot_form(&self) -> Option<usize> {
        self.micros.iter().position(lacks_slot_form)
    }

    /// Whether one of its micro-ops names a kernel.
    pub fn names_kernel(&self) -> bool {
        self.micros.iter().any(|m| matches!(m, Micro::Kernel { .. }))
    }

    /// Bytes that its stages may hold beside its buffers on their way to a slot, if the command is placed in one.
    pub fn slot_bytes(&self) -> u64 {
        let bytes = |m: &Micro| match *m {
            Micro::Read { len, fold: Some(_), .. } => match len {
                Value::Imm(len) => 2 * len.min(PIECE_MAX),
                Value::Reg(_) => 2 * PIECE_MAX,
            },
            Micro::Write { from, fold: Some(_), .. } | Micro::Checksum { of: from, .. } => {
                2 * super::verify::len_bound(self, from)
            }
            Micro::Transform { from, .. } => self.capacity(from).into(),
            _ => 0,
        };
        self.micros.iter().map(bytes).max().unwrap_or(0)
    }
}

/// Whether it computes what no kernel computes.
fn lacks_slot_form(m: &Micro) -> bool {
    match *m {
        Micro::Read { fold, .. } | Micro::Write { fold, .. } => fold.is_some_and(|f| f.kind == SumKind::Crc32),
        Micro::Checksum { kind, .. } => kind == SumKind::Crc32,
        Micro::Scan { .. } => true,
        Micro::Transform { how, .. } => {
            !matches!(how, Transform::Compress(Codec::Lz4) | Transform::Decompress(Codec::Lz4))
        }
        _ => false,
    }
}

/// A write whose bytes are taken and summed up: what is left of it when the program goes on.
pub(super) struct Summed {
    pub index: usize,
    bytes: Vec<u8>,
    sum: u64,
}

impl<F: Copy> Machine<'_, F> {
    /// Whether what a micro-op computes is to be computed in a slot.
    pub(super) fn in_slot<T: Target<File = F>>(&self, m: &Micro, t: &mut T) -> bool {
        let placed = matches!(self.placement, Placement::Slot { .. });
        let lacks = placed && lacks_slot_form(m);
        if lacks {
            // Only where a core may: the command was refused otherwise.
            t.fell_back();
        }
        placed && !lacks
    }

    fn or_core(&self) -> bool {
        self.placement == Placement::Slot { or_core: true }
    }

    async fn crc_in_slot<T: Target<File = F>>(&self, from: u32, bytes: Vec<u8>, t: &mut T) -> Result<u32, Errno> {
        t.quiet(Quiet::Computes);
        let kernel = Kernel { name: CRC32C, params: &[from], or_core: self.or_core() };
        let spare = self.or_core().then(|| bytes.clone());
        match (t.kernel(kernel, bytes, 4).await, spare) {
            (Ok(sum), _) if sum.len() == 4 => crc_of(&sum),
            // What makes anything else of them is as good as lost.
            (Ok(_) | Err(Errno::TOOBIG), Some(bytes)) => {
                t.fell_back();
                Ok(crc32c_append(from, &bytes))
            }
            (Ok(_) | Err(Errno::TOOBIG), None) => Err(Errno::IO),
            (Err(errno), _) => Err(errno),
        }
    }

    /// Reads into `sink`, and sums up in a slot what goes there: how many bytes, and their checksum.
    pub(super) async fn read_in_slot<T: Target<File = F>>(
        &mut self,
        kind: SumKind,
        t: &mut T,
        file: F,
        (off, len): (u64, u64),
        mut sink: Sink<'_>,
    ) -> Result<(u64, u64), Errno> {
        let (mut done, mut crc) = (0, 0);
        loop {
            let asked = (len - done).min(PIECE_MAX);
            let mut part = vec![0; asked as usize];
            let n = t.read(file, off + done, asked, Sink::Private(&mut part), None).await?;
            part.truncate(n as usize);
            sink.put(done as usize, &part);
            crc = self.crc_in_slot(crc, part, t).await?;
            done += n;
            if n < asked || done >= len {
                return Ok((done, Sum::of_crc(kind, crc)));
            }
            t.boundary(self.index as u16).await?;
        }
    }

    /// The checksum of bytes in memory.
    pub(super) async fn sum_in_slot<T: Target<File = F>>(
        &mut self,
        kind: SumKind,
        of: Bytes,
        t: &mut T,
    ) -> Result<u64, Errno> {
        let bytes = self.copy_of(of)?;
        self.crc_in_slot(0, bytes, t).await.map(|crc| Sum::of_crc(kind, crc))
    }

    fn copy_of(&self, of: Bytes) -> Result<Vec<u8>, Errno> {
        let mut int = [0; 8];
        let src = self.source(of, &mut int)?;
        let mut bytes = vec![0; src.len()];
        src.copy_to(0, &mut bytes);
        Ok(bytes)
    }

    /// Copies what a write stores, and has it summed up in a slot, before the file is touched: what is lent meanwhile
    /// may have changed, and the program starts over; but what was taken stands.
    pub(super) async fn take_in_slot<T: Target<File = F>>(
        &mut self,
        kind: SumKind,
        from: Bytes,
        t: &mut T,
    ) -> Result<(), Errno> {
        if self.summed.as_ref().is_some_and(|s| s.index == self.index) {
            return Ok(());
        }
        let bytes = self.copy_of(from)?;
        let crc = self.crc_in_slot(0, bytes.clone(), t).await?;
        self.summed = Some(Summed { index: self.index, bytes, sum: Sum::of_crc(kind, crc) });
        Ok(())
    }

    /// Bytes of what was taken.
    pub(super) fn taken_bytes(&self) -> u64 {
        self.summed.as_ref().map_or(0, |s| s.bytes.len() as u64)
    }

    /// Writes what was taken; gives its checksum.
    pub(super) async fn write_taken<T: Target<File = F>>(
        &mut self,
        t: &mut T,
        file: F,
        at: At,
        from: Bytes,
    ) -> Result<(Written, u64), Errno> {
        let Some(summed) = &self.summed else { return Err(Errno::INVAL) };
        let src = match from {
            Bytes::Pool(_) => Source::Taken(&summed.bytes),
            _ => Source::Private(&summed.bytes),
        };
        let written = t.write(file, at, src, None).await?;
        let sum = summed.sum;
        self.summed = None;
        Ok((written, sum))
    }

    /// Compresses into an LZ4 frame, or decompresses one, in a slot.
    pub(super) async fn transform_in_slot<T: Target<File = F>>(
        &mut self,
        (buf, from): (BufSlot, BufSlot),
        how: Transform,
        t: &mut T,
    ) -> Result<(), Errno> {
        // The content's length, which the frame announces as one of a core's does.
        let compress = [0, self.buffer(from)?.len() as u32, 0];
        let params = if how == Transform::Compress(Codec::Lz4) { &compress[..] } else { &[1] };
        let kernel = Kernel { name: LZ4, params, or_core: self.or_core() };
        self.run_kernel((buf, from), kernel, t).await
    }

    /// Runs the kernel that a micro-op names. A bit of `registers` says that the word of that number is the number of a
    /// register, whose low 32 bits are meant.
    pub(super) async fn kernel<T: Target<File = F>>(
        &mut self,
        buffers: (BufSlot, BufSlot),
        (name, params, registers): (Str, Str, u64),
        t: &mut T,
    ) -> Result<(), Errno> {
        let program = self.program;
        let words = program.string(params).chunks_exact(4).enumerate().map(|(i, word)| {
            let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            if i >= 64 || registers >> i & 1 == 0 {
                return Ok(word);
            }
            let register = usize::try_from(word).ok().and_then(|r| self.registers.get(r));
            register.map(|v| *v as u32).ok_or(Errno::INVAL)
        });
        let words: Vec<u32> = words.collect::<Result<_, Errno>>()?;
        let kernel = Kernel { name: program.string(name), params: &words, or_core: self.or_core() };
        self.run_kernel(buffers, kernel, t).await
    }

    async fn run_kernel<T: Target<File = F>>(
        &mut self,
        (buf, from): (BufSlot, BufSlot),
        kernel: Kernel<'_>,
        t: &mut T,
    ) -> Result<(), Errno> {
        t.quiet(Quiet::Computes);
        let (input, room) = (self.buffer(from)?.clone(), self.program.capacity(buf) as usize);
        let out = t.kernel(kernel, input, room).await?;
        if out.len() > room {
            return Err(Errno::IO);
        }
        self.put_buffer(buf, out)
    }
}
