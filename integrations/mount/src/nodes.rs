//! The kernel's inodes: a node for each object that it was told of, until it forgets it.
//!
//! A node knows the object's inode number and generation (one node per object, so that names of one file share their
//! cached pages), the names under which it was seen, and the open files of it. Names are hints: whoever uses one looks
//! whether it still leads to that object.

use crate::wire::ROOT;
use std::collections::HashMap;
use weldfs_ciscops::{StatBody, WireTime};

/// What an object is known by, over all of its names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    pub ino: u64,
    pub generation: u64,
}

impl Identity {
    pub fn of(stat: &StatBody) -> Identity {
        Identity { ino: stat.ino, generation: stat.generation }
    }
}

/// Names kept of one node, at most; the latest.
const NAMES_MAX: usize = 16;

struct Node {
    identity: Identity,
    directory: bool,
    /// How often the kernel was told of it, less what it forgot.
    lookups: u64,
    names: Vec<(u64, Box<[u8]>)>,
    open: Vec<u64>,
    /// When it had changed last as of its latest open.
    changed: Option<WireTime>,
}

/// All of them.
pub struct Nodes {
    nodes: HashMap<u64, Node>,
    known: HashMap<Identity, u64>,
    children: HashMap<u64, HashMap<Box<[u8]>, u64>>,
    next: u64,
}

impl Nodes {
    /// With the root alone.
    pub fn new(root: Identity) -> Nodes {
        let node =
            Node { identity: root, directory: true, lookups: 1, names: Vec::new(), open: Vec::new(), changed: None };
        Nodes {
            nodes: HashMap::from([(ROOT, node)]),
            known: HashMap::from([(root, ROOT)]),
            children: HashMap::new(),
            next: ROOT + 1,
        }
    }

    /// The node of an object that the kernel is about to be told of.
    pub fn told(&mut self, stat: &StatBody) -> u64 {
        let identity = Identity::of(stat);
        let next = self.next;
        let id = *self.known.entry(identity).or_insert(next);
        if id == next {
            self.next += 1;
            let directory = is_directory(stat);
            self.nodes.insert(
                id,
                Node { identity, directory, lookups: 0, names: Vec::new(), open: Vec::new(), changed: None },
            );
        }
        if let Some(node) = self.nodes.get_mut(&id) {
            node.lookups += 1;
        }
        id
    }

    /// As `told`, of an object that was found under a name.
    pub fn found(&mut self, parent: u64, name: &[u8], stat: &StatBody) -> u64 {
        let id = self.told(stat);
        self.bind(parent, name, id);
        id
    }

    /// The name now leads to this node.
    fn bind(&mut self, parent: u64, name: &[u8], id: u64) {
        match self.children.get(&parent).and_then(|names| names.get(name)) {
            Some(old) if *old == id => return,
            Some(_) => self.unbind(parent, name),
            None => {}
        }
        let Some(node) = self.nodes.get_mut(&id).filter(|_| id != ROOT) else { return };
        let dropped = if node.names.len() >= NAMES_MAX { Some(node.names.remove(0)) } else { None };
        node.names.push((parent, name.into()));
        if let Some((parent, name)) = dropped {
            self.forget_child(parent, &name);
        }
        self.children.entry(parent).or_default().insert(name.into(), id);
    }

    fn forget_child(&mut self, parent: u64, name: &[u8]) {
        if let Some(names) = self.children.get_mut(&parent) {
            names.remove(name);
            if names.is_empty() {
                self.children.remove(&parent);
            }
        }
    }

    /// The name leads nowhere any more.
    pub fn unbind(&mut self, parent: u64, name: &[u8]) {
        let Some(id) = self.children.get(&parent).and_then(|names| names.get(name)).copied() else { return };
        self.forget_child(parent, name);
        if let Some(node) = self.nodes.get_mut(&id) {
            node.names.retain(|(p, n)| *p != parent || **n != *name);
        }
    }

    /// A name was changed.
    pub fn moved(&mut self, from: (u64, &[u8]), to: (u64, &[u8])) {
        let id = self.children.get(&from.0).and_then(|names| names.get(from.1)).copied();
        self.unbind(from.0, from.1);
        self.unbind(to.0, to.1);
        if let Some(id) = id {
            self.bind(to.0, to.1, id);
        }
    }

    /// Two names were exchanged.
    pub fn exchanged(&mut self, one: (u64, &[u8]), two: (u64, &[u8])) {
        let of = |place: (u64, &[u8])| self.children.get(&place.0).and_then(|names| names.get(place.1)).copied();
        let (a, b) = (of(one), of(two));
        self.unbind(one.0, one.1);
        self.unbind(two.0, two.1);
        if let Some(id) = a {
            self.bind(two.0, two.1, id);
        }
        if let Some(id) = b {
            self.bind(one.0, one.1, id);
        }
    }

