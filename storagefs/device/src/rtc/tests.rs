//! What is over at once, and what is given up and has done nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weldfs_ciscops::program::{Body, Builder, Bytes, Micro, Pool, Reg, Str, SumKind, To, Value};
use weldfs_ciscops::{
    At, Command, Durability, Errno, Handle, InodeNo, LockAction, LockKind, LockSpace, Op, OpenFlags, Outcome,
    PoolRange, TxnMode,
};
use weldfs_journal::{ManualClock, Medium, SeededRandom};
use weldfs_scheduler::{Mode, Token};

use super::*;
use crate::DeviceConfig;
use weldfs_fs::{Cred, HandleTable, ROOT};
use weldfs_media::RamMedium;
use weldfs_session::sets::members;
use weldfs_session::tenants::Identity;
use weldfs_store::MountOptions;
use weldfs_store::mount::{MkfsOptions, format};

/// A slot that no command gets.
const NOBODY: Token = Token(255);
const NAME: PoolRange = PoolRange { off: 0, len: 1 };
const OUT: PoolRange = PoolRange { off: 1024, len: 256 };

struct Rig {
    core: Arc<Core>,
    queue: Arc<QueueState>,
}

impl Rig {
    fn new() -> Rig {
        Rig::of(DeviceConfig::default())
    }

    fn of(config: DeviceConfig) -> Rig {
        let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(16 << 20));
        let (clock, random) = (Arc::new(ManualClock::default()), Arc::new(SeededRandom::new(1)));
        format(&medium, &MkfsOptions::default(), &*clock, &*random).unwrap();
        let (store, _) = weldfs_fs::mount(medium, MountOptions::new(clock, random)).unwrap();
        let core = Core::new(store, config).unwrap();
        let session = core.attach(Identity::from(Cred::root()), [0; 16], Vec::new()).unwrap();
        core.new_queue(&session, (8, 4096, false)).unwrap();
        let queue = core.all_queues().1[0].clone();
        let rig = Rig { core, queue };
        rig.queue.pool.slice(NAME).unwrap().copy_from(b"f");
        rig
    }

    fn run(&self, op: Op) -> Option<Outcome> {
        let cmd = Command::new(1, op).with_durability(Durability::Volatile);
        run(&self.core, &self.queue, &cmd).map(|done| done.outcome)
    }

    fn make(&self) -> Option<Outcome> {
        let flags = OpenFlags::WRITE | OpenFlags::CREATE;
        let src = PoolRange::new(2048, 100);
        self.run(Op::OpenWriteClose { base: Handle::ROOT, path: NAME, flags, mode: 0o600, at: At::Offset(0), src })
    }

    fn stat(&self) -> Option<Outcome> {
        self.run(Op::StatPath { base: Handle::ROOT, path: NAME, nofollow: false, out: OUT })
    }

    fn applied(&self) -> u64 {
        self.core.store.generation()
    }
}

#[test]
fn what_waits_for_nothing_is_over_at_once_and_leaves_no_tickets() {
    let rig = Rig::new();
    assert_eq!(rig.stat().unwrap().status, weldfs_ciscops::Errno::NOENT.0);
    assert!(rig.make().unwrap().is_ok());
    assert_eq!(rig.applied(), 1);
    assert!(rig.stat().unwrap().is_ok());
    assert_eq!(rig.core.sets.queues(), 0);
}

#[test]
fn a_lock_is_over_at_once_unless_its_inode_is_held() {
    let rig = Rig::new();
    assert!(rig.make().unwrap().is_ok());
    let open = || {
        let flags = OpenFlags::READ | OpenFlags::WRITE;
        Handle::from_wire(rig.run(Op::open(Handle::ROOT, NAME, flags, 0)).unwrap().result)
    };
    let (one, other) = (open(), open());
    let lock = |h, action, kind| {
        let (space, owner) = (LockSpace::OpenFile, 0);
        rig.run(Op::Lock { h, action, kind, space, start: 0, len: 1, owner, out: PoolRange::EMPTY })
    };
    let set = |h, kind| lock(h, LockAction::Set, kind).map(|done| done.status);
    assert_eq!(set(one, LockKind::Write), Some(0));
    assert_eq!(set(other, LockKind::Read), Some(Errno::AGAIN.0));
    assert_eq!(lock(other, LockAction::Get, LockKind::Read).unwrap().result, 1, "there is one in the way");
    let ino = rig.queue.session.handle(one).unwrap().ino.0;
    let sets = &rig.core.sets;
    let held = sets.place(sets.arrive(), NOBODY, members([(ino, Mode::Shared)]));
    assert_eq!(set(one, LockKind::Unlock), None, "behind what holds the inode");
    drop(held);
    assert_eq!(set(one, LockKind::Unlock), Some(0));
    assert_eq!(set(other, LockKind::Read), Some(0));
    assert_eq!(rig.core.sets.queues(), 0);
}

