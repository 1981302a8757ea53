//! Making bodies: slots and table entries are numbered as they are asked for, and what is wrong with a program is said
//! when it is finished, by the verifier of the device.

use super::micro::Micro;
use super::operand::*;
use super::verify::{Fault, Totals};
use super::{Program, body};
use crate::flags::{Access, OpenFlags};
use crate::limits::*;
use crate::{Errno, Handle, Op, PoolRange};
use smallvec::SmallVec;

/// A program being written. Methods that number something go on after a limit is passed; [`Builder::finish`] then says
/// so.
#[derive(Clone, Debug)]
pub struct Builder {
    program: Program,
    data: Vec<u8>,
    files: usize,
    buffers: usize,
    registers: usize,
    fault: Option<Fault>,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder::new()
    }
}

impl Builder {
    /// A program without micro-ops.
    pub fn new() -> Builder {
        let program = Program {
            micros: SmallVec::new(),
            ranges: SmallVec::new(),
            strings: SmallVec::new(),
            data: Box::default(),
            capacities: [0; PROGRAM_BUFFERS],
            results: [None; 2],
            totals: Totals::default(),
        };
        Builder { program, data: Vec::new(), files: 0, buffers: 0, registers: 0, fault: None }
    }

    fn number(&mut self, count: usize, max: usize, why: &'static str) -> u8 {
        if count >= max {
            self.fault.get_or_insert(Fault { errno: Errno::TOOBIG, micro: None, why });
        }
        count.min(max - 1) as u8
    }

    /// The next free file slot.
    pub fn file(&mut self) -> FileSlot {
        let slot = self.number(self.files, PROGRAM_FILES, "more files than slots");
        self.files += 1;
        FileSlot(slot)
    }

    /// The next free buffer, with room for `capacity` bytes.
    pub fn buffer(&mut self, capacity: u32) -> BufSlot {
        let slot = self.number(self.buffers, PROGRAM_BUFFERS, "more buffers than slots");
        self.buffers += 1;
        self.program.capacities[usize::from(slot)] = capacity;
        BufSlot(slot)
    }

    /// The micro-op at `index`, which puts bytes in a pool range, says in `reg` how many.
    pub(super) fn count_into(&mut self, index: usize, reg: Reg) {
        if let Some(Micro::Read { count, .. } | Micro::Give { count, .. }) = self.program.micros.get_mut(index) {
            *count = Some(reg);
        }
    }

    /// The micro-ops so far.
    pub(super) fn micros(&self) -> &[Micro] {
        &self.program.micros
    }

    /// The next free register.
    pub fn register(&mut self) -> Reg {
        let slot = self.number(self.registers, PROGRAM_REGISTERS, "more registers than there are");
        self.registers += 1;
        Reg(slot)
    }

    /// The next pool range, of `len` bytes: where it lies is said when the body is bound.
    pub fn pool(&mut self, len: u32) -> Pool {
        let slot =
            self.number(self.program.ranges.len(), PROGRAM_RANGES_MAX, "more pool ranges than a program may have");
        self.program.ranges.push(PoolRange::new(0, len));
        Pool(slot)
    }

    /// A string of the body; the same string is kept once.
    pub fn string(&mut self, bytes: &[u8]) -> Str {
        let same =
            |&(at, len): &(u16, u16)| self.data.get(at.into()..usize::from(at) + usize::from(len)) == Some(bytes);
        if let Some(at) = self.program.strings.iter().position(same) {
            return Str(at as u8);
        }
        let slot = self.number(self.program.strings.len(), PROGRAM_STRINGS_MAX, "more strings than a program may have");
        if self.data.len() + bytes.len() > PROGRAM_BODY_MAX as usize {
            self.fault.get_or_insert(Fault { errno: Errno::TOOBIG, micro: None, why: "the strings are too long" });
            return Str(slot);
        }
        self.program.strings.push((self.data.len() as u16, bytes.len() as u16));
        self.data.extend_from_slice(bytes);
        Str(slot)
    }

    /// Literal bytes.
    pub fn literal(&mut self, bytes: &[u8]) -> Bytes {
        Bytes::Literal(self.string(bytes))
    }

