//! The op table: each operation's number, name and operands, and for each operand the *lane* of the SQE it lies in.
//! One listing gives `Opcode`, `OPS`, the decoder and the encoder, so the two directions cannot drift apart.

use crate::codec::{Field, Lane, OffsetHigh, RangeKind};
use crate::command::Op;
use crate::{Errno, Sqe};

/// One operand of an op: its name in `Op`, and where it lies.
#[derive(Clone, Copy, Debug)]
pub struct OperandSpec {
    /// Name as in `Op`.
    pub name: &'static str,
    /// Its place in the SQE.
    pub lane: Lane,
}

/// One row of the op table.
#[derive(Clone, Copy, Debug)]
pub struct OpSpec {
    /// The opcode.
    pub opcode: Opcode,
    /// Name in documents, traces and reports.
    pub name: &'static str,
    /// Whether several micro-ops run in the one command.
    pub fused: bool,
    /// Operands in the order of `Op`.
    pub operands: &'static [OperandSpec],
    /// Bits of the SQE (as eight words) that this op gives a meaning; all others must be zero.
    pub used: [u64; 8],
}

/// Bits every op uses: opcode, flags, sequence.
const HEADER_BITS: [u64; 8] = [0xffff_ffff, u64::MAX, 0, 0, 0, 0, 0, 0];

const fn used_bits(operands: &[OperandSpec]) -> [u64; 8] {
    let mut used = HEADER_BITS;
    let mut i = 0;
    while i < operands.len() {
        let mask = operands[i].lane.mask();
        let mut w = 0;
        while w < 8 {
            assert!(used[w] & mask[w] == 0, "two operands share bits");
            used[w] |= mask[w];
            w += 1;
        }
        i += 1;
    }
    used
}

macro_rules! op_table {
    ($($variant:ident = $number:literal, $name:literal, $fused:literal { $($field:ident : $lane:expr),* $(,)? })*) => {
        /// Operation numbers. Never reused; a new meaning gets a new number.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u16)]
        #[allow(missing_docs)] // one line each in docs/COMMANDS.md
        pub enum Opcode { $($variant = $number),* }

        impl Opcode {
            /// From the wire.
            #[inline]
            pub const fn from_wire(v: u16) -> Option<Opcode> {
                match v { $($number => Some(Opcode::$variant),)* _ => None }
            }

            /// This op's row.
            #[inline]
            pub const fn spec(self) -> &'static OpSpec {
                match self { $(Opcode::$variant => const { &OpSpec {
                    opcode: Opcode::$variant,
                    name: $name,
                    fused: $fused,
                    operands: &[$(OperandSpec { name: stringify!($field), lane: $lane }),*],
                    used: used_bits(&[$(OperandSpec { name: stringify!($field), lane: $lane }),*]),
                } },)* }
            }
        }

        /// Every op, in order of number.
        pub const OPS: &[&OpSpec] = &[$(Opcode::$variant.spec()),*];

        impl Op {
            /// This op's number.
            #[inline]
            pub const fn opcode(&self) -> Opcode {
                match self { $(Op::$variant { .. } => Opcode::$variant,)* }
            }
        }

        /// Operands of `opcode` out of the SQE; ranges are checked against `pool_bytes`, numbers only for form.
        #[inline]
        pub(crate) fn take_operands(opcode: Opcode, sqe: &Sqe, pool_bytes: u32) -> Result<Op, Errno> {
            match opcode {
                $(Opcode::$variant => {
                    // A function of its own: in one, the operands of all ops would be kept apart in registers.
                    #[inline(never)]
                    fn take(_sqe: &Sqe, _pool_bytes: u32) -> Result<Op, Errno> {
                        Ok(Op::$variant { $($field: Field::from_raw(const { $lane }.get(_sqe, _pool_bytes)?)?),* })
                    }
                    take(sqe, pool_bytes)
                })*
            }
        }

        /// Operands of `op` into the SQE.
        #[inline]
        pub(crate) fn put_operands(op: &Op, sqe: &mut Sqe) {
            sqe.opcode = op.opcode() as u16;
            match op {
                $(Op::$variant { $($field),* } => { $(const { $lane }.put(sqe, Field::to_raw($field));)* })*
            }
        }
    };
}

use Lane::{A, At, Aux, B, C, Handle, Imm32, Imm64, Imm128, Modify, Offset};
use RangeKind::{Bytes, Exact, Name, OptExact, Path, PathOrSelf, Target};

