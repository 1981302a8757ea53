//! Linux's asynchronous I/O and io_uring: calls that carry numbers of descriptors in memory, where no hook sees them.
//! So the files of a program that has set one up become the kernel's (`promote`).
//!
//! The functions of libaio and liburing are bare system calls, which cannot be interposed inside them; these are the
//! ones by which programs begin. A program that has its own uses syscall(2) as a rule, which is hooked as well; one
//! with the system call in its own code finds placeholders, and has EBADF for them.

use crate::abi::{self, hook};
use crate::{promote, sys};
use libc::{c_int, c_uint, c_void};

/// Makes a ring, where the program may have one. libaio and liburing have a negative errno for an answer.
fn make(ring: impl FnOnce() -> c_int) -> c_int {
    if let Err(code) = promote::may_ring() {
        return -code;
    }
    let answer = ring();
    if answer >= 0 {
        promote::rings();
    }
    answer
}

fn call(number: i64, a: usize, b: usize) -> c_int {
    make(|| sys::checked(number, [a, b, 0, 0, 0, 0]).map_or_else(|code| -code, |n| n as c_int))
}

/// Finds the function that the program would have without this library, also where that was loaded for one library
/// alone, or lies in it.
macro_rules! find {
    ($name:ident) => {
        if !abi::find_anywhere(&slots::$name, concat!(stringify!($name), "\0"), $name as *const () as usize) {
            return -libc::ENOSYS;
        }
    };
}

hook! { real;
    fn io_setup(events: c_int, context: *mut *mut c_void) -> c_int {
        call(libc::SYS_io_setup, events as usize, context as usize)
    }
    fn io_queue_init(events: c_int, context: *mut *mut c_void) -> c_int {
        if events <= 0 {
            return -libc::EINVAL;
        }
        match abi::put(context, std::ptr::null_mut()) {
            Ok(()) => call(libc::SYS_io_setup, events as usize, context as usize),
            Err(code) => -code,
        }
    }
    fn io_uring_setup(entries: c_uint, params: *mut c_void) -> c_int {
        call(libc::SYS_io_uring_setup, entries as usize, params as usize)
    }
    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int {
        find!(io_uring_queue_init);
        make(|| real(entries, ring, flags))
    }
    fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, params: *mut c_void) -> c_int {
        find!(io_uring_queue_init_params);
        make(|| real(entries, ring, params))
    }
    fn io_uring_queue_init_mem(
        entries: c_uint, ring: *mut c_void, params: *mut c_void, room: *mut c_void, n: usize,
    ) -> c_int {
        find!(io_uring_queue_init_mem);
        make(|| real(entries, ring, params, room, n))
    }
}
