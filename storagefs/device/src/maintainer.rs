//! The maintenance thread: checkpoints, reclaim, the flush deadline of volatile effects, dead placeholders.

use weldfs_ciscops::Errno;

use super::core::Core;
use weldfs_session::clock::now_ns;
use weldfs_store::error::FsError;
use weldfs_store::reclaim::WAITS_MAX;

/// After so long, nanoseconds, what is reclaimed leaves the thread to what else was asked for, unless a command waits
/// for all of it.
const RECLAIM_NS: u64 = 20_000_000;

/// The thread's body.
pub(super) fn run(core: &Core) {
    let m = &core.maintenance;
    if core.store.reclaim_pending() {
        m.note_reclaim();
    }
    loop {
        let turn = m.wait_for_work();
        if turn.stop {
            break;
        }
        if turn.flush {
            flush(core);
        }
        let mut made = Ok(());
        if turn.checkpoint || core.store.needs_checkpoint() {
            made = make_room(core);
        }
        match reclaim(core, turn.drain || turn.space) {
            // What was freed can be used after one more checkpoint.
            Ok(true) if turn.checkpoint => made = make_room(core),
            Err(e) if turn.drain => made = Err(e),
            _ => {}
        }
        if turn.placeholders {
            if core.files.sweep() > 0 {
                m.watch_placeholders();
            }
            // The last description of a nameless file may have gone with its placeholder.
            core.note_reclaim();
        }
        m.finish_round(turn.checkpoint || turn.drain, made);
        if let Some(give_back) = core.config.at_rest.filter(|_| turn.rests) {
            give_back();
        }
    }
    m.finish_round(true, Ok(()));
}

fn flush(core: &Core) {
    let journal = core.store.journal();
    if let Err(e) = journal.commit_through(journal.tail()) {
        tracing::error!("the flush of volatile effects failed: {e}");
        return;
    }
    // The record that says how far the flush went is itself unflushed: it arms the timer once more.
    journal.idle();
    if journal.next_deadline().is_some() {
        core.maintenance.note_volatile();
    }
}

/// Frees what unlink and truncate left behind, in bounded steps, until nothing is left or nothing can be done now, the
/// thread is to end, or (unless it is to be `all`) [`RECLAIM_NS`] are over; the rest has another turn. True when
/// anything was freed.
pub(super) fn reclaim(core: &Core, all: bool) -> Result<bool, Errno> {
    let (mut any, mut waits, end) = (false, 0, now_ns() + RECLAIM_NS);
    loop {
        if core.maintenance.ends() && (any || waits > 0) || any && !all && now_ns() >= end {
            core.maintenance.go_on();
            return Ok(any);
        }
        match core.store.reclaim_step() {
            Ok(true) => {
                (any, waits) = (true, 0);
                if core.store.needs_checkpoint() {
                    make_room(core)?;
                }
            }
            Ok(false) => return Ok(any),
            Err(FsError::Miss(m)) => core.store.fetch(&m).map_err(|e| reclaim_failed(core, e))?,
            // A checkpoint makes room for a step, or none does: on a forged image.
            Err(FsError::Wait(_)) if waits < WAITS_MAX => {
                waits += 1;
                make_room(core)?;
            }
            Err(FsError::Wait(_)) => return Err(Errno::NOSPC),
            Err(e) => return Err(reclaim_failed(core, e)),
        }
    }
}

fn reclaim_failed(core: &Core, e: FsError) -> Errno {
    if !core.store.damage().note_error(&e, "reclaim", None) {
        tracing::error!("reclaim: {e}");
    }
    Errno::from(&e)
}

/// A checkpoint, measured for back-pressure.
fn make_room(core: &Core) -> Result<(), Errno> {
    let journal = core.store.journal();
    let before = journal.oldest();
    core.pace.begin(now_ns(), journal.used());
    let made = core.store.checkpoint();
    core.pace.end(now_ns(), journal.oldest().0 - before.0, core.store.geometry().log.len / 8);
    made.map(drop).map_err(|e| {
        if !core.store.damage().note_error(&e, "checkpoint", None) {
            tracing::error!("checkpoint failed: {e}");
        }
        Errno::from(&e)
    })
}
