//! Who may use how much device memory, and who waits for it.
//!
//! An op reserves what it will hold (staging, scratch) before it runs and before it takes tickets, in one call; what
//! it holds it gives back when it ends, without waiting for anything that waits for memory. From that and the rules
//! here follow no deadlock and no starvation:
//!
//! * A tenant's requests are served in order.
//! * What is left of a tenant's *guarantee* is kept free for it: a request within it never waits for another tenant.
//! * A tenant never holds more than its *cap*; while it waits for itself it is in no other's way.
//! * Of the others that wait, the one that holds the least for its share comes first, among equals the one that was
//!   not granted anything for longest, and none behind it overtakes it: what becomes free is kept until it fits. A
//!   tenant that waits long ends up holding nothing, and then has its turn, however many requests others have queued.
//!
//! With accounting off there is one queue for all, first come, first served, and nothing but the budget: the
//! comparison.

use std::collections::VecDeque;

use crate::policy::{TenantId, Token};

/// This fraction of the budget is kept from caches, so that an op seldom has to shrink them first.
const CACHE_FLOOR: u64 = 16;

/// The answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grant {
    /// The memory is reserved.
    Now,
    /// The token will come out of a later call.
    Wait,
    /// More than the tenant can ever have: its cap, or the budget less what is guaranteed to others.
    Never,
}

/// A share that cannot be given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShareError {
    /// The guarantees of all tenants would be more than the budget.
    OverBudget,
    /// The guarantee is larger than the cap.
    OverCap,
}

impl std::fmt::Display for ShareError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ShareError::OverBudget => "the guarantees of all tenants are more than the memory there is",
            ShareError::OverCap => "a tenant's guarantee is larger than its cap",
        })
    }
}

impl std::error::Error for ShareError {}

/// What a change of the rules did to requests that wait.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changed {
    /// These have their memory now.
    pub granted: Vec<Token>,
    /// These can never have it under the new rules: they wait no more.
    pub refused: Vec<Token>,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    token: Token,
    tenant: TenantId,
    bytes: u64,
    /// Order of arrival.
    age: u64,
}

#[derive(Debug)]
struct Holder {
    guarantee: u64,
    cap: u64,
    used: u64,
    /// When something was granted to it last, counted in grants; 0 for never.
    turn: u64,
    waiting: VecDeque<Request>,
}

impl Holder {
    /// What is kept free for it.
    fn kept(&self) -> u64 {
        self.guarantee.saturating_sub(self.used)
    }
}

/// The books of the device's memory: pure numbers, bytes. Not thread-safe by itself: the device keeps it under a lock.
#[derive(Debug)]
pub struct Broker {
    budget: u64,
    used: u64,
    guaranteed: u64,
    /// Sum of what is kept free for tenants.
    kept: u64,
    accounting: bool,
    holders: Vec<Holder>,
    /// Tenants with requests that wait.
    waiters: Vec<TenantId>,
    /// Tenants that hold or want something.
    active: u64,
    /// The one queue, with accounting off.
    all: VecDeque<Request>,
    age: u64,
    turns: u64,
    granted: Vec<Token>,
}

impl Broker {
    /// Books over `budget` bytes, with accounting on; tenants have no guarantee, and the budget as their cap.
    pub fn new(budget: u64) -> Broker {
        let budget = budget.min(i64::MAX as u64);
        Broker {
            budget,
            used: 0,
            guaranteed: 0,
            kept: 0,
            accounting: true,
            holders: Vec::new(),
            waiters: Vec::new(),
            active: 0,
            all: VecDeque::new(),
            age: 0,
            turns: 0,
            granted: Vec::new(),
        }
    }

    fn holder(&mut self, tenant: TenantId) -> &mut Holder {
        let at = tenant.0 as usize;
        if self.holders.len() <= at {
            let cap = self.budget;
            let fresh = || Holder { guarantee: 0, cap, used: 0, turn: 0, waiting: VecDeque::new() };
            self.holders.resize_with(at + 1, fresh);
        }
        &mut self.holders[at]
    }

    /// Sets a tenant's guarantee and cap, bytes. A cap over the budget is the budget. A tenant that holds more than
    /// a new cap keeps it, and gets nothing more until it is below.
    pub fn set_share(&mut self, tenant: TenantId, guarantee: u64, cap: u64) -> Result<Changed, ShareError> {
        let cap = cap.min(self.budget);
        let others = self.guaranteed - self.holder(tenant).guarantee;
        if guarantee > self.budget - others {
            return Err(ShareError::OverBudget);
        }
        if guarantee > cap {
            return Err(ShareError::OverCap);
        }
        let holder = self.holder(tenant);
        let kept_before = holder.kept();
        (holder.guarantee, holder.cap) = (guarantee, cap);
        let kept = holder.kept();
        self.kept = self.kept - kept_before + kept;
        self.guaranteed = others + guarantee;
        Ok(self.changed())
    }

