//! Which commands of a client that is gone are still done: `weldfs_session::departed` says what each is worth.

use weldfs_ciscops::Op;
use weldfs_session::departed::{Worth, goes_on_since, worth};

use super::core::Core;
use super::session::SessionState;

/// Whether a command that has not begun is still to be done. A transaction is not committed once something of its
/// session was dropped that may have been a part of it.
/// What was posted was as good as answered: of a client that is gone it counts as begun.
pub(super) fn begins(core: &Core, session: &SessionState, op: &Op, posted: bool) -> bool {
    if !session.closing() {
        return true;
    }
    let lacking = matches!(op, Op::TxnCommit { .. }) && session.has_dropped();
    let in_time = session.closed_at().is_none_or(|gone| goes_on_since(gone, core.ending_since(), op, posted));
    let begins = !lacking && !matches!(op, Op::Batch { .. }) && in_time;
    if !begins && worth(op) != Worth::Nothing {
        session.note_dropped();
    }
    begins
}

/// Whether an element of a batch that has begun is still to be done: for as long as an element may be, whatever it is,
/// and as what it is.
pub(super) fn element_begins(core: &Core, session: &SessionState, batch: &Op, op: &Op) -> bool {
    if goes_on(core, session, batch) {
        return begins(core, session, op, false);
    }
    if worth(op) != Worth::Nothing {
        session.note_dropped();
    }
    false
}

/// Whether a command that has begun is to be gone on with.
pub(super) fn goes_on(core: &Core, session: &SessionState, op: &Op) -> bool {
    session.closed_at().is_none_or(|gone| goes_on_since(gone, core.ending_since(), op, true))
}