#[test]
fn a_command_whose_inode_is_held_or_waited_for_is_given_up_and_has_done_nothing() {
    let rig = Rig::new();
    assert!(rig.make().unwrap().is_ok());
    let sets = &rig.core.sets;
    for mode in [Mode::Exclusive, Mode::Shared] {
        let held = sets.place(sets.arrive(), NOBODY, members([(ROOT.0, mode)]));
        let before = rig.applied();
        assert_eq!((rig.stat(), rig.make()), (None, None), "{mode:?}");
        assert_eq!(rig.applied(), before);
        drop(held);
        assert!(rig.stat().is_some());
    }
    let ino = InodeNo(u64::from_le_bytes(rig.queue.pool.slice(OUT).unwrap().to_vec()[..8].try_into().unwrap()));
    let held = sets.place(sets.arrive(), NOBODY, members([(ino.0, Mode::Exclusive)]));
    assert_eq!((rig.stat(), rig.make()), (None, None), "the file is another's for now");
    drop(held);
    assert_eq!(sets.queues(), 0);
}

#[test]
fn a_look_during_which_a_record_is_applied_is_given_up() {
    let rig = Rig::new();
    assert!(rig.make().unwrap().is_ok());
    let store = &rig.core.store;
    store.applying().fetch_add(1, Ordering::Relaxed);
    assert_eq!(rig.stat(), None, "one is being applied");
    store.applied().fetch_add(1, Ordering::Relaxed);
    assert!(rig.stat().is_some());
    let op = Op::StatPath { base: Handle::ROOT, path: NAME, nofollow: false, out: OUT };
    rig.queue.pool.slice(OUT).unwrap().copy_from(&[9; 256]);
    let one_comes = |_| {
        store.applying().fetch_add(1, Ordering::Relaxed);
        store.applied().fetch_add(1, Ordering::Relaxed);
        true
    };
    let view = Optimistic::begin(store, &*rig.queue.session, &rig.queue.pool, one_comes).unwrap();
    assert!(view.run(&op, b"f").is_none(), "one came in between");
    assert_eq!(rig.queue.pool.slice(OUT).unwrap().to_vec(), [9; 256], "nothing of it reached the client");
}

#[test]
fn an_entry_of_a_listing_is_looked_at_as_of_its_generation_or_not_at_all() {
    let rig = Rig::new();
    assert!(rig.make().unwrap().is_ok() && rig.stat().unwrap().is_ok());
    let told = || rig.queue.pool.slice(OUT).unwrap().to_vec();
    let (stat, ino) = (told(), InodeNo(u64::from_le_bytes(told()[..8].try_into().unwrap())));
    rig.queue.pool.slice(PoolRange::new(1, 1)).unwrap().copy_from(b".");
    let flags = OpenFlags::READ | OpenFlags::DIRECTORY;
    let op = Op::open(Handle::ROOT, PoolRange::new(1, 1), flags, 0);
    let Some(opened) = rig.run(op).filter(Outcome::is_ok) else { panic!("{op:?}") };
    let h = Handle::from_wire(opened.result);
    let look = |generation, h| {
        rig.queue.pool.slice(OUT).unwrap().copy_from(&[9; 256]);
        let done = look_at_listed(&rig.core, &rig.queue, (h, ROOT, generation), (ino, b"f"), OUT);
        assert!(done.is_some() || told() == [9; 256], "nothing of it reached the client");
        done.map(|done| (done.outcome.status, done.outcome.result, told() == stat))
    };
    let generation = rig.applied();
    assert_eq!((look(generation, h), look(generation, Handle::ROOT)), (Some((0, 256, true)), Some((0, 256, true))));
    for (ino, mode) in [(ROOT.0, Mode::Exclusive), (ino.0, Mode::Shared)] {
        let held = rig.core.sets.place(rig.core.sets.arrive(), NOBODY, members([(ino, mode)]));
        assert_eq!(look(generation, h), None, "another has it, or waits for it");
        drop(held);
    }
    assert!(rig.run(Op::Close { h }).unwrap().is_ok());
    assert_eq!((look(generation, h), look(generation, Handle::ROOT)), (None, Some((0, 256, true))), "it is closed");
    rig.core.store.applying().fetch_add(1, Ordering::Relaxed);
    assert_eq!(look(generation, Handle::ROOT), None, "a record begins");
    rig.core.store.applied().fetch_add(1, Ordering::Relaxed);
    assert_eq!(look(generation, Handle::ROOT), None, "it came in between");
    assert!(look(generation + 1, Handle::ROOT).is_some());
    assert!(rig.run(Op::Unlink { base: Handle::ROOT, path: NAME }).unwrap().is_ok());
    assert_eq!(look(generation + 1, Handle::ROOT), None, "its name is gone");
}

