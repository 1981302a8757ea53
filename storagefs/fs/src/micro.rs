//! MicroTx: what each micro-op changes becomes a commit of its own.
//!
//! The whole command runs first. After each micro-op that went well, what it staged is settled into effects, one
//! *group*; the staged view stays, so that later micro-ops read it, but is never written again: a later byte in a block
//! of it is a patch. When the command is over, its groups become a begin record, commits and an end record, or, when
//! there is just one, an ordinary record: nothing could come between.

use super::steps::Steps;
use super::txn::{Txn, delta};
use smallvec::SmallVec;
use weldfs_ciscops::limits::PROGRAM_WRITE_MAX;
use weldfs_ciscops::{Command, Hints, InodeNo, OpenFlags, Outcome, Paths, Registers, TxnMode};
use weldfs_store::effect::{Effect, Effects};
use weldfs_store::error::{FsError, FsResult};
use weldfs_store::micro::{Begin, Commit, Detect, End, GROUPS_MAX, INPUT_EFFECTS_MAX, Input, PLAN_EFFECTS_MAX};
use weldfs_store::record::InodeRec;
use weldfs_store::{Group, MicroTxn, Plan, as_one_record};

/// Payload bytes up to which a command that left the mode to the device is tried as one record first: 64 KiB, and a
/// checksum behind them. More of them take longer to reach the medium than a record does, and recovery has something to
/// finish.
const WHOLE_BYTES_MAX: u64 = (64 << 10) + 8;

impl<'a> Txn<'a> {
    /// Commits step by step if the command does. `detect`: whose flagged execution it is. `again`: it was tried as one
    /// record, and `Txn::start_over` said that it cannot be.
    pub fn in_steps(&mut self, cmd: &Command, paths: &Paths, detect: Option<Detect>, again: bool) {
        let program = paths.program.as_ref().map(|p| p.micros().len() as u16);
        if program.is_some() {
            self.many = true;
            self.payload_max = PROGRAM_WRITE_MAX;
        }
        let steps = cmd.commits_in_steps() && cmd.op.changes_in_steps();
        self.one_record = steps && !again && cmd.mode == TxnMode::Default && self.asked <= WHOLE_BYTES_MAX;
        if steps && !self.one_record {
            self.steps = Some(Box::new(Steps {
                // What recovery does of it is the same with hints and without.
                sqe: cmd.with_hints(Hints::NONE).encode(),
                detect,
                dir: InodeNo(0),
                name: SmallVec::new(),
                flags: OpenFlags::empty(),
                groups: SmallVec::new(),
                inputs: SmallVec::new(),
                written: None,
                settled_from: None,
                program,
                whole: program.is_none() && self.session.cred().groups.len() > GROUPS_MAX,
            }));
        }
    }

