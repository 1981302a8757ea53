//! The superblock: its bytes, which copy wins, and that no bytes whatever do harm.

use super::*;
use crate::geometry::GeometryOptions;
use crate::testing::TestMedium;
use proptest::prelude::*;
use std::mem::offset_of;

const LEN: usize = 4 << 20;

fn sample() -> Superblock {
    let geometry = Geometry::plan(LEN as u64, &GeometryOptions::default()).expect("possible");
    let mut sb = Superblock::new(geometry, *b"0123456789abcdef", *b"fedcba9876543210");
    sb.label = padded("étiquette");
    sb.root = TreeRoot { page: PageRef { addr: BlockNo(400), birth: Lsn(0x0102_0304), crc: 0xa1b2_c3d4 }, height: 2 };
    sb.zone = PageRef { addr: BlockNo(404), birth: Lsn(0x0102_0304), crc: 0x1122_3344 };
    sb.cut = Lsn(geometry.log.len * 3);
    sb.made = (1_700_000_000, 5);
    let first = Segment { first: Lsn(geometry.log.len * 3 + 4096), salt: 0x5a5a };
    sb.segments = SegmentTable::from_entries(&[first]).expect("one entry fits");
    sb.writer = padded("weldfs test");
    sb
}

fn image() -> (TestMedium, Superblock) {
    let (medium, mut sb) = (TestMedium::new(LEN, true), sample());
    sb.store(&medium).expect("the test medium does not fail");
    (medium, sb)
}

/// Replaces the copies by ones that `change` made, checksums right.
fn forge(medium: &TestMedium, copies: &[usize], change: impl Fn(&mut RawSuperblock)) {
    for &i in copies {
        let at = superblock_places((LEN / BLOCK) as u64)[i].0 * BLOCK as u64;
        let mut raw = RawSuperblock::read_from_bytes(&medium.copy(at, BLOCK)).expect("a block");
        change(&mut raw);
        raw.crc = U32::new(raw.checksum());
        medium.paste(at, raw.as_bytes());
    }
}

fn message(medium: &TestMedium) -> String {
    Superblock::load(medium).expect_err("must be refused").to_string()
}

#[test]
fn what_is_not_used_is_zero_or_the_copy_is_refused() {
    let changes: [fn(&mut RawSuperblock); 9] = [
        |raw| raw.reserved[5] = 1,
        |raw| raw.flags = U32::new(raw.flags.get() | 2),
        |raw| raw.root.reserved[2] = 1,
        |raw| raw.zone.reserved[0] = 1,
        |raw| raw.zone.height = 1,
        |raw| raw.devices[0].reserved = U32::new(1),
        |raw| raw.devices[1].uuid[15] = 1,
        |raw| raw.segments[raw.segment_count.get() as usize].salt = U64::new(7),
        |raw| raw.device_index = U16::new(1),
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let (medium, _) = image();
        forge(&medium, &[0, 1, 2], change);
        assert!(message(&medium).contains("reserved field"), "{n}: {}", message(&medium));
        forge(&medium, &[0, 1, 2], |raw| raw.minor = U16::new(9));
        assert!(Superblock::load(&medium).is_ok(), "{n}: a newer minor version may use it");
    }
}

#[test]
fn fields_stand_where_the_format_says() {
    assert_eq!(offset_of!(RawSuperblock, uuid), 16);
    assert_eq!(offset_of!(RawSuperblock, label), 32);
    assert_eq!(offset_of!(RawSuperblock, compat), 96);
    assert_eq!(offset_of!(RawSuperblock, checksum_type), 120);
    assert_eq!(offset_of!(RawSuperblock, blocks), 136);
    assert_eq!(offset_of!(RawSuperblock, sequence), 144);
    assert_eq!(offset_of!(RawSuperblock, own_block), 152);
    assert_eq!(offset_of!(RawSuperblock, devices), 168);
    assert_eq!(offset_of!(RawSuperblock, log_start), 296);
    assert_eq!(offset_of!(RawSuperblock, segments), 320);
    assert_eq!(offset_of!(RawSuperblock, cut), 704);
    assert_eq!(offset_of!(RawSuperblock, root), 712);
    assert_eq!(offset_of!(RawSuperblock, zone), 736);
    assert_eq!(offset_of!(RawSuperblock, chunk_pages), 760);
    assert_eq!(offset_of!(RawSuperblock, free_blocks), 768);
    assert_eq!(offset_of!(RawSuperblock, dirent_key), 800);
    assert_eq!(offset_of!(RawSuperblock, made_sec), 816);
    assert_eq!(offset_of!(RawSuperblock, writer), 832);
    assert_eq!(offset_of!(RawSuperblock, reserved), 896);
    assert_eq!(offset_of!(RawSuperblock, crc), 4092);
}

