//! The names of a forged image: what its tree and its log hold, against what a mount listed with success. What a
//! listing leaves out, makes up, or takes for another file is a finding whatever fsck says.
//!
//! A forged entry whose hash and checksums are right is simply another tree: what is listed is compared with the tree
//! as it stands in the image, not with the one that the edits began with. Excused is, further:
//!
//! * what the log says something of: an entry that it sets or takes away, a directory that it makes anew (readers then
//!   ask the tree for nothing in it; nor if the tree's own record was forged to be younger than the tree, and the log
//!   changes it), a name that an open transaction has. Where the log does not decode nothing is compared;
//! * a name that is listed and leads nowhere (ENOENT), where its entry, its inode or what finds either was forged: fsck
//!   says so.

use super::log::Log;
use super::look::Look;
use super::tree::{Named, Tree};
use std::collections::{BTreeMap, BTreeSet};
use weldfs_ciscops::dirent::dtype;
use weldfs_fuzz_targets::media::Base;
use weldfs_media::CowImage;

/// What can be said of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub ino: u64,
    pub dtype: u8,
    /// Content of a file, if it is known.
    pub content: Option<Vec<u8>>,
}

/// Names by their paths, which have no leading slash; without the root.
pub type Names = BTreeMap<Vec<u8>, Item>;

/// Inode number of the root directory.
const ROOT: u64 = 1;
const S_IFMT: u64 = 0o170_000;
const S_IFDIR: u64 = 0o040_000;
/// Where the superblock has what bounds inode numbers and the key of the hashes: what names are found by.
const FINDS: [std::ops::Range<usize>; 2] = [784..792, 800..816];

/// The tree and the log of a forged image, and the tree that it was made of.
pub struct Held {
    tree: Tree,
    log: Log,
    origin: Tree,
}

/// A path below a directory.
pub fn below(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}

impl Held {
    /// What an image holds; `None` where that cannot be known.
    pub fn of(image: &CowImage, base: &Base) -> Option<Held> {
        let tree = Tree::read(image)?;
        let log = Log::read(image, &tree)?;
        Some(Held { tree, log, origin: Tree::read(&base.image)? })
    }

