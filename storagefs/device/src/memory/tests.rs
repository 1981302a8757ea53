use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use weldfs_journal::{ManualClock, Medium, SeededRandom, SystemRandom};
use weldfs_scheduler::PolicyKind;

use super::*;
use crate::runq::{CostModel, RunQueue};
use weldfs_fs::Cred;
use weldfs_media::RamMedium;
use weldfs_session::inbox::Inbox;
use weldfs_session::tenants::{DeviceStock, Identity, TenantTable, TenantsConfig};
use weldfs_store::MountOptions;
use weldfs_store::mount::{MkfsOptions, format};

const MIB: u64 = 1 << 20;

struct Rig {
    memory: Memory,
    store: Arc<Store>,
    waits: SharedCount,
    table: TenantTable,
    tenants: Vec<Arc<Tenant>>,
}

/// A device with 16 MiB for caches and commands, and two tenants, each of which has half a MiB for sure.
fn rig(text: &str) -> Rig {
    let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(64 << 20));
    let (clock, random) = (Arc::new(ManualClock::default()), Arc::new(SeededRandom::new(1)));
    format(&medium, &MkfsOptions::default(), &*clock, &*random).unwrap();
    let options = MountOptions { memory: 32 << 20, ..MountOptions::new(clock, random) };
    let (store, _) = weldfs_fs::mount(medium, options).unwrap();
    let runq = RunQueue::new(PolicyKind::Cfs, 64, 100_000, CostModel::Measured);
    let board = Arc::new(Board::new(runq, 64, [Arc::new(Inbox::new().unwrap())]));
    let memory = Memory::new(store.clone(), board);
    let has = DeviceStock {
        cores: 1,
        slots: 64,
        sessions: 64,
        queue_pairs: 64,
        pool_bytes: 1 << 30,
        handles: 64,
        placeholders: 64,
    };
    let table = TenantTable::new(TenantsConfig::parse(text).unwrap(), has, &SystemRandom);
    let tenants: Vec<_> = (0..2).map(|uid| table.of(&peer(uid))).collect();
    tenants.iter().for_each(|t| memory.set_share(t).unwrap());
    Rig { memory, store, waits: SharedCount::default(), table, tenants }
}

fn peer(uid: u32) -> Identity {
    Identity::from(Cred { uid, gid: 0, groups: [].as_slice().into() })
}

fn poll<F: Future>(f: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    f.poll(&mut Context::from_waker(Waker::noop()))
}

impl Rig {
    fn now(&self, tenant: usize, slot: u32, bytes: u64) -> Held<'_> {
        match poll(pin!(self.memory.reserve(&self.tenants[tenant], slot, bytes, &self.waits))) {
            Poll::Ready(Ok(held)) => held,
            _ => panic!("slot {slot} should have got {bytes} bytes at once"),
        }
    }
}

#[test]
fn what_commands_hold_never_exceeds_the_budget_and_comes_back_to_who_waits() {
    let r = rig("");
    assert_eq!(r.memory.stats().budget, 16 * MIB);
    let (a, b) = (r.now(0, 1, 8 * MIB), r.now(0, 2, 7 * MIB));
    let mut third = Box::pin(r.memory.reserve(&r.tenants[1], 3, 2 * MIB, &r.waits));
    assert!(poll(third.as_mut()).is_pending() && poll(third.as_mut()).is_pending());
    assert_eq!((r.memory.stats().used, r.memory.stats().waiting, r.waits.get()), (15 * MIB, 1, 1));
    drop(a);
    let Poll::Ready(Ok(held)) = poll(third.as_mut()) else { panic!("it was granted") };
    let of = |i: usize| r.tenants[i].usage().memory_bytes;
    assert_eq!((of(0), of(1)), (7 * MIB, 2 * MIB));
    drop((b, held, third));
    assert_eq!((r.memory.stats().used, r.memory.stats().waiting), (0, 0));
    assert_eq!((of(0), of(1)), (0, 0));
}

#[test]
fn a_command_that_goes_while_it_waits_holds_nothing_and_keeps_nobody_waiting() {
    let r = rig("");
    let first = r.now(0, 1, 15 * MIB);
    let mut second = Box::pin(r.memory.reserve(&r.tenants[1], 2, 10 * MIB, &r.waits));
    let mut third = Box::pin(r.memory.reserve(&r.tenants[1], 3, 2 * MIB, &r.waits));
    assert!(poll(second.as_mut()).is_pending() && poll(third.as_mut()).is_pending());
    drop(second);
    drop(first);
    let Poll::Ready(Ok(held)) = poll(third.as_mut()) else { panic!("it was granted") };
    drop((held, third));
    // And one that goes between its grant and the moment it is told.
    let first = r.now(0, 1, 15 * MIB);
    let mut second = Box::pin(r.memory.reserve(&r.tenants[1], 2, 10 * MIB, &r.waits));
    assert!(poll(second.as_mut()).is_pending());
    drop(first);
    assert_eq!(r.memory.stats().used, 10 * MIB);
    drop(second);
    assert_eq!((r.memory.stats().used, r.memory.stats().waiting), (0, 0));
}

