//! Metadata pages with a right checksum, one alone and a tree of some: what is believed can be searched, and every
//! entry is found by its key.

use super::base::{BLOCK, PAGE, PAGE_HEADER, bases};
use crate::cursor::Cursor;
use crate::{Seed, Target};
use std::sync::Arc;
use weldfs_journal::{BlockNo, Lsn, Medium};
use weldfs_media::RamMedium;
use weldfs_store::geometry::Geometry;
use weldfs_store::superblock::RawSuperblock;
use weldfs_store::tree::page::{blank, page_crc};
use weldfs_store::tree::{Key, Page, PageRef, PageType, Pages, Tree, TreeRoot, WalkEvent};
use weldfs_store::zone::Zone;
use zerocopy::FromBytes;

/// See the module.
pub const TARGET: Target = Target {
    name: "page",
    about: "metadata pages with right checksums, to whoever reads pages, trees and zone maps",
    run,
    seeds,
    len_max: 32 << 10,
};

const UUID: [u8; 16] = [0x55; 16];
/// The first block of the first page; the others follow.
const FIRST: u64 = 16;
/// Pages of one input.
const PAGES: usize = 4;
const BLOCKS: u64 = FIRST + 4 * PAGES as u64;

fn run(data: &[u8]) {
    let mut data = Cursor(data);
    let mut medium = vec![0; BLOCKS as usize * BLOCK];
    let n = 1 + usize::from(data.u8()) % PAGES;
    let mut refs: Vec<PageRef> = Vec::new();
    // The last page is made first: pages name those behind them, and `n - 1` is the root.
    for i in 0..n {
        let addr = BlockNo(FIRST + 4 * i as u64);
        let bytes = lay_out(&mut data, addr, &refs);
        medium[addr.0 as usize * BLOCK..][..PAGE].copy_from_slice(&bytes[..]);
        let this = PageRef { addr, birth: Lsn(7), crc: page_crc(&bytes) };
        if let Ok(page) = Page::verify(bytes, &this, &UUID) {
            search(&page);
        }
        refs.push(this);
    }
    let height = data.u8();
    let medium: Arc<dyn Medium> = Arc::new(RamMedium::from_bytes(&medium));
    let pages = Pages::new(medium, UUID, BLOCKS, 1 << 20).blocking();
    let top = refs[n - 1];
    walk(&pages, &TreeRoot { page: top, height }, &mut data);
    let raw = RawSuperblock::read_from_bytes(&bases()[0].sb[..]).expect("a block");
    let geometry: Geometry = raw.validate(4 << 20).expect("of a sound image").geometry;
    if let Ok(zone) = Zone::load(&pages, &top, &geometry) {
        assert!(zone.pages_live() <= zone.pages_total());
        let _ = zone.chunks().iter().map(|c| c.blocks() + c.live()).sum::<u64>();
    }
}

/// A page: its header by fields, then its bytes from the front, and values from the end.
fn lay_out(data: &mut Cursor<'_>, addr: BlockNo, below: &[PageRef]) -> Box<[u8; PAGE]> {
    let mut bytes = blank();
    bytes[0..4].copy_from_slice(b"WFpg");
    (bytes[4], bytes[5]) = (data.u8(), data.u8());
    bytes[6..8].copy_from_slice(&data.array::<2>());
    bytes[8..24].copy_from_slice(&UUID);
    bytes[24..32].copy_from_slice(&addr.0.to_le_bytes());
    bytes[32..40].copy_from_slice(&7u64.to_le_bytes());
    bytes[40..42].copy_from_slice(&data.array::<2>());
    let front = data.long();
    let n = front.len().min(PAGE - PAGE_HEADER);
    bytes[PAGE_HEADER..PAGE_HEADER + n].copy_from_slice(&front[..n]);
    let back = data.long();
    let n = back.len().min(PAGE - PAGE_HEADER);
    bytes[PAGE - n..].copy_from_slice(&back[..n]);
    // Entries of an interior page name the pages below it, whatever they say; those of a zone map the next.
    let places = match bytes[4] {
        2 => (0..usize::from(bytes[6])).map(|i| PAGE_HEADER + i * 37 + 17).collect(),
        3 => vec![PAGE_HEADER],
        _ => Vec::new(),
    };
    for (at, page) in places.into_iter().zip(below.iter().rev().cycle()) {
        if at + PageRef::BYTES <= PAGE && bytes[at] & 0x80 == 0 {
            bytes[at..at + PageRef::BYTES].copy_from_slice(&page.bytes());
        }
    }
    bytes
}

