//! From a C caller's (directory descriptor, path) to the side that serves it, and the walks that need the device.

use crate::abi::{self, Failure, Res, fail, give};
use crate::{atomic, config, counts, cwd, device, fdname, path, report, sys, table};
use libc::{c_char, c_int};
use std::borrow::Cow;
use std::ffi::CString;
use weldfs_ciscops::Handle;

/// Symbolic links followed in one walk.
const LINKS_MAX: usize = 40;

/// A name inside the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot<'a> {
    /// Where a relative path starts.
    pub base: Handle,
    /// Absolute inside the device, or relative to `base`.
    pub path: Cow<'a, [u8]>,
    /// The descriptor behind `base`, for relative paths.
    pub dirfd: Option<c_int>,
    /// It is `base` itself that is meant, and `path` is empty.
    pub itself: bool,
}

impl Spot<'_> {
    /// ENOENT for an empty name, unless it is one that means the base itself or the flags allow it.
    pub fn check_named(&self, flags: c_int) -> Res<()> {
        let nothing = self.path.is_empty() && !self.itself && flags & libc::AT_EMPTY_PATH == 0;
        if nothing { Err(libc::ENOENT) } else { Ok(()) }
    }

    /// Absolute name inside the device, not resolved; `None` when the base's own name is not known.
    pub fn absolute(&self) -> Option<Cow<'_, [u8]>> {
        match self.dirfd {
            None => Some(Cow::Borrowed(&self.path)),
            Some(fd) => Some(Cow::Owned(path::join(&directory(fd).ok()?, &self.path))),
        }
    }
}

/// Who serves a name.
#[derive(Debug)]
pub enum Place<'a> {
    /// The kernel, just as the caller said it.
    Host,
    /// The kernel, under this absolute name.
    HostAt(CString),
    /// The device.
    Device(Spot<'a>),
}

/// Finds who serves `name` seen from `dirfd`; where that is the device, it is as this process has it.
#[inline]
pub fn locate(dirfd: c_int, name: &[u8]) -> Res<Place<'_>> {
    let place = find(dirfd, name);
    if atomic::any()
        && let Ok(Place::Device(spot)) = &place
    {
        let name = if spot.path.is_empty() { Some(Cow::Borrowed(&b""[..])) } else { spot.absolute() };
        atomic::before(name.as_deref(), spot.base);
    }
    place
}

#[inline]
fn find(dirfd: c_int, name: &[u8]) -> Res<Place<'_>> {
    let Some(config) = config::get() else { return Ok(Place::Host) };
    if name.len() >= libc::PATH_MAX as usize {
        return Err(libc::ENAMETOOLONG);
    }
    if name.first() == Some(&b'/') {
        if !path::mentions(name, config.needle()) {
            return Ok(Place::Host);
        }
        return match path::inside(&config.prefix, name) {
            Some(rest) => below(b"/", rest),
            None => Ok(Place::Host),
        };
    }
    if dirfd == libc::AT_FDCWD {
        if let Some(here) = cwd::inside() {
            return if name.is_empty() { Err(libc::ENOENT) } else { below(&here, Cow::Borrowed(name)) };
        }
    } else if let Some(handle) = device::handle(dirfd) {
        return from_directory(dirfd, handle?, name);
    }
    if path::mentions(name, config.needle()) { from_host(config, dirfd, name) } else { Ok(Place::Host) }
}

/// A path inside the device seen from the directory `here` (absolute).
fn below<'a>(here: &[u8], rel: Cow<'a, [u8]>) -> Res<Place<'a>> {
    let Some(at) = path::leaves(path::depth(here), &rel) else {
        let path = if rel.first() == Some(&b'/') { rel } else { Cow::Owned(path::join(here, &rel)) };
        return Ok(Place::Device(Spot { base: Handle::ROOT, path, dirfd: None, itself: false }));
    };
    // Lexically it climbs out; symbolic links on the way may say otherwise, so the directory part is really walked.
    let start = if rel.first() == Some(&b'/') { &b"/"[..] } else { here };
    match walk(&path::join(start, &rel[..at]), true)? {
        Walked::Host(host) => elsewhere([&host[..], &rel[at..]].concat()),
        Walked::Inside(dir) => below(&dir, Cow::Owned(relative(&rel[at..]))).map(own),
    }
}

/// A path that goes on after a component that was walked.
fn relative(rest: &[u8]) -> Vec<u8> {
    let cut = rest.iter().position(|b| *b != b'/').unwrap_or(rest.len());
    if cut == rest.len() { b".".to_vec() } else { rest[cut..].to_vec() }
}

fn own(place: Place<'_>) -> Place<'static> {
    match place {
        Place::Host => Place::Host,
        Place::HostAt(p) => Place::HostAt(p),
        Place::Device(Spot { base, path, dirfd, itself }) => {
            Place::Device(Spot { base, path: Cow::Owned(path.into_owned()), dirfd, itself })
        }
    }
}

/// An absolute host name that may lead under the prefix again.
fn elsewhere(host: Vec<u8>) -> Res<Place<'static>> {
    let config = config::get().ok_or(libc::ENODEV)?;
    if let Some(rest) = path::inside(&config.prefix, &host) {
        return below(b"/", Cow::Owned(rest.into_owned())).map(own);
    }
    CString::new(host).map(Place::HostAt).map_err(|_| libc::EINVAL)
}

