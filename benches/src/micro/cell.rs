//! What is measured: operations, and the cells (operation, size, depth, threads, phase, class) of the matrix.

use serde::{Serialize, Serializer};
use std::fmt;

/// An operation of the matrix. What every system does for it stands in `about`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum MicroOp {
    /// Payload and its CRC-32C at the end of a file.
    AppendChecksumWrite,
    /// The same; the host gathers both parts into one call.
    AppendChecksumWriteGathered,
    /// Payload at the end of a file.
    Append,
    /// A record overwritten in place.
    Write,
    /// A record read.
    Read,
    /// A new file with its content.
    OpenWriteClose,
    /// A file read by name.
    OpenReadClose,
    /// The same; the client copies the payload into memory of its own.
    OpenReadCloseCopied,
    /// Files read by name, eight in one command.
    OpenReadCloseBatched,
    /// New files with their content, eight in one command.
    OpenWriteCloseBatched,
    /// A file read and replaced by name.
    OpenReadWriteClose,
    /// A record read, and compared with the checksum behind it.
    ReadChecksumVerify,
    /// 64 bytes of a record changed; the host reads and writes the record.
    ReadModifyWrite,
    /// The same; the host reads and writes the 64 bytes only.
    ReadModifyWriteNarrow,
    /// A file's content replaced as a whole, durably.
    AtomicReplace,
    /// A record copied from file to file.
    CopyRange,
    /// Four files appended to a fifth.
    Concat,
    /// A record compressed (lz4) and written.
    CompressWrite,
    /// A record encrypted (AES-256-XTS) and written.
    EncryptWrite,
    /// A directory with four files.
    CreateTree,
    /// 64 names looked up by one command.
    StatMany,
    /// A directory of 256 files listed with attributes.
    ReaddirPlus,
    /// A log of 1 MiB walked over until its torn record.
    LogRecover,
    /// 64 bytes appended to a record with its length in front.
    AppendToRecord,
    /// A record at the end of a log by name, which is put aside when it is full.
    AppendAndRotate,
    /// Seven pointers followed, and a record read where the last one points.
    IndexWalk,
    /// A record written to the same place of four files, all or none.
    MultiWrite,
}

use MicroOp::*;

/// Operations in a batch.
pub(crate) const GROUP: u64 = 8;
/// Bytes that a read-modify-write changes.
pub(crate) const FIELD: usize = 64;
/// Where they begin in a record.
pub(crate) const FIELD_AT: usize = 64;

impl MicroOp {
    /// All, in the order of the tables.
    pub const ALL: [MicroOp; 27] = [
        AppendChecksumWrite,
        AppendChecksumWriteGathered,
        Append,
        Write,
        Read,
        OpenWriteClose,
        OpenReadClose,
        OpenReadCloseCopied,
        OpenReadCloseBatched,
        OpenWriteCloseBatched,
        OpenReadWriteClose,
        ReadChecksumVerify,
        ReadModifyWrite,
        ReadModifyWriteNarrow,
        AtomicReplace,
        CopyRange,
        Concat,
        CompressWrite,
        EncryptWrite,
        CreateTree,
        StatMany,
        ReaddirPlus,
        LogRecover,
        AppendToRecord,
        AppendAndRotate,
        IndexWalk,
        MultiWrite,
    ];

