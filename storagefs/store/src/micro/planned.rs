//! Transactions that are planned as a whole. A program may compute what it writes, with keys and buffers that are gone
//! after a crash. So it runs first, and its begin record holds the effects of every group; the commits say no more than
//! "this group", and recovery adopts those that are left. Nothing is computed again.

use super::Group;
use super::begin::{command, decode_detect, encode_detect};
use super::{Begin, End, Input, PLAN_EFFECTS_MAX, PLANNED, Planned, Verdict};
use crate::codec::{DecodeError, Reader, Writer};
use crate::cred::Cred;
use crate::effect::{self, BlockState, Effect};
use smallvec::SmallVec;
use weldfs_ciscops::limits::MICRO_OPS_MAX;
use weldfs_ciscops::{InodeNo, Op, OpenFlags, Sqe};
use zerocopy::{FromBytes, IntoBytes};

impl Begin {
    /// Takes the effects of all groups; what is left of each is that it adopts them.
    pub fn plan_groups(&mut self, groups: &mut [Group], steps: u16, end: End) {
        let input = |group: &mut Group| {
            let effects = std::mem::take(&mut group.commit.effects);
            Input { micro: group.index, off: 0, len: 0, effects }
        };
        self.inputs = groups.iter_mut().map(input).collect();
        for (i, (group, input)) in groups.iter_mut().zip(&self.inputs).enumerate() {
            group.commit.effects = vec![adoption(input, i)];
        }
        (self.file, self.dir, self.name) = (InodeNo(0), InodeNo(0), Box::default());
        (self.generation, self.flags) = (0, OpenFlags::empty());
        self.plan = Some(Box::new(Planned { steps, end }));
    }

    /// What the commit of group `index` says.
    pub fn adopt(&self, index: usize) -> Option<Effect> {
        self.inputs.get(index).map(|input| adoption(input, index))
    }

    /// The inodes that the transaction works on: none of them may go while it is open.
    pub fn files(&self) -> Vec<InodeNo> {
        if self.plan.is_none() {
            return vec![self.file];
        }
        let mut all: Vec<InodeNo> = self.inputs.iter().flat_map(|i| &i.effects).map(Effect::ino).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The highest inode number that it names.
    pub fn last_inode(&self) -> InodeNo {
        let effects = || self.inputs.iter().flat_map(|i| &i.effects);
        let named = effects().flat_map(|e| [e.ino(), e.target().unwrap_or(InodeNo(0))]);
        named.chain([self.file, self.dir]).max().unwrap_or(InodeNo(0))
    }

    pub(super) fn encode_planned(&self, plan: &Planned, w: &mut Writer) {
        w.u8(PLANNED);
        w.raw(self.sqe.as_bytes());
        w.time(self.now);
        w.var(self.cred.uid.into());
        w.var(self.cred.gid.into());
        encode_detect(self.detect.as_ref(), w);
        w.var(plan.steps.into());
        w.bytes(&plan.end.encode());
        w.var(self.inputs.len() as u64);
        for group in &self.inputs {
            w.var(group.micro.into());
            let mut effects = Writer::with_capacity(effect::encoded_len_max(&group.effects));
            effect::encode_into(&group.effects, &mut effects);
            w.bytes(&effects.into_vec());
        }
    }

    /// Reads what follows the version.
    pub(super) fn decode_planned(r: &mut Reader<'_>) -> Result<Begin, DecodeError> {
        let sqe = Sqe::read_from_bytes(r.take(Sqe::SIZE)?).map_err(|_| DecodeError("begin: command"))?;
        if !matches!(command(&sqe)?.op, Op::Program { .. }) {
            return Err(DecodeError("begin: command"));
        }
        let now = r.time()?;
        let cred = Cred::new(r.var32()?, r.var32()?);
        let detect = decode_detect(r)?;
        let steps = u16::try_from(r.var()?).ok().filter(|n| usize::from(*n) <= MICRO_OPS_MAX);
        let steps = steps.ok_or(DecodeError("begin: micro-ops"))?;
        let end = End::decode(r.bytes(r.remaining())?)?;
        if end.verdict == Verdict::Cut {
            return Err(DecodeError("begin: end"));
        }
        let inputs = decode_groups(steps, r)?;
        r.end()?;
        let (file, dir, flags) = (InodeNo(0), InodeNo(0), OpenFlags::empty());
        let plan = Some(Box::new(Planned { steps, end }));
        Ok(Begin { sqe, now, cred, dir, name: Box::default(), file, generation: 0, flags, detect, inputs, plan })
    }
}

fn adoption(group: &Input, index: usize) -> Effect {
    Effect::Input { ino: group.effects.first().map_or(InodeNo(0), Effect::ino), input: index as u16 }
}

fn decode_groups(steps: u16, r: &mut Reader<'_>) -> Result<SmallVec<[Input; 1]>, DecodeError> {
    let n = r.var()?;
    if n == 0 || n > steps.into() {
        return Err(DecodeError("begin: groups"));
    }
    let mut groups: SmallVec<[Input; 1]> = SmallVec::new();
    for _ in 0..n {
        let micro = r.var()?;
        let ascending = groups.last().is_none_or(|g| u64::from(g.micro) < micro);
        if !ascending || micro >= steps.into() {
            return Err(DecodeError("begin: group"));
        }
        let effects = effect::decode(r.bytes(r.remaining())?)?;
        if effects.is_empty() || effects.len() > PLAN_EFFECTS_MAX || !effects.iter().all(planned) {
            return Err(DecodeError("begin: effects of a group"));
        }
        groups.push(Input { micro: micro as u16, off: 0, len: 0, effects });
    }
    Ok(groups)
}

/// Whether a program can have an effect.
fn planned(e: &Effect) -> bool {
    match e {
        Effect::Map { state, .. } => *state == BlockState::Written,
        Effect::PutInode(_)
        | Effect::SetAttr(_)
        | Effect::PutDirent { .. }
        | Effect::DelDirent { .. }
        | Effect::Patch { .. }
        | Effect::Zero { .. }
        | Effect::Unmap { .. }
        | Effect::Cut { .. }
        | Effect::Orphan { .. }
        | Effect::Adopt { .. } => true,
        _ => false,
    }
}
