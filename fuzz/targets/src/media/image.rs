//! Whole images with all their checksums right and something wrong: each is mounted or refused in one sentence, and
//! what mounts can be listed, read, changed and unmounted without a panic, without end and without much memory. What
//! fsck calls clean mounts, is listed and read whole, can be unmounted, and is called clean after it was worked with.

use super::base::{Base, bases};
use super::draft::draft;
use crate::cursor::Cursor;
use crate::{Seed, Target};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weldfs_ciscops::dirent::dtype;
use weldfs_ciscops::{At, FallocMode, Handle, Op, OpenFlags, PoolRange, RenameFlags, StatBody};
use weldfs_crash_harness::hand::{Hand, small_mount};
use weldfs_media::{CowImage, CowMedium};
use weldfs_store::fsck::{FsckReport, fsck};
use weldfs_store::mount::RecoveryReport;
use weldfs_store::scrub::{ScrubOptions, scrub};
use weldfs_store::{MountOptions, Store};

/// See the module.
pub const TARGET: Target = Target {
    name: "image",
    about: "a small image with structures changed and checksums right: mounted, listed, read, checked, worked with",
    run,
    seeds,
    len_max: 4096,
};

/// Names looked at in one image, and depth of its directories.
const NAMES_MAX: usize = 150;
const DEPTH_MAX: usize = 6;
/// Where results lie in the pool of a `Hand`.
const OUT: u32 = 256 << 10;

fn run(data: &[u8]) {
    let mut data = Cursor(data);
    let how = data.u8();
    let (base, image, log) = draft(&mut data);
    let checked = check(base, &image);
    let clean = checked.as_ref().is_some_and(|report| report.clean);
    if how & 1 != 0 {
        read_only(base, &image, clean);
    }
    // (Of a base's own log nothing new can be read.)
    if how & 2 != 0 && log {
        read_log(&image);
    }
    let medium = Arc::new(CowMedium::new(image.clone(), base.model));
    let store = match mount(&medium, false) {
        Ok((store, _)) => store,
        Err(e) => {
            assert!(!clean, "fsck calls an image clean that does not mount: {e}");
            return;
        }
    };
    let mut worked = Worked { hand: Hand::new(store), names: Vec::new(), clean };
    worked.look();
    worked.work(&mut data);
    worked.look();
    let ended = worked.end();
    drop(worked);
    if clean {
        ended.unwrap_or_else(|e| panic!("fsck calls an image clean that cannot be unmounted: {e}"));
        let report = check(base, &medium.image()).expect("what was unmounted is an image");
        assert!(report.clean, "clean before it was worked with, and then: {:?}", report.problems);
    }
}

fn mount(medium: &Arc<CowMedium>, read_only: bool) -> Result<(Arc<Store>, RecoveryReport), String> {
    let before = medium.image().digest();
    let options = MountOptions { read_only, ..small_mount(11) };
    weldfs_fs::mount(medium.clone(), options).map_err(|e| {
        let said = e.to_string();
        assert!(!said.is_empty() && !said.contains('\n'), "one sentence: {said}");
        assert!(!read_only || before == medium.image().digest(), "a read-only mount changed the image: {said}");
        said
    })
}

/// fsck; `None` where it refuses to look.
fn check(base: &Base, image: &CowImage) -> Option<FsckReport> {
    let medium = Arc::new(CowMedium::new(image.clone(), base.model));
    let report = fsck(medium.clone(), small_mount(12), true).ok();
    assert_eq!(medium.image().digest(), image.digest(), "fsck changed the image");
    report
}

fn read_only(base: &Base, image: &CowImage, clean: bool) {
    let medium = Arc::new(CowMedium::new(image.clone(), base.model));
    let Ok((store, _)) = mount(&medium, true) else { return };
    let stop = AtomicBool::new(false);
    let _ = scrub(&store, &ScrubOptions { rate: None, stop: &stop }, &mut ());
    Worked { hand: Hand::new(store), names: Vec::new(), clean }.look();
    assert_eq!(medium.image().digest(), image.digest(), "a read-only mount changed the image");
}

struct Log<'a>(&'a CowImage);

impl weldfs_logview::Image for Log<'_> {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read(&self, off: u64, buf: &mut [u8]) -> std::io::Result<()> {
        if off.checked_add(buf.len() as u64).is_none_or(|end| end > self.0.len()) {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        self.0.read(off, buf);
        Ok(())
    }
}

/// The second reader of the log.
fn read_log(image: &CowImage) {
    let _ = weldfs_logview::walk(&Log(image), &mut |item| {
        let _ = weldfs_logview::print(&mut std::io::sink(), &item);
        weldfs_logview::Verdict::Go
    });
}

/// A mounted image: what is done with it.
struct Worked {
    hand: Hand,
    names: Vec<(String, u8)>,
    /// fsck called it clean: then nothing is EIO.
    clean: bool,
}

