//! Operations on names: open, mkdir, unlink, rename, link.

use std::collections::{BTreeMap, BTreeSet};

use super::walk::{Comp, Found, Last, R, W, X, allowed};
use super::{Cred, Kind, Model, Name, Node, Ofd, ROOT, Reply, Res, Who};

const ISGID: u32 = 0o2000;

impl Model {
    pub(crate) fn new_node(&mut self, cred: &Cred, dir: u64, kind: Kind, mode: u32) -> u64 {
        let (dir_perm, dir_gid) = (self.node(dir).perm, self.node(dir).gid);
        let is_dir = matches!(kind, Kind::Dir { .. });
        let mut perm = mode & 0o7777;
        let mut gid = cred.gid;
        if dir_perm & ISGID != 0 {
            gid = dir_gid;
            if is_dir {
                perm |= ISGID;
            } else if perm & (ISGID | 0o010) == ISGID | 0o010 && cred.uid != 0 && !cred.in_group(gid) {
                perm &= !ISGID;
            }
        }
        let now = self.now;
        let ino = self.next_ino;
        self.next_ino += 1;
        let nlink = if is_dir { 2 } else { 1 };
        let node = Node {
            kind,
            perm,
            uid: cred.uid,
            gid,
            nlink,
            mtime: now,
            ctime: now,
            btime: now,
            xattrs: BTreeMap::new(),
            linkable: false,
        };
        self.nodes.insert(ino, node);
        ino
    }

    fn touch_dir(&mut self, dir: u64) {
        let now = self.now;
        let d = self.node_mut(dir);
        d.mtime = now;
        d.ctime = now;
    }

    fn put(&mut self, dir: u64, name: &[u8], ino: u64) {
        if let Kind::Dir { entries, .. } = &mut self.node_mut(dir).kind {
            entries.insert(name.to_vec(), ino);
        }
        self.touch_dir(dir);
    }

    fn take(&mut self, dir: u64, name: &[u8]) {
        if let Kind::Dir { entries, .. } = &mut self.node_mut(dir).kind {
            entries.remove(name);
        }
        self.touch_dir(dir);
    }

    fn create(&mut self, cred: &Cred, at: &Found, kind: Kind, mode: u32) -> Res<u64> {
        self.may_create(cred, at.dir)?;
        let is_dir = matches!(kind, Kind::Dir { .. });
        let ino = self.new_node(cred, at.dir, kind, mode);
        self.put(at.dir, &at.name, ino);
        if is_dir {
            self.node_mut(at.dir).nlink += 1;
        }
        Ok(ino)
    }

    /// Opens as `flags` say and returns the inode and whether it was created.
    pub(crate) fn open_node(&mut self, cred: &Cred, name: &Name, flags: i32, mode: u32) -> Res<u64> {
        let access = flags & libc::O_ACCMODE;
        let writes = access == libc::O_WRONLY || access == libc::O_RDWR;
        let tmpfile = flags & libc::O_TMPFILE == libc::O_TMPFILE;
        let creates = flags & libc::O_CREAT != 0;
        if tmpfile {
            return self.open_tmpfile(cred, name, flags, mode, writes);
        }
        if creates && flags & libc::O_DIRECTORY != 0 {
            return Err(libc::EINVAL);
        }
        let excl = creates && flags & libc::O_EXCL != 0;
        let nofollow = excl || flags & libc::O_NOFOLLOW != 0;
        let at = if creates && name.path.ends_with(b"/") {
            self.walk(cred, name, Last::Name)?;
            return Err(libc::EISDIR);
        } else {
            self.walk(cred, name, if nofollow { Last::NoFollow } else { Last::Follow })?
        };
        if creates && at.slash && at.comp == Comp::Normal {
            return Err(libc::EISDIR);
        }
        let Some(ino) = at.ino else {
            if !creates {
                return Err(libc::ENOENT);
            }
            return self.create(cred, &at, Kind::File { size: 0, blocks: BTreeMap::new() }, mode);
        };
        let is_dir = self.node(ino).is_dir();
        if creates && at.comp != Comp::Normal {
            return Err(libc::EISDIR);
        }
        if excl {
            return Err(libc::EEXIST);
        }
        if creates && is_dir {
            return Err(libc::EISDIR);
        }
        if (flags & libc::O_DIRECTORY != 0 || at.slash) && !is_dir {
            return Err(libc::ENOTDIR);
        }
        if matches!(self.node(ino).kind, Kind::Symlink { .. }) {
            return Err(libc::ELOOP);
        }
        let trunc = flags & libc::O_TRUNC != 0;
        if is_dir && (writes || trunc) {
            return Err(libc::EISDIR);
        }
        let mut want = if access == libc::O_WRONLY { 0 } else { R };
        if writes || trunc {
            want |= W;
        }
        self.need(ino, cred, want)?;
        if trunc {
            self.resize(cred, ino, 0)?;
        }
        Ok(ino)
    }

