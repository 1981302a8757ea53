//! What the names of a text stand for. `f0`, `b0`, `r0`, `@p0` and so on always stand for the slot of that number;
//! other names get the lowest slots that the text does not name so.

use super::super::{BufSlot, Builder, FileSlot, Pool, Reg};
use super::lex::{Placed, Token};
use crate::limits::{PROGRAM_BUFFERS, PROGRAM_FILES, PROGRAM_RANGES_MAX, PROGRAM_REGISTERS};

/// What a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Named {
    File(FileSlot),
    Buffer(BufSlot),
    Register(Reg),
}

impl Named {
    pub fn what(self) -> &'static str {
        match self {
            Named::File(_) => "a file",
            Named::Buffer(_) => "a buffer",
            Named::Register(_) => "a register",
        }
    }
}

/// Slots of one kind.
struct Slots {
    prefix: char,
    max: usize,
    /// Bit i: the text names slot i by its number, or it is given to a name.
    taken: u32,
}

impl Slots {
    /// The slot that a name of the form prefix and number stands for.
    fn fixed(&self, name: &str) -> Option<u8> {
        let digits = name.strip_prefix(self.prefix)?;
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let n: usize = digits.parse().ok().filter(|_| plain && (digits == "0" || !digits.starts_with('0')))?;
        (n < self.max).then_some(n as u8)
    }

    fn slot(&mut self, name: &str) -> Option<u8> {
        if let Some(n) = self.fixed(name) {
            return Some(n);
        }
        let n = (0..self.max).find(|n| self.taken >> n & 1 == 0)?;
        self.taken |= 1 << n;
        Some(n as u8)
    }
}

pub(super) struct Names {
    slots: [Slots; 4],
    named: Vec<(String, Named)>,
    ranges: Vec<(String, Pool)>,
    /// Bytes that each range and buffer has to hold, as far as the text says.
    pub range_bytes: [u32; PROGRAM_RANGES_MAX],
    pub capacities: [u32; PROGRAM_BUFFERS],
    /// Ranges and buffers whose size the text or the caller states.
    pub stated_ranges: u32,
    pub stated_buffers: u32,
    /// At most so many bytes are in each buffer at this place of the text.
    pub held: [u64; PROGRAM_BUFFERS],
    /// Registers that a checksum was put in last: they are four bytes when they are bytes.
    pub sums: u32,
}

const FILES: usize = 0;
const BUFFERS: usize = 1;
const REGISTERS: usize = 2;
const RANGES: usize = 3;

impl Names {
    pub fn new(tokens: &[Placed]) -> Names {
        let slots = |prefix, max| Slots { prefix, max, taken: 0 };
        let mut names = Names {
            slots: [
                slots('f', PROGRAM_FILES),
                slots('b', PROGRAM_BUFFERS),
                slots('r', PROGRAM_REGISTERS),
                slots('p', PROGRAM_RANGES_MAX),
            ],
            named: Vec::new(),
            ranges: Vec::new(),
            range_bytes: [0; PROGRAM_RANGES_MAX],
            capacities: [0; PROGRAM_BUFFERS],
            stated_ranges: 0,
            stated_buffers: 0,
            held: [0; PROGRAM_BUFFERS],
            sums: 0,
        };
        for (token, _) in tokens {
            let (kinds, name) = match token {
                Token::Word(w) => (FILES..RANGES, w),
                Token::Range(r) => (RANGES..RANGES + 1, r),
                _ => continue,
            };
            for slots in &mut names.slots[kinds] {
                if let Some(n) = slots.fixed(name) {
                    slots.taken |= 1 << n;
                }
            }
        }
        names
    }

    /// What a name stands for, if the text gave it to something, or it is a slot's own.
    pub fn get(&self, name: &str) -> Option<Named> {
        if let Some((_, named)) = self.named.iter().find(|(n, _)| n == name) {
            return Some(*named);
        }
        let fixed = |kind: usize| self.slots[kind].fixed(name);
        fixed(FILES)
            .map(|n| Named::File(FileSlot(n)))
            .or_else(|| fixed(BUFFERS).map(|n| Named::Buffer(BufSlot(n))))
            .or_else(|| fixed(REGISTERS).map(|n| Named::Register(Reg(n))))
    }

