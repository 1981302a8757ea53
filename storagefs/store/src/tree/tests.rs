//! The tree against a model: any sequence of batches, reopened from the medium, read warm and cold, with faults.

use super::*;
use crate::error::Miss;
use crate::geometry::{Geometry, GeometryOptions};
use crate::limits::{PAGE, PAGE_BLOCKS, VALUE_MAX};
use crate::superblock::Superblock;
use crate::testing::TestMedium;
use crate::zone::Zone;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

pub(super) type Model = BTreeMap<Key, Vec<u8>>;
pub(super) type Batch = BTreeMap<Key, Option<Vec<u8>>>;

/// A file system that is only a tree: what the store does around it, in few lines.
pub(super) struct Bench {
    pub medium: Arc<TestMedium>,
    pub pages: Pages,
    pub zone: Zone,
    pub tree: Tree,
    pub sb: Superblock,
    /// Blocks behind this one are not given to the zone yet.
    next_block: u64,
    clock: u64,
}

impl Bench {
    pub fn new(len: u64, byte_addressable: bool) -> Bench {
        let medium = Arc::new(TestMedium::new(len as usize, byte_addressable));
        let geometry = Geometry::plan(len, &GeometryOptions::default()).expect("a possible layout");
        let mut sb = Superblock::new(geometry, [7; 16], [9; 16]);
        sb.store(&*medium).expect("the test medium does not fail");
        let pages = Pages::new(medium.clone(), sb.uuid, geometry.blocks, 1 << 30);
        let zone = Zone::new(geometry.chunk_pages);
        let next_block = geometry.data_blocks().start;
        Bench { medium, pages, zone, tree: Tree::empty(), sb, next_block, clock: geometry.log.len }
    }

    fn grow(&mut self, pages: u64) {
        let blocks = self.zone.blocks_to_grow(pages);
        assert!(self.next_block + blocks <= self.sb.geometry.data_blocks().end, "the test image is too small");
        self.zone.grow(BlockNo(self.next_block), blocks).unwrap();
        self.next_block += blocks;
    }

    /// The part of a checkpoint before the superblock.
    pub fn build(&mut self, batch: Batch) -> FsResult<(Tree, PageRef)> {
        self.clock += 64;
        self.zone.begin_checkpoint();
        let changes = &mut batch.into_iter();
        let tree = self.tree.apply(&self.pages, &mut self.zone, changes, Lsn(self.clock))?;
        let map = self.zone.write_map(&self.pages, Lsn(self.clock))?;
        Ok((tree, map))
    }

    pub fn checkpoint(&mut self, batch: Batch) {
        let bytes = batch.values().flatten().map(Vec::len).sum::<usize>() as u64;
        self.grow(self.zone.pages_needed(batch.len() as u64, bytes));
        let (tree, map) = self.build(batch).expect("the zone was grown enough");
        (self.sb.root, self.sb.zone) = (tree.root(), map);
        self.sb.store(&*self.medium).expect("the test medium does not fail");
        self.zone.finish();
        self.tree = tree;
    }

    /// Forgets everything but the medium.
    pub fn reopen(&mut self) {
        let (sb, warnings) = Superblock::load(&*self.medium).expect("a whole image");
        assert!(warnings.is_empty(), "{warnings:?}");
        assert_eq!(sb, self.sb);
        self.pages = Pages::new(self.medium.clone(), sb.uuid, sb.geometry.blocks, 0);
        let blocking = self.pages.blocking();
        let zone = Zone::load(&blocking, &sb.zone, &sb.geometry).expect("a whole zone map");
        let (live, chunks) = (zone.pages_live(), zone.chunks().to_vec());
        assert_eq!((live, &chunks[..]), (self.zone.pages_live(), self.zone.chunks()));
        self.zone = zone;
        self.tree = Tree::open(&blocking, &sb.root).expect("a whole tree");
        self.sb = sb;
    }

