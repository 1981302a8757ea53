//! Recording slices: what ran on which device core, from when to when; and what went on in the slots of its card,
//! which records that itself (`weldfs_fpga::record`).
//!
//! Off, a slice costs one relaxed load. On, the core that ended the slice appends 64 bytes to its own buffer, whose
//! room was taken at the start; when that is full, further slices are counted and dropped. One recording at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use weldfs_ciscops::Errno;
pub use weldfs_ciscops::trace::{Slice, SlotSpan, TRACE_EVENTS_MAX, slice_end, slice_flag};
use weldfs_fpga::card::Card;
use weldfs_fpga::record::SlotFacts;
use weldfs_locks::Mutex;

use weldfs_session::clock::now_ns;
pub use weldfs_session::stats::DeviceFacts;

/// One device core's part of a recording, as the facts of a recording tell it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CoreTrace {
    /// Slices that began and ended during the recording, dropped ones included.
    pub slices: u64,
    /// The time they took, nanoseconds.
    pub busy_ns: u64,
    /// The device time charged for them, nanoseconds.
    pub cost_ns: u64,
    /// Slices for which there was no room.
    pub dropped: u64,
}

/// One FPGA slot's part of a recording, as the facts of a recording tell it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SlotTrace {
    /// Sessions that began and ended during the recording, dropped ones included.
    pub sessions: u64,
    /// The slot time that they used (modelled), nanoseconds.
    pub slot_ns: u64,
    /// Spans for which there was no room.
    pub dropped: u64,
}

impl From<SlotFacts> for SlotTrace {
    fn from(of: SlotFacts) -> SlotTrace {
        SlotTrace { sessions: of.sessions, slot_ns: of.slot_ns, dropped: of.dropped }
    }
}

#[derive(Default)]
struct Buffer {
    /// Slices that began earlier belong to no recording.
    since_ns: u64,
    events: Vec<Slice>,
    facts: CoreTrace,
}

struct Running {
    session: u64,
    start_ns: u64,
}

/// What a recording holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recording {
    /// Begin, nanoseconds of the device's clock.
    pub start_ns: u64,
    /// End, nanoseconds of the device's clock.
    pub end_ns: u64,
    /// By device core.
    pub cores: Vec<CoreTrace>,
    /// All slices, by core, and of a core in the order of time.
    pub slices: Vec<Slice>,
    /// By slot, slot 0 first.
    pub slots: Vec<SlotTrace>,
    /// Spans of slots, in the order of their ends.
    pub spans: Vec<SlotSpan>,
    /// Names of kernels that spans count.
    pub kernels: Vec<String>,
}

/// What a recording says beside its slices; travels as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TraceFacts {
    /// Begin, nanoseconds of the device's clock.
    pub start_ns: u64,
    /// End, nanoseconds of the device's clock.
    pub end_ns: u64,
    /// What kind of device it is.
    pub device: DeviceFacts,
    /// By device core.
    pub cores: Vec<CoreTrace>,
    /// By slot of the card, slot 0 first.
    pub slots: Vec<SlotTrace>,
    /// Names of kernels that spans of slots count.
    pub kernels: Vec<String>,
    /// Names of tenants.
    pub tenants: BTreeMap<u32, String>,
}

impl TraceFacts {
    /// As JSON text.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain structures with text keys can be written as JSON")
    }
}

/// The recorder of one device. Thread-safe.
pub struct Trace {
    card: Arc<Card>,
    on: AtomicBool,
    running: Mutex<Option<Running>>,
    cores: Box<[Mutex<Buffer>]>,
}

impl Trace {
    /// For a device of so many cores, with that card; off.
    pub fn new(cores: usize, card: Arc<Card>) -> Trace {
        Trace {
            card,
            on: AtomicBool::new(false),
            running: Mutex::new(None),
            cores: (0..cores).map(|_| Mutex::default()).collect(),
        }
    }

    /// Records a slice that has ended on this core, if a recording runs. `slice` is called only then.
    #[inline]
    pub fn slice(&self, core: usize, slice: impl FnOnce() -> Slice) {
        if self.on.load(Ordering::Relaxed) {
            self.keep(core, slice());
        }
    }

    /// Whether a recording runs.
    #[cfg(test)]
    fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    #[cold]
    fn keep(&self, core: usize, slice: Slice) {
        let Some(buffer) = self.cores.get(core) else { return };
        let mut b = buffer.lock();
        // Looked at again under the lock: after `stop` has emptied the buffer nothing may come in.
        if !self.on.load(Ordering::Relaxed) || slice.start_ns < b.since_ns {
            return;
        }
        b.facts.slices += 1;
        b.facts.busy_ns += slice.end_ns.saturating_sub(slice.start_ns);
        b.facts.cost_ns += slice.cost_ns;
        if b.events.len() < b.events.capacity() {
            b.events.push(Slice { core: core as u16, ..slice });
        } else {
            b.facts.dropped += 1;
        }
    }

