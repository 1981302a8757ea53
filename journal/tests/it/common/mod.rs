//! A heap medium of either nature that counts and fails when told, and functions that open a log on it.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use weldfs_journal::*;
use weldfs_locks::Mutex;

pub struct TestMedium {
    pub bytes: Mutex<Vec<u8>>,
    pub flushes: AtomicU64,
    pub fail_flush: AtomicBool,
    pub slow_flush_ms: AtomicU64,
    pub fail_hand_over: AtomicBool,
    /// Pages that were handed over and are not flushed, and the flush that had begun last before that.
    pub handed_over: Mutex<BTreeMap<u64, u64>>,
    pub flushes_begun: AtomicU64,
    poisoned: AtomicBool,
    byte_addressable: bool,
}

impl TestMedium {
    pub fn new(byte_addressable: bool) -> Arc<TestMedium> {
        TestMedium::with(vec![0; 1 << 20], byte_addressable)
    }

    pub fn with(bytes: Vec<u8>, byte_addressable: bool) -> Arc<TestMedium> {
        Arc::new(TestMedium {
            bytes: Mutex::new(bytes),
            flushes: AtomicU64::new(0),
            fail_flush: AtomicBool::new(false),
            slow_flush_ms: AtomicU64::new(0),
            fail_hand_over: AtomicBool::new(false),
            handed_over: Mutex::default(),
            flushes_begun: AtomicU64::new(0),
            poisoned: AtomicBool::new(false),
            byte_addressable,
        })
    }
}

impl Medium for TestMedium {
    fn info(&self) -> MediumInfo {
        let (kind, unit, log_align) =
            if self.byte_addressable { (MediumKind::Pmem, 8, 64) } else { (MediumKind::Block, 512, 512) };
        MediumInfo {
            len: self.bytes.lock().len() as u64,
            kind,
            unit,
            log_align,
            power_safe: false,
            flush: FlushMode::None,
            byte_addressable: self.byte_addressable,
            read_only: false,
        }
    }

    fn read(&self, off: u64, buf: &mut [u8]) -> Result<(), MediumError> {
        buf.copy_from_slice(&self.bytes.lock()[off as usize..off as usize + buf.len()]);
        Ok(())
    }

    fn write(&self, off: u64, buf: &[u8]) -> Result<(), MediumError> {
        if self.is_poisoned() {
            return Err(MediumError::Poisoned);
        }
        let handed_over = self.handed_over.lock();
        let (first, end) = (off / BLOCK as u64, (off + buf.len() as u64).div_ceil(BLOCK as u64));
        // What a kernel does with a page of its cache that is written past it.
        assert!(handed_over.range(first..end).next().is_none(), "written past pages that are not flushed");
        self.bytes.lock()[off as usize..off as usize + buf.len()].copy_from_slice(buf);
        Ok(())
    }

    fn hand_over(&self, off: u64, pages: &[u8]) -> Result<(), MediumError> {
        assert!(off.is_multiple_of(BLOCK as u64) && pages.len().is_multiple_of(BLOCK) && !pages.is_empty());
        if self.is_poisoned() {
            return Err(MediumError::Poisoned);
        }
        if self.fail_hand_over.load(SeqCst) {
            return Err(MediumError::Io { what: "write", off, len: pages.len() as u64, os: 28 });
        }
        let mut handed_over = self.handed_over.lock();
        let begun = self.flushes_begun.load(SeqCst);
        (0..pages.len() / BLOCK).for_each(|i| {
            handed_over.insert(off / BLOCK as u64 + i as u64, begun);
        });
        self.bytes.lock()[off as usize..off as usize + pages.len()].copy_from_slice(pages);
        Ok(())
    }

    fn barrier(&self) -> Result<(), MediumError> {
        let this = {
            let _handed_over = self.handed_over.lock();
            self.flushes_begun.fetch_add(1, SeqCst)
        };
        std::thread::sleep(std::time::Duration::from_millis(self.slow_flush_ms.load(SeqCst)));
        if self.fail_flush.load(SeqCst) {
            self.poison();
            return Err(MediumError::Io { what: "flush", off: 0, len: 0, os: 5 });
        }
        self.flushes.fetch_add(1, SeqCst);
        self.handed_over.lock().retain(|_, begun| *begun > this);
        Ok(())
    }

    fn is_poisoned(&self) -> bool {
        self.poisoned.load(SeqCst)
    }

    fn poison(&self) {
        self.poisoned.store(true, SeqCst);
    }
}

/// A log of 64 KiB at byte 8192, and what a superblock would know of it.
pub struct Log {
    pub medium: Arc<TestMedium>,
    pub area: LogArea,
    pub table: SegmentTable,
    pub oldest: Lsn,
    pub clock: Arc<ManualClock>,
    random: Arc<SeededRandom>,
}

impl Log {
    pub fn new(byte_addressable: bool) -> Log {
        let medium = TestMedium::new(byte_addressable);
        let area = LogArea { start: 8192, len: 64 << 10, align: medium.info().log_align };
        let random = Arc::new(SeededRandom::new(7));
        let table = SegmentTable::fresh(&area, &*random);
        Log { medium, area, table, oldest: area.first_lsn(), clock: Arc::new(ManualClock::new(1)), random }
    }

    /// Opens at `tail` and stores the new table at once.
    pub fn open(&mut self, tail: Lsn) -> Journal {
        let config = JournalConfig {
            area: self.area,
            segments: self.table.clone(),
            tail,
            oldest: self.oldest,
            clock: self.clock.clone(),
            random: self.random.clone(),
        };
        let journal = Journal::open(self.medium.clone(), config).expect("opens");
        self.checkpoint(&journal, self.oldest);
        journal
    }

    pub fn checkpoint(&mut self, journal: &Journal, cut: Lsn) {
        self.table = journal.segments_at(cut);
        self.oldest = cut;
        journal.release(cut);
    }

    /// Payloads of all records, and the report.
    pub fn scan(&self) -> Result<(Vec<Vec<u8>>, ScanReport), ScanError> {
        let mut all = Vec::new();
        let report = scan(&*self.medium, &self.area, &self.table, self.oldest, &mut |r| {
            all.push(r.payload.to_vec());
            Verdict::Ok
        })?;
        Ok((all, report))
    }

    pub fn flip(&self, lsn: Lsn, byte: u64) {
        self.medium.bytes.lock()[(self.area.physical(lsn) + byte) as usize] ^= 0x40;
    }
}

pub fn append(journal: &Journal, payload: &[u8]) -> Appended {
    let room = journal.reserve(payload.len()).expect("room");
    journal.append(RecordHead::op(), &[payload], Vec::new(), Some(room)).expect("appends")
}
