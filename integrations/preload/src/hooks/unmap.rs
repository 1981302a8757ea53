//! Calls that take memory away, or what may be done with it: what was seen to be there may not be any more.

use crate::abi::hook;
use crate::memory;
use libc::{c_int, c_void};

hook! { real;
    fn munmap(address: *mut c_void, n: usize) -> c_int {
        let answer = real(address, n);
        memory::changed();
        answer
    }
    fn mprotect(address: *mut c_void, n: usize, prot: c_int) -> c_int {
        let answer = real(address, n, prot);
        memory::changed();
        answer
    }
    fn pkey_mprotect(address: *mut c_void, n: usize, prot: c_int, key: c_int) -> c_int {
        let answer = real(address, n, prot, key);
        memory::changed();
        answer
    }
    fn mremap(old: *mut c_void, old_n: usize, n: usize, flags: c_int, new: *mut c_void) -> *mut c_void {
        let answer = real(old, old_n, n, flags, new);
        memory::changed();
        answer
    }
    fn madvise(address: *mut c_void, n: usize, advice: c_int) -> c_int {
        let answer = real(address, n, advice);
        memory::changed();
        answer
    }
    fn shmdt(address: *const c_void) -> c_int {
        let answer = real(address);
        memory::changed();
        answer
    }
}
