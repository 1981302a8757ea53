//! The one way to the device: a client attached at first need, and the errno of whatever goes wrong.

use crate::abi::Res;
use crate::{config, counts, report, sys, table};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use weldfs::{AttachOptions, Client, ClientOptions, Placeholder, Raw, SocketConnector};
use weldfs_ciscops::flags::OpenFlags;
use weldfs_ciscops::{Errno, Handle};
use weldfs_locks::{Mutex, MutexGuard};

static CLIENT: OnceLock<Client> = OnceLock::new();
static ATTACH: Mutex<()> = Mutex::new(());
/// A placeholder fetched for an open that then failed, kept for the next one.
static STASH: Mutex<Option<Placeholder>> = Mutex::new(None);
/// The process's umask as last set through us, or `UMASK_UNKNOWN`.
static UMASK: AtomicU32 = AtomicU32::new(UMASK_UNKNOWN);
const UMASK_UNKNOWN: u32 = u32::MAX;

/// The client; attaches on first use. ENODEV when no device serves.
fn client() -> Res<&'static Client> {
    if let Some(client) = CLIENT.get() {
        return Ok(client);
    }
    attach()
}

/// What a variable of the environment says, if it is there; where that means nothing, a line says so, and why.
fn setting<T>(
    text: Option<&[u8]>,
    parse: impl Fn(&str) -> Option<T>,
    (name, wrong, code): (&str, &str, i32),
) -> Res<Option<T>> {
    let Some(text) = text else { return Ok(None) };
    let value = std::str::from_utf8(text).ok().and_then(parse);
    value.map(Some).ok_or_else(|| {
        report::warn(&[name, wrong]);
        code
    })
}

#[cold]
fn attach() -> Res<&'static Client> {
    let config = config::get().ok_or(libc::ENODEV)?;
    let _one = ATTACH.lock();
    if let Some(client) = CLIENT.get() {
        return Ok(client);
    }
    use std::os::unix::ffi::OsStrExt;
    let socket = std::path::Path::new(std::ffi::OsStr::from_bytes(&config.socket));
    let wrong = (weldfs::TOKEN_VARIABLE, " is not a token of 32 hexadecimal digits", libc::EACCES);
    let token = setting(config.token.as_deref(), |t| t.parse().ok(), wrong)?;
    let wrong = (weldfs::WAIT_VARIABLE, " must be seconds, 0 to 86400", libc::EINVAL);
    let wait = setting(config.wait.as_deref(), |t| weldfs::parse_wait(t).ok(), wrong)?;
    let wrong = (weldfs::DEVICE_USER_VARIABLE, " must be a user's number", libc::EINVAL);
    let user = setting(config.user.as_deref(), |t| weldfs::parse_device_user(t).ok(), wrong)?;
    let attach = AttachOptions { prefix: config.prefix.to_vec(), token, wait, ..AttachOptions::default() };
    let options = ClientOptions { attach, umask: Some(0), ..ClientOptions::default() };
    match Client::with_options(Arc::new(SocketConnector::new(socket).run_by(user)), options) {
        Ok(client) => {
            crate::board::begin();
            Ok(CLIENT.get_or_init(|| client))
        }
        Err(e) => {
            let code = e.raw_os_error().unwrap_or(libc::EIO);
            let late = code == libc::ETIMEDOUT;
            let what = if late { "no answer in time (WELDFS_WAIT) from the device at " } else { "no device at " };
            report::warn(&[what, std::str::from_utf8(&config.socket).unwrap_or("WELDFS_SOCKET")]);
            Err(if matches!(code, libc::ENOENT | libc::ECONNREFUSED) { libc::ENODEV } else { code })
        }
    }
}

/// Runs one call of the raw layer.
pub fn on<T>(call: impl FnOnce(Raw<'static>) -> Result<T, Errno>) -> Res<T> {
    counts::served();
    call(client()?.raw()).map_err(|e| e.0)
}

/// The handle behind a descriptor of ours; `None` for the kernel's own.
#[inline]
pub fn handle(fd: i32) -> Option<Res<Handle>> {
    let found = table::handle(fd, claim);
    if found.is_some() {
        counts::served();
    }
    found
}

/// Takes over the open file that an inherited descriptor stands for.
fn claim(fd: i32) -> Res<(Handle, u32)> {
    // SAFETY: the descriptor is in the table, hence open in this process, for the length of this call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    on(|raw| raw.claim(borrowed)).map(|c| (c.handle, u32::from(c.flags.bits())))
}

/// Opens and returns the descriptor that stands for the file: the lowest free number, as POSIX asks. `name` is
/// remembered with it.
pub fn open(base: Handle, path: &[u8], oflags: i32, mode: u32, name: &[u8]) -> Res<i32> {
    let stashed = STASH.lock().take();
    let stand_in = stashed.map_or_else(|| on(|raw| raw.placeholder()), Ok)?;
    let flags = OpenFlags::from_linux(oflags);
    let mode = if flags.intersects(OpenFlags::CREATE | OpenFlags::TMPFILE) { mode & !umask() } else { 0 };
    let opened = match on(|raw| raw.openat(base, path, flags, mode, stand_in.id)) {
        Ok(opened) => opened,
        Err(code) => {
            // One that takes a number of the program's is not kept.
            if stand_in.fd.as_raw_fd() >= weldfs::FD_HIGH {
                *STASH.lock() = Some(stand_in);
            }
            return Err(code);
        }
    };
    let stands = stand_in.into_fd().into_raw_fd();
    let cloexec = oflags & libc::O_CLOEXEC != 0;
    let fd = if stands < weldfs::FD_HIGH {
        // The process may have so few descriptors that none is out of the way: this is the lowest free one already.
        sys::set_cloexec(stands, cloexec).map(|()| stands)
    } else {
        let fd = sys::dup_from(stands, 0, cloexec);
        let _ = sys::close(stands);
        fd
    };
    let noted = fd.and_then(|fd| table::insert(fd, Some((opened.handle, u32::from(flags.bits()))), name).map(|()| fd));
    if let (Err(_), Ok(fd)) = (&noted, fd) {
        let _ = sys::close(fd);
    }
    if noted.is_err() {
        let _ = on(|raw| raw.close(opened.handle));
    }
    noted
}

/// The umask. The kernel tells it only by changing it, so it is asked once and then followed through our hook.
pub fn umask() -> u32 {
    let known = UMASK.load(Ordering::Relaxed);
    if known != UMASK_UNKNOWN {
        return known;
    }
    let now = sys::call(libc::SYS_umask, [0o077, 0, 0, 0, 0, 0]) as u32;
    sys::call(libc::SYS_umask, [now as usize, 0, 0, 0, 0, 0]);
    UMASK.store(now, Ordering::Relaxed);
    now
}

/// Notes a change of the umask.
pub fn set_umask(mask: u32) {
    UMASK.store(mask & 0o777, Ordering::Relaxed);
}

/// This module's locks while the process forks.
pub type Held = (MutexGuard<'static, ()>, MutexGuard<'static, Option<Placeholder>>);

/// Takes this module's locks before a fork; `after_fork` gives them back on both sides.
pub fn before_fork() -> Held {
    (ATTACH.lock(), STASH.lock())
}

/// See `before_fork`. The child also drops what belongs to its parent's session.
pub fn after_fork((attach, mut stash): Held, child: bool) {
    if child {
        drop(stash.take());
    }
    drop((stash, attach));
    if child && let Some(client) = CLIENT.get() {
        client.let_go_after_fork();
    }
}
