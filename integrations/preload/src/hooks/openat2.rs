//! openat2(2), which programs call by its number: open with limits on how the name may be resolved. The device has no
//! such limits, so the name is walked here, a component at a time from directory to directory by their handles; what
//! others rename meanwhile cannot lead the walk out of where it may go.

use crate::abi::{self, Res};
use crate::names::{Place, locate};
use crate::{config, cwd, device, path, promote, stdio, table};
use libc::{c_char, c_int};
use weldfs_ciscops::Handle;
use weldfs_ciscops::bodies::StatBody;
use weldfs_ciscops::flags::OpenFlags;

/// `struct open_how`, of the size that Linux 5.6 gave it.
#[repr(C)]
#[derive(Clone, Copy)]
struct How {
    flags: u64,
    mode: u64,
    resolve: u64,
}

const NO_XDEV: u64 = 0x01;
const NO_MAGICLINKS: u64 = 0x02;
const NO_SYMLINKS: u64 = 0x04;
const BENEATH: u64 = 0x08;
const IN_ROOT: u64 = 0x10;
const CACHED: u64 = 0x20;
const RESOLVE: u64 = NO_XDEV | NO_MAGICLINKS | NO_SYMLINKS | BENEATH | IN_ROOT | CACHED;
/// Largest structure that the kernel looks at.
const PAGE: usize = 4096;
const LINKS_MAX: usize = 40;
/// Every flag of open(2) that there is.
const FLAGS: c_int = libc::O_ACCMODE
    | libc::O_CREAT
    | libc::O_EXCL
    | libc::O_NOCTTY
    | libc::O_TRUNC
    | libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_SYNC
    | libc::O_ASYNC
    | libc::O_DIRECT
    | libc::O_LARGEFILE
    | 0o100_000
    | libc::O_DIRECTORY
    | libc::O_NOFOLLOW
    | libc::O_NOATIME
    | libc::O_CLOEXEC
    | libc::O_PATH
    | libc::O_TMPFILE;

/// Reads and checks the structure as the kernel does.
fn how(at: usize, size: usize) -> Res<(c_int, u32, u64)> {
    if size < size_of::<How>() {
        return Err(libc::EINVAL);
    }
    if size > PAGE {
        return Err(libc::E2BIG);
    }
    let bytes = abi::all_bytes(at as *const _, size)?;
    if bytes[size_of::<How>()..].iter().any(|b| *b != 0) {
        return Err(libc::E2BIG);
    }
    let how: How = abi::get(at as *const How)?;
    let flags = c_int::try_from(how.flags).map_err(|_| libc::EINVAL)?;
    let both = BENEATH | IN_ROOT;
    if flags & !FLAGS != 0 || how.resolve & !RESOLVE != 0 || how.resolve & both == both {
        return Err(libc::EINVAL);
    }
    let makes = flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE;
    if how.mode & !0o7777 != 0 || (how.mode != 0 && !makes) {
        return Err(libc::EINVAL);
    }
    let beside_path = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_PATH | libc::O_CLOEXEC;
    if flags & libc::O_PATH != 0 && flags & !beside_path != 0 {
        return Err(libc::EINVAL);
    }
    if how.resolve & CACHED != 0 && (makes || flags & libc::O_TRUNC != 0) {
        return Err(libc::EAGAIN);
    }
    Ok((flags, how.mode as u32, how.resolve))
}

/// Directories from the start of a walk to where it is.
struct Walk<'a> {
    /// Where it began: opened by the caller of this module.
    base: Handle,
    below: Vec<Handle>,
    resolve: u64,
    prefix: &'a [u8],
}

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        self.back_to_base();
    }
}

const STEP: OpenFlags = OpenFlags::PATH.union(OpenFlags::NOFOLLOW);

impl Walk<'_> {
    fn here(&self) -> Handle {
        self.below.last().copied().unwrap_or(self.base)
    }

    fn back_to_base(&mut self) {
        for h in self.below.drain(..) {
            let _ = device::on(|d| d.close(h));
        }
    }

    fn step(&mut self, name: &[u8]) -> Res<StatBody> {
        let here = self.here();
        let h = device::on(|d| d.openat(here, name, STEP, 0, 0))?.handle;
        self.below.push(h);
        device::on(|d| d.stat(h))
    }

    fn pop(&mut self) {
        if let Some(h) = self.below.pop() {
            let _ = device::on(|d| d.close(h));
        }
    }

    fn up(&mut self) -> Res<()> {
        if !self.below.is_empty() && self.resolve & (BENEATH | IN_ROOT) != 0 {
            self.pop();
            return Ok(());
        }
        match self.resolve & (BENEATH | IN_ROOT) {
            IN_ROOT => return Ok(()),
            BENEATH => return Err(libc::EXDEV),
            _ => {}
        }
        let here = self.here();
        let (me, root) = device::on(|d| Ok((d.stat(here)?.ino, d.stat(Handle::ROOT)?.ino)))?;
        // The host is another file system, as it is above any mount.
        if me == root { Err(libc::EXDEV) } else { self.step(b"..").map(drop) }
    }

    /// What is left to walk after a link to an absolute name.
    fn absolute(&mut self, target: Vec<u8>) -> Res<Vec<u8>> {
        match self.resolve & (BENEATH | IN_ROOT) {
            BENEATH => return Err(libc::EXDEV),
            IN_ROOT => {
                self.back_to_base();
                return Ok(target);
            }
            _ => {}
        }
        let inner = path::inside(self.prefix, &target).ok_or(libc::EXDEV)?.into_owned();
        self.back_to_base();
        self.base = Handle::ROOT;
        Ok(inner)
    }

    /// Walks to the directory that holds the last component, and returns that. Links are followed, the last one only
    /// if `follow`.
    fn last(&mut self, name: &[u8], follow: bool) -> Res<Vec<u8>> {
        let (mut rest, mut links) = (name.to_vec(), 0);
        loop {
            let start = rest.iter().position(|b| *b != b'/').unwrap_or(rest.len());
            let end = rest[start..].iter().position(|b| *b == b'/').map_or(rest.len(), |n| start + n);
            let (part, after) = (rest[start..end].to_vec(), rest[end..].to_vec());
            let is_last = after.iter().all(|b| *b == b'/');
            match &part[..] {
                b"" => return Ok(b".".to_vec()),
                b"." if is_last => return Ok(part),
                b"." => {
                    rest = after;
                    continue;
                }
                b".." => {
                    self.up()?;
                    if is_last {
                        return Ok(b".".to_vec());
                    }
                    rest = after;
                    continue;
                }
                _ => {}
            }
            let here = self.here();
            let body = match self.step(&part) {
                Err(libc::ENOENT) if is_last => return Ok([&part[..], &after[..after.len().min(1)]].concat()),
                body => body?,
            };
            if body.mode & libc::S_IFMT != libc::S_IFLNK {
                if is_last {
                    self.pop();
                    return Ok([&part[..], &after[..after.len().min(1)]].concat());
                }
                rest = after;
                continue;
            }
            self.pop();
            if is_last && after.is_empty() && !follow {
                return Ok(part);
            }
            links += 1;
            if links > LINKS_MAX || self.resolve & NO_SYMLINKS != 0 {
                return Err(libc::ELOOP);
            }
            let mut room = [0u8; libc::PATH_MAX as usize];
            let n = device::on(|d| d.readlinkat(here, &part, &mut room))?;
            rest = [&room[..n], &after].concat();
            if rest.first() == Some(&b'/') {
                rest = self.absolute(rest)?;
            }
        }
    }
}

