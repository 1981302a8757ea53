//! Bit flips: one bit of an image is wrong, anywhere. Then the image does not mount (a typed error), or reading says so
//! (an errno), or it shows the very tree it showed before. Anything else is bad: a panic, or content that nobody wrote.

use crate::hand::{Hand, Picture, fresh, small_layout, small_mount};
use crate::sweep::scenarios::prepare;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use weldfs_ciscops::{At, Errno};
use weldfs_journal::Medium;
use weldfs_storagefs::media::{CowImage, CowMedium, CrashModel};
use weldfs_storagefs::store::{MountOptions, Store};
use weldfs_storagefs::tree::page::PAGE_MAGIC;

/// Bytes of the image.
const IMAGE_BYTES: usize = 4 << 20;
const LOG_BYTES: u64 = 256 << 10;
const BLOCK: usize = 4096;
/// Bytes of a metadata page.
const PAGE: u64 = 16 << 10;

/// An image whose device was killed, and the trees it may show.
pub struct Flipped {
    model: CrashModel,
    image: CowImage,
    /// The tree it shows when nothing is wrong, and those that rot in the log's unrecorded tail may leave.
    allowed: Vec<Picture>,
    log: Range<u64>,
}

/// What became of the flips.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bits flipped, one at a time.
    pub flips: u64,
    /// The mount refused the image.
    pub refused: u64,
    /// Reading gave an errno.
    pub errors: u64,
    /// The tree is what it was.
    pub harmless: u64,
    /// The tree is an earlier one: the stated exception.
    pub cut: u64,
    /// What must not be, by place.
    pub bad: Vec<String>,
}

impl Counts {
    fn add(&mut self, other: Counts) {
        self.flips += other.flips;
        self.refused += other.refused;
        self.errors += other.errors;
        self.harmless += other.harmless;
        self.cut += other.cut;
        self.bad.extend(other.bad);
    }
}

/// For writing: recovery finishes a transaction whose rest was cut off, so that nobody sees its middle.
fn options() -> MountOptions {
    small_mount(11)
}

fn show(image: CowImage, model: CrashModel) -> Result<Picture, Option<i32>> {
    let (store, _) = Store::mount(Arc::new(CowMedium::new(image, model)), options()).map_err(|_| None)?;
    Hand::new(store).picture().map_err(|(_, e)| Some(e))
}

impl Flipped {
    /// Fills an image. With `tail` the log ends in records that no recorded watermark covers; without it the recorded
    /// watermark covers every record of an operation.
    ///
    /// # Errors
    /// In words.
    pub fn new(model: CrashModel, tail: bool) -> Result<Flipped, String> {
        let medium = Arc::new(CowMedium::new(CowImage::new(vec![0; IMAGE_BYTES]), model));
        let as_medium: Arc<dyn Medium> = medium.clone();
        let mut hand = fresh(&as_medium, &small_layout(LOG_BYTES), 5)?;
        let told = |e: i32| format!("preparing: {}", Errno(e).text());
        prepare(&mut hand).map_err(told)?;
        let journal = hand.store().journal().clone();
        let settle = || {
            journal.idle();
            journal.wait(journal.tail()).map_err(|e| e.to_string())
        };
        settle()?;
        let mut allowed = Vec::new();
        let mut note = |hand: &mut Hand| -> Result<(), String> {
            allowed.push(hand.picture().map_err(|(path, e)| format!("{path}: {}", Errno(e).text()))?);
            Ok(())
        };
        note(&mut hand)?;
        if tail {
            for n in 0..3 {
                hand.put(&format!("tail{n}"), &[n; 200]).map_err(told)?;
                note(&mut hand)?;
                hand.patch("big", At::Offset(u64::from(n) * 4096), &[n; 4096]).map_err(told)?;
                note(&mut hand)?;
            }
            hand.sync().map_err(told)?;
        }
        let log = hand.store().geometry().log;
        let log = log.start..log.start + log.len;
        drop(hand);
        allowed.reverse();
        // One base for all that follows.
        let image = CowImage::new(medium.image().to_bytes());
        let flipped = Flipped { model, image, allowed, log };
        match show(flipped.image.clone(), model) {
            Ok(p) if p == flipped.allowed[0] => Ok(flipped),
            Ok(_) => Err("the image shows another tree than was made".into()),
            Err(e) => Err(format!("the image cannot be read: {e:?}")),
        }
    }

