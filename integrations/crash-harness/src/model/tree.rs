//! A logical picture of a whole tree, for comparison: names, attributes, bytes, and which names share an inode.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::{BLOCK, Blk, Kind, Model, ROOT, Stat};

/// One block of a file's bytes, shared.
pub type Block = Arc<[u8; BLOCK as usize]>;

/// The bytes of a regular file: its blocks that are not all zeros, in order. Holes and zeros look the same.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Content {
    blocks: Vec<(u64, Block)>,
}

impl Content {
    /// Adds a block behind the others; zeros leave no trace.
    pub fn push(&mut self, at: u64, bytes: Block) {
        if bytes.iter().any(|b| *b != 0) {
            self.blocks.push((at, bytes));
        }
    }

    /// Block `at`, `None` when it is all zeros.
    pub fn block(&self, at: u64) -> Option<&Block> {
        let i = self.blocks.binary_search_by_key(&at, |(b, _)| *b).ok()?;
        Some(&self.blocks[i].1)
    }

    /// The blocks that are not all zeros.
    pub fn blocks(&self) -> &[(u64, Block)] {
        &self.blocks
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = f.debug_list();
        for (at, bytes) in &self.blocks {
            list.entry(&format_args!("{at}:{:08x}", super::data::crc32c(&bytes[..])));
        }
        list.finish()
    }
}

/// Extended attributes, names and values.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// What a path shows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeEntry {
    /// Attributes, without access time.
    pub stat: Stat,
    /// The first path, in byte order, that names the same inode (shows hard links).
    pub first_path: Vec<u8>,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// Content of a regular file.
    pub content: Content,
    /// Extended attributes in byte order.
    pub xattrs: Xattrs,
}

impl TreeEntry {
    /// Without content and target; [`TreeImage::new`] finds the first path.
    pub fn of(stat: Stat, xattrs: Xattrs) -> TreeEntry {
        TreeEntry { stat, first_path: Vec::new(), target: Vec::new(), content: Content::default(), xattrs }
    }
}

/// Every path of a file system and what it shows, in byte order of the path.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeImage {
    /// By path; the root is the empty path.
    pub entries: BTreeMap<Vec<u8>, TreeEntry>,
}

impl TreeImage {
    /// Of entries with their inode numbers.
    pub fn new(entries: BTreeMap<Vec<u8>, (u64, TreeEntry)>) -> TreeImage {
        let mut first: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for (path, (ino, _)) in &entries {
            first.entry(*ino).or_insert_with(|| path.clone());
        }
        let named = |(path, (ino, entry)): (Vec<u8>, (u64, TreeEntry))| {
            (path, TreeEntry { first_path: first[&ino].clone(), ..entry })
        };
        TreeImage { entries: entries.into_iter().map(named).collect() }
    }

    /// A hash of the whole picture, stable within one run of the program.
    pub fn digest(&self) -> u64 {
        let mut h = DefaultHasher::new();
        self.hash(&mut h);
        h.finish()
    }

    /// The first path at which two pictures differ, with both sides.
    pub fn first_difference(&self, other: &TreeImage) -> Option<String> {
        let paths = self.entries.keys().chain(other.entries.keys());
        let path = paths.filter(|p| self.entries.get(*p) != other.entries.get(*p)).min()?;
        let show = |e: Option<&TreeEntry>| e.map_or("absent".to_owned(), |e| format!("{e:?}"));
        let name = String::from_utf8_lossy(path);
        Some(format!("{name}:\n  {}\n  {}", show(self.entries.get(path)), show(other.entries.get(path))))
    }
}

impl Model {
    /// The picture of everything that has a name.
    pub fn tree(&self) -> TreeImage {
        let mut image = BTreeMap::new();
        let mut todo = vec![(Vec::new(), ROOT)];
        while let Some((path, ino)) = todo.pop() {
            let node = self.node(ino);
            let xattrs = node.xattrs.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
            let mut entry = TreeEntry::of(self.stat_of(ino), xattrs);
            match &node.kind {
                Kind::File { blocks, .. } => {
                    for (at, blk) in blocks {
                        if let Blk::Data(bytes) = blk {
                            entry.content.push(*at, bytes.clone());
                        }
                    }
                }
                Kind::Symlink { target } => entry.target = target.clone(),
                Kind::Dir { entries, .. } => {
                    for (name, child) in entries {
                        let mut path = path.clone();
                        path.push(b'/');
                        path.extend_from_slice(name);
                        todo.push((path, *child));
                    }
                }
            }
            image.insert(path, (ino, entry));
        }
        TreeImage::new(image)
    }
}
