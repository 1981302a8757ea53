//! fsck finds what is planted, and survives anything.

use super::*;
use crate::effect::{AttrDelta, BlockState, Effect};
use crate::geometry::GeometryOptions;
use crate::limits::BLOCK;
use crate::media::RamMedium;
use crate::mount::{MkfsOptions, format};
use crate::record::InodeRec;
use crate::store::{Need, Plan};
use weldfs_ciscops::InodeNo;
use weldfs_journal::{AlignedBuf, ManualClock, RecordHead, SeededRandom};

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
    let (store, _) = Store::mount(medium.clone(), options()).unwrap();
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
    let (store, _) = Store::mount(medium.clone(), options()).unwrap();
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
    let (store, _) = Store::mount(medium.clone(), options()).unwrap();
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
    let (store, _) = Store::mount(medium, options()).unwrap();
    let read = store.read_block(InodeNo(3), 1, &mut [0; BLOCK]);
    assert!(matches!(read, Err(FsError::Corrupt(_))));
}

#[test]
fn a_patch_over_a_rotten_block_never_gets_a_fresh_checksum() {
    let medium = populated();
    let (store, _) = Store::mount(medium.clone(), options()).unwrap();
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
            && let Ok((store, _)) = Store::mount(medium, options())
        {
            let _ = store.read_block(InodeNo(3), 0, &mut [0; BLOCK]);
            store.checkpoint().unwrap();
        }
    }
}

#[test]
fn a_forged_mapping_beyond_every_medium_is_no_merged_block() {
    use crate::overlay::window::{Mapping, pack};
    let medium = populated();
    let (store, _) = Store::mount(medium.clone(), options()).unwrap();
    store.unmount().unwrap();
    {
        let mut writer = store.writer.lock();
        let base = store.overlay.base(0);
        let forged = |addr| pack(&[(9, Mapping { addr, birth: 1, crc: 0, state: BlockState::Written })], u64::MAX);
        let keys = [(500, (1 << 47) + 5), (501, 1 << 47)];
        let mut changes = keys.iter().map(|(win, addr)| (Key::new(kind::WINDOW, 3, *win), Some(forged(*addr))));
        writer.zone.begin_checkpoint();
        let cut = writer.sb.cut;
        let tree = base.tree.apply(&base.slow, &mut writer.zone, &mut changes, cut).unwrap();
        writer.sb.zone = writer.zone.write_map(&base.slow, cut).unwrap();
        writer.sb.root = tree.root();
        writer.sb.store(&*medium).unwrap();
    }
    drop(store);
    let found = fsck(medium, options(), false).unwrap().problems.join("\n");
    assert_finds(&found, "inode 3: block 128009 lies outside the data area (140737488355333)");
    assert_finds(&found, "inode 3: block 128265 lies outside the data area (140737488355328)");
}
