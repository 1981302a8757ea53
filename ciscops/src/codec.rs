//! Lanes: the places in an SQE where an operand can lie, and the conversion of each to and from its Rust type.

use crate::command::{At as Place, Modify};
use crate::flags::*;
use crate::limits::*;
use crate::{Errno, Handle, PoolRange, Sqe};

/// An operand between SQE and Rust type: up to four words, unused ones zero.
pub(crate) type Raw = [u64; 4];

/// What a pool range holds, which fixes its length limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeKind {
    /// A path of 1..=4095 bytes; empty is ENOENT.
    Path,
    /// A path of 0..=4095 bytes; empty names the handle's own object.
    PathOrSelf,
    /// A symbolic link's target, 1..=4095 bytes.
    Target,
    /// An extended attribute's name, 1..=255 bytes.
    Name,
    /// Payload or room for it, up to `ATOMIC_WRITE_MAX`.
    Bytes,
    /// A fixed body.
    Exact(u32),
    /// Nothing, or a fixed body.
    OptExact(u32),
}

impl RangeKind {
    #[inline]
    fn check_len(self, len: u32) -> Result<(), Errno> {
        match self {
            RangeKind::Path | RangeKind::Target if len == 0 => Err(Errno::NOENT),
            RangeKind::Path | RangeKind::PathOrSelf if len as usize >= PATH_MAX => Err(Errno::NAMETOOLONG),
            RangeKind::Target if len as usize > SYMLINK_MAX => Err(Errno::NAMETOOLONG),
            RangeKind::Name if len == 0 || len as usize > XATTR_NAME_MAX => Err(Errno::RANGE),
            RangeKind::Bytes if len > ATOMIC_WRITE_MAX => Err(Errno::TOOBIG),
            RangeKind::Exact(n) if len != n => Err(Errno::INVAL),
            RangeKind::OptExact(n) if len != n && len != 0 => Err(Errno::INVAL),
            _ => Ok(()),
        }
    }
}

/// Where the offset of an `At` operand stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffsetHigh {
    /// The SQE's `offset`.
    Offset,
    /// `imm[8..16]`.
    Imm,
}

/// A place in the SQE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    /// The `handle` field.
    Handle,
    /// The `offset` field.
    Offset,
    /// Bits of `aux`.
    Aux {
        /// Lowest bit.
        shift: u8,
        /// How many.
        bits: u8,
    },
    /// A u32 at this byte of `imm`.
    Imm32(u8),
    /// A u64 at this byte of `imm`.
    Imm64(u8),
    /// All sixteen bytes of `imm`.
    Imm128,
    /// Pool range (pool_off, length).
    A(RangeKind),
    /// Pool range (pool_off2, length2).
    B(RangeKind),
    /// Pool range in `imm[0..4]` (offset), `imm[4..8]` (length).
    C(RangeKind),
    /// `At`: kind in aux bits 28-29 (0 offset, 1 current, 2 end), the offset where the parameter says.
    At(OffsetHigh),
    /// `Modify`: kind in aux bits 0-7, range A, and all of `imm`.
    Modify,
}

const AUX_WORD: usize = 0;
const HANDLE_WORD: usize = 2;
const OFFSET_WORD: usize = 3;
const A_WORD: usize = 4;
const B_WORD: usize = 5;
const IMM_WORD: usize = 6;
const AT_SHIFT: u32 = 28;
const AT_MASK: u32 = 3;