/// Aux bits 0-15: open flags.
const OPEN_FLAGS: Lane = Aux { shift: 0, bits: 16 };
/// Aux bits 16-27: permission bits.
const MODE: Lane = Aux { shift: 16, bits: 12 };
/// Aux bits 0-7: a kind, mask or small flag set.
const KIND: Lane = Aux { shift: 0, bits: 8 };
/// Aux bit 31: do not follow a final symbolic link (or, for link, do).
const LINK_BIT: Lane = Aux { shift: 31, bits: 1 };

op_table! {
    Nop = 0, "nop", false {}
    Open = 1, "open", false {
        base: Handle, path: A(Path), flags: OPEN_FLAGS, mode: MODE, placeholder: Imm32(0), look: B(Bytes),
        watch: Imm32(4)
    }
    Close = 2, "close", false { h: Handle }
    Read = 3, "read", false { h: Handle, at: At(OffsetHigh::Offset), out: A(Bytes), watch: Imm32(0) }
    Write = 4, "write", false { h: Handle, at: At(OffsetHigh::Offset), src: A(Bytes) }
    Truncate = 5, "truncate", false { h: Handle, size: Offset }
    Fallocate = 6, "fallocate", false { h: Handle, mode: KIND, off: Offset, len: Imm64(0) }
    Seek = 7, "seek", false { h: Handle, whence: KIND, off: Offset }
    Fsync = 8, "fsync", false { h: Handle }
    Fdatasync = 9, "fdatasync", false { h: Handle }
    Syncfs = 10, "syncfs", false {}
    Stat = 11, "stat", false { h: Handle, out: A(Exact(256)) }
    StatPath = 12, "stat_path", false { base: Handle, path: A(PathOrSelf), nofollow: LINK_BIT, out: B(Exact(256)) }
    SetAttr = 13, "set_attr", false { h: Handle, set: A(Exact(64)) }
    SetAttrPath = 14, "set_attr_path", false {
        base: Handle, path: A(PathOrSelf), nofollow: LINK_BIT, set: B(Exact(64))
    }
    ReadDir = 15, "read_dir", false { h: Handle, cookie: Offset, out: A(Bytes) }
    Lock = 16, "lock", false {
        h: Handle,
        action: Aux { shift: 0, bits: 4 },
        kind: Aux { shift: 4, bits: 4 },
        space: Aux { shift: 8, bits: 4 },
        start: Offset,
        len: Imm64(0),
        owner: Imm64(8),
        out: A(OptExact(32)),
    }
    SetFlags = 17, "set_flags", false { h: Handle, flags: OPEN_FLAGS }
    Statfs = 18, "statfs", false { out: A(Exact(128)) }
    Outcome = 19, "outcome", false {
        client: Imm128, queue: Aux { shift: 0, bits: 16 }, sequence: Offset, out: A(Exact(64))
    }
    ChecksumRange = 20, "checksum_range", false { h: Handle, kind: KIND, offset: Offset, len: Imm64(0) }
    Batch = 21, "batch", false { items: A(Bytes), results: B(Bytes) }
    ReadDirPlus = 22, "read_dir_plus", false { h: Handle, cookie: Offset, out: A(Bytes), watch: Imm32(0) }
    SetKey = 23, "set_key", false { kind: KIND, bytes: A(Bytes) }
    DropKey = 24, "drop_key", false { key: Imm64(0) }
    TxnBegin = 25, "txn_begin", false {}
    TxnWrite = 26, "txn_write", false { txn: Handle, h: Imm64(0), at: At(OffsetHigh::Offset), src: A(Bytes) }
    TxnCommit = 27, "txn_commit", false { txn: Handle }
    TxnAbort = 28, "txn_abort", false { txn: Handle }
    WriteVerified = 29, "write_verified", false {
        h: Handle, at: At(OffsetHigh::Offset), src: A(Bytes), kind: KIND, sum: Imm32(0)
    }
    Mkdir = 32, "mkdir", false { base: Handle, path: A(Path), mode: MODE }
    Rmdir = 33, "rmdir", false { base: Handle, path: A(Path) }
    Unlink = 34, "unlink", false { base: Handle, path: A(Path) }
    Rename = 35, "rename", false { from_base: Handle, from: A(Path), to_base: Imm64(0), to: B(Path), flags: KIND }
    Link = 36, "link", false {
        from_base: Handle, from: A(PathOrSelf), to_base: Imm64(0), to: B(Path), follow: LINK_BIT
    }
    Symlink = 37, "symlink", false { base: Handle, path: A(Path), target: B(Target) }
    Readlink = 38, "readlink", false { base: Handle, path: A(PathOrSelf), out: B(Bytes) }
    Access = 39, "access", false { base: Handle, path: A(PathOrSelf), mask: KIND, nofollow: LINK_BIT }
    GetXattr = 40, "get_xattr", false {
        base: Handle, path: A(PathOrSelf), nofollow: LINK_BIT, name: C(Name), out: B(Bytes)
    }
    SetXattr = 41, "set_xattr", false {
        base: Handle, path: A(PathOrSelf), nofollow: LINK_BIT, name: C(Name), value: B(Bytes), flags: KIND
    }
    ListXattr = 42, "list_xattr", false { base: Handle, path: A(PathOrSelf), nofollow: LINK_BIT, out: B(Bytes) }
    RemoveXattr = 43, "remove_xattr", false { base: Handle, path: A(PathOrSelf), nofollow: LINK_BIT, name: C(Name) }
    VirtRegister = 44, "virt_register", false { base: Handle, path: A(Path), mode: MODE, spec: B(Bytes) }
    VirtSpec = 45, "virt_spec", false { base: Handle, path: A(PathOrSelf), nofollow: LINK_BIT, out: B(Bytes) }
    VirtParams = 46, "virt_params", false { h: Handle, params: A(Bytes) }
    OpenWriteClose = 64, "open_write_close", true {
        base: Handle, path: A(Path), flags: OPEN_FLAGS, mode: MODE, at: At(OffsetHigh::Offset), src: B(Bytes)
    }
    OpenReadClose = 65, "open_read_close", true {
        base: Handle, path: A(Path), flags: OPEN_FLAGS, offset: Offset, out: B(Bytes)
    }
    OpenReadWriteClose = 66, "open_read_write_close", true {
        base: Handle, path: A(Path), flags: OPEN_FLAGS, mode: MODE, read_off: Offset, out: B(Bytes),
        at: At(OffsetHigh::Imm), src: C(Bytes)
    }
    AppendChecksumWrite = 67, "append_checksum_write", true { h: Handle, kind: KIND, src: A(Bytes) }
    ReadChecksumVerify = 68, "read_checksum_verify", true {
        h: Handle, kind: KIND, offset: Offset, len: Imm32(0), out: A(Bytes)
    }
    ReadModifyWrite = 69, "read_modify_write", true {
        h: Handle, offset: Offset, len: Aux { shift: 8, bits: 24 }, modify: Modify, out: B(Bytes)
    }
    Program = 70, "program", true { body: A(Bytes) }
}

