//! Commands of more than one piece of memory, and those of a transaction, on an asynchronous queue.
//!
//! All of a program's memory is one buffer of the pool: its ranges in their order, each from a cache line on, and its
//! body behind them. The completion has it as its room.

use super::{AsyncQueue, Completed, Input, On, Pending, Space};
use crate::txn::{Transaction, one_program};
use std::ops::Range;
use weldfs_ciscops::catalogue::Template;
use weldfs_ciscops::program::{Body, Pool};
use weldfs_ciscops::{At, Durability, Errno, Handle, Op, PoolRange};

/// Where a range begins is a multiple of so many bytes.
const LINE: usize = 64;

/// Where a program's ranges are in the room of its completion.
#[derive(Debug, Clone)]
pub struct Rooms {
    ranges: Vec<Range<usize>>,
    body: Range<usize>,
}

impl Rooms {
    /// E2BIG: together more than the largest pool.
    fn of(body: &Body) -> Result<Rooms, Errno> {
        let mut end = 0usize;
        let mut next = |len: usize| {
            let start = end.next_multiple_of(LINE);
            end = start.checked_add(len).filter(|end| u32::try_from(*end).is_ok()).ok_or(Errno::TOOBIG)?;
            Ok::<_, Errno>(start..end)
        };
        let ranges = (0..body.pools()).map(|i| next(body.pool_len(Pool(i as u8)) as usize));
        let ranges = ranges.collect::<Result<_, _>>()?;
        Ok(Rooms { ranges, body: next(body.len())? })
    }

    /// The bytes of a range: what the program put there, if that is what it is for; none for a range that it does not
    /// have.
    pub fn bytes<'a>(&self, ran: &'a Completed, range: usize) -> &'a [u8] {
        let place = self.ranges.get(range).cloned();
        place.and_then(|place| ran.room.bytes().get(place)).unwrap_or_default()
    }
}

/// What was submitted, and where its ranges are in the room of its completion.
pub type Sent<T> = (Pending<T>, Rooms);

/// What a fused operation answered.
#[derive(Debug)]
pub struct Ran<A> {
    /// Its results, as what they are.
    pub answer: A,
    /// Its completion, with what it put in its ranges: [`Rooms::bytes`].
    pub completed: Completed,
}

fn ran<T: Template>(completed: Completed) -> Result<Ran<T::Answer>, Errno> {
    let completed = completed.ok()?;
    Ok(Ran { answer: T::answer((completed.cqe.result, completed.cqe.result2)), completed })
}

fn done(completed: Completed) -> Result<(), Errno> {
    completed.ok().map(drop)
}

fn first(completed: Completed) -> Result<u64, Errno> {
    Ok(completed.ok()?.cqe.result)
}

fn second(completed: Completed) -> Result<u64, Errno> {
    Ok(completed.ok()?.cqe.result2)
}

/// As the other calls of a queue: nothing is waited for.
impl AsyncQueue {
    /// Whether this is the number of its session, as [`crate::File::session`] gives it.
    pub fn is_of(&self, session: u64) -> bool {
        self.shared.session.epoch() == session
    }

    /// Runs a program of one's own, all of it or nothing (not on a directory of the host), where the device thinks
    /// best. `inputs` has bytes for each of its ranges that it takes, of the range's length, and `None` for those that
    /// it fills, which are zeros where it puts nothing. The completion comes back whatever its status says.
    ///
    /// Errors at once: EINVAL (other ranges), E2BIG (a range above the payload limit), EAGAIN, ENOMEM (it never fits
    /// the pool: ranges and body are one piece).
    pub fn program(&self, body: &Body, inputs: &[Option<&[u8]>]) -> Result<Sent<Completed>, Errno> {
        self.run(body, inputs, Ok)
    }

