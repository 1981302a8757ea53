//! Attributes: chmod, chown, the utime family, truncate.

use super::ours;
use crate::abi::{self, Res, done, fail, hook};
use crate::names::{Spot, route, route_file};
use crate::{atomic, device, limit, merge, promote, registry, sys};
use libc::{c_char, c_int, gid_t, mode_t, off_t, timespec, timeval, uid_t, utimbuf};
use weldfs_ciscops::Handle;
use weldfs_ciscops::bodies::{SetAttrBody, WireTime};
use weldfs_ciscops::flags::{AccessMask, OpenFlags, SetAttrMask};

const HERE: c_int = libc::AT_FDCWD;
const NOFOLLOW: c_int = libc::AT_SYMLINK_NOFOLLOW;
const NANOS: i64 = 1_000_000_000;

fn mode_set(mode: mode_t) -> SetAttrBody {
    SetAttrBody { mask: SetAttrMask::MODE.bits(), mode: mode & 0o7777, ..SetAttrBody::default() }
}

fn owner_set(uid: uid_t, gid: gid_t) -> SetAttrBody {
    let mut mask = SetAttrMask::empty();
    mask.set(SetAttrMask::UID, uid != uid_t::MAX);
    mask.set(SetAttrMask::GID, gid != gid_t::MAX);
    SetAttrBody { mask: mask.bits(), uid, gid, ..SetAttrBody::default() }
}

fn size_set(size: off_t) -> Res<SetAttrBody> {
    let size = u64::try_from(size).map_err(|_| libc::EINVAL)?;
    Ok(SetAttrBody { mask: SetAttrMask::SIZE.bits(), size, ..SetAttrBody::default() })
}

/// From utimensat's pair; NULL means now.
fn time_set(times: *const timespec) -> Res<SetAttrBody> {
    let mut set = SetAttrBody::default();
    if times.is_null() {
        set.mask = (SetAttrMask::ATIME_NOW | SetAttrMask::MTIME_NOW).bits();
        return Ok(set);
    }
    let pair = abi::array(times, 2)?;
    let mut mask = SetAttrMask::empty();
    let wants = [(SetAttrMask::ATIME, SetAttrMask::ATIME_NOW), (SetAttrMask::MTIME, SetAttrMask::MTIME_NOW)];
    for (i, (t, (given, now))) in pair.iter().zip(wants).enumerate() {
        match t.tv_nsec {
            libc::UTIME_OMIT => continue,
            libc::UTIME_NOW => mask |= now,
            0..NANOS => mask |= given,
            _ => return Err(libc::EINVAL),
        }
        if t.tv_nsec != libc::UTIME_NOW {
            let time = WireTime::new(t.tv_sec, t.tv_nsec as u32);
            if i == 0 { set.atime = time } else { set.mtime = time }
        }
    }
    set.mask = mask.bits();
    Ok(set)
}

fn from_timeval(times: *const timeval) -> Res<Option<[timespec; 2]>> {
    if times.is_null() {
        return Ok(None);
    }
    let mut out: [timespec; 2] = abi::zeroed();
    for (to, from) in out.iter_mut().zip(abi::array(times, 2)?) {
        if !(0..1_000_000).contains(&from.tv_usec) {
            return Err(libc::EINVAL);
        }
        (to.tv_sec, to.tv_nsec) = (from.tv_sec, from.tv_usec * 1000);
    }
    Ok(Some(out))
}

fn timeval_set(times: *const timeval) -> Res<SetAttrBody> {
    let pair = from_timeval(times)?;
    time_set(pair.as_ref().map_or(std::ptr::null(), |p| p.as_ptr()))
}

fn utimbuf_set(times: *const utimbuf) -> Res<SetAttrBody> {
    if times.is_null() {
        return time_set(std::ptr::null());
    }
    let t = abi::get(times)?;
    let mut pair: [timespec; 2] = abi::zeroed();
    (pair[0].tv_sec, pair[1].tv_sec) = (t.actime, t.modtime);
    time_set(pair.as_ptr())
}

/// Sets times by name; where both are left alone not even the name is looked at.
fn set_times(spot: &Spot<'_>, flags: c_int, set: Res<SetAttrBody>) -> Res<c_int> {
    if flags & !(NOFOLLOW | libc::AT_EMPTY_PATH) != 0 {
        return Err(libc::EINVAL);
    }
    if set?.mask == 0 { Ok(0) } else { set_spot(spot, flags, set) }
}

/// By name; nothing to set still means that the name must exist.
fn set_spot(spot: &Spot<'_>, flags: c_int, set: Res<SetAttrBody>) -> Res<c_int> {
    if flags & !(NOFOLLOW | libc::AT_EMPTY_PATH) != 0 {
        return Err(libc::EINVAL);
    }
    let set = set?;
    spot.check_named(flags)?;
    let nofollow = flags & NOFOLLOW != 0;
    if set.mask == 0 {
        return device::on(|d| d.statat(spot.base, &spot.path, nofollow)).map(|_| 0);
    }
    device::on(|d| d.set_attr_at(spot.base, &spot.path, nofollow, &set)).map(|()| 0)
}

