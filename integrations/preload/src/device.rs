//! The one way to the device: a client attached at first need, and the errno of whatever goes wrong.

use crate::abi::Res;
use crate::patterns::{ATTRIBUTES, CLOSE, LOOK, READ, WRITE};
use crate::{config, counts, report, sys, table};
use std::cell::Cell;
use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use weldfs::{AttachOptions, Client, ClientOptions, Raw, SocketConnector, Wishes, kept};
use weldfs_ciscops::flags::{OpenFlags, Whence};
use weldfs_ciscops::{Errno, Handle};
use weldfs_locks::{Mutex, MutexGuard};

static CLIENT: OnceLock<Client> = OnceLock::new();
static ATTACH: Mutex<()> = Mutex::new(());
/// The descriptor whose duplicates stand for files that no other process knows, or -1.
static BLANK: AtomicI32 = AtomicI32::new(-1);
static BLANK_INODE: AtomicU64 = AtomicU64::new(0);
/// Held while it is made.
static MAKING: Mutex<()> = Mutex::new(());
/// Held while files are shared, so that whoever waits for it finds them shared.
static SHARING: Mutex<()> = Mutex::new(());
thread_local! {
    static HOLDS_SHARING: Cell<bool> = const { Cell::new(false) };
}
/// What a blank descriptor and a placeholder are sealed with.
const SEALS: libc::c_int = libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
/// The process that this library knows itself to be in: forked by a call that ran its handlers.
static SELF: AtomicI32 = AtomicI32::new(0);
/// Files that are shared in one message.
const SHARED_AT_ONCE: usize = 16;
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
            crate::registry::begin();
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

/// Waits until what this thread posted is over.
pub fn settle() -> Res<()> {
    client()?.settle().map_err(|e| e.0)
}

/// Whether there is a device; attaches on first use.
pub fn is_there() -> bool {
    client().is_ok()
}

/// The handle behind a descriptor of ours, for calls that need no offset of it; `None` for the kernel's own.
#[inline]
pub fn handle_alone(fd: i32) -> Option<Res<Handle>> {
    let open = table::entry(fd)?;
    counts::served();
    Some(table::handle_of(fd, open, claim))
}

/// The handle behind a descriptor of ours, whose offset the device knows then; `None` for the kernel's own.
#[inline]
pub fn handle(fd: i32) -> Option<Res<Handle>> {
    let open = table::entry(fd)?;
    let found = table::handle_of(fd, open, claim);
    counts::served();
    match found {
        Ok(h) if open.place.is_here() => Some(hand_over(open, h).map(|()| h)),
        found => Some(found),
    }
}

/// Has the device know where an open file's offset is, as long as it has this handle.
#[cold]
fn hand_over(open: &table::Open, h: Handle) -> Res<()> {
    let tell = |at| on(|raw| raw.seek(h, Whence::Set, at as i64)).map(drop);
    open.place.hand_over(|| open.claimed() == Some(h), tell)
}

/// Takes over the open file that an inherited descriptor stands for.
fn claim(fd: i32) -> Res<(Handle, u32)> {
    // SAFETY: the descriptor is in the table, hence open in this process, for the length of this call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    on(|raw| raw.claim(borrowed)).map(|c| (c.handle, u32::from(c.flags.bits())))
}

/// Opens and returns the descriptor that stands for the file: the lowest free number, as POSIX asks. `name` is
/// remembered with it.
///
/// The number is a duplicate of one blank descriptor; a placeholder of the file's own, which the device makes, takes
/// its place when another process may come to have it (`share_all`).
pub fn open(base: Handle, path: &[u8], oflags: i32, mode: u32, name: &[u8]) -> Res<i32> {
    let flags = OpenFlags::from_linux(oflags);
    let mode = if flags.intersects(OpenFlags::CREATE | OpenFlags::TMPFILE) { mode & !umask() } else { 0 };
    // The number first: where there is none, nothing is opened or made.
    let fd = blank_number(oflags & libc::O_CLOEXEC != 0)?;
    if !table::has_room_for(fd) {
        let _ = sys::close(fd);
        return Err(libc::EMFILE);
    }
    let merges = |pattern: u8| config::get().is_some_and(|config| config.merge & pattern != 0);
    let lease = flags.contains(OpenFlags::WRITE) && merges(WRITE | ATTRIBUTES | CLOSE);
    let look = merges(LOOK | CLOSE | READ) && !flags.contains(OpenFlags::PATH);
    let opened = on(|raw| raw.open_with(base, path, (flags, mode), Wishes { lease, look }));
    let noted = opened.and_then(|opened| {
        let noted = table::insert_opened(fd, &opened, u32::from(flags.bits()), name);
        let opened = opened.opened;
        noted.inspect_err(|_| {
            let _ = on(|raw| raw.close(opened.handle));
        })
    });
    match noted {
        Ok(()) => Ok(fd),
        Err(code) => {
            let _ = sys::close(fd);
            Err(code)
        }
    }
}

