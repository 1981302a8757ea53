//! How much log, space and metadata a command may need: reserved before it takes its inode set, for
//! no command waits for room while holding one.

use super::bounds::{LOG_BASE, LOG_BEGIN, LOG_COMMIT, LOG_OPEN, LOG_PER_BLOCK, held_blocks};
use super::falloc::{FALLOC_LOG_BYTES, RESERVE_BYTES_MAX};
use super::inode_set::InodeSet;
use super::stage::BLOCK_BYTES;
use super::{FILE_BYTES_MAX, SessionView};
use weldfs_ciscops::limits::SNAPSHOT_MAX;
use weldfs_ciscops::{At, Command, FallocMode, InodeNo, Op, OpenFlags, Paths, Placement};
use weldfs_store::error::{FsError, FsResult};
use weldfs_store::limits::WINDOW_BLOCKS;
use weldfs_store::micro::GROUPS_MAX;
use weldfs_store::{Need, Store};

/// Log bytes of an end record.
const LOG_END: usize = 64;

/// Bytes of payload that `cmd` may write; decides whether it is inline in the record.
pub fn payload_bytes(cmd: &Command, paths: &Paths) -> u64 {
    match cmd.op {
        Op::Program { .. } => paths.program.as_ref().map_or(0, |p| p.write_bytes()),
        Op::Write { src, .. }
        | Op::WriteVerified { src, .. }
        | Op::OpenWriteClose { src, .. }
        | Op::OpenReadWriteClose { src, .. } => src.len.into(),
        Op::AppendChecksumWrite { src, .. } => u64::from(src.len) + 4,
        Op::ReadModifyWrite { len, .. } => len.into(),
        _ => 0,
    }
}

/// Bytes of scratch memory that `cmd` holds at most while it runs.
pub fn scratch_bytes(cmd: &Command, paths: &Paths) -> u64 {
    match cmd.op {
        // Its buffers, and what it writes, of which no more than that is composed in private blocks.
        Op::Program { .. } => paths.program.as_ref().map_or(0, |p| {
            let slot = if is_placed(cmd) { p.slot_bytes() } else { 0 };
            p.scratch_bytes() + p.write_bytes() + slot
        }),
        // What is taken before the command begins, and what the slot is given of it.
        Op::AppendChecksumWrite { src, .. } if is_placed(cmd) => packet_bytes(src.len),
        Op::ReadChecksumVerify { len, .. } if is_placed(cmd) => packet_bytes(len),
        Op::ChecksumRange { len, .. } => len.min(SNAPSHOT_MAX),
        // The copy that is summed up, where it is long.
        Op::WriteVerified { src, .. } if src.len > PACKET_FREE => src.len.into(),
        _ => 0,
    }
}

/// Bytes of a packet that a command in flight may have beside what is booked: as many as its own state takes, and there
/// are only so many commands in flight (256 for each core). To book them would take longer than to sum them up.
const PACKET_FREE: u32 = 4096;

/// Bytes that a record of so many takes, and what a slot is given of it.
fn packet_bytes(len: u32) -> u64 {
    if len > PACKET_FREE { 2 * u64::from(len) } else { 0 }
}

/// Whether its compute stages run in a slot.
fn is_placed(cmd: &Command) -> bool {
    matches!(cmd.placement, Placement::Slot { .. })
}

/// Where the payload of `cmd` goes; `None` for the end of the file.
fn place(cmd: &Command, session: &dyn SessionView) -> Option<u64> {
    match cmd.op {
        Op::Write { at: At::End, .. } | Op::WriteVerified { at: At::End, .. } => None,
        Op::Write { h, at, .. } | Op::WriteVerified { h, at, .. } => {
            let open = session.handle(h).ok().filter(|f| !f.flags.contains(OpenFlags::APPEND))?;
            match at {
                At::Offset(off) => Some(off),
                At::Current => Some(open.offset),
                At::End => None,
            }
        }
        Op::OpenWriteClose { at, flags, .. } | Op::OpenReadWriteClose { at, flags, .. } => match at {
            At::Offset(off) if !flags.contains(OpenFlags::APPEND) => Some(off),
            _ => None,
        },
        Op::ReadModifyWrite { offset, .. } => Some(offset),
        _ => None,
    }
}

