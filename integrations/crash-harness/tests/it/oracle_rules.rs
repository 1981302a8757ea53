//! The oracle lets through exactly the states that may be there, and names the rule that any other breaks.

use std::sync::Arc;
use weldfs_crash_harness::model::Content;
use weldfs_crash_harness::states::oracle::{Ack, Point};
use weldfs_crash_harness::states::{History, Setup, Tree, Workload, mount_options, perform, read_tree};
use weldfs_media::{CowImage, CowMedium, CrashModel, Replayer};
use weldfs_store::MountOptions;

/// A durable write, three volatile changes, and an fsync over them.
const LINE: &str = "write foo 0 8192 durable; rename A/foo C over; append bar 100; setxattr foo 1 50; \
    chmod foo 600; link foo A/bar fsync";

fn history() -> (History, u64) {
    let setup = Setup::new(CrashModel::Block).expect("the tiny tree is made");
    let workload = Workload::parse(LINE).expect("well formed");
    let performed = perform(&setup, &workload).expect("store and model agree");
    (performed.history, performed.recording.len())
}

/// The middle: the write is acknowledged, the rest is not, and all have begun.
fn middle(h: &History) -> u64 {
    let first = h.acks.iter().find(|a| a.point == 1).expect("the durable write");
    let last = h.acks.last().expect("the fsync");
    assert!(first.event < last.event);
    last.event - 1
}

fn broken(h: &History, cut: u64, tree: &Tree) -> u8 {
    h.judge(cut, tree).expect_err("this tree may not be found").rule
}

#[test]
fn every_prefix_from_the_last_promise_on_may_be_found_and_no_other() {
    let (h, end) = history();
    assert_eq!(h.points.len(), 7);
    let mut seen = std::collections::BTreeSet::new();
    for cut in 0..=end {
        let allowed = h.allowed(cut);
        seen.insert(allowed.clone().count());
        for (i, point) in h.points.iter().enumerate() {
            assert_eq!(h.judge(cut, &point.tree).is_ok(), allowed.contains(&i), "cut {cut}, point {i}, {allowed:?}");
        }
    }
    assert_eq!(h.allowed(end), 6..=6);
    assert_eq!(h.allowed(0), 0..=0);
    assert!(seen.contains(&2) && seen.contains(&6), "{seen:?}");
}

#[test]
fn a_lost_durable_effect_breaks_rule_2() {
    let (h, end) = history();
    assert_eq!(broken(&h, middle(&h), &h.points[0].tree), 2);
    assert_eq!(broken(&h, end, &h.points[5].tree), 2);
    let mut old = h.points[6].tree.clone();
    old.entries.insert(b"/foo".to_vec(), h.points[0].tree.entries[&b"/foo"[..]].clone());
    old.entries.remove(&b"/A/bar"[..]);
    old.entries.insert(b"/A".to_vec(), h.points[1].tree.entries[&b"/A"[..]].clone());
    assert_eq!(broken(&h, middle(&h), &old), 2, "the file is as before the durable write");
    let bad = h.judge(end, &h.points[5].tree).expect_err("lost");
    assert!(bad.to_string().contains("link foo A/bar"), "{bad}");
}

#[test]
fn a_half_visible_operation_breaks_rule_3() {
    let (h, _) = history();
    let cut = middle(&h);
    // Both names of the rename, then none.
    let (before, after) = (&h.points[1].tree, &h.points[2].tree);
    let mut both = after.clone();
    both.entries.insert(b"/A/foo".to_vec(), before.entries[&b"/A/foo"[..]].clone());
    assert_eq!(broken(&h, cut, &both), 3);
    let mut none = after.clone();
    none.entries.remove(&b"/C"[..]);
    assert_eq!(broken(&h, cut, &none), 3);
    // The attributes of one point and the content of another.
    let mut grown = h.points[2].tree.clone();
    let size = h.points[3].tree.entries[&b"/bar"[..]].stat.size;
    grown.entries.get_mut(&b"/bar"[..]).expect("bar").stat.size = size;
    assert_eq!(broken(&h, cut, &grown), 3);
}

#[test]
fn content_that_is_neither_old_nor_new_breaks_rule_4() {
    let (h, _) = history();
    let cut = middle(&h);
    // One block of the write, and one block from before it.
    let (old, new) = (&h.points[0].tree.entries[&b"/foo"[..]], &h.points[1].tree.entries[&b"/foo"[..]]);
    let mut mixed = Content::default();
    for (at, bytes) in new.content.blocks() {
        let from = if *at == 1 { old.content.block(*at).expect("the old block") } else { bytes };
        mixed.push(*at, from.clone());
    }
    let mut torn = h.points[1].tree.clone();
    torn.entries.get_mut(&b"/foo"[..]).expect("foo").content = mixed;
    assert_eq!(broken(&h, cut, &torn), 4);
    // Stale bytes behind the end.
    let mut stale = h.points[1].tree.clone();
    let bar = stale.entries.get_mut(&b"/bar"[..]).expect("bar");
    let mut bytes = **bar.content.block(0).expect("bar has a block");
    bytes[4000] = 7;
    bar.content = Content::default();
    bar.content.push(0, Arc::new(bytes));
    let bad = h.judge(cut, &stale).expect_err("stale bytes");
    assert_eq!(bad.rule, 4);
    assert!(bad.detail.contains("byte 4000 is 0x07 where 0x00 should be"), "{bad}");
    // Another file's bytes.
    let mut foreign = h.points[1].tree.clone();
    let content = foreign.entries[&b"/B/bar"[..]].content.clone();
    foreign.entries.get_mut(&b"/bar"[..]).expect("bar").content = content;
    assert_eq!(broken(&h, cut, &foreign), 4);
}