/// A number for a file of this process alone: as a placeholder of the device it fails every read, write and mmap, but
/// stands for nothing elsewhere.
fn blank_number(cloexec: bool) -> Res<i32> {
    let known = BLANK.load(Ordering::Acquire);
    match sys::dup_from(known, 0, cloexec) {
        Ok(fd) if inode_of(fd) == Some(BLANK_INODE.load(Ordering::Relaxed)) => return Ok(fd),
        // The program closed it by a call that is not hooked, and the number is another file's.
        Ok(fd) => drop(sys::close(fd).is_ok()),
        Err(libc::EBADF) => {}
        Err(code) => return Err(code),
    }
    sys::dup_from(make_blank(known)?, 0, cloexec)
}

/// Device and inode of a descriptor, as one number: a memfd's device is the same for all.
fn inode_of(fd: i32) -> Option<u64> {
    let mut st: libc::stat = crate::abi::zeroed();
    sys::checked(libc::SYS_fstat, [fd as usize, &raw mut st as usize, 0, 0, 0, 0]).ok()?;
    Some(st.st_ino ^ st.st_dev << 48)
}

#[cold]
fn make_blank(old: i32) -> Res<i32> {
    let _one = MAKING.lock();
    let now = BLANK.load(Ordering::Acquire);
    if now != old {
        return Ok(now);
    }
    let flags = (libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) as usize;
    let made = sys::checked(libc::SYS_memfd_create, [c"weldfs-file".as_ptr() as usize, flags, 0, 0, 0, 0])? as i32;
    let sealed = sys::checked(libc::SYS_fcntl, [made as usize, libc::F_ADD_SEALS as usize, SEALS as usize, 0, 0, 0]);
    // Write-only: a read of it is to fail, and not to find an empty file.
    let again = CString::new(format!("/proc/self/fd/{made}")).map_err(|_| libc::EINVAL)?;
    let args = [libc::AT_FDCWD as usize, again.as_ptr() as usize, (libc::O_WRONLY | libc::O_CLOEXEC) as usize, 0, 0, 0];
    let low = match sealed.and_then(|_| sys::checked(libc::SYS_openat, args)) {
        Ok(again) => {
            let _ = sys::close(made);
            again as i32
        }
        // No /proc here: then such a read does find one.
        Err(_) => made,
    };
    let fd = match sys::dup_from(low, weldfs::FD_HIGH, true) {
        Ok(high) => {
            let _ = sys::close(low);
            high
        }
        Err(_) => low,
    };
    kept::keep(fd);
    if old >= 0 {
        kept::release(old);
    }
    BLANK_INODE.store(inode_of(fd).ok_or(libc::EBADF)?, Ordering::Relaxed);
    BLANK.store(fd, Ordering::Release);
    Ok(fd)
}

/// Before another process may come to have descriptors of this one: each open file gets a placeholder of its own, by
/// which that process finds it. Costs a round trip for each sixteen files that were opened since the last time.
pub fn share_all() {
    if table::any_alone()
        && let Some(sharing) = table::Once::enter(&SHARING, &HOLDS_SHARING)
    {
        share_all_of(&sharing);
    }
}

/// Whether this is the process that it knows itself to be in, and no child that has its memory.
pub fn is_own_process() -> bool {
    SELF.load(Ordering::Relaxed) == process()
}

