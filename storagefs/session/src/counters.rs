//! Counters: counted once, in the device, where the thing happens.
//!
//! Each queue pair and each device core has its own set; whoever asks sums up. A queue pair that goes adds its counts
//! to its tenant's total. There are two kinds of counter, because any core may run any op:
//!
//! * [`Count`] is a plain load and store. It is for what has one writer at a time: what is counted under the lock of a
//!   queue pair's ends (taking a command, ending it), and what a core counts of itself.
//! * [`SharedCount`] is one relaxed `fetch_add` where the device has several cores. It is for what is counted inside
//!   ops and at the end of slices: two cores may be in ops of one queue pair at the same time, and a plain add would
//!   lose one of two.
//!
//! An addition that several cores may make at once costs five times a plain one, and a command makes a dozen. So a
//! process whose devices have one core each does without (`several_writers`).
//!
//! Nothing is ordered by them: a reader may see one counter's new value beside another one's old value.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use weldfs_ciscops::trace::{Slice, slice_end, slice_flag};
use weldfs_ciscops::{Hints, Life, OPS, Priority};

/// Opcodes are below this.
const OPCODES: usize = 128;

/// A count with one writer at a time (the holder of a lock, or the one thread that owns it) and any number of readers.
#[derive(Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds; never from two threads at once.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// The value now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Whether some device of this process has more than one core.
static SEVERAL_WRITERS: AtomicBool = AtomicBool::new(false);

/// From now on what is shared may have several writers at once. To be called before the threads of a device with more
/// than one core start; never taken back. Until then the one core of a device is the only writer of all its counts.
pub fn several_writers() {
    SEVERAL_WRITERS.store(true, Relaxed);
}

/// Adds to a number that the cores of one device share.
#[inline]
pub(super) fn add_shared(to: &AtomicU64, n: u64) {
    if SEVERAL_WRITERS.load(Relaxed) {
        to.fetch_add(n, Relaxed);
    } else {
        to.store(to.load(Relaxed).wrapping_add(n), Relaxed);
    }
}

/// A count that all cores of a device add to, with any number of readers.
#[derive(Default)]
pub struct SharedCount(AtomicU64);

impl SharedCount {
    /// Adds; from any core of the device it belongs to. Adding nothing costs nothing.
    #[inline]
    pub fn add(&self, n: u64) {
        if n != 0 {
            add_shared(&self.0, n);
        }
    }

