//! The table against a plain model: everything kept that must be, nothing forgotten called "not started".

use super::*;
use crate::effect::Effect;
use crate::fsck::fsck;
use crate::mount::{MkfsOptions, format};
use crate::store::{MountOptions, Need, Store};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use weldfs_journal::{ManualClock, Medium, RecordHead, SeededRandom};
use weldfs_media::RamMedium;

fn id(client: u8, uid: u32, queue: u16, sequence: u64) -> Identity {
    Identity { client: [client; 16], uid, queue, sequence }
}

fn done(n: u64) -> interp::Outcome {
    interp::Outcome { status: (n % 3) as i32, micro_done: 1, micro_failed: (n % 2) as u16, result: n, result2: n / 2 }
}

fn put(t: &Outcomes, stamp: u64, id: Identity) {
    t.record(stamp, &OutcomeRec { id, outcome: done(stamp) }, &mut Tally::default());
}

/// What a checkpoint and a mount make of the tables: changes over a tree, and a table loaded from it.
#[derive(Default)]
struct Disk(BTreeMap<Key, Vec<u8>>);

impl Disk {
    fn checkpoint(&mut self, t: &Outcomes) {
        for (key, value) in t.freeze().changes() {
            match value {
                Some(v) => drop(self.0.insert(key, v)),
                None => drop(self.0.remove(&key)),
            }
        }
    }

    fn load(&self, limit: usize) -> Outcomes {
        let t = Outcomes::new(limit);
        self.0.iter().for_each(|(k, v)| t.load(*k, v).unwrap());
        t.loaded().unwrap();
        t
    }
}

#[test]
fn the_last_1024_outcomes_of_a_queue_are_kept_and_older_ones_expire() {
    let t = Outcomes::new(1 << 20);
    for n in 1..=RING {
        put(&t, n, id(1, 0, 0, n));
    }
    assert_eq!(t.lookup(&id(1, 0, 0, 1)), Known::Done(done(1)));
    put(&t, RING + 1, id(1, 0, 0, RING + 1));
    assert_eq!(t.lookup(&id(1, 0, 0, 1)), Known::Expired);
    assert_eq!(t.lookup(&id(1, 0, 0, 2)), Known::Done(done(2)));
    assert_eq!(t.lookup(&id(1, 0, 0, RING + 1)), Known::Done(done(RING + 1)));
    assert_eq!(t.lookup(&id(1, 0, 0, RING + 2)), Known::NotStarted);
    for other in [id(1, 0, 1, 1), id(2, 0, 0, 1), id(1, 7, 0, 1)] {
        assert_eq!(t.lookup(&other), Known::NotStarted, "another queue, client or user");
    }
}

#[test]
fn a_sequence_used_twice_has_its_newest_outcome() {
    let t = Outcomes::new(1 << 20);
    put(&t, 10, id(1, 0, 0, 5));
    put(&t, 20, id(1, 0, 0, 5));
    assert_eq!(t.lookup(&id(1, 0, 0, 5)), Known::Done(done(20)));
}

#[test]
fn clients_beyond_64_of_a_user_push_out_the_one_idle_longest_and_leave_its_bound() {
    let t = Outcomes::new(8 << 20);
    for c in 0..CLIENTS_MAX as u8 {
        put(&t, 100 + u64::from(c), id(c, 5, 0, 1000 + u64::from(c)));
    }
    put(&t, 300, id(0, 5, 0, 2000));
    put(&t, 301, id(200, 5, 0, 5000));
    assert_eq!(t.lookup(&id(1, 5, 0, 1001)), Known::Expired, "client 1 was idle the longest");
    assert_eq!(t.lookup(&id(1, 5, 0, 1002)), Known::NotStarted, "above all it ever sent");
    assert_eq!(t.lookup(&id(0, 5, 0, 1000)), Known::Done(done(100)));
    put(&t, 302, id(1, 5, 0, 1500));
    assert_eq!(t.lookup(&id(1, 5, 0, 1001)), Known::Expired, "also when it comes back");
    assert_eq!(t.lookup(&id(1, 6, 0, 1001)), Known::NotStarted, "no other user's business");
}