/// One pass: what cannot be shared (closed meanwhile, too few descriptors) is EBADF in the other process.
fn share_all_of(_: &table::Once) {
    // A child of clone(2), say, has its parent's table, and no session that knows these files.
    if table::any_alone() && SELF.load(Ordering::Relaxed) == process() {
        for some in table::alone().chunks(SHARED_AT_ONCE) {
            let _ = share(some);
        }
    }
}

/// The same of one descriptor.
pub fn share_one(fd: i32) -> Res<()> {
    if !table::is_alone(fd) {
        return Ok(());
    }
    let _one = table::Once::enter(&SHARING, &HOLDS_SHARING);
    if !table::is_alone(fd) {
        return Ok(());
    }
    let open = table::entry(fd).ok_or(libc::EBADF)?;
    share(&[(open, open.claimed().ok_or(libc::EBADF)?)])
}

fn share(open: &[(&'static table::Open, Handle)]) -> Res<()> {
    let told = open.iter().try_for_each(|(open, handle)| {
        open.end_look();
        // Closed meanwhile, or nothing can be told just now: as one that cannot be shared.
        hand_over(open, *handle).map_err(|_| Errno::BADF)
    });
    let handles: Vec<Handle> = open.iter().map(|(_, handle)| *handle).collect();
    let made = match told.and_then(|()| client().map_err(Errno)?.raw().share(&handles)) {
        Ok(made) => made,
        // One was closed meanwhile, or there are few descriptors left: half, and half.
        Err(code) if open.len() > 1 && [libc::EBADF, libc::EEXIST, libc::EMFILE].contains(&code.0) => {
            let (some, rest) = open.split_at(open.len() / 2);
            return share(some).and(share(rest));
        }
        // Not one number is free: the blank one's, till the next open.
        Err(code) if code.0 == libc::EMFILE && BLANK.load(Ordering::Relaxed) >= 0 => {
            let blank = BLANK.swap(-1, Ordering::AcqRel);
            kept::release(blank);
            let _ = sys::close(blank);
            return share(open);
        }
        Err(code) => return Err(code.0),
    };
    for ((open, handle), placeholder) in open.iter().zip(made) {
        let stands = placeholder.into_fd();
        table::share_out(open, *handle, |number| give_number(number, stands.as_raw_fd()));
    }
    Ok(())
}

/// The process by its number.
fn process() -> i32 {
    sys::call(libc::SYS_getpid, [0; 6]) as i32
}

/// Notes which process this is: when the library is loaded, and in each child of a fork.
pub fn note_process() {
    SELF.store(process(), Ordering::Relaxed);
}

/// Makes a number that stands for a file a duplicate of its placeholder; false where it is something else by now.
fn give_number(number: i32, placeholder: i32) -> bool {
    let seals = sys::checked(libc::SYS_fcntl, [number as usize, libc::F_GET_SEALS as usize, 0, 0, 0, 0]);
    if seals != Ok(SEALS as usize) {
        return false;
    }
    let flags = sys::checked(libc::SYS_fcntl, [number as usize, libc::F_GETFD as usize, 0, 0, 0, 0]).unwrap_or(0);
    let cloexec = if flags & libc::FD_CLOEXEC as usize != 0 { libc::O_CLOEXEC } else { 0 };
    // Where that fails (a number above a limit that was lowered) only the other process lacks the file.
    let _ = sys::checked(libc::SYS_dup3, [placeholder as usize, number as usize, cloexec as usize, 0, 0, 0]);
    true
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
pub type Held = (MutexGuard<'static, ()>, MutexGuard<'static, ()>);
/// The one that is taken first: what is open is shared under it.
pub type Sharing = Option<table::Once>;

/// Before a fork: the child can find what is open by its placeholders, and no more is shared until it is there.
pub fn share_before_fork() -> Sharing {
    let sharing = table::Once::enter(&SHARING, &HOLDS_SHARING);
    sharing.iter().for_each(share_all_of);
    sharing
}

/// Takes the rest, behind the table's; `after_fork` gives them back on both sides.
pub fn before_fork() -> Held {
    (MAKING.lock(), ATTACH.lock())
}

/// See `before_fork`.
pub fn after_fork(held: Held, child: bool) {
    drop(held);
    if child {
        note_process();
    }
    if child && let Some(client) = CLIENT.get() {
        client.let_go_after_fork();
    }
}
