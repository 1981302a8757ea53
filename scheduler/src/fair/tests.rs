//! Placement, weights, pressure and boosts, under both virtual-time policies.

use super::*;
use crate::{PolicyKind, WEIGHT_MAX, switch};

const FAIR: [PolicyKind; 2] = [PolicyKind::Cfs, PolicyKind::Eevdf];
const US: u64 = 1000;

fn entry(tenant: u32, inode: u64, token: u32) -> Entry {
    Entry { tenant: TenantId(tenant), inode, token: Token(token), request_ns: 100 * US }
}

fn cost(time_ns: u64) -> Cost {
    Cost { time_ns, ..Cost::default() }
}

/// Serves `rounds` slices of `cost_of(entry)` to queues that never run empty; the device time each tenant got.
fn serve(policy: &mut dyn Policy, rounds: usize, mut cost_of: impl FnMut(&Entry) -> u64) -> Vec<u64> {
    let mut got = vec![0; 16];
    for _ in 0..rounds {
        let e = policy.pick().expect("backlogged");
        let ns = cost_of(&e);
        got[e.tenant.0 as usize] += ns;
        policy.enqueue(e);
        policy.account(e.tenant, e.inode, cost(ns));
    }
    got
}

#[test]
fn device_time_follows_the_weights_of_tenants_whatever_their_slices_cost() {
    for kind in FAIR {
        let mut p = kind.build(64);
        for t in 0..3 {
            p.set_weight(TenantId(t), 1024 << t);
            (0..8).for_each(|i| p.enqueue(entry(t, u64::from(i % 4), t * 8 + i)));
        }
        let got = serve(&mut *p, 7000, |e| [90, 10, 40][e.tenant.0 as usize] * US);
        let unit = got[..3].iter().sum::<u64>() as f64 / 7.0;
        for (t, share) in [1.0, 2.0, 4.0].into_iter().enumerate() {
            let off = got[t] as f64 / (unit * share) - 1.0;
            assert!(off.abs() < 0.01, "{kind}: tenant {t} got {off:+.4} of its share");
        }
    }
}

/// Serves two tenants, the first one with two files, each always with a command queued; what each file got. `weight`:
/// of a command of that tenant and file.
fn served_by_file(kind: PolicyKind, weight: impl Fn(&Entry) -> u32) -> [u64; 3] {
    let mut p = kind.build(64);
    (0..8).for_each(|i| p.enqueue(entry(0, u64::from(i % 2), i)));
    (8..12).for_each(|i| p.enqueue(entry(1, 2, i)));
    let mut by_file = [0; 3];
    for _ in 0..18_000 {
        let e = p.pick().expect("backlogged");
        let ns = [20, 70, 30][e.inode as usize] * US;
        by_file[e.inode as usize] += ns;
        p.enqueue(e);
        p.account(e.tenant, e.inode, Cost { weight: weight(&e), ..cost(ns) });
    }
    by_file
}

#[test]
fn commands_have_weights_within_their_tenant_and_it_gets_no_more_and_no_less_by_them() {
    for kind in FAIR {
        for (first, second, others) in [(2048, 256, 0), (512, 1024, 256), (256, 256, 2048), (0, 0, 1024)] {
            let [a, b, c] = served_by_file(kind, |e| [first, second, others][e.inode as usize]);
            let tenants = (a + b) as f64 / c as f64;
            assert!((tenants - 1.0).abs() < 0.01, "{kind}: the tenant with two files got {tenants} of the other's");
            let or_default = |weight: u32| f64::from(if weight == 0 { WEIGHT_DEFAULT } else { weight });
            let files = a as f64 / b as f64 / (or_default(first) / or_default(second));
            assert!((files - 1.0).abs() < 0.03, "{kind}, {first} and {second}: {files} of what it should be");
        }
    }
}

#[test]
fn within_a_tenant_device_time_follows_the_weights_of_inode_queues() {
    for kind in FAIR {
        let mut p = kind.build(64);
        p.set_inode_weight(TenantId(0), 5, 3 * 1024);
        (0..8).for_each(|i| p.enqueue(entry(0, 5 + u64::from(i % 2), i)));
        let mut by_inode = [0u64; 2];
        serve(&mut *p, 4000, |e| {
            let ns = if e.inode == 5 { 20 * US } else { 70 * US };
            by_inode[(e.inode - 5) as usize] += ns;
            ns
        });
        let ratio = by_inode[0] as f64 / by_inode[1] as f64;
        assert!((ratio / 3.0 - 1.0).abs() < 0.01, "{kind}: {ratio}");
    }
}

#[test]
fn the_smallest_and_the_largest_weight_keep_their_ratio() {
    for kind in FAIR {
        let mut p = kind.build(8);
        p.set_weight(TenantId(0), WEIGHT_MAX);
        p.set_weight(TenantId(1), WEIGHT_MAX / 1000);
        (0..2).for_each(|t| p.enqueue(entry(t, 1, t)));
        let got = serve(&mut *p, 200_000, |_| 7);
        let ratio = got[0] as f64 / got[1] as f64;
        assert!((ratio / 1000.0 - 1.0).abs() < 0.02, "{kind}: {ratio}");
    }
}

