//! Fairness, progress and what buys nothing: properties of the policies under random schedules of the simulator.

use proptest::prelude::*;
use weldfs_scheduler::PolicyKind;
use weldfs_scheduler::sim::{CostModel, RunQueues, SimClient, SimConfig, SimResult, simulate};

const FAIR: [PolicyKind; 2] = [PolicyKind::Cfs, PolicyKind::Eevdf];
const US: u64 = 1_000;
const MS: u64 = 1_000_000;

fn client(name: &str) -> SimClient {
    SimClient { name: name.into(), ..SimClient::default() }
}

/// Simple 4 KiB I/O beside fused ops of 64 KiB, two tenants of each.
fn mix() -> Vec<SimClient> {
    let simple = SimClient { files: 4, cost: CostModel::Uniform(6 * US, 14 * US), ..client("simple") };
    let fused = SimClient { files: 4, cost: CostModel::Uniform(60 * US, 100 * US), slices: 4, ..client("fused") };
    vec![simple.clone(), simple, fused.clone(), fused]
}

fn run(policy: PolicyKind, cores: usize, clients: &[SimClient]) -> SimResult {
    let result = simulate(&SimConfig { policy, cores, ..SimConfig::default() }, clients);
    assert_eq!(result.unfinished, 0, "{policy}: every command ends");
    result
}

fn any_cost() -> impl Strategy<Value = CostModel> {
    prop_oneof![
        (1u64..200).prop_map(|us| CostModel::Fixed(us * US)),
        (1u64..50, 50u64..200).prop_map(|(low, high)| CostModel::Uniform(low * US, high * US)),
        (2u64..60).prop_map(|us| CostModel::Exponential(us * US)),
    ]
}

fn any_client() -> impl Strategy<Value = SimClient> {
    (1u32..64, 1u32..40, any_cost(), 1u32..6, 64u32..8192, 0u64..300).prop_map(
        |(depth, files, cost, slices, weight, pause)| SimClient {
            depth,
            files,
            cost,
            slices,
            weight,
            pause_ns: pause * US,
            ..client("any")
        },
    )
}

fn any_policy() -> impl Strategy<Value = PolicyKind> {
    proptest::sample::select(PolicyKind::ALL.to_vec())
}