impl Lane {
    /// The SQE's bits this lane occupies, as eight words.
    pub const fn mask(self) -> [u64; 8] {
        let mut m = [0u64; 8];
        match self {
            Lane::Handle => m[HANDLE_WORD] = u64::MAX,
            Lane::Offset => m[OFFSET_WORD] = u64::MAX,
            Lane::Aux { shift, bits } => m[AUX_WORD] = ((1u64 << bits) - 1) << (32 + shift),
            Lane::Imm32(at) => m[IMM_WORD + at as usize / 8] = (u32::MAX as u64) << (at as u64 % 8 * 8),
            Lane::Imm64(at) => m[IMM_WORD + at as usize / 8] = u64::MAX,
            Lane::Imm128 => (m[IMM_WORD], m[IMM_WORD + 1]) = (u64::MAX, u64::MAX),
            Lane::A(_) => m[A_WORD] = u64::MAX,
            Lane::B(_) => m[B_WORD] = u64::MAX,
            Lane::C(_) => m[IMM_WORD] = u64::MAX,
            Lane::At(high) => {
                m[AUX_WORD] = (AT_MASK as u64) << (32 + AT_SHIFT);
                m[match high {
                    OffsetHigh::Offset => OFFSET_WORD,
                    OffsetHigh::Imm => IMM_WORD + 1,
                }] = u64::MAX;
            }
            Lane::Modify => {
                m[AUX_WORD] = 0xff << 32;
                m[A_WORD] = u64::MAX;
                m[IMM_WORD] = u64::MAX;
                m[IMM_WORD + 1] = u64::MAX;
            }
        }
        m
    }

    /// Reads the lane; pool ranges are checked for kind and bounds.
    #[inline(always)]
    pub(crate) fn get(self, sqe: &Sqe, pool_bytes: u32) -> Result<Raw, Errno> {
        let one = |v: u64| Ok([v, 0, 0, 0]);
        match self {
            Lane::Handle => one(sqe.handle),
            Lane::Offset => one(sqe.offset),
            Lane::Aux { shift, bits } => one((sqe.aux >> shift) as u64 & ((1 << bits) - 1)),
            Lane::Imm32(at) => one(imm64(sqe, at as usize / 8) >> (at % 8 * 8) & 0xffff_ffff),
            Lane::Imm64(at) => one(imm64(sqe, at as usize / 8)),
            Lane::Imm128 => Ok([imm64(sqe, 0), imm64(sqe, 1), 0, 0]),
            Lane::A(kind) => one(range(kind, sqe.pool_off, sqe.length, pool_bytes)?),
            Lane::B(kind) => one(range(kind, sqe.pool_off2, sqe.length2, pool_bytes)?),
            Lane::C(kind) => {
                let w = imm64(sqe, 0);
                one(range(kind, w as u32, (w >> 32) as u32, pool_bytes)?)
            }
            Lane::At(high) => {
                let offset = match high {
                    OffsetHigh::Offset => sqe.offset,
                    OffsetHigh::Imm => imm64(sqe, 1),
                };
                Ok([(sqe.aux >> AT_SHIFT & AT_MASK) as u64, offset, 0, 0])
            }
            Lane::Modify => get_modify(sqe, pool_bytes),
        }
    }

    /// Writes the lane; its bits are zero before.
    #[inline(always)]
    pub(crate) fn put(self, sqe: &mut Sqe, raw: Raw) {
        let v = raw[0];
        match self {
            Lane::Handle => sqe.handle = v,
            Lane::Offset => sqe.offset = v,
            Lane::Aux { shift, bits } => sqe.aux |= ((v & ((1 << bits) - 1)) as u32) << shift,
            Lane::Imm32(at) => {
                let word = imm64(sqe, at as usize / 8) | (v & 0xffff_ffff) << (at % 8 * 8);
                put_imm64(sqe, at as usize / 8, word);
            }
            Lane::Imm64(at) => put_imm64(sqe, at as usize / 8, v),
            Lane::Imm128 => {
                put_imm64(sqe, 0, v);
                put_imm64(sqe, 1, raw[1]);
            }
            Lane::A(_) => (sqe.pool_off, sqe.length) = (v as u32, (v >> 32) as u32),
            Lane::B(_) => (sqe.pool_off2, sqe.length2) = (v as u32, (v >> 32) as u32),
            Lane::C(_) => put_imm64(sqe, 0, v),
            Lane::At(high) => {
                sqe.aux |= (v as u32 & AT_MASK) << AT_SHIFT;
                match high {
                    OffsetHigh::Offset => sqe.offset = raw[1],
                    OffsetHigh::Imm => put_imm64(sqe, 1, raw[1]),
                }
            }
            Lane::Modify => {
                sqe.aux |= v as u32 & 0xff;
                (sqe.pool_off, sqe.length) = (raw[1] as u32, (raw[1] >> 32) as u32);
                put_imm64(sqe, 0, raw[2]);
                put_imm64(sqe, 1, raw[3]);
            }
        }
    }
}

