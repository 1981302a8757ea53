//! Latency histograms: fixed size, one writer each (a core's thread), merged and subtracted by readers.
//!
//! A tenant has a set per core that ended commands of its, so that recording is plain additions: with shared ones it
//! would be six locked instructions a command.
//!
//! The buckets are log-linear, as in HDR histograms: each power of two is cut into 32 buckets of equal width, so a
//! value read back is within 1/64 (1.6 %) of the one recorded, from 1 ns to 2^40 ns (18 minutes); longer ones count
//! as that. A bucket holds the values above its lower bound up to and with its upper bound. Powers of two are bounds,
//! so counts "at most 2^k ns" are exact.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::de::{Error, SeqAccess};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Buckets of one power of two.
const SUB: usize = 32;
const SUB_BITS: u32 = SUB.trailing_zeros();
/// Longest value told apart, nanoseconds.
pub(crate) const LATENCY_NS_MAX: u64 = 1 << 40;
/// Buckets of a histogram: one per nanosecond below 32, then 32 for each power of two.
const BUCKETS: usize = SUB + (40 - SUB_BITS as usize) * SUB;

#[inline]
fn bucket(ns: u64) -> usize {
    let below = ns.min(LATENCY_NS_MAX).saturating_sub(1);
    if below < SUB as u64 {
        return below as usize;
    }
    let power = 63 - below.leading_zeros();
    let sub = (below >> (power - SUB_BITS)) as usize & (SUB - 1);
    (power - SUB_BITS + 1) as usize * SUB + sub
}

/// Bounds of a bucket: values above the first, up to and with the second.
fn bounds(bucket: usize) -> (u64, u64) {
    let (row, sub) = (bucket / SUB, (bucket % SUB) as u64);
    if row == 0 {
        return (sub, sub + 1);
    }
    let shift = row as u32 - 1;
    ((SUB as u64 + sub) << shift, (SUB as u64 + sub + 1) << shift)
}

/// A histogram of nanoseconds, 9 KiB. One thread records, any number read meanwhile; a reader may see a value in the
/// sum that is not yet in its bucket.
pub struct Histogram {
    buckets: Box<[AtomicU64; BUCKETS]>,
    sum: AtomicU64,
    max: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        let buckets: Box<[AtomicU64]> = (0..BUCKETS).map(|_| AtomicU64::new(0)).collect();
        let buckets = buckets.try_into().expect("made with this length");
        Histogram { buckets, sum: AtomicU64::new(0), max: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Counts one value; never from two threads at once.
    #[inline]
    pub fn record(&self, ns: u64) {
        self.record_in(bucket(ns), ns);
    }

    /// The same of a value whose bucket is known.
    #[inline]
    fn record_in(&self, bucket: usize, ns: u64) {
        let add = |to: &AtomicU64, n: u64| to.store(to.load(Relaxed).wrapping_add(n), Relaxed);
        add(&self.buckets[bucket], 1);
        add(&self.sum, ns);
        if ns > self.max.load(Relaxed) {
            self.max.store(ns, Relaxed);
        }
    }

    /// What has been counted so far.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            buckets: self.buckets.iter().map(|b| b.load(Relaxed)).collect(),
            sum_ns: self.sum.load(Relaxed),
            max_ns: self.max.load(Relaxed),
        }
    }
}

/// A histogram read out: plain numbers, to merge, to subtract, to ask. Its JSON has `count`, `sum_ns`, `mean_ns`,
/// `max_ns`, `p50_ns`, `p90_ns`, `p99_ns`, `p999_ns`, and `buckets`: pairs of (upper bound in nanoseconds, count) of
/// the buckets that are not empty. From the pairs, `sum_ns` and `max_ns` it is read back as it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    buckets: Vec<u64>,
    sum_ns: u64,
    max_ns: u64,
}

impl Default for Snapshot {
    fn default() -> Self {
        Snapshot { buckets: vec![0; BUCKETS], sum_ns: 0, max_ns: 0 }
    }
}

impl Snapshot {
    /// Values counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Sum of the values, nanoseconds, exact.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// Mean in nanoseconds, 0 without values.
    pub fn mean_ns(&self) -> u64 {
        self.sum_ns.checked_div(self.count()).unwrap_or(0)
    }

    /// The value that the fraction `q` (0 to 1) of all values does not exceed: the smallest with rank at least
    /// `q * count`, read with an error of at most 1/64. 0 without values.
    pub fn percentile(&self, q: f64) -> u64 {
        let count = self.count();
        if count == 0 {
            return 0;
        }
        let rank = ((q.clamp(0.0, 1.0) * count as f64).ceil() as u64).clamp(1, count);
        let mut seen = 0;
        for (at, n) in self.buckets.iter().enumerate() {
            seen += n;
            if seen >= rank {
                let (low, high) = bounds(at);
                return (low + (high - low).div_ceil(2)).min(self.max_ns.max(1));
            }
        }
        self.max_ns
    }

