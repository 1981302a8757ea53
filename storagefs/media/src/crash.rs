//! Crash states of a recording: the durable bytes at a position, plus any subset of what was not yet durable, torn at
//! the medium's unit.

use super::CowImage;
use super::recording::{CrashModel, Event, Recording};

/// A cache line, bytes.
const LINE: u64 = 64;
/// Stores from this size on are one choice (none, all, torn) where a seed decides, bytes.
const BULK: usize = 4096;

/// A write that need not have survived, or a part of it that persists by itself.
#[derive(Clone, Copy, Debug)]
struct Pending {
    off: u64,
    len: u32,
    at: usize,
    /// Number of the event it comes from.
    event: u64,
    /// Regular stores need a write-back by the thread that fences.
    regular: bool,
    written_back_by: u64,
}

/// One unit that may or may not have persisted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unit {
    /// Number of the event that wrote it.
    pub event: u64,
    /// Byte on the medium.
    pub off: u64,
    /// Bytes: a sector, a word, or less at the ends of an unaligned store.
    pub len: u32,
    /// Bytes of the write it belongs to.
    pub write_len: u32,
}

/// Bytes in flight: a write, or what is left of it within one cache line.
#[derive(Clone, Copy, Debug)]
pub struct InFlight<'a> {
    /// Number of the event that wrote them; those of one event stand together, in order.
    pub event: u64,
    /// Byte on the medium.
    pub off: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

#[derive(Clone)]
struct Snapshot {
    position: u64,
    image: CowImage,
    pending: Vec<Pending>,
}

/// Walks a recording and builds crash states. Going forward is cheap; going back restarts at a snapshot.
pub struct Replayer<'a> {
    recording: &'a Recording,
    now: Snapshot,
    snapshots: Vec<Snapshot>,
    snapshot_every: u64,
}

impl<'a> Replayer<'a> {
    /// At position 0; keeps a snapshot every `snapshot_every` events (0: none but the first).
    pub fn new(recording: &'a Recording, snapshot_every: u64) -> Replayer<'a> {
        let now = Snapshot { position: 0, image: recording.base.clone(), pending: Vec::new() };
        Replayer { recording, now, snapshots: Vec::new(), snapshot_every }
    }

    /// The position.
    pub fn position(&self) -> u64 {
        self.now.position
    }

    /// Moves to the state after the first `position` events.
    pub fn goto(&mut self, position: u64) {
        let position = position.min(self.recording.len());
        if position < self.now.position {
            let usable = self.snapshots.iter().rev().find(|s| s.position <= position);
            self.now = match usable {
                Some(s) => s.clone(),
                None => Snapshot { position: 0, image: self.recording.base.clone(), pending: Vec::new() },
            };
        }
        while self.now.position < position {
            self.step();
            let (at, last) = (self.now.position, self.snapshots.last().map_or(0, |s| s.position));
            if self.snapshot_every > 0 && at >= last + self.snapshot_every {
                self.snapshots.push(self.now.clone());
            }
        }
    }

    /// Moves on to the next position at which what is durable or in flight differs from what it is here; `false` at the
    /// recording's end.
    pub fn advance(&mut self) -> bool {
        while self.now.position < self.recording.len() {
            let before = self.now.pending.len();
            let in_flight = !matches!(self.recording.events[self.now.position as usize], Event::Persist { .. });
            self.step();
            if in_flight && self.now.pending.len() != before {
                return true;
            }
        }
        false
    }

    /// Whether a barrier comes before anything else is written (or nothing comes at all): the states in between, with
    /// less in flight over the same durable bytes, are all among those of here.
    pub fn settles_next(&self) -> bool {
        let rest = &self.recording.events[self.now.position as usize..];
        let next = rest.iter().find(|e| !matches!(e, Event::Persist { .. }));
        next.is_none_or(|e| matches!(e, Event::Barrier { .. }))
    }

    fn step(&mut self) {
        let number = self.now.position;
        match self.recording.events[number as usize] {
            Event::Write { off, len, at } => {
                let p = Pending { off, len, at, event: number, regular: false, written_back_by: 0 };
                self.now.pending.push(p);
            }
            Event::Store { off, len, at } => self.push_lines(number, off, len, at),
            Event::Persist { off, len, thread } => {
                let (from, to) = (off / LINE * LINE, (off + len).next_multiple_of(LINE));
                let touched = |p: &&mut Pending| p.regular && p.off < to && p.off + u64::from(p.len) > from;
                self.now.pending.iter_mut().filter(touched).for_each(|p| p.written_back_by |= 1 << thread);
            }
            Event::Barrier { thread } => self.barrier(thread),
        }
        self.now.position += 1;
    }

    /// Lines are written back one by one, so a regular store is one pending piece per line.
    fn push_lines(&mut self, event: u64, off: u64, len: u32, at: usize) {
        let end = off + u64::from(len);
        let mut from = off;
        while from < end {
            let to = (from / LINE * LINE + LINE).min(end);
            let (at, len) = (at + (from - off) as usize, (to - from) as u32);
            self.now.pending.push(Pending { off: from, len, at, event, regular: true, written_back_by: 0 });
            from = to;
        }
    }

    fn barrier(&mut self, thread: u8) {
        let pending = std::mem::take(&mut self.now.pending);
        let mut durable: Vec<bool> =
            pending.iter().map(|p| !p.regular || p.written_back_by & (1 << thread) != 0).collect();
        if durable.iter().any(|d| !d) {
            // A line holds its stores in order: what is older than a durable store to the same bytes is settled too.
            for new in (0..pending.len()).filter(|&i| durable[i]).collect::<Vec<_>>() {
                for old in 0..new {
                    durable[old] |= overlap(&pending[old], &pending[new]);
                }
            }
        }
        for (p, durable) in pending.into_iter().zip(durable) {
            if durable {
                self.now.image.write(p.off, &self.recording.arena[p.at..p.at + p.len as usize]);
            } else {
                self.now.pending.push(p);
            }
        }
    }

    /// Writes in flight that a crash here may lose.
    pub fn pending(&self) -> usize {
        self.now.pending.len()
    }

    /// What is durable.
    pub fn durable(&self) -> &CowImage {
        &self.now.image
    }

    /// What is in flight, in the order in which it was written.
    pub fn in_flight(&self) -> impl Iterator<Item = InFlight<'a>> + '_ {
        let arena = &self.recording.arena;
        let bytes = move |p: &Pending| &arena[p.at..p.at + p.len as usize];
        self.now.pending.iter().map(move |p| InFlight { event: p.event, off: p.off, bytes: bytes(p) })
    }

    /// The crash state in which exactly the units that `keep` names persisted. Units come in the order of their writes;
    /// of several to the same bytes the last one kept wins.
    pub(crate) fn state_with(&self, keep: &mut dyn FnMut(&Unit) -> bool) -> CowImage {
        let mut image = self.now.image.clone();
        let size = match self.recording.model {
            CrashModel::Block => 512,
            CrashModel::Pmem => 8,
        };
        for p in &self.now.pending {
            let (mut off, end) = (p.off, p.off + u64::from(p.len));
            while off < end {
                let to = (off / size * size + size).min(end);
                let unit = Unit { event: p.event, off, len: (to - off) as u32, write_len: p.len };
                if keep(&unit) {
                    let at = p.at + (off - p.off) as usize;
                    let bytes = &self.recording.arena[at..at + (to - off) as usize];
                    image.write(off, bytes);
                }
                off = to;
            }
        }
        image
    }

    /// As `Replayer::state_with`, as bytes.
    pub fn image_with(&self, keep: &mut dyn FnMut(&Unit) -> bool) -> Vec<u8> {
        self.state_with(keep).to_bytes()
    }

    /// As [`Replayer::state`], as bytes.
    pub fn image(&self, seed: u64) -> Vec<u8> {
        self.state(seed).to_bytes()
    }

    /// A crash state chosen by a seed: 0 keeps nothing, 1 keeps all; others keep random units, random writes whole or
    /// torn, or a prefix of the writes with the last one torn.
    pub fn state(&self, seed: u64) -> CowImage {
        let mut random = Sequence(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5DEE_CE66D);
        let (style, odds) = (random.next() % 4, [1, 4, 8, 12, 15][(random.next() % 5) as usize]);
        let events = self.now.pending.iter().map(|p| p.event);
        let (first, last) = (events.clone().min().unwrap_or(0), events.max().unwrap_or(0));
        let stop = first + random.next() % (last - first + 1);
        let (mut event, mut fate) = (u64::MAX, 0);
        self.state_with(&mut |u| {
            if u.event != event {
                (event, fate) = (u.event, random.next() % 3);
            }
            let torn = random.next() % 16 < odds;
            match (seed, style) {
                (0, _) => false,
                (1, _) => true,
                (_, 0) if (u.write_len as usize) < BULK => torn,
                (_, 3) => u.event < stop || (u.event == stop && torn),
                _ => [false, true, torn][fate as usize],
            }
        })
    }
}

fn overlap(a: &Pending, b: &Pending) -> bool {
    a.off < b.off + u64::from(b.len) && b.off < a.off + u64::from(a.len)
}

/// splitmix64.
struct Sequence(u64);

impl Sequence {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::super::RecordingMedium;
    use super::*;
    use weldfs_journal::Medium;