#[test]
fn queues_beyond_64_of_a_client_push_out_the_one_idle_longest() {
    let t = Outcomes::new(8 << 20);
    for q in 0..=QUEUES_MAX as u16 {
        put(&t, 100 + u64::from(q), id(1, 5, q, u64::from(q) + 1));
    }
    assert_eq!(t.lookup(&id(1, 5, 0, 1)), Known::Expired);
    assert_eq!(t.lookup(&id(1, 5, 0, 2)), Known::NotStarted);
    assert_eq!(t.lookup(&id(1, 5, 1, 2)), Known::Done(done(101)));
}

#[test]
fn memory_is_bounded_and_the_user_with_most_pays() {
    let t = Outcomes::new(1 << 20);
    put(&t, 1, id(9, 77, 0, 1));
    for n in 2..60_000 {
        put(&t, n, id((n / 1000) as u8, 5, (n % 8) as u16, n));
    }
    assert!(t.bytes() <= 1 << 20, "{}", t.bytes());
    assert_eq!(t.lookup(&id(9, 77, 0, 1)), Known::Done(done(1)), "the modest user keeps what is his");
    assert_eq!(t.lookup(&id(0, 5, 2, 2)), Known::Expired);
    assert_eq!(t.lookup(&id(59, 5, 7, 59_999)), Known::Done(done(59_999)));
}

#[test]
fn users_beyond_the_bound_are_dropped_with_theirs() {
    let t = Outcomes::new(8 << 20);
    for uid in 0..=OWNERS_MAX as u32 {
        put(&t, u64::from(uid) + 1, id(1, uid, 0, 10));
    }
    let mut disk = Disk::default();
    disk.checkpoint(&t);
    for t in [t, disk.load(8 << 20)] {
        assert_eq!(t.lookup(&id(1, 0, 0, 10)), Known::Expired);
        put(&t, 1 << 20, id(2, 0, 0, 11));
        assert_eq!(t.lookup(&id(1, 0, 0, 10)), Known::Expired, "also when the user comes back");
        let mut again = Disk(disk.0.clone());
        again.checkpoint(&t);
        assert_eq!(again.load(8 << 20).lookup(&id(1, 0, 0, 10)), Known::Expired);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Put { client: u8, uid: u32, queue: u16, sequence: u64, times: u16 },
    Checkpoint,
    Remount,
}

fn step() -> impl Strategy<Value = Step> {
    let put = (0..4u8, 0..2u32, 0..3u16, 0..3000u64, 1..700u16)
        .prop_map(|(client, uid, queue, sequence, times)| Step::Put { client, uid, queue, sequence, times });
    prop_oneof![6 => put, 2 => Just(Step::Checkpoint), 1 => Just(Step::Remount)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_table_agrees_with_a_model_over_checkpoints_and_mounts(steps in proptest::collection::vec(step(), 1..25)) {
        const LIMIT: usize = 8 << 20;
        type Ring = Vec<(u64, interp::Outcome)>;
        let (mut t, mut disk, mut stamp) = (Outcomes::new(LIMIT), Disk::default(), 1);
        let mut model: BTreeMap<(u8, u32, u16), Ring> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Put { client, uid, queue, sequence, times } => for i in 0..u64::from(times) {
                    // Up, down and again: sequences are the client's.
                    let sequence = if i % 7 == 3 { sequence / 2 } else { sequence + i };
                    put(&t, stamp, id(client, uid, queue, sequence));
                    model.entry((client, uid, queue)).or_default().push((sequence, done(stamp)));
                    stamp += 3;
                },
                Step::Checkpoint => disk.checkpoint(&t),
                Step::Remount => {
                    // The log brings back what no checkpoint has: here one comes first.
                    disk.checkpoint(&t);
                    let bytes = t.bytes();
                    t = disk.load(LIMIT);
                    prop_assert_eq!(t.bytes(), bytes, "memory is counted alike");
                }
            }
        }
        for ((client, uid, queue), ring) in &model {
            let kept = &ring[ring.len().saturating_sub(RING as usize)..];
            let dropped: BTreeSet<u64> = ring[..ring.len() - kept.len()].iter().map(|r| r.0).collect();
            for sequence in 0..4000 {
                let want = match kept.iter().rev().find(|r| r.0 == sequence) {
                    Some((_, o)) => Known::Done(*o),
                    None if dropped.last().is_some_and(|b| sequence <= *b) => Known::Expired,
                    None => Known::NotStarted,
                };
                prop_assert_eq!(t.lookup(&id(*client, *uid, *queue, sequence)), want, "sequence {}", sequence);
            }
        }
    }

    #[test]
    fn hostile_values_are_errors(kind in 9..=10u8, a in 0..3u64, b: u64, bytes: Vec<u8>) {
        let t = Outcomes::new(1 << 20);
        let known = ClientRec { id: [1; 16], uid: 1, bound: None }.to_value();
        t.load(client_key(1), &known).unwrap();
        if t.load(Key::new(kind, a, b % (1 << 36)), &bytes).is_ok() {
            let _ = t.loaded();
        }
    }

    #[test]
    fn flipped_pages_are_errors_or_other_outcomes_never_a_panic(at: proptest::sample::Index, bits in 1..=255u8) {
        let t = Outcomes::new(1 << 20);
        (1..=1100).for_each(|n| put(&t, n, id(1, 1, 0, n)));
        let mut disk = Disk::default();
        disk.checkpoint(&t);
        let keys: Vec<Key> = disk.0.keys().copied().collect();
        let value = disk.0.get_mut(&keys[at.index(keys.len())]).unwrap();
        let byte = at.index(value.len());
        value[byte] ^= bits;
        let t = Outcomes::new(1 << 20);
        if disk.0.iter().all(|(k, v)| t.load(*k, v).is_ok()) && t.loaded().is_ok() {
            put(&t, 5000, id(1, 1, 0, 5000));
            prop_assert_eq!(t.lookup(&id(1, 1, 0, 5000)), Known::Done(done(5000)));
        }
    }
}

