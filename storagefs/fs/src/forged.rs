//! Operations on what no device writes: inodes of forged images, whose checksums are right.

use super::driver::Direct;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weldfs_ciscops::{Errno, Handle, InodeNo, Op, OpenFlags, PoolRange, RenameFlags};
use weldfs_journal::{BlockNo, ManualClock, Medium, RecordHead, SeededRandom};
use weldfs_media::RamMedium;
use weldfs_store::effect::{AttrDelta, BlockState, Effect};
use weldfs_store::error::FsError;
use weldfs_store::fsck::fsck_mounted;
use weldfs_store::mount::{MkfsOptions, RecoveryReport, format};
use weldfs_store::record::InodeRec;
use weldfs_store::scrub::{ScrubOptions, scrub};
use weldfs_store::superblock::Superblock;
use weldfs_store::{MountOptions, Need, Store};

const OUT: PoolRange = PoolRange { off: 4096, len: size_of::<weldfs_ciscops::StatBody>() as u32 };

/// A mounted empty image, the same each time.
fn empty() -> Arc<Store> {
    let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(3 << 20));
    let (clock, random) = (Arc::new(ManualClock::default()), Arc::new(SeededRandom::new(7)));
    format(&medium, &MkfsOptions::default(), &*clock, &*random).unwrap();
    crate::mount(medium, MountOptions::new(clock, random)).unwrap().0
}

/// One with these effects committed.
fn forged(effects: Vec<Effect>) -> Direct {
    let store = empty();
    let need = Need { log_bytes: 3000, meta_keys: 20, may_fail: true, ..Need::default() };
    let mut plan = store.begin(&need).unwrap();
    effects.into_iter().for_each(|e| plan.push(e));
    store.commit(&mut plan, RecordHead::op()).unwrap();
    drop(plan);
    Direct::new(store, 64 << 10)
}

/// An inode and its name.
fn made(dir: u64, name: &[u8], rec: InodeRec) -> [Effect; 2] {
    let (dir, ino, ftype) = (InodeNo(dir), rec.ino, (rec.mode >> 12) as u8);
    let cookie = empty().dirent_slot(dir, name).unwrap();
    [Effect::PutInode(Box::new(rec)), Effect::PutDirent { dir, cookie, ino, ftype, mark: 0, name: name.into() }]
}

fn directory(ino: u64, parent: u64, nlink: u32) -> InodeRec {
    InodeRec { mode: 0o040_755, nlink, parent: InodeNo(parent), ..InodeRec::empty(InodeNo(ino)) }
}

fn path(device: &Direct, at: u32, name: &str) -> PoolRange {
    device.put(at, name.as_bytes())
}

#[test]
fn a_rename_among_directories_that_are_each_others_parents_ends() {
    let mut effects = Vec::new();
    for (ino, parent, name) in [(50, 51, &b"a"[..]), (51, 50, b"b"), (52, 1, b"moved")] {
        effects.extend(made(1, name, directory(ino, parent, 2)));
    }
    let mut device = forged(effects);
    let (from, to) = (path(&device, 0, "moved"), path(&device, 100, "a/moved"));
    let base = Handle::ROOT;
    let o = device.run(Op::Rename { from_base: base, from, to_base: base, to, flags: RenameFlags::empty() });
    assert_eq!(o.status, Errno::IO.0, "the damage is told");
    let here = path(&device, 0, "moved");
    assert_eq!(device.run(Op::StatPath { base, path: here, nofollow: true, out: OUT }).status, 0, "nothing was done");
}

#[test]
fn links_of_a_directory_are_not_counted_below_none_or_beyond_all() {
    let mut effects = Vec::new();
    effects.extend(made(1, b"none", directory(50, 1, 0)));
    effects.extend(made(50, b"in", directory(51, 50, 2)));
    effects.extend(made(1, b"all", directory(52, 1, u32::MAX - 1)));
    effects.extend(made(1, b"dir", directory(53, 1, 2)));
    let mut device = forged(effects);
    let base = Handle::ROOT;
    let gone = path(&device, 0, "none/in");
    assert_eq!(device.run(Op::Rmdir { base, path: gone }).status, 0);
    let (from, to) = (path(&device, 0, "dir"), path(&device, 100, "all/dir"));
    let o = device.run(Op::Rename { from_base: base, from, to_base: base, to, flags: RenameFlags::empty() });
    assert_eq!(o.status, Errno::MLINK.0);
    assert_eq!(device.store().inode(InodeNo(50)).unwrap().map(|r| r.nlink), Some(0));
    assert_eq!(device.store().inode(InodeNo(52)).unwrap().map(|r| r.nlink), Some(u32::MAX - 1));
}

#[test]
fn sizes_blocks_and_links_that_no_inode_has_are_damage_wherever_they_stand() {
    let ino = InodeNo(50);
    let sound = InodeRec { mode: 0o100_644, nlink: 1, ..InodeRec::empty(ino) };
    let forged = [
        InodeRec { size: 1 << 63, ..sound.clone() },
        InodeRec { blocks: (1 << 48) + 1, ..sound.clone() },
        InodeRec { nlink: u32::MAX, ..sound.clone() },
    ];
    for rec in forged {
        assert!(InodeRec::from_value(ino, &rec.to_value()).is_err(), "{rec:?}");
        let effect = Effect::PutInode(Box::new(rec));
        assert!(weldfs_store::effect::decode(&weldfs_store::effect::encode(&[effect])).is_err());
    }
    assert_eq!(InodeRec::from_value(ino, &sound.to_value()), Ok(sound));
    for delta in [AttrDelta::new(ino).size(u64::MAX), AttrDelta::new(ino).nlink(u32::MAX)] {
        assert!(weldfs_store::effect::decode(&weldfs_store::effect::encode(&[Effect::SetAttr(delta)])).is_err());
    }
    let most = AttrDelta::new(ino).size(i64::MAX as u64).nlink(u32::MAX - 1);
    assert!(weldfs_store::effect::decode(&weldfs_store::effect::encode(&[Effect::SetAttr(most)])).is_ok());
}

