//! Watches: what an open brought along (attributes, and the content of a short file) is as it was, as long as nothing
//! has changed the inode. The client that asked for one is told by a bit in its ring, before the change can be seen by
//! any: so it may answer from what it has, and whoever looked at its answer and then at the file, or the other way
//! round, finds them agree. (The promise of a callback, as in AFS: Howard and others, "Scale and Performance in a
//! Distributed File System", 1988; but what takes it back is a store, and no message.)
//!
//! * Reads may be watched, too: the first begins a watch, others go on with it, and as long as it stands what each of
//!   them brought is as it was. (One that finds it over begins another, and says so.)
//! * A watch is about one inode, or about several: of a directory, those on the way that its name led there; of a
//!   listing, the directory and what it lists.
//! * A watch ends with the first change of its inodes, with its handle, with its session, or when its ring begins
//!   another of the same number. It never begins again: the client that wants one opens the file.
//! * No inode has watches and a write lease, but one of the handle that has the lease: what is posted is a change
//!   before the device has seen it. The lease's client keeps count of what it posted itself.
//! * A change is said by the thread that applies its record. A watch begins between two of them, and looks at the file
//!   after that: either the change finds the watch, or the open finds the change (Dekker's handshake, with sequentially
//!   consistent operations on both sides).
//! * A client relies on a watch for `WATCH_NS` at most, and a device that follows one that died waits as long before it
//!   serves (`weldfs_kernel_shim::Opened`): a lease in the sense of Gray and Cheriton, "Leases: An Efficient
//!   Fault-Tolerant Mechanism for Distributed File Cache Consistency", 1989.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

use smallvec::SmallVec;
use weldfs_ciscops::interp::{ANEW, WATCHED, WHOLE};
use weldfs_ciscops::limits::WATCH_NS;
use weldfs_ciscops::{Access, Command, Handle, InodeNo, Op, OpenFlags, Outcome, PoolRange, Sink, StatBody};
use weldfs_journal::canary::{Canary, planted};
use weldfs_locks::Mutex;
use zerocopy::IntoBytes;

use super::leases::Leases;
use super::session::QueueState;
use weldfs_fs::{OpCounters, OpenedInfo, Way, attributes, content, way};
use weldfs_session::clock::now_ns;
use weldfs_session::sets::InoHasher;
use weldfs_store::effect::Effect;
use weldfs_store::{Changes, Store};

/// Inodes of one watch at most.
const INODES_MAX: usize = 600;
/// Watches of one inode at most.
const OF_ONE_MAX: usize = 64;
/// Watches of one device at most, and the inodes of all.
const WATCHES_MAX: usize = 4_096;
const ALL_INODES_MAX: usize = 65_536;
/// So many of a watch's inodes are looked through for one that it has already.
const WAY_SEEN: usize = 16;

/// Which watch: of which session, ring and number.
type Place = (u64, u32, u32);
type ByInode = HashMap<u64, SmallVec<[Place; 1]>, BuildHasherDefault<InoHasher>>;

/// The watches of one device. Thread-safe.
#[derive(Default)]
pub(super) struct Watches {
    /// How many there are.
    count: AtomicU32,
    /// The store tells another device of its changes.
    deaf: AtomicBool,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    by_inode: ByInode,
    watches: HashMap<Place, Watch>,
    /// Inodes of all watches.
    inodes: usize,
    /// Watches that began.
    begun: u64,
}

struct Watch {
    ring: Arc<QueueState>,
    /// It ends with the handle.
    handle: Handle,
    /// When it began or was gone on with, on the device's clock.
    since: u64,
    /// Which of all that ever were.
    serial: u64,
    /// It began, and its client has not been told so: nothing can go on with it.
    untold: bool,
    /// The first is the handle's own.
    inodes: Way,
}

fn place_of(queue: &QueueState, number: u32) -> Place {
    (queue.session.id, queue.index, number)
}

impl Table {
    /// Ends a watch.
    fn end(&mut self, place: Place) {
        let Some(watch) = self.watches.remove(&place) else { return };
        self.inodes -= watch.inodes.len();
        for ino in &watch.inodes {
            if let Some(places) = self.by_inode.get_mut(&ino.0) {
                places.retain(|p| *p != place);
                if places.is_empty() {
                    self.by_inode.remove(&ino.0);
                }
            }
        }
        watch.ring.pair.end_watch(place.2);
    }

    /// Ends those watches of an inode that are `meant`.
    fn end_of(&mut self, ino: u64, meant: impl Fn(&Watch) -> bool) {
        let Some(places) = self.by_inode.get(&ino) else { return };
        let is_meant = |place: &&Place| self.watches.get(place).is_some_and(&meant);
        let ending: SmallVec<[Place; 4]> = places.iter().filter(is_meant).copied().collect();
        ending.into_iter().for_each(|place| self.end(place));
    }

