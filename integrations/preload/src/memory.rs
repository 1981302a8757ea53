//! Whether memory that a program names is there, so that a bad pointer is EFAULT, as the kernel has it, and no crash.
//!
//! What lies on the caller's stack, in the heap below the program break, or in the program's own image needs no
//! question. For the rest the kernel is asked, page by page: a system call that must fail, after it has read or
//! written (unchanged) one word. Its yes is remembered for a while, until the program takes memory away (munmap and its
//! kin are hooks). Memory that another thread takes away in the middle of a call is that program's race, and so is
//! memory that was freed.

use crate::sys;
use libc::{c_int, c_void, size_t};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Bytes of a page, or a part of one: pages are never smaller.
const PAGE: usize = 4096;
/// No address from here on is a program's on any kernel (five levels of page tables), and none below `FIRST`.
const END: usize = 1 << 56;
const FIRST: usize = 4096;
/// Distance from a thread's stack pointer, or the main thread's, to the end of the stack: more is another stack.
const STACK_MAX: usize = 64 << 20;
/// Pages that are asked about one by one; of more, the first, the last, and whether all are mapped.
const PAGES_MAX: usize = 8;
/// Parts of the program's image that are remembered.
const PARTS: usize = 8;

/// What is to be done with memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Bytes go to the device.
    Read,
    /// Bytes come from there.
    Write,
}

/// A range of addresses that the program has as long as it runs.
struct Part {
    start: AtomicUsize,
    end: AtomicUsize,
}

impl Part {
    const fn none() -> Part {
        Part { start: AtomicUsize::new(0), end: AtomicUsize::new(0) }
    }

    fn set(&self, range: &Range<usize>) {
        self.start.store(range.start, Ordering::Relaxed);
        self.end.store(range.end, Ordering::Release);
    }

    #[inline]
    fn holds(&self, p: usize, n: usize) -> bool {
        let end = self.end.load(Ordering::Acquire);
        p >= self.start.load(Ordering::Relaxed) && p < end && n <= end - p
    }
}

/// Readable and writable parts of the program's image.
static READABLE: [Part; PARTS] = [const { Part::none() }; PARTS];
static WRITABLE: [Part; PARTS] = [const { Part::none() }; PARTS];
/// Where the heap begins (its end moves), and where the main thread's stack ends.
static HEAP: AtomicUsize = AtomicUsize::new(usize::MAX);
static STACK_END: AtomicUsize = AtomicUsize::new(0);

/// Looks at how this process is laid out; `environment` is where the main thread's stack ends (0: not known). Until
/// then every question goes to the kernel.
pub fn learn(environment: usize) {
    // SAFETY: the callback has the type that is asked for, and gets the image's own description.
    unsafe { libc::dl_iterate_phdr(Some(note_image), std::ptr::null_mut()) };
    STACK_END.store(environment, Ordering::Relaxed);
    HEAP.store(heap_end(), Ordering::Release);
}

fn heap_end() -> usize {
    // SAFETY: an increment of 0 only asks; libc keeps the answer in a variable.
    unsafe { libc::sbrk(0) as usize }
}

/// The first image that the linker names is the program.
unsafe extern "C" fn note_image(info: *mut libc::dl_phdr_info, _: size_t, _: *mut c_void) -> c_int {
    // SAFETY: the linker's description is valid during the call, with `dlpi_phnum` headers.
    let (base, headers) = unsafe {
        let info = &*info;
        (info.dlpi_addr as usize, std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)))
    };
    // What is made read-only after relocation lies at the start of a writable part.
    let fixed = headers.iter().find(|h| h.p_type == libc::PT_GNU_RELRO);
    let fixed_end = fixed.map_or(0, |h| (base + (h.p_vaddr + h.p_memsz) as usize).next_multiple_of(PAGE));
    let (mut readable, mut writable) = (READABLE.iter(), WRITABLE.iter());
    for header in headers.iter().filter(|h| h.p_type == libc::PT_LOAD) {
        let start = base + header.p_vaddr as usize;
        let range = start..start + header.p_memsz as usize;
        if header.p_flags & libc::PF_R != 0
            && let Some(part) = readable.next()
        {
            part.set(&range);
        }
        if header.p_flags & libc::PF_W != 0
            && let Some(part) = writable.next()
        {
            part.set(&(range.start.max(fixed_end)..range.end));
        }
    }
    1
}

/// Pages that were there when they were asked about.
const SEEN: usize = 256;
static PAGES_SEEN: [AtomicU64; SEEN] = [const { AtomicU64::new(0) }; SEEN];
/// Counts what may have taken memory away.
static CHANGES: AtomicU64 = AtomicU64::new(1);
/// Bits of `CHANGES` that a page is remembered with.
const CHANGE_BITS: u32 = 19;

