//! `open_write_close` of a file that it creates.

use super::*;
use crate::InodeSet;
use crate::namespace::fresh_inode;
use crate::resolve::{Comp, Found, Last, start_inode};
use std::sync::Arc;
use weldfs_ciscops::PoolRange;
use weldfs_ciscops::dirent::dtype;
use weldfs_ciscops::interp::CREATED;
use weldfs_store::record::InodeRec;

/// What it is to create, and what goes into it.
struct Asked {
    flags: OpenFlags,
    mode: u32,
    off: u64,
    src: PoolRange,
    life: Life,
}

/// Plans it, under its `set`, at time `now`; `None` also where the name is there.
pub fn plan_create<'a>(
    store: &'a Store,
    session: &dyn SessionView,
    pool: &SharedRegion,
    (cmd, path): (&Command, &[u8]),
    set: &InodeSet,
    now: (i64, u32),
) -> Option<Changed<'a>> {
    let Op::OpenWriteClose { base, flags, mode, at, src, .. } = cmd.op else { return None };
    if in_steps(cmd) {
        return None;
    }
    let other = OpenFlags::TMPFILE | OpenFlags::DIRECTORY | OpenFlags::PATH;
    if !flags.contains(OpenFlags::CREATE) || flags.intersects(other) || !flags.access().contains(Access::WRITE) {
        return None;
    }
    let off = match at {
        At::Offset(off) if !flags.contains(OpenFlags::APPEND) => off,
        At::Current => return None,
        _ => 0,
    };
    let follows = !flags.intersects(OpenFlags::EXCL | OpenFlags::NOFOLLOW);
    let last = if follows { Last::Follow } else { Last::NoFollow };
    let walked = set.walked(store, start_inode(session, base, path).ok()?, path, last)?;
    let (found, slot) = (&*walked.found, walked.slot);
    let plain = found.rec.is_none() && found.comp == Comp::Normal && !found.slash && !path.ends_with(b"/");
    // The caller may make a name there, or the set would hold the directory with others.
    if !plain || !set.covers(found.dir.ino, Hold::Exclusive) || set.withholds() || !set.insisted().is_empty() {
        return None;
    }
    let known = Some(slot).filter(|s| s.0 == found.dir.ino && s.1 != 0 && store.in_bucket_of(s.1, &found.name));
    let cookie = known.map_or_else(|| store.dirent_slot(found.dir.ino, &found.name), |s| Ok(s.1)).ok()?;
    let asked = Asked { flags, mode, off, src, life: cmd.hints.life };
    create(store, session, pool, (&asked, &cmd.op), (found, cookie), Time { sec: now.0, nsec: now.1 })
}

fn create<'a>(
    store: &'a Store,
    session: &dyn SessionView,
    pool: &SharedRegion,
    (asked, op): (&Asked, &Op),
    (found, cookie): (&Found, u64),
    now: Time,
) -> Option<Changed<'a>> {
    let (src, off, cred) = (pool.slice(asked.src).ok()?, asked.off, session.cred());
    let inline = src.len() <= store.inline_max();
    let mut rec = fresh_inode(&found.dir, cred, (perm::IFREG, asked.mode), now);
    let (counters, ordinary, life) = (OpCounters::default(), cred.uid != 0, asked.life);
    let file = OpenFile { ino: InodeNo(0), flags: asked.flags, offset: 0 };
    let mut line = Line { store, file, size: 0, mode: rec.mode, now, life, ordinary, inline, fresh: true, counters };
    let mut plan = line.begin(off, src.len(), 2 * found.name.len())?;
    line.number(&mut rec);
    let mut gathered = Gathered::default();
    line.gather(&mut plan, &mut gathered, off, src, false).ok()?;
    rec.size = off + src.len() as u64;
    if ordinary && rec.mode & (perm::ISUID | perm::ISGID) != 0 {
        rec.mode = perm::without_privileges(rec.mode);
    }
    let (dir, ino, ftype) = (found.dir.ino, rec.ino, dtype::from_mode(rec.mode));
    plan.push(Effect::PutInode(Box::new(rec)));
    plan.push(Effect::PutDirent { dir, cookie, ino, ftype, mark: 0, name: Arc::from(&found.name[..]) });
    line.content(&mut plan, gathered).ok()?;
    let touched = AttrDelta { mtime: now, ctime: now, mask: attr::MTIME | attr::CTIME, ..AttrDelta::new(dir) };
    plan.push(Effect::SetAttr(touched));
    let outcome = fused(op, src.len() as u64, off | CREATED);
    Some(Changed { plan, outcome, counters: line.counters, cursor: None })
}

impl Line<'_> {
    /// Gives what is created its number.
    fn number(&mut self, rec: &mut InodeRec) {
        (rec.ino, rec.generation) = self.store.fresh_number(self.now);
        self.file.ino = rec.ino;
    }
}
