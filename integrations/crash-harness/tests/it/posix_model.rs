//! The file system answers every operation as the model does, and shows the same tree: random sequences of operations
//! by several users over a small set of names, with open files, checkpoints and remounts in between. At the end of each
//! sequence the image is checked and everything in it can be removed.
//!
//! `WELDFS_MODEL_CASES` scales the number of sequences (default 256), `WELDFS_MODEL_STEPS` their length (default 250).

use proptest::prelude::*;
use std::sync::Arc;
use weldfs_ciscops::TxnMode;
use weldfs_crash_harness::model::{At, Cred, Falloc, Model, Modify, Name, Op, SetAttr, SetTime, Who};
use weldfs_crash_harness::real::Real;
use weldfs_journal::{ManualClock, Medium, SeededRandom};
use weldfs_media::{CrashModel, RamMedium, RecordingMedium};
use weldfs_store::mount::MkfsOptions;
use weldfs_store::{MountOptions, Store};

const SLOTS: u32 = 5;
const MEDIUM_BYTES: u64 = 48 << 20;
const START: (i64, u32) = (1_700_000_000, 5);

#[derive(Clone, Debug)]
enum Step {
    Do(u8, Op, TxnMode),
    Checkpoint,
    Reclaim,
    Remount,
    /// The device dies without a word, after what it did became durable.
    Kill,
    Compare,
}

fn users() -> [Cred; 4] {
    let user = |uid, gid, groups: &[u32]| Cred { uid, gid, groups: groups.to_vec() };
    [Cred::root(), user(1000, 100, &[]), user(1001, 101, &[100, 200]), user(1002, 102, &[])]
}

fn component() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        14 => prop::sample::select(vec!["a", "a", "b", "b", "c", "d", "l"]).prop_map(|s| s.as_bytes().to_vec()),
        1 => Just(b"..".to_vec()),
        1 => Just(b".".to_vec()),
        1 => Just(vec![0xff, b' ', 1, 0x80]),
    ]
}

/// Mostly a few places that often exist and a few that often do not; else anything.
fn path() -> impl Strategy<Value = Vec<u8>> {
    let known =
        ["a", "b", "c", "d", "e", "a/b", "a/c", "a/d", "b/a", "b/c", "b/d", "a/b/c", "a/b/d", "b/a/c", "l", "m", "a/l"];
    let known = prop::sample::select(known.map(|p| p.as_bytes().to_vec()).to_vec());
    prop_oneof![3 => known, 1 => odd_path()]
}

fn odd_path() -> impl Strategy<Value = Vec<u8>> {
    let parts = prop_oneof![
        5 => prop::collection::vec(component(), 1),
        4 => prop::collection::vec(component(), 2),
        1 => prop::collection::vec(component(), 3),
    ];
    let long = (250usize..258).prop_map(|n| vec![b'n'; n]);
    prop_oneof![
        60 => (parts, 0u8..30).prop_map(|(parts, kind)| {
            let mut path = parts.join(&b"/"[..]);
            if kind == 0 {
                path.insert(0, b'/');
            }
            if kind == 1 {
                path.push(b'/');
            }
            path
        }),
        1 => long,
        1 => Just(b"/".to_vec()),
    ]
}

fn name() -> impl Strategy<Value = Name> {
    (prop::option::weighted(0.06, prop_oneof![4 => Just(3u32), 1 => 0..SLOTS]), path())
        .prop_map(|(base, path)| Name { base, path })
}

fn who() -> impl Strategy<Value = Who> {
    prop_oneof![
        1 => (0..SLOTS).prop_map(Who::Slot),
        2 => (name(), any::<bool>()).prop_map(|(n, f)| Who::Path(n, f)),
    ]
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 0u64..20_000,
        3 => (0u64..6).prop_map(|b| b * 4096),
        1 => (0u64..3).prop_map(|n| (1 << 20) + n * 4095),
        1 => (0u64..9).prop_map(|n| (8 << 40) - n * 1000),
        1 => (0u64..3).prop_map(|n| (1 << 44) - 2 + n),
    ]
}

