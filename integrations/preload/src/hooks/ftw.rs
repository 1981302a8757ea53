//! ftw and nftw. glibc's own call its opendir, readdir and stat by names that cannot be interposed, so a walk that
//! begins in the device is done here, over the hooks of those; it may lead to the host by a link and is then still
//! right. A directory is read whole before its entries are visited, so no limit of open descriptors is ever in the way.

use super::directory::{names_in, touches};
use super::stat::{lstat64, stat64};
use crate::abi::{self, Res, fail, hook};
use libc::{c_char, c_int, stat as Stat};
use std::collections::HashSet;
use std::ffi::{CStr, CString};

const PHYS: c_int = 1;
const MOUNT: c_int = 2;
const CHDIR: c_int = 4;
const DEPTH: c_int = 8;
const ACTION: c_int = 16;

const FILE: c_int = 0;
const DIRECTORY: c_int = 1;
const UNREADABLE: c_int = 2;
const NO_STAT: c_int = 3;
const LINK: c_int = 4;
const DIRECTORY_AFTER: c_int = 5;
const LINK_TO_NOTHING: c_int = 6;

/// What a function returns under FTW_ACTIONRETVAL.
const SKIP_SUBTREE: c_int = 2;
const SKIP_SIBLINGS: c_int = 3;

/// `struct FTW`.
#[repr(C)]
pub struct Where {
    base: c_int,
    level: c_int,
}

type Old = extern "C" fn(*const c_char, *const Stat, c_int) -> c_int;
type New = extern "C" fn(*const c_char, *const Stat, c_int, *mut Where) -> c_int;

#[derive(Clone, Copy)]
enum Visit {
    /// ftw's function, which knows four kinds only.
    Old(Old),
    New(New),
}

struct Walk {
    visit: Visit,
    flags: c_int,
    /// Device of the start.
    device: u64,
    /// Directories seen, when links are followed.
    seen: HashSet<(u64, u64)>,
    /// Before every name that is looked at, where the program's own directory moves along.
    root: Vec<u8>,
    /// The name as the program sees it.
    path: Vec<u8>,
    level: c_int,
}

/// A name that stat can take.
fn c_name(bytes: &[u8]) -> Res<CString> {
    CString::new(bytes).map_err(|_| libc::EINVAL)
}

impl Walk {
    /// The name to give to the hooks for one that the program sees.
    fn real(&self, path: &[u8]) -> Res<CString> {
        match path {
            [b'/', ..] => c_name(path),
            [] => c_name(&self.root),
            _ if self.root.is_empty() => c_name(path),
            _ => c_name(&crate::path::join(&self.root, path)),
        }
    }

    fn tell(&self, st: &Stat, kind: c_int, base: usize) -> Res<c_int> {
        let path = c_name(&self.path)?;
        let mut place = Where { base: base as c_int, level: self.level };
        Ok(match self.visit {
            Visit::New(visit) => visit(path.as_ptr(), st, kind, &raw mut place),
            Visit::Old(visit) => {
                let kind = match kind {
                    LINK => FILE,
                    DIRECTORY_AFTER => DIRECTORY,
                    LINK_TO_NOTHING => NO_STAT,
                    kind => kind,
                };
                visit(path.as_ptr(), st, kind)
            }
        })
    }

    fn has(&self, flag: c_int) -> bool {
        self.flags & flag != 0
    }

    /// What stands at the path, and how it is told. Errors but EACCES and ENOENT end the walk.
    fn look(&self) -> Res<(Stat, c_int)> {
        let (name, mut st) = (self.real(&self.path)?, abi::zeroed::<Stat>());
        let look = if self.has(PHYS) { lstat64 } else { stat64 };
        if look(name.as_ptr(), &raw mut st) == 0 {
            let kind = match st.st_mode & libc::S_IFMT {
                libc::S_IFDIR => DIRECTORY,
                libc::S_IFLNK => LINK,
                _ => FILE,
            };
            return Ok((st, kind));
        }
        let code = abi::errno();
        if !matches!(code, libc::EACCES | libc::ENOENT) {
            return Err(code);
        }
        if !self.has(PHYS) && lstat64(name.as_ptr(), &raw mut st) == 0 && st.st_mode & libc::S_IFMT == libc::S_IFLNK {
            return Ok((st, LINK_TO_NOTHING));
        }
        abi::set_errno(code);
        Ok((st, NO_STAT))
    }

    fn entry(&mut self, base: usize) -> Res<c_int> {
        let (st, kind) = self.look()?;
        if kind != NO_STAT && self.has(MOUNT) && st.st_dev != self.device {
            return Ok(0);
        }
        let result = if kind != DIRECTORY {
            self.tell(&st, kind, base)?
        } else if self.has(PHYS) || self.seen.insert((st.st_dev, st.st_ino)) {
            self.directory(&st, base)?
        } else {
            0
        };
        Ok(if self.has(ACTION) && result == SKIP_SUBTREE { 0 } else { result })
    }

