//! Path walk: from a handle or the root, component by component, with search permission at each step.
//!
//! Absolute paths start at the file system's root. Absolute *targets of symbolic links* do too, unless the session has
//! a prefix (the host directory under which it shows the file system, like `/weld`): then the prefix is stripped, and a
//! target outside it is EXDEV, because it names a file of the host, which only the client can open.

use super::perm::{self, X};
use super::{Cred, SessionView};
use smallvec::SmallVec;
use std::borrow::Borrow;
use std::ops::Deref;
use weldfs_ciscops::limits::{NAME_MAX, PATH_MAX, SYMLINK_FOLLOW_MAX};
use weldfs_ciscops::{Errno, Handle, InodeNo};
use weldfs_store::error::{FsError, FsResult};
use weldfs_store::record::{Dirent, InodeRec};

/// Steps (components, directories on the way up, windows of a file's map) between two chances for others: some ten
/// microseconds.
pub(super) const STRIDE: u32 = 32;
/// The root directory.
pub const ROOT: InodeNo = InodeNo(1);

/// What a walk reads: the store, or the store plus what a command has staged.
pub trait View {
    /// The inode, if it exists.
    fn inode(&self, ino: InodeNo) -> FsResult<Option<InodeRec>>;
    /// The same into `rec`, so that none is moved about; whether there is one.
    fn inode_into(&self, ino: InodeNo, rec: &mut InodeRec) -> FsResult<bool> {
        Ok(match self.inode(ino)? {
            Some(found) => {
                *rec = found;
                true
            }
            None => false,
        })
    }
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

/// The end of a walk: known from an earlier one, or walked to now.
pub(crate) enum Reached<'a> {
    /// By the walk that put the command's set together.
    Before(&'a Found),
    /// By a walk of its own.
    Now(Box<Found>),
}

impl Deref for Reached<'_> {
    type Target = Found;

    #[inline]
    fn deref(&self) -> &Found {
        match self {
            Reached::Before(found) => found,
            Reached::Now(found) => found,
        }
    }
}

impl Borrow<Found> for Reached<'_> {
    fn borrow(&self) -> &Found {
        self
    }
}

/// How far a walk that failed had come: the last directory it stood in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trail {
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

/// A walk under way.
pub(super) struct Walking {
    /// The directory it stands in, and what the component looked up last led to. It is written in place: a walk of one
    /// component, which most are, moves no records about.
    at: Box<Found>,
    /// What is being walked along once a link was followed; the path itself before.
    text: Option<Vec<u8>>,
    /// Where in it the next component is looked for.
    pos: usize,
    links: usize,
    components: u32,
    trail: Trail,
}

impl Walking {
    /// Components looked up so far.
    pub(super) fn components(&self) -> u32 {
        self.components
    }

    /// The last directory it stood in.
    pub(super) fn trail(&self) -> Trail {
        self.trail
    }

    /// Where it has led, once it is over; it may be asked again.
    pub(super) fn found(&self) -> Box<Found> {
        self.at.clone()
    }

    /// Where it has led, once it is over.
    pub(super) fn end(self) -> Box<Found> {
        self.at
    }
}

