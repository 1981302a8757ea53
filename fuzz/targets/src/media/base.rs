//! Small images that inputs start from: made once per process, always the same. Their structures are found by this
//! file's own reading of docs/MEDIA-FORMAT.md, so that a `Draft` can change one and put right what covers it.

use std::sync::{Arc, OnceLock};
use weldfs_ciscops::{At, FallocMode, Handle, Op, OpenFlags, RenameFlags, TxnMode};
use weldfs_crash_harness::hand::{Hand, fresh, small_layout};
use weldfs_journal::Medium;
use weldfs_media::{CowImage, CowMedium, CrashModel};
use weldfs_store::outcomes::Identity;

/// Bytes of an image.
const IMAGE_BYTES: usize = 4 << 20;
/// Bytes of its log, the fewest there can be.
const LOG_BYTES: u64 = 256 << 10;
/// Bytes of a block, of a metadata page, of the headers of a page and of a log record.
pub const BLOCK: usize = 4096;
pub const PAGE: usize = 16 << 10;
pub const PAGE_HEADER: usize = 64;
pub const RECORD_HEADER: usize = 64;
/// Bytes of a leaf's slot without its key, of a key, and of an entry of an interior page.
pub const KEY: usize = 17;
pub const SLOT: usize = KEY + 4;
pub const BRANCH: usize = KEY + 20;
/// Pages looked at in one image, and levels of its tree.
pub const PAGES_MAX: usize = 64;

/// A leaf: where it lies, and what it holds.
#[derive(Clone)]
pub struct Leaf {
    /// First block of the page.
    pub addr: u64,
    /// Keys and values, ascending.
    pub entries: Vec<([u8; KEY], Vec<u8>)>,
}

/// A record of the log: its header as it stood, and its payload.
#[derive(Clone)]
pub struct Record {
    /// 64 bytes.
    pub header: [u8; RECORD_HEADER],
    /// Without padding.
    pub payload: Vec<u8>,
}

/// An image and where its structures are.
pub struct Base {
    /// What it is called.
    pub name: &'static str,
    /// What kind of medium it lies on.
    pub model: CrashModel,
    /// Its bytes.
    pub image: CowImage,
    /// The first superblock copy.
    pub sb: [u8; BLOCK],
    /// First blocks of all pages, the root first, those of the zone map last.
    pub pages: Vec<u64>,
    /// The leaves of the tree, ascending.
    pub leaves: Vec<Leaf>,
    /// What the log holds from the cut on.
    pub records: Vec<Record>,
    /// Behind the last record.
    pub log_end: u64,
}

/// A number in bytes, little-endian.
pub fn number(bytes: &[u8], at: usize, width: usize) -> u64 {
    let mut all = [0; 8];
    all[..width].copy_from_slice(&bytes[at..at + width]);
    u64::from_le_bytes(all)
}

/// Fields of the superblock that are used here.
pub struct Layout {
    /// Blocks of the file system.
    pub blocks: u64,
    /// Where the log area begins, in bytes.
    pub log_start: u64,
    /// Bytes of the log area.
    pub log_len: u64,
    /// Records start at multiples of it.
    pub align: u64,
    /// Replay begins at this LSN.
    pub cut: u64,
    /// First block of the tree's root page.
    pub root: u64,
    /// First block of the zone map's first page.
    pub zone: u64,
}

impl Layout {
    /// The layout that a superblock copy says.
    pub fn of(sb: &[u8; BLOCK]) -> Layout {
        Layout {
            blocks: number(sb, 136, 8),
            log_start: number(sb, 296, 8),
            log_len: number(sb, 304, 8),
            align: number(sb, 312, 4),
            cut: number(sb, 704, 8),
            root: number(sb, 712, 8),
            zone: number(sb, 736, 8),
        }
    }
}

