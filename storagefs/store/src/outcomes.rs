//! Outcomes of detectable commands: what became of (client, queue, sequence), kept so that a client can ask after any
//! crash of either side. An outcome is an effect in the record of the command's own effects, so that the two are there
//! together or not at all; the table is what those effects add up to.
//!
//! Kept are the last `RING` outcomes of a queue, [`QUEUES_MAX`] queues of a client, `CLIENTS_MAX` clients of a user
//! and `OWNERS_MAX` users; beyond that (and beyond a bound of memory) those idle the longest go. Whatever goes leaves
//! its highest sequence behind as an *expiry bound*: a sequence at or below it that is not in the table is "expired",
//! never "not started". Sequences need not be monotonic for that to be true; if they are not, some that never ran are
//! called expired as well.
//!
//! One mutex; only detectable commands and questions take it.

mod page;
#[cfg(test)]
mod tests;

pub use page::{ClientRec, Page, bound_from_value, bound_to_value};

use crate::codec::{DecodeError, Reader, Writer};
use crate::error::{FsError, FsResult, Place};
use crate::overlay::apply::Tally;
use crate::tree::{Key, kind};
use hashbrown::HashMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use weldfs_ciscops::interp;
use weldfs_ciscops::{OutcomeBody, OutcomeState};
use weldfs_locks::Mutex;

/// Outcomes kept of one queue.
pub(crate) const RING: u64 = 1024;
/// Outcomes in one value of the tree.
pub(crate) const PAGE_ENTRIES: usize = 64;
/// Values of one queue in the tree.
pub(crate) const PAGES: u64 = RING / PAGE_ENTRIES as u64;
/// Queues kept of one client.
pub const QUEUES_MAX: usize = 64;
/// Clients kept of one user.
pub(crate) const CLIENTS_MAX: usize = 64;
/// Users kept.
pub(crate) const OWNERS_MAX: usize = 4096;
/// Keys that count for a page when room for metadata is estimated: its value is as long as theirs.
pub(crate) const PAGE_KEYS: i64 = 12;
/// Position of the bound of all users that were dropped, among the bounds of users.
pub(crate) const ALL_OWNERS: u64 = 1 << 32;

/// Memory of a page beside its entries, of a queue, a client and a user, bytes (estimates, with their tables).
const PAGE_BYTES: i64 = 120;
const QUEUE_BYTES: i64 = 240;
const CLIENT_BYTES: i64 = 240;
const OWNER_BYTES: i64 = 160;

/// Whose command, and which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The client's id, from its attach.
    pub client: [u8; 16],
    /// The user it belongs to: others cannot ask.
    pub uid: u32,
    /// The queue the command came on.
    pub queue: u16,
    /// The client's sequence number.
    pub sequence: u64,
}

/// What became of a detectable command: the effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutcomeRec {
    /// Which command.
    pub id: Identity,
    /// What its CQE said.
    pub outcome: interp::Outcome,
}

impl OutcomeRec {
    /// Bytes of an encoded one, at most.
    pub(crate) const BYTES_MAX: usize = 72;

    /// Appends its fields.
    pub fn encode(&self, w: &mut Writer) {
        w.raw(&self.id.client);
        for v in [u64::from(self.id.queue), self.id.sequence, u64::from(self.id.uid)] {
            w.var(v);
        }
        encode_outcome(&self.outcome, w);
    }

    /// Reads its fields.
    ///
    /// # Errors
    /// Bytes that `encode` does not produce.
    pub fn decode(r: &mut Reader<'_>) -> Result<OutcomeRec, DecodeError> {
        let client = r.take(16)?.try_into().map_err(|_| DecodeError("client id"))?;
        let queue = r.var16()?;
        let (sequence, uid) = (r.var()?, r.var32()?);
        Ok(OutcomeRec { id: Identity { client, uid, queue, sequence }, outcome: decode_outcome(r)? })
    }
}

fn encode_outcome(o: &interp::Outcome, w: &mut Writer) {
    w.var(o.status as u32 as u64);
    w.var(o.micro_done.into());
    w.var(o.micro_failed.into());
    w.var(o.result);
    w.var(o.result2);
}

fn decode_outcome(r: &mut Reader<'_>) -> Result<interp::Outcome, DecodeError> {
    let status = i32::try_from(r.var32()?).map_err(|_| DecodeError("outcome: status"))?;
    let (micro_done, micro_failed) = (r.var16()?, r.var16()?);
    Ok(interp::Outcome { status, micro_done, micro_failed, result: r.var()?, result2: r.var()? })
}

