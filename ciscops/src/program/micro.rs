//! The micro-ops of programs.

use super::operand::*;
use crate::Handle;
use crate::flags::{Access, OpenFlags, RenameFlags};

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
    /// How many bytes a buffer holds.
    Length {
        /// The buffer.
        buf: BufSlot,
        /// Where their number goes.
        to: Reg,
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
    /// Walks over records that lie one behind the other, up to the first that is not whole and sound.
    Scan {
        /// In which file.
        file: FileSlot,
        /// From which byte.
        off: Value,
        /// Over at most so many bytes.
        len: Value,
        /// How a record lies in the file.
        record: Record,
        /// The offset of each good record goes here, u64 little-endian; when it is full the scan ends.
        offsets: Option<Pool>,
        /// Gets the number of good records.
        count: Option<Reg>,
        /// Gets the offset behind the last good record.
        end: Option<Reg>,
        /// Gets why the scan ended: a `program::scan_end`.
        why: Option<Reg>,
    },
    /// Puts in a buffer what a codec or cipher makes of another one.
    Transform {
        /// The buffer that gets it, and says by its capacity how long it may be (E2BIG).
        buf: BufSlot,
        /// What it is made of.
        from: BufSlot,
        /// What is done.
        how: Transform,
    },
    /// Puts in a buffer what a kernel makes of another one, in an FPGA slot.
    Kernel {
        /// The buffer that gets it, and says by its capacity how long it may be (E2BIG).
        buf: BufSlot,
        /// What the kernel is given, as one packet.
        from: BufSlot,
        /// Its name: 1 to 40 of `a` to `z`, digits and `-`; perhaps `:` and the name of a back-end.
        name: Str,
        /// Its parameters: words of 32 bits, little-endian.
        params: Str,
        /// Bit i: word i is the number of a register, whose low 32 bits are meant. (The first 64 words can be.)
        registers: u64,
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
    pub(crate) fn names_file(&self) -> Option<FileSlot> {
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

    /// Whether it puts bytes in that range, perhaps fewer than the range has; then the register that counts them.
    pub fn fills_in_part(&self, p: Pool) -> Option<Option<Reg>> {
        match *self {
            Micro::Read { to: To::Pool(to), whole: false, pad: false, count, .. } if to == p => Some(count),
            Micro::Give { to, count, .. } if to == p => Some(count),
            _ => None,
        }
    }

    /// Whether it sets that register.
    pub fn sets(&self, r: Reg) -> bool {
        let of = |fold: Option<Fold>| fold.map(|fold| fold.to);
        let set = match *self {
            Micro::Open { created, .. } => [created, None, None],
            Micro::Read { count, fold, .. } => [count, of(fold), None],
            Micro::Write { at, fold, .. } => [at, of(fold), None],
            Micro::Size { to, .. } | Micro::Checksum { to, .. } | Micro::Load { to, .. } => [Some(to), None, None],
            Micro::Arith { to, .. } | Micro::Length { to, .. } => [Some(to), None, None],
            Micro::Give { count, .. } | Micro::CopyRange { count, .. } => [count, None, None],
            Micro::Scan { count, end, why, .. } => [count, end, why],
            _ => [None; 3],
        };
        set.contains(&Some(r))
    }

    /// Whether it takes its bytes from there.
    pub fn takes(&self, bytes: Bytes) -> bool {
        match *self {
            Micro::Write { from, .. } | Micro::Fill { from, .. } => from == bytes,
            Micro::Checksum { of, .. } => of == bytes,
            Micro::Guard { cond: Cond::Holds { bytes: b, .. }, .. } => b == bytes,
            Micro::Transform { how: Transform::Seal { bound, .. } | Transform::Open { bound, .. }, .. } => {
                bound == Some(bytes)
            }
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
