//! Workloads in a fixed order: every one of one operation, every one of two, samples of more, long random ones.
//!
//! The operations come from two lists over the tiny tree. The full one has every operation with every kind of operand
//! that takes another way through the file system: new and existing, whole blocks and parts, inside a record and above
//! its limit, inside the file, at its end and behind it, and calls that fail. The core has one or two of each kind, so
//! that all pairs of them stay countable.

use super::perform::ROOMY;
use super::workload::{Background, FsOp, Mode, Place, Step, Sync, Workload};
use super::{Rng, trace};
use crate::catalogue;

/// Which transaction modes fused operations are run in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModeChoice {
    /// MacroTx only.
    Macro,
    /// MicroTx only.
    Micro,
    /// Both, one after the other.
    Both,
}

/// Operations on names and attributes, every kind of operand.
const NAMES: &str = "
creat foo; creat C; creat A/bar; creat A; creat A/C/foo
mkdir C; mkdir A/C; mkdir A; mkdir foo
rmdir A; rmdir C; rmdir foo
unlink foo; unlink bar; unlink A/foo; unlink B/bar; unlink A; unlink C
link foo C; link foo A/bar; link A/foo B/foo; link A/foo bar; link A C
symlink foo l; symlink A A/l; symlink foo bar
rename foo bar over; rename foo C over; rename foo A/foo over; rename foo A/bar over; rename A/foo B/bar over
rename A/foo A/bar over; rename B/bar foo over; rename A C over; rename A B over; rename A B/A over
rename A foo over; rename foo A over; rename A A/C over; rename foo foo over; rename C foo over
rename foo bar noreplace; rename foo C noreplace; rename A C noreplace; rename A/foo B/foo noreplace
rename foo bar exchange; rename foo A/foo exchange; rename A B exchange; rename foo A exchange
rename A/foo B exchange; rename foo C exchange; rename A A/foo exchange
setxattr foo 0 20; setxattr foo 1 100; setxattr bar 2 3000; setxattr A 0 20; removexattr foo 0; removexattr bar 0
chmod foo 600; chmod A 700; chmod foo 4755; chown foo 5 6; chown A 5 6; utimens foo 99; utimens A 99; hold foo
";

/// Operations on bytes, every kind of operand.
const BYTES: &str = "
write foo 0 12388; write foo 0 4096; write foo 100 300; write foo 4090 20; write foo 4096 4096; write foo 5000 4000
write foo 12388 100; write foo 12000 1000; write foo 20000 5000; write foo 20480 4096; write foo 0 1310720
write foo 100 1048577; write bar 0 100; write bar 10 20; write bar 0 512; write bar 0 513; write bar 50 4096
write A/foo 4096 904; write B/bar 0 5000; write A 0 10
append foo 100; append foo 5000; append bar 30; append bar 4096; append A/foo 3192
truncate foo 0; truncate foo 100; truncate foo 4096; truncate foo 12387; truncate foo 12388; truncate foo 20000
truncate bar 0; truncate bar 50; truncate bar 8192
fallocate foo reserve 0 4096; fallocate foo reserve 8192 20000; fallocate bar reserve 100 5000
fallocate foo keep-size 8192 20000; fallocate bar keep-size 0 100
fallocate foo punch 0 4096; fallocate foo punch 100 5000; fallocate foo punch 8192 20000; fallocate bar punch 10 20
fallocate foo zero 0 4096; fallocate foo zero 100 5000; fallocate foo zero 8192 20000; fallocate bar zero 0 8192
fallocate foo zero-keep-size 4096 4096; fallocate foo zero-keep-size 8192 20000; fallocate bar zero-keep-size 10 20
";

