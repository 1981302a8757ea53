//! What a device reports about itself: `weldfs_session::stats` says what that is.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use weldfs_ciscops::attach::detail;
use weldfs_scheduler::{PolicyState, TenantState};
use weldfs_session::clock::now_ns;
use weldfs_session::counters::Totals;
use weldfs_session::tenants::{Tenant, TenantUsage};

use super::core::{Core, ThreadState};
use super::session::SessionState;
use super::trace::{Recording, TraceFacts};

pub use weldfs_session::stats::*;

/// Inode queues in one report, at most: those with the most tickets.
const INODE_QUEUES_MAX: usize = 1024;

impl Core {
    pub(super) fn facts(&self) -> DeviceFacts {
        let info = self.store.medium().info();
        DeviceFacts {
            label: self.config.label.clone(),
            medium: format!("{:?}", info.kind).to_lowercase(),
            durability: if self.durable_default { "durable" } else { "volatile" }.into(),
            power_safe: info.power_safe,
            cores: self.threads.len(),
            policy: self.board.runq.policy().to_string(),
            profile: self.emulated.profile(),
        }
    }

    pub(super) fn usage(&self) -> Usage {
        let sessions = self.sessions.all();
        let (queues, pool_bytes) = self.pools.usage();
        Usage {
            sessions: sessions.len(),
            queues,
            pool_bytes,
            handles: sessions.iter().map(|s| s.handles.count()).sum(),
            open_files: self.files.open(),
            placeholders: self.files.bound(),
            locks: self.files.locks.len(),
            inode_queues: self.sets.queues(),
        }
    }

    /// All tenants, by number.
    fn by_tenant(&self, now_ns: u64, policy: &PolicyState) -> Vec<TenantStats> {
        let known: HashMap<u32, &TenantState> = policy.tenants.iter().map(|t| (t.tenant.0, t)).collect();
        let mut tenants: Vec<TenantStats> = Vec::new();
        // Under one lock: a session that ends meanwhile is counted neither twice nor not at all.
        self.sessions.with_all(|live| {
            let mut totals: BTreeMap<u32, Totals> = BTreeMap::new();
            for s in live {
                totals.entry(s.tenant.id.0).or_default().add(&s.totals());
            }
            let stats = |t: Arc<Tenant>| {
                let mut sum = totals.remove(&(t.id.0)).unwrap_or_default();
                sum.add(&t.retired());
                let known = known.get(&t.id.0);
                TenantStats {
                    tenant: t.id.0,
                    name: t.name.clone(),
                    weight: t.weight(),
                    usage: TenantUsage { cache_bytes: self.store.cached_for(t.id.0), ..t.usage() },
                    vruntime_ns: known.map_or(0, |k| k.vruntime_ns),
                    lag_ns: known.map_or(0, |k| k.lag_ns),
                    pressure: known.map_or(0, |k| k.pressure),
                    runnable: known.map_or(0, |k| k.runnable),
                    runnable_queues: known.map_or(0, |k| k.queues),
                    backlogged_ns: t.backlog.total_ns(now_ns),
                    latency: t.latency.snapshot(),
                    totals: sum,
                }
            };
            tenants = self.tenants.list().into_iter().map(stats).collect();
        });
        tenants
    }

    fn scheduler(&self, policy: &PolicyState) -> SchedulerStats {
        let runq = &self.board.runq;
        SchedulerStats {
            policy: policy.policy.into(),
            cost: runq.cost().to_string(),
            quantum_ns: runq.quantum_ns(),
            runnable: runq.len() as u64,
            min_vruntime_ns: policy.min_vruntime_ns,
        }
    }

    /// The inode queues with most tickets or runnable commands.
    fn inode_queues(&self) -> Vec<InodeQueueStats> {
        let mut tickets = self.sets.tickets();
        let mut out: Vec<InodeQueueStats> = Vec::new();
        for q in self.board.runq.queues() {
            let (held, waiting) = tickets.remove(&q.inode).unwrap_or_default();
            if held > 0 || q.runnable > 0 {
                out.push(InodeQueueStats {
                    inode: q.inode,
                    tenant: Some(q.tenant.0),
                    weight: q.weight,
                    vruntime_ns: q.vruntime_ns,
                    runnable: q.runnable,
                    tickets: held,
                    waiting,
                });
            }
        }
        let unknown = tickets.into_iter().map(|(inode, (tickets, waiting))| InodeQueueStats {
            inode,
            tickets,
            waiting,
            ..InodeQueueStats::default()
        });
        out.extend(unknown);
        out.sort_unstable_by_key(|q| (Reverse(q.tickets), Reverse(q.runnable), q.inode));
        out.truncate(INODE_QUEUES_MAX);
        out
    }

    fn cores(&self) -> Vec<CoreStats> {
        let stats = |(core, t): (usize, &ThreadState)| CoreStats { core: core as u32, totals: t.counters.totals() };
        self.threads.iter().enumerate().map(stats).collect()
    }

    /// The facts of a recording, as JSON.
    pub(super) fn trace_facts(&self, recording: &Recording) -> String {
        let tenants = self.tenants.list().into_iter().map(|t| (t.id.0, t.name.clone())).collect();
        TraceFacts {
            start_ns: recording.start_ns,
            end_ns: recording.end_ns,
            device: self.facts(),
            cores: recording.cores.clone(),
            slots: recording.slots.clone(),
            kernels: recording.kernels.clone(),
            tenants,
        }
        .to_json()
    }

    /// Everything counted; `detail`: bits of `ciscops::attach::detail`.
    pub(super) fn stats(&self, session: Option<&Arc<SessionState>>, details: u32) -> DeviceStats {
        // Beside each other: what cores have worked is compared with the time.
        let (cores, time_ns) = (self.cores(), now_ns());
        let policy = self.board.runq.state();
        let tenants = self.by_tenant(time_ns, &policy);
        let mut total = Totals::default();
        tenants.iter().for_each(|t| total.add(&t.totals));
        let log = self.store.journal().stats();
        let store = self.store.stats();
        DeviceStats {
            time_ns,
            device: self.facts(),
            crossings: Crossings {
                commands: total.commands,
                doorbells: total.doorbells,
                client_wakes: total.client_wakes,
                device_sleeps: self.threads.iter().map(|t| t.counters.sleeps.get()).sum(),
            },
            total,
            log: LogFacts {
                flushes: log.flushes,
                records: log.records,
                bytes: log.log_bytes,
                batches: log.batches,
                log_writes: log.log_writes,
                data_writes: log.data_writes,
                data_bytes: log.data_bytes,
                watermark_records: log.watermark_records,
                used: self.store.journal().used(),
                checkpoints: store.checkpoints,
                checkpoint_bytes: store.checkpoint_bytes,
            },
            mounted: self.store.log_end(),
            memory: self.memory.stats(),
            usage: self.usage(),
            scheduler: self.scheduler(&policy),
            slots: self.card.status().slots.into_iter().map(SlotStats::from).collect(),
            cores,
            tenants,
            inode_queues: (details & detail::INODE_QUEUES != 0).then(|| self.inode_queues()),
            session: session.map(|s| SessionStats {
                id: s.id,
                client_id: format!("{:032x}", u128::from_be_bytes(s.client_id)),
                totals: s.totals(),
            }),
        }
    }
}
