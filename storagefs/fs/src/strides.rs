//! Long work of one command in strides: walks along many components, the way up from a deep directory, looks for data
//! in a file of many pieces, lists of many attributes.
//!
//! The synchronous cores cannot give way in the middle. What takes long here ends with [`FsError::Turn`] after a stride
//! and is remembered: the core is called again when others have had their turn, and goes on where it was. A core reads
//! before it stages, so nothing but what it read is done twice; what is remembered lasts until the core is over.
//!
//! How many components the paths of one command may have, links included, is bounded too (`PATH_COMPONENTS_MAX`): a
//! walk costs what its components cost, and forty links of 4 KiB can name eighty thousand of them.

use super::resolve::{Found, Last, Trail, View, Walker, Walking};
use smallvec::SmallVec;
use weldfs_ciscops::limits::PATH_COMPONENTS_MAX;
use weldfs_ciscops::{Errno, InodeNo};
use weldfs_store::Store;
use weldfs_store::error::{FsError, FsResult};
use weldfs_store::record::Xattr;

/// Which walk it is: address and length of the path (the command's own copy, which stays where it is), where it starts,
/// what becomes of a link in the last place.
pub(super) type WalkKey = ((usize, usize), InodeNo, Last);

/// The key of a walk.
pub(super) fn key_of(start: InodeNo, path: &[u8], last: Last) -> WalkKey {
    ((path.as_ptr() as usize, path.len()), start, last)
}

/// A long walk.
struct Walk {
    key: WalkKey,
    walking: Walking,
    /// How it ended, once it is over.
    over: Option<Result<(), Errno>>,
}

/// The way up from a directory.
#[derive(Clone, Copy)]
pub(super) struct Climb {
    /// What is looked for above what.
    pub of: (InodeNo, InodeNo),
    /// The directory reached and the one above it.
    pub at: (InodeNo, InodeNo),
    /// Directories passed.
    pub step: u64,
    /// The one met at the last power of two: it comes again on a way that closes, and on no other.
    pub met: Option<InodeNo>,
    /// What came of it.
    pub answer: Option<bool>,
}

/// A list of attributes.
pub(super) struct List {
    /// The names so far, as long as there is room for them.
    pub names: Vec<u8>,
    /// How long all of them are.
    pub bytes: u64,
    /// The slot to go on with; none at the end.
    pub next: Option<u64>,
}

impl List {
    /// One more, where the caller has room for so many bytes.
    pub(super) fn add(&mut self, x: &Xattr, room: u64) {
        self.bytes += x.name.len() as u64 + 1;
        if self.bytes <= room {
            self.names.extend_from_slice(&x.name);
            self.names.push(0);
        }
    }
}

/// What a core that was interrupted had done.
#[derive(Default)]
pub(super) struct Long {
    walks: SmallVec<[Walk; 1]>,
    pub climbs: SmallVec<[Climb; 2]>,
    /// Of a look for data or a hole: the first block that was not looked at.
    pub look: Option<u64>,
    list: Option<List>,
}

/// The strides of one command.
#[derive(Default)]
pub struct Strides {
    /// Components looked up by cores that are over, and by the one that runs.
    spent: u32,
    now: u32,
    /// Of the last walk that was over.
    last: u32,
    long: Option<Box<Long>>,
    /// What had been applied to the store before the first stride (see [`Store::generation`]).
    generation: Option<u64>,
}

impl Strides {
    /// What had been applied to the store when the walks before the set began.
    #[inline]
    pub(super) fn generation(&mut self, store: &Store) -> u64 {
        *self.generation.get_or_insert_with(|| store.generation())
    }

    /// The core is called again from its beginning.
    #[inline]
    pub(super) fn again(&mut self) {
        self.now = 0;
    }

    /// The core is over.
    #[inline]
    pub(super) fn over(&mut self) {
        self.spent += std::mem::take(&mut self.now);
        self.long = None;
    }

    /// What is remembered.
    pub(super) fn long(&mut self) -> &mut Long {
        self.long.get_or_insert_default()
    }

