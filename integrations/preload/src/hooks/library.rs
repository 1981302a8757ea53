//! dlopen of a library that lies in the device: the linker is given a copy in memory, one for each state of the file,
//! so that a library that is opened twice is one library, as the linker has it for files.
//!
//! libc finds out who calls dlopen by the return address, so where the name is not the device's the call goes on to
//! libc by a jump, as if this library were not there.

use super::needed;
use crate::abi::{self, Res};
use crate::names::{Place, locate};
use crate::{config, device, mount, path, sys};
use libc::{c_char, c_int, c_long, c_void};
use std::arch::naked_asm;
use std::ffi::{CStr, CString};
use std::sync::atomic::AtomicPtr;
use weldfs_ciscops::Handle;
use weldfs_ciscops::bodies::StatBody;
use weldfs_ciscops::command::At;
use weldfs_ciscops::flags::OpenFlags;
use weldfs_locks::{Mutex, MutexGuard};

/// Copies are kept at numbers from here on, out of a program's way.
const NUMBERS: c_int = 512;
/// Bytes copied per step.
const STEP: usize = 1 << 20;

static DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static DLMOPEN: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// A copy: what it is one of, its descriptor, the inode behind that, and the name that the linker knows it by.
pub struct Copy {
    of: (u64, u64, i64, u32),
    fd: c_int,
    ino: u64,
    name: CString,
}

static COPIES: Mutex<Vec<Copy>> = Mutex::new(Vec::new());

/// This module's lock while the process forks.
pub type Held = MutexGuard<'static, Vec<Copy>>;

/// Takes this module's lock before a fork; both sides give it back after it.
pub fn before_fork() -> Held {
    COPIES.lock()
}

/// What changes when a file does.
fn state(body: &StatBody) -> (u64, u64, i64, u32) {
    (body.ino, body.size, body.ctime.sec, body.ctime.nsec)
}

fn inode(fd: c_int) -> Option<u64> {
    let mut st: libc::stat = abi::zeroed();
    let args = [fd as usize, &raw mut st as usize, 0, 0, 0, 0];
    sys::checked(libc::SYS_fstat, args).ok().map(|_| st.st_ino)
}

fn copy(h: Handle) -> Res<c_int> {
    let flags = libc::MFD_CLOEXEC as usize;
    let low = sys::checked(libc::SYS_memfd_create, [c"weldfs-library".as_ptr() as usize, flags, 0, 0, 0, 0])? as c_int;
    let fd = sys::dup_from(low, NUMBERS, true);
    let _ = sys::close(low);
    let (fd, mut room, mut off) = (fd?, vec![0u8; STEP], 0u64);
    loop {
        let put = device::on(|d| d.read(h, At::Offset(off), &mut room[..])).and_then(|n| {
            let args = [fd as usize, room.as_ptr() as usize, n, off as usize, 0, 0];
            if n > 0 && sys::checked(libc::SYS_pwrite64, args)? != n { Err(libc::ENOSPC) } else { Ok(n) }
        });
        match put {
            Ok(0) => return Ok(fd),
            Ok(n) => off += n as u64,
            Err(code) => {
                let _ = sys::close(fd);
                return Err(code);
            }
        }
    }
}

/// The name of a copy of a library in the device, made now or before.
fn name_of_copy(name: &[u8]) -> Res<CString> {
    let Place::Device(spot) = locate(libc::AT_FDCWD, name)? else { return Err(libc::ENOENT) };
    let h = device::on(|d| d.openat(spot.base, &spot.path, OpenFlags::READ, 0, 0))?.handle;
    let make = || -> Res<CString> {
        let body = device::on(|d| d.stat(h))?;
        let mut copies = COPIES.lock();
        let number = copies.len();
        if let Some(known) = copies.iter().find(|c| c.of == state(&body) && inode(c.fd) == Some(c.ino)) {
            return Ok(known.name.clone());
        }
        let fd = copy(h)?;
        // The linker knows a library by its name first, and a number may mean another file later: so each name is
        // one that was never used.
        let name = CString::new(format!("/proc/self/fd{}{fd}", "/".repeat(number + 1))).map_err(|_| libc::EINVAL)?;
        let ino = inode(fd).ok_or(libc::EBADF)?;
        copies.push(Copy { of: state(&body), fd, ino, name: name.clone() });
        Ok(name)
    };
    let made = make();
    let _ = device::on(|d| d.close(h));
    made
}

/// A name to give to the linker for `path`; as it is where the copy cannot be made: the linker says what is wrong.
fn substitute(path: *const c_char) -> Option<CString> {
    abi::text(path).and_then(name_of_copy).ok()
}

/// Whether a name is one of a file in the device that the linker does not find by itself. One without a slash is looked
/// for by the linker.
fn concerns(path: *const c_char) -> bool {
    let Some(config) = config::get() else { return false };
    let Ok(name) = abi::text(path) else { return false };
    crate::atomic::make();
    if mount::at_prefix() && (name.first() == Some(&b'/') || crate::cwd::kernel_stands_there()) {
        return false;
    }
    let near = crate::cwd::is_inside() || path::mentions(name, config.needle());
    near && name.contains(&b'/') && matches!(locate(libc::AT_FDCWD, name), Ok(Place::Device(_)))
}

