//! The modelled medium: channels with 4 KiB blocks interleaved over them, each a token bucket; a bucket of accesses; a
//! latency.
//!
//! [`ModelledMedium`] lies between the store and the medium that it really is on, so all traffic counts: data,
//! metadata, log, checkpoints, whichever command or thread it belongs to. A device thread must not wait: what it asked
//! for while it ran a slice is collected, and holds back the completion of that command. Every other thread waits
//! itself.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use weldfs_ciscops::pool::SharedBytes;
use weldfs_journal::{BLOCK, IoWrite, Medium, MediumError, MediumInfo};
use weldfs_locks::Mutex;

use super::bucket::Bucket;
use weldfs_session::clock::now_ns;
use weldfs_session::profile::{Media, Profile};

/// A wait that is shorter, nanoseconds, is not slept: the host would wake the thread too late.
const SLEEP_ABOVE_NS: u64 = 200_000;
/// By so much earlier it is woken, nanoseconds.
const WAKE_EARLY_NS: u64 = 80_000;

#[derive(Clone, Copy)]
struct Asked {
    /// On a device thread inside a slice: when all that it asked for is done. Else `None`.
    due: Option<u64>,
    /// Where the last access ended, and whether it wrote: one that goes on there is the same access.
    end: u64,
    wrote: bool,
}

thread_local! {
    static ASKED: Cell<Asked> = const { Cell::new(Asked { due: None, end: u64::MAX, wrote: false }) };
}

/// A medium with the times of the profile's, if that models one, for a store to be mounted on, and the model, which
/// goes into the configuration of the device on that store: `DeviceConfig::media`.
pub fn on_modelled(medium: Arc<dyn Medium>, profile: &Profile) -> (Arc<dyn Medium>, Option<Arc<MediaModel>>) {
    if !profile.models_media() {
        return (medium, None);
    }
    let model = Arc::new(MediaModel::new(&profile.media));
    (Arc::new(ModelledMedium { inner: medium, model: model.clone() }), Some(model))
}

/// What this thread asks of a modelled medium is collected from now on.
pub fn collect() {
    ASKED.set(Asked { due: Some(0), end: u64::MAX, wrote: false });
}

/// When what was collected is done, nanoseconds; 0: nothing was asked. From now on this thread waits itself.
pub fn collected() -> u64 {
    ASKED.replace(Asked { due: None, end: u64::MAX, wrote: false }).due.unwrap_or(0)
}

/// The channels. Thread-safe.
#[derive(Debug)]
pub struct MediaModel {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    latency_ns: u64,
    channels: Vec<Bucket>,
    accesses: Bucket,
    /// When all that was written so far is there.
    written: u64,
}

/// Each channel's part of a bandwidth; 0 stays unlimited.
fn part(bandwidth: u64, channels: usize) -> u64 {
    if bandwidth == 0 { 0 } else { (bandwidth / channels as u64).max(1) }
}

impl MediaModel {
    /// Idle, at time zero.
    pub(super) fn new(media: &Media) -> MediaModel {
        let count = media.channels as usize;
        let channels = vec![Bucket::new(part(media.bandwidth_bytes_per_s, count), 0); count];
        let (latency_ns, accesses) = (media.latency_ns, Bucket::new(media.iops, 1));
        MediaModel { state: Mutex::new(State { latency_ns, channels, accesses, written: 0 }) }
    }

    /// Other numbers from the next access on.
    pub(crate) fn set(&self, media: &Media) {
        let (mut state, count) = (self.state.lock(), media.channels as usize);
        state.latency_ns = media.latency_ns;
        state.accesses.set_rate(media.iops, 1);
        let per_s = part(media.bandwidth_bytes_per_s, count);
        state.channels.resize(count, Bucket::new(per_s, 0));
        state.channels.iter_mut().for_each(|c| c.set_rate(per_s, 0));
    }

    /// When bytes `off..off + len`, asked for at `now` (nanoseconds), are moved. `first`: it is an access of its own.
    fn access(&self, now: u64, off: u64, len: u64, write: bool, first: bool) -> u64 {
        let mut state = self.state.lock();
        let begin = if first { state.accesses.take(now, 1) } else { now };
        let (block, count, end) = (BLOCK as u64, state.channels.len() as u64, off + len);
        let (mut at, mut due) = (off, begin);
        while at < end {
            let next = end.min((at / block + 1) * block);
            let channel = &mut state.channels[(at / block % count) as usize];
            due = due.max(channel.take(begin, next - at));
            at = next;
        }
        due += state.latency_ns;
        if write {
            state.written = state.written.max(due);
        }
        due
    }

    fn written(&self) -> u64 {
        self.state.lock().written
    }
}

/// A medium with the modelled one's times.
struct ModelledMedium {
    inner: Arc<dyn Medium>,
    model: Arc<MediaModel>,
}

impl ModelledMedium {
    fn moved(&self, off: u64, len: usize, write: bool) {
        let asked = ASKED.get();
        let first = asked.end != off || asked.wrote != write;
        let due = self.model.access(now_ns(), off, len as u64, write, first);
        ASKED.set(Asked { end: off + len as u64, wrote: write, ..asked });
        wait(due);
    }
}

/// Until then; or notes it, on a device thread.
fn wait(due: u64) {
    let asked = ASKED.get();
    if let Some(so_far) = asked.due {
        return ASKED.set(Asked { due: Some(so_far.max(due)), ..asked });
    }
    loop {
        let left = due.saturating_sub(now_ns());
        match left {
            0 => return,
            _ if left > SLEEP_ABOVE_NS => std::thread::sleep(Duration::from_nanos(left - WAKE_EARLY_NS)),
            _ => std::thread::yield_now(),
        }
    }
}

