//! Tenants: who is charged, and how much of the device each may hold at a time.
//!
//! The table is made from the device's configuration ([`TenantsConfig`]). What a client says about itself decides
//! nothing: a tenant follows from a token that the device has minted, or from what the kernel says of the peer, in
//! the order token, cgroup, uid, gid; whoever no rule names is a tenant of its own by uid. A tenant outlives its
//! sessions, and so does what it has used, until its number is needed for another uid: then that is the others'.
//!
//! Admission has two bounds, both taken and given back with plain atomics: the tenant's own limits, and a share of
//! what is free: no tenant has more than a multiple of what is left (dynamic thresholds; Choudhury and Hahne, 1998):
//! three times of slots, which come back by themselves; as much of pool memory and placeholders; half of sessions,
//! queue pairs and handles, which a client may keep. So a quarter, a half, two thirds of the device are left beside
//! one greedy tenant; and any number of greedy ones end up with equal parts.

mod file;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use weldfs_ciscops::Errno;
use weldfs_journal::Random;
use weldfs_locks::{Mutex, RwLock};
use weldfs_scheduler::TenantId;

use super::counters::{Backlog, Totals};
use super::latency::Latencies;
use super::limits::{LOCK_BYTES, TENANTS_MAX};
use super::locks::Payer;
use weldfs_store::cred::Cred;
use weldfs_store::lograte::LogRate;

pub use file::{TenantConfig, TenantLimits, TenantMemory, TenantsConfig, TenantsError, WEIGHT_DEFAULT, WEIGHT_MAX};

/// Secret that makes its bearer a member of a tenant.
pub type TenantToken = [u8; 16];

/// Commands in flight and their bytes, in one word, so that taking both is one instruction.
#[derive(Default)]
pub struct Load(AtomicU64);

/// Bits that hold bytes; commands are counted above them.
const BYTES_BITS: u32 = 48;
const ONE: u64 = 1 << BYTES_BITS;
const BYTES: u64 = ONE - 1;

impl Load {
    /// What one command counts for: of its bytes so many that no number of commands overflows.
    fn of(bytes: u64) -> u64 {
        ONE | bytes.min(BYTES >> 17)
    }

    /// Adds a command; commands and bytes before.
    #[inline]
    fn add(&self, bytes: u64) -> (u64, u64) {
        let before = self.0.fetch_add(Load::of(bytes), Ordering::Relaxed);
        (before >> BYTES_BITS, before & BYTES)
    }

    #[inline]
    fn sub(&self, bytes: u64) {
        self.0.fetch_sub(Load::of(bytes), Ordering::Relaxed);
    }

    /// Commands and bytes now.
    fn get(&self) -> (u64, u64) {
        let now = self.0.load(Ordering::Relaxed);
        (now >> BYTES_BITS, now & BYTES)
    }
}

/// What the kernel says of a peer, and what its token has proved.
#[derive(Clone)]
pub struct Identity {
    /// Its credentials.
    pub cred: Cred,
    /// Its cgroup's path below the v2 root, such as `/user.slice`; none where that is not known.
    pub cgroup: Option<String>,
    /// The tenant whose token it has shown.
    pub joined: Option<Arc<Tenant>>,
}

impl From<Cred> for Identity {
    fn from(cred: Cred) -> Identity {
        Identity { cred, cgroup: None, joined: None }
    }
}

/// Things that sessions hold and a tenant has a bound of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resource {
    /// Sessions.
    Sessions,
    /// Queue pairs.
    QueuePairs,
    /// Bytes of queue pairs' shared memory, of transactions as they are collected, and of locks.
    PoolBytes,
    /// Handles.
    Handles,
    /// Placeholders: descriptors of the device's process.
    Placeholders,
}

/// Kinds of them.
const RESOURCES: usize = Resource::Placeholders as usize + 1;

