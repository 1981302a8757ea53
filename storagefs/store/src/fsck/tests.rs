//! fsck finds what is planted, and survives anything.

use super::*;
use crate::effect::{AttrDelta, BlockState, Effect, XATTR_VALUE_MAX};
use crate::geometry::{GeometryOptions, superblock_places};
use crate::limits::BLOCK;
use crate::mount::{MkfsOptions, format};
use crate::record::{InodeRec, Xattr};
use crate::store::{Need, Plan};
use crate::superblock::Superblock;
use weldfs_ciscops::InodeNo;
use weldfs_journal::{AlignedBuf, ManualClock, RecordHead, SeededRandom};
use weldfs_media::RamMedium;

fn options() -> MountOptions {
    MountOptions::new(Arc::new(ManualClock::default()), Arc::new(SeededRandom::new(7)))
}

fn fresh() -> Arc<dyn Medium> {
    let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(3 << 20));
    let geometry = GeometryOptions { log_len: Some(256 << 10), ..Default::default() };
    let mkfs = MkfsOptions { geometry, ..Default::default() };
    format(&medium, &mkfs, &ManualClock::default(), &SeededRandom::new(1)).unwrap();
    medium
}

fn commit(store: &Store, fill: impl FnOnce(&mut Plan<'_>)) {
    let need = Need { log_bytes: 3000, new_blocks: 20, meta_keys: 10, may_fail: true, ..Need::default() };
    let mut plan = store.begin(&need).unwrap();
    fill(&mut plan);
    store.commit(&mut plan, RecordHead::op()).unwrap();
}

/// A directory with a file of some blocks, half of it checkpointed.
fn populated() -> Arc<dyn Medium> {
    let medium = fresh();
    let (store, _) = crate::testing::mount(medium.clone(), options()).unwrap();
    let (dir, file) = (store.alloc_ino(), store.alloc_ino());
    commit(&store, |p| add(p, InodeNo::ROOT, b"dir", dir, 0o040755, 2));
    commit(&store, |p| {
        p.push(Effect::SetAttr(AttrDelta::new(InodeNo::ROOT).nlink(3)));
        add(p, dir, b"file", file, 0o100644, 1);
        map(p, file, 0);
    });
    store.checkpoint().unwrap();
    commit(&store, |p| {
        map(p, file, 300);
        p.push(Effect::Patch { ino: file, off: 7, bytes: smallvec::smallvec![1, 2, 3] });
    });
    medium
}

fn add(p: &mut Plan<'_>, dir: InodeNo, name: &[u8], ino: InodeNo, mode: u32, nlink: u32) {
    let mut rec = InodeRec::empty(ino);
    (rec.mode, rec.nlink) = (mode, nlink);
    rec.parent = if rec.is_dir() { dir } else { InodeNo(0) };
    let cookie = p.store().dirent_slot(dir, name).unwrap();
    p.push(Effect::PutInode(Box::new(rec)));
    p.push(Effect::PutDirent { dir, cookie, ino, ftype: (mode >> 12) as u8, mark: 0, name: name.into() });
}

fn map(p: &mut Plan<'_>, ino: InodeNo, blk: u64) {
    let run = p.alloc(4, ino).unwrap();
    let buf = AlignedBuf::from_slice(&vec![blk as u8 + 1; run.count as usize * BLOCK]);
    p.store().medium().write(run.addr.0 * BLOCK as u64, &buf).unwrap();
    let crcs = buf.chunks(BLOCK).map(weldfs_functions::crc32c).collect();
    p.push(Effect::Map { ino, blk, addr: run.addr, count: run.count, state: BlockState::Written, crcs });
}

/// Problems after one more record on a populated image.
fn problems(plant: impl FnOnce(&Store, &mut Plan<'_>)) -> String {
    let medium = populated();
    let (store, _) = crate::testing::mount(medium.clone(), options()).unwrap();
    commit(&store, |p| plant(&store, p));
    drop(store);
    let report = fsck(medium, options(), true).unwrap();
    assert_eq!(report.clean, report.problems.is_empty());
    report.problems.join("\n")
}

fn assert_finds(found: &str, what: &str) {
    assert!(found.contains(what), "{what:?} not in {found:?}");
}

#[test]
fn a_healthy_image_is_clean_before_and_after_recovery() {
    let medium = populated();
    let report = fsck(medium, options(), true).unwrap();
    assert!(report.clean, "{:?}", report.problems);
    assert_eq!((report.inodes, report.directories, report.entries, report.blocks), (3, 2, 2, 8));
}

#[test]
fn planted_problems_are_found() {
    let (dir, file) = (InodeNo(2), InodeNo(3));
    assert_eq!(problems(|_, _| {}), "");
    let found = problems(|_, p| p.push(Effect::SetAttr(AttrDelta::new(file).nlink(2))));
    assert_finds(&found, "inode 3: link count is 2, should be 1");
    let found = problems(|_, p| p.push(Effect::SetAttr(AttrDelta::new(dir).nlink(3))));
    assert_finds(&found, "inode 2: link count is 3, should be 2");
    let found = problems(|s, p| {
        let d = s.dirent(dir, b"file").unwrap().unwrap();
        s.dirent_removal(&d).unwrap().into_iter().for_each(|e| p.push(e));
    });
    assert_finds(&found, "inode 3: has no name and is no orphan");
    let found = problems(|s, p| {
        let cookie = s.dirent_slot(dir, b"ghost").unwrap();
        let name = (&b"ghost"[..]).into();
        p.push(Effect::PutDirent { dir, cookie, ino: InodeNo(77), ftype: 8, mark: 0, name });
    });
    assert_finds(&found, "names no inode (77)");
    let found = problems(|s, p| {
        // A directory moved below itself.
        let d = s.dirent(InodeNo::ROOT, b"dir").unwrap().unwrap();
        s.dirent_removal(&d).unwrap().into_iter().for_each(|e| p.push(e));
        let cookie = s.dirent_slot(dir, b"dir").unwrap();
        p.push(Effect::PutDirent { dir, cookie, ino: dir, ftype: 4, mark: 0, name: (&b"dir"[..]).into() });
        p.push(Effect::SetAttr(AttrDelta::new(dir).parent(dir).nlink(3)));
        p.push(Effect::SetAttr(AttrDelta::new(InodeNo::ROOT).nlink(2)));
    });
    assert_finds(&found, "directory 2: cannot be reached from the root");
}

#[test]
fn rotten_data_is_found_and_read_as_an_error() {
    let medium = populated();
    let (store, _) = crate::testing::mount(medium.clone(), options()).unwrap();
    store.unmount().unwrap();
    let mut addr = 0;
    store
        .block_map(InodeNo(3), 1, 1, &mut |_, v| {
            addr = v.addr.unwrap().0;
            true
        })
        .unwrap();
    drop(store);
    medium.write(addr * BLOCK as u64 + 100, &[0x55]).unwrap();
    let report = fsck(medium.clone(), options(), true).unwrap();
    assert_finds(&report.problems.join("\n"), "byte 4096 of inode 3");
    assert!(fsck(medium.clone(), options(), false).unwrap().clean, "data is read only on request");
    let (store, _) = crate::testing::mount(medium, options()).unwrap();
    let read = store.read_block(InodeNo(3), 1, &mut [0; BLOCK]);
    assert!(matches!(read, Err(FsError::Corrupt(_))));
}

#[test]
fn a_patch_over_a_rotten_block_never_gets_a_fresh_checksum() {
    let medium = populated();
    let (store, _) = crate::testing::mount(medium.clone(), options()).unwrap();
    let file = InodeNo(3);
    let mut addr = 0;
    store
        .block_map(file, 300, 1, &mut |_, v| {
            addr = v.addr.unwrap().0;
            true
        })
        .unwrap();
    medium.write(addr * BLOCK as u64 + 9, &[0x77; 3]).unwrap();
    commit(&store, |p| p.push(Effect::Patch { ino: file, off: 300 * 4096, bytes: smallvec::smallvec![5; 20] }));
    store.checkpoint().unwrap();
    assert!(matches!(store.read_block(file, 300, &mut [0; BLOCK]), Err(FsError::Corrupt(_))));
    commit(&store, |p| map(p, file, 300));
    assert!(store.read_block(file, 300, &mut [0; BLOCK]).is_ok(), "overwritten whole");
}

#[test]
fn any_flipped_byte_of_metadata_is_found_or_harmless() {
    use rand::{Rng, SeedableRng};
    let medium = populated();
    let len = medium.info().len as usize;
    let mut image = vec![0; len];
    medium.read(0, &mut image).unwrap();
    let mut rng = rand::rngs::SmallRng::seed_from_u64(11);
    // Where something is: flips of zeros in unused space say little.
    let places: Vec<usize> = (0..len / 64).filter(|i| image[i * 64..i * 64 + 64].iter().any(|b| *b != 0)).collect();
    for _ in 0..600 {
        let at = places[rng.random_range(0..places.len())] * 64 + rng.random_range(0..64);
        let mut bad = image.clone();
        bad[at] ^= 1 << rng.random_range(0..8);
        let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(len as u64));
        medium.write(0, &bad).unwrap();
        // Either a typed error, or a report; never a panic or a hang.
        if let Ok(report) = fsck(medium.clone(), options(), true)
            && report.clean
            && let Ok((store, _)) = crate::testing::mount(medium, options())
        {
            let _ = store.read_block(InodeNo(3), 0, &mut [0; BLOCK]);
            store.checkpoint().unwrap();
        }
    }
}

/// Unmounts, and puts values into the tree that no checkpoint would.
fn forge(medium: &Arc<dyn Medium>, changes: Vec<(Key, Option<Vec<u8>>)>) {
    let (store, _) = crate::testing::mount(medium.clone(), options()).unwrap();
    store.unmount().unwrap();
    let mut writer = store.writer.lock();
    let base = store.overlay.base(0);
    writer.zone.begin_checkpoint();
    let cut = writer.sb.cut;
    let tree = base.tree.apply(&base.slow, &mut writer.zone, &mut changes.into_iter(), cut).unwrap();
    writer.sb.zone = writer.zone.write_map(&base.slow, cut).unwrap();
    writer.sb.root = tree.root();
    writer.sb.store(&**medium).unwrap();
}

/// Mounts, commits, dies; what fsck finds then, and the store that is mounted next.
fn after(medium: &Arc<dyn Medium>, fill: impl FnOnce(&Store, &mut Plan<'_>)) -> (String, Arc<Store>) {
    let (store, _) = crate::testing::mount(medium.clone(), options()).unwrap();
    commit(&store, |p| fill(&store, p));
    drop(store);
    let found = fsck(medium.clone(), options(), true).unwrap().problems.join("\n");
    (found, crate::testing::mount(medium.clone(), options()).unwrap().0)
}

fn listed(store: &Store, dir: InodeNo) -> FsResult<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    store.dirents(dir, 0, &mut |d| {
        names.push(d.name.to_vec());
        true
    })?;
    Ok(names)
}

#[test]
fn a_forged_mapping_beyond_every_medium_is_no_merged_block() {
    use crate::overlay::window::{Mapping, pack};
    let medium = populated();
    let forged = |addr| pack(&[(9, Mapping { addr, birth: 1, crc: 0, state: BlockState::Written })], u64::MAX);
    let keys = [(500, (1 << 47) + 5), (501, 1 << 47)];
    forge(&medium, keys.iter().map(|(win, addr)| (Key::new(kind::WINDOW, 3, *win), Some(forged(*addr)))).collect());
    let found = fsck(medium, options(), false).unwrap().problems.join("\n");
    assert_finds(&found, "inode 3: block 128009 lies outside the data area (140737488355333)");
    assert_finds(&found, "inode 3: block 128265 lies outside the data area (140737488355328)");
}

#[test]
fn entries_and_attributes_that_the_log_replaces_are_told_when_damaged_and_do_not_keep_others_from_being_listed() {
    let (root, dir, file) = (InodeNo::ROOT, InodeNo(2), InodeNo(3));
    let medium = populated();
    let (store, _) = crate::testing::mount(medium.clone(), options()).unwrap();
    let (cookie, slot) = (store.dirent_slot(root, b"dir").unwrap() - 1, store.xattr_slot(file, b"user.a").unwrap());
    assert_eq!(store.dirent(root, b"dir").unwrap().map(|d| d.cookie), Some(cookie));
    drop(store);
    let keys = [Key::new(kind::DIRENT, root.0, cookie), Key::new(kind::XATTR, file.0, slot)];
    forge(&medium, keys.iter().map(|key| (*key, Some(b"no value".to_vec()))).collect());
    let (found, store) = after(&medium, |_, p| {
        p.push(Effect::PutDirent { dir: root, cookie, ino: dir, ftype: 4, mark: 0, name: b"dir"[..].into() });
        p.push(Effect::PutXattr { ino: file, slot, name: b"user.a"[..].into(), value: b"1"[..].into() });
    });
    for key in keys {
        assert_finds(&found, &key.to_string());
    }
    assert_eq!(listed(&store, root).unwrap(), [b"dir"]);
    assert_eq!(store.xattrs(file).unwrap().len(), 1);
}

#[test]
fn inodes_of_the_tree_that_are_younger_than_it_and_entries_of_no_inode_of_it_are_told() {
    let (dir, late) = (InodeNo(2), InodeNo(60));
    let medium = populated();
    let (store, _) = crate::testing::mount(medium.clone(), options()).unwrap();
    let mut rec = store.inode(dir).unwrap().unwrap();
    let slot = store.xattr_slot(late, b"user.a").unwrap();
    drop(store);
    rec.birth = weldfs_journal::Lsn(1 << 40);
    let attribute = crate::record::Xattr { ino: late, slot, name: b"user.a"[..].into(), value: b"1"[..].into() };
    let (of_dir, of_late) = (Key::new(kind::INODE, dir.0, 0), Key::new(kind::XATTR, late.0, slot));
    forge(&medium, vec![(of_dir, Some(rec.to_value())), (of_late, Some(attribute.to_value()))]);
    let (found, store) = after(&medium, |_, p| {
        p.push(Effect::SetAttr(AttrDelta::new(dir).mode(0o040700)));
        add(p, dir, b"late", late, 0o100644, 1);
    });
    // What was there is not shown.
    assert_eq!(listed(&store, dir).unwrap(), [b"late"]);
    assert!(store.xattrs(late).unwrap().is_empty());
    assert_finds(&found, "born at LSN 1099511627776, the tree ends at");
    assert_finds(&found, &format!("{of_late}: its inode is not in the tree"));
}

#[test]
fn what_lies_below_a_patch_is_verified_and_blocks_that_are_marked_bad_are_told() {
    let (medium, file) = (populated(), InodeNo(3));
    let (store, _) = crate::testing::mount(medium.clone(), options()).unwrap();
    // A block of the tree.
    store.unmount().unwrap();
    drop(store);
    let mut addr = 0;
    let (store, _) = crate::testing::mount(medium.clone(), options()).unwrap();
    store
        .block_map(file, 1, 1, &mut |_, v| {
            addr = v.addr.unwrap().0;
            true
        })
        .unwrap();
    drop(store);
    medium.write(addr * BLOCK as u64 + 2000, &[0x77; 3]).unwrap();
    let patch = Effect::Patch { ino: file, off: 4096, bytes: smallvec::smallvec![5; 20] };
    let (found, store) = after(&medium, |_, p| p.push(patch.clone()));
    assert!(matches!(store.read_block(file, 1, &mut [0; BLOCK]), Err(FsError::Corrupt(_))));
    assert_finds(&found, "byte 4096 of inode 3");
    store.unmount().unwrap();
    drop(store);
    let found = fsck(medium.clone(), options(), false).unwrap().problems.join("\n");
    assert_finds(&found, "merged over a damaged block");
    // A patch over the whole block leaves nothing of it.
    let whole = Effect::Patch { ino: file, off: 4096, bytes: smallvec::smallvec![5; BLOCK] };
    let (store, _) = crate::testing::mount(medium.clone(), options()).unwrap();
    let need = Need { log_bytes: 8000, new_blocks: 20, meta_keys: 10, may_fail: true, ..Need::default() };
    let mut plan = store.begin(&need).unwrap();
    plan.push(whole);
    store.commit(&mut plan, RecordHead::op()).unwrap();
    drop(plan);
    drop(store);
    assert!(fsck(medium, options(), true).unwrap().clean);
}

#[test]
fn names_without_a_path_types_that_are_none_and_attributes_that_are_there_twice_are_told() {
    let (root, file) = (InodeNo::ROOT, InodeNo(3));
    for name in [&b"."[..], b"..", b"a/b"] {
        let found = problems(|s, p| {
            let ino = s.alloc_ino();
            add(p, root, name, ino, 0o100644, 1);
        });
        assert_finds(&found, "no path leads to an entry named");
    }
    let found = problems(|s, p| add(p, root, b"odd", s.alloc_ino(), 0o030644, 1));
    assert_finds(&found, "inode 4: its mode 30644 is of no type of file");
    let found = problems(|s, p| {
        let first = s.xattr_slot(file, b"user.a").unwrap();
        for slot in [first, first + 1] {
            p.push(Effect::PutXattr { ino: file, slot, name: b"user.a"[..].into(), value: b"1"[..].into() });
        }
    });
    assert_finds(&found, "an attribute that is there twice");
}

#[test]
fn an_attribute_that_is_longer_than_any_is_damage() {
    let of =
        |len| Xattr { ino: InodeNo(3), slot: 1, name: b"user.a"[..].into(), value: vec![7; len].into() }.to_value();
    let read = |value: &[u8]| Xattr::from_value(InodeNo(3), 1, value);
    assert_eq!(read(&of(XATTR_VALUE_MAX)).unwrap().value.len(), XATTR_VALUE_MAX);
    assert!(read(&of(XATTR_VALUE_MAX + 1)).is_err());
}

/// The populated image, closed, with another superblock.
fn with_superblock(change: impl Fn(&mut Superblock)) -> Arc<dyn Medium> {
    let medium = populated();
    let (store, _) = crate::testing::mount(medium.clone(), options()).unwrap();
    store.unmount().unwrap();
    drop(store);
    let (mut sb, _) = Superblock::load(&*medium).unwrap();
    change(&mut sb);
    sb.store(&*medium).unwrap();
    medium
}

#[test]
fn a_number_for_new_inodes_that_an_inode_has_is_damage_to_fsck_and_to_every_mount() {
    assert!(fsck(with_superblock(|sb| sb.next_ino = 4), options(), true).unwrap().clean);
    for next in [2, 3] {
        let medium = with_superblock(|sb| sb.next_ino = next);
        let found = fsck(medium.clone(), options(), false).unwrap().problems.join("\n");
        assert_finds(&found, "next inode number (an inode has it or a higher one)");
        assert!(crate::testing::mount(medium, options()).is_err());
    }
}

#[test]
fn an_inode_that_the_log_makes_and_the_tree_has_is_damage() {
    let medium = with_superblock(|_| {});
    let (store, _) = crate::testing::mount(medium.clone(), options()).unwrap();
    let made = crate::effect::encode(&[Effect::PutInode(Box::new(InodeRec::empty(InodeNo(3))))]);
    store.journal().append(RecordHead::op(), &[&made], Vec::new(), None).unwrap();
    store.journal().wait(store.journal().tail()).unwrap();
    drop(store);
    let found = fsck(medium.clone(), options(), false).unwrap().problems.join("\n");
    assert_finds(&found, "inode (created twice)");
    assert!(crate::testing::mount(medium, options()).is_err());
}

#[test]
fn counters_close_to_their_end_are_told_and_such_an_image_is_read_and_not_written() {
    use crate::limits::COUNTER_MAX;
    let forged: [fn(&mut Superblock); 3] =
        [|sb| sb.sequence = COUNTER_MAX - 2, |sb| sb.next_ino = COUNTER_MAX - 1, |sb| sb.next_txn = COUNTER_MAX - 1];
    for change in forged {
        let medium = with_superblock(change);
        let before = Superblock::load(&*medium).unwrap();
        let refused = crate::testing::mount(medium.clone(), options()).map(drop).unwrap_err().to_string();
        assert!(refused.contains("it can be read, and not written"), "{refused}");
        let found = fsck(medium.clone(), options(), true).unwrap().problems.join("\n");
        assert_finds(&found, "the image can be read, and not written");
        let (store, _) = crate::testing::mount(medium.clone(), MountOptions { read_only: true, ..options() }).unwrap();
        assert_eq!(listed(&store, InodeNo(2)).unwrap(), [b"file"]);
        assert_eq!(Superblock::load(&*medium).unwrap(), before);
    }
}

#[test]
fn links_to_nothing_or_of_another_size_and_bitmaps_of_groups_that_are_not_there_are_told() {
    let root = InodeNo::ROOT;
    let found = problems(|s, p| add(p, root, b"link", s.alloc_ino(), 0o120777, 1));
    assert_finds(&found, "inode 4: a symbolic link to nothing");
    let targeted = |mode: u32, size: u64| {
        problems(move |s, p| {
            let ino = s.alloc_ino();
            let mut rec = InodeRec { mode, nlink: 1, size, ..InodeRec::empty(ino) };
            rec.target = Some(Arc::from(&b"there"[..]));
            let cookie = p.store().dirent_slot(root, b"link").unwrap();
            let ftype = (mode >> 12) as u8;
            p.push(Effect::PutInode(Box::new(rec)));
            p.push(Effect::PutDirent { dir: root, cookie, ino, ftype, mark: 0, name: b"link"[..].into() });
        })
    };
    assert_eq!(targeted(0o120777, 5), "");
    assert_finds(&targeted(0o120777, 0), "inode 4: a symbolic link of size 0, its target has 5 bytes");
    let medium = populated();
    forge(&medium, vec![(Key::new(kind::FREE_GROUP, 77, 0), Some(vec![1]))]);
    let found = fsck(medium, options(), false).unwrap().problems.join("\n");
    assert_finds(&found, "a bitmap of a group that is not there");
}

/// Image 3237 of the first 10,000 damaged ones: `fsck` counted an inode that no lookup finds, and called it clean.
#[test]
fn an_inode_or_a_bitmap_under_a_key_that_no_lookup_asks_for_is_told() {
    for (kind, a) in [(kind::INODE, 3), (kind::FREE_GROUP, 0)] {
        let medium = populated();
        let (store, _) = crate::testing::mount(medium.clone(), options()).unwrap();
        store.unmount().unwrap();
        drop(store);
        let base = InodeRec::empty(InodeNo(a));
        let value = if kind == kind::INODE { base.to_value() } else { vec![1, 0] };
        forge(&medium, vec![(Key::new(kind, a, 0xd9), Some(value))]);
        match fsck(medium, options(), false) {
            Ok(report) => assert_finds(&report.problems.join("\n"), "its last part is not zero"),
            // A mount may refuse it before anything is looked at.
            Err(e) => assert!(kind == kind::FREE_GROUP, "{e}"),
        }
    }
}

#[test]
fn superblock_copies_that_no_power_cut_leaves_are_told_and_torn_or_old_ones_are_warnings() {
    let medium = with_superblock(|_| {});
    medium.write(8 * BLOCK as u64 + 200, &[0x55; 8]).unwrap();
    let report = fsck(medium.clone(), options(), true).unwrap();
    assert_eq!((report.clean, report.lost_copies, report.recovery.warnings.len()), (true, 0, 1));
    let last = medium.info().len - BLOCK as u64;
    for at in [8 * BLOCK as u64, last] {
        medium.write(at, &AlignedBuf::zeroed(BLOCK)).unwrap();
    }
    let report = fsck(medium, options(), true).unwrap();
    assert_eq!((report.clean, report.lost_copies, report.problem_count), (false, 2, 2));
    // Half a copy may be what a power cut leaves, but not of the first together with another: there is a flush between.
    for (torn, clean) in [(vec![0], true), (vec![1, 2], true), (vec![0, 1], false), (vec![0, 2], false)] {
        let medium = with_superblock(|_| {});
        let places = superblock_places(medium.info().len / BLOCK as u64);
        torn.iter().for_each(|i| medium.write(places[*i].0 * BLOCK as u64 + 200, &[0x55; 8]).unwrap());
        let report = fsck(medium, options(), true).unwrap();
        assert_eq!((report.clean, report.lost_copies), (clean, if clean { 0 } else { 2 }), "{torn:?}");
    }
}

#[test]
fn a_virtual_file_has_a_flag_and_a_spec_or_neither() {
    use crate::record::{FLAG_VIRTUAL, SPEC_NAME};
    let spec = |p: &mut Plan<'_>, ino, value: &[u8]| {
        let slot = p.store().xattr_slot(ino, SPEC_NAME).unwrap();
        p.push(Effect::PutXattr { ino, slot, name: SPEC_NAME.into(), value: value.into() });
    };
    let make = |store: &Store, p: &mut Plan<'_>, flags| {
        let ino = store.alloc_ino();
        add(p, InodeNo::ROOT, b"virtual", ino, 0o100644, 1);
        p.push(Effect::SetAttr(AttrDelta { mask: crate::effect::attr::FLAGS, flags, ..AttrDelta::new(ino) }));
        ino
    };
    let good = weldfs_ciscops::VirtSpec {
        kernel: "grep".into(),
        params: vec![1, 0x61],
        direction: weldfs_ciscops::Direction::Read,
        ranges: vec![weldfs_ciscops::VirtRange { path: b"/file".to_vec(), offset: 0, length: 1 }],
    };
    let good = good.encode().unwrap();
    let sound = problems(|store, p| {
        let ino = make(store, p, FLAG_VIRTUAL);
        spec(p, ino, &good);
    });
    assert_eq!(sound, "");
    let without = problems(|store, p| {
        make(store, p, FLAG_VIRTUAL);
    });
    assert!(without.contains("has the flag of a virtual file, and lacks a spec"), "{without}");
    let unflagged = problems(|store, p| {
        let ino = make(store, p, 0);
        spec(p, ino, &good);
    });
    assert!(unflagged.contains("has a spec of a virtual file, and lacks the flag"), "{unflagged}");
    let forged = problems(|store, p| {
        let ino = make(store, p, FLAG_VIRTUAL);
        spec(p, ino, b"\x02");
    });
    assert!(forged.contains("the spec of a virtual file is none"), "{forged}");
}