    /// Starts a recording on behalf of a session, of at most `limit` slices, shared evenly by the cores, and half as
    /// many spans of slots. EBUSY while another one runs, EINVAL for a limit of 0 or above [`TRACE_EVENTS_MAX`].
    pub fn start(&self, session: u64, limit: u32) -> Result<(), Errno> {
        if limit == 0 || limit > TRACE_EVENTS_MAX {
            return Err(Errno::INVAL);
        }
        let mut running = self.running.lock();
        if running.is_some() {
            return Err(Errno::BUSY);
        }
        let room = (limit as usize).div_ceil(self.cores.len().max(1));
        let start_ns = now_ns();
        for buffer in &self.cores {
            let events = Vec::with_capacity(room);
            *buffer.lock() = Buffer { since_ns: start_ns, events, facts: CoreTrace::default() };
        }
        self.card.record((limit as usize).div_ceil(2), start_ns);
        *running = Some(Running { session, start_ns });
        self.on.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the recording that this session started and returns it. EINVAL when there is none.
    pub fn stop(&self, session: u64) -> Result<Recording, Errno> {
        let mut running = self.running.lock();
        let Some(run) = running.take_if(|r| r.session == session) else { return Err(Errno::INVAL) };
        self.on.store(false, Ordering::Relaxed);
        let of_card = self.card.recorded();
        let mut recording = Recording {
            start_ns: run.start_ns,
            end_ns: now_ns(),
            cores: Vec::new(),
            slices: Vec::new(),
            slots: of_card.slots.into_iter().map(SlotTrace::from).collect(),
            spans: of_card.spans,
            kernels: of_card.kernels,
        };
        for buffer in &self.cores {
            let Buffer { mut events, facts, .. } = std::mem::take(&mut *buffer.lock());
            recording.slices.append(&mut events);
            recording.cores.push(facts);
        }
        Ok(recording)
    }

    /// Ends the recording of a session that is gone.
    pub fn abandon(&self, session: u64) {
        // Most sessions have none.
        let _ = self.stop(session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weldfs_fpga::config::CardConfig;

    fn recorder(cores: usize) -> Trace {
        Trace::new(cores, weldfs_fs::card::make(CardConfig::default()).unwrap())
    }

    fn slice(ns: u64) -> Slice {
        let start_ns = now_ns();
        Slice { start_ns, end_ns: start_ns + ns, cost_ns: 2 * ns, ..Slice::default() }
    }

    #[test]
    fn a_recorder_that_is_off_does_not_even_make_the_slice() {
        let t = recorder(1);
        t.slice(0, || panic!("made for nothing"));
        assert_eq!(t.stop(1), Err(Errno::INVAL));
    }

    #[test]
    fn what_has_no_room_is_counted_and_dropped() {
        let t = recorder(2);
        t.start(7, 8).unwrap();
        for _ in 0..6 {
            t.slice(1, || slice(10));
        }
        t.slice(0, || slice(1));
        let r = t.stop(7).unwrap();
        assert_eq!(r.cores[0], CoreTrace { slices: 1, busy_ns: 1, cost_ns: 2, dropped: 0 });
        assert_eq!(r.cores[1], CoreTrace { slices: 6, busy_ns: 60, cost_ns: 120, dropped: 2 });
        assert_eq!(r.slices.iter().map(|s| s.core).collect::<Vec<_>>(), [0, 1, 1, 1, 1]);
        assert!(r.start_ns <= r.slices[0].start_ns && r.slices[0].start_ns <= r.end_ns);
    }

    #[test]
    fn a_slice_that_was_under_way_at_the_start_is_not_recorded() {
        let t = recorder(1);
        let early = slice(1);
        std::thread::sleep(std::time::Duration::from_millis(1));
        t.start(1, 10).unwrap();
        t.slice(0, || early);
        assert_eq!(t.stop(1).unwrap().cores, [CoreTrace::default()]);
    }

    #[test]
    fn one_recording_at_a_time_and_only_its_session_ends_it() {
        let t = recorder(1);
        assert_eq!(t.start(1, 0), Err(Errno::INVAL));
        assert_eq!(t.start(1, TRACE_EVENTS_MAX + 1), Err(Errno::INVAL));
        t.start(1, 1).unwrap();
        assert_eq!(t.start(2, 1), Err(Errno::BUSY));
        assert_eq!(t.stop(2), Err(Errno::INVAL));
        t.abandon(2);
        assert!(t.is_on());
        t.abandon(1);
        assert!(!t.is_on());
        t.slice(0, || panic!("off again"));
        t.start(2, 1).unwrap();
        assert!(t.stop(2).unwrap().slices.is_empty(), "nothing is left of the one before");
    }

    #[test]
    fn slices_of_several_cores_at_once_are_all_kept_or_counted() {
        let t = recorder(4);
        t.start(1, 4 * 1000).unwrap();
        std::thread::scope(|scope| {
            for core in 0..4 {
                let t = &t;
                scope.spawn(move || (0..1500).for_each(|_| t.slice(core, || slice(3))));
            }
        });
        let r = t.stop(1).unwrap();
        assert!(r.cores.iter().all(|c| *c == CoreTrace { slices: 1500, busy_ns: 4500, cost_ns: 9000, dropped: 500 }));
        assert_eq!(r.slices.len(), 4000);
    }
}
