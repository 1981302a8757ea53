//! A step of the catalogue's table: its command on the store, its effects on the model. All of them are one point of
//! the history, with middles where each micro-op counts; elements of a batch are a point each.

use super::super::commands::{content, effect};
use super::*;
use crate::catalogue::{self, Effect, Form, Given, Ops, Planned, Row, Thing, World};
use weldfs_ciscops::Handle;

/// The name that nothing has at first.
const FREE: &str = "C";

impl Run {
    fn keys(&mut self) -> [u64; 2] {
        let direct = &mut self.real.direct;
        *self.keys.get_or_insert_with(|| catalogue::keys(direct))
    }

    pub(super) fn fused(
        &mut self,
        number: usize,
        step: &Step,
        row: u8,
        [a, b]: [&str; 2],
        (off, len): (u64, u64),
    ) -> Result<(), String> {
        let row = catalogue::table().into_iter().nth(row.into()).ok_or("no such row")?;
        let mut world = World::new();
        for path in [a, b] {
            // A file that is not there, or is no file, has another test.
            let Some(bytes) = content(&self.model, path) else { return Ok(()) };
            world.insert(path.to_owned(), Thing::File(bytes));
        }
        let [a, b, c] = [a, b, FREE].map(str::to_owned);
        let given = Given { a, b, c, off, data: Workload::fill(number, len), keys: self.keys(), world };
        let planned = (row.plan)(&given);
        for before in &planned.before {
            self.command(number, &effect(before, b""), &Step::new(step.op))?;
        }
        let opened = catalogue::open_all(&mut self.real.direct, &planned.opens);
        let Ok(handles) = opened else { return Ok(()) };
        self.ticks += 1;
        self.model.now = (START + WORKLOAD_AFTER + self.ticks, self.ticks as u32);
        self.real.direct.now = self.model.now;
        let (from_event, end) = (self.medium.position(), self.real.direct.last_end());
        let ops = Ops { mode: txn_mode(step.mode), durable: step.durable, placement: planned.placement };
        let said = catalogue::command(&mut self.real.direct, &planned.form, &handles, ops);
        let said = said.map_err(|e| format!("{}: {e}", row.name()))?;
        let effects = self.resolved(&planned, &given)?;
        let durable = step.durable || is_durable(&planned.form, &handles);
        for h in handles {
            self.real.direct.run(weldfs_ciscops::Op::Close { h });
        }
        let expected = if row.elements {
            self.elements(number, &effects, step, from_event);
            Ok(())
        } else {
            let steps = match (&planned.form, step.mode) {
                (Form::Transaction(..), _) | (_, Mode::Macro) => false,
                (_, Mode::Micro) | (Form::One(_), Mode::Default) => true,
                (_, Mode::Default) => false,
            };
            self.whole(number, &effects, step, from_event, steps)
        };
        self.agrees(&row, &planned, expected, &said)?;
        if durable && self.real.direct.last_end() != end {
            self.acknowledge();
        }
        Ok(())
    }

    /// The effects as operations of the model; what a sealed record looks like, the store says.
    fn resolved(&mut self, planned: &Planned, given: &Given) -> Result<Vec<Op>, String> {
        let mut ops = Vec::new();
        for one in &planned.effects {
            let mut record = Vec::new();
            if let Effect::Sealed { path, plain } = one {
                let seen = catalogue::file(&mut self.real.direct, path).map_err(|e| format!("{path}: {e}"))?;
                let mut world = World::from([(path.clone(), Thing::File(given.content(path)))]);
                let seen = World::from([(path.clone(), Thing::File(seen))]);
                catalogue::apply(&mut world, one, &seen)?;
                let Some(Thing::File(whole)) = world.remove(path) else { continue };
                record = whole[whole.len() - plain.len() - 28..].to_vec();
            }
            ops.push(effect(one, &record));
        }
        Ok(ops)
    }

    fn agrees(
        &self,
        row: &Row,
        planned: &Planned,
        expected: Result<(), i32>,
        said: &catalogue::Answer,
    ) -> Result<(), String> {
        let expected = planned.errno.map_or(expected, |e| Err(e.0));
        let found = if said.status == 0 { Ok(()) } else { Err(said.status) };
        let shown = (row.view)(&said.shown);
        let agree =
            expected == found && (expected.is_err() || (said.results, &shown) == (planned.results, &planned.shown));
        if agree {
            return Ok(());
        }
        let (name, results) = (row.name(), planned.results);
        Err(format!("{name}: the table says {expected:?} {results:?}, the store {found:?} {:?}", said.results))
    }
}

/// Whether the command asks to be durable by itself.
fn is_durable(form: &Form, handles: &[Handle]) -> bool {
    let Form::Program(_, body) = form else { return false };
    body(handles).is_ok_and(|body| body.program().is_durable())
}
