//! A token bucket, and a delay: what bandwidth and latency are made of.

/// Fraction bits of its clock: a rate of a terabyte per second is exact to a part in a million.
const FRACTION: u32 = 32;

/// A token bucket, kept as the moment at which it is full again: one number, whatever the traffic looked like before.
/// (The generic cell rate algorithm in its virtual-scheduling form, ITU-T I.371.) What arrives in bursts and what
/// arrives evenly is let through at the same rate, because nothing is reset when the input pauses.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// Nanoseconds that one token takes to come back; 0: there is no limit.
    per_token: u64,
    /// Tokens that it holds when it is full, as the time they take to come back.
    depth: u128,
    full_at: u128,
}

impl Bucket {
    /// `per_s` tokens per second, 0 = unlimited; `depth` of them pass at once after a pause.
    pub fn new(per_s: u64, depth: u64) -> Bucket {
        let per_token = if per_s == 0 { 0 } else { ((1_000_000_000u128 << FRACTION) / u128::from(per_s)) as u64 };
        Bucket { per_token, depth: u128::from(per_token) * u128::from(depth), full_at: 0 }
    }

    /// Another rate from now on; what has been promised stays.
    pub fn set_rate(&mut self, per_s: u64, depth: u64) {
        *self = Bucket { full_at: self.full_at, ..Bucket::new(per_s, depth) };
    }

    /// How long so many tokens take by themselves, nanoseconds.
    pub fn alone(&self, tokens: u64) -> u64 {
        ns((u128::from(self.per_token) * u128::from(tokens)).saturating_sub(self.depth))
    }

    /// Takes `tokens` at `now`, nanoseconds: when the last of them is through.
    pub fn take(&mut self, now: u64, tokens: u64) -> u64 {
        let now = u128::from(now) << FRACTION;
        self.full_at = self.full_at.max(now) + u128::from(self.per_token) * u128::from(tokens);
        ns(now.max(self.full_at.saturating_sub(self.depth)))
    }

    /// Takes `tokens` for what happens at `now`, where something that happens at `later` has taken its own already: the
    /// queue before both is taken to be the same, and is longer by these afterwards.
    pub fn take_before(&mut self, now: u64, later: u64, tokens: u64) -> u64 {
        let own = u128::from(self.per_token) * u128::from(tokens);
        self.full_at += own;
        let queue = self.full_at.saturating_sub(self.depth + (u128::from(later) << FRACTION));
        ns((u128::from(now) << FRACTION) + queue.max(own.saturating_sub(self.depth)))
    }
}

/// Rounded up: no bandwidth is won by many small pieces.
fn ns(at: u128) -> u64 {
    at.div_ceil(1 << FRACTION) as u64
}

/// A delay line: what enters leaves `ns` later, in the order in which it entered, also while `ns` is changed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delay {
    /// How long, nanoseconds.
    pub ns: u64,
    entered: u64,
    left: u64,
}

impl Delay {
    /// Of so many nanoseconds.
    pub fn new(ns: u64) -> Delay {
        Delay { ns, ..Delay::default() }
    }

    /// When what enters at `at` leaves.
    pub fn leaves(&mut self, at: u64) -> u64 {
        let mut leaves = at + self.ns;
        if at >= self.entered {
            leaves = leaves.max(self.left);
            (self.entered, self.left) = (at, leaves);
        }
        leaves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// When the last of these (moment, bytes) is through a bucket of a gigabyte per second.
    fn through(depth: u64, stream: impl Iterator<Item = (u64, u64)>) -> u64 {
        let mut bucket = Bucket::new(SECOND, depth);
        stream.map(|(at, bytes)| bucket.take(at, bytes)).last().expect("a stream")
    }

    #[test]
    fn a_bursty_and_a_smooth_stream_of_the_same_bytes_get_the_same_bandwidth() {
        // Two gigabytes per second are offered for 100 ms: evenly, and as 16 pieces at once with a pause after them.
        const PIECE: u64 = 4096;
        let pieces = SECOND / 5 / PIECE;
        let every = PIECE / 2;
        for depth in [0, 4 * PIECE] {
            let smooth = through(depth, (0..pieces).map(|n| (n * every, PIECE)));
            let bursts = through(depth, (0..pieces).map(|n| (n / 16 * 16 * every, PIECE)));
            let one = through(depth, (0..pieces).map(|_| (0, PIECE)));
            for (what, end) in [("smooth", smooth), ("bursts", bursts), ("at once", one)] {
                let ideal = (pieces * PIECE - depth) as f64;
                assert!((end as f64 / ideal - 1.0).abs() < 0.001, "{what}, depth {depth}: {end} ns, ideally {ideal}");
            }
        }
    }

    #[test]
    fn a_pause_is_worth_the_depth_and_no_more() {
        let mut bucket = Bucket::new(SECOND, 1000);
        assert_eq!(bucket.take(0, 1000), 0, "the bucket is full");
        assert_eq!(bucket.take(0, 500), 500);
        // After a long pause, again no more than the depth.
        assert_eq!(bucket.take(SECOND, 3000), SECOND + 2000);
    }

    #[test]
    fn small_pieces_add_up_to_what_they_are() {
        // 64 bytes at 25 GB/s are 2.56 ns: whole nanoseconds would be wrong by a fifth.
        let mut bucket = Bucket::new(25 * SECOND, 0);
        let end = (0..1_000_000).map(|_| bucket.take(0, 64)).last();
        assert!(end.is_some_and(|end| end.abs_diff(2_560_000) <= 10), "{end:?}");
        assert_eq!(Bucket::new(0, 0).take(7, u64::MAX), 7, "unlimited");
    }

    #[test]
    fn a_new_rate_holds_for_what_comes_and_keeps_what_was_promised() {
        let mut bucket = Bucket::new(SECOND, 0);
        assert_eq!(bucket.take(0, 1000), 1000);
        bucket.set_rate(SECOND / 2, 0);
        assert_eq!(bucket.take(0, 1000), 3000);
    }

    #[test]
    fn what_is_over_sooner_does_not_wait_for_what_is_over_later_but_its_bytes_count() {
        let mut bucket = Bucket::new(SECOND, 0);
        assert_eq!(bucket.take(10_000, 100), 10_100);
        assert_eq!(bucket.take_before(1_000, 10_000, 100), 1_200, "as long a queue as the later one met");
        assert_eq!(bucket.take(10_000, 100), 10_300);
    }

    #[test]
    fn a_delay_keeps_the_order_when_it_becomes_shorter() {
        let mut delay = Delay::new(1_000);
        assert_eq!(delay.leaves(0), 1_000);
        delay.ns = 10;
        assert_eq!(delay.leaves(5), 1_000, "not before what entered before it");
        assert_eq!(delay.leaves(2_000), 2_010);
    }
}