/// How far two backlogged tenants may drift apart: nanoseconds of weight 1.
fn drift_bound(policy: PolicyKind, cores: usize, clients: &[SimClient]) -> f64 {
    // The longest slice: a whole op, or a quantum and a piece; exponential costs reach 20 means and more.
    let longest = |c: &SimClient| match &c.cost {
        CostModel::Exponential(mean) => mean * 25,
        CostModel::Uniform(_, high) => *high,
        cost => cost.mean_ns(),
    };
    let virtual_slice = |c: &SimClient| {
        let piece = longest(c) as f64 / f64::from(c.slices);
        (longest(c) as f64).min(100e3 + piece) * 1024.0 / f64::from(c.weight)
    };
    let most = clients.iter().map(virtual_slice).fold(0.0, f64::max);
    let all: f64 = clients.iter().map(virtual_slice).sum();
    let request = clients.iter().map(|c| 100e3 * 1024.0 / f64::from(c.weight)).fold(0.0, f64::max);
    // CFS: a tenant runs while it is leftmost: every core may take a slice of it before the first is charged, and what
    // ran before figures were taken counts too. EEVDF: lag is within a slice or a request to either side of an average
    // that moves with all of them.
    let one = if policy == PolicyKind::Eevdf { 2.0 * most + all + 2.0 * request } else { 3.0 * most };
    (cores as f64 + 1.0) * one
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Two backlogged tenants never drift apart by more than a few slices, whatever their commands, files and weights.
    #[test]
    fn the_weighted_service_of_backlogged_tenants_never_drifts_apart(
        mut clients in proptest::collection::vec(any_client(), 2..5),
        cores in 1usize..4,
        fair in proptest::sample::select(FAIR.to_vec()),
    ) {
        for c in &mut clients {
            // Always something queued, whatever runs.
            c.depth = c.depth.max(cores as u32 * 2 + 1);
            c.pause_ns = 0;
        }
        let config = SimConfig { policy: fair, cores, duration_ns: 300 * MS, seed: 7, ..SimConfig::default() };
        let result = simulate(&config, &clients);
        let bound = drift_bound(fair, cores, &clients);
        let spread = result.spread_ns as f64;
        prop_assert!(spread < bound, "{fair}: {:.0} us apart, bound {:.0} us", spread / 1e3, bound / 1e3);
        prop_assert_eq!(result.unfinished, 0);
    }

    /// Whatever runs, on however many cores, with memory that is too small for all: every command ends, and no policy
    /// loses or doubles one while it is being replaced at random moments (the simulator checks each pick).
    #[test]
    fn every_command_ends_whatever_policy_follows_whatever_other(
        mut clients in proptest::collection::vec(any_client(), 1..8),
        cores in 1usize..16,
        first in any_policy(),
        then in proptest::collection::vec((0u64..60, any_policy()), 0..12),
        per_core in any::<bool>(),
        accounting in any::<bool>(),
        memory in proptest::collection::vec(0u64..100, 8),
        lenders in proptest::collection::vec(proptest::option::of(0usize..8), 8),
        seed in any::<u64>(),
    ) {
        let n = clients.len();
        for ((c, memory), lender) in clients.iter_mut().zip(memory).zip(lenders) {
            (c.memory, c.lender) = (memory, lender.map(|at| at % n));
        }
        let mut switches: Vec<_> = then.into_iter().map(|(ms, kind)| (ms * MS, kind)).collect();
        switches.sort_by_key(|s| s.0);
        let config = SimConfig {
            policy: first,
            cores,
            queues: if per_core { RunQueues::PerCore } else { RunQueues::Shared },
            memory: 120,
            accounting,
            warm_up_ns: 10 * MS,
            duration_ns: 50 * MS,
            switches,
            seed,
            ..SimConfig::default()
        };
        let result = simulate(&config, &clients);
        prop_assert_eq!(result.unfinished, 0);
        prop_assert_eq!(&simulate(&config, &clients), &result, "the same again");
    }

    /// Tenants that pretend to wait for each other, busy ones and idle ones, of any weights, get no more than their
    /// shares together, beside honest ones that always have something to do.
    #[test]
    fn tenants_that_collude_over_boosts_gain_nothing(
        mut honest in proptest::collection::vec(any_client(), 1..4),
        mut colluding in proptest::collection::vec(
            (any_client(), proptest::option::of(0usize..5), any::<bool>()),
            2..6,
        ),
        cores in 1usize..3,
        fair in proptest::sample::select(FAIR.to_vec()),
    ) {
        let (first, n) = (honest.len(), colluding.len());
        let mut idle = 0;
        for c in honest.iter_mut().chain(colluding.iter_mut().map(|(c, ..)| c)) {
            (c.depth, c.pause_ns) = (c.depth.max(2 * cores as u32 + 1), 0);
            // Within a second, shares are wanted to a few parts in a hundred: no slices as long as that.
            c.weight = c.weight.clamp(512, 4096);
        }
        for (c, lender, sleeps) in &mut colluding {
            c.lender = lender.map(|at| first + at % n);
            // Who only waits for the others lends all of its share.
            if *sleeps && idle + 1 < n {
                (c.depth, c.pause_ns) = (1, 20 * MS);
                idle += 1;
            }
        }
        let clients: Vec<_> = honest.into_iter().chain(colluding.into_iter().map(|(c, ..)| c)).collect();
        let config = SimConfig { policy: fair, cores, duration_ns: 1_500 * MS, ..SimConfig::default() };
        let result = simulate(&config, &clients);
        prop_assert_eq!(result.unfinished, 0);
        let of = |range: std::ops::Range<usize>| result.tenants[range].iter().map(|t| t.device_ns).sum::<u64>() as f64;
        let weights = |range: std::ops::Range<usize>| clients[range].iter().map(|c| f64::from(c.weight)).sum::<f64>();
        let all = 0..clients.len();
        let (got, due) = (of(first..all.end) / of(all.clone()), weights(first..all.end) / weights(all));
        prop_assert!(got <= 1.05 * due, "{fair}: {got:.4} of the device, {due:.4} is theirs: {:?}", result.tenants);
    }

    /// The service of a tenant does not depend on over how many files it spreads its commands.
    #[test]
    fn opening_more_files_buys_nothing(
        files in 2u32..400,
        cost in any_cost(),
        fair in proptest::sample::select(FAIR.to_vec()),
    ) {
        let one = SimClient { cost: cost.clone(), ..client("one file") };
        let many = SimClient { files, depth: 64, cost, ..client("many files") };
        let result = run(fair, 1, &[one, many]);
        prop_assert!(result.jain > 0.999, "{fair}: {:?}", result.tenants);
    }
}

