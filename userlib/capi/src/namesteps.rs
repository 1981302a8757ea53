//! Steps of a program that work on names.

use crate::boundary::{call, given, misuse};
use crate::program::{WELDFS_NONE, weldfs_program, weldfs_value};
use libc::{c_char, c_int};
use weldfs::{Handle, RenameFlags};
use weldfs_ciscops::program::Micro;

/// Step: unlink(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_unlink(program: Option<&mut weldfs_program>, path: *const c_char) -> c_int {
    call("weldfs_program_unlink", || {
        let program = given(program)?;
        let path = program.string(path)?;
        program.push(Micro::Unlink { base: Handle::ROOT, path })
    })
}

/// Step: rmdir(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_rmdir(program: Option<&mut weldfs_program>, path: *const c_char) -> c_int {
    call("weldfs_program_rmdir", || {
        let program = given(program)?;
        let path = program.string(path)?;
        program.push(Micro::Rmdir { base: Handle::ROOT, path })
    })
}

/// Step: mkdir(2); no umask is applied to `mode`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_mkdir(
    program: Option<&mut weldfs_program>,
    path: *const c_char,
    mode: u32,
) -> c_int {
    call("weldfs_program_mkdir", || {
        let program = given(program)?;
        let path = program.string(path)?;
        program.push(Micro::Mkdir { base: Handle::ROOT, path, mode: (mode & 0o7777) as u16 })
    })
}

/// Step: renameat2(2), with `flags` as for weldfs_rename.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_rename(
    program: Option<&mut weldfs_program>,
    from: *const c_char,
    to: *const c_char,
    flags: u32,
) -> c_int {
    call("weldfs_program_rename", || {
        let program = given(program)?;
        let flags = u8::try_from(flags).ok().and_then(RenameFlags::from_bits).ok_or(misuse("no such flags"))?;
        let (from, to) = (program.string(from)?, program.string(to)?);
        let (from_base, to_base) = (Handle::ROOT, Handle::ROOT);
        program.push(Micro::Rename { from_base, from, to_base, to, flags })
    })
}

/// Step: link(2); with `follow` other than 0 a final symbolic link of `from` is followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_link(
    program: Option<&mut weldfs_program>,
    from: *const c_char,
    to: *const c_char,
    follow: c_int,
) -> c_int {
    call("weldfs_program_link", || {
        let program = given(program)?;
        let (from, to) = (Some(program.string(from)?), program.string(to)?);
        let (from_base, to_base) = (Handle::ROOT, Handle::ROOT);
        program.push(Micro::Link { from_base, from, to_base, to, follow: follow != 0 })
    })
}

/// Step: symlink(2): makes `path` a symbolic link that says `target`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_symlink(
    program: Option<&mut weldfs_program>,
    target: *const c_char,
    path: *const c_char,
) -> c_int {
    call("weldfs_program_symlink", || {
        let program = given(program)?;
        let (target, path) = (program.string(target)?, program.string(path)?);
        program.push(Micro::Symlink { target, base: Handle::ROOT, path })
    })
}

/// weldfs_program_set: a final symbolic link itself is meant.
pub const WELDFS_NOFOLLOW: u32 = 1;
/// weldfs_program_set: the size is set.
pub const WELDFS_SET_SIZE: u32 = 2;
/// weldfs_program_set: the access time is now.
pub const WELDFS_ACCESSED_NOW: u32 = 4;
/// weldfs_program_set: the time of the last change is now.
pub const WELDFS_CHANGED_NOW: u32 = 8;

/// Step: changes permission bits (`mode`, unless WELDFS_NONE), size (with WELDFS_SET_SIZE) and times of what is at
/// `path`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_set(
    program: Option<&mut weldfs_program>,
    path: *const c_char,
    mode: c_int,
    size: weldfs_value,
    flags: u32,
) -> c_int {
    const ALL: u32 = WELDFS_NOFOLLOW | WELDFS_SET_SIZE | WELDFS_ACCESSED_NOW | WELDFS_CHANGED_NOW;
    call("weldfs_program_set", || {
        let program = given(program)?;
        if flags & !ALL != 0 || (mode != WELDFS_NONE && mode & !0o7777 != 0) {
            return Err(misuse("no such flag or mode"));
        }
        let size = if flags & WELDFS_SET_SIZE != 0 { Some(program.value(size)?) } else { None };
        let path = Some(program.string(path)?);
        program.push(Micro::SetAttr {
            base: Handle::ROOT,
            path,
            nofollow: flags & WELDFS_NOFOLLOW != 0,
            mode: if mode == WELDFS_NONE { None } else { Some(mode as u16) },
            size,
            atime_now: flags & WELDFS_ACCESSED_NOW != 0,
            mtime_now: flags & WELDFS_CHANGED_NOW != 0,
        })
    })
}