fn image() -> Arc<dyn Medium> {
    let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(16 << 20));
    format(&medium, &MkfsOptions::default(), &ManualClock::default(), &SeededRandom::new(1)).unwrap();
    medium
}

fn mount(medium: &Arc<dyn Medium>) -> Arc<Store> {
    let options = MountOptions::new(Arc::new(ManualClock::default()), Arc::new(SeededRandom::new(2)));
    crate::testing::mount(medium.clone(), options).unwrap().0
}

fn commit(store: &Store, rec: OutcomeRec) {
    let mut plan = loop {
        match store.begin(&Need::OUTCOME) {
            Ok(plan) => break plan,
            Err(FsError::Wait(_)) => drop(store.checkpoint().unwrap()),
            Err(e) => panic!("{e}"),
        }
    };
    plan.push(Effect::Outcome(Box::new(rec)));
    let end = store.commit(&mut plan, RecordHead::op()).unwrap().end;
    store.journal().commit_through(end).unwrap();
}

#[test]
fn outcomes_survive_replay_checkpoint_and_unmount_and_fsck_knows_them() {
    let medium = image();
    let rec = |n: u64| OutcomeRec { id: id(1, 3, (n % 2) as u16, n), outcome: done(n) };
    let check = |store: &Store, upto: u64| {
        for n in 1..=upto {
            assert_eq!(store.outcomes.lookup(&rec(n).id), Known::Done(done(n)), "{n}");
        }
        assert_eq!(store.outcomes.lookup(&rec(upto + 1).id), Known::NotStarted);
    };
    let store = mount(&medium);
    (1..=100).for_each(|n| commit(&store, rec(n)));
    drop(store); // no unmount: only the log has them
    let store = mount(&medium);
    check(&store, 100);
    store.checkpoint().unwrap();
    (101..=300).for_each(|n| commit(&store, rec(n)));
    check(&store, 300);
    drop(store);
    let store = mount(&medium);
    check(&store, 300);
    store.unmount().unwrap();
    drop(store);
    check(&mount(&medium), 300);
    let options = MountOptions::new(Arc::new(ManualClock::default()), Arc::new(SeededRandom::new(2)));
    let report = fsck(medium, options, true).unwrap();
    assert!(report.clean, "{:?}", report.problems);
    assert!(report.outcome_keys > 4, "a client and pages of two queues");
}

#[test]
fn a_checkpoint_writes_only_the_pages_that_changed() {
    let medium = image();
    let store = mount(&medium);
    for n in 1..=1000 {
        commit(&store, OutcomeRec { id: id(1, 3, 0, n), outcome: done(n) });
    }
    store.checkpoint().unwrap();
    commit(&store, OutcomeRec { id: id(1, 3, 0, 1001), outcome: done(1001) });
    assert_eq!(store.checkpoint().unwrap().keys, 1, "one page");
}