fn from_directory(dirfd: c_int, base: Handle, name: &[u8]) -> Res<Place<'_>> {
    if path::mentions(name, b"..") {
        let dir = directory(dirfd)?;
        if path::leaves(path::depth(&dir), name).is_some() {
            return below(&dir, Cow::Borrowed(name));
        }
    }
    Ok(Place::Device(Spot { base, path: Cow::Borrowed(name), dirfd: Some(dirfd), itself: false }))
}

/// A relative host path that mentions the prefix: the absolute form decides.
fn from_host<'a>(config: &config::Config, dirfd: c_int, name: &'a [u8]) -> Res<Place<'a>> {
    let mut room = [0u8; libc::PATH_MAX as usize];
    let here = if dirfd == libc::AT_FDCWD { sys::getcwd(&mut room) } else { sys::fd_target(dirfd, &mut room) };
    let Ok(here) = here else { return Ok(Place::Host) };
    if here.first() != Some(&b'/') {
        return Ok(Place::Host);
    }
    match path::inside(&config.prefix, &path::join(here, name)) {
        Some(rest) => below(b"/", Cow::Owned(rest.into_owned())),
        None => Ok(Place::Host),
    }
}

/// Where a walk ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Walked {
    /// At this name inside the device: absolute, without symbolic links or dots.
    Inside(Vec<u8>),
    /// Outside, at this absolute host name (not resolved any further).
    Host(Vec<u8>),
}

/// Walks an absolute path inside the device, link by link. Every component must exist.
pub fn walk(from: &[u8], follow_last: bool) -> Res<Walked> {
    let config = config::get().ok_or(libc::ENODEV)?;
    let (mut here, mut rest, mut links) = (Vec::new(), from.to_vec(), 0);
    let mut target = [0u8; libc::PATH_MAX as usize];
    loop {
        let Some(start) = rest.iter().position(|b| *b != b'/') else {
            return Ok(Walked::Inside(if here.is_empty() { b"/".to_vec() } else { here }));
        };
        let end = rest[start..].iter().position(|b| *b == b'/').map_or(rest.len(), |n| start + n);
        let (name, after) = (rest[start..end].to_vec(), rest[end..].to_vec());
        rest = after;
        match &name[..] {
            b"." => continue,
            b".." if here.is_empty() => {
                return Ok(Walked::Host([path::above(&config.prefix), b"/", &rest].concat()));
            }
            b".." => {
                let up = here.iter().rposition(|b| *b == b'/').unwrap_or(0);
                here.truncate(up);
                continue;
            }
            _ => {}
        }
        let full = [&here[..], b"/", &name].concat();
        let last = rest.iter().all(|b| *b == b'/');
        if last && !follow_last && rest.is_empty() {
            device::on(|d| d.statat(Handle::ROOT, &full, true))?;
            here = full;
            continue;
        }
        match device::on(|d| d.readlinkat(Handle::ROOT, &full, &mut target)) {
            Err(libc::EINVAL) => here = full,
            Err(code) => return Err(code),
            Ok(n) => {
                links += 1;
                if links > LINKS_MAX {
                    return Err(libc::ELOOP);
                }
                let to = &target[..n];
                // What follows starts with a slash, or is nothing.
                rest = [to, &rest].concat();
                if to.first() != Some(&b'/') {
                    continue;
                }
                match path::inside(&config.prefix, &rest) {
                    Some(inner) => (here, rest) = (Vec::new(), inner.into_owned()),
                    None => return Ok(Walked::Host(rest)),
                }
            }
        }
    }
}

/// The name of a directory descriptor of ours: as it was opened if that still holds, else by climbing.
pub fn directory(fd: c_int) -> Res<Vec<u8>> {
    let handle = device::handle(fd).ok_or(libc::EBADF)??;
    let me = device::on(|d| d.stat(handle))?;
    if let Some(name) = table::entry(fd).and_then(table::Open::name)
        && device::on(|d| d.statat(Handle::ROOT, &name, false)).is_ok_and(|s| s.ino == me.ino)
        && let Ok(Walked::Inside(real)) = walk(&name, true)
    {
        return Ok(real);
    }
    climb(handle, me.ino)
}

/// Finds the name of a directory by looking it up in its parents, up to the root.
fn climb(handle: Handle, ino: u64) -> Res<Vec<u8>> {
    let root = device::on(|d| d.stat(Handle::ROOT))?.ino;
    let (mut names, mut up, mut child): (Vec<Vec<u8>>, Vec<u8>, u64) = (Vec::new(), b"..".to_vec(), ino);
    while child != root {
        let flags = weldfs_ciscops::flags::OpenFlags::from_linux(libc::O_RDONLY | libc::O_DIRECTORY);
        let parent = device::on(|d| d.openat(handle, &up, flags, 0, 0))?.handle;
        let found = crate::dirs::name_of(parent, child);
        let above = device::on(|d| d.stat(parent));
        let _ = device::on(|d| d.close(parent));
        names.push(found?);
        child = above?.ino;
        up.extend_from_slice(b"/..");
        if names.len() > libc::PATH_MAX as usize / 2 {
            return Err(libc::ENAMETOOLONG);
        }
    }
    if names.is_empty() {
        return Ok(b"/".to_vec());
    }
    let mut all = Vec::new();
    for name in names.iter().rev() {
        all.push(b'/');
        all.extend_from_slice(name);
    }
    Ok(all)
}

