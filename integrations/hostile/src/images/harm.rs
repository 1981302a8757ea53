//! Damage by a number: the same number makes the same image again.

use super::pristine::{BLOCK, PAGE, Pristine, pristine};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngCore, SeedableRng};
use weldfs_fuzz_targets::cursor::Cursor;
use weldfs_fuzz_targets::media::{Base, Layout, draft};
use weldfs_media::CowImage;

/// A damaged image and what it was made of.
pub enum Harmed {
    /// Bytes changed, and no checksum put right.
    Plain { of: &'static Pristine, image: CowImage },
    /// Structures changed and every checksum over them put right. `marked`: data blocks were overwritten after that.
    Sealed { of: &'static Base, image: CowImage, input: Vec<u8>, marked: bool },
}

/// One of a number of images, and what was done to it in words.
pub struct Case {
    pub what: String,
    pub harmed: Harmed,
}

/// Bytes that no write ever made: put into data blocks whose checksums stay as they were.
pub const MARK: &[u8; 24] = b"\x9d\xc1no write made these\xf0\x0d\xe5";

/// Damage of each kind.
pub const KINDS: &[&str] = &["flip", "burst", "swap", "copy", "zero", "truncate", "mix", "seal", "seal", "seal"];

/// The kind of damage of image `n`, whatever the seed.
pub fn kind(n: u64) -> &'static str {
    KINDS[(n % KINDS.len() as u64) as usize]
}

/// Image `n` of a seed.
pub fn case(seed: u64, n: u64) -> Case {
    let mut rng = SmallRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ n);
    let kind = kind(n);
    if kind == "seal" {
        return sealed(&mut rng);
    }
    let of = pristine().choose(&mut rng).expect("there are some");
    let mut image = of.base.image.clone();
    let mut what = format!("{}: {kind}", of.base.name);
    let turns = if kind == "mix" { rng.random_range(2..5) } else { 1 };
    for _ in 0..turns {
        let kind = if kind == "mix" { ["flip", "burst", "swap", "copy", "zero"][rng.random_range(0..5)] } else { kind };
        let said = match kind {
            "flip" => flip(of, &mut image, &mut rng),
            "burst" => burst(of, &mut image, &mut rng),
            "swap" | "copy" => moved(of, &mut image, &mut rng, kind == "swap"),
            "zero" => zero(of, &mut image, &mut rng),
            _ => truncate(&mut image, &mut rng),
        };
        what = format!("{what}, {said}");
    }
    Case { what, harmed: Harmed::Plain { of, image } }
}

/// A block that holds something: each part of an image as often as the others, however small.
fn place(of: &Pristine, rng: &mut SmallRng) -> u64 {
    let log: Vec<u64> = of.written.iter().copied().filter(|b| of.log.contains(&(b * BLOCK))).collect();
    let some = match rng.random_range(0..8) {
        0 => [0, 8, of.base.image.len() / BLOCK - 1].choose(rng).copied(),
        1 | 2 => log.choose(rng).copied(),
        3 | 4 => of.base.pages.choose(rng).map(|p| p + rng.random_range(0..PAGE / BLOCK)),
        5 | 6 => of.data().choose(rng).copied(),
        _ => None,
    };
    some.unwrap_or_else(|| *of.written.choose(rng).expect("an image holds something"))
}

fn flip(of: &Pristine, image: &mut CowImage, rng: &mut SmallRng) -> String {
    let (times, home) = (1 << rng.random_range(0..7), place(of, rng));
    let near = rng.random();
    for _ in 0..times {
        let block = if near { home } else { place(of, rng) };
        let (at, mut byte) = (block * BLOCK + rng.random_range(0..BLOCK), [0]);
        image.read(at, &mut byte);
        image.write(at, &[byte[0] ^ (1 << rng.random_range(0..8))]);
    }
    format!("{times} bits {} block {home}", if near { "in" } else { "anywhere, one in" })
}

fn burst(of: &Pristine, image: &mut CowImage, rng: &mut SmallRng) -> String {
    let block = place(of, rng);
    let mut bytes = vec![0; 1 << rng.random_range(0..13)];
    rng.fill_bytes(&mut bytes);
    let at = (block * BLOCK + rng.random_range(0..BLOCK)).min(image.len() - bytes.len() as u64);
    image.write(at, &bytes);
    format!("{} random bytes at {at}", bytes.len())
}

