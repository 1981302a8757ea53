//! Files of the device that the kernel takes over, through the mount, for what only the kernel can do: shared mappings,
//! io_uring, Linux's asynchronous I/O, splice.
//!
//! **A mapped file** has pages in the kernel that the device has not seen. The mount lists it in a registry that every
//! process of the run looks at (`weldfs_ciscops::mapped`); while it is listed, whoever reads or writes its bytes does
//! so through a file of the kernel's own, opened beside the descriptor, and finds what the mapping holds. Descriptor,
//! offset, flags, locks and attributes stay the device's.
//!
//! **A program that uses rings** puts numbers of descriptors where no hook sees them. From the moment it sets one up,
//! its files are opened at the mount, under the same numbers, and those that are open become the kernel's. They count
//! as mapped for as long, since the kernel may keep pages of them.
//!
//! The kernel finds an open file by a name in the mount's root, `.weldfs-fd-N`: the file behind this process's
//! descriptor N. So one without a name is found, too, and permission is not asked for twice.

use crate::abi::Res;
use crate::registry::{self, registry};
use crate::table::{self, Gone, Open};
use crate::{atomic, config, device, mount, promotion, report, stdio, sys};
use libc::c_int;
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weldfs::kept;
use weldfs_ciscops::flags::{OpenFlags, Whence};
use weldfs_ciscops::mapped::{self, RegistryView};
use weldfs_ciscops::{At, Handle};
use weldfs_locks::{Mutex, MutexGuard};

/// Whether this program has a ring.
static RINGS: AtomicBool = AtomicBool::new(false);
/// Handles of files that were handed over, which other threads may be about to use, the oldest first.
static RETIRED: Mutex<VecDeque<Handle>> = Mutex::new(VecDeque::new());
const RETIRED_MAX: usize = 64;
/// Status flags that a file of the kernel's takes over from the descriptor.
const STATUS: c_int = libc::O_ACCMODE | libc::O_APPEND | libc::O_DIRECT | libc::O_SYNC | libc::O_DSYNC | libc::O_PATH;
/// How often it is asked whether a mapping may begin, or is not about to; and how long is waited in between.
const TRIES: u32 = 5000;
const PAUSE_FIRST: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(1);
const FILE: &str = ".weldfs-fd-";
const MAPPING: &str = ".weldfs-map-";
const HOLD: &str = ".weldfs-hold-";

/// The kernel's own file of what a descriptor of ours stands for, if that still is the file of `handle`. ENODEV: there
/// is no mount, or it does not know it.
fn kernel_file(fd: c_int, handle: Handle, name: &str, flags: c_int) -> Res<(OwnedFd, u64)> {
    registry().ok_or(libc::ENODEV)?;
    // The mount finds the file by its placeholder.
    device::share_one(fd)?;
    let path = mount::kernel_name(format!("/{name}{fd}").as_bytes()).ok_or(libc::ENODEV)?;
    let file = sys::open(&path, flags).map_err(|code| match code {
        libc::ENOENT | libc::ENOTCONN | libc::ESTALE => libc::ENODEV,
        code => code,
    })?;
    let ino = inode(handle)?;
    if is_file(file.as_raw_fd(), ino) { Ok((file, ino)) } else { Err(libc::ENODEV) }
}