#[test]
fn a_newcomer_starts_level_with_the_others_and_neither_starves_them_nor_waits() {
    for kind in FAIR {
        let mut p = kind.build(16);
        (0..2).for_each(|t| p.enqueue(entry(t, 1, t)));
        serve(&mut *p, 10_000, |_| 100 * US);
        p.enqueue(entry(2, 1, 2));
        let got = serve(&mut *p, 300, |_| 100 * US);
        assert!(got[..3].iter().all(|ns| (9_800..=10_200).contains(&(ns / US))), "{kind}: {got:?}");
    }
}

#[test]
fn a_sleeper_gets_its_credit_and_no_more() {
    for kind in FAIR {
        let mut p = kind.build(16);
        (0..3).for_each(|t| p.enqueue(entry(t, 1, t)));
        serve(&mut *p, 30, |_| 100 * US);
        p.remove(Token(2)).unwrap();
        serve(&mut *p, 100_000, |_| 100 * US);
        p.enqueue(entry(2, 1, 2));
        let mut ahead = 0;
        // How much more than the others the sleeper gets, at the moment when that is most.
        let mut got = [0i64; 3];
        for _ in 0..600 {
            let e = p.pick().unwrap();
            p.enqueue(e);
            p.account(e.tenant, e.inode, cost(100 * US));
            got[e.tenant.0 as usize] += 100;
            ahead = ahead.max(got[2] - got[0].max(got[1]));
        }
        assert!((900..=1_300).contains(&ahead), "{kind}: {ahead} us ahead; the credit is 1 ms, a slice 100 us");
    }
}

#[test]
fn a_newcomer_does_not_start_at_the_credit_of_a_sleeper_that_came_just_before() {
    let mut p = PolicyKind::Cfs.build(16);
    (0..2).for_each(|t| p.enqueue(entry(t, 1, t)));
    p.remove(Token(1)).unwrap();
    serve(&mut *p, 100, |_| 100 * US);
    let before = p.state().min_vruntime_ns;
    p.enqueue(entry(1, 1, 1));
    p.enqueue(entry(2, 1, 2));
    let after = p.state();
    assert_eq!(after.min_vruntime_ns, before, "the minimum never goes back");
    assert_eq!(after.tenants[1].vruntime_ns, before - 1_000 * US);
    assert_eq!(after.tenants[2].vruntime_ns, before);
}

#[test]
fn what_sleeps_between_two_commands_keeps_its_place() {
    // A tenant with one command at a time, gone while that runs, against one that is always there: equal device time.
    for kind in FAIR {
        let mut p = kind.build(16);
        let mut got = [0u64; 2];
        let mut back = None;
        (0..4).for_each(|i| p.enqueue(entry(1, 1, 1 + i)));
        p.enqueue(entry(0, 1, 0));
        for _ in 0..20_000 {
            let e = p.pick().unwrap();
            let ns = if e.tenant.0 == 0 { 30 * US } else { 100 * US };
            got[e.tenant.0 as usize] += ns;
            p.account(e.tenant, e.inode, cost(ns));
            if let Some(back) = back.take() {
                p.enqueue(back);
            }
            if e.tenant.0 == 0 { back = Some(e) } else { p.enqueue(e) }
        }
        // It misses the slice during which its client thinks, never more: 1 slice of the other per own command.
        let ratio = got[0] as f64 / got[1] as f64;
        assert!(ratio > 0.29, "{kind}: {got:?}");
    }
}

#[test]
fn memory_pressure_delays_a_tenant_and_takes_nothing_from_it_for_good() {
    for kind in FAIR {
        let mut p = kind.build(16);
        (0..2).for_each(|t| p.enqueue(entry(t, 1, t)));
        serve(&mut *p, 10, |_| 100 * US);
        p.set_pressure(TenantId(0), 1024);
        let first: Vec<u32> = (0..20)
            .map(|_| {
                let e = p.pick().unwrap();
                p.enqueue(e);
                p.account(e.tenant, e.inode, cost(100 * US));
                e.tenant.0
            })
            .collect();
        let delayed = first.iter().filter(|&&t| t == 1).count();
        assert!(delayed >= if kind == PolicyKind::Cfs { 19 } else { 11 }, "{kind}: {first:?}");
        let got = serve(&mut *p, 10_000, |_| 100 * US);
        assert!((got[0] as f64 / got[1] as f64 - 1.0).abs() < 0.02, "{kind}: {got:?}");
        p.set_pressure(TenantId(0), u32::MAX);
        let got = serve(&mut *p, 10_000, |_| 100 * US);
        assert!(got[0] as f64 / got[1] as f64 > 0.96, "{kind}: later, not starved: {got:?}");
    }
}

