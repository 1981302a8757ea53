//! A sorted batch of changes becomes a new tree beside the old one.
//!
//! Bottom-up copy-on-write: each leaf with a change in its range is merged with the batch and packed into new pages;
//! a parent gets the new references and is packed likewise. Runs of neighbouring dirty pages are packed together, and
//! a run that comes out nearly empty takes in a clean neighbour. Nothing the old tree refers to is written.

use super::page::{BRANCH, CAPACITY, HEADER, Page, PageType, SLOT, blank, put_child, put_value};
use super::{Key, PageRef, Pages, Tree, bound_of, check_child};
use crate::error::{FsError, FsResult};
use crate::limits::{PAGE, TREE_HEIGHT_MAX, VALUE_MAX};
use crate::zone::Zone;
use std::collections::VecDeque;
use std::iter::Peekable;
use std::sync::Arc;
use weldfs_ciscops::Errno;
use weldfs_journal::Lsn;

/// Fill of pages in the middle of a long run, bytes: the rest is room for later changes.
const FILL: usize = CAPACITY / 10 * 9;
/// A run with less than this takes in a neighbour, bytes.
const UNDERFULL: usize = CAPACITY / 4;
/// Entries held back before a page is cut off at [`FILL`], bytes: enough to spread the end of a run evenly.
const HELD: usize = 4 * CAPACITY;
/// Pages written to the medium together.
const WRITE_BATCH: usize = 32;

/// A change: a key and its new value, or none to remove it.
pub type Change = (Key, Option<Vec<u8>>);

enum Body {
    Old(Arc<Page>, usize),
    New(Vec<u8>),
}

impl Body {
    fn bytes(&self) -> &[u8] {
        match self {
            Body::Old(page, i) => page.value(*i),
            Body::New(bytes) => bytes,
        }
    }
}

/// Entry of a leaf being packed.
struct LeafItem {
    key: Key,
    body: Body,
}

/// Entry of an interior page being packed.
struct Branch {
    key: Key,
    child: PageRef,
    /// The child itself if it is interior and in memory.
    page: Option<Arc<Page>>,
}

/// What the packer needs of an entry.
trait Item: Sized {
    fn size(&self) -> usize;
    /// Builds a page at `level` of `items`.
    fn build(build: &mut Build<'_, '_>, items: &[Self], level: u8) -> FsResult<Branch>;
    /// All entries of a clean page.
    fn load(page: &Arc<Page>, out: &mut dyn FnMut(Self));
    /// The entries of a page after the changes below `hi`.
    fn rewrite(build: &mut Build<'_, '_>, page: &Arc<Page>, hi: Option<Key>, packer: &mut Packer<Self>)
    -> FsResult<()>;
}

/// Collects entries in order and cuts them into pages.
struct Packer<T> {
    held: VecDeque<T>,
    bytes: usize,
    level: u8,
    out: Vec<Branch>,
}

impl<T: Item> Packer<T> {
    fn new(level: u8) -> Packer<T> {
        Packer { held: VecDeque::new(), bytes: 0, level, out: Vec::new() }
    }

    fn hold(&mut self, item: T) {
        self.bytes += item.size();
        self.held.push_back(item);
    }

    fn push(&mut self, build: &mut Build<'_, '_>, item: T) -> FsResult<()> {
        self.hold(item);
        if self.bytes > HELD { self.cut(build, FILL) } else { Ok(()) }
    }

    /// Builds a page of the first entries, at most `target` bytes (which holds any two entries).
    fn cut(&mut self, build: &mut Build<'_, '_>, target: usize) -> FsResult<()> {
        let (mut n, mut sum) = (0, 0);
        while let Some(item) = self.held.get(n) {
            if n > 0 && sum + item.size() > target {
                break;
            }
            sum += item.size();
            n += 1;
        }
        self.bytes -= sum;
        let items: Vec<T> = self.held.drain(..n).collect();
        let branch = T::build(build, &items, self.level)?;
        self.out.push(branch);
        Ok(())
    }

    /// Ends a run: what is held becomes pages of about equal fill.
    fn finish(&mut self, build: &mut Build<'_, '_>) -> FsResult<()> {
        while self.bytes > CAPACITY {
            let pages = self.bytes.div_ceil(FILL).max(2);
            self.cut(build, self.bytes.div_ceil(pages))?;
        }
        if self.held.is_empty() { Ok(()) } else { self.cut(build, CAPACITY) }
    }

    fn underfull(&self) -> bool {
        !self.held.is_empty() && self.bytes < UNDERFULL
    }
}

/// One application of a batch.
struct Build<'a, 'b> {
    pages: &'a Pages,
    zone: &'a mut Zone,
    batch: Peekable<&'a mut (dyn Iterator<Item = Change> + 'b)>,
    last: Option<Key>,
    birth: Lsn,
    unwritten: Vec<Arc<Page>>,
}

