//! Which process am I? A forked child must not touch its parent's queues (their memory is not even mapped there).
//!
//! One private page carries `MADV_WIPEONFORK`: the kernel hands the child a page of zeroes, whatever call made the
//! child, so one relaxed load on the hot path tells a child from its parent. No system call, no atfork handler.
//! `vfork` children share the parent's memory and are rightly taken for the parent.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Bytes of the marker mapping: one page.
const MARKER_BYTES: usize = 4096;

/// The last generation given out in this line of processes; generation 0 means "just forked".
static LAST: AtomicU32 = AtomicU32::new(0);
static MARKER: OnceLock<&'static AtomicU32> = OnceLock::new();
/// Stands in for the marker where the kernel refuses the mapping: such a process cannot detect its own fork.
static FALLBACK: AtomicU32 = AtomicU32::new(0);

fn map_marker() -> &'static AtomicU32 {
    // SAFETY: a fresh anonymous private mapping at an address the kernel chooses; it aliases nothing.
    let page = unsafe {
        mmap_anonymous(core::ptr::null_mut(), MARKER_BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    };
    let Ok(page) = page else { return &FALLBACK };
    // SAFETY: `page` is the mapping made above, of exactly this length; wiping it on fork is what it is for.
    if unsafe { madvise(page, MARKER_BYTES, Advice::LinuxWipeOnFork) }.is_err() {
        return &FALLBACK;
    }
    // SAFETY: page-aligned, zero-initialised, never unmapped, and only ever accessed as this atomic.
    unsafe { &*page.cast::<AtomicU32>() }
}

/// The generation of the calling process: equal across all its threads, different in every forked child.
pub(crate) fn generation() -> u32 {
    let marker = MARKER.get_or_init(map_marker);
    match marker.load(Ordering::Relaxed) {
        0 => first_look(marker),
        known => known,
    }
}

#[cold]
fn first_look(marker: &AtomicU32) -> u32 {
    let fresh = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
    match marker.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => fresh,
        Err(theirs) => theirs,
    }
}

/// One process of a family that forks: the same in all its threads, another one in every child. For what keeps locks of
/// its own, which a child must not take: another thread of the parent may have held them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// The calling one.
    pub fn current() -> Process {
        Process(generation())
    }

    /// Whether it is the calling one. A load; no system call, no lock.
    pub fn is_current(self) -> bool {
        self == Process::current()
    }
}

/// A value of which every process of a fork family has its own.
///
/// The first caller in a forked child makes a fresh value; the parent's, which a lock or a half-done update may have
/// frozen in any state, is never locked and never dropped there.
pub struct PerProcess<T> {
    head: AtomicPtr<Node<T>>,
}

struct Node<T> {
    generation: u32,
    value: T,
    /// Kept so that leak checkers still see the parent's value as reachable.
    _parent: *mut Node<T>,
}

// SAFETY: nodes are written before they are published and only shared references to `value` are given out afterwards.
unsafe impl<T: Send + Sync> Send for PerProcess<T> {}
// SAFETY: as above; `head` is atomic.
unsafe impl<T: Send + Sync> Sync for PerProcess<T> {}

impl<T> PerProcess<T> {
    /// Without a value yet.
    pub const fn new() -> PerProcess<T> {
        PerProcess { head: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// This process's value, made by `make(parent's value)` on first use. No lock is taken.
    pub fn get(&self, make: impl FnOnce(Option<&T>) -> T) -> &T {
        let head = self.head.load(Ordering::Acquire);
        // SAFETY: a published node lives until `self` is dropped.
        if let Some(node) = unsafe { head.as_ref() }
            && node.generation == generation()
        {
            return &node.value;
        }
        self.install(head, make)
    }

    /// This process's value, if there is one yet.
    pub fn peek(&self) -> Option<&T> {
        // SAFETY: as in `get`.
        let node = unsafe { self.head.load(Ordering::Acquire).as_ref() }?;
        (node.generation == generation()).then_some(&node.value)
    }

    #[cold]
    fn install(&self, head: *mut Node<T>, make: impl FnOnce(Option<&T>) -> T) -> &T {
        // SAFETY: as in `get`.
        let value = make(unsafe { head.as_ref() }.map(|node| &node.value));
        let fresh = Box::into_raw(Box::new(Node { generation: generation(), value, _parent: head }));
        match self.head.compare_exchange(head, fresh, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: just published by us.
            Ok(_) => unsafe { &(*fresh).value },
            Err(theirs) => {
                // SAFETY: never published, so this is the only pointer to it; `theirs` is published and not null.
                unsafe {
                    drop(Box::from_raw(fresh));
                    &(*theirs).value
                }
            }
        }
    }
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        let head = *self.head.get_mut();
        // SAFETY: we own the list. A parent's nodes are left alone (see above), the process's own one is freed.
        unsafe {
            if head.as_ref().is_some_and(|node| node.generation == generation()) {
                drop(Box::from_raw(head));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::generation;

    #[test]
    fn generation_is_stable_in_one_process_and_differs_in_a_forked_child() {
        let mine = generation();
        assert_eq!(mine, generation());
        // SAFETY: the child only reads an atomic and leaves with _exit; it touches no lock of the parent.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let code = i32::from(generation() == mine);
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above, into a local.
        unsafe { libc::waitpid(pid, &mut status, 0) };
        assert_eq!(status, 0, "the child saw its parent's generation");
        assert_eq!(mine, generation());
    }
}
