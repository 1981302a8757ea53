//! Write leases: the right of one ring to *post* changes of a file, that is, to go on when they are published and not
//! to wait for their answers. What a posted change has done is seen by every command that is published later, by
//! whomever:
//!
//! * A ring is taken in its order, and nothing of it is taken before a posted command is over.
//! * A command of another ring that heads its queues, and finds an inode among its own of which this ring has the
//!   lease, looks once how far it is published. If there are entries that are not over, it lets go of its tickets, and
//!   begins again when they are (`held::Before`). It waits for each ring once, and for none whose lease is younger than
//!   it.
//! * What a lease may use of space is kept for it ([`Spare`]): a posted write fails for want of space only where its
//!   client has more in flight than it was granted. Where others want what is kept, leases are taken back: the ring is
//!   told so first (`ring::recall_leases`), and what it published until then still has its room.
//!
//! A client that keeps the rules publishes nothing behind a command that it waits for. So whoever waits for a ring goes
//! on as soon as a command is taken from it that is none of its posted ones; one that is posted behind such a command,
//! or for whose answer there is no place, ends the leases of its ring. A posted command waits for no other ring, takes
//! no part in the books of the device's memory, passes limits of its tenant where others wait for its ring, and finds
//! the last slot free: those that wait for it may have all the others.
//!
//! Only devices of one core that emulate nothing grant leases, and none that was told to make every change durable
//! before its answer: a posted change is as durable as any other when it is over, not when its client goes on.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use smallvec::SmallVec;
use weldfs_ciscops::interp::{LEASED, OWNED, ROOT_HERE};
use weldfs_ciscops::limits::{LEASE_BLOCKS, LEASES_MAX};
use weldfs_ciscops::{Command, Errno, Handle, InodeNo, Op, Outcome};
use weldfs_journal::canary::{Canary, planted};
use weldfs_locks::Mutex;
use weldfs_scheduler::{Mode, Seq};

use super::session::QueueState;
use weldfs_fs::{FILE_BYTES_MAX, HandleTable, OpenedInfo, SessionView, perm};
use weldfs_session::pair;
use weldfs_session::sets::{InoHasher, SetTable};
use weldfs_store::error::FsResult;
use weldfs_store::limits::BLOCK;
use weldfs_store::{Need, Plan, Spare, Store};

/// Blocks kept for metadata beside those of the bytes.
const META_BLOCKS: u32 = 32;
/// A file that is larger, bytes, could reach its end by what is posted.
const SIZE_MAX: u64 = FILE_BYTES_MAX / 2;
type Table = HashMap<u64, Lease, BuildHasherDefault<InoHasher>>;

/// The leases of one device. Thread-safe.
#[derive(Default)]
pub(super) struct Leases {
    /// How many there are.
    count: AtomicU32,
    /// By inode: one at a time.
    table: Mutex<Table>,
}

struct Lease {
    ring: Arc<QueueState>,
    /// It ends with the handle.
    handle: Handle,
    spare: Spare,
    /// When it was granted, among the arrivals of commands.
    since: Seq,
    /// How far its ring was published when its client was told that it is taken back.
    recalled: Option<pair::Mark>,
}

impl Lease {
    /// Whether its ring, another one than `queue`, has published what is not over.
    fn is_pending_for(&self, queue: &QueueState) -> bool {
        is_other(&self.ring, queue) && self.ring.pair.is_pending() && !planted(Canary::LeaseUnbroken)
    }

    /// Tells its client that it is over, once. What is published by then is still kept room for.
    fn take_back(&mut self) {
        if self.recalled.is_none() {
            self.ring.pair.recall();
            self.recalled = self.ring.pair.mark();
        }
    }
}