#[test]
fn simple_and_fused_tenants_share_the_device_equally_under_cfs_and_eevdf_and_not_under_rr() {
    for cores in [1, 2, 4] {
        for fair in FAIR {
            let result = run(fair, cores, &mix());
            println!("{fair} on {cores}: jain {:.4}", result.jain);
            assert!(result.jain >= 0.99, "{fair} on {cores}: {:?}", result.tenants);
        }
        let rr = run(PolicyKind::Rr, cores, &mix());
        println!("rr on {cores}: jain {:.4}", rr.jain);
        assert!(rr.jain <= 0.85, "{:?}", rr.tenants);
    }
}

#[test]
fn the_bound_on_drift_is_one_that_round_robin_and_fifo_break() {
    let clients = mix();
    for policy in PolicyKind::ALL {
        let (spread, bound) = (run(policy, 1, &clients).spread_ns, drift_bound(policy, 1, &clients) as u64);
        println!("{policy}: {} us apart, bound {} us", spread / US, bound / US);
        assert_eq!(spread < bound, FAIR.contains(&policy), "{policy}");
    }
}

#[test]
fn one_shared_queue_is_fairer_than_a_queue_per_core_with_stealing() {
    // More tenants than cores, unequal demands on files: queues per core are fair within a core only.
    for cores in [2, 4, 8, 16] {
        let n = cores as u64 + 1;
        let tenant = |i| SimClient {
            files: 1,
            depth: 4 + 4 * (i % 2) as u32,
            cost: CostModel::Fixed((10 + 10 * (i % 3)) * US),
            ..client("one")
        };
        let clients: Vec<_> = (0..n).map(tenant).collect();
        let of = |queues| simulate(&SimConfig { cores, queues, ..SimConfig::default() }, &clients);
        let (shared, split) = (of(RunQueues::Shared), of(RunQueues::PerCore));
        println!(
            "{cores} cores, {n} tenants: shared jain {:.4}, per core {:.4} with {} steals in {} picks",
            shared.jain, split.jain, split.steals, split.picks
        );
        assert!(shared.jain > 0.99 && shared.steals == 0);
        assert!(split.jain < shared.jain - 0.005, "{cores} cores");
    }
}

#[test]
fn device_time_follows_the_weights_on_one_core_and_on_sixteen() {
    for fair in FAIR {
        for cores in [1, 2, 16] {
            let clients: Vec<_> =
                (0..3).map(|t| SimClient { weight: 1024 << t, depth: 64, files: 8, ..client("weighted") }).collect();
            let result = run(fair, cores, &clients);
            let unit = result.tenants.iter().map(|t| t.device_ns).sum::<u64>() as f64 / 7.0;
            for (t, share) in result.tenants.iter().zip([1.0, 2.0, 4.0]) {
                let off = t.device_ns as f64 / (unit * share) - 1.0;
                assert!(off.abs() < 0.02, "{fair} on {cores}: {off:+.4} of the share");
            }
        }
    }
}

#[test]
fn ten_thousand_queues_of_one_tenant_buy_nothing() {
    for fair in FAIR {
        let modest = SimClient { depth: 8, ..client("modest") };
        let greedy = SimClient { depth: 10_000, files: 10_000_000, ..client("greedy") };
        let result = run(fair, 2, &[modest, greedy]);
        assert!(result.jain > 0.999, "{fair}: {:?}", result.tenants);
        // And they cost the other nothing: its commands wait as beside one equal.
        assert!(result.tenants[0].p99_ns < 400 * US, "{fair}: {:?}", result.tenants[0]);
    }
}

#[test]
fn sixty_four_sessions_of_one_tenant_buy_nothing() {
    // Sessions share their tenant: to the policy they are 64 times the commands, each session on a file of its own.
    for fair in FAIR {
        let one = client("one session");
        let many = SimClient { depth: 64 * 32, files: 64, ..client("64 sessions") };
        let result = run(fair, 1, &[one, many]);
        assert!(result.jain > 0.999, "{fair}: {:?}", result.tenants);
    }
}

