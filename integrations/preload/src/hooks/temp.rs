//! Names that libc makes up: mkstemp and its kin, tmpnam's cousins.

use crate::abi::{self, Res, fail, give, hook};
use crate::names::{Place, Spot, locate};
use crate::{device, sys};
use libc::{c_char, c_int};
use std::borrow::Cow;

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
                    room[start..end].copy_from_slice(&name[start..end]);
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

hook! { real;
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
