use super::*;
use crate::driver::Direct;
use crate::inode_set::RENAME_LOCK;
use crate::resolve::ROOT;
use crate::resolve::STRIDE;
use crate::{Hold, InodeSet, Txn, resolve_set};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use weldfs_ciscops::{
    At, Command, FallocMode, Handle, Op, OpenFlags, Paths, PoolRange, RenameFlags, Sink, Whence, XattrFlags,
};
use weldfs_journal::{Clock, Medium, SeededRandom, SystemClock};
use weldfs_media::RamMedium;
use weldfs_store::MountOptions;
use weldfs_store::mount::{MkfsOptions, format};
use weldfs_store::record::{Dirent, InodeRec};

fn direct() -> Direct {
    let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(64 << 20));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    format(&medium, &MkfsOptions::default(), &*clock, &SeededRandom::new(1)).expect("memory takes a file system");
    let options = MountOptions::new(clock, Arc::new(SeededRandom::new(2)));
    let (store, _) = crate::mount(medium, options).expect("what was just formatted mounts");
    Direct::new(store, 1 << 17)
}

fn ok(device: &mut Direct, op: Op) -> u64 {
    let outcome = device.run(op);
    assert_eq!(outcome.status, 0, "{op:?}");
    outcome.result
}

fn mkdir(device: &mut Direct, name: &str) {
    let path = device.put(0, name.as_bytes());
    ok(device, Op::Mkdir { base: Handle::ROOT, path, mode: 0o755 });
}

fn open(device: &mut Direct, name: &str, flags: OpenFlags) -> (Handle, InodeNo) {
    let path = device.put(0, name.as_bytes());
    let h = Handle::from_wire(ok(device, Op::open(Handle::ROOT, path, flags, 0o644)));
    let found = device.store().dirent(ROOT, name.as_bytes()).expect("memory is read").expect("just opened");
    (h, found.ino)
}

/// `count` links `l0`, `l1`, ..., each of which goes `d/..` as often as 4 KiB hold and on to the next; the last one
/// ends.
fn maze(device: &mut Direct, count: usize) {
    mkdir(device, "d");
    for i in 0..count {
        let next = if i + 1 < count { format!("l{}", i + 1) } else { "d".into() };
        let target = "d/../".repeat((4095 - next.len()) / 5) + &next;
        let (target, path) = (device.put(0, target.as_bytes()), device.put(8192, format!("l{i}").as_bytes()));
        ok(device, Op::Symlink { target, base: Handle::ROOT, path });
    }
}

/// The store, and how often it was asked.
struct Counting<'a> {
    store: &'a Store,
    asked: Cell<u32>,
}

impl View for Counting<'_> {
    fn inode(&self, ino: InodeNo) -> FsResult<Option<InodeRec>> {
        self.asked.set(self.asked.get() + 1);
        self.store.inode(ino)
    }

    fn entry(&self, dir: InodeNo, name: &[u8]) -> FsResult<Option<Dirent>> {
        self.asked.set(self.asked.get() + 1);
        self.store.dirent(dir, name)
    }
}

