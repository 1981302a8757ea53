//! DIR streams: opendir, readdir, scandir, glob.

use crate::abi::{self, Res, give, hook};
use crate::dirs::{Entry, Stream};
use crate::names::route;
use crate::{config, cwd, device, fdname, table};
use libc::{c_char, c_int, c_long, c_void, dirent64 as Dirent, size_t};
use std::ffi::CStr;
use weldfs_ciscops::Handle;

/// First word of our streams. libc's own begin with a descriptor and a lock, which never look like this.
const MAGIC: u64 = 0x7269_4473_4664_6c77;
const HERE: c_int = libc::AT_FDCWD;

/// libc's DIR, seen from outside.
pub type Dir = libc::DIR;

/// Our stream behind a `DIR *`.
#[repr(C)]
struct Ours {
    magic: u64,
    fd: c_int,
    stream: Stream,
    entry: Dirent,
}

/// Our stream, if the pointer is one.
fn ours<'a>(dir: *mut Dir) -> Option<&'a mut Ours> {
    if dir.is_null() {
        return None;
    }
    let p: *mut Ours = dir.cast();
    // SAFETY: libc's DIR and ours are both longer than the magic word; only ours holds it.
    unsafe { if (&raw const (*p).magic).read() == MAGIC { Some(&mut *p) } else { None } }
}

fn wrap(fd: c_int) -> *mut Dir {
    let all = Ours { magic: MAGIC, fd, stream: Stream::new(0), entry: abi::zeroed() };
    Box::into_raw(Box::new(all)).cast()
}

fn to_dirent(e: &Entry) -> Dirent {
    let mut out: Dirent = abi::zeroed();
    (out.d_ino, out.d_off, out.d_type) = (e.ino, e.next as _, e.kind);
    for (to, from) in out.d_name.iter_mut().zip(&e.name) {
        *to = *from as c_char;
    }
    out.d_reclen = (std::mem::offset_of!(Dirent, d_name) + e.name.len() + 1).next_multiple_of(8) as u16;
    out
}

impl Ours {
    fn handle(&self) -> Res<Handle> {
        device::handle(self.fd).ok_or(libc::EBADF)?
    }

    /// The next entry in place; `Ok(null)` at the end.
    fn advance(&mut self) -> Res<*mut Dirent> {
        let handle = self.handle()?;
        crate::atomic::make();
        match self.stream.next(handle) {
            Ok(Some(entry)) => {
                self.entry = to_dirent(&entry);
                Ok(&raw mut self.entry)
            }
            // A directory that was removed meanwhile has no entries left.
            Ok(None) | Err(libc::ENOENT) => Ok(std::ptr::null_mut()),
            Err(code) => Err(code),
        }
    }

    fn advance_into(&mut self, entry: *mut Dirent, result: *mut *mut Dirent) -> c_int {
        let mut go = || {
            let next = self.advance()?;
            if !next.is_null() {
                abi::put(entry, self.entry)?;
            }
            abi::put(result, if next.is_null() { next } else { entry })
        };
        go().err().unwrap_or(0)
    }
}

/// fdopendir's check.
fn is_directory(h: Handle) -> Res<()> {
    let body = device::on(|d| d.stat(h))?;
    if body.mode & libc::S_IFMT == libc::S_IFDIR { Ok(()) } else { Err(libc::ENOTDIR) }
}

type Filter = Option<extern "C" fn(*const Dirent) -> c_int>;
type Compare = Option<extern "C" fn(*mut *const Dirent, *mut *const Dirent) -> c_int>;
type Order = unsafe extern "C" fn(*const c_void, *const c_void) -> c_int;

