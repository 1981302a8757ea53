//! The strings of a command, copied out of the pool once and checked, before anything looks at them.

use crate::command::{Command, Op};
use crate::limits::{NAME_MAX, PATH_MAX};
use crate::{Errno, PoolRange, Program, SharedRegion};
use smallvec::SmallVec;

/// A path in private memory: no NUL (EINVAL), no component of more than 255 bytes, no more than 4095 in all
/// (ENAMETOOLONG).
pub(crate) fn check_path(s: &[u8]) -> Result<(), Errno> {
    check(s, Check::Path)
}

/// Private bytes of a path or name.
pub type PathBuf = SmallVec<[u8; 128]>;

/// The strings of one command. `a` is the (first) path; `b` the second path, the target of a symbolic link, or the
/// name of an extended attribute. Either is empty when the op has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// First path.
    pub a: PathBuf,
    /// Second string.
    pub b: PathBuf,
    /// The program of `Op::Program`, verified.
    pub program: Option<Box<Program>>,
}

/// What a string must satisfy beyond its length, which the decoder checked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Check {
    Path,
    Opaque,
}

impl Paths {
    /// Copies the strings of `cmd` out of the pool and checks them: no NUL (EINVAL), no component of more than 255
    /// bytes (ENAMETOOLONG), no slash in an attribute's name is asked for. The body of a program is verified as a whole
    /// (errors: docs/COMMANDS.md).
    pub fn fetch(cmd: &Command, pool: &SharedRegion) -> Result<Paths, Errno> {
        if let Op::Program { body } = cmd.op {
            return Ok(Paths { program: Some(Program::fetch(body, pool)?), ..Paths::default() });
        }
        let mut paths = Paths::default();
        paths.take(cmd, pool)?;
        Ok(paths)
    }

    /// The same in the place of what was there.
    pub fn refill(&mut self, cmd: &Command, pool: &SharedRegion) -> Result<(), Errno> {
        self.a.clear();
        self.b.clear();
        self.program = match cmd.op {
            Op::Program { body } => Some(Program::fetch(body, pool)?),
            _ => None,
        };
        self.take(cmd, pool)
    }

    /// The same in place, of a command that is no program.
    pub fn take(&mut self, cmd: &Command, pool: &SharedRegion) -> Result<(), Errno> {
        let (a, b) = ranges(&cmd.op);
        if let Some(range) = a {
            copy(pool, range, Check::Path, &mut self.a)?;
        }
        if let Some((range, check)) = b {
            copy(pool, range, check, &mut self.b)?;
        }
        Ok(())
    }

    /// From private bytes (tests, embedded callers); the same checks.
    pub fn new(a: &[u8], b: &[u8]) -> Result<Paths, Errno> {
        check(a, Check::Path)?;
        check(b, Check::Opaque)?;
        Ok(Paths { a: PathBuf::from_slice(a), b: PathBuf::from_slice(b), program: None })
    }
}

fn ranges(op: &Op) -> (Option<PoolRange>, Option<(PoolRange, Check)>) {
    match *op {
        Op::Open { path, .. }
        | Op::StatPath { path, .. }
        | Op::SetAttrPath { path, .. }
        | Op::Mkdir { path, .. }
        | Op::Rmdir { path, .. }
        | Op::Unlink { path, .. }
        | Op::Readlink { path, .. }
        | Op::Access { path, .. }
        | Op::ListXattr { path, .. }
        | Op::VirtRegister { path, .. }
        | Op::VirtSpec { path, .. }
        | Op::OpenWriteClose { path, .. }
        | Op::OpenReadClose { path, .. }
        | Op::OpenReadWriteClose { path, .. } => (Some(path), None),
        Op::Rename { from, to, .. } | Op::Link { from, to, .. } => (Some(from), Some((to, Check::Path))),
        Op::Symlink { path, target, .. } => (Some(path), Some((target, Check::Opaque))),
        Op::GetXattr { path, name, .. } | Op::SetXattr { path, name, .. } | Op::RemoveXattr { path, name, .. } => {
            (Some(path), Some((name, Check::Opaque)))
        }
        _ => (None, None),
    }
}

fn copy(pool: &SharedRegion, range: PoolRange, kind: Check, to: &mut PathBuf) -> Result<(), Errno> {
    let bytes = pool.slice(range)?;
    to.clear();
    to.resize(bytes.len(), 0);
    bytes.copy_to(to);
    check(to, kind)
}

fn check(s: &[u8], kind: Check) -> Result<(), Errno> {
    if s.len() >= PATH_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    if s.contains(&0) {
        return Err(Errno::INVAL);
    }
    if kind == Check::Path && s.len() > NAME_MAX && s.split(|b| *b == b'/').any(|c| c.len() > NAME_MAX) {
        return Err(Errno::NAMETOOLONG);
    }
    Ok(())
}
