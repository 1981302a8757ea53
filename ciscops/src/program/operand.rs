//! The operands that micro-ops are made of.

use crate::Errno;

/// A place for a file: 0..`limits::PROGRAM_FILES`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileSlot(pub u8);

/// A private buffer: 0..`limits::PROGRAM_BUFFERS`. Holds as many bytes as were put in, at most its capacity.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BufSlot(pub u8);

/// A register, 64 bits: 0..`limits::PROGRAM_REGISTERS`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reg(pub u8);

/// A range of the client's pool, by its number in the body's table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pool(pub u8);

/// A string of the body, by its number in the table: a path, a link's target, or literal bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Str(pub u8);

/// A number: a constant, or what a register holds when the micro-op runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Value {
    /// A constant.
    Imm(u64),
    /// A register.
    Reg(Reg),
}

/// Bytes of an integer in a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Width {
    /// One byte.
    W1 = 0,
    /// Two bytes.
    W2 = 1,
    /// Four bytes.
    W4 = 2,
    /// Eight bytes.
    W8 = 3,
}

impl Width {
    /// Bytes.
    pub const fn bytes(self) -> usize {
        1 << self as u8
    }
}

/// Which byte of an integer comes first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Order {
    /// The lowest.
    Little = 0,
    /// The highest.
    Big = 1,
}

/// How an integer lies in a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Int {
    /// Bytes.
    pub width: Width,
    /// Byte order.
    pub order: Order,
}

impl Int {
    /// Four bytes, little-endian: the usual checksum.
    pub const U32_LE: Int = Int { width: Width::W4, order: Order::Little };
    /// Eight bytes, little-endian.
    pub const U64_LE: Int = Int { width: Width::W8, order: Order::Little };

    /// The low bytes of `v` as they lie in a file; the first `width` of the array.
    pub fn put(self, v: u64) -> [u8; 8] {
        match self.order {
            Order::Little => v.to_le_bytes(),
            Order::Big => (v << (64 - 8 * self.width.bytes())).to_be_bytes(),
        }
    }

    /// The integer that `bytes`, of this width, are.
    pub fn get(self, bytes: &[u8]) -> u64 {
        let n = self.width.bytes().min(bytes.len());
        let mut wide = [0; 8];
        match self.order {
            Order::Little => {
                wide[..n].copy_from_slice(&bytes[..n]);
                u64::from_le_bytes(wide)
            }
            Order::Big => {
                wide[8 - n..].copy_from_slice(&bytes[..n]);
                u64::from_be_bytes(wide)
            }
        }
    }
}

/// Where bytes come from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Bytes {
    /// What a buffer holds.
    Buffer(BufSlot),
    /// A range of the client's pool, copied at this moment.
    Pool(Pool),
    /// A string of the body.
    Literal(Str),
    /// A register as an integer.
    Int(Reg, Int),
}

/// Where read bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum To {
    /// Nowhere: only their number or checksum is wanted.
    Nowhere,
    /// A buffer, in place of what it held.
    Buffer(BufSlot),
    /// A range of the client's pool.
    Pool(Pool),
}

/// Kinds of checksums.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum SumKind {
    /// CRC-32C (Castagnoli).
    Crc32c = 0,
    /// CRC-32 (IEEE 802.3), as zip and Ethernet have it.
    Crc32 = 1,
    /// CRC-32C rotated right by 15 and added to 0xa282ead8, as LevelDB and RocksDB store it.
    Crc32cMasked = 2,
}

/// A checksum taken of the very bytes that a micro-op reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fold {
    /// Which.
    pub kind: SumKind,
    /// Where it goes.
    pub to: Reg,
}

/// How the records of a log lie in a file: a head of fixed length that holds the length of the payload behind it, and a
/// checksum of four bytes in the head or behind the payload. A head of zeros is no record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Record {
    /// Bytes of the head, 1..=64.
    pub head: u8,
    /// Where in the head the length of the payload is, and how it lies there.
    pub len_at: u8,
    /// See `len_at`.
    pub len: Int,
    /// Where in the head the checksum is; `None`: right behind the payload.
    pub sum_at: Option<u8>,
    /// Byte order of the checksum.
    pub sum_order: Order,
    /// Which checksum.
    pub sum: SumKind,
    /// The checksum is that of the head from this byte on, and of the payload; `head` for the payload alone. A checksum
    /// in the head lies before it.
    pub covers: u8,
}

/// Compression formats.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Codec {
    /// LZ4 frames.
    Lz4 = 0,
    /// Zstandard frames (RFC 8878).
    Zstd = 1,
    /// The snappy framing format.
    Snappy = 2,
}