    /// The value now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// What a counter is, for reports: name as in the JSON, and its line of documentation. A name that ends in `_ns` counts
/// nanoseconds, one with `bytes` in it bytes, every other one events.
#[derive(Clone, Copy, Debug)]
pub struct CounterSpec {
    /// Name.
    pub name: &'static str,
    /// Meaning.
    pub help: &'static str,
}

macro_rules! counters {
    (
        $(#[$set_doc:meta])* set $set:ident { $($extra:ident : $extra_type:ty = $extra_init:expr),* $(,)? }
        $(#[$sum_doc:meta])* sum $sum:ident { $($(#[$sum_attr:meta])* $sum_extra:ident : $sum_type:ty),* $(,)? }
        $($(#[doc = $doc:literal])+ $name:ident: $kind:ty),* $(,)?
    ) => {
        $(#[$set_doc])*
        pub struct $set {
            $($extra: $extra_type,)*
            $($(#[doc = $doc])+ pub $name: $kind,)*
        }

        impl Default for $set {
            fn default() -> Self {
                $set { $($extra: $extra_init,)* $($name: <$kind>::default(),)* }
            }
        }

        $(#[$sum_doc])*
        #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $sum {
            $($(#[$sum_attr])* pub $sum_extra: $sum_type,)*
            $($(#[doc = $doc])+ pub $name: u64,)*
        }

        impl $sum {
            /// Every counter, in the order of the JSON.
            pub const SPECS: &'static [CounterSpec] =
                &[$(CounterSpec { name: stringify!($name), help: concat!($($doc),+) }),*];

            fn add_set(&mut self, set: &$set) {
                $(self.$name = self.$name.wrapping_add(set.$name.get());)*
            }

            fn add_sum(&mut self, other: &$sum) {
                $(self.$name = self.$name.wrapping_add(other.$name);)*
            }

            fn subtract(&mut self, other: &$sum) {
                $(self.$name = self.$name.saturating_sub(other.$name);)*
            }

            /// Every counter by name, in the order of [`Self::SPECS`].
            pub fn each(&self) -> impl Iterator<Item = (&'static CounterSpec, u64)> {
                Self::SPECS.iter().zip([$(self.$name),*])
            }
        }
    };
}

counters! {
    /// The counters of one queue pair. Fields of type [`Count`] are added to under the lock of the pair's ends only.
    set QueueCounters { by_opcode: [Count; OPCODES] = std::array::from_fn(|_| Count::default()) }
    /// Counters of queue pairs summed up, as reports show them.
    sum Totals {
        /// Commands taken, by the name of their operation.
        commands_by_opcode: ByOpcode,
    }
    /// Commands completed.
    commands: Count,
    /// Commands that named no known operation or did not decode.
    malformed: Count,
    /// Commands completed with an errno.
    errors: Count,
    /// Fused commands among those completed.
    fused: Count,
    /// Elements of batches that were run: several commands, one crossing.
    elements: SharedCount,
    /// Times a client rang the doorbell because the device slept.
    doorbells: SharedCount,
    /// Times the device woke a sleeping client.
    client_wakes: Count,
    /// Payload copies between pool and device.
    payload_copies: Count,
    /// Payload bytes from host to device.
    payload_bytes_in: Count,
    /// Payload bytes from device to host.
    payload_bytes_out: Count,
    /// Copies of names, attribute blocks, results other than payload.
    metadata_copies: Count,
    /// Bytes of data blocks written to the medium, always whole ones; smaller changes are in the log.
    data_bytes: Count,
    /// Bytes over the link from host to device: entries, names, payload.
    link_bytes_in: Count,
    /// Bytes over the link from device to host: entries, results, payload.
    link_bytes_out: Count,
    /// Commands that waited for the watermark.
    durable_waits: SharedCount,
    /// Commands whose inode set changed while they waited for it.
    set_retries: SharedCount,
    /// Times a program lent what it held to others while it computed.
    lent: SharedCount,
    /// Reads of virtual files: each gave what a kernel made of other files.
    virtual_reads: SharedCount,
    /// Streams of virtual files that began anew, because others had got their slot meanwhile.
    virtual_replays: SharedCount,
    /// Packets that kernels in FPGA slots had: of stages, of steps, and of streams, again where one began anew.
    slot_packets: SharedCount,
    /// Nanoseconds of slot time used and charged: cycles over the slot's clock.
    slot_ns: SharedCount,
    /// Bytes that kernels took.
    slot_bytes_in: SharedCount,
    /// Bytes that kernels made.
    slot_bytes_out: SharedCount,
    /// Stages that a core computed because no slot could, or because one was lost.
    slot_fallbacks: SharedCount,
    /// Commands that waited for room in log, memory or space.
    room_waits: SharedCount,
    /// Commands that back-pressure held back before they started.
    pace_waits: SharedCount,
    /// Commands with another priority than the normal one.
    prioritized: SharedCount,
    /// Commands that said how long what they write will stay.
    lives: SharedCount,
    /// Write leases granted.
    leases: SharedCount,
    /// Opens that brought along what they opened, and reads with which a watch began.
    watches: SharedCount,
    /// Commands that their clients did not wait for.
    posted: SharedCount,
    /// Writes that became part of the record of one before them, where they go on.
    merged_writes: SharedCount,
    /// Writes to other places of a file that became part of the record of one before them.
    merged_places: SharedCount,
    /// Changes of attributes that became part of the record of a command before them.
    merged_attributes: SharedCount,
    /// Commands that waited until what another ring had posted was over.
    lease_waits: SharedCount,
    /// Commands that waited for their share of the device's memory.
    memory_waits: SharedCount,
    /// Commands left in their ring because their tenant was at a limit, each counted once.
    admission_waits: Count,
    /// Commands that ran at once, past the run queue: nothing else was runnable.
    uncontended: Count,
    /// Times a command was put into the run queue.
    queued: SharedCount,
    /// Slices run.
    slices: SharedCount,
    /// Slices that ended because the command handed itself to the policy before it went on.
    yields: SharedCount,
    /// Slices that ended because the quantum was over and another command was picked.
    preemptions: SharedCount,
    /// Slices picked in the place of another tenant that waits for the command's tickets.
    boosts: SharedCount,
    /// Slices on another core than the command's slice before.
    migrations: SharedCount,
    /// Slices of more than 100 us whose time was corrected by thread CPU time.
    corrections: SharedCount,
    /// Nanoseconds that corrections took off.
    corrected_ns: SharedCount,
    /// Nanoseconds of device time used: of the emulated core, after correction, charged or not.
    used_ns: SharedCount,
    /// Nanoseconds of device time charged.
    device_ns: SharedCount,
    /// Nanoseconds of device threads in slices, as the clock of the machine shows them.
    process_ns: SharedCount,
    /// Nanoseconds from an entry seen in the ring to its command's first slice, summed over commands.
    queue_ns: Count,
    /// Nanoseconds from a command's first slice to its completion, summed over commands.
    service_ns: Count,
    /// Nanoseconds by which the profile held completions back.
    modelled_ns: Count,
    /// Nanoseconds with commands outstanding (in the ring or in the device), summed over queue pairs.
    outstanding_ns: Count,
    /// Commands outstanding times nanoseconds: divided by an interval, the mean queue depth in it.
    depth_ns: Count,
}

counters! {
    /// The counters of one device core, added to by its own thread only.
    set CoreCounters { last_tenant: AtomicU32 = AtomicU32::new(u32::MAX) }
    /// A device core's counters read out.
    sum CoreTotals {
        /// The tenant of the core's last slice; none before the first.
        last_tenant: Option<u32>,
    }
    /// Slices run.
    slices: Count,
    /// Nanoseconds in slices, as the clock of the machine shows them.
    busy_ns: Count,
    /// Nanoseconds of device time charged for them.
    device_ns: Count,
    /// Nanoseconds in which the emulated core was still busy with a slice that the machine's core had ended.
    stretched_ns: Count,
    /// Slices of commands that ran at once, past the run queue.
    uncontended: Count,
    /// Slices that ended because the quantum was over and another command was picked.
    preemptions: Count,
    /// Slices of commands whose slice before was on another core.
    migrations: Count,
    /// Slices of more than 100 us whose time was corrected by thread CPU time.
    corrections: Count,
    /// Nanoseconds that corrections took off.
    corrected_ns: Count,
    /// Times the core went to sleep.
    sleeps: Count,
    /// Times it woke up.
    wakes: Count,
}

/// What a slice's record does not say.
#[derive(Clone, Copy, Default, Debug)]
pub struct SliceExtra {
    /// The command's slice before was on another core.
    pub migrated: bool,
    /// Nanoseconds that the correction by thread CPU time took off.
    pub corrected_ns: u64,
    /// Nanoseconds on the emulated core.
    pub used_ns: u64,
}

/// Counts a slice that has ended, for its queue pair and for the core that ran it (whose thread calls this).
#[inline]
pub fn count_slice(core: &CoreCounters, queue: &QueueCounters, s: &Slice, extra: SliceExtra) {
    let ns = s.end_ns.saturating_sub(s.start_ns);
    queue.slices.add(1);
    queue.process_ns.add(ns);
    queue.used_ns.add(extra.used_ns);
    queue.device_ns.add(s.cost_ns);
    core.slices.add(1);
    core.busy_ns.add(ns);
    core.device_ns.add(s.cost_ns);
    core.uncontended.add(u64::from(s.flags & slice_flag::UNCONTENDED != 0));
    core.last_tenant.store(s.tenant, Relaxed);
    match s.end {
        slice_end::YIELDED => queue.yields.add(1),
        slice_end::PREEMPTED => {
            queue.preemptions.add(1);
            core.preemptions.add(1);
        }
        _ => {}
    }
    if s.flags & slice_flag::BOOSTED != 0 {
        queue.boosts.add(1);
    }
    if s.flags & slice_flag::CORRECTED != 0 {
        queue.corrections.add(1);
        queue.corrected_ns.add(extra.corrected_ns);
        core.corrections.add(1);
        core.corrected_ns.add(extra.corrected_ns);
    }
    if extra.migrated {
        queue.migrations.add(1);
        core.migrations.add(1);
    }
}

impl QueueCounters {
    /// Counts what a command's client says of it.
    #[inline]
    pub fn hinted(&self, hints: Hints) {
        if !hints.is_none() {
            self.prioritized.add(u64::from(hints.priority != Priority::Normal));
            self.lives.add(u64::from(hints.life != Life::Unknown));
        }
    }

    /// Counts a command of this opcode.
    #[inline]
    pub fn opcode(&self, opcode: u16) {
        if let Some(c) = self.by_opcode.get(usize::from(opcode)) {
            c.add(1);
        }
    }
}

impl CoreCounters {
    /// The values now.
    pub fn totals(&self) -> CoreTotals {
        let mut sum = CoreTotals::default();
        sum.add_set(self);
        let last = self.last_tenant.load(Relaxed);
        sum.last_tenant = (last != u32::MAX).then_some(last);
        sum
    }
}

impl CoreTotals {
    /// Adds another core's.
    pub fn add(&mut self, other: &CoreTotals) {
        self.add_sum(other);
    }

    /// What was counted after an earlier look at the same core.
    pub fn since(&self, earlier: &CoreTotals) -> CoreTotals {
        let mut d = self.clone();
        d.subtract(earlier);
        d
    }
}

impl Totals {
    /// Adds one queue pair's counts.
    pub fn add_queue(&mut self, q: &QueueCounters) {
        self.add_set(q);
        for (sum, n) in self.commands_by_opcode.0.iter_mut().zip(&q.by_opcode) {
            *sum += n.get();
        }
    }

    /// Adds other totals.
    pub fn add(&mut self, other: &Totals) {
        self.add_sum(other);
        for (sum, n) in self.commands_by_opcode.0.iter_mut().zip(&other.commands_by_opcode.0) {
            *sum += n;
        }
    }

    /// What was counted after an earlier look at the same things.
    pub fn since(&self, earlier: &Totals) -> Totals {
        let mut d = self.clone();
        d.subtract(earlier);
        for (n, before) in d.commands_by_opcode.0.iter_mut().zip(&earlier.commands_by_opcode.0) {
            *n = n.saturating_sub(*before);
        }
        d
    }

    /// Commands of one opcode.
    pub fn of(&self, opcode: u16) -> u64 {
        self.commands_by_opcode.0.get(usize::from(opcode)).copied().unwrap_or(0)
    }
}

/// Commands by opcode. As JSON: a map from the operation's name to the count, without zeros.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ByOpcode([u64; OPCODES]);

impl Default for ByOpcode {
    fn default() -> Self {
        ByOpcode([0; OPCODES])
    }
}

impl ByOpcode {
    /// Name and count of every operation that was counted, by number.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        OPS.iter().map(|op| (op.name, self.0[op.opcode as usize])).filter(|(_, n)| *n > 0)
    }
}

impl Serialize for ByOpcode {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(self.each())
    }
}

impl<'de> Deserialize<'de> for ByOpcode {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let map = std::collections::BTreeMap::<String, u64>::deserialize(d)?;
        let mut by = ByOpcode::default();
        for (name, n) in map {
            let op = OPS.iter().find(|op| op.name == name);
            let op = op.ok_or_else(|| D::Error::custom(format!("no operation is called {name:?}")))?;
            by.0[op.opcode as usize] = n;
        }
        Ok(by)
    }
}

/// How many commands a queue pair has outstanding, over time. Changed under the lock of the pair's ends.
#[derive(Default, Debug)]
pub struct Depth {
    now: u32,
    since_ns: u64,
}

impl Depth {
    /// From now on so many commands are outstanding: in the ring, or taken and not completed. Counts the time that
    /// has passed with the depth before. `clock` is asked only when the depth changes.
    #[inline]
    pub fn set(&mut self, depth: u32, counters: &QueueCounters, tenant: &Backlog, clock: impl FnOnce() -> u64) {
        if depth != self.now {
            self.change(depth, counters, tenant, clock());
        }
    }

    fn change(&mut self, depth: u32, counters: &QueueCounters, tenant: &Backlog, now_ns: u64) {
        // Another core's clock may be behind by a few nanoseconds.
        let passed = now_ns.saturating_sub(self.since_ns);
        if self.now > 0 {
            counters.outstanding_ns.add(passed);
            counters.depth_ns.add(passed * u64::from(self.now));
        }
        match (self.now, depth) {
            (0, _) => tenant.begin(now_ns),
            (_, 0) => tenant.end(now_ns),
            _ => {}
        }
        (self.now, self.since_ns) = (depth, now_ns.max(self.since_ns));
    }
}

/// The time during which a tenant had a command outstanding on any of its queue pairs. Any number of threads.
#[derive(Default, Debug)]
pub struct Backlog {
    /// Queue pairs with commands outstanding in the upper 16 bits; below, since when, in units of 64 ns (208 days).
    state: AtomicU64,
    total_ns: AtomicU64,
}

const SINCE_BITS: u32 = 48;
const SINCE: u64 = (1 << SINCE_BITS) - 1;
const SINCE_UNIT_BITS: u32 = 6;

impl Backlog {
    fn begin(&self, now_ns: u64) {
        self.step(|state| match state >> SINCE_BITS {
            0 => 1 << SINCE_BITS | (now_ns >> SINCE_UNIT_BITS) & SINCE,
            _ => state + (1 << SINCE_BITS),
        });
    }

    fn end(&self, now_ns: u64) {
        let before = self.step(|state| state.saturating_sub(1 << SINCE_BITS));
        if before >> SINCE_BITS == 1 {
            self.total_ns.fetch_add(passed(before, now_ns), Relaxed);
        }
    }

    /// Both halves change in one step, so no interval is lost or counted twice whichever cores begin and end it.
    fn step(&self, next: impl Fn(u64) -> u64) -> u64 {
        let mut now = self.state.load(Relaxed);
        loop {
            match self.state.compare_exchange_weak(now, next(now), Relaxed, Relaxed) {
                Ok(before) => return before,
                Err(other) => now = other,
            }
        }
    }

    /// Nanoseconds up to now, to 64 ns for each time it began.
    pub fn total_ns(&self, now_ns: u64) -> u64 {
        let (state, total) = (self.state.load(Relaxed), self.total_ns.load(Relaxed));
        if state >> SINCE_BITS == 0 { total } else { total + passed(state, now_ns) }
    }
}

fn passed(state: u64, now_ns: u64) -> u64 {
    now_ns.saturating_sub((state & SINCE) << SINCE_UNIT_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_two_threads_at_once_are_all_there() {
        several_writers();
        let q = QueueCounters::default();
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| (0..50_000).for_each(|_| q.slices.add(1)));
            }
        });
        assert_eq!(q.slices.get(), 100_000);
    }

    #[test]
    fn every_counter_is_summed_subtracted_and_listed_once() {
        let mut one = serde_json::to_value(Totals::default()).unwrap();
        let counters: Vec<&str> = Totals::SPECS.iter().map(|s| s.name).collect();
        for (at, name) in counters.iter().enumerate() {
            one[*name] = (at as u64 + 1).into();
        }
        one["commands_by_opcode"] = serde_json::json!({ "read": 5 });
        let one: Totals = serde_json::from_value(one).unwrap();
        let mut two = one.clone();
        two.add(&one);
        assert!(two.each().enumerate().all(|(at, (_, n))| n == 2 * (at as u64 + 1)));
        assert_eq!(two.commands_by_opcode.each().collect::<Vec<_>>(), [("read", 10)]);
        assert_eq!(two.since(&one), one);
        assert_eq!(serde_json::to_value(&one).unwrap().as_object().unwrap().len(), counters.len() + 1);
        assert!(Totals::SPECS.iter().chain(CoreTotals::SPECS).all(|s| s.help.ends_with('.')));
    }

    #[test]
    fn a_slice_is_counted_by_what_it_was() {
        let (core, q) = (CoreCounters::default(), QueueCounters::default());
        let s = Slice { start_ns: 100, end_ns: 350, cost_ns: 500, tenant: 3, ..Slice::default() };
        let flags = slice_flag::BOOSTED | slice_flag::CORRECTED;
        let preempted = Slice { end: slice_end::PREEMPTED, flags, ..s };
        count_slice(&core, &q, &s, SliceExtra::default());
        count_slice(&core, &q, &preempted, SliceExtra { migrated: true, corrected_ns: 7, used_ns: 240 });
        let (mut t, c) = (Totals::default(), core.totals());
        t.add_queue(&q);
        assert_eq!(
            (t.slices, t.process_ns, t.device_ns, t.used_ns, t.preemptions, t.yields),
            (2, 500, 1000, 240, 1, 0)
        );
        assert_eq!((t.boosts, t.corrections, t.corrected_ns, t.migrations), (1, 1, 7, 1));
        assert_eq!((c.slices, c.busy_ns, c.device_ns, c.last_tenant), (2, 500, 1000, Some(3)));
        assert_eq!((c.preemptions, c.migrations, c.corrected_ns, c.uncontended), (1, 1, 7, 0));
    }

    #[test]
    fn depth_over_time_is_its_integral() {
        let (q, b, mut d) = (QueueCounters::default(), Backlog::default(), Depth::default());
        d.set(0, &q, &b, || unreachable!("nothing changed"));
        d.set(3, &q, &b, || 6400);
        d.set(3, &q, &b, || unreachable!("nothing changed"));
        d.set(1, &q, &b, || 7400);
        d.set(0, &q, &b, || 9400);
        d.set(2, &q, &b, || 64_000);
        d.set(0, &q, &b, || 64_010);
        assert_eq!(q.outstanding_ns.get(), 1000 + 2000 + 10);
        assert_eq!(q.depth_ns.get(), 3 * 1000 + 2000 + 20);
        assert_eq!(b.total_ns(1 << 40), 3010);
    }

    #[test]
    fn a_tenant_is_backlogged_while_any_of_its_pairs_is() {
        let b = Backlog::default();
        b.begin(640);
        b.begin(1280);
        b.end(2000);
        assert_eq!(b.total_ns(3000), 3000 - 640);
        b.end(6400);
        assert_eq!((b.total_ns(6400), b.total_ns(1 << 30)), (5760, 5760));
    }

    #[test]
    fn intervals_of_several_threads_are_neither_lost_nor_doubled() {
        // Each thread moves its own pair up and down; one pair stays up, so the whole time counts, exactly once.
        let b = Backlog::default();
        b.begin(0);
        std::thread::scope(|s| {
            for t in 1..4u64 {
                let b = &b;
                s.spawn(move || {
                    for i in 0..20_000u64 {
                        b.begin(i * 64 * t);
                        b.end(i * 64 * t + 64);
                    }
                });
            }
        });
        b.end(1 << 30);
        assert_eq!(b.total_ns(u64::MAX), 1 << 30);
    }
}