    /// Name in tables, JSON and `--only`.
    pub fn name(self) -> &'static str {
        match self {
            AppendChecksumWrite => "append_checksum_write",
            AppendChecksumWriteGathered => "append_checksum_write_gathered",
            Append => "append",
            Write => "write",
            Read => "read",
            OpenWriteClose => "open_write_close",
            OpenReadClose => "open_read_close",
            OpenReadCloseCopied => "open_read_close_copied",
            OpenReadCloseBatched => "open_read_close_batched",
            OpenWriteCloseBatched => "open_write_close_batched",
            OpenReadWriteClose => "open_read_write_close",
            ReadChecksumVerify => "read_checksum_verify",
            ReadModifyWrite => "read_modify_write",
            ReadModifyWriteNarrow => "read_modify_write_narrow",
            AtomicReplace => "atomic_replace",
            CopyRange => "copy_range",
            Concat => "concat",
            CompressWrite => "compress_write",
            EncryptWrite => "encrypt_write",
            CreateTree => "create_tree",
            StatMany => "stat_many",
            ReaddirPlus => "readdir_plus",
            LogRecover => "log_recover",
            AppendToRecord => "append_to_record",
            AppendAndRotate => "append_and_rotate",
            IndexWalk => "index_walk",
            MultiWrite => "multi_write",
        }
    }

    /// The steps that the host takes, which are also the single commands of the unfused row.
    pub fn about(self) -> &'static str {
        match self {
            AppendChecksumWrite => "CRC-32C of the payload, write payload, write 4 bytes",
            AppendChecksumWriteGathered => "the same, payload and trailer in one writev",
            Append => "write at the end",
            Write => "pwrite of a record inside a file of 4 MiB",
            Read => "pread of a record inside a file of 4 MiB",
            OpenWriteClose => "open a new file, write, close",
            OpenReadClose => "open, read, close; one of 256 files",
            OpenReadCloseCopied => "the same, the payload copied into the caller's memory",
            OpenReadCloseBatched => "open, read, close of eight files; figures are per file",
            OpenWriteCloseBatched => "open, write, close of eight new files; figures are per file",
            OpenReadWriteClose => "open, read, write, close; one of 256 files",
            ReadChecksumVerify => "pread the record and its checksum in one call, compare its CRC-32C",
            ReadModifyWrite => "pread the record, change 64 bytes, pwrite the record",
            ReadModifyWriteNarrow => "pread 64 bytes of the record, change them, pwrite them",
            AtomicReplace => {
                "create another file, write, fsync, close, rename it over the old one, fsync the directory"
            }
            CopyRange => "copy_file_range",
            Concat => "copy_file_range of each of four files behind each other",
            CompressWrite => "compress with the same library, pwrite",
            EncryptWrite => "encrypt with the same library, pwrite",
            CreateTree => "mkdir, four times open, write, close; all four written before the first is synced",
            StatMany => "fstatat of 64 names; figures are per name",
            ReaddirPlus => "getdents until the end, fstatat of each of 256 names",
            LogRecover => "one pread of the whole log, CRC-32C of each record",
            AppendToRecord => "pread the length, pwrite 64 bytes, pwrite the length",
            AppendAndRotate => {
                "open, fstat, pwrite at the end, close; a full log is renamed over the old one first, and made anew"
            }
            IndexWalk => "eight preads, each where the one before it says",
            MultiWrite => "four pwrites (not all or none), synced each",
        }
    }

    /// Whether it changes anything: only such operations have two durability classes.
    pub fn writes(self) -> bool {
        let by_name = matches!(self, OpenReadClose | OpenReadCloseCopied | OpenReadCloseBatched);
        let reads = by_name || matches!(self, Read | ReadChecksumVerify);
        !reads && !matches!(self, StatMany | ReaddirPlus | LogRecover | IndexWalk)
    }

    /// Whether it has an unfused row: its steps are single commands. Not so for what is one command anyway, for
    /// batches, and where the steps would be hundreds.
    pub fn fused(self) -> bool {
        !matches!(self, Append | Write | Read | StatMany | ReaddirPlus | LogRecover)
    }

    /// Whether it is measured in this class: what changes nothing is volatile, and what replaces a file durable.
    pub fn has(self, class: Class) -> bool {
        match self {
            AtomicReplace => class == Class::Durable,
            _ => self.writes() || class == Class::Volatile,
        }
    }

    /// Whether it moves no payload, so that one size is all there is to measure.
    pub(crate) fn sizeless(self) -> bool {
        matches!(self, StatMany | ReaddirPlus)
    }

    /// Whether it is another way to do an operation of the list, for comparison; left out of means.
    pub(crate) fn is_variant(self) -> bool {
        matches!(self, AppendChecksumWriteGathered | OpenReadCloseCopied | ReadModifyWriteNarrow)
            || self.is_batched()
            || self == StatMany
    }

    /// Whether eight of it go in one command.
    pub(crate) fn is_batched(self) -> bool {
        matches!(self, OpenReadCloseBatched | OpenWriteCloseBatched)
    }

    /// Operations in one command.
    pub fn group(self) -> u64 {
        match self {
            StatMany => super::catalogue::NAMES,
            _ if self.is_batched() => GROUP,
            _ => 1,
        }
    }

    /// The operation of that name.
    pub(crate) fn by_name(name: &str) -> Option<MicroOp> {
        MicroOp::ALL.into_iter().find(|op| op.name() == name)
    }
}

