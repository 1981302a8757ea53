//! A command under way: what was taken from its ring, how far it has come, what it ends with.

use std::sync::Arc;

use weldfs_ciscops::{ChecksumState, Command, Errno, Kept, Outcome, Paths};
use weldfs_locks::Mutex;

use super::session::{HostFile, QueueState};
use weldfs_session::ofd::Description;

/// Whose command it is: tenant and session.
pub(super) type Client = (u32, u64);

/// A command taken from a ring and believed.
pub(super) struct Work {
    pub queue: Arc<QueueState>,
    pub cmd: Command,
    pub paths: Paths,
    /// When it was seen in the ring.
    pub seen: u64,
    /// Whether the next command of the ring may follow as soon as this one has its place: not so for an element of a
    /// sequence, unless it is the last.
    pub settles: bool,
    /// Another thread than the one that looks at rings has it.
    pub away: bool,
    /// Which command of its ring it is: no other one's place is said to be fixed by it.
    pub mark: u32,
    /// When its first slice began; 0 before it.
    pub begun: u64,
    /// How far it has come in the slices before.
    pub progress: Mutex<Progress>,
}

/// Where a command goes on that was cut.
#[derive(Default)]
pub(super) enum Progress {
    /// At its beginning.
    #[default]
    Begin,
    /// At its beginning: it takes longer than a thread that looks at rings has time for.
    Away,
    /// A checksum: the file, bytes summed up so far, and their sum.
    Sum(Arc<Description<HostFile>>, u64, ChecksumState),
    /// A program: what it has computed.
    Foreseen(Option<Kept>),
    /// A batch.
    Sequence(Box<Sequence>),
    /// A listing: bytes put, and the cookie of the last entry put.
    Listing(usize, u64),
}

/// A batch under way.
pub(super) struct Sequence {
    /// The element that is next, or was cut.
    pub next: u32,
    /// That, and its number in its entry, if it was cut.
    pub element: Option<(Work, u64)>,
    pub opcodes: Vec<u16>,
    pub total: Done,
}

impl Work {
    /// Whose it is.
    pub fn client(&self) -> Client {
        (self.queue.session.tenant.id.0, self.queue.session.id)
    }

    /// A command that is part of this one.
    pub fn element(&self, cmd: Command, paths: Paths, settles: bool) -> Work {
        Work {
            queue: self.queue.clone(),
            cmd,
            paths,
            settles: self.settles && settles,
            progress: Mutex::default(),
            ..*self
        }
    }
}

/// What a command ends with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    pub outcome: Outcome,
    /// Payload copies, those of the host's kernel included.
    pub copies: u64,
    /// Bytes of payload, names and results each way.
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Copies of names and results.
    pub metadata: u64,
    /// It waited until the host had made something durable.
    pub synced: bool,
}

impl From<Outcome> for Done {
    fn from(outcome: Outcome) -> Done {
        Done { outcome, copies: 0, bytes_in: 0, bytes_out: 0, metadata: 0, synced: false }
    }
}

impl Done {
    /// Adds what an element of a sequence moved.
    pub fn add(&mut self, other: &Done) {
        self.copies += other.copies;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.metadata += other.metadata;
        self.synced |= other.synced;
    }
}

/// What a command ends with that moved nothing.
pub(super) fn answer(result: Result<(u64, u64), Errno>) -> Done {
    match result {
        Ok((a, b)) => Outcome::ok(a, b).into(),
        Err(e) => Outcome::failed(e).into(),
    }
}