#[test]
fn what_is_no_prefix_breaks_rule_8() {
    let (h, _) = history();
    let cut = middle(&h);
    // The append without the rename before it.
    let mut skipped = h.points[1].tree.clone();
    skipped.entries.insert(b"/bar".to_vec(), h.points[3].tree.entries[&b"/bar"[..]].clone());
    assert_eq!(broken(&h, cut, &skipped), 8);
    // What had not begun.
    let begun = h.points[6].from_event;
    let early = h.acks.iter().find(|a| a.point == 1).expect("the durable write").event;
    if early <= begun {
        assert_eq!(broken(&h, h.points[1].from_event, &h.points[6].tree), 8);
    }
}

#[test]
fn a_report_on_one_state_stays_readable_whatever_was_found() {
    let bad = weldfs_crash_harness::states::Bad::new(4, "\u{e9}".repeat(1 << 20));
    assert!(bad.detail.len() < 10_000 && bad.detail.ends_with("bytes more"), "{} bytes", bad.detail.len());
    let short = weldfs_crash_harness::states::Bad::new(4, "short");
    assert_eq!(short.detail, "short");
}

#[test]
fn between_two_micro_transactions_only_a_read_only_mount_may_show_the_tree() {
    let (made, _) = history();
    let half = made.points[1].tree.clone();
    let mut points: Vec<Point> = [0, 2].map(|i| made.points[i].clone()).into();
    (points[0].from_event, points[1].from_event) = (0, 5);
    points[1].between = vec![half.clone()];
    let h = History { points, acks: vec![Ack { event: 9, point: 1 }] };
    assert!(h.judge_read_only(7, &half).is_ok());
    assert_eq!(broken(&h, 7, &half), 3);
    assert!(h.judge_read_only(5, &half).is_err(), "it had not begun");
    assert!(h.judge_read_only(9, &half).is_err(), "it was acknowledged");
    assert!(h.judge_read_only(7, &h.points[1].tree).is_ok());
}

/// The image with the first `n` units of what was not yet durable.
fn torn(at: &Replayer<'_>, n: usize) -> (CowImage, bool) {
    let mut seen = 0;
    let bytes = at.image_with(&mut |_| {
        seen += 1;
        seen <= n
    });
    (CowImage::new(bytes), seen > n)
}

fn recovered(image: CowImage, model: CrashModel, read_only: bool) -> Tree {
    let medium = Arc::new(CowMedium::new(image, model));
    let (store, _) = weldfs_fs::mount(medium, MountOptions { read_only, ..mount_options() }).expect("it mounts");
    read_tree(&store).expect("it reads")
}

#[test]
fn a_torn_micro_transaction_shows_its_middle_to_read_only_mounts_and_nobody_else() {
    for model in [CrashModel::Block, CrashModel::Pmem] {
        let setup = Setup::new(model).expect("the tiny tree is made");
        let workload = Workload::parse("open_write_close C new 0 600 micro durable").expect("well formed");
        let performed = perform(&setup, &workload).expect("store and model agree");
        let h = &performed.history;
        assert_eq!(h.points[1].between.len(), 1, "the file without its content");
        let (mut middles, mut finished) = (0, 0);
        let mut replayer = Replayer::new(&performed.recording, 0);
        let stride = if model == CrashModel::Block { 1 } else { 8 };
        // Before each barrier most is in the air.
        for cut in performed.recording.barriers().into_iter().filter(|b| *b > performed.begun).map(|b| b - 1) {
            replayer.goto(cut);
            for n in (0..4000).step_by(stride) {
                let (image, more) = torn(&replayer, n);
                let shown = recovered(image.clone(), model, true);
                h.judge_read_only(cut, &shown).unwrap_or_else(|e| panic!("{model:?}, cut {cut}, {n} units: {e}"));
                let made = recovered(image, model, false);
                h.judge(cut, &made).unwrap_or_else(|e| panic!("{model:?}, cut {cut}, {n} units: {e}"));
                if h.points[1].between.contains(&shown) {
                    middles += 1;
                    finished += u32::from(made == h.points[1].tree);
                }
                if !more {
                    break;
                }
            }
        }
        assert!(middles > 0 && finished == middles, "{model:?}: {middles} middles, {finished} finished");
    }
}
