//! Entries of a ring, one command or a sequence: one entry that stands for several commands, run one after the other,
//! each as if it had come by itself.

use weldfs_ciscops::{
    Command, Cqe, Durability, Errno, Op, Outcome, Paths, PoolRange, RawCommand, Sqe, TxnMode, validate,
};
use zerocopy::IntoBytes;

use super::command;
use super::core::Core;
use super::long::SLICE_NS;
use super::scratch::Scratch;
use super::work::{Done, Progress, Sequence, Work, answer};
use weldfs_session::clock::now_ns;

/// Copies an element's entry out of the pool, once, and believes it or not. What it leaves to the default is as the
/// batch says.
fn entry(work: &Work, items: PoolRange, i: u32) -> (RawCommand, Result<(Command, Paths), Errno>) {
    let (mut sqe, pool) = (Sqe::default(), &work.queue.pool);
    let range = PoolRange::new(items.off + i * Sqe::SIZE as u32, Sqe::SIZE as u32);
    if let Ok(bytes) = pool.slice(range) {
        bytes.copy_to(sqe.as_mut_bytes());
    }
    let raw = RawCommand(sqe);
    let believed = validate(&raw, &work.queue.limits).and_then(|mut cmd| {
        if matches!(cmd.op, Op::Batch { .. }) {
            return Err(Errno::INVAL);
        }
        if cmd.durability == Durability::Default {
            cmd.durability = work.cmd.durability;
        }
        if cmd.mode == TxnMode::Default {
            cmd.mode = work.cmd.mode;
        }
        cmd.after_durable |= work.cmd.after_durable;
        Ok((cmd, Paths::fetch(&cmd, pool)?))
    });
    (raw, believed)
}

fn put_result(work: &Work, results: PoolRange, i: u32, cqe: &Cqe) {
    let range = PoolRange::new(results.off + i * Cqe::SIZE as u32, Cqe::SIZE as u32);
    if let Ok(bytes) = work.queue.pool.slice(range) {
        bytes.copy_from(cqe.as_bytes());
    }
}

/// Runs an entry, or a slice of it: `None` when there is more of it.
pub(super) async fn run(core: &Core, work: &Work, scratch: &mut Scratch) -> Option<Done> {
    let Op::Batch { items, results } = work.cmd.op else { return command::run(core, work, scratch).await };
    if let Some(done) = command::refused(core, work) {
        return Some(done);
    }
    Box::pin(batch(core, work, (items, results), scratch)).await
}

/// Runs a batch, or a slice of it: results are how many ran, and how many failed.
async fn batch(
    core: &Core,
    work: &Work,
    (items, results): (PoolRange, PoolRange),
    scratch: &mut Scratch,
) -> Option<Done> {
    let count = items.len / Sqe::SIZE as u32;
    let fresh = || {
        let (opcodes, total) = (Vec::with_capacity(count as usize), Done::from(Outcome::ok(count.into(), 0)));
        Box::new(Sequence { next: 0, element: None, opcodes, total })
    };
    let mut s = match std::mem::take(&mut *work.progress.lock()) {
        Progress::Sequence(s) => s,
        _ => fresh(),
    };
    let begun = now_ns();
    while s.next < count {
        if work.away {
            scratch.breathe(core);
            scratch.begin_turn(core, work);
        }
        let cut = s.element.is_none() && s.next > 0 && now_ns().saturating_sub(begun) > SLICE_NS;
        if cut || !s.element(core, work, (items, results), scratch).await {
            *work.progress.lock() = Progress::Sequence(s);
            return None;
        }
    }
    s.total.bytes_in += u64::from(items.len);
    s.total.bytes_out += u64::from(results.len);
    let counters = &work.queue.counters;
    counters.elements.add(count.into());
    let _ends = work.queue.pair.ends();
    s.opcodes.iter().for_each(|op| counters.opcode(*op));
    Some(s.total)
}

impl Sequence {
    /// Runs the next element; false when there is more of it. What was believed of an element that was cut is not read
    /// again.
    async fn element(
        &mut self,
        core: &Core,
        work: &Work,
        (items, results): (PoolRange, PoolRange),
        scratch: &mut Scratch,
    ) -> bool {
        let count = items.len / Sqe::SIZE as u32;
        let (believed, sequence) = match self.element.take() {
            Some((mut element, sequence)) => {
                element.away |= work.away;
                (Ok(element), sequence)
            }
            None => {
                let (raw, believed) = entry(work, items, self.next);
                let element = believed.map(|(cmd, paths)| {
                    self.opcodes.push(cmd.op.opcode() as u16);
                    work.element(cmd, paths, self.next + 1 == count)
                });
                (element, raw.0.sequence)
            }
        };
        let done = match believed {
            Ok(element) => match Box::pin(command::run(core, &element, scratch)).await {
                Some(done) => done,
                None => {
                    self.element = Some((element, sequence));
                    return false;
                }
            },
            Err(errno) => answer(Err(errno)),
        };
        self.total.add(&done);
        self.total.outcome.result2 += u64::from(!done.outcome.is_ok());
        put_result(work, results, self.next, &done.outcome.to_cqe(sequence));
        self.next += 1;
        true
    }
}