    /// The entries of a directory that the log says nothing of.
    fn settled(&self, dir: u64) -> impl Iterator<Item = Named> + '_ {
        self.tree.dirents(dir).filter(move |d| !self.log.entries.contains(&(dir, d.cookie)))
    }

    /// Whether readers need not ask the tree for the entries of a directory.
    fn hidden(&self, dir: u64) -> bool {
        let forged = self.tree.inode(dir) != self.origin.inode(dir);
        self.log.inodes.contains(&dir) || forged && self.log.touched.contains(&dir)
    }

    /// Whether an entry is as it was, and with it all that a path through it is found by.
    fn as_it_was(&self, dir: u64, named: &Named) -> bool {
        let (tree, origin) = (&self.tree, &self.origin);
        let Some((name, ino)) = &named.what else { return false };
        let same_name = |d: &Named| d.what.as_ref().is_some_and(|(other, _)| other == name);
        origin.entries.get(&named.key) == tree.entries.get(&named.key)
            && FINDS.into_iter().all(|field| tree.sb[field.clone()] == origin.sb[field])
            && self.tree.dirents(dir).filter(same_name).count() == 1
            && tree.inode(*ino).is_some_and(|rec| origin.inode(*ino) == Some(rec))
            && !tree.goes(*ino)
            && !self.log.inodes.contains(ino)
            && !self.log.plans_with(name)
    }

    /// Compares what was listed with success. `clean`: fsck says that nothing is wrong.
    ///
    /// # Errors
    /// The first name that is missing, made up, or leads somewhere else.
    pub fn judge(&self, shown: &Look, clean: bool) -> Result<(), String> {
        let mut listed = BTreeSet::new();
        for (path, names) in &shown.listed {
            let (Ok(names), Some(dir)) = (names, shown.inode_of(path)) else { continue };
            listed.extend(names.iter().map(|name| (dir, name.clone())));
            if !self.hidden(dir) {
                let why = self.listing(dir, names).and_then(|()| self.leads(path, dir, names, shown));
                why.map_err(|why| format!("/{}: {why}", String::from_utf8_lossy(path)))?;
            }
        }
        if !clean || shown.cut {
            return Ok(());
        }
        // Every directory of a clean tree can be reached.
        for dir in self.tree.directories().into_iter().filter(|dir| !self.log.inodes.contains(dir)) {
            for (name, _) in self.settled(dir).filter_map(|d| d.what) {
                if !self.log.plans_with(&name) && !listed.contains(&(dir, name.clone())) {
                    let name = String::from_utf8_lossy(&name).into_owned();
                    return Err(format!("fsck finds nothing, and `{name}` in directory {dir} is not listed"));
                }
            }
        }
        Ok(())
    }

    /// The names of one directory, as a set.
    fn listing(&self, dir: u64, names: &BTreeSet<Vec<u8>>) -> Result<(), String> {
        if !self.tree.has_all_of(dir) {
            return Err("listed with success, and a page with its names is none".into());
        }
        for named in self.settled(dir) {
            let Some((name, _)) = named.what else {
                return Err("listed with success, and one of its entries is none".into());
            };
            // (`look` leaves these out.)
            if !matches!(&name[..], b"." | b"..") && !names.contains(&name) && !self.log.plans_with(&name) {
                let name = String::from_utf8_lossy(&name).into_owned();
                return Err(format!("listed with success without `{name}`, which the tree holds"));
            }
        }
        let held = |name: &&Vec<u8>| self.may_name(dir, name).is_some();
        match names.iter().find(|name| !held(name)) {
            Some(name) => Err(format!("`{}` is listed, and nothing holds it", String::from_utf8_lossy(name))),
            None => Ok(()),
        }
    }

    /// The inodes that a name may lead to: none if it leads anywhere. `None` if there is no such name.
    fn may_name(&self, dir: u64, name: &Vec<u8>) -> Option<BTreeSet<u64>> {
        if self.log.plans_with(name) {
            return Some(BTreeSet::new());
        }
        let tree = self.tree.dirents(dir).filter_map(|d| d.what).filter(|(other, _)| other == name);
        let mut all: BTreeSet<u64> = tree.map(|(_, ino)| ino).collect();
        all.extend(self.log.names.get(&(dir, name.clone())).into_iter().flatten());
        (!all.is_empty()).then_some(all)
    }

    /// Where the listed names of a directory lead to.
    fn leads(&self, path: &[u8], dir: u64, names: &BTreeSet<Vec<u8>>, shown: &Look) -> Result<(), String> {
        for name in names.iter().filter(|name| !name.contains(&b'/')) {
            let Some(entry) = shown.entries.get(&below(path, name)) else { continue };
            let may = self.may_name(dir, name).unwrap_or_default();
            match entry.stat {
                Ok((_, _, _, ino)) if !may.is_empty() && !may.contains(&ino) => {
                    let name = String::from_utf8_lossy(name).into_owned();
                    return Err(format!("`{name}` leads to inode {ino}, and the tree names {may:?}"));
                }
                Err(libc::ENOENT) => {
                    let is = |d: &Named| d.what.as_ref().is_some_and(|(other, _)| other == name);
                    if self.settled(dir).any(|d| is(&d) && self.as_it_was(dir, &d)) {
                        let name = String::from_utf8_lossy(name).into_owned();
                        return Err(format!("`{name}` is listed and leads nowhere, and its entry and inode are sound"));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The names that any reader must find who has success: all in the directories that are as they were, and so is all
    /// that leads to them. Those which may lead anywhere, or nowhere, have no type.
    pub fn sure(&self) -> Names {
        let (mut names, mut todo) = (Names::new(), Vec::new());
        let is_dir = |ino: u64| self.tree.mode(ino).is_some_and(|mode| mode & S_IFMT == S_IFDIR);
        if self.tree.inode(ROOT) == self.origin.inode(ROOT) && is_dir(ROOT) && !self.tree.goes(ROOT) {
            todo.push((Vec::new(), ROOT));
        }
        while let Some((dir, number)) = todo.pop() {
            if self.hidden(number) {
                continue;
            }
            for named in self.settled(number) {
                let sure = self.as_it_was(number, &named);
                let Some((name, ino)) = named.what.filter(|(name, _)| !self.log.plans_with(name)) else { continue };
                let path = below(&dir, &name);
                // The upper bits of a mode are what directories have as a type.
                let mode = self.tree.mode(ino).filter(|_| sure);
                let dtype = mode.map_or(dtype::UNKNOWN, |mode| (mode >> 12) as u8);
                if dtype == dtype::DIR && !names.contains_key(&path) {
                    todo.push((path.clone(), ino));
                }
                names.insert(path, Item { ino, dtype, content: None });
            }
        }
        names
    }

    /// The inodes that the removal of a name in the root, and of all below it, may take away: a forged tree can have
    /// others under it.
    pub fn goes_with(&self, name: &[u8]) -> BTreeSet<u64> {
        let log = |dir: u64| self.log.names.iter().filter(move |((d, _), _)| *d == dir);
        let named = |dir: u64| {
            let tree = self.tree.dirents(dir).filter_map(|d| d.what);
            tree.chain(log(dir).flat_map(|((_, name), inos)| inos.iter().map(|ino| (name.clone(), *ino))))
        };
        let mut todo: Vec<u64> = named(ROOT).filter(|(other, _)| other == name).map(|(_, ino)| ino).collect();
        let mut all = BTreeSet::new();
        while let Some(ino) = todo.pop() {
            if all.insert(ino) {
                todo.extend(named(ino).map(|(_, ino)| ino));
            }
        }
        all
    }
}
