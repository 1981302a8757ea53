//! Bit flips: one bit of an image is wrong, anywhere. Then the image does not mount (a typed error), or reading says so
//! (an errno), or it shows the very tree it showed before. Anything else is bad: a panic, or content never written.

use crate::hand::{Hand, Picture, fresh, small_layout, small_mount};
use crate::sweep::scenarios::prepare;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use weldfs_ciscops::{At, Errno, TxnMode};
use weldfs_journal::Medium;
use weldfs_media::{CowImage, CowMedium, CrashModel};
use weldfs_store::MountOptions;
use weldfs_store::tree::page::PAGE_MAGIC;

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
    /// The tree it shows when nothing is wrong, and those that rot in the log's unrecorded tail may leave: the latest
    /// first.
    allowed: Vec<Picture>,
    /// What only a read-only mount may show, which finishes nothing: the middle of a transaction, and the place among
    /// `allowed` of the tree that finishing it leads to.
    middles: Vec<(Picture, usize)>,
    log: Range<u64>,
}

/// What the mounts of one kind showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// The mount refused the image.
    pub refused: u64,
    /// Reading gave an errno.
    pub errors: u64,
    /// The tree is what it was.
    pub harmless: u64,
    /// The tree is an earlier one: the stated exception.
    pub cut: u64,
    /// A transaction stands half way: read-only mounts only.
    pub middle: u64,
}

/// What one mount showed of what may be shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Refused,
    Error,
    /// This one of the allowed trees.
    Tree(usize),
    /// The middle that leads to this one of the allowed trees.
    Middle(usize),
    Another,
    Panic,
}

/// What became of the flips.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bits flipped, one at a time.
    pub flips: u64,
    /// Mounted for writing: recovery finishes a transaction whose rest was cut off, so that its middle is never seen.
    pub writable: Shown,
    /// Mounted read-only.
    pub read_only: Shown,
    /// What must not be, by place.
    pub bad: Vec<String>,
}

impl Shown {
    fn add(&mut self, other: &Shown) {
        self.refused += other.refused;
        self.errors += other.errors;
        self.harmless += other.harmless;
        self.cut += other.cut;
        self.middle += other.middle;
    }

    fn count(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Refused => self.refused += 1,
            Verdict::Error => self.errors += 1,
            Verdict::Tree(0) => self.harmless += 1,
            Verdict::Tree(_) => self.cut += 1,
            Verdict::Middle(_) => self.middle += 1,
            Verdict::Another | Verdict::Panic => {}
        }
    }
}

impl Counts {
    fn add(&mut self, other: Counts) {
        self.flips += other.flips;
        self.writable.add(&other.writable);
        self.read_only.add(&other.read_only);
        self.bad.extend(other.bad);
    }
}

fn show(image: CowImage, model: CrashModel, read_only: bool) -> Result<Picture, Option<i32>> {
    let options = MountOptions { read_only, ..small_mount(11) };
    let (store, _) = weldfs_fs::mount(Arc::new(CowMedium::new(image, model)), options).map_err(|_| None)?;
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
        // In steps, so that the tail holds transactions that can be cut in their middle.
        hand.mode = TxnMode::Micro;
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
        let middles = if tail { middles(&allowed) } else { Vec::new() };
        let flipped = Flipped { model, image, allowed, middles, log };
        for read_only in [false, true] {
            match show(flipped.image.clone(), model, read_only) {
                Ok(p) if p == flipped.allowed[0] => {}
                Ok(_) => return Err("the image shows another tree than was made".into()),
                Err(e) => return Err(format!("the image cannot be read: {e:?}")),
            }
        }
        Ok(flipped)
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
        let [writable, read_only] = [false, true].map(|read_only| self.verdict(image.clone(), read_only));
        counts.writable.count(writable);
        counts.read_only.count(read_only);
        let mut bad = |why: &str| counts.bad.push(format!("byte {at}, bit {bit:#x}: {why}"));
        match (writable, read_only) {
            (Verdict::Panic, _) | (_, Verdict::Panic) => bad("a panic"),
            (Verdict::Another, _) => bad("another tree, and nobody says so"),
            (Verdict::Middle(_), _) => bad("a transaction is half way, unfinished by recovery"),
            (_, Verdict::Another) => bad("another tree in a read-only mount, and nobody says so"),
            (made, Verdict::Middle(n)) if made != Verdict::Tree(n) => bad("a middle that recovery does not finish"),
            (Verdict::Tree(made), Verdict::Tree(shown)) if made != shown && !self.finishes(shown, made) => {
                bad("the two mounts show different trees")
            }
            _ => {}
        }
    }

    /// Whether recovery may lead from one of the allowed trees to another: a transaction of which only the beginning
    /// stands has changed nothing yet, and is finished.
    fn finishes(&self, shown: usize, made: usize) -> bool {
        shown == made + 1 && self.middles.iter().any(|(_, n)| *n == made)
    }

    fn verdict(&self, image: CowImage, read_only: bool) -> Verdict {
        let shown = match catch_unwind(AssertUnwindSafe(|| show(image, self.model, read_only))) {
            Ok(Ok(picture)) => picture,
            Ok(Err(None)) => return Verdict::Refused,
            Ok(Err(Some(_))) => return Verdict::Error,
            Err(_) => return Verdict::Panic,
        };
        if let Some(n) = self.allowed.iter().position(|p| *p == shown) {
            return Verdict::Tree(n);
        }
        let middle = self.middles.iter().find(|(p, _)| *p == shown);
        middle.map_or(Verdict::Another, |(_, n)| Verdict::Middle(*n))
    }
}

/// Where one tree has a file more than the one before it, the file is made first and filled then.
fn middles(allowed: &[Picture]) -> Vec<(Picture, usize)> {
    let mut all = Vec::new();
    for (n, pair) in allowed.windows(2).enumerate() {
        let (after, before) = (&pair[0], &pair[1]);
        let mut middle = after.clone();
        let made: Vec<_> = middle.iter_mut().filter(|(path, _)| !before.contains_key(*path)).collect();
        if made.is_empty() {
            continue;
        }
        made.into_iter().for_each(|(_, file)| file.bytes.clear());
        all.push((middle, n));
    }
    all
}