    /// The blocks of the superblock's copies.
    pub fn superblocks(&self) -> Vec<Range<u64>> {
        [0, 8 * BLOCK as u64, self.image.len() - BLOCK as u64].map(|at| at..at + BLOCK as u64).to_vec()
    }

    /// What of the log was ever written.
    pub fn log(&self) -> Vec<Range<u64>> {
        self.written(|b| self.log.contains(&b))
    }

    /// Metadata pages, live and left behind.
    pub fn pages(&self) -> Vec<Range<u64>> {
        let is_page = |at: &u64| self.image.holds(*at, &PAGE_MAGIC);
        let starts = (0..self.image.len()).step_by(BLOCK).filter(is_page);
        starts.map(|at| at..(at + PAGE).min(self.image.len())).collect()
    }

    /// Every block that holds anything at all.
    pub fn everything(&self) -> Vec<Range<u64>> {
        self.written(|_| true)
    }

    fn written(&self, choose: impl Fn(u64) -> bool) -> Vec<Range<u64>> {
        let blank = |at: u64| self.image.holds(at, &[0; BLOCK]);
        let starts = (0..self.image.len()).step_by(BLOCK).filter(|at| choose(*at) && !blank(*at));
        starts.map(|at| at..at + BLOCK as u64).collect()
    }

    /// Flips one bit in every `step`-th byte of `places`; in a byte, `bits` of its bits one after the other. On all
    /// processors.
    pub fn flip(&self, places: &[Range<u64>], step: usize, bits: u32) -> Counts {
        let bytes: Vec<u64> = places.iter().flat_map(|r| r.clone().step_by(step)).collect();
        let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
        let mut all = Counts::default();
        let parts: Vec<Counts> = std::thread::scope(|scope| {
            let work = |part| scope.spawn(move || self.flip_bytes(part, bits));
            let handles: Vec<_> = bytes.chunks(bytes.len().div_ceil(workers).max(1)).map(work).collect();
            handles.into_iter().filter_map(|h| h.join().ok()).collect()
        });
        parts.into_iter().for_each(|part| all.add(part));
        all
    }

    fn flip_bytes(&self, bytes: &[u64], bits: u32) -> Counts {
        let mut counts = Counts::default();
        for &at in bytes {
            for n in 0..bits {
                // Another bit in each byte, so that every position of a word is tried.
                let bit = (at as u32 * 5 + at as u32 / 64 + n * (8 / bits.max(1))) % 8;
                self.flip_one(at, 1 << bit, &mut counts);
            }
        }
        counts
    }

    fn flip_one(&self, at: u64, bit: u8, counts: &mut Counts) {
        let mut image = self.image.clone();
        let mut byte = [0];
        image.read(at, &mut byte);
        image.write(at, &[byte[0] ^ bit]);
        counts.flips += 1;
        match catch_unwind(AssertUnwindSafe(|| show(image, self.model))) {
            Ok(Err(None)) => counts.refused += 1,
            Ok(Err(Some(_))) => counts.errors += 1,
            Ok(Ok(p)) if p == self.allowed[0] => counts.harmless += 1,
            Ok(Ok(p)) if self.allowed.contains(&p) => counts.cut += 1,
            Ok(Ok(_)) => counts.bad.push(format!("byte {at}, bit {bit:#x}: another tree, and nobody says so")),
            Err(_) => counts.bad.push(format!("byte {at}, bit {bit:#x}: a panic")),
        }
    }
}