    fn open_tmpfile(&mut self, cred: &Cred, name: &Name, flags: i32, mode: u32, writes: bool) -> Res<u64> {
        if !writes || flags & libc::O_CREAT != 0 {
            return Err(libc::EINVAL);
        }
        let dir = self.lookup(cred, name, flags & libc::O_NOFOLLOW != 0)?;
        if !self.node(dir).is_dir() {
            return Err(libc::ENOTDIR);
        }
        self.may_create(cred, dir)?;
        let ino = self.new_node(cred, dir, Kind::File { size: 0, blocks: BTreeMap::new() }, mode);
        let node = self.node_mut(ino);
        node.nlink = 0;
        node.linkable = flags & libc::O_EXCL == 0;
        Ok(ino)
    }

    pub(crate) fn open_slot(&mut self, cred: &Cred, name: &Name, flags: i32, mode: u32, slot: u32) -> Res<Reply> {
        let ino = self.open_node(cred, name, flags, mode)?;
        let access = flags & libc::O_ACCMODE;
        let ofd = Ofd {
            ino,
            read: access != libc::O_WRONLY,
            write: access != libc::O_RDONLY,
            append: flags & libc::O_APPEND != 0,
            offset: 0,
        };
        self.open.insert(slot, ofd);
        Ok(Reply::Unit)
    }

    pub(crate) fn close(&mut self, slot: u32) -> Res<Reply> {
        let ofd = self.open.remove(&slot).ok_or(libc::EBADF)?;
        self.reap(ofd.ino);
        Ok(Reply::Unit)
    }

    pub(crate) fn mkdir(&mut self, cred: &Cred, name: &Name, mode: u32) -> Res<Reply> {
        let at = self.walk(cred, name, Last::Name)?;
        if at.ino.is_some() {
            return Err(libc::EEXIST);
        }
        let kind = Kind::Dir { parent: at.dir, entries: BTreeMap::new() };
        self.create(cred, &at, kind, mode & 0o1777)?;
        Ok(Reply::Unit)
    }

    pub(crate) fn symlink(&mut self, cred: &Cred, target: &[u8], name: &Name) -> Res<Reply> {
        if target.is_empty() {
            return Err(libc::ENOENT);
        }
        if target.len() > 4095 {
            return Err(libc::ENAMETOOLONG);
        }
        let at = self.walk(cred, name, Last::Name)?;
        if at.ino.is_some() {
            return Err(libc::EEXIST);
        }
        if at.slash {
            return Err(libc::ENOENT);
        }
        self.create(cred, &at, Kind::Symlink { target: target.to_vec() }, 0o777)?;
        Ok(Reply::Unit)
    }

