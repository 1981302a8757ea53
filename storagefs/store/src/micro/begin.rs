//! The begin record's payload.

use super::{End, GROUPS_MAX, INPUT_EFFECTS_MAX, PLAN_EFFECTS_MAX, PLANNED, VERSION};
use crate::codec::{DecodeError, Reader, Writer};
use crate::cred::Cred;
use crate::effect::{self, BlockState, Effect, Effects};
use crate::error::FsResult;
use crate::outcomes::Identity;
use crate::record::Time;
use smallvec::SmallVec;
use weldfs_ciscops::limits::{ATOMIC_WRITE_MAX, MICRO_OPS_MAX};
use weldfs_ciscops::{Command, Errno, InodeNo, OpenFlags, RawCommand, SessionLimits, Sqe, interp, validate};
use zerocopy::{FromBytes, IntoBytes};

/// Everything that finishing a command needs when its client is gone: the command and its inputs, or, of a program, all
/// that it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begin {
    /// The command as it was validated. What its pool ranges held is gone; their lengths count.
    pub sqe: Sqe,
    /// The time that the command sees.
    pub now: Time,
    /// On whose behalf.
    pub cred: Cred,
    /// The directory of the final name, for commands that open by path; else 0.
    pub dir: InodeNo,
    /// The final name in it, symbolic links followed; else empty.
    pub name: Box<[u8]>,
    /// The file. The number a new one gets, if the command creates it.
    pub file: InodeNo,
    /// Its generation.
    pub generation: u32,
    /// Status flags and grant of the handle, or of the open inside the command.
    pub flags: OpenFlags,
    /// Whose flagged execution this is, if it is flagged; the sequence is in the command.
    pub detect: Option<Detect>,
    /// What the client supplied, ascending by micro-op; of a planned transaction all that its micro-ops change.
    pub inputs: SmallVec<[Input; 1]>,
    /// Set where nothing is left to be run: each commit adopts a group of effects. Then the command has no file.
    pub plan: Option<Box<Planned>>,
}

/// A transaction of which everything is known when it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Micro-ops of the program.
    pub steps: u16,
    /// How it comes out: done, or failed after its last group.
    pub end: End,
}

/// Identity of a queue pair over all sessions of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Detect {
    /// Client id of the attach.
    pub client: [u8; 16],
    /// Index of the queue pair.
    pub queue: u16,
}

/// The bytes of one write, safe on the medium before the command's first commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The micro-op that writes them.
    pub micro: u16,
    /// Where in the file.
    pub off: u64,
    /// Bytes.
    pub len: u64,
    /// What the write does to the file's content: `Map` and `Patch` only. The micro-op's commit adopts them.
    pub effects: Effects,
}

impl Begin {
    /// The payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(192);
        if let Some(plan) = &self.plan {
            self.encode_planned(plan, &mut w);
            return w.into_vec();
        }
        w.u8(VERSION);
        w.raw(self.sqe.as_bytes());
        w.time(self.now);
        w.var(self.cred.uid.into());
        w.var(self.cred.gid.into());
        w.var(self.cred.groups.len() as u64);
        self.cred.groups.iter().for_each(|g| w.var((*g).into()));
        w.var(self.dir.0);
        w.bytes(&self.name);
        w.var(self.file.0);
        w.var(self.generation.into());
        w.var(self.flags.bits().into());
        encode_detect(self.detect.as_ref(), &mut w);
        w.var(self.inputs.len() as u64);
        for input in &self.inputs {
            input.encode_into(&mut w);
        }
        w.into_vec()
    }

    /// Reads a payload back.
    ///
    /// # Errors
    /// Bytes that no writer produces; the command in it is a valid one that commits in steps.
    pub fn decode(bytes: &[u8]) -> Result<Begin, DecodeError> {
        let mut r = Reader::new(bytes);
        match r.u8()? {
            VERSION => {}
            PLANNED => return Begin::decode_planned(&mut r),
            _ => return Err(DecodeError("begin of an unknown version")),
        }
        let sqe = Sqe::read_from_bytes(r.take(Sqe::SIZE)?).map_err(|_| DecodeError("begin: command"))?;
        command(&sqe)?;
        let now = r.time()?;
        let (uid, gid, groups) = (r.var32()?, r.var32()?, r.var()?);
        if groups > GROUPS_MAX as u64 {
            return Err(DecodeError("begin: groups"));
        }
        let mut cred = Cred::new(uid, gid);
        for _ in 0..groups {
            cred.groups.push(r.var32()?);
        }
        let (dir, name) = (InodeNo(r.var()?), r.bytes(255)?);
        if name.iter().any(|b| matches!(b, 0 | b'/')) || (dir.0 == 0) != name.is_empty() {
            return Err(DecodeError("begin: name"));
        }
        let (file, generation) = (InodeNo(r.var()?), r.var32()?);
        if file.0 == 0 {
            return Err(DecodeError("begin: file"));
        }
        let flags = u16::try_from(r.var()?).ok().and_then(OpenFlags::from_bits).ok_or(DecodeError("begin: flags"))?;
        let detect = decode_detect(&mut r)?;
        let inputs = decode_inputs(file, &mut r)?;
        r.end()?;
        Ok(Begin { sqe, now, cred, dir, name: Box::from(name), file, generation, flags, detect, inputs, plan: None })
    }

    /// Refuses what [`Begin::decode`] would not read back.
    ///
    /// # Errors
    /// E2BIG for more inputs, groups or effects than it may have.
    pub(crate) fn bounded(&self) -> FsResult<()> {
        let most = if self.plan.is_some() { PLAN_EFFECTS_MAX } else { INPUT_EFFECTS_MAX };
        let inputs = self.inputs.len() <= MICRO_OPS_MAX && self.inputs.iter().all(|i| i.effects.len() <= most);
        // A planned one names no supplementary groups.
        let users = self.plan.is_some() || self.cred.groups.len() <= GROUPS_MAX;
        if inputs && users { Ok(()) } else { Err(Errno::TOOBIG.into()) }
    }

    /// Under what its outcome is kept, if it is detectable.
    pub fn identity(&self) -> Option<Identity> {
        let Detect { client, queue } = self.detect?;
        Some(Identity { client, uid: self.cred.uid, queue, sequence: self.sqe.sequence })
    }

    /// Micro-ops of the command.
    pub fn steps(&self) -> u16 {
        match &self.plan {
            Some(plan) => plan.steps,
            None => self.command().map_or(0, |cmd| interp::steps(&cmd.op)),
        }
    }

    /// The command.
    ///
    /// # Errors
    /// None for a begin record that was decoded.
    pub fn command(&self) -> Result<Command, DecodeError> {
        command(&self.sqe)
    }
}

