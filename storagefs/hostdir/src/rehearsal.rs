//! Programs that compute, and what they hold meanwhile: nothing.
//!
//! Such a program is rehearsed first (`weldfs_ciscops::program::foresight`): it opens and reads, what it would change
//! it only notes, and no ticket or name is kept from others while codecs and ciphers run. Then it runs in earnest,
//! holding all that it names, and takes what they made. What it is given is compared with what they were given, so it
//! is as if they had run there. Where others have changed something meanwhile it starts over, as long as it has done
//! nothing; one that may change something before it computes is compared as a whole, in a second rehearsal under its
//! hold, before it does anything.
//!
//! What is left is a program that computes with what only its own changes make, in a way that a rehearsal does not see
//! through (it knows content of files and names as they are written, no second name of a directory). Once it has done
//! something it may compute with a piece of 64 KiB at a time; more is refused (EOPNOTSUPP).

use weldfs_ciscops::program::Program;
use weldfs_ciscops::{Command, Errno, Outcome, interp};

use super::core::Core;
use super::foresight::Foresight;
use super::scratch::Scratch;
use super::txn::HostTxn;
use super::work::{Done, Progress, Work};
use weldfs_session::limits::LOST_MAX;

/// Runs a program that computes, or cuts it where others wait for its thread.
pub(super) async fn run(
    core: &Core,
    work: &Work,
    (cmd, program): (&Command, &Program),
    durable: bool,
    scratch: &mut Scratch,
) -> Option<Done> {
    let begun = std::mem::take(&mut *work.progress.lock());
    let mut kept = match begun {
        Progress::Begin => None,
        begun => {
            // It has a thread of its own already.
            *work.progress.lock() = Progress::Away;
            if let Progress::Foreseen(kept) = begun { kept } else { None }
        }
    };
    let changes_before = program.computes() == Some(true);
    for _ in 0..LOST_MAX {
        let mut ahead = HostTxn::new(core, work, scratch, durable);
        ahead.foresight = Some(Foresight::rehearsal(kept));
        interp::run(cmd, &work.paths, &work.queue.pool, &mut ahead).await;
        kept = ahead.kept_foresight();
        let cut = ahead.foresight.as_ref().is_some_and(|f| f.cut);
        if cut || ahead.way.left {
            *work.progress.lock() = Progress::Foreseen(kept);
            return None;
        }
        drop(ahead);
        scratch.turn = None;
        let mut txn = HostTxn::new(core, work, scratch, durable);
        txn.prepare().await;
        if txn.way.left {
            *work.progress.lock() = Progress::Foreseen(kept);
            return None;
        }
        if changes_before {
            txn.foresight = Some(Foresight { kept, rehearsal: true, ..Foresight::default() });
            interp::run(cmd, &work.paths, &work.queue.pool, &mut txn).await;
            kept = txn.kept_foresight();
            if txn.foresight.as_ref().is_some_and(|f| f.lost) {
                work.queue.counters.set_retries.add(1);
                continue;
            }
            txn.forget_files();
        }
        txn.foresight = Some(Foresight { kept, ..Foresight::default() });
        let outcome = interp::run(cmd, &work.paths, &work.queue.pool, &mut txn).await;
        if txn.foresight.as_ref().is_some_and(|f| f.lost) {
            kept = txn.kept_foresight();
            work.queue.counters.set_retries.add(1);
            continue;
        }
        return Some(txn.end(outcome));
    }
    // Others change what it reads faster than it computes.
    Some(Outcome::failed(Errno::AGAIN).into())
}
