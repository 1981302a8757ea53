//! Sound images that damage is done to, and every tree that each may show: the one it was left with, and, where its log
//! ends in records that no recorded watermark covers, those that came before them.

use super::look::{Look, look};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use weldfs_ciscops::{At, FallocMode, RenameFlags, TxnMode};
use weldfs_crash_harness::hand::{Hand, fresh, small_layout};
use weldfs_fuzz_targets::media::{Base, Layout, number};
use weldfs_journal::Medium;
use weldfs_media::{CowImage, CowMedium, CrashModel};

/// Bytes of an image, and of its log: the fewest there can be.
const IMAGE_BYTES: usize = 4 << 20;
const LOG_BYTES: u64 = 256 << 10;
/// Bytes of a block and of a record's header.
pub const BLOCK: u64 = 4096;
const HEADER: u64 = 64;
/// Bytes of a metadata page.
pub const PAGE: u64 = 16 << 10;

/// See the module.
pub struct Pristine {
    pub base: Base,
    /// Where the log ended, and the tree that stood then: that of the checkpoint, then
    /// one after every command.
    pub history: Vec<(u64, Look)>,
    /// Blocks that hold anything.
    pub written: Vec<u64>,
    /// Bytes of the log area.
    pub log: Range<u64>,
    cut: u64,
}

/// All of them, each made at its first use.
pub fn pristine() -> &'static [Pristine] {
    static ALL: OnceLock<Vec<Pristine>> = OnceLock::new();
    ALL.get_or_init(|| {
        let each = |model, name, end| Pristine::new(name, model, end).unwrap_or_else(|e| panic!("{name}: errno {e}"));
        vec![
            each(CrashModel::Pmem, "killed-pmem", false),
            each(CrashModel::Block, "killed-block", false),
            each(CrashModel::Pmem, "clean-pmem", true),
            each(CrashModel::Block, "clean-block", true),
        ]
    })
}

/// Bytes that differ in every block and file.
fn filled(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| seed ^ (i / 7) as u8 ^ (i / BLOCK as usize) as u8).collect()
}

/// A tree of two levels of pages, in a checkpoint.
fn grown(h: &mut Hand) -> Result<(), i32> {
    for dir in ["a", "a/b", "many", "empty"] {
        h.mkdir(dir)?;
    }
    h.put("a/small", &filled(1, 100))?;
    h.put("a/block", &filled(2, 4096))?;
    h.put("big", &filled(3, 40_000))?;
    h.put("gone", &filled(9, 20_000))?;
    h.symlink("a/small", "link")?;
    h.link("a/block", "a/b/hard")?;
    h.set_xattr("big", "user.old", b"value")?;
    for i in 0..24 {
        let name = format!("many/file-of-a-longer-name-{i:03}");
        h.put(&name, &filled(i, 300))?;
        h.set_xattr(&name, "user.long", &filled(i, 1500))?;
    }
    h.store().checkpoint().map(drop).map_err(|_| libc::EIO)
}

type Step = fn(&mut Hand) -> Result<(), i32>;

/// What the log holds: one record each.
const STEPS: &[Step] = &[
    |h| h.patch("big", At::Offset(5000), &filled(5, 300)).map(drop),
    |h| h.patch("a/block", At::End, &filled(6, 700)).map(drop),
    |h| h.with("gone", |h, f| h.truncate(f, 3000)).map(drop),
    |h| h.put("late", &filled(7, 9000)).map(drop),
    |h| h.set_xattr("late", "user.new", &filled(8, 60)).map(drop),
    |h| h.rename("a/small", "moved", RenameFlags::empty()).map(drop),
    |h| h.unlink("a/b/hard").map(drop),
    |h| h.with("big", |h, f| h.fallocate(f, FallocMode::Zero, 100, 200)).map(drop),
    |h| h.rmdir("empty").map(drop),
    |h| h.put("last", &filled(11, 12_000)).map(drop),
    |h| h.patch("big", At::Offset(8192), &filled(12, 8192)).map(drop),
    |h| h.mkdir("a/new").map(drop),
];
/// Of these, how many are covered by the recorded watermark.
pub const COVERED: usize = 7;

