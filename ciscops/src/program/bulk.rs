//! Moving and summing up bytes, and the bounded primitives: what is long goes in pieces of 64 KiB through one piece of
//! private memory, and a command may make way for others between two of them.

use super::PIECE_BYTES;
use super::machine::Machine;
use super::micro::{Micro, SumKind, Value};
use crate::Errno;
use crate::command::At;
use crate::decode::span;
use crate::target::{Sink, Source, Target, Written};
use weldfs_functions::ChecksumState;

/// Private memory for a piece, taken when it is first needed.
#[derive(Default)]
pub(super) struct Piece(Vec<u8>);

impl Piece {
    /// Room for `n` bytes, or for a piece if that is less.
    fn room(&mut self, n: u64) -> &mut [u8] {
        let n = n.min(PIECE_BYTES as u64) as usize;
        if self.0.len() < n {
            self.0.reserve_exact(n - self.0.len());
            self.0.resize(n, 0);
        }
        &mut self.0[..n]
    }

    /// Shows `each` all bytes of a source in order, copied once, with where in the source they begin.
    pub fn each(&mut self, src: &Source<'_>, mut each: impl FnMut(usize, &[u8])) {
        if let Source::Private(bytes) = src {
            return each(0, bytes);
        }
        let mut done = 0;
        while done < src.len() {
            let part = self.room((src.len() - done) as u64);
            src.copy_to(done, part);
            each(done, part);
            done += part.len();
        }
    }

    /// Whether a source is these bytes.
    pub fn equal(&mut self, src: &Source<'_>, bytes: &[u8]) -> bool {
        let mut same = src.len() == bytes.len();
        if same {
            self.each(src, |at, part| same &= bytes[at..at + part.len()] == *part);
        }
        same
    }
}

/// A checksum being computed.
pub(super) struct Sum {
    kind: SumKind,
    state: ChecksumState,
}

impl Sum {
    pub fn new(kind: SumKind) -> Sum {
        Sum { kind, state: ChecksumState::new() }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.state.update(bytes);
    }

    /// The state that a target folds bytes in as it moves them, if it can: it knows CRC-32C only.
    pub fn in_passing(&mut self) -> Option<&mut ChecksumState> {
        Some(&mut self.state)
    }

    pub fn value(&self) -> u64 {
        let crc = self.state.value();
        match self.kind {
            SumKind::Crc32cMasked => crc.rotate_right(15).wrapping_add(0xa282_ead8).into(),
            _ => crc.into(),
        }
    }
}

type Done<T> = Result<T, Errno>;

/// Reads into `sink`, and folds what goes there into `sum`.
pub(super) async fn read_summed<T: Target>(
    sum: &mut Option<Sum>,
    t: &mut T,
    file: T::File,
    (off, len): (u64, u64),
    mut sink: Sink<'_>,
    piece: &mut Piece,
) -> Done<u64> {
    let Some(sum) = sum else { return t.read(file, off, len, sink, None).await };
    if let Some(state) = sum.in_passing() {
        return t.read(file, off, len, sink, Some(state)).await;
    }
    let mut done = 0;
    while done < len {
        let part = piece.room(len - done);
        let asked = part.len();
        let n = t.read(file, off + done, asked as u64, Sink::Private(part), None).await? as usize;
        sum.update(&part[..n]);
        sink.put(done as usize, &part[..n]);
        done += n as u64;
        if n < asked {
            break;
        }
    }
    Ok(done)
}

/// Writes all of `src`, and folds what is stored into `sum`.
pub(super) async fn write_summed<T: Target>(
    sum: &mut Option<Sum>,
    t: &mut T,
    file: T::File,
    at: At,
    src: Source<'_>,
    piece: &mut Piece,
) -> Done<Written> {
    let Some(sum) = sum else { return t.write(file, at, src, None).await };
    if let Some(state) = sum.in_passing() {
        return t.write(file, at, src, Some(state)).await;
    }
    // Only a private copy can be summed up and be sure to be what is stored. Nobody comes between the pieces.
    let mut whole: Option<Written> = None;
    loop {
        let done = whole.map_or(0, |w| w.len);
        let part = piece.room(src.len() as u64 - done);
        src.copy_to(done as usize, part);
        sum.update(part);
        let at = whole.map_or(at, |w| At::Offset(w.off + done));
        let w = t.write(file, at, Source::Private(part), None).await?;
        let first = whole.map_or(w.off, |first| first.off);
        let len = done + w.len;
        whole = Some(Written { off: first, len });
        if len >= src.len() as u64 {
            return Ok(Written { off: first, len });
        }
    }
}

impl<F: Copy> Machine<'_, F> {
    pub(super) async fn copy_range<T: Target<File = F>>(&mut self, m: &Micro, t: &mut T) -> Done<()> {
        let Micro::CopyRange { from, off, len, max, to, place, count } = *m else { return Err(Errno::INVAL) };
        let (source, target) = (self.slot(from)?, self.slot(to)?);
        let (off, asked) = (self.value(off)?, self.value(len)?);
        if matches!(len, Value::Reg(_)) && asked > max.into() {
            return Err(Errno::TOOBIG);
        }
        span(off, asked)?;
        let len = asked.min(t.size(source.file).await?.saturating_sub(off));
        let at = self.place(&target, place, len)?;
        let number = t.number(source.file);
        if number != 0 && number == t.number(target.file) {
            let start = if let At::Offset(start) = at { start } else { t.size(target.file).await? };
            if start < off + len && off < start + len {
                return Err(Errno::INVAL);
            }
        }
        let mut whole: Option<Written> = None;
        let mut piece = std::mem::take(&mut self.piece);
        let copied = loop {
            let done = whole.map_or(0, |w| w.len);
            if done >= len {
                break Ok(whole);
            }
            if done > 0 {
                t.boundary(self.index as u16).await;
            }
            let part = piece.room(len - done);
            let n = match t.read(source.file, off + done, part.len() as u64, Sink::Private(part), None).await {
                Ok(0) => break Ok(whole),
                Ok(n) => n as usize,
                Err(e) => break Err(e),
            };
            let at = whole.map_or(at, |w| At::Offset(w.off + done));
            match t.write(target.file, at, Source::Private(&part[..n]), None).await {
                Ok(w) => whole = Some(Written { off: whole.map_or(w.off, |first| first.off), len: done + w.len }),
                Err(e) => break Err(e),
            }
        };
        self.piece = piece;
        let copied = match (copied?, at) {
            (Some(w), _) => w,
            (None, At::Offset(off)) => Written { off, len: 0 },
            (None, _) => Written { off: t.size(target.file).await?, len: 0 },
        };
        self.wrote(to, copied.off + copied.len)?;
        self.set(count, copied.len)
    }
}