    /// Get, with the fetch loop that the device runs.
    pub fn get(&self, key: Key) -> Option<Vec<u8>> {
        loop {
            match self.tree.get(&self.pages, key) {
                Ok(found) => return found.map(|v| v.to_vec()),
                Err(FsError::Miss(Miss::Page(page))) => {
                    self.pages.fetch(&page, crate::shares::NOBODY).expect("a whole page")
                }
                Err(e) => panic!("{e}"),
            }
        }
    }

    /// Scan, resuming after each miss.
    pub fn scan(&self, from: Key, to: Key) -> Vec<(Key, Vec<u8>)> {
        let (mut from, mut out) = (from, Vec::new());
        loop {
            let result = self.tree.scan_on(&self.pages, &mut from, to, &mut |k, v| {
                out.push((k, v.to_vec()));
                true
            });
            match result {
                Ok(()) => return out,
                Err(FsError::Miss(Miss::Page(page))) => {
                    self.pages.fetch(&page, crate::shares::NOBODY).expect("a whole page")
                }
                Err(e) => panic!("{e}"),
            }
        }
    }

    /// Pages and entries the walk meets; panics on damage.
    pub fn walk(&self) -> (BTreeSet<u64>, Model) {
        let (mut addrs, mut entries) = (BTreeSet::new(), Model::new());
        Tree::walk(&self.tree.root(), &self.pages, &mut |event| match event {
            WalkEvent::Page(page) => assert!(addrs.insert(page.this().addr.0), "a page visited twice"),
            WalkEvent::Entry(k, v) => assert!(entries.insert(k, v.to_vec()).is_none()),
            WalkEvent::Bad(page, e) => panic!("{page:?}: {e}"),
        });
        (addrs, entries)
    }

    /// The tree holds the model, and the zone exactly the pages of tree and map.
    pub fn check(&self, model: &Model) {
        let (addrs, entries) = self.walk();
        assert!(entries == *model, "the walk differs from the model");
        assert!(addrs.iter().all(|&a| self.zone.is_live(BlockNo(a))));
        assert_eq!(self.zone.pages_live(), (addrs.len() + self.zone.map_pages().len()) as u64, "leaked pages");
        assert_eq!(self.zone.pages_total() - self.zone.pages_free(), self.zone.pages_live());
    }
}

pub(super) fn update(model: &mut Model, batch: &Batch) {
    for (k, v) in batch {
        match v {
            Some(v) => drop(model.insert(*k, v.clone())),
            None => drop(model.remove(k)),
        }
    }
}

fn any_key() -> impl Strategy<Value = Key> {
    (1..4u8, 0..20u64, prop_oneof![0..30u64, Just(u64::MAX)]).prop_map(|(k, a, b)| Key::new(k, a, b))
}

