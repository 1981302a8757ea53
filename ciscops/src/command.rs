//! The typed command: what a raw SQE becomes once it has been believed. Numbers only; paths are `paths::Paths`.

use crate::flags::{
    AccessMask, ChecksumKind, FallocMode, KeyKind, LockAction, LockKind, LockSpace, OpenFlags, RenameFlags, Whence,
    XattrFlags,
};
use crate::{Handle, Hints, PoolRange};

/// When the effects must be on the medium, relative to the completion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Durability {
    /// What the device was started with, raised by SYNC/DSYNC of the handle.
    #[default]
    Default,
    /// Visible at completion, durable later (fsync, next durable commit, or 5 s).
    Volatile,
    /// Durable before the completion is posted.
    Durable,
}

/// Where the compute stages of a command run: its checksums and transforms. All else runs on a core.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Placement {
    /// Where the device thinks best: on a core.
    #[default]
    Auto,
    /// On a core.
    Device,
    /// In an FPGA slot, with the same result.
    Slot {
        /// A core may do what no slot can, or what a slot has lost.
        or_core: bool,
    },
}

/// How a crash may cut a fused op.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum TxnMode {
    /// The device's choice: see [`Command::mode_of`].
    #[default]
    Default,
    /// All or nothing.
    Macro,
    /// Each micro-op commits by itself, and recovery finishes what a crash interrupts.
    Micro,
}

/// Where in the file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum At {
    /// At this byte.
    Offset(u64),
    /// At the offset of the open file description, which moves on by the bytes transferred.
    Current,
    /// At the end: an append, atomic against every other writer.
    End,
}

/// The change a ReadModifyWrite makes to its field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Modify {
    /// Replace by these bytes (length = field length).
    Patch(PoolRange),
    /// Little-endian wrapping add; the field is 1, 2, 4 or 8 bytes.
    Add(u64),
    /// Xor with these bytes (length = field length).
    Xor(PoolRange),
    /// Xor with the first bytes of the immediate; the field is at most 16 bytes.
    XorImm([u8; 16]),
    /// Replace by `new` when the field equals `expect`, else ECANCELED.
    CompareSwap {
        /// Bytes the field must hold (length = field length).
        expect: PoolRange,
        /// Bytes it shall hold (length = field length).
        new: PoolRange,
    },
}

/// A command the device may act on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Command {
    /// The client's sequence number, echoed in the CQE.
    pub seq: u64,
    /// Durability asked for.
    pub durability: Durability,
    /// Transaction mode asked for.
    pub mode: TxnMode,
    /// Completion waits until what was read is durable.
    pub after_durable: bool,
    /// The outcome is kept, for `Op::Outcome` to ask for.
    pub detectable: bool,
    /// Its client does not wait for it; of an open: it asks for the right to that.
    pub posted: bool,
    /// Where its compute stages run.
    pub placement: Placement,
    /// What its client says of its urgency, and of what it writes.
    pub hints: Hints,
    /// What to do.
    pub op: Op,
}

impl Command {
    /// With default durability and mode.
    pub fn new(seq: u64, op: Op) -> Command {
        Command {
            seq,
            durability: Durability::Default,
            mode: TxnMode::Default,
            after_durable: false,
            detectable: false,
            posted: false,
            placement: Placement::Auto,
            hints: Hints::NONE,
            op,
        }
    }

    /// The same, its compute stages placed.
    pub fn with_placement(mut self, placement: Placement) -> Command {
        self.placement = placement;
        self
    }

    /// The same, with hints.
    pub fn with_hints(mut self, hints: Hints) -> Command {
        self.hints = hints;
        self
    }

    /// The same, with a durability.
    pub fn with_durability(mut self, durability: Durability) -> Command {
        self.durability = durability;
        self
    }

    /// The same, with a transaction mode.
    pub fn with_mode(mut self, mode: TxnMode) -> Command {
        self.mode = mode;
        self
    }

