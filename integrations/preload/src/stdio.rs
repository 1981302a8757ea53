//! stdio over descriptors of ours. libc's FILE reads and writes by calls inside libc that cannot be interposed, so a
//! FILE over a device file is a custom stream (fopencookie) whose functions are our own hooks. When descriptor 0, 1
//! or 2 becomes a device file (a shell's dup2, an inherited redirection), the global `stdin`, `stdout` or `stderr` is
//! switched to such a stream, with what the old one had buffered; when it becomes a kernel file again, switched back.

use crate::abi::{self, Res};
use crate::{hooks, table};
use libc::{FILE, c_char, c_int, c_void, off64_t, size_t};
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use weldfs_locks::{Mutex, MutexGuard};

/// Bytes of a stream's buffer: each refill or flush is one command.
const BUFFER: usize = 32 << 10;

type ReadFn = unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> isize;
type WriteFn = unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> isize;
type SeekFn = unsafe extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int;
type CloseFn = unsafe extern "C" fn(*mut c_void) -> c_int;

#[repr(C)]
struct Functions {
    read: Option<ReadFn>,
    write: Option<WriteFn>,
    seek: Option<SeekFn>,
    close: Option<CloseFn>,
}

/// The first members of glibc's FILE, which its ABI has frozen.
#[repr(C)]
struct Head {
    flags: c_int,
    read_ptr: *mut c_char,
    read_end: *mut c_char,
    read_base: *mut c_char,
    write_base: *mut c_char,
    write_ptr: *mut c_char,
}

unsafe extern "C" {
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
    fn __fpurge(file: *mut FILE);
    fn __flbf(file: *mut FILE) -> c_int;
}

/// What a stream of ours stands on.
struct Cookie {
    fd: c_int,
    /// Cleared for the standard streams: closing them is done by number.
    file: AtomicPtr<FILE>,
    _buffer: Vec<u8>,
}

/// Streams of ours: FILE and descriptor.
static STREAMS: Mutex<Vec<(usize, c_int)>> = Mutex::new(Vec::new());
static ANY: AtomicBool = AtomicBool::new(false);
/// For each standard number: libc's own stream while ours stands in for it.
static ORIGINAL: [AtomicPtr<FILE>; 3] = [const { AtomicPtr::new(null_mut()) }; 3];
static STANDARD: [AtomicPtr<FILE>; 3] = [const { AtomicPtr::new(null_mut()) }; 3];
static SWITCHED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

unsafe extern "C" fn cookie_read(cookie: *mut c_void, to: *mut c_char, n: size_t) -> isize {
    // SAFETY: the cookie given to fopencookie, alive until `cookie_close`.
    let fd = unsafe { (*cookie.cast::<Cookie>()).fd };
    hooks::read(fd, to.cast(), n)
}

/// A short count means an error to libc, so the rest is tried until it fails.
unsafe extern "C" fn cookie_write(cookie: *mut c_void, from: *const c_char, n: size_t) -> isize {
    // SAFETY: as above.
    let fd = unsafe { (*cookie.cast::<Cookie>()).fd };
    let mut done = 0;
    while done < n {
        match hooks::write(fd, from.wrapping_add(done).cast(), n - done) {
            put if put > 0 => done += put as usize,
            _ if abi::errno() == libc::EINTR => {}
            _ => break,
        }
    }
    done as isize
}

unsafe extern "C" fn cookie_seek(cookie: *mut c_void, off: *mut off64_t, whence: c_int) -> c_int {
    // SAFETY: as above; libc passes a place for the offset.
    let (fd, wanted) = unsafe { ((*cookie.cast::<Cookie>()).fd, *off) };
    let at = hooks::lseek64(fd, wanted, whence);
    if at < 0 || abi::put(off, at).is_err() { -1 } else { 0 }
}

unsafe extern "C" fn cookie_close(cookie: *mut c_void) -> c_int {
    // SAFETY: made by `stream`, and libc calls this once, at the end.
    let cookie = unsafe { Box::from_raw(cookie.cast::<Cookie>()) };
    let file = cookie.file.load(Ordering::Relaxed);
    STREAMS.lock().retain(|(known, _)| *known != file as usize);
    if let Some(standard) = STANDARD.get(cookie.fd as usize)
        && standard.load(Ordering::Relaxed) == file
    {
        standard.store(null_mut(), Ordering::Relaxed);
    }
    hooks::close(cookie.fd)
}

