//! Posting: a thread that opened a file may change it and go on when the change is published. Every command that is
//! published later, whoever sends it, finds it done; the device sees to that, and keeps the room that it may take
//! (docs/COMMANDS.md, "Posting"). What can go wrong all the same (a device that dies, a medium that fails) is kept for
//! the next call that waits.

use crate::asked::Asked;
use crate::buf::Payload;
use crate::call::stage_input;
use crate::client::Client;
use crate::lease::{Lease, Posted};
use crate::look::Look;
use crate::queue::Queue;
use crate::raw::{Opened, Raw};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weldfs_ciscops::flags::SetAttrMask;
use weldfs_ciscops::interp::CREATED;
use weldfs_ciscops::limits::{self, LEASE_BLOCKS};
use weldfs_ciscops::{At, Command, Durability, Errno, Handle, Op, OpenFlags, PoolRange, SetAttrBody};
use zerocopy::IntoBytes;

/// Longest write that is posted, bytes. A longer one takes the device longer than its answer is away.
pub const POSTED_MAX: usize = limits::POSTED_MAX as usize;
const BLOCK: usize = 4096;

/// What is wished for with a file that is opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wishes {
    /// The right to post changes of it.
    pub lease: bool,
    /// Its attributes and, if it can be read and is short, its content.
    pub look: bool,
}

/// What an open came to.
#[derive(Debug, Clone)]
pub struct Brought {
    /// The handle.
    pub opened: Opened,
    /// The write lease, if it was granted.
    pub lease: Option<Arc<Lease>>,
    /// What came along, if anything did.
    pub look: Option<Arc<Look>>,
}

/// How many blocks the device keeps for a write.
fn blocks_of(len: usize) -> u32 {
    len.div_ceil(BLOCK) as u32 + 1
}

