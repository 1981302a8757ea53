//! Commands that the session answers without a transaction: sync, close, flags of a description, advisory locks.

use weldfs_ciscops::{
    Access, Errno, Handle, InodeNo, KeyKind, LockAction, LockBody, LockKind, LockSpace, Op, OpenFlags, PoolRange,
};
use weldfs_scheduler::Mode;
use zerocopy::IntoBytes;

use super::core::Core;
use super::done::Done;
use super::held::Before;
use super::opcx::{OpCx, answer, durable, failed};
use super::session::{QueueState, SessionState};
use weldfs_fs::{HandleTable, SessionView, perm};
use weldfs_session::locks::{Held, Owner, Space, Span};
use weldfs_store::error::FsError;

/// fsync, fdatasync (of what is behind a handle) and syncfs: everything up to now becomes durable.
pub(super) async fn sync(cx: &OpCx<'_>, h: Option<Handle>) -> Result<(u64, u64), Errno> {
    // Kept: its ring may close the handle while this waits.
    let description = h.filter(|h| *h != Handle::ROOT).map(|h| cx.description(h)).transpose()?;
    if let Some(file) = &description {
        // Commands of this ring on this inode that came before have committed once the ticket is granted.
        drop(cx.hold(file.ino, Mode::Shared).await);
    }
    cx.admitted_nowhere();
    let mut before = Before::of(cx.core.sets.arrive());
    while h.is_none()
        && let Some(mark) = before.next_of_all(cx)
    {
        mark.passed(cx).await;
    }
    // What stands aside heads its queues first; it need not have committed: of what is not over, nothing is promised.
    cx.queue.aside.turn(cx.position).await;
    // After a failure no client is told that all is well, not even where nothing was left to flush.
    if cx.core.store.medium().is_poisoned() {
        return Err(Errno::IO);
    }
    durable(cx, cx.core.store.journal().owned_end()).await?;
    description.map_or(Ok(()), |d| d.written())?;
    Ok((0, 0))
}

/// Gives a handle up.
pub(super) async fn close(cx: &OpCx<'_>, h: Handle) -> Result<(u64, u64), Errno> {
    let file = cx.session().handle(h)?;
    let held = cx.hold(file.ino, Mode::Exclusive).await;
    close_held(cx.core, cx.session(), (h, file.ino), cx.cmd.is_posted(), || drop(held))
}

/// The same under the inode's ticket, which `released` gives back.
pub(super) fn close_held(
    core: &Core,
    session: &SessionState,
    (h, ino): (Handle, InodeNo),
    posted: bool,
    released: impl FnOnce(),
) -> Result<(u64, u64), Errno> {
    if !core.files.locks.is_empty() && !posted {
        // POSIX: closing any descriptor of a file gives back the process's locks on it. A close is posted by a client
        // that has none: what another thread of its has locked since is not to be lost by that.
        let id = session.id;
        core.files.locks.release(ino, |o| matches!(o, Owner::Process { session: s, .. } if *s == id));
    }
    let written = session.handles.with(h, |d| d.written()).unwrap_or(Ok(()));
    let watched = session.handles.close(h)?;
    core.leases.end(session.id, h, ino);
    core.watches.end(session.id, h, ino);
    released();
    if watched {
        core.maintenance.watch_placeholders();
    }
    core.note_reclaim();
    written.map(|()| (0, 0))
}

/// Changes the status flags of the description behind a handle.
pub(super) async fn set_flags(cx: &OpCx<'_>, h: Handle, flags: OpenFlags) -> Result<(u64, u64), Errno> {
    let description = cx.description(h)?;
    let held = cx.hold(description.ino, Mode::Exclusive).await;
    if flags.contains(OpenFlags::NOATIME) && !description.flags().contains(OpenFlags::NOATIME) {
        let rec = loop {
            match cx.core.store.inode(description.ino) {
                Err(FsError::Miss(m)) => cx.core.io.fetch(m, cx.queue.tenant.id).await.map_err(Errno::from)?,
                other => break other.map_err(Errno::from)?,
            }
        };
        if !rec.is_some_and(|rec| perm::is_owner(&rec, cx.session().cred())) {
            return Err(Errno::PERM);
        }
    }
    description.set_flags(flags);
    drop(held);
    Ok((u64::from(description.flags().bits()), 0))
}

