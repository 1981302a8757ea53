//! The catalogue of fused ops: one file each, holding nothing but the op's expansion into micro-ops. The expansion
//! *is* the definition; the interpreter runs it, and the tests run it again as single ops to compare.
//!
//! Six ops have an opcode of their own and fit one SQE: [`expand`] has their expansions. All others are *templates*: a
//! struct of operands that becomes a fused program ([`Template::body`]).

mod append_and_rotate;
mod append_and_sync;
mod append_checksum_write;
mod append_to_record;
mod atomic_replace;
mod compress_write;
mod concat;
mod copy_range;
mod create_tree;
mod encrypt_write;
mod log_recover;
mod open_read_close;
mod open_read_write_close;
mod open_write_close;
mod read_append;
mod read_checksum_verify;
mod read_decompress;
mod read_decrypt;
mod read_encrypt_write;
mod read_modify_append;
mod read_modify_write;
mod template;
mod write_checksum;

pub use append_and_rotate::{AppendAndRotate, Appended};
pub use append_and_sync::AppendAndSync;
pub use append_checksum_write::AppendChecksum;
pub use append_to_record::AppendToRecord;
pub use atomic_replace::AtomicReplace;
pub use compress_write::{CompressWrite, compressed_max};
pub use concat::{CONCAT_MAX, Concat};
pub use copy_range::CopyRange;
pub use create_tree::{CreateTree, Node};
pub use encrypt_write::{Cipher, EncryptWrite, RECORD_OVERHEAD, UNIT_TAIL_MIN, units_fit};
pub use log_recover::LogRecover;
pub use read_append::{ReadAppend, ReadFrom};
pub use read_checksum_verify::VerifyChecksum;
pub use read_decompress::ReadDecompress;
pub use read_decrypt::ReadDecrypt;
pub use read_encrypt_write::ReadEncryptWrite;
pub use read_modify_append::ModifyAppend;
pub use read_modify_write::ModifyField;
pub use template::{FieldChange, SUM_BYTES, SumPlace, Summing, Template};
pub use write_checksum::WriteChecksum;

use crate::command::{At, Modify, Op};
use crate::flags::{Access, OpenFlags};
use crate::{Handle, PoolRange};
use smallvec::SmallVec;

/// Every op, by the name of its file.
pub const NAMES: [&str; 22] = [
    "append_and_rotate",
    "append_and_sync",
    "append_checksum_write",
    "append_to_record",
    "atomic_replace",
    "compress_write",
    "concat",
    "copy_range",
    "create_tree",
    "encrypt_write",
    "log_recover",
    "open_read_close",
    "open_read_write_close",
    "open_write_close",
    "read_append",
    "read_checksum_verify",
    "read_decompress",
    "read_decrypt",
    "read_encrypt_write",
    "read_modify_append",
    "read_modify_write",
    "write_checksum",
];

/// Operations that no bench has a row of, and why: fused ones by the name of their file, single ones by that in the op
/// table. `benches/tests/rows.rs` holds this list to the operations and to the rows that there are.
pub const UNMEASURED: &[(&[&str], &str)] = &[
    // Fused.
    (&["append_and_sync"], "the durable row of `append` is the same, as one command"),
    (&["write_checksum"], "append_checksum_write at an offset"),
    (&["read_append"], "copies as copy_range does, with a bound, to the end of a file"),
    (&["read_modify_append"], "read_modify_write whose result goes to another place"),
    (&["read_decompress"], "the way back of compress_write: both sides' time is the codec's"),
    (&["read_decrypt", "read_encrypt_write"], "as encrypt_write: both sides' time is the cipher's"),
    // Single.
    (&["open", "close", "mkdir", "rename"], "a step of unfused rows: open_write_close, create_tree, atomic_replace"),
    (&["fsync", "fdatasync", "syncfs"], "what they wait for is in every durable row"),
    (&["access", "unlink"], "`bench base` has a name looked up, made and removed, in directories of two sizes"),
    (&["checksum_range"], "a load of `bench fairness`; on an idle device it is a read whose bytes stay inside"),
    (&["write_verified"], "`bench engines` runs RocksDB with checksums that it hands over"),
    (
        &["virt_register", "virt_spec", "virt_params"],
        "once for a file; `bench insider` measures what is read through it",
    ),
    (
        &["txn_begin", "txn_write", "txn_commit", "txn_abort"],
        "as many commands as the caller likes; multi_write is one",
    ),
    (&["read_dir"], "read_dir_plus without the attributes"),
    (
        &["truncate", "fallocate", "set_attr", "set_attr_path", "rmdir", "link", "symlink"],
        "one call of the host's, too",
    ),
    (&["seek", "set_flags", "lock", "statfs", "readlink"], "one call of the host's, too, and nothing moves"),
    (&["get_xattr", "set_xattr", "list_xattr", "remove_xattr"], "one call of the host's, too"),
    (&["set_key", "drop_key"], "once for a session"),
    (&["outcome"], "asked once, after a crash"),
];

