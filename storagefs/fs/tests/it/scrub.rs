//! Scrub finds what is damaged wherever it is, names the file, and finds nothing where nothing is, also while the file
//! system is in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weldfs_ciscops::interp::Outcome;
use weldfs_ciscops::{At, Handle, InodeNo, Op, OpenFlags};
use weldfs_fs::driver::Direct;
use weldfs_journal::{ManualClock, Medium, SeededRandom};
use weldfs_media::{ImageKind, RamMedium, create};
use weldfs_store::geometry::GeometryOptions;
use weldfs_store::mount::{MkfsOptions, format};
use weldfs_store::scrub::{ScrubOptions, ScrubReport, What, scrub};
use weldfs_store::superblock::Superblock;
use weldfs_store::{MountOptions, Store};

const SIZE: u64 = 32 << 20;

fn options(read_only: bool) -> MountOptions {
    let o = MountOptions::new(Arc::new(ManualClock::new(1_000_000_000)), Arc::new(SeededRandom::new(3)));
    MountOptions { read_only, ..o }
}

fn ok(o: Outcome) -> Outcome {
    assert!(o.is_ok(), "{o:?}");
    o
}

fn mkdir(d: &mut Direct, path: &str) {
    let path = d.put(0, path.as_bytes());
    ok(d.run(Op::Mkdir { base: Handle::ROOT, path, mode: 0o755 }));
}

fn put(d: &mut Direct, path: &str, len: usize) {
    let (path, src) = (d.put(0, path.as_bytes()), d.put(64 << 10, &vec![len as u8; len]));
    let (flags, at) = (OpenFlags::WRITE | OpenFlags::CREATE, At::Offset(0));
    ok(d.run(Op::OpenWriteClose { base: Handle::ROOT, path, flags, mode: 0o644, at, src }));
}

/// A tree with a file of 200 blocks at "/a/b/file" (inode 4); some of it in the tree, some in the log.
fn populate(medium: Arc<dyn Medium>) -> Direct {
    let o = options(false);
    let geometry = GeometryOptions { log_len: Some(1 << 20), ..Default::default() };
    let mkfs = MkfsOptions { geometry, ..Default::default() };
    format(&medium, &mkfs, &*o.clock, &*o.random).expect("large enough");
    let store = weldfs_fs::mount(medium, o).expect("just formatted").0;
    let mut d = Direct::new(store, 8 << 20);
    mkdir(&mut d, "a");
    mkdir(&mut d, "a/b");
    put(&mut d, "a/b/file", 200 * 4096);
    (0..30).for_each(|i| put(&mut d, &format!("a/f{i}"), 100 * i));
    d.store().checkpoint().expect("healthy");
    put(&mut d, "a/later", 5000);
    d
}

fn unmounted() -> Arc<dyn Medium> {
    let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(SIZE));
    let d = populate(medium.clone());
    d.store().unmount().expect("healthy");
    medium
}

fn look(store: &Store) -> ScrubReport {
    let stop = AtomicBool::new(false);
    scrub(store, &ScrubOptions { rate: None, stop: &stop }, &mut ()).expect("a medium that can be read")
}

fn look_at(medium: &Arc<dyn Medium>) -> ScrubReport {
    look(&weldfs_fs::mount(medium.clone(), options(true)).expect("mounts").0)
}

fn flip(medium: &dyn Medium, at: u64) {
    let mut block = vec![0; 4096];
    medium.read(at / 4096 * 4096, &mut block).expect("reads");
    medium.write(at, &[block[(at % 4096) as usize] ^ 1]).expect("writes");
}

fn address(store: &Store, ino: u64, blk: u64) -> u64 {
    let mut at = None;
    let mut visit = |_: u64, v: weldfs_store::BlockView| {
        at = v.addr;
        true
    };
    store.blocking(|| store.block_map(InodeNo(ino), blk, 1, &mut visit)).expect("mapped");
    at.expect("written").0
}

