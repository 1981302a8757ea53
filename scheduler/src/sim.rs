//! A device in numbers: the same policies and the same broker under a virtual clock.
//!
//! Tenants are closed loops: each keeps `depth` commands queued, and sends the next one `pause_ns` after one ended. A
//! command reserves memory, is queued under (tenant, inode), and runs in slices on one of the cores: between two
//! slices it gives way when something is runnable and it had the core for a quantum, as in the device. Everything
//! follows from the configuration and its seed: the same run twice gives the same numbers.

mod queue;
mod report;
mod run;

pub use report::{SimResult, SimTenant, jain};
pub use run::simulate;

use crate::PolicyKind;

/// How long commands run, nanoseconds of device time.
#[derive(Clone, PartialEq, Debug)]
pub enum CostModel {
    /// Always this.
    Fixed(u64),
    /// Anything between the two, equally likely.
    Uniform(u64, u64),
    /// Exponential with this mean: many short, few long.
    Exponential(u64),
    /// One of these, equally likely: what was measured.
    Samples(Vec<u64>),
}

impl CostModel {
    /// The mean, nanoseconds.
    pub fn mean_ns(&self) -> u64 {
        match self {
            CostModel::Fixed(ns) | CostModel::Exponential(ns) => *ns,
            CostModel::Uniform(low, high) => low / 2 + high / 2,
            CostModel::Samples(all) => all.iter().sum::<u64>() / (all.len() as u64).max(1),
        }
    }
}

/// A tenant of the simulation.
#[derive(Clone, PartialEq, Debug)]
pub struct SimClient {
    /// For the report.
    pub name: String,
    /// Its weight; 1024 is weight 1.
    pub weight: u32,
    /// Commands it keeps queued.
    pub depth: u32,
    /// Files its commands go to, chosen at random.
    pub files: u32,
    /// What a command costs.
    pub cost: CostModel,
    /// Pieces of equal cost between which a command may give way.
    pub slices: u32,
    /// Device memory a command holds from its arrival to its end, bytes.
    pub memory: u64,
    /// Memory guaranteed to the tenant, bytes.
    pub guarantee: u64,
    /// From the end of a command to the next one in its place, nanoseconds.
    pub pause_ns: u64,
    /// A client, by its place in the list, that says all the time that it waits for what this one's commands hold. With
    /// a shared run queue only.
    pub lender: Option<usize>,
}

impl Default for SimClient {
    /// Weight 1, 32 commands of 10 us in one slice on one file, no memory, no pause.
    fn default() -> SimClient {
        SimClient {
            name: String::new(),
            weight: crate::WEIGHT_DEFAULT,
            depth: 32,
            files: 1,
            cost: CostModel::Fixed(10_000),
            slices: 1,
            memory: 0,
            guarantee: 0,
            pause_ns: 0,
            lender: None,
        }
    }
}

/// How runnable commands get to cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunQueues {
    /// One policy that all cores pick from.
    Shared,
    /// A policy per core. What becomes runnable goes to an idle core, or else to the core that last ran its inode; a
    /// core without work takes half of what another one has (as the stealers of crossbeam's deques do).
    PerCore,
}

/// The simulated device.
#[derive(Clone, PartialEq, Debug)]
pub struct SimConfig {
    /// Cores, 1 to 16.
    pub cores: usize,
    /// The policy.
    pub policy: PolicyKind,
    /// How commands get to cores.
    pub queues: RunQueues,
    /// Device time after which a command gives way at its next slice boundary, nanoseconds.
    pub quantum_ns: u64,
    /// What a core spends on every slice besides the command itself; charged to no tenant. Nanoseconds.
    pub overhead_ns: u64,
    /// Memory that commands may hold together, bytes.
    pub memory: u64,
    /// Whether memory is accounted per tenant, or first come, first served.
    pub accounting: bool,
    /// Virtual time before figures are taken, nanoseconds.
    pub warm_up_ns: u64,
    /// Virtual time over which they are taken, nanoseconds. Afterwards no command is sent, and all end.
    pub duration_ns: u64,
    /// Changes of the policy, at virtual times in ascending order.
    pub switches: Vec<(u64, PolicyKind)>,
    /// The seed of everything random.
    pub seed: u64,
}

impl Default for SimConfig {
    /// One core, CFS, a quantum of 100 us, unbounded memory, a second of virtual time after a tenth.
    fn default() -> SimConfig {
        SimConfig {
            cores: 1,
            policy: PolicyKind::Cfs,
            queues: RunQueues::Shared,
            quantum_ns: 100_000,
            overhead_ns: 0,
            memory: u64::MAX,
            accounting: true,
            warm_up_ns: 100_000_000,
            duration_ns: 1_000_000_000,
            switches: Vec::new(),
            seed: 1,
        }
    }
}
