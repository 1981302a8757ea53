//! Batches: many operations, one crossing.
//!
//! Nothing is atomic about a batch: its operations run one after the other, each as if it had been called by itself,
//! with a result of its own; those of other clients may come in between. What is saved is the crossing, and with
//! durable operations the flush: there is one for all of them.

use crate::buf::{Payload, Room, gather};
use crate::call::{bound_channel, copy_out};
use crate::channel::Channel;
use crate::client::Client;
use crate::queue::Queue;
use crate::raw::Raw;
use std::rc::Rc;
use weldfs_ciscops::flags::{ChecksumKind, OpenFlags};
use weldfs_ciscops::limits::BATCH_MAX;
use weldfs_ciscops::{At, Command, Cqe, Errno, Handle, Op, PoolRange, Sqe, StatBody};
use zerocopy::{FromZeros, IntoBytes};

/// Bytes of operands that one command of a batch takes at most, beside a single operation that has more.
const OPERAND_BYTES_MAX: usize = 1 << 20;
/// Operands lie at multiples of so many bytes.
const ALIGN: usize = 64;

/// One operation and where its operands are.
struct Item<'d> {
    op: Op,
    path: &'d [u8],
    data: Option<Payload<'d>>,
    room: Option<Room<'d>>,
}

impl Item<'_> {
    /// Bytes of the pool that it needs.
    fn bytes(&self) -> usize {
        let data = match &self.data {
            Some(Payload::Pool(..)) | None => 0,
            Some(p) => p.len(),
        };
        let room = match &self.room {
            Some(Room::Pool(_)) | None => 0,
            Some(r) => r.len(),
        };
        [self.path.len(), data, room].map(|n| n.next_multiple_of(ALIGN)).iter().sum()
    }

    /// The channels of its pool buffers.
    fn channels(&self) -> impl Iterator<Item = &Rc<Channel>> {
        let (data, room) = (self.data.as_ref().and_then(Payload::bound), self.room.as_ref().and_then(Room::bound));
        data.into_iter().chain(room)
    }
}

/// Operations that go to the device together. At most [`BATCH_MAX`] of them, and a MiB of operands, are one command;
/// more become several, in order.
pub struct Batch<'c, 'd> {
    raw: Raw<'c>,
    items: Vec<Item<'d>>,
}

impl<'c, 'd> Batch<'c, 'd> {
    pub(crate) fn new(raw: Raw<'c>) -> Batch<'c, 'd> {
        Batch { raw, items: Vec::new() }
    }

