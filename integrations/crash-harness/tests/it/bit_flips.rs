//! One wrong bit anywhere in superblock, log or metadata pages is detected or harmless: the image is refused, or
//! reading says EIO, or the tree is what it was. The one exception is the log's tail that no recorded watermark covers:
//! rot there looks like a torn tail, and shows an earlier tree. Each image is mounted for writing and read-only; the
//! latter finishes nothing, so there, and only there, the tail may also show a transaction half way: one that the mount
//! for writing finishes.
//!
//! `WELDFS_FLIP_EVERYTHING=1` flips a bit in every byte of every block that holds anything, data included.

use weldfs_crash_harness::flips::{Counts, Flipped, Shown};
use weldfs_media::CrashModel;

const MODELS: [CrashModel; 2] = [CrashModel::Block, CrashModel::Pmem];

fn report(what: &str, model: CrashModel, counts: &Counts) {
    let Counts { flips, writable, read_only, bad } = counts;
    println!("{model:?}, {what}: {flips} flips: for writing {writable:?}; read-only {read_only:?}");
    assert!(bad.is_empty(), "{model:?}, {what}: {} bad: {:#?}", bad.len(), &bad[..bad.len().min(10)]);
    assert!(*flips > 0);
    for s in [writable, read_only] {
        assert_eq!(s.refused + s.errors + s.harmless + s.cut + s.middle, *flips, "every flip is judged in both mounts");
    }
}

/// What was shown for writing, and read-only.
fn both(counts: &Counts) -> [&Shown; 2] {
    [&counts.writable, &counts.read_only]
}

#[test]
fn any_wrong_bit_of_a_superblock_copy_is_detected_or_harmless() {
    for model in MODELS {
        let image = Flipped::new(model, false).unwrap();
        let counts = image.flip(&image.superblocks(), 1, 2);
        report("superblock", model, &counts);
        for shown in both(&counts) {
            assert_eq!(shown.harmless, counts.flips, "the other copies stand in for a damaged one");
        }
    }
}

#[test]
fn any_wrong_bit_of_a_metadata_page_is_detected_or_harmless() {
    for model in MODELS {
        let image = Flipped::new(model, false).unwrap();
        let counts = image.flip(&image.pages(), 1, 1);
        report("metadata pages", model, &counts);
        for shown in both(&counts) {
            assert!(shown.refused + shown.errors > 0);
            assert_eq!((shown.cut, shown.middle), (0, 0));
        }
    }
}

#[test]
fn any_wrong_bit_of_the_recorded_log_is_detected_or_harmless() {
    for model in MODELS {
        let image = Flipped::new(model, false).unwrap();
        let counts = image.flip(&image.log(), 1, 1);
        report("log", model, &counts);
        for shown in both(&counts) {
            assert!(shown.refused > 0);
            assert_eq!((shown.cut, shown.middle), (0, 0), "every record is covered by a recorded watermark");
        }
    }
}

#[test]
fn any_wrong_bit_of_the_unrecorded_tail_shows_an_earlier_tree_at_worst() {
    for model in MODELS {
        let image = Flipped::new(model, true).unwrap();
        let counts = image.flip(&image.log(), 7, 1);
        report("log with a tail", model, &counts);
        assert!(counts.writable.cut > 0 && counts.read_only.cut > 0);
        assert!(counts.read_only.middle > 0, "rot behind the first half of a transaction");
        assert_eq!(counts.writable.middle, 0, "recovery finishes it");
    }
}

#[test]
fn any_wrong_bit_of_anything_is_detected_or_harmless() {
    let step = if std::env::var_os("WELDFS_FLIP_EVERYTHING").is_some() { 1 } else { 97 };
    for model in MODELS {
        let image = Flipped::new(model, false).unwrap();
        report("everything", model, &image.flip(&image.everything(), step, 1));
    }
}
