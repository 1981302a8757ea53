//! The device's memory: what commands hold of it while they run, and what is left for caches.
//!
//! A command says what it will hold before it takes tickets or room, in one request, and waits its turn where that is
//! not to be had; it gives it back when it ends. The books are the scheduler's `Broker`; here are its lock, the
//! commands that wait for it, and the caches, which give way: whatever commands hold, caches do not. The budget is
//! what `--memory` leaves beside the changes that no checkpoint has written yet, which have a bound of their own
//! (`Store::fill`).

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use weldfs_ciscops::limits::{ATOMIC_WRITE_MAX, PROGRAM_SCRATCH_MAX, PROGRAM_WRITE_MAX, SNAPSHOT_MAX};
use weldfs_ciscops::{Command, Errno, Op, Paths};
use weldfs_locks::Mutex;
use weldfs_scheduler::{Broker, Changed, Grant, ShareError, TenantId, Token};

use super::board::Board;
use crate::limits::MEMORY_MIN;
use weldfs_session::counters::SharedCount;
use weldfs_session::stats::MemoryStats;
use weldfs_session::tenants::Tenant;
use weldfs_store::Store;

/// Caches grow back only by so much of the budget at a time, and shrink by so much more than they must: what comes and
/// goes quickly does not make them drop pages over and over.
const CACHE_STEP: u64 = 16;
/// The pressure of a tenant is told to the policy when it changes by so much, 1024ths.
const PRESSURE_STEP: u32 = 64;

/// This fraction of the budget is guaranteed to a tenant that was promised nothing,
const LITTLE: u64 = 32;
/// and never more than so many bytes.
const LITTLE_MAX: u64 = 1 << 20;
/// All of these guarantees together take at most this fraction of the budget, and never what the largest command needs:
/// however many tenants come, any one command that the budget can hold runs in the end. Where the budget is too small
/// for the largest program, that is said of the other commands only.
const LITTLES: u64 = 2;
/// Bytes that the largest single command holds: a snapshot, or its payload on the way in and out.
const SINGLE_MAX: u64 = {
    let payload = 2 * ATOMIC_WRITE_MAX as u64;
    if SNAPSHOT_MAX > payload { SNAPSHOT_MAX } else { payload }
};
/// Bytes that the largest command of all holds, a program: its buffers, what it composes, that staged once more on its
/// way to a block medium or an emulated one, and a payload on its way to a slot.
pub(super) const HELD_MAX: u64 = {
    let program = PROGRAM_SCRATCH_MAX + 2 * PROGRAM_WRITE_MAX + 2 * ATOMIC_WRITE_MAX as u64;
    if SINGLE_MAX > program { SINGLE_MAX } else { program }
};

/// What became of a request that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    None,
    Granted,
    Refused,
}

struct Books {
    broker: Broker,
    /// By slot.
    answers: Vec<Answer>,
    /// Bytes that caches may use now.
    caches: u64,
    /// Bytes guaranteed to tenants that were promised something; and to others, with the sum of those.
    promised: HashMap<u32, u64>,
    littles: HashMap<u32, u64>,
    little: u64,
}

/// The memory of one device. Thread-safe; its lock is a leaf, but for the caches' locks.
pub struct Memory {
    books: Mutex<Books>,
    board: Arc<Board>,
    store: Arc<Store>,
}

/// Bytes that a command holds of the device's memory while it runs: its payload where that is staged on its way to the
/// medium (`in`) or to the host (`out`), and scratch.
pub(super) fn held_by(cmd: &Command, paths: &Paths, stages_in: bool, stages_out: bool) -> u64 {
    let bytes_in = if stages_in { weldfs_fs::payload_bytes(cmd, paths) } else { 0 };
    let bytes_out = match cmd.op {
        Op::Read { out, .. }
        | Op::OpenReadClose { out, .. }
        | Op::OpenReadWriteClose { out, .. }
        | Op::ReadChecksumVerify { out, .. }
            if stages_out =>
        {
            u64::from(out.len)
        }
        _ => 0,
    };
    bytes_in + bytes_out + weldfs_fs::scratch_bytes(cmd, paths)
}

impl Memory {
    /// Books over the memory that `store` was mounted with.
    pub fn new(store: Arc<Store>, board: Arc<Board>) -> Memory {
        let budget = (store.cache_budget_max() as u64).max(MEMORY_MIN);
        let broker = Broker::new(budget);
        let caches = broker.cache_room();
        store.set_cache_budget(caches as usize);
        let answers = vec![Answer::None; board.len()];
        Memory { books: Mutex::new(Books::new(broker, answers, caches)), board, store }
    }

