//! Names for findings: the tree knows which inode an entry names, not which entries name an inode, so all entries are
//! looked through once for all findings.

use super::Scrub;
use crate::error::FsResult;
use crate::record::Dirent;
use crate::store::Store;
use crate::tree::{Key, kind};
use hashbrown::{HashMap, HashSet};
use weldfs_ciscops::InodeNo;

/// Directories between a file and the root at most.
const DEPTH_MAX: usize = 4096;

impl Scrub<'_> {
    /// Finds a path for every inode that a finding names. Damage on the way leaves findings without one.
    pub(super) fn name_findings(&mut self) {
        let wanted: HashSet<u64> = self.report.findings.iter().filter_map(|f| f.inode).collect();
        if wanted.is_empty() {
            return;
        }
        let names = entries_of(self.store, &wanted);
        let mut paths: HashMap<u64, Option<String>> = HashMap::new();
        for finding in &mut self.report.findings {
            let Some(ino) = finding.inode else { continue };
            let path = paths.entry(ino).or_insert_with(|| path_of(self.store, ino, &names));
            finding.path = path.clone();
        }
    }
}

/// One entry of each wanted inode, of the composed state.
fn entries_of(store: &Store, wanted: &HashSet<u64>) -> HashMap<u64, Dirent> {
    let mut found: HashMap<u64, Dirent> = HashMap::new();
    let mut keep = |d: Dirent| {
        let new = wanted.contains(&d.ino.0) && !found.contains_key(&d.ino.0);
        let still =
            |d: &Dirent| store.blocking(|| store.dirent(d.dir, &d.name)).ok().flatten().is_some_and(|e| e.ino == d.ino);
        if new && still(&d) {
            found.insert(d.ino.0, d);
        }
    };
    for shard in store.overlay.shards() {
        let here: Vec<Dirent> = {
            let shard = shard.read();
            let layers = [Some(&shard.active), shard.lower.frozen.as_deref()].into_iter().flatten();
            layers.flat_map(|l| l.dirents.values()).flatten().filter(|d| wanted.contains(&d.ino.0)).cloned().collect()
        };
        here.into_iter().for_each(&mut keep);
    }
    let base = store.overlay.base(0);
    let (from, to) = (Key::new(kind::DIRENT, 0, 0), Key::new(kind::DIRENT, u64::MAX, u64::MAX));
    let _ = base.tree.scan(&base.slow, from, to, &mut |key, value| {
        if let Ok(d) = Dirent::from_value(InodeNo(key.a), key.b, value) {
            keep(d);
        }
        true
    });
    found
}

fn path_of(store: &Store, ino: u64, names: &HashMap<u64, Dirent>) -> Option<String> {
    if InodeNo(ino) == InodeNo::ROOT {
        return Some("/".to_owned());
    }
    let entry = names.get(&ino)?;
    let mut parts = vec![entry.name.to_vec()];
    let mut dir = entry.dir;
    while dir != InodeNo::ROOT {
        if parts.len() >= DEPTH_MAX {
            return None;
        }
        let parent = store.blocking(|| store.inode(dir)).ok()??.parent;
        parts.push(name_in(store, parent, dir).ok()??);
        dir = parent;
    }
    let all: Vec<u8> = parts.iter().rev().flat_map(|p| [&b"/"[..], p].concat()).collect();
    Some(String::from_utf8_lossy(&all).escape_debug().to_string())
}

/// The name under which a directory holds another.
fn name_in(store: &Store, parent: InodeNo, child: InodeNo) -> FsResult<Option<Vec<u8>>> {
    let (mut found, mut after) = (None, 0);
    store.blocking(|| {
        store.dirents(parent, after, &mut |d| {
            after = d.cookie;
            if d.ino == child {
                found = Some(d.name.to_vec());
            }
            found.is_none()
        })
    })?;
    Ok(found)
}
