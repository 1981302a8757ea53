//! What a slice costs: wall time of the core, corrected where the host took the core away, scaled to the emulated one.
//!
//! Charged is the time for which the slice held the core: while it computes, and also while it is blocked in the kernel
//! (a page fault, a write that waits), for nothing else has the core meanwhile. Not charged is the time in which the
//! thread wanted to go on and the host ran something else; the kernel counts that (`/proc/thread-self/schedstat`).
//! Where it does not say, processor time is charged alone.

use std::fs::File;
use std::os::unix::fs::FileExt;

use weldfs_session::clock::cpu_ns;

/// A slice that took longer is held against what the kernel says of its thread, nanoseconds: the host may have run
/// something else meanwhile.
pub const CORRECT_ABOVE_NS: u64 = 100_000;
/// That is noted anew after so long, nanoseconds: what it is compared with should be recent.
const NOTE_EVERY_NS: u64 = 1_000_000;

/// What the kernel says of one core's thread, as last noted.
#[derive(Debug)]
pub struct Meter {
    wall: u64,
    /// Processor time.
    cpu: u64,
    /// Time in which it could have gone on and the host ran something else.
    delay: u64,
    /// Time since then in which the thread gave the host's core away by itself.
    rested: u64,
    /// The thread's schedstat; none where the kernel keeps none.
    stat: Option<File>,
    /// Whether there is a thread whose slices these are.
    corrects: bool,
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

/// The second number of a thread's schedstat: nanoseconds on a run queue of the host, waiting.
fn run_delay(stat: &File) -> Option<u64> {
    let mut text = [0; 80];
    let n = stat.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..n]).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

impl Meter {
    /// For a core whose time is so many 1024ths of this one's, now, and its thread, which is this one.
    pub fn new(now: u64, stretch: u64) -> Meter {
        let stat = File::open("/proc/thread-self/schedstat").ok();
        let mut meter = Meter { wall: 0, cpu: 0, delay: 0, rested: 0, stat, corrects: true, stretch };
        meter.note_now(now);
        meter
    }

    /// For a core that several threads run in turn: what the kernel says of one of them says nothing of its slices,
    /// which cost the time that passed.
    pub fn of_any_thread() -> Meter {
        Meter { wall: 0, cpu: 0, delay: 0, rested: 0, stat: None, corrects: false, stretch: 1024 }
    }

    /// The emulated core is as slow as this from now on, in 1024ths.
    #[inline]
    pub fn set_stretch(&mut self, stretch: u64) {
        self.stretch = stretch;
    }

