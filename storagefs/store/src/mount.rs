//! Format, mount with recovery, unmount. Recovery = the last checkpoint + the log: every record above the cut is
//! decoded, its data verified where the recorded watermark does not vouch for it, and applied by the same code that
//! applied it the first time. Nothing is loaded eagerly.

mod replay;
mod report;

pub use report::{RecoveryReport, TxnFate, TxnReport};

use crate::alloc::Alloc;
use crate::blockcache::BlockCache;
use crate::checkpoint::{Writer, open_txns};
use crate::error::{FsError, FsResult, ImageError, MountError, Place};
use crate::geometry::{Geometry, GeometryOptions};
use crate::micro::open::{OpenTxn, OpenTxns, runs};
use crate::outcomes::Outcomes;
use crate::overlay::{Base, InoMap, Overlay};
use crate::reclaim::Pending;
use crate::record::{InodeRec, ReclaimRec, Time};
use crate::store::{Ledger, MountOptions, NameHash, Store};
use crate::superblock::{CopyWarning, Superblock, padded};
use crate::tree::{Key, Pages, Tree, kind};
use crate::zone::Zone;
use replay::Replay;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use weldfs_ciscops::InodeNo;
use weldfs_journal::{
    Clock, Journal, JournalConfig, JournalError, Lsn, Medium, MediumKind, Random, ScanReport, SegmentTable, crashpoint,
};
use weldfs_locks::{Mutex, RwLock};

/// What mkfs decides.
#[derive(Debug, Clone, Default)]
pub struct MkfsOptions {
    /// Volume label, cut to 64 bytes.
    pub label: String,
    /// UUID; random by default.
    pub uuid: Option<[u8; 16]>,
    /// Layout.
    pub geometry: GeometryOptions,
    /// Longest payload kept in a record, bytes; 512 on byte-addressable media and 16 KiB on block by default.
    pub inline_max: Option<u32>,
    /// Owner of the root directory.
    pub owner: (u32, u32),
}

/// Formats `medium`: an empty root directory, an empty log. Every byte that matters is written; the superblock last.
///
/// # Errors
/// A layout that cannot be, the medium.
pub fn format(
    medium: &Arc<dyn Medium>,
    options: &MkfsOptions,
    clock: &dyn Clock,
    random: &dyn Random,
) -> Result<(), MountError> {
    let info = medium.info();
    let mut layout = options.geometry;
    if layout.log_align == 0 {
        layout.log_align = info.log_align;
    }
    let geometry = Geometry::plan(info.len, &layout)?;
    let (mut uuid, mut dirent_key) = (options.uuid.unwrap_or([0; 16]), [0; 16]);
    if options.uuid.is_none() {
        random.fill(&mut uuid);
    }
    random.fill(&mut dirent_key);
    Superblock::wipe(&**medium)?;
    let mut sb = Superblock::new(geometry, uuid, dirent_key);
    sb.label = padded(&options.label);
    sb.medium_kind = match info.kind {
        MediumKind::Block => 1,
        MediumKind::Pmem => 2,
        MediumKind::Ram => 3,
    };
    sb.inline_max = options.inline_max.unwrap_or(if info.byte_addressable { 512 } else { 16 * 1024 });
    sb.segments = SegmentTable::fresh(&geometry.log, random);
    let (sec, nsec) = clock.wall();
    sb.made = (sec, nsec);
    write_root(medium, &mut sb, options.owner, Time { sec, nsec })?;
    medium.barrier()?;
    sb.store(&**medium)?;
    Ok(())
}