/// Two places of one length swapped, or one written over the other: sectors, blocks or pages.
fn moved(of: &Pristine, image: &mut CowImage, rng: &mut SmallRng, swap: bool) -> String {
    let len = [512, BLOCK, BLOCK, PAGE][rng.random_range(0..4)];
    let mut at = [place(of, rng), place(of, rng)].map(|b| (b * BLOCK).min(image.len() - len));
    if len == 512 {
        at = at.map(|at| at + rng.random_range(0..8) * 512);
    }
    let bytes = at.map(|at| {
        let mut bytes = vec![0; len as usize];
        image.read(at, &mut bytes);
        bytes
    });
    image.write(at[1], &bytes[0]);
    if swap {
        image.write(at[0], &bytes[1]);
    }
    format!("{len} bytes of {} at {}{}", at[0], at[1], if swap { ", and the other way round" } else { "" })
}

fn zero(of: &Pristine, image: &mut CowImage, rng: &mut SmallRng) -> String {
    let len = [64, 512, BLOCK, PAGE, 16 * BLOCK][rng.random_range(0..5)];
    let at = (place(of, rng) * BLOCK + rng.random_range(0..8) * 512).min(image.len() - len);
    image.write(at, &vec![0; len as usize]);
    format!("{len} zeros at {at}")
}

fn truncate(image: &mut CowImage, rng: &mut SmallRng) -> String {
    let mut bytes = image.to_bytes();
    let near = bytes.len() - rng.random_range(1..64 << 10);
    let len = if rng.random() { rng.random_range(0..bytes.len()) } else { near };
    bytes.truncate(if rng.random() { len & !4095 } else { len });
    *image = CowImage::new(bytes);
    format!("cut to {} bytes", image.len())
}

/// Edits of a `draft` that take bytes of a length they say: which, and the operands before the length. Twice what
/// reaches furthest.
const POKES: &[(u8, usize)] = &[(0, 2), (1, 3), (1, 3), (2, 4), (2, 4), (2, 4), (6, 2), (7, 3), (7, 3), (12, 4)];
/// Those of a fixed length: a key put, a key gone, a record gone, a record twice.
const MOVES: &[(u8, usize)] = &[(4, 24), (5, 2), (10, 1), (11, 2)];

/// A few edits of structures with short operands, or edits out of random bytes.
fn sealed(rng: &mut SmallRng) -> Case {
    let mut input = vec![rng.random_range(0..5u8), rng.random_range(1..5u8)];
    let wild = rng.random_range(0..4) == 0;
    for _ in 0..input[1] {
        let short = rng.random_range(0..3) != 0;
        let (edit, operands) = *if short { POKES } else { MOVES }.choose(rng).expect("there are some");
        let len = rng.random_range(1..9u8);
        let mut random = |n: usize| -> Vec<u8> { (0..n).map(|_| rng.random()).collect() };
        input.push(edit);
        input.extend(random(operands));
        if wild {
            input.extend(random(60));
        } else if short {
            input.push(len);
            input.extend(random(len.into()));
        }
    }
    let (of, mut image, _) = draft(&mut Cursor(&input));
    let marked = rng.random();
    if marked {
        mark(of, &mut image, rng);
    }
    let what =
        format!("{}: checksums put right{}", of.name, if marked { ", then data blocks overwritten" } else { "" });
    Case { what, harmed: Harmed::Sealed { of, image, input, marked } }
}

/// Overwrites some blocks that files may have, and no metadata page.
fn mark(of: &Base, image: &mut CowImage, rng: &mut SmallRng) {
    let start = Layout::of(&of.sb);
    let first = (start.log_start + start.log_len) / BLOCK;
    let page = |b: u64| of.pages.iter().any(|p| (*p..p + PAGE / BLOCK).contains(&b));
    let full = |b: &u64| !of.image.holds(b * BLOCK, &[0; BLOCK as usize]) && !page(*b);
    let data: Vec<u64> = (first..of.image.len() / BLOCK - 1).filter(full).collect();
    for block in data.choose_multiple(rng, data.len().div_ceil(2)) {
        image.write(block * BLOCK + rng.random_range(0..BLOCK - MARK.len() as u64), MARK);
    }
}

/// The image of a case.
pub fn image(harmed: &Harmed) -> &CowImage {
    match harmed {
        Harmed::Plain { image, .. } | Harmed::Sealed { image, .. } => image,
    }
}