/// A directory, a name below it to begin at, and the name to walk from there.
type Start<'n> = (Handle, Vec<u8>, &'n [u8]);

/// Where a walk begins, and what it walks; `None`: on the host.
fn start(dirfd: c_int, name: &[u8], resolve: u64) -> Res<Option<Start<'_>>> {
    let whole = name.first() == Some(&b'/') && resolve & IN_ROOT == 0;
    if dirfd != libc::AT_FDCWD && !whole {
        return match device::handle(dirfd) {
            Some(handle) => Ok(Some((handle?, Vec::new(), name))),
            None => Ok(None),
        };
    }
    if !whole {
        return Ok(cwd::inside().map(|here| (Handle::ROOT, here, name)));
    }
    let Some(config) = config::get() else { return Ok(None) };
    match path::inside(&config.prefix, name) {
        None => Ok(None),
        Some(_) if resolve & BENEATH != 0 => Err(libc::EXDEV),
        Some(inner) => Ok(Some((Handle::ROOT, inner.into_owned(), b""))),
    }
}

fn open(walk: &mut Walk<'_>, name: &[u8], flags: c_int, mode: u32) -> Res<c_int> {
    crate::atomic::make();
    let fresh = libc::O_CREAT | libc::O_EXCL;
    let follow = flags & libc::O_NOFOLLOW == 0 && flags & fresh != fresh;
    let last = walk.last(name, follow)?;
    let here = walk.here();
    let fd = super::open::open_cut(flags | libc::O_NOFOLLOW, |flags| device::open(here, &last, flags, mode, b""))?;
    if flags & libc::O_NOFOLLOW == 0
        && let Some(open) = table::entry(fd)
    {
        // F_GETFL tells the flags that were asked for.
        open.flags.fetch_and(!u32::from(OpenFlags::NOFOLLOW.bits()), std::sync::atomic::Ordering::Relaxed);
    }
    stdio::number_taken(fd);
    promote::opened(fd);
    Ok(fd)
}

/// openat2 as syscall(2) has it. `None`: the name is the host's, and the kernel answers.
pub fn openat2(dirfd: c_int, name: *const c_char, at: usize, size: usize) -> Option<Res<c_int>> {
    let config = config::get()?;
    let text = abi::text(name).ok()?;
    let (flags, mode, resolve) = match how(at, size) {
        Ok(how) => how,
        // The kernel finds the same.
        Err(_) => return None,
    };
    if resolve & !(NO_MAGICLINKS | CACHED) == 0 {
        return match locate(dirfd, text) {
            Ok(Place::Host) => None,
            Ok(_) => {
                let fd = super::open::openat64(dirfd, name, flags, mode);
                Some(if fd < 0 { Err(abi::errno()) } else { Ok(fd) })
            }
            Err(code) => Some(Err(code)),
        };
    }
    let (base, here, rest) = match start(dirfd, text, resolve) {
        Ok(found) => found?,
        Err(code) => return Some(Err(code)),
    };
    let go = || -> Res<c_int> {
        if text.is_empty() {
            return Err(libc::ENOENT);
        }
        if text.len() >= libc::PATH_MAX as usize {
            return Err(libc::ENAMETOOLONG);
        }
        let mut walk = Walk { base, below: Vec::new(), resolve, prefix: &config.prefix };
        if !here.is_empty() && !rest.is_empty() {
            // The walk is bound to the working directory, not to the way there.
            let h = device::on(|d| d.openat(Handle::ROOT, &here, OpenFlags::PATH, 0, 0))?.handle;
            walk.base = h;
            let answer = open(&mut walk, rest, flags, mode);
            let _ = device::on(|d| d.close(h));
            return answer;
        }
        let name = if rest.is_empty() { &here[..] } else { rest };
        open(&mut walk, name, flags, mode)
    };
    Some(go())
}
