//! The same commands, at random, on a device and on a directory of the host: the same results, errnos and final trees.
//!
//! Known differences, left out of what is compared: sizes and link counts of directories; blocks, numbers and times of
//! inodes (a host file system has its own); the order of a listing and its cookies; how many micro-ops of a MacroTx
//! that failed stand (a directory of the host takes nothing back, and says so).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use weldfs::{
    AccessMask, At, Change, Client, Errno, FallocMode, Handle, LockKind, LockSpace, OpenFlags, Raw, RenameFlags,
    SetAttrBody, SetAttrMask, StatBody, Whence, WireTime, XattrFlags,
};
use weldfs_ciscops::dirent::Dirents;
use weldfs_ciscops::{ChecksumKind, Durability};
use weldfs_device::{DeviceConfig, Usage};
use weldfs_kernel_shim::{Embedded, EmbeddedDir, Source};

const NAMES: &[&[u8]] = &[b"a", b"b", b"d", b"d/a", b"d/b", b"d/e", b"d/e/f", b"l", b"d/l", b"none/x", b"a/x"];
const TARGETS: &[&[u8]] = &[b"a", b"d", b"e", b"../a", b"/d/a", b"l", b"nowhere", b"../../d"];
const SLOTS: usize = 4;

/// What a command answered, as far as it must be the same.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Said {
    Done,
    Number(u64),
    Two(u64, u64),
    Bytes(Vec<u8>),
    Names(BTreeMap<Vec<u8>, u8>),
    Stat { mode: u32, size: Option<u64>, nlink: Option<u32>, owner: (u32, u32) },
}

fn stat(s: &StatBody) -> Said {
    let dir = s.mode & 0o170_000 == 0o040_000;
    Said::Stat { mode: s.mode, size: (!dir).then_some(s.size), nlink: (!dir).then_some(s.nlink), owner: (s.uid, s.gid) }
}