    fn define(&mut self, name: &str, kind: usize, make: fn(u8) -> Named) -> Result<Named, String> {
        if let Some(there) = self.get(name) {
            if let Some(entry) = self.named.iter().find(|(n, _)| n == name) {
                return Ok(entry.1);
            }
            self.named.push((name.to_owned(), there));
            return Ok(there);
        }
        let max = self.slots[kind].max;
        let slot = self.slots[kind].slot(name).ok_or_else(|| format!("{} more than {max}", make(0).what()))?;
        self.named.push((name.to_owned(), make(slot)));
        Ok(make(slot))
    }

    pub fn file(&mut self, name: &str) -> Result<Named, String> {
        self.define(name, FILES, |n| Named::File(FileSlot(n)))
    }

    pub fn buffer(&mut self, name: &str) -> Result<Named, String> {
        self.define(name, BUFFERS, |n| Named::Buffer(BufSlot(n)))
    }

    pub fn register(&mut self, name: &str) -> Result<Named, String> {
        self.define(name, REGISTERS, |n| Named::Register(Reg(n)))
    }

    /// A register that the text does not use, if there is one.
    pub fn spare_register(&mut self) -> Option<Reg> {
        let slots = &mut self.slots[REGISTERS];
        let n = (0..slots.max).find(|n| slots.taken >> n & 1 == 0)?;
        slots.taken |= 1 << n;
        Some(Reg(n as u8))
    }

    /// The range of that name, new if need be.
    pub fn range(&mut self, name: &str) -> Result<Pool, String> {
        if let Some((_, pool)) = self.ranges.iter().find(|(n, _)| n == name) {
            return Ok(*pool);
        }
        let slot = self.slots[RANGES].slot(name).ok_or_else(|| format!("a range more than {PROGRAM_RANGES_MAX}"))?;
        self.ranges.push((name.to_owned(), Pool(slot)));
        Ok(Pool(slot))
    }

    /// A buffer is given up to `bytes`: it needs that much room, unless the text states how much it has.
    pub fn grow(&mut self, b: BufSlot, bytes: u64) {
        let i = usize::from(b.0);
        let room = &mut self.capacities[i];
        if self.stated_buffers >> i & 1 == 0 {
            *room = (*room).max(bytes.try_into().unwrap_or(u32::MAX));
        }
        self.held[i] = bytes.min((*room).into());
    }

    /// Ranges by number, those that are named; a number without a name leaves a gap.
    pub fn ranges(&self) -> Vec<(String, Pool)> {
        let mut ranges = self.ranges.clone();
        ranges.sort_by_key(|(_, p)| p.0);
        ranges
    }

    /// Registers in the order in which they were named.
    pub fn registers(&self) -> Vec<(String, Reg)> {
        let register = |(name, named): &(String, Named)| match named {
            Named::Register(r) => Some((name.clone(), *r)),
            _ => None,
        };
        self.named.iter().filter_map(register).collect()
    }

    /// Numbers buffers and ranges in the builder as they are numbered here.
    pub fn declare(&self, b: &mut Builder) -> Result<(), String> {
        let buffers = self.named.iter().filter_map(|(_, n)| if let Named::Buffer(b) = n { Some(b.0) } else { None });
        for slot in 0..buffers.max().map_or(0, |n| n + 1) {
            b.buffer(self.capacities[usize::from(slot)]);
        }
        let ranges = self.ranges();
        for (i, (name, pool)) in ranges.iter().enumerate() {
            if usize::from(pool.0) != i {
                return Err(format!("@{name} is range {} of the program, and there is none of a lower number", pool.0));
            }
            b.pool(self.range_bytes[i]);
        }
        Ok(())
    }
}