#[test]
fn the_bytes_are_these() {
    let raw = sample().encode(BlockNo(8));
    let hex: String = raw.as_bytes()[..32].iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, "57656c6446531a0a010000000010000030313233343536373839616263646566");
    let hex: String = raw.as_bytes()[704..768].iter().map(|b| format!("{b:02x}")).collect();
    let cut = "0000180000000000";
    let root = "90010000000000000403020100000000d4c3b2a102000000";
    let zone = "940100000000000004030201000000004433221100000000";
    let chunk_pages_and_inline_max = "0400000000020000";
    assert_eq!(hex, format!("{cut}{root}{zone}{chunk_pages_and_inline_max}"));
    assert_eq!(raw.crc.get(), GOLDEN_CRC, "{:#x}", raw.crc.get());
}

/// Of the sample's copy in block 8: covers every byte of the format.
const GOLDEN_CRC: u32 = 0x6f30_792f;

#[test]
fn what_is_stored_is_loaded() {
    let (medium, sb) = image();
    let (back, warnings) = Superblock::load(&medium).expect("whole");
    assert_eq!(back, sb);
    assert!(warnings.is_empty());
    assert_eq!((back.label, back.writer), (padded("étiquette"), padded("weldfs test")));
    assert!(!back.read_only());
}

#[test]
fn the_highest_sequence_wins_when_a_store_was_cut_short() {
    for writes in 0..3 {
        let (medium, mut sb) = image();
        let old = sb.clone();
        sb.next_ino = 77;
        medium.fail_writes_after(Some(writes));
        assert!(sb.store(&medium).is_err());
        assert!(medium.is_poisoned(), "what is on it is not known");
        medium.fail_writes_after(None);
        let (back, warnings) = Superblock::load(&medium).expect("one state or the other");
        assert_eq!(back, if writes == 0 { old } else { sb });
        assert_eq!(warnings.len(), if writes == 0 { 0 } else { 3 - writes as usize });
    }
}

#[test]
fn a_flipped_byte_in_any_copy_is_harmless() {
    let (medium, sb) = image();
    for (i, place) in sb.geometry.superblocks().iter().enumerate() {
        for at in 0..BLOCK as u64 {
            medium.flip(place.0 * BLOCK as u64 + at, 1 << (at % 8));
            let (back, warnings) = Superblock::load(&medium).expect("two copies are whole");
            assert_eq!(back, sb);
            assert_eq!(warnings.len(), 1, "copy {i} byte {at}");
            assert_eq!(warnings[0].block, place.0);
            medium.flip(place.0 * BLOCK as u64 + at, 1 << (at % 8));
        }
    }
}

#[test]
fn with_all_copies_damaged_each_is_named() {
    let (medium, sb) = image();
    for place in sb.geometry.superblocks() {
        medium.flip(place.0 * BLOCK as u64 + 200, 1);
    }
    let text = message(&medium);
    assert!(text.starts_with("damaged image: superblock copies: block 0: checksum is 0x"), "{text}");
    assert!(text.contains("block 8: checksum") && text.contains("last block: checksum"), "{text}");
}

#[test]
fn a_foreign_image_is_called_so() {
    assert!(message(&TestMedium::new(LEN, true)).starts_with("not a WeldFS image"));
    for len in [0, 1, 511, 4096, 9 * 4096] {
        assert!(message(&TestMedium::new(len, true)).starts_with("not a WeldFS image"), "{len} bytes");
    }
    let (medium, _) = image();
    Superblock::wipe(&medium).expect("the test medium does not fail");
    assert!(message(&medium).starts_with("not a WeldFS image"));
}

#[test]
fn a_truncated_image_is_called_so() {
    let (medium, _) = image();
    medium.truncate(LEN - 4096);
    assert_eq!(message(&medium), "truncated image: the file system has 4194304 bytes, the medium only 4190208");
    medium.truncate(4096);
    assert!(message(&medium).starts_with("truncated image"));
}

#[test]
fn a_longer_medium_does_no_harm() {
    let (small, sb) = image();
    let medium = TestMedium::new(LEN + 8192, true);
    medium.paste(0, &small.copy(0, LEN));
    assert_eq!(Superblock::load(&medium).expect("whole"), (sb, vec![]));
}

#[test]
fn newer_versions_and_unknown_features_are_named() {
    let (medium, _) = image();
    forge(&medium, &[0, 1, 2], |raw| raw.incompat = U64::new(1 << 1 | 1 << 40));
    assert_eq!(
        message(&medium),
        "image of a newer version: format 1.0, unknown incompatible features: compression, bit 40"
    );
    let (medium, _) = image();
    forge(&medium, &[0, 1, 2], |raw| raw.major = U16::new(2));
    assert!(message(&medium).starts_with("image of a newer version: format 2.0"));
    let (medium, _) = image();
    forge(&medium, &[0, 1, 2], |raw| (raw.minor, raw.reserved[5]) = (U16::new(9), 1));
    assert!(Superblock::load(&medium).is_ok(), "a newer minor version only uses what was reserved");
    let (medium, _) = image();
    forge(&medium, &[0, 1, 2], |raw| raw.ro_compat = U64::new(1 << 3));
    assert!(Superblock::load(&medium).expect("readable").0.read_only());
}