fn at() -> impl Strategy<Value = At> {
    prop_oneof![3 => offset().prop_map(At::Offset), 2 => Just(At::Current), 2 => Just(At::End)]
}

fn fused_at() -> impl Strategy<Value = At> {
    prop_oneof![1 => offset().prop_map(At::Offset), 1 => Just(At::End)]
}

fn data() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![
        6 => 0usize..700,
        3 => 4000usize..4200,
        2 => 8000usize..13_000,
        2 => (1usize..5).prop_map(|b| b * 4096),
    ];
    (len, any::<u8>()).prop_map(|(len, seed)| (0..len).map(|i| (i as u8).wrapping_mul(31) ^ seed | 1).collect())
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![9 => 0usize..300, 1 => 4095usize..4098].prop_map(|n| vec![7; n])
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![1 => 0u64..10, 4 => 0u64..20_000, 1 => (1u64..6).prop_map(|b| b * 4096)]
}

fn perm() -> impl Strategy<Value = u32> {
    prop_oneof![
        6 => prop::sample::select(vec![0o777, 0o777, 0o755, 0o700, 0o644, 0o666, 0o600, 0o555, 0o070, 0o007]),
        1 => prop::sample::select(vec![0o4755, 0o2755, 0o6777, 0o1777, 0o2777, 0o2644, 0]),
    ]
}

fn open_flags() -> impl Strategy<Value = i32> {
    let access = prop::sample::select(vec![libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR, libc::O_RDWR]);
    let bits = [
        (libc::O_CREAT, 0.6),
        (libc::O_EXCL, 0.15),
        (libc::O_TRUNC, 0.2),
        (libc::O_APPEND, 0.2),
        (libc::O_DIRECTORY, 0.15),
        (libc::O_NOFOLLOW, 0.15),
    ];
    let bits = bits.map(|(bit, p)| prop::bool::weighted(p).prop_map(move |on| if on { bit } else { 0 }));
    let all = (access, bits).prop_map(|(a, bits)| bits.iter().fold(a, |f, b| f | b));
    prop_oneof![
        5 => all,
        7 => prop::sample::select(vec![libc::O_RDWR | libc::O_CREAT, libc::O_RDWR, libc::O_RDWR | libc::O_APPEND]),
        2 => Just(libc::O_RDONLY | libc::O_DIRECTORY),
        1 => Just(libc::O_RDWR | libc::O_TMPFILE),
        1 => Just(libc::O_WRONLY | libc::O_TMPFILE | libc::O_EXCL),
    ]
}

fn set_time() -> impl Strategy<Value = SetTime> {
    prop_oneof![
        2 => Just(SetTime::Omit),
        1 => Just(SetTime::Now),
        1 => (any::<i32>(), 0u32..1_000_000_000).prop_map(|(s, n)| SetTime::To((s.into(), n))),
    ]
}

fn set_attr() -> impl Strategy<Value = SetAttr> {
    let id = || prop::sample::select(vec![0u32, 100, 101, 200, 1000, 1001]);
    prop_oneof![
        3 => perm().prop_map(|m| SetAttr { mode: Some(m), ..SetAttr::NONE }),
        2 => (prop::option::of(id()), prop::option::of(id()))
            .prop_map(|(uid, gid)| SetAttr { uid, gid, ..SetAttr::NONE }),
        2 => offset().prop_map(|s| SetAttr { size: Some(s), ..SetAttr::NONE }),
        2 => (set_time(), set_time()).prop_map(|(atime, mtime)| SetAttr { atime, mtime, ..SetAttr::NONE }),
    ]
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    let good = prop::sample::select(vec!["user.a", "user.a", "user.b", "trusted.t", "security.s"]);
    let bad = prop::sample::select(vec!["system.x", "user.", "plain", ""]);
    prop_oneof![5 => good, 1 => bad].prop_map(|k| k.as_bytes().to_vec())
}