#[test]
fn a_boosted_command_goes_where_its_waiter_would_and_is_charged_to_its_owner() {
    for kind in FAIR {
        let mut p = kind.build(512);
        for t in 0..4 {
            (0..32).for_each(|i| p.enqueue(entry(t, u64::from(i % 4), t * 32 + i)));
        }
        serve(&mut *p, 400, |_| 100 * US);
        // Tenant 3 is ahead of its share by ten slices, and this is the last of its 32 commands.
        p.account(TenantId(3), 0, cost(1_000 * US));
        let before = p.state();
        let boosted = Token(127);
        assert!(p.boost(boosted, TenantId(5)), "the waiter is a newcomer, with nothing queued itself");
        assert!(!p.boost(Token(999), TenantId(5)));
        let mut picks = (0..64).map(|_| {
            let e = p.pick().unwrap();
            if e.token != boosted {
                p.account(e.tenant, e.inode, cost(100 * US));
            }
            e
        });
        let at = picks.position(|e| (e.tenant, e.token) == (TenantId(3), boosted)).unwrap();
        // A newcomer starts at the minimum under CFS, at the average under EEVDF: a quarter of ten slices above it.
        assert!(at <= if kind == PolicyKind::Cfs { 4 } else { 12 }, "{kind}: picked as number {at}");
        p.account(TenantId(3), 3, cost(100 * US));
        let after = p.state();
        assert_eq!(after.tenants[3].vruntime_ns, before.tenants[3].vruntime_ns + 100 * US, "{kind}");
        let waiter = after.tenants[5];
        assert_eq!((waiter.runnable, waiter.queues), (0, 0), "{kind}");
        assert!(waiter.vruntime_ns <= after.min_vruntime_ns, "{kind}: the waiter paid nothing");
    }
}

#[test]
fn short_requests_are_served_sooner_under_eevdf_and_get_no_more() {
    let mut p = PolicyKind::Eevdf.build(16);
    for t in 0..4 {
        p.enqueue(Entry { request_ns: if t == 0 { 10 * US } else { 1000 * US }, ..entry(t, 1, t) });
    }
    let (mut got, mut gap, mut longest) = ([0u64; 4], 0, 0);
    for _ in 0..100_000 {
        let e = p.pick().unwrap();
        let ns = if e.tenant.0 == 0 { 10 * US } else { 100 * US };
        p.enqueue(e);
        p.account(e.tenant, e.inode, cost(ns));
        got[e.tenant.0 as usize] += ns;
        gap = if e.tenant.0 == 0 { 0 } else { gap + ns };
        longest = longest.max(gap);
    }
    let most = *got.iter().max().unwrap() as f64;
    assert!(got.iter().all(|&ns| ns as f64 / most > 0.99), "{got:?}");
    assert!(longest <= 400 * US, "the short one waited {} us; a long request is 1000 us", longest / US);
}

#[test]
fn switching_keeps_weights_lags_boosts_and_every_entry() {
    for from in PolicyKind::ALL {
        for to in PolicyKind::ALL {
            let mut p = from.build(64);
            p.set_weight(TenantId(1), 2048);
            p.set_inode_weight(TenantId(1), 3, 512);
            (0..32).for_each(|i| p.enqueue(entry(i % 3, u64::from(i / 3 % 4), i)));
            serve(&mut *p, 200, |_| 100 * US);
            p.boost(Token(31), TenantId(2));
            let before = p.state();
            let mut q = switch(&mut *p, to, 64);
            assert!(p.is_empty());
            let after = q.state();
            assert_eq!((q.name(), q.len()), (to.name(), 32), "{from} to {to}");
            for (b, a) in before.tenants.iter().zip(&after.tenants) {
                assert_eq!((a.weight, a.pressure), (b.weight, b.pressure), "{from} to {to}");
            }
            assert_eq!(after.tenants.iter().map(|t| t.runnable).sum::<u32>(), 32, "{from} to {to}");
            assert_eq!(after.inode_weights, [(TenantId(1), 3, 512)]);
            if FAIR.contains(&from) && FAIR.contains(&to) {
                for t in 0..3 {
                    assert_eq!(after.tenants[t].vruntime_ns, before.tenants[t].vruntime_ns, "{from} to {to}");
                }
            }
            let mut tokens: Vec<u32> = std::iter::from_fn(|| q.pick()).map(|e| e.token.0).collect();
            tokens.sort_unstable();
            assert_eq!(tokens, (0..32).collect::<Vec<_>>(), "{from} to {to}");
        }
    }
}

#[test]
fn preemption_is_asked_for_only_when_another_tenant_is_to_be_served_first() {
    let mut fifo = PolicyKind::Fifo.build(4);
    fifo.enqueue(entry(0, 1, 0));
    assert!(!fifo.preempts(TenantId(1), u64::MAX));
    for kind in FAIR {
        let mut p = kind.build(4);
        p.account(TenantId(0), 1, cost(0));
        p.enqueue(entry(1, 1, 1));
        p.account(TenantId(1), 1, cost(500 * US));
        assert!(!p.preempts(TenantId(0), 10 * US), "{kind}: the other one is further ahead");
        assert!(p.preempts(TenantId(0), 2_000 * US), "{kind}");
        assert!(!kind.build(4).preempts(TenantId(0), 2_000 * US), "{kind}: nothing is runnable");
    }
}
