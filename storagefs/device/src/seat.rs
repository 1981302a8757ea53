//! The one core of an embedded device, lent to the threads that call it: they run their commands themselves, and need
//! no second processor and no hand-over.
//!
//! The core's own thread keeps the core and sleeps; whoever holds the lock of the seat does the core's turns. What is
//! left when a caller leaves (commands of others, a timer, mail) the core's thread is woken for.

use std::cell::Cell;
use std::ptr::NonNull;

use weldfs_ciscops::{Cqe, RawCommand};
use weldfs_locks::{Mutex, MutexGuard};

/// What the thread on the seat does.
pub(super) trait Turns: Send {
    /// Does turns until `done`, or until there is nothing to do.
    fn until(&mut self, done: &mut dyn FnMut() -> bool);

    /// Runs a command of this session and this of its queue pairs past its ring, if it is over at once and nothing else
    /// waits for the core; `None`: nothing has happened, and it is to be put into the ring.
    fn call(&mut self, pair: (u64, u32), raw: &RawCommand) -> Option<Cqe>;
}

/// What came of a call for the seat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seated {
    /// The caller had the core, until it was done or nothing was left to do.
    Ran,
    /// Another thread has it.
    Taken,
    /// No core is lent: the device runs on threads of its own, or has ended.
    None,
}

/// A core that is lent out; nothing before and after.
struct Lent(NonNull<dyn Turns>);

// SAFETY: what is pointed to is `Send` (a bound of the trait), and is reached under the seat's lock only.
unsafe impl Send for Lent {}

/// See the module. Thread-safe.
#[derive(Default)]
pub(super) struct Seat {
    lent: Mutex<Option<Lent>>,
}

thread_local! {
    static SEATED: Cell<bool> = const { Cell::new(false) };
}

/// This thread is on the seat, or about to be: said before the lock is taken until after it is given back, and what was
/// said before is said again then, for this may be a signal handler on a thread that is there.
struct Sitting(bool);

impl Sitting {
    fn new() -> Sitting {
        Sitting(SEATED.replace(true))
    }
}

impl Drop for Sitting {
    fn drop(&mut self) {
        SEATED.set(self.0);
    }
}

/// Takes the core off the seat when its own thread panics, before another one can reach it.
struct OffWhenPanicking<'a>(MutexGuard<'a, Option<Lent>>);

impl Drop for OffWhenPanicking<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            *self.0 = None;
        }
    }
}

/// Lends a core out as long as it lives.
pub(super) struct Lending<'s, T> {
    seat: &'s Seat,
    core: NonNull<T>,
}

impl<T> Lending<'_, T> {
    /// For the core's own thread: the core, when it is free.
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let _sitting = Sitting::new();
        let _held = OffWhenPanicking(self.seat.lent.lock());
        // SAFETY: `core` comes from a `&mut T` that `Seat::lend` borrows for longer than this lives, and nothing
        // reaches it but through the seat's lock, which is held until `f` has returned.
        f(unsafe { &mut *self.core.as_ptr() })
    }
}

impl<T> Drop for Lending<'_, T> {
    fn drop(&mut self) {
        *self.seat.lent.lock() = None;
    }
}

impl Seat {
    /// Lends `core` to callers for as long as `body` runs.
    pub fn lend<T: Turns, R>(&self, core: &mut T, body: impl FnOnce(&Lending<'_, T>) -> R) -> R {
        let pointer = NonNull::from(core);
        let erased: NonNull<dyn Turns + '_> = pointer;
        // SAFETY: only the lifetime of the trait object changes. `Lending` takes the pointer away again, under the lock
        // that every use of it holds, before this function returns or unwinds; `core` is borrowed until then.
        let erased: NonNull<dyn Turns + 'static> = unsafe { std::mem::transmute(erased) };
        let lending = Lending { seat: self, core: pointer };
        *self.lent.lock() = Some(Lent(erased));
        body(&lending)
    }

    /// Whether the calling thread is on a seat: a signal handler interrupted it there, and a command of the handler
    /// would wait for ever.
    pub fn is_inside() -> bool {
        SEATED.get()
    }

    /// Runs `f`, which others on the seat may wait for: what asks for the seat in a signal handler meanwhile is told.
    pub fn busy<R>(f: impl FnOnce() -> R) -> R {
        let _sitting = Sitting::new();
        f()
    }

    /// Does turns of the core on the calling thread, if no other thread has it, until `done`.
    pub fn run(&self, done: &mut dyn FnMut() -> bool) -> Seated {
        let _sitting = Sitting::new();
        let Some(mut lent) = self.lent.try_lock() else { return Seated::Taken };
        let Some(Lent(core)) = lent.as_mut() else { return Seated::None };
        // SAFETY: as long as it is in there, it points to a live core (see `lend`), and the lock is held.
        unsafe { core.as_mut() }.until(done);
        Seated::Ran
    }

    /// Runs one command on the calling thread, past its ring, if no other thread has the core (see [`Turns::call`]).
    pub fn call(&self, pair: (u64, u32), raw: &RawCommand) -> Option<Cqe> {
        let _sitting = Sitting::new();
        let mut lent = self.lent.try_lock()?;
        let Lent(core) = lent.as_mut()?;
        // SAFETY: as in `run`.
        unsafe { core.as_mut() }.call(pair, raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weldfs_ciscops::Sqe;

    struct Counter(u32);

    impl Turns for Counter {
        fn until(&mut self, done: &mut dyn FnMut() -> bool) {
            while !done() {
                self.0 += 1;
            }
        }

        fn call(&mut self, (session, _): (u64, u32), raw: &RawCommand) -> Option<Cqe> {
            self.0 += session as u32;
            Some(Cqe { sequence: raw.0.sequence, ..Cqe::default() })
        }
    }

    fn few() -> impl FnMut() -> bool {
        let mut left = 3;
        move || {
            left -= 1;
            left == 0
        }
    }

    #[test]
    fn a_core_is_lent_to_one_thread_at_a_time_and_to_none_afterwards() {
        let (seat, mut core) = (Seat::default(), Counter(0));
        assert_eq!(seat.run(&mut few()), Seated::None);
        seat.lend(&mut core, |lending| {
            let threads = || {
                std::thread::scope(|s| {
                    (0..4).for_each(|_| {
                        s.spawn(|| (0..1000).for_each(|_| while seat.run(&mut few()) != Seated::Ran {}));
                    });
                });
            };
            threads();
            assert_eq!(lending.with(|core| core.0), 8000);
            let raw = RawCommand(Sqe { sequence: 7, ..Sqe::default() });
            assert_eq!(seat.call((0, 0), &raw).map(|cqe| cqe.sequence), Some(7));
            assert!(!Seat::is_inside());
            lending.with(|_| {
                std::thread::scope(|s| {
                    s.spawn(|| assert_eq!(seat.run(&mut few()), Seated::Taken));
                    s.spawn(|| assert_eq!(seat.call((1, 0), &RawCommand(Sqe::default())), None));
                });
                assert!(Seat::is_inside(), "what a signal handler on this thread is told");
            });
        });
        assert_eq!(seat.run(&mut few()), Seated::None);
        let unwinds = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            seat.lend(&mut core, |_| panic!("as a core does that fails"));
        }));
        assert!(unwinds.is_err());
        assert_eq!(seat.run(&mut few()), Seated::None);
        assert_eq!(core.0, 8000);
    }
}