    /// Has a watch be about one inode more. True if it is.
    fn add(&mut self, place: Place, ino: InodeNo, now: u64) -> bool {
        let Some(watch) = self.watches.get(&place) else { return false };
        // The way and the listing of a directory begin with it.
        if watch.inodes.iter().take(WAY_SEEN).any(|known| *known == ino) {
            return true;
        }
        let full = watch.inodes.len() >= INODES_MAX || self.inodes >= ALL_INODES_MAX;
        if full || self.is_crowded(ino, now) {
            self.end(place);
            return false;
        }
        self.inodes += 1;
        self.by_inode.entry(ino.0).or_default().push(place);
        self.watches.entry(place).and_modify(|watch| watch.inodes.push(ino));
        true
    }

    /// Ends those on which no client relies any more.
    fn end_expired(&mut self, now: u64) {
        let expired = |(_, watch): &(&Place, &Watch)| now.saturating_sub(watch.since) > WATCH_NS;
        let places: Vec<Place> = self.watches.iter().filter(expired).map(|(place, _)| *place).collect();
        places.into_iter().for_each(|place| self.end(place));
    }

    /// Whether as many watches are about this inode as may be, those left out on which no client relies any more.
    fn is_crowded(&mut self, ino: InodeNo, now: u64) -> bool {
        let crowded = |table: &Table| table.by_inode.get(&ino.0).is_some_and(|places| places.len() >= OF_ONE_MAX);
        if crowded(self) {
            self.end_of(ino.0, |watch| now.saturating_sub(watch.since) > WATCH_NS);
        }
        crowded(self)
    }
}

impl Changes for Watches {
    fn change(&self, effects: &[Effect]) {
        if self.count.load(Ordering::SeqCst) != 0 && !planted(Canary::WatchKept) {
            self.tell(effects);
        }
    }
}

impl Watches {
    /// Of a device over `store`.
    pub fn of(store: &Store) -> Arc<Watches> {
        let watches = Arc::<Watches>::default();
        watches.deaf.store(!store.tell_changes(watches.clone()), Ordering::Relaxed);
        watches
    }

    /// The ring is gone.
    pub fn end_ring(&self, queue: &QueueState) {
        self.end_where(|place| (place.0, place.1) == (queue.session.id, queue.index));
    }

    fn end_where(&self, meant: impl Fn(&Place) -> bool) {
        if !self.any() {
            return;
        }
        let mut table = self.table.lock();
        let places: Vec<Place> = table.watches.keys().filter(|place| meant(place)).copied().collect();
        places.into_iter().for_each(|place| table.end(place));
        self.note(&table);
    }

    /// Whether there is any.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    #[cold]
    fn tell(&self, effects: &[Effect]) {
        let mut table = self.table.lock();
        effects.iter().for_each(|effect| table.end_of(effect.ino().0, |_| true));
        self.note(&table);
    }

    /// The inode may be changed by what is posted from now on.
    pub fn end_all(&self, ino: InodeNo) {
        self.end_of(ino, |_| true);
    }

    /// The handle is closed.
    pub fn end(&self, session: u64, handle: Handle, ino: InodeNo) {
        self.end_of(ino, |watch| watch.handle == handle && watch.ring.session.id == session);
    }

    /// The session is gone.
    pub fn end_session(&self, session: u64) {
        self.end_where(|place| place.0 == session);
    }

    fn end_of(&self, ino: InodeNo, meant: impl Fn(&Watch) -> bool) {
        if self.any() {
            let mut table = self.table.lock();
            table.end_of(ino.0, meant);
            self.note(&table);
        }
    }

    fn note(&self, table: &Table) {
        self.count.store(table.watches.len() as u32, Ordering::SeqCst);
    }

