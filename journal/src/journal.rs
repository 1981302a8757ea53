//! The live log: reserve, append, commit, subscribe. The lock order is `flush` before `state`.

use crate::canary::{Canary, planted};
use crate::commit::Notifier;
use crate::counters::{Counters, JournalStats, more};
use crate::crashpoint;
use crate::limits::{RECORD_HEADER_BYTES, UNFLUSHED_BYTES_MAX, UNFLUSHED_NS_MAX, WRITE_OUT_BYTES, record_bytes_max};
use crate::log_buffer::LogBuffer;
use crate::put::{barrier, persist_range, store_record};
use crate::record::RawHeader;
use crate::reservation::{Reservation, record_bytes};
use crate::tail_page::TailPage;
use crate::{AlignedBuf, Clock, JournalError, LogArea, LogFull, Lsn, Medium, Random, RecordHead, RecordKind};
use crate::{SEGMENTS_MAX, SegmentTable, TxnMode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use std::thread::JoinHandle;
use weldfs_functions::ChecksumState;
use weldfs_locks::{Condvar, Mutex};
use zerocopy::IntoBytes;

/// A data block run to be written with the next batch (block media), or at once (byte-addressable media).
#[derive(Clone, Debug)]
pub struct DataWrite {
    /// Byte offset on the medium.
    pub off: u64,
    /// The bytes; shared with whoever serves reads until they are written.
    pub buf: Arc<AlignedBuf>,
}

/// Where a record went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Appended {
    /// Its position.
    pub lsn: Lsn,
    /// The position after it: durable when the watermark reaches this.
    pub end: Lsn,
}

/// What a journal is opened with.
pub struct JournalConfig {
    /// Where the log lies.
    pub area: LogArea,
    /// The superblock's table.
    pub segments: SegmentTable,
    /// Where appending goes on.
    pub tail: Lsn,
    /// The checkpoint's cut: nothing below is needed.
    pub oldest: Lsn,
    /// Time, for the flush deadline.
    pub clock: Arc<dyn Clock>,
    /// Salts.
    pub random: Arc<dyn Random>,
}

/// What appending changes.
pub(crate) struct State {
    /// Where the next record starts.
    pub tail: Lsn,
    /// Watermark carried by the record before `tail`.
    pub carried: Lsn,
    /// An owner's record was appended since the last watermark record.
    pub owed: bool,
    /// Flush wanted through this LSN (block media).
    pub want: Lsn,
    /// Completed but not flushed, bytes.
    pub unflushed: u64,
    /// Since when something is unflushed (clock ns); 0: nothing.
    pub unflushed_since: u64,
    /// Log bytes and data waiting for the commit thread (block media).
    pub queue: LogBuffer,
    /// Buffers of the last batch.
    pub spent: LogBuffer,
    /// Bytes written by batches since the last flush.
    pub since_flush: u64,
    /// The page that the last batch ended in.
    pub page: TailPage,
    /// Pages of the log were handed to the host's kernel since the last flush began.
    pub handed_over: bool,
    /// A batch is being written.
    pub writing: bool,
    /// Threads that wait for that. To wake none is a system call, too, and there are as many as batches.
    pub waiting: u32,
    /// One that is not handed over is written or flushed.
    pub busy: bool,
    /// A caller that will look at `want` once more is at work ([`Journal::attend`]).
    pub attended: bool,
    pub stop: bool,
    segments: SegmentTable,
    salt: u64,
    salt_until: Lsn,
    /// End of the last lap that the last offered table covers.
    offered_end: Lsn,
}

pub(crate) struct Shared {
    pub medium: Arc<dyn Medium>,
    pub byte_addressable: bool,
    pub area: LogArea,
    pub state: Mutex<State>,
    /// Wakes the commit thread; with `state`.
    pub work: Condvar,
    /// Told when a batch was written; with `state`.
    pub wrote: Condvar,
    /// Every record that ends at or below it was written or handed over (block media).
    pub written: AtomicU64,
    pub counters: Counters,
    pub notifier: Notifier,
    /// How far callers' flushes went that were not announced yet; 0: none.
    pub led: AtomicU64,
    pub flush: Mutex<()>,
    recorded: AtomicU64,
    tail: AtomicU64,
    /// Where the owner's last record ends: the tail, or before records of the journal's own.
    owned: AtomicU64,
    oldest: AtomicU64,
    covered_end: AtomicU64,
    pub reserved: AtomicU64,
    poisoned: AtomicBool,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    slack: u64,
}