/// Fused operations, every kind of operand.
const FUSED: &str = "
open_write_close foo existing 0 100; open_write_close foo existing 4096 4096; open_write_close foo existing 0 9000
open_write_close foo existing 20000 50; open_write_close C existing 0 10; open_write_close A existing 0 10
open_write_close bar create 50 20; open_write_close C create 0 600; open_write_close C new 0 50
open_write_close C new 100 9000; open_write_close foo new 0 50; open_write_close A/bar new 0 5000
open_write_close foo trunc 0 50; open_write_close foo trunc 0 9000; open_write_close bar trunc 200 0
open_write_close C trunc 0 5000; open_write_close foo append 0 100; open_write_close foo append 0 5000
open_write_close C append 0 30
open_read_write_close foo existing 0 100; open_read_write_close foo existing 4000 5000
open_read_write_close C create 0 600; open_read_write_close foo trunc 0 50; open_read_write_close foo trunc 4096 9000
open_read_write_close A/foo append 0 300; open_read_write_close A/bar new 0 5000
append_checksum_write foo 100; append_checksum_write foo 5000; append_checksum_write bar 30
append_checksum_write bar 600; append_checksum_write bar 8188; append_checksum_write A/foo 3188
read_modify_write foo patch 100 50; read_modify_write foo patch 4090 20; read_modify_write foo patch 0 9000
read_modify_write foo patch 12380 30; read_modify_write foo patch 20000 30; read_modify_write foo add 0 8
read_modify_write foo add 4092 8; read_modify_write bar xor 10 40; read_modify_write foo swap 4000 200
read_modify_write foo swap-fail 4000 200
atomic_replace C foo 5000; atomic_replace C foo 100; atomic_replace A/bar bar 9000; atomic_replace bar foo 300
atomic_replace C A 10; program foo C 300; program foo C 5000; program A/foo bar 9000; program C A 10
program A/bar foo 4090; multi_write foo bar 0 100; multi_write foo A/foo 4000 5000; multi_write foo C 0 10
multi_write foo foo 100 9000; batch C foo 300; batch A/bar bar 5000; batch foo C 9000; batch A foo 10
";

/// Operations of which every pair is run.
const CORE_SINGLE: &str = "
creat C; creat A/bar; mkdir C; mkdir A/C; rmdir C; rmdir A; unlink foo; unlink bar; unlink A/foo
link foo C; link foo A/bar; link A/foo bar; symlink foo l
rename foo bar over; rename foo C over; rename A/foo B/bar over; rename bar A/foo over; rename A C over
rename A B/A over; rename C foo over; rename A/bar A/foo over; rename foo C noreplace; rename foo A/foo exchange
rename A B exchange; rename foo B exchange
write foo 100 300; write foo 4090 20; write foo 0 12388; write foo 20000 5000; write bar 0 513; write A/bar 0 600
append foo 100; append bar 4096; append A/foo 3192
truncate foo 0; truncate foo 5000; truncate foo 20000; truncate bar 50
fallocate foo reserve 8192 20000; fallocate foo keep-size 8192 20000; fallocate foo punch 100 5000
fallocate foo zero 8192 20000; fallocate foo zero-keep-size 4096 4096
setxattr foo 0 20; setxattr bar 2 3000; removexattr foo 0; chmod foo 600; chown A 5 6; utimens foo 99; hold foo
";

/// Fused operations of which every pair is run.
const CORE_FUSED: &str = "
open_write_close foo existing 4000 200; open_write_close C new 0 50; open_write_close A/bar create 100 5000
open_write_close foo trunc 0 9000; open_write_close bar append 0 300
open_read_write_close foo existing 0 100; open_read_write_close foo trunc 0 600; open_read_write_close C new 0 5000
append_checksum_write foo 100; append_checksum_write bar 8188; append_checksum_write A/bar 30
read_modify_write foo patch 4090 20; read_modify_write foo add 0 8; read_modify_write bar swap 10 40
atomic_replace C foo 5000; program foo C 300; multi_write foo A/foo 4000 5000; batch C foo 300
fused append_checksum_write.slot foo A/foo 4090 5120; fused append_checksum_write.slot bar A/foo 100 512
fused kernel foo A/foo 100 512
";

fn list(text: &str) -> Vec<FsOp> {
    // One by one: together they need more room than there is.
    let one = |line: &str| Workload::parse(line).expect("the lists of this file are well formed").steps;
    text.trim().split(['\n', ';']).flat_map(one).map(|s| s.op).collect()
}

