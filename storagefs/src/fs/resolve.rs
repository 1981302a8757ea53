//! Path walk: from a handle or the root, component by component, with search permission at each step.
//!
//! Absolute paths start at the file system's root. Absolute *targets of symbolic links* do too, unless the session has
//! a prefix (the host directory under which it shows the file system, like `/weld`): then the prefix is stripped, and a
//! target outside it is EXDEV, because it names a file of the host, which only the client can open.

use super::perm::{self, X};
use super::{Cred, SessionView};
use crate::error::{FsError, FsResult};
use crate::record::{Dirent, InodeRec};
use smallvec::SmallVec;
use std::borrow::Cow;
use weldfs_ciscops::limits::{NAME_MAX, PATH_MAX, SYMLINK_FOLLOW_MAX};
use weldfs_ciscops::{Errno, Handle, InodeNo};

/// The root directory.
pub const ROOT: InodeNo = InodeNo(1);

/// What a walk reads: the store, or the store plus what a command has staged.
pub trait View {
    /// The inode, if it exists.
    fn inode(&self, ino: InodeNo) -> FsResult<Option<InodeRec>>;
    /// The entry called `name` in `dir`, if it exists. Never `.` or `..`.
    fn entry(&self, dir: InodeNo, name: &[u8]) -> FsResult<Option<Dirent>>;
}

/// What to do with a symbolic link in the last place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Last {
    /// Follow it.
    Follow,
    /// Leave it, unless a slash follows.
    NoFollow,
    /// Leave it always: the caller works on the name itself.
    Name,
}

/// The kind of the last component.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comp {
    /// An ordinary name.
    Normal,
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// No component at all: the start itself.
    Root,
}

/// Where a walk ended.
#[derive(Clone, Debug)]
pub struct Found {
    /// The directory that holds (or would hold) the name; for `.`, `..` and the start: the directory itself.
    pub dir: InodeRec,
    /// The last component.
    pub name: SmallVec<[u8; 48]>,
    /// Its kind.
    pub comp: Comp,
    /// Whether a slash follows it.
    pub slash: bool,
    /// The entry, for an ordinary name that exists.
    pub entry: Option<Dirent>,
    /// The inode, if the name exists.
    pub rec: Option<InodeRec>,
}

/// How far a walk that failed had come: the last directory it stood in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trail {
    /// `None` until a directory was reached.
    pub dir: Option<InodeNo>,
}

/// Whose walk it is.
#[derive(Clone, Copy)]
pub struct Walker<'a> {
    /// Permissions.
    pub cred: &'a Cred,
    /// What absolute symbolic links are relative to.
    pub prefix: Option<&'a [u8]>,
}