    /// Turns accounting on or off. Requests that wait keep their order of arrival.
    pub fn set_accounting(&mut self, on: bool) -> Changed {
        if self.accounting == on {
            return Changed::default();
        }
        self.accounting = on;
        if on {
            for request in std::mem::take(&mut self.all) {
                self.wait(request);
            }
        } else {
            let mut waiting: Vec<Request> = self.holders.iter_mut().flat_map(|h| h.waiting.drain(..)).collect();
            waiting.sort_unstable_by_key(|r| r.age);
            self.waiters.clear();
            self.all = waiting.into();
        }
        self.recount();
        self.changed()
    }

    /// True when tenants are accounted for.
    pub fn accounting(&self) -> bool {
        self.accounting
    }

    /// Asks for `bytes`. After [`Grant::Wait`] the token comes out of a later call, once.
    pub fn reserve(&mut self, tenant: TenantId, bytes: u64, token: Token) -> Grant {
        self.holder(tenant);
        if bytes > self.most(tenant) {
            return Grant::Never;
        }
        self.age += 1;
        let request = Request { token, tenant, bytes, age: self.age };
        if self.accounting {
            self.wait(request);
        } else {
            self.mark(tenant, |all, _| all.push_back(request));
        }
        if self.admit(token) { Grant::Now } else { Grant::Wait }
    }

    /// Whether a newcomer has its memory at once. No other is granted anything by its coming, though there may be
    /// one now that could be: one tenant more makes all shares smaller, and so changes who comes first. Nothing
    /// became free, so another holds what the next release is about.
    fn admit(&mut self, token: Token) -> bool {
        if !self.accounting {
            let alone = self.all.len() == 1;
            if alone {
                self.grant();
            }
            return alone && self.granted.pop().is_some();
        }
        let Some(at) = self.next() else { return false };
        let head = self.holders[self.waiters[at].0 as usize].waiting.front();
        let first = head.is_some_and(|head| head.token == token);
        if first {
            self.grant_to(at);
            self.granted.pop();
        }
        first
    }