const FUNCTIONS: Functions = Functions {
    read: Some(cookie_read),
    write: Some(cookie_write),
    seek: Some(cookie_seek),
    close: Some(cookie_close),
};

/// A stream over a descriptor of ours.
pub fn stream(fd: c_int, mode: &CStr) -> Res<*mut FILE> {
    let cookie = Cookie { fd, file: AtomicPtr::new(null_mut()), _buffer: vec![0; BUFFER] };
    let cookie = Box::into_raw(Box::new(cookie));
    // SAFETY: a live cookie with functions that know it; its buffer lives as long as the stream; `mode` is a string.
    let file = unsafe {
        let file = fopencookie(cookie.cast(), mode.as_ptr(), FUNCTIONS);
        if file.is_null() {
            drop(Box::from_raw(cookie));
            return Err(abi::errno());
        }
        (*cookie).file.store(file, Ordering::Relaxed);
        libc::setvbuf(file, (*cookie)._buffer.as_mut_ptr().cast(), libc::_IOFBF, BUFFER);
        file
    };
    STREAMS.lock().push((file as usize, fd));
    ANY.store(true, Ordering::Release);
    Ok(file)
}

/// Where members of glibc's streams lie, in bytes. The first ones are frozen by its ABI; the rest is compared with what
/// is found before anything is changed.
mod layout {
    pub const NUMBER: usize = 112;
    pub const LOCK: usize = 136;
    pub const WIDE: usize = 160;
    pub const FUNCTIONS: usize = 216;
    /// Of a custom stream: its cookie, and the program's four functions.
    pub const COOKIE: usize = 224;
    /// Of a stream that fopen or fdopen made: its lock, and what it needs for wide characters.
    pub const OWN_LOCK: usize = 224;
    pub const OWN_WIDE: usize = 240;
    pub const WIDE_BYTES: usize = 232;
    /// Custom streams have this for a descriptor.
    pub const NO_NUMBER: i32 = -2;
}

/// Reads a member of a stream.
unsafe fn member<T: Copy>(file: *mut FILE, at: usize) -> T {
    // SAFETY: the caller names a member of that type.
    unsafe { file.byte_add(at).cast::<T>().read() }
}

