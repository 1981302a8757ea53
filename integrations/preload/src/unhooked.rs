//! Programs that will not have this library: what they inherit of the device's descriptors is promoted first, for they
//! could do nothing with a placeholder (`static-program > /weld/out`).

use crate::{abi, promote, sys, table};
use libc::c_int;
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Bytes of a program that are looked at: its header and those of its segments.
const HEAD_BYTES: usize = 4096;
/// Scripts whose interpreters are scripts, as deep as the kernel goes.
const SCRIPTS_MAX: u32 = 5;

/// Before the kernel executes `program`: a program that is not dynamically linked, or has another user's rights, gets
/// descriptors of the kernel's own. Those that exec closes stay as they are, unless the call does more than exec with
/// them (`all`). One that cannot be promoted stays a placeholder, and fails there.
pub fn before(program: &CStr, all: bool) {
    if !promote::possible() {
        return;
    }
    let opens = table::opens();
    if opens.is_empty() || takes_the_library(program, SCRIPTS_MAX) {
        return;
    }
    for (_, fd) in opens {
        if all || kept_over_exec(fd) {
            let _ = promote::promote(fd);
        }
    }
}

/// The same for a name without a slash, which libc looks for in PATH.
pub fn before_search(file: &CStr, all: bool) {
    if !promote::possible() || table::opens().is_empty() {
        return;
    }
    let Some(dirs) = abi::env(c"PATH") else { return };
    let found = dirs.split(|b| *b == b':').find_map(|dir| {
        let name = CString::new(crate::path::join(if dir.is_empty() { b"." } else { dir }, file.to_bytes())).ok()?;
        let at = [libc::AT_FDCWD as usize, name.as_ptr() as usize, libc::X_OK as usize, 0, 0, 0];
        sys::checked(libc::SYS_faccessat, at).is_ok().then_some(name)
    });
    if let Some(name) = found {
        before(&name, all);
    }
}

/// Whether any number of the open file behind `fd` outlives an exec.
fn kept_over_exec(fd: c_int) -> bool {
    let Some(open) = table::entry(fd) else { return false };
    let mut kept = false;
    table::each(0, u32::MAX, |number| {
        let same = table::entry(number).is_some_and(|other| std::ptr::eq(other, open));
        if same && let Ok(flags) = sys::checked(libc::SYS_fcntl, [number as usize, libc::F_GETFD as usize, 0, 0, 0, 0])
        {
            kept |= flags as c_int & libc::FD_CLOEXEC == 0;
        }
    });
    kept
}

/// Whether the dynamic linker will load this library into a program. What cannot be looked at is believed to.
fn takes_the_library(program: &CStr, scripts: u32) -> bool {
    let Some((head, mode)) = head_of(program) else { return true };
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|b| *b == b'\n').next().unwrap_or_default().trim_ascii();
        let name = line.split(|b| matches!(b, b' ' | b'\t')).next().unwrap_or_default();
        return match CString::new(name) {
            Ok(name) if scripts > 0 => takes_the_library(&name, scripts - 1),
            _ => true,
        };
    }
    mode & (libc::S_ISUID | libc::S_ISGID) == 0 && asks_for_linker(&head).unwrap_or(true)
}

fn head_of(program: &CStr) -> Option<(Vec<u8>, u32)> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
    let at = [libc::AT_FDCWD as usize, program.as_ptr() as usize, flags as usize, 0, 0, 0];
    let fd = sys::checked(libc::SYS_openat, at).ok()?;
    // SAFETY: the descriptor just made, which nothing else knows.
    let file = unsafe { OwnedFd::from_raw_fd(fd as c_int) };
    let mut st: libc::stat = abi::zeroed();
    sys::checked(libc::SYS_fstat, [fd, &raw mut st as usize, 0, 0, 0, 0]).ok()?;
    if st.st_mode & libc::S_IFMT != libc::S_IFREG {
        return None;
    }
    let mut head = vec![0; HEAD_BYTES];
    let room = [file.as_raw_fd() as usize, head.as_mut_ptr() as usize, head.len(), 0, 0, 0];
    head.truncate(sys::checked(libc::SYS_pread64, room).ok()?);
    Some((head, st.st_mode))
}

/// Whether a program of 64 bits has a segment that names its dynamic linker (PT_INTERP, System V ABI, chapter 5);
/// `None` if it is no such program, or its headers do not lie in `head`.
fn asks_for_linker(head: &[u8]) -> Option<bool> {
    let word = |at: usize| Some(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?));
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let first = usize::try_from(u64::from_le_bytes(head.get(32..40)?.try_into().ok()?)).ok()?;
    let (size, count) = (usize::from(word(54)?), usize::from(word(56)?));
    for at in (0..count).map(|n| n.checked_mul(size)?.checked_add(first)) {
        let kind = head.get(at?..)?.get(..4)?;
        if kind == libc::PT_INTERP.to_le_bytes() {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with one segment of this kind.
    fn program(kind: u32) -> Vec<u8> {
        let mut head = vec![0u8; 64 + 56];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (head[32], head[54], head[56]) = (64, 56, 1);
        head[64..68].copy_from_slice(&kind.to_le_bytes());
        head
    }

    #[test]
    fn a_program_that_names_its_linker_is_told_from_one_that_does_not() {
        assert_eq!(asks_for_linker(&program(libc::PT_INTERP)), Some(true));
        assert_eq!(asks_for_linker(&program(libc::PT_LOAD)), Some(false));
    }

    #[test]
    fn what_is_no_program_or_ends_too_early_is_not_judged() {
        let whole = program(libc::PT_LOAD);
        for end in 0..whole.len() - 52 {
            assert_eq!(asks_for_linker(&whole[..end]), None, "{end} bytes");
        }
        let mut far = program(libc::PT_LOAD);
        far[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(asks_for_linker(&far), None);
        assert_eq!(asks_for_linker(b"#!/bin/sh\n"), None);
    }
}