/// What a transform does. Keys are named by what the session got for them (ENOKEY when it has none of that name).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transform {
    /// Compresses.
    Compress(Codec),
    /// Decompresses; EBADMSG when the bytes are not of the format.
    Decompress(Codec),
    /// Encrypts data units (AES-XTS); the plaintext is as long.
    EncryptUnits {
        /// Name of the key.
        key: u64,
        /// log2 of the bytes of a unit, 9..=12.
        unit_log: u8,
        /// Number of the first unit.
        first: Value,
    },
    /// Decrypts data units.
    DecryptUnits {
        /// Name of the key.
        key: u64,
        /// log2 of the bytes of a unit, 9..=12.
        unit_log: u8,
        /// Number of the first unit.
        first: Value,
    },
    /// Encrypts a record (AES-GCM): nonce, ciphertext, tag; 28 bytes longer.
    Seal {
        /// Name of the key.
        key: u64,
        /// Bytes that are not in the record and that its tag covers; no pool range.
        bound: Option<Bytes>,
    },
    /// Decrypts a record; EBADMSG when it is not authentic.
    Open {
        /// Name of the key.
        key: u64,
        /// What the tag covers beside.
        bound: Option<Bytes>,
    },
}

/// Where a micro-write writes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// At this byte (at the end, if the file was opened with APPEND, as in pwrite on Linux).
    At(Value),
    /// At the end: an append.
    End,
    /// Right behind the last write of this program to the file in this slot.
    After,
}

/// How a buffer is changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Change {
    /// The bytes are replaced.
    Patch(Bytes),
    /// An integer is added to, wrapping.
    Add(Int, Value),
    /// Bitwise and.
    And(Bytes),
    /// Bitwise or.
    Or(Bytes),
    /// Bitwise exclusive or.
    Xor(Bytes),
    /// Replaced by `new` if they equal `expect`, else ECANCELED. Both have one length.
    CompareSwap {
        /// What must be there.
        expect: Bytes,
        /// What shall be there.
        new: Bytes,
    },
}

/// Arithmetic on 64 bits without sign; wrapping.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Arith {
    /// a + b.
    Add = 0,
    /// a - b.
    Sub = 1,
    /// a * b.
    Mul = 2,
    /// Bitwise and.
    And = 3,
    /// Bitwise or.
    Or = 4,
    /// Bitwise exclusive or.
    Xor = 5,
    /// a shifted left by b bits; 0 from 64 on.
    Shl = 6,
    /// a shifted right by b bits; 0 from 64 on.
    Shr = 7,
    /// The smaller.
    Min = 8,
    /// The larger.
    Max = 9,
}

impl Arith {
    /// The result.
    pub fn of(self, a: u64, b: u64) -> u64 {
        let shift = u32::try_from(b).unwrap_or(64);
        match self {
            Arith::Add => a.wrapping_add(b),
            Arith::Sub => a.wrapping_sub(b),
            Arith::Mul => a.wrapping_mul(b),
            Arith::And => a & b,
            Arith::Or => a | b,
            Arith::Xor => a ^ b,
            Arith::Shl => a.checked_shl(shift).unwrap_or(0),
            Arith::Shr => a.checked_shr(shift).unwrap_or(0),
            Arith::Min => a.min(b),
            Arith::Max => a.max(b),
        }
    }
}

/// How two numbers compare, without sign.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Relation {
    /// Equal.
    Eq = 0,
    /// Not equal.
    Ne = 1,
    /// Less.
    Lt = 2,
    /// Less or equal.
    Le = 3,
    /// Greater.
    Gt = 4,
    /// Greater or equal.
    Ge = 5,
}

impl Relation {
    /// Whether it holds.
    pub fn holds(self, a: u64, b: u64) -> bool {
        match self {
            Relation::Eq => a == b,
            Relation::Ne => a != b,
            Relation::Lt => a < b,
            Relation::Le => a <= b,
            Relation::Gt => a > b,
            Relation::Ge => a >= b,
        }
    }
}

/// What a guard asks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cond {
    /// About two numbers: a checksum, a count (a short read), whether a file was created.
    Compare(Value, Relation, Value),
    /// Whether a buffer holds these bytes at this offset; not when it ends before them.
    Holds {
        /// The buffer.
        buf: BufSlot,
        /// Where in it, bytes.
        off: Value,
        /// Which bytes.
        bytes: Bytes,
    },
}

/// What happens when a guard's condition does not hold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Else {
    /// The program fails with this errno, 1..=4095.
    Fail(Errno),
    /// The program is over, and went well.
    End,
    /// So many of the following micro-ops are passed by, at least one; the last of them may be the program's last.
    Skip(u8),
}
