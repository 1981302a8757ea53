//! Signals for a process that only watches over another one: taken as data, and handed on to the child.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The signals that are handed on.
const SIGNALS: [libc::c_int; 8] = [
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGWINCH,
];

/// Holds back the signals of this process and of the threads it starts from now on; `wait` hands them to the child.
pub struct Relay {
    signals: OwnedFd,
}

impl Relay {
    /// To be called before other threads are started: a thread started earlier would still take the signals itself.
    pub fn install() -> io::Result<Relay> {
        // SAFETY: a local set, filled before it is used; the descriptor is new and ours.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in SIGNALS {
                libc::sigaddset(&raw mut set, signal);
            }
            match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) {
                0 => {}
                code => return Err(io::Error::from_raw_os_error(code)),
            }
            let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Relay { signals: OwnedFd::from_raw_fd(fd) })
        }
    }

    /// Starts the child with no signal held back.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        // SAFETY: between fork and exec only async-signal-safe functions are called, on a set of its own stack.
        unsafe {
            command.pre_exec(|| {
                let mut none: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&raw mut none);
                libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
                Ok(())
            });
        }
        command.spawn()
    }

    /// Waits for the child's end; meanwhile signals sent to this process go to the child. Those of the terminal are
    /// not repeated: it sends them to the whole group.
    pub fn wait(&self, child: &mut Child) -> io::Result<ExitStatus> {
        let pid = Pid::from_child(child);
        let ended = pidfd_open(pid, PidfdFlags::empty())?;
        loop {
            let mut fds = [PollFd::new(&ended, PollFlags::IN), PollFd::new(&self.signals, PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            let (over, signalled) = (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
            if over {
                return child.wait();
            }
            while let Some(signal) = signalled.then(|| self.next()).flatten() {
                // SAFETY: the child has not been waited for, so the number is still its own.
                unsafe { libc::kill(pid.as_raw_nonzero().get(), signal) };
            }
        }
    }

    /// The next signal that was sent to this process alone.
    fn next(&self) -> Option<libc::c_int> {
        loop {
            // SAFETY: a structure of integers, read whole from a signalfd or not at all.
            let info = unsafe {
                let mut info: libc::signalfd_siginfo = std::mem::zeroed();
                let size = size_of::<libc::signalfd_siginfo>();
                if libc::read(self.signals.as_raw_fd(), (&raw mut info).cast(), size) != size as isize {
                    return None;
                }
                info
            };
            if info.ssi_code <= 0 {
                return Some(info.ssi_signo as libc::c_int);
            }
        }
    }
}

/// The exit code that a shell would give: the program's own, or 128 and the signal that ended it.
pub fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128u8.wrapping_add(signal as u8),
        (None, None) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_reaches_the_child_and_its_end_comes_back() {
        // In a process of its own would be cleaner; the mask set here is this test thread's alone.
        let relay = Relay::install().unwrap();
        let loop_forever = "trap 'exit 7' USR1; echo ready; while :; do sleep 0.01; done";
        let sh = &mut Command::new("sh");
        let mut child = relay.spawn(sh.args(["-c", loop_forever]).stdout(std::process::Stdio::piped())).unwrap();
        let mut said = child.stdout.take().unwrap();
        let me = rustix::thread::gettid();
        std::thread::spawn(move || {
            std::io::Read::read_exact(&mut said, &mut [0; 6]).unwrap();
            // SAFETY: tgkill of a live thread of this very process, which blocks the signal.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), me.as_raw_nonzero().get(), libc::SIGUSR1) };
        });
        assert_eq!(exit_code(relay.wait(&mut child).unwrap()), 7);
    }

    #[test]
    fn exit_codes_are_a_shells() {
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(exit_code(ExitStatus::from_raw(libc::SIGTERM)), 143);
    }
}
