//! SIGBUS on a mapped medium (its file was cut short, the device below failed) becomes a poisoned medium.
//!
//! The handler does only what is safe in a signal: it looks through a fixed table of atomics, maps a zero page over the
//! page that failed, and sets a flag; the interrupted access then goes on and the medium reports the failure. A fault
//! anywhere else goes to whoever handled SIGBUS before.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Mappings that can be registered at once.
const SLOTS: usize = 64;

struct Slot {
    taken: AtomicBool,
    /// 0 while the slot is being filled or emptied.
    base: AtomicUsize,
    len: AtomicUsize,
    faulted: AtomicBool,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        taken: AtomicBool::new(false),
        base: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        faulted: AtomicBool::new(false),
    }
}; SLOTS];

static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// A registered mapping; dropping it ends the registration (before the mapping goes).
pub(super) struct Guard {
    slot: &'static Slot,
}

impl Guard {
    /// Whether a page of it failed.
    pub(super) fn faulted(&self) -> bool {
        self.slot.faulted.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.slot.base.store(0, Ordering::SeqCst);
        self.slot.taken.store(false, Ordering::SeqCst);
    }
}

/// Watches `[base, base + len)`, a page-aligned mapping.
pub(super) fn register(base: usize, len: usize) -> io::Result<Guard> {
    install()?;
    for slot in &TABLE {
        if slot.taken.compare_exchange(false, true, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            slot.faulted.store(false, Ordering::SeqCst);
            slot.len.store(len, Ordering::SeqCst);
            slot.base.store(base, Ordering::SeqCst);
            return Ok(Guard { slot });
        }
    }
    Err(io::Error::other("too many mapped images in one process"))
}

fn install() -> io::Result<()> {
    static LOCK: weldfs_locks::Mutex<()> = weldfs_locks::Mutex::new(());
    let _once = LOCK.lock();
    if PREVIOUS.get().is_some() {
        return Ok(());
    }
    // SAFETY: sigaction is plain data for which all zeros is a valid value.
    let (mut new, mut old): (libc::sigaction, libc::sigaction) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    let entry: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_sigbus;
    new.sa_sigaction = entry as usize;
    new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: first asks, then sets; both structures are valid, and the previous action is kept before ours can run.
    unsafe {
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut old) != 0 {
            return Err(io::Error::last_os_error());
        }
        let _ = PREVIOUS.set(old);
        if libc::sigaction(libc::SIGBUS, &new, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo for a SIGBUS.
    let address = unsafe { (*info).si_addr() } as usize;
    for slot in &TABLE {
        let base = slot.base.load(Ordering::SeqCst);
        if base == 0 || address < base || address - base >= slot.len.load(Ordering::SeqCst) {
            continue;
        }
        let page = address & !0xFFF;
        let (prot, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
        // SAFETY: replaces one page inside a mapping that is registered, hence alive; mmap is a bare system call.
        let mapped = unsafe { libc::mmap(page as *mut libc::c_void, 4096, prot, flags, -1, 0) };
        if mapped != libc::MAP_FAILED {
            slot.faulted.store(true, Ordering::SeqCst);
            return;
        }
    }
    pass_on(signal, info, context);
}

fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS.get().filter(|p| p.sa_sigaction != libc::SIG_DFL && p.sa_sigaction != libc::SIG_IGN);
    match previous {
        Some(p) if p.sa_flags & libc::SA_SIGINFO != 0 => {
            type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            // SAFETY: an action with SA_SIGINFO holds a function of this type.
            let handler: Handler = unsafe { std::mem::transmute(p.sa_sigaction) };
            handler(signal, info, context);
        }
        Some(p) => {
            // SAFETY: an action without SA_SIGINFO that is neither default nor ignore holds a function of this type.
            let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(p.sa_sigaction) };
            handler(signal);
        }
        // SAFETY: restores the default action; the access fails again at once and ends the process as it would have.
        None => unsafe {
            libc::signal(libc::SIGBUS, libc::SIG_DFL);
        },
    }
}