fn any_value() -> impl Strategy<Value = Option<Vec<u8>>> {
    let len = prop_oneof![4 => 0..40usize, 3 => 40..600usize, 1 => 600..=VALUE_MAX];
    prop_oneof![
        2 => Just(None),
        5 => (len, any::<u8>()).prop_map(|(n, b)| Some(vec![b; n])),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_batches_give_what_a_map_gives(
        batches in prop::collection::vec(prop::collection::btree_map(any_key(), any_value(), 0..150), 1..12),
        probes in prop::collection::vec((any_key(), any_key()), 8),
        byte_addressable in any::<bool>(),
    ) {
        let (mut bench, mut model) = (Bench::new(64 << 20, byte_addressable), Model::new());
        for (i, batch) in batches.into_iter().enumerate() {
            update(&mut model, &batch);
            bench.checkpoint(batch);
            if i % 2 == 1 {
                bench.reopen();
            }
            bench.check(&model);
            for &(a, b) in &probes {
                prop_assert_eq!(bench.get(a), model.get(&a).cloned());
                let (lo, hi) = (a.min(b), a.max(b));
                let want: Vec<_> = model.range(lo..=hi).map(|(k, v)| (*k, v.clone())).collect();
                prop_assert_eq!(bench.scan(lo, hi), want);
            }
        }
        let all: Batch = model.keys().map(|k| (*k, None)).collect();
        bench.checkpoint(all);
        prop_assert!(bench.tree.root().is_empty());
        bench.check(&Model::new());
    }
}

/// Values of 64 bytes under ascending keys.
pub(super) fn filled(n: u64, len: usize) -> Batch {
    (0..n).map(|i| (Key::new(kind::INODE, i * 3, 0), Some(vec![i as u8; len]))).collect()
}

#[test]
fn a_large_tree_is_found_scanned_and_emptied_in_parts() {
    let mut bench = Bench::new(256 << 20, true);
    let mut model = Model::new();
    let first = filled(120_000, 64);
    update(&mut model, &first);
    bench.checkpoint(first);
    assert_eq!(bench.tree.height(), 3);
    assert!(bench.zone.pages_live() < 120_000 * 85 / (PAGE as u64) * 100 / 85, "pages are packed to 85 % at least");
    bench.reopen();
    for i in (0..360_000).step_by(997) {
        let key = Key::new(kind::INODE, i, 0);
        assert_eq!(bench.get(key), model.get(&key).cloned());
    }
    // thin it out: two of three keys go, neighbours merge
    let thin: Batch = model.keys().filter(|k| k.a % 9 != 0).map(|k| (*k, None)).collect();
    update(&mut model, &thin);
    bench.checkpoint(thin);
    bench.check(&model);
    let before = bench.zone.pages_live();
    let few: Batch = model.keys().filter(|k| k.a % 900 != 0).map(|k| (*k, None)).collect();
    update(&mut model, &few);
    bench.checkpoint(few);
    bench.check(&model);
    assert!(bench.zone.pages_live() * 40 < before, "{} pages after {before}", bench.zone.pages_live());
    assert_eq!(bench.scan(Key::MIN, Key::MAX).len(), model.len());
}

#[test]
fn one_change_rewrites_one_path() {
    let mut bench = Bench::new(64 << 20, true);
    bench.checkpoint(filled(60_000, 64));
    let before = bench.pages.stats().writes;
    bench.checkpoint(Batch::from([(Key::new(kind::INODE, 90_001, 0), Some(vec![1; 64]))]));
    let written = bench.pages.stats().writes - before;
    assert!(written <= u64::from(bench.tree.height()) + 2, "{written} pages for one key");
}

#[test]
fn a_thousand_checkpoints_leak_no_page() {
    let (mut bench, mut model) = (Bench::new(16 << 20, true), Model::new());
    let mut seed = 1u64;
    let mut random = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        seed >> 33
    };
    for round in 0..1000 {
        let batch: Batch = (0..random() % 20)
            .map(|_| {
                let key = Key::new((1 + random() % 3) as u8, random() % 300, 0);
                (key, (random() % 3 > 0).then(|| vec![round as u8; (random() % 900) as usize]))
            })
            .collect();
        update(&mut model, &batch);
        bench.checkpoint(batch);
        if round % 97 == 0 {
            bench.reopen();
        }
    }
    bench.check(&model);
    assert!(bench.zone.pages_total() < 200, "{} pages", bench.zone.pages_total());
}

#[test]
fn an_aborted_checkpoint_leaves_the_old_tree() {
    let (mut bench, mut model) = (Bench::new(64 << 20, false), Model::new());
    let first = filled(20_000, 64);
    update(&mut model, &first);
    bench.checkpoint(first);
    for fail_at in [0, 1, 5, 20] {
        // the zone runs full in the middle, or the medium fails
        let batch: Batch = model.keys().filter(|k| k.a % 2 == 0).map(|k| (*k, Some(vec![3; 100]))).collect();
        bench.medium.fail_writes_after(Some(fail_at));
        assert!(bench.build(batch).is_err());
        bench.medium.fail_writes_after(None);
        bench.zone.abort();
        bench.check(&model);
        bench.reopen();
        bench.check(&model);
    }
    bench.zone.begin_checkpoint();
    while bench.zone.pages_free() > 3 {
        bench.zone.alloc_page().expect("free pages are left");
    }
    let batch: Batch = model.keys().map(|k| (*k, Some(vec![3; 100]))).collect();
    let full = bench.tree.apply(&bench.pages, &mut bench.zone, &mut batch.into_iter(), Lsn(1 << 30));
    assert!(matches!(full, Err(FsError::Errno(e)) if e == weldfs_ciscops::Errno::NOSPC));
    bench.zone.abort();
    bench.check(&model);
}

