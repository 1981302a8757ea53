//! Files of the device that the kernel takes over, through the mount, for what only the kernel can do: shared mappings,
//! io_uring, Linux's asynchronous I/O, splice.
//!
//! **A mapped file** has pages in the kernel that the device has not seen. The mount lists it on a board that every
//! process of the run looks at (`weldfs_ciscops::mapped`); while it is listed, whoever reads or writes its bytes does
//! so through a file of the kernel's own, opened beside the descriptor, and finds what the mapping holds. Descriptor,
//! offset, flags, locks and attributes stay the device's.
//!
//! **A program that uses rings** puts numbers of descriptors where no hook sees them. From the moment it sets one up,
//! its files are opened at the mount, under the same numbers, and those that are open become the kernel's.
//!
//! The kernel finds an open file by a name in the mount's root, `.weldfs-fd-N`: the file behind this process's
//! descriptor N. So one without a name is found, too, and permission is not asked for twice.

use crate::abi::Res;
use crate::table::{self, Gone, Open, Promotion};
use crate::{config, device, mount, report, stdio, sys};
use libc::c_int;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use weldfs::kept;
use weldfs_ciscops::flags::{OpenFlags, Whence};
use weldfs_ciscops::mapped::BoardView;
use weldfs_ciscops::{At, Handle};

/// The board of the run's mount.
static BOARD: OnceLock<Option<BoardView>> = OnceLock::new();
/// Whether this program has a ring.
static RINGS: AtomicBool = AtomicBool::new(false);
/// Status flags that a file of the kernel's takes over from the descriptor.
const STATUS: c_int = libc::O_ACCMODE | libc::O_APPEND | libc::O_DIRECT | libc::O_SYNC | libc::O_DSYNC;
/// The library's own descriptors are from here on, as far as there are numbers.
const HIGH: c_int = weldfs::FD_HIGH;

/// Finds the board, when this process comes to the device.
pub fn begin() {
    BOARD.get_or_init(|| {
        let config = config::get().filter(|_| mount::at_prefix())?;
        let path = std::ffi::CString::new(&config.board.as_ref()?[..]).ok()?;
        let fd = open_raw(&path, libc::O_RDONLY).ok()?;
        BoardView::open(fd.as_fd()).ok()
    });
}

fn board() -> Option<&'static BoardView> {
    BOARD.get()?.as_ref()
}

fn open_raw(path: &std::ffi::CStr, flags: c_int) -> Res<OwnedFd> {
    let flags = flags | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    let at = [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags as usize, 0, 0, 0];
    let fd = sys::checked(libc::SYS_openat, at)?;
    // SAFETY: the descriptor just made, which nothing else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
}

/// The kernel's own file of what a descriptor of ours stands for. ENODEV: there is no mount, or it does not know it.
fn kernel_file(fd: c_int, name: &str, flags: c_int) -> Res<OwnedFd> {
    board().ok_or(libc::ENODEV)?;
    let path = mount::kernel_name(format!("/{name}{fd}").as_bytes()).ok_or(libc::ENODEV)?;
    let file = open_raw(&path, flags).map_err(|code| match code {
        libc::ENOENT | libc::ENOTCONN => libc::ENODEV,
        code => code,
    })?;
    let handle = device::handle(fd).ok_or(libc::EBADF)??;
    let wanted = device::on(|d| d.stat(handle))?.ino;
    if is_file(raw(&file), wanted) { Ok(file) } else { Err(libc::ENODEV) }
}

fn raw(fd: &OwnedFd) -> c_int {
    use std::os::fd::AsRawFd;
    fd.as_raw_fd()
}

/// Whether a descriptor is the mount's file of that number.
fn is_file(fd: c_int, ino: u64) -> bool {
    let mut st: libc::stat = crate::abi::zeroed();
    let asked = sys::checked(libc::SYS_fstat, [fd as usize, &raw mut st as usize, 0, 0, 0, 0]);
    asked.is_ok() && st.st_ino == ino && st.st_dev == mount::st_dev(0)
}

fn status_of(open: &Open) -> c_int {
    OpenFlags::from_bits_truncate(open.flags.load(Ordering::Relaxed) as u16).to_linux() & STATUS
}

/// A file to be mapped shared: for the length of one mmap.
pub fn to_map(fd: c_int) -> Res<OwnedFd> {
    let open = table::entry(fd).ok_or(libc::EBADF)?;
    // What is written back of a mapping goes to its offset, whatever the descriptor does.
    kernel_file(fd, ".weldfs-map-", status_of(open) & libc::O_ACCMODE)
}

/// The kernel's file to use for the bytes of a descriptor of ours, where the file is mapped by anyone. EIO, and a line:
/// it is, and cannot be opened.
#[inline]
pub fn mapped(fd: c_int) -> Res<Option<c_int>> {
    let Some(board) = board() else { return Ok(None) };
    let Some(open) = table::entry(fd) else { return Ok(None) };
    if open.kernel.stamp.load(Ordering::Acquire) == board.stamp() && !open.kernel.mapped.load(Ordering::Relaxed) {
        return Ok(None);
    }
    look(board, fd, open)
}