fn write_need(
    store: &Store,
    cmd: &Command,
    session: &dyn SessionView,
    file: Option<InodeNo>,
    creates: bool,
) -> FsResult<Need> {
    let payload = payload_bytes(cmd, &Paths::default());
    let off = place(cmd, session).filter(|o| *o < FILE_BYTES_MAX);
    let first = off.map_or(0, |o| o / BLOCK_BYTES);
    let blocks = match off {
        Some(o) => (o % BLOCK_BYTES + payload).div_ceil(BLOCK_BYTES),
        // The end may lie anywhere in a block, and move until the set is held.
        None => payload.div_ceil(BLOCK_BYTES) + 1,
    };
    let held = match (file, off) {
        (Some(ino), Some(_)) => held_blocks(store, ino, first, blocks)?,
        // An append overwrites at most the last block, unless that is a hole.
        (Some(ino), None) => match store.look_at(ino, |rec| rec.size) {
            Ok(size) if !size.is_multiple_of(BLOCK_BYTES) => {
                held_blocks(store, ino, size / BLOCK_BYTES, 1)?.min(blocks)
            }
            // One that is gone is found out under the set.
            Ok(_) | Err(FsError::Errno(_)) => 1.min(blocks),
            Err(e) => return Err(e),
        },
        (None, _) => 0,
    };
    let inline = payload <= store.inline_max() as u64;
    let data_log = if inline { payload as usize + 32 * blocks as usize } else { LOG_PER_BLOCK * blocks as usize };
    let new_blocks = (blocks - held) as u32;
    // Until the set is held another command may move the description's offset, and with it where blocks begin.
    let moves =
        u32::from(matches!(cmd.op, Op::Write { at: At::Current, .. } | Op::WriteVerified { at: At::Current, .. }));
    Ok(Need {
        log_bytes: LOG_BASE + data_log + LOG_PER_BLOCK * moves as usize,
        new_blocks,
        overwrite_blocks: held as u32 + moves,
        meta_keys: 8 + (blocks / WINDOW_BLOCKS) as u32 + 1,
        may_fail: new_blocks > 0 || creates,
        ..Need::default()
    })
}

/// What a MicroTx needs beside: its begin record names the content, the commits the rest.
fn in_steps(need: &mut Need, cmd: &Command, names: usize, groups: usize) {
    need.log_bytes += LOG_BEGIN + 5 * groups.min(GROUPS_MAX);
    let appends = matches!(cmd.op, Op::AppendChecksumWrite { .. });
    let first = if appends { LOG_COMMIT } else { LOG_OPEN + names };
    need.more_records = [first, LOG_COMMIT, LOG_END];
    // The trailer is a patch on a block that was just written, or on a new one.
    need.overwrite_blocks += 2 * u32::from(appends);
}

fn falloc_need(mode: FallocMode, len: u64) -> Need {
    let blocks = (len.min(RESERVE_BYTES_MAX) / BLOCK_BYTES + 2) as u32;
    // The edges of a cleared range are patched: they may each take a block when they are merged.
    let edges = 2;
    if mode == FallocMode::Punch {
        return Need { log_bytes: LOG_BASE, overwrite_blocks: edges, meta_keys: 20, ..Need::default() };
    }
    Need {
        log_bytes: LOG_BASE + FALLOC_LOG_BYTES,
        new_blocks: blocks,
        overwrite_blocks: edges,
        meta_keys: blocks / WINDOW_BLOCKS as u32 + 4,
        may_fail: true,
        ..Need::default()
    }
}

