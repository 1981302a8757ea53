//! What a slice costs: wall time of the core, corrected where the host took the core away, scaled to the emulated one.

use rustix::time::{ClockId, clock_gettime};

/// A slice that took longer is held against the processor time of its thread, nanoseconds: the host may have run
/// something else meanwhile.
pub const CORRECT_ABOVE_NS: u64 = 100_000;
/// The processor time is noted anew after so long, nanoseconds: what it is compared with should be recent.
const NOTE_EVERY_NS: u64 = 1_000_000;

/// The processor time of one core's thread, as last noted.
#[derive(Debug)]
pub struct Meter {
    wall: u64,
    cpu: u64,
    /// Time since then in which the thread gave the host's core away by itself.
    rested: u64,
    /// Device time per wall time, in 1024ths.
    stretch: u64,
}

/// A measured slice, nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Measured {
    /// Time that passed.
    pub wall_ns: u64,
    /// Time on the host's core.
    pub host_ns: u64,
    /// The same on the emulated core.
    pub device_ns: u64,
    /// By how much it was corrected; `None` when it was not compared.
    pub corrected: Option<u64>,
}

fn cpu_ns() -> u64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

impl Meter {
    /// For a core of this speed (in (0, 1]), now.
    pub fn new(now: u64, speed: f64) -> Meter {
        Meter { wall: now, cpu: cpu_ns(), rested: 0, stretch: (1024.0 / speed) as u64 }
    }

    /// Notes the processor time when the last note is old. Between slices, and after sleeping.
    #[inline]
    pub fn note(&mut self, now: u64) {
        if now.wrapping_sub(self.wall) > NOTE_EVERY_NS {
            self.note_now(now);
        }
    }

    /// Between slices the thread slept, or offered its core to others, for so long: no slice is to be corrected by
    /// that.
    #[inline]
    pub fn rested(&mut self, ns: u64) {
        self.rested += ns;
    }

    #[cold]
    fn note_now(&mut self, now: u64) {
        (self.wall, self.cpu, self.rested) = (now, cpu_ns(), 0);
    }

    /// Time on the emulated core.
    #[inline]
    pub fn scale(&self, host_ns: u64) -> u64 {
        (u128::from(host_ns) * u128::from(self.stretch) / 1024) as u64
    }

    /// What the slice from `begin` to `end` cost.
    #[inline]
    pub fn slice(&mut self, begin: u64, end: u64) -> Measured {
        let wall = end.wrapping_sub(begin);
        if wall <= CORRECT_ABOVE_NS {
            return Measured { wall_ns: wall, host_ns: wall, device_ns: self.scale(wall), corrected: None };
        }
        self.corrected(wall, end)
    }

    #[cold]
    fn corrected(&mut self, wall: u64, end: u64) -> Measured {
        let (since, before, rested) = (self.wall, self.cpu, self.rested);
        self.note_now(end);
        // Everything that was taken away since the last note, a moment ago, is taken to fall into this long slice.
        let away = end.wrapping_sub(since).saturating_sub(rested).saturating_sub(self.cpu - before).min(wall);
        let host_ns = wall - away;
        Measured { wall_ns: wall, host_ns, device_ns: self.scale(host_ns), corrected: Some(away) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::clock::now_ns;
    use super::*;

    #[test]
    fn a_short_slice_is_its_wall_time_on_the_emulated_core() {
        let mut m = Meter::new(0, 0.25);
        assert_eq!(m.slice(1000, 3000), Measured { wall_ns: 2000, host_ns: 2000, device_ns: 8000, corrected: None });
    }

    #[test]
    fn time_in_which_the_thread_did_not_run_is_not_charged() {
        let begin = now_ns();
        let mut m = Meter::new(begin, 1.0);
        std::thread::sleep(std::time::Duration::from_millis(50));
        let got = m.slice(begin, now_ns());
        assert!(got.corrected.unwrap() > 40_000_000, "{got:?}");
        assert!(got.host_ns < 20_000_000, "{got:?}");
    }

    #[test]
    fn rest_before_a_slice_is_not_taken_off_it() {
        let noted = now_ns();
        let mut m = Meter::new(noted, 1.0);
        std::thread::sleep(std::time::Duration::from_millis(20));
        let begin = now_ns();
        m.rested(begin - noted);
        let cpu = cpu_ns();
        while cpu_ns() - cpu < 1_000_000 {
            std::hint::black_box(0);
        }
        let got = m.slice(begin, now_ns());
        assert!(got.host_ns >= 990_000, "{got:?}");
    }

    #[test]
    fn time_in_which_it_ran_is() {
        let begin = now_ns();
        let mut m = Meter::new(begin, 1.0);
        let cpu = cpu_ns();
        while cpu_ns() - cpu < 5_000_000 {
            std::hint::black_box(0);
        }
        let got = m.slice(begin, now_ns());
        assert!(got.host_ns >= 4_900_000, "{got:?}");
    }
}
