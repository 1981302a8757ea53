//! Which images a power cut at one moment may leave: every subset of the units in flight while they are few, a
//! systematic and a seeded choice of subsets when they are many.
//!
//! A unit is what the medium writes atomically: a 512-byte sector (block), an aligned 8-byte word (pmem) of log
//! headers, superblock copies and other small stores. What a checksum covers as a whole (data blocks, tree pages,
//! payloads of log records) is one unit per contiguous store: not there, all there, or torn as a seed decides. Units
//! that would store what is there already are none.

use super::Rng;
use std::ops::Range;
use weldfs_media::{CowImage, CrashModel, Replayer};
use weldfs_store::geometry::Geometry;
use weldfs_store::limits::BLOCK;

/// Bytes and where they go.
type Pieces<'a> = Vec<(u64, &'a [u8])>;

/// Up to this many units every subset is built.
const SUBSETS_UNITS_MAX: usize = 8;
/// Up to this many units every pair is left out once.
const PAIRS_UNITS_MAX: usize = 64;
/// Up to this many combinations, tears included, all of them are built.
const PRODUCT_MAX: u64 = 512;
/// Seeded tears of each bulk unit.
const TEARS: u32 = 2;
/// Seeded subsets when not all are built.
const RANDOM_SUBSETS: u32 = 48;
/// Stores below this are pointers or headers: every word of them counts, bytes.
const SMALL_STORE: u64 = 512;
/// What of a record is its header, bytes.
const HEADER: u64 = 64;
/// Log writes of block media up to this length are told apart by sector, bytes.
const LOG_WRITE_SMALL: u64 = 8 * 512;

/// Where on the medium single units matter.
#[derive(Clone, Debug)]
pub struct Places {
    model: CrashModel,
    log: Range<u64>,
    superblocks: [u64; 3],
}

/// What one unit does to the medium.
#[derive(Clone)]
struct Unit<'a> {
    /// What the medium writes atomically, in order.
    pieces: Vec<(u64, &'a [u8])>,
    /// The same bytes in as few pieces as they came.
    whole: Vec<(u64, &'a [u8])>,
    /// Whether it may be torn.
    bulk: bool,
    /// Of bulk: the durable image with this unit kept, so that images share the pages that it fills.
    kept: Option<CowImage>,
}

/// What becomes of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Lost,
    Kept,
    /// By which of the seeded tears.
    Torn(u32),
}

/// How the states of one moment were chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Chosen {
    /// States there are, equal ones and those not picked included.
    pub states: u64,
    /// Whether some subsets were left out.
    pub capped: bool,
}

impl Places {
    /// Of an image with this layout.
    pub fn new(geometry: &Geometry, model: CrashModel) -> Places {
        let log = geometry.log.start..geometry.log.start + geometry.log.len;
        Places { model, log, superblocks: geometry.superblocks().map(|b| b.0 * BLOCK as u64) }
    }

    fn unit(&self) -> u64 {
        match self.model {
            CrashModel::Block => 512,
            CrashModel::Pmem => 8,
        }
    }

    fn in_superblock(&self, off: u64) -> bool {
        self.superblocks.iter().any(|s| (*s..*s + BLOCK as u64).contains(&off))
    }