/// Keeps a key for the session's programs.
pub(super) fn set_key(cx: &OpCx<'_>, kind: KeyKind, bytes: PoolRange) -> Result<(u64, u64), Errno> {
    cx.admitted_nowhere();
    cx.session().keys.set(kind, bytes, &cx.queue.pool).map(|name| (name, 0))
}

/// Forgets one.
pub(super) fn drop_key(cx: &OpCx<'_>, key: u64) -> Result<(u64, u64), Errno> {
    cx.admitted_nowhere();
    cx.session().keys.forget(key).map(|()| (0, 0))
}

/// Advisory locks; waits for no lock.
pub(super) async fn lock(cx: &OpCx<'_>) -> Done {
    let Op::Lock { h, .. } = cx.cmd.op else { return failed(Errno::INVAL) };
    let description = match cx.description(h) {
        Ok(description) => description,
        Err(errno) => return failed(errno),
    };
    // What its ring changes before an unlock is changed when another has the lock; and a handle that its ring closes
    // before is closed.
    let _held = cx.hold(description.ino, Mode::Exclusive).await;
    lock_held(cx.core, &cx.queue, &cx.cmd.op)
}

/// The same, with the inode held.
pub(super) fn lock_held(core: &Core, queue: &QueueState, op: &Op) -> Done {
    let mut done = answer(locked(core, queue, op));
    if let Op::Lock { out, .. } = op {
        // What is answered beside the numbers is one block.
        done.copied.metadata = u64::from(done.outcome.is_ok() && !out.is_empty());
    }
    done
}

fn locked(core: &Core, queue: &QueueState, op: &Op) -> Result<(u64, u64), Errno> {
    let Op::Lock { h, action, kind, space, start, len, owner, out } = *op else { return Err(Errno::INVAL) };
    let description = queue.session.handles.get(h)?;
    let flags = description.flags();
    if flags.contains(OpenFlags::PATH) {
        return Err(Errno::BADF);
    }
    let who = match space {
        LockSpace::Process => Owner::Process { session: queue.session.id, owner },
        LockSpace::OpenFile | LockSpace::Flock => Owner::File(description.id),
    };
    let table = if space == LockSpace::Flock { Space::Whole } else { Space::Ranges };
    let span = if space == LockSpace::Flock { Span::ALL } else { Span::new(start, len)? };
    let want = Held { owner: who, tenant: queue.tenant.id.0, span, exclusive: kind == LockKind::Write };
    let files = &core.files;
    match (action, kind) {
        (LockAction::Set, LockKind::Unlock) => files.locks.unlock(description.ino, table, who, span)?,
        (LockAction::Set, _) => {
            let grant = flags.access();
            let need = if want.exclusive { Access::WRITE } else { Access::READ };
            if table == Space::Ranges && !grant.contains(need) {
                return Err(Errno::BADF);
            }
            files.lock(description.ino, table, want, &queue.tenant.payer())?;
        }
        (LockAction::Get, _) => {
            let found = files.in_the_way(description.ino, table, &want);
            let body =
                found.map_or(LockBody { kind: LockKind::Unlock as u8, start, len, ..LockBody::default() }, |f| {
                    LockBody {
                        start: f.span.start,
                        len: f.span.length(),
                        owner: if let Owner::Process { owner, .. } = f.owner { owner } else { u64::MAX },
                        kind: if f.exclusive { LockKind::Write } else { LockKind::Read } as u8,
                        ..LockBody::default()
                    }
                });
            if !out.is_empty() {
                queue.pool.slice(out)?.copy_from(body.as_bytes());
            }
            return Ok((u64::from(found.is_some()), 0));
        }
    }
    Ok((0, 0))
}
