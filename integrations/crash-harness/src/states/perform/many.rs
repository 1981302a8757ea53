//! Steps of several operations in one command. A program and a transaction are one point of the history, all or
//! nothing across their files; a program in micro-transactions may show its middles to a mount that does not write. The
//! elements of a batch are commands of their own: a point each.

use super::super::commands::Many;
use super::*;

impl Run {
    /// Runs them on the model and on the store, and compares what they say.
    pub(super) fn many(&mut self, number: usize, many: Many, ops: &[Op], step: &Step) -> Result<(), String> {
        let from_event = self.medium.position();
        let before = self.real.direct.last_end();
        self.ticks += 1;
        self.model.now = (START + WORKLOAD_AFTER + self.ticks, self.ticks as u32);
        self.real.direct.now = self.model.now;
        (self.real.mode, self.real.durable) = (txn_mode(step.mode), step.durable);
        let (expected, found) = match many {
            Many::Batch => (self.elements(number, ops, step, from_event), self.real.batch(ops)),
            Many::Program => {
                let expected = self.whole(number, ops, step, from_event, step.mode == Mode::Micro);
                (vec![expected], vec![self.real.program(ops)])
            }
            Many::Transaction => {
                let expected = self.whole(number, ops, step, from_event, false);
                (vec![expected], vec![self.real.transaction(ops)])
            }
        };
        (self.real.mode, self.real.durable) = (TxnMode::Default, false);
        if expected != found {
            return Err(format!("{many:?}: the model says {expected:?}, the store {found:?}"));
        }
        if step.durable && self.real.direct.last_end() != before {
            self.acknowledge();
        }
        Ok(())
    }

    /// The model's answers to the elements of a batch.
    pub(super) fn elements(&mut self, number: usize, ops: &[Op], step: &Step, from_event: u64) -> Vec<Result<(), i32>> {
        let mut answers = Vec::new();
        for op in ops {
            let (answer, between) = match self.real.runs_micro(op) {
                true => self.model.apply_micro(&Cred::root(), op),
                false => (self.model.apply(&Cred::root(), op), Vec::new()),
            };
            self.point(number, step, from_event, between);
            answers.push(answer.map(drop));
        }
        answers
    }

    /// The model's answer to operations that are one command: one that fails ends it, and leaves nothing, or what came
    /// before where each step counts.
    pub(super) fn whole(
        &mut self,
        number: usize,
        ops: &[Op],
        step: &Step,
        from_event: u64,
        steps: bool,
    ) -> Result<(), i32> {
        let (start, mut between, mut answer) = (self.model.clone(), Vec::new(), Ok(()));
        for op in ops {
            let (did, middles) = self.model.apply_micro(&Cred::root(), op);
            between.extend(middles);
            between.push(self.model.tree());
            answer = did.map(drop);
            if answer.is_err() {
                break;
            }
        }
        if answer.is_err() && !steps {
            self.model = start;
        }
        self.point(number, step, from_event, if steps { between } else { Vec::new() });
        answer
    }
}
