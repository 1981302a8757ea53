//! The allocator of the command, and what a device that rests gives back to the host.
//!
//! It keeps what a thread has freed until that thread allocates or frees again. A device's threads sleep when there is
//! nothing to do, so after a burst of large commands a resting device would hold their memory for ever.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// For a process that serves: memory comes in pages of the ordinary size. The allocator asks for huge ones, and the
/// kernel then clears two mebibytes at the first touch of one, up to 6 ms on a virtual machine, in the middle of some
/// client's command.
pub fn take_small_pages() {
    if let Err(e) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!("huge pages cannot be turned off: {e}");
    }
}

/// Gives what this thread has freed back to the host.
pub fn give_back() {
    // SAFETY: `mi_collect` takes no pointer and may be called from any thread at any time; it works on the heap of the
    // calling thread and on pages that no block is in.
    unsafe { libmimalloc_sys::mi_collect(true) }
}
