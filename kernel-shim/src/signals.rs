//! SIGHUP, SIGINT and SIGTERM as a readable descriptor.
//!
//! The first one asks for a clean end. A later SIGINT or SIGTERM ends the process at once, as its default action
//! does, if it comes a second or more after the first: a signal sent to a process and to its group arrives twice
//! (timeout(1) does that), and must not cut the clean end short. SIGHUP never does: a terminal that closes sends
//! several. A SIGHUP that was ignored when the process started (nohup) stays ignored.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// Where the handler writes; -1 while there is nowhere.
static BELL: AtomicI32 = AtomicI32::new(-1);
/// The first signal, 0 while there was none.
static FIRST: AtomicI32 = AtomicI32::new(0);
/// When it came, milliseconds of the monotonic clock; 0 while there was none.
static SINCE: AtomicU64 = AtomicU64::new(0);
/// A later signal ends the process at once if it comes so many milliseconds after the first.
const INSIST_MS: u64 = 1000;

/// What is caught.
const SIGNALS: [libc::c_int; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

fn now_ms() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one structure on this stack, and is async-signal-safe.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    (t.tv_sec as u64 * 1000 + t.tv_nsec as u64 / 1_000_000).max(1)
}

extern "C" fn on_signal(signal: libc::c_int) {
    // SAFETY: the calling thread's own errno, which the code that was interrupted may be about to read.
    let errno = unsafe { *libc::__errno_location() };
    let now = now_ms();
    match SINCE.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => FIRST.store(signal, Ordering::Relaxed),
        Err(first) if signal != libc::SIGHUP && now.saturating_sub(first) >= INSIST_MS => {
            // SAFETY: both are async-signal-safe; the signal is delivered, and ends the process, when this returns.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            }
        }
        Err(_) => {}
    }
    let fd = BELL.load(Ordering::Relaxed);
    if fd >= 0 {
        let one = 1u64.to_ne_bytes();
        // SAFETY: write(2) is async-signal-safe; the buffer is on this stack; a closed descriptor only gives EBADF.
        unsafe { libc::write(fd, one.as_ptr().cast(), one.len()) };
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Makes SIGHUP, SIGINT and SIGTERM ring an eventfd for as long as the result lives. One at a time per process.
pub struct Signals {
    bell: OwnedFd,
    before: Vec<(libc::c_int, libc::sighandler_t)>,
}

impl Signals {
    /// Installs the handlers.
    pub fn install() -> io::Result<Signals> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        FIRST.store(0, Ordering::Relaxed);
        SINCE.store(0, Ordering::Relaxed);
        BELL.store(bell.as_raw_fd(), Ordering::SeqCst);
        let handler = on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
        let caught = SIGNALS.into_iter().filter(|signal| *signal != libc::SIGHUP || !is_ignored(*signal));
        let set = |signal| {
            // SAFETY: the handler uses atomics and async-signal-safe calls only.
            (signal, unsafe { libc::signal(signal, handler) })
        };
        Ok(Signals { before: caught.map(set).collect(), bell })
    }

    /// Readable once a signal came.
    pub fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    /// The name of the first signal that came, if one did.
    pub fn first(&self) -> Option<&'static str> {
        match FIRST.load(Ordering::Relaxed) {
            libc::SIGTERM => Some("SIGTERM"),
            libc::SIGINT => Some("SIGINT"),
            libc::SIGHUP => Some("SIGHUP"),
            _ => None,
        }
    }
}

fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: asks only; the structure is on this stack and plain data.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut now) == 0 && now.sa_sigaction == libc::SIG_IGN
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for (signal, before) in &self.before {
            if *before != libc::SIG_ERR {
                // SAFETY: puts back what was installed before.
                unsafe { libc::signal(*signal, *before) };
            }
        }
        BELL.store(-1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    /// The other side: a process that has caught its signals and takes long to end.
    #[test]
    #[ignore = "started by the tests below, as a process of its own"]
    fn a_process_that_takes_long_to_end() {
        let _signals = Signals::install().unwrap();
        println!("caught");
        std::thread::sleep(Duration::from_secs(30));
    }

    fn start(shell: &str) -> Child {
        use std::io::BufRead;
        let name = "signals::tests::a_process_that_takes_long_to_end";
        let script = format!("{shell} exec \"$0\" --ignored --exact {name} --nocapture");
        let mut child = Command::new("sh")
            .args(["-c", &script])
            .arg(std::env::current_exe().unwrap())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("caught")));
        child
    }

    fn send(child: &Child, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
    }

    #[test]
    fn a_signal_that_arrives_twice_is_one_and_only_a_later_one_insists() {
        use rustix::process::Signal;
        let mut child = start("");
        let first = Instant::now();
        for signal in [Signal::TERM, Signal::TERM, Signal::INT, Signal::HUP] {
            send(&child, signal);
            std::thread::sleep(Duration::from_millis(20));
        }
        let soon = first.elapsed() < Duration::from_millis(INSIST_MS);
        assert!(!soon || child.try_wait().unwrap().is_none(), "ended by a repeated signal");
        std::thread::sleep(Duration::from_millis(INSIST_MS + 100));
        send(&child, Signal::HUP);
        std::thread::sleep(Duration::from_millis(100));
        assert!(!soon || child.try_wait().unwrap().is_none(), "ended by SIGHUP");
        send(&child, Signal::INT);
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGINT));
        assert!(first.elapsed() < Duration::from_secs(20), "at once");
    }

    #[test]
    fn an_ignored_hangup_stays_ignored() {
        let mut child = start("trap '' HUP;");
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let mask = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        let hangup = 1u64 << (libc::SIGHUP - 1);
        let term = 1u64 << (libc::SIGTERM - 1);
        assert_eq!((mask("SigIgn:") & hangup, mask("SigCgt:") & (hangup | term)), (hangup, term));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
