//! Names of forged images: what a listing leaves out, makes up or takes for another is found; another tree is none.

use crate::images::harm::{Harmed, case, kind};
use crate::images::judge::forged;
use crate::images::look::{EIO, Look};
use crate::images::names::Held;
use crate::images::pristine::BLOCK;
use crate::images::tree::Tree;
use std::collections::BTreeSet;
use weldfs_ciscops::dirent::dtype;
use weldfs_fuzz_targets::cursor::Cursor;
use weldfs_fuzz_targets::media::{Base, draft, number};
use weldfs_media::CowImage;

/// A base as it is, and a draft of it with one edit.
const CLEAN: u8 = 2;
const BASES: u8 = 5;

fn made(base: u8, edits: &[&[u8]]) -> (&'static Base, CowImage) {
    let input = [&[base, edits.len() as u8][..], &edits.concat()].concat();
    let (of, image, _) = draft(&mut Cursor(&input));
    (of, image)
}

/// The place among all entries of the clean base's tree of the one that names this.
fn entry_of(name: &[u8]) -> [u8; 2] {
    let (of, _) = made(CLEAN, &[]);
    let mut all = of.leaves.iter().flat_map(|leaf| &leaf.entries);
    let at = all.position(|(key, value)| key[0] == 2 && value.ends_with(name)).unwrap();
    (at as u16).to_le_bytes()
}

/// An edit that gives the entry of a name another value.
fn replaced(name: &[u8], value: &[u8]) -> Vec<u8> {
    [&[3][..], &entry_of(name), &(value.len() as u16).to_le_bytes(), value].concat()
}

#[test]
fn what_sound_images_show_is_what_their_trees_and_logs_hold() {
    for base in 0..BASES {
        let (of, image) = made(base, &[]);
        let (held, shown) = (Held::of(&image, of).unwrap(), super::shown(&image));
        assert_eq!(held.judge(&shown, true), Ok(()), "{}", of.name);
        let sure = held.sure();
        assert!(sure.keys().all(|path| shown.entries.contains_key(path)), "{}: {:?}", of.name, sure.keys());
        let stats = sure.iter().all(|(path, item)| {
            let entry = &shown.entries[path];
            entry.dtype == item.dtype && entry.stat.is_ok_and(|stat| stat.3 == item.ino)
        });
        assert!(stats, "{}", of.name);
        // All of them, but for those that the log speaks of, and the bases without a tree to speak of.
        let most = if base == CLEAN {
            shown.entries.len()
        } else if of.name == "empty" {
            0
        } else {
            8
        };
        assert!(sure.len() >= most, "{}: {} of {}", of.name, sure.len(), shown.entries.len());
    }
}

/// Where nothing could be compared nothing would be found.
#[test]
fn of_most_forged_images_there_are_names_to_compare() {
    let (mut mounted, mut known, mut with_log) = (0, 0, 0);
    for n in (0..400).filter(|n| kind(*n) == "seal") {
        let Harmed::Sealed { of, image, .. } = case(5, n).harmed else { panic!("no forged image") };
        let Some(shown) = super::mounted(&image).filter(|shown| shown.listed[&b""[..]].is_ok()) else { continue };
        mounted += 1;
        let sure = Held::of(&image, of).map_or(0, |held| held.sure().len());
        known += usize::from(sure > 0);
        with_log += usize::from(sure > 0 && of.name.starts_with("log"));
        // A listing without any name would be found, as far as that goes.
        let mut empty = shown.clone();
        empty.listed.insert(Vec::new(), Ok(BTreeSet::new()));
        let found = Held::of(&image, of).is_some_and(|held| held.judge(&empty, false).is_err());
        assert_eq!(found, sure > 0, "image {n}");
    }
    assert!(mounted > 50 && known * 3 > mounted && with_log > 10, "{mounted}, {known}, {with_log}");
}

#[test]
fn a_name_that_a_listing_leaves_out_or_makes_up_is_found() {
    let (of, image) = made(CLEAN, &[]);
    let (held, truth) = (Held::of(&image, of).unwrap(), super::shown(&image));
    let found = |clean: bool, change: &dyn Fn(&mut Look)| {
        let mut other = truth.clone();
        change(&mut other);
        held.judge(&other, clean).expect_err("the change is found")
    };
    let names = |l: &mut Look, dir: &[u8], change: &dyn Fn(&mut BTreeSet<Vec<u8>>)| {
        change(l.listed.get_mut(dir).unwrap().as_mut().unwrap());
    };
    let why = found(false, &|l| names(l, b"a", &|set| assert!(set.remove(&b"block"[..]))));
    assert!(why.contains("/a: listed with success without `block`"), "{why}");
    let why = found(false, &|l| names(l, b"", &|set| assert!(set.insert(b"no-such".to_vec()))));
    assert!(why.contains("`no-such` is listed, and nothing holds it"), "{why}");
    let why = found(false, &|l| l.entries.get_mut(&b"big"[..]).unwrap().stat.as_mut().unwrap().3 += 1);
    assert!(why.contains("`big` leads to inode"), "{why}");
    let why = found(false, &|l| l.entries.get_mut(&b"big"[..]).unwrap().stat = Err(libc::ENOENT));
    assert!(why.contains("`big` is listed and leads nowhere"), "{why}");
    let why = found(true, &|l| drop(l.listed.remove(&b"a"[..])));
    assert!(why.contains("in directory 2 is not listed"), "{why}");
    // What is EIO is no lie, where fsck says that something is wrong.
    let mut unread = truth.clone();
    unread.listed.insert(b"a".to_vec(), Err(EIO));
    unread.entries.get_mut(&b"big"[..]).unwrap().stat = Err(EIO);
    assert_eq!(held.judge(&unread, false), Ok(()));
}