/// The first tree: the root directory and the zone's own blocks.
fn write_root(medium: &Arc<dyn Medium>, sb: &mut Superblock, owner: (u32, u32), now: Time) -> FsResult<()> {
    let geometry = sb.geometry;
    let pages = Pages::new(medium.clone(), sb.uuid, geometry.blocks, 0).blocking();
    let (slow, cut, next_ino) = (pages.clone(), sb.cut.0, sb.next_ino);
    let base = Arc::new(Base { tree: Tree::empty(), pages: pages.clone(), slow, cut, next_ino });
    let alloc = Alloc::new(geometry, base.clone(), sb.free_blocks);
    let mut zone = Zone::new(geometry.chunk_pages);
    let chunk = u64::from(geometry.chunk_pages.max(4)) * crate::limits::PAGE_BLOCKS;
    let run = alloc.take_run(chunk, chunk)?.ok_or(FsError::Errno(weldfs_ciscops::Errno::NOSPC))?;
    zone.grow(run.addr, run.count.into())?;
    let mut root = InodeRec::empty(InodeNo::ROOT);
    (root.mode, root.nlink, root.parent) = (0o040755, 2, InodeNo::ROOT);
    (root.uid, root.gid) = owner;
    (root.atime, root.mtime, root.ctime, root.btime) = (now, now, now, now);
    let group = geometry.group_of(run.addr);
    let last = geometry.group_of(weldfs_journal::BlockNo(run.addr.0 + u64::from(run.count) - 1));
    let mut changes = vec![(Key::new(kind::INODE, InodeNo::ROOT.0, 0), Some(root.to_value()))];
    for g in group..=last {
        changes.push((Key::new(kind::FREE_GROUP, g, 0), Some(alloc.bitmap(g)?.to_value())));
    }
    zone.begin_checkpoint();
    let tree = base.tree.apply(&pages, &mut zone, &mut changes.into_iter(), sb.cut)?;
    sb.zone = zone.write_map(&pages, sb.cut)?;
    sb.root = tree.root();
    sb.free_blocks -= u64::from(run.count);
    sb.inodes = 1;
    Ok(())
}

impl Store {
    /// Mounts the image on `medium`, recovering what the log holds. A read-only mount writes nothing. On others
    /// `finish` ends the transactions that are open, when everything else has been recovered: `weldfs_fs::mount` can.
    ///
    /// # Errors
    /// One sentence naming what is wrong with the image and where.
    pub fn mount(
        medium: Arc<dyn Medium>,
        options: MountOptions,
        finish: impl FnOnce(&Store, &mut RecoveryReport) -> FsResult<()>,
    ) -> Result<(Arc<Store>, RecoveryReport), MountError> {
        let t0 = options.clock.now_ns();
        let (sb, warnings) = Superblock::load(&*medium)?;
        let read_only = options.read_only || sb.read_only();
        let (cut, clean) = (sb.cut, sb.clean);
        let (area, segments) = (sb.geometry.log, sb.segments.clone());
        let mut parts = open_parts(&medium, sb, &options)?;
        parts.read_only = read_only;
        let t1 = options.clock.now_ns();
        // The scan needs a store to apply to, the journal needs the scan's tail: the store gets its journal last.
        let store = Store::assemble(medium.clone(), parts, &options);
        store.inputs_are_allocated()?;
        let report = RecoveryReport { txns_seen: store.txns.len() as u64, ..RecoveryReport::default() };
        let mut replay = Replay { store: &store, report, error: None, verify: options.verify_data };
        // A clean image holds nothing above its cut: no need to look.
        let scanned = match clean {
            true => Ok(ScanReport { tail: cut, records: 0, discarded: None, watermark: cut }),
            false => weldfs_journal::scan(&*medium, &area, &segments, cut, &mut |r| replay.visit(&r)),
        };
        let Replay { mut report, error, .. } = replay;
        if let Some(e) = error {
            return Err(e.into());
        }
        let scan = scanned?;
        crashpoint("recovery-replayed");
        report.fill(&store, &scan, cut);
        store.alloc.measure()?;
        if !read_only {
            store.can_count_on()?;
        }
        report.warnings = warnings.iter().map(|w| w.to_string()).collect();
        let t2 = options.clock.now_ns();
        let store = store.open_journal(&scan, &warnings, &options)?;
        let crowded = store.writer.lock().sb.segments.is_crowded();
        if crowded && !read_only {
            // Every mount that appends takes an entry of the table; a checkpoint forgets the old ones. Nothing was
            // appended yet, so a crash in here takes none.
            store.checkpoint()?;
        }
        let t3 = options.clock.now_ns();
        if !read_only {
            finish(&store, &mut report)?;
        }
        let t4 = options.clock.now_ns();
        (report.open_ns, report.replay_ns, report.ready_ns, report.finish_ns) = (t1 - t0, t2 - t1, t3 - t2, t4 - t3);
        report.log();
        let _ = store.mounted.set(report.log_end());
        Ok((Arc::new(store), report))
    }
}

