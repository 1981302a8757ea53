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
pub struct BlockBuf(Option<Box<[u8; BLOCK]>>);

impl BlockBuf {
    /// One that lay ready, or a new one.
    #[inline]
    pub fn take() -> BlockBuf {
        let spare = SPARE.try_with(|s| s.try_borrow_mut().ok().and_then(|mut s| s.pop())).ok().flatten();
        BlockBuf(Some(spare.unwrap_or_else(|| Box::new([0; BLOCK]))))
    }

    /// The memory, for another owner: nothing can be done any more with what stays here but drop it.
    #[inline]
    pub fn detach(&mut self) -> BlockBuf {
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

/// Lists of bytes that a thread keeps, at most, and the room of each.
const LISTS_MAX: usize = 4;
const LIST_BYTES_MAX: usize = 64 << 10;

thread_local! {
    static LISTS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty list of bytes, with room if one lay ready.
pub fn list() -> Vec<u8> {
    let mut list = kept();
    list.clear();
    list
}

/// A list of so many bytes, which are to be written over: some of them may be those of the work before.
pub fn list_of(len: usize) -> Vec<u8> {
    let mut list = kept();
    list.resize(len, 0);
    list
}

fn kept() -> Vec<u8> {
    LISTS.try_with(|s| s.try_borrow_mut().ok().and_then(|mut s| s.pop())).ok().flatten().unwrap_or_default()
}

/// Keeps the room of a list for the next work of this thread.
pub fn keep(list: Vec<u8>) {
    let _ = LISTS.try_with(|s| {
        if let Ok(mut s) = s.try_borrow_mut()
            && s.len() < LISTS_MAX
            && (1..=LIST_BYTES_MAX).contains(&list.capacity())
        {
            s.push(list);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_of_a_list_that_was_given_back_is_used_again_if_it_is_not_large() {
        keep(vec![1; 100]);
        let list = self::list();
        assert!(list.is_empty() && list.capacity() >= 100);
        assert_eq!(self::list().capacity(), 0, "there was one");
        keep(vec![1; 100]);
        assert_eq!(list_of(10).len(), 10);
        assert_eq!(list_of(10), [0; 10]);
        keep(vec![1; LIST_BYTES_MAX + 1]);
        assert_eq!(self::list().capacity(), 0, "large ones are not kept");
        (0..2 * LISTS_MAX).for_each(|_| keep(vec![1; 10]));
        assert_eq!(LISTS.with(|s| s.borrow().len()), LISTS_MAX, "no more than these are kept");
    }

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
