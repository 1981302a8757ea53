//! The judge finds what must not be: planted bugs, and trees that differ in anything.

mod names;
mod verbs;

use super::harm::{Harmed, MARK, case};
use super::judge::{Verdict, judge, of_lost};
use super::look::{EIO, Look, look};
use super::pristine::{BLOCK, COVERED, Pristine, pristine};
use super::{harm, judged};
use std::sync::Arc;
use weldfs_crash_harness::hand::{Hand, small_mount};
use weldfs_journal::canary::{self, Canary};
use weldfs_media::{CowImage, CowMedium};

fn bad(count: u64) -> usize {
    (0..count).filter(|n| judged(&case(3, *n)).is_err()).count()
}

#[test]
fn damaged_images_find_planted_bugs_and_nothing_else() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    assert_eq!(bad(400), 0);
    for bug in [Canary::ReplayCrcUnchecked, Canary::MidLogRotTakenForTail] {
        canary::plant_here(Some(bug));
        assert!(bad(1000) > 0, "{bug:?}");
        canary::plant_here(None);
    }
    assert_eq!(bad(400), 0);
    std::panic::set_hook(hook);
}

fn mounted(image: &CowImage) -> Option<Look> {
    let medium = Arc::new(CowMedium::new(image.clone(), pristine()[2].base.model));
    let (store, _) = weldfs_fs::mount(medium, small_mount(4)).ok()?;
    Some(look(&mut Hand::new(store)))
}

fn shown(image: &CowImage) -> Look {
    mounted(image).unwrap()
}

#[test]
fn a_tree_that_differs_in_anything_is_not_the_one_that_was_made() {
    let truth = shown(&pristine()[2].base.image);
    assert_eq!(truth.fits(&truth), Ok(()));
    let differs = |change: &dyn Fn(&mut Look)| {
        let mut other = truth.clone();
        change(&mut other);
        assert!(other.fits(&truth).is_err());
    };
    differs(&|l| drop(l.listed.get_mut(&b"many"[..]).unwrap().as_mut().unwrap().pop_first()));
    differs(&|l| l.entries.get_mut(&b"big"[..]).unwrap().pieces[3].as_mut().unwrap()[7] ^= 1);
    differs(&|l| l.entries.get_mut(&b"big"[..]).unwrap().stat.as_mut().unwrap().2 += 1);
    differs(&|l| l.entries.get_mut(&b"big"[..]).unwrap().stat.as_mut().unwrap().3 += 1);
    differs(&|l| l.entries.get_mut(&b"big"[..]).unwrap().xattrs.as_mut().unwrap().clear());
    let mut unread = truth.clone();
    unread.entries.get_mut(&b"big"[..]).unwrap().pieces[3] = Err(EIO);
    unread.listed.insert(b"many".to_vec(), Err(EIO));
    assert_eq!(unread.fits(&truth), Ok(()), "what is EIO is no lie");
}

#[test]
fn sound_images_are_whole_and_an_image_is_the_same_each_time() {
    for of in pristine() {
        let image = of.base.image.clone();
        assert_eq!(of.allowed(&image).len(), 1, "{}: nothing may be missing from it", of.base.name);
        assert_eq!(judge(&Harmed::Plain { of, image }), Ok(Verdict::Whole), "{}", of.base.name);
    }
    for n in 0..50 {
        let digest = || harm::image(&case(9, n).harmed).digest();
        assert_eq!(digest(), digest());
    }
}

/// Every block of a file under other bytes, its checksum as it was: EIO. (Some blocks belong to no file any more.)
#[test]
fn overwritten_data_is_eio_and_would_be_found() {
    let of = &pristine()[2];
    let verdicts: Vec<_> = of
        .data()
        .into_iter()
        .map(|block| {
            let mut image = of.base.image.clone();
            image.write(block * BLOCK, MARK);
            judge(&Harmed::Plain { of, image })
        })
        .collect();
    assert!(verdicts.iter().all(Result::is_ok), "{verdicts:?}");
    assert!(verdicts.iter().filter(|v| **v == Ok(Verdict::Errors)).count() > 10, "{verdicts:?}");
}

/// A record that no watermark covers is destroyed: the tree before it is shown, and a mount that said nothing of the
/// records behind it would be found. Behind the last one there is none.
#[test]
fn a_mount_that_is_silent_about_whole_records_behind_the_end_is_found() {
    for of in &pristine()[..2] {
        silent_mounts_are_found(of);
    }
}

fn silent_mounts_are_found(of: &'static Pristine) {
    let told = |tail: u64, image: &CowImage| [true, false].map(|told| of_lost(of, image, tail, told).is_ok());
    let (mut cut, mut followed) = (0, 0);
    for (tail, _) in &of.history {
        let mut image = of.base.image.clone();
        image.write(of.log.start + tail % (of.log.end - of.log.start), &[0; 64]);
        match judge(&Harmed::Plain { of, image: image.clone() }) {
            Ok(Verdict::Cut) => cut += 1,
            verdict => assert!(verdict.is_ok(), "{verdict:?}"),
        }
        followed += usize::from(told(*tail, &image) == [true, false]);
    }
    assert!(cut > 2 && followed > cut, "{cut} and {followed} of {}", of.history.len());
    assert_eq!(told(u64::MAX, &of.base.image), [true, true]);
    // All that no watermark covers is gone: that is a log which ended there, and there is nothing to say.
    let (tail, _) = of.history[COVERED];
    let mut image = of.base.image.clone();
    let (from, to) = (of.log.start + tail % (of.log.end - of.log.start), of.log.end);
    image.write(from, &vec![0; (to - from) as usize]);
    assert_eq!(told(tail, &image), [true, true]);
    assert_eq!(judge(&Harmed::Plain { of, image }), Ok(Verdict::Cut));
}