/// An expiry bound: the highest sequence among those forgotten.
pub type Bound = Option<u64>;

/// What the table knows of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// Nothing, and it was not forgotten either.
    NotStarted,
    /// It ended like this.
    Done(interp::Outcome),
    /// Too old to be known.
    Expired,
}

impl Known {
    /// As the wire says it.
    pub fn to_body(self) -> OutcomeBody {
        let state = |s: OutcomeState| OutcomeBody { state: s as u8, ..OutcomeBody::default() };
        match self {
            Known::NotStarted => state(OutcomeState::NotStarted),
            Known::Expired => state(OutcomeState::Expired),
            Known::Done(o) => OutcomeBody {
                status: o.status,
                micro_done: o.micro_done,
                micro_failed: o.micro_failed,
                result: o.result,
                result2: o.result2,
                ..state(OutcomeState::Done)
            },
        }
    }
}

/// One outcome as kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The command's sequence.
    pub sequence: u64,
    /// Stamp of the effect.
    pub stamp: u64,
    /// What became of it.
    pub outcome: interp::Outcome,
}

const ENTRY_BYTES: i64 = size_of::<Entry>() as i64;

/// The outcomes of one queue: positions count up for ever, the last `RING` are kept.
#[derive(Debug, Default)]
struct Queue {
    head: u64,
    bound: Bound,
    last: u64,
    pages: Vec<Option<Arc<Page>>>,
}

impl Queue {
    fn page_of(position: u64) -> u64 {
        position / PAGE_ENTRIES as u64 % PAGES
    }

    /// The newest outcome of a sequence.
    fn find(&self, sequence: u64) -> Option<&Entry> {
        let all = self.pages.iter().flatten().flat_map(|p| p.entries());
        all.filter(|e| e.sequence == sequence).max_by_key(|e| e.stamp)
    }

    /// Puts an outcome in, the oldest out; says which page changed and how much memory that took.
    fn put(&mut self, entry: Entry) -> (u64, i64) {
        let at = Queue::page_of(self.head);
        if self.pages.len() <= at as usize {
            self.pages.resize(at as usize + 1, None);
        }
        let slot = &mut self.pages[at as usize];
        let mut bytes = if slot.is_none() { PAGE_BYTES } else { 0 };
        let page = Arc::make_mut(slot.get_or_insert_with(|| Arc::new(Page::default())));
        bytes += if page.put(self.head, entry, self.bound) { 0 } else { ENTRY_BYTES };
        self.bound = page.bound();
        self.head += 1;
        self.last = self.last.max(entry.stamp);
        (at, bytes)
    }

    /// The highest sequence it ever held.
    fn highest(&self) -> Bound {
        let kept = self.pages.iter().flatten().flat_map(|p| p.entries()).map(|e| e.sequence).max();
        self.bound.max(kept)
    }

    fn bytes(&self) -> i64 {
        let pages = self.pages.iter().flatten().map(|p| PAGE_BYTES + p.entries().len() as i64 * ENTRY_BYTES);
        QUEUE_BYTES + pages.sum::<i64>()
    }

    fn held(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.pages.len() as u64).filter(|i| self.pages[*i as usize].is_some())
    }
}

/// One client's queues.
#[derive(Debug)]
struct Client {
    /// Names it in keys of the tree.
    number: u64,
    /// Of the queues that were dropped.
    bound: Bound,
    last: u64,
    queues: HashMap<u16, Queue>,
}

impl Client {
    fn bytes(&self) -> i64 {
        CLIENT_BYTES + self.queues.values().map(Queue::bytes).sum::<i64>()
    }

    fn highest(&self) -> Bound {
        self.queues.values().map(Queue::highest).fold(self.bound, Ord::max)
    }
}

/// One user's clients.
#[derive(Debug, Default)]
struct Owner {
    /// Of the clients that were dropped.
    bound: Bound,
    last: u64,
    bytes: i64,
    clients: HashMap<[u8; 16], Client>,
}

#[derive(Debug, Default)]
struct Table {
    owners: HashMap<u32, Owner>,
    /// Of the users that were dropped.
    bound: Bound,
    next_number: u64,
    bytes: i64,
    limit: i64,
    numbers: HashMap<u64, (u32, [u8; 16])>,
    /// Keys that the next checkpoint writes or removes.
    dirty: BTreeSet<Key>,
}

