//! stat and its many names, statx, statfs, access.

use super::{named_alone, ours_or_path};
use crate::abi::{self, Res, done, fail, hook};
use crate::names::{Spot, route_file};
use crate::{atomic, device, listed, look, mount};
use libc::{c_char, c_int, c_uint, stat as Stat, statfs as Statfs, statvfs as Statvfs, statx as Statx};
use weldfs_ciscops::bodies::{StatBody, StatfsBody, WireTime};
use weldfs_ciscops::flags::AccessMask;

/// f_type of the file system: "WELD".
const MAGIC: i64 = 0x444c_4557;

/// stat's structure; the 64-bit one has the same layout here.
pub fn to_stat(b: &StatBody) -> Stat {
    let mut st: Stat = abi::zeroed();
    st.st_dev = mount::st_dev(b.dev) as _;
    st.st_ino = b.ino as _;
    st.st_mode = b.mode as _;
    st.st_nlink = b.nlink as _;
    st.st_uid = b.uid;
    st.st_gid = b.gid;
    st.st_rdev = b.rdev as _;
    st.st_size = b.size as _;
    st.st_blksize = b.blksize as _;
    st.st_blocks = b.blocks512 as _;
    (st.st_atime, st.st_atime_nsec) = (b.atime.sec as _, b.atime.nsec as _);
    (st.st_mtime, st.st_mtime_nsec) = (b.mtime.sec as _, b.mtime.nsec as _);
    (st.st_ctime, st.st_ctime_nsec) = (b.ctime.sec as _, b.ctime.nsec as _);
    st
}

const _: () = assert!(size_of::<Stat>() == size_of::<libc::stat64>());

fn to_statx(b: &StatBody) -> Statx {
    let time = |t: WireTime| {
        let mut out: libc::statx_timestamp = abi::zeroed();
        (out.tv_sec, out.tv_nsec) = (t.sec, t.nsec);
        out
    };
    let mut sx: Statx = abi::zeroed();
    sx.stx_mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
    sx.stx_blksize = b.blksize;
    sx.stx_nlink = b.nlink;
    (sx.stx_uid, sx.stx_gid, sx.stx_mode) = (b.uid, b.gid, b.mode as u16);
    (sx.stx_ino, sx.stx_size, sx.stx_blocks) = (b.ino, b.size, b.blocks512);
    (sx.stx_atime, sx.stx_btime, sx.stx_ctime, sx.stx_mtime) =
        (time(b.atime), time(b.btime), time(b.ctime), time(b.mtime));
    (sx.stx_rdev_major, sx.stx_rdev_minor) = (libc::major(b.rdev), libc::minor(b.rdev));
    let dev = mount::st_dev(b.dev);
    (sx.stx_dev_major, sx.stx_dev_minor) = (libc::major(dev), libc::minor(dev));
    sx
}

const STAT_FLAGS: c_int = NOFOLLOW | libc::AT_NO_AUTOMOUNT | libc::AT_EMPTY_PATH | libc::AT_STATX_SYNC_TYPE;

/// Flags that fstatat and statx do not have are EINVAL.
fn check_flags(flags: c_int, mask: c_uint) -> Res<()> {
    let reserved = mask & libc::STATX__RESERVED as c_uint != 0;
    let both = flags & libc::AT_STATX_SYNC_TYPE == libc::AT_STATX_SYNC_TYPE;
    if flags & !STAT_FLAGS != 0 || both || reserved { Err(libc::EINVAL) } else { Ok(()) }
}

/// By name; an empty name means the directory descriptor itself where the flags allow it.
fn body_of(spot: &Spot<'_>, flags: c_int) -> Res<StatBody> {
    spot.check_named(flags)?;
    listed::stat(spot.base, &spot.path, flags & libc::AT_SYMLINK_NOFOLLOW != 0)
}

fn stat_name(
    dirfd: c_int,
    path: *const c_char,
    out: *mut Stat,
    flags: c_int,
    real: impl FnOnce(c_int, *const c_char) -> c_int,
) -> c_int {
    route_file((dirfd, path, flags & NOFOLLOW != 0), real, |spot| {
        check_flags(flags, 0)?;
        let body = body_of(spot, flags)?;
        abi::put(out, to_stat(&body)).map(|()| 0)
    })
}