#[test]
fn a_holder_that_is_waited_for_all_the_time_gets_the_waiters_share_and_no_more() {
    for fair in FAIR {
        // The holder has an eighth of all weights together, and a waiter that does nothing else.
        let holder = SimClient { weight: 128, lender: Some(2), ..client("holder") };
        let honest = SimClient { cost: CostModel::Fixed(30 * US), ..client("honest") };
        let waiter = SimClient { depth: 1, pause_ns: 1_000 * MS, ..client("waiter") };
        let result = run(fair, 1, &[holder.clone(), honest.clone(), waiter]);
        let ratio = result.tenants[0].device_ns as f64 / result.tenants[1].device_ns as f64;
        assert!((0.97..1.03).contains(&ratio), "{fair}: {ratio:.3} of the honest one's; the waiter's share is 1");
        // A waiter that is busy itself has nothing to lend.
        let result = run(fair, 1, &[holder, honest.clone(), honest]);
        let ratio = result.tenants[0].device_ns as f64 / result.tenants[1].device_ns as f64;
        assert!((0.12..0.14).contains(&ratio), "{fair}: {ratio:.3} of the honest one's; its own share is 0.125");
    }
}

#[test]
fn a_tenant_that_sleeps_and_bursts_gets_no_more_than_one_that_is_always_there() {
    for fair in FAIR {
        let steady = SimClient { cost: CostModel::Fixed(50 * US), ..client("steady") };
        let bursts = SimClient { pause_ns: 3 * MS, depth: 64, cost: CostModel::Fixed(50 * US), ..client("bursts") };
        let result = run(fair, 1, &[steady, bursts]);
        let ratio = result.tenants[1].device_ns as f64 / result.tenants[0].device_ns as f64;
        assert!(ratio < 1.02, "{fair}: {ratio}");
        assert!(ratio > 0.6, "{fair}: {ratio}: it is not punished for sleeping");
    }
}

#[test]
fn a_lone_reader_beside_hogs_waits_for_about_a_slice() {
    // The baseline: alone on a device slowed to its share, here a fifth.
    for fair in FAIR {
        let op = 20 * US;
        let reader = SimClient { depth: 1, cost: CostModel::Fixed(op), pause_ns: 10 * US, ..client("reader") };
        let alone = SimClient { cost: CostModel::Fixed(op * 5), ..reader.clone() };
        let baseline = run(fair, 1, &[alone]).tenants[0].p99_ns;
        let hog = SimClient { cost: CostModel::Fixed(60 * US), slices: 3, files: 8, ..client("hog") };
        let beside = run(fair, 1, &[reader, hog.clone(), hog.clone(), hog.clone(), hog]).tenants[0].p99_ns;
        println!("{fair}: p99 {} us beside four hogs, {} us alone at a fifth", beside / US, baseline / US);
        assert!(beside <= 2 * baseline, "{fair}: {beside} ns beside hogs, {baseline} ns alone");
    }
}

#[test]
fn a_small_tenant_keeps_its_share_under_a_tight_budget_only_with_accounting() {
    let small = SimClient { depth: 32, memory: 4 << 10, guarantee: 1 << 20, ..client("small") };
    let hog = SimClient { memory: 8 << 20, cost: CostModel::Fixed(100 * US), slices: 4, ..client("hog") };
    for fair in FAIR {
        let share = |accounting| {
            let config = SimConfig { policy: fair, memory: 32 << 20, accounting, ..SimConfig::default() };
            let result = simulate(&config, &[small.clone(), hog.clone(), hog.clone(), hog.clone()]);
            result.tenants[0].device_ns as f64 / (result.tenants.iter().map(|t| t.device_ns).sum::<u64>() as f64 / 4.0)
        };
        let (with, without) = (share(true), share(false));
        println!("{fair}: {with:.3} of its share with accounting, {without:.3} without");
        assert!(with >= 0.9 && without <= 0.5, "{fair}: {with} with, {without} without");
    }
}

#[test]
fn a_thousand_tenants_on_sixteen_cores_share_equally() {
    let clients: Vec<_> = (0..1000)
        .map(|i| SimClient { depth: 2, files: 2, cost: CostModel::Fixed((5 + i % 40) * US), ..client("one") })
        .collect();
    for fair in FAIR {
        let result = run(fair, 16, &clients);
        assert!(result.jain > 0.99, "{fair}: {}", result.jain);
        assert!(result.utilisation > 0.999);
    }
}
