//! Programs: which inodes one holds, and what room it reserves. Both are known before its first micro-op, from the body
//! alone: names and handles in it are constants, lengths have bounds.
//!
//! Where a name leads may depend on what the program does before it comes there (it may rename what it opens then). The
//! set is resolved as things are; a micro-op that is led elsewhere says which inode it lacks, and the program starts
//! over with that one held too. Each time the set grows, so that ends.

use super::bounds::{LOG_BASE, LOG_BEGIN, LOG_COMMIT, LOG_OPEN, LOG_PER_BLOCK, held_blocks};
use super::inode_set::{Hold, Resolver};
use super::resolve::{self, Last, Walker};
use super::stage::BLOCK_BYTES;
use super::{FILE_BYTES_MAX, SessionView};
use weldfs_ciscops::limits::PROGRAM_FILES;
use weldfs_ciscops::program::{Micro, Place, Value};
use weldfs_ciscops::{Handle, InodeNo, OpenFlags, Program};
use weldfs_store::error::{FsError, FsResult};
use weldfs_store::limits::WINDOW_BLOCKS;
use weldfs_store::{Need, Store};

/// Log bytes of a group in a begin record beside its effects.
const LOG_GROUP: usize = 24;

/// Adds what the micro-ops of a program work on.
pub(super) fn resolve(program: &Program, r: &mut Resolver<'_>) -> FsResult<()> {
    use Hold::{Exclusive, Shared};
    for (i, micro) in program.micros().iter().enumerate() {
        let file = if program.changes_file_of(i) { Exclusive } else { Shared };
        match *micro {
            Micro::Open { base, path, flags, .. } => r.open(base, program.string(path), flags, file)?,
            Micro::Use { h, .. } if file == Exclusive => r.written(h)?,
            Micro::Use { h, .. } => r.handle(h, Shared)?,
            Micro::Unlink { base, path } | Micro::Rmdir { base, path } => {
                r.path(base, program.string(path), Last::Name, Exclusive, Exclusive)?;
            }
            Micro::Mkdir { base, path, .. } | Micro::Symlink { base, path, .. } => {
                r.path(base, program.string(path), Last::Name, Exclusive, Shared)?;
            }
            Micro::Rename { from_base, from, to_base, to, .. } => {
                r.rename((from_base, program.string(from)), (to_base, program.string(to)))?;
            }
            Micro::Link { from_base, from, to_base, to, follow } => {
                let from = from.map_or(&b""[..], |from| program.string(from));
                r.object(from_base, from, !follow, Exclusive)?;
                r.path(to_base, program.string(to), Last::Name, Exclusive, Shared)?;
            }
            Micro::SetAttr { base, path, nofollow, .. } => {
                let path = path.map_or(&b""[..], |path| program.string(path));
                r.object(base, path, nofollow, Exclusive)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// What is summed up: the upper bounds of all micro-ops.
struct Sum<'a> {
    store: &'a Store,
    session: &'a dyn SessionView,
    program: &'a Program,
    inline: bool,
    need: Need,
    /// The inodes in the file slots, where they are known and hold what they held before.
    files: [Option<InodeNo>; PROGRAM_FILES],
    creates: bool,
    /// A micro-op may have taken a name, or given it to another file: what a name means now is unknown until it runs.
    renames: bool,
    /// One may have cut a file: what files hold is unknown. Then a write counts as growth, or more than was promised
    /// to growth could be written.
    cuts: bool,
}

/// What `program` must reserve; `None` if it changes nothing. `steps`: it commits step by step.
///
/// # Errors
/// Misses and damage as they come.
pub(super) fn need(store: &Store, session: &dyn SessionView, program: &Program, steps: bool) -> FsResult<Option<Need>> {
    if !program.changes() {
        return Ok(None);
    }
    let inline = program.write_bytes() <= store.inline_max() as u64;
    let need = Need { log_bytes: LOG_BASE, ..Need::default() };
    let files = [None; PROGRAM_FILES];
    let mut sum = Sum { store, session, program, inline, need, files, creates: false, renames: false, cuts: false };
    let mut groups = 0;
    for (i, micro) in program.micros().iter().enumerate() {
        sum.add(i, micro)?;
        groups += usize::from(micro.changes());
    }
    let mut need = sum.need;
    need.may_fail = need.new_blocks > 0 || sum.creates;
    if steps {
        need.log_bytes += LOG_BEGIN + LOG_GROUP * groups;
        need.small_records = groups + 1;
    }
    Ok(Some(need))
}

/// The same for plain writes of `bytes` in all: each of so many bytes, into a file, at an offset or the end.
///
/// # Errors
/// Misses and damage as they come.
pub(super) fn writes_need(
    store: &Store,
    bytes: u64,
    writes: &mut dyn Iterator<Item = (u64, InodeNo, Option<u64>)>,
) -> FsResult<Need> {
    let inline = bytes <= store.inline_max() as u64;
    let mut need = Need { log_bytes: LOG_BASE, ..Need::default() };
    for (bytes, ino, off) in writes {
        let place = off.map_or(Place::End, |off| Place::At(Value::Imm(off)));
        add_write(store, &mut need, inline, bytes, Some(ino), place)?;
    }
    need.may_fail = need.new_blocks > 0;
    Ok(need)
}

/// Adds a write of at most so many bytes.
fn add_write(
    store: &Store,
    need: &mut Need,
    inline: bool,
    bytes: u64,
    file: Option<InodeNo>,
    place: Place,
) -> FsResult<()> {
    if bytes == 0 {
        return Ok(());
    }
    let off = match place {
        Place::At(Value::Imm(off)) if off < FILE_BYTES_MAX => Some(off),
        _ => None,
    };
    let blocks = match off {
        Some(off) => (off % BLOCK_BYTES + bytes).div_ceil(BLOCK_BYTES),
        None => bytes.div_ceil(BLOCK_BYTES) + 1,
    };
    let held = match (file, off, place) {
        (Some(ino), Some(off), _) => held_blocks(store, ino, off / BLOCK_BYTES, blocks)?,
        // An append overwrites at most the last block.
        (Some(_), _, Place::End | Place::After) => 1.min(blocks),
        _ => 0,
    };
    let log = if inline { bytes as usize + 32 * blocks as usize } else { LOG_PER_BLOCK * blocks as usize };
    need.new_blocks += (blocks - held) as u32;
    need.log_bytes += LOG_COMMIT + log;
    need.meta_keys += 4 + (blocks / WINDOW_BLOCKS) as u32;
    need.overwrite_blocks += held as u32;
    Ok(())
}

impl Sum<'_> {
    fn room(&mut self, log_bytes: usize, meta_keys: u32, overwrite_blocks: u32) {
        self.need.log_bytes += log_bytes;
        self.need.meta_keys += meta_keys;
        self.need.overwrite_blocks += overwrite_blocks;
    }

    fn set_file(&mut self, slot: u8, ino: Option<InodeNo>) {
        if let Some(file) = self.files.get_mut(usize::from(slot)) {
            *file = ino.filter(|_| !self.cuts);
        }
    }

    fn add(&mut self, index: usize, micro: &Micro) -> FsResult<()> {
        let name = |s| 2 * self.program.string(s).len();
        match *micro {
            Micro::Open { file, base, path, flags, .. } => {
                let found = self.lookup(base, self.program.string(path))?;
                if flags.intersects(OpenFlags::CREATE | OpenFlags::TRUNC) {
                    self.room(LOG_OPEN + name(path), 8, u32::from(flags.contains(OpenFlags::TRUNC)));
                }
                self.creates |= found.is_none() && flags.contains(OpenFlags::CREATE);
                if flags.contains(OpenFlags::TRUNC) {
                    self.forget_content();
                }
                self.set_file(file.0, found);
            }
            Micro::Use { file, h, .. } => {
                let ino = resolve::base_inode(self.session, h).ok();
                self.set_file(file.0, ino);
            }
            Micro::Write { file, place, .. } | Micro::CopyRange { to: file, place, .. } => {
                let ino = self.files.get(usize::from(file.0)).copied().flatten();
                let bytes = self.program.write_bytes_of(index);
                add_write(self.store, &mut self.need, self.inline, bytes, ino, place)?;
            }
            Micro::Truncate { .. } => self.cut(),
            Micro::SetAttr { size, .. } if size.is_some() => self.cut(),
            Micro::SetAttr { .. } => self.room(LOG_COMMIT, 4, 0),
            Micro::Unlink { path, .. } | Micro::Rmdir { path, .. } => {
                self.room(LOG_BASE + name(path), 8, 0);
                self.renames = true;
            }
            Micro::Mkdir { path, .. } => self.name(name(path)),
            Micro::Symlink { target, path, .. } => self.name(name(path) + name(target)),
            Micro::Rename { from, to, .. } => self.name(name(from) + name(to)),
            Micro::Link { to, .. } => self.name(name(to)),
            _ => {}
        }
        Ok(())
    }

    /// A new name.
    fn name(&mut self, bytes: usize) {
        self.room(LOG_BASE + bytes, 12, 0);
        (self.creates, self.renames) = (true, true);
    }

    /// A file is cut.
    fn cut(&mut self) {
        self.room(LOG_OPEN, 8, 1);
        self.forget_content();
    }

    /// From here on it is not known what files hold.
    fn forget_content(&mut self) {
        (self.files, self.cuts) = ([None; PROGRAM_FILES], true);
    }

    /// The file of that name, as things are now; none once they may have changed.
    fn lookup(&self, base: Handle, path: &[u8]) -> FsResult<Option<InodeNo>> {
        if self.renames {
            return Ok(None);
        }
        let Ok(base) = resolve::start_inode(self.session, base, path) else { return Ok(None) };
        // What is far away counts as unknown: it is looked for in strides, and only when it is used.
        match Walker::of(self.session).glance(self.store, base, path, Last::Follow) {
            Ok(found) => Ok(found.and_then(|f| f.rec).map(|r| r.ino)),
            Err(FsError::Errno(_)) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests;