    #[test]
    fn block_states_are_any_subset_of_sectors_since_the_flush() {
        let m = RecordingMedium::new(16 << 10, CrashModel::Block);
        m.write(0, &[1; 1024]).expect("writes");
        m.barrier().expect("flushes");
        m.write(512, &[2; 1024]).expect("writes");
        let recording = m.recording();
        let mut at = Replayer::new(&recording, 0);
        at.goto(1);
        assert_eq!(at.image(0)[0], 0);
        at.goto(3);
        let image = at.image_with(&mut |u| u.off == 1024);
        assert_eq!((image[0], image[512], image[1024], image[1536]), (1, 1, 2, 0));
        assert_eq!((at.image(0)[512], at.image(1)[512]), (1, 2));
        at.goto(2);
        assert_eq!(at.pending(), 0);
    }

    #[test]
    fn pmem_stores_need_write_back_and_a_fence_of_the_same_thread() {
        let m = std::sync::Arc::new(RecordingMedium::new(4096, CrashModel::Pmem));
        m.store(0, &[1; 128]).expect("stores");
        m.barrier().expect("fence without write-back");
        m.persist(0, 64).expect("write-back of one line");
        let other = m.clone();
        std::thread::spawn(move || other.barrier().expect("a fence elsewhere")).join().expect("no panic");
        let early = m.position();
        m.store(0, &[3; 8]).expect("stores");
        m.barrier().expect("fence");
        let recording = m.recording();
        let mut at = Replayer::new(&recording, 2);
        at.goto(early);
        assert!(at.image(0).iter().all(|&b| b == 0));
        at.goto(recording.len());
        let image = at.image(0);
        assert_eq!((image[0], image[63], image[64]), (1, 1, 0), "the later store to the line is not covered");
        let torn = at.image_with(&mut |u| u.off == 72);
        assert_eq!((torn[64], torn[72], torn[80]), (0, 1, 0));
        at.goto(0);
        assert_eq!(at.image(1)[0], 0);
    }
}