#[test]
fn a_file_of_the_largest_size_can_be_looked_at_and_not_grown() {
    let mut rec = InodeRec { mode: 0o100_644, nlink: 1, ..InodeRec::empty(InodeNo(50)) };
    rec.size = i64::MAX as u64;
    let mut device = forged(made(1, b"large", rec).into());
    let base = Handle::ROOT;
    let name = path(&device, 0, "large");
    assert_eq!(device.run(Op::StatPath { base, path: name, nofollow: true, out: OUT }).status, 0);
    let read = Op::OpenReadClose { base, path: name, flags: OpenFlags::READ, offset: i64::MAX as u64 - 200, out: OUT };
    assert_eq!(device.run(read).status, 0);
    let src = PoolRange::new(4096, 100);
    let at = weldfs_ciscops::At::End;
    let write = Op::OpenWriteClose { base, path: name, flags: OpenFlags::WRITE, mode: 0o644, at, src };
    assert_eq!(device.run(write).status, Errno::FBIG.0);
    assert_eq!(device.run(Op::Unlink { base, path: name }).status, 0);
    device.store().reclaim_all().unwrap();
    device.store().unmount().unwrap();
}

#[test]
fn a_window_beyond_the_largest_file_is_damage_to_all_who_meet_it() {
    let rec = InodeRec { mode: 0o100_644, nlink: 1, ..InodeRec::empty(InodeNo(50)) };
    let mut effects: Vec<Effect> = made(1, b"file", rec).into();
    // The block behind its window has a number beyond 64 bits.
    let (blk, addr, crcs) = (u64::MAX - 255, BlockNo(700), smallvec::smallvec![1]);
    effects.push(Effect::Map { ino: InodeNo(50), blk, addr, count: 1, state: BlockState::Written, crcs });
    let device = forged(effects);
    let store = device.store().clone();
    assert!(store.seek_block(InodeNo(50), 0, u64::MAX, true).is_err());
    let options = ScrubOptions { rate: None, stop: &AtomicBool::new(false) };
    // (The record that says so is none that a log may hold, which may be what it meets first.)
    assert!(scrub(&store, &options, &mut ()).map_or(true, |found| !found.clean));
    let report = fsck_mounted(&store, RecoveryReport::default(), true).unwrap();
    assert!(report.problems.iter().any(|p| p.contains("beyond the largest file")), "{:?}", report.problems);
}

#[test]
fn an_orphan_with_a_window_beyond_the_largest_file_does_not_reclaim_for_ever() {
    let ino = InodeNo(50);
    let rec = InodeRec { mode: 0o100_644, ..InodeRec::empty(ino) };
    let (addr, state) = (BlockNo(700), BlockState::Unwritten);
    let map = Effect::Map { ino, blk: u64::MAX - 255, addr, count: 1, state, crcs: Default::default() };
    let device = forged(vec![Effect::PutInode(Box::new(rec)), map, Effect::Orphan { ino }]);
    assert!(matches!(device.store().reclaim_all(), Err(FsError::Corrupt(_))));
}

#[test]
fn a_forged_count_of_free_blocks_is_never_below_none_and_the_image_mounts_again() {
    let store = empty();
    let medium = store.medium().clone();
    store.unmount().unwrap();
    drop(store);
    let (mut sb, _) = Superblock::load(&*medium).unwrap();
    sb.free_blocks = 0;
    sb.store(&*medium).unwrap();
    let options = || MountOptions::new(Arc::new(ManualClock::default()), Arc::new(SeededRandom::new(8)));
    let (store, _) = crate::mount(medium.clone(), options()).unwrap();
    let mut device = Direct::new(store, 64 << 10);
    let name = path(&device, 0, "dir");
    // It may be ENOSPC, and so may what follows.
    let _ = device.run(Op::Mkdir { base: Handle::ROOT, path: name, mode: 0o755 });
    let _ = device.store().unmount();
    assert!(device.store().statfs().free <= device.store().geometry().blocks);
    drop(device);
    assert!(crate::mount(medium, options()).is_ok());
}

/// Whoever would make a path of such a name is not given it.
#[test]
fn a_listing_does_not_give_names_to_which_no_path_leads() {
    for (name, status) in [(&b"plain"[..], 0), (b".", 5), (b"..", 5), (b"/", 5), (b"a/b", 5)] {
        let rec = InodeRec { mode: 0o100_644, nlink: 1, ..InodeRec::empty(InodeNo(50)) };
        let mut device = forged(made(1, name, rec).into());
        let op = Op::ReadDir { h: Handle::ROOT, cookie: 0, out: PoolRange::new(0, 4096) };
        assert_eq!(device.run(op).status, status, "{name:?}");
    }
}