fn modify() -> impl Strategy<Value = (u64, Modify)> {
    let bytes = |n: usize| prop::collection::vec(any::<u8>(), n);
    prop::sample::select(vec![1usize, 2, 4, 8]).prop_flat_map(move |n| {
        let change = prop_oneof![
            bytes(n).prop_map(Modify::Patch),
            any::<u64>().prop_map(Modify::Add),
            bytes(n).prop_map(Modify::Xor),
            (prop_oneof![Just(vec![0; n]), bytes(n)], bytes(n))
                .prop_map(|(expect, new)| Modify::CompareSwap { expect, new }),
        ];
        (Just(n as u64), change)
    })
}

fn name_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        7 => (name(), open_flags(), perm(), 0..SLOTS)
            .prop_map(|(name, flags, mode, slot)| Op::Open { name, flags, mode, slot }),
        4 => (name(), perm()).prop_map(|(name, mode)| Op::Mkdir { name, mode }),
        2 => name().prop_map(|name| Op::Rmdir { name }),
        3 => name().prop_map(|name| Op::Unlink { name }),
        5 => (name(), name(), prop::bool::weighted(0.15), prop::bool::weighted(0.25))
            .prop_map(|(from, to, noreplace, exchange)| Op::Rename { from, to, noreplace, exchange }),
        3 => (who(), name()).prop_map(|(from, to)| Op::Link { from, to }),
        2 => (path(), name()).prop_map(|(target, name)| Op::Symlink { target, name }),
        1 => name().prop_map(|name| Op::Readlink { name }),
        1 => (name(), 0u32..8).prop_map(|(name, mask)| Op::Access { name, mask }),
        2 => (0..SLOTS).prop_map(|slot| Op::ReadDir { slot }),
        2 => who().prop_map(|who| Op::Stat { who }),
        5 => (who(), set_attr()).prop_map(|(who, set)| Op::SetAttr { who, set }),
        2 => (who(), key(), value(), 0u8..6).prop_map(|(who, key, value, kind)| {
            Op::SetXattr { who, key, value, create: kind == 1, replace: kind == 2 }
        }),
        1 => (who(), key(), prop::sample::select(vec![0u64, 10, 8000]))
            .prop_map(|(who, key, room)| Op::GetXattr { who, key, room }),
        1 => (who(), prop::sample::select(vec![0u64, 10, 8000])).prop_map(|(who, room)| Op::ListXattr { who, room }),
        1 => (who(), key()).prop_map(|(who, key)| Op::RemoveXattr { who, key }),
        1 => prop::sample::select(vec![1u32, 4]).prop_map(|slot| Op::Close { slot }),
    ]
}

fn data_op() -> impl Strategy<Value = Op> {
    let slot = || 0..SLOTS;
    let modes = [Falloc::Reserve, Falloc::KeepSize, Falloc::Punch, Falloc::Zero, Falloc::ZeroKeepSize];
    prop_oneof![
        6 => (slot(), at(), data()).prop_map(|(slot, at, data)| Op::Write { slot, at, data }),
        4 => (slot(), fused_at(), length()).prop_map(|(slot, at, len)| {
            let at = if at == At::End { At::Current } else { at };
            Op::Read { slot, at, len }
        }),
        2 => (slot(), offset()).prop_map(|(slot, size)| Op::Truncate { slot, size }),
        3 => (slot(), prop::sample::select(modes.to_vec()), offset(), length())
            .prop_map(|(slot, mode, off, len)| Op::Fallocate { slot, mode, off, len }),
        2 => (slot(), 0..5i32, -5i64..20_000).prop_map(|(slot, whence, off)| Op::Seek { slot, whence, off }),
        3 => (name(), open_flags(), perm(), fused_at(), data()).prop_map(|(name, flags, mode, at, data)| {
            Op::OpenWriteClose { name, flags: no_tmpfile(flags), mode, at, data }
        }),
        2 => (name(), open_flags(), offset(), length()).prop_map(|(name, flags, off, len)| {
            Op::OpenReadClose { name, flags: no_tmpfile(flags) & !(libc::O_CREAT | libc::O_TRUNC), off, len }
        }),
        2 => (name(), open_flags(), perm(), (offset(), length()), fused_at(), data()).prop_map(
            |(name, flags, mode, (off, len), at, data)| {
                Op::OpenReadWriteClose { name, flags: no_tmpfile(flags), mode, off, len, at, data }
            }
        ),
        3 => (slot(), data()).prop_map(|(slot, data)| Op::AppendChecksumWrite { slot, data }),
        2 => (slot(), offset(), length()).prop_map(|(slot, off, len)| Op::ReadChecksumVerify { slot, off, len }),
        2 => (slot(), offset(), modify())
            .prop_map(|(slot, off, (len, modify))| Op::ReadModifyWrite { slot, off, len, modify }),
    ]
}

