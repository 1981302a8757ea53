//! How a command gets into the future of its slot, and its outcome out.
//!
//! The two ends of one cell: the *desk* stays with the slot, the *mail* goes into the future that the slot owns. Both
//! are used by one thread at a time without a lock of their own, because the future runs only inside [`Desk::poll`],
//! which needs the desk exclusively.

use std::cell::UnsafeCell;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

struct Cell<I, O> {
    /// Set while the desk polls: only then the mail may touch the letters.
    open: AtomicBool,
    letters: UnsafeCell<(Option<I>, Option<O>)>,
}

// SAFETY: the letters are reached by `Desk` methods, which have the one desk exclusively (`&mut self`; it is not
// Clone), and by `Mail` methods, which check `open`. `open` is set only inside `Desk::poll`, for the time in which it
// calls the closure and touches no letter itself, so a desk's access and a mail's never overlap as long as the mail is
// used by the thread that runs the closure. A mail used by another thread meanwhile would need to be there: there is
// one mail, not Clone, moved into the future that only the closure polls; a future that hands it to another thread
// would break this, which is why both types are private to the device and its futures (`serve::serve` and tests)
// keep it.
unsafe impl<I: Send, O: Send> Sync for Cell<I, O> {}

/// The slot's end.
pub struct Desk<I, O>(Arc<Cell<I, O>>);

/// The future's end.
pub struct Mail<I, O>(Arc<Cell<I, O>>);

/// Both ends of a fresh cell.
pub fn new<I, O>() -> (Desk<I, O>, Mail<I, O>) {
    let cell = Arc::new(Cell { open: AtomicBool::new(false), letters: UnsafeCell::new((None, None)) });
    (Desk(cell.clone()), Mail(cell))
}

impl<I, O> Desk<I, O> {
    /// Leaves the next piece of work.
    #[inline]
    pub fn put(&mut self, input: I) {
        // SAFETY: the desk is borrowed exclusively and the cell is not open, so the mail does not touch the letters.
        unsafe { (*self.0.letters.get()).0 = Some(input) };
    }

    /// Lets `run` poll the future, which may use the mail meanwhile; gives the answer if it left one.
    #[inline]
    pub fn poll(&mut self, run: impl FnOnce()) -> Option<O> {
        struct Closed<'a>(&'a AtomicBool);
        impl Drop for Closed<'_> {
            fn drop(&mut self) {
                self.0.store(false, Ordering::Relaxed);
            }
        }
        self.0.open.store(true, Ordering::Relaxed);
        // Closed again also when the future panics.
        let closed = Closed(&self.0.open);
        run();
        drop(closed);
        // SAFETY: as in `put`: the cell is closed again, and the desk is borrowed exclusively.
        unsafe { (*self.0.letters.get()).1.take() }
    }
}

impl<I, O> Mail<I, O> {
    fn letters(&mut self) -> &mut (Option<I>, Option<O>) {
        assert!(self.0.open.load(Ordering::Relaxed), "the mail is used inside the slot's poll only");
        // SAFETY: the cell is open: the desk is inside `poll` and keeps its hands off until the closure returns; the
        // mail is borrowed exclusively and there is no other.
        unsafe { &mut *self.0.letters.get() }
    }

    /// The next piece of work.
    pub async fn next(&mut self) -> I {
        poll_fn(|_| self.letters().0.take().map_or(Poll::Pending, Poll::Ready)).await
    }

    /// Hands over the result of the last one.
    pub fn answer(&mut self, output: O) {
        self.letters().1 = Some(output);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_go_both_ways_and_only_inside_a_poll() {
        let (mut desk, mut mail) = new::<u8, u16>();
        desk.put(7);
        let answer = desk.poll(|| {
            let got = mail.letters().0.take().unwrap();
            mail.answer(u16::from(got) + 1);
        });
        assert_eq!(answer, Some(8));
        assert_eq!(desk.poll(|| ()), None);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| mail.answer(1))).is_err());
    }
}