fn stat_fd(h: weldfs_ciscops::Handle, out: *mut Stat) -> c_int {
    about(h);
    done(device::on(|d| d.stat(h)).and_then(|body| abi::put(out, to_stat(&body))))
}

/// Before a call about what a descriptor stands for: a directory is as it is with what was renamed.
fn about(h: weldfs_ciscops::Handle) {
    if atomic::any() {
        atomic::before(Some(b""), h);
    }
}

/// The same by what is known here.
#[inline]
fn stat_known(fd: c_int, out: *mut Stat) -> Option<c_int> {
    let body = look::attributes(fd)?;
    Some(done(abi::put(out, to_stat(&body))))
}

/// What is known of a descriptor itself, named so by an empty name.
fn itself(fd: c_int, path: *const c_char, flags: c_int) -> Option<StatBody> {
    let named = flags & libc::AT_EMPTY_PATH != 0 && check_flags(flags, 0).is_ok();
    let empty = named && abi::text(path).is_ok_and(|name| name.is_empty());
    if empty { look::attributes(fd) } else { None }
}

fn statfs_body() -> Res<StatfsBody> {
    device::on(|d| d.statfs())
}

fn to_statfs(b: &StatfsBody) -> Statfs {
    let mut sf: Statfs = abi::zeroed();
    sf.f_type = MAGIC as _;
    sf.f_bsize = b.bsize as _;
    sf.f_frsize = b.bsize as _;
    sf.f_blocks = b.blocks as _;
    sf.f_bfree = b.bfree as _;
    sf.f_bavail = b.bavail as _;
    sf.f_files = b.files as _;
    sf.f_ffree = b.ffree as _;
    sf.f_namelen = b.name_max as _;
    sf
}

fn to_statvfs(b: &StatfsBody) -> Statvfs {
    let mut sf: Statvfs = abi::zeroed();
    sf.f_bsize = b.bsize as _;
    sf.f_frsize = b.bsize as _;
    sf.f_blocks = b.blocks as _;
    sf.f_bfree = b.bfree as _;
    sf.f_bavail = b.bavail as _;
    sf.f_files = b.files as _;
    sf.f_ffree = b.ffree as _;
    sf.f_favail = b.ffree as _;
    sf.f_fsid = b.fsid as _;
    sf.f_flag = b.flags as _;
    sf.f_namemax = b.name_max as _;
    sf
}

fn put_statfs(out: *mut Statfs) -> Res<c_int> {
    abi::put(out, to_statfs(&statfs_body()?)).map(|()| 0)
}

fn put_statvfs(out: *mut Statvfs) -> Res<c_int> {
    abi::put(out, to_statvfs(&statfs_body()?)).map(|()| 0)
}

/// statfs by name: the file must exist, the answer is the file system's.
fn exists(spot: &Spot<'_>) -> Res<()> {
    body_of(spot, 0).map(drop)
}

/// access(2) and its kin.
fn may(spot: &Spot<'_>, mode: c_int, flags: c_int) -> Res<c_int> {
    if mode & !7 != 0 || flags & !(NOFOLLOW | libc::AT_EACCESS | libc::AT_EMPTY_PATH) != 0 {
        return Err(libc::EINVAL);
    }
    spot.check_named(flags)?;
    let mask = AccessMask::from_bits_truncate(mode as u8);
    let nofollow = flags & libc::AT_SYMLINK_NOFOLLOW != 0;
    device::on(|d| d.accessat(spot.base, &spot.path, mask, nofollow)).map(|()| 0)
}

const NOFOLLOW: c_int = libc::AT_SYMLINK_NOFOLLOW;
const HERE: c_int = libc::AT_FDCWD;

