//! What files and directories mean: POSIX on top of the store.
//!
//! One command = one [`Txn`]. The device resolves the inodes a command needs (`resolve_set`), holds their tickets,
//! runs the interpreter over the `Txn` (which re-resolves every name under the set, checks permissions, and *stages*),
//! and gets from [`Txn::finish`] a plan of effects that the store commits as one record.
//!
//! * `perm` bits and ownership; `resolve` path walk; `inode_set` the inodes that a command holds, `lockset` which those
//!   are; `need` how much space, `bounds` what that is reckoned with. `txn` the transaction, `target` its face to the
//!   interpreter; `stage` content that is staged, `staging` how it comes to be; `steps` and `micro`: commits step by
//!   step.
//! * `namespace` names; `attr` attributes; `xattr` extended attributes; `data` bytes; `falloc` space and holes; `virt`
//!   virtual files, as files.
//! * `program` what a fused program holds and reserves; `staged_names` names that one command changes several of.
//! * `committed` bytes of files that the command has not written to; `optimistic` commands that only look, without
//!   tickets; `look` what an open brings along, and the way that its name led.
//! * `straight` changes of one file's content that wait for nothing, without a transaction.
//! * `strides` long work in pieces: walks, ways up, looks for data.
//! * `staged` transactions that a session collects; `keys` those it brings for its encrypting commands.
//! * `recovery` mounts, and finishes what a crash interrupted. `card` is FPGA slots with the kernels of this project.
//! * `driver` runs commands one at a time without a device: tests, fsck's usability check, tools.
//!
//! But for `recovery` and `driver`, nothing here blocks, keeps state between commands, or touches the log.

pub mod adopt;
pub mod attr;
mod bounds;
pub mod card;
mod committed;
pub mod data;
pub mod driver;
pub mod falloc;
#[cfg(test)]
mod forged;
pub mod inode_set;
pub mod keys;
#[cfg(test)]
mod lives;
mod lockset;
mod look;
mod micro;
pub mod namespace;
pub mod need;
pub mod optimistic;
pub mod perm;
mod program;
mod recovery;
pub mod resolve;
pub mod stage;
pub mod staged;
mod staged_names;
mod staging;
mod steps;
pub mod straight;
pub mod strides;
pub mod target;
pub mod txn;
pub mod virt;
pub mod xattr;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use weldfs_ciscops::{Errno, Handle, InodeNo, Kernel, OpenFlags, Quiet};
use weldfs_functions::cipher::Key;
use weldfs_store::error::{FsResult, Miss};

pub use inode_set::Insisted;
pub use inode_set::{Hold, InodeSet};
pub use lockset::resolve_set;
pub use look::{Way, attributes, content, way};
pub use need::plan_need;
pub use need::{payload_bytes, scratch_bytes};
pub use recovery::mount;
pub use resolve::ROOT;
pub use stage::SLICE_BYTES;
pub use staged::StagedTable;
pub use staged::{Staged, StagedWrite};
pub use target::FileRef;
pub use txn::{Finished, OpCounters, OpenedInfo, Txn};
pub use weldfs_store::cred::Cred;

/// Largest file in bytes (16 TiB); one byte more is EFBIG.
pub const FILE_BYTES_MAX: u64 = 1 << 44;
/// Links of one inode.
pub const LINKS_MAX: u32 = u32::MAX - 1;
/// Inode flag: a nameless file that may still get a name (O_TMPFILE without O_EXCL).
pub(crate) const FLAG_LINKABLE: u32 = 1;

/// An open file description as a command sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFile {
    /// The inode; kept alive by the description's `Store::open_ref`.
    pub ino: InodeNo,
    /// Grant and status flags, as they are now.
    pub flags: OpenFlags,
    /// Offset in bytes.
    pub offset: u64,
}

/// A session's handles. `Handle::ROOT` is answered by this crate and never asked for.
pub trait HandleTable {
    /// The open file description behind a handle; EBADF when there is none.
    fn handle(&self, h: Handle) -> Result<OpenFile, Errno>;
    /// Sets a free handle aside for a file that a command is opening; EMFILE when none is left. The device makes it
    /// valid when the command has committed ([`Finished::opened`]).
    fn reserve_handle(&self) -> Result<Handle, Errno>;
    /// Gives back a reserved handle whose command failed.
    fn release_handle(&self, h: Handle);
}

/// Future of [`SessionView::fetch`]; boxed because it exists only for cold metadata.
pub type Fetching<'a> = Pin<Box<dyn Future<Output = FsResult<()>> + Send + 'a>>;

/// Future of [`Slicer::kernel`].
pub type Computing<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, Errno>> + Send + 'a>>;

/// Says when a long command should make way for others. Whoever runs commands one at a time needs none.
pub trait Slicer: Send + Sync {
    /// Whether the command should give way now. After a yes it does: it is polled again when it may go on.
    fn due(&self) -> bool;
    /// Whether the command is not to be gone on with: its client is gone, and nothing of it was promised.
    fn is_cancelled(&self) -> bool;
    /// The command is about to run micro-op `index`.
    fn micro(&self, index: u16);
    /// The command needs nothing of what it holds for a while, and lends it to those that wait, if there is reason to;
    /// `due`: it is about to give way. Whether it did.
    fn lends(&self, how: Quiet, due: bool) -> bool {
        let _ = (how, due);
        false
    }
    /// Runs a kernel, for a command that computes in a slot.
    fn kernel<'k>(&'k self, kernel: Kernel<'k>, input: Vec<u8>, out_max: usize) -> Computing<'k> {
        let _ = (kernel, input, out_max);
        Box::pin(std::future::ready(Err(Errno::OPNOTSUPP)))
    }
    /// A stage of a command that is placed in a slot runs on a core.
    fn fell_back(&self) {}
    /// Holds again what was lent. `SetChanged`: something of it may have changed meanwhile; the command starts over.
    fn take_back(&self) -> Fetching<'_> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// To the end of the run queue, once: pending at the first poll, ready at the next.
pub async fn give_way() {
    let mut waited = false;
    poll_fn(|_| if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// What a transaction needs to know from a session. Commands move between the device's cores, so it is shared by them.
pub trait SessionView: HandleTable + Send + Sync {
    /// On whose behalf.
    fn cred(&self) -> &Cred;
    /// The host directory under which this client sees the file system (no slash at its end), if any.
    fn prefix(&self) -> Option<&[u8]>;
    /// The writes of a transaction that is being committed; EBADF when it is none of this session's.
    fn staged(&self, txn: Handle) -> Result<Arc<Staged>, Errno> {
        let _ = txn;
        Err(Errno::BADF)
    }
    /// Brings something cold into memory.
    fn fetch(&self, miss: Miss) -> Fetching<'_>;
    /// The key that the client calls by this name; ENOKEY when it has none.
    fn key(&self, name: u64) -> Result<Arc<Key>, Errno> {
        let _ = name;
        Err(Errno::NOKEY)
    }
}
