//! The event loop.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::queue::Queues;
use super::report::{SimResult, SimTenant, jain, percentile};
use super::{CostModel, SimClient, SimConfig};
use crate::{Broker, Cost, Entry, Grant, TenantId, Token, WEIGHT_DEFAULT};

/// Numbers that look random (G. Steele, D. Lea, C. Flood: SplitMix64, OOPSLA 2014).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.roll() % n.max(1)
    }

    fn cost(&mut self, model: &CostModel) -> u64 {
        let ns = match model {
            CostModel::Fixed(ns) => *ns,
            CostModel::Uniform(low, high) => low + self.below(high.saturating_sub(*low) + 1),
            CostModel::Exponential(mean) => {
                let unit = ((self.roll() >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
                (-unit.ln() * *mean as f64) as u64
            }
            CostModel::Samples(all) => match all.len() {
                0 => 0,
                n => all[self.below(n as u64) as usize],
            },
        };
        ns.max(1)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Away,
    WaitsForMemory,
    Queued,
    Running,
}

/// One place in a tenant's loop, with the command that fills it.
struct Op {
    tenant: usize,
    state: State,
    inode: u64,
    arrived: u64,
    left_ns: u64,
    pieces: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A client sends the next command of this place.
    Send(usize),
    /// The piece that runs on this core has ended.
    Piece(usize),
    /// The policy is replaced by the n-th of the list.
    Switch(usize),
}

struct OnCore {
    op: usize,
    lender: Option<TenantId>,
    slice_ns: u64,
    piece_ns: u64,
}

#[derive(Default)]
struct Books {
    device_ns: u64,
    latencies: Vec<u64>,
}

struct Sim<'a> {
    config: &'a SimConfig,
    clients: &'a [SimClient],
    ops: Vec<Op>,
    cores: Vec<Option<OnCore>>,
    queues: Queues,
    broker: Broker,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    events_made: u64,
    dice: Dice,
    now: u64,
    books: Vec<Books>,
    spread: f64,
}

/// Runs the simulation. Cores are brought to 1..=16.
///
/// # Panics
/// When a policy hands out a command twice, or one that is not runnable: a bug in the policy.
pub fn simulate(config: &SimConfig, clients: &[SimClient]) -> SimResult {
    let slots = clients.iter().map(|c| c.depth as usize).sum();
    let config = &SimConfig { cores: config.cores.clamp(1, 16), ..config.clone() };
    let mut sim = Sim {
        config,
        clients,
        ops: Vec::with_capacity(slots),
        cores: (0..config.cores).map(|_| None).collect(),
        queues: Queues::new(config, slots),
        broker: Broker::new(config.memory),
        events: BinaryHeap::new(),
        events_made: 0,
        dice: Dice(config.seed),
        now: 0,
        books: clients.iter().map(|_| Books::default()).collect(),
        spread: 0.0,
    };
    sim.prepare();
    while let Some(Reverse((at, _, event))) = sim.events.pop() {
        sim.now = at;
        match event {
            Event::Send(op) => sim.send(op),
            Event::Piece(core) => sim.piece_ended(core),
            Event::Switch(n) => sim.queues.switch(sim.config.switches[n].1),
        }
    }
    sim.report()
}

impl Sim<'_> {
    fn prepare(&mut self) {
        self.broker.set_accounting(self.config.accounting);
        for (tenant, client) in self.clients.iter().enumerate() {
            let id = TenantId(tenant as u32);
            self.queues.all().for_each(|p| p.set_weight(id, client.weight));
            // A guarantee that the budget cannot give is none.
            let _ = self.broker.set_share(id, client.guarantee, u64::MAX);
            for _ in 0..client.depth {
                let op = self.ops.len();
                self.ops.push(Op { tenant, state: State::Away, inode: 0, arrived: 0, left_ns: 0, pieces: 0 });
                // Clients do not start in lockstep.
                let start = self.dice.below(10_000);
                self.at(start, Event::Send(op));
            }
        }
        for n in 0..self.config.switches.len() {
            self.at(self.config.switches[n].0, Event::Switch(n));
        }
    }

    fn at(&mut self, time: u64, event: Event) {
        self.events_made += 1;
        self.events.push(Reverse((time, self.events_made, event)));
    }

    fn end(&self) -> u64 {
        self.config.warm_up_ns + self.config.duration_ns
    }

    fn measuring(&self) -> bool {
        self.now >= self.config.warm_up_ns && self.now < self.end()
    }

    fn send(&mut self, op: usize) {
        if self.now >= self.end() {
            return;
        }
        let tenant = self.ops[op].tenant;
        let client = &self.clients[tenant];
        let cost = self.dice.cost(&client.cost);
        let inode = self.dice.below(u64::from(client.files));
        let o = &mut self.ops[op];
        (o.inode, o.arrived, o.left_ns, o.pieces) = (inode, self.now, cost, client.slices.max(1));
        o.state = State::WaitsForMemory;
        match self.broker.reserve(TenantId(tenant as u32), client.memory, Token(op as u32)) {
            Grant::Now => self.ready(op, None),
            Grant::Wait => {}
            Grant::Never => o.state = State::Away,
        }
        self.pressure(tenant);
    }

    fn pressure(&mut self, tenant: usize) {
        if self.clients[tenant].memory > 0 {
            let id = TenantId(tenant as u32);
            let over = self.broker.over_share(id);
            self.queues.all().for_each(|p| p.set_pressure(id, over));
        }
    }

    fn entry(&self, op: usize) -> Entry {
        let o = &self.ops[op];
        let request_ns = self.clients[o.tenant].cost.mean_ns().min(self.config.quantum_ns);
        Entry { tenant: TenantId(o.tenant as u32), inode: o.inode, token: Token(op as u32), request_ns }
    }

    fn lender(&self, op: usize) -> Option<TenantId> {
        self.clients[self.ops[op].tenant].lender.map(|at| TenantId(at as u32))
    }

    fn ready(&mut self, op: usize, from: Option<usize>) {
        self.ops[op].state = State::Queued;
        let idle = self.cores.iter().position(|c| c.is_none());
        self.queues.enqueue(self.entry(op), from, idle, self.lender(op));
        if let Some(core) = idle {
            self.dispatch(core);
        }
    }

    fn dispatch(&mut self, core: usize) {
        if let Some((entry, lender)) = self.queues.pick(core) {
            let op = entry.token.0 as usize;
            assert_eq!(self.ops[op].state, State::Queued, "picked something that is not runnable");
            assert_eq!(entry, self.entry(op), "picked something else than was queued");
            self.ops[op].state = State::Running;
            self.cores[core] = Some(OnCore { op, lender, slice_ns: 0, piece_ns: 0 });
            self.run_piece(core, self.config.overhead_ns);
        }
    }

    fn run_piece(&mut self, core: usize, overhead_ns: u64) {
        let Some(on) = &mut self.cores[core] else { return };
        let op = &mut self.ops[on.op];
        on.piece_ns = op.left_ns.div_ceil(u64::from(op.pieces.max(1)));
        let end = self.now + overhead_ns + on.piece_ns;
        self.at(end, Event::Piece(core));
    }

    fn piece_ended(&mut self, core: usize) {
        let Some(on) = &mut self.cores[core] else { return };
        on.slice_ns += on.piece_ns;
        let (op, lender, piece_ns, slice_ns) = (on.op, on.lender, on.piece_ns, on.slice_ns);
        let o = &mut self.ops[op];
        o.left_ns -= piece_ns;
        o.pieces -= 1;
        let (tenant, inode, done) = (o.tenant, o.inode, o.left_ns == 0);
        if self.measuring() {
            self.books[tenant].device_ns += piece_ns;
        }
        let contended = self.queues.contended(core);
        let goes_on = !contended || slice_ns < self.config.quantum_ns;
        if !done && goes_on {
            return self.run_piece(core, 0);
        }
        // Charged only when another waits: nothing else would have used the time.
        if contended {
            let cost = Cost { time_ns: slice_ns, lender, ..Cost::default() };
            self.queues.account(core, TenantId(tenant as u32), inode, cost);
        }
        self.cores[core] = None;
        self.note_spread();
        if done {
            self.finished(op);
        } else {
            self.ops[op].state = State::Queued;
            self.queues.enqueue(self.entry(op), Some(core), None, self.lender(op));
        }
        // This core, and any other that has nothing to do and could take what was left here.
        for core in 0..self.cores.len() {
            if self.cores[core].is_none() {
                self.dispatch(core);
            }
        }
    }

    fn finished(&mut self, op: usize) {
        let o = &mut self.ops[op];
        o.state = State::Away;
        let (tenant, took) = (o.tenant, self.now - o.arrived);
        if self.measuring() {
            self.books[tenant].latencies.push(took);
        }
        let client = &self.clients[tenant];
        let granted: Vec<Token> = self.broker.release(TenantId(tenant as u32), client.memory).collect();
        for token in granted {
            self.ready(token.0 as usize, None);
        }
        self.pressure(tenant);
        match client.pause_ns {
            0 => self.send(op),
            pause => self.at(self.now + pause, Event::Send(op)),
        }
    }

    fn note_spread(&mut self) {
        if self.measuring() {
            let share =
                |(b, c): (&Books, &SimClient)| b.device_ns as f64 * f64::from(WEIGHT_DEFAULT) / f64::from(c.weight);
            let shares = || self.books.iter().zip(self.clients).map(share);
            let (low, high) = shares().fold((f64::MAX, 0.0f64), |(low, high), x| (low.min(x), high.max(x)));
            self.spread = self.spread.max(high - low);
        }
    }

    fn report(self) -> SimResult {
        let seconds = self.config.duration_ns as f64 / 1e9;
        let unfinished = self.ops.iter().filter(|o| o.state != State::Away).count();
        let device_ns: u64 = self.books.iter().map(|b| b.device_ns).sum();
        let tenant = |(books, client): (Books, &SimClient)| {
            let mut sorted = books.latencies;
            sorted.sort_unstable();
            SimTenant {
                name: client.name.clone(),
                weight: client.weight,
                ops: sorted.len() as u64,
                ops_per_s: sorted.len() as f64 / seconds,
                device_ns: books.device_ns,
                p50_ns: percentile(&sorted, 0.5),
                p99_ns: percentile(&sorted, 0.99),
                p999_ns: percentile(&sorted, 0.999),
            }
        };
        let tenants: Vec<SimTenant> = self.books.into_iter().zip(self.clients).map(tenant).collect();
        let shares: Vec<f64> = tenants.iter().map(|t| t.device_ns as f64 / f64::from(t.weight)).collect();
        SimResult {
            jain: jain(&shares),
            spread_ns: self.spread as u64,
            utilisation: device_ns as f64 / (self.config.duration_ns as f64 * self.config.cores as f64),
            picks: self.queues.picks,
            steals: self.queues.steals,
            unfinished,
            tenants,
        }
    }
}
