//! Names that libc makes up: mkstemp and its kin, mktemp, tempnam, tmpnam, tmpfile. libc's own look with calls that
//! cannot be interposed, so those are made here when the name lies in the device (or the prefix is /tmp).

use crate::abi::{self, Res, fail, give, hook};
use crate::names::{Place, Spot, locate};
use crate::{device, sys};
use libc::{c_char, c_int};
use std::borrow::Cow;
use std::ffi::CStr;
use std::sync::atomic::AtomicU8;

/// The X's at the end of a template.
const MARKS: usize = 6;
/// Names tried before giving up, as many as libc tries.
const TRIES: usize = 62 * 62 * 62;
const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

fn fill(marks: &mut [u8]) -> Res<()> {
    let mut random = [0u8; MARKS];
    sys::checked(libc::SYS_getrandom, [random.as_mut_ptr() as usize, random.len(), 0, 0, 0, 0])?;
    for (mark, r) in marks.iter_mut().zip(random) {
        *mark = LETTERS[r as usize % LETTERS.len()];
    }
    Ok(())
}

/// Tries names until `make` finds a new one; the template then holds it. `None`: the template is the host's.
fn try_names<T>(template: *mut c_char, suffix: c_int, make: impl Fn(&Spot<'_>) -> Res<T>) -> Option<Res<T>> {
    crate::config::get()?;
    let text = abi::text(template).ok()?;
    if !matches!(locate(libc::AT_FDCWD, text), Ok(Place::Device(_))) {
        return None;
    }
    let go = || -> Res<T> {
        let end = text.len().checked_sub(usize::try_from(suffix).map_err(|_| libc::EINVAL)?).ok_or(libc::EINVAL)?;
        let start = end.checked_sub(MARKS).ok_or(libc::EINVAL)?;
        if text[start..end] != [b'X'; MARKS] {
            return Err(libc::EINVAL);
        }
        let mut name = text.to_vec();
        for _ in 0..TRIES {
            fill(&mut name[start..end])?;
            let Place::Device(spot) = locate(libc::AT_FDCWD, &name)? else { return Err(libc::EXDEV) };
            let spot = Spot { base: spot.base, path: Cow::Borrowed(&spot.path), dirfd: spot.dirfd, itself: false };
            match make(&spot) {
                Err(libc::EEXIST) => {}
                Ok(made) => {
                    let room = abi::room(template.cast(), name.len())?;
                    room.get_mut(start..end).ok_or(libc::EFAULT)?.copy_from_slice(&name[start..end]);
                    return Ok(made);
                }
                Err(code) => return Err(code),
            }
        }
        Err(libc::EEXIST)
    };
    Some(go())
}

fn make_file(template: *mut c_char, suffix: c_int, flags: c_int, real: impl FnOnce() -> c_int) -> c_int {
    let flags = (flags & !libc::O_ACCMODE) | libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
    match try_names(template, suffix, |spot| super::open::open_spot(spot, flags, 0o600)) {
        Some(answer) => give(answer),
        None => {
            let fd = real();
            crate::stdio::number_taken(fd);
            fd
        }
    }
}

/// Where libc makes files without being told where.
const TMPDIR: &CStr = c"/tmp";
/// Bytes of a prefix that tempnam takes.
const PREFIX_MAX: usize = 5;

/// EEXIST while the name is in use, as `try_names` wants it.
fn unused(spot: &Spot<'_>) -> Res<()> {
    match device::on(|d| d.statat(spot.base, &spot.path, true)) {
        Ok(_) => Err(libc::EEXIST),
        Err(libc::ENOENT) => Ok(()),
        Err(code) => Err(code),
    }
}

/// mktemp: an unused name, or an empty one.
fn made_up(template: *mut c_char, real: impl FnOnce() -> *mut c_char) -> *mut c_char {
    match try_names(template, 0, unused) {
        None => real(),
        Some(Ok(())) => template,
        Some(Err(code)) => {
            let _ = abi::put(template, 0);
            abi::set_errno(code);
            template
        }
    }
}

/// An unused name `DIR/PREFIXxxxxxx`, malloc'd; `None` when the directory is the host's.
fn name_in(dir: &[u8], prefix: &[u8]) -> Option<Res<*mut c_char>> {
    let make = || -> Res<*mut c_char> {
        let dir = dir.strip_suffix(b"/").unwrap_or(dir);
        let start = &prefix[..prefix.len().min(PREFIX_MAX)];
        abi::malloc_text(&[dir, b"/", start, &[b'X'; MARKS]].concat())
    };
    let name = match make() {
        Ok(name) => name,
        Err(code) => return Some(Err(code)),
    };
    let tried = try_names(name, 0, unused);
    if !matches!(tried, Some(Ok(()))) {
        abi::free_text(name);
    }
    Some(tried?.map(|()| name))
}

/// Whether something in the device is a directory that may be written to, as libc asks of tempnam's.
fn usable_directory(dir: &[u8]) -> bool {
    let Ok(Place::Device(spot)) = locate(libc::AT_FDCWD, dir) else { return false };
    let is = device::on(|d| d.statat(spot.base, &spot.path, false));
    is.is_ok_and(|body| body.mode & libc::S_IFMT == libc::S_IFDIR)
}

/// tempnam in a directory of the device: TMPDIR's, else the one that is given. `None`: libc finds another.
fn temporary_name(dir: *const c_char, prefix: *const c_char) -> Option<Res<*mut c_char>> {
    crate::config::get()?;
    let prefix = if prefix.is_null() { Ok(&b"file"[..]) } else { abi::text(prefix) };
    let given = if dir.is_null() { None } else { abi::text(dir).ok() };
    let dir = [abi::env(c"TMPDIR"), given].into_iter().flatten().next()?;
    if !usable_directory(dir) {
        return None;
    }
    match prefix {
        Ok(prefix) => name_in(dir, prefix),
        Err(code) => Some(Err(code)),
    }
}

/// tmpnam: an unused name in /tmp, in the caller's buffer or libc's.
fn short_name(out: *mut c_char) -> Option<Res<*mut c_char>> {
    static ROOM: [AtomicU8; libc::L_tmpnam as usize] = [const { AtomicU8::new(0) }; libc::L_tmpnam as usize];
    crate::config::get()?;
    let name = match name_in(TMPDIR.to_bytes(), b"file")? {
        Ok(name) => name,
        Err(code) => return Some(Err(code)),
    };
    let out = if out.is_null() { ROOM.as_ptr().cast_mut().cast() } else { out };
    let put = abi::text(name).and_then(|text| abi::put_text(out, libc::L_tmpnam as usize, text));
    abi::free_text(name);
    Some(put.map(|()| out))
}

/// tmpfile: a file without a name.
fn nameless() -> Option<Res<*mut libc::FILE>> {
    crate::config::get()?;
    let Ok(Place::Device(spot)) = locate(libc::AT_FDCWD, TMPDIR.to_bytes()) else { return None };
    let make = || {
        let fd = super::open::open_spot(&spot, libc::O_TMPFILE | libc::O_RDWR | libc::O_EXCL, 0o600)?;
        crate::stdio::stream(fd, c"w+").inspect_err(|_| {
            super::close(fd);
        })
    };
    Some(make())
}

hook! { real;
    fn mktemp(template: *mut c_char) -> *mut c_char {
        made_up(template, || real(template))
    }
    fn __mktemp(template: *mut c_char) -> *mut c_char {
        made_up(template, || real(template))
    }
    fn tempnam(dir: *const c_char, prefix: *const c_char) -> *mut c_char {
        temporary_name(dir, prefix).map_or_else(|| real(dir, prefix), give)
    }
    fn tmpnam(out: *mut c_char) -> *mut c_char {
        short_name(out).map_or_else(|| real(out), give)
    }
    fn tmpnam_r(out: *mut c_char) -> *mut c_char {
        if out.is_null() {
            return out;
        }
        short_name(out).map_or_else(|| real(out), give)
    }
    fn tmpfile() -> *mut libc::FILE {
        nameless().map_or_else(real, give)
    }
    fn tmpfile64() -> *mut libc::FILE {
        nameless().map_or_else(real, give)
    }
    fn mkstemp(template: *mut c_char) -> c_int {
        make_file(template, 0, 0, || real(template))
    }
    fn mkstemp64(template: *mut c_char) -> c_int {
        make_file(template, 0, 0, || real(template))
    }
    fn mkostemp(template: *mut c_char, flags: c_int) -> c_int {
        make_file(template, 0, flags, || real(template, flags))
    }
    fn mkostemp64(template: *mut c_char, flags: c_int) -> c_int {
        make_file(template, 0, flags, || real(template, flags))
    }
    fn mkstemps(template: *mut c_char, suffix: c_int) -> c_int {
        make_file(template, suffix, 0, || real(template, suffix))
    }
    fn mkstemps64(template: *mut c_char, suffix: c_int) -> c_int {
        make_file(template, suffix, 0, || real(template, suffix))
    }
    fn mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
        make_file(template, suffix, flags, || real(template, suffix, flags))
    }
    fn mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
        make_file(template, suffix, flags, || real(template, suffix, flags))
    }
    fn mkdtemp(template: *mut c_char) -> *mut c_char {
        let make = |spot: &Spot<'_>| device::on(|d| d.mkdirat(spot.base, &spot.path, 0o700 & !device::umask()));
        match try_names(template, 0, make) {
            Some(Ok(())) => template,
            Some(Err(code)) => fail(code),
            None => real(template),
        }
    }
}