/// The live log. Thread-safe.
pub struct Journal {
    pub(crate) shared: Arc<Shared>,
    pub(crate) thread: Option<JoinHandle<()>>,
}

impl Journal {
    /// Opens the log for appending at `tail`, in a new segment. What `scan` read becomes durable first. Nothing can be
    /// appended until a superblock with `segments_at` is durable and `release` was called.
    ///
    /// # Errors
    /// `SegmentsFull`: open again with `oldest == tail` and checkpoint; the medium's errors.
    pub fn open(medium: Arc<dyn Medium>, config: JournalConfig) -> Result<Journal, JournalError> {
        let mut journal = Journal::open_inline(medium, config)?;
        if !journal.shared.byte_addressable {
            journal.thread = Some(crate::commit::spawn(journal.shared.clone())?);
        }
        Ok(journal)
    }

    /// As `open`, without a commit thread on block media: `commit_through` writes and flushes on the caller, and
    /// nothing is written before. What is committed, and in which order, depends on the callers alone.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_inline(medium: Arc<dyn Medium>, config: JournalConfig) -> Result<Journal, JournalError> {
        let JournalConfig { area, mut segments, tail, oldest, clock, random } = config;
        let info = medium.info();
        area.validate(info.len).map_err(JournalError::Layout)?;
        if oldest > tail || tail.0 - oldest.0 > area.len || tail.0 % u64::from(area.align) != 0 || oldest.0 < area.len {
            return Err(JournalError::Layout("tail of the log"));
        }
        // What was replayed must be durable before anything is built on it; a reader builds nothing.
        if !info.read_only {
            persist_range(&*medium, &area, oldest, tail)?;
            barrier(&*medium)?;
        }
        segments.trim(oldest);
        segments.restart(&area, tail, &*random);
        if segments.entries().len() > SEGMENTS_MAX {
            return Err(JournalError::SegmentsFull);
        }
        let state = State {
            tail,
            carried: oldest,
            owed: false,
            want: Lsn::NONE,
            unflushed: 0,
            unflushed_since: 0,
            queue: LogBuffer::default(),
            spent: LogBuffer::default(),
            since_flush: 0,
            page: TailPage::default(),
            handed_over: false,
            writing: false,
            waiting: 0,
            busy: false,
            attended: false,
            stop: false,
            segments,
            salt: 0,
            salt_until: Lsn::NONE,
            offered_end: Lsn::NONE,
        };
        let shared = Arc::new(Shared {
            byte_addressable: info.byte_addressable,
            medium,
            area,
            state: Mutex::new(state),
            work: Condvar::new(),
            wrote: Condvar::new(),
            written: AtomicU64::new(tail.0),
            counters: Counters::default(),
            notifier: Notifier::new(tail),
            led: AtomicU64::new(0),
            flush: Mutex::new(()),
            recorded: AtomicU64::new(oldest.0),
            tail: AtomicU64::new(tail.0),
            owned: AtomicU64::new(tail.0),
            oldest: AtomicU64::new(oldest.0),
            covered_end: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            poisoned: AtomicBool::new(false),
            clock,
            random,
            slack: record_bytes_max(area.len),
        });
        Ok(Journal { shared, thread: None })
    }

    /// The table to store in a superblock whose cut is `cut`: everything since then, the current lap and the next one.
    pub fn segments_at(&self, cut: Lsn) -> SegmentTable {
        let s = &self.shared;
        let mut state = s.state.lock();
        let tail = state.tail;
        state.segments.cover_next_lap(&s.area, tail, &*s.random);
        let mut table = state.segments.clone();
        table.trim(cut);
        state.offered_end = table.entries().last().map_or(Lsn::NONE, |e| s.area.next_lap(e.first));
        table
    }

    /// A superblock that carries the last `segments_at` and this cut is durable: space below is free, and the laps
    /// that the table covers may be entered.
    pub fn release(&self, upto: Lsn) {
        let s = &self.shared;
        let mut state = s.state.lock();
        debug_assert!(upto <= state.tail, "a cut is below the tail");
        state.segments.trim(upto);
        s.oldest.fetch_max(upto.0, Ordering::SeqCst);
        s.covered_end.fetch_max(state.offered_end.0, Ordering::SeqCst);
    }

    /// Keeps room for one record of at most `payload_bytes`. Full: a checkpoint makes room.
    pub fn reserve(&self, payload_bytes: usize) -> Result<Reservation<'_>, LogFull> {
        self.reserve_records(&[payload_bytes])
    }

    /// Keeps room for several records, headers and padding included: what a transaction of several records may write
    /// at most. Each `append` takes its part ([`Reservation::part`]). Full: a checkpoint makes room.
    pub fn reserve_records(&self, payload_bytes: &[usize]) -> Result<Reservation<'_>, LogFull> {
        let s = &self.shared;
        let bytes = payload_bytes.iter().map(|p| record_bytes(*p, s.area.align.into())).sum();
        s.reserve(bytes).ok_or(LogFull { bytes })
    }

    /// Bytes of records, headers and padding included, that fit into an empty log: no checkpoint makes room for more.
    pub fn reservable_bytes_max(&self) -> u64 {
        self.shared.area.len - self.shared.slack
    }

    /// Appends one record whose payload is the concatenation of `parts`, with the data blocks it points to. The record
    /// is volatile until committed. `room` is given back when the record is in place.
    pub fn append(
        &self,
        head: RecordHead,
        parts: &[&[u8]],
        data: Vec<DataWrite>,
        room: Option<Reservation<'_>>,
    ) -> Result<Appended, JournalError> {
        let s = &self.shared;
        let mut payload = ChecksumState::new();
        parts.iter().for_each(|p| payload.update(p));
        let length = payload.len();
        let (bytes, max) = (record_bytes(length as usize, s.area.align.into()), record_bytes_max(s.area.len));
        if bytes > max {
            return Err(JournalError::TooLong { bytes, max });
        }
        room.as_ref().map_or(Ok(()), |room| room.must_cover(bytes))?;
        let data_bytes = s.write_data(&data)?;
        let mut state = s.state.lock();
        let appended = s.place(&mut state, &head, &payload, parts, bytes)?;
        s.queue_data(&mut state, data, data_bytes);
        more(&s.counters.records, 1);
        drop(state);
        drop(room);
        Ok(appended)
    }

    /// Appends several records, one right after the other, the data blocks they point to with the first; writes down
    /// the place of each in `at`. They are as separate as any: a crash may leave the first of them alone. `placed`
    /// is told when record `i` is in place. `room` covers all of them.
    ///
    /// # Errors
    /// As [`Journal::append`], with nothing appended; or, if only some could be, the log is poisoned.
    pub fn append_together(
        &self,
        records: &[(RecordHead, &[u8])],
        data: Vec<DataWrite>,
        room: Option<Reservation<'_>>,
        at: &mut [Appended],
        placed: &mut dyn FnMut(usize),
    ) -> Result<(), JournalError> {
        let s = &self.shared;
        let (align, max) = (s.area.align.into(), record_bytes_max(s.area.len));
        let mut all = 0;
        for (_, payload) in records {
            let bytes = record_bytes(payload.len(), align);
            if bytes > max {
                return Err(JournalError::TooLong { bytes, max });
            }
            all += bytes;
        }
        room.as_ref().map_or(Ok(()), |room| room.must_cover(all))?;
        let data_bytes = s.write_data(&data)?;
        let mut state = s.state.lock();
        for (i, ((head, payload), at)) in records.iter().zip(at).enumerate() {
            let mut sum = ChecksumState::new();
            sum.update(payload);
            match s.place(&mut state, head, &sum, &[payload], record_bytes(payload.len(), align)) {
                Ok(placed) => *at = placed,
                Err(e) => {
                    if i > 0 {
                        s.poison();
                    }
                    return Err(e);
                }
            }
            placed(i);
        }
        s.queue_data(&mut state, data, data_bytes);
        more(&s.counters.records, records.len() as u64);
        drop(state);
        drop(room);
        Ok(())
    }

    /// Starts making everything below `end` durable: done on return on byte-addressable media; wakes the commit
    /// thread on block media.
    pub fn commit_through(&self, end: Lsn) -> Result<(), JournalError> {
        let s = &self.shared;
        if self.is_durable(end)? {
            return Ok(());
        }
        if s.byte_addressable {
            return s.commit_inline(end);
        }
        if self.thread.is_none() {
            return s.commit_queue(end);
        }
        let mut state = s.state.lock();
        let end = end.min(state.tail);
        if end > state.want {
            state.want = end;
            s.tell_thread(&state);
        }
        Ok(())
    }

    /// Wakes `waker` once the watermark reaches `end` or the log is poisoned; `true` when either already holds (the
    /// waker is then dropped). Starts nothing by itself.
    pub fn subscribe(&self, end: Lsn, waker: Waker) -> bool {
        let s = &self.shared;
        s.notifier.subscribe(end, waker, &|| s.is_poisoned())
    }

    /// Commits through `end` and blocks until it is durable. For threads that may block.
    pub fn wait(&self, end: Lsn) -> Result<(), JournalError> {
        let end = end.min(self.tail());
        self.commit_through(end)?;
        let s = &self.shared;
        s.notifier.wait(end, &|| s.is_poisoned());
        if self.watermark() >= end { Ok(()) } else { Err(JournalError::Poisoned) }
    }

    /// Whether everything below `end` is durable; an error once the log is poisoned and it is not.
    pub fn is_durable(&self, end: Lsn) -> Result<bool, JournalError> {
        if self.watermark() >= end {
            return Ok(true);
        }
        if self.is_poisoned() { Err(JournalError::Poisoned) } else { Ok(false) }
    }

    /// Every record that ends at or below it is durable, with its data.
    pub fn watermark(&self) -> Lsn {
        self.shared.notifier.watermark()
    }

    /// The highest watermark that a durable record carries.
    pub fn recorded_watermark(&self) -> Lsn {
        Lsn(self.shared.recorded.load(Ordering::Acquire))
    }

    /// Where the next record starts.
    pub fn tail(&self) -> Lsn {
        Lsn(self.shared.tail.load(Ordering::SeqCst))
    }

    /// Where the owner's last record ends. When all below it is durable, all that was appended is: what may lie between
    /// it and the tail says only how far the last flush went, and is worth no flush of its own.
    pub fn owned_end(&self) -> Lsn {
        Lsn(self.shared.owned.load(Ordering::SeqCst))
    }

    /// The checkpoint's cut: nothing below is needed.
    pub fn oldest(&self) -> Lsn {
        Lsn(self.shared.oldest.load(Ordering::SeqCst))
    }

    /// Log bytes in use since the cut.
    pub fn used(&self) -> u64 {
        let oldest = self.oldest();
        self.tail().0.saturating_sub(oldest.0)
    }

    /// Log bytes that can still be reserved.
    pub fn free(&self) -> u64 {
        let s = &self.shared;
        let taken = s.reserved.load(Ordering::SeqCst) + self.tail().0 + s.slack;
        s.limit().saturating_sub(taken)
    }

    /// When the oldest unflushed completion must be flushed (clock nanoseconds); `None` when nothing is unflushed or
    /// its flush is under way.
    pub fn next_deadline(&self) -> Option<u64> {
        let s = &self.shared;
        let state = s.state.lock();
        let waiting = state.unflushed_since != 0 && state.want < state.tail && !s.is_poisoned();
        waiting.then(|| state.unflushed_since + UNFLUSHED_NS_MAX)
    }

    /// Flushes when the deadline has passed; writes the owed watermark record. Returns the next deadline.
    pub fn tick(&self) -> Result<Option<u64>, JournalError> {
        if self.next_deadline().is_some_and(|at| self.shared.clock.now_ns() >= at) {
            self.commit_through(self.tail())?;
        }
        self.idle();
        Ok(self.next_deadline())
    }

    /// Writes the watermark record that is owed when no record followed a flush. Cheap when none is owed: for a
    /// device thread that found nothing else to do. (On block media the commit thread does it by itself.)
    pub fn idle(&self) {
        let s = &self.shared;
        let mut state = s.state.lock();
        if state.owed && self.watermark() == state.tail {
            s.append_watermark(&mut state);
        }
    }

    /// At the cap of unflushed bytes: the position whose flush an op must await before it appends.
    pub fn must_wait(&self) -> Option<Lsn> {
        let s = &self.shared;
        let over = |unflushed: u64| unflushed > UNFLUSHED_BYTES_MAX;
        if s.byte_addressable {
            let tail = self.tail();
            // Another thread may have appended and flushed since the tail was read.
            return over(tail.0.saturating_sub(self.watermark().0)).then_some(tail);
        }
        let state = s.state.lock();
        over(state.unflushed).then_some(state.tail)
    }

    /// Whether a failure was final.
    pub fn is_poisoned(&self) -> bool {
        self.shared.is_poisoned()
    }

    /// Makes the failure of something above final here too: every waiter is told.
    pub fn poison(&self) {
        self.shared.poison();
    }

    /// Counters.
    pub fn stats(&self) -> JournalStats {
        let c = &self.shared.counters;
        let get = |a: &AtomicU64| a.load(Ordering::Relaxed);
        JournalStats {
            records: get(&c.records),
            log_bytes: get(&c.log_bytes),
            flushes: get(&c.flushes),
            batches: get(&c.batches),
            log_writes: get(&c.log_writes),
            data_writes: get(&c.data_writes),
            data_bytes: get(&c.data_bytes),
            watermark_records: get(&c.watermark_records),
        }
    }
}