    /// Adds a micro-op.
    pub fn push(&mut self, micro: Micro) -> &mut Builder {
        self.program.micros.push(micro);
        self
    }

    /// Micro-ops so far.
    pub fn len(&self) -> usize {
        self.program.micros.len()
    }

    /// Whether there is no micro-op yet.
    pub fn is_empty(&self) -> bool {
        self.program.micros.is_empty()
    }

    /// Which registers the completion reports as its results; without, 0.
    pub fn results(&mut self, result: Option<Reg>, result2: Option<Reg>) -> &mut Builder {
        self.program.results = [result, result2];
        self
    }

    /// Adds an `Open`; gives its slot.
    pub fn open(&mut self, base: Handle, path: &[u8], flags: OpenFlags, mode: u16) -> FileSlot {
        let (file, path) = (self.file(), self.string(path));
        self.push(Micro::Open { file, base, path, flags, mode, created: None });
        file
    }

    /// Adds a `Use`; gives its slot.
    pub fn take(&mut self, h: Handle, need: Access) -> FileSlot {
        let file = self.file();
        self.push(Micro::Use { file, h, need });
        file
    }

    /// Adds a `Write` without a checksum; gives the register that gets the offset.
    pub fn write(&mut self, file: FileSlot, place: Place, from: Bytes) -> Reg {
        let at = self.register();
        self.push(Micro::Write { file, place, from, fold: None, at: Some(at) });
        at
    }

    /// Adds a `Read` without a checksum; gives the register that gets the number of bytes.
    pub fn read(&mut self, file: FileSlot, off: Value, len: Value, to: To) -> Reg {
        let count = self.register();
        self.push(Micro::Read { file, off, len, to, whole: false, pad: false, fold: None, count: Some(count) });
        count
    }

    /// Adds a `Kernel` over what `from` holds; its output goes in `buf`. A register among the parameters stands for its
    /// low 32 bits; one behind the 64th is refused when the program is finished, as is a constant above `u32::MAX`.
    pub fn kernel(&mut self, name: &str, params: &[Value], from: BufSlot, buf: BufSlot) -> &mut Builder {
        let (mut words, mut registers) = (Vec::with_capacity(4 * params.len()), 0);
        for (i, param) in params.iter().enumerate() {
            let word = match *param {
                Value::Imm(v) => u32::try_from(v).ok(),
                Value::Reg(r) if i < 64 => {
                    registers |= 1 << i;
                    Some(r.0.into())
                }
                Value::Reg(_) => None,
            };
            let why = "a parameter of a kernel is a word of 32 bits, or a register among the first 64";
            if word.is_none() {
                let micro = Some(self.len() as u8);
                self.fault.get_or_insert(Fault { errno: Errno::INVAL, micro, why });
            }
            words.extend(word.unwrap_or(0).to_le_bytes());
        }
        let (name, params) = (self.string(name.as_bytes()), self.string(&words));
        self.push(Micro::Kernel { buf, from, name, params, registers })
    }

    /// Adds a guard.
    pub fn guard(&mut self, cond: Cond, otherwise: Else) -> &mut Builder {
        self.push(Micro::Guard { cond, otherwise })
    }

    /// The body, if the program is one that a device runs.
    ///
    /// # Errors
    /// What the verifier says of it, or the limit that was passed while it was written.
    pub fn finish(mut self) -> Result<Body, Fault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if self.program.micros.len() > MICRO_OPS_MAX {
            return Err(Fault::whole(Errno::TOOBIG, "more micro-ops than a program may have"));
        }
        self.program.data = self.data.into();
        let bytes = self.program.encode();
        // Ranges lie nowhere yet: they are checked again when the body is bound to a pool, by the device.
        let program = Program::decode(&bytes, u32::MAX)?;
        // What a body cannot say must not become something else in it.
        let pairs = self.program.micros.iter().zip(&program.micros);
        if let Some(index) = pairs.into_iter().position(|(meant, said)| meant != said) {
            return Err(Fault::at(index, Errno::INVAL, "an operand that no body can state"));
        }
        if self.program.results != program.results {
            return Err(Fault::whole(Errno::INVAL, "a result is no register"));
        }
        Ok(Body { program, bytes })
    }
}