hook! { real;
    fn stat(path: *const c_char, out: *mut Stat) -> c_int {
        stat_name(HERE, path, out, 0, |_, path| real(path, out))
    }
    fn stat64(path: *const c_char, out: *mut Stat) -> c_int {
        stat_name(HERE, path, out, 0, |_, path| real(path, out))
    }
    fn lstat(path: *const c_char, out: *mut Stat) -> c_int {
        stat_name(HERE, path, out, NOFOLLOW, |_, path| real(path, out))
    }
    fn lstat64(path: *const c_char, out: *mut Stat) -> c_int {
        stat_name(HERE, path, out, NOFOLLOW, |_, path| real(path, out))
    }
    fn fstat(fd: c_int, out: *mut Stat) -> c_int {
        if let Some(answer) = stat_known(fd, out) {
            return answer;
        }
        let h = named_alone!(fd, else real(fd, out));
        stat_fd(h, out)
    }
    fn fstat64(fd: c_int, out: *mut Stat) -> c_int {
        if let Some(answer) = stat_known(fd, out) {
            return answer;
        }
        let h = named_alone!(fd, else real(fd, out));
        stat_fd(h, out)
    }
    fn fstatat(dirfd: c_int, path: *const c_char, out: *mut Stat, flags: c_int) -> c_int {
        if let Some(body) = itself(dirfd, path, flags) {
            return done(abi::put(out, to_stat(&body)));
        }
        stat_name(dirfd, path, out, flags, |dirfd, path| real(dirfd, path, out, flags))
    }
    fn fstatat64(dirfd: c_int, path: *const c_char, out: *mut Stat, flags: c_int) -> c_int {
        if let Some(body) = itself(dirfd, path, flags) {
            return done(abi::put(out, to_stat(&body)));
        }
        stat_name(dirfd, path, out, flags, |dirfd, path| real(dirfd, path, out, flags))
    }
    fn __xstat(version: c_int, path: *const c_char, out: *mut Stat) -> c_int {
        stat_name(HERE, path, out, 0, |_, path| real(version, path, out))
    }
    fn __xstat64(version: c_int, path: *const c_char, out: *mut Stat) -> c_int {
        stat_name(HERE, path, out, 0, |_, path| real(version, path, out))
    }
    fn __lxstat(version: c_int, path: *const c_char, out: *mut Stat) -> c_int {
        stat_name(HERE, path, out, NOFOLLOW, |_, path| real(version, path, out))
    }
    fn __lxstat64(version: c_int, path: *const c_char, out: *mut Stat) -> c_int {
        stat_name(HERE, path, out, NOFOLLOW, |_, path| real(version, path, out))
    }
    fn __fxstat(version: c_int, fd: c_int, out: *mut Stat) -> c_int {
        if let Some(answer) = stat_known(fd, out) {
            return answer;
        }
        let h = named_alone!(fd, else real(version, fd, out));
        stat_fd(h, out)
    }
    fn __fxstat64(version: c_int, fd: c_int, out: *mut Stat) -> c_int {
        if let Some(answer) = stat_known(fd, out) {
            return answer;
        }
        let h = named_alone!(fd, else real(version, fd, out));
        stat_fd(h, out)
    }
    fn __fxstatat(version: c_int, dirfd: c_int, path: *const c_char, out: *mut Stat, flags: c_int) -> c_int {
        if let Some(body) = itself(dirfd, path, flags) {
            return done(abi::put(out, to_stat(&body)));
        }
        stat_name(dirfd, path, out, flags, |dirfd, path| real(version, dirfd, path, out, flags))
    }
    fn __fxstatat64(version: c_int, dirfd: c_int, path: *const c_char, out: *mut Stat, flags: c_int) -> c_int {
        stat_name(dirfd, path, out, flags, |dirfd, path| real(version, dirfd, path, out, flags))
    }
    fn statx(dirfd: c_int, path: *const c_char, flags: c_int, mask: c_uint, out: *mut Statx) -> c_int {
        if check_flags(flags, mask).is_ok()
            && let Some(body) = itself(dirfd, path, flags)
        {
            return done(abi::put(out, to_statx(&body)));
        }
        let host = |dirfd, path| real(dirfd, path, flags, mask, out);
        route_file((dirfd, path, flags & NOFOLLOW != 0), host, |spot| {
            check_flags(flags, mask)?;
            let body = body_of(spot, flags)?;
            abi::put(out, to_statx(&body)).map(|()| 0)
        })
    }
    fn statfs(path: *const c_char, out: *mut Statfs) -> c_int {
        route_file((HERE, path, false), |_, path| real(path, out), |spot| exists(spot).and_then(|()| put_statfs(out)))
    }
    fn statfs64(path: *const c_char, out: *mut Statfs) -> c_int {
        route_file((HERE, path, false), |_, path| real(path, out), |spot| exists(spot).and_then(|()| put_statfs(out)))
    }
    fn fstatfs(fd: c_int, out: *mut Statfs) -> c_int {
        let _ = ours_or_path!(fd, else real(fd, out));
        abi::give(put_statfs(out))
    }
    fn fstatfs64(fd: c_int, out: *mut Statfs) -> c_int {
        let _ = ours_or_path!(fd, else real(fd, out));
        abi::give(put_statfs(out))
    }
    fn statvfs(path: *const c_char, out: *mut Statvfs) -> c_int {
        route_file((HERE, path, false), |_, path| real(path, out), |spot| exists(spot).and_then(|()| put_statvfs(out)))
    }
    fn statvfs64(path: *const c_char, out: *mut Statvfs) -> c_int {
        route_file((HERE, path, false), |_, path| real(path, out), |spot| exists(spot).and_then(|()| put_statvfs(out)))
    }
    fn fstatvfs(fd: c_int, out: *mut Statvfs) -> c_int {
        let _ = ours_or_path!(fd, else real(fd, out));
        abi::give(put_statvfs(out))
    }
    fn fstatvfs64(fd: c_int, out: *mut Statvfs) -> c_int {
        let _ = ours_or_path!(fd, else real(fd, out));
        abi::give(put_statvfs(out))
    }
    fn access(path: *const c_char, mode: c_int) -> c_int {
        route_file((HERE, path, false), |_, path| real(path, mode), |spot| may(spot, mode, 0))
    }
    fn eaccess(path: *const c_char, mode: c_int) -> c_int {
        route_file((HERE, path, false), |_, path| real(path, mode), |spot| may(spot, mode, 0))
    }
    fn euidaccess(path: *const c_char, mode: c_int) -> c_int {
        route_file((HERE, path, false), |_, path| real(path, mode), |spot| may(spot, mode, 0))
    }
    fn faccessat(dirfd: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
        let host = |dirfd, path| real(dirfd, path, mode, flags);
        route_file((dirfd, path, flags & NOFOLLOW != 0), host, |spot| may(spot, mode, flags))
    }
    fn pathconf(path: *const c_char, name: c_int) -> libc::c_long {
        route_file((HERE, path, false), |_, path| real(path, name), |spot| exists(spot).and_then(|()| limit(name)))
    }
    fn fpathconf(fd: c_int, name: c_int) -> libc::c_long {
        let _ = ours_or_path!(fd, else real(fd, name));
        match limit(name) { Ok(n) => n, Err(code) => fail(code) }
    }
}

/// pathconf's answers.
fn limit(name: c_int) -> Res<libc::c_long> {
    Ok(match name {
        libc::_PC_NAME_MAX => weldfs_ciscops::limits::NAME_MAX as _,
        libc::_PC_PATH_MAX => weldfs_ciscops::limits::PATH_MAX as _,
        libc::_PC_LINK_MAX => libc::c_long::from(u32::MAX),
        libc::_PC_PIPE_BUF => libc::PIPE_BUF as _,
        libc::_PC_NO_TRUNC | libc::_PC_CHOWN_RESTRICTED | libc::_PC_SYNC_IO => 1,
        libc::_PC_FILESIZEBITS => 64,
        libc::_PC_SYMLINK_MAX => weldfs_ciscops::limits::SYMLINK_MAX as _,
        libc::_PC_2_SYMLINKS => 1,
        libc::_PC_REC_XFER_ALIGN | libc::_PC_REC_MIN_XFER_SIZE | libc::_PC_ALLOC_SIZE_MIN => 4096,
        _ => return Err(libc::EINVAL),
    })
}
