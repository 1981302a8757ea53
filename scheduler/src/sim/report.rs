//! What a simulation says.

/// One tenant's figures over the measured time.
#[derive(Clone, PartialEq, Debug)]
pub struct SimTenant {
    /// Its name.
    pub name: String,
    /// Its weight.
    pub weight: u32,
    /// Commands that ended.
    pub ops: u64,
    /// Commands per second of virtual time.
    pub ops_per_s: f64,
    /// Device time of its slices, nanoseconds.
    pub device_ns: u64,
    /// Median time from a command's arrival to its end, nanoseconds.
    pub p50_ns: u64,
    /// 99 of 100 commands took at most this, nanoseconds.
    pub p99_ns: u64,
    /// 999 of 1000 commands took at most this, nanoseconds.
    pub p999_ns: u64,
}

/// A simulation's figures.
#[derive(Clone, PartialEq, Debug)]
pub struct SimResult {
    /// By tenant, in the order of the configuration.
    pub tenants: Vec<SimTenant>,
    /// Jain's index of device time over weight: 1 when shared exactly, 1/n when one tenant has all.
    pub jain: f64,
    /// The largest difference of (device time over weight) between any two tenants since figures were taken,
    /// nanoseconds of weight 1. Bounded when all are backlogged under a fair policy.
    pub spread_ns: u64,
    /// Device time of all tenants over the time of all cores.
    pub utilisation: f64,
    /// Picks tried.
    pub picks: u64,
    /// Times a core took work from another one.
    pub steals: u64,
    /// Commands sent and not ended when all was over: 0, or the policy lost them.
    pub unfinished: usize,
}

/// Jain's index of fairness: (sum x)^2 / (n * sum x^2); 1 for nothing at all. R. Jain, D. Chiu, W. Hawe, "A
/// Quantitative Measure of Fairness and Discrimination for Resource Allocation in Shared Computer Systems", DEC
/// TR-301, 1984.
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|x| x * x).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

/// The value that a fraction of sorted values does not exceed.
pub(super) fn percentile(sorted: &[u64], fraction: f64) -> u64 {
    let at = (sorted.len() as f64 * fraction).ceil() as usize;
    sorted.get(at.max(1) - 1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_is_one_for_equal_shares_and_one_over_n_for_a_monopoly() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), 1.0);
        assert_eq!(jain(&[0.0, 0.0, 0.0, 7.0]), 0.25);
        assert_eq!(jain(&[]), 1.0);
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let sorted: Vec<u64> = (1..=1000).collect();
        assert_eq!((percentile(&sorted, 0.5), percentile(&sorted, 0.99), percentile(&sorted, 0.999)), (500, 990, 999));
        assert_eq!(percentile(&[], 0.5), 0);
    }
}
