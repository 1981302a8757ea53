//! One program, one command: operands into the pool, the body bound to where they are, the results out of the pool.

use crate::buf::{Payload, Room};
use crate::call::{bound_channel, copy_out, stage_input, stage_room};
use crate::channel::Channel;
use crate::outcome::CommandId;
use crate::queue::Queue;
use crate::raw::Raw;
use std::rc::Rc;
use weldfs_ciscops::catalogue::Template;
use weldfs_ciscops::program::{Body, Pool};
use weldfs_ciscops::{Command, Cqe, Errno};

/// What a program's pool range is for the caller.
pub enum Operand<'a> {
    /// Bytes that go to the device.
    In(Payload<'a>),
    /// Room for bytes that come from it.
    Out(Room<'a>),
}

impl Operand<'_> {
    fn len(&self) -> usize {
        match self {
            Operand::In(payload) => payload.len(),
            Operand::Out(room) => room.len(),
        }
    }

    fn channel(&self) -> Option<&Rc<Channel>> {
        match self {
            Operand::In(payload) => payload.bound(),
            Operand::Out(room) => room.bound(),
        }
    }
}

impl Raw<'_> {
    /// Runs a program of one's own. `operands` are its pool ranges, in order, each of the range's length (EINVAL);
    /// rooms are filled as far as `filled` says, from the completion and the number of the range; where the program
    /// put fewer bytes and no result counts them, zeros are behind them (not in a pool buffer). The CQE comes back
    /// whatever its status says. EINVAL also when two pool buffers are of different threads or clients.
    pub fn program(
        &self,
        body: &Body,
        operands: &mut [Operand<'_>],
        filled: impl Fn(&Cqe, usize) -> usize,
    ) -> Result<Cqe, Errno> {
        let (client, epoch, _) = self.parts();
        if operands.iter().any(|o| o.len() > client.payload_max()) {
            return Err(Errno::TOOBIG);
        }
        let bound = bound_channel(operands.iter().filter_map(Operand::channel))?;
        // As much as surely fits an otherwise empty pool.
        let lens = operands.iter().map(Operand::len).chain([body.len()]);
        let need = lens.fold(0, |sum: usize, len| sum.saturating_add(len.saturating_mul(2).max(256)));
        let mut attempt = |queue: &mut Queue| self.execute(queue, body, operands, &filled);
        if let Some(bound) = bound {
            bound.check(epoch)?;
            return bound.with(attempt)?;
        }
        match client.with_queue(epoch, 0, &mut attempt)? {
            // Nothing was sent: the operands did not fit. A bigger pool is made once per thread, on demand.
            Err(Errno::NOMEM) => client.with_queue(epoch, need, attempt)?,
            done => done,
        }
    }

    /// Runs an operation of the catalogue as one command: any of [`crate::template`], with what its page names as its
    /// pool ranges, in order. Rooms are filled when it goes well, and only then (a pool buffer in any case): of what
    /// comes along with a refusal ([`Raw::verify_checksum`], [`Raw::modify_field`]) nothing is seen here. Errors: those
    /// of the operation; EINVAL for operands that are others than its ranges, E2BIG for one above the payload limit.
    /// There is no form of it on the caller's processor: with [`Placement::Host`](super::Placement) it runs in the
    /// device.
    ///
    /// ```
    /// # use weldfs::{Errno, File, Payload, catalogue::Operand, template::AppendAndSync};
    /// # fn log(file: &File) -> Result<(), Errno> {
    /// let line = b"one more line\n";
    /// let op = AppendAndSync { h: file.handle(), len: line.len() as u32 };
    /// let _offset = file.raw().fused(&op, &mut [Operand::In(Payload::from(&line[..]))])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn fused<T: Template>(&self, op: &T, operands: &mut [Operand<'_>]) -> Result<T::Answer, Errno> {
        let body = op.body()?;
        let filled = |cqe: &Cqe, range: usize| match cqe.status {
            0 => body.filled(Pool(range as u8), (cqe.result, cqe.result2)),
            _ => 0,
        };
        self.program(&body, operands, filled)?.ok().map(T::answer)
    }

    /// A template with its operands, at most one of them a room; that is filled to what `filled` says.
    pub(super) fn template(
        &self,
        template: &impl Template,
        operands: &mut [Operand<'_>],
        filled: impl Fn(&Cqe) -> usize,
    ) -> Result<Cqe, Errno> {
        self.program(&template.body()?, operands, |cqe, _| filled(cqe))
    }

    fn execute(
        &self,
        queue: &mut Queue,
        body: &Body,
        operands: &mut [Operand<'_>],
        filled: &impl Fn(&Cqe, usize) -> usize,
    ) -> Result<Cqe, Errno> {
        let (client, _, how) = self.parts();
        let (mut ranges, mut owned) = (Vec::with_capacity(operands.len() + 1), Vec::with_capacity(operands.len() + 1));
        let mut go = || {
            for (i, operand) in operands.iter().enumerate() {
                let staged = match operand {
                    Operand::In(payload) => stage_input(queue, payload)?,
                    Operand::Out(room) => stage_room(queue, room)?,
                };
                // What an earlier command left in the pool is no output of this one.
                if staged.1 && matches!(operand, Operand::Out(_)) && body.leaves_a_rest(Pool(i as u8)) {
                    queue.pool().slice(staged.0)?.zero();
                }
                ranges.push(staged.0);
                if staged.1 {
                    owned.push(staged.0);
                }
            }
            let bytes = body.bind(&ranges)?;
            let at = queue.stage(&bytes)?;
            owned.push(at);
            if let Some(tag) = how.tag {
                let index = u16::try_from(queue.index()).map_err(|_| Errno::OVERFLOW)?;
                tag.set(CommandId { client: client.id(), queue: index, sequence: queue.next_sequence() });
            }
            let op = Body::op(at);
            let cqe = queue.execute(&Command {
                durability: how.durability,
                mode: how.mode,
                after_durable: how.after_durable,
                detectable: how.tag.is_some(),
                placement: how.placement.of(&op),
                hints: how.hints,
                ..Command::new(0, op)
            })?;
            for (i, (operand, range)) in operands.iter_mut().zip(&ranges).enumerate() {
                if let Operand::Out(room) = operand {
                    copy_out(queue.pool().slice(*range)?, room, filled(&cqe, i));
                }
            }
            Ok(cqe)
        };
        let result = go();
        owned.iter().for_each(|range| queue.free(*range));
        result
    }
}
