//! Operations on names: open, mkdir, unlink, rmdir, rename, link, symlink, readdir. Synchronous cores of `Txn`.
//!
//! A directory counts two links plus one per subdirectory. A removed directory keeps its parent's number, so `..` in it
//! works for as long as the parent lives.

use super::inode_set::{Hold, RENAME_LOCK, needs_rename_lock};
use super::perm::{self, IFDIR, IFLNK, IFREG, R, W};
use super::resolve::{self, Comp, Found, Last, ROOT, STRIDE};
use super::strides::Climb;
use super::txn::{StagedInode, StagedName, Txn};
use super::{Cred, FLAG_LINKABLE, LINKS_MAX};
use smallvec::SmallVec;
use std::sync::Arc;
use weldfs_ciscops::dirent::{DirentWriter, cookie, dtype};
use weldfs_ciscops::limits::SYMLINK_MAX;
use weldfs_ciscops::{Errno, Handle, InodeNo, OpenFlags, RenameFlags};
use weldfs_store::effect::{Effect, attr};
use weldfs_store::error::{FsError, FsResult, Place};
use weldfs_store::record::{Dirent, InodeRec, Time};
use weldfs_store::tree::{self, Key};

/// The effects that remove a name.
type Removal = SmallVec<[Effect; 2]>;

fn kind(rec: &InodeRec) -> u32 {
    rec.mode & perm::IFMT
}

/// Whether `cred` may open what a walk led to so; `slash`: a slash followed the name.
pub(super) fn may_open(rec: &InodeRec, slash: bool, flags: OpenFlags, excl: bool, cred: &Cred) -> Result<(), Errno> {
    let is_dir = rec.is_dir();
    if excl {
        return Err(Errno::EXIST);
    }
    if flags.contains(OpenFlags::CREATE) && is_dir {
        return Err(Errno::ISDIR);
    }
    if (flags.contains(OpenFlags::DIRECTORY) || slash) && !is_dir {
        return Err(Errno::NOTDIR);
    }
    if flags.contains(OpenFlags::PATH) {
        return Ok(());
    }
    if kind(rec) == IFLNK {
        return Err(Errno::LOOP);
    }
    let writes = flags.contains(OpenFlags::WRITE) || flags.contains(OpenFlags::TRUNC);
    if is_dir && writes {
        return Err(Errno::ISDIR);
    }
    let mut want = 0;
    if flags.contains(OpenFlags::READ) {
        want |= R;
    }
    if writes {
        want |= W;
    }
    perm::check(rec, cred, want)?;
    // As Linux has it, whether reading is to be seen is the owner's to say.
    if flags.contains(OpenFlags::NOATIME) && !perm::is_owner(rec, cred) {
        return Err(Errno::PERM);
    }
    Ok(())
}

/// The record of what is created in `dir` at time `now`, but for its number.
pub(super) fn fresh_inode(dir: &InodeRec, cred: &Cred, (kind, mode): (u32, u32), now: Time) -> InodeRec {
    let (mode, gid) = perm::inherit(dir, cred, kind, mode);
    let is_dir = kind == IFDIR;
    InodeRec {
        mode,
        uid: cred.uid,
        gid,
        nlink: if is_dir { 2 } else { 1 },
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        parent: if is_dir { dir.ino } else { InodeNo(0) },
        ..InodeRec::empty(InodeNo(0))
    }
}