/// The salt of the segment that holds an LSN.
pub fn salt(sb: &[u8; BLOCK], lsn: u64) -> u64 {
    let mut entries = (0..number(sb, 316, 4).min(16) as usize).map(|i| 320 + 24 * i);
    let held = entries.rfind(|at| number(sb, *at, 8) <= lsn);
    held.map_or(0, |at| number(sb, at + 16, 8))
}

/// The checksum of a record: of its payload, then of its header with the checksum's field 0.
pub fn record_crc(header: &[u8; RECORD_HEADER], payload: &[u8]) -> u32 {
    let mut bare = *header;
    bare[8..12].fill(0);
    weldfs_functions::crc32c(&[payload, &bare[..]].concat())
}

/// All base images, each made at its first use.
pub fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| {
        vec![
            make("log", CrashModel::Pmem, |h| {
                grown(h)?;
                changed(h)
            }),
            make("log-block", CrashModel::Block, |h| {
                grown(h)?;
                changed(h)
            }),
            make("clean", CrashModel::Pmem, |h| {
                grown(h)?;
                changed(h)?;
                many(h)?;
                h.store().unmount().map_err(|_| libc::EIO)
            }),
            make("open", CrashModel::Block, |h| {
                grown(h)?;
                h.mode = TxnMode::Micro;
                h.put("fused", &[7; 9000]).map(drop)
            }),
            make("empty", CrashModel::Pmem, |_| Ok(())),
        ]
    })
}

/// A small tree with one of everything, in a checkpoint.
fn grown(h: &mut Hand) -> Result<(), i32> {
    h.mkdir("a")?;
    h.mkdir("a/b")?;
    h.mkdir("empty")?;
    h.put("a/small", &[1; 100])?;
    h.put("a/block", &[2; 4096])?;
    h.put("big", &[3; 30_000])?;
    h.put("gone", &[9; 20_000])?;
    h.symlink("a/small", "link")?;
    h.link("a/block", "a/b/hard")?;
    h.set_xattr("big", "user.old", b"value")?;
    h.with("holes", |h, f| h.write(f, At::Offset(3 << 20), &[4; 5000]))?;
    h.with("reserved", |h, f| h.fallocate(f, FallocMode::Reserve, 0, 20_000))?;
    detectable(h, 1)?;
    h.store().checkpoint().map_err(|_| libc::EIO)?;
    Ok(())
}

/// The same tree changed in the log, by every kind of effect.
fn changed(h: &mut Hand) -> Result<(), i32> {
    h.patch("big", At::Offset(5000), &[5; 300])?;
    h.patch("a/block", At::End, &[6; 700])?;
    h.with("gone", |h, f| h.truncate(f, 3000))?;
    h.with("big", |h, f| h.fallocate(f, FallocMode::Punch, 4096, 9000))?;
    h.with("big", |h, f| h.fallocate(f, FallocMode::Zero, 100, 200))?;
    h.put("late", &[7; 9000])?;
    h.set_xattr("late", "user.new", &[1; 60])?;
    h.remove_xattr("big", "user.old")?;
    h.rename("a/small", "moved", RenameFlags::empty())?;
    h.unlink("a/b/hard")?;
    h.rmdir("empty")?;
    detectable(h, 2)?;
    h.mode = TxnMode::Micro;
    h.put("fused", &[8; 5000])?;
    h.with("fused", |h, f| h.append_checked(f, &[3; 40]))?;
    h.mode = TxnMode::Default;
    // An orphan that recovery must free, and a cut that is drained later.
    let orphan = h.open("late", OpenFlags::READ)?;
    h.unlink("late")?;
    let _ = orphan;
    h.with("holes", |h, f| h.truncate(f, 10))?;
    h.sync()
}

/// Enough for a tree of two levels: few files, for each is listed and read in every run, with long attributes.
fn many(h: &mut Hand) -> Result<(), i32> {
    for i in 0..10 {
        let name = format!("a/file-of-a-longer-name-{i:03}");
        h.put(&name, &[i; 40])?;
        h.set_xattr(&name, "user.long", &[i; 2000])?;
    }
    Ok(())
}

