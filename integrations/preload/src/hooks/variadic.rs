//! Functions with any number of arguments: dprintf, execl and its kin. A trampoline writes down the registers that may
//! hold arguments; behind them the stack goes on, as the calling convention says.

use libc::{c_char, c_int};
use std::arch::naked_asm;

/// Registers for plain arguments.
#[cfg(target_arch = "x86_64")]
const PLAIN: usize = 6;
#[cfg(target_arch = "aarch64")]
const PLAIN: usize = 8;

/// What a trampoline writes down. On both machines it begins as a `va_list`'s area of saved registers does.
#[repr(C, align(16))]
pub struct Arguments {
    plain: [usize; PLAIN],
    floating: [[u64; 2]; 8],
    stack: *const usize,
}

/// `va_list`, positioned behind some plain arguments.
#[cfg(target_arch = "x86_64")]
#[repr(C)]
struct List {
    plain: u32,
    floating: u32,
    stack: *const usize,
    saved: *const Arguments,
}

#[cfg(target_arch = "aarch64")]
#[repr(C)]
struct List {
    stack: *const usize,
    plain_end: *const libc::c_void,
    floating_end: *const libc::c_void,
    plain: c_int,
    floating: c_int,
}

impl Arguments {
    /// The rest of the arguments, after `used` plain ones.
    #[cfg(target_arch = "x86_64")]
    fn list(&self, used: usize) -> List {
        List { plain: 8 * used as u32, floating: 8 * PLAIN as u32, stack: self.stack, saved: self }
    }

    /// The rest of the arguments, after `used` plain ones.
    #[cfg(target_arch = "aarch64")]
    fn list(&self, used: usize) -> List {
        let end = self.plain.as_ptr_range().end.cast();
        let floating_end = self.floating.as_ptr_range().end.cast();
        let plain = -8 * (PLAIN - used) as c_int;
        List { stack: self.stack, plain_end: end, floating_end, plain, floating: -128 }
    }

    /// A plain argument by its place. One that the caller did not give is whatever lies there.
    fn plain(&self, n: usize) -> usize {
        match self.plain.get(n) {
            Some(value) => *value,
            // SAFETY: the caller's frame: a reader stops at the NULL that the caller has put there.
            None => unsafe { self.stack.add(n - PLAIN).read() },
        }
    }
}

/// Defines an exported function of any number of arguments, which are handed to a function as they came.
macro_rules! variadic {
    ($($(#[$attr:meta])* $name:ident => $target:path;)+) => {$(
        $(#[$attr])*
        #[cfg(target_arch = "x86_64")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub extern "C" fn $name() -> c_int {
            naked_asm!(
                "endbr64",
                "sub rsp, 216",
                "mov [rsp], rdi", "mov [rsp + 8], rsi", "mov [rsp + 16], rdx",
                "mov [rsp + 24], rcx", "mov [rsp + 32], r8", "mov [rsp + 40], r9",
                "movaps [rsp + 48], xmm0", "movaps [rsp + 64], xmm1", "movaps [rsp + 80], xmm2",
                "movaps [rsp + 96], xmm3", "movaps [rsp + 112], xmm4", "movaps [rsp + 128], xmm5",
                "movaps [rsp + 144], xmm6", "movaps [rsp + 160], xmm7",
                "lea rax, [rsp + 224]",
                "mov [rsp + 176], rax",
                "mov rdi, rsp",
                "call {target}",
                "add rsp, 216",
                "ret",
                target = sym $target,
            )
        }

        $(#[$attr])*
        #[cfg(target_arch = "aarch64")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub extern "C" fn $name() -> c_int {
            naked_asm!(
                "sub sp, sp, #224",
                "stp x0, x1, [sp]", "stp x2, x3, [sp, #16]", "stp x4, x5, [sp, #32]", "stp x6, x7, [sp, #48]",
                "stp q0, q1, [sp, #64]", "stp q2, q3, [sp, #96]", "stp q4, q5, [sp, #128]", "stp q6, q7, [sp, #160]",
                "add x9, sp, #224",
                "stp x9, x30, [sp, #192]",
                "mov x0, sp",
                "bl {target}",
                "ldr x30, [sp, #200]",
                "add sp, sp, #224",
                "ret",
                target = sym $target,
            )
        }
    )+};
}

variadic! {
    /// dprintf(3).
    dprintf => print;
    /// What dprintf(3) is under _FORTIFY_SOURCE.
    __dprintf_chk => print_fortified;
    /// execl(3).
    execl => run;
    /// execlp(3).
    execlp => run_found;
    /// execle(3).
    execle => run_with;
}

extern "C" fn print(given: &Arguments) -> c_int {
    let mut rest = given.list(2);
    super::stdio::vdprintf(given.plain(0) as c_int, given.plain(1) as *const c_char, (&raw mut rest).cast())
}

extern "C" fn print_fortified(given: &Arguments) -> c_int {
    let mut rest = given.list(3);
    let (fd, flag, format) = (given.plain(0) as c_int, given.plain(1) as c_int, given.plain(2) as *const c_char);
    super::stdio::__vdprintf_chk(fd, flag, format, (&raw mut rest).cast())
}

/// The arguments from the second on, up to NULL and with it.
fn listed(given: &Arguments) -> Vec<*const c_char> {
    let mut all = Vec::new();
    loop {
        let one = given.plain(1 + all.len()) as *const c_char;
        all.push(one);
        if one.is_null() {
            return all;
        }
    }
}

extern "C" fn run(given: &Arguments) -> c_int {
    super::exec::execv(given.plain(0) as *const c_char, listed(given).as_ptr())
}

extern "C" fn run_found(given: &Arguments) -> c_int {
    super::exec::execvp(given.plain(0) as *const c_char, listed(given).as_ptr())
}

/// The environment follows the NULL.
extern "C" fn run_with(given: &Arguments) -> c_int {
    let all = listed(given);
    let environment = given.plain(1 + all.len()) as *const *const c_char;
    super::exec::execve(given.plain(0) as *const c_char, all.as_ptr(), environment)
}
