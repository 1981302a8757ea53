//! Watches: what an open brought along (attributes, and the content of a short file) is as it was, as long as nothing
//! has changed the inode. The client that asked for one is told by a bit in its ring, before the change can be seen by
//! anybody: so it may answer from what it has, and whoever looked at its answer and then at the file, or the other way
//! round, finds them agree. (The promise of a callback, as in AFS: Howard and others, "Scale and Performance in a
//! Distributed File System", 1988; but what takes it back is a store, and no message.)
//!
//! * A watch ends with the first change of its inode, with its handle, with its session, or when its ring begins another
//!   of the same number. It never begins again: the client that wants one opens the file.
//! * No inode has watches and a write lease, but one of the handle that has the lease: what is posted is a change
//!   before the device has seen it. The lease's client keeps count of what it posted itself.
//! * A change is said by the thread that applies its record. A watch begins between two of them, and looks at the file
//!   after that: either the change finds the watch, or the open finds the change (Dekker's handshake, with sequentially
//!   consistent operations on both sides).
//! * A client relies on a watch for `WATCH_NS` at most, and a device that follows one that died waits as long before it
//!   serves (`weldfs_kernel_shim::Opened`): a lease in the sense of Gray and Cheriton, "Leases: An Efficient Fault-Tolerant Mechanism
//!   for Distributed File Cache Consistency", 1989.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use smallvec::SmallVec;
use weldfs_ciscops::interp::{WATCHED, WHOLE};
use weldfs_ciscops::{Access, Command, Handle, InodeNo, Op, OpenFlags, PoolRange, Sink, StatBody};
use weldfs_locks::Mutex;
use zerocopy::IntoBytes;

use super::core::Core;
use super::leases::takes_posts;
use super::session::QueueState;
use super::sets::InoHasher;
use crate::effect::Effect;
use crate::fs::{OpCounters, OpenedInfo, attributes, content};
use crate::store::Changes;

type ByInode = HashMap<u64, SmallVec<[Watch; 1]>, BuildHasherDefault<InoHasher>>;

/// The watches of one device. Thread-safe.
#[derive(Default)]
pub(super) struct Watches {
    /// How many there are.
    count: AtomicU32,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    by_inode: ByInode,
    /// The inode of each: by session, number of the ring, number of the watch.
    places: HashMap<(u64, u32, u32), u64>,
}

struct Watch {
    ring: Arc<QueueState>,
    handle: Handle,
    number: u32,
}

impl Watch {
    fn place(&self) -> (u64, u32, u32) {
        (self.ring.session.id, self.ring.index, self.number)
    }

    fn is_of(&self, session: u64, handle: Handle) -> bool {
        self.handle == handle && self.ring.session.id == session
    }
}

impl Table {
    /// Ends those watches of an inode that are not to be kept.
    fn retain(&mut self, ino: u64, mut keep: impl FnMut(&Watch) -> bool) {
        let Some(watches) = self.by_inode.get_mut(&ino) else { return };
        let places = &mut self.places;
        watches.retain(|watch| {
            let stays = keep(watch);
            if !stays {
                places.remove(&watch.place());
                watch.ring.pair.end_watch(watch.number);
            }
            stays
        });
        if watches.is_empty() {
            self.by_inode.remove(&ino);
        }
    }
}

impl Changes for Watches {
    fn change(&self, effects: &[Effect]) {
        if self.count.load(Ordering::SeqCst) != 0 {
            self.tell(effects);
        }
    }
}

impl Watches {
    /// Whether there is any.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    #[cold]
    fn tell(&self, effects: &[Effect]) {
        let mut table = self.table.lock();
        for effect in effects {
            table.retain(effect.ino().0, |_| false);
        }
        self.note(&table);
    }

    /// The inode may be changed by what is posted from now on.
    pub fn end_all(&self, ino: InodeNo) {
        self.retain(ino, |_| false);
    }