impl Drop for Journal {
    /// Stops the commit thread; what was not committed stays volatile.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.shared.state.lock().stop = true;
            self.shared.work.notify_all();
            if thread.join().is_err() {
                tracing::error!("the commit thread panicked");
            }
        }
    }
}

impl Shared {
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire) || self.medium.is_poisoned()
    }

    /// Final: every waiter is told, nothing is retried.
    pub(crate) fn poison(&self) {
        self.poisoned.store(true, Ordering::Release);
        self.medium.poison();
        self.notifier.wake_all();
    }

    /// End of the space that appending may fill.
    fn limit(&self) -> u64 {
        let space = self.oldest.load(Ordering::SeqCst) + self.area.len;
        if planted(Canary::LogReusedEarly) {
            return self.covered_end.load(Ordering::SeqCst);
        }
        space.min(self.covered_end.load(Ordering::SeqCst))
    }

    /// Before the record that points to them: data blocks, on a byte-addressable medium. Says how many bytes.
    fn write_data(&self, data: &[DataWrite]) -> Result<u64, JournalError> {
        if self.byte_addressable {
            for d in data {
                self.medium.write(d.off, &d.buf)?;
            }
        }
        Ok(data.iter().map(|d| d.buf.len() as u64).sum())
    }

    /// With the record that points to them: data blocks, on a block medium.
    fn queue_data(&self, state: &mut State, data: Vec<DataWrite>, bytes: u64) {
        state.owed = true;
        if !self.byte_addressable {
            state.unflushed += bytes;
            state.queue.push_data(data);
            if state.queue.bytes() >= WRITE_OUT_BYTES {
                self.tell_thread(state);
            }
        }
        if bytes > 0 {
            self.counters.data_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Puts one record at the tail, after a pad when it does not fit in the lap.
    fn place(
        &self,
        state: &mut State,
        head: &RecordHead,
        payload: &ChecksumState,
        parts: &[&[u8]],
        bytes: u64,
    ) -> Result<Appended, JournalError> {
        if self.is_poisoned() {
            return Err(JournalError::Poisoned);
        }
        let left = self.area.next_lap(state.tail).0 - state.tail.0;
        let pad = if bytes > left { left } else { 0 };
        if state.tail.0 + pad + bytes > self.limit() {
            return Err(LogFull { bytes }.into());
        }
        if pad > 0 {
            let head = RecordHead { kind: RecordKind::Pad, mode: TxnMode::Macro, micro_index: 0, txn: 0 };
            let length = (pad - RECORD_HEADER_BYTES as u64) as u32;
            self.put(state, &head, length, &ChecksumState::new(), &[], pad)?;
        }
        let lsn = state.tail;
        self.put(state, head, payload.len() as u32, payload, parts, bytes)?;
        self.owned.store(state.tail.0, Ordering::SeqCst);
        Ok(Appended { lsn, end: state.tail })
    }

    /// Writes header and payload at the tail and moves it on by `bytes`.
    fn put(
        &self,
        state: &mut State,
        head: &RecordHead,
        length: u32,
        payload: &ChecksumState,
        parts: &[&[u8]],
        bytes: u64,
    ) -> Result<(), JournalError> {
        let lsn = state.tail;
        let watermark = self.notifier.watermark();
        let mut header = RawHeader::new(self.salt(state, lsn), head, lsn, length, watermark);
        header.crc.set(header.checksum(payload));
        let off = self.area.physical(lsn);
        if self.byte_addressable {
            if let Err(e) = store_record(&*self.medium, off, &header, parts) {
                // Part of it may be there, so the tail cannot be trusted with another record.
                self.poison();
                return Err(e);
            }
        } else {
            state.queue.push_record(off, header.as_bytes(), parts, bytes as usize);
            state.unflushed += bytes;
        }
        if state.unflushed_since == 0 {
            state.unflushed_since = self.clock.coarse_ns().max(1);
        }
        state.carried = watermark;
        state.tail = Lsn(lsn.0 + bytes);
        self.tail.store(state.tail.0, Ordering::SeqCst);
        more(&self.counters.log_bytes, bytes);
        Ok(())
    }

    fn salt(&self, state: &mut State, lsn: Lsn) -> u64 {
        if lsn >= state.salt_until {
            let entry = *state.segments.containing(lsn).expect("the limit keeps the tail inside covered laps");
            state.salt = entry.salt;
            state.salt_until = self.area.next_lap(lsn);
        }
        state.salt
    }

    /// Everything to the tail becomes durable, on a byte-addressable medium.
    fn commit_inline(&self, end: Lsn) -> Result<(), JournalError> {
        let _flush = self.flush.lock();
        let from = self.notifier.watermark();
        if from >= end {
            return Ok(());
        }
        if self.is_poisoned() {
            return Err(JournalError::Poisoned);
        }
        let (to, carried) = {
            let mut state = self.state.lock();
            state.unflushed_since = 0;
            (state.tail, state.carried)
        };
        crashpoint("before-flush");
        let done = persist_range(&*self.medium, &self.area, from, to).and_then(|()| barrier(&*self.medium));
        crashpoint("after-flush");
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        if let Err(e) = done {
            self.poison();
            return Err(e.into());
        }
        self.raise(to, carried);
        self.notifier.announce(to);
        Ok(())
    }

    /// Everything below `to` is durable; its last record carries `carried`.
    pub(crate) fn raise(&self, to: Lsn, carried: Lsn) {
        self.recorded.fetch_max(carried.0, Ordering::AcqRel);
        self.notifier.raise(to);
    }

    /// Takes room, if there is any beside what others hold.
    fn reserve(&self, bytes: u64) -> Option<Reservation<'_>> {
        let (room, all) = Reservation::take(bytes, self.area.align.into(), &self.reserved);
        let tail = self.tail.load(Ordering::SeqCst);
        (tail + all + self.slack <= self.limit()).then_some(room)
    }

    /// Appends the unflushed watermark record, when there is room to spare.
    pub(crate) fn append_watermark(&self, state: &mut State) {
        state.owed = false;
        let bytes = record_bytes(0, self.area.align.into());
        let Some(_room) = self.reserve(bytes).filter(|_| !self.is_poisoned()) else { return };
        let head = RecordHead { kind: RecordKind::Watermark, mode: TxnMode::Macro, micro_index: 0, txn: 0 };
        if self.put(state, &head, 0, &ChecksumState::new(), &[], bytes).is_ok() {
            self.counters.watermark_records.fetch_add(1, Ordering::Relaxed);
        }
    }
}
