//! One command from its tickets to its outcome.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{FlockOperation, fdatasync, flock, fstat, fsync, syncfs};
use weldfs_ciscops::limits::SNAPSHOT_MAX;
use weldfs_ciscops::{
    Access, ChecksumState, Command, Errno, Handle, InodeNo, LockAction, LockBody, LockKind, LockSpace, Op, OpenFlags,
    Outcome, Placement, SharedRegion, TxnMode, interp,
};
use weldfs_scheduler::{Mode, Token};
use zerocopy::IntoBytes;

use super::core::Core;
use super::cost;
use super::scratch::{PIECE, Scratch};
use super::session::{HostFile, SessionState};
use super::sys;
use super::txn::HostTxn;
use super::work::{Done, Progress, Work, answer};
use super::{data, listing, rehearsal};
use weldfs_session::locks::{Held, Owner, Space, Span};
use weldfs_session::ofd::Description;
use weldfs_session::sets::{Tickets, members};

/// What a command is answered that is not to be begun.
pub(super) fn refused(core: &Core, work: &Work) -> Option<Done> {
    #[cfg(test)]
    core.faults.run();
    let begun = !matches!(*work.progress.lock(), Progress::Begin);
    if !core.goes_on(&work.queue.session, &work.cmd.op, begun) {
        // Its client is gone, and nothing of it was promised.
        return Some(answer(Err(Errno::INTR)));
    }
    if work.cmd.detectable || (work.cmd.mode == TxnMode::Macro && cost::is_fused_change(work)) {
        // Nothing here outlives a crash that could tell what became of it, and nothing is taken back.
        return Some(answer(Err(Errno::OPNOTSUPP)));
    }
    // There is no card beside a directory of the host.
    let named = work.paths.program.as_ref().is_some_and(|p| p.names_kernel());
    if named || matches!(work.cmd.placement, Placement::Slot { .. }) {
        return Some(answer(Err(Errno::OPNOTSUPP)));
    }
    None
}

/// Runs a command that is no batch, or a slice of it: `None` when there is more of it.
pub(super) async fn run(core: &Core, work: &Work, scratch: &mut Scratch) -> Option<Done> {
    if let Some(done) = refused(core, work) {
        return Some(done);
    }
    let cx = Cx { core, work };
    match work.cmd.op {
        Op::ChecksumRange { h, offset, len, .. } => cx.checksum(h, offset, len, scratch).await.map(answer),
        Op::ReadDirPlus { h, cookie, out, .. } => listing::run(core, work, (h, cookie, out), scratch).await,
        _ => cx.whole(scratch).await,
    }
}

impl<'c> Cx<'c> {
    /// What is cut at its beginning only.
    async fn whole(&self, scratch: &mut Scratch) -> Option<Done> {
        let (core, cx) = (self.core, self);
        Some(match self.work.cmd.op {
            Op::Nop => answer(Ok((0, 0))),
            Op::Syncfs => cx.synced(scratch, || syncfs(&core.root).map_err(Errno::from)),
            Op::Fsync { h } => cx.sync(h, scratch, |d| fsync(&d.body.fd)).await,
            Op::Fdatasync { h } => cx.sync(h, scratch, |d| fdatasync(&d.body.fd)).await,
            Op::Close { h } => answer(cx.close(h, scratch).await),
            Op::SetFlags { h, flags } => answer(cx.set_flags(h, flags, scratch).await),
            Op::Lock { .. } => answer(cx.lock(scratch).await),
            Op::SetKey { kind, bytes } => {
                answer(cx.work.queue.session.keys.set(kind, bytes, &cx.work.queue.pool).map(|key| (key, 0)))
            }
            Op::DropKey { key } => answer(cx.work.queue.session.keys.forget(key).map(|()| (0, 0))),
            Op::Outcome { .. } => answer(Err(Errno::OPNOTSUPP)),
            // Nothing could be taken back when a write of several fails midway.
            Op::TxnBegin | Op::TxnWrite { .. } | Op::TxnCommit { .. } | Op::TxnAbort { .. } => {
                answer(Err(Errno::OPNOTSUPP))
            }
            // Its elements are run one by one (`sequence`), and are no batches themselves.
            Op::Batch { .. } => answer(Err(Errno::INVAL)),
            // A file of the host has no place for a spec that every tool of the host would keep.
            Op::VirtRegister { .. } | Op::VirtSpec { .. } | Op::VirtParams { .. } => answer(Err(Errno::OPNOTSUPP)),
            _ => return cx.file_system(scratch).await,
        })
    }
}

