//! What is taken away from a kernel's process before foreign code runs in it.
//!
//! In this order: it dies with the card's thread that started it; it cannot gain privileges; its memory is bounded,
//! it writes no file and leaves no core; every descriptor but its socket is closed; it has no capability but to read
//! files and, by Landlock, no way into another process; and seccomp allows a short list of system calls. There are two
//! filters: while the shared object is loaded, files may be opened for reading and mapped to be executed; from then on
//! neither, and what is still open then is closed, so that the kernel can compute, allocate, tell the time, answer, and
//! end.

use landlock::{ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, Scope};
use rustix::fs::FileType;
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
use rustix::thread::CapabilitySet;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Address space of a kernel's process beside the memory that its manifest says it needs, bytes.
const ADDRESS_BYTES: u64 = 4 << 30;
/// Descriptors that it may have: its socket, the null device, and what loading opens for a moment.
const DESCRIPTORS: u64 = 16;

/// All bits of an argument of 32.
const WHOLE: u64 = u32::MAX as u64;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn other(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

/// Closes every descriptor from `from` on.
pub fn close_from(from: u32) -> io::Result<()> {
    // SAFETY: the caller's process has begun just now and uses none of them: what is closed was inherited.
    match unsafe { libc::close_range(from, u32::MAX, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Bounds the process. `dram_bytes` is the memory that the manifest says the kernel needs; `files` allows it to write
/// files, for a waveform.
pub fn bound(dram_bytes: u64, files: bool) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::thread::set_no_new_privs(true)?;
    let limit = |n: u64| Rlimit { current: Some(n), maximum: Some(n) };
    setrlimit(Resource::Core, limit(0))?;
    setrlimit(Resource::Nofile, limit(DESCRIPTORS))?;
    setrlimit(Resource::As, limit(ADDRESS_BYTES.saturating_add(dram_bytes)))?;
    if !files {
        setrlimit(Resource::Fsize, limit(0))?;
    }
    Ok(())
}

/// Takes away what leads into other processes, the device's own above all, whose user this process is: by `/proc`
/// their memory is a file. Linux asks for the capabilities of the one that is looked into, and Landlock for a domain
/// that holds both; with neither (a device without capabilities, a kernel without Landlock) it cannot be kept from it.
pub fn isolate() -> io::Result<()> {
    let kept = CapabilitySet::DAC_READ_SEARCH;
    let mut sets = rustix::thread::capabilities(None)?;
    // Whose folder it is: the shared object may lie where only its owner reads.
    (sets.effective, sets.permitted) = (sets.effective & kept, sets.permitted & kept);
    sets.inheritable = CapabilitySet::empty();
    rustix::thread::set_capabilities(None, sets)?;
    let domain = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    let domain = domain.handle_access(AccessFs::from_write(ABI::V1)).map_err(other)?;
    let domain = domain.scope(Scope::from_all(ABI::V6)).map_err(other)?;
    domain.create().and_then(|d| d.restrict_self()).map_err(other)?;
    Ok(())
}

/// Closes what was opened while the shared object was loaded. An error: what was open before is not what it was.
pub fn close_but(socket: BorrowedFd<'_>) -> io::Result<()> {
    let at = u32::try_from(socket.as_raw_fd()).map_err(io::Error::other)?;
    close_from(at + 1)?;
    let is_null = |fd| match rustix::fs::fstat(fd) {
        Ok(stat) => stat.st_rdev == rustix::fs::makedev(1, 3),
        Err(_) => true,
    };
    let standard = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    let is_socket = FileType::from_raw_mode(rustix::fs::fstat(socket)?.st_mode) == FileType::Socket;
    match is_socket && standard.into_iter().all(is_null) {
        true => Ok(()),
        false => Err(io::Error::other("descriptors were exchanged")),
    }
}

/// A rule for calls whose argument, masked, has a value.
fn masked(argument: u8, mask: u64, value: u64) -> io::Result<Vec<SeccompRule>> {
    let operator = SeccompCmpOp::MaskedEq(mask);
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value).map_err(other)?;
    Ok(vec![SeccompRule::new(vec![condition]).map_err(other)?])
}

/// Calls that are allowed to the end.
const ALWAYS: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_lseek,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_sigaltstack,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Calls that loading needs besides.
const LOADING: &[i64] = &[
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_pread64,
    libc::SYS_faccessat,
    libc::SYS_readlinkat,
    libc::SYS_getcwd,
    libc::SYS_sysinfo,
    libc::SYS_sched_getaffinity,
    libc::SYS_uname,
    libc::SYS_seccomp,
    libc::SYS_close_range,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
];

/// `Errno`, not `Kill`: a library that asks for more than it needs, as whether its output is a terminal, goes on.
fn apply(rules: Rules) -> io::Result<()> {
    let arch = std::env::consts::ARCH.try_into().map_err(other)?;
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, refuse, SeccompAction::Allow, arch).map_err(other)?;
    let program: BpfProgram = filter.try_into().map_err(other)?;
    seccompiler::apply_filter(&program).map_err(other)
}

/// Calls that are allowed to the end: those of the list, and a signal to the process itself, which `abort` is.
fn always() -> io::Result<Rules> {
    let mut rules: Rules = ALWAYS.iter().map(|call| (*call, Vec::new())).collect();
    let own = rustix::process::getpid().as_raw_nonzero().get();
    rules.insert(libc::SYS_tgkill, masked(0, WHOLE, own as u64)?);
    Ok(rules)
}

/// Before the shared object is loaded. `files` allows files to be written, too.
pub fn confine_loading(files: bool) -> io::Result<()> {
    let mut rules = always()?;
    rules.extend(LOADING.iter().map(|call| (*call, Vec::new())));
    // Reading takes nothing away: without these flags a file is made, or cut off, though it is opened to be read.
    let flags = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC;
    rules.insert(libc::SYS_openat, if files { Vec::new() } else { masked(2, flags as u64, libc::O_RDONLY as u64)? });
    // The limits of this process only, and what the next filter needs: it dies with the card whatever it does.
    rules.insert(libc::SYS_prlimit64, masked(0, WHOLE, 0)?);
    rules.insert(libc::SYS_prctl, masked(0, WHOLE, libc::PR_SET_NO_NEW_PRIVS as u64)?);
    apply(rules)
}

/// Once it is loaded.
pub fn confine_running() -> io::Result<()> {
    let mut rules = always()?;
    let plain = libc::PROT_EXEC as u64;
    rules.insert(libc::SYS_mmap, masked(2, plain, 0)?);
    rules.insert(libc::SYS_mprotect, masked(2, plain, 0)?);
    apply(rules)
}