#[test]
fn more_than_the_tenants_cap_is_refused_at_once_and_the_cap_holds() {
    let r = rig("[default.memory]\ncap_bytes = 4194304\n");
    let refused = poll(pin!(r.memory.reserve(&r.tenants[0], 1, 4 * MIB + 1, &r.waits)));
    assert!(matches!(refused, Poll::Ready(Err(Errno::NOMEM))));
    let held = r.now(0, 1, 4 * MIB);
    assert!(poll(pin!(r.memory.reserve(&r.tenants[0], 2, 1, &r.waits))).is_pending());
    drop((r.now(1, 3, 4 * MIB), held));
    assert_eq!(r.memory.stats().used, 0);
}

#[test]
fn a_guarantee_is_there_however_much_others_want() {
    let r = rig("[default.memory]\nguarantee_bytes = 6291456\n");
    let hog = r.now(0, 1, 10 * MIB);
    assert!(poll(pin!(r.memory.reserve(&r.tenants[0], 2, MIB, &r.waits))).is_pending());
    drop((r.now(1, 3, 6 * MIB), hog));
}

#[test]
fn a_small_command_never_waits_behind_the_large_ones_of_others() {
    let r = rig("");
    let hog = r.now(0, 1, 15 * MIB);
    let mut more = Box::pin(r.memory.reserve(&r.tenants[0], 2, 8 * MIB, &r.waits));
    assert!(poll(more.as_mut()).is_pending());
    let small: Vec<_> = (3..35).map(|slot| r.now(1, slot, 4096)).collect();
    drop((small, more, hog));
    assert_eq!(r.memory.stats().used, 0);
}

#[test]
fn guarantees_beyond_the_budget_are_refused() {
    let r = rig("[default.memory]\nguarantee_bytes = 6291456\n");
    let third = r.table.of(&peer(2));
    assert_eq!(r.memory.set_share(&third), Err(ShareError::OverBudget));
}

#[test]
fn caches_give_way_first_and_grow_back() {
    let r = rig("");
    let full = r.memory.stats().caches;
    assert_eq!(full, 15 * MIB);
    let held = r.now(0, 1, 8 * MIB);
    let squeezed = r.memory.stats().caches;
    assert!((4 * MIB..=8 * MIB).contains(&squeezed), "{squeezed}");
    let more = r.now(0, 2, 7 * MIB);
    assert!(r.memory.stats().caches <= MIB);
    let pages = || r.store.page_cache_limit();
    assert!(pages() <= weldfs_store::limits::PAGE_CACHE_MIN as u64, "{}", pages());
    drop((held, more));
    assert_eq!(r.memory.stats().caches, full);
    assert!(pages() > 12 * MIB);
}

#[test]
fn a_tenant_over_its_share_is_told_to_the_policy_and_no_longer_when_it_is_within() {
    let r = rig("");
    let small = r.now(1, 1, 4096);
    let hog = r.now(0, 2, 12 * MIB);
    assert!(r.tenants[0].pressure.load(Ordering::Relaxed) >= 512);
    assert_eq!(r.tenants[1].pressure.load(Ordering::Relaxed), 0);
    let told = r.memory.board.runq.state();
    assert!(told.tenants.iter().any(|t| t.tenant == r.tenants[0].id && t.pressure >= 512), "{told:?}");
    drop(hog);
    assert_eq!(r.tenants[0].pressure.load(Ordering::Relaxed), 0);
    drop(small);
}

#[test]
fn without_accounting_there_is_one_queue_and_the_big_one_blocks_it() {
    let r = rig("");
    r.memory.set_accounting(false, &r.tenants);
    let first = r.now(0, 1, 12 * MIB);
    assert_eq!(r.memory.stats().used, 12 * MIB);
    let mut big = Box::pin(r.memory.reserve(&r.tenants[0], 2, 12 * MIB, &r.waits));
    let mut small = Box::pin(r.memory.reserve(&r.tenants[1], 3, 4096, &r.waits));
    assert!(poll(big.as_mut()).is_pending() && poll(small.as_mut()).is_pending());
    r.memory.set_accounting(true, &r.tenants);
    let Poll::Ready(Ok(held)) = poll(small.as_mut()) else { panic!("with accounting it is not in the way") };
    assert!(poll(big.as_mut()).is_pending());
    drop(first);
    assert!(matches!(poll(big.as_mut()), Poll::Ready(Ok(_))));
    drop(held);
}

#[test]
fn the_policy_is_told_last_what_was_so_last_however_commands_come_and_go() {
    let r = rig("");
    let small = r.now(1, 1, 4096);
    for _ in 0..200 {
        std::thread::scope(|s| {
            for slot in 2..6 {
                let r = &r;
                s.spawn(move || drop(poll(pin!(r.memory.reserve(&r.tenants[0], slot, 3 * MIB, &r.waits)))));
            }
        });
        let told = r.memory.board.runq.state();
        let of = |id| told.tenants.iter().find(|t| t.tenant == id).map_or(0, |t| t.pressure);
        assert_eq!(of(r.tenants[0].id), 0, "nothing is held any more");
    }
    drop(small);
}