    /// Operations so far.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn add(&mut self, op: Op, path: &'d [u8], data: Option<Payload<'d>>, room: Option<Room<'d>>) -> &mut Self {
        self.items.push(Item { op, path, data, room });
        self
    }

    /// As [`Raw::open_write_close`]; the result is the bytes written.
    pub fn open_write_close(
        &mut self,
        base: Handle,
        path: &'d [u8],
        flags: OpenFlags,
        mode: u32,
        at: At,
        data: impl Into<Payload<'d>>,
    ) -> &mut Self {
        let (path_, src, mode) = (PoolRange::EMPTY, PoolRange::EMPTY, mode & 0o7777);
        self.add(Op::OpenWriteClose { base, path: path_, flags, mode, at, src }, path, Some(data.into()), None)
    }

    /// As [`Raw::open_read_close`]; the result is the bytes read.
    pub fn open_read_close(
        &mut self,
        base: Handle,
        path: &'d [u8],
        flags: OpenFlags,
        offset: u64,
        room: impl Into<Room<'d>>,
    ) -> &mut Self {
        let (path_, out) = (PoolRange::EMPTY, PoolRange::EMPTY);
        self.add(Op::OpenReadClose { base, path: path_, flags, offset, out }, path, None, Some(room.into()))
    }

    /// As [`Raw::open_read_write_close`]; the result is the bytes read, result2 where the payload went, with bit 63
    /// set if the file is new.
    #[allow(clippy::too_many_arguments)] // the operation's
    pub fn open_read_write_close(
        &mut self,
        base: Handle,
        path: &'d [u8],
        flags: OpenFlags,
        mode: u32,
        (read_off, room): (u64, impl Into<Room<'d>>),
        (at, data): (At, impl Into<Payload<'d>>),
    ) -> &mut Self {
        let (path_, out, src, mode) = (PoolRange::EMPTY, PoolRange::EMPTY, PoolRange::EMPTY, mode & 0o7777);
        let op = Op::OpenReadWriteClose { base, path: path_, flags, mode, read_off, out, at, src };
        self.add(op, path, Some(data.into()), Some(room.into()))
    }

    /// As [`Raw::read`] of at most one payload; the result is the bytes read.
    pub fn read(&mut self, h: Handle, at: At, room: impl Into<Room<'d>>) -> &mut Self {
        self.add(Op::Read { h, at, out: PoolRange::EMPTY, watch: 0 }, b"", None, Some(room.into()))
    }

    /// As [`Raw::write`] of at most one payload; the result is the bytes written, result2 where they went.
    pub fn write(&mut self, h: Handle, at: At, data: impl Into<Payload<'d>>) -> &mut Self {
        self.add(Op::Write { h, at, src: PoolRange::EMPTY }, b"", Some(data.into()), None)
    }

    /// As [`Raw::write_verified`]; the results are those of [`Batch::write`].
    pub fn write_verified(&mut self, h: Handle, at: At, data: impl Into<Payload<'d>>, checksum: u32) -> &mut Self {
        let (src, kind, sum) = (PoolRange::EMPTY, ChecksumKind::Crc32c, checksum);
        self.add(Op::WriteVerified { h, at, src, kind, sum }, b"", Some(data.into()), None)
    }

    /// As [`Raw::statat`], into `body`.
    pub fn stat(&mut self, base: Handle, path: &'d [u8], nofollow: bool, body: &'d mut StatBody) -> &mut Self {
        let op = Op::StatPath { base, path: PoolRange::EMPTY, nofollow, out: PoolRange::EMPTY };
        self.add(op, path, None, Some(Room::Bytes(body.as_mut_bytes())))
    }

    /// As [`Raw::mkdirat`].
    pub fn mkdir(&mut self, base: Handle, path: &'d [u8], mode: u32) -> &mut Self {
        self.add(Op::Mkdir { base, path: PoolRange::EMPTY, mode: mode & 0o7777 }, path, None, None)
    }

    /// As [`Raw::unlinkat`].
    pub fn unlink(&mut self, base: Handle, path: &'d [u8]) -> &mut Self {
        self.add(Op::Unlink { base, path: PoolRange::EMPTY }, path, None, None)
    }

    /// Sends them and waits. The completions are in the order of the operations, whatever they say; rooms are filled.
    /// Durability and transaction mode are the view's, as for single calls: one wait for all of a command.
    ///
    /// When a later command of several fails as a whole, the operations of the earlier ones have been done and say so;
    /// those of the failed one and of all that would have come after it, which are not sent, have its errno.
    ///
    /// # Errors
    /// Nothing was done, or of a single command the outcome is unknown (EIO): EIO and ENODEV (the device died), ENOMEM
    /// (no pool that large), E2BIG (one operand above the payload limit), EINVAL (pool buffers of two threads).
    pub fn run(mut self) -> Result<Vec<Cqe>, Errno> {
        let mut done = Vec::with_capacity(self.items.len());
        check(&self.raw, &self.items)?;
        while done.len() < self.items.len() {
            let (from, to) = (done.len(), self.chunk(done.len()));
            match send(&self.raw, &mut self.items[from..to], &mut done) {
                Err(e) if from == 0 => return Err(e),
                Err(e) => done.resize(self.items.len(), Cqe { status: e.0, ..Cqe::default() }),
                Ok(()) => {}
            }
        }
        Ok(done)
    }

    /// Where the command that begins with item `from` ends.
    fn chunk(&self, from: usize) -> usize {
        let mut bytes = self.items[from].bytes();
        let fits = |item: &&Item<'_>| {
            bytes += item.bytes();
            bytes <= OPERAND_BYTES_MAX
        };
        from + 1 + self.items[from + 1..].iter().take(BATCH_MAX - 1).take_while(fits).count()
    }
}