#[cold]
fn look(board: &BoardView, fd: c_int, open: &Open) -> Res<Option<c_int>> {
    let known = &open.kernel;
    let found = board.look(|| inode(fd, known))?;
    known.mapped.store(found.mapped, Ordering::Relaxed);
    known.stamp.store(found.stamp, Ordering::Release);
    if !found.mapped {
        return Ok(None);
    }
    let ino = inode(fd, known)?;
    let there = known.file.load(Ordering::Acquire);
    // The program may have closed every number there is.
    if there >= 0 && is_file(there, ino) {
        return Ok(Some(there));
    }
    let file = kernel_file(fd, ".weldfs-fd-", status_of(open)).and_then(|file| sys::dup_from(raw(&file), HIGH, true));
    let file = file.map_err(|_| {
        report::warn(&["a file that another program has mapped cannot be reached through the mount"]);
        libc::EIO
    })?;
    match known.file.compare_exchange(there, file, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            kept::keep(file);
            Ok(Some(file))
        }
        Err(other) => {
            let _ = sys::close(file);
            Ok(Some(other))
        }
    }
}

fn inode(fd: c_int, known: &Promotion) -> Res<u64> {
    match known.ino.load(Ordering::Relaxed) {
        0 => {
            let handle = device::handle(fd).ok_or(libc::EBADF)??;
            let ino = device::on(|d| d.stat(handle))?.ino;
            known.ino.store(ino, Ordering::Relaxed);
            Ok(ino)
        }
        ino => Ok(ino),
    }
}

/// What a descriptor's last duplicate leaves behind is closed, unless the number is another file's by now.
pub fn forget(known: &Promotion) {
    let ino = known.ino.load(Ordering::Relaxed);
    let file = known.reset();
    if file >= 0 && is_file(file, ino) {
        kept::release(file);
        let _ = sys::close(file);
    }
}

/// A transfer through the kernel's file, where the device's command would be at `at`; the offset stays the device's.
/// `go` is told an offset.
pub fn transfer(h: Handle, at: At, append: bool, go: impl FnOnce(u64) -> Res<usize>) -> Res<usize> {
    let from = match at {
        At::Offset(off) => off,
        At::Current => device::on(|d| d.seek(h, Whence::Cur, 0))?,
        At::End => device::on(|d| d.stat(h))?.size,
    };
    let done = go(from)?;
    if at == At::Current && done > 0 {
        let (whence, to) = if append { (Whence::End, 0) } else { (Whence::Set, (from + done as u64) as i64) };
        device::on(|d| d.seek(h, whence, to))?;
    }
    Ok(done)
}

/// The flags of a descriptor changed: its file of the kernel's has the same.
pub fn follow_flags(fd: c_int) {
    let Some(open) = table::entry(fd) else { return };
    let file = open.kernel.file.load(Ordering::Acquire);
    if file >= 0 && is_file(file, open.kernel.ino.load(Ordering::Relaxed)) {
        let _ =
            sys::checked(libc::SYS_fcntl, [file as usize, libc::F_SETFL as usize, status_of(open) as usize, 0, 0, 0]);
    }
}

/// A file's size changed by a name of it, or by opening it: the kernel looks at it, and lets go of pages beyond its
/// end before they are written back. Names that lead nowhere are nobody's pages.
pub fn resized(name: Option<&[u8]>) {
    if board().is_some_and(BoardView::any)
        && let Some(path) = name.and_then(mount::kernel_name)
    {
        let mut st: libc::stat = crate::abi::zeroed();
        let at = [libc::AT_FDCWD as usize, path.as_ptr() as usize, &raw mut st as usize, 0, 0, 0];
        let _ = sys::checked(libc::SYS_newfstatat, at);
    }
}

/// The program sets up a ring: from here on its files are the kernel's. Without a mount nothing changes.
pub fn rings() {
    if config::get().is_none() {
        return;
    }
    begin();
    if board().is_none() || RINGS.swap(true, Ordering::SeqCst) {
        return;
    }
    let mut open = Vec::new();
    table::each(0, u32::MAX, |fd| open.push(fd));
    for fd in open {
        let _ = hand_over(fd);
    }
}

/// A file was opened: the kernel's, in a program with a ring.
pub fn opened(fd: c_int) {
    if RINGS.load(Ordering::Relaxed) {
        let _ = hand_over(fd);
    }
}

/// Makes a descriptor, and its duplicates in this process, the kernel's own, under the same numbers. What is no regular
/// file stays ours, and so does a file through which locks were taken: they would not go with it (EBUSY).
pub fn hand_over(fd: c_int) -> Res<()> {
    let open = table::entry(fd).ok_or(libc::EBADF)?;
    if open.kernel.locked.load(Ordering::Relaxed) {
        return Err(libc::EBUSY);
    }
    let handle = device::handle(fd).ok_or(libc::EBADF)??;
    let file = kernel_file(fd, ".weldfs-fd-", status_of(open))?;
    let at = device::on(|d| d.seek(handle, Whence::Cur, 0))?;
    sys::checked(libc::SYS_lseek, [raw(&file) as usize, at as usize, libc::SEEK_SET as usize, 0, 0, 0])?;
    let mut same = Vec::new();
    table::each(0, u32::MAX, |other| {
        if table::entry(other).is_some_and(|entry| std::ptr::eq(entry, open)) {
            same.push(other);
        }
    });
    for number in same {
        let flags = sys::checked(libc::SYS_fcntl, [number as usize, libc::F_GETFD as usize, 0, 0, 0, 0])?;
        let cloexec = if flags & libc::FD_CLOEXEC as usize != 0 { libc::O_CLOEXEC } else { 0 };
        sys::checked(libc::SYS_dup3, [raw(&file) as usize, number as usize, cloexec as usize, 0, 0, 0])?;
        if let Gone::Last(handle) = table::remove(number) {
            let _ = device::on(|d| d.close(handle));
        }
        stdio::number_taken(number);
    }
    report::promoted();
    Ok(())
}