/// The number of tenants that have a guarantee without a promise, and the bytes of them all.
fn littles(books: &Books) -> (usize, u64) {
    assert_eq!(books.little, books.littles.values().sum::<u64>());
    (books.littles.len(), books.little)
}

#[test]
fn the_largest_program_has_its_memory_beside_any_number_of_tenants() {
    let program = PROGRAM_SCRATCH_MAX + 2 * PROGRAM_WRITE_MAX;
    let mut books = Books::new(Broker::new(64 * MIB), Vec::new(), 0);
    (0..1000).for_each(|t| drop(books.set_share(TenantId(t), 0, u64::MAX).unwrap()));
    assert_eq!(books.broker.reserve(TenantId(1001), program, Token(1)), Grant::Now);
}

#[test]
fn what_a_tenant_had_for_sure_without_a_promise_goes_to_others_when_it_is_gone() {
    let mut books = Books::new(Broker::new(64 * MIB), Vec::new(), 0);
    (0..1000).for_each(|t| drop(books.set_share(TenantId(t), 0, u64::MAX).unwrap()));
    let (count, bytes) = littles(&books);
    assert!(count < 1000, "there is not enough for all");
    (0..1000).for_each(|t| drop(books.forget(TenantId(t), u64::MAX)));
    assert_eq!(littles(&books), (0, 0));
    assert_eq!(books.broker.reserve(TenantId(5), 64 * MIB, Token(1)), Grant::Now, "nothing is kept for anybody");
    drop(books.broker.release(TenantId(5), 64 * MIB));
    (1000..2000).for_each(|t| drop(books.set_share(TenantId(t), 0, u64::MAX).unwrap()));
    assert_eq!(littles(&books), (count, bytes), "the next ones have as much");
}

#[test]
fn a_share_that_is_refused_changes_nothing_in_the_books() {
    let mut books = Books::new(Broker::new(16 * MIB), Vec::new(), 0);
    books.set_share(TenantId(0), 0, u64::MAX).unwrap();
    let before = littles(&books);
    assert_eq!(before.0, 1);
    assert_eq!(books.set_share(TenantId(0), 17 * MIB, u64::MAX), Err(ShareError::OverBudget));
    assert_eq!(littles(&books), before);
    books.set_share(TenantId(0), MIB, u64::MAX).unwrap();
    assert_eq!((littles(&books), books.promised.len()), ((0, 0), 1));
    books.set_share(TenantId(0), 0, u64::MAX).unwrap();
    assert_eq!((littles(&books), books.promised.len()), (before, 0), "a promise taken back is none");
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..Default::default() })]

    /// However many tenants there are, and whatever some of them were promised: any one command that the budget holds
    /// beside the promises of others has its memory in the end.
    #[test]
    fn every_command_that_the_budget_can_hold_gets_its_memory_in_the_end(
        budget in 2 * MIB..96 * MIB,
        promises in proptest::collection::vec(0u64..2 * MIB, 0..4),
        tenants in 1u32..200,
        wants in proptest::collection::vec((proptest::prelude::any::<u32>(), 1u64..=HELD_MAX), 1..40),
    ) {
        let mut books = Books::new(Broker::new(budget), Vec::new(), 0);
        let mut promised = 0;
        for (at, bytes) in promises.iter().enumerate() {
            let given = books.set_share(TenantId(tenants + at as u32), *bytes, u64::MAX).is_ok();
            promised += if given { *bytes } else { 0 };
        }
        for round in 0..2 {
            // Again when a tenant comes back: nothing is counted twice.
            (0..tenants).for_each(|t| { books.set_share(TenantId(t), 0, u64::MAX).unwrap(); });
            proptest::prop_assert!(books.little <= budget / 2, "round {round}: {} of {budget}", books.little);
        }
        let mut held: Vec<(TenantId, u64, u32)> = Vec::new();
        let mut waiting = HashMap::new();
        for (token, (who, bytes)) in wants.into_iter().enumerate() {
            let (tenant, token) = (TenantId(who % tenants), token as u32);
            // A budget that cannot hold the largest program has room for every other command.
            let bytes = if budget < HELD_MAX { bytes.min(SINGLE_MAX) } else { bytes };
            let can = bytes + promised <= budget;
            match books.broker.reserve(tenant, bytes, Token(token)) {
                Grant::Never => proptest::prop_assert!(!can, "{bytes} of {budget}, {promised} promised"),
                Grant::Now => held.push((tenant, bytes, token)),
                Grant::Wait => drop(waiting.insert(token, (tenant, bytes))),
            }
        }
        while let Some((tenant, bytes, _)) = held.pop() {
            let granted: Vec<Token> = books.broker.release(tenant, bytes).collect();
            for token in granted {
                let (tenant, bytes) = waiting.remove(&token.0).unwrap();
                held.push((tenant, bytes, token.0));
            }
        }
        proptest::prop_assert!(waiting.is_empty(), "{waiting:?} wait for ever");
    }
}
