//! Moving and summing up bytes, and the bounded primitives: what is long goes in pieces of 64 KiB through one piece of
//! private memory, and a command may make way for others between two of them.

use super::PIECE_BYTES;
use super::machine::Machine;
use super::micro::Micro;
use super::operand::{Int, Record, SumKind, Value, Width};
use super::scan_end;
use crate::Errno;
use crate::command::At;
use crate::decode::span;
use crate::limits::{PROGRAM_READ_MAX, RECORD_HEAD_MAX, SCAN_RECORDS_MAX};
use crate::target::{Sink, Source, Target, Written};
use weldfs_functions::checksum::{Kind, mask};
use weldfs_functions::{Checksum, ChecksumState};

/// Private memory for a piece, taken when it is first needed.
#[derive(Default)]
pub(super) struct Piece(Vec<u8>);

impl Piece {
    /// Room for `n` bytes, or for a piece if that is less.
    pub fn room(&mut self, n: u64) -> &mut [u8] {
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
pub(super) enum Sum {
    /// CRC-32C, which targets fold in as they move bytes; perhaps masked at the end.
    Castagnoli(ChecksumState, Kind),
    /// Any other.
    Other(Checksum),
}

impl Sum {
    pub fn new(kind: SumKind) -> Sum {
        match kind {
            SumKind::Crc32c => Sum::Castagnoli(ChecksumState::new(), Kind::Crc32c),
            SumKind::Crc32cMasked => Sum::Castagnoli(ChecksumState::new(), Kind::Crc32cMasked),
            SumKind::Crc32 => Sum::Other(Checksum::new(Kind::Crc32)),
        }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Sum::Castagnoli(state, _) => state.update(bytes),
            Sum::Other(state) => state.update(bytes),
        }
    }

    /// The state that a target folds bytes in as it moves them, if it can: it knows CRC-32C only.
    pub fn in_passing(&mut self) -> Option<&mut ChecksumState> {
        match self {
            Sum::Castagnoli(state, _) => Some(state),
            Sum::Other(_) => None,
        }
    }

    /// A CRC-32C as a checksum of that kind; of no other than that and the masked one.
    pub fn of_crc(kind: SumKind, crc: u32) -> u64 {
        if kind == SumKind::Crc32cMasked { mask(crc).into() } else { crc.into() }
    }

    pub fn value(&self) -> u64 {
        match self {
            Sum::Castagnoli(state, Kind::Crc32cMasked) => mask(state.value()).into(),
            Sum::Castagnoli(state, _) => state.value().into(),
            Sum::Other(state) => state.value().into(),
        }
    }
}

type Done<T> = Result<T, Errno>;

/// Reads into `sink`, and folds what goes there into `sum`; as micro-op `index` it makes way between two pieces.
pub(super) async fn read_summed<T: Target>(
    (sum, index): (&mut Sum, usize),
    t: &mut T,
    file: T::File,
    (off, len): (u64, u64),
    mut sink: Sink<'_>,
    piece: &mut Piece,
) -> Done<u64> {
    let mut done = 0;
    loop {
        let asked = (len - done).min(PIECE_BYTES as u64);
        let n = if let Some(state) = sum.in_passing() {
            t.read(file, off + done, asked, sink.part(done as usize, asked as usize), Some(state)).await?
        } else {
            let part = piece.room(asked);
            let n = t.read(file, off + done, asked, Sink::Private(part), None).await?;
            sum.update(&part[..n as usize]);
            sink.put(done as usize, &part[..n as usize]);
            n
        };
        done += n;
        if n < asked || done >= len {
            return Ok(done);
        }
        t.boundary(index as u16).await?;
    }
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
    // Only a private copy can be summed up and be sure to be what is stored. Nothing comes between the pieces.
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
        if len == 0 {
            // Nothing to copy is an answer for files only: a directory is EISDIR here, too.
            t.read(source.file, off, 0, Sink::Private(&mut []), None).await?;
        }
        if t.same_file(source.file, target.file) {
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
                t.boundary(self.index as u16).await?;
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

    pub(super) async fn scan<T: Target<File = F>>(&mut self, m: &Micro, t: &mut T) -> Done<()> {
        let Micro::Scan { file, off, len, record, offsets, count, end, why } = *m else { return Err(Errno::INVAL) };
        let (file, off, len) = (self.slot(file)?.file, self.value(off)?, self.value(len)?);
        if len > PROGRAM_READ_MAX {
            return Err(Errno::TOOBIG);
        }
        span(off, len)?;
        let limit = t.size(file).await?.min(off + len);
        let out = offsets.map(|p| self.pool.slice(self.program.range(p))).transpose()?;
        let room = out.as_ref().map_or(SCAN_RECORDS_MAX, |out| (out.len() as u64 / 8).min(SCAN_RECORDS_MAX));
        let mut piece = std::mem::take(&mut self.piece);
        let mut window = Window { piece: &mut piece, from: 0, len: 0, limit, ahead: WINDOW_ALIGN };
        let (mut at, mut good, mut since) = (off, 0, off);
        let ended = loop {
            if at >= limit {
                break scan_end::CLEAN;
            }
            if at - since >= PIECE_BYTES as u64 || good % 16 == 15 {
                since = at;
                t.boundary(self.index as u16).await?;
            }
            let next = match look((&record, self.index), t, file, at, &mut window).await? {
                Seen::Good(_) if good == room => break scan_end::FULL,
                Seen::Good(next) => next,
                Seen::End(why) => break why,
            };
            if let Some(out) = out.as_ref().filter(|_| !self.rehearsal) {
                out.sub(good as usize * 8, 8).copy_from(&at.to_le_bytes());
            }
            (at, good) = (next, good + 1);
        };
        self.piece = piece;
        self.set(count, good)?;
        self.set(end, at)?;
        self.set(why, ended)
    }
}

/// The part of a file that a scan is at, read once: what lies in small pieces would otherwise be verified as often as
/// it has pieces. The scan holds the file, so nothing of it changes meanwhile.
struct Window<'p> {
    piece: &'p mut Piece,
    /// Where in the file it begins, and its bytes.
    from: u64,
    len: usize,
    /// The scan reads nothing from here on.
    limit: u64,
    /// Bytes of the next one, at least: a log may be over soon, so it grows. 0: what lies ahead cannot be read, and
    /// nothing is read any more that is not wanted.
    ahead: u64,
}

/// Windows begin at multiples of it: whole blocks are read once.
const WINDOW_ALIGN: u64 = 4096;

impl Window<'_> {
    /// The bytes from `at` on, at most `n` of them, below the limit: at least one, or none where the file has been cut
    /// meanwhile (a host's file can be).
    async fn some<T: Target>(&mut self, t: &mut T, file: T::File, at: u64, n: u64) -> Done<&[u8]> {
        if at < self.from || at >= self.from + self.len as u64 {
            self.load(t, file, at, n).await?;
        }
        let skip = (at - self.from) as usize;
        let got = (self.len.saturating_sub(skip) as u64).min(n) as usize;
        Ok(if got == 0 { &[] } else { &self.piece.room((skip + got) as u64)[skip..] })
    }