    /// After an open that asked for it: what it brings along, and the bits of its second result that say so.
    pub fn begin(
        &self,
        (store, leases): (&Store, &Leases),
        queue: &QueueState,
        (cmd, path): (&Command, &[u8]),
        (o, counters): (&OpenedInfo, &mut OpCounters),
    ) -> u64 {
        let Op::Open { base, flags, look, watch: watch @ 1.., .. } = cmd.op else { return 0 };
        let number = watch - 1;
        let Some(before) = store.quiescent() else { return 0 };
        if leases.is_of_another(queue, o.handle, o.ino) || !self.place(queue, (o.handle, o.ino), number, false) {
            return 0;
        }
        // Of a directory the name is of interest, too: what is found by names that begin with it.
        let leads = !flags.contains(OpenFlags::DIRECTORY)
            || way(store, &*queue.session, (base, path), flags).is_some_and(|way| {
                way.contains(&o.ino) && way.into_iter().all(|ino| self.add((store, leases), queue, number, ino))
            });
        match bring(store, queue, o, look, counters).filter(|_| leads && store.is_still(before)) {
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
    fn place(&self, queue: &QueueState, (handle, ino): (Handle, InodeNo), number: u32, untold: bool) -> bool {
        let Some(ring) = queue.to_keep() else { return false };
        let place = place_of(queue, number);
        let mut table = self.table.lock();
        table.end(place);
        if table.watches.len() >= WATCHES_MAX {
            table.end_expired(now_ns());
        }
        let full = table.watches.len() >= WATCHES_MAX;
        let begun = !full && !self.deaf.load(Ordering::Relaxed) && {
            queue.pair.begin_watch(number);
            let since = now_ns();
            table.begun += 1;
            let serial = table.begun;
            table.watches.insert(place, Watch { ring, handle, since, serial, untold, inodes: Way::new() });
            table.add(place, ino, since)
        };
        self.note(&table);
        begun
    }

    /// Has a watch be about one inode more, before that is looked at; false where it is over, or ends because another
    /// has the lease of this one.
    pub fn add(&self, (store, leases): (&Store, &Leases), queue: &QueueState, number: u32, ino: InodeNo) -> bool {
        let place = place_of(queue, number);
        let leased = leases.is_of_any(ino);
        let mut table = self.table.lock();
        if leased {
            table.end(place);
        }
        let added = table.add(place, ino, now_ns());
        self.note(&table);
        drop(table);
        // A record that is being applied just now may not have found it.
        fence(Ordering::SeqCst);
        if added && store.quiescent().is_none() {
            self.end_place(place);
            return false;
        }
        added
    }

    fn end_place(&self, place: Place) {
        let mut table = self.table.lock();
        table.end(place);
        self.note(&table);
    }

    /// Begins to list a directory. Whether it is watched.
    pub fn list(&self, on: (&Store, &Leases), queue: &QueueState, (h, ino): (Handle, InodeNo), number: u32) -> bool {
        self.place(queue, (h, ino), number, false) && self.add(on, queue, number, ino)
    }

    /// Goes on with a listing where it was begun by the same handle. Whether it is watched.
    pub fn list_on(&self, queue: &QueueState, h: Handle, number: u32) -> bool {
        self.table.lock().watches.get(&place_of(queue, number)).is_some_and(|watch| watch.handle == h)
    }

    /// Before a read that asked for a watch. `None` if there is none.
    pub fn begin_read(
        &self,
        (store, leases): (&Store, &Leases),
        queue: &QueueState,
        h: Handle,
        number: u32,
    ) -> Option<Reading> {
        let file = queue.session.handles.with(h, |d| d.body.virt().is_none().then_some(d.ino));
        let ino = file.ok().flatten()?;
        if leases.is_of_any(ino) {
            // What is posted is seen by the device after its client has gone on.
            self.end_place(place_of(queue, number));
            return None;
        }
        if let Some(serial) = self.go_on(queue, h, number) {
            return Some(Reading { number, serial, anew: false });
        }
        if !self.place(queue, (h, ino), number, true) {
            return None;
        }
        // What was being applied just now, or was posted to by a lease that was granted, may not have found it. What
        // comes from here on does, and what came before is what is read.
        fence(Ordering::SeqCst);
        if store.quiescent().is_none() || leases.is_of_any(ino) {
            self.end_place(place_of(queue, number));
            return None;
        }
        let serial = self.table.lock().watches.get(&place_of(queue, number))?.serial;
        Some(Reading { number, serial, anew: true })
    }

    /// After the read: its second result says what it is. One that failed ends the watch: its client does not know
    /// whether what it had before is current. One that was not made (`None`) is made another way.
    pub fn end_read(&self, queue: &QueueState, reading: Option<Reading>, outcome: Option<&mut Outcome>) {
        let Some(Reading { number, serial, anew }) = reading else { return };
        if outcome.is_none() && !anew {
            return;
        }
        let place = place_of(queue, number);
        let mut table = self.table.lock();
        // Another one with this number, or a read beside this one, may have begun meanwhile.
        let Some(watch) = table.watches.get_mut(&place).filter(|watch| watch.serial == serial) else { return };
        match outcome.filter(|outcome| outcome.is_ok()) {
            Some(outcome) => {
                watch.untold = false;
                outcome.result2 |= WATCHED | if anew { ANEW } else { 0 };
                queue.counters.watches.add(anew.into());
            }
            None => table.end(place),
        }
        self.note(&table);
    }

    /// Has the client of a watch that stands rely on it for longer; which it is. `None` if it is over, another
    /// handle's, or of a read that is not answered yet.
    fn go_on(&self, queue: &QueueState, h: Handle, number: u32) -> Option<u64> {
        let mut table = self.table.lock();
        let watch = table.watches.get_mut(&place_of(queue, number))?;
        if watch.handle != h || watch.untold {
            return None;
        }
        watch.since = now_ns();
        Some(watch.serial)
    }

    /// Whether a watch is not over.
    pub fn stands(&self, queue: &QueueState, number: u32) -> bool {
        self.table.lock().watches.contains_key(&place_of(queue, number))
    }
}

/// A read under a watch.
pub(super) struct Reading {
    number: u32,
    /// Which it was when the read began.
    serial: u64,
    /// It began with this read.
    anew: bool,
}

/// Writes attributes, and content where it fits and the handle can read, to the client's range. `None`: something of it
/// is not at hand, or is being changed.
fn bring(store: &Store, queue: &QueueState, o: &OpenedInfo, look: PoolRange, counters: &mut OpCounters) -> Option<u64> {
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