/// scandir over a directory of ours: a malloc'd array of malloc'd entries.
fn scan(dir: *mut Dir, list: *mut *mut *mut Dirent, filter: Filter, compare: Compare) -> Res<c_int> {
    let mut found: Vec<*mut Dirent> = Vec::new();
    let mut go = || -> Res<c_int> {
        let stream = ours(dir).ok_or(libc::EBADF)?;
        loop {
            let next = stream.advance()?;
            if next.is_null() {
                break;
            }
            if filter.is_none_or(|keep| keep(next) != 0) {
                found.push(copy_of(&stream.entry)?);
            }
        }
        let bytes = found.len() * size_of::<*mut Dirent>();
        // SAFETY: malloc has no precondition; the array is filled before anything sees it; qsort gets the caller's
        // comparison, which takes pointers to entries of exactly this array.
        unsafe {
            let array: *mut *mut Dirent = libc::malloc(bytes.max(1)).cast();
            if array.is_null() {
                return Err(libc::ENOMEM);
            }
            std::ptr::copy_nonoverlapping(found.as_ptr(), array, found.len());
            if let Some(compare) = compare {
                type Given = extern "C" fn(*mut *const Dirent, *mut *const Dirent) -> c_int;
                let order = std::mem::transmute::<Given, Order>(compare);
                libc::qsort(array.cast(), found.len(), size_of::<*mut Dirent>(), Some(order));
            }
            abi::put(list, array)?;
        }
        Ok(found.len() as c_int)
    };
    let answer = go();
    if answer.is_err() {
        // SAFETY: entries made by `copy_of` above, handed to nothing.
        found.iter().for_each(|e| unsafe { libc::free(e.cast()) });
    }
    answer
}

fn copy_of(entry: &Dirent) -> Res<*mut Dirent> {
    // SAFETY: malloc has no precondition; a whole entry is allocated, and only its used part is copied.
    unsafe {
        let p: *mut Dirent = libc::malloc(size_of::<Dirent>()).cast();
        if p.is_null() {
            return Err(libc::ENOMEM);
        }
        let from: *const Dirent = entry;
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), p.cast::<u8>(), usize::from(entry.d_reclen));
        Ok(p)
    }
}

fn scan_at(
    dirfd: c_int,
    path: *const c_char,
    list: *mut *mut *mut Dirent,
    (filter, compare): (Filter, Compare),
    real: impl FnOnce(c_int, *const c_char) -> c_int,
) -> c_int {
    route(dirfd, path, real, |spot| {
        let fd = super::open::open_spot(spot, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, 0)?;
        let dir = wrap(fd);
        let answer = scan(dir, list, filter, compare);
        closedir(dir);
        answer
    })
}

/// Whether a name is the device's.
pub fn touches(path: *const c_char) -> bool {
    if config::get().is_none() {
        return false;
    }
    let Ok(name) = abi::text(path) else { return false };
    matches!(crate::names::locate(HERE, name), Ok(crate::names::Place::Device(_)))
}

/// Whether a pattern may lead into the device.
fn may_touch(pattern: *const c_char) -> bool {
    let Some(config) = config::get() else { return false };
    let inside = cwd::is_inside();
    abi::text(pattern).is_ok_and(|text| inside || crate::path::mentions(text, config.needle()))
}