/// What a tenant holds now. `in_flight` in commands, the rest as in [`TenantLimits`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct TenantUsage {
    /// Commands taken from rings and not completed.
    pub in_flight: u32,
    /// Their payload bytes.
    pub bytes_in_flight: u64,
    /// Handles.
    pub handles: u64,
    /// Placeholders.
    pub placeholders: u64,
    /// Queue pairs.
    pub queue_pairs: u64,
    /// Bytes of their shared memory.
    pub pool_bytes: u64,
    /// Sessions.
    pub sessions: u64,
    /// Bytes of device memory that its commands hold.
    pub memory_bytes: u64,
    /// Bytes of pages and blocks that were read into the caches for it.
    pub cache_bytes: u64,
}

/// One tenant as reports show it.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct TenantReport {
    /// Its number.
    pub tenant: u32,
    /// Its name.
    pub name: String,
    /// Its weight.
    pub weight: u32,
    /// Whether processes can join it with a token.
    pub token: bool,
    /// Its bounds.
    pub limits: TenantLimits,
    /// Its part of the device's memory.
    pub memory: TenantMemory,
    /// What it holds.
    pub usage: TenantUsage,
}

/// How much of a thing there is in the device, and how much of it is taken.
struct Stock {
    total: u64,
    taken: AtomicU64,
}

impl Stock {
    fn of(total: u64) -> Stock {
        Stock { total, taken: AtomicU64::new(0) }
    }
}

/// The device's stocks, shared by all tenants.
struct Stocks {
    cores: usize,
    slots: Stock,
    held: [Stock; RESOURCES],
}

/// One tenant. Thread-safe.
pub struct Tenant {
    /// Dense number.
    pub id: TenantId,
    /// What is logged of it.
    pub log: LogRate,
    /// Unique name: the configuration's, or `uid:N`.
    pub name: String,
    /// Bounds of what it holds.
    pub limits: TenantLimits,
    /// Its part of the device's memory.
    pub memory: TenantMemory,
    bears_token: bool,
    weight: AtomicU32,
    /// How far its memory is over its share, 1024ths, as the policy was told.
    pub pressure: AtomicU32,
    /// Bytes of device memory that its commands hold.
    pub memory_bytes: AtomicU64,
    load: Load,
    held: [AtomicU64; RESOURCES],
    stocks: Arc<Stocks>,
    retired: Mutex<Totals>,
    /// Device-side latency of its commands.
    pub latency: Latencies,
    /// When it had commands outstanding.
    pub backlog: Backlog,
}

/// Whether a tenant that has `own` may have `want` more, of a stock of which `taken` (its own included) is taken: not
/// more than `halves` halves of what is left now, but always a first one of what there is.
fn leaves_room(own: u64, want: u64, taken: u64, total: u64, halves: u64) -> bool {
    let left = total.saturating_sub(taken);
    let most = (left.saturating_mul(halves) / 2).max(1);
    own.saturating_add(want) <= most && want <= left
}

/// Of slots.
const SLOT_HALVES: u64 = 6;

impl Tenant {
    fn new(number: usize, config: &TenantConfig, stocks: Arc<Stocks>) -> Arc<Tenant> {
        Arc::new(Tenant {
            id: TenantId(number as u32),
            log: LogRate::default(),
            name: config.name.clone(),
            limits: config.limits,
            memory: config.memory,
            bears_token: config.token,
            weight: AtomicU32::new(config.weight),
            pressure: AtomicU32::new(0),
            memory_bytes: AtomicU64::new(0),
            load: Load::default(),
            held: Default::default(),
            latency: Latencies::new(stocks.cores),
            stocks,
            retired: Mutex::default(),
            backlog: Backlog::default(),
        })
    }

