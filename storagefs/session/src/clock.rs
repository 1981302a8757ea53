//! Nanoseconds, cheaply: every command is measured, so reading the time must cost a few nanoseconds.
//!
//! On x86-64 with an invariant time-stamp counter it is calibrated once against the monotonic clock; elsewhere, the
//! monotonic clock itself.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

struct Scale {
    start: Instant,
    /// Counter at `start`, and nanoseconds per tick in 32.32 fixed point; `None` without a usable counter.
    counter: Option<(u64, u64)>,
}

static SCALE: OnceLock<Scale> = OnceLock::new();

#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> Option<u64> {
    use std::sync::atomic::{AtomicU8, Ordering};
    static USABLE: AtomicU8 = AtomicU8::new(0);
    let usable = match USABLE.load(Ordering::Relaxed) {
        0 => {
            let extended = std::arch::x86_64::__cpuid(0x8000_0000).eax;
            let yes = extended >= 0x8000_0007 && std::arch::x86_64::__cpuid(0x8000_0007).edx & (1 << 8) != 0;
            USABLE.store(if yes { 1 } else { 2 }, Ordering::Relaxed);
            yes
        }
        u => u == 1,
    };
    // SAFETY: every x86-64 processor has rdtsc; it only reads a counter. (A system that forbids it to user code would
    // kill the process at calibration, at start, not in the middle of work.)
    usable.then(|| unsafe { std::arch::x86_64::_rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
fn counter() -> Option<u64> {
    None
}

/// Both clocks at one moment, of several looks the one that took least: in between the thread may not have run.
fn both() -> Option<(Instant, u64)> {
    let look = |_| {
        let (before, ticks, after) = (Instant::now(), counter()?, Instant::now());
        Some((after - before, before, ticks))
    };
    let (_, at, ticks) = (0..8).filter_map(look).min()?;
    Some((at, ticks))
}

fn calibrate() -> Scale {
    let Some((start, first)) = both() else { return Scale { start: Instant::now(), counter: None } };
    std::thread::sleep(Duration::from_millis(2));
    let Some((end, last)) = both() else { return Scale { start, counter: None } };
    let (ns, ticks) = ((end - start).as_nanos(), last.wrapping_sub(first));
    if ticks == 0 {
        return Scale { start, counter: None };
    }
    Scale { start, counter: Some((first, ((ns << 32) / u128::from(ticks)) as u64)) }
}

#[inline]
fn scale() -> &'static Scale {
    SCALE.get_or_init(calibrate)
}

/// Nanoseconds since the first call in this process.
#[inline]
pub fn now_ns() -> u64 {
    let s = scale();
    match (s.counter, counter()) {
        (Some((first, per_tick)), Some(now)) => {
            ((u128::from(now.wrapping_sub(first)) * u128::from(per_tick)) >> 32) as u64
        }
        _ => s.start.elapsed().as_nanos() as u64,
    }
}

/// Nanoseconds of a processor that the calling thread has had: whatever the host ran meanwhile is not in them.
pub fn cpu_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_agrees_with_the_monotonic_clock() {
        // Whatever the host does between two looks at the clocks: the one lies between the others.
        let (outer, begin, inner) = (Instant::now(), now_ns(), Instant::now());
        std::thread::sleep(Duration::from_millis(30));
        let (least, end) = (inner.elapsed().as_nanos() as f64, now_ns());
        let (got, most) = ((end - begin) as f64, outer.elapsed().as_nanos() as f64);
        assert!(got > 0.98 * least && got < 1.02 * most, "{got} ns, from {least} to {most} ns");
    }
}
