//! Fused programs: any sequence of micro-ops as one command.
//!
//! A program travels as a *body* in the pool: a header, up to sixteen micro-ops of 32 bytes, a table of pool ranges,
//! a table of strings, and the strings. The device copies the body once into private memory, decodes it, and verifies
//! it as a whole before anything runs: [`Program`] is what passed. It is straight-line code with forward skips only, so
//! it ends; names and handles are constants of the body, offsets and lengths may come out of registers.
//! docs/COMMANDS.md is the specification.
//!
//! `wire` has micro-ops from and to their 32 bytes, `body` the rest of the layout, `verify` what a program must
//! satisfy; `build` makes bodies; `machine` and `bulk` run programs, `slot` what of them runs in FPGA slots; `kept` is
//! what one that is started over need not do again, `foresight` what is computed before one begins where nothing is
//! taken back; `recent` knows those that came before.

mod body;
mod build;
mod bulk;
mod foresight;
mod kept;
mod machine;
mod micro;
mod operand;
mod recent;
mod slot;
pub mod text;
mod transform;
mod verify;
mod wire;

pub use build::{Body, Builder};
pub(crate) use machine::run;
pub use micro::Micro;
pub use operand::{
    Arith, BufSlot, Bytes, Change, Codec, Cond, Else, FileSlot, Fold, Int, Order, Place, Pool, Record, Reg, Relation,
    Str, SumKind, To, Transform, Value, Width,
};
pub use recent::{Recent, Said};
pub use slot::CRC32C;
pub use verify::Fault;

use crate::limits::{self, MICRO_OPS_MAX, PROGRAM_BUFFERS};
use crate::{Errno, PoolRange, SharedRegion};
use smallvec::SmallVec;

/// Version of the body's layout.
pub const VERSION: u16 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 64;
/// Bytes of one micro-op.
pub const MICRO_BYTES: usize = 32;
/// Bytes that bounded primitives move at a time: between two pieces a command may make way for others.
pub const PIECE_BYTES: usize = 64 << 10;

/// Why a scan ended.
pub mod scan_end {
    /// At the end of the file, or of what was to be looked at, exactly behind a record.
    pub const CLEAN: u64 = 0;
    /// At a record that goes on behind that end.
    pub const CUT: u64 = 1;
    /// At a record with another checksum.
    pub const DAMAGED: u64 = 2;
    /// There is no room for its offset, or it is one record too many.
    pub const FULL: u64 = 3;
    /// At a head of zeros.
    pub const BLANK: u64 = 4;
}

/// A program that was decoded and verified: private memory, which its client cannot reach. Every slot is written before
/// it is read, every table index is inside its table, every bound of `limits` is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    micros: SmallVec<[Micro; MICRO_OPS_MAX]>,
    ranges: SmallVec<[PoolRange; 8]>,
    /// Start and length in `data`.
    strings: SmallVec<[(u16, u16); 8]>,
    data: Box<[u8]>,
    capacities: [u32; PROGRAM_BUFFERS],
    results: [Option<Reg>; 2],
    /// Bounds that the verifier computed.
    totals: verify::Totals,
}

impl Program {
    /// Copies a body out of the pool, once, and believes it or not.
    ///
    /// # Errors
    /// EFAULT when the body is not inside; those of [`Program::decode`].
    pub fn fetch(body: PoolRange, pool: &SharedRegion) -> Result<Box<Program>, Errno> {
        let bytes = pool.slice(body)?;
        if bytes.len() > crate::limits::PROGRAM_BODY_MAX as usize {
            return Err(Errno::TOOBIG);
        }
        let private = bytes.to_vec();
        Ok(Program::boxed(&private, pool.len() as u32)?)
    }

    /// A body in private memory, for a pool of `pool_bytes`. Total on any bytes.
    ///
    /// # Errors
    /// Those of docs/COMMANDS.md, with the micro-op at fault.
    pub fn decode(body: &[u8], pool_bytes: u32) -> Result<Program, Fault> {
        Program::boxed(body, pool_bytes).map(|program| *program)
    }

    /// The same, where it stays: a program is large.
    fn boxed(body: &[u8], pool_bytes: u32) -> Result<Box<Program>, Fault> {
        let mut program = body::decode(body)?;
        program.totals = verify::verify(&program, pool_bytes)?;
        Ok(program)
    }

    /// The body that says this; `decode` of it gives the program back.
    pub fn encode(&self) -> Vec<u8> {
        body::encode(self)
    }

    /// The micro-ops, in order.
    pub fn micros(&self) -> &[Micro] {
        &self.micros
    }

    /// Pool ranges by number.
    pub fn ranges(&self) -> &[PoolRange] {
        &self.ranges
    }

    /// A pool range; empty when there is none of that number (never in a verified program).
    pub fn range(&self, pool: Pool) -> PoolRange {
        self.ranges.get(usize::from(pool.0)).copied().unwrap_or(PoolRange::EMPTY)
    }