impl Medium for ModelledMedium {
    fn info(&self) -> MediumInfo {
        self.inner.info()
    }

    fn read(&self, off: u64, buf: &mut [u8]) -> Result<(), MediumError> {
        self.inner.read(off, buf)?;
        self.moved(off, buf.len(), false);
        Ok(())
    }

    fn write(&self, off: u64, buf: &[u8]) -> Result<(), MediumError> {
        self.inner.write(off, buf)?;
        self.moved(off, buf.len(), true);
        Ok(())
    }

    fn write_batch(&self, writes: &[IoWrite<'_>]) -> Result<(), MediumError> {
        self.inner.write_batch(writes)?;
        writes.iter().for_each(|w| self.moved(w.off, w.buf.len(), true));
        Ok(())
    }

    fn hand_over(&self, off: u64, pages: &[u8]) -> Result<(), MediumError> {
        self.inner.hand_over(off, pages)?;
        self.moved(off, pages.len(), true);
        Ok(())
    }

    fn store(&self, off: u64, buf: &[u8]) -> Result<(), MediumError> {
        self.inner.store(off, buf)?;
        self.moved(off, buf.len(), true);
        Ok(())
    }

    fn persist(&self, off: u64, len: u64) -> Result<(), MediumError> {
        self.inner.persist(off, len)
    }

    fn barrier(&self) -> Result<(), MediumError> {
        self.inner.barrier()?;
        wait(self.model.written());
        Ok(())
    }

    fn ingest(&self, off: u64, src: SharedBytes<'_>, sums: &mut [u32]) -> Result<(), MediumError> {
        self.inner.ingest(off, src, sums)?;
        self.moved(off, src.len(), true);
        Ok(())
    }

    fn emit(&self, off: u64, dst: SharedBytes<'_>) -> Result<u32, MediumError> {
        let sum = self.inner.emit(off, dst)?;
        self.moved(off, dst.len(), false);
        Ok(sum)
    }

    fn is_poisoned(&self) -> bool {
        self.inner.is_poisoned()
    }

    fn poison(&self) {
        self.inner.poison();
    }

    fn let_go(&self) {
        self.inner.let_go();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weldfs_media::RamMedium;

    fn model(toml: &str) -> MediaModel {
        MediaModel::new(&Profile::parse(&format!("[media]\n{toml}")).unwrap().media)
    }

    #[test]
    fn blocks_lie_interleaved_over_the_channels() {
        // 4 GB/s over four channels: a block takes 4.096 us on its own.
        let m = model("channels = 4\nbandwidth_bytes_per_s = 4000000000\nlatency_ns = 1000");
        assert_eq!(m.access(0, 0, 4096, false, true), 5096);
        assert_eq!(m.access(0, 4096, 3 * 4096, false, true), 5096, "the three others are idle");
        assert_eq!(m.access(0, 16 << 10, 4096, false, true), 9192, "the fifth block is on the first channel");
        // From the middle of one block to the middle of the next: half each.
        assert_eq!(model("channels = 4\nbandwidth_bytes_per_s = 4000000000").access(0, 2048, 4096, true, true), 2048);
    }

    #[test]
    fn a_sequential_stream_gets_the_bandwidth_and_small_random_accesses_their_number() {
        let toml = "channels = 4\nlatency_ns = 5000\nbandwidth_bytes_per_s = 16000000000\niops = 1200000";
        let (m, piece) = (model(toml), 1 << 20);
        let end = (0..256).map(|n| m.access(0, n * piece, piece, false, true)).max().unwrap();
        let rate = (256 * piece) as f64 / (end - 5000) as f64;
        assert!((rate / 16.0 - 1.0).abs() < 0.001, "{rate} GB/s");
        let m = model(toml);
        let end = (0..120_000).map(|n| m.access(0, n * 7 * 4096, 4096, false, true)).max().unwrap();
        assert!((end as f64 / 1e8 - 1.0).abs() < 0.001, "{end} ns for a tenth of a second's accesses");
    }

    #[test]
    fn a_thread_waits_for_what_it_asked_and_a_slice_collects_it() {
        let profile = Profile::parse("[media]\nlatency_ns = 300000000").unwrap();
        let (medium, model) = on_modelled(Arc::new(RamMedium::new(1 << 20)), &profile);
        assert!(model.is_some());
        let before = now_ns();
        medium.write(0, &[7; 4096]).unwrap();
        medium.barrier().unwrap();
        assert!(now_ns() - before >= 300_000_000);
        collect();
        let (before, mut buf) = (now_ns(), [0; 4096]);
        medium.read(0, &mut buf).unwrap();
        let (after, due) = (now_ns(), collected());
        assert!(after - before < 300_000_000, "a device thread does not wait: {} ns", after - before);
        assert!((before + 300_000_000..=after + 300_000_000).contains(&due), "{due}");
        assert_eq!((buf, collected()), ([7; 4096], 0));
    }

    #[test]
    fn other_numbers_hold_from_the_next_access_on() {
        let m = model("latency_ns = 10");
        assert_eq!(m.access(0, 0, 4096, false, true), 10);
        let media = Profile::parse("[media]\nchannels = 2\nbandwidth_bytes_per_s = 2000000000").unwrap().media;
        m.set(&media);
        assert_eq!(m.access(0, 0, 8192, true, true), 4096);
        assert_eq!(m.written(), 4096);
    }
}