/// The entries of a directory but `.` and `..`.
pub fn names_in(directory: &CStr) -> Res<Vec<Vec<u8>>> {
    let stream = opendir(directory.as_ptr());
    if stream.is_null() {
        return Err(abi::errno());
    }
    let mut names = Vec::new();
    loop {
        abi::set_errno(0);
        let entry = readdir64(stream);
        let code = abi::errno();
        // SAFETY: NULL, or an entry that is valid until the next call for this stream; its name ends in NUL.
        let Some(entry) = (unsafe { entry.as_ref() }) else {
            closedir(stream);
            return if code == 0 { Ok(names) } else { Err(code) };
        };
        // SAFETY: as above.
        let name = unsafe { CStr::from_ptr(entry.d_name.as_ptr()) }.to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
}

hook! { real;
    fn opendir(path: *const c_char) -> *mut Dir {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        if let Some(fd) = abi::text(path).ok().and_then(fdname::of) {
            return give(super::open::open_again(fd, flags, 0).map(wrap));
        }
        route(HERE, path, |_, path| real(path), |spot| super::open::open_spot(spot, flags, 0).map(wrap))
    }
    fn fdopendir(fd: c_int) -> *mut Dir {
        let h = super::ours!(fd, else real(fd));
        give(is_directory(h).map(|()| wrap(fd)))
    }
    fn closedir(dir: *mut Dir) -> c_int {
        let Some(stream) = ours(dir) else { return real(dir) };
        let fd = stream.fd;
        stream.magic = 0;
        // SAFETY: made by `wrap`, and the program must not use it after closedir.
        drop(unsafe { Box::from_raw(dir.cast::<Ours>()) });
        super::close(fd)
    }
    fn readdir(dir: *mut Dir) -> *mut Dirent {
        let Some(stream) = ours(dir) else { return real(dir) };
        give(stream.advance())
    }
    fn readdir64(dir: *mut Dir) -> *mut Dirent {
        let Some(stream) = ours(dir) else { return real(dir) };
        give(stream.advance())
    }
    fn readdir_r(dir: *mut Dir, entry: *mut Dirent, result: *mut *mut Dirent) -> c_int {
        let Some(stream) = ours(dir) else { return real(dir, entry, result) };
        stream.advance_into(entry, result)
    }
    fn readdir64_r(dir: *mut Dir, entry: *mut Dirent, result: *mut *mut Dirent) -> c_int {
        let Some(stream) = ours(dir) else { return real(dir, entry, result) };
        stream.advance_into(entry, result)
    }
    fn rewinddir(dir: *mut Dir) -> () {
        match ours(dir) {
            Some(stream) => stream.stream.seek(0),
            None => real(dir),
        }
    }
    fn telldir(dir: *mut Dir) -> c_long {
        let Some(stream) = ours(dir) else { return real(dir) };
        stream.stream.tell() as c_long
    }
    fn seekdir(dir: *mut Dir, place: c_long) -> () {
        match ours(dir) {
            Some(stream) => stream.stream.seek(place as u64),
            None => real(dir, place),
        }
    }
    fn dirfd(dir: *mut Dir) -> c_int {
        let Some(stream) = ours(dir) else { return real(dir) };
        stream.fd
    }
    fn scandir(path: *const c_char, list: *mut *mut *mut Dirent, filter: Filter, compare: Compare) -> c_int {
        scan_at(HERE, path, list, (filter, compare), |_, path| real(path, list, filter, compare))
    }
    fn scandir64(path: *const c_char, list: *mut *mut *mut Dirent, filter: Filter, compare: Compare) -> c_int {
        scan_at(HERE, path, list, (filter, compare), |_, path| real(path, list, filter, compare))
    }
    fn scandirat(
        dirfd: c_int, path: *const c_char, list: *mut *mut *mut Dirent, filter: Filter, compare: Compare,
    ) -> c_int {
        scan_at(dirfd, path, list, (filter, compare), |dirfd, path| real(dirfd, path, list, filter, compare))
    }
    fn scandirat64(
        dirfd: c_int, path: *const c_char, list: *mut *mut *mut Dirent, filter: Filter, compare: Compare,
    ) -> c_int {
        scan_at(dirfd, path, list, (filter, compare), |dirfd, path| real(dirfd, path, list, filter, compare))
    }
    fn getdirentries(fd: c_int, out: *mut c_char, n: size_t, base: *mut libc::off_t) -> isize {
        let h = super::ours!(fd, else real(fd, out, n, base));
        entries_from((fd, h), out, n, base)
    }
    fn getdirentries64(fd: c_int, out: *mut c_char, n: size_t, base: *mut libc::off_t) -> isize {
        let h = super::ours!(fd, else real(fd, out, n, base));
        entries_from((fd, h), out, n, base)
    }
    fn getdents64(fd: c_int, out: *mut c_void, n: size_t) -> isize {
        let h = super::ours!(fd, else real(fd, out, n));
        entries(fd, h, out, n)
    }
    fn glob(
        pattern: *const c_char, flags: c_int, on_error: *mut c_void, out: *mut libc::glob64_t,
    ) -> c_int {
        with_our_streams(pattern, flags, out, |flags| real(pattern, flags, on_error, out))
    }
    fn glob64(
        pattern: *const c_char, flags: c_int, on_error: *mut c_void, out: *mut libc::glob64_t,
    ) -> c_int {
        with_our_streams(pattern, flags, out, |flags| real(pattern, flags, on_error, out))
    }
}

/// glob(3)'s structure with the members that libc's Rust binding hides.
#[repr(C)]
struct Glob {
    found: size_t,
    names: *mut *mut c_char,
    offset: size_t,
    flags: c_int,
    close: Option<extern "C" fn(*mut Dir) -> ()>,
    read: Option<extern "C" fn(*mut Dir) -> *mut Dirent>,
    open: Option<extern "C" fn(*const c_char) -> *mut Dir>,
    lstat: Option<extern "C" fn(*const c_char, *mut libc::stat) -> c_int>,
    stat: Option<extern "C" fn(*const c_char, *mut libc::stat) -> c_int>,
}
const _: () = assert!(size_of::<Glob>() == size_of::<libc::glob64_t>());
/// glob(3): use the caller's directory functions.
const GLOB_ALTDIRFUNC: c_int = 1 << 9;

extern "C" fn close_stream(dir: *mut Dir) {
    closedir(dir);
}

/// A pattern that may lead into the device is matched through our own directory functions.
fn with_our_streams(
    pattern: *const c_char,
    flags: c_int,
    out: *mut libc::glob64_t,
    real: impl FnOnce(c_int) -> c_int,
) -> c_int {
    if flags & GLOB_ALTDIRFUNC != 0 || out.is_null() || !may_touch(pattern) {
        return real(flags);
    }
    // SAFETY: the caller's glob_t, of the layout asserted above; the members are only ours to set under ALTDIRFUNC.
    unsafe {
        let glob = out.cast::<Glob>();
        (*glob).close = Some(close_stream);
        (*glob).read = Some(readdir64);
        (*glob).open = Some(opendir);
        (*glob).lstat = Some(super::stat::lstat64);
        (*glob).stat = Some(super::stat::stat64);
    }
    let answer = real(flags | GLOB_ALTDIRFUNC);
    // What is appended later, with the caller's own flags, finds libc's functions in their place again.
    // SAFETY: as above.
    unsafe { (*out.cast::<Glob>()).flags &= !GLOB_ALTDIRFUNC };
    answer
}

/// getdirentries: getdents64, and where it began.
fn entries_from((fd, h): (c_int, Handle), out: *mut c_char, n: size_t, base: *mut libc::off_t) -> isize {
    let before = table::entry(fd).map_or(0, |open| open.cursor.load(std::sync::atomic::Ordering::Relaxed));
    match abi::put(base, before as libc::off_t) {
        Ok(()) => entries(fd, h, out.cast(), n),
        Err(code) => abi::fail(code),
    }
}

/// Raw getdents64: whole entries while they fit, the cursor kept with the descriptor.
pub fn entries(fd: c_int, h: Handle, out: *mut c_void, n: size_t) -> isize {
    use std::sync::atomic::Ordering;
    let go = || -> Res<isize> {
        let open = table::entry(fd).ok_or(libc::EBADF)?;
        let room = abi::room(out, n)?;
        let mut stream = Stream::new(open.cursor.load(Ordering::Relaxed));
        let mut used = 0;
        let mut reached = stream.tell();
        crate::atomic::make();
        while let Some(entry) = stream.next(h)? {
            let packed = to_dirent(&entry);
            let len = usize::from(packed.d_reclen);
            if used + len > room.len() {
                if used == 0 {
                    return Err(libc::EINVAL);
                }
                break;
            }
            let from: *const Dirent = &packed;
            // SAFETY: `d_reclen` bytes lie inside the entry: the name is at most 255 bytes.
            room[used..used + len].copy_from_slice(unsafe { std::slice::from_raw_parts(from.cast::<u8>(), len) });
            used += len;
            reached = entry.next;
        }
        open.cursor.store(reached, Ordering::Relaxed);
        Ok(used as isize)
    };
    give(go())
}