    /// Values of at most `ns` nanoseconds: exact where `ns` is a power of two or at most 32, else as if all values of a
    /// bucket were its upper bound.
    pub fn at_most(&self, ns: u64) -> u64 {
        self.buckets.iter().enumerate().take_while(|(at, _)| bounds(*at).1 <= ns).map(|(_, n)| n).sum()
    }

    /// Adds another histogram's values.
    pub fn merge(&mut self, other: &Snapshot) {
        for (sum, n) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += n;
        }
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// What was counted after an earlier snapshot of the same histogram.
    pub fn since(&self, earlier: &Snapshot) -> Snapshot {
        let buckets: Vec<u64> =
            self.buckets.iter().zip(&earlier.buckets).map(|(now, then)| now.saturating_sub(*then)).collect();
        let top = buckets.iter().rposition(|n| *n > 0);
        let max_ns = match top {
            Some(at) if at + 1 < BUCKETS => bounds(at).1.min(self.max_ns),
            Some(_) => self.max_ns,
            None => 0,
        };
        Snapshot { buckets, sum_ns: self.sum_ns.wrapping_sub(earlier.sum_ns), max_ns }
    }

    /// Buckets that are not empty: upper bound in nanoseconds and count, in order.
    pub fn filled(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.buckets.iter().enumerate().filter(|(_, n)| **n > 0).map(|(at, n)| (bounds(at).1, *n))
    }
}

impl Serialize for Snapshot {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut out = s.serialize_struct("Snapshot", 9)?;
        out.serialize_field("count", &self.count())?;
        out.serialize_field("sum_ns", &self.sum_ns)?;
        out.serialize_field("mean_ns", &self.mean_ns())?;
        out.serialize_field("max_ns", &self.max_ns)?;
        out.serialize_field("p50_ns", &self.percentile(0.5))?;
        out.serialize_field("p90_ns", &self.percentile(0.9))?;
        out.serialize_field("p99_ns", &self.percentile(0.99))?;
        out.serialize_field("p999_ns", &self.percentile(0.999))?;
        out.serialize_field("buckets", &self.filled().collect::<Vec<_>>())?;
        out.end()
    }
}

impl<'de> Deserialize<'de> for Snapshot {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Snapshot, D::Error> {
        #[derive(Deserialize)]
        struct Wire {
            sum_ns: u64,
            max_ns: u64,
            #[serde(deserialize_with = "pairs")]
            buckets: Vec<u64>,
        }
        let Wire { sum_ns, max_ns, buckets } = Wire::deserialize(d)?;
        Ok(Snapshot { buckets, sum_ns, max_ns })
    }
}

fn pairs<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u64>, D::Error> {
    struct Visit;
    impl<'de> serde::de::Visitor<'de> for Visit {
        type Value = Vec<u64>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("pairs of a bucket's upper bound and its count")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<u64>, A::Error> {
            let mut buckets = vec![0; BUCKETS];
            while let Some((bound, n)) = seq.next_element::<(u64, u64)>()? {
                let at = bucket(bound);
                if bounds(at).1 != bound {
                    return Err(A::Error::custom(format!("{bound} is no bucket's bound")));
                }
                buckets[at] += n;
            }
            Ok(buckets)
        }
    }
    d.deserialize_seq(Visit)
}

/// The three latencies of one tenant's commands on one core, 27 KiB. One thread records.
#[derive(Default)]
pub struct Latency {
    queue: Histogram,
    service: Histogram,
    total: Histogram,
}

impl Latency {
    /// Counts one completed command: nanoseconds from its entry being seen in the ring to its first slice, and from
    /// there to its completion.
    #[inline]
    pub fn record(&self, queue_ns: u64, service_ns: u64) {
        let at = bucket(service_ns);
        self.service.record_in(at, service_ns);
        if queue_ns == 0 {
            // It began where it was seen.
            self.queue.record_in(0, 0);
            return self.total.record_in(at, service_ns);
        }
        self.queue.record(queue_ns);
        self.total.record(queue_ns.saturating_add(service_ns));
    }

    /// What has been counted so far.
    pub fn snapshot(&self) -> LatencySnapshot {
        LatencySnapshot { queue: self.queue.snapshot(), service: self.service.snapshot(), total: self.total.snapshot() }
    }
}

/// The latencies of one tenant's commands. Each core records its own; thread-safe. A core takes no memory before it has
/// ended a command of the tenant.
pub struct Latencies(Box<[OnceLock<Latency>]>);

impl Latencies {
    /// For a device of so many cores.
    pub fn new(cores: usize) -> Latencies {
        Latencies((0..cores).map(|_| OnceLock::new()).collect())
    }

    /// Counts a command that ended on `core`; only from that core's thread.
    #[inline]
    pub fn record(&self, core: usize, queue_ns: u64, service_ns: u64) {
        self.0[core].get_or_init(Latency::default).record(queue_ns, service_ns);
    }

    /// What all cores have counted so far.
    pub fn snapshot(&self) -> LatencySnapshot {
        let mut sum = LatencySnapshot::default();
        self.0.iter().filter_map(OnceLock::get).for_each(|one| sum.merge(&one.snapshot()));
        sum
    }
}