    /// Its weight, 1..=10000; 100 is the usual one.
    pub fn weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
    }

    /// Gives it another one.
    pub fn set_weight(&self, weight: u32) {
        self.weight.store(weight, Ordering::Relaxed);
    }

    /// Takes one command of `bytes` payload into its account and that of the session it came from, unless that would
    /// exceed a bound: then its ring is not read from until something is done. Whoever has no command in flight is
    /// never refused while a slot is free.
    #[inline]
    pub fn try_admit(&self, session: &Load, bytes: u64) -> bool {
        let slots = &self.stocks.slots;
        let (own, held) = self.load.add(bytes);
        let (one, its) = session.add(bytes);
        let taken = slots.taken.fetch_add(1, Ordering::Relaxed);
        // What sessions share is what their tenant can have.
        let most = u64::from(self.limits.in_flight).min(slots.total * SLOT_HALVES / (SLOT_HALVES + 2));
        let within = own < u64::from(self.limits.in_flight)
            && (own == 0 || held + bytes <= self.limits.bytes_in_flight)
            && leaves_room(own, 1, taken, slots.total, SLOT_HALVES)
            && (one == 0
                || leaves_room(one, 1, own, most, SLOT_HALVES)
                    && leaves_room(its, bytes, held, self.limits.bytes_in_flight, SLOT_HALVES));
        if !within {
            self.done(session, bytes);
        }
        within
    }

    /// Takes it in whatever the limits say.
    pub fn admit_anyway(&self, session: &Load, bytes: u64) {
        self.load.add(bytes);
        session.add(bytes);
        self.stocks.slots.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives back what `try_admit` of the same session and `bytes` took.
    #[inline]
    pub fn done(&self, session: &Load, bytes: u64) {
        self.load.sub(bytes);
        session.sub(bytes);
        self.stocks.slots.taken.fetch_sub(1, Ordering::Relaxed);
    }

    fn limit(&self, what: Resource) -> u64 {
        match what {
            Resource::Sessions => self.limits.sessions.into(),
            Resource::QueuePairs => self.limits.queue_pairs.into(),
            Resource::PoolBytes => self.limits.pool_bytes,
            // One each is all that handles need; how many there are is a matter of the process's descriptors.
            Resource::Handles | Resource::Placeholders => self.limits.handles.into(),
        }
    }

    /// Takes `n` of a thing; false when a bound of the tenant or its share of what is left forbids it.
    pub fn take(&self, what: Resource, n: u64) -> bool {
        let (own, stock) = (&self.held[what as usize], &self.stocks.held[what as usize]);
        let halves = if matches!(what, Resource::PoolBytes | Resource::Placeholders) { 2 } else { 1 };
        let before = own.fetch_add(n, Ordering::Relaxed);
        let taken = stock.taken.fetch_add(n, Ordering::Relaxed);
        let within = before.saturating_add(n) <= self.limit(what) && leaves_room(before, n, taken, stock.total, halves);
        if !within {
            self.give(what, n);
        }
        within
    }

    /// Gives back `n` of it.
    pub fn give(&self, what: Resource, n: u64) {
        self.held[what as usize].fetch_sub(n, Ordering::Relaxed);
        self.stocks.held[what as usize].taken.fetch_sub(n, Ordering::Relaxed);
    }

    /// What its locks are charged to.
    pub fn payer(self: &Arc<Self>) -> Arc<dyn Payer> {
        self.clone()
    }

    /// What it holds now; the caches know its part of them (`Store::cached_for`).
    pub fn usage(&self) -> TenantUsage {
        let (in_flight, bytes_in_flight) = self.load.get();
        let held = |what: Resource| self.held[what as usize].load(Ordering::Relaxed);
        TenantUsage {
            in_flight: in_flight as u32,
            bytes_in_flight,
            handles: held(Resource::Handles),
            placeholders: held(Resource::Placeholders),
            queue_pairs: held(Resource::QueuePairs),
            pool_bytes: held(Resource::PoolBytes),
            sessions: held(Resource::Sessions),
            memory_bytes: self.memory_bytes.load(Ordering::Relaxed),
            cache_bytes: 0,
        }
    }

    /// As reports show it, with its part of the caches.
    pub fn report(&self, cache_bytes: u64) -> TenantReport {
        TenantReport {
            tenant: self.id.0,
            name: self.name.clone(),
            weight: self.weight(),
            token: self.bears_token,
            limits: self.limits,
            memory: self.memory,
            usage: TenantUsage { cache_bytes, ..self.usage() },
        }
    }

    /// Adds the counters of a session that ended.
    pub fn retire(&self, totals: &Totals) {
        self.retired.lock().add(totals);
    }

    /// Counters of its sessions that ended.
    pub fn retired(&self) -> Totals {
        self.retired.lock().clone()
    }
}