    /// Remembers how far up from a directory the core has come.
    pub(super) fn note_climb(&mut self, climb: Climb) {
        let climbs = &mut self.long().climbs;
        match climbs.iter_mut().find(|c| c.of == climb.of) {
            Some(known) => *known = climb,
            None => climbs.push(climb),
        }
    }

    /// The list as far as it has come, or a new one.
    pub(super) fn take_list(&mut self) -> List {
        let begun = self.remembered().and_then(|long| long.list.take());
        begun.unwrap_or(List { names: Vec::new(), bytes: 0, next: Some(0) })
    }

    /// Remembers a list that is to be gone on with after `why`.
    pub(super) fn keep_list<T>(&mut self, list: List, why: FsError) -> FsResult<T> {
        self.long().list = Some(list);
        Err(why)
    }

    /// What is remembered, if anything is.
    #[inline]
    pub(super) fn remembered(&mut self) -> Option<&mut Long> {
        self.long.as_deref_mut()
    }

    /// Counts components that a walk needed.
    ///
    /// # Errors
    /// ELOOP when the command's paths have more than they may.
    #[inline]
    pub(super) fn count(&mut self, components: u32) -> Result<(), Errno> {
        self.now += components;
        if self.spent + self.now > PATH_COMPONENTS_MAX { Err(Errno::LOOP) } else { Ok(()) }
    }

    /// How many components the last walk needed.
    #[inline]
    pub(super) fn last_walk(&self) -> u32 {
        self.last
    }

    /// Walks, or goes on with a walk that was interrupted.
    ///
    /// # Errors
    /// As [`Walker::begin`] and [`Walker::stride`]; `Turn` after a stride.
    pub(super) fn walk<V: View + ?Sized>(
        &mut self,
        walker: Walker<'_>,
        view: &V,
        (start, path, last): (InodeNo, &[u8], Last),
        trail: &mut Trail,
    ) -> FsResult<Box<Found>> {
        let allowed = PATH_COMPONENTS_MAX.saturating_sub(self.spent + self.now);
        if self.long.is_some() {
            return self.resume(walker, view, (start, path, last), allowed, trail);
        }
        let mut walking = walker.begin(view, start, path)?;
        let done = walker.stride(view, path, last, allowed, &mut walking);
        *trail = walking.trail();
        match done {
            Ok(true) => {
                (self.now, self.last) = (self.now + walking.components(), walking.components());
                Ok(walking.end())
            }
            Err(FsError::Miss(_)) | Ok(false) => {
                let key = key_of(start, path, last);
                self.long().walks.push(Walk { key, walking, over: None });
                Err(done.err().unwrap_or(FsError::Turn))
            }
            Err(e) => {
                self.now += walking.components();
                Err(e)
            }
        }
    }

    /// The same while something is remembered: this walk, or another one of the core.
    #[cold]
    fn resume<V: View + ?Sized>(
        &mut self,
        walker: Walker<'_>,
        view: &V,
        (start, path, last): (InodeNo, &[u8], Last),
        allowed: u32,
        trail: &mut Trail,
    ) -> FsResult<Box<Found>> {
        let key = key_of(start, path, last);
        let walks = &mut self.long.get_or_insert_default().walks;
        let at = match walks.iter().position(|w| w.key == key) {
            Some(at) => at,
            None => {
                walks.push(Walk { key, walking: walker.begin(view, start, path)?, over: None });
                walks.len() - 1
            }
        };
        let Walk { walking, over, .. } = &mut walks[at];
        let result = match *over {
            Some(result) => result,
            None => *over.insert(match walker.stride(view, path, last, allowed, walking) {
                Ok(true) => Ok(()),
                Ok(false) => return Err(FsError::Turn),
                Err(FsError::Errno(errno)) => Err(errno),
                Err(e) => return Err(e),
            }),
        };
        (self.now, self.last, *trail) = (self.now + walking.components(), walking.components(), walking.trail());
        result?;
        Ok(walking.found())
    }
}

#[cfg(test)]
mod tests;