/// What `cmd` must reserve, `None` if it changes nothing.
///
/// # Errors
/// Misses and damage as they come.
pub fn plan_need(
    store: &Store,
    cmd: &Command,
    paths: &Paths,
    session: &dyn SessionView,
    set: &InodeSet,
) -> FsResult<Option<Need>> {
    let names = 2 * (paths.a.len() + paths.b.len());
    let meta = |meta_keys: u32, extra: usize, may_fail: bool| Need {
        log_bytes: LOG_BASE + names + extra,
        new_blocks: 0,
        overwrite_blocks: 0,
        meta_keys,
        may_fail,
        ..Need::default()
    };
    let opens = OpenFlags::CREATE | OpenFlags::TMPFILE;
    let mut need = match cmd.op {
        Op::Program { .. } => {
            let Some(program) = &paths.program else { return Ok(None) };
            let need = super::program::need(store, session, program, cmd.commits_in_steps())?;
            return Ok(need.map(|need| if cmd.detectable { need.with_outcome() } else { need }));
        }
        Op::TxnCommit { txn } => {
            let need = super::staged::need(store, &*session.staged(txn)?)?;
            return Ok(need.map(|need| if cmd.detectable { need.with_outcome() } else { need }));
        }
        Op::Open { flags, .. } | Op::OpenReadClose { flags, .. } => {
            if !flags.intersects(opens | OpenFlags::TRUNC) {
                return Ok(None);
            }
            meta(6, 0, flags.intersects(opens) && set.file().is_none())
        }
        Op::OpenWriteClose { flags, .. } | Op::OpenReadWriteClose { flags, .. } => {
            let trunc = flags.contains(OpenFlags::TRUNC);
            let file = set.file().filter(|_| !trunc);
            write_need(store, cmd, session, file, set.file().is_none())?
        }
        Op::Write { .. } | Op::WriteVerified { .. } | Op::AppendChecksumWrite { .. } | Op::ReadModifyWrite { .. } => {
            write_need(store, cmd, session, set.file(), false)?
        }
        Op::Fallocate { mode, len, .. } => falloc_need(mode, len),
        Op::Truncate { .. } | Op::SetAttr { .. } | Op::SetAttrPath { .. } => {
            Need { overwrite_blocks: 1, ..meta(8, 0, false) }
        }
        Op::Mkdir { .. } | Op::Symlink { .. } | Op::Link { .. } => meta(8, 0, true),
        Op::SetXattr { value, .. } => meta(4, value.len as usize, true),
        Op::VirtRegister { spec, .. } => meta(10, spec.len as usize, true),
        Op::Rmdir { .. } | Op::Unlink { .. } | Op::RemoveXattr { .. } => meta(8, 0, false),
        Op::Rename { .. } => meta(12, 0, set.file().is_none()),
        _ => return Ok(None),
    };
    need.log_bytes += names;
    if cmd.commits_in_steps() && cmd.op.changes_in_steps() {
        in_steps(&mut need, cmd, names, session.cred().groups.len());
    }
    Ok(Some(if cmd.detectable { need.with_outcome() } else { need }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cred, Fetching, HandleTable, OpenFile};
    use std::sync::Arc;
    use weldfs_ciscops::{Errno, Handle, PoolRange};
    use weldfs_journal::{ManualClock, Medium, SeededRandom};
    use weldfs_media::RamMedium;
    use weldfs_store::MountOptions;
    use weldfs_store::error::Miss;
    use weldfs_store::mount::{MkfsOptions, format};

    /// A session with one file open at offset 0.
    struct One(Cred);

    impl HandleTable for One {
        fn handle(&self, _: Handle) -> Result<OpenFile, Errno> {
            Ok(OpenFile { ino: InodeNo::ROOT, flags: OpenFlags::READ | OpenFlags::WRITE, offset: 0 })
        }
        fn reserve_handle(&self) -> Result<Handle, Errno> {
            Err(Errno::MFILE)
        }
        fn release_handle(&self, _: Handle) {}
    }

    impl SessionView for One {
        fn cred(&self) -> &Cred {
            &self.0
        }
        fn prefix(&self) -> Option<&[u8]> {
            None
        }
        fn fetch(&self, _: Miss) -> Fetching<'_> {
            Box::pin(std::future::ready(Ok(())))
        }
    }

    #[test]
    fn a_write_at_an_offset_that_others_may_move_reserves_for_any_offset() {
        let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(8 << 20));
        let (clock, random) = (Arc::new(ManualClock::default()), Arc::new(SeededRandom::new(1)));
        format(&medium, &MkfsOptions::default(), &*clock, &*random).unwrap();
        let (store, _) = crate::mount(medium, MountOptions::new(clock, random)).unwrap();
        let need = |at: At, len: u32| {
            let h = Handle { index: 1, generation: 1 };
            let cmd = Command::new(0, Op::Write { h, at, src: PoolRange::new(0, len) });
            let mut set = InodeSet::new();
            set.add(InodeNo::ROOT, super::super::Hold::Exclusive);
            plan_need(&store, &cmd, &Paths::default(), &One(Cred::root()), &set).unwrap().unwrap()
        };
        for len in [4096, 8192, 1 << 20] {
            let (fixed, shared) = (need(At::Offset(1), len), need(At::Current, len));
            let blocks = |n: &Need| n.new_blocks + n.overwrite_blocks;
            assert!(blocks(&shared) >= blocks(&fixed), "another writer may have moved the offset by one byte");
            assert!(shared.log_bytes >= fixed.log_bytes);
        }
    }
}
