//! The same on files: mapped with persist instructions, and behind O_DIRECT.

use super::*;
use weldfs_media::{ImageKind, OpenMode, create, open};

fn lives_on(kind: ImageKind) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let medium = create(&path, kind, 16 << 20, false).unwrap();
    let mkfs = MkfsOptions { label: "real".into(), ..Default::default() };
    format(&medium, &mkfs, &ManualClock::default(), &SeededRandom::new(1)).unwrap();
    let mut w = World::new(mount(&medium).0);
    for i in 0..80u8 {
        w.run(&Act::Create(i % 6));
        w.run(&Act::Write { file: i % 6, blk: u64::from(i % 20), count: 1 + u32::from(i % 7), fill: i });
        w.run(&Act::Patch { file: i % 6, off: u64::from(i) * 300, len: 200, fill: i });
        match i % 20 {
            7 => drop(w.store().checkpoint().unwrap()),
            13 => w.run(&Act::Unlink(i % 6)),
            19 => w.reclaim(),
            _ => {}
        }
    }
    w.check();
    w.store().journal().wait(w.last()).unwrap();
    let (want, last) = (w.expected(), w.last());
    assert!(w.store().journal().watermark() >= last);
    drop((w, medium));
    // As after a crash: read-only first, which must write nothing.
    let before = std::fs::read(&path).unwrap();
    let medium = open(&path, kind, OpenMode::ReadOnly).unwrap();
    let report = fsck(medium.clone(), options(), true).unwrap();
    assert!(report.clean && report.recovery.records > 0, "{:#?}", report.problems);
    let mut o = options();
    o.read_only = true;
    let (store, _) = crate::testing::mount(medium.clone(), o).unwrap();
    assert_eq!(model::shown(&store), want);
    assert!(matches!(store.begin(&Need::default()), Err(FsError::Errno(Errno::ROFS))));
    drop((store, medium));
    assert!(before == std::fs::read(&path).unwrap(), "a read-only mount wrote");
    let medium = open(&path, kind, OpenMode::ReadWrite).unwrap();
    let (store, _) = mount(&medium);
    assert_eq!(model::shown(&store), want);
    store.unmount().unwrap();
    drop(store);
    assert_fsck(&medium);
}

#[test]
fn the_store_lives_on_a_mapped_file() {
    lives_on(ImageKind::Pmem);
}

#[test]
fn the_store_lives_on_a_file_behind_o_direct() {
    lives_on(ImageKind::Block);
}
