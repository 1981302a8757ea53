//! What an open, a listing or a read has beside its answer: a write lease, a watch; and which devices give any.

use weldfs_ciscops::{Command, Durability, Handle, InodeNo, Op, OpenFlags};
use weldfs_fs::{Finished, OpenedInfo};

use super::core::Core;
use super::session::QueueState;
use super::watches::Reading;

/// A device with fewer slots has none to leave free.
const SLOTS_MIN: usize = 4;

/// What an open that asked for it has beside the handle: the write lease, and what it brings along (`watches`). The
/// bits of its second result that say so.
pub(super) fn kept(core: &Core, queue: &QueueState, (cmd, path): (&Command, &[u8]), f: &mut Finished<'_>) -> u64 {
    let Op::Open { watch, .. } = cmd.op else { return 0 };
    if !cmd.posted && watch == 0 {
        return 0;
    }
    let lease = f
        .opened
        .filter(|o| cmd.posted && may_have_one(core, o))
        .map_or(0, |o| core.leases.grant(&core.store, &core.sets, queue, &o, || core.watches.end_all(o.ino)));
    let watched = f
        .opened
        .filter(|o| watch != 0 && may_be_watched(core, o))
        .map_or(0, |o| core.watches.begin((&core.store, &core.leases), queue, (cmd, path), (&o, &mut f.counters)));
    let bits = lease | watched;
    if let Some(o) = f.opened.filter(|_| bits != 0) {
        let _ = queue.session.handles.with(o.handle, |d| d.grant());
    }
    bits
}

/// Before a read. `None` if it asked for no watch, or there is none.
pub(super) fn begin_read(core: &Core, queue: &QueueState, cmd: &Command) -> Option<Reading> {
    let Op::Read { h, watch: watch @ 1.., .. } = cmd.op else { return None };
    // What is kept of a detectable one is kept before it is known whether it is watched.
    if cmd.detectable || !has_watches(core) {
        return None;
    }
    core.watches.begin_read((&core.store, &core.leases), queue, h, watch - 1)
}

/// Begins to list a directory, or goes on where it was begun by the same handle. Whether it is watched.
pub(super) fn list(core: &Core, queue: &QueueState, (h, ino): (Handle, InodeNo), number: u32, anew: bool) -> bool {
    match anew {
        true => has_watches(core) && core.watches.list((&core.store, &core.leases), queue, (h, ino), number),
        false => core.watches.list_on(queue, h, number),
    }
}

/// Whether anything is watched here: by a device to which the close may be posted, too. Emulated hardware takes its
/// time for each call, and commands of an embedded device are over in less than a look takes.
fn has_watches(core: &Core) -> bool {
    takes_posts(core) && !core.is_poisoned() && core.config.inline != Some(true)
}

/// The same of files that are opened so.
fn may_be_watched(core: &Core, o: &OpenedInfo) -> bool {
    has_watches(core) && !o.is_virtual && !o.flags.contains(OpenFlags::PATH)
}

/// Whether commands may be posted to this device.
fn takes_posts(core: &Core) -> bool {
    !core.board.is_shared() && !core.emulated.is_on()
}

/// Whether there are leases here, of a file that was opened so.
fn may_have_one(core: &Core, o: &OpenedInfo) -> bool {
    let device = takes_posts(core) && !core.is_poisoned();
    let asked = core.config.durability == Durability::Durable;
    let room = core.board.len() >= SLOTS_MIN && core.config.inline != Some(true);
    let durable = o.flags.intersects(OpenFlags::SYNC | OpenFlags::DSYNC);
    device && room && !asked && o.flags.contains(OpenFlags::WRITE) && !durable && !o.is_virtual
}
