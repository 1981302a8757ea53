//! What the verbs of the program must show of an image if they end well: of one with plain damage, all of one of the
//! trees that it may have, and nothing else; of a forged one, at least the names that are sure.

use super::harm::{Case, Harmed};
use super::look::Look;
use super::names::{Held, Item, Names};
use std::collections::{BTreeMap, BTreeSet};
use weldfs_ciscops::dirent::dtype;

/// A directory that the trees have, which is copied to another name and then removed.
pub const FROM: &str = "a";
pub const TO: &str = "made-by-cp";

/// See the module.
pub struct Expected {
    /// What is not in the tree must not be shown, either.
    pub exact: bool,
    /// One of these it is.
    pub trees: Vec<Names>,
    /// What may go with `FROM` although it has another name: inodes.
    goes: BTreeSet<u64>,
}

/// How a change of a copy ended.
#[derive(Clone, Copy)]
pub struct Changed {
    pub copied: bool,
    pub removed: bool,
}

/// Lines, and how often there are each.
type Lines = BTreeMap<Vec<u8>, usize>;

pub fn lines<'b>(of: impl IntoIterator<Item = &'b [u8]>) -> Lines {
    let mut all = Lines::new();
    for line in of.into_iter().flat_map(|text| text.split(|b| *b == b'\n')).filter(|line| !line.is_empty()) {
        *all.entry(line.to_vec()).or_default() += 1;
    }
    all
}

/// The last part of a path.
fn last(path: &[u8]) -> &[u8] {
    path.rsplit(|b| *b == b'/').next().unwrap_or_default()
}

/// The directory that a path lies in.
fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|b| *b == b'/').map_or(b"", |at| &path[..at])
}

fn is_in(path: &[u8], dir: &[u8]) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

fn missing(path: &[u8]) -> Result<(), String> {
    Err(format!("without /{}", text(path)))
}

/// What an image showed, as names.
fn names(look: &Look) -> Names {
    let item = |entry: &super::look::Entry| {
        let bytes: Option<Vec<_>> = entry.pieces.iter().map(|piece| piece.clone().ok()).collect();
        let content = bytes.filter(|_| entry.dtype != dtype::DIR).map(|b| b.concat());
        Item { ino: entry.stat.map_or(0, |stat| stat.3), dtype: entry.dtype, content }
    };
    look.entries.iter().map(|(path, entry)| (path.clone(), item(entry))).collect()
}

/// Names in `tree` without those that `shown` has, and the other way round if it must be all.
fn same(exact: bool, tree: &BTreeSet<Vec<u8>>, shown: &BTreeSet<Vec<u8>>) -> Result<(), String> {
    match (tree.difference(shown).next(), shown.difference(tree).next()) {
        (Some(path), _) => missing(path),
        (_, Some(path)) if exact => Err(format!("with /{}, which there is not", text(path))),
        _ => Ok(()),
    }
}

fn paths(tree: &Names) -> BTreeSet<Vec<u8>> {
    tree.keys().cloned().collect()
}

fn has_from(tree: &Names) -> bool {
    tree.get(FROM.as_bytes()).is_some_and(|item| item.dtype == dtype::DIR)
}

impl Expected {
    pub fn of(case: &Case) -> Expected {
        match &case.harmed {
            Harmed::Plain { of, image } => {
                let trees = of.allowed(image).into_iter().map(|(_, tree)| names(tree)).collect();
                Expected { exact: true, trees, goes: BTreeSet::new() }
            }
            Harmed::Sealed { of, image, .. } => match Held::of(image, of) {
                None => Expected { exact: false, trees: vec![Names::new()], goes: BTreeSet::new() },
                Some(held) => {
                    Expected { exact: false, trees: vec![held.sure()], goes: held.goes_with(FROM.as_bytes()) }
                }
            },
        }
    }

    /// Whether every tree has the directory that is copied and removed.
    pub fn has_from(&self) -> bool {
        self.trees.iter().all(has_from)
    }

    /// One of the trees must fit.
    fn some(&self, what: &str, fits: impl Fn(&Names) -> Result<(), String>) -> Result<(), String> {
        let first = self.trees.iter().map(fits).reduce(|a, b| if a.is_ok() { a } else { b.or(a) });
        first.unwrap_or(Ok(())).map_err(|why| format!("{what} ends well {why}; {} trees may be", self.trees.len()))
    }

    /// `ls` of the root.
    pub fn root(&self, shown: &[u8]) -> Result<(), String> {
        let shown: BTreeSet<Vec<u8>> = lines([shown]).into_keys().collect();
        self.some("ls", |tree| {
            let names = tree.keys().filter(|path| parent(path).is_empty()).cloned().collect();
            same(self.exact, &names, &shown)
        })
    }