struct Cx<'c> {
    core: &'c Core,
    work: &'c Work,
}

impl<'c> Cx<'c> {
    fn session(&self) -> &'c SessionState {
        &self.work.queue.session
    }

    fn pool(&self) -> &'c SharedRegion {
        &self.work.queue.pool
    }

    /// Holds one inode.
    async fn hold(&self, ino: InodeNo, mode: Mode, scratch: &mut Scratch) -> Tickets<'c> {
        let mut tickets = self.place(ino, mode);
        if !tickets.running() {
            scratch.wait();
        }
        tickets.start().await;
        tickets
    }

    /// Its place among those of an inode; the next command of the ring may follow.
    fn place(&self, ino: InodeNo, mode: Mode) -> Tickets<'c> {
        let sets = &self.core.sets;
        let tickets = sets.place(sets.arrive(), Token(0), members([(ino.0, mode)]));
        self.core.settle(self.work);
        tickets
    }

    fn synced(&self, scratch: &mut Scratch, sync: impl FnOnce() -> Result<(), Errno>) -> Done {
        self.core.flushes.fetch_add(1, Ordering::Relaxed);
        scratch.wait();
        Done { synced: true, ..answer(sync().map(|()| (0, 0))) }
    }

    /// Makes what is behind a handle durable, with what earlier commands of this ring did to it.
    async fn sync(
        &self,
        h: Handle,
        scratch: &mut Scratch,
        call: impl Fn(&Description<HostFile>) -> rustix::io::Result<()>,
    ) -> Done {
        if h == Handle::ROOT {
            self.core.settle(self.work);
            return self.synced(scratch, || syncfs(&self.core.root).map_err(Errno::from));
        }
        let description = match self.session().description(h) {
            Ok(d) => d,
            Err(e) => return answer(Err(e)),
        };
        drop(self.hold(description.ino, Mode::Shared, scratch).await);
        self.synced(scratch, || call(&description).map_err(Errno::from))
    }

    async fn close(&self, h: Handle, scratch: &mut Scratch) -> Result<(u64, u64), Errno> {
        let description = self.session().description(h)?;
        let held = self.hold(description.ino, Mode::Exclusive, scratch).await;
        let (session, locks) = (self.session(), &self.core.files.locks);
        if !locks.is_empty() {
            // POSIX: closing any descriptor of a file gives back the process's locks on it.
            locks.release(description.ino, |o| matches!(o, Owner::Process { session: s, .. } if *s == session.id));
        }
        if session.handles.close(h)? {
            self.core.watch_placeholders();
        }
        drop(held);
        Ok((0, 0))
    }

    async fn set_flags(&self, h: Handle, flags: OpenFlags, scratch: &mut Scratch) -> Result<(u64, u64), Errno> {
        let description = self.session().description(h)?;
        let held = self.hold(description.ino, Mode::Exclusive, scratch).await;
        if flags.contains(OpenFlags::NOATIME) && !description.flags().contains(OpenFlags::NOATIME) {
            let (owner, uid) = (fstat(&description.body.fd)?.st_uid, self.session().cred.uid);
            if uid != 0 && uid != owner {
                return Err(Errno::PERM);
            }
        }
        description.set_flags(flags);
        drop(held);
        Ok((u64::from(description.flags().bits()), 0))
    }

    /// Locks between clients stand in the table of the device's kind; those of an open file description are taken on
    /// the host as well, so that its other programs see them and are seen.
    async fn lock(&self, scratch: &mut Scratch) -> Result<(u64, u64), Errno> {
        let Op::Lock { h, action, kind, space, start, len, owner, out } = self.work.cmd.op else {
            return Err(Errno::INVAL);
        };
        let description = self.session().description(h)?;
        if description.flags().contains(OpenFlags::PATH) {
            return Err(Errno::BADF);
        }
        let who = match space {
            LockSpace::Process => Owner::Process { session: self.session().id, owner },
            LockSpace::OpenFile | LockSpace::Flock => Owner::File(description.id),
        };
        let table = if space == LockSpace::Flock { Space::Whole } else { Space::Ranges };
        let span = if space == LockSpace::Flock { Span::ALL } else { Span::new(start, len)? };
        let want = Held { owner: who, tenant: self.session().tenant.id.0, span, exclusive: kind == LockKind::Write };
        let (files, locks, ino) = (&self.core.files, &self.core.files.locks, description.ino);
        let _held = self.hold(ino, Mode::Exclusive, scratch).await;
        match (action, kind) {
            (LockAction::Get, _) => {
                let found = files.in_the_way(ino, table, &want);
                if !out.is_empty() {
                    self.pool().slice(out)?.copy_from(lock_body(found, start, len).as_bytes());
                }
                return Ok((u64::from(found.is_some()), 0));
            }
            (LockAction::Set, LockKind::Unlock) => {
                locks.may_unlock(ino, table, who, span)?;
                on_host(&description, space, kind, start, len)?;
                locks.unlock(ino, table, who, span)?;
            }
            (LockAction::Set, _) => {
                let need = if want.exclusive { Access::WRITE } else { Access::READ };
                if table == Space::Ranges && !description.flags().access().contains(need) {
                    return Err(Errno::BADF);
                }
                // The table first, and only asked: while this holds the inode, it says the same afterwards, so nothing
                // that the host has granted has to be given back.
                files.may_lock(ino, table, &want)?;
                let asked = match on_host(&description, space, kind, start, len) {
                    Err(Errno::AGAIN) => {
                        // It may be what another thread is letting go of, whose descriptor is about to be closed.
                        files.settle();
                        on_host(&description, space, kind, start, len)
                    }
                    asked => asked,
                };
                if let Err(e) = asked {
                    if space == LockSpace::Flock {
                        self.keep_lock(&description, who);
                    }
                    return Err(e);
                }
                locks.set(ino, table, want, &self.session().tenant.payer())?;
            }
        }
        Ok((0, 0))
    }

    /// Sums up a range, however long: in snapshots of at most 8 MiB, between which others may write; a slice is one.
    async fn checksum(
        &self,
        h: Handle,
        off: u64,
        len: u64,
        scratch: &mut Scratch,
    ) -> Option<Result<(u64, u64), Errno>> {
        if len > SNAPSHOT_MAX && self.session().closing() {
            // Nothing is left to answer, and a sparse file may be very long.
            return Some(Err(Errno::INTR));
        }
        let progress = std::mem::take(&mut *self.work.progress.lock());
        let begun = match progress {
            Progress::Sum(description, done, sum) => Ok((description, done, sum)),
            _ => self.summable(h).map(|description| (description, 0, ChecksumState::new())),
        };
        let (description, mut done, mut sum) = match begun {
            Ok(begun) => begun,
            Err(e) => return Some(Err(e)),
        };
        let want = (len - done).min(SNAPSHOT_MAX);
        // (The thread that looks at rings waits for no turn.)
        if want > PIECE as u64 && self.work.away {
            scratch.take_turn(self.core, self.work, true);
        }
        let got = self.snapshot(&description, (off + done, want), &mut sum, scratch).await;
        // What comes after it in a batch may be waited for.
        scratch.turn = None;
        let got = match got {
            Ok(got) => got,
            Err(e) => return Some(Err(e)),
        };
        done += got;
        if got == want && done < len {
            *self.work.progress.lock() = Progress::Sum(description, done, sum);
            return None;
        }
        if self.work.cmd.after_durable
            && let Err(e) = {
                scratch.wait();
                fdatasync(&description.body.fd)
            }
        {
            return Some(Err(e.into()));
        }
        Some(Ok((done, sum.value().into())))
    }

    /// The host gives up a lock of a file before it refuses to change its kind: it is taken anew, or else the client
    /// has it no more here, either.
    fn keep_lock(&self, d: &Arc<Description<HostFile>>, who: Owner) {
        let locks = &self.core.files.locks;
        let Some(held) = locks.held_by(d.ino, Space::Whole, who) else { return };
        let kind = if held.exclusive { LockKind::Write } else { LockKind::Read };
        if on_host(d, LockSpace::Flock, kind, 0, 0).is_err() {
            // The whole of it, which is never the middle.
            let _ = locks.unlock(d.ino, Space::Whole, who, Span::ALL);
        }
    }

    fn summable(&self, h: Handle) -> Result<Arc<Description<HostFile>>, Errno> {
        if h == Handle::ROOT {
            return Err(Errno::ISDIR);
        }
        let description = self.session().description(h)?;
        let flags = description.flags();
        if flags.contains(OpenFlags::PATH) || !flags.contains(OpenFlags::READ) {
            return Err(Errno::BADF);
        }
        Ok(description)
    }

    /// Sums up what is there at one moment: how many bytes there were. Where it would have to wait, for the file or for
    /// the host's medium, it gives its turn at the processors up.
    async fn snapshot(
        &self,
        description: &Description<HostFile>,
        (off, want): (u64, u64),
        sum: &mut ChecksumState,
        scratch: &mut Scratch,
    ) -> Result<u64, Errno> {
        let mut tickets = self.place(description.ino, Mode::Shared);
        if !tickets.running() {
            scratch.wait();
        }
        tickets.start().await;
        let mut got = 0;
        while got < want {
            if self.work.away {
                scratch.breathe(self.core);
            }
            let piece = (want - got).min(PIECE as u64) as usize;
            let buffer = &mut scratch.piece[..piece];
            let memory = self.core.in_memory;
            let in_turn = scratch.turn.is_some();
            let cached = in_turn.then(|| data::read_cached(&description.body.fd, buffer, off + got, memory)).flatten();
            let n = match cached {
                Some(n) => n,
                None => {
                    scratch.turn = None;
                    data::read_at(&description.body.fd, &mut scratch.piece[..piece], off + got)?
                }
            };
            sum.update(&scratch.piece[..n]);
            got += n as u64;
            if n < piece {
                break;
            }
        }
        Ok(got)
    }

    /// Every command that runs over a transaction.
    async fn file_system(&self, scratch: &mut Scratch) -> Option<Done> {
        let work = self.work;
        let durable = cost::wants_durable(self.core, work);
        // Nothing is taken back here, so what was done before a failure stands, and the completion says so.
        let cmd = Command { mode: TxnMode::Micro, ..work.cmd };
        if let Some(program) = work.paths.program.as_ref().filter(|p| p.computes().is_some()) {
            return Box::pin(rehearsal::run(self.core, work, (&cmd, program), durable, scratch)).await;
        }
        let mut txn = HostTxn::new(self.core, work, scratch, durable);
        txn.prepare().await;
        let outcome = match txn.way.left {
            true => Outcome::default(),
            false => interp::run(&cmd, &work.paths, &work.queue.pool, &mut txn).await,
        };
        if txn.way.left {
            *work.progress.lock() = Progress::Away;
            return None;
        }
        Some(txn.end(outcome))
    }
}