#[inline(always)]
fn imm64(sqe: &Sqe, word: usize) -> u64 {
    u128::from_le_bytes(sqe.imm).wrapping_shr(word as u32 * 64) as u64
}

#[inline(always)]
fn put_imm64(sqe: &mut Sqe, word: usize, v: u64) {
    sqe.imm[word * 8..word * 8 + 8].copy_from_slice(&v.to_le_bytes());
}

#[inline(always)]
fn range(kind: RangeKind, off: u32, len: u32, pool_bytes: u32) -> Result<u64, Errno> {
    kind.check_len(len)?;
    if off as u64 + len as u64 > pool_bytes as u64 {
        return Err(Errno::FAULT);
    }
    Ok(off as u64 | (len as u64) << 32)
}

const MODIFY_PATCH: u64 = 0;
const MODIFY_ADD: u64 = 1;
const MODIFY_XOR: u64 = 2;
const MODIFY_XOR_IMM: u64 = 3;
const MODIFY_COMPARE_SWAP: u64 = 4;

fn get_modify(sqe: &Sqe, pool_bytes: u32) -> Result<Raw, Errno> {
    let kind = sqe.aux as u64 & 0xff;
    let (imm0, imm1) = (imm64(sqe, 0), imm64(sqe, 1));
    let a = range(RangeKind::Bytes, sqe.pool_off, sqe.length, pool_bytes)?;
    let (a_used, imm0_used, imm1_used) = match kind {
        MODIFY_PATCH | MODIFY_XOR => (true, false, false),
        MODIFY_ADD => (false, true, false),
        MODIFY_XOR_IMM => (false, true, true),
        MODIFY_COMPARE_SWAP => {
            range(RangeKind::Bytes, imm0 as u32, (imm0 >> 32) as u32, pool_bytes)?;
            (true, true, false)
        }
        _ => return Err(Errno::INVAL),
    };
    if (!a_used && a != 0) || (!imm0_used && imm0 != 0) || (!imm1_used && imm1 != 0) {
        return Err(Errno::INVAL);
    }
    Ok([kind, a, imm0, imm1])
}

/// A Rust type that is carried in a lane.
pub(crate) trait Field: Sized {
    fn from_raw(raw: Raw) -> Result<Self, Errno>;
    fn to_raw(&self) -> Raw;
}

impl Field for u64 {
    #[inline(always)]
    fn from_raw(raw: Raw) -> Result<Self, Errno> {
        Ok(raw[0])
    }
    #[inline(always)]
    fn to_raw(&self) -> Raw {
        [*self, 0, 0, 0]
    }
}

impl Field for i64 {
    #[inline(always)]
    fn from_raw(raw: Raw) -> Result<Self, Errno> {
        Ok(raw[0] as i64)
    }
    #[inline(always)]
    fn to_raw(&self) -> Raw {
        [*self as u64, 0, 0, 0]
    }
}

impl Field for u32 {
    #[inline(always)]
    fn from_raw(raw: Raw) -> Result<Self, Errno> {
        Ok(raw[0] as u32)
    }
    #[inline(always)]
    fn to_raw(&self) -> Raw {
        [*self as u64, 0, 0, 0]
    }
}

impl Field for u16 {
    #[inline(always)]
    fn from_raw(raw: Raw) -> Result<Self, Errno> {
        raw[0].try_into().map_err(|_| Errno::INVAL)
    }
    #[inline(always)]
    fn to_raw(&self) -> Raw {
        [*self as u64, 0, 0, 0]
    }
}

impl Field for [u8; 16] {
    #[inline(always)]
    fn from_raw(raw: Raw) -> Result<Self, Errno> {
        Ok((raw[0] as u128 | (raw[1] as u128) << 64).to_le_bytes())
    }
    #[inline(always)]
    fn to_raw(&self) -> Raw {
        let v = u128::from_le_bytes(*self);
        [v as u64, (v >> 64) as u64, 0, 0]
    }
}

