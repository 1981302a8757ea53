//! The worked example of docs/MEDIA-FORMAT.md: the image that it is about is made again here, with a clock and random
//! numbers that are always the same, and every byte that the page shows is the byte of that image at that place.

use crate::common::bytes_of;
use std::collections::BTreeMap;
use std::sync::Arc;
use weldfs_ciscops::{At, Handle, Op, OpenFlags};
use weldfs_fs::driver::Direct;
use weldfs_journal::{ManualClock, Medium, SeededRandom};
use weldfs_media::RamMedium;
use weldfs_store::MountOptions;
use weldfs_store::mount::{MkfsOptions, format};

/// Formats 3 MiB, makes `/hi`, takes a checkpoint, appends to `/hi`: the file is in the tree, the append in the log.
fn example() -> Vec<u8> {
    let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(3 << 20));
    let (clock, random) = (Arc::new(ManualClock::new(1_000_000_000)), Arc::new(SeededRandom::new(1)));
    let mkfs = MkfsOptions { uuid: Some(*b"weldfs example 1"), label: "example".to_owned(), ..Default::default() };
    format(&medium, &mkfs, &*clock, &*random).unwrap();
    let (store, _) = weldfs_fs::mount(medium.clone(), MountOptions::new(clock, random)).unwrap();
    let mut d = Direct::new(store, 64 << 10);
    let path = d.put(0, b"hi");
    let append = |d: &mut Direct, seconds: i64, text: &[u8]| {
        d.now = (seconds, 5);
        let src = d.put(4096, text);
        let flags = OpenFlags::WRITE | OpenFlags::CREATE;
        let op = Op::OpenWriteClose { base: Handle::ROOT, path, flags, mode: 0o644, at: At::End, src };
        assert!(d.run(op).is_ok());
    };
    append(&mut d, 1, b"in the leaf\n");
    d.store().checkpoint().unwrap();
    append(&mut d, 2, b"in the log\n");
    let end = d.store().journal().tail();
    d.store().journal().wait(end).unwrap();
    bytes_of(&*medium)
}

/// Rows of the page: `offset  bytes in hex  |  what they say`, within the section of the example.
fn shown() -> BTreeMap<usize, Vec<u8>> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/MEDIA-FORMAT.md");
    let page = std::fs::read_to_string(page).unwrap();
    let section = page.split("\n## A worked example\n").nth(1).expect("the section is there");
    let rows = section.lines().filter_map(|line| {
        let (place, rest) = line.split_once("  ")?;
        let at = usize::from_str_radix(place, 16).ok().filter(|_| place.len() == 6)?;
        let hex = rest.split('|').next()?;
        let byte = |b: &str| u8::from_str_radix(b, 16).unwrap_or_else(|_| panic!("no bytes: {line}"));
        Some((at, hex.split_whitespace().map(byte).collect()))
    });
    rows.collect()
}

fn word(image: &[u8], at: usize) -> usize {
    u64::from_le_bytes(image[at..at + 8].try_into().unwrap()) as usize
}

#[test]
fn every_byte_that_the_page_shows_is_the_byte_of_the_image() {
    let (image, rows) = (example(), shown());
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x} ")).collect::<String>();
    let mut wrong = String::new();
    for (at, bytes) in &rows {
        let is = &image[*at..at + bytes.len()];
        if is != &bytes[..] {
            wrong += &format!("{at:06x} shows {}\n{at:06x} is    {}\n", hex(bytes), hex(is));
        }
    }
    assert!(wrong.is_empty(), "docs/MEDIA-FORMAT.md, the worked example:\n{wrong}");
}

#[test]
fn the_page_leads_from_the_superblock_to_the_leaf_and_to_the_record() {
    let (image, rows) = (example(), shown());
    let leaf = word(&image, 712) * 4096;
    let cut = word(&image, 704);
    let record = 65_536 + cut % word(&image, 304);
    let length = u32::from_le_bytes(image[record + 12..record + 16].try_into().unwrap()) as usize;
    // Whole, without a gap: the fields of the superblock that lead on, the leaf's head, slots and values, the record.
    let slots = leaf + 64 + 21 * usize::from(image[leaf + 6]);
    let lowest = u32::from_le_bytes(image[leaf + 40..leaf + 44].try_into().unwrap()) as usize;
    let values = leaf + lowest..leaf + 16384;
    for wanted in [0..32, 296..344, 704..736, leaf..slots, values, record..record + 64 + length] {
        let missing: Vec<usize> =
            wanted.clone().filter(|b| !rows.iter().any(|(at, bytes)| (*at..at + bytes.len()).contains(b))).collect();
        assert!(missing.is_empty(), "bytes {wanted:x?}: {} are not shown, from {:x}", missing.len(), missing[0]);
    }
}

/// SipHash with one round per word and three at the end, written out again: of bytes shorter than a word.
fn siphash_1_3(key: &[u8], bytes: &[u8]) -> u64 {
    let word = |b: &[u8]| u64::from_le_bytes(b.try_into().unwrap());
    let (k0, k1) = (word(&key[..8]), word(&key[8..16]));
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let round = |v: &mut [u64; 4]| {
        for (a, b, left) in [(0, 1, 13), (2, 3, 16)] {
            v[a] = v[a].wrapping_add(v[b]);
            v[b] = v[b].rotate_left(left) ^ v[a];
        }
        v[0] = v[0].rotate_left(32);
        for (a, b, left) in [(2, 1, 17), (0, 3, 21)] {
            v[a] = v[a].wrapping_add(v[b]);
            v[b] = v[b].rotate_left(left) ^ v[a];
        }
        v[2] = v[2].rotate_left(32);
    };
    let mut last = [0; 8];
    last[..bytes.len()].copy_from_slice(bytes);
    last[7] = bytes.len() as u8;
    v[3] ^= word(&last);
    round(&mut v);
    v[0] ^= word(&last);
    v[2] ^= 0xff;
    (0..3).for_each(|_| round(&mut v));
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[test]
fn a_cookie_is_the_upper_bits_of_the_hash_that_the_page_names() {
    let image = example();
    // The third slot of the leaf is the entry: its cookie is the last eight bytes of the key.
    let at = word(&image, 712) * 4096 + 64 + 2 * 21 + 9;
    let cookie = u64::from_be_bytes(image[at..at + 8].try_into().unwrap());
    assert_eq!(cookie, siphash_1_3(&image[800..816], b"hi") >> 13 << 12);
}

#[test]
#[ignore = "prints the bytes that the page is to show: for who writes the page"]
fn print() {
    let image = example();
    let leaf = word(&image, 712) * 4096;
    let record = 65_536 + word(&image, 704) % word(&image, 304);
    let zone = word(&image, 736) * 4096;
    for (at, n) in [(0, 344), (704, 128), (leaf, 400), (leaf + 16384 - 700, 700), (record, 300), (zone, 128)] {
        for row in (at..at + n).step_by(16) {
            let hex: String = image[row..row + 16].iter().map(|b| format!("{b:02x} ")).collect();
            println!("{row:06x}  {hex}");
        }
        println!();
    }
}
