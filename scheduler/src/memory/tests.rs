//! The broker's promises, under random schedules.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const MIB: u64 = 1 << 20;

/// The broker beside a record of what each token holds or waits for.
struct Rig {
    broker: Broker,
    holds: BTreeMap<u32, (u32, u64)>,
    waits: BTreeMap<u32, (u32, u64)>,
    next: u32,
}

impl Rig {
    fn new(budget: u64) -> Rig {
        Rig { broker: Broker::new(budget), holds: BTreeMap::new(), waits: BTreeMap::new(), next: 0 }
    }

    fn got(&mut self, tokens: Vec<Token>) {
        for token in tokens {
            let request = self.waits.remove(&token.0).expect("granted only what waits, and once");
            self.holds.insert(token.0, request);
        }
    }

    fn reserve(&mut self, tenant: u32, bytes: u64) -> Grant {
        let token = self.next;
        self.next += 1;
        let grant = self.broker.reserve(TenantId(tenant), bytes, Token(token));
        match grant {
            Grant::Now => {
                self.holds.insert(token, (tenant, bytes));
            }
            Grant::Wait => {
                self.waits.insert(token, (tenant, bytes));
            }
            Grant::Never => {}
        }
        grant
    }

    fn release(&mut self, nth: usize) -> bool {
        if self.holds.is_empty() {
            return false;
        }
        let token = *self.holds.keys().nth(nth % self.holds.len()).unwrap();
        let (tenant, bytes) = self.holds.remove(&token).unwrap();
        let granted = self.broker.release(TenantId(tenant), bytes).collect();
        self.got(granted);
        true
    }

    fn cancel(&mut self, nth: usize) {
        if self.waits.is_empty() {
            return;
        }
        let token = *self.waits.keys().nth(nth % self.waits.len()).unwrap();
        let (waited, granted) = self.broker.cancel(Token(token));
        assert!(waited);
        let granted = granted.collect();
        self.waits.remove(&token);
        self.got(granted);
    }

    fn changed(&mut self, changed: Changed) {
        for token in changed.refused {
            self.waits.remove(&token.0).expect("refused only what waits");
        }
        self.got(changed.granted);
    }

    fn used_by(&self, tenant: u32) -> u64 {
        self.holds.values().filter(|(t, _)| *t == tenant).map(|(_, bytes)| bytes).sum()
    }

    fn check(&self) {
        let used: u64 = self.holds.values().map(|(_, bytes)| bytes).sum();
        assert_eq!(self.broker.used(), used);
        assert!(used <= self.broker.budget(), "over the budget");
        assert_eq!(self.broker.waiting(), self.waits.len());
        assert!(self.broker.cache_room() + used <= self.broker.budget());
        let tenants: BTreeSet<u32> = self.holds.values().chain(self.waits.values()).map(|(t, _)| *t).collect();
        if self.broker.accounting() {
            assert_eq!(self.broker.active, tenants.len() as u64);
        }
        for tenant in tenants {
            assert_eq!(self.broker.used_by(TenantId(tenant)), self.used_by(tenant));
        }
    }
}

/// X and Y wait; Z's coming makes all shares smaller, so that Y, not X, is the next of them.
fn two_that_wait_for_a_third() -> Rig {
    let mut rig = Rig::new(100);
    rig.broker.set_share(TenantId(1), 60, 100).unwrap();
    assert_eq!(rig.reserve(0, 30), Grant::Now);
    assert_eq!(rig.reserve(1, 40), Grant::Now);
    assert_eq!(rig.reserve(0, 25), Grant::Wait);
    assert_eq!(rig.reserve(1, 25), Grant::Wait);
    rig
}

#[test]
fn a_newcomer_never_takes_what_was_granted_to_another() {
    let mut rig = two_that_wait_for_a_third();
    assert_eq!(rig.reserve(2, 1), Grant::Now);
    let held: u64 = rig.holds.values().map(|(_, bytes)| bytes).sum();
    assert_eq!(rig.broker.used(), held, "what is in the books is held by somebody who knows");
    while rig.release(0) {}
    assert!(rig.waits.is_empty() && rig.broker.used() == 0 && rig.broker.waiting() == 0);
}