    pub(crate) fn link(&mut self, cred: &Cred, from: &Who, to: &Name) -> Res<Reply> {
        let ino = self.who(cred, from)?;
        let at = self.walk(cred, to, Last::Name)?;
        if at.ino.is_some() {
            return Err(libc::EEXIST);
        }
        if at.slash {
            return Err(libc::ENOENT);
        }
        let node = self.node(ino);
        // Of others only what one could copy: regular files to read and to write that lend no rights.
        let lends = node.perm & 0o4000 != 0 || node.perm & 0o2010 == 0o2010;
        let copied = node.is_file() && !lends && allowed(node, cred, R | W);
        if cred.uid != 0 && cred.uid != node.uid && !copied {
            return Err(libc::EPERM);
        }
        self.may_create(cred, at.dir)?;
        let node = self.node(ino);
        if node.is_dir() {
            return Err(libc::EPERM);
        }
        if node.nlink == 0 && !node.linkable {
            return Err(libc::ENOENT);
        }
        let now = self.now;
        let node = self.node_mut(ino);
        node.nlink += 1;
        node.ctime = now;
        node.linkable = false;
        self.put(at.dir, &at.name, ino);
        Ok(Reply::Unit)
    }

    fn drop_link(&mut self, ino: u64) {
        let now = self.now;
        let node = self.node_mut(ino);
        node.nlink = if node.is_dir() { 0 } else { node.nlink - 1 };
        node.ctime = now;
        node.linkable = false;
        self.reap(ino);
    }

    pub(crate) fn unlink(&mut self, cred: &Cred, name: &Name) -> Res<Reply> {
        let at = self.walk(cred, name, Last::Name)?;
        if at.comp != Comp::Normal {
            return Err(libc::EISDIR);
        }
        let ino = at.ino.ok_or(libc::ENOENT)?;
        if at.slash {
            return Err(if self.node(ino).is_dir() { libc::EISDIR } else { libc::ENOTDIR });
        }
        self.may_delete(cred, at.dir, ino, false)?;
        self.take(at.dir, &at.name);
        self.drop_link(ino);
        Ok(Reply::Unit)
    }

    pub(crate) fn rmdir(&mut self, cred: &Cred, name: &Name) -> Res<Reply> {
        let at = self.walk(cred, name, Last::Name)?;
        match at.comp {
            Comp::Normal => {}
            Comp::Dot => return Err(libc::EINVAL),
            Comp::DotDot => return Err(libc::ENOTEMPTY),
            Comp::Root => return Err(libc::EBUSY),
        }
        let ino = at.ino.ok_or(libc::ENOENT)?;
        self.may_delete(cred, at.dir, ino, true)?;
        if !self.entries(ino)?.is_empty() {
            return Err(libc::ENOTEMPTY);
        }
        self.take(at.dir, &at.name);
        self.node_mut(at.dir).nlink -= 1;
        self.drop_link(ino);
        Ok(Reply::Unit)
    }

    fn is_ancestor(&self, above: u64, mut below: u64) -> bool {
        loop {
            if below == above {
                return true;
            }
            if below == ROOT {
                return false;
            }
            match self.nodes.get(&below).map(|n| &n.kind) {
                Some(Kind::Dir { parent, .. }) => below = *parent,
                _ => return false,
            }
        }
    }

    pub(crate) fn rename(&mut self, cred: &Cred, from: &Name, to: &Name, keep: bool, swap: bool) -> Res<Reply> {
        if keep && swap {
            return Err(libc::EINVAL);
        }
        let a = self.walk(cred, from, Last::Name)?;
        let b = self.walk(cred, to, Last::Name)?;
        if a.comp != Comp::Normal {
            return Err(libc::EBUSY);
        }
        if b.comp != Comp::Normal {
            return Err(if keep { libc::EEXIST } else { libc::EBUSY });
        }
        let src = a.ino.ok_or(libc::ENOENT)?;
        let src_dir = self.node(src).is_dir();
        if keep && b.ino.is_some() {
            return Err(libc::EEXIST);
        }
        if swap {
            let dst = b.ino.ok_or(libc::ENOENT)?;
            if b.slash && !self.node(dst).is_dir() {
                return Err(libc::ENOTDIR);
            }
        }
        if !src_dir && (a.slash || (!swap && b.slash)) {
            return Err(libc::ENOTDIR);
        }
        if src_dir && self.is_ancestor(src, b.dir) {
            return Err(libc::EINVAL);
        }
        if let Some(dst) = b.ino
            && self.node(dst).is_dir()
            && self.is_ancestor(dst, a.dir)
        {
            return Err(if swap { libc::EINVAL } else { libc::ENOTEMPTY });
        }
        if b.ino == Some(src) {
            return Ok(Reply::Unit);
        }
        self.rename_checks(cred, &a, &b, src, swap)?;
        let now = self.now;
        match b.ino {
            Some(dst) if swap => self.exchange(&a, &b, src, dst),
            _ => self.replace(&a, &b, src),
        }
        if let Some(n) = self.nodes.get_mut(&src) {
            n.ctime = now;
        }
        Ok(Reply::Unit)
    }