impl Build<'_, '_> {
    /// Whether a change below `hi` is left.
    fn pending(&mut self, hi: Option<Key>) -> bool {
        self.batch.peek().is_some_and(|(k, _)| hi.is_none_or(|hi| *k < hi))
    }

    /// The next change below `hi`; refuses a batch out of order and a value too long.
    fn take(&mut self, hi: Option<Key>) -> FsResult<Option<Change>> {
        if !self.pending(hi) {
            return Ok(None);
        }
        let Some((key, value)) = self.batch.next() else { return Ok(None) };
        let in_order = self.last.is_none_or(|last| last < key);
        if !in_order || value.as_ref().is_some_and(|v| v.len() > VALUE_MAX) {
            debug_assert!(false, "batch out of order or value too long at {key}");
            return Err(FsError::Errno(Errno::INVAL));
        }
        self.last = Some(key);
        Ok(Some((key, value)))
    }

    /// Allocates a page, fills it, and queues it for writing.
    fn seal(
        &mut self,
        kind: PageType,
        level: u8,
        count: usize,
        fill: impl FnOnce(&mut [u8; PAGE]) -> usize,
    ) -> FsResult<Arc<Page>> {
        let addr = self.zone.alloc_page()?;
        let mut bytes = blank();
        let bound = fill(&mut bytes);
        let page = Arc::new(Page::seal(bytes, self.pages.new_page(kind, level, addr, self.birth), count, bound));
        self.unwritten.push(page.clone());
        if self.unwritten.len() >= WRITE_BATCH {
            self.write_out()?;
        }
        Ok(page)
    }

    fn write_out(&mut self) -> FsResult<()> {
        self.pages.write(&self.unwritten, true)?;
        self.unwritten.clear();
        Ok(())
    }

    fn retire(&mut self, page: &PageRef) -> FsResult<()> {
        self.zone.free_page(page.addr)
    }

    /// The references that `node` holds after the changes below `hi`.
    fn children(&mut self, node: &Arc<Page>, hi: Option<Key>) -> FsResult<Vec<Branch>> {
        if node.level() == 1 { self.level::<LeafItem>(node, hi) } else { self.level::<Branch>(node, hi) }
    }

    fn level<T: Item>(&mut self, node: &Arc<Page>, hi: Option<Key>) -> FsResult<Vec<Branch>> {
        let mut packer = Packer::<T>::new(node.level() - 1);
        let mut last_clean = None;
        for i in 0..node.count() {
            let hi = bound_of(node, i, hi);
            if self.pending(hi) {
                let child = self.child(node, i, hi)?;
                self.retire(&child.this())?;
                T::rewrite(self, &child, hi, &mut packer)?;
                continue;
            }
            if packer.underfull() {
                let child = self.child(node, i, hi)?;
                self.retire(&child.this())?;
                T::load(&child, &mut |item| packer.hold(item));
                continue;
            }
            packer.finish(self)?;
            packer.out.push(Branch { key: node.key(i), child: node.child(i), page: node.resident(i).cloned() });
            last_clean = Some((packer.out.len(), i));
        }
        if packer.underfull()
            && let Some((len, i)) = last_clean.filter(|(len, _)| *len == packer.out.len())
        {
            let child = self.child(node, i, bound_of(node, i, hi))?;
            self.retire(&child.this())?;
            packer.out.truncate(len - 1);
            let tail = std::mem::take(&mut packer.held);
            packer.bytes = 0;
            T::load(&child, &mut |item| packer.hold(item));
            tail.into_iter().for_each(|item| packer.hold(item));
        }
        packer.finish(self)?;
        Ok(packer.out)
    }

    fn child(&self, node: &Page, i: usize, hi: Option<Key>) -> FsResult<Arc<Page>> {
        let child = match node.resident(i) {
            Some(child) => child.clone(),
            None => self.pages.get(&node.child(i))?,
        };
        check_child(node, i, &child, hi)?;
        Ok(child)
    }
}

impl Item for LeafItem {
    fn size(&self) -> usize {
        SLOT + self.body.bytes().len()
    }

    fn build(build: &mut Build<'_, '_>, items: &[Self], level: u8) -> FsResult<Branch> {
        let page = build.seal(PageType::Leaf, level, items.len(), |bytes| {
            items.iter().enumerate().fold(PAGE, |top, (i, it)| put_value(bytes, i, it.key, it.body.bytes(), top))
        })?;
        Ok(Branch { key: items[0].key, child: page.this(), page: None })
    }

    fn load(page: &Arc<Page>, out: &mut dyn FnMut(Self)) {
        (0..page.count()).for_each(|i| out(LeafItem { key: page.key(i), body: Body::Old(page.clone(), i) }));
    }