fn lock_body(found: Option<Held>, start: u64, len: u64) -> LockBody {
    match found {
        None => LockBody { kind: LockKind::Unlock as u8, start, len, ..LockBody::default() },
        Some(f) => LockBody {
            start: f.span.start,
            len: f.span.length(),
            owner: if let Owner::Process { owner, .. } = f.owner { owner } else { u64::MAX },
            kind: if f.exclusive { LockKind::Write } else { LockKind::Read } as u8,
            ..LockBody::default()
        },
    }
}

/// The same lock on the host, for the spaces whose owner the host knows: the open file description.
fn on_host(
    d: &Arc<Description<HostFile>>,
    space: LockSpace,
    kind: LockKind,
    start: u64,
    len: u64,
) -> Result<(), Errno> {
    match space {
        LockSpace::Process => Ok(()),
        LockSpace::OpenFile => {
            let kind = match kind {
                LockKind::Read => libc::F_RDLCK,
                LockKind::Write => libc::F_WRLCK,
                LockKind::Unlock => libc::F_UNLCK,
            };
            sys::lock_range(&d.body.fd, kind, start, len)
        }
        LockSpace::Flock => {
            let how = match kind {
                LockKind::Read => FlockOperation::NonBlockingLockShared,
                LockKind::Write => FlockOperation::NonBlockingLockExclusive,
                LockKind::Unlock => FlockOperation::Unlock,
            };
            Ok(flock(&d.body.fd, how)?)
        }
    }
}