/// The program takes memory away, or what may be done with it: nothing is known of any page any more.
pub fn changed() {
    CHANGES.fetch_add(1, Ordering::SeqCst);
}

/// A page, what may be done with it, and the number of changes before it was asked about, as one word. A page that can
/// be written to is not known to be readable, nor the other way round.
fn mark(p: usize, access: Access) -> (&'static AtomicU64, u64) {
    let page = (p / PAGE) as u64;
    let changes = CHANGES.load(Ordering::SeqCst) & ((1 << CHANGE_BITS) - 1);
    let word = page << (CHANGE_BITS + 1) | changes << 1 | u64::from(access == Access::Write);
    (&PAGES_SEEN[(page as usize ^ (page as usize >> 8)) % SEEN], word)
}

/// Whether every page of a short range was seen since memory was last taken away.
#[inline]
fn seen(p: usize, n: usize, access: Access) -> bool {
    if !(FIRST..END).contains(&p) || n > PAGES_MAX * PAGE {
        return false;
    }
    let mut at = p & !(PAGE - 1);
    while at < p + n {
        let (place, word) = mark(at, access);
        if place.load(Ordering::Relaxed) != word {
            return false;
        }
        at += PAGE;
    }
    true
}

/// Whether a range is surely there.
#[inline]
fn known(p: usize, n: usize, access: Access) -> bool {
    let mark = 0u8;
    let here = &raw const mark as usize;
    if p >= here {
        // The main thread's stack ends at the environment, any other's at the thread's own description.
        // SAFETY: no precondition.
        let own = unsafe { libc::pthread_self() } as usize;
        let main = STACK_END.load(Ordering::Relaxed);
        let end = if own > here && own - here < STACK_MAX { own } else { main };
        if end > here && end - here < STACK_MAX && p < end && n <= end - p {
            return true;
        }
    }
    let heap = HEAP.load(Ordering::Acquire);
    if p >= heap {
        let end = heap_end();
        if p < end && n <= end - p {
            return true;
        }
    }
    let image = if access == Access::Read { &READABLE } else { &WRITABLE };
    image.iter().any(|part| part.holds(p, n))
}

/// Whether the page of `p` may be accessed so.
fn page(p: usize, access: Access) -> bool {
    static WORD: AtomicU32 = AtomicU32::new(0);
    /// A `how` that rt_sigprocmask(2) does not know: it reads the set, and then fails.
    const NO_HOW: usize = 0x57_45_4c_44;
    /// FUTEX_WAKE_OP's "add 0 to the second word, and wake who waits there if it was 0": it writes what it read.
    const ADD_ZERO: usize = 1 << 28;
    const WAKE_OP: c_int = 5 | 128;
    let answer = match access {
        Access::Read => sys::call(libc::SYS_rt_sigprocmask, [NO_HOW, p & !7, 0, 8, 0, 0]),
        Access::Write => {
            let word = &raw const WORD as usize;
            sys::call(libc::SYS_futex, [word, WAKE_OP as usize, 0, 0, p & !3, ADD_ZERO])
        }
    };
    answer != -(libc::EFAULT as isize)
}

/// Whether every page of a range is mapped, whatever may be done with it. Asking for asynchronous writing does nothing
/// since Linux 2.6.19 but walk the range.
fn mapped(p: usize, n: usize) -> bool {
    let start = p & !(PAGE - 1);
    let answer = sys::call(libc::SYS_msync, [start, p + n - start, libc::MS_ASYNC as usize, 0, 0, 0]);
    answer != -(libc::ENOMEM as isize)
}

/// Whether a range could be a program's at all; else the kernel refuses it before it looks at anything.
#[inline]
pub fn is_range(p: *const c_void, n: usize) -> bool {
    (p as usize).checked_add(n).is_some_and(|end| end <= END)
}

/// How many of the `n` bytes at `p`, from the first on, may be accessed.
#[inline]
pub fn reach(p: *const c_void, n: usize, access: Access) -> usize {
    if n == 0 || known(p as usize, n, access) || seen(p as usize, n, access) { n } else { ask(p as usize, n, access) }
}

#[cold]
fn ask(p: usize, n: usize, access: Access) -> usize {
    if !(FIRST..END).contains(&p) {
        return 0;
    }
    let n = n.min(END - p);
    let last = p + n - 1;
    if last / PAGE - p / PAGE >= PAGES_MAX && mapped(p, n) && page(p, access) && page(last, access) {
        return n;
    }
    let mut at = p;
    while at <= last {
        // Before the question: a change in between makes the answer an old one.
        let (place, word) = mark(at, access);
        if !page(at, access) {
            return at - p;
        }
        place.store(word, Ordering::Relaxed);
        at = (at & !(PAGE - 1)) + PAGE;
    }
    n
}