    /// Gives back what an op held, and yields the tokens that have their memory now.
    pub fn release(&mut self, tenant: TenantId, bytes: u64) -> impl Iterator<Item = Token> + '_ {
        let held = self.holder(tenant).used;
        debug_assert!(bytes <= held, "no op gives back more than it holds");
        self.hold(tenant, -(bytes.min(held) as i64));
        self.grant();
        self.granted.drain(..)
    }

    /// Takes back a request that waits: whether it did, and the tokens that have their memory now because of it. When
    /// it had been granted already, its bytes are to be released.
    pub fn cancel(&mut self, token: Token) -> (bool, impl Iterator<Item = Token> + '_) {
        let found = self.find(token);
        if let Some((tenant, at)) = found {
            self.mark(tenant, |all, own| {
                if own.is_empty() {
                    all.remove(at)
                } else {
                    own.remove(at)
                };
            });
            self.forget_idle_waiters();
        }
        self.grant();
        (found.is_some(), self.granted.drain(..))
    }

    /// How far a tenant is over its share, in 1024ths of it; 0 when it is within, when no other holds or wants
    /// memory, and with accounting off. The share is the guarantee, or an equal part of the budget if that is more.
    pub fn over_share(&self, tenant: TenantId) -> u32 {
        let Some(holder) = self.holders.get(tenant.0 as usize).filter(|_| self.accounting) else { return 0 };
        let share = self.share(holder);
        let over = holder.used.saturating_sub(share);
        u32::try_from(u128::from(over) * 1024 / u128::from(share)).unwrap_or(u32::MAX)
    }

    /// Bytes reserved by all tenants; never more than the budget.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Bytes reserved by one tenant.
    #[cfg(test)]
    pub(crate) fn used_by(&self, tenant: TenantId) -> u64 {
        self.holders.get(tenant.0 as usize).map_or(0, |h| h.used)
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.all.len() + self.waiters.iter().map(|t| self.holders[t.0 as usize].waiting.len()).sum::<usize>()
    }

    /// The budget, bytes.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// What caches may use, bytes. Requests do not look at caches: those give way.
    pub fn cache_room(&self) -> u64 {
        (self.budget - self.used).saturating_sub(self.budget / CACHE_FLOOR)
    }

    fn share(&self, holder: &Holder) -> u64 {
        holder.guarantee.max(self.budget / self.active.max(1)).max(1)
    }

    /// The largest request of a tenant that can be granted some time.
    fn most(&self, tenant: TenantId) -> u64 {
        let holder = &self.holders[tenant.0 as usize];
        if self.accounting { holder.cap.min(self.budget - (self.guaranteed - holder.guarantee)) } else { self.budget }
    }

    /// Changes what waits (the one queue, and the tenant's own), and counts whether the tenant is active.
    fn mark(&mut self, tenant: TenantId, change: impl FnOnce(&mut VecDeque<Request>, &mut VecDeque<Request>)) {
        let holder = &mut self.holders[tenant.0 as usize];
        let before = holder.used > 0 || !holder.waiting.is_empty();
        change(&mut self.all, &mut holder.waiting);
        let after = holder.used > 0 || !holder.waiting.is_empty();
        self.active = self.active + u64::from(after) - u64::from(before);
    }

    fn wait(&mut self, request: Request) {
        if self.holders[request.tenant.0 as usize].waiting.is_empty() {
            self.waiters.push(request.tenant);
        }
        self.mark(request.tenant, |_, own| own.push_back(request));
    }

    fn hold(&mut self, tenant: TenantId, bytes: i64) {
        let holder = &mut self.holders[tenant.0 as usize];
        let (before, kept_before) = (holder.used > 0 || !holder.waiting.is_empty(), holder.kept());
        holder.used = holder.used.saturating_add_signed(bytes);
        let after = holder.used > 0 || !holder.waiting.is_empty();
        self.kept = self.kept - kept_before + holder.kept();
        self.used = self.used.saturating_add_signed(bytes);
        self.active = self.active + u64::from(after) - u64::from(before);
    }

    fn forget_idle_waiters(&mut self) {
        let holders = &self.holders;
        self.waiters.retain(|t| !holders[t.0 as usize].waiting.is_empty());
    }

    fn find(&self, token: Token) -> Option<(TenantId, usize)> {
        if let Some(at) = self.all.iter().position(|r| r.token == token) {
            return Some((self.all[at].tenant, at));
        }
        self.waiters.iter().find_map(|&tenant| {
            let own = &self.holders[tenant.0 as usize].waiting;
            own.iter().position(|r| r.token == token).map(|at| (tenant, at))
        })
    }

    /// After a change of rules: throws out what cannot be granted any more, grants what can be now.
    fn changed(&mut self) -> Changed {
        let mut refused = Vec::new();
        for at in 0..self.holders.len() {
            let most = self.most(TenantId(at as u32));
            let own = &mut self.holders[at].waiting;
            refused.extend(own.iter().filter(|r| r.bytes > most).map(|r| r.token));
            own.retain(|r| r.bytes <= most);
        }
        self.forget_idle_waiters();
        self.recount();
        self.grant();
        Changed { granted: self.granted.drain(..).collect(), refused }
    }

    fn recount(&mut self) {
        self.active = self.holders.iter().filter(|h| h.used > 0 || !h.waiting.is_empty()).count() as u64;
    }

    fn grant(&mut self) {
        if self.accounting {
            while let Some(at) = self.next() {
                self.grant_to(at);
            }
        } else {
            while let Some(&first) = self.all.front().filter(|first| first.bytes <= self.budget - self.used) {
                self.all.pop_front();
                self.hold(first.tenant, first.bytes as i64);
                self.granted.push(first.token);
            }
        }
    }

    /// Grants the first request of one that waits.
    fn grant_to(&mut self, at: usize) {
        let tenant = self.waiters[at];
        let Some(&head) = self.holders[tenant.0 as usize].waiting.front() else { return };
        // Held first, then taken out of its queue: its tenant is active all the time.
        self.hold(tenant, head.bytes as i64);
        self.turns += 1;
        self.holders[tenant.0 as usize].turn = self.turns;
        self.mark(tenant, |_, own| {
            own.pop_front();
        });
        if self.holders[tenant.0 as usize].waiting.is_empty() {
            self.waiters.swap_remove(at);
        }
        self.granted.push(head.token);
    }

    /// Whose first request is granted next: its place among those that wait.
    fn next(&self) -> Option<usize> {
        let left = self.budget - self.used;
        let free = left.saturating_sub(self.kept);
        let mut best: Option<(u128, u64, u64, usize, bool)> = None;
        for (at, tenant) in self.waiters.iter().enumerate() {
            let holder = &self.holders[tenant.0 as usize];
            let Some(head) = holder.waiting.front() else { continue };
            if holder.used + head.bytes > holder.cap {
                continue;
            }
            let own = holder.kept();
            if head.bytes <= own && head.bytes <= left {
                return Some(at);
            }
            let rank = (u128::from(holder.used) << 32) / u128::from(self.share(holder));
            if best.is_none_or(|(r, turn, age, ..)| (rank, holder.turn, head.age) < (r, turn, age)) {
                best = Some((rank, holder.turn, head.age, at, head.bytes <= free + own && head.bytes <= left));
            }
        }
        best.filter(|(.., fits)| *fits).map(|(.., at, _)| at)
    }
}

#[cfg(test)]
mod tests;