fn no_tmpfile(flags: i32) -> i32 {
    if flags & libc::O_TMPFILE == libc::O_TMPFILE { flags & !libc::O_TMPFILE } else { flags }
}

fn mode() -> impl Strategy<Value = TxnMode> {
    prop::sample::select(vec![TxnMode::Default, TxnMode::Macro, TxnMode::Micro])
}

fn step() -> impl Strategy<Value = Step> {
    let user = || prop_oneof![5 => Just(0u8), 2 => 0u8..4];
    prop_oneof![
        30 => (user(), name_op()).prop_map(|(u, op)| Step::Do(u, op, TxnMode::Default)),
        22 => (user(), data_op(), mode()).prop_map(|(u, op, mode)| Step::Do(u, op, mode)),
        2 => Just(Step::Checkpoint),
        1 => Just(Step::Reclaim),
        1 => prop::sample::select(vec![Step::Remount, Step::Kill, Step::Compare]),
        2 => Just(Step::Compare),
    ]
}

/// A few directories that every user may use, and open files, so that most operations have something to work on.
fn prologue() -> Vec<Op> {
    let name = |path: &str| Name { base: None, path: path.as_bytes().to_vec() };
    let open = |path: &str, slot| Op::Open { name: name(path), flags: libc::O_RDWR | libc::O_CREAT, mode: 0o666, slot };
    let all = SetAttr { mode: Some(0o777), ..SetAttr::NONE };
    vec![
        Op::SetAttr { who: Who::Path(name("/"), false), set: all },
        Op::Mkdir { name: name("a"), mode: 0o777 },
        Op::Mkdir { name: name("b"), mode: 0o1777 },
        Op::Mkdir { name: name("a/b"), mode: 0o777 },
        open("c", 0),
        open("a/c", 1),
        open("a/b/c", 2),
        Op::Open { name: name("a"), flags: libc::O_RDONLY | libc::O_DIRECTORY, mode: 0, slot: 3 },
        open("d", 4),
    ]
}

fn options() -> MountOptions {
    MountOptions {
        memory: 16 << 20,
        hash_bits: 4,
        ..MountOptions::new(Arc::new(ManualClock::new(START.0 as u64 * 1_000_000_000)), Arc::new(SeededRandom::new(7)))
    }
}

fn mount(medium: &Arc<dyn Medium>) -> Arc<Store> {
    weldfs_fs::mount(medium.clone(), options()).expect("a healthy image mounts").0
}

struct Rig {
    medium: Arc<dyn Medium>,
    real: Real,
    model: Model,
}

impl Rig {
    fn new(block: bool) -> Rig {
        let medium: Arc<dyn Medium> = match block {
            true => Arc::new(RecordingMedium::new(MEDIUM_BYTES, CrashModel::Block)),
            false => Arc::new(RamMedium::new(MEDIUM_BYTES)),
        };
        let o = options();
        let mkfs = MkfsOptions::default();
        weldfs_store::mount::format(&medium, &mkfs, &*o.clock, &*o.random).expect("the medium is large enough");
        let mut real = Real::new(mount(&medium));
        let root = real.tree().expect("an empty image reads").entries[&Vec::new()].stat.clone();
        let model = Model::new(root.mode & 0o7777, root.uid, root.gid, root.mtime);
        let mut rig = Rig { medium, real, model };
        for (i, op) in prologue().into_iter().enumerate() {
            rig.step(i, &Step::Do(0, op, TxnMode::Default));
        }
        rig
    }