/// Bytes of the text at `p` before its NUL; `None` when it runs into memory that is not there.
#[inline]
pub fn text_len(p: *const libc::c_char) -> Option<usize> {
    let mut len = 0;
    loop {
        let at = p.wrapping_add(len);
        let step = PAGE - (at as usize & (PAGE - 1));
        if reach(at.cast(), 1, Access::Read) == 0 {
            return None;
        }
        // SAFETY: a byte of this page may be read, so all of them may, and no further ones are looked at.
        let found = unsafe { libc::memchr(at.cast(), 0, step) };
        if !found.is_null() {
            return Some(found as usize - p as usize);
        }
        len += step;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `n` pages of fresh memory, of which those after the first `good` are taken away again.
    fn pages(n: usize, good: usize, prot: c_int) -> *mut c_void {
        // SAFETY: fresh memory of this test's own.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let p = libc::mmap(std::ptr::null_mut(), n * PAGE, prot, flags, -1, 0);
            assert_ne!(p, libc::MAP_FAILED);
            assert!(good == n || libc::munmap(p.byte_add(good * PAGE), (n - good) * PAGE) == 0);
            p
        }
    }

    #[test]
    fn memory_that_is_not_there_is_told_without_a_crash() {
        let both = libc::PROT_READ | libc::PROT_WRITE;
        for p in [0usize, 1, 4095, usize::MAX, 1 << 62, END] {
            assert_eq!(reach(p as *const c_void, 10, Access::Read), 0, "{p:#x}");
        }
        for (n, good) in [(2, 1), (40, 39), (40, 20), (20, 1)] {
            let p = pages(n, good, both);
            let start = p.wrapping_byte_add(100);
            for access in [Access::Read, Access::Write] {
                assert_eq!(reach(start, 10, access), 10);
                assert_eq!(reach(start, n * PAGE - 100, access), good * PAGE - 100, "{n} {good} {access:?}");
            }
        }
        let fixed = pages(1, 1, libc::PROT_READ);
        assert_eq!((reach(fixed, 9, Access::Read), reach(fixed, 9, Access::Write)), (9, 0));
        let closed = pages(1, 1, libc::PROT_NONE);
        assert_eq!((reach(closed, 9, Access::Read), reach(closed, 9, Access::Write)), (0, 0));
    }

    #[test]
    fn asking_changes_nothing_and_what_is_known_needs_no_question() {
        let p = pages(3, 3, libc::PROT_READ | libc::PROT_WRITE).cast::<u8>();
        // SAFETY: three pages of this test's own.
        unsafe {
            std::slice::from_raw_parts_mut(p, 3 * PAGE).fill(0xa5);
            assert_eq!(ask(p as usize, 3 * PAGE, Access::Write), 3 * PAGE);
            assert!(std::slice::from_raw_parts(p, 3 * PAGE).iter().all(|b| *b == 0xa5));
        }
        learn(0);
        static mut WORD: u64 = 1;
        let local = 5u64;
        assert!(known(&raw const local as usize, 8, Access::Write), "this thread's stack");
        assert!(known(&raw const WORD as usize, 8, Access::Write), "a variable");
        assert!(known(c"literal".as_ptr() as usize, 7, Access::Read));
        assert!(!known(c"literal".as_ptr() as usize, 7, Access::Write), "a constant");
        assert!(!known(p as usize, 1, Access::Read));
    }

    #[test]
    fn a_page_that_was_seen_is_asked_about_again_after_memory_was_taken_away() {
        let p = pages(2, 2, libc::PROT_READ | libc::PROT_WRITE);
        let at = p as usize + 100;
        assert!(!seen(at, 10, Access::Read));
        assert_eq!(reach(at as *const c_void, 5000, Access::Read), 5000);
        assert!(seen(at, 5000, Access::Read) && !seen(at, 10, Access::Write));
        // SAFETY: this test's own memory, which nothing uses any more.
        assert_eq!(unsafe { libc::munmap(p, PAGE) }, 0);
        changed();
        assert!(!seen(at, 10, Access::Read));
        assert_eq!(reach(at as *const c_void, 10, Access::Read), 0);
        assert!(!seen(at, 10, Access::Read), "a no is not remembered");
    }

    #[test]
    fn a_text_ends_at_its_nul_or_where_memory_does() {
        let p = pages(2, 1, libc::PROT_READ | libc::PROT_WRITE).cast::<libc::c_char>();
        let near_end = p.wrapping_add(PAGE - 4);
        // SAFETY: the last bytes of a page of this test's own.
        unsafe {
            std::slice::from_raw_parts_mut(near_end, 4).fill(b'x' as _);
            assert_eq!(text_len(near_end), None);
            near_end.add(3).write(0);
        }
        assert_eq!(text_len(near_end), Some(3));
        assert_eq!(text_len(std::ptr::null()), None);
        assert_eq!(text_len(c"".as_ptr()), Some(0));
    }
}
