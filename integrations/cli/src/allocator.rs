//! The allocator of the command, and what a device that rests gives back to the host.
//!
//! It keeps what a thread has freed until that thread allocates or frees again. A device's threads sleep when there is
//! nothing to do, so after a burst of large commands a resting device would hold their memory for ever.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Gives what this thread has freed back to the host.
pub fn give_back() {
    // SAFETY: `mi_collect` takes no pointer and may be called from any thread at any time; it works on the heap of the
    // calling thread and on pages that no block is in.
    unsafe { libmimalloc_sys::mi_collect(true) }
}