impl<'a> Walker<'a> {
    /// For a session.
    pub fn of(session: &'a dyn SessionView) -> Walker<'a> {
        Walker { cred: session.cred(), prefix: session.prefix() }
    }

    /// Begins to walk `path` from `base` (an inode number; ignored when the path is absolute).
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, ENAMETOOLONG; misses and damage as they come.
    pub(super) fn begin<V: View + ?Sized>(&self, view: &V, base: InodeNo, path: &[u8]) -> FsResult<Walking> {
        if path.is_empty() {
            return Err(Errno::NOENT.into());
        }
        if path.len() >= PATH_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        let start = if path[0] == b'/' { ROOT } else { base };
        let (dir, name) = (InodeRec::empty(start), SmallVec::new());
        let mut at = Box::new(Found { dir, name, comp: Comp::Root, slash: false, entry: None, rec: None });
        if !view.inode_into(start, &mut at.dir)? {
            return Err(Errno::NOENT.into());
        }
        if !at.dir.is_dir() {
            return Err(Errno::NOTDIR.into());
        }
        let trail = Trail { dir: Some(at.dir.ino) };
        Ok(Walking { at, text: None, pos: 0, links: 0, components: 0, trail })
    }

    /// Walks on, `STRIDE` components at most; whether it is over. `allowed` components in all are ELOOP. After a miss
    /// it goes on with the component that missed.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, EACCES, ELOOP, ENAMETOOLONG, EXDEV; misses and damage as they come.
    pub(super) fn stride<V: View + ?Sized>(
        &self,
        view: &V,
        path: &[u8],
        last: Last,
        allowed: u32,
        w: &mut Walking,
    ) -> FsResult<bool> {
        let (stop, at) = (w.components.saturating_add(STRIDE), &mut *w.at);
        while let Some((from, to)) = next_component(w.text.as_deref().unwrap_or(path), w.pos) {
            if w.components >= stop {
                return Ok(false);
            }
            if w.components >= allowed {
                return Err(Errno::LOOP.into());
            }
            if let Some(rec) = at.rec.take() {
                // The walk goes on below what it had found.
                at.dir = rec;
            }
            if !at.dir.is_dir() {
                return Err(Errno::NOTDIR.into());
            }
            w.trail.dir = Some(at.dir.ino);
            perm::check(&at.dir, self.cred, X)?;
            let text = w.text.as_deref().unwrap_or(path);
            let name = &text[from..to];
            if name.len() > NAME_MAX {
                return Err(Errno::NAMETOOLONG.into());
            }
            let ends = next_component(text, to).is_none();
            if name == b"." || name == b".." {
                at.comp = dot(view, &mut at.dir, name)?;
                at.rec = Some(at.dir.clone());
                at.entry = None;
            } else {
                at.comp = Comp::Normal;
                at.entry = view.entry(at.dir.ino, name)?;
                if let Some(entry) = &at.entry {
                    let rec = at.rec.insert(InodeRec::empty(entry.ino));
                    match view.inode_into(entry.ino, rec) {
                        Ok(true) => {}
                        other => {
                            at.rec = None;
                            return Err(other.err().unwrap_or(Errno::NOENT.into()));
                        }
                    }
                    if rec.mode & perm::IFMT == perm::IFLNK && follows(last, text, to) {
                        if w.links == SYMLINK_FOLLOW_MAX {
                            return Err(Errno::LOOP.into());
                        }
                        let (target, absolute) = self.target(rec.target.as_deref().unwrap_or(&[]))?;
                        let mut joined = target.to_vec();
                        joined.extend_from_slice(&text[to..]);
                        // Nothing found yet: the target may be nothing but slashes.
                        (at.rec, at.entry, at.comp) = (None, None, Comp::Root);
                        if absolute {
                            at.dir = live(view, ROOT)?;
                        }
                        (w.text, w.pos, w.links, w.components) = (Some(joined), 0, w.links + 1, w.components + 1);
                        continue;
                    }
                } else if !ends {
                    w.components += 1;
                    return Err(Errno::NOENT.into());
                }
            }
            (w.pos, w.components) = (to, w.components + 1);
            if ends {
                at.slash = to < text.len();
                at.name = SmallVec::from_slice(name);
                return Ok(true);
            }
        }
        // No component, or none left behind a link.
        at.slash = w.text.as_deref().unwrap_or(path).ends_with(b"/");
        at.rec = Some(at.dir.clone());
        Ok(true)
    }

    /// Walks a path of few components at once; none where it has more than a stride of them.
    ///
    /// # Errors
    /// As [`Walker::stride`].
    pub(super) fn glance<V: View + ?Sized>(
        &self,
        view: &V,
        base: InodeNo,
        path: &[u8],
        last: Last,
    ) -> FsResult<Option<Box<Found>>> {
        let mut walking = self.begin(view, base, path)?;
        Ok(self.stride(view, path, last, u32::MAX, &mut walking)?.then(|| walking.end()))
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

/// Goes where `.` or `..` leads to from a directory.
fn dot<V: View + ?Sized>(view: &V, dir: &mut InodeRec, name: &[u8]) -> FsResult<Comp> {
    if name == b"." {
        return Ok(Comp::Dot);
    }
    let up = live(view, dir.parent)?;
    if up.nlink == 0 {
        return Err(Errno::NOENT.into());
    }
    *dir = up;
    Ok(Comp::DotDot)
}

/// Whether a symbolic link that ends at `to` is followed.
fn follows(last: Last, text: &[u8], to: usize) -> bool {
    match last {
        _ if next_component(text, to).is_some() => true,
        Last::Follow => true,
        Last::NoFollow => to < text.len(),
        Last::Name => false,
    }
}

/// Bounds of the next component at or after `pos`.
fn next_component(text: &[u8], pos: usize) -> Option<(usize, usize)> {
    let from = pos + text[pos..].iter().position(|b| *b != b'/')?;
    let to = text[from..].iter().position(|b| *b == b'/').map_or(text.len(), |n| from + n);
    Some((from, to))
}