/// What the superblock leads to.
struct Parts {
    sb: Superblock,
    zone: Zone,
    base: Arc<Base>,
    page_bytes: usize,
    block_bytes: usize,
    reclaim: Vec<(u64, u64, ReclaimRec)>,
    txns: Vec<OpenTxn>,
    outcomes: Outcomes,
    read_only: bool,
}

fn open_parts(medium: &Arc<dyn Medium>, sb: Superblock, options: &MountOptions) -> Result<Parts, MountError> {
    // A byte-addressable medium needs no block cache.
    let direct = medium.info().byte_addressable;
    let page_bytes = if direct { options.memory / 2 } else { options.memory / 4 };
    let block_bytes = if direct { 0 } else { options.memory / 4 };
    let pages = Pages::new(medium.clone(), sb.uuid, sb.geometry.blocks, page_bytes);
    let slow = pages.blocking();
    let tree = Tree::open(&slow, &sb.root)?;
    numbers_are_free(&tree, &slow, sb.next_ino)?;
    let zone = Zone::load(&slow, &sb.zone, &sb.geometry)?;
    let mut reclaim = Vec::new();
    let mut bad = None;
    let (from, to) = (Key::new(kind::RECLAIM, 0, 0), Key::new(kind::RECLAIM, u64::MAX, u64::MAX));
    tree.scan(&slow, from, to, &mut |key, v| match ReclaimRec::from_value(v) {
        Ok(r) => {
            reclaim.push((key.a, key.b, r));
            true
        }
        Err(e) => {
            bad = Some(FsError::corrupt(e.0, Place::Key(key), 0, 0));
            false
        }
    })?;
    if let Some(e) = bad {
        return Err(e.into());
    }
    let (_, txns) = open_txns(&tree, &slow)?;
    txns.iter().try_for_each(|t| plausible(t, &sb))?;
    disjoint(&txns)?;
    let outcomes = load_outcomes(&tree, &slow, (options.memory / 8).max(1 << 20))?;
    let base = Arc::new(Base { tree, pages, slow, cut: sb.cut.0, next_ino: sb.next_ino });
    Ok(Parts { sb, zone, base, page_bytes, block_bytes, reclaim, txns, outcomes, read_only: options.read_only })
}

/// New inodes get numbers from `next_ino` on: an inode of the tree that has one would be overwritten.
fn numbers_are_free(tree: &Tree, slow: &Pages, next_ino: u64) -> FsResult<()> {
    match tree.last_up_to(slow, Key::new(kind::INODE, u64::MAX, u64::MAX))? {
        Some(key) if key.kind == kind::INODE && key.a >= next_ino => Err(FsError::corrupt(
            "next inode number (an inode has it or a higher one)",
            Place::Key(key),
            next_ino,
            key.a,
        )),
        _ => Ok(()),
    }
}

