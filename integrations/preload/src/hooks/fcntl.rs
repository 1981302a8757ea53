//! Control: fcntl, advisory locks, ioctl.

use super::{is_path, ours, ours_or_path};
use crate::abi::{self, Res, done, fail, give, hook};
use crate::{atomic, device, merge, promote, report, sys, table};
use libc::{c_int, c_ulong, c_void, flock as Lock, off_t};
use std::sync::atomic::Ordering;
use std::time::Duration;
use weldfs_ciscops::Handle;
use weldfs_ciscops::flags::{LockKind, LockSpace, OpenFlags, Whence};

/// Waiting for a lock asks again after pauses that grow from the first to the second.
const PAUSE_FIRST: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(10);
/// How long, and how often, the end of a process is waited for whose lock is in the way.
const PAUSE_DEAD: Duration = Duration::from_micros(500);
const DEAD_TRIES: usize = 400;
/// How often for a lock of an open file, whose holder is not known: each pause is twice the one before, some 30 ms in
/// all. Where processors are busy the device learns of a process's end some scheduler ticks after its parent does.
const FILE_TRIES: u32 = 6;
/// ioctl(FICLONE) and ioctl(FICLONERANGE): one file shares another's blocks.
const FICLONE: c_ulong = 0x4004_9409;
const FICLONERANGE: c_ulong = 0x4020_940d;

/// The lock owner's number within a session: there is one, the process.
fn owner() -> u64 {
    sys::call(libc::SYS_getpid, [0; 6]) as u64
}

/// Drops every POSIX lock this process holds on a file, as closing any descriptor of it does.
pub fn drop_locks(h: Handle) {
    // Before others can have them.
    atomic::before_close(h);
    let _ = device::on(|d| d.lock_set(h, LockSpace::Process, LockKind::Unlock, 0, 0, owner()));
}

/// A `struct flock` as (first byte, length with 0 = to the end).
fn range(h: Handle, lock: &Lock) -> Res<(u64, u64)> {
    let base = match c_int::from(lock.l_whence) {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => device::on(|d| d.seek(h, Whence::Cur, 0))? as i64,
        libc::SEEK_END => device::on(|d| d.stat(h))?.size as i64,
        _ => return Err(libc::EINVAL),
    };
    let mut start = base.checked_add(lock.l_start).ok_or(libc::EOVERFLOW)?;
    let mut len = lock.l_len;
    if len < 0 {
        start = start.checked_add(len).ok_or(libc::EINVAL)?;
        len = len.checked_neg().ok_or(libc::EINVAL)?;
    }
    let start = u64::try_from(start).map_err(|_| libc::EINVAL)?;
    Ok((start, len as u64))
}

fn kind(lock: &Lock) -> Res<LockKind> {
    match c_int::from(lock.l_type) {
        libc::F_RDLCK => Ok(LockKind::Read),
        libc::F_WRLCK => Ok(LockKind::Write),
        libc::F_UNLCK => Ok(LockKind::Unlock),
        _ => Err(libc::EINVAL),
    }
}