fn set_fd(fd: c_int, h: Handle, set: Res<SetAttrBody>) -> c_int {
    if atomic::any() {
        atomic::before(Some(b""), h);
    }
    match set {
        Ok(set) if set.mask == 0 => 0,
        Ok(set) => done(merge::set_attr(fd, h, &set).and_then(|posted| match posted {
            true => Ok(()),
            false => device::on(|d| d.set_attr(h, &set)),
        })),
        Err(code) => fail(code),
    }
}

/// fchmodat: symbolic links have no mode to change.
fn chmod_spot(spot: &Spot<'_>, mode: mode_t, flags: c_int) -> Res<c_int> {
    if flags & NOFOLLOW != 0 {
        let body = device::on(|d| d.statat(spot.base, &spot.path, true))?;
        if body.mode & libc::S_IFMT == libc::S_IFLNK {
            return Err(libc::EOPNOTSUPP);
        }
    }
    set_spot(spot, flags, Ok(mode_set(mode)))
}

/// As long as any file is mapped it is opened for this, so that the kernel cuts it if it is the one.
fn truncate_spot(spot: &Spot<'_>, size: off_t) -> Res<c_int> {
    atomic::make();
    let wanted = u64::try_from(size).map_err(|_| libc::EINVAL)?;
    let now = || {
        device::on(|d| d.accessat(spot.base, &spot.path, AccessMask::WRITE, false)).ok()?;
        let stat = device::on(|d| d.statat(spot.base, &spot.path, false)).ok()?;
        (stat.mode & libc::S_IFMT == libc::S_IFREG).then_some(stat.size)
    };
    limit::sizable(wanted, now)?;
    let mapped = promote::any();
    let before = registry::stamp();
    if !mapped {
        let cut = set_spot(spot, 0, size_set(size))?;
        if registry::stamp() == before {
            return Ok(cut);
        }
    }
    if spot.path.is_empty() {
        // A descriptor by its name: what it stands for is cut, whatever the descriptor may do.
        return match promote::of_handle(spot.base)? {
            Some(file) => {
                let name = std::ffi::CString::new(format!("/proc/self/fd/{file}")).map_err(|_| libc::EINVAL)?;
                let args = [name.as_ptr() as usize, size as usize, 0, 0, 0, 0];
                Ok(done(sys::checked(libc::SYS_truncate, args).map(drop)))
            }
            None => set_spot(spot, 0, size_set(size)),
        };
    }
    let fd = device::open(spot.base, &spot.path, libc::O_WRONLY | libc::O_CLOEXEC, 0, b"")?;
    let cut = ftruncate64(fd, size);
    let code = abi::errno();
    super::open::let_go(fd);
    if cut < 0 { Err(code) } else { Ok(cut) }
}

pub fn truncate_fd(fd: c_int, h: Handle, size: off_t) -> c_int {
    if atomic::any() && device::on(|d| d.stat(h)).is_ok_and(|st| st.size as i64 > size) {
        atomic::make();
    }
    let before = registry::stamp();
    let cut = |file: c_int| sys::checked(libc::SYS_ftruncate, [file as usize, size as usize, 0, 0, 0, 0]).map(drop);
    match promote::mapped(fd) {
        Ok(None) => {}
        // Pages of a mapping beyond the end go, before they are written back.
        Ok(Some(file)) => return done(cut(file)),
        Err(code) => return fail(code),
    }
    // Linux says of a descriptor that cannot write, or of a directory, that it is the wrong kind.
    let wrong_kind = |code| if code == libc::EBADF { libc::EINVAL } else { code };
    let Ok(wanted) = u64::try_from(size) else { return fail(libc::EINVAL) };
    let may_write = super::flags_of(fd).contains(OpenFlags::WRITE);
    let now = || Some(device::on(|d| d.stat(h)).ok()?.size).filter(|_| may_write);
    let go = || {
        limit::sizable(wanted, now)?;
        merge::note_place(fd, wanted);
        device::on(|d| d.truncate(h, wanted)).map_err(wrong_kind)?;
        promote::once_more((fd, h), before, cut);
        Ok(())
    };
    done(go())
}