/// The body of a verified program, to be bound to ranges of a pool: any number of times, at no cost but a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Body {
    program: Program,
    bytes: Vec<u8>,
}

impl Body {
    /// The program; its pool ranges start at 0.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Bytes of the body, which have to be in the pool when the command is submitted.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Never: a body has a header.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Pool ranges that the program works on, in the order in which the builder numbered them.
    pub fn pools(&self) -> usize {
        self.program.ranges.len()
    }

    /// Bytes of a pool range.
    pub fn pool_len(&self, p: Pool) -> u32 {
        self.program.range(p).len
    }

    /// Whether the program takes bytes out of that range: they have to be there when the command is submitted.
    pub fn is_input(&self, p: Pool) -> bool {
        self.program.takes_from(p)
    }

    /// Whether the program puts bytes in that range.
    pub fn is_output(&self, p: Pool) -> bool {
        self.program.gives_into(p)
    }

    /// Micro-ops that put bytes in a range, perhaps fewer than it has: the register that counts what they put, and how
    /// many bytes that counts as one.
    fn parts(&self, p: Pool) -> impl Iterator<Item = (Option<Reg>, usize)> {
        self.program.micros.iter().filter_map(move |m| match *m {
            Micro::Scan { offsets: Some(to), count, .. } if to == p => Some((count, size_of::<u64>())),
            _ => m.fills_in_part(p).map(|count| (count, 1)),
        })
    }

    /// The result, 0 or 1, that counts what was put in a range, and how many bytes it counts as one: of one micro-op
    /// that fills it, by a register that no other one sets.
    fn counted(&self, p: Pool) -> Option<(usize, usize)> {
        let fills = |m: &&Micro| match **m {
            Micro::Read { to, .. } => to == To::Pool(p),
            Micro::Give { to, .. } => to == p,
            Micro::Scan { offsets, .. } => offsets == Some(p),
            _ => false,
        };
        let mut parts = self.parts(p);
        let (Some((Some(count), each)), None) = (parts.next(), parts.next()) else { return None };
        let micros = &self.program.micros;
        let is_only = micros.iter().filter(fills).count() == 1 && micros.iter().filter(|m| m.sets(count)).count() == 1;
        let at = self.program.results.iter().position(|r| *r == Some(count))?;
        is_only.then_some((at, each))
    }

    /// Whether a program that ends well may have put fewer bytes in a range than it has, and no result tells how many
    /// bytes these are: what lay behind them in the pool is there still. Of a scan, a result tells how many offsets.
    pub fn leaves_a_rest(&self, p: Pool) -> bool {
        let guarded = self.program.micros.iter().any(|m| matches!(m, Micro::Guard { .. }));
        (guarded || self.parts(p).next().is_some()) && self.counted(p).is_none_or(|(_, each)| each > 1)
    }

    /// Bytes that the program put in a range when it ended well with these results: as many as one of them counts, else
    /// all of the range ([`Body::leaves_a_rest`]).
    pub fn filled(&self, p: Pool, results: (u64, u64)) -> usize {
        let len = self.pool_len(p) as usize;
        let Some((at, each)) = self.counted(p) else { return len };
        let count = if at == 0 { results.0 } else { results.1 };
        usize::try_from(count).map_or(len, |count| count.saturating_mul(each).min(len))
    }

    /// The bytes to submit when the ranges lie at `ranges`, in order.
    ///
    /// # Errors
    /// EINVAL when there are more or fewer than the program has, or one is of another length.
    pub fn bind(&self, ranges: &[PoolRange]) -> Result<Vec<u8>, Errno> {
        let own = &self.program.ranges;
        if own.len() != ranges.len() || own.iter().zip(ranges).any(|(a, b)| a.len != b.len) {
            return Err(Errno::INVAL);
        }
        let mut bytes = self.bytes.clone();
        for (i, range) in ranges.iter().enumerate() {
            let at = body::range_at(self.program.micros.len(), Pool(i as u8));
            bytes[at..at + body::RANGE_BYTES].copy_from_slice(&body::range_bytes(*range));
        }
        Ok(bytes)
    }

    /// The op that runs the body that lies at `at`.
    pub fn op(at: PoolRange) -> Op {
        Op::Program { body: at }
    }
}