#[test]
fn every_damaged_byte_of_a_page_is_found() {
    let mut bench = Bench::new(16 << 20, true);
    bench.checkpoint(filled(2_000, 64));
    let (addrs, _) = bench.walk();
    for (n, addr) in addrs.iter().copied().enumerate() {
        for at in (n % 7..PAGE).step_by(if n < 2 { 13 } else { 1021 }) {
            let off = addr * BLOCK as u64 + at as u64;
            bench.medium.flip(off, 1 << (at % 8));
            let mut bad = 0;
            Tree::walk(&bench.tree.root(), &bench.pages, &mut |e| bad += u32::from(matches!(e, WalkEvent::Bad(..))));
            assert_eq!(bad, 1, "byte {at} of page {addr}");
            bench.medium.flip(off, 1 << (at % 8));
        }
    }
    let zone_page = bench.sb.zone;
    for at in (0..PAGE).step_by(61) {
        bench.medium.flip(zone_page.addr.0 * BLOCK as u64 + at as u64, 0x10);
        assert!(Zone::load(&bench.pages, &zone_page, &bench.sb.geometry).is_err());
        bench.medium.flip(zone_page.addr.0 * BLOCK as u64 + at as u64, 0x10);
    }
}

#[test]
fn an_older_page_at_the_same_address_is_found() {
    let mut bench = Bench::new(16 << 20, true);
    bench.checkpoint(filled(10, 64));
    let old = bench.tree.root().page;
    let stale = bench.medium.copy(old.addr.0 * BLOCK as u64, PAGE);
    let mut uses = 0;
    for i in 0..40 {
        bench.checkpoint(Batch::from([(Key::new(1, i, 0), Some(vec![i as u8; 64]))]));
        let new = bench.tree.root().page;
        if new.addr == old.addr && new.birth != old.birth {
            uses += 1;
            // the same address serves a newer page: a lost write would leave the old one there
            let at = new.addr.0 * BLOCK as u64;
            let current = bench.medium.copy(at, PAGE);
            bench.medium.paste(at, &stale);
            assert!(matches!(bench.pages.read_uncached(&new), Err(FsError::Corrupt(_))));
            // even with the checksum made right
            let lucky = PageRef { crc: old.crc, ..new };
            let e = bench.pages.read_uncached(&lucky).expect_err("the birth differs");
            assert!(e.to_string().contains("birth"), "{e}");
            bench.medium.paste(at, &current);
        }
    }
    assert!(uses > 0, "pages are used again");
}

#[test]
fn a_cold_page_on_a_slow_medium_is_a_miss_until_fetched() {
    let mut bench = Bench::new(64 << 20, false);
    bench.checkpoint(filled(50_000, 64));
    bench.reopen();
    let key = Key::new(kind::INODE, 75_000, 0);
    let mut misses = 0;
    let value = loop {
        match bench.tree.get(&bench.pages, key) {
            Ok(v) => break v,
            Err(FsError::Miss(Miss::Page(page))) => bench.pages.fetch(&page, crate::shares::NOBODY).expect("whole"),
            Err(e) => panic!("{e}"),
        }
        misses += 1;
    };
    assert!(value.is_some());
    assert!((1..=2).contains(&misses), "{misses} misses in a tree of height {}", bench.tree.height());
    assert!(bench.tree.get(&bench.pages, key).is_ok(), "warm now");
    assert!(bench.tree.get(&bench.pages.blocking(), Key::new(kind::INODE, 3, 0)).is_ok(), "a thread that may block");
}