    fn directory(&mut self, st: &Stat, base: usize) -> Res<c_int> {
        let names = match names_in(self.real(&self.path)?.as_c_str()) {
            Err(libc::EACCES) => return self.tell(st, UNREADABLE, base),
            names => names?,
        };
        if !self.has(DEPTH) {
            let result = self.tell(st, DIRECTORY, base)?;
            if result != 0 {
                return Ok(if self.has(ACTION) && result == SKIP_SUBTREE { 0 } else { result });
            }
        }
        let whole = self.path.len();
        self.stand_in(whole)?;
        if self.path.last() != Some(&b'/') {
            self.path.push(b'/');
        }
        let (start, mut result) = (self.path.len(), 0);
        self.level += 1;
        for name in names {
            self.path.extend_from_slice(&name);
            result = self.entry(start)?;
            self.path.truncate(start);
            // A directory below has moved on.
            self.stand_in(whole)?;
            if result != 0 {
                break;
            }
        }
        self.level -= 1;
        self.path.truncate(whole);
        if self.has(ACTION) && result == SKIP_SIBLINGS {
            result = 0;
        }
        if result == 0 && self.has(DEPTH) {
            result = self.tell(st, DIRECTORY_AFTER, base)?;
        }
        Ok(result)
    }

    /// Under FTW_CHDIR the program stands in the directory whose entries it is told: the first `len` bytes of the path.
    fn stand_in(&self, len: usize) -> Res<()> {
        if !self.has(CHDIR) {
            return Ok(());
        }
        let directory = self.real(&self.path[..len])?;
        if super::cwd::chdir(directory.as_ptr()) == 0 { Ok(()) } else { Err(abi::errno()) }
    }
}

fn walk(path: *const c_char, visit: Visit, flags: c_int) -> c_int {
    let go = || -> Res<c_int> {
        let given = abi::text(path)?;
        if given.is_empty() {
            return Err(libc::ENOENT);
        }
        let end = given.iter().rposition(|b| *b != b'/').map_or(1, |n| n + 1);
        let start = given[..end].to_vec();
        let base = start.iter().rposition(|b| *b == b'/').filter(|_| start.len() > 1).map_or(0, |n| n + 1);
        let seen = HashSet::new();
        let mut walk = Walk { visit, flags, device: 0, seen, root: Vec::new(), path: start, level: 0 };
        let home = if walk.has(CHDIR) { Some(home()?) } else { None };
        if let Some(home) = &home {
            walk.root = home.to_bytes().to_vec();
            walk.stand_in(base)?;
        }
        let answer = walk.begin(base);
        if let Some(home) = home {
            let saved = abi::errno();
            super::cwd::chdir(home.as_ptr());
            abi::set_errno(saved);
        }
        answer
    };
    match go() {
        Ok(answer) => answer,
        Err(code) => fail(code),
    }
}

impl Walk {
    fn begin(&mut self, base: usize) -> Res<c_int> {
        let (st, kind) = self.look()?;
        self.device = st.st_dev;
        let result = match kind {
            NO_STAT => return Err(abi::errno()),
            DIRECTORY => {
                self.seen.insert((st.st_dev, st.st_ino));
                self.directory(&st, base)?
            }
            kind => self.tell(&st, kind, base)?,
        };
        let skips = self.has(ACTION) && matches!(result, SKIP_SUBTREE | SKIP_SIBLINGS);
        Ok(if skips { 0 } else { result })
    }
}

/// The working directory, to come back to.
fn home() -> Res<CString> {
    let mut room = [0u8; libc::PATH_MAX as usize];
    if super::cwd::getcwd(room.as_mut_ptr().cast(), room.len()).is_null() {
        return Err(abi::errno());
    }
    CStr::from_bytes_until_nul(&room).map(CStr::to_owned).map_err(|_| libc::ENAMETOOLONG)
}

hook! { real;
    fn nftw(path: *const c_char, visit: New, fds: c_int, flags: c_int) -> c_int {
        if touches(path) { walk(path, Visit::New(visit), flags) } else { real(path, visit, fds, flags) }
    }
    fn nftw64(path: *const c_char, visit: New, fds: c_int, flags: c_int) -> c_int {
        if touches(path) { walk(path, Visit::New(visit), flags) } else { real(path, visit, fds, flags) }
    }
    fn ftw(path: *const c_char, visit: Old, fds: c_int) -> c_int {
        if touches(path) { walk(path, Visit::Old(visit), 0) } else { real(path, visit, fds) }
    }
    fn ftw64(path: *const c_char, visit: Old, fds: c_int) -> c_int {
        if touches(path) { walk(path, Visit::Old(visit), 0) } else { real(path, visit, fds) }
    }
}
