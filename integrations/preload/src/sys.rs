//! Bare system calls, for the few places where neither libc's function (it may be hooked) nor another will do.

use core::arch::asm;
use std::os::fd::{FromRawFd, OwnedFd};

/// One system call; the kernel's raw answer (negative errno on failure).
#[cfg(target_arch = "x86_64")]
pub fn call(number: i64, a: [usize; 6]) -> isize {
    let answer: isize;
    // SAFETY: the x86-64 system call convention; rcx and r11 are clobbered. What the call does with its arguments is
    // what the kernel says: callers here pass plain numbers or memory they own.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => answer, in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5], lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    answer
}

/// One system call; the kernel's raw answer (negative errno on failure).
#[cfg(target_arch = "aarch64")]
pub fn call(number: i64, a: [usize; 6]) -> isize {
    let answer: isize;
    // SAFETY: the AArch64 system call convention; see the x86-64 variant.
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a[0] as isize => answer, in("x1") a[1], in("x2") a[2],
            in("x3") a[3], in("x4") a[4], in("x5") a[5], options(nostack));
    }
    answer
}

/// As a result: the value, or the errno.
pub fn checked(number: i64, args: [usize; 6]) -> Result<usize, i32> {
    let answer = call(number, args);
    if (-4095..0).contains(&answer) { Err(-answer as i32) } else { Ok(answer as usize) }
}

/// write(2), result ignored.
pub fn write(fd: i32, bytes: &[u8]) {
    call(libc::SYS_write, [fd as usize, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0]);
}

/// nanosleep(2) of less than a second. EINTR: a caught signal ended it.
pub fn pause(time: std::time::Duration) -> Result<(), i32> {
    let wanted = libc::timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
    match checked(libc::SYS_nanosleep, [&raw const wanted as usize, 0, 0, 0, 0, 0]) {
        Err(libc::EINTR) => Err(libc::EINTR),
        _ => Ok(()),
    }
}

/// open(2) of a path that ends in NUL, with O_CLOEXEC and O_NOFOLLOW.
pub fn open(path: &std::ffi::CStr, flags: i32) -> Result<OwnedFd, i32> {
    let flags = flags | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    let at = [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags as usize, 0, 0, 0];
    let fd = checked(libc::SYS_openat, at)?;
    // SAFETY: the descriptor just made, which nothing else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// close(2).
pub fn close(fd: i32) -> Result<(), i32> {
    checked(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]).map(drop)
}

/// dup at the lowest free number from `least` on.
pub fn dup_from(fd: i32, least: i32, cloexec: bool) -> Result<i32, i32> {
    let command = if cloexec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    checked(libc::SYS_fcntl, [fd as usize, command as usize, least as usize, 0, 0, 0]).map(|n| n as i32)
}

/// readlinkat(2) of a path that ends in NUL.
pub fn readlink(path: &std::ffi::CStr, room: &mut [u8]) -> Result<usize, i32> {
    let (path, at) = (path.as_ptr() as usize, libc::AT_FDCWD as usize);
    checked(libc::SYS_readlinkat, [at, path, room.as_mut_ptr() as usize, room.len(), 0, 0])
}

/// Bytes at the start of a file whose path ends in NUL, as many as there is room for; 0 when it cannot be read.
pub fn read_file(path: &std::ffi::CStr, room: &mut [u8]) -> usize {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let at = [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags as usize, 0, 0, 0];
    let Ok(fd) = checked(libc::SYS_openat, at) else { return 0 };
    let n = checked(libc::SYS_read, [fd, room.as_mut_ptr() as usize, room.len(), 0, 0, 0]);
    let _ = close(fd as i32);
    n.unwrap_or(0)
}

/// chdir(2).
pub fn chdir(path: &std::ffi::CStr) -> Result<(), i32> {
    checked(libc::SYS_chdir, [path.as_ptr() as usize, 0, 0, 0, 0, 0]).map(drop)
}

/// The kernel's working directory.
pub fn getcwd(room: &mut [u8]) -> Result<&[u8], i32> {
    let n = checked(libc::SYS_getcwd, [room.as_mut_ptr() as usize, room.len(), 0, 0, 0, 0])?;
    Ok(&room[..n.saturating_sub(1)])
}

/// What `/proc/self/fd/N` points to.
pub fn fd_target(fd: i32, room: &mut [u8]) -> Result<&[u8], i32> {
    let mut name = [0u8; 32];
    let head = b"/proc/self/fd/";
    name[..head.len()].copy_from_slice(head);
    let mut digits = [0u8; 10];
    let (mut n, mut left) = (0, fd.max(0) as u32);
    loop {
        digits[n] = b'0' + (left % 10) as u8;
        (n, left) = (n + 1, left / 10);
        if left == 0 {
            break;
        }
    }
    for i in 0..n {
        name[head.len() + i] = digits[n - 1 - i];
    }
    let path = std::ffi::CStr::from_bytes_until_nul(&name).map_err(|_| libc::EBADF)?;
    let got = readlink(path, room)?;
    Ok(&room[..got])
}