impl Field for bool {
    #[inline(always)]
    fn from_raw(raw: Raw) -> Result<Self, Errno> {
        Ok(raw[0] != 0)
    }
    #[inline(always)]
    fn to_raw(&self) -> Raw {
        [*self as u64, 0, 0, 0]
    }
}

impl Field for Handle {
    #[inline(always)]
    fn from_raw(raw: Raw) -> Result<Self, Errno> {
        Ok(Handle::from_wire(raw[0]))
    }
    #[inline(always)]
    fn to_raw(&self) -> Raw {
        [self.to_wire(), 0, 0, 0]
    }
}

impl Field for PoolRange {
    #[inline(always)]
    fn from_raw(raw: Raw) -> Result<Self, Errno> {
        Ok(PoolRange { off: raw[0] as u32, len: (raw[0] >> 32) as u32 })
    }
    #[inline(always)]
    fn to_raw(&self) -> Raw {
        [self.off as u64 | (self.len as u64) << 32, 0, 0, 0]
    }
}

impl Field for Place {
    #[inline(always)]
    fn from_raw(raw: Raw) -> Result<Self, Errno> {
        match (raw[0], raw[1]) {
            (0, off) => Ok(Place::Offset(off)),
            (1, 0) => Ok(Place::Current),
            (2, 0) => Ok(Place::End),
            _ => Err(Errno::INVAL),
        }
    }
    #[inline(always)]
    fn to_raw(&self) -> Raw {
        match *self {
            Place::Offset(off) => [0, off, 0, 0],
            Place::Current => [1, 0, 0, 0],
            Place::End => [2, 0, 0, 0],
        }
    }
}

impl Field for Modify {
    fn from_raw(raw: Raw) -> Result<Self, Errno> {
        let a = PoolRange::from_raw([raw[1], 0, 0, 0])?;
        Ok(match raw[0] {
            MODIFY_PATCH => Modify::Patch(a),
            MODIFY_ADD => Modify::Add(raw[2]),
            MODIFY_XOR => Modify::Xor(a),
            MODIFY_XOR_IMM => {
                let imm = raw[2] as u128 | (raw[3] as u128) << 64;
                Modify::XorImm(imm.to_le_bytes())
            }
            MODIFY_COMPARE_SWAP => Modify::CompareSwap { expect: a, new: PoolRange::from_raw([raw[2], 0, 0, 0])? },
            _ => return Err(Errno::INVAL),
        })
    }
    fn to_raw(&self) -> Raw {
        match *self {
            Modify::Patch(a) => [MODIFY_PATCH, a.to_raw()[0], 0, 0],
            Modify::Add(v) => [MODIFY_ADD, 0, v, 0],
            Modify::Xor(a) => [MODIFY_XOR, a.to_raw()[0], 0, 0],
            Modify::XorImm(imm) => {
                let v = u128::from_le_bytes(imm);
                [MODIFY_XOR_IMM, 0, v as u64, (v >> 64) as u64]
            }
            Modify::CompareSwap { expect, new } => [MODIFY_COMPARE_SWAP, expect.to_raw()[0], new.to_raw()[0], 0],
        }
    }
}

macro_rules! bits_field {
    ($($ty:ty),*) => { $(impl Field for $ty {
        #[inline(always)]
        fn from_raw(raw: Raw) -> Result<Self, Errno> {
            <$ty>::from_bits(raw[0].try_into().map_err(|_| Errno::INVAL)?).ok_or(Errno::INVAL)
        }
        #[inline(always)]
        fn to_raw(&self) -> Raw {
            [self.bits() as u64, 0, 0, 0]
        }
    })* };
}
bits_field!(OpenFlags, AccessMask, RenameFlags, XattrFlags);

macro_rules! enum_field {
    ($($ty:ty),*) => { $(impl Field for $ty {
        #[inline(always)]
        fn from_raw(raw: Raw) -> Result<Self, Errno> {
            <$ty>::from_wire(raw[0]).ok_or(Errno::INVAL)
        }
        #[inline(always)]
        fn to_raw(&self) -> Raw {
            [*self as u64, 0, 0, 0]
        }
    })* };
}
enum_field!(FallocMode, Whence, LockAction, LockKind, LockSpace, ChecksumKind, KeyKind);
