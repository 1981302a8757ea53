//! Run to completion: a command that is found alone is over on the core that took it, at once, where it waits for
//! nothing. It has no slot, no future and no tickets. Until it commits it has no effect; so where it turns out that it
//! would have to wait (for an inode, a cold page, room, its turn), it is given up, nothing has happened, and it takes
//! the way of commands that wait (`serve`), from its beginning.
//!
//! * this file: which commands, and those that only look (`weldfs_fs::optimistic` says why they need no tickets);
//! * `change`: those over a transaction; `program`: which programs are among these; `session`: those that the session
//!   answers;
//! * `merged`: several that become one record.

mod change;
pub(super) mod merged;
mod program;
mod session;
#[cfg(test)]
mod tests;

use weldfs_ciscops::{Command, Handle, InodeNo, Op, Opcode, Paths, PoolRange};

use super::core::Core;
use super::done::{Done, count};
use super::grants::begin_read;
use super::session::QueueState;
use super::wishes::is_placed;
use weldfs_fs::optimistic::{Optimistic, only_looks};

/// Commands that may be over at once.
const NUMBERS: [Opcode; 28] = [
    Opcode::Nop,
    Opcode::Open,
    Opcode::Close,
    Opcode::Read,
    Opcode::Write,
    Opcode::WriteVerified,
    Opcode::Truncate,
    Opcode::Fsync,
    Opcode::Fdatasync,
    Opcode::Syncfs,
    Opcode::Stat,
    Opcode::StatPath,
    Opcode::SetAttr,
    Opcode::SetAttrPath,
    Opcode::Mkdir,
    Opcode::Rmdir,
    Opcode::Unlink,
    Opcode::Rename,
    Opcode::Link,
    Opcode::Symlink,
    Opcode::Access,
    Opcode::Lock,
    Opcode::OpenWriteClose,
    Opcode::OpenReadClose,
    Opcode::AppendChecksumWrite,
    Opcode::ReadChecksumVerify,
    Opcode::ReadModifyWrite,
    Opcode::Program,
];

/// Whether commands with this number may be over at once.
#[inline]
pub(super) fn may_be(opcode: u16) -> bool {
    const BITS: u128 = bits(&NUMBERS);
    opcode < 128 && BITS >> opcode & 1 == 1
}

const fn bits(numbers: &[Opcode]) -> u128 {
    let (mut bits, mut i) = (0, 0);
    while i < numbers.len() {
        bits |= 1 << numbers[i] as u32;
        i += 1;
    }
    bits
}

/// Runs a command; `None` where it would have to wait.
#[inline]
pub(super) fn run(core: &Core, queue: &QueueState, cmd: &Command) -> Option<Done> {
    if !may_complete(core, queue, cmd) {
        return None;
    }
    if let Op::Program { body } = cmd.op {
        return program::run(core, queue, cmd, body);
    }
    let mut paths = Paths::default();
    paths.take(cmd, &queue.pool).ok()?;
    if let Op::Read { watch: 1.., .. } = cmd.op {
        return read_watched(core, queue, cmd, &paths);
    }
    if only_looks(&cmd.op) {
        return look(core, queue, cmd, &paths);
    }
    match cmd.op {
        Op::Close { .. } | Op::Lock { .. } | Op::Fsync { .. } | Op::Fdatasync { .. } | Op::Syncfs => {
            session::run(core, queue, cmd)
        }
        _ => change::run(core, queue, cmd, &paths),
    }
}

/// Whether it may be over at once at all. On a device of several cores a look without tickets could find a block that
/// another core has overwritten, a checkpoint has freed and a third command has filled meanwhile, and a handle that is
/// being closed. On an emulated core each command takes its time; what an answer must wait for, what is kept of it
/// beside its effects, what a slot computes, and what comes behind a command that stands aside, is for the other way.
#[inline]
fn may_complete(core: &Core, queue: &QueueState, cmd: &Command) -> bool {
    let waits = cmd.after_durable || cmd.detectable || is_placed(cmd);
    !waits && may_complete_here(core, queue)
}

/// Whether any command may, on this device and behind what came on this queue.
#[inline]
fn may_complete_here(core: &Core, queue: &QueueState) -> bool {
    let fits = !core.board.is_shared() && !core.emulated.is_on() && !core.is_poisoned();
    core.config.at_once && fits && queue.aside.is_empty()
}

/// Runs one that only looks; its strings were copied out already.
pub(super) fn look(core: &Core, queue: &QueueState, cmd: &Command, paths: &Paths) -> Option<Done> {
    if !only_looks(&cmd.op) || !may_complete(core, queue, cmd) {
        return None;
    }
    let view = Optimistic::begin(&core.store, &*queue.session, &queue.pool, |ino| is_free(core, queue, ino))?;
    let looked = view.run(&cmd.op, &paths.a)?;
    if let Some((h, offset)) = looked.cursor {
        queue.session.handles.with(h, |d| d.set_offset(offset)).ok()?;
    }
    let mut done = count(cmd, paths, looked.outcome, &looked.counters);
    done.bytes_in += paths.a.len() as u64;
    Some(done)
}

/// A read whose bytes are watched (`watches`).
#[cold]
fn read_watched(core: &Core, queue: &QueueState, cmd: &Command, paths: &Paths) -> Option<Done> {
    let reading = begin_read(core, queue, cmd);
    let mut done = look(core, queue, cmd, paths);
    core.watches.end_read(queue, reading, done.as_mut().map(|done| &mut done.outcome));
    done
}

fn is_free(core: &Core, queue: &QueueState, ino: InodeNo) -> bool {
    core.sets.is_free(ino.0) && !core.leases.in_the_way(queue, ino.0)
}

/// What `stat_path` of a name comes to that the directory open as `h`, `dir`, had for `ino` when the store was of that
/// generation; the body goes to `out`.
pub(super) fn look_at_listed(
    core: &Core,
    queue: &QueueState,
    (h, dir, generation): (Handle, InodeNo, u64),
    (ino, name): (InodeNo, &[u8]),
    out: PoolRange,
) -> Option<Done> {
    if !may_complete_here(core, queue) {
        return None;
    }
    let is_free = |ino| is_free(core, queue, ino);
    let view = Optimistic::as_of(generation, &core.store, &*queue.session, &queue.pool, is_free);
    let looked = view.stat_listed(h, (dir, ino), out)?;
    let mut done = Done::from(looked.outcome);
    done.moved(name.len() as u64, out.len.into());
    Some(done)
}