fn page_key(number: u64, queue: u16, page: u64) -> Key {
    Key::new(kind::OUTCOMES, number, u64::from(queue) << 32 | page)
}

fn client_key(number: u64) -> Key {
    Key::new(kind::CLIENT, number, 0)
}

fn bound_key(who: u64) -> Key {
    Key::new(kind::CLIENT, 0, who)
}

/// The table. Thread-safe.
#[derive(Debug, Default)]
pub struct Outcomes {
    table: Mutex<Table>,
}

/// One value as it was at a cut.
#[derive(Debug, Clone)]
enum Frozen {
    Gone,
    Bytes(Vec<u8>),
    Page(Arc<Page>),
}

/// What changed up to a cut.
#[derive(Debug, Default)]
pub(crate) struct FrozenOutcomes(Vec<(Key, Frozen)>);

impl FrozenOutcomes {
    /// As changes of the tree, in order of keys.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (Key, Option<Vec<u8>>)> + '_ {
        self.0.iter().map(|(key, f)| {
            let value = match f {
                Frozen::Gone => None,
                Frozen::Bytes(b) => Some(b.clone()),
                Frozen::Page(p) => Some(p.to_value()),
            };
            (*key, value)
        })
    }
}

impl Outcomes {
    /// An empty table that holds at most about `limit` bytes.
    pub fn new(limit: usize) -> Outcomes {
        let table = Table { limit: limit as i64, next_number: 1, ..Table::default() };
        Outcomes { table: Mutex::new(table) }
    }

    /// Keeps an outcome. `stamp` is its effect's. `tally` learns what a checkpoint has to write for it.
    pub(crate) fn record(&self, stamp: u64, rec: &OutcomeRec, tally: &mut Tally) {
        self.table.lock().record(stamp, rec, tally);
    }

    /// What became of a command.
    pub fn lookup(&self, id: &Identity) -> Known {
        let table = self.table.lock();
        let Some(owner) = table.owners.get(&id.uid) else { return forgotten(table.bound, id.sequence) };
        let Some(client) = owner.clients.get(&id.client) else { return forgotten(owner.bound, id.sequence) };
        let Some(queue) = client.queues.get(&id.queue) else { return forgotten(client.bound, id.sequence) };
        match queue.find(id.sequence) {
            Some(e) => Known::Done(e.outcome),
            None => forgotten(queue.bound, id.sequence),
        }
    }

    /// Memory of the table, bytes.
    pub fn bytes(&self) -> u64 {
        self.table.lock().bytes.max(0) as u64
    }

    /// Takes what changed since the last call. The caller keeps commits out.
    pub(crate) fn freeze(&self) -> FrozenOutcomes {
        let mut t = self.table.lock();
        let dirty = std::mem::take(&mut t.dirty);
        FrozenOutcomes(dirty.into_iter().map(|key| (key, t.value(key))).collect())
    }

    /// Takes over a key of the tree (kinds [`kind::CLIENT`], then `kind::OUTCOMES`, in order).
    ///
    /// # Errors
    /// A value that was never written.
    pub(crate) fn load(&self, key: Key, value: &[u8]) -> FsResult<()> {
        let damaged = |e: DecodeError| FsError::corrupt(e.0, Place::Key(key), 0, 0);
        self.table.lock().load(key, value).map_err(damaged)
    }

    /// That what was loaded fits together. To be called after the last [`Outcomes::load`].
    ///
    /// # Errors
    /// Pages of a queue that cannot stand side by side.
    pub(crate) fn loaded(&self) -> FsResult<()> {
        self.table.lock().loaded()
    }
}

fn forgotten(bound: Bound, sequence: u64) -> Known {
    if bound.is_some_and(|b| sequence <= b) { Known::Expired } else { Known::NotStarted }
}

impl Table {
    fn record(&mut self, stamp: u64, rec: &OutcomeRec, tally: &mut Tally) {
        let Identity { client, uid, queue, sequence } = rec.id;
        self.make_room(uid, &client, queue, tally);
        let (mut bytes, mut touched) = (0, Vec::new());
        let owner = self.owners.entry(uid).or_insert_with(|| {
            bytes += OWNER_BYTES;
            if self.bound.is_some() {
                touched.push(bound_key(uid.into()));
            }
            Owner { bound: self.bound, ..Owner::default() }
        });
        let bound = owner.bound;
        let c = owner.clients.entry(client).or_insert_with(|| {
            bytes += CLIENT_BYTES;
            let number = self.next_number;
            self.next_number += 1;
            self.numbers.insert(number, (uid, client));
            touched.push(client_key(number));
            Client { number, bound, last: 0, queues: HashMap::new() }
        });
        let bound = c.bound;
        let q = c.queues.entry(queue).or_insert_with(|| {
            bytes += QUEUE_BYTES;
            Queue { bound, ..Queue::default() }
        });
        let (page, more) = q.put(Entry { sequence, stamp, outcome: rec.outcome });
        touched.push(page_key(c.number, queue, page));
        bytes += more;
        c.last = c.last.max(stamp);
        owner.last = owner.last.max(stamp);
        owner.bytes += bytes;
        self.bytes += bytes;
        touched.into_iter().for_each(|key| self.touch(key, tally));
        self.fit(uid, &client, tally);
    }