    fn remount(&mut self) {
        self.real.direct.close_all();
        self.model.close_all();
        let store = self.real.direct.store().clone();
        store.unmount().expect("the medium is healthy");
        self.real = Real::new(mount(&self.medium));
        drop(store);
    }

    fn kill(&mut self) {
        let store = self.real.direct.store().clone();
        if let Some(end) = self.real.direct.last_end() {
            store.journal().commit_through(end).expect("the medium is healthy");
            store.journal().wait(end).expect("the medium is healthy");
        }
        self.model.close_all();
        let other: Arc<dyn Medium> = Arc::new(RamMedium::new(MEDIUM_BYTES));
        let o = options();
        weldfs_store::mount::format(&other, &MkfsOptions::default(), &*o.clock, &*o.random).expect("large enough");
        // The old store lets go of the medium before recovery looks at it.
        self.real = Real::new(mount(&other));
        drop(store);
        self.real = Real::new(mount(&self.medium));
    }

    fn step(&mut self, i: usize, step: &Step) {
        let users = users();
        self.model.now = (START.0 + i as i64 + 1, i as u32 * 17);
        self.real.direct.now = self.model.now;
        self.real.dir_buf = if i.is_multiple_of(2) { 300 } else { 4096 };
        match step {
            Step::Do(user, op, mode) => {
                let cred = &users[usize::from(*user)];
                // A slot in use is closed first, but only for an open that will go well.
                if let Op::Open { slot, .. } = op
                    && self.model.clone().apply(cred, op).is_ok()
                {
                    let close = Op::Close { slot: *slot };
                    assert_eq!(self.model.apply(cred, &close), self.real.apply(&close), "{close:?} before step {i}");
                }
                self.real.act_as(cred);
                self.real.mode = *mode;
                let expected = match self.real.runs_micro(op) {
                    true => self.model.apply_micro(cred, op).0,
                    false => self.model.apply(cred, op),
                };
                let found = self.real.apply(op);
                self.real.mode = TxnMode::Default;
                assert!(
                    expected == found,
                    "step {i} {op:?} ({mode:?}) by uid {}:\n model {expected:?}\n real  {found:?}",
                    cred.uid
                );
            }
            Step::Checkpoint => drop(self.real.direct.store().checkpoint().expect("the medium is healthy")),
            Step::Reclaim => self.real.direct.store().reclaim_all().expect("the medium is healthy"),
            Step::Remount => self.remount(),
            Step::Kill => self.kill(),
            Step::Compare => self.compare(i),
        }
    }

    fn compare(&mut self, i: usize) {
        let real = self.real.tree().unwrap_or_else(|e| panic!("after step {i}: {e}"));
        if let Some(difference) = self.model.tree().first_difference(&real) {
            panic!("after step {i} the trees differ at {difference}");
        }
    }

    fn finish(mut self, steps: usize) {
        self.compare(steps);
        self.remount();
        self.compare(steps);
        self.real.direct.store().reclaim_all().expect("the medium is healthy");
        self.remount();
        self.compare(steps);
        self.real.direct.store().unmount().expect("the medium is healthy");
        let report = weldfs_store::fsck::fsck(self.medium.clone(), options(), true).expect("a healthy image mounts");
        assert!(report.problems.is_empty(), "fsck: {:?}", report.problems);
    }
}

fn number(name: &str, default: u32) -> u32 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

fn run(block: bool, steps: &[Step]) {
    let mut rig = Rig::new(block);
    for (i, step) in steps.iter().enumerate() {
        rig.step(i, step);
    }
    rig.finish(steps.len());
}

#[test]
fn the_file_system_behaves_as_the_model() {
    let config = ProptestConfig {
        cases: number("WELDFS_MODEL_CASES", 256),
        failure_persistence: None,
        max_shrink_iters: 4000,
        ..ProptestConfig::default()
    };
    let steps = number("WELDFS_MODEL_STEPS", 250) as usize;
    proptest!(config, |(block in any::<bool>(), steps in prop::collection::vec(step(), 1..steps))| run(block, &steps));
}