    /// Sets what a tenant has for sure, and what it can have at most. A tenant that was promised nothing gets a
    /// little all the same, as long as there is: so that small commands do not wait behind the large ones of others.
    pub fn set_share(&self, tenant: &Tenant) -> Result<(), ShareError> {
        let (promised, cap) = (tenant.memory.guarantee_bytes, tenant.memory.cap_bytes);
        let cap = if cap == 0 { u64::MAX } else { cap };
        let mut books = self.books.lock();
        let changed = books.set_share(tenant.id, promised, cap)?;
        let woken = books.note(&changed);
        drop(books);
        woken.into_iter().for_each(|slot| self.board.wake(slot));
        Ok(())
    }

    /// The last session of a tenant is gone: a guarantee that it got without having been promised one goes to others.
    pub fn forget(&self, tenant: &Tenant) {
        let cap = tenant.memory.cap_bytes;
        let mut books = self.books.lock();
        let changed = books.forget(tenant.id, if cap == 0 { u64::MAX } else { cap });
        let woken = books.note(&changed);
        drop(books);
        woken.into_iter().for_each(|slot| self.board.wake(slot));
    }

    /// Turns accounting by tenant on, or off: then there is one queue for all.
    pub fn set_accounting(&self, on: bool, tenants: &[Arc<Tenant>]) {
        let mut books = self.books.lock();
        let changed = books.broker.set_accounting(on);
        let woken = books.note(&changed);
        tenants.iter().for_each(|t| self.tell(&books, t));
        drop(books);
        woken.into_iter().for_each(|slot| self.board.wake(slot));
    }

    /// Whether tenants are accounted for.
    pub fn accounting(&self) -> bool {
        self.books.lock().broker.accounting()
    }

    /// How it is used.
    pub fn stats(&self) -> MemoryStats {
        let books = self.books.lock();
        MemoryStats {
            budget: books.broker.budget(),
            used: books.broker.used(),
            caches: books.caches,
            cached: self.store.cached(),
            waiting: books.broker.waiting() as u64,
            accounting: books.broker.accounting(),
        }
    }

    /// Reserves `bytes` for the command in `slot`; waits until they are there. ENOMEM at once when its tenant can never
    /// have so much. The caller holds neither tickets nor room.
    pub async fn reserve<'m>(
        &'m self,
        tenant: &'m Tenant,
        slot: u32,
        bytes: u64,
        waits: &SharedCount,
    ) -> Result<Held<'m>, Errno> {
        let mut held = Held { memory: self, tenant, slot, bytes: 0, granted: true };
        if bytes == 0 {
            return Ok(held);
        }
        match self.ask(tenant, slot, bytes) {
            Grant::Now => held.bytes = bytes,
            Grant::Never => return Err(Errno::NOMEM),
            Grant::Wait => {
                waits.add(1);
                (held.bytes, held.granted) = (bytes, false);
                let answer = poll_fn(|_| match self.books.lock().take(slot) {
                    Answer::None => Poll::Pending,
                    answer => Poll::Ready(answer),
                });
                let refused = answer.await == Answer::Refused;
                held.granted = true;
                if refused {
                    held.bytes = 0;
                    return Err(Errno::NOMEM);
                }
            }
        }
        tenant.memory_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(held)
    }

    fn ask(&self, tenant: &Tenant, slot: u32, bytes: u64) -> Grant {
        let mut books = self.books.lock();
        let grant = books.broker.reserve(tenant.id, bytes, Token(slot));
        if grant != Grant::Never {
            self.settle(books, tenant);
        }
        grant
    }

    /// Lets caches give way, or grow back, and tells the policy of the tenant's pressure.
    fn settle(&self, mut books: weldfs_locks::MutexGuard<'_, Books>, tenant: &Tenant) {
        self.tell(&books, tenant);
        let step = books.broker.budget() / CACHE_STEP;
        let (most, room) = (books.broker.budget() - books.broker.used(), books.broker.cache_room());
        if books.caches > most {
            books.caches = room.saturating_sub(step);
            self.store.set_cache_budget(books.caches as usize);
        } else if books.caches + 2 * step < room || (books.caches < room && books.broker.used() == 0) {
            books.caches = room;
            self.store.set_cache_budget(room as usize);
        }
    }

    /// Tells the policy how far a tenant is over its share. Under the lock of the books, so that what is told last is
    /// what was so last; the run queue's lock is a leaf.
    fn tell(&self, books: &Books, tenant: &Tenant) {
        let over = books.broker.over_share(tenant.id);
        let over = over.div_ceil(PRESSURE_STEP).saturating_mul(PRESSURE_STEP);
        if tenant.pressure.swap(over, Ordering::Relaxed) != over {
            self.board.runq.set_pressure(tenant.id, over);
        }
    }

    fn give_back(&self, held: &Held<'_>) {
        let mut books = self.books.lock();
        let mut bytes = held.bytes;
        let mut woken: Vec<u32> = Vec::new();
        if !held.granted && books.take(held.slot) != Answer::Granted {
            // The command is no more, and waited: nothing was given to it.
            bytes = 0;
            woken.extend(books.broker.cancel(Token(held.slot)).1.map(|t| t.0));
        }
        if bytes > 0 {
            woken.extend(books.broker.release(held.tenant.id, bytes).map(|t| t.0));
        }
        for slot in &woken {
            books.answers[*slot as usize] = Answer::Granted;
        }
        self.settle(books, held.tenant);
        woken.into_iter().for_each(|slot| self.board.wake(slot));
    }
}

