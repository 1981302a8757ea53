//! Posting: a thread that opened a file may change it and go on when the change is published. Every command that is
//! published later, whoever sends it, finds it done; the device sees to that, and keeps the room that it may take
//! (docs/COMMANDS.md, "Posting"). What can go wrong all the same (a device that dies, a medium that fails) is kept for
//! the next call that waits.

use crate::buf::Payload;
use crate::call::stage_input;
use crate::client::Client;
use crate::lease::{Lease, Posted};
use crate::queue::Queue;
use crate::raw::{Opened, Raw};
use std::cell::Cell;
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

/// How many blocks the device keeps for a write.
fn blocks_of(len: usize) -> u32 {
    len.div_ceil(BLOCK) as u32 + 1
}

impl Raw<'_> {
    /// openat(2) as [`Raw::openat`], and the write lease of what was opened, if the device grants it: not where another
    /// open file has it, not with O_SYNC or O_DSYNC, and only by a device of one core in a process of its own. A lease
    /// ends with its handle.
    pub fn open_leased(
        &self,
        base: Handle,
        path: &[u8],
        flags: OpenFlags,
        mode: u32,
    ) -> Result<(Opened, Option<Arc<Lease>>), Errno> {
        if self.parts().2.durability == Durability::Durable {
            return self.openat(base, path, flags, mode, 0).map(|opened| (opened, None));
        }
        let place = Cell::new((0, 0));
        let build = |[path]: [PoolRange; 1]| Op::Open { base, path, flags, mode: mode & 0o7777, placeholder: 0 };
        let cqe = self.asking(&place).act([path.into()], build)?;
        let has = |bit: u64| cqe.result2 & bit != 0;
        let opened = Opened { handle: Handle::from_wire(cqe.result), mode: cqe.result2 as u32, created: has(CREATED) };
        let lease = Lease::granted(&cqe, place.get());
        Ok((opened, lease))
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
            let command = Command::new(0, build(range)).with_durability(how.durability).posted();
            lease.blocks.fetch_add(blocks, Ordering::Relaxed);
            queue.post(&command, Posted { range, lease: lease.clone(), blocks, writes })?;
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
