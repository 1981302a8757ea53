//! Detectable commands and power cuts: at every moment of a run, whatever the cut leaves, the device knows of exactly
//! the commands whose effects it recovers, in every transaction mode and on both media.

use std::sync::Arc;
use weldfs_ciscops::{
    At, ChecksumKind, Handle, Modify, Op, OpenFlags, Outcome, OutcomeBody, OutcomeState, PoolRange, RenameFlags,
    TxnMode,
};
use weldfs_crash_harness::states::enumerate::{Places, states};
use weldfs_crash_harness::states::{Setup, Tree, mount_options, read_tree};
use weldfs_fs::driver::Direct;
use weldfs_media::{CowImage, CowMedium, CrashModel, RecordingMedium, Replayer};
use weldfs_store::Store;
use weldfs_store::outcomes::{Identity, Known};
use weldfs_store::superblock::Superblock;

/// States tried at each moment.
const STATES: u64 = 24;
/// The same within a recovery.
const STATES_IN_RECOVERY: u64 = 3;
/// Recoveries of open transactions that are cut short.
const RECOVERIES: usize = 12;

struct Ran {
    id: Identity,
    /// Events when it had completed; `None` unless it was durable then.
    acknowledged: Option<u64>,
    outcome: Outcome,
    /// The tree after it.
    tree: Tree,
}

/// Runs commands one after the other, each detectable.
struct Runner {
    medium: Arc<RecordingMedium>,
    direct: Direct,
    ran: Vec<Ran>,
    modes: TxnMode,
    durable: bool,
}

const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);
const NEW: OpenFlags = RW.union(OpenFlags::CREATE);

impl Runner {
    fn path(&self, name: &str) -> PoolRange {
        self.direct.put(0, name.as_bytes())
    }

    fn data(&self, fill: u8, len: usize) -> PoolRange {
        self.direct.put(8192, &vec![fill; len])
    }

    fn op(&mut self, op: Op) -> Outcome {
        let sequence = 100 + self.ran.len() as u64;
        let id = Identity { client: [9; 16], uid: 0, queue: 3, sequence };
        self.direct.now.0 += 1;
        let outcome = self.direct.run_detectable(&id, op, self.modes, self.durable);
        let acknowledged = self.durable.then(|| self.medium.position());
        let store = self.direct.store();
        assert_eq!(store.outcome(&id), Known::Done(outcome).to_body(), "at run time");
        self.ran.push(Ran { id, acknowledged, outcome, tree: read_tree(store).unwrap() });
        outcome
    }

    /// Commands of every kind: long and short, fused and not, failing and changing nothing.
    fn everything(&mut self) {
        let base = Handle::ROOT;
        let (path, src) = (self.path("/new"), self.data(1, 3000));
        self.op(Op::OpenWriteClose { base, path, flags: NEW, mode: 0o644, at: At::Offset(0), src });
        let path = self.path("/foo");
        let h = self.direct.run(Op::open(base, path, RW, 0));
        let h = Handle::from_wire(h.result);
        let src = self.data(2, 700);
        self.op(Op::AppendChecksumWrite { h, kind: ChecksumKind::Crc32c, src });
        let src = self.data(3, 5000);
        self.op(Op::Write { h, at: At::Offset(100), src });
        let path = self.path("/missing");
        assert_ne!(self.op(Op::Unlink { base, path }).status, 0);
        let path = self.path("/bar");
        self.op(Op::Unlink { base, path });
        let (out, src) = (PoolRange::new(65536, 100), self.data(4, 40));
        let path = self.path("/A/foo");
        let flags = RW | OpenFlags::TRUNC;
        self.op(Op::OpenReadWriteClose { base, path, flags, mode: 0, read_off: 0, out, at: At::End, src });
        self.op(Op::Read { h, at: At::Offset(0), out, watch: 0 });
        self.direct.store().checkpoint().unwrap();
        let to = self.direct.put(4096, b"/B/new");
        let path = self.path("/new");
        self.op(Op::Rename { from_base: base, from: path, to_base: base, to, flags: RenameFlags::empty() });
        self.op(Op::ReadModifyWrite { h, offset: 8, len: 8, modify: Modify::Add(5), out: PoolRange::EMPTY });
        let src = self.data(5, 64);
        self.op(Op::AppendChecksumWrite { h, kind: ChecksumKind::Crc32c, src });
        let journal = self.direct.store().journal();
        journal.wait(journal.tail()).unwrap();
    }
}

/// What a recovered store knows of the commands, against its tree.
fn judge(store: &Arc<Store>, ran: &[Ran], start: &Tree, cut: u64) -> usize {
    let bodies: Vec<OutcomeBody> = ran.iter().map(|r| store.outcome(&r.id)).collect();
    let done = bodies.iter().take_while(|b| b.state == OutcomeState::Done as u8).count();
    for (i, (r, body)) in ran.iter().zip(&bodies).enumerate() {
        if i < done {
            assert_eq!(*body, Known::Done(r.outcome).to_body(), "command {i} at {cut}");
        } else {
            assert_eq!(*body, Known::NotStarted.to_body(), "command {i} at {cut}, of {done} known");
            assert!(r.acknowledged.is_none_or(|p| p > cut), "command {i} was durable at {cut}");
        }
    }
    let tree = read_tree(store).unwrap();
    let wanted = done.checked_sub(1).map_or(start, |last| &ran[last].tree);
    if let Some(difference) = wanted.first_difference(&tree) {
        panic!("cut at {cut}: {done} commands are known, but {difference}");
    }
    done
}