/// One of a thing, taken; given back when dropped.
pub(super) struct Charge {
    tenant: Arc<Tenant>,
    what: Resource,
}

impl Charge {
    /// Takes one; `None` when that may not be.
    pub fn take(tenant: &Arc<Tenant>, what: Resource) -> Option<Charge> {
        tenant.take(what, 1).then(|| Charge { tenant: tenant.clone(), what })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.tenant.give(self.what, 1);
    }
}

/// Locks are memory of the device: they count as pool memory does.
impl Payer for Tenant {
    fn charge_lock(&self) {
        self.held[Resource::PoolBytes as usize].fetch_add(LOCK_BYTES, Ordering::Relaxed);
        self.stocks.held[Resource::PoolBytes as usize].taken.fetch_add(LOCK_BYTES, Ordering::Relaxed);
    }

    fn give_lock(&self) {
        self.give(Resource::PoolBytes, LOCK_BYTES);
    }
}

/// How much of each thing the device has.
#[derive(Clone, Copy, Debug)]
pub struct DeviceStock {
    /// Threads that run commands.
    pub cores: usize,
    /// Commands in flight.
    pub slots: usize,
    /// Sessions.
    pub sessions: usize,
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Shared memory of queue pairs, bytes.
    pub pool_bytes: u64,
    /// Handles of all sessions.
    pub handles: usize,
    /// Placeholders.
    pub placeholders: usize,
}

/// All tenants of a device. Thread-safe.
pub struct TenantTable {
    config: TenantsConfig,
    stocks: Arc<Stocks>,
    tokens: Vec<(TenantToken, Arc<Tenant>)>,
    all: RwLock<All>,
}

#[derive(Default)]
struct All {
    by_id: Vec<Arc<Tenant>>,
    by_uid: HashMap<u32, Arc<Tenant>>,
    /// Where the next look for a number that can be given anew begins.
    next: usize,
}

impl TenantTable {
    /// The tenants that `config` names; those by uid come as they attach.
    pub fn new(config: TenantsConfig, has: DeviceStock, random: &dyn Random) -> TenantTable {
        let stock = |n: usize| Stock::of(n as u64);
        let pools = Stock::of(has.pool_bytes);
        let held = [stock(has.sessions), stock(has.queue_pairs), pools, stock(has.handles), stock(has.placeholders)];
        let stocks = Arc::new(Stocks { cores: has.cores, slots: stock(has.slots), held });
        let tenants = config.tenant.iter().enumerate();
        let by_id: Vec<_> = tenants.map(|(at, t)| Tenant::new(at, t, stocks.clone())).collect();
        let bearers = config.tenant.iter().zip(&by_id).filter(|(c, _)| c.token);
        let tokens = bearers
            .map(|(_, tenant)| {
                let mut token = [0; 16];
                random.fill(&mut token);
                (token, tenant.clone())
            })
            .collect();
        TenantTable { config, stocks, tokens, all: RwLock::new(All { by_id, by_uid: HashMap::new(), next: 0 }) }
    }

    /// Whose `token` it is. Takes as long for a wrong one as for the right one.
    pub fn bearer(&self, token: &TenantToken) -> Option<Arc<Tenant>> {
        let differs = |t: &TenantToken| t.iter().zip(token).fold(0u8, |sum, (a, b)| sum | (a ^ b));
        let mut found = None;
        for (t, tenant) in &self.tokens {
            if std::hint::black_box(differs(t)) == 0 {
                found = Some(tenant);
            }
        }
        found.cloned()
    }