hook! { real;
    fn chmod(path: *const c_char, mode: mode_t) -> c_int {
        route_file((HERE, path, false), |_, path| real(path, mode), |spot| chmod_spot(spot, mode, 0))
    }
    fn lchmod(path: *const c_char, mode: mode_t) -> c_int {
        route(HERE, path, |_, path| real(path, mode), |spot| chmod_spot(spot, mode, NOFOLLOW))
    }
    fn fchmod(fd: c_int, mode: mode_t) -> c_int {
        let h = ours!(fd, else real(fd, mode));
        set_fd(fd, h, Ok(mode_set(mode)))
    }
    fn fchmodat(dirfd: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int {
        let host = |dirfd, path| real(dirfd, path, mode, flags);
        route_file((dirfd, path, flags & NOFOLLOW != 0), host, |spot| chmod_spot(spot, mode, flags))
    }
    fn chown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int {
        let host = |_, path| real(path, uid, gid);
        route_file((HERE, path, false), host, |spot| set_spot(spot, 0, Ok(owner_set(uid, gid))))
    }
    fn lchown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int {
        route(HERE, path, |_, path| real(path, uid, gid), |spot| set_spot(spot, NOFOLLOW, Ok(owner_set(uid, gid))))
    }
    fn fchown(fd: c_int, uid: uid_t, gid: gid_t) -> c_int {
        let h = ours!(fd, else real(fd, uid, gid));
        set_fd(fd, h, Ok(owner_set(uid, gid)))
    }
    fn fchownat(dirfd: c_int, path: *const c_char, uid: uid_t, gid: gid_t, flags: c_int) -> c_int {
        let host = |dirfd, path| real(dirfd, path, uid, gid, flags);
        route_file((dirfd, path, flags & NOFOLLOW != 0), host, |spot| set_spot(spot, flags, Ok(owner_set(uid, gid))))
    }
    fn utime(path: *const c_char, times: *const utimbuf) -> c_int {
        route_file((HERE, path, false), |_, path| real(path, times), |spot| set_spot(spot, 0, utimbuf_set(times)))
    }
    fn utimes(path: *const c_char, times: *const timeval) -> c_int {
        route_file((HERE, path, false), |_, path| real(path, times), |spot| set_spot(spot, 0, timeval_set(times)))
    }
    fn lutimes(path: *const c_char, times: *const timeval) -> c_int {
        route(HERE, path, |_, path| real(path, times), |spot| set_spot(spot, NOFOLLOW, timeval_set(times)))
    }
    fn futimes(fd: c_int, times: *const timeval) -> c_int {
        let h = ours!(fd, else real(fd, times));
        set_fd(fd, h, timeval_set(times))
    }
    fn futimesat(dirfd: c_int, path: *const c_char, times: *const timeval) -> c_int {
        if path.is_null() && crate::table::ours(dirfd) {
            return futimes(dirfd, times);
        }
        let host = |dirfd, path| real(dirfd, path, times);
        route_file((dirfd, path, false), host, |spot| set_spot(spot, 0, timeval_set(times)))
    }
    fn futimens(fd: c_int, times: *const timespec) -> c_int {
        let h = ours!(fd, else real(fd, times));
        set_fd(fd, h, time_set(times))
    }
    fn utimensat(dirfd: c_int, path: *const c_char, times: *const timespec, flags: c_int) -> c_int {
        if path.is_null() && crate::table::ours(dirfd) {
            return futimens(dirfd, times);
        }
        let host = |dirfd, path| real(dirfd, path, times, flags);
        route_file((dirfd, path, flags & NOFOLLOW != 0), host, |spot| set_times(spot, flags, time_set(times)))
    }
    fn truncate(path: *const c_char, size: off_t) -> c_int {
        route_file((HERE, path, false), |_, path| real(path, size), |spot| truncate_spot(spot, size))
    }
    fn truncate64(path: *const c_char, size: off_t) -> c_int {
        route_file((HERE, path, false), |_, path| real(path, size), |spot| truncate_spot(spot, size))
    }
    fn ftruncate(fd: c_int, size: off_t) -> c_int {
        let h = ours!(fd, else real(fd, size));
        truncate_fd(fd, h, size)
    }
    fn ftruncate64(fd: c_int, size: off_t) -> c_int {
        let h = ours!(fd, else real(fd, size));
        truncate_fd(fd, h, size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_translate_now_omit_and_bad_nanoseconds() {
        let now = time_set(std::ptr::null()).unwrap();
        assert_eq!(now.mask, (SetAttrMask::ATIME_NOW | SetAttrMask::MTIME_NOW).bits());
        let mut pair: [timespec; 2] = abi::zeroed();
        (pair[0].tv_nsec, pair[1].tv_sec, pair[1].tv_nsec) = (libc::UTIME_OMIT, -5, 7);
        let set = time_set(pair.as_ptr()).unwrap();
        assert_eq!((set.mask, set.mtime), (SetAttrMask::MTIME.bits(), WireTime::new(-5, 7)));
        pair[1].tv_nsec = NANOS;
        assert_eq!(time_set(pair.as_ptr()), Err(libc::EINVAL));
    }

    #[test]
    fn minus_one_leaves_an_owner_alone() {
        assert_eq!(owner_set(uid_t::MAX, 5).mask, SetAttrMask::GID.bits());
        assert_eq!(owner_set(uid_t::MAX, gid_t::MAX).mask, 0);
    }
}