/// The image as a read-only mount sees it: what recovery would finish is in progress.
fn in_progress(image: &CowImage, model: CrashModel, ran: &[Ran]) -> usize {
    let options = weldfs_store::MountOptions { read_only: true, ..mount_options() };
    let (store, _) = weldfs_fs::mount(Arc::new(CowMedium::new(image.clone(), model)), options).unwrap();
    let bodies = ran.iter().map(|r| store.outcome(&r.id));
    let begun: Vec<OutcomeBody> = bodies.filter(|b| b.state == OutcomeState::InProgress as u8).collect();
    begun.iter().for_each(|b| assert!(b.micro_done <= b.micro_ops && b.micro_ops > 1, "{b:?}"));
    assert!(begun.len() <= 1, "one command at a time");
    begun.len()
}

/// Cuts the recovery of an image short at every moment, too: what it leaves is recovered and judged.
fn recovery_cut_short(image: &CowImage, model: CrashModel, places: &Places, judge: &mut dyn FnMut(&Arc<Store>)) {
    let medium = Arc::new(RecordingMedium::over(image.clone(), model));
    drop(weldfs_fs::mount(medium.clone(), mount_options()).unwrap());
    let recording = medium.take_recording();
    let mut at = Replayer::new(&recording, 0);
    loop {
        let all = states(&at, places, 2, &|_| false, &mut |_, _| {}).states;
        let step = all.div_ceil(STATES_IN_RECOVERY).max(1);
        states(&at, places, 2, &|n| n.is_multiple_of(step), &mut |_, image| {
            let medium = Arc::new(CowMedium::new(image, model));
            judge(&weldfs_fs::mount(medium, mount_options()).unwrap().0);
        });
        if !at.advance() {
            return;
        }
    }
}

fn every_cut(model: CrashModel, modes: TxnMode, durable: bool) {
    let setup = Setup::new(model).unwrap();
    let medium = Arc::new(RecordingMedium::over(setup.image.clone(), model));
    let (store, _) = weldfs_fs::mount(medium.clone(), mount_options()).unwrap();
    let places = Places::new(&Superblock::load(&*medium).unwrap().0.geometry, model);
    let start = read_tree(&store).unwrap();
    let begun = medium.position();
    let direct = Direct::new(store, 256 << 10);
    let mut runner = Runner { medium: medium.clone(), direct, ran: Vec::new(), modes, durable };
    runner.everything();
    let ran = std::mem::take(&mut runner.ran);
    drop(runner);
    let recording = medium.take_recording();
    let mut at = Replayer::new(&recording, 0);
    at.goto(begun);
    let (mut seen, mut known, mut open) = (std::collections::HashSet::new(), vec![0u64; ran.len() + 1], 0);
    loop {
        let cut = at.position();
        let all = states(&at, &places, 1, &|_| false, &mut |_, _| {}).states;
        let step = all.div_ceil(STATES).max(1);
        states(&at, &places, 1, &|n| n.is_multiple_of(step), &mut |_, image| {
            let fresh = seen.insert(image.digest());
            let medium = Arc::new(CowMedium::new(image.clone(), model));
            // Equal images recover alike; what was acknowledged by then differs.
            if !fresh && !durable {
                return;
            }
            if fresh && modes != TxnMode::Macro && in_progress(&image, model, &ran) > 0 {
                open += 1;
                if open <= RECOVERIES {
                    recovery_cut_short(&image, model, &places, &mut |store| {
                        judge(store, &ran, &start, cut);
                    });
                }
            }
            let (store, _) = weldfs_fs::mount(medium, mount_options()).unwrap();
            known[judge(&store, &ran, &start, cut)] += 1;
        });
        if !at.advance() {
            break;
        }
    }
    assert!(known[ran.len()] > 0, "the last one is known in the end: {known:?}");
    // Left to the device, commands as short as these are one record each.
    assert_eq!(open > 0, modes == TxnMode::Micro, "cuts within a transaction of several records are met");
    if durable {
        assert!(known.iter().all(|n| *n > 0), "each prefix is met: {known:?}");
    }
    println!("{model:?} {modes:?} durable {durable}: {} images, {open} open, {known:?}", seen.len());
}

#[test]
fn at_every_cut_of_pmem_outcomes_agree_with_the_tree() {
    for modes in [TxnMode::Macro, TxnMode::Micro] {
        every_cut(CrashModel::Pmem, modes, true);
    }
    every_cut(CrashModel::Pmem, TxnMode::Default, false);
}

#[test]
fn at_every_cut_of_block_media_outcomes_agree_with_the_tree() {
    for modes in [TxnMode::Macro, TxnMode::Micro] {
        every_cut(CrashModel::Block, modes, true);
    }
    every_cut(CrashModel::Block, TxnMode::Default, false);
}
