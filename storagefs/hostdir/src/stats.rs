//! What a served directory reports about itself: in the device's form, so that whatever reads one reads the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::core::Core;
use super::session::SessionState;
use weldfs_session::clock::now_ns;
use weldfs_session::counters::Totals;
use weldfs_session::profile::Profile;
use weldfs_session::stats::MemoryStats;
use weldfs_session::stats::{
    CoreStats, Crossings, DeviceFacts, DeviceStats, LogFacts, SchedulerStats, SessionStats, TenantStats, Usage,
};
use weldfs_session::tenants::Tenant;

impl Core {
    pub(super) fn facts(&self) -> DeviceFacts {
        DeviceFacts {
            label: self.config.dir.display().to_string(),
            medium: "hostdir".into(),
            durability: if self.durable_default { "durable" } else { "volatile" }.into(),
            power_safe: self.power_safe,
            cores: self.workers.len(),
            policy: "rr".into(),
            profile: Profile::default(),
        }
    }

    pub(super) fn usage(&self) -> Usage {
        let (queues, pool_bytes) = self.budget.used();
        let (sessions, handles) =
            self.with_sessions(|live| live.fold((0, 0), |(n, handles), s| (n + 1, handles + s.handles.count())));
        Usage {
            sessions,
            queues,
            pool_bytes,
            handles,
            open_files: self.files.open(),
            placeholders: self.files.bound(),
            locks: self.files.locks.len(),
            inode_queues: self.sets.queues(),
        }
    }

    fn by_tenant(&self, now_ns: u64) -> Vec<TenantStats> {
        // Under one lock: a session that ends meanwhile is counted neither twice nor not at all.
        self.with_sessions(|live| {
            let mut totals: BTreeMap<u32, Totals> = BTreeMap::new();
            for s in live {
                totals.entry(s.tenant.id.0).or_default().add(&s.totals());
            }
            let stats = |t: Arc<Tenant>| {
                let mut sum = totals.remove(&t.id.0).unwrap_or_default();
                sum.add(&t.retired());
                TenantStats {
                    tenant: t.id.0,
                    name: t.name.clone(),
                    weight: t.weight(),
                    usage: t.usage(),
                    backlogged_ns: t.backlog.total_ns(now_ns),
                    latency: t.latency.snapshot(),
                    totals: sum,
                    ..TenantStats::default()
                }
            };
            self.tenants.list().into_iter().map(stats).collect()
        })
    }

    /// Everything counted. What a host directory has not (a log, a run queue, memory for caches) is zero; flushes are
    /// the calls that made something durable.
    pub(super) fn stats(&self, session: Option<&Arc<SessionState>>) -> DeviceStats {
        let time_ns = now_ns();
        let tenants = self.by_tenant(time_ns);
        let mut total = Totals::default();
        tenants.iter().for_each(|t| total.add(&t.totals));
        let totals = |(core, c): (usize, &weldfs_session::counters::CoreCounters)| CoreStats {
            core: core as u32,
            totals: c.totals(),
        };
        DeviceStats {
            time_ns,
            device: self.facts(),
            crossings: Crossings {
                commands: total.commands,
                doorbells: total.doorbells,
                client_wakes: total.client_wakes,
                device_sleeps: self.workers.iter().map(|w| w.sleeps.get()).sum(),
            },
            total,
            log: LogFacts { flushes: self.flushes.load(Ordering::Relaxed), ..LogFacts::default() },
            mounted: None,
            memory: MemoryStats::default(),
            slots: Vec::new(),
            usage: self.usage(),
            scheduler: SchedulerStats { policy: "rr".into(), cost: "measured".into(), ..SchedulerStats::default() },
            cores: self.workers.iter().enumerate().map(totals).collect(),
            tenants,
            inode_queues: None,
            session: session.map(|s| SessionStats {
                id: s.id,
                client_id: format!("{:032x}", u128::from_be_bytes(s.client_id)),
                totals: s.totals(),
            }),
        }
    }
}
