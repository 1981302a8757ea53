//! The micro-ops of programs, and the operands they are made of.

use crate::flags::{Access, OpenFlags, RenameFlags};
use crate::{Errno, Handle};

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

/// One step of a program. Errors of a step are those of the single op of that name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Micro {
    /// Opens, perhaps creates, a file for the rest of the program.
    Open {
        /// Where it goes.
        file: FileSlot,
        /// Directory to start from.
        base: Handle,
        /// Its path.
        path: Str,
        /// As in `open`; READ or WRITE, and none of PATH, DIRECTORY, TMPFILE.
        flags: OpenFlags,
        /// Permission bits of a new file.
        mode: u16,
        /// Gets 1 if this micro-op created the file, else 0.
        created: Option<Reg>,
    },
    /// Takes the file behind a handle.
    Use {
        /// Where it goes.
        file: FileSlot,
        /// The handle.
        h: Handle,
        /// What its grant must hold.
        need: Access,
    },
    /// Reads, short at the end of the file.
    Read {
        /// From which file.
        file: FileSlot,
        /// From which byte.
        off: Value,
        /// How many bytes.
        len: Value,
        /// Where to.
        to: To,
        /// Fewer bytes than `len` are an error (ENODATA).
        whole: bool,
        /// A buffer gets `len` bytes in any case: zeros past the end of the file.
        pad: bool,
        /// A checksum of the bytes read (without padding).
        fold: Option<Fold>,
        /// Gets the number of bytes read (without padding).
        count: Option<Reg>,
    },
    /// Writes all of `from`.
    Write {
        /// Into which file.
        file: FileSlot,
        /// Where.
        place: Place,
        /// What.
        from: Bytes,
        /// A checksum of the bytes stored.
        fold: Option<Fold>,
        /// Gets the offset of the first byte.
        at: Option<Reg>,
    },
    /// The size of a file.
    Size {
        /// Which.
        file: FileSlot,
        /// Where it goes.
        to: Reg,
    },
    /// Sets the size of a file.
    Truncate {
        /// Which.
        file: FileSlot,
        /// Bytes.
        size: Value,
    },
    /// A checksum of bytes.
    Checksum {
        /// Which.
        kind: SumKind,
        /// Of what.
        of: Bytes,
        /// Where it goes.
        to: Reg,
    },
    /// Changes a part of what a buffer holds; ERANGE when the buffer ends before it.
    Change {
        /// The buffer.
        buf: BufSlot,
        /// Where in it, bytes.
        off: Value,
        /// How.
        change: Change,
    },
    /// An integer out of a buffer; ERANGE when the buffer ends before it.
    Load {
        /// Where it goes.
        to: Reg,
        /// The buffer.
        buf: BufSlot,
        /// Where in it, bytes.
        off: Value,
        /// How it lies there.
        int: Int,
    },
    /// Arithmetic.
    Arith {
        /// Where the result goes.
        to: Reg,
        /// Left operand.
        a: Value,
        /// What is done.
        op: Arith,
        /// Right operand.
        b: Value,
    },
    /// Puts bytes in a buffer.
    Fill {
        /// The buffer.
        buf: BufSlot,
        /// Which bytes; not the buffer itself.
        from: Bytes,
        /// Behind what it holds, and not in its place.
        append: bool,
    },
    /// Puts a part of what a buffer holds in a buffer (perhaps the same); ERANGE when there is less.
    Slice {
        /// The buffer that gets it.
        buf: BufSlot,
        /// The buffer it is in.
        from: BufSlot,
        /// From which byte.
        off: Value,
        /// How many bytes.
        len: Value,
    },
    /// Hands what a buffer holds to the client; ERANGE when the range is too short.
    Give {
        /// The buffer.
        buf: BufSlot,
        /// Where it goes.
        to: Pool,
        /// Gets the number of bytes.
        count: Option<Reg>,
    },
    /// Copies from file to file, short at the end of the source. EINVAL when the two ranges are of one file and meet.
    CopyRange {
        /// From which file.
        from: FileSlot,
        /// From which byte.
        off: Value,
        /// How many bytes.
        len: Value,
        /// At most that many, a bound known beforehand: E2BIG when `len` turns out larger. A multiple of 64 KiB, and
        /// zero if `len` is a constant.
        max: u32,
        /// Into which file.
        to: FileSlot,
        /// Where.
        place: Place,
        /// Gets the number of bytes copied.
        count: Option<Reg>,
    },
    /// Goes on, or does not.
    Guard {
        /// What is asked.
        cond: Cond,
        /// What happens when it does not hold.
        otherwise: Else,
    },
    /// Removes a name that is not a directory.
    Unlink {
        /// Directory to start from.
        base: Handle,
        /// The name.
        path: Str,
    },
    /// Removes an empty directory.
    Rmdir {
        /// Directory to start from.
        base: Handle,
        /// The name.
        path: Str,
    },
    /// Makes a directory.
    Mkdir {
        /// Directory to start from.
        base: Handle,
        /// The name.
        path: Str,
        /// Permission bits.
        mode: u16,
    },
    /// Renames, replaces or exchanges.
    Rename {
        /// Directory that `from` starts from.
        from_base: Handle,
        /// The old name.
        from: Str,
        /// Directory that `to` starts from.
        to_base: Handle,
        /// The new name.
        to: Str,
        /// As in `rename`.
        flags: RenameFlags,
    },
    /// Makes a hard link.
    Link {
        /// Directory that `from` starts from; without `from` the object itself.
        from_base: Handle,
        /// The object.
        from: Option<Str>,
        /// Directory that `to` starts from.
        to_base: Handle,
        /// The new name.
        to: Str,
        /// Whether a final symbolic link of `from` is followed.
        follow: bool,
    },
    /// Makes a symbolic link.
    Symlink {
        /// What it says.
        target: Str,
        /// Directory to start from.
        base: Handle,
        /// Its name.
        path: Str,
    },
    /// Changes permission bits, size and times of an object, those that are given, at once.
    SetAttr {
        /// Directory that `path` starts from; without `path` the object itself.
        base: Handle,
        /// The object.
        path: Option<Str>,
        /// Whether a final symbolic link is meant, and not what it names.
        nofollow: bool,
        /// Permission bits.
        mode: Option<u16>,
        /// Size in bytes.
        size: Option<Value>,
        /// Access time: now.
        atime_now: bool,
        /// Modification time: now.
        mtime_now: bool,
    },
    /// Makes the whole command durable, whatever its flags say.
    Sync,
    /// Gives a file up: its slot is free for another.
    Close {
        /// Which.
        file: FileSlot,
    },
}

