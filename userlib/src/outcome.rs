//! Detectable commands: which command a call became, and what became of it, also after a crash of either side.

use crate::client::Client;
use std::io;
use weldfs_ciscops::{Cqe, Errno, Op, OutcomeBody, OutcomeState};
use weldfs_locks::Mutex;
use zerocopy::{FromZeros, IntoBytes};

use crate::buf::Room;

/// What names a command for ever: write it down to ask after a crash of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId {
    /// The client's id, see [`Client::id`].
    pub client: [u8; 16],
    /// The queue pair's number, see [`crate::Queue::index`].
    pub queue: u16,
    /// The command's sequence, see [`crate::Ticket::sequence`].
    pub sequence: u64,
}

/// What the device knows of a detectable command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Execution {
    /// Nothing of it took effect; if the session it was sent in is over, nothing will.
    NotStarted,
    /// A command of several transactions that has begun and not ended.
    InProgress {
        /// Steps that are done.
        done: u16,
        /// Steps in all.
        of: u16,
    },
    /// It ended, and this was its completion. A handle in it belonged to its session.
    Done(Cqe),
    /// Too long ago: the device keeps the last 1,024 outcomes of a queue pair.
    Expired,
}

/// Tells which command a call became: [`crate::Raw::detectable`] fills it just before the command is sent, so that it
/// is there whatever the call returns.
#[derive(Debug, Default)]
pub struct Tag(Mutex<Option<CommandId>>);

impl Tag {
    /// An empty one.
    pub const fn new() -> Tag {
        Tag(Mutex::new(None))
    }

    /// The last command sent with it. A call that moves more than one command's payload sends several.
    pub fn id(&self) -> Option<CommandId> {
        *self.0.lock()
    }

    pub(crate) fn set(&self, id: CommandId) {
        *self.0.lock() = Some(id);
    }
}

impl Client {
    /// What became of a detectable command of this user's, sent by any process under any client id. Others' commands
    /// are as good as never sent. Errors: EIO, ENODEV.
    pub fn outcome(&self, id: CommandId) -> io::Result<Execution> {
        let mut body = OutcomeBody::new_zeroed();
        let room = Room::Bytes(body.as_mut_bytes());
        let CommandId { client, queue, sequence } = id;
        let build = |[]: [_; 0], [out]: [_; 1]| Op::Outcome { client, queue, sequence, out };
        self.raw().call([], [room], build, |_| [usize::MAX])?.ok()?;
        Ok(match OutcomeState::from_wire(body.state.into()).ok_or(Errno::PROTO)? {
            OutcomeState::NotStarted => Execution::NotStarted,
            OutcomeState::InProgress => Execution::InProgress { done: body.micro_done, of: body.micro_ops },
            OutcomeState::Expired => Execution::Expired,
            OutcomeState::Done => Execution::Done(Cqe {
                sequence,
                status: body.status,
                micro_done: body.micro_done,
                micro_failed: body.micro_failed,
                result: body.result,
                result2: body.result2,
            }),
        })
    }
}