#[test]
fn the_cache_keeps_its_budget() {
    let mut bench = Bench::new(64 << 20, true);
    bench.checkpoint(filled(90_000, 128));
    bench.reopen(); // with the least budget
    assert_eq!(bench.scan(Key::MIN, Key::MAX).len(), 90_000);
    let least = bench.pages.stats();
    assert!(least.cached <= least.limit && least.limit < 300, "{least:?}");
    bench.pages.set_budget(1 << 30);
    assert_eq!(bench.scan(Key::MIN, Key::MAX).len(), 90_000);
    assert!(bench.pages.stats().cached > 600);
    bench.pages.set_budget(0);
    assert!(bench.pages.stats().cached <= least.limit);
    assert_eq!(bench.scan(Key::MIN, Key::MAX).len(), 90_000);
    assert!(bench.pages.stats().cached <= least.limit);
}

/// Rewrites the page `at` with `change`, its checksum right again: what a hostile image can hold.
fn forge(bench: &Bench, at: &PageRef, change: impl FnOnce(&mut [u8])) -> PageRef {
    let off = at.addr.0 * BLOCK as u64;
    let mut bytes = bench.medium.copy(off, PAGE);
    change(&mut bytes);
    bench.medium.paste(off, &bytes);
    PageRef { crc: weldfs_functions::crc32c(&bytes), ..*at }
}

#[test]
fn the_bytes_of_a_leaf_are_these() {
    let mut bench = Bench::new(16 << 20, true);
    bench.checkpoint(Batch::from([(Key::new(2, 0x0102, 0x0304), Some(b"value".to_vec()))]));
    let root = bench.tree.root().page;
    let bytes = bench.medium.copy(root.addr.0 * BLOCK as u64, PAGE);
    let hex = |b: &[u8]| b.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let (addr, birth) = (root.addr.0.to_le_bytes(), root.birth.0.to_le_bytes());
    let head = format!("5746706701000100{}{}{}fb3f0000", "07".repeat(16), hex(&addr), hex(&birth));
    assert_eq!(hex(&bytes[..44]), head);
    assert_eq!(hex(&bytes[44..64]), "00".repeat(20));
    assert_eq!(hex(&bytes[64..85]), "0200000000000001020000000000000304fb3f0500");
    assert_eq!(&bytes[PAGE - 5..], b"value");
}

