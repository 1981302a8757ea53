//! Asking for a look or a listing: a watch of the queue pair, and room for what comes along.

use crate::look::{Look, Watch};
use crate::queue::Queue;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weldfs_ciscops::interp::{WATCHED, WHOLE};
use weldfs_ciscops::limits::{LOOK_MAX, WATCH_NS};
use weldfs_ciscops::{Cqe, Errno, OpenFlags, PoolRange, StatBody};
use zerocopy::FromBytes;

const HEAD: usize = size_of::<StatBody>();

/// What a command asks for.
pub(crate) struct Asked {
    /// Where its answer goes.
    pub(crate) room: PoolRange,
    /// The number of the watch, from 1; 0: nothing is asked for.
    pub(crate) watch: u32,
    /// It is asked for one that it has.
    pub(crate) is_again: bool,
    until: Instant,
}

impl Asked {
    /// Nothing.
    pub(crate) fn none() -> Asked {
        Asked { room: PoolRange::EMPTY, watch: 0, is_again: false, until: Instant::now() }
    }

    /// Attributes, and where the file is read, its content. Nothing where there is no room for it now.
    pub(crate) fn of(queue: &mut Queue, flags: OpenFlags) -> Asked {
        let content = flags.contains(OpenFlags::READ) && !flags.contains(OpenFlags::DIRECTORY);
        Asked::bytes(queue, if content { LOOK_MAX } else { HEAD as u32 })
    }

    /// A watch, with room for so many bytes.
    pub(crate) fn bytes(queue: &mut Queue, bytes: u32) -> Asked {
        Asked::free(queue, bytes, false)
    }

    /// The same for reads that may go on.
    pub(crate) fn reads(queue: &mut Queue, bytes: u32) -> Asked {
        Asked::free(queue, bytes, true)
    }

    fn free(queue: &mut Queue, bytes: u32, for_reads: bool) -> Asked {
        let now = Instant::now();
        match queue.looks().free(now, for_reads) {
            Some(watch) => Asked::numbered(queue, (watch, now), bytes),
            None => Asked::none(),
        }
    }

    /// A watch that this client has, for longer, with room for so many bytes.
    pub(crate) fn again(queue: &mut Queue, number: u32, bytes: u32) -> Asked {
        Asked { is_again: true, ..Asked::numbered(queue, (number, Instant::now()), bytes) }
    }

    fn numbered(queue: &mut Queue, (number, now): (u32, Instant), bytes: u32) -> Asked {
        let Ok(room) = queue.alloc(bytes) else { return Asked::none() };
        Asked { room, watch: number + 1, is_again: false, until: now + Duration::from_nanos(WATCH_NS) }
    }

    /// The watch was granted for longer.
    pub(crate) fn go_on(&self, queue: &mut Queue, watch: &mut Watch) {
        queue.looks().go_on(watch, self.until);
    }

    /// What came with an open's answer. The range goes back in any case.
    pub(crate) fn take(self, queue: &mut Queue, answer: &Result<Cqe, Errno>) -> Option<Arc<Look>> {
        let bits = answer.as_ref().ok().filter(|cqe| cqe.ok().is_ok()).map_or(0, |cqe| cqe.result2);
        let look = if bits & WATCHED != 0 { self.read(queue, bits & WHOLE != 0) } else { None };
        queue.free(self.room);
        look.map(Arc::new)
    }

    /// The watch, which was granted: in use from now on.
    pub(crate) fn watch(&self, queue: &mut Queue) -> Option<Watch> {
        let memory = queue.memory().clone();
        queue.looks().begin(memory, self.watch.checked_sub(1)?, self.until)
    }

    fn read(&self, queue: &mut Queue, whole: bool) -> Option<Look> {
        let room = queue.pool().slice(self.room).ok()?;
        let mut head = [0; HEAD];
        room.sub(0, HEAD).copy_to(&mut head);
        let body = StatBody::read_from_bytes(&head).ok()?;
        let fits = whole && body.size <= (room.len() - HEAD) as u64;
        let bytes = fits.then(|| room.sub(HEAD, body.size as usize).to_vec().into_boxed_slice());
        Some(Look::new(body, bytes, self.watch(queue)?))
    }
}
