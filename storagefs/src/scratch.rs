//! Blocks of memory for work in passing, used again instead of allocated and zeroed for each command.

use crate::limits::BLOCK;
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// Blocks that a thread keeps for its next work, at most.
const SPARE_MAX: usize = 16;

thread_local! {
    static SPARE: RefCell<Vec<Box<[u8; BLOCK]>>> = const { RefCell::new(Vec::new()) };
}

/// A block of memory whose bytes are unknown at first, other clients' among them: whoever takes one writes each
/// byte before it goes anywhere.
#[derive(Debug)]
pub(crate) struct BlockBuf(Option<Box<[u8; BLOCK]>>);

impl BlockBuf {
    /// One that lay ready, or a new one.
    #[inline]
    pub(crate) fn take() -> BlockBuf {
        let spare = SPARE.try_with(|s| s.try_borrow_mut().ok().and_then(|mut s| s.pop())).ok().flatten();
        BlockBuf(Some(spare.unwrap_or_else(|| Box::new([0; BLOCK]))))
    }

    /// The memory, for another owner: nothing can be done any more with what stays here but drop it.
    #[inline]
    pub(crate) fn detach(&mut self) -> BlockBuf {
        BlockBuf(self.0.take())
    }
}

impl Deref for BlockBuf {
    type Target = [u8; BLOCK];
    #[inline]
    fn deref(&self) -> &[u8; BLOCK] {
        self.0.as_deref().expect("there until it is detached")
    }
}

impl DerefMut for BlockBuf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8; BLOCK] {
        self.0.as_deref_mut().expect("there until it is detached")
    }
}

impl Drop for BlockBuf {
    fn drop(&mut self) {
        let Some(block) = self.0.take() else { return };
        // A thread that ends has no use for it; then it goes the ordinary way.
        let _ = SPARE.try_with(|s| {
            if let Ok(mut s) = s.try_borrow_mut()
                && s.len() < SPARE_MAX
            {
                s.push(block);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_was_given_back_is_the_next_one() {
        let mut a = BlockBuf::take();
        a[7] = 42;
        let at = a.as_ptr();
        drop(a);
        let b = BlockBuf::take();
        assert_eq!((b.as_ptr(), b[7]), (at, 42));
        let many: Vec<BlockBuf> = (0..2 * SPARE_MAX).map(|_| BlockBuf::take()).collect();
        drop(many);
        assert_eq!(SPARE.with(|s| s.borrow().len()), SPARE_MAX, "no more than these are kept");
    }
}