/// Asks until no lock is in the way. The device never waits, so a waiter cannot hold up commands of others. EINTR: a
/// caught signal ends the wait, as it ends the kernel's.
fn insist(mut ask: impl FnMut() -> Res<()>) -> Res<()> {
    let mut pause = PAUSE_FIRST;
    loop {
        match ask() {
            Err(libc::EAGAIN | libc::EACCES) => {}
            answer => return answer,
        }
        sys::pause(pause)?;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn set_lock(fd: c_int, h: Handle, arg: *const Lock, space: LockSpace, wait: bool) -> Res<()> {
    let lock = abi::get(arg)?;
    let (start, len) = range(h, &lock)?;
    let kind = kind(&lock)?;
    atomic::before_lock(h);
    super::open::LOCKS_IN_USE.store(true, Ordering::Relaxed);
    merge::note_lock();
    if let Some(open) = table::entry(fd) {
        open.kernel.lock();
    }
    let ask = || device::on(|d| d.lock_set(h, space, kind, start, len, owner()));
    if wait {
        return insist(ask);
    }
    match space {
        LockSpace::Process => past_the_dead(ask, || holder_has_ended(h, kind, start, len), until_told()),
        _ => past_the_dead(ask, || true, briefly()),
    }
}

/// Asks, and again while what is in the way may be a process's that has ended: it has no locks, and the device is told
/// of its end a moment later. `may` says whether that can be; of a description's lock it cannot be known, so that is
/// waited for in any case, more briefly.
fn past_the_dead(
    mut ask: impl FnMut() -> Res<()>,
    may: impl Fn() -> bool,
    pauses: impl Iterator<Item = Duration>,
) -> Res<()> {
    let mut answer = ask();
    for length in pauses {
        // A signal ends the patience, and not the call.
        if answer != Err(libc::EAGAIN) || !may() || sys::pause(length).is_err() {
            break;
        }
        answer = ask();
    }
    answer
}

/// For a process that has surely ended.
fn until_told() -> impl Iterator<Item = Duration> {
    std::iter::repeat_n(PAUSE_DEAD, DEAD_TRIES)
}

/// For one that may have.
fn briefly() -> impl Iterator<Item = Duration> {
    (0..FILE_TRIES).map(|n| PAUSE_DEAD * (1 << n))
}

/// Whether what is in the way of a lock is a process's that is over.
fn holder_has_ended(h: Handle, kind: LockKind, start: u64, len: u64) -> bool {
    let found = device::on(|d| d.lock_get(h, LockSpace::Process, kind, start, len, owner()));
    match found {
        Ok(Some(holder)) => {
            let (process, signal) = (holder.owner as usize, 0);
            sys::checked(libc::SYS_kill, [process, signal, 0, 0, 0, 0]) == Err(libc::ESRCH)
        }
        // It went in between.
        Ok(None) => true,
        Err(_) => false,
    }
}

fn get_lock(h: Handle, arg: *mut Lock, space: LockSpace) -> Res<()> {
    let mut lock = abi::get(arg)?;
    let (start, len) = range(h, &lock)?;
    let found = device::on(|d| d.lock_get(h, space, kind(&lock).map_err(weldfs_ciscops::Errno)?, start, len, owner()))?;
    match found {
        None => lock.l_type = libc::F_UNLCK as _,
        Some(other) => {
            lock.l_type = if other.kind == LockKind::Read as u8 { libc::F_RDLCK } else { libc::F_WRLCK } as _;
            lock.l_whence = libc::SEEK_SET as _;
            (lock.l_start, lock.l_len) = (other.start as i64, other.len as i64);
            lock.l_pid = if space == LockSpace::OpenFile { -1 } else { other.owner as _ };
        }
    }
    abi::put(arg, lock)
}

/// F_GETFL: the flags as this process last saw them.
fn status(fd: c_int) -> Res<c_int> {
    let open = table::entry(fd).ok_or(libc::EBADF)?;
    let creation = OpenFlags::CREATE | OpenFlags::EXCL | OpenFlags::TRUNC | OpenFlags::NOFOLLOW;
    let flags = OpenFlags::from_bits_truncate(open.flags.load(Ordering::Relaxed) as u16);
    Ok(flags.difference(creation).to_linux() | libc::O_LARGEFILE)
}

fn set_status(fd: c_int, h: Handle, wanted: c_int) -> Res<()> {
    let open = table::entry(fd).ok_or(libc::EBADF)?;
    let wanted = OpenFlags::from_linux(wanted) & OpenFlags::SETTABLE;
    device::on(|d| d.set_flags(h, wanted))?;
    let old = OpenFlags::from_bits_truncate(open.flags.load(Ordering::Relaxed) as u16);
    let new = old.difference(OpenFlags::SETTABLE) | wanted;
    open.flags.store(u32::from(new.bits()), Ordering::Relaxed);
    promote::follow_flags(fd);
    Ok(())
}

fn control(fd: c_int, h: Handle, command: c_int, arg: usize, real: impl FnOnce() -> c_int) -> c_int {
    let lock = arg as *mut Lock;
    let of_the_number = [libc::F_GETFD, libc::F_SETFD, libc::F_DUPFD, libc::F_DUPFD_CLOEXEC, libc::F_GETFL];
    if is_path(fd) && !of_the_number.contains(&command) {
        return fail(libc::EBADF);
    }
    match command {
        libc::F_GETFD => real(),
        libc::F_SETFD => {
            let _numbers = table::numbers();
            real()
        }
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            super::open::dup_from(fd, arg as c_int, command == libc::F_DUPFD_CLOEXEC)
        }
        libc::F_GETFL => give(status(fd)),
        libc::F_SETFL => done(set_status(fd, h, arg as c_int)),
        libc::F_SETLK => done(set_lock(fd, h, lock, LockSpace::Process, false)),
        libc::F_SETLKW => done(set_lock(fd, h, lock, LockSpace::Process, true)),
        libc::F_GETLK => done(get_lock(h, lock, LockSpace::Process)),
        libc::F_OFD_SETLK => done(set_lock(fd, h, lock, LockSpace::OpenFile, false)),
        libc::F_OFD_SETLKW => done(set_lock(fd, h, lock, LockSpace::OpenFile, true)),
        libc::F_OFD_GETLK => done(get_lock(h, lock, LockSpace::OpenFile)),
        _ => fail(report::decline(libc::EINVAL, "this fcntl command")),
    }
}

fn whole_file(fd: c_int, h: Handle, operation: c_int) -> Res<()> {
    atomic::before_lock(h);
    if let Some(open) = table::entry(fd) {
        open.kernel.lock();
    }
    let kind = match operation & !libc::LOCK_NB {
        libc::LOCK_SH => LockKind::Read,
        libc::LOCK_EX => LockKind::Write,
        libc::LOCK_UN => LockKind::Unlock,
        _ => return Err(libc::EINVAL),
    };
    merge::note_lock();
    let ask = || device::on(|d| d.lock_set(h, LockSpace::Flock, kind, 0, 0, owner()));
    if operation & libc::LOCK_NB != 0 { past_the_dead(ask, || true, briefly()) } else { insist(ask) }
}

/// lockf is fcntl's lock from the current offset.
fn lockf_fd(fd: c_int, h: Handle, command: c_int, len: off_t) -> Res<()> {
    let mut lock: Lock = abi::zeroed();
    (lock.l_whence, lock.l_len) = (libc::SEEK_CUR as _, len);
    lock.l_type = if command == libc::F_ULOCK { libc::F_UNLCK } else { libc::F_WRLCK } as _;
    match command {
        libc::F_LOCK => set_lock(fd, h, &raw const lock, LockSpace::Process, true),
        libc::F_TLOCK | libc::F_ULOCK => set_lock(fd, h, &raw const lock, LockSpace::Process, false),
        libc::F_TEST => {
            get_lock(h, &raw mut lock, LockSpace::Process)?;
            if c_int::from(lock.l_type) == libc::F_UNLCK { Ok(()) } else { Err(libc::EACCES) }
        }
        _ => Err(libc::EINVAL),
    }
}

fn device_control(fd: c_int, h: Handle, request: c_ulong, arg: *mut c_void, real: impl FnOnce() -> c_int) -> c_int {
    let _ = fd;
    match request {
        // The kernel's flag on the descriptor; the placeholder has it.
        libc::FIOCLEX | libc::FIONCLEX => {
            let _numbers = table::numbers();
            real()
        }
        libc::FIONREAD => {
            let left = device::on(|d| {
                let at = d.seek(h, Whence::Cur, 0)?;
                Ok(d.stat(h)?.size.saturating_sub(at))
            });
            done(left.and_then(|n| abi::put(arg.cast::<c_int>(), n.min(c_int::MAX as u64) as c_int)))
        }
        FICLONE | FICLONERANGE => fail(report::decline(libc::EOPNOTSUPP, "FICLONE")),
        _ => fail(libc::ENOTTY),
    }
}

hook! { real;
    fn fcntl(fd: c_int, command: c_int, arg: usize) -> c_int {
        let h = ours_or_path!(fd, else host_control(command, real(fd, command, arg)));
        control(fd, h, command, arg, || real(fd, command, arg))
    }
    fn fcntl64(fd: c_int, command: c_int, arg: usize) -> c_int {
        let h = ours_or_path!(fd, else host_control(command, real(fd, command, arg)));
        control(fd, h, command, arg, || real(fd, command, arg))
    }
    fn __fcntl(fd: c_int, command: c_int, arg: usize) -> c_int {
        let h = ours_or_path!(fd, else host_control(command, real(fd, command, arg)));
        control(fd, h, command, arg, || real(fd, command, arg))
    }
    fn flock(fd: c_int, operation: c_int) -> c_int {
        let h = ours!(fd, else real(fd, operation));
        done(whole_file(fd, h, operation))
    }
    fn lockf(fd: c_int, command: c_int, len: off_t) -> c_int {
        let h = ours!(fd, else real(fd, command, len));
        done(lockf_fd(fd, h, command, len))
    }
    fn lockf64(fd: c_int, command: c_int, len: off_t) -> c_int {
        let h = ours!(fd, else real(fd, command, len));
        done(lockf_fd(fd, h, command, len))
    }
    fn ioctl(fd: c_int, request: c_ulong, arg: *mut c_void) -> c_int {
        let h = ours!(fd, else real(fd, request, arg));
        device_control(fd, h, request, arg, || real(fd, request, arg))
    }
}

/// A duplicate of a kernel file may land on one of the standard numbers.
fn host_control(command: c_int, answer: c_int) -> c_int {
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        crate::stdio::number_taken(answer);
    }
    answer
}