    /// [`crate::Raw::fused`]: an operation of the catalogue, as all or nothing (not on a directory of the host) and
    /// where the device thinks best. `inputs` as of [`AsyncQueue::program`], and so are the errors at once, beside
    /// those of operands that make no such operation.
    pub fn fused<T: Template>(&self, op: &T, inputs: &[Option<&[u8]>]) -> Result<Sent<Ran<T::Answer>>, Errno> {
        self.run(&op.body()?, inputs, ran::<T>)
    }

    fn run<T>(
        &self,
        body: &Body,
        inputs: &[Option<&[u8]>],
        finish: fn(Completed) -> Result<T, Errno>,
    ) -> Result<Sent<T>, Errno> {
        let rooms = Rooms::of(body)?;
        if inputs.len() != rooms.ranges.len() {
            return Err(Errno::INVAL);
        }
        let payload_max = self.shared.client.payload_max();
        if rooms.ranges.iter().any(|part| part.len() > payload_max) {
            return Err(Errno::TOOBIG);
        }
        let mut room = self.buffer(rooms.body.end)?;
        let at = room.whole().off;
        let place = |part: &Range<usize>| PoolRange::new(at + part.start as u32, part.len() as u32);
        let bound = body.bind(&rooms.ranges.iter().map(place).collect::<Vec<_>>())?;
        let bytes = room.bytes_mut()?;
        for (i, (input, part)) in inputs.iter().zip(&rooms.ranges).enumerate() {
            let into = bytes.get_mut(part.clone()).ok_or(Errno::INVAL)?;
            match input {
                Some(input) if input.len() == part.len() && !body.is_output(Pool(i as u8)) => {
                    into.copy_from_slice(input)
                }
                None if body.is_output(Pool(i as u8)) => into.fill(0),
                _ => return Err(Errno::INVAL),
            }
        }
        bytes.get_mut(rooms.body.clone()).ok_or(Errno::INVAL)?.copy_from_slice(&bound);
        let body = place(&rooms.body);
        let pending = self.start([], Space::Buf(room), false, |[], _| Body::op(body), finish);
        Ok((pending.map_err(|refused| refused.errno)?, rooms))
    }

    /// [`crate::Raw::multi_write`]; writes of no bytes at all are a command that does nothing.
    pub fn multi_write(&self, writes: &[(Handle, At, &[u8])]) -> Result<Pending<()>, Errno> {
        let Some(one) = one_program(writes, self.shared.client.payload_max())? else { return self.nop() };
        let inputs: Vec<_> = one.data.iter().map(|data| Some(*data)).collect();
        Ok(self.run(&one.body, &inputs, done)?.0)
    }

    /// [`Transaction::write`], of at most the payload limit; how many writes are logged. The commit is to be submitted
    /// when this has completed: they are of no order.
    pub fn txn_write<'i>(
        &self,
        txn: &Transaction,
        on: impl Into<On>,
        at: At,
        data: impl Into<Input<'i>>,
    ) -> Result<Pending<u64>, Errno> {
        let (h, txn) = (self.on(on)?, self.on(txn)?);
        let build = |[src]: [_; 1], _| Op::TxnWrite { txn, h, at, src };
        Ok(self.start([data.into()], Space::Fresh(0), false, build, second)?)
    }

    /// [`Transaction::commit`]: the bytes written. Durability and hints are the transaction's, unless this handle of
    /// the queue has its own. Refused, the transaction comes back as it was.
    pub fn txn_commit(&self, txn: Transaction) -> Result<Pending<u64>, (Errno, Transaction)> {
        let handle = match self.on(&txn) {
            Ok(handle) => handle,
            Err(errno) => return Err((errno, txn)),
        };
        let (durability, hints) = txn.wishes();
        let with =
            if self.manner.durability == Durability::Default { self.durability(durability) } else { self.clone() };
        let with = if with.manner.hints.is_none() { with.hints(hints) } else { with };
        match with.start([], Space::Fresh(0), false, |[], _| Op::TxnCommit { txn: handle }, first) {
            Ok(pending) => {
                txn.into_handle();
                Ok(pending)
            }
            Err(refused) => Err((refused.errno, txn)),
        }
    }
}