    /// The handle is closed.
    pub fn end(&self, session: u64, handle: Handle, ino: InodeNo) {
        self.retain(ino, |watch| !watch.is_of(session, handle));
    }

    /// The session is gone.
    pub fn end_session(&self, session: u64) {
        if !self.any() {
            return;
        }
        let mut table = self.table.lock();
        let inodes: SmallVec<[u64; 8]> = table.places.iter().filter(|(p, _)| p.0 == session).map(|(_, i)| *i).collect();
        for ino in inodes {
            table.retain(ino, |watch| watch.ring.session.id != session);
        }
        self.note(&table);
    }

    fn retain(&self, ino: InodeNo, keep: impl FnMut(&Watch) -> bool) {
        if self.any() {
            let mut table = self.table.lock();
            table.retain(ino.0, keep);
            self.note(&table);
        }
    }

    fn note(&self, table: &Table) {
        self.count.store(table.places.len() as u32, Ordering::SeqCst);
    }

    /// After an open that asked for it: what it brings along, and the bits of its second result that say so.
    pub fn begin(
        &self,
        core: &Core,
        queue: &QueueState,
        cmd: &Command,
        (opened, counters): (Option<&OpenedInfo>, &mut OpCounters),
    ) -> u64 {
        let Op::Open { look, watch, .. } = cmd.op else { return 0 };
        let Some(o) = opened.filter(|o| watch != 0 && may_be_watched(core, o)) else { return 0 };
        if core.leases.is_of_another(queue, o.handle, o.ino) || !self.place(queue, o, watch - 1) {
            return 0;
        }
        match bring(core, queue, o, look, counters) {
            Some(bits) => {
                queue.counters.watches.add(1);
                bits
            }
            None => {
                self.end(queue.session.id, o.handle, o.ino);
                0
            }
        }
    }

    /// Begins a watch; false where the ring is going away.
    fn place(&self, queue: &QueueState, o: &OpenedInfo, number: u32) -> bool {
        let Some(ring) = queue.to_keep() else { return false };
        let mut table = self.table.lock();
        let watch = Watch { ring, handle: o.handle, number };
        let place = watch.place();
        if let Some(before) = table.places.get(&place).copied() {
            table.retain(before, |w| w.place() != place);
        }
        queue.pair.begin_watch(number);
        table.places.insert(place, o.ino.0);
        table.by_inode.entry(o.ino.0).or_default().push(watch);
        self.note(&table);
        true
    }
}

/// Whether files that are opened so are watched here: by a device to which the close may be posted, too. Emulated
/// hardware takes its time for each call, and commands of an embedded device are over in less than a look takes.
fn may_be_watched(core: &Core, o: &OpenedInfo) -> bool {
    let device = takes_posts(core) && !core.is_poisoned() && core.config.inline != Some(true);
    device && !o.is_virtual && !o.flags.contains(OpenFlags::PATH)
}

/// Writes attributes, and content where it fits and the handle can read, to the client's range. `None`: something of it
/// is not at hand, or is being changed.
fn bring(core: &Core, queue: &QueueState, o: &OpenedInfo, look: PoolRange, counters: &mut OpCounters) -> Option<u64> {
    let store = &core.store;
    fence(Ordering::SeqCst);
    let generation = store.quiescent()?;
    let body = attributes(store, o.ino)?;
    let room = queue.pool.slice(look).ok()?;
    let head = size_of::<StatBody>();
    let readable = o.flags.access().contains(Access::READ) && body.size <= (room.len() - head) as u64;
    let whole = readable && {
        let mut sink = Sink::Shared(room.sub(head, body.size as usize));
        content(store, &body, &mut sink, counters)
    };
    if !store.is_still(generation) {
        return None;
    }
    room.sub(0, head).copy_from(body.as_bytes());
    counters.meta_copies += 1;
    counters.bytes_out += head as u64;
    Some(WATCHED | if whole { WHOLE } else { 0 })
}