    /// `ls -R`: names and headings, each as often as there are such.
    pub fn recursive(&self, shown: &[u8]) -> Result<(), String> {
        let shown = lines([shown]);
        self.some("ls -R", |tree| {
            let mut all: Vec<Vec<u8>> = tree.keys().map(|path| last(path).to_vec()).collect();
            let dirs = tree.iter().filter(|(_, item)| item.dtype == dtype::DIR).map(|(path, _)| &path[..]);
            all.extend(dirs.chain([&b""[..]]).map(|dir| [b"/", dir, b":"].concat()));
            let all = lines(all.iter().map(|line| &line[..]));
            let less = |(line, times): &(&Vec<u8>, &usize)| shown.get(*line).is_none_or(|found| found < *times);
            match all.iter().find(less) {
                // Where nothing is sure, the root may be no directory.
                Some((line, _)) if self.exact || !tree.is_empty() => Err(format!("without `{}`", text(line))),
                _ if self.exact && all != shown => Err("with names that there are not".into()),
                _ => Ok(()),
            }
        })
    }

    /// `find`: paths without a leading slash.
    pub fn found(&self, shown: &BTreeSet<Vec<u8>>) -> Result<(), String> {
        self.some("find", |tree| same(self.exact, &paths(tree), shown))
    }

    /// `du -a`: every directory, and every file by one of its names.
    pub fn measured(&self, shown: &BTreeSet<Vec<u8>>) -> Result<(), String> {
        self.some("du", |tree| {
            let inodes: BTreeSet<u64> = shown.iter().filter_map(|path| Some(tree.get(path)?.ino)).collect();
            let told = |(path, item): &(&Vec<u8>, &Item)| match item.dtype {
                dtype::DIR => shown.contains(*path),
                _ => inodes.contains(&item.ino),
            };
            match tree.iter().find(|entry| !told(entry)) {
                Some((path, _)) => missing(path),
                None if self.exact => same(true, &BTreeSet::new(), &shown.difference(&paths(tree)).cloned().collect()),
                None => Ok(()),
            }
        })
    }

    /// `get` of the root, or of what `cp` made (`below` is what that was made of): what lies on the host now.
    pub fn copied(&self, below: Option<&str>, host: &Names) -> Result<(), String> {
        self.some("get", |tree| {
            let part = |path: &[u8]| match below {
                None => Some(path.to_vec()),
                Some(dir) => path.strip_prefix([dir.as_bytes(), b"/"].concat().as_slice()).map(<[u8]>::to_vec),
            };
            let all: Names = tree.iter().filter_map(|(path, item)| Some((part(path)?, item.clone()))).collect();
            for (path, item) in &all {
                let right = match (item.dtype, host.get(path)) {
                    // What is neither file, directory nor link is left out.
                    (dtype::DIR | dtype::REG | dtype::LNK, None) => return missing(path),
                    (dtype::DIR | dtype::REG | dtype::LNK, Some(found)) => {
                        found.dtype == item.dtype && (item.content.is_none() || found.content == item.content)
                    }
                    _ => true,
                };
                if !right {
                    return Err(format!("with another /{}", text(path)));
                }
            }
            same(self.exact, &BTreeSet::new(), &host.keys().filter(|p| !all.contains_key(*p)).cloned().collect())
        })
    }

    /// `find` after `FROM` was copied to `TO`, and removed.
    pub fn changed(&self, shown: &BTreeSet<Vec<u8>>, how: Changed) -> Result<(), String> {
        let (from, to) = (FROM.as_bytes(), TO.as_bytes());
        let stays = |tree: &Names, path: &[u8]| {
            let of = |path: &[u8]| tree.get(path).is_some_and(|item| self.goes.contains(&item.ino));
            !is_in(path, from) && !of(path) && !of(parent(path))
        };
        self.some("find after cp and rm", |tree| {
            if how.removed && has_from(tree) && shown.iter().any(|path| is_in(path, from)) {
                return Err(format!("with /{FROM}, which was removed"));
            }
            let mut all: BTreeSet<Vec<u8>> = tree.keys().filter(|path| stays(tree, path)).cloned().collect();
            if how.copied {
                // (An entry that leads nowhere may be of a type that no copy has.)
                let made = tree.iter().filter(|(path, item)| is_in(path, from) && item.dtype != dtype::UNKNOWN);
                all.extend(made.map(|(path, _)| [to, &path[from.len()..]].concat()));
            }
            // What failed may have been done in part.
            let part = |path: &&Vec<u8>| is_in(path, from) && !how.removed || is_in(path, to) && !how.copied;
            same(self.exact, &all, &shown.iter().filter(|path| !part(path)).cloned().collect())
        })
    }
}