/// Micro-ops of one command, in order. Never more than `limits::MICRO_OPS_MAX`; the catalogue's fit inline.
pub type Program = SmallVec<[Micro; 4]>;

/// The bytes of a micro-read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// First byte.
    pub off: u64,
    /// Bytes.
    pub len: u32,
    /// Whether fewer bytes, because the file ends, are an error (ENODATA).
    pub whole: bool,
}

/// Where a micro-read puts its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    /// The client's pool.
    Pool(PoolRange),
    /// The command's private scratch buffer; bytes past the end of file are zeros there.
    Scratch,
    /// Nowhere: only the checksum is taken.
    Discard,
}

/// Where a micro-write takes its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum From {
    /// The client's pool.
    Pool(PoolRange),
    /// The command's private scratch buffer.
    Scratch,
    /// The running checksum, as a 4-byte little-endian trailer.
    Sum,
}

/// Where a micro-write writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spot {
    /// As the command says (`Current` does not occur).
    At(At),
    /// Right after the previous micro-write of this command.
    AfterWrite,
}

/// One step of a fused op. Steps work on *the* file of the command, which the first step names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Micro {
    /// Opens (perhaps creates) the command's path.
    Open {
        /// Directory to start from.
        base: Handle,
        /// Open flags.
        flags: OpenFlags,
        /// Permission bits for a new file.
        mode: u32,
    },
    /// Takes the file behind a handle.
    Use {
        /// The handle.
        h: Handle,
        /// What its grant must hold.
        need: Access,
    },
    /// Reads, short at the end of file.
    Read {
        /// Which bytes.
        span: Span,
        /// Where to.
        to: To,
        /// Whether the bytes are folded into the running checksum.
        sum: bool,
    },
    /// Writes.
    Write {
        /// Where in the file.
        spot: Spot,
        /// What.
        from: From,
        /// Whether the bytes are folded into the running checksum.
        sum: bool,
    },
    /// Shows the scratch buffer to the client, then changes it.
    Change {
        /// The change.
        modify: Modify,
        /// Where the old bytes go; empty for nowhere.
        old: PoolRange,
    },
    /// Compares the scratch buffer, a 4-byte little-endian trailer, with the running checksum; EBADMSG if different.
    Verify,
    /// Closes what `Open` opened.
    Close,
}

/// The micro-ops a fused op stands for; `None` for a single op, which is a program of itself.
#[inline]
pub fn expand(op: &Op) -> Option<Program> {
    Some(match *op {
        Op::OpenWriteClose { base, flags, mode, at, src, .. } => open_write_close::expand(base, flags, mode, at, src),
        Op::OpenReadClose { base, flags, offset, out, .. } => open_read_close::expand(base, flags, offset, out),
        Op::OpenReadWriteClose { base, flags, mode, read_off, out, at, src, .. } => {
            open_read_write_close::expand(base, flags, mode, (read_off, out), (at, src))
        }
        Op::AppendChecksumWrite { h, kind, src } => append_checksum_write::expand(h, kind, src),
        Op::ReadChecksumVerify { h, kind, offset, len, out } => read_checksum_verify::expand(h, kind, offset, len, out),
        Op::ReadModifyWrite { h, offset, len, modify, out } => read_modify_write::expand(h, offset, len, modify, out),
        _ => return None,
    })
}

/// Where a write through a freshly opened description goes: APPEND overrules the offset, as in pwrite on Linux.
fn opened_spot(flags: OpenFlags, at: At) -> Spot {
    Spot::At(if flags.contains(OpenFlags::APPEND) { At::End } else { at })
}