    async fn load<T: Target>(&mut self, t: &mut T, file: T::File, at: u64, n: u64) -> Done<()> {
        (self.from, self.len) = (at - at % WINDOW_ALIGN, 0);
        loop {
            let end = (at + n).max(self.from + self.ahead).min(self.limit);
            let room = self.piece.room(end - self.from);
            match t.read(file, self.from, room.len() as u64, Sink::Private(room), None).await {
                Ok(n) => {
                    (self.len, self.ahead) = (n as usize, (2 * self.ahead).min(PIECE_BYTES as u64));
                    return Ok(());
                }
                Err(e) if self.ahead == 0 => return Err(e),
                Err(_) => self.ahead = 0,
            }
        }
    }

    /// Fills `out` with the bytes from `at` on; false when there are not as many.
    async fn fill<T: Target>(&mut self, t: &mut T, file: T::File, mut at: u64, mut out: &mut [u8]) -> Done<bool> {
        while !out.is_empty() {
            let part = self.some(t, file, at, out.len() as u64).await?;
            if part.is_empty() {
                return Ok(false);
            }
            let (front, rest) = out.split_at_mut(part.len());
            front.copy_from_slice(part);
            (at, out) = (at + front.len() as u64, rest);
        }
        Ok(true)
    }
}

/// What a scan finds at an offset.
enum Seen {
    /// A good record; the next one begins there.
    Good(u64),
    /// None, and why.
    End(u64),
}

async fn look<T: Target>(
    (record, index): (&Record, usize),
    t: &mut T,
    file: T::File,
    at: u64,
    window: &mut Window<'_>,
) -> Done<Seen> {
    let mut head = [0; RECORD_HEAD_MAX];
    let head = head.get_mut(..usize::from(record.head)).ok_or(Errno::INVAL)?;
    let (n, limit) = (head.len() as u64, window.limit);
    let behind = if record.sum_at.is_none() { 4 } else { 0 };
    if n + behind > limit - at {
        return Ok(Seen::End(scan_end::CUT));
    }
    if !window.fill(t, file, at, head).await? {
        return Ok(Seen::End(scan_end::CUT));
    }
    if head.iter().all(|b| *b == 0) {
        return Ok(Seen::End(scan_end::BLANK));
    }
    let len = record.len.get(head.get(usize::from(record.len_at)..).ok_or(Errno::INVAL)?);
    if len > limit - at - n - behind {
        return Ok(Seen::End(scan_end::CUT));
    }
    let mut sum = Sum::new(record.sum);
    sum.update(head.get(usize::from(record.covers)..).ok_or(Errno::INVAL)?);
    let mut done = 0;
    while done < len {
        if done > 0 {
            t.boundary(index as u16).await?;
        }
        let part = window.some(t, file, at + n + done, len - done).await?;
        if part.is_empty() {
            return Ok(Seen::End(scan_end::CUT));
        }
        sum.update(part);
        done += part.len() as u64;
    }
    let int = Int { width: Width::W4, order: record.sum_order };
    let stored = match record.sum_at {
        Some(at) => int.get(head.get(usize::from(at)..).ok_or(Errno::INVAL)?),
        None => {
            let mut trailer = [0; 4];
            if !window.fill(t, file, at + n + len, &mut trailer).await? {
                return Ok(Seen::End(scan_end::CUT));
            }
            int.get(&trailer)
        }
    };
    Ok(if sum.value() == stored { Seen::Good(at + n + len + behind) } else { Seen::End(scan_end::DAMAGED) })
}