impl Worked {
    /// Lists what is there and reads the beginning and the end of each file, its attributes and targets.
    fn look(&mut self) {
        self.names.clear();
        let mut todo = vec![(String::new(), 0)];
        while let Some((dir, depth)) = todo.pop() {
            let place = if dir.is_empty() { "/" } else { &dir };
            let listed = self.hand.list(place);
            self.judge(listed.as_ref().map(drop), &dir, "list");
            for (name, kind) in listed.unwrap_or_default() {
                let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
                if kind == dtype::DIR && depth < DEPTH_MAX {
                    todo.push((path.clone(), depth + 1));
                }
                self.read(&path, kind);
                self.names.push((path, kind));
                if self.names.len() > NAMES_MAX {
                    return;
                }
            }
        }
    }

    /// An errno, and one there is; not EIO on an image that was called clean.
    fn judge(&self, done: Result<(), &i32>, path: &str, what: &str) {
        if let Err(e) = done {
            assert!((1..4096).contains(e), "{what} of `{path}` says {e}");
            assert!(!self.clean || *e != libc::EIO, "fsck calls an image clean in which {what} of `{path}` is EIO");
        }
    }

    fn run(&mut self, op: Op) -> Result<u64, i32> {
        let o = self.hand.direct().run(op);
        if o.is_ok() { Ok(o.result) } else { Err(o.status) }
    }

    fn read(&mut self, path: &str, kind: u8) {
        let (base, nofollow, out) = (Handle::ROOT, true, PoolRange::new(OUT, 64 << 10));
        let put = self.hand.direct().put(0, path.as_bytes());
        let stat = self.run(Op::StatPath {
            base,
            path: put,
            nofollow,
            out: PoolRange::new(OUT, size_of::<StatBody>() as u32),
        });
        self.judge(stat.as_ref().map(drop), path, "stat");
        let xattrs = self.run(Op::ListXattr { base, path: put, nofollow, out });
        self.judge(xattrs.as_ref().map(drop), path, "listxattr");
        let names = self.hand.direct().take(PoolRange::new(OUT, xattrs.unwrap_or(0) as u32));
        for name in names.split(|b| *b == 0).filter(|n| !n.is_empty()).take(4) {
            let name = self.hand.direct().put(8192, name);
            let got = self.run(Op::GetXattr { base, path: put, nofollow, name, out });
            self.judge(got.as_ref().map(drop), path, "getxattr");
        }
        let read = match kind {
            dtype::LNK => self.run(Op::Readlink { base, path: put, out: PoolRange::new(OUT, 4096) }),
            dtype::REG => {
                // Links on the way are followed, but none at its end.
                let flags = OpenFlags::READ | OpenFlags::NOFOLLOW;
                let mut read = |offset| self.run(Op::OpenReadClose { base, path: put, flags, offset, out });
                read(0).and_then(|_| read(3 << 20))
            }
            _ => Ok(0),
        };
        self.judge(read.as_ref().map(drop), path, "read");
    }

    /// What the rest of the input says, on the names that there are.
    fn work(&mut self, data: &mut Cursor<'_>) {
        for i in 0..data.u8() % 12 {
            let what = data.u8();
            let n = usize::from(data.u8());
            let name = self.names.get(n % self.names.len().max(1)).map_or("big".to_owned(), |n| n.0.clone());
            // At the top, or in one of the directories.
            let dirs = || self.names.iter().filter(|n| n.1 == dtype::DIR);
            let new = match dirs().nth(usize::from(what / 14) % (dirs().count() + 1)) {
                Some((dir, _)) => format!("{dir}/new{i}"),
                None => format!("new{i}"),
            };
            let h = &mut self.hand;
            let no_flags = RenameFlags::empty();
            let done = match what % 14 {
                0 => h.put(&new, &vec![what; n * 64]).map(drop),
                1 => h.put(&name, &[what; 5000]).map(drop),
                2 => h.patch(&name, At::Offset(n as u64 * 100), &[what; 300]).map(drop),
                3 => h.patch(&name, At::End, &[what; 900]).map(drop),
                4 => h.unlink(&name).map(drop),
                5 => h.rmdir(&name).map(drop),
                6 => h.mkdir(&new).map(drop),
                7 => h.rename(&name, &new, no_flags).map(drop),
                8 => h.link(&name, &new).map(drop),
                9 => h.with(&name, |h, f| h.truncate(f, n as u64 * 1000)).map(drop),
                10 => h.with(&name, |h, f| h.fallocate(f, FallocMode::Punch, 0, n as u64 * 4096 + 1)).map(drop),
                11 => h.set_xattr(&name, "user.new", &[what; 200]).map(drop),
                12 => h.store().checkpoint().map(drop).map_err(|e| weldfs_ciscops::Errno::from(e).0),
                _ => h.store().reclaim_all().map_err(|e| weldfs_ciscops::Errno::from(e).0),
            };
            self.judge(done.as_ref().copied(), &name, "work");
        }
    }