    /// After a run that ended with `outcome`: the plan as it was, if the command was tried as one record and failed
    /// after its first micro-op. What came before the failure is to stay, so it runs once more, in steps.
    pub fn start_over(&mut self, outcome: &Outcome) -> Option<Option<Plan<'a>>> {
        // What has lent its set ends as it is: nothing may run over it before that is taken back.
        if !self.one_record || outcome.is_ok() || outcome.micro_done == 0 || self.aborted() || self.lent {
            return None;
        }
        let mut plan = self.plan.take();
        if let Some(plan) = &mut plan {
            plan.clear();
        }
        Some(plan)
    }

    /// Notes where the command's path led.
    pub(super) fn note_name(&mut self, dir: InodeNo, name: &[u8]) {
        if let Some(s) = &mut self.steps {
            (s.dir, s.name) = (dir, SmallVec::from_slice(name));
        }
    }

    /// Notes with what grant the command has its file.
    pub(super) fn note_flags(&mut self, flags: OpenFlags) {
        if let Some(s) = &mut self.steps {
            s.flags = flags;
        }
    }

    /// Ends a micro-op that went well: what it staged becomes a group. May be called again after a miss.
    pub(super) fn seal_core(&mut self, index: u16, regs: &Registers) -> FsResult<()> {
        let from = self.data_effects.len();
        let Some(steps) = &mut self.steps else { return Ok(()) };
        if steps.program.is_some() {
            return self.seal_group(index);
        }
        let from = *steps.settled_from.get_or_insert(from);
        self.settle(true)?;
        let content = self.data_effects.split_off(from);
        let mut effects = self.new_inodes();
        effects.append(&mut self.name_effects);
        effects.append(&mut self.data_effects);
        let Some(steps) = &mut self.steps else { return Ok(()) };
        steps.settled_from = None;
        match steps.written.take() {
            Some((ino, off, len)) if content.len() <= INPUT_EFFECTS_MAX => {
                effects.push(Effect::Input { ino, input: steps.inputs.len() as u16 });
                steps.inputs.push(Input { micro: index, off, len, effects: content });
            }
            written => {
                steps.whole |= written.is_some();
                effects.extend(content);
            }
        }
        for s in self.inodes.iter_mut().filter(|s| s.mask != 0) {
            effects.push(Effect::SetAttr(delta(&s.rec, s.mask)));
            s.mask = 0;
        }
        if effects.is_empty() {
            return Ok(());
        }
        steps.groups.push(Group { index, commit: Commit { regs: *regs, effects } });
        self.plan_mut()?.seal();
        Ok(())
    }

    /// The same in a program: what it changed is the group, whatever it is.
    fn seal_group(&mut self, index: u16) -> FsResult<()> {
        self.settle(true)?;
        let mut effects = self.new_inodes();
        effects.append(&mut self.name_effects);
        effects.append(&mut self.data_effects);
        for s in self.inodes.iter_mut().filter(|s| s.mask != 0) {
            effects.push(Effect::SetAttr(delta(&s.rec, s.mask)));
            s.mask = 0;
        }
        let Some(steps) = &mut self.steps else { return Ok(()) };
        if effects.is_empty() {
            return Ok(());
        }
        steps.whole |= effects.len() > PLAN_EFFECTS_MAX;
        steps.groups.push(Group { index, commit: Commit { regs: Registers::default(), effects } });
        self.plan_mut()?.seal();
        Ok(())
    }

    /// The inodes that the micro-op created.
    fn new_inodes(&mut self) -> Effects {
        let mut effects = Effects::new();
        for s in self.inodes.iter_mut().filter(|s| s.created && !s.emitted) {
            effects.push(Effect::PutInode(Box::new(s.rec.clone())));
            (s.emitted, s.mask) = (true, 0);
        }
        effects
    }

    /// What the groups become, once the command is over: an ordinary plan, or one with a transaction.
    pub(super) fn conclude_steps(
        &mut self,
        steps: Steps,
        outcome: &Outcome,
    ) -> FsResult<(Option<Plan<'a>>, Option<Box<MicroTxn>>)> {
        // What a failed micro-op had staged goes.
        self.name_effects.clear();
        self.data_effects.clear();
        self.inodes.iter_mut().for_each(|s| s.mask = 0);
        let Some(last) = steps.groups.last() else { return Ok((None, None)) };
        let file = InodeNo(last.commit.regs.file);
        let mut plan = self.plan.take().ok_or(FsError::SetChanged)?;
        plan.unseal();
        let begin = self.begin_record(&steps, file);
        let Steps { mut groups, inputs, whole, program, .. } = steps;
        let mut begin = Begin { inputs, ..begin };
        if let (Some(steps), false) = (program, whole || (groups.len() == 1 && outcome.is_ok())) {
            begin.plan_groups(&mut groups, steps, End::of(outcome));
        }
        if whole || (groups.len() == 1 && outcome.is_ok()) {
            as_one_record(groups, &begin)?.into_iter().for_each(|e| plan.push(e));
            return Ok((Some(plan), None));
        }
        Ok((Some(plan), Some(Box::new(MicroTxn::new(begin, groups, End::of(outcome))))))
    }

    fn begin_record(&self, steps: &Steps, file: InodeNo) -> Begin {
        let generation = |s: &InodeRec| s.generation;
        Begin {
            sqe: steps.sqe,
            now: self.now,
            cred: self.session.cred().clone(),
            dir: steps.dir,
            name: Box::from(&steps.name[..]),
            file,
            generation: self.inodes.iter().find(|s| s.rec.ino == file).map_or(0, |s| generation(&s.rec)),
            flags: steps.flags,
            detect: steps.detect,
            inputs: SmallVec::new(),
            plan: None,
        }
    }
}