impl core::fmt::Display for Lane {
    /// As docs/COMMANDS.md writes it.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {
            Lane::Handle => write!(f, "handle"),
            Lane::Offset => write!(f, "offset"),
            Lane::Aux { shift, bits: 1 } => write!(f, "aux[{shift}]"),
            Lane::Aux { shift, bits } => write!(f, "aux[{shift}..{}]", shift + bits),
            Lane::Imm32(at) => write!(f, "imm[{at}..{}]", at + 4),
            Lane::Imm64(at) => write!(f, "imm[{at}..{}]", at + 8),
            Lane::Imm128 => write!(f, "imm"),
            Lane::A(kind) => write!(f, "A {kind}"),
            Lane::B(kind) => write!(f, "B {kind}"),
            Lane::C(kind) => write!(f, "C {kind}"),
            Lane::At(OffsetHigh::Offset) => write!(f, "aux[28..30] + offset"),
            Lane::At(OffsetHigh::Imm) => write!(f, "aux[28..30] + imm[8..16]"),
            Lane::Modify => write!(f, "aux[0..8] + A + imm"),
        }
    }
}

impl core::fmt::Display for RangeKind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {
            RangeKind::Path => write!(f, "path"),
            RangeKind::PathOrSelf => write!(f, "path?"),
            RangeKind::Target => write!(f, "target"),
            RangeKind::Name => write!(f, "name"),
            RangeKind::Bytes => write!(f, "bytes"),
            RangeKind::Exact(n) => write!(f, "={n}"),
            RangeKind::OptExact(n) => write!(f, "={n}?"),
        }
    }
}

impl core::fmt::Display for OpSpec {
    /// The op's row in docs/COMMANDS.md.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "| {} | `{}` |", self.opcode as u16, self.name)?;
        for (i, o) in self.operands.iter().enumerate() {
            write!(f, "{}{}: {}", if i == 0 { " " } else { "; " }, o.name, o.lane)?;
        }
        write!(f, " |")
    }
}