impl Raw<'_> {
    /// openat(2) as [`Raw::openat`], with what is wished for beside the handle, as far as the device grants it.
    ///
    /// The write lease: not where another open file has it, not with O_SYNC or O_DSYNC, and only by a device of one
    /// core in a process of its own. It ends with its handle. The look: not where another handle has the lease, where
    /// something is not in the device's memory, and on emulated hardware.
    pub fn open_with(
        &self,
        base: Handle,
        path: &[u8],
        (flags, mode): (OpenFlags, u32),
        wishes: Wishes,
    ) -> Result<Brought, Errno> {
        let (client, session, how) = self.parts();
        let path = Payload::Bytes(path);
        let open = |queue: &mut Queue| {
            let asks = wishes.lease && how.durability != Durability::Durable && !queue.is_inline();
            let (path, owned) = stage_input(queue, &path)?;
            let asked = if wishes.look && !queue.is_inline() { Asked::of(queue, flags) } else { Asked::none() };
            let (look, watch) = (asked.room, asked.watch);
            let op = Op::Open { base, path, flags, mode: mode & 0o7777, placeholder: 0, look, watch };
            let command = Command::new(0, op).with_durability(how.durability).with_hints(how.hints);
            let place = (queue.id(), queue.recalls());
            let answer = queue.execute(&if asks { command.posted() } else { command });
            let look = asked.take(queue, &answer);
            if owned {
                queue.free(path);
            }
            Ok((answer?, place, look))
        };
        let (cqe, place, look) = match client.with_queue(session, 0, open)? {
            // Nothing was sent: the name did not fit. A bigger pool is made once per thread, on demand.
            Err(Errno::NOMEM) => client.with_queue(session, path.len() * 2, open)?,
            done => done,
        }?;
        cqe.ok()?;
        let created = cqe.result2 & CREATED != 0;
        let opened = Opened { handle: Handle::from_wire(cqe.result), mode: cqe.result2 as u32, created };
        Ok(Brought { opened, lease: Lease::granted(&cqe, place), look })
    }

    /// Posts a write: true when it is as good as done, and false when it was not posted (another thread's lease, one
    /// that is over or of another handle, too long); then nothing has happened. An errno is that of a write posted
    /// before.
    pub fn post_write<'p>(
        &self,
        lease: &Arc<Lease>,
        h: Handle,
        at: At,
        data: impl Into<Payload<'p>>,
    ) -> Result<bool, Errno> {
        let data = data.into();
        lease.take_error()?;
        // What lies in a pool is the caller's again when this returns, and the device has not read it then.
        if !(1..=POSTED_MAX).contains(&data.len()) || matches!(data, Payload::Pool(..)) {
            return Ok(false);
        }
        let blocks = blocks_of(data.len());
        self.post(lease, h, (data, blocks, true), |src| Op::Write { h, at, src })
    }

    /// The same of attributes, as fchmod(2), fchown(2), futimens(3): those that this session surely may change, no
    /// size.
    pub fn post_attr(&self, lease: &Arc<Lease>, h: Handle, set: &SetAttrBody) -> Result<bool, Errno> {
        let mask = SetAttrMask::from_bits_retain(set.mask);
        let may = lease.root || lease.owned && !mask.intersects(SetAttrMask::UID | SetAttrMask::GID);
        if !may || mask.contains(SetAttrMask::SIZE) {
            return Ok(false);
        }
        self.post(lease, h, (set.as_bytes().into(), 1, false), |set| Op::SetAttr { h, set })
    }

    /// close(2) of the handle without waiting for it, if this thread may; as [`Raw::close`] otherwise. Whether it was
    /// posted.
    pub fn post_close(&self, lease: &Arc<Lease>, h: Handle) -> Result<bool, Errno> {
        let posted = self.post(lease, h, (Payload::Bytes(&[]), 0, false), |_| Op::Close { h })?;
        lease.end();
        if posted { Ok(true) } else { self.close(h).map(|()| false) }
    }

    /// close(2) of a handle without a lease, and without waiting for it. For a file that no other process has and that
    /// this one has no locks of: what else a close does is not seen, but that the room of a file without a name is free
    /// a moment later. Where the device has granted nothing with the handle it is a command like others.
    pub fn post_plain_close(&self, h: Handle) -> Result<(), Errno> {
        let (client, session, how) = self.parts();
        client.with_queue(session, 0, |queue| {
            let close = Command::new(0, Op::Close { h }).with_hints(how.hints);
            if queue.is_inline() {
                return queue.execute(&close)?.ok().map(drop);
            }
            queue.post(&close.posted(), Posted { range: PoolRange::EMPTY, lease: None, blocks: 0, writes: false })
        })?
    }

    fn post(
        &self,
        lease: &Arc<Lease>,
        h: Handle,
        (data, blocks, writes): (Payload<'_>, u32, bool),
        build: impl FnOnce(PoolRange) -> Op,
    ) -> Result<bool, Errno> {
        let (client, session, how) = self.parts();
        if how.durability == Durability::Durable {
            return Ok(false);
        }
        client.with_queue(session, 0, |queue| {
            if !lease.holds(queue.id(), h) {
                return Ok(false);
            }
            while lease.blocks.load(Ordering::Relaxed) + blocks > LEASE_BLOCKS {
                queue.await_posted()?;
            }
            let range = match data.len() {
                0 => PoolRange::EMPTY,
                _ => match stage_input(queue, &data) {
                    Ok((range, _)) => range,
                    Err(_) => return Ok(false),
                },
            };
            let command = Command::new(0, build(range)).with_durability(how.durability).with_hints(how.hints).posted();
            lease.blocks.fetch_add(blocks, Ordering::Relaxed);
            queue.post(&command, Posted { range, lease: Some(lease.clone()), blocks, writes })?;
            if queue.recalls() != lease.recalls {
                // The device may have looked for what was published before it saw this: then it has no room kept.
                lease.end();
                queue.settle()?;
                lease.take_error()?;
            }
            Ok(true)
        })?
    }
}

impl Client {
    /// Waits until everything that this thread has posted is over.
    pub fn settle(&self) -> Result<(), Errno> {
        self.with_queue(0, 0, Queue::settle)?
    }
}
