//! Reads whose bytes stay as they are for as long as the device vouches for them (docs/COMMANDS.md, "Looks").

use crate::asked::Asked;
use crate::look::Watch;
use crate::queue::Queue;
use crate::raw::Raw;
use weldfs_ciscops::command::At;
use weldfs_ciscops::interp::{ANEW, WATCHED};
use weldfs_ciscops::{Command, Errno, Handle, Op, PoolRange, SharedBytes};

/// By what it is known that the bytes which reads brought are as they were. Thread-safe.
#[derive(Debug)]
pub struct Watched(Watch);

impl Watched {
    /// Whether nothing about the file has changed: what is told of those bytes after this was true at this moment.
    /// False once `WATCH_NS` have passed since the last of the reads, too; the next one may find that it still holds.
    #[inline]
    pub fn is_current(&self) -> bool {
        self.0.stands()
    }
}

/// What bytes that were read are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// Under the watch of those before them, and all of these are current.
    GoesOn,
    /// Under a watch of their own: what was read before is of no use any more.
    Anew,
    /// What the file had when it was read, and no more than that.
    No,
}

impl Raw<'_> {
    /// pread(2) of at most `len` bytes, one payload: `take` is called with those that were found (fewer only at the
    /// end of the file), and what they are. `watched` is by what earlier reads of this handle by this thread are
    /// current; what it is after this one stands there afterwards, also where that is an error. Takes no memory of the
    /// process. `None`, and nothing has happened, where there is no room for it now. Errors as pread(2); EINVAL from
    /// 2^58 on.
    pub fn read_watched<R>(
        &self,
        (h, offset, len): (Handle, u64, u32),
        watched: &mut Option<Watched>,
        take: impl FnOnce(SharedBytes<'_>, Kept) -> R,
    ) -> Result<Option<R>, Errno> {
        let (client, session, _) = self.parts();
        client.with_queue(session, 0, |queue| {
            let again = watched.as_ref().and_then(|w| queue.again(&w.0));
            let asked = match again {
                Some(number) => Asked::again(queue, number, len),
                None => Asked::reads(queue, len),
            };
            if asked.watch == 0 {
                return Ok(None);
            }
            let done = execute(queue, (h, offset), &asked, watched, take);
            queue.free(asked.room);
            if done.is_err() {
                *watched = None;
            }
            done.map(Some)
        })?
    }
}

fn execute<R>(
    queue: &mut Queue,
    (h, offset): (Handle, u64),
    asked: &Asked,
    watched: &mut Option<Watched>,
    take: impl FnOnce(SharedBytes<'_>, Kept) -> R,
) -> Result<R, Errno> {
    let op = Op::Read { h, at: At::Offset(offset), out: asked.room, watch: asked.watch };
    let (n, said) = queue.execute(&Command::new(0, op))?.ok()?;
    // The device is asked for no more than that.
    let n = (n as u32).min(asked.room.len);
    let kept = match watched {
        _ if said & WATCHED == 0 => Kept::No,
        // It may have been granted again under a number that was asked for as another's.
        Some(_) if said & ANEW == 0 && asked.is_again => Kept::GoesOn,
        _ => Kept::Anew,
    };
    match (kept, &mut *watched) {
        (Kept::GoesOn, Some(watch)) => asked.go_on(queue, &mut watch.0),
        (Kept::Anew, _) => *watched = asked.watch(queue).map(Watched),
        _ => *watched = None,
    }
    let kept = if watched.is_some() { kept } else { Kept::No };
    Ok(take(queue.pool().slice(PoolRange::new(asked.room.off, n))?, kept))
}
