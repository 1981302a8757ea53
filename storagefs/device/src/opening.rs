//! What a command opened: its description and handle; and of a virtual file what it streams: its spec is looked at, its
//! paths are walked with the opener's rights, their ranges are pinned.

use std::sync::Arc;

use weldfs_ciscops::virt::TO_END;
use weldfs_ciscops::{Access, Direction, Errno, OpenFlags, VirtRange, VirtSpec};
use weldfs_locks::Mutex;
use weldfs_scheduler::Mode;

use super::core::Core;
use super::opcx::OpCx;
use super::open::{Description, OpenInode, Part, Virtual};
use super::session::SessionState;
use super::stream::Stream;
use weldfs_fs::strides::Strides;
use weldfs_fs::{Finished, OpenedInfo, SessionView, perm, virt};
use weldfs_store::error::{FsError, FsResult};
use weldfs_store::record::InodeRec;

/// The description of what a command opened. Before the commit, so that a nameless file is held open from its first
/// moment.
pub(super) fn described(
    core: &Core,
    session: &SessionState,
    f: &Finished<'_>,
) -> FsResult<Option<(OpenedInfo, Arc<Description>)>> {
    let Some(o) = f.opened else { return Ok(None) };
    if o.placeholder != 0 && !session.handles.has_placeholder(o.placeholder) {
        return Err(Errno::INVAL.into());
    }
    let held = OpenInode::new(&core.store, o.ino);
    Ok(Some((o, core.files.describe(o.ino, kept_flags(o.flags), held)?)))
}

/// From now on a handle, and a placeholder, stand for the description.
pub(super) fn installed(core: &Core, session: &SessionState, o: &OpenedInfo, description: Arc<Description>) {
    if let Some(p) = session.handles.take_placeholder(o.placeholder) {
        core.files.bind(p, &description);
    }
    session.handles.fill(o.handle, description);
}

fn kept_flags(flags: OpenFlags) -> OpenFlags {
    flags.difference(OpenFlags::CREATE | OpenFlags::EXCL | OpenFlags::TRUNC | OpenFlags::NOFOLLOW)
}

/// Makes what the description needs to stream. Nothing is held when it is called, and nothing but one real file at a
/// time while it runs.
pub(super) async fn open_virtual(cx: &OpCx<'_>, d: &Arc<Description>) -> Result<(), Errno> {
    let opened = parts(cx, d).await;
    let file = opened.map_err(|e| {
        cx.core.store.damage().note_error(&e, "open", Some(&cx.paths.a));
        Errno::from(&e)
    })?;
    d.body.set_virt(file, &cx.core.virtuals);
    Ok(())
}

async fn parts(cx: &OpCx<'_>, d: &Description) -> FsResult<Virtual> {
    let spec = cold(cx, || virt::spec_of(&cx.core.store, d.ino)).await?;
    let (wants, way) = (d.flags().access(), direction(&spec));
    if wants != way {
        return Err(Errno::PERM.into());
    }
    if way == Access::WRITE && cx.core.store.is_read_only() {
        return Err(Errno::ROFS.into());
    }
    known(cx.core, &spec)?;
    let want = if way == Access::READ { perm::R } else { perm::W };
    let mut parts = Vec::with_capacity(spec.ranges.len());
    for range in &spec.ranges {
        let mut strides = Strides::default();
        let store = &cx.core.store;
        let found = cold(cx, || virt::find(store, cx.session(), &range.path, want, &mut strides)).await?;
        parts.push(part(cx, range, &found, want, d.id).await?);
    }
    let stream = Mutex::new(Stream::new(&spec, d.flags().contains(OpenFlags::NONBLOCK)));
    Ok(Virtual { spec, parts, stream })
}

/// The access that a spec allows.
fn direction(spec: &VirtSpec) -> Access {
    if spec.direction == Direction::Read { Access::READ } else { Access::WRITE }
}

/// Whether the drive has such a kernel.
fn known(core: &Core, spec: &VirtSpec) -> Result<(), Errno> {
    core.card.check(&spec.kernel).map_err(|e| e.errno())
}

/// One real file: looked at again while no other command can change it, and pinned.
async fn part(cx: &OpCx<'_>, range: &VirtRange, found: &InodeRec, want: u32, owner: u64) -> FsResult<Part> {
    let store = &cx.core.store;
    // First, so that it does not go meanwhile.
    let file = OpenInode::new(store, found.ino);
    let held = cx.hold(found.ino, Mode::Shared).await;
    let rec = cold(cx, || store.inode(found.ino)).await?;
    let rec = rec.filter(|rec| rec.generation == found.generation).ok_or(Errno::NOENT)?;
    virt::may_stream(&rec, cx.session().cred(), want)?;
    let end = match range.length {
        TO_END if want == perm::R => rec.size,
        TO_END => weldfs_fs::FILE_BYTES_MAX,
        length => range.offset + length,
    };
    if end < range.offset || want == perm::R && end > rec.size {
        return Err(Errno::NODATA.into());
    }
    let part = Part { file, from: range.offset, to: end, owner, pin: Mutex::default() };
    part.pin(store);
    drop(held);
    cx.core.board.unboost(cx.at);
    Ok(part)
}

/// Runs `f` until it misses nothing.
async fn cold<T>(cx: &OpCx<'_>, mut f: impl FnMut() -> FsResult<T>) -> FsResult<T> {
    loop {
        match f() {
            Err(FsError::Miss(m)) => cx.core.io.fetch(m, cx.queue.tenant.id).await?,
            Err(FsError::Turn) => {
                cx.boundary().await;
                cx.still()?;
            }
            other => return other,
        }
    }
}