/// Walks to the end: the errno, if it is one, how many strides it took, and how often each asked the store at most.
fn walked(device: &Direct, strides: &mut Strides, path: &[u8]) -> (Option<Errno>, u32, u32) {
    let view = Counting { store: device.store(), asked: Cell::new(0) };
    let (mut count, mut most) = (0, 0);
    loop {
        view.asked.set(0);
        strides.again();
        let done = strides.walk(Walker::of(device.view()), &view, (ROOT, path, Last::Follow), &mut Trail::default());
        (count, most) = (count + 1, most.max(view.asked.get()));
        match done {
            Err(FsError::Turn) => {}
            Ok(_) => return (None, count, most),
            Err(FsError::Errno(e)) => return (Some(e), count, most),
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
fn a_walk_along_links_of_many_components_goes_in_strides_and_ends_at_the_bound() {
    let mut device = direct();
    maze(&mut device, 39);
    let (errno, strides, most) = walked(&device, &mut Strides::default(), b"l0");
    assert_eq!(errno, Some(Errno::LOOP), "39 links of 1,636 components");
    assert_eq!(strides, PATH_COMPONENTS_MAX / STRIDE + 1);
    // An entry and its inode; what the walk begins with, and the root where a link leads there.
    assert!(most <= 2 * STRIDE + 2, "{most} questions in one stride");
    // The last two have room.
    let (errno, strides, _) = walked(&device, &mut Strides::default(), b"l37");
    assert_eq!((errno, strides), (None, (2 * 1637_u32 + 1).div_ceil(STRIDE)));
    // As commands: both phases of each, and both paths of a rename together.
    let stat = |device: &mut Direct, name: &[u8]| {
        let path = device.put(0, name);
        let out = PoolRange::new(4096, 256);
        device.run(Op::StatPath { base: Handle::ROOT, path, nofollow: false, out }).status
    };
    assert_eq!(stat(&mut device, b"l0"), Errno::LOOP.0);
    assert_eq!(stat(&mut device, b"l37"), 0);
    let rename = |device: &mut Direct, from: &[u8], to: &[u8]| {
        let (from, to) = (device.put(0, from), device.put(4096, to));
        let base = Handle::ROOT;
        device.run(Op::Rename { from_base: base, from, to_base: base, to, flags: RenameFlags::empty() }).status
    };
    mkdir(&mut device, "x");
    assert_eq!(rename(&mut device, b"l38/../x", b"l38/../y"), 0, "two ways of 1,640 components");
    assert_eq!(rename(&mut device, b"l37/../y", b"l38/../x"), Errno::LOOP.0, "3,276 and 1,640");
    assert_eq!(rename(&mut device, b"l37/../y", b"x"), 0);
}

#[test]
fn every_interrupted_walk_of_a_command_goes_on_where_it_was() {
    let mut device = direct();
    maze(&mut device, 1);
    let (from, to) = (device.put(0, b"l0/nothing/there"), device.put(4096, b"l0/../new"));
    let base = Handle::ROOT;
    let cmd = Command::new(1, Op::Rename { from_base: base, from, to_base: base, to, flags: RenameFlags::empty() });
    let paths = Paths::fetch(&cmd, device.pool()).expect("two paths");
    let (mut strides, mut turns) = (Strides::default(), 0);
    let set = loop {
        match resolve_set(device.store(), &cmd, &paths, device.view(), &[], &mut strides) {
            Err(FsError::Turn) => turns += 1,
            other => break other.expect("a set, also when a name is missing"),
        }
    };
    // A walk that ended with an errno is not made again either, or the two would take turns for ever.
    assert!((2 * 1637 / STRIDE - 2..=2 * 1641 / STRIDE + 2).contains(&turns), "{turns} interruptions");
    assert!(set.covers(ROOT, Hold::Exclusive));
}

#[test]
fn the_way_up_from_a_deep_directory_goes_in_strides() {
    const DEPTH: u32 = 1000;
    let mut device = direct();
    mkdir(&mut device, "leaf");
    let (bottom, bottom_ino) = open(&mut device, "leaf", OpenFlags::READ | OpenFlags::DIRECTORY);
    let base = Handle::ROOT;
    let moves = |device: &mut Direct, from: &str, to: &str| {
        let (from, to) = (device.put(0, from.as_bytes()), device.put(4096, to.as_bytes()));
        ok(device, Op::Rename { from_base: base, from, to_base: base, to, flags: RenameFlags::empty() });
    };
    // From below upwards, so that no path is long.
    for i in 0..DEPTH {
        mkdir(&mut device, "above");
        moves(&mut device, if i == 0 { "leaf" } else { "top" }, "above/d");
        moves(&mut device, "above", "top");
    }
    mkdir(&mut device, "moved");
    let (_, moved) = open(&mut device, "moved", OpenFlags::READ | OpenFlags::DIRECTORY);
    let mut set = InodeSet::new();
    [ROOT, bottom_ino, moved, RENAME_LOCK].into_iter().for_each(|ino| set.add(ino, Hold::Exclusive));
    let store = device.store().clone();
    let mut txn = Txn::new(&store, device.view(), &set, None, 0, (0, 0));
    let mut turns = 0;
    loop {
        match txn.rename_core((base, b"moved"), (bottom, b"here"), RenameFlags::empty()) {
            Err(FsError::Turn) => turns += 1,
            other => break other.expect("it may go there"),
        }
        txn.strides.again();
    }
    assert!((DEPTH / STRIDE - 1..=DEPTH / STRIDE + 1).contains(&turns), "{turns} interruptions");
    drop(txn);
    // And what is above stays out of what is below.
    let (from, to) = (device.put(0, b"top"), device.put(4096, b"in"));
    let into = Op::Rename { from_base: base, from, to_base: bottom, to, flags: RenameFlags::empty() };
    assert_eq!(device.run(into).status, Errno::INVAL.0);
    moves(&mut device, "moved", "top/moved");
}

#[test]
fn a_look_for_data_goes_through_a_file_of_many_pieces_in_strides() {
    let mut device = direct();
    let (h, ino) = open(&mut device, "file", OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE);
    let (windows, window) = (40, weldfs_store::limits::WINDOW_BLOCKS * 4096);
    for i in 0..windows {
        ok(&mut device, Op::Fallocate { h, mode: FallocMode::Reserve, off: i * window, len: window });
    }
    let src = device.put(0, b"data");
    ok(&mut device, Op::Write { h, at: At::Offset(windows * window), src });
    let mut set = InodeSet::new();
    set.add(ino, Hold::Shared);
    let store = device.store().clone();
    let mut txn = Txn::new(&store, device.view(), &set, None, 0, (0, 0));
    let mut turns = 0;
    let found = loop {
        match txn.seek_core(ino, 0, Whence::Data, 0) {
            Err(FsError::Turn) => turns += 1,
            other => break other.expect("there is data"),
        }
        txn.strides.again();
    };
    assert_eq!((found, turns), (windows * window, 10), "four windows at a time");
}

#[test]
fn attributes_are_found_by_their_names_and_listed_in_strides() {
    const COUNT: usize = 1000;
    let mut device = direct();
    let (h, ino) = open(&mut device, "file", OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE);
    let mut want = BTreeSet::new();
    let name_of = |i: usize| format!("user.{i}");
    for i in 0..COUNT {
        if i == COUNT / 2 {
            device.store().checkpoint().expect("half of them in the tree");
        }
        let (name, value) = (device.put(0, name_of(i).as_bytes()), device.put(4096, &[i as u8; 9]));
        let path = PoolRange::new(0, 0);
        let flags = XattrFlags::CREATE;
        ok(&mut device, Op::SetXattr { base: h, path, nofollow: false, name, value, flags });
        want.insert(name_of(i));
    }
    for i in (0..COUNT).step_by(3) {
        let name = device.put(0, name_of(i).as_bytes());
        ok(&mut device, Op::RemoveXattr { base: h, path: PoolRange::new(0, 0), nofollow: false, name });
        want.remove(&name_of(i));
    }
    let store = device.store().clone();
    for i in 0..COUNT {
        let first = store.name_hash().bucket(name_of(i).as_bytes());
        assert!(store.xattr_bucket(ino, first).unwrap().len() <= 1, "one is looked at to find one");
        let found = store.xattr(ino, name_of(i).as_bytes()).unwrap();
        assert_eq!(found.map(|x| x.value[0]), (i % 3 != 0).then_some(i as u8));
    }
    let mut set = InodeSet::new();
    set.add(ino, Hold::Shared);
    let mut txn = Txn::new(&store, device.view(), &set, None, 0, (0, 0));
    let mut turns = 0;
    let mut list = |room: u64, out: &mut [u8]| loop {
        txn.strides.again();
        match txn.list_xattr_core(h, b"", false, room, Sink::Private(out)) {
            Err(FsError::Turn) => turns += 1,
            other => {
                txn.strides.over();
                return other;
            }
        }
    };
    let bytes: usize = want.iter().map(|n| n.len() + 1).sum();
    let mut out = vec![0; bytes];
    assert_eq!(list(0, &mut []).unwrap(), bytes as u64);
    assert!(matches!(list(bytes as u64 - 1, &mut out), Err(FsError::Errno(Errno::RANGE))));
    assert_eq!(list(bytes as u64, &mut out).unwrap(), bytes as u64);
    let got: BTreeSet<String> =
        out.split(|b| *b == 0).filter(|n| !n.is_empty()).map(|n| String::from_utf8_lossy(n).into()).collect();
    assert_eq!(got, want);
    assert!(turns >= 3 * (want.len() as u32 / 32), "{turns} interruptions of three lists");
}