/// Burst or steady.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// A short run during which no checkpoint is written.
    Burst,
    /// A run over ten log lengths, checkpoints included.
    Steady,
}

impl Phase {
    /// As in JSON.
    pub fn name(self) -> &'static str {
        if self == Phase::Burst { "burst" } else { "steady" }
    }
}

/// Durability class.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Class {
    /// Visible at the end of the operation; persistent later. The host does not sync.
    Volatile,
    /// Persistent at the end of the operation. The host calls fdatasync, and fsync for a new file.
    Durable,
}

impl Class {
    /// As in JSON.
    pub fn name(self) -> &'static str {
        if self == Class::Volatile { "volatile" } else { "durable" }
    }
}

/// One cell of the matrix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cell {
    /// What is done.
    pub op: MicroOp,
    /// Bytes of payload, of the record or of the file.
    pub size: u32,
    /// Operations in flight per thread.
    pub depth: u32,
    /// Client threads, each with files of its own.
    pub threads: u32,
    /// Burst or steady.
    pub phase: Phase,
    /// Durability class.
    pub class: Class,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (op, phase, class) = (self.op.name(), self.phase.name(), self.class.name());
        write!(f, "{op} {} B, depth {}, {} thread(s), {phase}, {class}", self.size, self.depth, self.threads)
    }
}

impl Serialize for Phase {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}

impl Serialize for Class {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}

/// Which part of the matrix to run.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// Operations.
    pub ops: Vec<MicroOp>,
    /// Sizes, bytes.
    pub sizes: Vec<u32>,
    /// Sizes of the steady phase, bytes.
    pub steady_sizes: Vec<u32>,
    /// Depths.
    pub depths: Vec<u32>,
    /// Client threads.
    pub threads: Vec<u32>,
    /// Phases.
    pub phases: Vec<Phase>,
    /// Classes.
    pub classes: Vec<Class>,
}

impl Matrix {
    /// Its cells: burst first, then by operation.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &phase in &self.phases {
            let sizes = if phase == Phase::Burst { &self.sizes } else { &self.steady_sizes };
            for &op in &self.ops {
                for &class in self.classes.iter().filter(|c| op.has(**c)) {
                    let one = sizes.iter().find(|s| **s == 4096).or(sizes.first());
                    for &size in sizes.iter().filter(|s| !op.sizeless() || Some(*s) == one) {
                        for &depth in &self.depths {
                            let cell = |threads: &u32| Cell { op, size, depth, threads: *threads, phase, class };
                            cells.extend(self.threads.iter().map(cell));
                        }
                    }
                }
            }
        }
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found_again() {
        for op in MicroOp::ALL {
            assert_eq!(MicroOp::by_name(op.name()), Some(op));
        }
        assert_eq!(MicroOp::by_name("open"), None);
    }

    #[test]
    fn a_matrix_has_every_combination_and_reads_have_one_class() {
        let matrix = Matrix {
            ops: vec![Append, Read, AtomicReplace, StatMany],
            sizes: vec![256, 4096],
            steady_sizes: vec![4096],
            depths: vec![1, 32],
            threads: vec![1, 2],
            phases: vec![Phase::Burst, Phase::Steady],
            classes: vec![Class::Volatile, Class::Durable],
        };
        let cells = matrix.cells();
        // Burst: two sizes, two depths, two threads, two classes of append, one of read and of replace; steady: half of
        // that. Names have one size only.
        assert_eq!(cells.len(), 8 * 4 + 4 * 4 + 4 + 4);
        assert!(cells.iter().all(|c| c.op == Append || (c.class == Class::Durable) == (c.op == AtomicReplace)));
        let unique: std::collections::HashSet<_> = cells.iter().collect();
        assert_eq!(unique.len(), cells.len());
    }
}
