//! Attributes and extended attributes of the model.

use super::walk::{R, W, allowed};
use super::{Cred, Model, Node, Reply, Res, SetAttr, SetTime, Stat, Who};

impl Model {
    pub(crate) fn stat_of(&self, ino: u64) -> Stat {
        let n = self.node(ino);
        let size = match &n.kind {
            super::Kind::File { size, .. } => *size,
            super::Kind::Symlink { target } => target.len() as u64,
            super::Kind::Dir { .. } => 0,
        };
        Stat {
            mode: n.file_type() | n.perm,
            uid: n.uid,
            gid: n.gid,
            nlink: n.nlink,
            size,
            mtime: n.mtime,
            ctime: n.ctime,
            btime: n.btime,
        }
    }

    pub(crate) fn stat(&self, cred: &Cred, who: &Who) -> Res<Reply> {
        Ok(Reply::Stat(self.stat_of(self.who(cred, who)?)))
    }

    pub(crate) fn set_attr(&mut self, cred: &Cred, who: &Who, set: &SetAttr) -> Res<Reply> {
        let ino = self.who(cred, who)?;
        let node = self.node(ino);
        let owner = cred.uid == 0 || cred.uid == node.uid;
        if set.mode.is_some() {
            if !node.is_dir() && !node.is_file() {
                return Err(libc::EOPNOTSUPP);
            }
            if !owner {
                return Err(libc::EPERM);
            }
        }
        if let Some(uid) = set.uid
            && cred.uid != 0
            && !(owner && uid == node.uid)
        {
            return Err(libc::EPERM);
        }
        if let Some(gid) = set.gid
            && cred.uid != 0
            && !(owner && (gid == node.gid || cred.in_group(gid)))
        {
            return Err(libc::EPERM);
        }
        let times = [set.atime, set.mtime];
        if times != [SetTime::Omit; 2] && !owner {
            if times != [SetTime::Now; 2] {
                return Err(libc::EPERM);
            }
            if !allowed(node, cred, W) {
                return Err(libc::EACCES);
            }
        }
        if let Some(size) = set.size {
            if let Who::Slot(slot) = who {
                if !self.ofd(*slot)?.write {
                    return Err(libc::EBADF);
                }
            } else if node.is_dir() {
                return Err(libc::EISDIR);
            } else {
                self.need(ino, cred, W)?;
            }
            self.resize(cred, ino, size)?;
        }
        let now = self.now;
        let node = self.node_mut(ino);
        if set.uid.is_some() || set.gid.is_some() {
            node.uid = set.uid.unwrap_or(node.uid);
            node.gid = set.gid.unwrap_or(node.gid);
            if node.is_file() {
                node.perm &= !0o4000;
                if node.perm & 0o010 != 0 {
                    node.perm &= !0o2000;
                }
            }
        }
        if let Some(mode) = set.mode {
            node.perm = mode & 0o7777;
            if cred.uid != 0 && !cred.in_group(node.gid) {
                node.perm &= !0o2000;
            }
        }
        match set.mtime {
            SetTime::Omit => {}
            SetTime::Now => node.mtime = now,
            SetTime::To(t) => node.mtime = t,
        }
        if *set != SetAttr::NONE {
            node.ctime = now;
        }
        Ok(Reply::Unit)
    }

    /// Whether `cred` may use this attribute name at all, and with the wanted access.
    fn xattr_access(&self, cred: &Cred, node: &Node, key: &[u8], write: bool) -> Res<()> {
        if key.is_empty() || key.len() > 255 {
            return Err(libc::ERANGE);
        }
        let refused = if write { libc::EPERM } else { libc::ENODATA };
        match space(key).ok_or(libc::EOPNOTSUPP)? {
            Space::Security if write && cred.uid != 0 => Err(libc::EPERM),
            Space::Security => Ok(()),
            Space::Trusted if cred.uid != 0 => Err(refused),
            Space::Trusted => Ok(()),
            Space::User if !node.is_file() && !node.is_dir() => Err(refused),
            Space::User => {
                if write && node.is_dir() && node.perm & 0o1000 != 0 && cred.uid != 0 && cred.uid != node.uid {
                    return Err(libc::EPERM);
                }
                if allowed(node, cred, if write { W } else { R }) { Ok(()) } else { Err(libc::EACCES) }
            }
        }
    }

    pub(crate) fn get_xattr(&self, cred: &Cred, who: &Who, key: &[u8], room: u64) -> Res<Reply> {
        let node = self.node(self.who(cred, who)?);
        self.xattr_access(cred, node, key, false)?;
        let value = node.xattrs.get(key).ok_or(libc::ENODATA)?;
        if room == 0 {
            return Ok(Reply::Number(value.len() as u64));
        }
        if value.len() as u64 > room {
            return Err(libc::ERANGE);
        }
        Ok(Reply::Bytes(value.clone()))
    }

    pub(crate) fn set_xattr(
        &mut self,
        cred: &Cred,
        who: &Who,
        key: &[u8],
        value: &[u8],
        create: bool,
        replace: bool,
    ) -> Res<Reply> {
        let ino = self.who(cred, who)?;
        if create && replace {
            return Err(libc::EINVAL);
        }
        if value.len() > 4096 {
            return Err(libc::E2BIG);
        }
        self.xattr_access(cred, self.node(ino), key, true)?;
        let now = self.now;
        let node = self.node_mut(ino);
        let there = node.xattrs.contains_key(key);
        if create && there {
            return Err(libc::EEXIST);
        }
        if replace && !there {
            return Err(libc::ENODATA);
        }
        node.xattrs.insert(key.to_vec(), value.to_vec());
        node.ctime = now;
        Ok(Reply::Unit)
    }

    pub(crate) fn list_xattr(&self, cred: &Cred, who: &Who, room: u64) -> Res<Reply> {
        let node = self.node(self.who(cred, who)?);
        let mut names = std::collections::BTreeSet::new();
        let mut bytes = 0;
        for key in node.xattrs.keys() {
            if cred.uid == 0 || space(key) != Some(Space::Trusted) {
                bytes += key.len() as u64 + 1;
                names.insert((key.clone(), 0));
            }
        }
        if room == 0 {
            return Ok(Reply::Number(bytes));
        }
        if bytes > room {
            return Err(libc::ERANGE);
        }
        Ok(Reply::Names(names))
    }

    pub(crate) fn remove_xattr(&mut self, cred: &Cred, who: &Who, key: &[u8]) -> Res<Reply> {
        let ino = self.who(cred, who)?;
        self.xattr_access(cred, self.node(ino), key, true)?;
        let now = self.now;
        let node = self.node_mut(ino);
        node.xattrs.remove(key).ok_or(libc::ENODATA)?;
        node.ctime = now;
        Ok(Reply::Unit)
    }
}

#[derive(PartialEq, Eq)]
enum Space {
    User,
    Trusted,
    Security,
}

fn space(key: &[u8]) -> Option<Space> {
    let rest = |prefix: &[u8]| key.strip_prefix(prefix).is_some_and(|r| !r.is_empty());
    match () {
        () if rest(b"user.") => Some(Space::User),
        () if rest(b"trusted.") => Some(Space::Trusted),
        () if rest(b"security.") => Some(Space::Security),
        () => None,
    }
}
