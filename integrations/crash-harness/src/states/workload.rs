//! The language of workloads: a few steps over a tiny tree, each with its transaction mode, its durability and what
//! follows it. A workload is written and read as one line ([`Workload::trace`], [`Workload::parse`]), so that any
//! failure can be run again.
//!
//! ```text
//! creat foo durable; write A/foo 4090 20 fsync; open_write_close bar trunc 0 5000 micro volatile checkpoint
//! ```

use std::fmt;

/// Names that operands come from; the parents of the nested ones exist in every setup.
pub(crate) const PLACES: [&str; 15] =
    ["foo", "bar", "A/foo", "A/bar", "B/foo", "B/bar", "A", "B", "C", "A/C", "B/C", "A/C/foo", "l", "A/l", "B/A"];

/// A path out of `PLACES`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(pub u8);

impl Place {
    /// The place of this name.
    pub fn of(name: &str) -> Option<Place> {
        PLACES.iter().position(|p| *p == name).map(|i| Place(i as u8))
    }

    /// Its path, relative to the root.
    pub fn path(self) -> &'static str {
        PLACES[usize::from(self.0)]
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.path())
    }
}

/// Transaction mode of a fused op; single ops pay no heed to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Mode {
    /// The command's own default.
    #[default]
    Default,
    /// All or nothing.
    Macro,
    /// Every micro-op by itself; recovery finishes what began.
    Micro,
}

/// What makes things durable after the operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Sync {
    /// Nothing does.
    #[default]
    Nothing,
    /// fsync.
    Fsync,
    /// fdatasync.
    Fdatasync,
    /// syncfs.
    Syncfs,
}

/// What the device does by itself after the step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Background {
    /// Nothing.
    #[default]
    Nothing,
    /// A checkpoint.
    Checkpoint,
    /// All reclaim that is due, then a checkpoint.
    Reclaim,
    /// Unmount and mount.
    Remount,
}

/// How a rename treats what is there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Renaming {
    /// Replaces it.
    Over,
    /// Refuses.
    NoReplace,
    /// Swaps both.
    Exchange,
}

/// What `fallocate` does to its range.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs)]
pub enum Falloc {
    Reserve,
    KeepSize,
    Punch,
    Zero,
    ZeroKeepSize,
}

/// How a fused op opens its file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Opening {
    /// It must be there.
    Existing,
    /// It is created when missing.
    Create,
    /// It is created; it must not be there.
    New,
    /// It is created or emptied.
    Trunc,
    /// It is created or appended to.
    Append,
}

/// The change of a read-modify-write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Change {
    /// New bytes.
    Patch,
    /// An addition to an eight-byte number.
    Add,
    /// Exclusive-or with bytes.
    Xor,
    /// A compare-and-swap that finds what it expects.
    Swap,
    /// A compare-and-swap that does not.
    SwapFail,
}

/// One operation. Offsets and lengths in bytes; what is written depends on the step's number ([`Workload::fill`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs)]
pub enum FsOp {
    Creat {
        at: Place,
    },
    Mkdir {
        at: Place,
    },
    Rmdir {
        at: Place,
    },
    Unlink {
        at: Place,
    },
    Link {
        from: Place,
        to: Place,
    },
    Symlink {
        target: Place,
        at: Place,
    },
    Rename {
        from: Place,
        to: Place,
        how: Renaming,
    },
    Write {
        at: Place,
        off: u64,
        len: u64,
    },
    Append {
        at: Place,
        len: u64,
    },
    Truncate {
        at: Place,
        size: u64,
    },
    Fallocate {
        at: Place,
        mode: Falloc,
        off: u64,
        len: u64,
    },
    SetXattr {
        at: Place,
        key: u8,
        len: u64,
    },
    RemoveXattr {
        at: Place,
        key: u8,
    },
    Chmod {
        at: Place,
        mode: u32,
    },
    Chown {
        at: Place,
        uid: u32,
        gid: u32,
    },
    Utimens {
        at: Place,
        sec: u64,
    },
    OpenWriteClose {
        at: Place,
        how: Opening,
        off: u64,
        len: u64,
    },
    OpenReadWriteClose {
        at: Place,
        how: Opening,
        off: u64,
        len: u64,
    },
    AppendChecksumWrite {
        at: Place,
        len: u64,
    },
    ReadModifyWrite {
        at: Place,
        change: Change,
        off: u64,
        len: u64,
    },
    /// A program: writes a new file, and gives it the name of another one.
    AtomicReplace {
        tmp: Place,
        at: Place,
        len: u64,
    },
    /// A program: appends to one file, and writes to another; both are created when missing.
    Program {
        a: Place,
        b: Place,
        len: u64,
    },
    /// A transaction collected by its session: writes to two files.
    MultiWrite {
        a: Place,
        b: Place,
        off: u64,
        len: u64,
    },
    /// One command that stands for two: a file is emptied and written, another one appended to.
    Batch {
        a: Place,
        b: Place,
        len: u64,
    },
    /// An operation of the catalogue's table, by its place there; a third name is `C`.
    Fused {
        row: u8,
        a: Place,
        b: Place,
        off: u64,
        len: u64,
    },
    /// Opens the file and keeps it open until the end: what is unlinked then becomes an orphan.
    Hold {
        at: Place,
    },
}

impl FsOp {
    /// Whether transaction modes tell on it.
    pub fn is_fused(&self) -> bool {
        use FsOp::*;
        matches!(
            self,
            OpenWriteClose { .. }
                | OpenReadWriteClose { .. }
                | AppendChecksumWrite { .. }
                | ReadModifyWrite { .. }
                | AtomicReplace { .. }
                | Program { .. }
                | Batch { .. }
                | Fused { .. }
        )
    }
}

/// One operation, how it is to be run, and what follows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Step {
    /// What.
    pub op: FsOp,
    /// How a crash may cut it.
    pub mode: Mode,
    /// Whether it is durable at its completion.
    pub durable: bool,
    /// Then this is called.
    pub sync: Sync,
    /// Then the device does this.
    pub then: Background,
}

impl Step {
    /// A volatile operation in its default mode, with nothing after it.
    pub fn new(op: FsOp) -> Step {
        let (mode, sync, then) = Default::default();
        Step { op, mode, durable: false, sync, then }
    }

    /// The same, durable.
    pub fn durable(self) -> Step {
        Step { durable: true, ..self }
    }

    /// The same, in this mode.
    pub fn mode(self, mode: Mode) -> Step {
        Step { mode, ..self }
    }

    /// The same, followed by this.
    pub fn sync(self, sync: Sync) -> Step {
        Step { sync, ..self }
    }

    /// The same, followed by this.
    pub fn then(self, then: Background) -> Step {
        Step { then, ..self }
    }
}

/// Steps, run one after the other.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Workload {
    /// In order.
    pub steps: Vec<Step>,
}

impl Workload {
    /// Of these steps.
    pub fn new(steps: impl IntoIterator<Item = Step>) -> Workload {
        Workload { steps: steps.into_iter().collect() }
    }

    /// One line that [`Workload::parse`] reads again.
    pub fn trace(&self) -> String {
        super::trace::write(self)
    }

    /// Reads a trace.
    ///
    /// # Errors
    /// One sentence naming the step and the word.
    pub fn parse(line: &str) -> Result<Workload, String> {
        super::trace::read(line)
    }

    /// The bytes that step `step` writes: no zeros, and different in each step.
    pub fn fill(step: usize, len: u64) -> Vec<u8> {
        let mut x = (step as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut next = || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 32) as u8 | 1
        };
        (0..len).map(|_| next()).collect()
    }
}