    /// The mode that counts, `Macro` or `Micro`: the one asked for, else MicroTx for what changes more than one thing
    /// (the checksummed append; the fused ops that may create or truncate before they write), but MacroTx for programs:
    /// who writes one means it as a whole. A single op is one step whatever was asked for.
    pub fn mode_of(&self) -> TxnMode {
        match self.mode {
            _ if !self.op.is_fused() => TxnMode::Macro,
            TxnMode::Default if self.op.changes_in_steps() && !matches!(self.op, Op::Program { .. }) => TxnMode::Micro,
            TxnMode::Default => TxnMode::Macro,
            asked => asked,
        }
    }

    /// Whether it runs as a MicroTx.
    pub fn commits_in_steps(&self) -> bool {
        self.mode_of() == TxnMode::Micro
    }

    /// Whether its client goes on without its answer. An open that asks for the right to that is waited for.
    pub fn is_posted(&self) -> bool {
        self.posted && !matches!(self.op, Op::Open { .. })
    }

    /// The same, posted.
    pub fn posted(mut self) -> Command {
        self.posted = true;
        self
    }

    /// The same, its outcome kept.
    pub fn detectable(mut self) -> Command {
        self.detectable = true;
        self
    }
}

/// The operations. An empty `path` where the op table allows one means the object `base` itself.
/// Semantics, results and errors: docs/COMMANDS.md. Mode arguments are permission bits (07777), with the umask already
/// applied by the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // the operands are described once, in docs/COMMANDS.md, and named after their POSIX calls
pub enum Op {
    Nop,
    Open {
        base: Handle,
        path: PoolRange,
        flags: OpenFlags,
        mode: u32,
        placeholder: u32,
        look: PoolRange,
        watch: u32,
    },
    Close {
        h: Handle,
    },
    Read {
        h: Handle,
        at: At,
        out: PoolRange,
        watch: u32,
    },
    Write {
        h: Handle,
        at: At,
        src: PoolRange,
    },
    Truncate {
        h: Handle,
        size: u64,
    },
    Fallocate {
        h: Handle,
        mode: FallocMode,
        off: u64,
        len: u64,
    },
    Seek {
        h: Handle,
        whence: Whence,
        off: i64,
    },
    Fsync {
        h: Handle,
    },
    Fdatasync {
        h: Handle,
    },
    Syncfs,
    Stat {
        h: Handle,
        out: PoolRange,
    },
    StatPath {
        base: Handle,
        path: PoolRange,
        nofollow: bool,
        out: PoolRange,
    },
    SetAttr {
        h: Handle,
        set: PoolRange,
    },
    SetAttrPath {
        base: Handle,
        path: PoolRange,
        nofollow: bool,
        set: PoolRange,
    },
    ReadDir {
        h: Handle,
        cookie: u64,
        out: PoolRange,
    },
    Lock {
        h: Handle,
        action: LockAction,
        kind: LockKind,
        space: LockSpace,
        start: u64,
        len: u64,
        owner: u64,
        out: PoolRange,
    },
    SetFlags {
        h: Handle,
        flags: OpenFlags,
    },
    Statfs {
        out: PoolRange,
    },
    Outcome {
        client: [u8; 16],
        queue: u16,
        sequence: u64,
        out: PoolRange,
    },
    ChecksumRange {
        h: Handle,
        kind: ChecksumKind,
        offset: u64,
        len: u64,
    },
    Batch {
        items: PoolRange,
        results: PoolRange,
    },
    ReadDirPlus {
        h: Handle,
        cookie: u64,
        out: PoolRange,
        watch: u32,
    },
    SetKey {
        kind: KeyKind,
        bytes: PoolRange,
    },
    TxnBegin,
    TxnWrite {
        txn: Handle,
        h: Handle,
        at: At,
        src: PoolRange,
    },
    TxnCommit {
        txn: Handle,
    },
    TxnAbort {
        txn: Handle,
    },
    WriteVerified {
        h: Handle,
        at: At,
        src: PoolRange,
        kind: ChecksumKind,
        sum: u32,
    },
    DropKey {
        key: u64,
    },
    Mkdir {
        base: Handle,
        path: PoolRange,
        mode: u32,
    },
    Rmdir {
        base: Handle,
        path: PoolRange,
    },
    Unlink {
        base: Handle,
        path: PoolRange,
    },
    Rename {
        from_base: Handle,
        from: PoolRange,
        to_base: Handle,
        to: PoolRange,
        flags: RenameFlags,
    },
    Link {
        from_base: Handle,
        from: PoolRange,
        to_base: Handle,
        to: PoolRange,
        follow: bool,
    },
    Symlink {
        base: Handle,
        path: PoolRange,
        target: PoolRange,
    },
    Readlink {
        base: Handle,
        path: PoolRange,
        out: PoolRange,
    },
    Access {
        base: Handle,
        path: PoolRange,
        mask: AccessMask,
        nofollow: bool,
    },
    GetXattr {
        base: Handle,
        path: PoolRange,
        nofollow: bool,
        name: PoolRange,
        out: PoolRange,
    },
    SetXattr {
        base: Handle,
        path: PoolRange,
        nofollow: bool,
        name: PoolRange,
        value: PoolRange,
        flags: XattrFlags,
    },
    ListXattr {
        base: Handle,
        path: PoolRange,
        nofollow: bool,
        out: PoolRange,
    },
    RemoveXattr {
        base: Handle,
        path: PoolRange,
        nofollow: bool,
        name: PoolRange,
    },
    VirtRegister {
        base: Handle,
        path: PoolRange,
        mode: u32,
        spec: PoolRange,
    },
    VirtSpec {
        base: Handle,
        path: PoolRange,
        nofollow: bool,
        out: PoolRange,
    },
    VirtParams {
        h: Handle,
        params: PoolRange,
    },
    OpenWriteClose {
        base: Handle,
        path: PoolRange,
        flags: OpenFlags,
        mode: u32,
        at: At,
        src: PoolRange,
    },
    OpenReadClose {
        base: Handle,
        path: PoolRange,
        flags: OpenFlags,
        offset: u64,
        out: PoolRange,
    },
    OpenReadWriteClose {
        base: Handle,
        path: PoolRange,
        flags: OpenFlags,
        mode: u32,
        read_off: u64,
        out: PoolRange,
        at: At,
        src: PoolRange,
    },
    AppendChecksumWrite {
        h: Handle,
        kind: ChecksumKind,
        src: PoolRange,
    },
    ReadChecksumVerify {
        h: Handle,
        kind: ChecksumKind,
        offset: u64,
        len: u32,
        out: PoolRange,
    },
    ReadModifyWrite {
        h: Handle,
        offset: u64,
        len: u32,
        modify: Modify,
        out: PoolRange,
    },
    Program {
        body: PoolRange,
    },
}