#[test]
fn a_copy_of_another_file_system_or_place_does_not_count() {
    let (medium, sb) = image();
    forge(&medium, &[2], |raw| (raw.uuid, raw.sequence) = ([1; 16], U64::new(900)));
    let (back, warnings) = Superblock::load(&medium).expect("whole");
    assert_eq!((back, warnings.len()), (sb.clone(), 1));
    let (medium, sb) = image();
    medium.paste(0, &medium.copy(8 * BLOCK as u64, BLOCK));
    let (back, warnings) = Superblock::load(&medium).expect("whole");
    assert_eq!((back, warnings[0].block), (sb, 0));
}

#[test]
fn copies_torn_by_a_power_cut_are_whole_before_the_good_one_is_overwritten() {
    let (medium, sb) = image();
    for place in [8, LEN / BLOCK - 1] {
        medium.paste((place * BLOCK) as u64 + 100, &[0xee; 16]);
    }
    let (back, warnings) = Superblock::load(&medium).expect("copy 0 is whole");
    assert_eq!(warnings.len(), 2);
    back.repair(&medium, &warnings).expect("the test medium does not fail");
    // The next store is cut within copy 0.
    medium.paste(100, &[0xee; 16]);
    let (again, warnings) = Superblock::load(&medium).expect("copies 1 and 2 are whole");
    assert_eq!((again, warnings.len()), (sb, 1));
}

#[test]
fn absurd_fields_are_refused_by_name() {
    type Change = fn(&mut RawSuperblock);
    let absurd: [(&str, Change); 14] = [
        ("number of blocks", |r| (r.blocks, r.devices[0].blocks) = (U64::new(1 << 60), U64::new(1 << 60))),
        ("blocks of device 0", |r| r.blocks = U64::new(7)),
        ("log length", |r| r.log_len = U64::new(u64::MAX - 4095)),
        ("log start", |r| r.log_start = U64::new(u64::MAX)),
        ("blocks per group", |r| r.group_blocks = U32::new(0)),
        ("block size", |r| r.block_size = U32::new(512)),
        ("root address", |r| r.root.page[..8].copy_from_slice(&u64::MAX.to_le_bytes())),
        ("tree height", |r| r.root.height = 200),
        ("zone map address", |r| r.zone.page[..8].copy_from_slice(&3u64.to_le_bytes())),
        ("checkpoint cut", |r| r.cut = U64::new(u64::MAX)),
        ("sequence", |r| r.sequence = U64::new(u64::MAX)),
        ("next inode number", |r| r.next_ino = U64::new(u64::MAX)),
        ("number of log segments", |r| r.segment_count = U32::new(17)),
        ("first LSN of a log segment", |r| r.segments[0].first = U64::new(u64::MAX - 4095)),
    ];
    for (field, change) in absurd {
        let (medium, _) = image();
        forge(&medium, &[0, 1, 2], change);
        let text = message(&medium);
        assert!(text.starts_with(&format!("invalid superblock in block 0: {field}")), "{field}: {text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_with_a_right_checksum_are_believed_or_refused(
        edits in prop::collection::vec((0..900usize, prop_oneof![any::<u8>(), Just(0xff)], 1..9usize), 1..12),
        len in prop_oneof![Just(LEN as u64), any::<u64>()],
    ) {
        let mut raw = sample().encode(BlockNo(0));
        for (at, byte, n) in edits {
            raw.as_mut_bytes()[at..at + n].fill(byte);
        }
        if let Ok(sb) = raw.validate(len) {
            // what is believed can be calculated with and written again
            let data = sb.geometry.data_blocks();
            prop_assert!(data.start < data.end && sb.geometry.medium_len() <= len);
            prop_assert!(sb.geometry.groups() <= sb.geometry.blocks);
            prop_assert!(sb.encode(BlockNo(0)).validate(len).is_ok() || sb.format.1 > FORMAT.1);
        }
    }

    #[test]
    fn random_media_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..70_000)) {
        let medium = TestMedium::new(bytes.len(), true);
        medium.paste(0, &bytes);
        prop_assert!(Superblock::load(&medium).is_err());
    }
}

#[test]
fn what_no_mount_would_take_is_not_written() {
    let (medium, mut sb) = image();
    let before = Superblock::load(&medium).expect("whole").0;
    sb.next_ino = COUNTER_MAX;
    assert!(sb.store(&medium).is_err());
    assert_eq!(Superblock::load(&medium).expect("as it was").0, before);
}

#[test]
fn the_last_copy_alone_is_found_on_a_longer_medium() {
    let (small, sb) = image();
    for more in [1, 300] {
        let medium = TestMedium::new(LEN + more * BLOCK, true);
        medium.paste(0, &small.copy(0, LEN));
        for at in [0, 8 * BLOCK] {
            medium.paste(at as u64, &[0; BLOCK]);
        }
        let (found, warnings) = Superblock::load(&medium).expect("one copy is good");
        assert_eq!((&found, warnings.iter().map(|w| w.block).collect()), (&sb, vec![0, 8]));
        // A copy that is not at the end of its file system is of something else.
        let last = small.copy((LEN - BLOCK) as u64, BLOCK);
        medium.paste((LEN - BLOCK) as u64, &[0; BLOCK]);
        medium.paste(20 * BLOCK as u64, &last);
        assert!(message(&medium).starts_with("not a WeldFS image"));
    }
}