#[test]
fn a_healthy_image_is_read_to_its_end_and_clean() {
    let medium = unmounted();
    let report = look_at(&medium);
    assert!(report.clean && report.complete, "{report:?}");
    assert!(report.data_blocks >= 230 && report.tree_pages > 0 && report.keys > 60, "{report:?}");
    assert!(report.superblocks == 3 && report.zone_pages == 1 && report.bytes > 230 * 4096, "{report:?}");
}

#[test]
fn what_lies_in_the_log_only_is_read_too() {
    let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(SIZE));
    let d = populate(medium.clone());
    // Inode 35: "a/later", mapped by a record that no checkpoint has seen.
    let at = address(d.store(), 35, 0);
    let tail = d.store().journal().tail();
    d.store().journal().wait(tail).expect("durable");
    d.store().journal().idle();
    drop(d);
    assert!(look_at(&medium).clean);
    flip(&*medium, at * 4096 + 5);
    let report = look_at(&medium);
    assert_eq!(report.finding_count, 1);
    assert_eq!(report.findings[0].path.as_deref(), Some("/a/later"));
}

#[test]
fn a_torn_tail_of_the_log_is_a_note_and_no_damage() {
    let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(SIZE));
    let mut d = populate(medium.clone());
    let journal = d.store().journal().clone();
    journal.wait(journal.tail()).expect("durable");
    journal.idle();
    let place = |lsn: weldfs_journal::Lsn, store: &Store| store.geometry().log.physical(lsn);
    let torn = place(journal.tail(), d.store());
    put(&mut d, "a/torn", 100);
    put(&mut d, "a/behind", 100);
    drop((d, journal));
    let healthy = weldfs_fs::mount(medium.clone(), options(true)).expect("mounts");
    let mut report = look(&healthy.0);
    report.recovered(&healthy.1);
    assert!(report.clean && report.notes.len() == 1, "{:?}", report.notes);
    assert!(report.notes[0].contains("vouches for"), "{:?}", report.notes);
    flip(&*medium, torn + 70);
    let (store, recovery) = weldfs_fs::mount(medium, options(true)).expect("mounts");
    let mut report = look(&store);
    report.recovered(&recovery);
    assert!(report.clean && report.complete && report.mountable, "{report:?}");
    let records = recovery.discarded_records;
    assert!(records > 0 && report.notes.len() == 2, "{:?}", report.notes);
    assert!(report.notes[1].contains("torn tail of the log, LSN") && report.notes[1].contains(&records.to_string()));
}

#[test]
fn of_last_records_that_are_gone_as_a_whole_the_report_says_where_the_log_ends() {
    let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(SIZE));
    let mut d = populate(medium.clone());
    let journal = d.store().journal().clone();
    journal.wait(journal.tail()).expect("durable");
    journal.idle();
    let end = journal.tail();
    let from = d.store().geometry().log.physical(end);
    put(&mut d, "a/gone", 100);
    let len = d.store().geometry().log.physical(journal.tail()) - from;
    drop((d, journal));
    medium.write(from, &vec![0; len as usize]).expect("written");
    let (store, recovery) = weldfs_fs::mount(medium, options(true)).expect("mounts");
    let mut report = look(&store);
    report.recovered(&recovery);
    assert!(report.clean && recovery.torn_tail().is_none(), "{report:?}");
    assert!(
        report.notes.len() == 1 && report.notes[0].contains(&format!("ends at LSN {}", end.0)),
        "{:?}",
        report.notes
    );
}

#[test]
fn damaged_data_is_named_by_path_offset_block_and_both_checksums() {
    let medium = unmounted();
    let store = weldfs_fs::mount(medium.clone(), options(true)).expect("mounts").0;
    let at = address(&store, 4, 77);
    flip(&*medium, at * 4096 + 1000);
    let report = look(&store);
    assert_eq!((report.clean, report.complete, report.finding_count), (false, true, 1));
    let f = &report.findings[0];
    assert_eq!((f.what, f.inode, f.offset, f.block), (What::Data, Some(4), 77 * 4096, Some(at)));
    assert_eq!(f.path.as_deref(), Some("/a/b/file"));
    assert!(f.expected != f.actual && f.actual != 0, "{f:?}");
}