    fn touch(&mut self, key: Key, tally: &mut Tally) {
        if self.dirty.insert(key) {
            tally.keys += if key.kind == kind::OUTCOMES { PAGE_KEYS } else { 1 };
            tally.bytes += if key.kind == kind::OUTCOMES { PAGE_BYTES + 64 * ENTRY_BYTES } else { 64 };
        }
    }

    /// Drops what the counts have no place for beside what comes.
    fn make_room(&mut self, uid: u32, client: &[u8; 16], queue: u16, tally: &mut Tally) {
        let Some(owner) = self.owners.get(&uid) else {
            if self.owners.len() >= OWNERS_MAX
                && let Some(idle) = self.owners.iter().min_by_key(|(_, o)| o.last).map(|(uid, _)| *uid)
            {
                self.drop_owner(idle, tally);
            }
            return;
        };
        let Some(c) = owner.clients.get(client) else {
            if owner.clients.len() >= CLIENTS_MAX
                && let Some(idle) = owner.clients.iter().min_by_key(|(_, c)| c.last).map(|(id, _)| *id)
            {
                self.drop_client(uid, &idle, tally);
            }
            return;
        };
        if !c.queues.contains_key(&queue)
            && c.queues.len() >= QUEUES_MAX
            && let Some(idle) = c.queues.iter().min_by_key(|(_, q)| q.last).map(|(index, _)| *index)
        {
            self.drop_queue(uid, client, idle, tally);
        }
    }

    /// Drops clients until the memory suffices: of the user with most, the one idle the longest. The client at hand
    /// stays.
    fn fit(&mut self, uid: u32, client: &[u8; 16], tally: &mut Tally) {
        while self.bytes > self.limit {
            let Some(&most) = self.owners.iter().max_by_key(|(_, o)| o.bytes).map(|(uid, _)| uid) else { return };
            let others = self.owners[&most].clients.iter().filter(|(id, _)| most != uid || *id != client);
            match others.min_by_key(|(_, c)| c.last).map(|(id, _)| *id) {
                Some(idle) => self.drop_client(most, &idle, tally),
                None => {
                    let queues = &self.owners[&uid].clients[client].queues;
                    let idle = queues.iter().min_by_key(|(_, q)| q.last).map(|(index, _)| *index);
                    match idle.filter(|_| most == uid && queues.len() > 1) {
                        Some(idle) => self.drop_queue(uid, client, idle, tally),
                        None => return,
                    }
                }
            }
        }
    }

    fn drop_queue(&mut self, uid: u32, client: &[u8; 16], index: u16, tally: &mut Tally) {
        let Some(owner) = self.owners.get_mut(&uid) else { return };
        let Some(c) = owner.clients.get_mut(client) else { return };
        let Some(queue) = c.queues.remove(&index) else { return };
        c.bound = c.bound.max(queue.highest());
        let number = c.number;
        owner.bytes -= queue.bytes();
        self.bytes -= queue.bytes();
        for page in queue.held() {
            self.touch(page_key(number, index, page), tally);
        }
        self.touch(client_key(number), tally);
    }

    fn drop_client(&mut self, uid: u32, client: &[u8; 16], tally: &mut Tally) {
        let Some(owner) = self.owners.get_mut(&uid) else { return };
        let Some(c) = owner.clients.remove(client) else { return };
        owner.bound = owner.bound.max(c.highest());
        owner.bytes -= c.bytes();
        self.bytes -= c.bytes();
        self.numbers.remove(&c.number);
        for (index, queue) in &c.queues {
            for page in queue.held() {
                self.touch(page_key(c.number, *index, page), tally);
            }
        }
        self.touch(client_key(c.number), tally);
        self.touch(bound_key(uid.into()), tally);
    }

