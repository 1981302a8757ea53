//! Limits that the program sets: that of file sizes is kept by this library.

use crate::abi::hook;
use crate::limit;
use libc::{c_int, pid_t, rlimit, rlimit64};

fn set(answer: c_int) -> c_int {
    if answer == 0 && crate::config::get().is_some() {
        limit::learn();
    }
    answer
}

hook! { real;
    fn setrlimit(what: c_int, limits: *const rlimit) -> c_int {
        set(real(what, limits))
    }
    fn setrlimit64(what: c_int, limits: *const rlimit64) -> c_int {
        set(real(what, limits))
    }
    fn prlimit(process: pid_t, what: c_int, limits: *const rlimit, old: *mut rlimit) -> c_int {
        set(real(process, what, limits, old))
    }
    fn prlimit64(process: pid_t, what: c_int, limits: *const rlimit64, old: *mut rlimit64) -> c_int {
        set(real(process, what, limits, old))
    }
}
