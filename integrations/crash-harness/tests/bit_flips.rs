//! One wrong bit anywhere in superblock, log or metadata pages is detected or harmless: the image is refused, or
//! reading says EIO, or the tree is what it was. The one exception is the log's tail that no recorded watermark covers:
//! rot there looks like a torn tail, and shows an earlier tree.
//!
//! `WELDFS_FLIP_EVERYTHING=1` flips a bit in every byte of every block that holds anything, data included.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use weldfs_crash_harness::flips::{Counts, Flipped};
use weldfs_storagefs::media::CrashModel;

const MODELS: [CrashModel; 2] = [CrashModel::Block, CrashModel::Pmem];

fn report(what: &str, model: CrashModel, counts: &Counts) {
    let Counts { flips, refused, errors, harmless, cut, bad } = counts;
    println!(
        "{model:?}, {what}: {flips} flips: {refused} refused, {errors} EIO, {harmless} harmless, {cut} cut the tail"
    );
    assert!(bad.is_empty(), "{model:?}, {what}: {} bad: {:#?}", bad.len(), &bad[..bad.len().min(10)]);
    assert!(*flips > 0);
}

#[test]
fn any_wrong_bit_of_a_superblock_copy_is_detected_or_harmless() {
    for model in MODELS {
        let image = Flipped::new(model, false).unwrap();
        let counts = image.flip(&image.superblocks(), 1, 2);
        report("superblock", model, &counts);
        assert_eq!(counts.harmless, counts.flips, "the other copies stand in for a damaged one");
    }
}

#[test]
fn any_wrong_bit_of_a_metadata_page_is_detected_or_harmless() {
    for model in MODELS {
        let image = Flipped::new(model, false).unwrap();
        let counts = image.flip(&image.pages(), 1, 1);
        report("metadata pages", model, &counts);
        assert!(counts.refused + counts.errors > 0);
        assert_eq!(counts.cut, 0);
    }
}

#[test]
fn any_wrong_bit_of_the_recorded_log_is_detected_or_harmless() {
    for model in MODELS {
        let image = Flipped::new(model, false).unwrap();
        let counts = image.flip(&image.log(), 1, 1);
        report("log", model, &counts);
        assert!(counts.refused > 0);
        assert_eq!(counts.cut, 0, "every record is covered by a recorded watermark");
    }
}

#[test]
fn any_wrong_bit_of_the_unrecorded_tail_shows_an_earlier_tree_at_worst() {
    for model in MODELS {
        let image = Flipped::new(model, true).unwrap();
        let counts = image.flip(&image.log(), 7, 1);
        report("log with a tail", model, &counts);
        assert!(counts.cut > 0);
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