    /// Notes what the kernel says when the last note is old. Between slices, and after sleeping.
    #[inline]
    pub fn note(&mut self, now: u64) {
        if self.corrects && now.wrapping_sub(self.wall) > NOTE_EVERY_NS {
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
        let delay = self.stat.as_ref().and_then(run_delay);
        if delay.is_none() {
            self.stat = None;
        }
        (self.wall, self.cpu, self.delay, self.rested) = (now, cpu_ns(), delay.unwrap_or(0), 0);
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
        if wall <= CORRECT_ABOVE_NS || !self.corrects {
            return Measured { wall_ns: wall, host_ns: wall, device_ns: self.scale(wall), corrected: None };
        }
        self.corrected(wall, end)
    }

    /// What something else than a slice cost the host's core, from `begin` to `end`. Compared with a note that is old
    /// it would be free of whatever befell the thread since then.
    pub fn beside(&mut self, begin: u64, end: u64) -> u64 {
        if begin.saturating_sub(self.wall) > 2 * NOTE_EVERY_NS {
            self.note(end);
            return end.saturating_sub(begin);
        }
        self.slice(begin, end).host_ns
    }

    #[cold]
    fn corrected(&mut self, wall: u64, end: u64) -> Measured {
        let (since, cpu, delay, rested) = (self.wall, self.cpu, self.delay, self.rested);
        self.note_now(end);
        // Everything that was taken away since the last note, a moment ago, is taken to fall into this long slice.
        let idle = end.wrapping_sub(since).saturating_sub(rested).saturating_sub(self.cpu - cpu);
        // Of the time without a processor, what was not spent waiting for one was spent blocked: the core was held.
        let away = if self.stat.is_some() { idle.min(self.delay.saturating_sub(delay)) } else { idle };
        let away = away.min(wall);
        let host_ns = wall - away;
        Measured { wall_ns: wall, host_ns, device_ns: self.scale(host_ns), corrected: Some(away) }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use weldfs_session::clock::now_ns;

    #[test]
    fn a_short_slice_is_its_wall_time_on_the_emulated_core() {
        let mut m = Meter::new(0, 4096);
        assert_eq!(m.slice(1000, 3000), Measured { wall_ns: 2000, host_ns: 2000, device_ns: 8000, corrected: None });
    }

    pub fn compute(cpu: u64) {
        let since = cpu_ns();
        while cpu_ns() - since < cpu {
            std::hint::black_box(0);
        }
    }

    #[test]
    fn a_slice_that_blocks_in_the_kernel_is_charged_for_the_time_for_which_it_held_the_core() {
        let begin = now_ns();
        let mut m = Meter::new(begin, 2048);
        if m.stat.is_none() {
            return println!("this kernel keeps no schedstat: processor time is charged");
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        let got = m.slice(begin, now_ns());
        // However busy this machine is, the sleep itself is no waiting for a processor.
        assert!(got.host_ns >= 49_000_000 && got.device_ns == 2 * got.host_ns, "{got:?}");
        assert_eq!(got.corrected, Some(got.wall_ns - got.host_ns), "{got:?}");
    }

    #[test]
    fn without_schedstat_processor_time_is_charged() {
        let begin = now_ns();
        let mut m = Meter { stat: None, ..Meter::new(begin, 1024) };
        std::thread::sleep(std::time::Duration::from_millis(50));
        let got = m.slice(begin, now_ns());
        assert!(got.corrected.unwrap() > 40_000_000 && got.host_ns < 20_000_000, "{got:?}");
    }

    /// Does something beside three others that compute, all on one processor, for which it waits most of the time. One
    /// at a time: what a virtual machine's host takes counts for those that have the processor then.
    pub fn in_company<T: Send>(something: impl FnOnce() -> T + Send) -> T {
        static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
        let allowed = sched_getaffinity(None).unwrap();
        let one = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let pin = || {
            let mut only = CpuSet::new();
            only.set(one);
            sched_setaffinity(None, &only).unwrap();
        };
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    pin();
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let measured = s.spawn(|| {
                pin();
                std::thread::sleep(std::time::Duration::from_millis(20));
                something()
            });
            let got = measured.join();
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            got.unwrap()
        })
    }

    #[test]
    fn time_in_which_the_host_ran_something_else_is_not_charged() {
        let got = in_company(|| {
            let begin = now_ns();
            let mut m = Meter::new(begin, 1024);
            compute(40_000_000);
            m.slice(begin, now_ns())
        });
        assert!(got.wall_ns > 60_000_000, "the others did run: {got:?}");
        assert!(got.host_ns >= 39_000_000 && got.host_ns < got.wall_ns * 6 / 10, "{got:?}");
    }

    #[test]
    fn what_is_compared_with_an_old_note_is_not_corrected() {
        let (old, new) = in_company(|| {
            let mut m = Meter::new(now_ns(), 1024);
            // Others run in most of this.
            compute(10_000_000);
            let begin = now_ns();
            let old = (m.beside(begin, begin + 500_000), m.beside(begin, begin + 500_000));
            let mut m = Meter::new(now_ns(), 1024);
            let begin = now_ns();
            compute(20_000_000);
            let end = now_ns();
            (old, (end - begin, m.beside(begin, end)))
        });
        assert_eq!(old.0, 500_000);
        assert!(new.0 > 30_000_000 && new.1 >= 19_000_000 && new.1 < new.0 * 6 / 10, "{new:?}");
    }

    #[test]
    fn rest_before_a_slice_is_not_taken_off_it() {
        let noted = now_ns();
        let mut m = Meter::new(noted, 1024);
        std::thread::sleep(std::time::Duration::from_millis(20));
        let begin = now_ns();
        m.rested(begin - noted);
        compute(1_000_000);
        let got = m.slice(begin, now_ns());
        assert!(got.host_ns >= 990_000, "{got:?}");
    }

    #[test]
    fn time_in_which_it_ran_is() {
        let begin = now_ns();
        let mut m = Meter::new(begin, 1024);
        compute(5_000_000);
        let got = m.slice(begin, now_ns());
        assert!(got.host_ns >= 4_900_000, "{got:?}");
    }
}
