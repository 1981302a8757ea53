//! What the zone hands out and when, and maps longer than one page.

use super::*;
use crate::geometry::GeometryOptions;
use crate::testing::TestMedium;

fn pages_of(len: u64) -> (Pages, Geometry) {
    let medium = Arc::new(TestMedium::new(len as usize, true));
    let geometry = Geometry::plan(len, &GeometryOptions::default()).expect("a possible layout");
    (Pages::new(medium, [7; 16], geometry.blocks, 0), geometry)
}

#[test]
fn a_page_the_durable_state_uses_is_not_handed_out_before_the_finish() {
    let mut zone = Zone::new(4);
    zone.grow(BlockNo(1000), 4 * PAGE_BLOCKS + 3).unwrap();
    assert_eq!((zone.pages_total(), zone.pages_free()), (4, 4));
    zone.begin_checkpoint();
    let first = [zone.alloc_page().expect("free"), zone.alloc_page().expect("free")];
    zone.finish();
    zone.begin_checkpoint();
    zone.free_page(first[0]).expect("in use");
    let next = [zone.alloc_page().expect("free"), zone.alloc_page().expect("free")];
    assert!(next.iter().all(|a| !first.contains(a)));
    assert!(zone.alloc_page().is_err(), "the freed page waits for the finish");
    assert!(zone.free_page(first[0]).is_err(), "freed twice");
    zone.free_page(next[0]).expect("in use");
    assert_eq!(zone.alloc_page().expect("its own page comes back at once"), next[0]);
    zone.finish();
    zone.begin_checkpoint();
    assert_eq!(zone.alloc_page().expect("free after the finish"), first[0]);
    zone.abort();
    assert_eq!(zone.pages_free(), 1);
    for wrong in [BlockNo(999), BlockNo(1001), BlockNo(1016), BlockNo(0), BlockNo(u64::MAX)] {
        assert!(zone.free_page(wrong).is_err());
    }
}

#[test]
fn a_map_of_several_pages_comes_back_whole() {
    let (pages, geometry) = pages_of(256 << 20);
    let mut zone = Zone::new(1);
    let start = geometry.data_blocks().start;
    zone.grow(BlockNo(start + 7), 2000 * PAGE_BLOCKS).unwrap();
    let mut sizes = Vec::new();
    for round in 1..4u64 {
        zone.begin_checkpoint();
        for _ in 0..100 {
            zone.alloc_page().expect("free");
        }
        let map = zone.write_map(&pages, Lsn(round)).expect("free");
        zone.finish();
        let back = Zone::load(&pages, &map, &geometry).expect("whole");
        assert_eq!((back.chunks(), back.map_pages()), (zone.chunks(), zone.map_pages()));
        assert_eq!(zone.map_pages().len(), 2000usize.div_ceil(CHUNKS_PER_PAGE));
        sizes.push(zone.pages_live());
    }
    assert_eq!(sizes, [103, 203, 303], "the old maps were given back");
}

/// A sealed map page with these chunks, its checksum right: what a hostile image can hold.
fn forged(pages: &Pages, medium_block: u64, chunks: &[(u64, u16, u64)], next: PageRef) -> PageRef {
    let mut bytes = blank();
    bytes[HEADER..HEADER + PageRef::BYTES].copy_from_slice(&next.bytes());
    for (i, &(start, n, used)) in chunks.iter().enumerate() {
        let raw = RawChunk { start: U64::new(start), used: U64::new(used), pages: U16::new(n), reserved: [0; 6] };
        bytes[ENTRIES_AT + i * ENTRY..ENTRIES_AT + (i + 1) * ENTRY].copy_from_slice(raw.as_bytes());
    }
    let new = pages.new_page(PageType::ZoneMap, 0, BlockNo(medium_block), Lsn(5));
    let page = Page::seal(bytes, new, chunks.len(), ENTRIES_AT + chunks.len() * ENTRY);
    pages.write(&[Arc::new(page)], false).expect("the test medium does not fail");
    let bytes = pages.read_any(&PageRef { addr: BlockNo(medium_block), birth: Lsn(5), crc: 0 });
    match bytes {
        Err(FsError::Corrupt(c)) => PageRef { addr: BlockNo(medium_block), birth: Lsn(5), crc: c.actual as u32 },
        other => panic!("the checksum cannot be 0: {other:?}"),
    }
}

#[test]
fn impossible_maps_are_refused() {
    let (pages, geometry) = pages_of(16 << 20);
    let data = geometry.data_blocks();
    let at = data.start;
    let good = forged(&pages, at, &[(at, 4, 1)], PageRef::NONE);
    assert!(Zone::load(&pages, &good, &geometry).is_ok());
    let impossible: [&[(u64, u16, u64)]; 9] = [
        &[],
        &[(at, 0, 0)],
        &[(at, 65, 1)],
        &[(at, 4, 16)],
        &[(0, 4, 1)],
        &[(data.end - 15, 4, 1)],
        &[(u64::MAX - 3, 64, 1)],
        &[(at, 4, 1), (at + 15, 4, 1)],
        &[(at, 4, 2)],
    ];
    for chunks in impossible {
        let map = forged(&pages, at, chunks, PageRef::NONE);
        assert!(matches!(Zone::load(&pages, &map, &geometry), Err(FsError::Corrupt(_))), "{chunks:?}");
    }
    // a chain that comes back to itself cannot be made (the checksum), but one that repeats chunks can
    let second = forged(&pages, at + 4, &[(at, 4, 3)], PageRef::NONE);
    let first = forged(&pages, at, &[(at, 4, 3)], second);
    assert!(Zone::load(&pages, &first, &geometry).is_err());
}

#[test]
fn a_run_that_is_in_a_chunk_already_is_damage() {
    let mut zone = Zone::new(4);
    zone.grow(BlockNo(1000), 4 * PAGE_BLOCKS).unwrap();
    for start in [1000 - PAGE_BLOCKS, 1000, 1000 + PAGE_BLOCKS] {
        assert!(zone.grow(BlockNo(start), 2 * PAGE_BLOCKS).is_err(), "at {start}");
    }
    assert_eq!(zone.pages_total(), 4);
}