impl Txn<'_> {
    /// Opens as the flags say; returns the inode and whether it is new.
    pub(super) fn open_core(
        &mut self,
        base: Handle,
        path: &[u8],
        flags: OpenFlags,
        mode: u32,
    ) -> FsResult<(InodeRec, bool)> {
        let creates = flags.contains(OpenFlags::CREATE);
        if flags.contains(OpenFlags::TMPFILE) {
            return self.open_tmpfile(base, path, flags, mode);
        }
        if creates && flags.contains(OpenFlags::DIRECTORY) {
            return Err(Errno::INVAL.into());
        }
        let excl = creates && flags.contains(OpenFlags::EXCL);
        let last = match () {
            () if creates && path.ends_with(b"/") => Last::Name,
            () if excl || flags.contains(OpenFlags::NOFOLLOW) => Last::NoFollow,
            () => Last::Follow,
        };
        let at = self.walk(base, path, last)?;
        if at.comp == Comp::Normal {
            self.note_name(at.dir.ino, &at.name);
        }
        if creates && (at.comp != Comp::Normal || at.slash) {
            return Err(Errno::ISDIR.into());
        }
        let Some(rec) = &at.rec else {
            if !creates {
                self.held(at.dir.ino, Hold::Shared)?;
                return Err(Errno::NOENT.into());
            }
            let rec = self.create(&at, IFREG, mode, None)?;
            return Ok((rec, true));
        };
        self.held(at.dir.ino, Hold::Shared)?;
        let trunc = flags.contains(OpenFlags::TRUNC);
        self.held(rec.ino, if trunc { Hold::Exclusive } else { Hold::Shared })?;
        may_open(rec, at.slash, flags, excl, self.session.cred())?;
        let rec = rec.clone();
        // A virtual file has no bytes of its own.
        if trunc && !flags.contains(OpenFlags::PATH) && !rec.is_virtual() {
            self.resize(&rec, 0)?;
        }
        Ok((rec, false))
    }

    fn open_tmpfile(&mut self, base: Handle, path: &[u8], flags: OpenFlags, mode: u32) -> FsResult<(InodeRec, bool)> {
        if !flags.contains(OpenFlags::WRITE) || flags.contains(OpenFlags::CREATE) {
            return Err(Errno::INVAL.into());
        }
        let dir = self.object(base, path, flags.contains(OpenFlags::NOFOLLOW), Hold::Shared)?;
        if !dir.is_dir() {
            return Err(Errno::NOTDIR.into());
        }
        perm::may_create(&dir, self.session.cred())?;
        let mut rec = self.new_inode(&dir, IFREG, mode, None);
        rec.nlink = 0;
        if !flags.contains(OpenFlags::EXCL) {
            rec.flags |= FLAG_LINKABLE;
        }
        self.name_effects.push(Effect::Orphan { ino: rec.ino });
        self.inodes.push(StagedInode { rec: rec.clone(), mask: 0, created: true, emitted: false });
        Ok((rec, true))
    }

    fn new_inode(&mut self, dir: &InodeRec, kind: u32, mode: u32, target: Option<&[u8]>) -> InodeRec {
        let (ino, generation) = self.fresh_number();
        let size = target.map_or(0, |t| t.len() as u64);
        let fresh = fresh_inode(dir, self.session.cred(), (kind, mode), self.now);
        InodeRec { ino, generation, size, target: target.map(Arc::from), ..fresh }
    }

    /// Makes the name `at` and a new inode behind it.
    pub(super) fn create(&mut self, at: &Found, kind: u32, mode: u32, target: Option<&[u8]>) -> FsResult<InodeRec> {
        self.held(at.dir.ino, Hold::Exclusive)?;
        perm::may_create(&at.dir, self.session.cred())?;
        if kind == IFDIR && at.dir.nlink >= LINKS_MAX {
            return Err(Errno::MLINK.into());
        }
        let cookie = self.slot_for(at.dir.ino, &at.name)?;
        let rec = self.new_inode(&at.dir, kind, mode, target);
        self.put_name(at, &rec, cookie, 0);
        if kind == IFDIR {
            self.change(&at.dir, attr::NLINK, |d| d.nlink += 1);
        }
        self.inodes.push(StagedInode { rec: rec.clone(), mask: 0, created: true, emitted: false });
        Ok(rec)
    }

    /// Makes the name `at` mean `rec`, under a cookie that is free or the name's own.
    fn put_name(&mut self, at: &Found, rec: &InodeRec, cookie: u64, mark: u16) {
        let (dir, ino, ftype) = (at.dir.ino, rec.ino, dtype::from_mode(rec.mode));
        let name: Arc<[u8]> = Arc::from(&at.name[..]);
        self.name_effects.push(Effect::PutDirent { dir, cookie, ino, ftype, mark, name: name.clone() });
        let entry = Dirent { dir, cookie, ino, ftype, mark, name: name.clone() };
        self.names.push(StagedName { dir, name, entry: Some(entry) });
        self.touch(&at.dir);
    }

    /// Removes the name `at`; `effects` come from `Store::dirent_removal`.
    fn take_name(&mut self, at: &Found, effects: Removal) {
        let keeper = effects.iter().find_map(|e| match e.clone() {
            Effect::PutDirent { dir, cookie, ino, ftype, mark, name } => {
                Some(Dirent { dir, cookie, ino, ftype, mark, name })
            }
            _ => None,
        });
        if let Some(entry) = keeper {
            self.names.push(StagedName { dir: entry.dir, name: entry.name.clone(), entry: Some(entry) });
        }
        self.name_effects.extend(effects);
        self.names.push(StagedName { dir: at.dir.ino, name: Arc::from(&at.name[..]), entry: None });
        self.touch(&at.dir);
    }

    /// One name fewer; the last one makes an orphan (a directory has no other).
    fn drop_link(&mut self, rec: &InodeRec) {
        let left = if rec.is_dir() { 0 } else { rec.nlink.saturating_sub(1) };
        self.touch_attrs(rec);
        self.change(rec, attr::NLINK, |r| r.nlink = left);
        if left == 0 {
            self.name_effects.push(Effect::Orphan { ino: rec.ino });
        }
    }

    pub(super) fn mkdir_core(&mut self, base: Handle, path: &[u8], mode: u32) -> FsResult<()> {
        let at = self.walk(base, path, Last::Name)?;
        if at.rec.is_some() {
            self.held(at.dir.ino, Hold::Shared)?;
            return Err(Errno::EXIST.into());
        }
        self.create(&at, IFDIR, mode & 0o1777, None).map(drop)
    }

    pub(super) fn symlink_core(&mut self, target: &[u8], base: Handle, path: &[u8]) -> FsResult<()> {
        if target.is_empty() {
            return Err(Errno::NOENT.into());
        }
        if target.len() > SYMLINK_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        let at = self.walk(base, path, Last::Name)?;
        self.free_name(&at)?;
        self.create(&at, IFLNK, 0o777, Some(target)).map(drop)
    }

    /// A name for something that is no directory must be free and have no slash after it.
    pub(super) fn free_name(&self, at: &Found) -> FsResult<()> {
        self.held(at.dir.ino, Hold::Shared)?;
        if at.rec.is_some() {
            return Err(Errno::EXIST.into());
        }
        if at.slash {
            return Err(Errno::NOENT.into());
        }
        Ok(())
    }

    pub(super) fn link_core(&mut self, from: (Handle, &[u8]), to: (Handle, &[u8]), follow: bool) -> FsResult<()> {
        let rec = self.object(from.0, from.1, !follow, Hold::Exclusive)?;
        let at = self.walk(to.0, to.1, Last::Name)?;
        self.free_name(&at)?;
        perm::may_link(&rec, self.session.cred())?;
        self.held(at.dir.ino, Hold::Exclusive)?;
        perm::may_create(&at.dir, self.session.cred())?;
        if rec.is_dir() {
            return Err(Errno::PERM.into());
        }
        if rec.nlink == 0 && rec.flags & FLAG_LINKABLE == 0 {
            return Err(Errno::NOENT.into());
        }
        if rec.nlink >= LINKS_MAX {
            return Err(Errno::MLINK.into());
        }
        let cookie = self.slot_for(at.dir.ino, &at.name)?;
        self.put_name(&at, &rec, cookie, 0);
        self.touch_attrs(&rec);
        self.change(&rec, attr::NLINK, |r| r.nlink += 1);
        if rec.nlink == 0 {
            self.name_effects.push(Effect::Adopt { ino: rec.ino });
            self.change(&rec, attr::FLAGS, |r| r.flags &= !FLAG_LINKABLE);
        }
        Ok(())
    }

    pub(super) fn unlink_core(&mut self, base: Handle, path: &[u8]) -> FsResult<()> {
        let at = self.walk(base, path, Last::Name)?;
        if at.comp != Comp::Normal {
            return Err(Errno::ISDIR.into());
        }
        self.held(at.dir.ino, Hold::Exclusive)?;
        let (Some(rec), Some(entry)) = (&at.rec, &at.entry) else { return Err(Errno::NOENT.into()) };
        self.held(rec.ino, Hold::Exclusive)?;
        if at.slash {
            return Err(if rec.is_dir() { Errno::ISDIR } else { Errno::NOTDIR }.into());
        }
        perm::may_delete(&at.dir, rec, self.session.cred(), false)?;
        let removal = self.removal_of(entry)?;
        self.take_name(&at, removal);
        self.drop_link(rec);
        Ok(())
    }

    pub(super) fn rmdir_core(&mut self, base: Handle, path: &[u8]) -> FsResult<()> {
        let at = self.walk(base, path, Last::Name)?;
        match at.comp {
            Comp::Normal => {}
            Comp::Dot => return Err(Errno::INVAL.into()),
            Comp::DotDot => return Err(Errno::NOTEMPTY.into()),
            Comp::Root => return Err(Errno::BUSY.into()),
        }
        self.held(at.dir.ino, Hold::Exclusive)?;
        let (Some(rec), Some(entry)) = (&at.rec, &at.entry) else { return Err(Errno::NOENT.into()) };
        self.held(rec.ino, Hold::Exclusive)?;
        perm::may_delete(&at.dir, rec, self.session.cred(), true)?;
        if !self.is_empty_dir(rec.ino)? {
            return Err(Errno::NOTEMPTY.into());
        }
        let removal = self.removal_of(entry)?;
        self.take_name(&at, removal);
        self.change(&at.dir, attr::NLINK, |d| d.nlink = d.nlink.saturating_sub(1));
        self.drop_link(rec);
        Ok(())
    }

    /// Whether `above` is `below` or one of the directories over it. In strides: a directory may be deep.
    fn is_ancestor(&mut self, above: InodeNo, below: &InodeRec) -> FsResult<bool> {
        let of = (above, below.ino);
        let begun = self.strides.remembered().and_then(|long| long.climbs.iter().find(|c| c.of == of).copied());
        let mut climb = begun.unwrap_or(Climb { of, at: (below.ino, below.parent), step: 1, met: None, answer: None });
        let before = climb.step;
        let done = self.climb(&mut climb);
        if climb.step > before || begun.is_some() {
            self.strides.note_climb(climb);
        }
        done
    }

    /// One stride up.
    fn climb(&self, c: &mut Climb) -> FsResult<bool> {
        let stop = c.step + u64::from(STRIDE);
        while c.answer.is_none() {
            // A forged image may have directories that are each other's parents: the one met at the last power of two
            // comes again on such a way, and on no other.
            if c.met == Some(c.at.0) {
                let place = Place::Key(Key::new(tree::kind::INODE, c.at.0.0, 0));
                return Err(FsError::corrupt("directory (its own ancestor)", place, ROOT.0, c.at.0.0));
            }
            if c.at.0 == c.of.0 || c.at.0 == ROOT || c.at.1 == c.at.0 {
                c.answer = Some(c.at.0 == c.of.0);
                break;
            }
            if c.step >= stop {
                return Err(FsError::Turn);
            }
            let Some(up) = resolve::View::inode(self, c.at.1)? else {
                c.answer = Some(false);
                break;
            };
            if c.step.is_power_of_two() {
                c.met = Some(c.at.0);
            }
            (c.at, c.step) = ((up.ino, up.parent), c.step + 1);
        }
        Ok(c.answer == Some(true))
    }

    pub(super) fn rename_core(
        &mut self,
        from: (Handle, &[u8]),
        to: (Handle, &[u8]),
        flags: RenameFlags,
    ) -> FsResult<()> {
        let (keep, swap) = (flags.contains(RenameFlags::NOREPLACE), flags.contains(RenameFlags::EXCHANGE));
        if keep && swap {
            return Err(Errno::INVAL.into());
        }
        let a = self.walk(from.0, from.1, Last::Name)?;
        let b = self.walk(to.0, to.1, Last::Name)?;
        if a.comp != Comp::Normal {
            return Err(Errno::BUSY.into());
        }
        if b.comp != Comp::Normal {
            return Err(if keep { Errno::EXIST } else { Errno::BUSY }.into());
        }
        for f in [&a, &b] {
            self.held(f.dir.ino, Hold::Exclusive)?;
            if let Some(rec) = &f.rec {
                self.held(rec.ino, Hold::Exclusive)?;
            }
        }
        let places = [a, b];
        if needs_rename_lock(&places) {
            self.held(RENAME_LOCK, Hold::Exclusive)?;
        }
        let [a, b] = places;
        let (Some(src), Some(old)) = (&a.rec, &a.entry) else { return Err(Errno::NOENT.into()) };
        self.rename_shape(&a, &b, src, keep, swap)?;
        if b.rec.as_ref().is_some_and(|dst| dst.ino == src.ino) {
            return Ok(());
        }
        self.rename_rights(&a, &b, src, swap)?;
        match (&b.rec, &b.entry) {
            (Some(dst), Some(_)) if swap => self.exchange(&a, &b, src, dst),
            (Some(dst), Some(there)) => {
                let removal = self.removal_of(old)?;
                self.move_name(&a, &b, src, removal, (there.cookie, there.mark));
                if dst.is_dir() {
                    self.change(&b.dir, attr::NLINK, |d| d.nlink = d.nlink.saturating_sub(1));
                }
                self.drop_link(dst);
            }
            _ => {
                let cookie = self.slot_for(b.dir.ino, &b.name)?;
                let removal = self.removal_of(old)?;
                self.move_name(&a, &b, src, removal, (cookie, 0));
            }
        }
        Ok(())
    }

    /// Errors that depend on what stands where.
    fn rename_shape(&mut self, a: &Found, b: &Found, src: &InodeRec, keep: bool, swap: bool) -> FsResult<()> {
        if keep && b.rec.is_some() {
            return Err(Errno::EXIST.into());
        }
        if swap {
            let dst = b.rec.as_ref().ok_or(Errno::NOENT)?;
            if b.slash && !dst.is_dir() {
                return Err(Errno::NOTDIR.into());
            }
        }
        if !src.is_dir() && (a.slash || (!swap && b.slash)) {
            return Err(Errno::NOTDIR.into());
        }
        if src.is_dir() && self.is_ancestor(src.ino, &b.dir)? {
            return Err(Errno::INVAL.into());
        }
        let comes = |moved: &InodeRec| moved.is_dir() && a.dir.ino != b.dir.ino;
        let full = comes(src) && b.dir.nlink >= LINKS_MAX;
        if full || b.rec.as_ref().is_some_and(|dst| swap && comes(dst) && a.dir.nlink >= LINKS_MAX) {
            return Err(Errno::MLINK.into());
        }
        if let Some(dst) = b.rec.as_ref().filter(|d| d.is_dir())
            && self.is_ancestor(dst.ino, &a.dir)?
        {
            return Err(if swap { Errno::INVAL } else { Errno::NOTEMPTY }.into());
        }
        Ok(())
    }

    /// Errors that depend on who asks, and on whether a directory to be replaced is empty.
    fn rename_rights(&self, a: &Found, b: &Found, src: &InodeRec, swap: bool) -> FsResult<()> {
        let cred = self.session.cred();
        perm::may_delete(&a.dir, src, cred, src.is_dir())?;
        match &b.rec {
            None => perm::may_create(&b.dir, cred)?,
            Some(dst) => perm::may_delete(&b.dir, dst, cred, if swap { dst.is_dir() } else { src.is_dir() })?,
        }
        if a.dir.ino != b.dir.ino {
            // Moving a directory rewrites its `..`.
            let swapped = b.rec.as_ref().filter(|_| swap);
            for moved in [Some(src), swapped].into_iter().flatten().filter(|r| r.is_dir()) {
                perm::check(moved, cred, W)?;
            }
        }
        if let Some(dst) = b.rec.as_ref().filter(|d| d.is_dir() && !swap)
            && !self.is_empty_dir(dst.ino)?
        {
            return Err(Errno::NOTEMPTY.into());
        }
        Ok(())
    }

    fn set_parent(&mut self, rec: &InodeRec, from: &InodeRec, to: &InodeRec) {
        if rec.is_dir() && from.ino != to.ino {
            self.change(rec, attr::PARENT, |r| r.parent = to.ino);
            self.change(from, attr::NLINK, |d| d.nlink = d.nlink.saturating_sub(1));
            self.change(to, attr::NLINK, |d| d.nlink += 1);
        }
    }

    fn move_name(&mut self, a: &Found, b: &Found, src: &InodeRec, removal: Removal, to: (u64, u16)) {
        // The removal may hand its collision mark to the very entry that is replaced.
        let handed = removal.iter().find_map(|e| match e {
            Effect::PutDirent { cookie, mark, .. } if *cookie == to.0 => Some(*mark),
            _ => None,
        });
        self.take_name(a, removal);
        self.put_name(b, src, to.0, to.1.max(handed.unwrap_or(0)));
        self.set_parent(src, &a.dir, &b.dir);
        self.touch_attrs(src);
    }

    fn exchange(&mut self, a: &Found, b: &Found, src: &InodeRec, dst: &InodeRec) {
        for (at, rec) in [(a, dst), (b, src)] {
            if let Some(e) = &at.entry {
                self.put_name(at, rec, e.cookie, e.mark);
            }
        }
        self.set_parent(src, &a.dir, &b.dir);
        self.set_parent(dst, &b.dir, &a.dir);
        self.touch_attrs(src);
        self.touch_attrs(dst);
    }

    pub(super) fn read_dir_core(&mut self, h: Handle, from: u64, out: &mut DirentWriter<'_>) -> FsResult<u64> {
        out.reset();
        let file = self.open_file(h)?;
        if file.flags.contains(OpenFlags::PATH) {
            return Err(Errno::BADF.into());
        }
        self.held(file.ino, Hold::Shared)?;
        let dir = resolve::live(self, file.ino)?;
        if !dir.is_dir() {
            return Err(Errno::NOTDIR.into());
        }
        if dir.nlink == 0 {
            return Err(Errno::NOENT.into());
        }
        let mut next = from;
        let dots: [(u64, &[u8], InodeNo); 2] =
            [(cookie::AFTER_DOT, b".", dir.ino), (cookie::AFTER_DOTDOT, b"..", dir.parent)];
        let mut full = false;
        for (after, name, ino) in dots {
            if !full && next < after {
                full = !out.push(ino.0, after, dtype::DIR, name);
                if !full {
                    next = after;
                }
            }
        }
        let mut no_name = None;
        if !full {
            self.store.dirents(dir.ino, next.max(cookie::AFTER_DOTDOT), &mut |d| {
                if !d.is_reachable() {
                    no_name = Some(d.cookie);
                    return false;
                }
                full = !out.push(d.ino.0, d.cookie, d.ftype, &d.name);
                if !full {
                    next = d.cookie;
                }
                !full
            })?;
        }
        // Whoever puts it behind the directory's path gets to another place.
        if let Some(at) = no_name {
            let place = Place::Key(Key::new(tree::kind::DIRENT, dir.ino.0, at));
            return Err(FsError::corrupt("a name to which no path leads", place, 0, 0));
        }
        if full && out.entries() == 0 {
            return Err(FsError::Errno(Errno::INVAL));
        }
        self.counters.meta_copies += out.entries() as u32;
        Ok(next)
    }
}