/// What a transaction of the tree says must lie within the image.
fn plausible(txn: &OpenTxn, sb: &Superblock) -> FsResult<()> {
    let data = sb.geometry.data_blocks();
    let inside = |(first, n): (u64, u64)| first >= data.start && first + n <= data.end;
    let known = txn.id < sb.next_txn && txn.lsn < sb.cut && txn.begin.last_inode().0 < sb.next_ino;
    let named = txn.begin.inputs.iter().flat_map(|i| runs(&i.effects)).all(inside);
    // An input belongs to a micro-op that stands if and only if a commit could have adopted it.
    let adopted = (0..16).filter(|i| txn.has_adopted(*i));
    let could = adopted.into_iter().all(|i| txn.begin.inputs.get(i).is_some_and(|input| input.micro < txn.next));
    if known && named && could {
        return Ok(());
    }
    Err(impossible("transaction (impossible)", txn.id, 0))
}

/// No block is twice in inputs that are not adopted: each transaction would give it to its own file. (The file that
/// adopted one may have lost its blocks again while the transaction is open.)
fn disjoint(txns: &[OpenTxn]) -> FsResult<()> {
    let mut all: Vec<((u64, u64), u64)> = txns.iter().flat_map(|t| t.loose().map(|run| (run, t.id))).collect();
    all.sort_unstable();
    match all.windows(2).find(|w| w[0].0.0 + w[0].0.1 > w[1].0.0) {
        Some(w) => Err(impossible("transaction (block of another input)", w[1].1, w[1].0.0)),
        None => Ok(()),
    }
}

fn impossible(what: &'static str, txn: u64, block: u64) -> FsError {
    FsError::corrupt(what, Place::Key(Key::new(kind::TXN, txn, 0)), 0, block)
}

fn load_outcomes(tree: &Tree, slow: &Pages, limit: usize) -> FsResult<Outcomes> {
    let outcomes = Outcomes::new(limit);
    let mut result = Ok(());
    let (from, to) = (Key::new(kind::CLIENT, 0, 0), Key::new(kind::OUTCOMES, u64::MAX, u64::MAX));
    tree.scan(slow, from, to, &mut |key, v| {
        result = outcomes.load(key, v);
        result.is_ok()
    })?;
    result?;
    outcomes.loaded()?;
    Ok(outcomes)
}

impl Store {
    /// Counters that a forged superblock or log brought close to their end would get there, and the next superblock
    /// would be one that no mount takes: such an image is read and not written.
    fn can_count_on(&self) -> Result<(), ImageError> {
        match self.worn() {
            Some((field, value)) => Err(ImageError::Worn { field, value }),
            None => Ok(()),
        }
    }

    /// The counter, if any, that is too high to be counted on.
    pub(crate) fn worn(&self) -> Option<(&'static str, u64)> {
        let next_ino = self.ledger.next_ino.load(Relaxed);
        let next_txn = self.ledger.next_txn.load(Relaxed);
        let counted = Superblock { next_ino, next_txn, ..self.writer.lock().sb.clone() };
        counted.worn()
    }

    /// What the tree's transactions hold is allocated in its bitmaps; else a record could name the same blocks.
    fn inputs_are_allocated(&self) -> FsResult<()> {
        for txn in self.txns.list() {
            for (first, n) in txn.loose() {
                if self.alloc.claim(weldfs_journal::BlockNo(first), n as u32)? > 0 {
                    return Err(impossible("transaction (block that is free)", txn.id, first));
                }
            }
        }
        Ok(())
    }