    /// Splits what one event still has in flight into units.
    fn split<'a>(&self, pieces: &[(u64, &'a [u8])], units: &mut Vec<Unit<'a>>) {
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return };
        let (from, to) = (first.0, last.0 + last.1.len() as u64);
        let in_log = self.log.contains(&from);
        let single: Box<dyn Fn(u64) -> bool> = match self.model {
            _ if self.in_superblock(from) => Box::new(|_| true),
            CrashModel::Block if in_log && to - from <= LOG_WRITE_SMALL => Box::new(|_| true),
            // Of a long write the first and the last sector: the rest is payload for the most part.
            CrashModel::Block if in_log => Box::new(move |off| off < from + 512 || off >= to - 512),
            CrashModel::Pmem if in_log => Box::new(move |off| off < from + HEADER),
            _ if to - from < SMALL_STORE => Box::new(|_| true),
            _ => Box::new(|_| false),
        };
        let mut bulk: Vec<(u64, &'a [u8])> = Vec::new();
        for (off, bytes) in pieces.iter().flat_map(|p| self.atoms(*p)) {
            match single(off) {
                true => {
                    units.push(Unit { pieces: vec![(off, bytes)], whole: vec![(off, bytes)], bulk: false, kept: None })
                }
                false => bulk.push((off, bytes)),
            }
        }
        if !bulk.is_empty() {
            let from = bulk[0].0;
            let behind = |(off, bytes): &(u64, &'a [u8])| {
                let skip = from.saturating_sub(*off) as usize;
                (skip < bytes.len()).then(|| (off + skip as u64, &bytes[skip..]))
            };
            // Single sectors at the end of a long log write are units of their own.
            let cut = bulk.iter().map(|(_, b)| b.len()).sum::<usize>() as u64 + from < to;
            let whole = if cut { bulk.clone() } else { pieces.iter().filter_map(behind).collect() };
            units.push(Unit { pieces: bulk, whole, bulk: true, kept: None });
        }
    }

    /// Cuts a piece at the medium's units.
    fn atoms<'a>(&self, (off, bytes): (u64, &'a [u8])) -> impl Iterator<Item = (u64, &'a [u8])> + 'a {
        let size = self.unit();
        let first = (size - off % size).min(bytes.len() as u64) as usize;
        let (head, rest) = bytes.split_at(first);
        let start = off + first as u64;
        let rest = rest.chunks(size as usize).enumerate().map(move |(i, c)| (start + i as u64 * size, c));
        std::iter::once((off, head)).chain(rest)
    }

    /// The units in flight at the replayer's position that make a difference.
    fn units<'a>(&self, at: &Replayer<'a>) -> Vec<Unit<'a>> {
        let mut events: Vec<(u64, Pieces<'a>)> = Vec::new();
        for p in at.in_flight() {
            match events.last_mut() {
                Some((event, pieces)) if *event == p.event => pieces.push((p.off, p.bytes)),
                _ => events.push((p.event, vec![(p.off, p.bytes)])),
            }
        }
        let spans: Vec<(u64, u64)> = events.iter().map(|(_, pieces)| span(pieces)).collect();
        let durable = at.durable();
        let mut units = Vec::new();
        for (i, (_, pieces)) in events.iter().enumerate() {
            let mut of = Vec::new();
            self.split(pieces, &mut of);
            // Nothing of this event lies over anything else in flight: what it does not change can be left out.
            let others = || spans.iter().enumerate().filter(|(j, _)| *j != i);
            let alone = |u: &Unit<'_>| others().all(|(_, s)| s.0 >= u.span().1 || u.span().0 >= s.1);
            of.retain(|u| !u.whole.iter().all(|(off, bytes)| durable.holds(*off, bytes)) || !alone(u));
            of.iter_mut().for_each(|u| u.prepare(durable));
            units.append(&mut of);
        }
        units
    }
}

/// From the first byte of some pieces to behind the last.
fn span(pieces: &[(u64, &[u8])]) -> (u64, u64) {
    let end = pieces.last().map_or(0, |(off, bytes)| off + bytes.len() as u64);
    (pieces.first().map_or(0, |p| p.0), end)
}

impl Unit<'_> {
    fn span(&self) -> (u64, u64) {
        span(&self.pieces)
    }

    fn prepare(&mut self, durable: &CowImage) {
        if self.bulk {
            let mut kept = durable.clone();
            self.whole.iter().for_each(|(off, bytes)| kept.write(*off, bytes));
            self.kept = Some(kept);
        }
    }

    fn variants(&self) -> u64 {
        if self.bulk && self.pieces.len() > 1 { 2 + u64::from(TEARS) } else { 2 }
    }

    fn apply(&self, fate: Fate, seed: u64, image: &mut CowImage) {
        let tear = match fate {
            Fate::Lost => return,
            Fate::Kept => {
                return self.whole.iter().for_each(|(off, bytes)| match &self.kept {
                    Some(kept) => image.share(kept, *off, bytes.len() as u64),
                    None => image.write(*off, bytes),
                });
            }
            Fate::Torn(n) => n,
        };
        let mut rng = Rng::new(seed ^ self.span().0.wrapping_mul(0x9E37_79B9) ^ u64::from(tear) << 56);
        // One tear is a clean cut, the next one leaves any units.
        let stop = 1 + rng.below(self.pieces.len() as u64 - 1) as usize;
        for (i, (off, bytes)) in self.pieces.iter().enumerate() {
            if if tear % 2 == 0 { i < stop } else { rng.below(2) == 0 } {
                image.write(*off, bytes);
            }
        }
    }
}