#[test]
fn a_name_that_leads_nowhere_in_a_clean_image_is_found_whatever_is_known_of_it() {
    let (_, image) = made(CLEAN, &[]);
    let mut shown = super::shown(&image);
    assert_eq!(forged(None, &shown, true), Ok(()));
    shown.entries.get_mut(&b"big"[..]).unwrap().stat = Err(libc::ENOENT);
    assert_eq!(forged(None, &shown, false), Ok(()));
    assert!(forged(None, &shown, true).unwrap_err().contains("/big is listed and leads nowhere"));
}

#[test]
fn a_listing_that_goes_over_a_page_or_an_entry_which_is_none_is_found() {
    let (of, image) = made(CLEAN, &[]);
    let truth = super::shown(&image);
    let judged = |image: &CowImage| Held::of(image, of).unwrap().judge(&truth, false);
    let (mut hit, mut bytes) = (0, [0; 8]);
    for page in &of.pages {
        // The first block that the page says of itself.
        let mut other = image.clone();
        other.read(page * BLOCK + 24, &mut bytes);
        assert_eq!(number(&bytes, 0, 8), *page);
        other.write(page * BLOCK + 24, &[bytes[0] ^ 1]);
        hit += usize::from(judged(&other).is_err_and(|why| why.contains("a page with its names is none")));
    }
    assert!(hit > 1, "the root and a leaf at least");
    let (_, other) = made(CLEAN, &[&replaced(b"big", b"\xff")]);
    assert!(judged(&other).is_err_and(|why| why.contains("one of its entries is none")));
    assert_eq!(Held::of(&other, of).unwrap().judge(&super::shown(&other), false), Ok(()));
}

#[test]
fn a_forged_entry_is_another_tree_and_no_one_knows_where_it_leads() {
    // Under the key of `big`: an entry of another name, and one that names no inode.
    for value in [&b"\x01\x05\x08\x00\x05other"[..], b"\x01\x7f\x08\x00\x03big"] {
        let (of, image) = made(CLEAN, &[&replaced(b"big", value)]);
        let (held, shown) = (Held::of(&image, of).unwrap(), super::shown(&image));
        assert_eq!(held.judge(&shown, false), Ok(()));
        let (sure, name) = (held.sure(), if value.ends_with(b"big") { &b"big"[..] } else { b"other" });
        assert_eq!((sure[name].dtype, sure[&b"a/block"[..]].dtype), (dtype::UNKNOWN, dtype::REG));
        // Nor is the base's tree what is compared with.
        assert!(held.judge(&super::shown(&of.image), false).is_err());
    }
}

#[test]
fn what_goes_with_a_name_is_all_that_the_tree_has_below_it() {
    let (of, image) = made(CLEAN, &[]);
    let held = Held::of(&image, of).unwrap();
    let sure = held.sure();
    let goes = held.goes_with(b"a");
    let below = |path: &&Vec<u8>| path.starts_with(b"a/") || path[..] == b"a"[..];
    assert_eq!(goes, sure.iter().filter(|(path, _)| below(path)).map(|(_, item)| item.ino).collect());
    // An entry of `a` that names the root: all goes.
    let forged = [&[1, 1, 4, 0][..], &[5], b"block"].concat();
    let (of, image) = made(CLEAN, &[&replaced(b"block", &forged)]);
    assert!(Held::of(&image, of).unwrap().goes_with(b"a").contains(&sure[&b"big"[..]].ino));
}

#[test]
fn a_tree_that_cannot_be_read_to_its_end_has_nothing() {
    let tree = Tree::read(&CowImage::new(vec![0; 4 << 20])).unwrap();
    assert!(tree.entries.is_empty() && tree.has_all_of(1), "the empty tree");
    let mut bytes = vec![0; 4 << 20];
    bytes[732] = 2;
    let tree = Tree::read(&CowImage::new(bytes)).unwrap();
    assert!(tree.entries.is_empty() && !tree.has_all_of(1), "a root that is no page");
}