/// Each operation in the modes that tell on it.
fn moded(ops: Vec<FsOp>, modes: ModeChoice) -> Vec<Step> {
    let mut steps = Vec::new();
    for op in ops {
        let of: &[Mode] = match modes {
            _ if !op.is_fused() => &[Mode::Default],
            ModeChoice::Macro => &[Mode::Macro],
            ModeChoice::Micro => &[Mode::Micro],
            ModeChoice::Both => &[Mode::Macro, Mode::Micro],
        };
        steps.extend(of.iter().map(|mode| Step::new(op).mode(*mode)));
    }
    steps
}

fn full(modes: ModeChoice) -> Vec<Step> {
    [NAMES, BYTES, FUSED].iter().flat_map(|l| moded(list(l), modes)).collect()
}

fn core(modes: ModeChoice) -> Vec<Step> {
    [CORE_SINGLE, CORE_FUSED].iter().flat_map(|l| moded(list(l), modes)).collect()
}

const SYNCS: [Sync; 4] = [Sync::Nothing, Sync::Fsync, Sync::Fdatasync, Sync::Syncfs];
const BACKGROUNDS: [Background; 3] = [Background::Checkpoint, Background::Reclaim, Background::Remount];

/// Every operation of the catalogue's table, inline and in blocks of its own by turns. Not among them: listings, which
/// are of the device, not of the store, and change nothing; and those that need a larger medium (`roomy`).
fn table(modes: ModeChoice) -> Vec<Step> {
    let (a, b) = (Place::of("foo"), Place::of("A/foo"));
    let (Some(a), Some(b)) = (a, b) else { return Vec::new() };
    let rows = catalogue::table().into_iter().enumerate().filter(|(_, row)| row.op != "read_dir_plus");
    let rows = rows.filter(|(_, row)| !ROOMY.contains(&row.name().as_str()));
    let op = |row: usize| match row % 2 {
        0 => FsOp::Fused { row: row as u8, a, b, off: 4090, len: 5120 },
        _ => FsOp::Fused { row: row as u8, a, b, off: 100, len: 512 },
    };
    moded(rows.map(|(row, _)| op(row)).collect(), modes)
}

/// Operations of the catalogue's table that need a larger medium, each in the modes asked for, as `one_op` has others.
pub fn roomy() -> Vec<Workload> {
    let line = |name: &&str| ["macro", "micro"].map(|mode| format!("fused {name} foo A/foo 100 512 {mode} durable"));
    let lines = ROOMY.iter().flat_map(line);
    lines.filter_map(|line| Workload::parse(&line).ok()).collect()
}

/// Every workload of one operation: each operation of the full list, durable and volatile, with each of the sync calls
/// after it, and with each of the background activities after it; each operation of the catalogue's table, durable, and
/// followed by fsync.
pub fn one_op(modes: ModeChoice) -> Vec<Workload> {
    let durable = |step: &Step| [Workload::new([step.durable()]), Workload::new([step.sync(Sync::Fsync)])];
    let mut all: Vec<Workload> = table(modes).iter().flat_map(durable).collect();
    for step in full(modes) {
        for step in [step, step.durable()] {
            all.extend(SYNCS.map(|s| Workload::new([step.sync(s)])));
            all.extend(BACKGROUNDS.map(|b| Workload::new([step.then(b)])));
        }
    }
    all
}

/// How the first of two operations is made durable: it is, nothing does, or what stands at the turn of this number.
const FIRST: usize = 3;
/// How the second is: it is, or by a sync call.
const SECOND: usize = 2;

/// All workloads of two operations of the core, by number.
pub struct TwoOps {
    core: Vec<Step>,
    next: usize,
}

impl TwoOps {
    /// How many there are.
    pub fn count_all(&self) -> usize {
        self.core.len() * FIRST * self.core.len() * SECOND
    }

