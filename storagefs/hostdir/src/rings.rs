//! The rings that are looked at: tenants in turn, and each tenant's rings in turn. A command, however small, waits for
//! one of another tenant, not for one of each ring that the other has.

use std::sync::Arc;

use super::session::QueueState;

pub(super) type Rings = Turns<Arc<QueueState>>;

/// See the module.
pub(super) struct Turns<R> {
    tenants: Vec<Tenant<R>>,
    next: usize,
}

struct Tenant<R> {
    id: u32,
    /// Never empty.
    rings: Vec<R>,
    next: usize,
}

impl<R> Default for Turns<R> {
    fn default() -> Self {
        Turns { tenants: Vec::new(), next: 0 }
    }
}

/// Steps to the next one of so many; after the last comes the first.
fn step(next: &mut usize, of: usize) -> usize {
    let at = if *next < of { *next } else { 0 };
    *next = at + 1;
    at
}

impl<R> Turns<R> {
    pub fn add(&mut self, tenant: u32, ring: R) {
        match self.tenants.iter_mut().find(|t| t.id == tenant) {
            Some(t) => t.rings.push(ring),
            None => self.tenants.push(Tenant { id: tenant, rings: vec![ring], next: 0 }),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &R> {
        self.tenants.iter().flat_map(|t| &t.rings)
    }

    pub fn len(&self) -> usize {
        self.tenants.iter().map(|t| t.rings.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    /// Takes one out for which this holds.
    pub fn take_out(&mut self, gone: &mut impl FnMut(&R) -> bool) -> Option<R> {
        let (at, ring) =
            self.tenants.iter().enumerate().find_map(|(at, t)| Some((at, t.rings.iter().position(&mut *gone)?)))?;
        let out = self.tenants[at].rings.swap_remove(ring);
        if self.tenants[at].rings.is_empty() {
            self.tenants.swap_remove(at);
        }
        Some(out)
    }
}

impl<R: Clone> Turns<R> {
    /// The one whose turn it is among those for which this holds. As many are asked as `left` says, which counts down:
    /// with one for each there is, a turn of all tenants.
    pub fn next(&mut self, left: &mut usize, wants: impl Fn(&R) -> bool) -> Option<R> {
        for _ in 0..self.tenants.len() {
            let at = step(&mut self.next, self.tenants.len());
            let tenant = &mut self.tenants[at];
            for _ in 0..tenant.rings.len() {
                *left = left.checked_sub(1)?;
                let at = step(&mut tenant.next, tenant.rings.len());
                if wants(&tenant.rings[at]) {
                    return Some(tenant.rings[at].clone());
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_have_turns_and_each_one_s_rings_have_its_turns() {
        let mut turns = Turns::default();
        for (tenant, ring) in [(7, "a1"), (7, "a2"), (8, "b1"), (7, "a3"), (9, "c1"), (9, "c2")] {
            turns.add(tenant, ring);
        }
        assert_eq!((turns.len(), turns.iter().count()), (6, 6));
        let mut order = |n: usize, wants: fn(&&str) -> bool| -> Vec<&str> {
            (0..n).map_while(|_| turns.next(&mut 6, wants)).collect()
        };
        assert_eq!(order(9, |_| true), ["a1", "b1", "c1", "a2", "b1", "c2", "a3", "b1", "c1"]);
        // One with nothing to do costs its tenant no turn, and a tenant with nothing to do costs the others none.
        assert_eq!(order(5, |r| *r != "a1" && *r != "b1"), ["a2", "c2", "a3", "c1", "a2"]);
        assert_eq!(order(1, |_| false), [""; 0]);
        // One that always wants to be looked at, and has nothing, is asked no more often than there are rings.
        let (mut left, mut found) = (6, Vec::new());
        while let Some(ring) = turns.next(&mut left, |r| *r == "a1") {
            found.push(ring);
        }
        assert!(left == 0 && !found.is_empty() && found.len() <= 2, "{found:?}");
    }

    #[test]
    fn whoever_is_taken_out_has_no_turn_and_the_others_keep_theirs() {
        let mut turns = Turns::default();
        for (tenant, ring) in [(7, 71), (8, 81), (7, 72), (9, 91)] {
            turns.add(tenant, ring);
        }
        assert_eq!(turns.next(&mut 4, |_| true), Some(71));
        assert_eq!(turns.take_out(&mut |r| *r == 81), Some(81));
        assert_eq!(turns.take_out(&mut |r| *r == 81), None);
        let mut order: Vec<i32> = (0..4).filter_map(|_| turns.next(&mut 3, |_| true)).collect();
        order.sort_unstable();
        assert_eq!(order, [71, 72, 91, 91], "two turns each");
        while turns.take_out(&mut |_| true).is_some() {}
        assert!(turns.is_empty() && turns.next(&mut 1, |_| true).is_none());
    }
}
