//! How a device is to be run.

use std::sync::Arc;

use weldfs_ciscops::Durability;
use weldfs_fpga::config::CardConfig;
use weldfs_scheduler::PolicyKind;
use weldfs_session::profile::Profile;
use weldfs_session::tenants::TenantsConfig;

use super::model::MediaModel;
use super::runq::CostModel;

/// How a device is to be run.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// What reports call the file system.
    pub label: String,
    /// Device threads; at least one.
    pub cores: usize,
    /// What "default durability" means: `Volatile` or `Durable`; `Default` = by the medium (durable on pmem and ram).
    pub durability: Durability,
    /// Scheduling policy.
    pub policy: PolicyKind,
    /// Device time after which a running command gives way to others, nanoseconds.
    pub quantum_ns: u64,
    /// What commands are charged.
    pub cost: CostModel,
    /// Emulated hardware.
    pub profile: Profile,
    /// The emulated medium that the store lies on, if it is on one ([`super::on_modelled`]).
    pub media: Option<Arc<MediaModel>>,
    /// Bytes for overlay, page cache and block cache; for whoever mounts the store the device runs on.
    pub memory_bytes: u64,
    /// Bytes of shared memory that all queue pairs together may take.
    pub pool_bytes_max: u64,
    /// Handles of one session.
    pub handles_max: u32,
    /// Who is charged, with limits.
    pub tenants: TenantsConfig,
    /// Commands run on the threads that call, and the device's own thread does what is left: where the device has one
    /// core and no profile, and its clients are threads of this process. `None`: as is best where it runs (an embedded
    /// device does, one that is served does not).
    pub inline: Option<bool>,
    /// What completed survives the death of this process, on block media, too: the host's kernel is handed the records
    /// of volatile changes before they are answered. `None`: as is best where it runs (an embedded device does, for it
    /// dies with a program that may be killed at any time; one that is served does not).
    pub hand_over: Option<bool>,
    /// Commands that are found alone and wait for nothing are over where they are taken (`rtc`). False: all take
    /// the way of those that wait, for comparison.
    pub at_once: bool,
    /// Longest a device thread spins without work before it sleeps, nanoseconds.
    pub spin_ns_max: u64,
    /// The FPGA slots; a key of the profile's that has another than its default goes before it.
    pub card: CardConfig,
    /// Called by each device thread once it has had nothing to do for a second: a program whose allocator keeps what
    /// its threads have freed gives it back there.
    pub at_rest: Option<fn()>,
}

impl Default for DeviceConfig {
    fn default() -> Self {
        DeviceConfig {
            label: String::new(),
            cores: 1,
            durability: Durability::Default,
            policy: PolicyKind::default(),
            quantum_ns: crate::limits::QUANTUM_NS,
            cost: CostModel::default(),
            profile: Profile::default(),
            media: None,
            memory_bytes: 512 << 20,
            pool_bytes_max: 1 << 30,
            handles_max: weldfs_ciscops::limits::HANDLES_MAX,
            tenants: TenantsConfig::default(),
            inline: None,
            hand_over: None,
            at_once: true,
            spin_ns_max: crate::limits::SPIN_NS_MAX,
            card: CardConfig::default(),
            at_rest: None,
        }
    }
}
