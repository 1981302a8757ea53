//! Superblocks with a right checksum: believed, and then written as what they were read as, or refused in a sentence.

use super::base::{BLOCK, bases};
use crate::cursor::Cursor;
use crate::{Seed, Target};
use std::sync::LazyLock;
use weldfs_journal::BlockNo;
use weldfs_media::{CowImage, CowMedium, CrashModel};
use weldfs_store::superblock::{RawSuperblock, Superblock};
use zerocopy::FromBytes;

/// See the module.
pub const TARGET: Target = Target {
    name: "superblock",
    about: "superblock copies with a right checksum, one by one and as three of a medium",
    run,
    seeds,
    len_max: 2 * BLOCK,
};

/// Bytes of the medium that copies are believed for.
const MEDIUM: u64 = 4 << 20;

fn run(data: &[u8]) {
    let mut data = Cursor(data);
    let three = data.u8() & 1 == 1;
    // Places and bytes that differ from those of the first base.
    let mut copy = bases()[0].sb;
    let whole = data.u8() & 1 == 1;
    if whole {
        copy = data.array();
    }
    while !data.is_empty() {
        let at = usize::from(data.u16()) % BLOCK;
        let bytes = data.short();
        let n = bytes.len().min(BLOCK - at);
        copy[at..at + n].copy_from_slice(&bytes[..n]);
    }
    match three {
        false => one(sealed(copy)),
        true => medium(copy),
    }
}

fn sealed(mut copy: [u8; BLOCK]) -> [u8; BLOCK] {
    let crc = weldfs_functions::crc32c(&copy[..BLOCK - 4]);
    copy[BLOCK - 4..].copy_from_slice(&crc.to_le_bytes());
    copy
}

fn one(copy: [u8; BLOCK]) {
    let raw = RawSuperblock::read_from_bytes(&copy[..]).expect("a block");
    match raw.validate(MEDIUM) {
        Ok(sb) => believed(&sb),
        Err(e) => assert!(!e.to_string().is_empty() && !e.to_string().contains('\n'), "one sentence: {e}"),
    }
}

fn believed(sb: &Superblock) {
    assert!(sb.geometry.medium_len() <= MEDIUM, "believed beyond the medium");
    let again = sb.encode(BlockNo(0)).validate(MEDIUM).expect("what was believed is believed again");
    assert_eq!(format!("{again:?}"), format!("{sb:?}"));
}

fn medium(copy: [u8; BLOCK]) {
    static BLANK: LazyLock<CowImage> = LazyLock::new(|| CowImage::new(vec![0; MEDIUM as usize]));
    let mut image = BLANK.clone();
    let last = MEDIUM / BLOCK as u64 - 1;
    for block in [0, 8, last] {
        let mut own = copy;
        own[152..160].copy_from_slice(&block.to_le_bytes());
        image.write(block * BLOCK as u64, &sealed(own));
    }
    let medium = CowMedium::new(image, CrashModel::Pmem);
    if let Ok((mut sb, warnings)) = Superblock::load(&medium) {
        sb.repair(&medium, &warnings).expect("a medium of memory");
        sb.store(&medium).expect("a medium of memory");
        let (again, _) = Superblock::load(&medium).expect("what was stored is loaded");
        assert_eq!(again.sequence, sb.sequence, "the newest counts");
        assert!(Superblock::faults(&medium, &sb).is_empty(), "all copies are as they were stored");
    }
}

fn seeds() -> Vec<Seed> {
    let mut all = vec![("plain".to_owned(), vec![0, 0]), ("three".to_owned(), vec![1, 0])];
    // Each field of docs/MEDIA-FORMAT.md, with its highest value.
    let fields: [(u16, u8); 30] = [
        (8, 2),
        (10, 2),
        (16, 16),
        (96, 8),
        (104, 8),
        (112, 8),
        (124, 4),
        (132, 4),
        (136, 8),
        (144, 8),
        (160, 4),
        (164, 2),
        (296, 8),
        (304, 8),
        (312, 4),
        (316, 4),
        (320, 8),
        (328, 8),
        (336, 8),
        (704, 8),
        (712, 8),
        (732, 1),
        (736, 8),
        (760, 4),
        (764, 4),
        (768, 8),
        (776, 8),
        (784, 8),
        (792, 8),
        (896, 1),
    ];
    for (at, len) in fields {
        let bytes = [&[0, 0][..], &at.to_le_bytes(), &[len], &vec![0xff; len.into()]].concat();
        all.push((format!("field-{at}"), bytes));
    }
    for base in bases() {
        all.push((format!("whole-{}", base.name), [&[0, 1][..], &base.sb].concat()));
    }
    all
}
