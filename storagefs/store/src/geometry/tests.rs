//! The layout: parts neither overlap nor leave the medium, whatever its length.

use super::*;
use proptest::prelude::*;

#[test]
fn the_smallest_image_has_room_for_data() {
    let g = Geometry::plan(MEDIUM_LEN_MIN, &GeometryOptions::default()).expect("3 MiB are enough");
    assert_eq!(g.log.len, 384 * 1024);
    let data = g.data_blocks();
    assert!(data.end - data.start > 600, "{data:?}");
    let small = GeometryOptions { log_len: Some(LOG_LEN_MIN), group_blocks: Some(64), ..Default::default() };
    assert!(Geometry::plan(MEDIUM_LEN_MIN, &small).is_ok());
    assert!(Geometry::plan(MEDIUM_LEN_MIN - 1, &small).is_err());
}

#[test]
fn the_log_is_an_eighth_up_to_64_mib() {
    let log = |len: u64| Geometry::plan(len, &GeometryOptions::default()).expect("possible").log.len;
    assert_eq!(log(64 << 20), 8 << 20);
    assert_eq!(log(512 << 20), 64 << 20);
    assert_eq!(log(1 << 40), 64 << 20);
}

#[test]
fn impossible_wishes_are_refused_by_name() {
    let refuse = |o: GeometryOptions| match Geometry::plan(8 << 20, &o) {
        Err(ImageError::Layout(what)) => what,
        other => panic!("{other:?}"),
    };
    let d = GeometryOptions::default();
    assert_eq!(refuse(GeometryOptions { log_len: Some(4096), ..d }), "log length");
    assert_eq!(refuse(GeometryOptions { log_len: Some((1 << 20) + 1), ..d }), "log length");
    assert!(refuse(GeometryOptions { log_len: Some(8 << 20), ..d }).contains("no room"));
    assert_eq!(refuse(GeometryOptions { log_align: 100, ..d }), "log alignment");
    assert_eq!(refuse(GeometryOptions { group_blocks: Some(100), ..d }), "blocks per group");
    assert_eq!(refuse(GeometryOptions { chunk_pages: Some(65), ..d }), "pages per chunk");
}

proptest! {
    #[test]
    fn groups_tile_the_medium_and_data_avoids_everything_else(
        len in MEDIUM_LEN_MIN..(4u64 << 40), group in prop::option::of(1..512u32),
    ) {
        let options = GeometryOptions { group_blocks: group.map(|g| g * 64), ..Default::default() };
        let g = Geometry::plan(len, &options).expect("possible");
        prop_assert!(g.medium_len() <= len);
        let (groups, data) = (g.groups(), g.data_blocks());
        prop_assert_eq!(g.group_range(0).start, 0);
        prop_assert_eq!(g.group_range(groups - 1).end, g.blocks);
        for i in [0, groups / 3, groups / 2, groups - 1] {
            let (all, free) = (g.group_range(i), g.group_data(i));
            prop_assert!(!all.is_empty() && free.start >= data.start.min(all.end));
            prop_assert!(free.end <= data.end.max(free.start));
            prop_assert_eq!(g.group_of(BlockNo(all.start)), i);
            prop_assert_eq!(g.group_of(BlockNo(all.end - 1)), i);
        }
        for sb in g.superblocks() {
            prop_assert!(sb.0 < g.blocks && !data.contains(&sb.0));
            prop_assert!(sb.0 * 4096 + 4096 <= g.log.start || sb.0 * 4096 >= g.log.start + g.log.len);
        }
        prop_assert_eq!((g.log.start + g.log.len) / 4096, data.start);
    }

    #[test]
    fn the_check_takes_any_numbers(
        blocks: u64, start: u64, len: u64, align: u32, group_blocks: u32, chunk_pages: u32,
    ) {
        let _ = Geometry { blocks, log: LogArea { start, len, align }, group_blocks, chunk_pages }.check();
    }
}
