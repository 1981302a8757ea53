//! checksum_range: the checksum of a range of a file, however long, without holding up its writers or a core.
//!
//! A snapshot of at most 8 MiB is copied to scratch memory of the device under a shared ticket; the ticket is given
//! back, and only then the bytes are summed up, a piece at a time, others first where the policy says so.

use std::sync::Arc;

use weldfs_ciscops::limits::SNAPSHOT_MAX;
use weldfs_ciscops::{Access, ChecksumState, Errno, Handle, Op, OpenFlags, Sink, Target};
use weldfs_scheduler::Mode;

use super::opcx::{OpCx, durable};
use super::packet::crc32c;
use super::wishes::is_placed;
use crate::open::Description;

pub use weldfs_fs::{FileRef, Hold, InodeSet, ROOT, SLICE_BYTES, Txn};

/// The file, kept alive even if its handle is closed meanwhile.
struct Ranged {
    file: FileRef,
    _open: Option<Arc<Description>>,
}

impl Ranged {
    fn of(cx: &OpCx<'_>, h: Handle) -> Result<Ranged, Errno> {
        let access = Access::READ;
        if h == Handle::ROOT {
            return Ok(Ranged { file: FileRef { ino: ROOT, access }, _open: None });
        }
        let description = cx.description(h)?;
        let flags = description.flags();
        if flags.contains(OpenFlags::PATH) || !flags.access().contains(access) {
            return Err(Errno::BADF);
        }
        Ok(Ranged { file: FileRef { ino: description.ino, access }, _open: Some(description) })
    }
}

/// Runs the command: bytes summed up, and their checksum.
pub(super) async fn run(cx: &OpCx<'_>) -> Result<(u64, u64), Errno> {
    let Op::ChecksumRange { h, kind: _, offset, len } = cx.cmd.op else { return Err(Errno::INVAL) };
    let ranged = Ranged::of(cx, h)?;
    let (mut done, mut sum) = (0, ChecksumState::new());
    loop {
        let want = (len - done).min(SNAPSHOT_MAX);
        let mut got = 0;
        for piece in snapshot(cx, ranged.file, offset + done, want).await? {
            let n = piece.len() as u64;
            if is_placed(&cx.cmd) {
                let crc = crc32c(cx, sum.value(), &piece).await?;
                sum = ChecksumState::resume(crc, sum.len() + n);
            } else {
                sum.update(&piece);
                drop(piece);
            }
            got += n;
            cx.boundary().await;
        }
        done += got;
        if got < want || done == len {
            break;
        }
        if cx.queue.session.closing() {
            // Nothing is left to answer, and a sparse file may be very long.
            return Err(Errno::INTR);
        }
    }
    if cx.cmd.after_durable {
        durable(cx, cx.core.store.journal().owned_end()).await?;
    }
    Ok((done, sum.value().into()))
}

/// Copies what the file holds there now, fewer than `want` bytes only at its end. In pieces: to take, and give back,
/// eight megabytes at once would be a long slice.
async fn snapshot(cx: &OpCx<'_>, file: FileRef, off: u64, want: u64) -> Result<Vec<Vec<u8>>, Errno> {
    let held = cx.hold(file.ino, Mode::Shared).await;
    let mut set = InodeSet::new();
    set.add(file.ino, Hold::Shared);
    let core = cx.core;
    let mut txn = Txn::new(&core.store, &*cx.queue.session, &set, None, 0, core.clock.wall());
    // What is promised beyond the end of the file is not made room for.
    let there = txn.size(file).await?.saturating_sub(off).min(want);
    let mut pieces = Vec::with_capacity(there.div_ceil(SLICE_BYTES) as usize);
    for at in (0..there.max(1)).step_by(SLICE_BYTES as usize) {
        let mut piece = vec![0; (there - at).min(SLICE_BYTES) as usize];
        // Under the ticket nothing is cut off meanwhile: all of it is there.
        txn.read(file, off + at, piece.len() as u64, Sink::Private(&mut piece), None).await?;
        pieces.push(piece);
        cx.boundary().await;
    }
    drop(held);
    // Nothing waits for what comes now, and it may take long.
    core.board.unboost(cx.at);
    Ok(pieces)
}
