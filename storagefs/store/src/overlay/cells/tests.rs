use super::*;
use std::sync::Arc;

fn entry(dir: u64, cookie: u64, name: &[u8]) -> Dirent {
    Dirent { dir: InodeNo(dir), cookie, ino: InodeNo(9), ftype: 8, mark: 0, name: Arc::from(name) }
}

#[test]
fn a_table_holds_no_more_than_its_bytes_and_keeps_what_is_used() {
    let mut cells = Cells::<u64, u64>::default();
    cells.put(1, 1, 0);
    assert!(cells.get(&1).is_none() && cells.bytes() == 0, "no room was given to it yet");
    let limit = 100 * Cells::<u64, u64>::EACH;
    cells.set_limit(limit);
    for n in 0..10_000u64 {
        assert!(n == 0 || cells.get(&0) == Some(&0), "who is looked at all the time stays, at {n}");
        cells.put(n, n, (n % 3) as usize * 50);
        assert!(cells.bytes() <= limit, "{cells:?} after {n}");
        assert_eq!(cells.get(&n), Some(&n), "the last one is there");
    }
    assert!(cells.bytes() > limit / 2, "the room is used: {cells:?}");
    cells.put(5, 5, limit);
    assert!(cells.get(&5).is_none(), "what is larger than all of the room is not kept");
    cells.set_limit(limit / 10);
    assert!(cells.bytes() <= limit / 10 && cells.slots.len() == cells.index.len());
    assert!(cells.slots.capacity() < 100, "memory is given back: {}", cells.slots.capacity());
    cells.set_limit(0);
    assert_eq!((cells.bytes(), cells.slots.len(), cells.index.len()), (0, 0, 0));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..Default::default() })]

    /// Whatever comes and goes: a key has the value that it was given last, or none, and the bytes are those of all.
    #[test]
    fn a_table_never_gives_another_value_than_the_last(
        steps in proptest::collection::vec((0u64..40, 0usize..300, 0u8..8), 1..400),
    ) {
        let mut cells = Cells::<u64, usize>::default();
        cells.set_limit(20 * Cells::<u64, usize>::EACH);
        let mut last = std::collections::HashMap::new();
        for (at, (key, elsewhere, what)) in steps.into_iter().enumerate() {
            match what {
                0 => {
                    cells.remove(&key);
                    last.remove(&key);
                }
                1 => cells.retain(|k| k % 4 != 0),
                _ => {
                    cells.put(key, at, elsewhere);
                    last.insert(key, at);
                }
            }
            for key in 0..40 {
                let found = cells.get(&key).copied();
                proptest::prop_assert!(found.is_none() || found == last.get(&key).copied());
            }
            let sum: usize = cells.slots.iter().map(|s| s.bytes).sum();
            proptest::prop_assert!(sum == cells.bytes() && sum <= cells.limit);
            proptest::prop_assert_eq!(cells.slots.len(), cells.index.len());
        }
    }
}

#[test]
fn a_hash_is_never_taken_for_a_name() {
    let cells = NameCells::default();
    cells.set_limit(1 << 20);
    let (dir, first) = (InodeNo(1), 7 << COLLISION_BITS);
    assert!(cells.get(dir, first, b"a").is_none());
    cells.keep(dir, first, Some(&entry(1, first, b"a")));
    assert_eq!(cells.get(dir, first, b"a"), Some(Ok(entry(1, first, b"a"))));
    assert!(cells.get(dir, first, b"b").is_none(), "nothing is said of another name of that hash");
    assert!(cells.get(InodeNo(2), first, b"a").is_none(), "nor of another directory");
    cells.keep(dir, first, None);
    assert_eq!(cells.get(dir, first, b"b"), Some(Err(())), "an empty bucket has no name at all");
    cells.changed(&entry(1, first + 3, b"b"));
    assert_eq!(cells.get(dir, first, b"b"), Some(Ok(entry(1, first + 3, b"b"))));
    cells.changed(&entry(1, first + (1 << COLLISION_BITS), b"c"));
    assert!(cells.get(dir, first + (1 << COLLISION_BITS), b"c").is_none(), "only what was looked for is kept");
    cells.removed(dir, first + 3);
    assert!(cells.get(dir, first, b"b").is_none());
}

#[test]
fn names_of_one_directory_share_all_of_the_room() {
    let cells = NameCells::default();
    cells.set_limit(256 << 10);
    let mut there = 0;
    for n in 0..2000u64 {
        cells.keep(InodeNo(1), n << COLLISION_BITS, Some(&entry(1, n << COLLISION_BITS, &n.to_le_bytes())));
        assert!(cells.bytes() <= 256 << 10);
    }
    (0..2000u64)
        .for_each(|n| there += usize::from(cells.get(InodeNo(1), n << COLLISION_BITS, &n.to_le_bytes()).is_some()));
    let each = Cells::<Bucket, Option<Dirent>>::EACH + 8 + NAME_BYTES;
    assert!(there * each > 150 << 10, "{there} names of one directory in the room of {}", (256 << 10) / each);
}
