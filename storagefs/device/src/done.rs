//! What a command ends with, and what it moved.

use weldfs_ciscops::command::Modify;
use weldfs_ciscops::{Command, Cqe, Op, Outcome, Paths, Sqe};
use weldfs_fs::OpCounters;
use weldfs_journal::Lsn;
use weldfs_session::counters::QueueCounters;

/// What an op future ends with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    pub outcome: Outcome,
    /// Bytes that crossed the link beside the queue entries.
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// The outcome of a detectable command is in the log.
    pub recorded: bool,
    /// What was copied between pool and device.
    pub copied: Copied,
    /// An element of a sequence is done only when everything below is durable: whoever runs the sequence waits.
    pub pending: Option<Lsn>,
}

/// Copies between pool and device, and what came of them, counted when the command is over.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Copied {
    pub payload: u64,
    pub payload_in: u64,
    pub payload_out: u64,
    pub metadata: u64,
    /// Bytes of data blocks written to the medium.
    pub data: u64,
}

impl Done {
    /// Bytes over the link, entry and completion among them: to the device, and from it.
    pub fn link_bytes(&self) -> (u64, u64) {
        (Sqe::SIZE as u64 + self.bytes_in, Cqe::SIZE as u64 + self.bytes_out)
    }

    /// Counts the command, which is over, and what it moved; under the lock of the queue pair.
    pub fn count(&self, c: &QueueCounters, opcode: u16, fused: bool) {
        let (bytes_in, bytes_out) = self.link_bytes();
        c.opcode(opcode);
        c.commands.add(1);
        c.errors.add(u64::from(self.outcome.status != 0));
        c.fused.add(u64::from(fused));
        c.link_bytes_in.add(bytes_in);
        c.link_bytes_out.add(bytes_out);
        c.payload_copies.add(self.copied.payload);
        c.payload_bytes_in.add(self.copied.payload_in);
        c.payload_bytes_out.add(self.copied.payload_out);
        c.metadata_copies.add(self.copied.metadata);
        c.data_bytes.add(self.copied.data);
    }

    /// Counts what an element of a sequence moved as moved by the sequence.
    pub fn add(&mut self, element: &Done) {
        self.bytes_in += element.bytes_in;
        self.bytes_out += element.bytes_out;
        self.copied.payload += element.copied.payload;
        self.copied.payload_in += element.copied.payload_in;
        self.copied.payload_out += element.copied.payload_out;
        self.copied.metadata += element.copied.metadata;
        self.copied.data += element.copied.data;
        self.pending = self.pending.max(element.pending);
    }

    /// Counts payload that was copied once from the pool.
    pub fn took(&mut self, bytes: u64) {
        self.bytes_in += bytes;
        self.copied.payload += u64::from(bytes > 0);
        self.copied.payload_in += bytes;
    }

    /// Counts payload that was copied once into the pool.
    pub fn gave(&mut self, bytes: u64) {
        self.bytes_out += bytes;
        self.copied.payload += u64::from(bytes > 0);
        self.copied.payload_out += bytes;
    }

    /// Counts so many bytes beside payload, copied in one piece each way.
    pub fn moved(&mut self, bytes_in: u64, bytes_out: u64) {
        self.bytes_in += bytes_in;
        self.bytes_out += bytes_out;
        self.copied.metadata += u64::from(bytes_in > 0) + u64::from(bytes_out > 0);
    }
}

impl From<Outcome> for Done {
    fn from(outcome: Outcome) -> Done {
        Done { outcome, bytes_in: 0, bytes_out: 0, recorded: false, copied: Copied::default(), pending: None }
    }
}

/// What a command moved, with its outcome.
pub(super) fn count(cmd: &Command, paths: &Paths, outcome: Outcome, spent: &OpCounters) -> Done {
    let names = u64::from(!paths.a.is_empty()) + u64::from(!paths.b.is_empty());
    let operands = modify_bytes(&cmd.op);
    let body = if let Op::Program { body } = cmd.op { u64::from(body.len) } else { 0 };
    let copied = Copied {
        payload: u64::from(spent.payload_copies) + u64::from(operands > 0),
        payload_in: spent.bytes_in + operands,
        payload_out: spent.bytes_out,
        metadata: u64::from(spent.meta_copies) + names + u64::from(body > 0),
        data: u64::from(spent.blocks_written) * weldfs_store::limits::BLOCK as u64,
    };
    let replies = match cmd.op {
        Op::Stat { .. } | Op::StatPath { .. } | Op::Statfs { .. } | Op::ReadDir { .. } | Op::Readlink { .. } => {
            outcome.result
        }
        _ => 0,
    };
    let (bytes_in, bytes_out) = (spent.bytes_in + operands + body, spent.bytes_out + replies);
    Done { outcome, bytes_in, bytes_out, recorded: false, copied, pending: None }
}

/// Payload that a read_modify_write takes from the pool into its field.
fn modify_bytes(op: &Op) -> u64 {
    match op {
        Op::ReadModifyWrite { modify: Modify::Patch(r) | Modify::Xor(r), .. } => u64::from(r.len),
        Op::ReadModifyWrite { modify: Modify::CompareSwap { expect, new }, .. } => u64::from(expect.len + new.len),
        _ => 0,
    }
}