impl<'c> Raw<'c> {
    /// An empty batch of calls like this one.
    pub fn batch<'d>(&self) -> Batch<'c, 'd> {
        Batch::new(*self)
    }

    /// fstatat(2) of many names, up to [`BATCH_MAX`] in a command; each has its own answer.
    pub fn stat_many(
        &self,
        base: Handle,
        paths: &[&[u8]],
        nofollow: bool,
    ) -> Result<Vec<Result<StatBody, Errno>>, Errno> {
        let mut bodies = vec![StatBody::new_zeroed(); paths.len()];
        let mut batch = self.batch();
        for (path, body) in paths.iter().zip(&mut bodies) {
            batch.stat(base, path, nofollow, body);
        }
        let done = batch.run()?;
        Ok(done.iter().zip(bodies).map(|(cqe, body)| cqe.ok().map(|_| body)).collect())
    }

    /// Entries of a directory from `cookie` on (0 = start), each with its attributes, as a stream for
    /// `weldfs_ciscops::dirent::DirentsPlus`: its bytes, 0 at the end, and the cookie to go on with. EINVAL when the
    /// room holds not even one entry. What stat fails with stands in the entry.
    pub fn read_dir_plus<'r>(&self, h: Handle, cookie: u64, room: impl Into<Room<'r>>) -> Result<(usize, u64), Errno> {
        let build = |[]: [PoolRange; 0], [out]: [_; 1]| Op::ReadDirPlus { h, cookie, out, watch: 0 };
        let filled = |cqe: &Cqe| [if cqe.status == 0 { cqe.result as usize } else { 0 }];
        let cqe = self.call([], [room.into()], build, filled)?;
        cqe.ok().map(|(n, next)| (n as usize, next))
    }
}

impl Client {
    /// An empty batch, with this client's durability.
    pub fn batch<'d>(&self) -> Batch<'_, 'd> {
        self.raw().batch()
    }
}

/// What concerns no single operation is found before anything is sent.
fn check(raw: &Raw<'_>, items: &[Item<'_>]) -> Result<(), Errno> {
    let (client, _, how) = raw.parts();
    if how.tag.is_some() {
        // Outcomes are of commands with a transaction.
        return Err(Errno::INVAL);
    }
    let lens = |item: &Item<'_>| [item.data.as_ref().map_or(0, Payload::len), item.room.as_ref().map_or(0, Room::len)];
    if items.iter().flat_map(lens).any(|len| len > client.payload_max()) {
        return Err(Errno::TOOBIG);
    }
    bound_channel(items.iter().flat_map(Item::channels)).map(drop)
}

/// Sends one command.
fn send(raw: &Raw<'_>, items: &mut [Item<'_>], done: &mut Vec<Cqe>) -> Result<(), Errno> {
    let (client, epoch, how) = raw.parts();
    let (need, bound) = (pool_bytes(items), bound_channel(items.iter().flat_map(Item::channels))?);
    let (durability, mode, after_durable, hints) = (how.durability, how.mode, how.after_durable, how.hints);
    let mut go = |queue: &mut Queue| {
        let range = queue.alloc(u32::try_from(need).map_err(|_| Errno::NOMEM)?)?;
        let command = |op| Command { durability, mode, after_durable, hints, ..Command::new(0, op) };
        let result = execute(queue, range, command, items, done);
        queue.free(range);
        result
    };
    if let Some(bound) = bound {
        bound.check(epoch)?;
        return bound.with(go)?;
    }
    match client.with_queue(epoch, 0, &mut go)? {
        Err(Errno::NOMEM) => client.with_queue(epoch, need.next_power_of_two(), go)?,
        sent => sent,
    }
}