impl<'a> Walker<'a> {
    /// For a session.
    pub fn of(session: &'a dyn SessionView) -> Walker<'a> {
        Walker { cred: session.cred(), prefix: session.prefix() }
    }

    /// Walks `path` from `base` (an inode number; ignored when the path is absolute).
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, EACCES, ELOOP, ENAMETOOLONG, EXDEV; misses and damage as they come.
    pub fn walk<V: View + ?Sized>(
        &self,
        view: &V,
        base: InodeNo,
        path: &[u8],
        last: Last,
        trail: &mut Trail,
    ) -> FsResult<Found> {
        if path.is_empty() {
            return Err(Errno::NOENT.into());
        }
        if path.len() >= PATH_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        let start = if path[0] == b'/' { ROOT } else { base };
        let mut dir = live(view, start)?;
        if !dir.is_dir() {
            return Err(Errno::NOTDIR.into());
        }
        trail.dir = Some(dir.ino);
        let mut text = Cow::Borrowed(path);
        let mut pos = 0;
        let mut links = 0;
        let mut end: Option<Found> = None;
        while let Some((from, to)) = next_component(&text, pos) {
            pos = to;
            if let Some(f) = end.take() {
                // The walk goes on below what it had found.
                dir = f.rec.ok_or(Errno::NOENT)?;
            }
            if !dir.is_dir() {
                return Err(Errno::NOTDIR.into());
            }
            trail.dir = Some(dir.ino);
            perm::check(&dir, self.cred, X)?;
            let name = &text[from..to];
            if name.len() > NAME_MAX {
                return Err(Errno::NAMETOOLONG.into());
            }
            if name == b"." || name == b".." {
                end = Some(dot(view, dir.clone(), name)?);
                continue;
            }
            let Some(entry) = view.entry(dir.ino, name)? else {
                if next_component(&text, to).is_some() {
                    return Err(Errno::NOENT.into());
                }
                let name = SmallVec::from_slice(name);
                return Ok(Found { dir, name, comp: Comp::Normal, slash: to < text.len(), entry: None, rec: None });
            };
            let rec = view.inode(entry.ino)?.ok_or(Errno::NOENT)?;
            if rec.mode & perm::IFMT == perm::IFLNK {
                let follow = match last {
                    _ if next_component(&text, to).is_some() => true,
                    Last::Follow => true,
                    Last::NoFollow => to < text.len(),
                    Last::Name => false,
                };
                if follow {
                    links += 1;
                    if links > SYMLINK_FOLLOW_MAX {
                        return Err(Errno::LOOP.into());
                    }
                    let target = rec.target.as_deref().unwrap_or(&[]);
                    let (target, absolute) = self.target(target)?;
                    let mut joined = target.to_vec();
                    joined.extend_from_slice(&text[to..]);
                    (text, pos) = (Cow::Owned(joined), 0);
                    if absolute {
                        dir = live(view, ROOT)?;
                    }
                    // Nothing found yet: the target may be nothing but slashes.
                    continue;
                }
            }
            let name = SmallVec::from_slice(name);
            let f =
                Found { dir: dir.clone(), name, comp: Comp::Normal, slash: false, entry: Some(entry), rec: Some(rec) };
            end = Some(f);
        }
        let slash = text.ends_with(b"/");
        Ok(match end {
            Some(f) => Found { slash, ..f },
            None => Found { rec: Some(dir.clone()), dir, name: SmallVec::new(), comp: Comp::Root, slash, entry: None },
        })
    }

    /// What a symbolic link's target means inside the file system, and whether it starts at the root.
    fn target<'t>(&self, target: &'t [u8]) -> Result<(&'t [u8], bool), Errno> {
        if !target.starts_with(b"/") {
            return Ok((target, false));
        }
        let Some(prefix) = self.prefix.filter(|p| !p.is_empty()) else { return Ok((target, true)) };
        match target.strip_prefix(prefix) {
            Some(rest) if rest.is_empty() || rest[0] == b'/' => Ok((rest, true)),
            _ => Err(Errno::XDEV),
        }
    }
}

/// Where a walk starts: absolute paths at the root, whatever the base.
pub(crate) fn start_inode(session: &dyn SessionView, base: Handle, path: &[u8]) -> FsResult<InodeNo> {
    if path.first() == Some(&b'/') { Ok(ROOT) } else { base_inode(session, base) }
}

/// The inode that a walk led to. A slash after something that is no directory is ENOTDIR.
pub fn named(found: &Found) -> FsResult<&InodeRec> {
    let rec = found.rec.as_ref().ok_or(Errno::NOENT)?;
    if found.slash && !rec.is_dir() {
        return Err(Errno::NOTDIR.into());
    }
    Ok(rec)
}

/// The inode of a base handle; EBADF when the session has no such handle.
pub(crate) fn base_inode(session: &dyn SessionView, base: Handle) -> FsResult<InodeNo> {
    if base == Handle::ROOT { Ok(ROOT) } else { Ok(session.handle(base)?.ino) }
}

/// The inode, or ENOENT.
pub fn live<V: View + ?Sized>(view: &V, ino: InodeNo) -> FsResult<InodeRec> {
    view.inode(ino)?.ok_or(FsError::Errno(Errno::NOENT))
}

fn dot<V: View + ?Sized>(view: &V, dir: InodeRec, name: &[u8]) -> FsResult<Found> {
    let (dir, comp) = if name == b"." {
        (dir, Comp::Dot)
    } else {
        let up = live(view, dir.parent)?;
        if up.nlink == 0 {
            return Err(Errno::NOENT.into());
        }
        (up, Comp::DotDot)
    };
    let name = SmallVec::from_slice(name);
    Ok(Found { rec: Some(dir.clone()), dir, name, comp, slash: false, entry: None })
}

/// Bounds of the next component at or after `pos`.
fn next_component(text: &[u8], pos: usize) -> Option<(usize, usize)> {
    let from = pos + text[pos..].iter().position(|b| *b != b'/')?;
    let to = text[from..].iter().position(|b| *b == b'/').map_or(text.len(), |n| from + n);
    Some((from, to))
}