    /// Number `i`, below `count_all`. The sync calls and the checkpoint take turns.
    pub fn at(&self, i: usize) -> Workload {
        let n = self.core.len();
        let (second, rest) = (i % SECOND, i / SECOND);
        let (b, rest) = (self.core[rest % n], rest / n);
        let (first, a) = (rest % FIRST, self.core[rest / FIRST % n]);
        // Not in step with the size of the core, so that every pair meets another turn.
        let turn = i.wrapping_mul(7) / 5;
        let a = match first {
            0 => a.durable(),
            1 => a,
            _ => match turn % 5 {
                3 => a.then(Background::Checkpoint),
                4 => a.then(Background::Reclaim),
                t => a.sync(SYNCS[1 + t]),
            },
        };
        let b = if second == 0 { b.durable() } else { b.sync(SYNCS[turn % 4]) };
        Workload::new([a, b])
    }
}

impl Iterator for TwoOps {
    type Item = Workload;

    fn next(&mut self) -> Option<Workload> {
        let i = self.next;
        self.next += 1;
        (i < self.count_all()).then(|| self.at(i))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.count_all().saturating_sub(self.next);
        (left, Some(left))
    }
}

impl ExactSizeIterator for TwoOps {}

/// Every workload of two operations.
pub fn two_op(modes: ModeChoice) -> TwoOps {
    TwoOps { core: core(modes), next: 0 }
}

/// `count` workloads of `ops` operations in both modes, drawn by a seed: of two operations different ones out of all
/// pairs (all of them when there are no more), otherwise any.
pub fn sampled(ops: usize, count: usize, seed: u64) -> Box<dyn Iterator<Item = Workload> + Send> {
    if ops == 2 {
        let pairs = two_op(ModeChoice::Both);
        let places = places(pairs.count_all() as u64, count as u64, seed);
        return Box::new(places.map(move |i| pairs.at(i as usize)));
    }
    let mut rng = Rng::new(seed);
    let (core, full) = (core(ModeChoice::Both), full(ModeChoice::Both));
    Box::new((0..count).map(move |_| drawn(ops, &mut rng, &core, &full)))
}

/// `count` different places of a list of `n`, drawn by a seed; all of them when there are no more.
pub(super) fn places(n: u64, count: u64, seed: u64) -> impl Iterator<Item = u64> + Send {
    let mut rng = Rng::new(seed);
    // A step that shares no factor with their number visits each once, and all variants of what the list repeats.
    let from = rng.below(n);
    let mut stride = rng.below(n) | 1;
    while gcd(stride, n) != 1 {
        stride += 2;
    }
    (0..n.min(count)).map(move |i| (from + (u128::from(i) * u128::from(stride) % u128::from(n)) as u64) % n)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Steps that the medium has room for together.
fn drawn(ops: usize, rng: &mut Rng, core: &[Step], full: &[Step]) -> Workload {
    let (mut steps, mut left) = (Vec::new(), trace::ROOM_MAX);
    while steps.len() < ops {
        let step = draw(rng, core, full);
        if let Some(rest) = left.checked_sub(trace::room(&step.op)) {
            left = rest;
            steps.push(step);
        }
    }
    Workload { steps }
}

fn draw(rng: &mut Rng, core: &[Step], full: &[Step]) -> Step {
    let from = if rng.below(3) == 0 { full } else { core };
    let mut step = from[rng.below(from.len() as u64) as usize];
    step.durable = rng.below(3) == 0;
    if rng.below(3) == 0 {
        step.sync = SYNCS[rng.below(4) as usize];
    }
    if rng.below(8) == 0 {
        step.then = BACKGROUNDS[rng.below(3) as usize];
    }
    step
}

/// One long workload of `ops` operations, drawn by a seed: with checkpoints, reclaim and remounts in between.
pub fn random(ops: usize, seed: u64) -> Workload {
    let mut rng = Rng::new(seed);
    let (core, mut full) = (core(ModeChoice::Both), full(ModeChoice::Both));
    // One of them would leave little room for the others.
    full.retain(|s| !matches!(s.op, FsOp::Write { len: 100_000.., .. }));
    drawn(ops, &mut rng, &core, &full)
}