/// The same, once it is not EAGAIN any more: a mapping of the file is about to begin, or a write holds it off. EAGAIN:
/// that went on for seconds.
fn kernel_file_in_turn(fd: c_int, handle: Handle, name: &str, flags: c_int) -> Res<(OwnedFd, u64)> {
    let mut pause = PAUSE_FIRST;
    for _ in 0..TRIES {
        match kernel_file(fd, handle, name, flags) {
            Err(libc::EAGAIN) => {}
            opened => return opened,
        }
        // Whether a signal came meanwhile makes no difference: neither mmap(2) nor such a write is interrupted.
        let _ = sys::pause(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
    Err(libc::EAGAIN)
}

/// The same, which counts as mapped as long as it is open.
fn mapping(fd: c_int, handle: Handle, flags: c_int) -> Res<OwnedFd> {
    let (file, ino) = kernel_file_in_turn(fd, handle, MAPPING, flags)?;
    // Opened and looked at (`kernel_file`): the kernel has dropped the pages that it had, and drops none any more.
    sys::checked(libc::SYS_ioctl, [file.as_raw_fd() as usize, mapped::BEGINS as usize, 0, 0, 0, 0])
        .map_err(|_| libc::ENODEV)?;
    let listed = registry().is_some_and(|registry| registry.look(|| Ok::<_, ()>(ino)).is_ok_and(|found| found.mapped));
    if listed { Ok(file) } else { Err(libc::ENODEV) }
}

fn inode(handle: Handle) -> Res<u64> {
    Ok(device::on(|d| d.stat(handle))?.ino)
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
    let handle = device::handle(fd).ok_or(libc::EBADF)??;
    // What is written back of a mapping goes to its offset, whatever the descriptor does.
    mapping(fd, handle, status_of(open) & libc::O_ACCMODE)
}

/// Whether any file is mapped. A process that has not come to the device yet does so for this.
pub fn any() -> bool {
    config::get().is_some() && mount::at_prefix() && device::is_there() && registry::any()
}

/// The kernel's file to use for the bytes of a descriptor of ours, where the file is mapped by anyone. EIO, and a line:
/// it is, and the mount does not hand it over.
#[inline]
pub fn mapped(fd: c_int) -> Res<Option<c_int>> {
    Ok(found(fd)?.map(|(file, _)| file))
}

/// The same; and whether it is only about to be mapped.
#[inline]
pub fn found(fd: c_int) -> Res<Option<(c_int, bool)>> {
    let Some(registry) = registry() else { return Ok(None) };
    let Some(open) = table::entry(fd) else { return Ok(None) };
    if open.kernel.is_unmapped(registry.stamp()) {
        return Ok(None);
    }
    look(registry, fd, open)
}

#[cold]
fn look(registry: &RegistryView, fd: c_int, open: &Open) -> Res<Option<(c_int, bool)>> {
    let known = &open.kernel;
    let life = known.life();
    let handle = open.claimed().ok_or(libc::EBADF)?;
    let found = registry.look(|| inode(handle))?;
    if !found.mapped {
        known.note_unmapped(life, found.stamp);
        return Ok(None);
    }
    let file = file_of(fd, open, (life, handle));
    file.map(|file| Some((file, found.begins))).map_err(|code| match code {
        libc::EMFILE | libc::ENFILE | libc::EBADF => code,
        _ => report::refuse(libc::EIO, "a file that a program has mapped, where the mount does not hand it over"),
    })
}

/// The kernel's own file beside a descriptor of ours, opened once.
fn file_of(fd: c_int, open: &Open, (life, handle): (u64, Handle)) -> Res<c_int> {
    let known = &open.kernel;
    let there = known.file(life);
    // The program may have closed every number there is.
    if let Some(file) = there
        && is_file(file, inode(handle)?)
    {
        return Ok(file);
    }
    let (file, _) = kernel_file(fd, handle, FILE, status_of(open))?;
    let file = out_of_the_way(file);
    match known.set_file(life, there, file) {
        Ok(()) => {
            there.into_iter().for_each(kept::release);
            Ok(file)
        }
        Err(other) => {
            kept::release(file);
            let _ = sys::close(file);
            // Another thread was faster; or closed the descriptor, and gave the number to another file.
            other.ok_or(libc::EBADF)
        }
    }
}

/// At a number out of the program's way, where there are any, and kept from its closing all that it does not know.
fn out_of_the_way(file: OwnedFd) -> c_int {
    let file = match sys::dup_from(file.as_raw_fd(), weldfs::FD_HIGH, true) {
        Ok(high) => high,
        Err(_) => file.into_raw_fd(),
    };
    kept::keep(file);
    file
}

/// The same for a call that only the kernel has, whether or not the file is mapped, and the offset of the device's.
/// ENODEV: there is no mount, or it does not know the file.
pub fn beside(fd: c_int) -> Res<(c_int, Handle)> {
    let open = table::entry(fd).ok_or(libc::EBADF)?;
    let handle = device::handle(fd).ok_or(libc::EBADF)??;
    let life = open.kernel.life();
    registry().ok_or(libc::ENODEV)?;
    Ok((file_of(fd, open, (life, handle))?, handle))
}

/// After bytes or size of a file were changed, with the registry's stamp from before it was asked whether that is
/// mapped (0: it was about to be): where the stamp has changed, a program may have mapped the file meanwhile, and read
/// pages as they were before; written back, they would undo the change. So it is made once more, through the kernel, by
/// a file that takes offsets as they are said, while no mapping of it begins. The change was made in any case.
#[inline]
pub fn once_more((fd, h): (c_int, Handle), before: u64, again: impl FnOnce(c_int) -> Res<()>) {
    if registry::stamp() != before {
        repeat(fd, h, again);
    }
}

#[cold]
fn repeat(fd: c_int, h: Handle, again: impl FnOnce(c_int) -> Res<()>) {
    if while_held(fd, h, again).is_err() && registry::any() {
        report::warn(&["what was written to a file that a program was just mapping may be lost to that program"]);
    }
}

/// Through a file of the kernel's while which no mapping of it begins. EBADF: the descriptor is another file's by now.
pub fn while_held<T>(fd: c_int, h: Handle, go: impl FnOnce(c_int) -> Res<T>) -> Res<T> {
    let open = table::entry(fd).filter(|open| open.claimed() == Some(h)).ok_or(libc::EBADF)?;
    // At offsets as they are said, and into the kernel's pages.
    let flags = status_of(open) & !(libc::O_APPEND | libc::O_DIRECT);
    let file = out_of_the_way(kernel_file_in_turn(fd, h, HOLD, flags)?.0);
    let done = go(file);
    kept::release(file);
    let _ = sys::close(file);
    done
}

/// As `mapped`, of a handle, through whichever descriptor of ours has it.
pub fn of_handle(handle: Handle) -> Res<Option<usize>> {
    let mut found = None;
    table::each(0, u32::MAX, |fd| {
        let has = table::entry(fd).filter(|open| status_of(open) & libc::O_PATH == 0).and_then(Open::claimed);
        if found.is_none() && has == Some(handle) {
            found = Some(fd);
        }
    });
    match found {
        Some(fd) => Ok(mapped(fd)?.map(|file| file as usize)),
        None => Ok(None),
    }
}

/// A read of `n` bytes through the kernel's file, where the device's command would be at `at`; the offset stays the
/// device's. Processes that share it read one behind the other: it is moved first, as far as the file goes, and back by
/// what was not read.
pub fn read(h: Handle, at: At, n: usize, go: impl FnOnce(u64) -> Res<usize>) -> Res<usize> {
    let At::Offset(from) = at else {
        let (now, size) = (device::on(|d| d.seek(h, Whence::Cur, 0))?, device::on(|d| d.stat(h))?.size);
        let n = size.saturating_sub(now).min(n as u64) as i64;
        let from = device::on(|d| d.seek(h, Whence::Cur, n))? - n as u64;
        let done = go(from);
        let left = n - done.as_ref().map_or(0, |done| *done as i64);
        if left != 0 {
            device::on(|d| d.seek(h, Whence::Cur, -left))?;
        }
        return done;
    };
    go(from)
}

/// The same of a write of `n` bytes, at the device's offset or where it says, of none that appends. Processes that
/// share the offset write one behind the other: it is moved first, and back by what was not written.
pub fn write(h: Handle, at: At, n: usize, go: impl FnOnce(u64) -> Res<usize>) -> Res<usize> {
    let At::Offset(to) = at else {
        let n = i64::try_from(n).map_err(|_| libc::EINVAL)?;
        let end = device::on(|d| d.seek(h, Whence::Cur, n))?;
        let done = go(end - n as u64);
        let left = n - done.as_ref().map_or(0, |done| *done as i64);
        if left != 0 {
            device::on(|d| d.seek(h, Whence::Cur, -left))?;
        }
        return done;
    };
    go(to)
}

/// The kernel's size of a file is what it saw last: it looks again.
pub fn refresh(file: c_int) {
    let mut st: libc::stat = crate::abi::zeroed();
    let _ = sys::checked(libc::SYS_fstat, [file as usize, &raw mut st as usize, 0, 0, 0, 0]);
}

/// What is written to a mapping reaches the device, where the file is mapped.
pub fn write_back(fd: c_int) -> Res<()> {
    let Some(file) = mapped(fd)? else { return Ok(()) };
    // By sync_file_range(2) Linux up to 6.15 does not wait for FUSE.
    sys::checked(libc::SYS_fdatasync, [file as usize, 0, 0, 0, 0, 0]).map(drop)
}

/// The same of every file that any program of the run has mapped.
pub fn write_all_back() {
    if !any() {
        return;
    }
    let root = mount::kernel_name(b"/").and_then(|path| sys::open(&path, libc::O_RDONLY | libc::O_DIRECTORY).ok());
    if let Some(root) = root {
        let _ = sys::checked(libc::SYS_syncfs, [root.as_raw_fd() as usize, 0, 0, 0, 0, 0]);
    }
}

/// The flags of a descriptor changed: its file of the kernel's has the same.
pub fn follow_flags(fd: c_int) {
    let Some(open) = table::entry(fd) else { return };
    if let Some(file) = open.kernel.file(open.kernel.life()) {
        let flags = status_of(open) as usize;
        let _ = sys::checked(libc::SYS_fcntl, [file as usize, libc::F_SETFL as usize, flags, 0, 0, 0]);
    }
}

/// Whether a program may set up a ring: not one that has files of the device in use which no mount makes the kernel's.
/// Each request of a ring would have EBADF then, for which programs are not ready (MariaDB asks again for ever). That
/// there are none they are ready for, and use threads then. What a program has inherited and not used (a lock of the
/// shell that started it), directories, and standard streams are no reason: it may well have a ring for something else.
///
/// # Errors
/// ENOSYS, as of a kernel without them.
pub fn may_ring() -> Res<()> {
    let mut at_stake = false;
    table::each(libc::STDERR_FILENO as u32 + 1, u32::MAX, |fd| {
        let aside = OpenFlags::PATH | OpenFlags::DIRECTORY;
        at_stake |= table::entry(fd).is_some_and(|o| o.claimed().is_some() && !o.status().intersects(aside));
    });
    if !at_stake || registry().is_some() {
        return Ok(());
    }
    Err(report::decline(libc::ENOSYS, "io_uring and Linux's asynchronous I/O in a program with files there"))
}

/// The program has set up a ring: from here on its files are the kernel's. Without a mount nothing changes.
pub fn rings() {
    // Their syncs are the kernel's, too.
    atomic::end();
    // Attached, and so the registry known, under the lock that is there for it.
    if config::get().is_none() || !device::is_there() || registry().is_none() {
        return;
    }
    if RINGS.swap(true, Ordering::SeqCst) {
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
        let saved = crate::abi::errno();
        // No other thread can have its handle yet.
        let _ = take_over(fd, |handle| {
            let _ = device::on(|d| d.close(handle));
        });
        crate::abi::set_errno(saved);
    }
}

/// Makes a descriptor, and its duplicates in this process, the kernel's own, under the same numbers. What is no regular
/// file stays ours. EBUSY: another process may share its offset, or locks were taken on the file, which would not go
/// with it.
pub fn hand_over(fd: c_int) -> Res<()> {
    take_over(fd, retire)
}

fn take_over(fd: c_int, over: impl Fn(Handle)) -> Res<()> {
    let open = table::entry(fd).ok_or(libc::EBADF)?;
    if open.kernel.births() != promotion::births() {
        return Err(libc::EBUSY);
    }
    let handle = device::handle(fd).ok_or(libc::EBADF)??;
    refuse_locked(inode(handle)?)?;
    let file = mapping(fd, handle, status_of(open))?;
    let at = device::on(|d| d.seek(handle, Whence::Cur, 0))?;
    sys::checked(libc::SYS_lseek, [file.as_raw_fd() as usize, at as usize, libc::SEEK_SET as usize, 0, 0, 0])?;
    let mut taken = Vec::new();
    {
        let _numbers = table::numbers();
        if open.claimed() != Some(handle) {
            return Err(libc::EBADF);
        }
        // Another thread may be in the middle of a call on it: it stays open.
        open.kernel.leave();
        let mut same = Vec::new();
        table::each(0, u32::MAX, |other| {
            if table::entry(other).is_some_and(|entry| std::ptr::eq(entry, open)) {
                same.push(other);
            }
        });
        for number in same {
            let flags = sys::checked(libc::SYS_fcntl, [number as usize, libc::F_GETFD as usize, 0, 0, 0, 0]);
            let cloexec = if flags.unwrap_or(0) & libc::FD_CLOEXEC as usize != 0 { libc::O_CLOEXEC } else { 0 };
            let from = file.as_raw_fd() as usize;
            if sys::checked(libc::SYS_dup3, [from, number as usize, cloexec as usize, 0, 0, 0]).is_ok() {
                taken.push((number, table::remove(number)));
            }
        }
    }
    for (number, gone) in taken {
        if let Gone::Last(last) = gone {
            over(last.handle);
        }
        stdio::number_taken(number);
    }
    report::promoted();
    Ok(())
}

/// Another thread may be about to send a command with the handle, and is answered; it is closed later.
fn retire(handle: Handle) {
    let over = {
        let mut retired = RETIRED.lock();
        retired.push_back(handle);
        if retired.len() > RETIRED_MAX { retired.pop_front() } else { None }
    };
    if let Some(handle) = over {
        let _ = device::on(|d| d.close(handle));
    }
}

/// EBUSY where this process took locks on the file through any descriptor of ours.
fn refuse_locked(ino: u64) -> Res<()> {
    let mut locked = Vec::new();
    table::each(0, u32::MAX, |fd| {
        locked.extend(table::entry(fd).filter(|open| open.kernel.locked()).and_then(Open::claimed));
    });
    let same = locked.into_iter().any(|handle| inode(handle).is_ok_and(|other| other == ino));
    if same { Err(libc::EBUSY) } else { Ok(()) }
}

/// This module's lock while the process forks.
pub type Held = MutexGuard<'static, VecDeque<Handle>>;

/// Takes it before a fork; `after_fork` gives it back on both sides.
pub fn before_fork() -> Held {
    RETIRED.lock()
}

/// See `before_fork`. The handles are the parent's.
pub fn after_fork(mut held: Held, child: bool) {
    if child {
        held.clear();
    }
    drop(held);
    promotion::born();
}