/// Appends whose flagged execution it is.
pub(super) fn encode_detect(detect: Option<&Detect>, w: &mut Writer) {
    match detect {
        None => w.u8(0),
        Some(d) => {
            w.u8(1);
            w.raw(&d.client);
            w.raw(&d.queue.to_le_bytes());
        }
    }
}

/// Reads what [`encode_detect`] wrote.
pub(super) fn decode_detect(r: &mut Reader<'_>) -> Result<Option<Detect>, DecodeError> {
    match r.u8()? {
        0 => Ok(None),
        1 => {
            let mut client = [0; 16];
            client.copy_from_slice(r.take(16)?);
            let queue = r.take(2)?;
            Ok(Some(Detect { client, queue: u16::from_le_bytes([queue[0], queue[1]]) }))
        }
        _ => Err(DecodeError("begin: identity")),
    }
}

/// Pools are gone: any range below the largest pool will do.
pub(super) fn command(sqe: &Sqe) -> Result<Command, DecodeError> {
    let limits = SessionLimits { pool_bytes: weldfs_ciscops::limits::POOL_BYTES_MAX };
    match validate(&RawCommand(*sqe), &limits) {
        Ok(cmd) if cmd.commits_in_steps() && cmd.op.changes_in_steps() => Ok(cmd),
        _ => Err(DecodeError("begin: command")),
    }
}

impl Input {
    fn encode_into(&self, w: &mut Writer) {
        w.var(self.micro.into());
        w.var(self.off);
        w.var(self.len);
        let mut effects = Writer::with_capacity(effect::encoded_len_max(&self.effects));
        effect::encode_into(&self.effects, &mut effects);
        w.bytes(&effects.into_vec());
    }
}

fn decode_inputs(file: InodeNo, r: &mut Reader<'_>) -> Result<SmallVec<[Input; 1]>, DecodeError> {
    let n = r.var()?;
    if n > MICRO_OPS_MAX as u64 {
        return Err(DecodeError("begin: inputs"));
    }
    let mut inputs: SmallVec<[Input; 1]> = SmallVec::new();
    for _ in 0..n {
        let (micro, off, len) = (r.var()?, r.var()?, r.var()?);
        let ascending = inputs.last().is_none_or(|i| u64::from(i.micro) < micro);
        if !ascending || micro >= MICRO_OPS_MAX as u64 || len == 0 || len > ATOMIC_WRITE_MAX.into() {
            return Err(DecodeError("begin: input"));
        }
        let bytes = r.bytes(r.remaining())?;
        let effects = effect::decode(bytes)?;
        if effects.len() > INPUT_EFFECTS_MAX || !effects.iter().all(|e| writes(e, file)) {
            return Err(DecodeError("begin: effects of an input"));
        }
        inputs.push(Input { micro: micro as u16, off, len, effects });
    }
    Ok(inputs)
}

/// Whether an effect can be part of a write to this file.
fn writes(e: &Effect, file: InodeNo) -> bool {
    e.ino() == file && matches!(e, Effect::Map { state: BlockState::Written, .. } | Effect::Patch { .. })
}