/// Turns a stream that libc's fopen or fdopen made into a custom one over a descriptor of ours, in its place: programs
/// keep the pointer. The descriptor is moved to the stream's own number. ENOTSUP for any other kind of stream, and for
/// a libc that lays its streams out in another way.
pub fn take_over(file: *mut FILE, fd: c_int, mode: &[u8]) -> Res<()> {
    let cookie_mode = cookie_mode(mode);
    // SAFETY: the caller's live stream, opened anew on nothing: from here on it holds no bytes and no conversion. The
    // members that are read and written are those that `layout` names, found where they are expected.
    unsafe {
        if libc::freopen(c"/dev/null".as_ptr(), cookie_mode.as_ptr(), file).is_null() {
            return Err(abi::errno());
        }
        let room = libc::malloc_usable_size(file.cast());
        let plain = member::<usize>(file, layout::LOCK) == file as usize + layout::OWN_LOCK
            && member::<usize>(file, layout::WIDE) == file as usize + layout::OWN_WIDE
            && room >= layout::OWN_WIDE + layout::WIDE_BYTES;
        let number = libc::fileno(file);
        if !plain || number < 0 || member::<c_int>(file, layout::NUMBER) != number {
            return Err(libc::ENOTSUP);
        }
        let cookie = Box::new(Cookie { fd: number, file: AtomicPtr::new(file), _buffer: vec![0; BUFFER] });
        let cookie = Box::into_raw(cookie);
        // Two models, one of which has nothing to close: libc writes the functions down in a form of its own.
        let silent = Functions { close: None, ..FUNCTIONS };
        let model = fopencookie(cookie.cast(), cookie_mode.as_ptr(), FUNCTIONS);
        let mute = fopencookie(cookie.cast(), cookie_mode.as_ptr(), silent);
        let ends = layout::COOKIE + 8;
        let known = !model.is_null() && !mute.is_null() && {
            let (a, b) = (member::<[usize; 5]>(model, layout::COOKIE), member::<[usize; 5]>(mute, layout::COOKIE));
            a[0] == cookie as usize && a[..4] == b[..4] && a[4] != b[4]
        };
        // Its lock and its wide part lie where the cookie will. They live as long as the process: libc unlocks the
        // stream after the last function of ours.
        let apart: *mut u8 = libc::calloc(1, 16 + layout::WIDE_BYTES).cast();
        let moved = if known && !apart.is_null() { hooks::dup2(fd, number) } else { -1 };
        if moved < 0 {
            if known {
                model.byte_add(ends + 24).cast::<usize>().write(member(mute, ends + 24));
                libc::fclose(model);
                libc::fclose(mute);
            }
            libc::free(apart.cast());
            drop(Box::from_raw(cookie));
            return Err(if known { abi::errno() } else { libc::ENOTSUP });
        }
        hooks::close(fd);
        std::ptr::copy_nonoverlapping(file.byte_add(layout::OWN_WIDE).cast(), apart.add(16), layout::WIDE_BYTES);
        file.byte_add(layout::LOCK).cast::<usize>().write(apart as usize);
        file.byte_add(layout::WIDE).cast::<usize>().write(apart as usize + 16);
        file.byte_add(layout::NUMBER).cast::<c_int>().write(layout::NO_NUMBER);
        file.cast::<c_int>().write(member(model, 0));
        file.byte_add(layout::FUNCTIONS).cast::<usize>().write(member(model, layout::FUNCTIONS));
        file.byte_add(layout::COOKIE).cast::<[usize; 5]>().write(member(model, layout::COOKIE));
        // The models go without a word to the cookie.
        model.byte_add(ends + 24).cast::<usize>().write(member(mute, ends + 24));
        libc::fclose(model);
        libc::fclose(mute);
        libc::setvbuf(file, (*cookie)._buffer.as_mut_ptr().cast(), libc::_IOFBF, BUFFER);
        STREAMS.lock().push((file as usize, number));
    }
    ANY.store(true, Ordering::Release);
    Ok(())
}

/// The descriptor behind a stream of ours.
pub fn descriptor(file: *mut FILE) -> Option<c_int> {
    if !ANY.load(Ordering::Acquire) {
        return None;
    }
    STREAMS.lock().iter().find(|(known, _)| *known == file as usize).map(|(_, fd)| *fd)
}

/// The standard number that a FILE serves at the moment.
pub fn standard_number(file: *mut FILE) -> Option<c_int> {
    (0..=2).find(|&fd| {
        let original = ORIGINAL[fd as usize].load(Ordering::Relaxed);
        current(fd) == file || (!original.is_null() && original == file)
    })
}

fn place(fd: c_int) -> *mut *mut FILE {
    match fd {
        0 => &raw mut stdin,
        1 => &raw mut stdout,
        _ => &raw mut stderr,
    }
}

/// The global variable's value.
pub fn current(fd: c_int) -> *mut FILE {
    // SAFETY: libc's own variables; programs may assign to them, and whoever does it while others print has the
    // same race without us.
    unsafe { place(fd).read() }
}

/// Called whenever a number may have changed its meaning: switches the standard stream if it did.
#[inline]
pub fn number_taken(fd: c_int) {
    if (0..=2).contains(&fd) && table::ours(fd) != SWITCHED[fd as usize].load(Ordering::Relaxed) {
        switch(fd);
    }
}