    /// The kernel forgets a node so many times; true when that was the last of it.
    pub fn forget(&mut self, id: u64, times: u64) -> bool {
        let Some(node) = self.nodes.get_mut(&id).filter(|_| id != ROOT) else { return false };
        node.lookups = node.lookups.saturating_sub(times);
        if node.lookups > 0 {
            return false;
        }
        let Some(node) = self.nodes.remove(&id) else { return false };
        self.known.remove(&node.identity);
        for (parent, name) in &node.names {
            self.forget_child(*parent, name);
        }
        for (name, child) in self.children.remove(&id).unwrap_or_default() {
            if let Some(child) = self.nodes.get_mut(&child) {
                child.names.retain(|(p, n)| *p != id || *n != name);
            }
        }
        true
    }

    /// What a node is, and whether it is a directory.
    pub fn identity(&self, id: u64) -> Option<(Identity, bool)> {
        self.nodes.get(&id).map(|node| (node.identity, node.directory))
    }

    /// The names of a node, the latest first.
    pub fn names(&self, id: u64) -> Vec<(u64, Box<[u8]>)> {
        self.nodes.get(&id).map(|node| node.names.iter().rev().cloned().collect()).unwrap_or_default()
    }

    /// Open files of a node.
    pub fn open(&self, id: u64) -> Vec<u64> {
        self.nodes.get(&id).map(|node| node.open.clone()).unwrap_or_default()
    }

    /// A file of it was opened. Whether it has not changed since the open before: no call sets the time that says so.
    /// `mapped`: its pages stay in any case, so nothing is found out of them; they may be about to go.
    pub fn opened(&mut self, id: u64, fh: u64, stat: &StatBody, mapped: bool) -> bool {
        let Some(node) = self.nodes.get_mut(&id) else { return false };
        node.open.push(fh);
        !mapped && node.changed.replace(stat.ctime) == Some(stat.ctime)
    }

    /// A file of it was closed.
    pub fn closed(&mut self, id: u64, fh: u64) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.open.retain(|open| *open != fh);
        }
    }
}

/// Whether these are the attributes of a directory.
pub fn is_directory(stat: &StatBody) -> bool {
    stat.mode & libc::S_IFMT == libc::S_IFDIR
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(ino: u64) -> StatBody {
        StatBody { ino, generation: 1, mode: libc::S_IFREG, ..StatBody::default() }
    }

    fn nodes() -> Nodes {
        Nodes::new(Identity { ino: 1, generation: 0 })
    }

    #[test]
    fn names_of_one_object_share_a_node_until_it_is_forgotten() {
        let mut nodes = nodes();
        let a = nodes.found(ROOT, b"a", &stat(7));
        assert_eq!(nodes.found(ROOT, b"b", &stat(7)), a);
        assert_eq!(nodes.names(a).len(), 2);
        assert!(!nodes.forget(a, 1));
        assert!(nodes.forget(a, 1));
        assert!(nodes.children.is_empty() && nodes.names(a).is_empty());
        assert_ne!(nodes.found(ROOT, b"a", &stat(7)), a, "a number is never used again");
    }

    #[test]
    fn a_rename_moves_a_name_and_unbinds_what_it_replaces() {
        let mut nodes = nodes();
        let a = nodes.found(ROOT, b"a", &stat(7));
        let b = nodes.found(ROOT, b"b", &stat(8));
        nodes.moved((ROOT, b"a"), (ROOT, b"b"));
        assert_eq!(nodes.names(a), [(ROOT, b"b"[..].into())]);
        assert!(nodes.names(b).is_empty());
        let c = nodes.found(ROOT, b"c", &stat(9));
        nodes.exchanged((ROOT, b"b"), (ROOT, b"c"));
        assert_eq!(nodes.names(a), [(ROOT, b"c"[..].into())]);
        assert_eq!(nodes.names(c), [(ROOT, b"b"[..].into())]);
    }

    #[test]
    fn a_name_that_leads_elsewhere_now_is_taken_from_its_old_node() {
        let mut nodes = nodes();
        let a = nodes.found(ROOT, b"a", &stat(7));
        let other = nodes.found(ROOT, b"a", &stat(8));
        assert!(nodes.names(a).is_empty());
        assert_eq!(nodes.names(other).len(), 1);
    }

    #[test]
    fn a_file_that_did_not_change_since_the_last_open_is_known_as_such() {
        let mut nodes = nodes();
        let a = nodes.found(ROOT, b"a", &stat(7));
        let later = StatBody { ctime: WireTime::new(5, 6), ..stat(7) };
        let opened = [stat(7), stat(7), later, later].map(|stat| nodes.opened(a, 1, &stat, false));
        assert_eq!(opened, [false, true, false, true]);
    }

    #[test]
    fn the_latest_names_are_kept() {
        let mut nodes = nodes();
        let mut id = 0;
        for n in 0..40u8 {
            id = nodes.found(ROOT, &[b'a' + n], &stat(7));
        }
        assert_eq!(nodes.names(id).len(), NAMES_MAX);
        assert_eq!(&*nodes.names(id)[0].1, [b'a' + 39]);
        assert_eq!(nodes.children[&ROOT].len(), NAMES_MAX);
    }
}
