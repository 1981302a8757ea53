//! Path walk and permission bits of the model.

use super::{Cred, Kind, Model, Name, Node, ROOT, Res, Who};

/// Read permission.
pub(crate) const R: u32 = 4;
/// Write permission.
pub(crate) const W: u32 = 2;
/// Execute or search permission.
pub(crate) const X: u32 = 1;
const LINKS_MAX: u32 = 40;

/// What to do with a symbolic link in the last place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    /// Follow it.
    Follow,
    /// Leave it, unless a slash follows.
    NoFollow,
    /// Leave it always: the caller works on the name.
    Name,
}

/// The kind of the last component.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Comp {
    Normal,
    Dot,
    DotDot,
    Root,
}

/// Where a walk ended.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub dir: u64,
    pub name: Vec<u8>,
    pub comp: Comp,
    pub slash: bool,
    pub ino: Option<u64>,
}

pub(crate) fn allowed(node: &Node, cred: &Cred, want: u32) -> bool {
    if cred.uid == 0 {
        return want & X == 0 || node.is_dir() || node.perm & 0o111 != 0;
    }
    let shift = match () {
        () if node.uid == cred.uid => 6,
        () if cred.in_group(node.gid) => 3,
        () => 0,
    };
    (node.perm >> shift) & want == want
}

impl Model {
    pub(crate) fn need(&self, ino: u64, cred: &Cred, want: u32) -> Res<()> {
        if allowed(self.node(ino), cred, want) { Ok(()) } else { Err(libc::EACCES) }
    }

    pub(crate) fn entries(&self, dir: u64) -> Res<&std::collections::BTreeMap<Vec<u8>, u64>> {
        match &self.node(dir).kind {
            Kind::Dir { entries, .. } => Ok(entries),
            _ => Err(libc::ENOTDIR),
        }
    }

    fn parent(&self, dir: u64) -> Res<u64> {
        let Kind::Dir { parent, .. } = self.node(dir).kind else { return Err(libc::ENOTDIR) };
        match self.nodes.get(&parent) {
            Some(n) if n.nlink > 0 => Ok(parent),
            _ => Err(libc::ENOENT),
        }
    }

    pub(crate) fn walk(&self, cred: &Cred, name: &Name, last: Last) -> Res<Found> {
        let path = &name.path;
        if path.is_empty() {
            return Err(libc::ENOENT);
        }
        if path.len() >= 4096 {
            return Err(libc::ENAMETOOLONG);
        }
        let base = match name.base {
            Some(slot) if path[0] != b'/' => self.ofd(slot)?.ino,
            _ => ROOT,
        };
        let mut dir = base;
        if !self.node(dir).is_dir() {
            return Err(libc::ENOTDIR);
        }
        let mut slash = path.ends_with(b"/");
        let mut todo = components(path);
        let mut found = Found { dir, name: Vec::new(), comp: Comp::Root, slash, ino: Some(dir) };
        let mut links = 0;
        while let Some(part) = todo.pop() {
            let end = todo.is_empty();
            if !self.node(dir).is_dir() {
                return Err(libc::ENOTDIR);
            }
            self.need(dir, cred, X)?;
            if part.len() > 255 {
                return Err(libc::ENAMETOOLONG);
            }
            if part == b"." || part == b".." {
                let comp = if part == b"." { Comp::Dot } else { Comp::DotDot };
                dir = if comp == Comp::Dot { dir } else { self.parent(dir)? };
                found = Found { dir, name: part, comp, slash, ino: Some(dir) };
                continue;
            }
            let hit = self.entries(dir)?.get(&part).copied();
            let Some(ino) = hit else {
                if !end {
                    return Err(libc::ENOENT);
                }
                return Ok(Found { dir, name: part, comp: Comp::Normal, slash, ino: None });
            };
            if let Kind::Symlink { target } = &self.node(ino).kind {
                let follow = !end || last == Last::Follow || (last == Last::NoFollow && slash);
                if follow {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(libc::ELOOP);
                    }
                    if target.starts_with(b"/") {
                        dir = ROOT;
                        found = Found { dir, name: Vec::new(), comp: Comp::Root, slash, ino: Some(dir) };
                    }
                    slash |= end && target.ends_with(b"/");
                    todo.extend(components(target));
                    continue;
                }
            }
            found = Found { dir, name: part, comp: Comp::Normal, slash, ino: Some(ino) };
            dir = ino;
        }
        found.slash = slash;
        Ok(found)
    }

    /// The inode a path names; a slash after a file is an error.
    pub(crate) fn lookup(&self, cred: &Cred, name: &Name, nofollow: bool) -> Res<u64> {
        let found = self.walk(cred, name, if nofollow { Last::NoFollow } else { Last::Follow })?;
        let ino = found.ino.ok_or(libc::ENOENT)?;
        if found.slash && !self.node(ino).is_dir() {
            return Err(libc::ENOTDIR);
        }
        Ok(ino)
    }

    pub(crate) fn who(&self, cred: &Cred, who: &Who) -> Res<u64> {
        match who {
            Who::Slot(slot) => Ok(self.ofd(*slot)?.ino),
            Who::Path(name, nofollow) => self.lookup(cred, name, *nofollow),
        }
    }

    pub(crate) fn may_create(&self, cred: &Cred, dir: u64) -> Res<()> {
        if self.node(dir).nlink == 0 {
            return Err(libc::ENOENT);
        }
        self.need(dir, cred, W | X)
    }

    pub(crate) fn may_delete(&self, cred: &Cred, dir: u64, ino: u64, as_dir: bool) -> Res<()> {
        self.need(dir, cred, W | X)?;
        let (d, n) = (self.node(dir), self.node(ino));
        if d.perm & 0o1000 != 0 && cred.uid != 0 && cred.uid != n.uid && cred.uid != d.uid {
            return Err(libc::EPERM);
        }
        match (as_dir, n.is_dir()) {
            (true, false) => Err(libc::ENOTDIR),
            (false, true) => Err(libc::EISDIR),
            _ => Ok(()),
        }
    }
}

fn components(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|b| *b == b'/').filter(|c| !c.is_empty()).rev().map(<[u8]>::to_vec).collect()
}
