//! What the templates share. A template is a fused op without an opcode of its own: a struct of operands whose `body`
//! is its expansion, a program. The expansion *is* the definition.

use crate::program::{Body, Builder, Bytes, Change, Fault, Int, Order, Place, SumKind, Value, Width};
use crate::{At, Errno};

/// A fused op that travels as a program.
pub trait Template {
    /// What a completion says that went well.
    type Answer;

    /// The expansion. Its pool ranges are in the order in which the template's page names them.
    ///
    /// # Errors
    /// What the verifier says of operands that are out of bounds.
    fn body(&self) -> Result<Body, Fault>;

    /// The completion's two results, as what they are.
    fn answer(results: (u64, u64)) -> Self::Answer;
}

/// Which side of a payload its checksum is on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SumPlace {
    /// Right behind the payload.
    #[default]
    Trailer,
    /// Right before it.
    Header,
}

/// How a payload is summed up, and how the checksum, four bytes, lies beside it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Summing {
    /// Which checksum.
    pub kind: SumKind,
    /// Byte order of the four bytes.
    pub order: Order,
    /// Before or behind the payload.
    pub place: SumPlace,
}

impl Default for Summing {
    /// What the op with an opcode of its own does: a CRC-32C behind the payload, little-endian.
    fn default() -> Summing {
        Summing { kind: SumKind::Crc32c, order: Order::Little, place: SumPlace::Trailer }
    }
}

/// Bytes of a checksum in a file.
pub const SUM_BYTES: u32 = 4;

impl Summing {
    /// The checksum as it lies in a file.
    pub fn int(self) -> Int {
        Int { width: Width::W4, order: self.order }
    }

    /// Offsets of payload and checksum in a record that begins at `start` with a payload of `len` bytes.
    pub(super) fn places(self, start: u64, len: u32) -> Result<(u64, u64), Fault> {
        let add = |a: u64, b: u32| a.checked_add(b.into()).ok_or(fault(Errno::FBIG, "the record ends past any file"));
        match self.place {
            SumPlace::Trailer => Ok((start, add(start, len)?)),
            SumPlace::Header => Ok((add(start, SUM_BYTES)?, start)),
        }
    }
}

/// How a field of a file is changed. Bytes that it needs come in pool ranges of the field's length.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FieldChange {
    /// Replaced by a range.
    Patch,
    /// An integer, as long as the field, is added to, wrapping.
    Add(Order, u64),
    /// Bitwise and with a range.
    And,
    /// Bitwise or with a range.
    Or,
    /// Bitwise exclusive or with a range.
    Xor,
    /// Replaced by a second range if it equals the first, else ECANCELED.
    CompareSwap,
}

impl FieldChange {
    /// The micro-op's change of `len` bytes, with its pool ranges.
    pub(super) fn operands(self, b: &mut Builder, len: u32) -> Result<Change, Fault> {
        let range = |b: &mut Builder| Bytes::Pool(b.pool(len));
        Ok(match self {
            FieldChange::Patch => Change::Patch(range(b)),
            FieldChange::Add(order, by) => Change::Add(int(order, len)?, Value::Imm(by)),
            FieldChange::And => Change::And(range(b)),
            FieldChange::Or => Change::Or(range(b)),
            FieldChange::Xor => Change::Xor(range(b)),
            FieldChange::CompareSwap => Change::CompareSwap { expect: range(b), new: range(b) },
        })
    }
}

/// An integer of `len` bytes; EINVAL unless that is 1, 2, 4 or 8.
pub(super) fn int(order: Order, len: u32) -> Result<Int, Fault> {
    let width = match len {
        1 => Width::W1,
        2 => Width::W2,
        4 => Width::W4,
        8 => Width::W8,
        _ => return Err(fault(Errno::INVAL, "an integer has 1, 2, 4 or 8 bytes")),
    };
    Ok(Int { width, order })
}

/// Where a template writes: an offset or the end.
pub(super) fn place(at: At) -> Result<Place, Fault> {
    match at {
        At::Offset(off) => Ok(Place::At(Value::Imm(off))),
        At::End => Ok(Place::End),
        At::Current => Err(fault(Errno::INVAL, "a program writes at an offset or the end")),
    }
}

/// A template that is none, whatever the program would say.
pub(super) fn fault(errno: Errno, why: &'static str) -> Fault {
    Fault { errno, micro: None, why }
}