impl Leases {
    /// Whether there is any.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) != 0
    }

    /// Whether a ring has the lease of what one of its handles names.
    pub fn has(&self, queue: &QueueState, h: Handle) -> bool {
        let Some(ino) = self.any().then(|| queue.session.handles.with(h, |d| d.ino.0).ok()).flatten() else {
            return false;
        };
        self.table.lock().get(&ino).is_some_and(|l| l.handle == h && !is_other(&l.ring, queue))
    }

    /// Whether a ring, another one than `queue`, has the lease of an inode and has published what is not over.
    #[inline]
    pub fn in_the_way(&self, queue: &QueueState, ino: u64) -> bool {
        self.any() && self.table.lock().get(&ino).is_some_and(|lease| lease.is_pending_for(queue))
    }

    /// The same of any inode.
    pub fn any_in_the_way(&self, queue: &QueueState) -> bool {
        self.any() && self.table.lock().values().any(|lease| lease.is_pending_for(queue))
    }

    /// The same of some that a command holds. A posted one waits for none, see [`Before::next`].
    #[inline]
    pub fn hold_up(&self, queue: &QueueState, cmd: &Command, members: &[(u64, Mode)]) -> bool {
        self.any() && !cmd.is_posted() && members.iter().any(|(ino, _)| self.in_the_way(queue, *ino))
    }

    /// Rings of leases that were granted before.
    pub fn before(&self, seq: Seq, ino: Option<u64>) -> SmallVec<[Arc<QueueState>; 2]> {
        let table = self.table.lock();
        let older = |lease: &&Lease| lease.since < seq;
        match ino {
            Some(ino) => table.get(&ino).filter(older).map(|l| l.ring.clone()).into_iter().collect(),
            None => table.values().filter(older).map(|l| l.ring.clone()).collect(),
        }
    }

    /// Whether any handle but this one has the lease of an inode.
    pub fn is_of_another(&self, queue: &QueueState, h: Handle, ino: InodeNo) -> bool {
        let other = |lease: &Lease| lease.handle != h || is_other(&lease.ring, queue);
        self.any() && self.table.lock().get(&ino.0).is_some_and(other)
    }

    /// Whether this handle has the lease of its inode, by whichever ring.
    pub fn is_of(&self, session: u64, h: Handle, ino: InodeNo) -> bool {
        let this = |lease: &Lease| lease.handle == h && lease.ring.session.id == session;
        self.any() && self.table.lock().get(&ino.0).is_some_and(this)
    }

    /// Whether any handle has it.
    pub fn is_of_any(&self, ino: InodeNo) -> bool {
        self.any() && self.table.lock().contains_key(&ino.0)
    }

    /// After an open of a file that may have one: the bit of its second result that grants the lease, or none.
    /// `granted` is called before any other command can find it.
    pub fn grant(
        &self,
        store: &Arc<Store>,
        sets: &SetTable,
        queue: &QueueState,
        o: &OpenedInfo,
        granted: impl FnOnce(),
    ) -> u64 {
        let mut table = self.table.lock();
        if table.len() >= LEASES_MAX {
            return 0;
        }
        let Entry::Vacant(place) = table.entry(o.ino.0) else { return 0 };
        // A page that is cold is not waited for, and without its inode nothing is known of the file.
        let Ok(Some(rec)) = store.inode(o.ino) else { return 0 };
        if rec.size > SIZE_MAX {
            return 0;
        }
        let Some(spare) = store.spare(LEASE_BLOCKS + META_BLOCKS) else { return 0 };
        let Some(ring) = queue.to_keep() else { return 0 };
        let since = sets.arrive();
        place.insert(Lease { ring, handle: o.handle, spare, since, recalled: None });
        self.note(&table);
        queue.counters.leases.add(1);
        granted();
        let cred = queue.session.cred();
        let bit = |set: bool, bit: u64| if set { bit } else { 0 };
        LEASED | bit(perm::is_owner(&rec, cred), OWNED) | bit(cred.uid == 0, ROOT_HERE)
    }

    /// The handle is closed.
    pub fn end(&self, session: u64, handle: Handle, ino: InodeNo) {
        if !self.any() {
            return;
        }
        let mut table = self.table.lock();
        if let Entry::Occupied(lease) = table.entry(ino.0)
            && lease.get().handle == handle
            && lease.get().ring.session.id == session
        {
            lease.remove();
            self.note(&table);
        }
    }

    /// The session is gone.
    pub fn end_session(&self, session: u64) {
        self.retain(|lease| lease.ring.session.id != session);
    }

    /// Whether leases of a ring were taken back that it still has.
    pub fn is_recalled(&self, queue: &QueueState) -> bool {
        self.any() && self.table.lock().values().any(|l| l.recalled.is_some() && !is_other(&l.ring, queue))
    }

    /// The client of this ring keeps no rules: it loses its leases, and none waits for it.
    pub fn void(&self, queue: &QueueState) {
        queue.pair.recall();
        self.retain(|lease| is_other(&lease.ring, queue));
        queue.pair.excuse();
    }

    /// Room is wanted: all leases are taken back, and what is kept for those is given back whose rings are past what
    /// they had published then; for the others when this is asked again.
    pub fn recall(&self) {
        self.retain(|lease| {
            lease.take_back();
            lease.recalled.is_some_and(|mark| !lease.ring.pair.is_past(mark))
        });
    }

    /// Room for a posted write, of what is kept for its file.
    pub fn room<'s>(&self, store: &'s Store, queue: &QueueState, op: &Op, need: &Need) -> FsResult<Plan<'s>> {
        let Op::Write { h, src, .. } = *op else { return store.begin(need) };
        let ino = queue.session.handle(h)?.ino.0;
        match self.table.lock().get_mut(&ino) {
            Some(lease) if lease.handle == h && !is_other(&lease.ring, queue) => {
                // Less is kept from here on: it is for what is published by now.
                lease.take_back();
                lease.spare.lend(src.len.div_ceil(BLOCK as u32) + 1, || store.begin(need))
            }
            _ => store.begin(need),
        }
    }

    fn retain(&self, keep: impl FnMut(&mut Lease) -> bool) {
        if self.any() {
            let mut keep = keep;
            let mut table = self.table.lock();
            table.retain(|_, lease| keep(lease));
            self.note(&table);
        }
    }

    fn note(&self, table: &Table) {
        self.count.store(table.len() as u32, Ordering::Release);
    }
}

/// A posted change that failed is told by the description, to the next call that asks how its writes went.
pub(super) fn note_failure(queue: &QueueState, cmd: &Command, outcome: &Outcome) {
    if let Op::Write { h, .. } | Op::SetAttr { h, .. } = cmd.op
        && cmd.is_posted()
        && !outcome.is_ok()
        && !planted(Canary::PostedErrorSwallowed)
    {
        // Closed meanwhile by another ring: none is left to be told.
        let _ = queue.session.handles.with(h, |d| d.fail(Errno(outcome.status)));
    }
}

pub(super) fn is_other(ring: &Arc<QueueState>, queue: &QueueState) -> bool {
    !std::ptr::eq(&**ring, queue)
}