impl Op {
    /// An open that binds no placeholder and asks for nothing to come along.
    pub fn open(base: Handle, path: PoolRange, flags: OpenFlags, mode: u32) -> Op {
        Op::Open { base, path, flags, mode, placeholder: 0, look: PoolRange::EMPTY, watch: 0 }
    }

    /// Whether it is a program of several micro-ops.
    pub fn is_fused(&self) -> bool {
        use Op::*;
        matches!(
            self,
            OpenWriteClose { .. }
                | OpenReadClose { .. }
                | OpenReadWriteClose { .. }
                | AppendChecksumWrite { .. }
                | ReadChecksumVerify { .. }
                | ReadModifyWrite { .. }
                | Program { .. }
        )
    }

    /// Whether it may have a compute stage that can run in a slot.
    pub fn has_slot_form(&self) -> bool {
        use Op::*;
        matches!(self, AppendChecksumWrite { .. } | ReadChecksumVerify { .. } | ChecksumRange { .. } | Program { .. })
    }

    /// Whether more than one of its micro-ops may change something.
    pub fn changes_in_steps(&self) -> bool {
        match self {
            Op::AppendChecksumWrite { .. } | Op::Program { .. } => true,
            Op::OpenWriteClose { flags, .. } | Op::OpenReadWriteClose { flags, .. } => {
                flags.intersects(OpenFlags::CREATE | OpenFlags::TRUNC)
            }
            _ => false,
        }
    }
}