proptest! {
    /// Whatever is asked, given back, cancelled and reconfigured: never over budget or cap, none granted twice, and
    /// once ops only end, every request that waits is granted.
    #[test]
    fn never_over_budget_and_everything_that_waits_is_granted_in_the_end(
        shares in proptest::collection::vec((0u64..30, 10u64..120), 4),
        steps in proptest::collection::vec((0u8..12, 0u32..4, 1u64..110, any::<u16>()), 1..300),
    ) {
        let mut rig = Rig::new(100);
        for (t, (guarantee, cap)) in shares.iter().enumerate() {
            // Some of these are refused: the guarantees may be more than there is.
            if let Ok(changed) = rig.broker.set_share(TenantId(t as u32), *guarantee, *cap) {
                rig.changed(changed);
            }
        }
        let mut reconfigured = false;
        for (step, tenant, bytes, nth) in steps {
            match step {
                0..=5 => {
                    rig.reserve(tenant, bytes);
                }
                6..=8 => {
                    rig.release(usize::from(nth));
                }
                9 => rig.cancel(usize::from(nth)),
                10 => if let Ok(changed) = rig.broker.set_share(TenantId(tenant), bytes / 5, bytes) {
                    reconfigured = true;
                    rig.changed(changed);
                },
                _ => {
                    reconfigured = true;
                    let on = rig.broker.accounting();
                    let changed = rig.broker.set_accounting(!on);
                    rig.changed(changed);
                }
            }
            rig.check();
            if !reconfigured {
                for (t, holder) in rig.broker.holders.iter().enumerate() {
                    prop_assert!(rig.used_by(t as u32) <= holder.cap, "over the cap");
                }
            }
        }
        while rig.release(0) {
            rig.check();
        }
        prop_assert!(rig.waits.is_empty(), "nothing is held, and {:?} wait", rig.waits);
        prop_assert_eq!(rig.broker.used(), 0);
    }

    /// A request within what is left of its tenant's guarantee is granted at once, whatever the others do.
    #[test]
    fn a_request_within_the_guarantee_never_waits(
        steps in proptest::collection::vec((0u8..3, 1u32..4, 1u64..100, any::<u16>()), 1..300),
        guarantee in 1u64..50,
    ) {
        let mut rig = Rig::new(100);
        rig.broker.set_share(TenantId(0), guarantee, 100).unwrap();
        for (step, tenant, bytes, nth) in steps {
            match step {
                0 => {
                    rig.release(usize::from(nth));
                }
                1 => {
                    rig.reserve(tenant, bytes);
                }
                _ => {
                    let left = guarantee - rig.used_by(0);
                    if left > 0 {
                        prop_assert_eq!(rig.reserve(0, 1 + bytes % left), Grant::Now);
                    }
                }
            }
            rig.check();
        }
    }

    /// Closed loops that ask again at once, of small and of huge requests, ops ending in any order: every request is
    /// granted after a bounded number of ends.
    #[test]
    fn nobody_starves_beside_tenants_that_always_ask_again(
        ends in proptest::collection::vec(any::<u16>(), 600..1500),
        sizes in proptest::collection::vec(1u64..100, 4),
        depth in 1u32..5,
        accounting in any::<bool>(),
    ) {
        let mut rig = Rig::new(100);
        let changed = rig.broker.set_accounting(accounting);
        rig.changed(changed);
        for tenant in 0..4 {
            (0..depth).for_each(|_| { rig.reserve(tenant, sizes[tenant as usize]); });
        }
        // When a token began to wait, counted in rounds in which all that was held then has ended.
        let mut waited = BTreeMap::<u32, u64>::new();
        let mut rounds = 0;
        let mut old: BTreeSet<u32> = rig.holds.keys().copied().collect();
        for nth in ends {
            // Ends of old holders first now and then, so that rounds pass: an op does not run for ever.
            let holding: Vec<u32> = rig.holds.keys().copied().collect();
            let oldest = holding.iter().position(|t| old.contains(t)).filter(|_| nth % 3 == 0);
            let at = oldest.unwrap_or(usize::from(nth));
            let tenant = rig.holds[&holding[at % holding.len()]].0;
            rig.release(at);
            rig.reserve(tenant, sizes[tenant as usize]);
            rig.check();
            old.retain(|t| rig.holds.contains_key(t));
            if old.is_empty() {
                rounds += 1;
                old = rig.holds.keys().copied().collect();
            }
            waited.retain(|t, _| rig.waits.contains_key(t));
            for token in rig.waits.keys() {
                let since = *waited.entry(*token).or_insert(rounds);
                // Before it: at most its own tenant's depth, and for each of those every other tenant once.
                prop_assert!(rounds - since <= u64::from(depth + 1) * 5, "a request waits {} rounds", rounds - since);
            }
        }
    }
}