    fn drop_owner(&mut self, uid: u32, tally: &mut Tally) {
        let Some(owner) = self.owners.get(&uid) else { return };
        let clients: Vec<[u8; 16]> = owner.clients.keys().copied().collect();
        clients.iter().for_each(|c| self.drop_client(uid, c, tally));
        if let Some(owner) = self.owners.remove(&uid) {
            self.bound = self.bound.max(owner.bound);
            self.bytes -= OWNER_BYTES;
        }
        self.touch(bound_key(uid.into()), tally);
        self.touch(bound_key(ALL_OWNERS), tally);
    }

    /// The value of a key as it is now.
    fn value(&self, key: Key) -> Frozen {
        let bound = |b: Bound| if b.is_some() { Frozen::Bytes(bound_to_value(b)) } else { Frozen::Gone };
        if key.kind == kind::CLIENT && key.a == 0 {
            return match u32::try_from(key.b) {
                Ok(uid) => bound(self.owners.get(&uid).and_then(|o| o.bound)),
                Err(_) => bound(self.bound),
            };
        }
        let Some((uid, id)) = self.numbers.get(&key.a) else { return Frozen::Gone };
        let Some(c) = self.owners.get(uid).and_then(|o| o.clients.get(id)) else { return Frozen::Gone };
        if key.kind == kind::CLIENT {
            return Frozen::Bytes(ClientRec { id: *id, uid: *uid, bound: c.bound }.to_value());
        }
        let queue = c.queues.get(&((key.b >> 32) as u16));
        let page = queue.and_then(|q| q.pages.get(key.b as u32 as usize)).and_then(Option::as_ref);
        page.map_or(Frozen::Gone, |p| Frozen::Page(p.clone()))
    }

    fn load(&mut self, key: Key, value: &[u8]) -> Result<(), DecodeError> {
        match (key.kind, key.a) {
            (kind::CLIENT, 0) => {
                let bound = bound_from_value(value)?;
                match u32::try_from(key.b) {
                    Ok(uid) => self.owners.entry(uid).or_default().bound = bound,
                    Err(_) if key.b == ALL_OWNERS => self.bound = bound,
                    Err(_) => return Err(DecodeError("outcome bound: user")),
                }
            }
            (kind::CLIENT, number) => {
                let rec = ClientRec::from_value(value)?;
                let client = Client { number, bound: rec.bound, last: 0, queues: HashMap::new() };
                let clients = &mut self.owners.entry(rec.uid).or_default().clients;
                if clients.insert(rec.id, client).is_some() || number == u64::MAX || key.b != 0 {
                    return Err(DecodeError("outcomes: client"));
                }
                self.numbers.insert(number, (rec.uid, rec.id));
                self.next_number = self.next_number.max(number + 1);
            }
            (_, number) => {
                let client =
                    self.numbers.get(&number).and_then(|(uid, id)| self.owners.get_mut(uid)?.clients.get_mut(id));
                let client = client.ok_or(DecodeError("outcomes: their client"))?;
                let (queue, page) = page_place(key)?;
                let queue = client.queues.entry(queue).or_default();
                queue.pages.resize(page as usize, None); // keys come in order
                queue.pages.push(Some(Arc::new(Page::from_value(page, value)?)));
            }
        }
        Ok(())
    }

    fn loaded(&mut self) -> FsResult<()> {
        self.bytes = 0;
        for owner in self.owners.values_mut() {
            owner.bytes = OWNER_BYTES;
            for client in owner.clients.values_mut() {
                let number = client.number;
                for (index, queue) in &mut client.queues {
                    let e = |e: DecodeError| FsError::corrupt(e.0, Place::Key(page_key(number, *index, 0)), 0, 0);
                    (queue.head, queue.bound, queue.last) = page::join(&queue.pages).map_err(e)?;
                    client.last = client.last.max(queue.last);
                }
                owner.bytes += client.bytes();
                owner.last = owner.last.max(client.last);
            }
            self.bytes += owner.bytes;
        }
        Ok(())
    }
}

/// Queue and page that a key of kind `kind::OUTCOMES` names.
///
/// # Errors
/// A place there is none.
pub(crate) fn page_place(key: Key) -> Result<(u16, u64), DecodeError> {
    let (queue, page) = (key.b >> 32, key.b & u64::from(u32::MAX));
    match u16::try_from(queue) {
        Ok(queue) if page < PAGES => Ok((queue, page)),
        _ => Err(DecodeError("outcomes: place")),
    }
}