impl Micro {
    /// The slot that it puts a file in.
    pub fn names_file(&self) -> Option<FileSlot> {
        match *self {
            Micro::Open { file, .. } | Micro::Use { file, .. } => Some(file),
            _ => None,
        }
    }

    /// The slot of the file whose content or size it may change.
    pub fn changes_file(&self) -> Option<FileSlot> {
        match *self {
            Micro::Write { file, .. } | Micro::Truncate { file, .. } | Micro::CopyRange { to: file, .. } => Some(file),
            _ => None,
        }
    }

    /// The slot of the file whose content or size it looks at.
    pub fn reads_file(&self) -> Option<FileSlot> {
        match *self {
            Micro::Read { file, .. } | Micro::Size { file, .. } | Micro::CopyRange { from: file, .. } => Some(file),
            _ => None,
        }
    }

    /// Whether it takes its bytes from there.
    pub fn takes(&self, bytes: Bytes) -> bool {
        match *self {
            Micro::Write { from, .. } | Micro::Fill { from, .. } => from == bytes,
            Micro::Checksum { of, .. } => of == bytes,
            Micro::Guard { cond: Cond::Holds { bytes: b, .. }, .. } => b == bytes,
            Micro::Change { change, .. } => match change {
                Change::Patch(b) | Change::And(b) | Change::Or(b) | Change::Xor(b) => b == bytes,
                Change::CompareSwap { expect, new } => expect == bytes || new == bytes,
                Change::Add(..) => false,
            },
            _ => false,
        }
    }

    /// Whether it may change a file or a name.
    pub fn changes(&self) -> bool {
        match self {
            Micro::Open { flags, .. } => flags.intersects(OpenFlags::CREATE | OpenFlags::TRUNC),
            Micro::Unlink { .. }
            | Micro::Rmdir { .. }
            | Micro::Mkdir { .. }
            | Micro::Rename { .. }
            | Micro::Link { .. }
            | Micro::Symlink { .. }
            | Micro::SetAttr { .. } => true,
            _ => self.changes_file().is_some(),
        }
    }
}