impl Pristine {
    fn new(name: &'static str, model: CrashModel, end: bool) -> Result<Pristine, i32> {
        let medium = Arc::new(CowMedium::new(CowImage::new(vec![0; IMAGE_BYTES]), model));
        let as_medium: Arc<dyn Medium> = medium.clone();
        let mut hand = fresh(&as_medium, &small_layout(LOG_BYTES), 5).expect("an image is formatted and mounted");
        hand.mode = TxnMode::Macro;
        grown(&mut hand)?;
        let mut history = vec![(hand.store().journal().tail().0, look(&mut hand))];
        for (i, step) in STEPS.iter().enumerate() {
            step(&mut hand)?;
            let tail = hand.store().journal().tail();
            history.push((tail.0, look(&mut hand)));
            if i + 1 == COVERED {
                let journal = hand.store().journal().clone();
                journal.idle();
                journal.wait(tail).map_err(|_| libc::EIO)?;
                // Behind the record that says how far the flush went: it is the log's own, and no more of the tree.
                history[i + 1].0 = journal.tail().0;
            }
        }
        hand.sync()?;
        if end {
            hand.store().unmount().map_err(|_| libc::EIO)?;
            history.drain(..history.len() - 1);
        }
        drop(hand);
        let base = Base::read(name, model, CowImage::new(medium.image().to_bytes()));
        let layout = Layout::of(&base.sb);
        let blank = |b: &u64| base.image.holds(b * BLOCK, &[0; BLOCK as usize]);
        let written = (0..base.image.len() / BLOCK).filter(|b| !blank(b)).collect();
        let log = layout.log_start..layout.log_start + layout.log_len;
        Ok(Pristine { base, history, written, log, cut: layout.cut })
    }

    /// The records of the log since the checkpoint, in their order: where each begins, the watermark that it carries,
    /// and whether all of it is in this image.
    fn records<'a>(&'a self, image: &'a CowImage) -> impl Iterator<Item = (u64, u64, bool)> + 'a {
        let align = Layout::of(&self.base.sb).align;
        self.base.records.iter().scan(self.cut, move |next, record| {
            let lsn = *next;
            *next += (HEADER + record.payload.len() as u64).next_multiple_of(align);
            let bytes = [&record.header[..], &record.payload].concat();
            let place = self.log.start + lsn % (self.log.end - self.log.start);
            let whole = place + bytes.len() as u64 <= image.len() && image.holds(place, &bytes);
            Some((lsn, number(&record.header, 40, 8), whole))
        })
    }

    /// Whether a record is whole that begins at `tail` or behind it.
    pub fn is_followed(&self, tail: u64, image: &CowImage) -> bool {
        self.records(image).any(|(lsn, _, whole)| whole && lsn >= tail)
    }

    /// The trees that an image may show which differs from this one, the latest first, and where the log ended when
    /// each stood: no record may be missing that is as it was, or that one which is as it was vouches for; and where
    /// neither the log nor what its records point to differs, none at all.
    pub fn allowed(&self, image: &CowImage) -> Vec<&(u64, Look)> {
        let (mut vouched, mut rot) = (0, self.data_differs(image));
        for (_, watermark, whole) in self.records(image) {
            rot |= !whole;
            vouched = vouched.max(if whole { watermark } else { 0 });
        }
        let latest = self.history.len() - 1;
        let may = self.history.iter().enumerate().rev();
        may.filter(|(i, (tail, _))| *i == latest || (rot && *tail >= vouched)).map(|(_, stood)| stood).collect()
    }

    /// Blocks that are neither superblock, log nor metadata page.
    pub fn data(&self) -> Vec<u64> {
        let log = self.log.start / BLOCK..self.log.end / BLOCK;
        let page = |b: u64| self.base.pages.iter().any(|p| (*p..p + PAGE / BLOCK).contains(&b));
        let own = [0, 8, self.base.image.len() / BLOCK - 1];
        self.written.iter().copied().filter(|b| !log.contains(b) && !page(*b) && !own.contains(b)).collect()
    }

    fn data_differs(&self, image: &CowImage) -> bool {
        let mut block = [0; BLOCK as usize];
        self.data().into_iter().any(|b| {
            self.base.image.read(b * BLOCK, &mut block);
            (b + 1) * BLOCK > image.len() || !image.holds(b * BLOCK, &block)
        })
    }
}
