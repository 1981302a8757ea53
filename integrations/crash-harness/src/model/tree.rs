//! A logical picture of a whole tree, for comparison: names, attributes, bytes, and which names share an inode.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::{Kind, Model, ROOT, Stat};

/// What a path shows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TreeEntry {
    /// Attributes, without access time.
    pub stat: Stat,
    /// The first path, in byte order, that names the same inode (shows hard links).
    pub first_path: Vec<u8>,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// CRC32C of the content of a regular file, holes as zeros, and its non-zero blocks in order.
    pub content: u64,
    /// Extended attributes in byte order.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Every path of a file system and what it shows, in byte order of the path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TreeImage {
    /// By path; the root is the empty path.
    pub entries: BTreeMap<Vec<u8>, TreeEntry>,
}

impl TreeImage {
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
        Some(format!("/{name}:\n  {}\n  {}", show(self.entries.get(path)), show(other.entries.get(path))))
    }
}

/// Folds non-zero blocks of a file, given in order, into one number; zero blocks and holes leave no trace.
pub fn content_digest<'a>(blocks: impl Iterator<Item = (u64, &'a [u8])>) -> u64 {
    let mut h = DefaultHasher::new();
    for (at, bytes) in blocks {
        if bytes.iter().any(|b| *b != 0) {
            at.hash(&mut h);
            bytes.hash(&mut h);
        }
    }
    h.finish()
}

impl Model {
    /// The picture of everything that has a name.
    pub fn tree(&self) -> TreeImage {
        let mut image = TreeImage::default();
        let mut first = BTreeMap::new();
        let mut todo = vec![(Vec::new(), ROOT)];
        while let Some((path, ino)) = todo.pop() {
            let node = self.node(ino);
            first.entry(ino).and_modify(|p: &mut Vec<u8>| *p = path.clone().min(p.clone())).or_insert(path.clone());
            let mut entry = TreeEntry {
                stat: self.stat_of(ino),
                first_path: ino.to_le_bytes().to_vec(),
                target: Vec::new(),
                content: 0,
                xattrs: node.xattrs.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
            };
            match &node.kind {
                Kind::File { blocks, .. } => {
                    entry.content = content_digest(blocks.iter().filter_map(|(b, k)| match k {
                        super::Blk::Data(bytes) => Some((*b, &bytes[..])),
                        super::Blk::Unwritten => None,
                    }));
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
            image.entries.insert(path, entry);
        }
        for entry in image.entries.values_mut() {
            let ino = u64::from_le_bytes(entry.first_path[..].try_into().expect("eight bytes stored above"));
            entry.first_path = first[&ino].clone();
        }
        image
    }
}