impl Books {
    fn new(broker: Broker, answers: Vec<Answer>, caches: u64) -> Books {
        Books { broker, answers, caches, promised: HashMap::new(), littles: HashMap::new(), little: 0 }
    }

    /// Guarantees a tenant what it was promised, or else a little of what may be given away like that.
    fn set_share(&mut self, tenant: TenantId, promised: u64, cap: u64) -> Result<Changed, ShareError> {
        let little = if promised > 0 { 0 } else { self.little_for(tenant, cap) };
        // The broker first: what it refuses is written down nowhere.
        let changed = self.broker.set_share(tenant, promised.max(little), cap)?;
        self.little -= self.littles.remove(&tenant.0).unwrap_or(0);
        self.promised.remove(&tenant.0);
        if promised > 0 {
            self.promised.insert(tenant.0, promised);
        } else if little > 0 {
            self.littles.insert(tenant.0, little);
            self.little += little;
        }
        Ok(changed)
    }

    fn little_for(&self, tenant: TenantId, cap: u64) -> u64 {
        let budget = self.broker.budget();
        let others: u64 = self.promised.iter().filter(|(id, _)| **id != tenant.0).map(|(_, bytes)| bytes).sum();
        let largest = if budget >= HELD_MAX { HELD_MAX } else { SINGLE_MAX };
        let most = (budget / LITTLES).min(budget.saturating_sub(others).saturating_sub(largest));
        let given = self.little - self.littles.get(&tenant.0).unwrap_or(&0);
        (budget / LITTLE).min(LITTLE_MAX).min(cap).min(most.saturating_sub(given))
    }

    /// Takes back what a tenant was guaranteed without a promise.
    fn forget(&mut self, tenant: TenantId, cap: u64) -> Changed {
        let Some(little) = self.littles.remove(&tenant.0) else { return Changed::default() };
        self.little -= little;
        // No guarantee fits under any cap and into any budget.
        self.broker.set_share(tenant, 0, cap).unwrap_or_default()
    }

    fn take(&mut self, slot: u32) -> Answer {
        std::mem::replace(&mut self.answers[slot as usize], Answer::None)
    }

    /// Writes down what a change of rules did; the slots to wake.
    fn note(&mut self, changed: &Changed) -> Vec<u32> {
        let granted = changed.granted.iter().map(|t| (t.0, Answer::Granted));
        let refused = changed.refused.iter().map(|t| (t.0, Answer::Refused));
        let all: Vec<_> = granted.chain(refused).collect();
        all.iter().for_each(|(slot, answer)| self.answers[*slot as usize] = *answer);
        all.into_iter().map(|(slot, _)| slot).collect()
    }
}

/// What a command holds; given back when dropped.
pub struct Held<'m> {
    memory: &'m Memory,
    tenant: &'m Tenant,
    slot: u32,
    bytes: u64,
    /// False while it waits.
    granted: bool,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            if self.granted {
                self.tenant.memory_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
            }
            self.memory.give_back(self);
        }
    }
}

#[cfg(test)]
mod tests;