fn search(page: &Page) {
    match page.kind() {
        PageType::ZoneMap => return,
        PageType::Interior => assert!((0..page.count()).all(|i| page.child(i).bytes().len() == PageRef::BYTES)),
        PageType::Leaf => {
            for i in 0..page.count() {
                assert_eq!(page.find(page.key(i)), Some(i));
                assert!(page.value(i).len() <= PAGE);
            }
        }
    }
    for i in 0..page.count() {
        let key = page.key(i);
        assert_eq!((page.floor(key), page.ceiling(key)), (Some(i), i));
        if let Some(b) = key.b.checked_add(1) {
            assert!(page.floor(Key { b, ..key }) >= Some(i), "what lies behind a key is not before it");
        }
    }
    assert_eq!(page.ceiling(Key::MIN), 0);
}

fn walk(pages: &Pages, root: &TreeRoot, data: &mut Cursor<'_>) {
    let mut events = 0u64;
    Tree::walk(root, pages, &mut |event| {
        events += 1;
        if let WalkEvent::Bad(_, e) = event {
            assert!(!e.to_string().is_empty());
        }
    });
    let Ok(tree) = Tree::open(pages, root) else { return };
    let mut keys: Vec<Key> = Vec::new();
    let scanned = tree.scan(pages, Key::MIN, Key::MAX, &mut |key, _| {
        assert!(keys.last().is_none_or(|last| *last < key), "keys ascend");
        keys.push(key);
        true
    });
    assert!(keys.len() <= 4 * PAGE / 21, "a key was shown twice");
    for key in keys.iter().take(64) {
        let found = tree.get(pages, *key);
        assert!(found.is_err() || matches!(found, Ok(Some(_))), "{key} is listed and not found");
    }
    if scanned.is_ok() {
        let absent = Key::new(data.u8(), data.u8().into(), data.u8().into());
        let found = tree.get(pages, absent).expect("all pages are sound");
        assert_eq!(found.is_some(), keys.contains(&absent));
    }
}

fn seeds() -> Vec<Seed> {
    let mut all = Vec::new();
    for base in bases().iter().filter(|b| ["log", "open"].contains(&b.name)) {
        for (i, addr) in base.pages.iter().enumerate() {
            let mut page = vec![0; PAGE];
            base.image.read(addr * BLOCK as u64, &mut page);
            let bound = usize::from(u16::from_le_bytes([page[40], page[41]]));
            let stride = [21, 37, 24][usize::from(page[4]) - 1];
            let front = &page[PAGE_HEADER..PAGE_HEADER + stride * usize::from(page[6])];
            let back = if page[4] == 1 { &page[bound..] } else { &[] };
            let mut bytes = vec![0];
            bytes.extend(&page[4..8]);
            bytes.extend(&page[40..42]);
            for part in [front, back] {
                bytes.extend((part.len() as u16).to_le_bytes());
                bytes.extend(part);
            }
            bytes.extend([page[5] + 1, 1, 1, 0]);
            all.push((format!("{}-page-{i}", base.name), bytes));
        }
    }
    all.push(("two-levels".to_owned(), two_levels()));
    all
}

/// Two leaves of an entry each, and the page that names them.
fn two_levels() -> Vec<u8> {
    let mut bytes = vec![2];
    for a in [9, 3u64] {
        let slot = [&Key::new(1, a, 0).bytes()[..], &(PAGE as u16 - 2).to_le_bytes(), &[2, 0]].concat();
        bytes.extend([1, 0, 1, 0]);
        bytes.extend((PAGE as u16 - 2).to_le_bytes());
        bytes.extend([21, 0]);
        bytes.extend(slot);
        bytes.extend([2, 0, 1, 1]);
    }
    let entry = |a| [&Key::new(1, a, 0).bytes()[..], &[0; PageRef::BYTES]].concat();
    bytes.extend([2, 1, 2, 0]);
    bytes.extend((PAGE_HEADER as u16 + 74).to_le_bytes());
    bytes.extend([74, 0]);
    bytes.extend(entry(3));
    bytes.extend(entry(9));
    bytes.extend([0, 0, 2, 1, 3, 0]);
    bytes
}