    fn end(&mut self) -> Result<(), String> {
        self.hand.direct().close_all();
        let store = self.hand.store();
        store.reclaim_all().map_err(|e| format!("reclaim: {e}"))?;
        store.unmount().map_err(|e| format!("unmount: {e}"))
    }
}

fn seeds() -> Vec<Seed> {
    let work: Vec<u8> = (0..12u8).flat_map(|i| [i, i * 5]).collect();
    let mut all = Vec::new();
    for (b, base) in bases().iter().enumerate() {
        let mut add = |name: &str, edits: &[&[u8]]| {
            let bytes = [&[3, b as u8, edits.len() as u8][..], &edits.concat(), &[11], &work].concat();
            all.push((format!("{}-{name}", base.name), bytes));
        };
        add("as-it-is", &[]);
        add("superblock", &[&[0, 0, 3, 8, 9, 0, 0, 0, 0, 0, 0, 0]]);
        add("page", &[&[1, 0, 64, 0, 2, 9, 9]]);
        add("value", &[&[2, 3, 0, 1, 0, 1, 9]]);
        add("values", &[&[2, 1, 0, 2, 0, 1, 9], &[2, 9, 0, 5, 0, 1, 1], &[3, 12, 0, 3, 0, 1, 2, 3]]);
        add("key", &[&[4, 2, 1, 77, 7, 0, 1, 3, 8, 0, 2, b'h', b'i']]);
        add("remove", &[&[5, 7, 0]]);
        add("log-header", &[&[6, 1, 24, 1, 4]]);
        add("log-payload", &[&[7, 2, 3, 0, 1, 1]]);
        add("log-append", &[&[8, 3, 1, 0, 0, 0, 4, 0, 1, 13, 3, 13]]);
        add("log-order", &[&[11, 1, 0], &[10, 2]]);
        add("data", &[&[12, 200, 0, 0, 0, 1, 9], &[13]]);
    }
    all.extend(regressions());
    // A record of each kind of effect behind the log of the first image.
    for (i, effect) in super::values::every_effect().iter().enumerate() {
        let payload = weldfs_store::effect::encode(std::slice::from_ref(effect));
        let edit = [&[8, 3, 1, 0, 0, 0][..], &(payload.len() as u16).to_le_bytes(), &payload].concat();
        all.push((format!("effect-{i:02}"), [&[3, 0, 1][..], &edit, &[11], &work].concat()));
    }
    all
}

/// What once was a bug, each as the least input that showed it.
fn regressions() -> Vec<Seed> {
    let put = |kind: u8, words: &[u8], value: &[u8]| {
        [&[4, kind][..], words, &(value.len() as u16).to_le_bytes(), value].concat()
    };
    let input = |name: &str, edits: &[Vec<u8>], work: &[u8]| {
        (format!("once-{name}"), [&[3, 2, edits.len() as u8][..], &edits.concat(), work].concat())
    };
    let inode = |mode: u32, links: u8, parent: u8| {
        let rec = weldfs_store::record::InodeRec {
            mode,
            nlink: links.into(),
            parent: weldfs_ciscops::InodeNo(parent.into()),
            ..weldfs_store::record::InodeRec::empty(weldfs_ciscops::InodeNo(0))
        };
        rec.to_value()
    };
    // An unwritten block; an orphan.
    let window = [&[1, 0, 0, 2, 0][..], &900u64.to_le_bytes(), &[0; 8]].concat();
    let far = [&[60][..], &(1u64 << 60).to_le_bytes()].concat();
    let orphan = [put(1, &[60, 0], &inode(0o100_644, 0, 0)), put(3 | 32, &far, &window), put(6, &[60, 0], &[1, 0])];
    // `a` has the number 2 and `a/b` 3: each is the other's parent, and everything is moved into either.
    let circle = [put(1, &[2, 0], &inode(0o040_755, 3, 3)), put(1, &[3, 0], &inode(0o040_755, 3, 2))];
    let moves: Vec<u8> = (0..10u8).flat_map(|i| [7 + 14 * 5 + 14 * (i & 1), i]).collect();
    let moves = [&[10][..], &moves].concat();
    // The log of the first image takes the name `small` out of its directory: what the tree has there is no entry.
    let mut entries = bases()[0].leaves.iter().flat_map(|leaf| &leaf.entries);
    let moved = entries.position(|(key, value)| key[0] == 2 && value.ends_with(b"small"));
    let moved = (moved.expect("a base has it") as u16).to_le_bytes();
    let replaced = [&[3, 0, 1, 3][..], &moved, &[2, 0, 1, 255, 0]].concat();
    vec![
        input("window-beyond-all", &orphan, &[1, 13, 0]),
        input("each-others-parents", &circle, &moves),
        ("once-a-listing-over-a-replaced-entry".to_owned(), replaced),
    ]
}
