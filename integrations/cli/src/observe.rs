//! Looking at a device from outside: reaching it, its counters, and how numbers are shown to people.

use crate::failure::{Doing, Failure};
use crate::output;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use weldfs::Client;
use weldfs_device::DeviceStats;

/// The device's counters; `detail`: bits of `weldfs_ciscops::attach::detail`.
pub fn stats(client: &Client, place: &Path, detail: u32) -> Result<DeviceStats, Failure> {
    let text = client.stats_json_with(detail).doing("get the counters of", place)?;
    serde_json::from_str(&text)
        .map_err(|e| Failure::new(format!("{}: counters of another version of weldfs: {e}", place.display())))
}

/// How late it is noticed that a sleep is to end.
const NAP: Duration = Duration::from_millis(50);

fn left(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}

/// Sleeps until `end`, or until the flag is set; false then.
pub fn sleep_until(end: Instant, stop: &AtomicBool) -> bool {
    while !stop.load(Relaxed) {
        match left(end) {
            Duration::ZERO => return true,
            left => std::thread::sleep(left.min(NAP)),
        }
    }
    false
}

/// The same for a verb that prints after each sleep: false also when nothing reads stdout any more.
pub fn sleep_while_read(end: Instant, stop: &AtomicBool) -> bool {
    while !stop.load(Relaxed) {
        match left(end) {
            Duration::ZERO => return true,
            left if output::wait_or_reader_gone(left.min(NAP)) => return false,
            _ => {}
        }
    }
    false
}

/// Seconds for arguments: `0.5`, `10`; from a tenth up to a day.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.1..=86_400.0).contains(&s) => Ok(Duration::from_secs_f64(s)),
        _ => Err(format!("'{text}' is not a number of seconds from 0.1 to 86400")),
    }
}

/// `1234567` as `1.23ms`: three digits and a unit.
pub fn human_ns(ns: u64) -> String {
    const UNITS: [(f64, &str); 3] = [(1e3, "us"), (1e6, "ms"), (1e9, "s")];
    if ns < 1000 {
        return format!("{ns}ns");
    }
    // The largest unit in which the number, as rounded, is at least one.
    let (scale, unit) = UNITS.iter().rev().find(|(scale, _)| ns as f64 >= scale * 0.9995).unwrap_or(&UNITS[0]);
    format!("{}{unit}", three_digits(ns as f64 / scale))
}

/// `1234567` as `1.23M`, in powers of 1000.
pub fn human_count(n: f64) -> String {
    const UNITS: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match UNITS.iter().find(|(scale, _)| n >= scale * 0.9995) {
        Some((scale, unit)) => format!("{}{unit}", three_digits(n / scale)),
        None if n == n.trunc() => format!("{n}"),
        None => three_digits(n),
    }
}

fn three_digits(value: f64) -> String {
    match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        let ns = [0, 999, 1000, 1234, 12_345, 999_499, 999_999, 1_500_000, 61_000_000_000];
        let shown: Vec<String> = ns.iter().map(|n| human_ns(*n)).collect();
        assert_eq!(shown, ["0ns", "999ns", "1.00us", "1.23us", "12.3us", "999us", "1.00ms", "1.50ms", "61.0s"]);
        let counts = [0.0, 7.0, 0.25, 999.0, 999.9, 1000.0, 45_678.0, 2e9].map(human_count);
        assert_eq!(counts, ["0", "7", "0.25", "999", "1.00k", "1.00k", "45.7k", "2.00G"]);
    }

    #[test]
    fn a_sleep_ends_at_once_when_told() {
        let far = Instant::now() + Duration::from_secs(3600);
        assert!(!sleep_until(far, &AtomicBool::new(true)));
        assert!(sleep_until(Instant::now(), &AtomicBool::new(false)));
    }
}