/// Builds crash states of one moment.
struct Builder<'a, 'v> {
    durable: &'a CowImage,
    units: &'a [Unit<'a>],
    seed: u64,
    built: u64,
    pick: &'v dyn Fn(u64) -> bool,
    visit: &'v mut dyn FnMut(u64, CowImage),
}

impl Builder<'_, '_> {
    fn emit(&mut self, fate: &dyn Fn(usize) -> Fate) {
        self.built += 1;
        if !(self.pick)(self.built - 1) {
            return;
        }
        let mut image = self.durable.clone();
        for (i, unit) in self.units.iter().enumerate() {
            unit.apply(fate(i), self.seed, &mut image);
        }
        (self.visit)(self.built - 1, image);
    }

    fn kept(&mut self, keep: &dyn Fn(usize) -> bool) {
        self.emit(&|i| if keep(i) { Fate::Kept } else { Fate::Lost });
    }

    /// Every combination of every unit's variants.
    fn product(&mut self) {
        let all: u64 = self.units.iter().map(Unit::variants).product();
        let units = self.units;
        for number in 0..all {
            self.emit(&|i| {
                let below: u64 = units[..i].iter().map(Unit::variants).product();
                match number / below % units[i].variants() {
                    0 => Fate::Lost,
                    1 => Fate::Kept,
                    n => Fate::Torn(n as u32 - 2),
                }
            });
        }
    }

    fn subsets(&mut self) {
        for set in 0..1u64 << self.units.len() {
            self.kept(&|i| set >> i & 1 == 1);
        }
    }

    /// What is new at a moment that more writes follow before a barrier: the moment before that one has it all.
    fn passing(&mut self) {
        let n = self.units.len();
        for k in 0..n {
            self.kept(&|i| i != k);
        }
        self.kept(&|_| true);
        self.random(RANDOM_SUBSETS / 8);
    }

    fn random(&mut self, count: u32) {
        let n = self.units.len();
        let mut rng = Rng::new(self.seed ^ 0x5EED);
        for _ in 0..count {
            let odds = [1, 4, 8, 12, 15][rng.below(5) as usize];
            let keep: Vec<bool> = (0..n).map(|_| rng.below(16) < odds).collect();
            self.kept(&|i| keep[i]);
        }
    }

    /// Prefixes, one missing, one alone, two missing, random.
    fn systematic(&mut self) {
        let n = self.units.len();
        for k in 0..=n {
            self.kept(&|i| i < k);
        }
        for k in 0..n {
            self.kept(&|i| i != k);
            self.kept(&|i| i == k);
        }
        if n <= PAIRS_UNITS_MAX {
            for a in 0..n {
                for b in a + 1..n {
                    self.kept(&|i| i != a && i != b);
                }
            }
        }
        self.random(RANDOM_SUBSETS);
    }

    /// Each tear of each bulk unit while the others are all there, all lost, or there up to it.
    fn tears(&mut self) {
        for k in (0..self.units.len()).filter(|k| self.units[*k].variants() > 2) {
            for tear in 0..TEARS {
                for others in 0..3 {
                    self.emit(&|i| match (i == k, others) {
                        (true, _) => Fate::Torn(tear),
                        (false, 0) => Fate::Kept,
                        (false, 1) => Fate::Lost,
                        (false, _) if i < k => Fate::Kept,
                        (false, _) => Fate::Lost,
                    });
                }
            }
        }
    }
}