    fn assemble(medium: Arc<dyn Medium>, parts: Parts, options: &MountOptions) -> Store {
        let Parts { sb, zone, base, page_bytes, block_bytes, reclaim, txns, outcomes, read_only } = parts;
        let geometry = sb.geometry;
        let ledger = Ledger::new(&geometry);
        let zone_blocks = zone.pages_total() as i64 * crate::limits::PAGE_BLOCKS as i64;
        ledger.zone.store(zone_blocks, Relaxed);
        ledger.zone_live.store(zone.pages_live() as i64, Relaxed);
        ledger.zone_free.store(zone.pages_free() as i64, Relaxed);
        ledger.avail.store(sb.free_blocks as i64, Relaxed);
        ledger.held.store(ledger.capacity as i64 - sb.free_blocks as i64 - zone_blocks, Relaxed);
        ledger.inodes.store(sb.inodes as i64, Relaxed);
        ledger.next_ino.store(sb.next_ino, Relaxed);
        ledger.next_txn.store(sb.next_txn, Relaxed);
        // Allocated, but on the account of a transaction.
        let loose: u64 = txns.iter().flat_map(OpenTxn::loose).map(|(_, n)| n).sum();
        ledger.held.fetch_sub(loose as i64, Relaxed);
        let open = OpenTxns::new(ledger.txns.clone());
        txns.into_iter().for_each(|t| {
            open.adopt(t, sb.cut);
        });
        let overlay = Overlay::new(&base);
        let pending = Pending::default();
        for (ino, at, rec) in reclaim {
            pending.add(ino, at);
            overlay.shard(ino).write().adopt_reclaim(InodeNo(ino), at, rec);
        }
        let budget = options.memory.saturating_sub(page_bytes + block_bytes).max(1 << 20);
        let store = Store {
            info: medium.info(),
            medium,
            geometry,
            overlay,
            alloc: Alloc::new(geometry, base, sb.free_blocks),
            ledger,
            journal: std::sync::OnceLock::new(),
            gate: RwLock::new(()),
            cache: BlockCache::new(block_bytes),
            tails: Default::default(),
            damage: Default::default(),
            reclaim: pending,
            applying: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            txns: open,
            outcomes,
            hash: NameHash::new(sb.dirent_key, options.hash_bits),
            clock: options.clock.clone(),
            uuid: sb.uuid,
            inline_max: sb.inline_max,
            budget,
            cache_bytes: page_bytes + block_bytes,
            read_only,
            mounted: OnceLock::new(),
            closed: AtomicBool::new(false),
            checkpoints: AtomicU64::new(0),
            checkpoint_bytes: AtomicU64::new(0),
            opens: Mutex::new(InoMap::default()),
            changes: OnceLock::new(),
            suspects: Mutex::default(),
            pins: Default::default(),
            writer: Mutex::new(Writer { sb, zone, pending: None, unnamed: Vec::new() }),
        };
        store.set_cache_budget(store.cache_bytes);
        store
    }

    /// Opens the log for appending at the tail the scan found. Unless read-only, a superblock first names the new
    /// segment; only then can anything be appended.
    fn open_journal(
        self,
        scan: &ScanReport,
        stale: &[CopyWarning],
        options: &MountOptions,
    ) -> Result<Store, MountError> {
        let mut writer = self.writer.lock();
        let open = |oldest: Lsn| {
            let config = JournalConfig {
                area: self.geometry.log,
                segments: writer.sb.segments.clone(),
                tail: scan.tail,
                oldest,
                clock: options.clock.clone(),
                random: options.random.clone(),
            };
            match options.inline_commits {
                true => Journal::open_inline(self.medium.clone(), config),
                false => Journal::open(self.medium.clone(), config),
            }
        };
        // After many crashes in a row the table of segments is full: only a checkpoint can follow.
        let (journal, full) = match open(writer.sb.cut) {
            Err(JournalError::SegmentsFull) => (open(scan.tail)?, true),
            other => (other?, false),
        };
        if !self.read_only {
            // A power cut in the last store may have left one good copy, the one that the next store begins with.
            // Opening the journal made it durable.
            writer.sb.repair(&*self.medium, stale)?;
        }
        if !self.read_only && !full {
            writer.sb.segments = journal.segments_at(writer.sb.cut);
            writer.sb.clean = false;
            writer.sb.mounts = writer.sb.mounts.saturating_add(1);
            let Writer { sb, .. } = &mut *writer;
            sb.store(&*self.medium)?;
            journal.release(writer.sb.cut);
        }
        drop(writer);
        let _ = self.journal.set(Arc::new(journal));
        if full && !self.read_only {
            self.checkpoint()?;
        }
        Ok(self)
    }
}