/// Sends a call to the side that serves its path. EXDEV from the device means that a symbolic link left it; the call
/// is then made on the host's name.
#[inline]
pub fn route<R: Failure>(
    dirfd: c_int,
    name: *const c_char,
    host: impl FnOnce(c_int, *const c_char) -> R,
    inner: impl FnOnce(&Spot<'_>) -> Res<R>,
) -> R {
    if config::get().is_none() {
        return host(dirfd, name);
    }
    let Ok(bytes) = abi::text(name) else { return host(dirfd, name) };
    match locate(dirfd, bytes) {
        Ok(Place::Host) => host(dirfd, name),
        Ok(Place::HostAt(p)) => host(libc::AT_FDCWD, p.as_ptr()),
        Ok(Place::Device(spot)) => match inner(&spot) {
            Err(libc::EXDEV) => match left_by_link(&spot) {
                Some(p) => {
                    counts::left();
                    host(libc::AT_FDCWD, p.as_ptr())
                }
                None => fail(libc::EXDEV),
            },
            answer => give(answer),
        },
        Err(code) => fail(code),
    }
}

/// As `route` for calls about the file at the end of a name's links (unless `nofollow`): a name of a descriptor of
/// ours, such as `/dev/stdin`, means the file in the device.
pub fn route_file<R: Failure>(
    (dirfd, name, nofollow): (c_int, *const c_char, bool),
    host: impl FnOnce(c_int, *const c_char) -> R,
    inner: impl FnOnce(&Spot<'_>) -> Res<R>,
) -> R {
    if config::get().is_none() {
        return host(dirfd, name);
    }
    let fd = if nofollow { None } else { abi::text(name).ok().and_then(fdname::of) };
    match fd.and_then(device::handle) {
        None => route(dirfd, name, host, inner),
        Some(base) => {
            let spot = |base| Spot { base, path: Cow::Borrowed(&b""[..]), dirfd: None, itself: true };
            give(base.and_then(|base| inner(&spot(base))))
        }
    }
}

/// The host name to which a symbolic link on the way of `spot` leads.
fn left_by_link(spot: &Spot<'_>) -> Option<CString> {
    let name = spot.absolute()?;
    let full = match walk(&name, true) {
        Ok(Walked::Host(host)) => host,
        Ok(Walked::Inside(_)) => return None,
        // The last component may not exist yet (O_CREAT): then only what stands before it is walked.
        Err(_) => {
            let (dir, last, _) = path::split_last(&name);
            let Ok(Walked::Host(host)) = walk(dir, true) else { return None };
            path::join(&host, last)
        }
    };
    CString::new(full).ok()
}

/// Why two names on different sides are refused: EXDEV, unless the host's starts at a descriptor that is closed or no
/// directory, which the kernel finds before it compares file systems.
fn apart(host_dir: c_int, host: &[u8]) -> i32 {
    let starts_there = host_dir != libc::AT_FDCWD && host.first() != Some(&b'/');
    let here = [host_dir as usize, c".".as_ptr() as usize, libc::F_OK as usize, 0, 0, 0];
    if starts_there && let Err(code) = sys::checked(libc::SYS_faccessat, here) {
        return code;
    }
    report::decline(libc::EXDEV, "rename and link between the host and the device")
}

/// As `route` for calls about two names; different sides are EXDEV.
pub fn route_pair<R: Failure>(
    (from_dir, from): (c_int, *const c_char),
    (to_dir, to): (c_int, *const c_char),
    host: impl FnOnce((c_int, *const c_char), (c_int, *const c_char)) -> R,
    inner: impl FnOnce(&Spot<'_>, &Spot<'_>) -> Res<R>,
) -> R {
    if config::get().is_none() {
        return host((from_dir, from), (to_dir, to));
    }
    let (Ok(a), Ok(b)) = (abi::text(from), abi::text(to)) else { return fail(libc::EFAULT) };
    match (find(from_dir, a), find(to_dir, b)) {
        (Ok(Place::Device(a)), Ok(Place::Device(b))) => give(inner(&a, &b)),
        (Ok(Place::Device(_)), Ok(_)) => fail(apart(to_dir, b)),
        (Ok(_), Ok(Place::Device(_))) => fail(apart(from_dir, a)),
        (Ok(a), Ok(b)) => {
            let p = if let Place::HostAt(p) = &a { (libc::AT_FDCWD, p.as_ptr()) } else { (from_dir, from) };
            let q = if let Place::HostAt(q) = &b { (libc::AT_FDCWD, q.as_ptr()) } else { (to_dir, to) };
            host(p, q)
        }
        (Err(code), _) | (_, Err(code)) => fail(code),
    }
}
