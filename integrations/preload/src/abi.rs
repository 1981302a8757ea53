//! The C side of the library: the `hook!` macro, libc's own functions behind ours, and access to a caller's memory.
//!
//! Hooks are plain `extern "C"` functions (a panic in one aborts with a message: it can never unwind into C). Where
//! the kernel would look at memory of the program's, it is asked whether that is there (`memory`): EFAULT if not.

use crate::memory::{self, Access};
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_char, c_int, c_void, iovec};

/// What the functions here and the device return: a value or an errno.
pub type Res<T> = Result<T, c_int>;

/// Defines exported functions that shadow libc's. Inside a body, `$real(...)` is libc's own function of that name.
macro_rules! hook {
    ($real:ident; $($(#[$attr:meta])* fn $name:ident($($a:ident: $t:ty),* $(,)?) -> $r:ty $body:block)+) => {
        /// Where libc's own functions are, as far as they were looked up.
        #[allow(non_upper_case_globals)]
        pub(super) mod slots {
            use std::sync::atomic::AtomicPtr;
            $(pub static $name: AtomicPtr<libc::c_void> = AtomicPtr::new(std::ptr::null_mut());)+
        }

        /// What became of their calls.
        #[allow(non_upper_case_globals)]
        mod counters {
            $(pub static $name: $crate::counts::Counter = $crate::counts::Counter::new(stringify!($name));)+
        }

        $(
        $(#[$attr])*
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub extern "C" fn $name($($a: $t),*) -> $r {
            let _counted = $crate::counts::enter(&counters::$name);
            #[allow(unused_variables)]
            let $real = |$($a: $t),*| -> $r {
                type Function = extern "C" fn($($t),*) -> $r;
                let address = $crate::abi::next(&slots::$name, concat!(stringify!($name), "\0"));
                // SAFETY: `address` is libc's function of this name, and the hook repeats its C signature.
                let function: Function = unsafe { std::mem::transmute::<*mut libc::c_void, Function>(address) };
                function($($a),*)
            };
            $body
        }
        )+
    };
}
pub(crate) use hook;

/// Address of the function that ours shadows; aborts when there is none (a caller linked against it, so there is).
pub fn next(slot: &AtomicPtr<c_void>, name: &'static str) -> *mut c_void {
    let known = slot.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let found = find(slot, name);
    if found.is_null() {
        crate::report::fatal(&["libc has no ", name.trim_end_matches('\0')]);
    }
    found
}

/// Looks the function up that ours shadows; null when there is none.
pub fn find(slot: &AtomicPtr<c_void>, name: &'static str) -> *mut c_void {
    // SAFETY: `name` ends in NUL (the macro appends it).
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast()) };
    slot.store(found, Ordering::Relaxed);
    found
}

/// As `find`, else in whatever is loaded, seen by all or not, but for `own`; false when there is none.
pub fn find_anywhere(slot: &AtomicPtr<c_void>, name: &'static str, own: usize) -> bool {
    if slot.load(Ordering::Relaxed).is_null() && find(slot, name).is_null() {
        let mut search = (name, own, std::ptr::null_mut::<c_void>());
        // SAFETY: the callback has the type that is asked for, and gets the tuple, which outlives the walk.
        unsafe { libc::dl_iterate_phdr(Some(find_in_image), (&raw mut search).cast()) };
        slot.store(search.2, Ordering::Relaxed);
    }
    !slot.load(Ordering::Relaxed).is_null()
}

/// Looks for a function in one of the images that are loaded.
unsafe extern "C" fn find_in_image(info: *mut libc::dl_phdr_info, _: libc::size_t, search: *mut c_void) -> c_int {
    // SAFETY: the linker's description, and the tuple of `find_anywhere`. What is loaded is only looked at, and stays
    // so as long as its caller.
    unsafe {
        let search = &mut *search.cast::<(&'static str, usize, *mut c_void)>();
        let image = libc::dlopen((*info).dlpi_name, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if image.is_null() {
            return 0;
        }
        let found = libc::dlsym(image, search.0.as_ptr().cast());
        libc::dlclose(image);
        if found.is_null() || found as usize == search.1 {
            return 0;
        }
        search.2 = found;
        1
    }
}

/// Sets errno.
pub fn set_errno(code: c_int) {
    // SAFETY: libc's own thread-local cell.
    unsafe { *libc::__errno_location() = code }
}

/// Reads errno.
pub fn errno() -> c_int {
    // SAFETY: libc's own thread-local cell.
    unsafe { *libc::__errno_location() }
}

/// The value that tells a C caller "look at errno".
pub trait Failure {
    /// That value.
    const FAILED: Self;
}
impl Failure for c_int {
    const FAILED: c_int = -1;
}
impl Failure for isize {
    const FAILED: isize = -1;
}
impl Failure for i64 {
    const FAILED: i64 = -1;
}
impl<T> Failure for *mut T {
    const FAILED: *mut T = std::ptr::null_mut();
}

/// Errno and the failure value, or the value.
pub fn give<T: Failure>(result: Res<T>) -> T {
    match result {
        Ok(value) => value,
        Err(code) => fail(code),
    }
}

/// 0, or errno and -1.
pub fn done(result: Res<()>) -> c_int {
    give(result.map(|()| 0))
}

/// A byte count as C reports it.
pub fn count(result: Res<usize>) -> isize {
    give(result.map(|n| n as isize))
}

/// Errno and the failure value.
pub fn fail<T: Failure>(code: c_int) -> T {
    set_errno(code);
    T::FAILED
}

/// The bytes of a C string; EFAULT where there is none.
pub fn text<'a>(p: *const c_char) -> Res<&'a [u8]> {
    let n = memory::text_len(p).ok_or(libc::EFAULT)?;
    // SAFETY: `n` bytes that can be read, which a C caller leaves alone for the length of the call.
    Ok(unsafe { std::slice::from_raw_parts(p.cast(), n) })
}

/// As much of a caller's buffer to read from as is there; EFAULT for none.
pub fn bytes<'a>(p: *const c_void, n: usize) -> Res<&'a [u8]> {
    if n == 0 {
        return Ok(&[]);
    }
    let n = there(p, n, Access::Read)?;
    // SAFETY: `n` readable bytes at `p`, which the caller leaves alone for the length of the call.
    Ok(unsafe { std::slice::from_raw_parts(p.cast(), n) })
}

/// As much of a caller's buffer to write to as is there; EFAULT for none.
pub fn room<'a>(p: *mut c_void, n: usize) -> Res<&'a mut [u8]> {
    if n == 0 {
        return Ok(&mut []);
    }
    let n = there(p, n, Access::Write)?;
    // SAFETY: `n` writable bytes at `p`, which nothing else uses for the length of the call.
    Ok(unsafe { std::slice::from_raw_parts_mut(p.cast(), n) })
}

fn there(p: *const c_void, n: usize, access: Access) -> Res<usize> {
    match memory::reach(p, n.min(isize::MAX as usize), access) {
        0 => Err(libc::EFAULT),
        n => Ok(n),
    }
}

/// A whole buffer to read from; EFAULT where part of it is missing.
pub fn all_bytes<'a>(p: *const c_void, n: usize) -> Res<&'a [u8]> {
    bytes(p, n).and_then(|found| if found.len() == n { Ok(found) } else { Err(libc::EFAULT) })
}

/// An array of C structures.
pub fn array<'a, T>(p: *const T, n: usize) -> Res<&'a [T]> {
    if n == 0 {
        return Ok(&[]);
    }
    all_bytes(p.cast(), n * size_of::<T>())?;
    // SAFETY: readable memory, in which the caller has `n` initialised values.
    Ok(unsafe { std::slice::from_raw_parts(p, n) })
}

/// A vector of buffers, as readv takes it.
pub fn vector<'a>(iov: *const iovec, n: c_int) -> Res<&'a [iovec]> {
    if !(0..=libc::UIO_MAXIOV).contains(&n) {
        return Err(libc::EINVAL);
    }
    let parts = array(iov, n as usize)?;
    for part in parts {
        if part.iov_len > isize::MAX as usize {
            return Err(libc::EINVAL);
        }
        if !memory::is_range(part.iov_base, part.iov_len) {
            return Err(libc::EFAULT);
        }
    }
    Ok(parts)
}

/// Stores a result where the caller asked for it; EFAULT where there is no place for it.
pub fn put<T>(p: *mut T, value: T) -> Res<()> {
    if memory::reach(p.cast(), size_of::<T>(), Access::Write) < size_of::<T>() {
        return Err(libc::EFAULT);
    }
    // SAFETY: writable memory, which the caller passes as a place for one `T`.
    unsafe { p.write_unaligned(value) };
    Ok(())
}

/// Reads a structure of the caller's; EFAULT where there is none.
pub fn get<T: Copy>(p: *const T) -> Res<T> {
    if memory::reach(p.cast(), size_of::<T>(), Access::Read) < size_of::<T>() {
        return Err(libc::EFAULT);
    }
    // SAFETY: readable memory, in which the caller has an initialised `T`.
    Ok(unsafe { p.read_unaligned() })
}

/// A C structure of integers with every byte zero.
pub fn zeroed<T: Copy>() -> T {
    // SAFETY: used for libc's plain structures of integers only, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

/// The strings of a NULL-terminated array (argv, envp).
pub fn strings<'a>(p: *const *const c_char) -> Vec<&'a CStr> {
    let mut all = Vec::new();
    if p.is_null() {
        return all;
    }
    let mut at = p;
    loop {
        // SAFETY: the array ends in NULL, and `at` has not passed it.
        let entry = unsafe { *at };
        if entry.is_null() {
            return all;
        }
        // SAFETY: entries are C strings; the array has one more entry after a non-NULL one.
        unsafe {
            all.push(CStr::from_ptr(entry));
            at = at.add(1);
        }
    }
}

/// EFAULT where an array of strings, or one of them, is not there.
pub fn check_strings(p: *const *const c_char) -> Res<()> {
    let mut at = p;
    while !at.is_null() {
        let entry = get(at)?;
        if entry.is_null() {
            break;
        }
        text(entry)?;
        at = at.wrapping_add(1);
    }
    Ok(())
}

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// The process's environment, as any exec without an environment reads it.
pub fn environment() -> *const *const c_char {
    // SAFETY: libc's variable; a program that changes it while others read it has the same race without us.
    unsafe { (&raw const environ).read() }
}

/// Whether libc has been told the environment: it has not while the dynamic linker still binds the libraries.
pub fn environment_is_known() -> bool {
    !environment().is_null()
}

/// A variable as it stands in the environment. Unlike `env` it takes no allocation and calls nothing: a program may
/// have a getenv of its own (bash has).
pub fn given_env(name: &[u8]) -> Option<&'static [u8]> {
    let mut at = environment();
    if at.is_null() {
        return None;
    }
    loop {
        // SAFETY: the array ends in NULL, and `at` has not passed it; its other entries are C strings.
        let entry = unsafe { *at };
        if entry.is_null() {
            return None;
        }
        // SAFETY: as above.
        let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
        if let Some(value) = text.strip_prefix(name).and_then(|rest| rest.strip_prefix(b"=")) {
            return Some(value);
        }
        // SAFETY: as above: one more entry follows.
        at = unsafe { at.add(1) };
    }
}

/// A string of the environment, without any lock (getenv).
pub fn env<'a>(name: &CStr) -> Option<&'a [u8]> {
    // SAFETY: a C string in, NULL or a C string of the environment out.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() { None } else { text(value).ok() }
}

/// Copies `from` and a NUL to `to`, a buffer of `n` bytes; ERANGE when it does not fit.
pub fn put_text(to: *mut c_char, n: usize, from: &[u8]) -> Res<()> {
    if from.len() >= n {
        return Err(libc::ERANGE);
    }
    let room = room(to.cast(), from.len() + 1)?;
    if room.len() <= from.len() {
        return Err(libc::EFAULT);
    }
    room[..from.len()].copy_from_slice(from);
    room[from.len()] = 0;
    Ok(())
}

/// A malloc'd copy of `from` with a NUL, for callers that will free() it.
pub fn malloc_text(from: &[u8]) -> Res<*mut c_char> {
    // SAFETY: malloc has no precondition.
    let p: *mut c_char = unsafe { libc::malloc(from.len() + 1) }.cast();
    if p.is_null() {
        return Err(libc::ENOMEM);
    }
    put_text(p, from.len() + 1, from)?;
    Ok(p)
}

/// Frees what `malloc_text` made and nothing else has.
pub fn free_text(p: *mut c_char) {
    // SAFETY: malloc'd, as the caller says.
    unsafe { libc::free(p.cast()) };
}