#[test]
fn each_damaged_part_of_the_metadata_is_found() {
    let medium = unmounted();
    let (sb, _) = Superblock::load(&*medium).expect("healthy");
    let planted = [
        (What::Superblock, 0),
        (What::Superblock, 8 * 4096 + 600),
        (What::ZoneMap, sb.zone.addr.0 * 4096 + 100),
        (What::TreePage, sb.root.page.addr.0 * 4096 + 9000),
    ];
    for (what, at) in planted {
        // Damage that comes while the store is mounted: the mount itself refuses what it reads.
        let store = weldfs_fs::mount(medium.clone(), options(true)).expect("mounts").0;
        flip(&*medium, at);
        let report = look(&store);
        assert!(report.complete && !report.clean, "{what:?}: {report:?}");
        assert!(report.findings.iter().any(|f| f.what == what), "{what:?}: {report:?}");
        flip(&*medium, at);
        assert!(look(&store).clean);
    }
}

#[test]
fn blocks_lost_at_a_merge_stay_known() {
    let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(SIZE));
    let mut d = populate(medium.clone());
    let path = d.put(0, b"a/b/file");
    let flags = OpenFlags::WRITE;
    let src = d.put(64 << 10, b"patch");
    ok(d.run(Op::OpenWriteClose { base: Handle::ROOT, path, flags, mode: 0, at: At::Offset(9 * 4096 + 3), src }));
    flip(&*medium, address(d.store(), 4, 9) * 4096 + 2000);
    d.store().unmount().expect("goes on");
    let report = look_at(&medium);
    assert_eq!((report.finding_count, report.lost_blocks), (1, 1), "{report:?}");
    assert_eq!(report.findings[0].path.as_deref(), Some("/a/b/file"));
}

#[test]
fn a_file_system_in_use_shows_nothing_that_is_not_there() {
    let dir = tempfile::tempdir().expect("a folder");
    let media: [Arc<dyn Medium>; 2] = [
        Arc::new(RamMedium::new(SIZE)),
        create(&dir.path().join("image"), ImageKind::Block, SIZE, false).expect("creates"),
    ];
    for medium in media {
        let mut d = populate(medium.clone());
        let store = d.store().clone();
        let done = Arc::new(AtomicBool::new(false));
        let end = done.clone();
        let scrubber = std::thread::spawn(move || {
            let mut reports = Vec::new();
            while !end.load(Ordering::Relaxed) || reports.is_empty() {
                reports.push(look(&store));
            }
            reports
        });
        for round in 0..400u64 {
            put(&mut d, &format!("a/f{}", round % 30), 3000 + 700 * (round % 40) as usize);
            put(&mut d, "a/b/file", 4096 * (1 + round % 150) as usize);
            if round % 20 == 0 {
                d.store().checkpoint().expect("healthy");
            }
        }
        done.store(true, Ordering::Relaxed);
        for report in scrubber.join().expect("no panic") {
            assert_eq!(report.finding_count, 0, "{:?}", report.findings.first());
        }
        // And what is there is found, with the log still full of newer things.
        let at = address(d.store(), 4, 0);
        let tail = d.store().journal().tail();
        d.store().journal().wait(tail).expect("durable");
        flip(&*medium, at * 4096);
        let report = look(d.store());
        assert_eq!(report.finding_count, 1, "{report:?}");
        assert_eq!(report.findings[0].path.as_deref(), Some("/a/b/file"));
    }
}

#[test]
fn a_stop_is_heard_and_a_throttle_holds() {
    let medium = unmounted();
    let store = weldfs_fs::mount(medium.clone(), options(true)).expect("mounts").0;
    let stop = AtomicBool::new(true);
    let report = scrub(&store, &ScrubOptions { rate: None, stop: &stop }, &mut ()).expect("readable");
    assert!(!report.complete && !report.clean && report.finding_count == 0);
    let stop = AtomicBool::new(false);
    let report = scrub(&store, &ScrubOptions { rate: Some(8 << 20), stop: &stop }, &mut ()).expect("readable");
    assert!(report.complete && report.seconds >= report.bytes as f64 / (8 << 20) as f64 * 0.9, "{report:?}");
}
