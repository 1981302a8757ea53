//! Permission bits: who may read, write, search, create, remove and own. uid 0 bypasses as CAP_DAC_OVERRIDE does.

use super::Cred;
use weldfs_ciscops::Errno;
use weldfs_store::record::InodeRec;

/// Read.
pub const R: u32 = 4;
/// Write.
pub const W: u32 = 2;
/// Execute, or search a directory.
pub const X: u32 = 1;

/// `S_IFMT` and its values; the wire's `mode` uses Linux numbers.
pub(crate) const IFMT: u32 = 0o170_000;
/// Directory.
pub(crate) const IFDIR: u32 = 0o040_000;
/// Regular file.
pub(crate) const IFREG: u32 = 0o100_000;
/// Symbolic link.
pub(crate) const IFLNK: u32 = 0o120_000;
/// Set user id on execution.
pub(crate) const ISUID: u32 = 0o4000;
/// Set group id on execution; on a directory: entries inherit the group.
pub const ISGID: u32 = 0o2000;
/// Sticky.
pub(crate) const ISVTX: u32 = 0o1000;
/// Execute by the group.
pub(crate) const IXGRP: u32 = 0o010;

/// Whether `cred` has all of `want` (bits [`R`], [`W`], [`X`]) on the inode.
#[inline]
pub fn allowed(rec: &InodeRec, cred: &Cred, want: u32) -> bool {
    if cred.uid == 0 {
        return want & X == 0 || rec.is_dir() || rec.mode & 0o111 != 0;
    }
    let shift = if rec.uid == cred.uid {
        6
    } else if cred.in_group(rec.gid) {
        3
    } else {
        0
    };
    (rec.mode >> shift) & want == want
}

/// [`allowed`], or EACCES.
#[inline]
pub fn check(rec: &InodeRec, cred: &Cred, want: u32) -> Result<(), Errno> {
    if allowed(rec, cred, want) { Ok(()) } else { Err(Errno::ACCES) }
}

/// Whether `cred` owns the inode or is the superuser.
#[inline]
pub fn is_owner(rec: &InodeRec, cred: &Cred) -> bool {
    cred.uid == 0 || cred.uid == rec.uid
}

/// May an entry be added to `dir`? ENOENT when the directory has been removed, EACCES without write and search.
pub fn may_create(dir: &InodeRec, cred: &Cred) -> Result<(), Errno> {
    if dir.nlink == 0 {
        return Err(Errno::NOENT);
    }
    check(dir, cred, W | X)
}

/// May the entry that names `victim` be removed from `dir`? `as_dir` says what the caller expects it to be.
///
/// # Errors
/// EACCES; EPERM (sticky directory); ENOTDIR or EISDIR when the victim is the other kind.
pub fn may_delete(dir: &InodeRec, victim: &InodeRec, cred: &Cred, as_dir: bool) -> Result<(), Errno> {
    check(dir, cred, W | X)?;
    if dir.mode & ISVTX != 0 && cred.uid != 0 && cred.uid != victim.uid && cred.uid != dir.uid {
        return Err(Errno::PERM);
    }
    match (as_dir, victim.is_dir()) {
        (true, false) => Err(Errno::NOTDIR),
        (false, true) => Err(Errno::ISDIR),
        _ => Ok(()),
    }
}

/// May a name be added to `rec`? EPERM for those who neither own it nor could copy it: not to what is no regular file,
/// what they may not read and write, and what runs with its owner's or group's rights. A link would pin it, and with it
/// the flaw that its owner believes to have removed (Linux: `protected_hardlinks`).
pub(crate) fn may_link(rec: &InodeRec, cred: &Cred) -> Result<(), Errno> {
    let plain = rec.mode & IFMT == IFREG && rec.mode & ISUID == 0 && rec.mode & (ISGID | IXGRP) != ISGID | IXGRP;
    if is_owner(rec, cred) || plain && allowed(rec, cred, R | W) { Ok(()) } else { Err(Errno::PERM) }
}

/// Mode and group of a new inode in `dir`: a setgid directory gives its group, and to directories its bit too; an
/// ordinary user outside that group does not get a setgid executable.
pub fn inherit(dir: &InodeRec, cred: &Cred, kind: u32, perm: u32) -> (u32, u32) {
    let (mut perm, mut gid) = (perm & 0o7777, cred.gid);
    if dir.mode & ISGID != 0 {
        gid = dir.gid;
        let setgid_exec = perm & (ISGID | IXGRP) == ISGID | IXGRP;
        if kind == IFDIR {
            perm |= ISGID;
        } else if setgid_exec && cred.uid != 0 && !cred.in_group(gid) {
            perm &= !ISGID;
        }
    }
    (kind | perm, gid)
}

/// The mode of a regular file after a change of its content or owner: privilege bits go.
#[inline]
pub(crate) fn without_privileges(mode: u32) -> u32 {
    let mode = mode & !ISUID;
    if mode & IXGRP != 0 { mode & !ISGID } else { mode }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weldfs_ciscops::InodeNo;

    fn rec(mode: u32, uid: u32, gid: u32) -> InodeRec {
        InodeRec { mode, uid, gid, ..InodeRec::empty(InodeNo(9)) }
    }

    #[test]
    fn the_most_specific_class_decides() {
        let file = rec(IFREG | 0o077, 7, 70);
        assert!(!allowed(&file, &Cred::new(7, 70), R), "the owner has no bits although others do");
        assert!(allowed(&file, &Cred { uid: 8, gid: 1, groups: [70].as_slice().into() }, R | W | X));
    }

    #[test]
    fn the_superuser_needs_one_execute_bit() {
        assert!(!allowed(&rec(IFREG | 0o666, 7, 7), &Cred::root(), X));
        assert!(allowed(&rec(IFREG | 0o100, 7, 7), &Cred::root(), X | W | R));
        assert!(allowed(&rec(IFDIR, 7, 7), &Cred::root(), X | W | R));
    }

    #[test]
    fn sticky_protects_other_peoples_files() {
        let dir = rec(IFDIR | 0o1777, 1, 1);
        let file = rec(IFREG | 0o666, 2, 2);
        assert_eq!(may_delete(&dir, &file, &Cred::new(3, 3), false), Err(Errno::PERM));
        assert_eq!(may_delete(&dir, &file, &Cred::new(2, 2), false), Ok(()));
        assert_eq!(may_delete(&dir, &file, &Cred::new(1, 1), false), Ok(()));
    }
}