    fn rename_checks(&self, cred: &Cred, a: &Found, b: &Found, src: u64, swap: bool) -> Res<()> {
        let src_dir = self.node(src).is_dir();
        self.may_delete(cred, a.dir, src, src_dir)?;
        match b.ino {
            None => self.may_create(cred, b.dir)?,
            Some(dst) if swap => self.may_delete(cred, b.dir, dst, self.node(dst).is_dir())?,
            Some(dst) => self.may_delete(cred, b.dir, dst, src_dir)?,
        }
        if a.dir != b.dir {
            if src_dir {
                self.need(src, cred, W)?;
            }
            if let (true, Some(dst)) = (swap, b.ino)
                && self.node(dst).is_dir()
            {
                self.need(dst, cred, W)?;
            }
        }
        if let (false, Some(dst)) = (swap, b.ino)
            && self.node(dst).is_dir()
            && !self.entries(dst)?.is_empty()
        {
            return Err(libc::ENOTEMPTY);
        }
        Ok(())
    }

    fn set_parent(&mut self, ino: u64, to: u64) {
        if let Kind::Dir { parent, .. } = &mut self.node_mut(ino).kind {
            let old = std::mem::replace(parent, to);
            self.node_mut(old).nlink -= 1;
            self.node_mut(to).nlink += 1;
        }
    }

    fn exchange(&mut self, a: &Found, b: &Found, src: u64, dst: u64) {
        let now = self.now;
        self.put(a.dir, &a.name, dst);
        self.put(b.dir, &b.name, src);
        self.set_parent(src, b.dir);
        self.set_parent(dst, a.dir);
        self.node_mut(dst).ctime = now;
    }

    fn replace(&mut self, a: &Found, b: &Found, src: u64) {
        self.take(a.dir, &a.name);
        self.put(b.dir, &b.name, src);
        self.set_parent(src, b.dir);
        if let Some(dst) = b.ino {
            if self.node(dst).is_dir() {
                self.node_mut(b.dir).nlink -= 1;
            }
            self.drop_link(dst);
        }
    }

    pub(crate) fn readdir(&self, slot: u32) -> Res<Reply> {
        let ofd = self.ofd(slot)?;
        let node = self.node(ofd.ino);
        let Kind::Dir { entries, .. } = &node.kind else { return Err(libc::ENOTDIR) };
        if node.nlink == 0 {
            return Err(libc::ENOENT);
        }
        let dots = [b".".to_vec(), b"..".to_vec()].map(|n| (n, libc::S_IFDIR));
        let rest = entries.iter().map(|(n, i)| (n.clone(), self.node(*i).file_type()));
        Ok(Reply::Names(dots.into_iter().chain(rest).collect::<BTreeSet<_>>()))
    }

    pub(crate) fn readlink(&self, cred: &Cred, name: &Name) -> Res<Reply> {
        let ino = self.lookup(cred, name, true)?;
        match &self.node(ino).kind {
            Kind::Symlink { target } => Ok(Reply::Bytes(target.clone())),
            _ => Err(libc::EINVAL),
        }
    }

    pub(crate) fn access(&self, cred: &Cred, name: &Name, mask: u32) -> Res<Reply> {
        if mask & !(R | W | X) != 0 {
            return Err(libc::EINVAL);
        }
        let ino = self.lookup(cred, name, false)?;
        self.need(ino, cred, mask)?;
        Ok(Reply::Unit)
    }
}
