//! One call, one command: operands into the pool, the command into the ring, results out of the pool.

use crate::buf::{Payload, Room, gather};
use crate::catalogue::Placement;
use crate::channel::Channel;
use crate::client::Client;
use crate::outcome::{CommandId, Tag};
use crate::queue::Queue;
use std::rc::Rc;
use weldfs_ciscops::{Command, Cqe, Durability, Errno, Hints, Op, PoolRange, SharedBytes, TxnMode};

/// What a caller may choose for any op.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct How<'t> {
    pub(crate) durability: Durability,
    pub(crate) after_durable: bool,
    /// The command is detectable, and this learns which it is.
    pub(crate) tag: Option<&'t Tag>,
    pub(crate) mode: TxnMode,
    /// Where the catalogue computes.
    pub(crate) placement: Placement,
    pub(crate) hints: Hints,
}

/// The pool ranges of one call; `owned` ones were allocated for it and go back after it.
struct Staged<const N: usize> {
    ranges: [PoolRange; N],
    owned: [bool; N],
}

impl<const N: usize> Staged<N> {
    fn new() -> Self {
        Staged { ranges: [PoolRange::EMPTY; N], owned: [false; N] }
    }

    fn give_back(&self, queue: &mut Queue) {
        for (range, owned) in self.ranges.iter().zip(self.owned) {
            if owned {
                queue.free(*range);
            }
        }
    }
}

/// Runs one command. `build` makes the op from the ranges of inputs and rooms; `filled` says how many bytes of each
/// room the device filled (clipped to the room). The CQE comes back whatever its status says.
pub(crate) fn run<const I: usize, const O: usize>(
    client: &Client,
    epoch: u64,
    how: How<'_>,
    inputs: [Payload<'_>; I],
    mut rooms: [Room<'_>; O],
    build: impl Fn([PoolRange; I], [PoolRange; O]) -> Op,
    filled: impl Fn(&Cqe) -> [usize; O],
) -> Result<Cqe, Errno> {
    let bound = bound_channel(inputs.iter().filter_map(Payload::bound).chain(rooms.iter().filter_map(Room::bound)))?;
    let pool_need = pool_need(&inputs, &rooms);
    let id = client.id();
    let mut attempt = |queue: &mut Queue| execute(queue, (how, &id), &inputs, &mut rooms, &build, &filled);
    if let Some(bound) = bound {
        bound.check(epoch)?;
        return bound.with(attempt)?;
    }
    match client.with_queue(epoch, 0, &mut attempt)? {
        // Nothing was sent: the operands did not fit. A bigger pool is made once per thread, on demand.
        Err(Errno::NOMEM) => client.with_queue(epoch, pool_need, attempt)?,
        done => done,
    }
}

/// The one channel that the pool buffers of a call belong to; EINVAL when there are two.
pub(crate) fn bound_channel<'b>(channels: impl Iterator<Item = &'b Rc<Channel>>) -> Result<Option<Rc<Channel>>, Errno> {
    let mut bound: Option<&Rc<Channel>> = None;
    for channel in channels {
        if bound.is_some_and(|b| !Rc::ptr_eq(b, channel)) {
            return Err(Errno::INVAL);
        }
        bound = Some(channel);
    }
    Ok(bound.cloned())
}

/// Bytes of pool with which this call surely fits an otherwise empty pool.
fn pool_need<const I: usize, const O: usize>(inputs: &[Payload<'_>; I], rooms: &[Room<'_>; O]) -> usize {
    let lens = inputs.iter().map(|p| p.len()).chain(rooms.iter().map(|r| r.len()));
    lens.fold(0, |sum: usize, len| sum.saturating_add(len.saturating_mul(2).max(256)))
}

fn execute<const I: usize, const O: usize>(
    queue: &mut Queue,
    (how, client): (How<'_>, &[u8; 16]),
    inputs: &[Payload<'_>; I],
    rooms: &mut [Room<'_>; O],
    build: &impl Fn([PoolRange; I], [PoolRange; O]) -> Op,
    filled: &impl Fn(&Cqe) -> [usize; O],
) -> Result<Cqe, Errno> {
    let (mut ins, mut outs) = (Staged::<I>::new(), Staged::<O>::new());
    let mut go = || {
        for (i, payload) in inputs.iter().enumerate() {
            (ins.ranges[i], ins.owned[i]) = stage_input(queue, payload)?;
        }
        for (i, room) in rooms.iter().enumerate() {
            (outs.ranges[i], outs.owned[i]) = stage_room(queue, room)?;
        }
        let op = build(ins.ranges, outs.ranges);
        let command = Command {
            seq: 0,
            durability: how.durability,
            mode: how.mode,
            after_durable: how.after_durable,
            detectable: how.tag.is_some(),
            posted: false,
            placement: how.placement.of(&op),
            hints: how.hints,
            op,
        };
        if let Some(tag) = how.tag {
            let index = u16::try_from(queue.index()).map_err(|_| Errno::OVERFLOW)?;
            tag.set(CommandId { client: *client, queue: index, sequence: queue.next_sequence() });
        }
        let cqe = queue.execute(&command)?;
        for ((room, range), n) in rooms.iter_mut().zip(outs.ranges).zip(filled(&cqe)) {
            copy_out(queue.pool().slice(range)?, room, n);
        }
        Ok(cqe)
    };
    let result = go();
    ins.give_back(queue);
    outs.give_back(queue);
    result
}

fn length(len: usize) -> Result<u32, Errno> {
    u32::try_from(len).map_err(|_| Errno::TOOBIG)
}

pub(crate) fn stage_input(queue: &mut Queue, payload: &Payload<'_>) -> Result<(PoolRange, bool), Errno> {
    if let Payload::Pool(buf, range) = payload {
        return Ok((buf.part(range.start, range.end.checked_sub(range.start).ok_or(Errno::INVAL)?)?, false));
    }
    let range = queue.alloc(length(payload.len())?)?;
    let room = queue.pool().slice(range)?;
    match payload {
        Payload::Bytes(bytes) => room.copy_from(bytes),
        Payload::Gather(parts) => gather(parts, room),
        Payload::Pool(..) => {}
    }
    Ok((range, true))
}

pub(crate) fn stage_room(queue: &mut Queue, room: &Room<'_>) -> Result<(PoolRange, bool), Errno> {
    match room {
        Room::Pool(buf) => Ok((buf.part(0, buf.len())?, false)),
        _ => Ok((queue.alloc(length(room.len())?)?, true)),
    }
}

/// Copies what the device filled into ordinary memory; a pool buffer has it already.
pub(crate) fn copy_out(from: SharedBytes<'_>, room: &mut Room<'_>, filled: usize) {
    let n = filled.min(from.len());
    match room {
        Room::Bytes(bytes) => from.copy_to(&mut bytes[..n]),
        Room::Scatter(parts) => {
            let mut off = 0;
            for part in parts.iter_mut() {
                let take = part.len().min(n - off);
                from.sub(off, take).copy_to(&mut part[..take]);
                off += take;
            }
        }
        Room::Pool(_) => {}
    }
}