/// Bytes of the pool that a command of these items takes.
fn pool_bytes(items: &[Item<'_>]) -> usize {
    let entries = items.len() * (Sqe::SIZE + Cqe::SIZE);
    entries.next_multiple_of(ALIGN) + items.iter().map(Item::bytes).sum::<usize>()
}

/// Hands out the parts of one range of the pool, in order.
struct Parts {
    next: u32,
}

impl Parts {
    fn take(&mut self, len: usize) -> PoolRange {
        let range = PoolRange::new(self.next, len as u32);
        self.next += len.next_multiple_of(ALIGN) as u32;
        range
    }

    fn string(&mut self, queue: &Queue, bytes: &[u8]) -> Result<PoolRange, Errno> {
        let range = self.take(bytes.len());
        queue.pool().slice(range)?.copy_from(bytes);
        Ok(range)
    }

    fn data(&mut self, queue: &Queue, data: &Option<Payload<'_>>) -> Result<PoolRange, Errno> {
        let Some(data) = data else { return Ok(PoolRange::EMPTY) };
        match data {
            Payload::Bytes(bytes) => self.string(queue, bytes),
            Payload::Gather(parts) => {
                let range = self.take(data.len());
                gather(parts, queue.pool().slice(range)?);
                Ok(range)
            }
            Payload::Pool(buf, range) => buf.part(range.start, range.end.checked_sub(range.start).ok_or(Errno::INVAL)?),
        }
    }

    fn room(&mut self, room: &Option<Room<'_>>) -> Result<PoolRange, Errno> {
        match room {
            None => Ok(PoolRange::EMPTY),
            Some(Room::Pool(buf)) => buf.part(0, buf.len()),
            Some(room) => Ok(self.take(room.len())),
        }
    }
}

fn execute(
    queue: &mut Queue,
    range: PoolRange,
    command: impl Fn(Op) -> Command,
    items: &mut [Item<'_>],
    done: &mut Vec<Cqe>,
) -> Result<(), Errno> {
    let count = items.len();
    let entries = PoolRange::new(range.off, (count * Sqe::SIZE) as u32);
    let results = PoolRange::new(range.off + entries.len, (count * Cqe::SIZE) as u32);
    let mut parts = Parts { next: range.off + (entries.len + results.len).next_multiple_of(ALIGN as u32) };
    let mut rooms = Vec::with_capacity(count);
    for (i, item) in items.iter().enumerate() {
        let path = parts.string(queue, item.path)?;
        let data = parts.data(queue, &item.data)?;
        let out = parts.room(&item.room)?;
        let sqe = Command::new(i as u64, placed(item.op, path, data, out)).encode();
        let at = PoolRange::new(entries.off + (i * Sqe::SIZE) as u32, Sqe::SIZE as u32);
        queue.pool().slice(at)?.copy_from(sqe.as_bytes());
        rooms.push(out);
    }
    queue.execute(&command(Op::Batch { items: entries, results }))?.ok()?;
    for (i, (item, out)) in items.iter_mut().zip(rooms).enumerate() {
        let mut cqe = Cqe::default();
        let at = PoolRange::new(results.off + (i * Cqe::SIZE) as u32, Cqe::SIZE as u32);
        queue.pool().slice(at)?.copy_to(cqe.as_mut_bytes());
        if let Some(room) = &mut item.room
            && cqe.status == 0
        {
            copy_out(queue.pool().slice(out)?, room, cqe.result as usize);
        }
        done.push(cqe);
    }
    Ok(())
}

/// The operation with its operands where they are.
fn placed(op: Op, path: PoolRange, src: PoolRange, out: PoolRange) -> Op {
    match op {
        Op::OpenWriteClose { base, flags, mode, at, .. } => Op::OpenWriteClose { base, path, flags, mode, at, src },
        Op::OpenReadClose { base, flags, offset, .. } => Op::OpenReadClose { base, path, flags, offset, out },
        Op::OpenReadWriteClose { base, flags, mode, read_off, at, .. } => {
            Op::OpenReadWriteClose { base, path, flags, mode, read_off, out, at, src }
        }
        Op::Read { h, at, .. } => Op::Read { h, at, out, watch: 0 },
        Op::Write { h, at, .. } => Op::Write { h, at, src },
        Op::WriteVerified { h, at, kind, sum, .. } => Op::WriteVerified { h, at, src, kind, sum },
        Op::StatPath { base, nofollow, .. } => Op::StatPath { base, path, nofollow, out },
        Op::Mkdir { base, mode, .. } => Op::Mkdir { base, path, mode },
        Op::Unlink { base, .. } => Op::Unlink { base, path },
        other => other,
    }
}