#[cold]
fn switch(fd: c_int) {
    let slot = fd as usize;
    let inside = table::ours(fd);
    let saved = abi::errno();
    let (from, to) = if inside {
        let old = current(fd);
        let ours = match STANDARD[slot].load(Ordering::Relaxed) {
            known if !known.is_null() => known,
            _ => match stream(fd, if fd == 0 { c"r" } else { c"w" }) {
                Ok(file) => file,
                Err(_) => crate::report::fatal(&["out of memory for a standard stream"]),
            },
        };
        STANDARD[slot].store(ours, Ordering::Relaxed);
        ORIGINAL[slot].store(old, Ordering::Relaxed);
        imitate(fd, old, ours);
        (old, ours)
    } else {
        (STANDARD[slot].load(Ordering::Relaxed), ORIGINAL[slot].load(Ordering::Relaxed))
    };
    if fd != 0 && !from.is_null() && !to.is_null() {
        carry(from, to);
    }
    if !to.is_null() {
        // SAFETY: see `current`.
        unsafe { place(fd).write(to) };
    }
    SWITCHED[slot].store(inside, Ordering::Relaxed);
    abi::set_errno(saved);
}

/// Buffering as the old stream had it: none for stderr, by line if the program asked for that.
fn imitate(fd: c_int, old: *mut FILE, new: *mut FILE) {
    // SAFETY: two live streams; no output has gone to the new one yet, or only whole flushes.
    unsafe {
        if fd == 2 {
            libc::setvbuf(new, null_mut(), libc::_IONBF, 0);
        } else if fd == 1 && !old.is_null() && __flbf(old) != 0 {
            libc::setvbuf(new, null_mut(), libc::_IOLBF, 0);
        }
    }
}

/// Output that the program has printed but not flushed follows the number to its new meaning, as POSIX has it.
fn carry(from: *mut FILE, to: *mut FILE) {
    // SAFETY: live streams of glibc, whose first members are those of `Head`; the pending bytes lie between the
    // two pointers, and are dropped from the old stream once the new one has copied them.
    unsafe {
        let head = from.cast::<Head>();
        let (base, end) = ((*head).write_base, (*head).write_ptr);
        if !base.is_null() && end > base {
            libc::fwrite(base.cast(), 1, end.offset_from(base) as usize, to);
            __fpurge(from);
        }
    }
}

/// fopen's mode: open(2)'s flags.
pub fn open_flags(mode: &[u8]) -> Res<c_int> {
    let mut flags = match mode.first() {
        Some(b'r') => libc::O_RDONLY,
        Some(b'w') => libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC,
        Some(b'a') => libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND,
        _ => return Err(libc::EINVAL),
    };
    for c in mode[1..].iter().take_while(|c| **c != b',') {
        match c {
            b'+' => flags = (flags & !libc::O_ACCMODE) | libc::O_RDWR,
            b'x' => flags |= libc::O_EXCL,
            b'e' => flags |= libc::O_CLOEXEC,
            _ => {}
        }
    }
    Ok(flags)
}

/// The mode that fopencookie understands.
pub fn cookie_mode(mode: &[u8]) -> &'static CStr {
    match (mode.first(), mode.contains(&b'+')) {
        (Some(b'r'), false) => c"r",
        (Some(b'r'), true) => c"r+",
        (Some(b'w'), false) => c"w",
        (Some(b'w'), true) => c"w+",
        (_, false) => c"a",
        (_, true) => c"a+",
    }
}

/// Writes out what every stream holds.
pub fn flush_all() {
    // SAFETY: NULL means every stream.
    unsafe { libc::fflush(null_mut()) };
}

/// This module's lock while the process forks.
pub type Held = MutexGuard<'static, Vec<(usize, c_int)>>;

/// Takes this module's lock before a fork; both sides give it back after it.
pub fn before_fork() -> Held {
    STREAMS.lock()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_of_fopen_become_flags_of_open() {
        assert_eq!(open_flags(b"r").unwrap(), libc::O_RDONLY);
        assert_eq!(open_flags(b"rb+").unwrap(), libc::O_RDWR);
        assert_eq!(open_flags(b"wxe").unwrap(), {
            libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_EXCL | libc::O_CLOEXEC
        });
        assert_eq!(open_flags(b"a+").unwrap(), libc::O_RDWR | libc::O_CREAT | libc::O_APPEND);
        assert_eq!(open_flags(b"q"), Err(libc::EINVAL));
        assert_eq!(open_flags(b""), Err(libc::EINVAL));
        assert_eq!(cookie_mode(b"rb+"), c"r+");
    }
}