#[test]
fn long_commands_and_those_that_leave_something_beside_their_effects_take_the_other_way() {
    let rig = Rig::new();
    assert!(rig.make().unwrap().is_ok());
    let stat = Command::new(1, Op::StatPath { base: Handle::ROOT, path: NAME, nofollow: false, out: OUT });
    for cmd in [Command { after_durable: true, ..stat }, Command { detectable: true, ..stat }] {
        assert!(run(&rig.core, &rig.queue, &cmd).is_none());
    }
    assert!(run(&rig.core, &rig.queue, &stat).is_some());
    assert!(!may_be(Opcode::Batch as u16) && !may_be(9999));
}

/// A program that reads the file that `make` made, `each` bytes so many `times`, gives some to `out`, and does `more`.
fn reader(rig: &Rig, (each, times): (u32, usize), out: PoolRange, more: &[Micro]) -> Op {
    let mut b = Builder::new();
    let file = b.open(Handle::ROOT, b"f", OpenFlags::READ, 0);
    b.string(b"g");
    let to = b.pool(out.len);
    for _ in 0..times {
        b.read(file, Value::Imm(0), Value::Imm(each.into()), To::Nowhere);
    }
    b.read(file, Value::Imm(0), Value::Imm(8), To::Pool(to));
    for m in more {
        b.push(*m);
    }
    let body = b.finish().unwrap();
    let at = PoolRange::new(3072, body.len() as u32);
    rig.queue.pool.slice(at).unwrap().copy_from(&body.bind(&[out]).unwrap());
    Body::op(at)
}

#[test]
fn a_program_is_over_at_once_if_it_is_short_can_be_given_up_and_is_one_record() {
    let rig = Rig::new();
    assert!(rig.make().unwrap().is_ok());
    let short = reader(&rig, (4096, 4), OUT, &[]);
    assert_eq!(rig.run(short).map(|o| (o.status, o.micro_done)), Some((0, 6)));
    assert_eq!(rig.core.sets.queues(), 0);
    assert_eq!(rig.run(reader(&rig, (64 << 10, 4), OUT, &[])), None, "long");
    // What was put there could not be taken again.
    assert_eq!(rig.run(reader(&rig, (1, 1), PoolRange::new(3000, 100), &[])), None, "over its own body");
    let takes = Micro::Checksum { kind: SumKind::Crc32c, of: Bytes::Pool(Pool(0)), to: Reg(0) };
    assert_eq!(rig.run(reader(&rig, (1, 1), OUT, &[takes])), None, "over what it takes");
    let make = [Micro::Mkdir { base: Handle::ROOT, path: Str(1), mode: 0o700 }];
    let steps = Command::new(1, reader(&rig, (1, 1), OUT, &make)).with_mode(TxnMode::Micro);
    assert!(run(&rig.core, &rig.queue, &steps).is_none() && rig.applied() == 1, "several records");
    assert!(run(&rig.core, &rig.queue, &Command { mode: TxnMode::Macro, ..steps }).is_some() && rig.applied() == 2);
    let held = rig.core.sets.place(rig.core.sets.arrive(), NOBODY, members([(ROOT.0, Mode::Exclusive)]));
    assert_eq!(rig.run(reader(&rig, (1, 1), OUT, &[])), None, "another has it");
    drop(held);
}

#[test]
fn nothing_is_over_at_once_where_another_core_may_be_at_it_or_the_device_is_out_of_service() {
    let rig = Rig::of(DeviceConfig { cores: 2, ..DeviceConfig::default() });
    assert_eq!((rig.stat(), rig.make()), (None, None));
    let rig = Rig::new();
    assert!(rig.make().is_some());
    rig.core.poison();
    assert_eq!((rig.stat(), rig.make()), (None, None));
}