#[test]
fn two_parents_of_one_page_and_wrong_ranges_are_found() {
    let mut bench = Bench::new(16 << 20, true);
    bench.checkpoint(filled(2_000, 64));
    let TreeRoot { page, height } = bench.tree.root();
    assert_eq!(height, 2);
    // the second child is the first once more
    let twice = forge(&bench, &page, |b| {
        let first = b[page::HEADER + Key::BYTES..page::HEADER + page::BRANCH].to_vec();
        b[page::HEADER + page::BRANCH + Key::BYTES..page::HEADER + 2 * page::BRANCH].copy_from_slice(&first);
    });
    let root = TreeRoot { page: twice, height };
    let (mut bad, mut good) = (0, 0);
    Tree::walk(&root, &bench.pages, &mut |e| match e {
        WalkEvent::Bad(..) => bad += 1,
        WalkEvent::Page(_) => good += 1,
        WalkEvent::Entry(..) => {}
    });
    assert_eq!((bad, good > 5), (1, true), "the walk goes on behind the damage");
    let tree = Tree::open(&bench.pages, &root).expect("the root itself is sound");
    assert!(tree.scan(&bench.pages, Key::MIN, Key::MAX, &mut |_, _| true).is_err());
    for height in [0, 1, 3, 255] {
        assert!(Tree::open(&bench.pages, &TreeRoot { page: twice, height }).is_err(), "height {height}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn pages_of_any_bytes_do_no_harm(
        edits in prop::collection::vec((0..400usize, any::<u8>()), 1..6), leaf in any::<bool>(), probe in any_key(),
    ) {
        let mut bench = Bench::new(4 << 20, true);
        bench.checkpoint(filled(if leaf { 50 } else { 1_000 }, 64));
        let TreeRoot { page, height } = bench.tree.root();
        let root = forge(&bench, &page, |b| edits.iter().for_each(|&(at, byte)| b[at] = byte));
        let root = TreeRoot { page: root, height };
        let mut visited = 0;
        Tree::walk(&root, &bench.pages, &mut |_| visited += 1);
        prop_assert!(visited < 5_000);
        if let Ok(tree) = Tree::open(&bench.pages, &root) {
            let _ = tree.get(&bench.pages, probe);
            let _ = tree.scan(&bench.pages, probe, Key::MAX, &mut |_, v| v.len() <= VALUE_MAX);
            bench.zone.begin_checkpoint();
            let batch = &mut filled(3_000, 10).into_iter();
            let _ = tree.apply(&bench.pages, &mut bench.zone, batch, Lsn(1 << 40));
            bench.zone.abort();
        }
    }
}

#[test]
#[ignore = "a measurement: run with --release --ignored --nocapture"]
fn measure_a_million_keys() {
    for len in [32usize, 96] {
        let mut bench = Bench::new(1 << 30, true);
        let n = 1_000_000u64;
        let batch = filled(n, len);
        let start = std::time::Instant::now();
        bench.checkpoint(batch);
        let build = start.elapsed();
        let mut seed = 1u64;
        let mut key = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            Key::new(kind::INODE, (seed >> 33) % n * 3, 0)
        };
        let get = |keys: &mut dyn FnMut() -> Key| {
            let start = std::time::Instant::now();
            let mut sum = 0;
            for _ in 0..n {
                sum += bench.tree.get(&bench.pages, keys()).expect("whole").map_or(0, |v| v[0] as u64);
            }
            (start.elapsed().as_nanos() as u64 / n, std::hint::black_box(sum))
        };
        let (warmup, _) = get(&mut key);
        let (random, _) = get(&mut key);
        let mut local = {
            let mut i = 0;
            move || {
                i = (i + 7) % 3_000;
                Key::new(kind::INODE, i * 3, 0)
            }
        };
        let (hot, _) = get(&mut local);
        let start = std::time::Instant::now();
        let mut seen = 0;
        bench
            .tree
            .scan(&bench.pages, Key::MIN, Key::MAX, &mut |_, _| {
                seen += 1;
                true
            })
            .expect("whole");
        let scan = start.elapsed().as_nanos() as u64 / seen;
        let few: Batch = (0..10_000).map(|_| (key(), Some(vec![1; len]))).collect();
        let before = bench.pages.stats().writes;
        let start = std::time::Instant::now();
        bench.checkpoint(few);
        println!(
            "values of {len} B, height {}, {} pages: build {build:?}; get random {random} ns (first pass {warmup} ns), \
             get among 3000 keys {hot} ns; scan {scan} ns per key; 10,000 random changes {:?}, {} pages written",
            bench.tree.height(),
            bench.zone.pages_live(),
            start.elapsed(),
            bench.pages.stats().writes - before,
        );
    }
}

#[test]
fn a_reference_anywhere_outside_is_refused() {
    let bench = Bench::new(16 << 20, true);
    for addr in [0, bench.sb.geometry.blocks - PAGE_BLOCKS + 1, 1 << 48, u64::MAX - 3, u64::MAX] {
        let page = PageRef { addr: BlockNo(addr), birth: Lsn(1), crc: 0 };
        assert!(matches!(bench.pages.get(&page), Err(FsError::Corrupt(_))));
    }
}

#[test]
fn keys_order_as_their_bytes_do() {
    let keys = [Key::MIN, Key::new(1, 0, 1), Key::new(1, 255, 0), Key::new(1, 256, 0), Key::new(2, 0, 0), Key::MAX];
    for pair in keys.windows(2) {
        assert!(pair[0] < pair[1] && pair[0].bytes() < pair[1].bytes() && pair[0].split() < pair[1].split());
        assert_eq!(Key::read(&pair[0].bytes()), pair[0]);
    }
}