fn detectable(h: &mut Hand, sequence: u64) -> Result<(), i32> {
    let id = Identity { client: [5; 16], uid: 0, queue: 1, sequence };
    let path = h.direct().put(0, format!("detected{sequence}").as_bytes());
    let op = Op::Mkdir { base: Handle::ROOT, path, mode: 0o755 };
    let o = h.direct().run_detectable(&id, op, TxnMode::Default, true);
    if o.is_ok() { Ok(()) } else { Err(o.status) }
}

fn make(name: &'static str, model: CrashModel, fill: fn(&mut Hand) -> Result<(), i32>) -> Base {
    let medium = Arc::new(CowMedium::new(CowImage::new(vec![0; IMAGE_BYTES]), model));
    let as_medium: Arc<dyn Medium> = medium.clone();
    let mut hand = fresh(&as_medium, &small_layout(LOG_BYTES), 5).expect("a base is formatted and mounted");
    fill(&mut hand).unwrap_or_else(|e| panic!("a base is filled: errno {e}"));
    drop(hand);
    Base::read(name, model, CowImage::new(medium.image().to_bytes()))
}

impl Base {
    /// Finds the structures of a sound image.
    pub fn read(name: &'static str, model: CrashModel, image: CowImage) -> Base {
        let mut sb = [0; BLOCK];
        image.read(0, &mut sb);
        let layout = Layout::of(&sb);
        let mut base = Base { name, model, image, sb, pages: vec![], leaves: vec![], records: vec![], log_end: 0 };
        base.tree(layout.root);
        base.zone(layout.zone);
        base.log(&layout);
        assert!(!base.leaves.is_empty() && base.pages.len() >= 2, "{name}: a tree and a zone map");
        base
    }

    fn page(&self, addr: u64) -> Vec<u8> {
        let mut bytes = vec![0; PAGE];
        self.image.read(addr * BLOCK as u64, &mut bytes);
        bytes
    }

    fn tree(&mut self, addr: u64) {
        let bytes = self.page(addr);
        let count = number(&bytes, 6, 2) as usize;
        self.pages.push(addr);
        assert!(self.pages.len() <= PAGES_MAX, "a base is small");
        if bytes[4] == 2 {
            let children = (0..count).map(|i| number(&bytes, PAGE_HEADER + i * BRANCH + KEY, 8));
            return children.for_each(|child| self.tree(child));
        }
        let entry = |i: usize| {
            let slot = &bytes[PAGE_HEADER + i * SLOT..];
            let (at, len) = (number(slot, KEY, 2) as usize, number(slot, KEY + 2, 2) as usize);
            (slot[..KEY].try_into().expect("a key"), bytes[at..at + len].to_vec())
        };
        self.leaves.push(Leaf { addr, entries: (0..count).map(entry).collect() });
    }

    fn zone(&mut self, first: u64) {
        let mut at = first;
        while at != 0 && self.pages.len() < PAGES_MAX {
            self.pages.push(at);
            at = number(&self.page(at), PAGE_HEADER, 8);
        }
    }

    fn log(&mut self, layout: &Layout) {
        let mut lsn = layout.cut;
        loop {
            let place = layout.log_start + lsn % layout.log_len;
            let mut header = [0; RECORD_HEADER];
            self.image.read(place, &mut header);
            let len = number(&header, 12, 4).min(1 << 20);
            let fits = lsn % layout.log_len + RECORD_HEADER as u64 + len <= layout.log_len;
            let mut payload = vec![0; if fits { len as usize } else { 0 }];
            self.image.read(place + RECORD_HEADER as u64, &mut payload);
            let right = number(&header, 16, 8) == lsn && number(&header, 0, 8) == salt(&self.sb, lsn);
            if !right || u64::from(record_crc(&header, &payload)) != number(&header, 8, 4) {
                break;
            }
            self.records.push(Record { header, payload });
            lsn += (RECORD_HEADER as u64 + len).next_multiple_of(layout.align);
        }
        self.log_end = lsn;
    }
}