    /// Whether a micro-op takes bytes out of that pool range.
    pub(crate) fn takes_from(&self, p: Pool) -> bool {
        self.micros.iter().any(|m| m.takes(Bytes::Pool(p)))
    }

    /// Whether a micro-op puts bytes in that pool range.
    pub(crate) fn gives_into(&self, p: Pool) -> bool {
        self.micros.iter().any(|m| match *m {
            Micro::Read { to, .. } => to == To::Pool(p),
            Micro::Give { to, .. } => to == p,
            Micro::Scan { offsets, .. } => offsets == Some(p),
            _ => false,
        })
    }

    /// Whether it does the same, run again after it was given up: what it puts in the pool lies neither where it takes
    /// something from, nor where its `body` does.
    pub fn is_repeatable(&self, body: PoolRange) -> bool {
        let overlap = |a: PoolRange, b: PoolRange| a.off < b.off + b.len && b.off < a.off + a.len;
        let ranges = || self.ranges.iter().zip(0..).map(|(range, p)| (*range, Pool(p)));
        ranges().filter(|(_, p)| self.gives_into(*p)).all(|(out, _)| {
            !overlap(out, body) && !ranges().any(|(range, p)| overlap(out, range) && self.takes_from(p))
        })
    }

    /// Strings in all.
    pub fn strings(&self) -> usize {
        self.strings.len()
    }

    /// A string: a path, a link's target or a literal.
    pub fn string(&self, s: Str) -> &[u8] {
        let place = self.strings.get(usize::from(s.0)).copied();
        place.and_then(|(at, len)| self.data.get(usize::from(at)..usize::from(at) + usize::from(len))).unwrap_or(&[])
    }

    /// Bytes that a buffer may hold.
    pub fn capacity(&self, b: BufSlot) -> u32 {
        self.capacities.get(usize::from(b.0)).copied().unwrap_or(0)
    }

    /// The registers that the completion reports.
    pub fn results(&self) -> [Option<Reg>; 2] {
        self.results
    }

    /// Bytes of private memory that the program may hold while it runs: its buffers, and a piece if it needs one.
    pub fn scratch_bytes(&self) -> u64 {
        self.totals.scratch
    }

    /// Upper bound of the bytes that its micro-ops may write into files, all together.
    pub fn write_bytes(&self) -> u64 {
        self.totals.writes
    }

    /// Upper bound of the bytes that micro-op `index` may write into a file; 0 for those that write none.
    pub fn write_bytes_of(&self, index: usize) -> u64 {
        self.micros.get(index).map_or(0, |m| verify::write_bound(self, m))
    }

    /// The micro-ops, each with an upper bound of the bytes that it reads, writes, moves or looks at; of one that
    /// computes or scans, far more.
    pub fn weighed(&self) -> impl Iterator<Item = (&Micro, u64)> {
        self.micros.iter().map(|m| (m, verify::bytes_bound(self, m)))
    }

    /// Whether the command asks to be durable by itself: it holds a `Sync`.
    pub fn is_durable(&self) -> bool {
        self.micros.iter().any(|m| matches!(m, Micro::Sync))
    }

    /// Whether any of its micro-ops may change a file or a name.
    pub fn changes(&self) -> bool {
        self.micros.iter().any(Micro::changes)
    }

    /// Whether it may take long beside what it writes: it compresses, decompresses or enciphers, or reads more than a
    /// megabyte.
    pub fn is_long(&self) -> bool {
        let reads = |m: &Micro| match *m {
            Micro::Transform { .. } | Micro::Kernel { .. } => limits::PROGRAM_READ_MAX,
            Micro::Read { len: Value::Imm(len), .. } => len,
            Micro::Read { .. } | Micro::Scan { .. } => limits::PROGRAM_READ_MAX,
            Micro::CopyRange { len: Value::Imm(len), .. } => len,
            Micro::CopyRange { max, .. } => max.into(),
            _ => 0,
        };
        self.micros.iter().map(reads).fold(0, u64::saturating_add) > u64::from(limits::ATOMIC_WRITE_MAX)
    }

    /// Whether it compresses, decompresses, enciphers or runs a kernel; and whether it may have changed something
    /// before it does so.
    pub fn computes(&self) -> Option<bool> {
        let last = self.micros.iter().rposition(|m| matches!(m, Micro::Transform { .. } | Micro::Kernel { .. }))?;
        Some(self.micros[..last].iter().any(Micro::changes))
    }

    /// Whether what `Open` or `Use` number `index` puts in its slot may be changed by a later micro-op.
    pub fn changes_file_of(&self, index: usize) -> bool {
        let Some(slot) = self.micros.get(index).and_then(Micro::names_file) else { return false };
        let later = self.micros.iter().skip(index + 1);
        // Another micro-op may name the slot anew, but a skip may pass it by: so all are looked at.
        later.filter_map(Micro::changes_file).any(|f| f == slot)
    }
}