#[derive(Clone, Debug)]
enum Step {
    Open(usize, &'static [u8], OpenFlags, u32),
    Close(usize),
    Read(usize, At, usize),
    Write(usize, At, Vec<u8>),
    Truncate(usize, u64),
    Fallocate(usize, FallocMode, u64, u64),
    Seek(usize, Whence, i64),
    Stat(usize),
    StatAt(Option<usize>, &'static [u8], bool),
    SetAttr(&'static [u8], bool, SetAttrBody),
    SetAttrOf(usize, SetAttrBody),
    Access(&'static [u8], AccessMask, bool),
    List(usize),
    Mkdir(&'static [u8], u32),
    Rmdir(&'static [u8]),
    Unlink(Option<usize>, &'static [u8]),
    Rename(&'static [u8], &'static [u8], RenameFlags),
    Link(&'static [u8], &'static [u8], bool),
    LinkOf(usize, &'static [u8]),
    Symlink(&'static [u8], &'static [u8]),
    Readlink(&'static [u8]),
    SetXattr(&'static [u8], &'static [u8], Vec<u8>, XattrFlags),
    GetXattr(&'static [u8], &'static [u8], usize),
    ListXattr(&'static [u8]),
    RemoveXattr(&'static [u8], &'static [u8]),
    Lock(usize, LockKind, LockSpace, u64, u64, u64),
    SetFlags(usize, OpenFlags),
    Sync(usize),
    Checksum(usize, u64, u64),
    OpenWriteClose(&'static [u8], OpenFlags, At, Vec<u8>),
    OpenReadClose(&'static [u8], u64, usize),
    OpenReadWriteClose(&'static [u8], OpenFlags, u64, usize, At, Vec<u8>),
    Append(usize, Vec<u8>),
    Verify(usize, u64, u32),
    Add(usize, u64, u32),
    Patch(usize, u64, Vec<u8>),
    Swap(usize, u64, [u8; 4], [u8; 4]),
}

fn flags(rng: &mut StdRng) -> OpenFlags {
    let access = [OpenFlags::READ, OpenFlags::WRITE, OpenFlags::READ | OpenFlags::WRITE];
    let mut f = *access.choose(rng).unwrap();
    for (odds, flag) in [
        (0.6, OpenFlags::CREATE),
        (0.1, OpenFlags::EXCL),
        (0.15, OpenFlags::TRUNC),
        (0.2, OpenFlags::APPEND),
        (0.1, OpenFlags::NOFOLLOW),
        (0.1, OpenFlags::DSYNC),
    ] {
        f.set(flag, rng.random_bool(odds));
    }
    f
}

fn bytes(rng: &mut StdRng) -> Vec<u8> {
    let len = *[1, 5, 100, 4096, 9000].choose(rng).unwrap();
    let first: u8 = rng.random();
    (0..len).map(|i| first.wrapping_add((i % 251) as u8)).collect()
}

fn at(rng: &mut StdRng) -> At {
    match rng.random_range(0..3) {
        0 => At::End,
        1 => At::Current,
        _ => At::Offset(rng.random_range(0..20_000)),
    }
}

fn place(rng: &mut StdRng) -> At {
    if rng.random_bool(0.4) { At::End } else { At::Offset(rng.random_range(0..20_000)) }
}

fn attributes(rng: &mut StdRng) -> SetAttrBody {
    let mut mask = SetAttrMask::empty();
    mask.set(SetAttrMask::MODE, rng.random_bool(0.5));
    mask.set(SetAttrMask::SIZE, rng.random_bool(0.3));
    mask.set(SetAttrMask::UID, rng.random_bool(0.2));
    mask.set(SetAttrMask::MTIME, rng.random_bool(0.3));
    mask.set(SetAttrMask::ATIME_NOW, rng.random_bool(0.3));
    SetAttrBody {
        mask: mask.bits(),
        mode: rng.random_range(0..0o1000),
        uid: rustix::process::geteuid().as_raw(),
        size: rng.random_range(0..30_000),
        mtime: WireTime::new(1_000_000, 5),
        ..SetAttrBody::default()
    }
}

fn on_handle(rng: &mut StdRng) -> Step {
    let s = rng.random_range(0..SLOTS);
    let len = *[0usize, 1, 7, 4096, 20_000].choose(rng).unwrap();
    let off = rng.random_range(0..20_000);
    let modes = [FallocMode::Reserve, FallocMode::KeepSize, FallocMode::Punch, FallocMode::Zero];
    match rng.random_range(0..16) {
        0 => Step::Close(s),
        1 => Step::Read(s, if rng.random_bool(0.5) { At::Current } else { At::Offset(off) }, len),
        2 | 3 => Step::Write(s, at(rng), bytes(rng)),
        4 => Step::Truncate(s, off),
        5 => Step::Fallocate(s, *modes.choose(rng).unwrap(), off, 1 + rng.random_range(0..10_000)),
        6 => {
            let whence = *[Whence::Set, Whence::Cur, Whence::End].choose(rng).unwrap();
            Step::Seek(s, whence, rng.random_range(-5000..5000))
        }
        7 => Step::Stat(s),
        8 => Step::SetAttrOf(s, attributes(rng)),
        9 => Step::List(s),
        10 => {
            let kind = *[LockKind::Read, LockKind::Write, LockKind::Unlock].choose(rng).unwrap();
            let space = *[LockSpace::Process, LockSpace::OpenFile, LockSpace::Flock].choose(rng).unwrap();
            let (start, len) = if space == LockSpace::Flock { (0, 0) } else { (off, rng.random_range(0..100)) };
            Step::Lock(s, kind, space, start, len, rng.random_range(0..2))
        }
        11 => Step::SetFlags(s, if rng.random_bool(0.5) { OpenFlags::APPEND } else { OpenFlags::empty() }),
        12 => Step::Sync(s),
        13 => Step::Checksum(s, off, rng.random_range(0..100_000)),
        14 => Step::Append(s, bytes(rng)),
        _ => match rng.random_range(0..4) {
            0 => Step::Verify(s, off, len as u32),
            1 => Step::Add(s, off, *[1, 2, 4, 8].choose(rng).unwrap()),
            2 => Step::Patch(s, off, bytes(rng)),
            _ => Step::Swap(s, off, [0; 4], rng.random()),
        },
    }
}

fn step(rng: &mut StdRng) -> Step {
    let names: Vec<_> = (0..2).map(|_| *NAMES.choose(rng).unwrap()).collect();
    let (a, b) = (names[0], names[1]);
    let yes = rng.random_bool(0.5);
    let from = rng.random_bool(0.2).then(|| rng.random_range(0..SLOTS));
    let rename = [RenameFlags::empty(), RenameFlags::empty(), RenameFlags::NOREPLACE, RenameFlags::EXCHANGE];
    let xattrs: [&[u8]; 4] = [b"user.a", b"user.bb", b"other.c", b"user."];
    match rng.random_range(0..40) {
        0..=5 => Step::Open(rng.random_range(0..SLOTS), a, flags(rng), rng.random_range(0..0o1000)),
        6 => Step::Open(rng.random_range(0..SLOTS), a, OpenFlags::READ | OpenFlags::DIRECTORY, 0),
        7..=19 => on_handle(rng),
        20 => Step::StatAt(from, a, yes),
        21 => Step::SetAttr(a, yes, attributes(rng)),
        22 => Step::Access(a, AccessMask::from_bits_truncate(rng.random_range(0..8)), yes),
        23 | 24 => Step::Mkdir(a, rng.random_range(0..0o1000)),
        25 => Step::Rmdir(a),
        26 => Step::Unlink(from, a),
        27 | 28 => Step::Rename(a, b, *rename.choose(rng).unwrap()),
        29 => Step::Link(a, b, yes),
        30 => Step::LinkOf(rng.random_range(0..SLOTS), a),
        31 => Step::Symlink(TARGETS.choose(rng).unwrap(), a),
        32 => Step::Readlink(a),
        33 => match rng.random_range(0..4) {
            0 => Step::SetXattr(
                a,
                xattrs.choose(rng).unwrap(),
                bytes(rng).into_iter().take(64).collect(),
                XattrFlags::empty(),
            ),
            1 => Step::GetXattr(a, xattrs.choose(rng).unwrap(), *[0, 3, 100].choose(rng).unwrap()),
            2 => Step::ListXattr(a),
            _ => Step::RemoveXattr(a, xattrs.choose(rng).unwrap()),
        },
        34 | 35 => Step::OpenWriteClose(a, flags(rng) | OpenFlags::WRITE, place(rng), bytes(rng)),
        36 | 37 => Step::OpenReadClose(a, rng.random_range(0..20_000), 5000),
        38 => {
            let both = OpenFlags::READ | OpenFlags::WRITE;
            Step::OpenReadWriteClose(a, flags(rng) | both, rng.random_range(0..9000), 3000, place(rng), bytes(rng))
        }
        _ => Step::SetXattr(a, xattrs[0], vec![rng.random(); 9], XattrFlags::CREATE),
    }
}

/// One side: a client, and the handles it has open.
struct Side {
    client: Client,
    open: [Option<Handle>; SLOTS],
    /// Which of them are directories.
    dirs: [bool; SLOTS],
}

impl Side {
    fn new(client: Client) -> Side {
        Side { client, open: [None; SLOTS], dirs: [false; SLOTS] }
    }

    fn raw(&self) -> Raw<'_> {
        self.client.raw()
    }

    fn handle(&self, slot: usize) -> Handle {
        self.open[slot].unwrap_or(Handle { index: 60_000, generation: 9 })
    }

    fn base(&self, slot: Option<usize>) -> Handle {
        slot.map_or(Handle::ROOT, |s| self.handle(s))
    }

    fn run(&mut self, step: &Step) -> Result<Said, Errno> {
        match step {
            Step::Open(slot, path, flags, mode) => {
                let opened = self.raw().openat(Handle::ROOT, path, *flags, *mode, 0)?;
                if let Some(old) = self.open[*slot].replace(opened.handle) {
                    self.raw().close(old)?;
                }
                self.dirs[*slot] = opened.mode & 0o170_000 == 0o040_000;
                return Ok(Said::Two(opened.mode.into(), opened.created.into()));
            }
            // The end of a directory is as far as its host says.
            Step::Seek(slot, Whence::End, _) if self.dirs[*slot] => return Ok(Said::Done),
            Step::Close(slot) => {
                let h = self.handle(*slot);
                self.open[*slot] = None;
                return self.raw().close(h).map(|()| Said::Done);
            }
            _ => {}
        }
        self.on_files(step).or_else(|| self.on_names(step)).unwrap_or_else(|| self.fused(step))
    }

    fn on_files(&self, step: &Step) -> Option<Result<Said, Errno>> {
        let raw = self.raw();
        let said = match step {
            Step::Read(s, at, len) => {
                let mut room = vec![0; *len];
                raw.read(self.handle(*s), *at, &mut room[..]).map(|n| Said::Bytes(room[..n].to_vec()))
            }
            Step::Write(s, at, data) => {
                raw.write(self.handle(*s), *at, &data[..]).map(|w| Said::Two(w.len as u64, w.offset))
            }
            Step::Truncate(s, size) => raw.truncate(self.handle(*s), *size).map(|()| Said::Done),
            Step::Fallocate(s, mode, off, len) => {
                raw.fallocate(self.handle(*s), *mode, *off, *len).map(|()| Said::Done)
            }
            Step::Seek(s, whence, off) => raw.seek(self.handle(*s), *whence, *off).map(Said::Number),
            Step::Stat(s) => raw.stat(self.handle(*s)).map(|b| stat(&b)),
            Step::SetAttrOf(s, set) => raw.set_attr(self.handle(*s), set).map(|()| Said::Done),
            Step::List(s) => self.list(self.handle(*s)),
            Step::Lock(s, kind, space, start, len, owner) => {
                raw.lock_set(self.handle(*s), *space, *kind, *start, *len, *owner).map(|()| Said::Done)
            }
            Step::SetFlags(s, flags) => raw.set_flags(self.handle(*s), *flags).map(|()| Said::Done),
            Step::Sync(s) => {
                raw.fsync(self.handle(*s)).and_then(|()| raw.fdatasync(self.handle(*s))).map(|()| Said::Done)
            }
            Step::Checksum(s, off, len) => {
                let sum = raw.checksum_range(self.handle(*s), *off, *len, ChecksumKind::Crc32c);
                sum.map(|s| Said::Two(s.len, s.checksum))
            }
            _ => return None,
        };
        Some(said)
    }

    fn on_names(&self, step: &Step) -> Option<Result<Said, Errno>> {
        let (raw, root) = (self.raw(), Handle::ROOT);
        let done = |r: Result<(), Errno>| r.map(|()| Said::Done);
        Some(match step {
            Step::StatAt(base, path, nofollow) => raw.statat(self.base(*base), path, *nofollow).map(|b| stat(&b)),
            Step::SetAttr(path, nofollow, set) => done(raw.set_attr_at(root, path, *nofollow, set)),
            Step::Access(path, mask, nofollow) => done(raw.accessat(root, path, *mask, *nofollow)),
            Step::Mkdir(path, mode) => done(raw.mkdirat(root, path, *mode)),
            Step::Rmdir(path) => done(raw.rmdirat(root, path)),
            Step::Unlink(base, path) => done(raw.unlinkat(self.base(*base), path)),
            Step::Rename(from, to, flags) => done(raw.renameat(root, from, root, to, *flags)),
            Step::Link(from, to, follow) => done(raw.linkat(root, from, root, to, *follow)),
            Step::LinkOf(s, to) => done(raw.linkat(self.handle(*s), b"", root, to, false)),
            Step::Symlink(target, path) => done(raw.symlinkat(target, root, path)),
            Step::Readlink(path) => {
                let mut room = [0; 256];
                raw.readlinkat(root, path, &mut room).map(|n| Said::Bytes(room[..n].to_vec()))
            }
            Step::SetXattr(path, name, value, flags) => done(raw.set_xattr(root, path, false, name, value, *flags)),
            Step::GetXattr(path, name, room) => {
                let mut value = vec![0; *room];
                raw.get_xattr(root, path, false, name, &mut value).map(|n| {
                    value.truncate(n);
                    Said::Bytes(value)
                })
            }
            Step::ListXattr(path) => {
                let mut names = [0; 512];
                raw.list_xattr(root, path, false, &mut names).map(|n| {
                    let mut names: Vec<_> = names[..n].split(|b| *b == 0).map(<[u8]>::to_vec).collect();
                    names.sort();
                    Said::Bytes(names.concat())
                })
            }
            Step::RemoveXattr(path, name) => done(raw.remove_xattr(root, path, false, name)),
            _ => return None,
        })
    }

    fn fused(&self, step: &Step) -> Result<Said, Errno> {
        let (raw, root) = (self.raw(), Handle::ROOT);
        match step {
            Step::OpenWriteClose(path, flags, at, data) => {
                let d = raw.open_write_close(root, path, *flags, 0o640, *at, &data[..])?;
                Ok(Said::Two(d.len as u64 * 2 + u64::from(d.created), d.offset))
            }
            Step::OpenReadClose(path, off, len) => {
                let mut room = vec![0; *len];
                let n = raw.open_read_close(root, path, OpenFlags::READ, *off, &mut room[..])?;
                Ok(Said::Bytes(room[..n].to_vec()))
            }
            Step::OpenReadWriteClose(path, flags, off, len, at, data) => {
                let mut room = vec![0; *len];
                let e = raw.open_read_write_close(root, path, *flags, 0o600, *off, &mut room[..], *at, &data[..])?;
                room.truncate(e.read);
                room.extend_from_slice(&e.offset.to_le_bytes());
                Ok(Said::Bytes(room))
            }
            Step::Append(s, data) => {
                raw.append_checksum_write(self.handle(*s), &data[..]).map(|s| Said::Two(s.offset, s.checksum.into()))
            }
            Step::Verify(s, off, len) => {
                raw.read_checksum_verify(self.handle(*s), *off, *len, None).map(|n| Said::Number(n.into()))
            }
            Step::Add(s, off, width) => self.modify(*s, *off, Change::Add { by: 77, width: *width }, *width as usize),
            Step::Patch(s, off, data) => self.modify(*s, *off, Change::Patch(data), data.len()),
            Step::Swap(s, off, expect, new) => self.modify(*s, *off, Change::CompareSwap { expect, new }, 4),
            other => unreachable!("{other:?} is run elsewhere"),
        }
    }

    fn modify(&self, slot: usize, off: u64, change: Change<'_>, width: usize) -> Result<Said, Errno> {
        let mut old = vec![0; width];
        self.raw().read_modify_write(self.handle(slot), off, change, Some(&mut old)).map(|()| Said::Bytes(old))
    }

    fn list(&self, h: Handle) -> Result<Said, Errno> {
        let (mut names, mut cookie, mut room) = (BTreeMap::new(), 0, vec![0; 300]);
        loop {
            let n = self.raw().read_dir(h, cookie, &mut room[..])?;
            for entry in Dirents(&room[..n]) {
                cookie = entry.next_cookie;
                assert!(names.insert(entry.name.to_vec(), entry.dtype).is_none(), "{:?} twice", entry.name);
            }
            if n == 0 {
                return Ok(Said::Names(names));
            }
        }
    }

    /// Everything below `dir`, by path.
    fn tree(&self, dir: &[u8], out: &mut BTreeMap<Vec<u8>, (Said, Vec<u8>)>) {
        let raw = self.raw();
        let h = raw.openat(Handle::ROOT, dir, OpenFlags::READ | OpenFlags::DIRECTORY, 0, 0).unwrap().handle;
        let Said::Names(names) = self.list(h).unwrap() else { unreachable!() };
        raw.close(h).unwrap();
        for name in names.into_keys().filter(|n| n != b"." && n != b"..") {
            let path = [dir, b"/", &name].concat();
            let body = raw.statat(Handle::ROOT, &path, true).unwrap();
            let mut content = vec![0; 60_000];
            match body.mode & 0o170_000 {
                0o040_000 => {
                    content.clear();
                    self.tree(&path, out);
                }
                0o120_000 => {
                    let n = raw.readlinkat(Handle::ROOT, &path, &mut content).unwrap();
                    content.truncate(n);
                }
                _ => {
                    let n = raw.open_read_close(Handle::ROOT, &path, OpenFlags::READ, 0, &mut content[..]).unwrap();
                    content.truncate(n);
                }
            }
            out.insert(path, (stat(&body), content));
        }
    }
}

fn compare(seed: u64, steps: usize) {
    let mut rng = StdRng::seed_from_u64(seed);
    let config = DeviceConfig { durability: Durability::Volatile, ..DeviceConfig::default() };
    let device = Embedded::open(&Source::Ram(64 << 20), config).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let host = EmbeddedDir::open(dir.path()).unwrap();
    let mut a = Side::new(Client::with(Arc::new(device.clone())).unwrap());
    let mut b = Side::new(Client::with(Arc::new(host.clone())).unwrap());
    for i in 0..steps {
        let step = step(&mut rng);
        let (on_device, on_host) = (a.run(&step), b.run(&step));
        assert_eq!(on_device, on_host, "seed {seed}, step {i}: {step:?} (left: device, right: host)");
    }
    let (mut left, mut right) = (BTreeMap::new(), BTreeMap::new());
    a.tree(b"/", &mut left);
    b.tree(b"/", &mut right);
    assert_eq!(left, right, "seed {seed}: the trees");
    drop(b);
    let end = Instant::now() + Duration::from_secs(10);
    while host.dir().usage() != Usage::default() {
        assert!(Instant::now() < end, "seed {seed}: {:?} is left", host.dir().usage());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_device_and_a_directory_of_the_host_answer_alike() {
    let seeds = std::env::var("WELDFS_DIFF_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(12);
    let first = std::env::var("WELDFS_DIFF_FIRST").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    for seed in first..first + seeds {
        compare(seed, 400);
    }
}
