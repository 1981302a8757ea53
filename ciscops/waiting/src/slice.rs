//! What a thread asks of the host's scheduler: how long it runs at a time, and how much of a processor that others want
//! as well.

use std::marker::PhantomData;
use std::num::NonZeroU64;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// Nanoseconds that a thread inside of what takes long asks the host's scheduler for at a time: its deadline then is
/// behind that of any thread that wakes, which has 0.7 to 2.8 ms unasked; and those inside of long commands wait no
/// longer for each other than they need to.
const LONG_SLICE_NS: u64 = 20_000_000;

/// Nanoseconds that a thread which others wait for asks for: the least that may be had. It runs as soon as it is woken
/// where anything runs that has asked for more, or for nothing, as long as it has had no more than its share.
const SHORT_SLICE_NS: u64 = 100_000;

/// How much nicer than the device's cores a thread is that gives way to them, as of nice(2).
const NICER: i32 = 10;

/// Has the calling thread give way to those that serve commands, from now on: the host's scheduler gives it a tenth of
/// what it gives them while they want a processor, and a whole one when they do not; and one of them that wakes where
/// it runs need not wait until its slice is over. Linux keeps this by the thread. Refused, it is only less polite.
pub fn give_way() {
    let _ = rustix::process::nice(NICER);
    // For as long as the thread lives.
    std::mem::forget((Slice::long(), ShortSleeps::begin()));
}

/// As long as it lives, the thread that made it sleeps, when it sleeps for next to nothing, for as short as the kernel
/// can, and not for 50 us more (prctl(2), PR_SET_TIMERSLACK). Threads that it starts do as well.
pub struct ShortSleeps {
    /// Nanoseconds, before.
    before: Option<NonZeroU64>,
    /// It is of one thread.
    _thread: PhantomData<*const ()>,
}

impl ShortSleeps {
    /// From now on.
    pub fn begin() -> ShortSleeps {
        let before = rustix::thread::current_timer_slack().ok().and_then(NonZeroU64::new);
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        ShortSleeps { before, _thread: PhantomData }
    }
}

impl Drop for ShortSleeps {
    fn drop(&mut self) {
        let _ = rustix::thread::set_current_timer_slack(self.before);
    }
}

/// As long as it lives, the thread that made it asks the host's scheduler for long time slices, or for short ones. It
/// gets no more and no less of a processor by it; but whoever asks for less and wakes on the same processor runs at
/// once, and not at the next tick (Linux 6.12 and later; Linux kernel documentation, "EEVDF Scheduler": a slice is
/// asked for with sched_setattr(2)). Refused, or of another class of scheduling, the thread stays as it is.
pub struct Slice {
    /// What it asked for before, and what then, if it was not refused.
    asked: Option<[libc::sched_attr; 2]>,
    /// It is of one thread.
    _thread: PhantomData<*const ()>,
}

fn ask(attr: &libc::sched_attr) -> bool {
    // SAFETY: the structure outlives the call, which reads as many bytes of it as it says; 0 is the calling thread.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const *attr, 0) == 0 }
}

/// What the calling thread asks for now.
fn asked() -> Option<libc::sched_attr> {
    // SAFETY: a structure of integers.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sched_attr>() as libc::c_uint;
    // SAFETY: the structure outlives the call, which writes at most `size` bytes to it; 0 is the calling thread.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
    attr.size = size;
    (got == 0 && attr.sched_policy == libc::SCHED_OTHER as u32).then_some(attr)
}

/// Runs something with the right to lower niceness in effect, if this thread may have it: also one that acts with the
/// rights of a client keeps it among those it may have. False if it may not.
pub fn with_right_to_nice(run: impl FnOnce()) -> bool {
    let Ok(sets) = capabilities(None) else { return false };
    if !sets.permitted.contains(CapabilitySet::SYS_NICE) {
        return false;
    }
    let effective = sets.effective | CapabilitySet::SYS_NICE;
    if set_capabilities(None, CapabilitySets { effective, ..sets }).is_err() {
        return false;
    }
    run();
    // To have less is never refused.
    set_capabilities(None, sets).is_ok()
}

impl Slice {
    /// For a thread that computes: one that sleeps now and then would itself be woken late.
    pub fn long() -> Slice {
        Slice::of(LONG_SLICE_NS, None)
    }

    /// For a thread that computes and holds nothing that others wait for: it takes as much less of a processor that
    /// others want as well as nice(2) says of `nice`, if it may take as much again afterwards.
    pub fn long_and_nice(nice: i32) -> Slice {
        Slice::of(LONG_SLICE_NS, Some(nice))
    }

    /// For a thread that is woken often and runs for short.
    pub fn short() -> Slice {
        Slice::of(SHORT_SLICE_NS, None)
    }

    fn of(slice_ns: u64, nice: Option<i32>) -> Slice {
        let before = asked();
        let asked = before.and_then(|before| {
            let other = libc::sched_attr { sched_runtime: slice_ns, ..before };
            let nicer = nice.filter(|nice| before.sched_nice < *nice);
            if let Some(nicer) = nicer.map(|sched_nice| libc::sched_attr { sched_nice, ..other }) {
                let mut done = false;
                // Where it would not come back from there it does not go.
                with_right_to_nice(|| done = ask(&nicer));
                if done {
                    return Some([before, nicer]);
                }
            }
            ask(&other).then_some([before, other])
        });
        Slice { asked, _thread: PhantomData }
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        let Some([before, then]) = &self.asked else { return };
        // Another class of scheduling, or niceness, that the thread was given meanwhile stays.
        let Some(now) = asked() else { return };
        let sched_nice = if now.sched_nice == then.sched_nice { before.sched_nice } else { now.sched_nice };
        let back = libc::sched_attr { sched_runtime: before.sched_runtime, sched_nice, ..now };
        if !ask(&back) {
            with_right_to_nice(|| _ = ask(&back));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mine() -> (u64, i32) {
        let attr = asked().expect("a thread of the usual class");
        (attr.sched_runtime, attr.sched_nice)
    }

    #[test]
    fn a_thread_has_back_what_it_asked_for_before_and_keeps_what_it_was_given_meanwhile() {
        let before = mine();
        let long = Slice::long();
        let short = Slice::short();
        // (Before Linux 6.12 nothing is said of slices.)
        let kept = mine().0 == SHORT_SLICE_NS;
        drop(short);
        assert!(!kept || mine() == (LONG_SLICE_NS, before.1));
        drop(long);
        assert_eq!(mine(), before);
        let long = Slice::long();
        rustix::process::nice(1).expect("nicer");
        drop(long);
        assert_eq!(mine(), (before.0, before.1 + 1));
        give_way();
        assert_eq!(mine(), (if kept { LONG_SLICE_NS } else { before.0 }, (before.1 + 1 + NICER).min(19)));
        assert!(rustix::thread::current_timer_slack().is_ok_and(|ns| ns == 1));
    }

    #[test]
    fn short_sleeps_are_over_with_their_guard() {
        let before = rustix::thread::current_timer_slack().expect("a number");
        let guard = ShortSleeps::begin();
        assert_eq!(rustix::thread::current_timer_slack(), Ok(1));
        drop(guard);
        assert_eq!(rustix::thread::current_timer_slack(), Ok(before));
    }
}
