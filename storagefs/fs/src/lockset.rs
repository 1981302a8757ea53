//! Which inodes a command must hold, by its op: its names are walked as they are before it begins.

use super::SessionView;
use super::inode_set::{Hold, InodeSet, Resolver};
use super::program;
use super::resolve::{self, Last};
use super::strides::Strides;
use weldfs_ciscops::{At, Command, InodeNo, Op, Paths};
use weldfs_store::Store;
use weldfs_store::error::FsResult;

/// The inodes `cmd` must hold. Re-run it after [`FsError::SetChanged`](weldfs_store::error::FsError::SetChanged); it
/// insists on what it would have changed then though the set withheld it: what the caller may change is looked at
/// before anything is held alone, so that nothing of others is held for a command that will be refused. After `Turn`
/// and a miss it is re-run with the same `strides`.
///
/// # Errors
/// EBADF for a handle the session does not have, E2BIG for a program on more than 16 inodes; misses and damage as they
/// come, `Turn` after a stride of a long walk.
pub fn resolve_set(
    store: &Store,
    cmd: &Command,
    paths: &Paths,
    session: &dyn SessionView,
    insist: &[InodeNo],
    strides: &mut Strides,
) -> FsResult<InodeSet> {
    strides.again();
    let mut r = Resolver::new(store, session, insist, strides);
    let (a, b) = (paths.a.as_slice(), paths.b.as_slice());
    use Hold::{Exclusive, Shared};
    match cmd.op {
        Op::Nop | Op::Syncfs | Op::Statfs { .. } | Op::Close { .. } | Op::Lock { .. } | Op::SetFlags { .. } => {}
        Op::Outcome { .. } => {}
        // As things are now; where it turns out to be led elsewhere it starts over with that held, too.
        Op::Program { .. } => {
            if let Some(program) = &paths.program {
                program::resolve(program, &mut r)?;
                r.set.bounded()?;
            }
        }
        // Holds its inode once per snapshot.
        Op::ChecksumRange { .. } => {}
        // Each of their elements has a set of its own.
        Op::Batch { .. } | Op::ReadDirPlus { .. } => {}
        Op::SetKey { .. } | Op::DropKey { .. } => {}
        Op::TxnBegin | Op::TxnWrite { .. } | Op::TxnAbort { .. } => {}
        Op::TxnCommit { txn } => {
            session.staged(txn)?.files().iter().for_each(|ino| r.set.add(*ino, Exclusive));
            r.set.bounded()?;
        }
        Op::Fsync { h } | Op::Fdatasync { h } => drop(resolve::base_inode(session, h)?),
        // What moves the offset of the description runs alone, as read(2) and lseek(2) lock it.
        Op::Read { h, at: At::Current, .. } | Op::Seek { h, .. } => r.handle(h, Exclusive)?,
        Op::Read { h, .. } | Op::Stat { h, .. } | Op::ReadDir { h, .. } | Op::ReadChecksumVerify { h, .. } => {
            r.handle(h, Shared)?;
        }
        Op::Write { h, .. }
        | Op::WriteVerified { h, .. }
        | Op::Truncate { h, .. }
        | Op::Fallocate { h, .. }
        | Op::AppendChecksumWrite { h, .. }
        | Op::ReadModifyWrite { h, .. } => r.written(h)?,
        Op::SetAttr { h, .. } => r.object(h, b"", false, Exclusive)?,
        Op::StatPath { base, nofollow, .. }
        | Op::Access { base, nofollow, .. }
        | Op::GetXattr { base, nofollow, .. }
        | Op::ListXattr { base, nofollow, .. } => r.object(base, a, nofollow, Shared)?,
        Op::VirtSpec { base, nofollow, .. } => r.object(base, a, nofollow, Shared)?,
        Op::VirtParams { .. } => {}
        Op::Readlink { base, .. } => r.object(base, a, true, Shared)?,
        Op::SetAttrPath { base, nofollow, .. }
        | Op::SetXattr { base, nofollow, .. }
        | Op::RemoveXattr { base, nofollow, .. } => r.object(base, a, nofollow, Exclusive)?,
        Op::Open { base, flags, .. } | Op::OpenReadClose { base, flags, .. } => r.open(base, a, flags, Shared)?,
        Op::OpenWriteClose { base, flags, .. } | Op::OpenReadWriteClose { base, flags, .. } => {
            r.open(base, a, flags, Exclusive)?;
        }
        Op::Mkdir { base, .. } | Op::Symlink { base, .. } | Op::VirtRegister { base, .. } => {
            r.path(base, a, Last::Name, Exclusive, Shared)?;
        }
        Op::Rmdir { base, .. } | Op::Unlink { base, .. } => {
            r.path(base, a, Last::Name, Exclusive, Exclusive)?;
        }
        Op::Rename { from_base, to_base, .. } => r.rename((from_base, a), (to_base, b))?,
        Op::Link { from_base, to_base, follow, .. } => {
            r.object(from_base, a, !follow, Exclusive)?;
            r.path(to_base, b, Last::Name, Exclusive, Shared)?;
        }
    }
    Ok(r.set)
}
