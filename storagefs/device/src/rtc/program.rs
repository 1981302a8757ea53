//! Programs that run to completion: those that are over soon, whatever they find. One that were given up late would
//! have held its core for nothing, so what it may cost is known before it begins.

use weldfs_ciscops::program::Micro;
use weldfs_ciscops::{Command, PoolRange, Program};

use super::*;
use weldfs_fs::SLICE_BYTES;

/// Nanoseconds for which such a program may hold its core, about.
const COST_MAX: u64 = 20_000;
/// What a micro-op takes of them at least: one on registers and buffers, a look at a file, a read, a write, a change of
/// names or attributes,
const INNER_NS: u64 = 100;
const LOOK_NS: u64 = 300;
const READ_NS: u64 = 600;
const WRITE_NS: u64 = 2500;
const NAME_NS: u64 = 5000;
/// and what it takes more for each block of bytes.
const BLOCK_NS: u64 = 500;
const BLOCK_BYTES: u64 = 4096;

/// Runs a program; `None` where it would have to wait, or may take long.
pub(super) fn run(core: &Core, queue: &QueueState, cmd: &Command, body: PoolRange) -> Option<Done> {
    let (program, said) = queue.programs.lock().fetch(body, &queue.pool).ok()?;
    // What has several records is committed one by one.
    let in_steps = cmd.commits_in_steps() && program.changes();
    let runs = is_short(&program) && program.is_repeatable(body) && fits(queue, &program) && !in_steps;
    let paths = Paths { program: Some(program), ..Paths::default() };
    if !runs {
        return None;
    }
    let done = change::run(core, queue, cmd, &paths);
    if let Some(program) = paths.program {
        queue.programs.lock().keep(program, said);
    }
    done
}

/// Whether it is over soon. So none of these computes, or lends what it holds.
fn is_short(program: &Program) -> bool {
    let cost = |(m, bytes): (&Micro, u64)| base_ns(m) + bytes.div_ceil(BLOCK_BYTES) * BLOCK_NS;
    program.weighed().map(cost).sum::<u64>() <= COST_MAX
}

fn base_ns(m: &Micro) -> u64 {
    match m {
        Micro::Write { .. } | Micro::CopyRange { .. } | Micro::Truncate { .. } => WRITE_NS,
        m if m.changes() => NAME_NS,
        Micro::Open { .. } | Micro::Read { .. } => READ_NS,
        Micro::Use { .. } | Micro::Size { .. } => LOOK_NS,
        _ => INNER_NS,
    }
}

/// What it holds of memory is not booked: there is one such program on a core at a time. But none runs whose tenant may
/// never have so much.
fn fits(queue: &QueueState, program: &Program) -> bool {
    let (held, cap) = (program.scratch_bytes() + program.write_bytes(), queue.tenant.memory.cap_bytes);
    held <= 2 * SLICE_BYTES && (cap == 0 || held <= cap)
}