    fn rewrite(
        build: &mut Build<'_, '_>,
        page: &Arc<Page>,
        hi: Option<Key>,
        packer: &mut Packer<Self>,
    ) -> FsResult<()> {
        for i in 0..page.count() {
            let key = page.key(i);
            while let Some((k, value)) = build.take(Some(key))? {
                if let Some(v) = value {
                    packer.push(build, LeafItem { key: k, body: Body::New(v) })?;
                }
            }
            let body = match build.batch.peek() {
                Some((k, _)) if *k == key => build.take(None)?.and_then(|(_, v)| v).map(Body::New),
                _ => Some(Body::Old(page.clone(), i)),
            };
            if let Some(body) = body {
                packer.push(build, LeafItem { key, body })?;
            }
        }
        append_rest(build, hi, packer)
    }
}

/// The changes from here to `hi`, all of keys the tree does not have.
fn append_rest(build: &mut Build<'_, '_>, hi: Option<Key>, packer: &mut Packer<LeafItem>) -> FsResult<()> {
    while let Some((key, value)) = build.take(hi)? {
        if let Some(v) = value {
            packer.push(build, LeafItem { key, body: Body::New(v) })?;
        }
    }
    Ok(())
}

impl Item for Branch {
    fn size(&self) -> usize {
        BRANCH
    }

    fn build(build: &mut Build<'_, '_>, items: &[Self], level: u8) -> FsResult<Branch> {
        if level >= TREE_HEIGHT_MAX {
            return Err(FsError::Errno(Errno::NOSPC));
        }
        let page = build.seal(PageType::Interior, level, items.len(), |bytes| {
            items.iter().enumerate().for_each(|(i, it)| put_child(bytes, i, it.key, &it.child));
            HEADER + items.len() * BRANCH
        })?;
        if level >= 2 {
            for (i, item) in items.iter().enumerate() {
                if let Some(child) = &item.page {
                    page.cell(i).get_or_init(|| child.clone());
                }
            }
        }
        Ok(Branch { key: items[0].key, child: page.this(), page: Some(page) })
    }

    fn load(page: &Arc<Page>, out: &mut dyn FnMut(Self)) {
        (0..page.count()).for_each(|i| {
            out(Branch { key: page.key(i), child: page.child(i), page: page.resident(i).cloned() });
        });
    }

    fn rewrite(
        build: &mut Build<'_, '_>,
        page: &Arc<Page>,
        hi: Option<Key>,
        packer: &mut Packer<Self>,
    ) -> FsResult<()> {
        for branch in build.children(page, hi)? {
            packer.push(build, branch)?;
        }
        Ok(())
    }
}

impl Tree {
    /// The tree after `batch`, whose keys strictly ascend; `birth` is the cut of the checkpoint. New pages come from
    /// `zone` (ENOSPC when it is full: abort, grow it, apply again) and are handed to the medium without a barrier;
    /// pages only the old tree uses are given back to `zone`. Reads block. After an error the old tree is intact and
    /// the zone must be aborted.
    pub fn apply(
        &self,
        pages: &Pages,
        zone: &mut Zone,
        batch: &mut dyn Iterator<Item = Change>,
        birth: Lsn,
    ) -> FsResult<Tree> {
        let pages = pages.blocking();
        let mut build =
            Build { pages: &pages, zone, batch: batch.peekable(), last: None, birth, unwritten: Vec::new() };
        if !build.pending(None) {
            return Ok(self.clone());
        }
        let (mut level, mut tops) = build.bottom(self.root.as_ref())?;
        while tops.len() > 1 {
            level += 1;
            let mut packer = Packer::<Branch>::new(level);
            for branch in tops {
                packer.push(&mut build, branch)?;
            }
            packer.finish(&mut build)?;
            tops = packer.out;
        }
        build.write_out()?;
        let Some(top) = tops.pop() else { return Ok(Tree::empty()) };
        let mut root = match top.page {
            Some(page) => page,
            None => pages.get(&top.child)?,
        };
        while root.level() > 0 && root.count() == 1 {
            let child = build.child(&root, 0, None)?;
            build.retire(&root.this())?;
            root = child;
        }
        Ok(Tree { root: Some(root) })
    }
}

impl Build<'_, '_> {
    /// Rewrites everything below the root; returns the references the new root level has to hold, and their level.
    fn bottom(&mut self, root: Option<&Arc<Page>>) -> FsResult<(u8, Vec<Branch>)> {
        let mut packer = Packer::<LeafItem>::new(0);
        match root {
            Some(root) => {
                self.retire(&root.this())?;
                if root.level() > 0 {
                    return Ok((root.level() - 1, self.children(root, None)?));
                }
                LeafItem::rewrite(self, root, None, &mut packer)?;
            }
            None => append_rest(self, None, &mut packer)?,
        }
        packer.finish(self)?;
        Ok((0, packer.out))
    }
}
