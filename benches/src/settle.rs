//! Between two systems: until what the last one left behind is over.
//!
//! A file system writes back, commits its journal and tears down rings after its calls have returned, on the cores that
//! the next system is measured on. So every system writes back what it left, outside of the clock, and every clock
//! starts only when nothing is under way on a block device and no thread but the caller's wants a core. A machine with
//! other work never gets there: then the clock starts after a moment, and the report counts it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long to wait for rest at most.
pub(crate) const MOST: Duration = Duration::from_millis(150);
/// Rest is so many looks in a row that find nothing, so far apart.
const LOOKS: u32 = 5;
const APART: Duration = Duration::from_millis(1);

/// Waits until the machine is at rest, or `most` is over. Whether it is.
pub(crate) fn settle(most: Duration) -> bool {
    if most.is_zero() {
        return true;
    }
    let (start, devices, mut calm) = (Instant::now(), block_devices(), 0);
    while calm < LOOKS {
        if start.elapsed() > most {
            return false;
        }
        calm = if at_work(&devices) { 0 } else { calm + 1 };
        std::thread::sleep(APART);
    }
    true
}

fn block_devices() -> Vec<PathBuf> {
    let all = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    all.map(|entry| entry.path().join("inflight")).collect()
}

/// Whether another process runs, waits for a device, or has something under way on one. What cannot be read is at rest.
fn at_work(devices: &[PathBuf]) -> bool {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let under_way = |path: &PathBuf| std::fs::read_to_string(path).is_ok_and(|text| sum(&text) > 0);
    busy(&stat) || devices.iter().any(under_way)
}

fn sum(text: &str) -> u64 {
    text.split_whitespace().filter_map(|n| n.parse::<u64>().ok()).sum()
}

/// Whether more threads than the one that looks run or wait for a device.
fn busy(stat: &str) -> bool {
    let of = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)).map_or(0, sum);
    of("procs_running ") > 1 || of("procs_blocked ") > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_is_when_nobody_else_runs_or_waits() {
        let stat = |running, blocked| format!("cpu 1 2\nprocs_running {running}\nprocs_blocked {blocked}\nsoftirq 9");
        assert!(!busy(&stat(1, 0)) && busy(&stat(2, 0)) && busy(&stat(1, 1)));
        assert_eq!((sum("       0        0\n"), sum("  2 1")), (0, 3));
    }

    #[test]
    fn waiting_for_rest_ends() {
        let start = Instant::now();
        assert!(settle(Duration::ZERO));
        settle(Duration::from_millis(20));
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}