/// Visits the crash states at the replayer's position, each with its number there: those that `pick` wants. The same
/// seed gives the same states in the same order.
pub fn states(
    at: &Replayer<'_>,
    places: &Places,
    seed: u64,
    pick: &dyn Fn(u64) -> bool,
    visit: &mut dyn FnMut(u64, CowImage),
) -> Chosen {
    let units = places.units(at);
    let seed = seed ^ at.position().wrapping_mul(0xD6E8_FEB8_6659_FD93);
    let mut builder = Builder { durable: at.durable(), units: &units, seed, built: 0, pick, visit };
    let few = units.len() <= SUBSETS_UNITS_MAX;
    let all = few && units.iter().map(Unit::variants).product::<u64>() <= PRODUCT_MAX;
    match (all, few) {
        (true, _) => builder.product(),
        (false, true) => {
            builder.subsets();
            builder.tears();
        }
        (false, false) if !at.settles_next() => builder.passing(),
        (false, false) => {
            builder.systematic();
            builder.tears();
        }
    }
    Chosen { states: builder.built, capped: !few }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use weldfs_journal::Medium;
    use weldfs_media::{Recording, RecordingMedium};
    use weldfs_store::geometry::GeometryOptions;

    const LEN: u64 = 3 << 20;

    fn places(model: CrashModel) -> Places {
        let log_align = if model == CrashModel::Block { 512 } else { 64 };
        let options = GeometryOptions { log_align, ..GeometryOptions::default() };
        Places::new(&Geometry::plan(LEN, &options).expect("the smallest layout"), model)
    }

    fn record(model: CrashModel, act: &dyn Fn(&RecordingMedium, &Places)) -> Recording {
        let m = RecordingMedium::new(LEN, model);
        act(&m, &places(model));
        m.take_recording()
    }

    fn all(recording: &Recording, model: CrashModel) -> (HashSet<u128>, Chosen) {
        let mut at = Replayer::new(recording, 0);
        at.goto(recording.len());
        let mut seen = HashSet::new();
        let chosen = states(&at, &places(model), 1, &|_| true, &mut |_, image| {
            seen.insert(image.digest());
        });
        (seen, chosen)
    }

    #[test]
    fn few_sectors_give_every_subset_and_sectors_that_change_nothing_none() {
        let recording = record(CrashModel::Block, &|m, p| {
            m.write(p.log.start, &[[1; 512], [0; 512], [2; 512], [3; 512]].concat()).expect("writes");
        });
        let (seen, chosen) = all(&recording, CrashModel::Block);
        assert_eq!((seen.len(), chosen), (8, Chosen { states: 8, capped: false }));
    }

    #[test]
    fn a_data_block_is_one_unit_that_may_be_torn() {
        for model in [CrashModel::Block, CrashModel::Pmem] {
            let recording = record(model, &|m, p| m.write(p.log.end, &[7; 4096]).expect("writes"));
            let (seen, chosen) = all(&recording, model);
            assert_eq!((seen.len(), chosen.states), (4, 4), "lost, kept, two tears");
        }
    }

    #[test]
    fn a_record_on_pmem_is_its_header_words_and_its_payload() {
        let recording = record(CrashModel::Pmem, &|m, p| {
            m.store(p.log.start, &[[5; 64], [6; 64]].concat()).expect("stores");
        });
        let (seen, chosen) = all(&recording, CrashModel::Pmem);
        assert!(chosen.capped, "nine units");
        assert!(seen.len() > 80, "{}", seen.len());
    }

    #[test]
    fn many_units_give_prefixes_gaps_pairs_and_random_ones_the_same_each_time() {
        let recording = record(CrashModel::Block, &|m, p| {
            for i in 0..20 {
                m.write(p.log.start + i * 8192, &[9; 512]).expect("writes");
            }
        });
        let (seen, chosen) = all(&recording, CrashModel::Block);
        assert!(chosen.capped);
        assert!(seen.len() >= 21 + 20 + 190, "{}", seen.len());
        assert_eq!(all(&recording, CrashModel::Block).0, seen);
    }

    #[test]
    fn overwrites_in_flight_may_persist_without_what_came_before() {
        let recording = record(CrashModel::Block, &|m, p| {
            m.write(p.log.start, &[1; 512]).expect("writes");
            m.write(p.log.start, &[0; 512]).expect("writes");
        });
        let (seen, _) = all(&recording, CrashModel::Block);
        assert_eq!(seen.len(), 2, "as before, or as the first write left it");
    }
}
