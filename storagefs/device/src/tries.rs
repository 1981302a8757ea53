//! What a command finds out from one try to the next: what it needs beside its set, what of that it may change, and how
//! often others have changed where its names lead.

use weldfs_ciscops::InodeNo;
use weldfs_ciscops::limits::INODE_SET_MAX;

use super::opcx::OpCx;
use crate::limits::SET_RETRIES_MAX;
use weldfs_fs::{Hold, InodeSet, Insisted, SessionView};
use weldfs_store::error::FsResult;

/// Of one command.
#[derive(Default)]
pub(super) struct Tries {
    /// How often its names led elsewhere.
    changes: u32,
    /// Of a program: what it turned out to need beside its set.
    learned: Option<Box<InodeSet>>,
    /// What the caller may change, after all: it is held as that takes.
    pub insist: Insisted,
}

impl Tries {
    /// Adds what was found before to a set. E2BIG when it is larger then than one may be.
    pub fn complete(&self, set: &mut InodeSet) -> FsResult<()> {
        let Some(learned) = &self.learned else { return Ok(()) };
        set.join(learned);
        set.bounded()
    }

    /// Whether there was more to hold than its names said when it began.
    pub fn has_learned(&self) -> bool {
        self.learned.is_some()
    }

    fn found(&self) -> usize {
        self.insist.len() + self.learned.as_ref().map_or(0, |l| l.weight())
    }

    /// A try ended because its set was another one than it takes.
    pub fn changed(&mut self, cx: &OpCx<'_>, lacked: Option<(InodeNo, Hold)>, exceeded: Insisted) {
        let before = self.found();
        self.insist.extend(exceeded);
        if let Some(lacked) = lacked.filter(|_| cx.paths.program.is_some()) {
            self.learned.get_or_insert_default().learn(lacked, &cx.core.store, cx.session().cred());
        }
        // What it needs it finds out one by one, and that ends by itself: names are closed against what others do with
        // them, and not for that.
        let new = self.found() > before && self.insist.len() <= INODE_SET_MAX;
        self.changes += u32::from(!new);
    }

    /// Whether it has been tried so often that names are to stay as they are meanwhile.
    pub fn closes(&self) -> bool {
        self.changes >= SET_RETRIES_MAX
    }

    /// It has opened the names, to wait: they are closed again when they change once more.
    pub fn opened(&mut self) {
        self.changes = SET_RETRIES_MAX - 1;
    }

    /// It has let others have the names while it computed.
    pub fn lent(&mut self) {
        self.changes = 0;
    }
}