/// [`Latencies`] read out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LatencySnapshot {
    /// Entry seen in the ring to first slice.
    pub queue: Snapshot,
    /// First slice to completion written.
    pub service: Snapshot,
    /// Both.
    pub total: Snapshot,
}

impl LatencySnapshot {
    /// Adds another one's values.
    pub fn merge(&mut self, other: &LatencySnapshot) {
        self.queue.merge(&other.queue);
        self.service.merge(&other.service);
        self.total.merge(&other.total);
    }

    /// What was counted after an earlier snapshot of the same histograms.
    pub fn since(&self, earlier: &LatencySnapshot) -> LatencySnapshot {
        LatencySnapshot {
            queue: self.queue.since(&earlier.queue),
            service: self.service.since(&earlier.service),
            total: self.total.since(&earlier.total),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Snapshot {
        let h = Histogram::default();
        values.iter().for_each(|v| h.record(*v));
        h.snapshot()
    }

    #[test]
    fn every_value_lies_within_the_bounds_of_its_bucket_and_buckets_join() {
        for at in 0..BUCKETS {
            let (low, high) = bounds(at);
            assert_eq!((bucket(low + 1), bucket(high)), (at, at));
            assert!(at == 0 || bounds(at - 1).1 == low, "no gap before bucket {at}");
            assert!((high - low) * 32 <= low.max(32), "bucket {at} is at most 1/32 of its values wide");
        }
        assert_eq!(bounds(BUCKETS - 1).1, LATENCY_NS_MAX);
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn counts_up_to_a_power_of_two_are_exact() {
        let s = of(&[0, 1, 1023, 1024, 1025, 4096, 1 << 50]);
        assert_eq!([s.at_most(1), s.at_most(1024), s.at_most(4096), s.at_most(1 << 40)], [2, 4, 6, 7]);
        assert_eq!((s.count(), s.max_ns), (7, 1 << 50));
    }

    #[test]
    fn an_empty_histogram_answers_zero() {
        let s = Snapshot::default();
        assert_eq!((s.count(), s.percentile(0.5), s.mean_ns(), s.max_ns), (0, 0, 0, 0));
    }

    #[test]
    fn several_cores_lose_nothing() {
        let all = Latencies::new(4);
        std::thread::scope(|scope| {
            for t in 0..4u64 {
                let all = &all;
                scope.spawn(move || (0..20_000).for_each(|i| all.record(t as usize, 1, i * 7 + t)));
            }
        });
        let s = all.snapshot().service;
        assert_eq!(s.count(), 80_000);
        assert_eq!(s.sum_ns(), 4 * 7 * (0..20_000u64).sum::<u64>() + 20_000 * 6);
        assert_eq!(s.max_ns, 19_999 * 7 + 3);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn percentiles_are_within_one_in_64_of_the_exact_ones(
            mut values in prop::collection::vec((0u32..41, any::<u64>()).prop_map(|(p, v)| v & ((1 << p) - 1)), 1..300),
            q in 0.0f64..=1.0,
        ) {
            let s = of(&values);
            values.sort_unstable();
            for q in [q, 0.5, 0.9, 0.99, 0.999, 1.0] {
                let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
                let (exact, got) = (values[rank - 1], s.percentile(q));
                prop_assert!(got.abs_diff(exact.max(1)) * 64 <= exact.max(1), "{got} for {exact} at {q}");
            }
            prop_assert_eq!(s.max_ns, values[values.len() - 1]);
        }

        #[test]
        fn merging_and_subtracting_are_counting_together_and_apart(
            a in prop::collection::vec(0u64..1 << 41, 0..60),
            b in prop::collection::vec(0u64..1 << 41, 0..60),
        ) {
            let (first, second) = (of(&a), of(&b));
            let both = of(&[a, b.clone()].concat());
            let mut merged = first.clone();
            merged.merge(&second);
            prop_assert_eq!(&merged, &both);
            let later = both.since(&first);
            prop_assert_eq!(&later.buckets, &second.buckets);
            prop_assert_eq!(later.sum_ns, second.sum_ns);
            let exact = b.iter().copied().max().unwrap_or(0);
            prop_assert!(later.max_ns >= exact.min(LATENCY_NS_MAX), "never understated");
        }

        #[test]
        fn json_brings_back_the_same_histogram(values in prop::collection::vec(0u64..1 << 41, 0..60)) {
            let s = of(&values);
            let text = serde_json::to_string(&s).unwrap();
            prop_assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), s);
        }
    }

    #[test]
    fn json_with_an_invented_bound_is_refused() {
        assert!(serde_json::from_str::<Snapshot>(r#"{"sum_ns":1,"max_ns":1,"buckets":[[65,1]]}"#).is_err());
        assert!(serde_json::from_str::<Snapshot>(r#"{"sum_ns":1,"max_ns":1,"buckets":[[66,1]]}"#).is_ok());
    }
}