type Dlopen = extern "C" fn(*const c_char, c_int) -> *mut c_void;
type Dlmopen = extern "C" fn(c_long, *const c_char, c_int) -> *mut c_void;

/// libc's dlopen.
fn real_open(name: *const c_char, flags: c_int) -> *mut c_void {
    // SAFETY: libc's function of this name and signature.
    let real: Dlopen = unsafe { std::mem::transmute(abi::next(&DLOPEN, "dlopen\0")) };
    real(name, flags)
}

/// Libraries that are open only until the one that needs them is.
struct Neighbours(Vec<*mut c_void>);

impl Drop for Neighbours {
    fn drop(&mut self) {
        for handle in self.0.drain(..) {
            // SAFETY: a handle that dlopen gave, closed once.
            unsafe { libc::dlclose(handle) };
        }
    }
}

/// Libraries opened one for the other, at most; a circle of them ends.
const DEPTH: usize = 16;

/// Opens what the library needs and has beside it (`$ORIGIN`): the linker, which looks for that beside the copy, knows
/// them then by the names that they have.
fn neighbours(path: &[u8], copy: &CStr, depth: usize) -> Neighbours {
    let mut open = Neighbours(Vec::new());
    let (origin, _, _) = path::split_last(path);
    let fd = COPIES.lock().iter().find(|known| known.name.as_c_str() == copy).map(|known| known.fd);
    let Some(needed) = fd.and_then(needed::of).filter(|_| depth < DEPTH) else { return open };
    let folders: Vec<_> = needed.folders.iter().filter_map(|folder| needed::placed(folder, origin)).collect();
    for name in needed.names.iter().filter(|name| !name.contains(&b'/')) {
        let found = folders.iter().find_map(|folder| {
            let full = path::join(folder, name);
            Some((name_of_copy(&full).ok()?, full))
        });
        if let Some((copy, full)) = found {
            let _deeper = neighbours(&full, &copy, depth + 1);
            let handle = real_open(copy.as_ptr(), libc::RTLD_LAZY);
            if !handle.is_null() {
                open.0.push(handle);
            }
        }
    }
    open
}

/// Opens a library of the device by `open(name)`.
fn with_copy(path: *const c_char, open: impl FnOnce(*const c_char) -> *mut c_void) -> *mut c_void {
    match (substitute(path), abi::text(path)) {
        (Some(copy), Ok(path)) => {
            let _open_meanwhile = neighbours(path, &copy, 0);
            open(copy.as_ptr())
        }
        _ => open(path),
    }
}

extern "C" fn open_copy(path: *const c_char, flags: c_int) -> *mut c_void {
    with_copy(path, |name| real_open(name, flags))
}

extern "C" fn open_copy_in(space: c_long, path: *const c_char, flags: c_int) -> *mut c_void {
    // SAFETY: as above.
    let real: Dlmopen = unsafe { std::mem::transmute(abi::next(&DLMOPEN, "dlmopen\0")) };
    with_copy(path, |name| real(space, name, flags))
}

/// Where dlopen's call goes.
extern "C" fn choose(path: *const c_char) -> *const c_void {
    if concerns(path) { open_copy as Dlopen as *const c_void } else { abi::next(&DLOPEN, "dlopen\0") }
}

/// Where dlmopen's call goes.
extern "C" fn choose_in(_: c_long, path: *const c_char) -> *const c_void {
    if concerns(path) { open_copy_in as Dlmopen as *const c_void } else { abi::next(&DLMOPEN, "dlmopen\0") }
}

/// Defines an exported function that goes on, with its arguments and its caller's return address, where `target` says.
macro_rules! jump {
    ($($(#[$attr:meta])* $name:ident => $target:path;)+) => {$(
        $(#[$attr])*
        #[cfg(target_arch = "x86_64")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub extern "C" fn $name() -> *mut c_void {
            naked_asm!(
                "endbr64",
                "push rdi", "push rsi", "push rdx",
                "call {target}",
                "pop rdx", "pop rsi", "pop rdi",
                "jmp rax",
                target = sym $target,
            )
        }

        $(#[$attr])*
        #[cfg(target_arch = "aarch64")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub extern "C" fn $name() -> *mut c_void {
            naked_asm!(
                "stp x29, x30, [sp, #-48]!", "stp x0, x1, [sp, #16]", "str x2, [sp, #32]",
                "bl {target}",
                "mov x16, x0",
                "ldr x2, [sp, #32]", "ldp x0, x1, [sp, #16]", "ldp x29, x30, [sp], #48",
                "br x16",
                target = sym $target,
            )
        }
    )+};
}

jump! {
    /// dlopen(3).
    dlopen => choose;
    /// dlmopen(3).
    dlmopen => choose_in;
}
