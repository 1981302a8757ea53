//! Linux's asynchronous I/O and io_uring: calls that carry numbers of descriptors in memory, where no hook sees them.
//! So the files of a program that sets one up become the kernel's (`promote`).
//!
//! The functions of libaio and liburing are bare system calls, which cannot be interposed inside them; these are the
//! ones by which programs begin. A program that has its own uses syscall(2) as a rule, which is hooked as well; one
//! with the system call in its own code finds placeholders, and has EBADF for them.

use crate::abi::{self, hook};
use crate::{promote, sys};
use libc::{c_int, c_uint, c_void};

/// libaio and liburing have a negative errno for an answer.
fn plain(answer: Result<usize, c_int>) -> c_int {
    answer.map_or_else(|code| -code, |n| n as c_int)
}

fn setup(events: c_int, context: *mut *mut c_void) -> c_int {
    plain(sys::checked(libc::SYS_io_setup, [events as usize, context as usize, 0, 0, 0, 0]))
}

/// Finds liburing's own function also where it was loaded for one library alone.
macro_rules! loaded {
    ($name:ident) => {
        if !abi::find_loaded(&slots::$name, concat!(stringify!($name), "\0"), c"liburing.so.2") {
            return -libc::ENOSYS;
        }
    };
}

hook! { real;
    fn io_setup(events: c_int, context: *mut *mut c_void) -> c_int {
        promote::rings();
        setup(events, context)
    }
    fn io_queue_init(events: c_int, context: *mut *mut c_void) -> c_int {
        promote::rings();
        if events <= 0 {
            return -libc::EINVAL;
        }
        if abi::put(context, std::ptr::null_mut()).is_err() { -libc::EFAULT } else { setup(events, context) }
    }
    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int {
        promote::rings();
        loaded!(io_uring_queue_init);
        real(entries, ring, flags)
    }
    fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, params: *mut c_void) -> c_int {
        promote::rings();
        loaded!(io_uring_queue_init_params);
        real(entries, ring, params)
    }
    fn io_uring_queue_init_mem(
        entries: c_uint, ring: *mut c_void, params: *mut c_void, room: *mut c_void, n: usize,
    ) -> c_int {
        promote::rings();
        loaded!(io_uring_queue_init_mem);
        real(entries, ring, params, room, n)
    }
    fn io_uring_setup(entries: c_uint, params: *mut c_void) -> c_int {
        promote::rings();
        plain(sys::checked(libc::SYS_io_uring_setup, [entries as usize, params as usize, 0, 0, 0, 0]))
    }
}