#[test]
fn a_small_tenant_gets_its_memory_beside_a_hog_and_not_with_accounting_off() {
    for accounting in [true, false] {
        let mut rig = Rig::new(64 * MIB);
        rig.broker.set_accounting(accounting);
        (0..32).for_each(|_| {
            rig.reserve(0, 8 * MIB);
        });
        let grant = rig.reserve(1, 64 << 10);
        assert_eq!(grant, Grant::Wait, "all is in use");
        let hog = |rig: &mut Rig| {
            rig.release(0);
            rig.reserve(0, 8 * MIB);
        };
        hog(&mut rig);
        let small = rig.used_by(1);
        assert_eq!(small > 0, accounting, "accounting {accounting}: the small tenant holds {small}");
    }
}

#[test]
fn a_large_request_waits_for_what_was_held_when_it_came_not_for_what_was_queued_before_it() {
    let mut rig = Rig::new(120);
    (0..50).for_each(|_| {
        rig.reserve(0, 28);
    });
    assert_eq!(rig.reserve(1, 93), Grant::Wait);
    for _ in 0..4 {
        assert_eq!(rig.used_by(1), 0);
        rig.release(0);
    }
    assert_eq!(rig.used_by(1), 93, "46 requests of the other are older, and wait");
    assert_eq!(rig.reserve(1, 93), Grant::Wait);
    rig.release(0);
    assert!(rig.used_by(0) >= 28 && rig.used_by(1) == 0, "and then they take turns");
    rig.check();
}

#[test]
fn caps_hold_and_what_can_never_be_had_is_said_at_once() {
    let mut rig = Rig::new(100);
    rig.broker.set_share(TenantId(0), 10, 40).unwrap();
    rig.broker.set_share(TenantId(1), 30, 200).unwrap();
    assert_eq!(rig.broker.set_share(TenantId(2), 61, 100), Err(ShareError::OverBudget));
    assert_eq!(rig.broker.set_share(TenantId(2), 50, 40), Err(ShareError::OverCap));
    assert_eq!(rig.reserve(0, 41), Grant::Never);
    assert_eq!(rig.reserve(1, 91), Grant::Never, "10 are guaranteed to another");
    assert_eq!(rig.reserve(0, 40), Grant::Now);
    assert_eq!(rig.reserve(0, 1), Grant::Wait, "at its cap");
    assert_eq!(rig.reserve(1, 60), Grant::Now, "who waits for itself is in nobody's way");
    let changed = rig.broker.set_share(TenantId(0), 10, 80).unwrap();
    assert_eq!(changed.granted.len(), 0, "the budget is used up");
    rig.check();
}

#[test]
fn a_waiting_request_that_a_new_rule_makes_impossible_is_refused() {
    let mut rig = Rig::new(100);
    assert_eq!(rig.reserve(0, 60), Grant::Now);
    assert_eq!(rig.reserve(1, 80), Grant::Wait);
    assert_eq!(rig.reserve(1, 20), Grant::Wait, "a tenant's requests are served in order");
    let changed = rig.broker.set_share(TenantId(1), 0, 50).unwrap();
    assert_eq!((changed.refused.len(), changed.granted.len()), (1, 1));
    rig.changed(changed);
    rig.check();
}

#[test]
fn pressure_grows_with_what_a_tenant_holds_over_its_share() {
    let mut rig = Rig::new(100);
    rig.reserve(0, 75);
    assert_eq!(rig.broker.over_share(TenantId(0)), 0, "nobody else wants any");
    rig.reserve(1, 5);
    assert_eq!(rig.broker.over_share(TenantId(0)), 512, "half of its share of 50 over it");
    assert_eq!(rig.broker.over_share(TenantId(1)), 0);
    rig.broker.set_accounting(false);
    assert_eq!(rig.broker.over_share(TenantId(0)), 0);
}