    /// The token of a tenant. ENOENT: no such tenant; EOPNOTSUPP: it has none.
    pub fn token(&self, name: &str) -> Result<TenantToken, Errno> {
        self.named(name).ok_or(Errno::NOENT)?;
        let found = self.tokens.iter().find(|(_, tenant)| tenant.name == name);
        found.map(|(token, _)| *token).ok_or(Errno::OPNOTSUPP)
    }

    /// The tenant of a peer; one by its uid is made when it first comes.
    pub fn of(&self, who: &Identity) -> Arc<Tenant> {
        if let Some(tenant) = &who.joined {
            return tenant.clone();
        }
        let groups = std::iter::once(who.cred.gid).chain(who.cred.groups.iter().copied());
        if let Some(at) = self.config.rule(who.cgroup.as_deref(), who.cred.uid, groups) {
            return self.all.read().by_id[at].clone();
        }
        let uid = who.cred.uid;
        if let Some(tenant) = self.all.read().by_uid.get(&uid) {
            return tenant.clone();
        }
        let mut all = self.all.write();
        if let Some(tenant) = all.by_uid.get(&uid) {
            return tenant.clone();
        }
        let tenant = if all.by_id.len() + 1 < TENANTS_MAX {
            self.add(&mut all, format!("uid:{uid}"))
        } else {
            // The table is full: those that have no session any more give their places. Where all have, all that come
            // then are one tenant.
            let others = match all.by_id.iter().rfind(|t| t.name == file::OTHERS) {
                Some(others) => others.clone(),
                None => self.add(&mut all, file::OTHERS.into()),
            };
            match self.replace(&mut all, &others, format!("uid:{uid}")) {
                Some(tenant) => tenant,
                None => return others,
            }
        };
        all.by_uid.insert(uid, tenant.clone());
        tenant
    }

    /// Gives the number of a tenant by uid to a new one, if there is one that no session names, nor anything that one
    /// left behind. What it has used is counted with `others` from then on.
    fn replace(&self, all: &mut All, others: &Tenant, name: String) -> Option<Arc<Tenant>> {
        let count = all.by_id.len();
        let at = (0..count).map(|i| (all.next + i) % count).find(|at| {
            let t = &all.by_id[*at];
            // Twice in this table, and under its lock nothing else gets it.
            let idle = Arc::strong_count(t) == 2 && t.usage() == TenantUsage::default();
            idle && all.by_uid.values().any(|u| Arc::ptr_eq(u, t))
        })?;
        let old = all.by_id[at].clone();
        all.by_uid.retain(|_, t| !Arc::ptr_eq(t, &old));
        others.retire(&old.retired());
        let config = TenantConfig { name, ..self.config.default.tenant() };
        all.by_id[at] = Tenant::new(at, &config, self.stocks.clone());
        all.next = at + 1;
        Some(all.by_id[at].clone())
    }

    fn add(&self, all: &mut All, name: String) -> Arc<Tenant> {
        let config = TenantConfig { name, ..self.config.default.tenant() };
        let tenant = Tenant::new(all.by_id.len(), &config, self.stocks.clone());
        all.by_id.push(tenant.clone());
        tenant
    }

    /// By name.
    pub fn named(&self, name: &str) -> Option<Arc<Tenant>> {
        self.all.read().by_id.iter().find(|t| t.name == name).cloned()
    }

    /// All of them, by number.
    pub fn list(&self) -> Vec<Arc<Tenant>> {
        self.all.read().by_id.clone()
    }
}

#[cfg(test)]
impl Tenant {
    /// Of a device of its own.
    pub(super) fn alone() -> Arc<Tenant> {
        let has = tests::HAS;
        let table = TenantTable::new(TenantsConfig::default(), has, &weldfs_journal::SystemRandom);
        table.of(&Identity::from(Cred { uid: 0, gid: 0, groups: [].as_slice().into() }))
    }
}

#[cfg(test)]
mod tests;
