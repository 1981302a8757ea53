//! The way along a path: how far one command may go, and how it gives way to others.
//!
//! Most paths have few components and no link on their way: one call of the host walks them. The host would also walk
//! what forty links of 4 KiB make of a path, eighty thousand components, in one call, and nothing else could be done
//! meanwhile. So it is told to follow no link. Where one is met, and on long paths, the walk goes in strides: a call
//! for a few components, up to the first link, which is read and walked in its turn. Between strides whoever waits for
//! names has its turn, so a long walk is not of one moment; the thread that looks at rings leaves it to another one.
//! All that is walked is walked by the host, in calls that cannot leave the directory (`walk`).

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::fs::{Mode, OFlags, fstatvfs, readlinkat};
use weldfs_ciscops::limits::{PATH_COMPONENTS_MAX, SYMLINK_FOLLOW_MAX};
use weldfs_ciscops::{Errno, Handle};

use super::core::Core;
use super::walk::{self, Dir, Start};
use super::work::{Progress, Work};

/// Components that one call walks.
pub(super) const STRIDE: usize = 32;

/// Bytes of path in one call: the host takes no more than `PATH_MAX`, and what a link says comes before the rest.
const CALL_BYTES: usize = 2048;

/// Components that the thread which looks at rings walks for one command.
pub(super) const LOOKING: u32 = 128;

/// `ST_NOSYMFOLLOW`: no link of this file system is followed.
const NO_LINKS: u64 = 0x2000;

/// A path of the command by its address, which stays the same, and what it starts from.
pub(super) type Name = (Handle, usize, usize);

pub(super) fn name_of(base: Handle, path: &[u8]) -> Name {
    (base, path.as_ptr() as usize, path.len())
}

/// A long way along a path, to the directory in which its last component is looked up. Such a walk was not of one
/// moment, so it is not made again to learn where it leads at another one: not while others wait for the names.
pub(super) struct Long {
    pub from: (usize, usize, usize),
    pub at: Rc<OwnedFd>,
    pub rest: Vec<u8>,
    pub links: usize,
    pub components: usize,
}

/// How far the paths of one command have led.
pub(super) struct Way {
    /// Components looked up.
    pub spent: u32,
    /// It is not to be left: another thread looks at rings, or something has been done already.
    pub stays: bool,
    /// Components from which on it lets names go and walks in turn.
    pub short: u32,
    /// Directories that a program's names led to when it got its place. They lead there as long as it holds names and
    /// moves none itself. They count as they did.
    pub known: Vec<(Name, Result<Rc<OwnedFd>, Errno>, u32)>,
    /// Where long ways of the command have led.
    pub long: Vec<Long>,
    /// What a program's opens led to when it got its place.
    found: Vec<(Name, bool, Result<Rc<OwnedFd>, Errno>)>,
    /// It has been left, to be begun anew by a thread that does not look at rings.
    pub left: bool,
    /// Others have had the names on its way: what was found before may have moved.
    pub let_go: bool,
    /// Others do not get the names on its way: it has been tried often enough.
    pub keeps: bool,
}

impl Way {
    pub fn of(work: &Work) -> Way {
        Way {
            spent: 0,
            short: if work.away { STRIDE as u32 } else { LOOKING },
            stays: work.away || !matches!(*work.progress.lock(), Progress::Begin),
            left: false,
            let_go: false,
            keeps: false,
            known: Vec::new(),
            long: Vec::new(),
            found: Vec::new(),
        }
    }

    /// The same components are looked up again.
    pub fn again(&mut self, spent: u32) {
        self.spent = spent;
    }

    pub fn spent(&self) -> u32 {
        self.spent
    }

    /// Names may lead elsewhere now.
    pub fn forget(&mut self) {
        self.known.clear();
        self.long.clear();
    }

    /// What an open of this name led to, which followed a link at its end or not.
    pub fn find(&mut self, (base, path, nofollow): (Handle, &[u8], bool), found: Result<Rc<OwnedFd>, Errno>) {
        self.found.push((name_of(base, path), nofollow, found));
    }

    /// The same, when it is opened.
    pub fn found(&self, base: Handle, path: &[u8], nofollow: bool) -> Option<Result<Rc<OwnedFd>, Errno>> {
        let of = (name_of(base, path), nofollow);
        self.found.iter().find(|(name, how, _)| (*name, *how) == of).map(|(.., found)| found.clone())
    }

    /// Where names lead is to be looked at again, but for long ways.
    pub fn forget_short(&mut self) {
        self.found.clear();
        self.known.retain(|(.., components)| *components > LOOKING);
    }

    /// Whether anything of it could be forgotten.
    pub fn knows(&self) -> bool {
        !self.known.is_empty() || !self.long.is_empty()
    }

    pub fn spend(&mut self, components: usize) -> Result<(), Errno> {
        self.spent = self.spent.saturating_add(components as u32);
        if self.spent > PATH_COMPONENTS_MAX { Err(Errno::LOOP) } else { Ok(()) }
    }
}

/// The components of a text: where each lies.
pub(super) fn components(text: &[u8]) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let from = at + text.get(at..)?.iter().position(|b| *b != b'/')?;
        at = text[from..].iter().position(|b| *b == b'/').map_or(text.len(), |n| from + n);
        Some(from..at)
    })
}

/// A walk under way.
pub(super) struct Walking<'c> {
    /// Where it stands.
    pub at: Dir<'c>,
    /// What is to be walked from there.
    pub rest: Vec<u8>,
    pub links: usize,
}

impl<'c> Walking<'c> {
    /// Walks on, but not along the last component: how many of them, 0 when it has come to that.
    pub fn stride(&mut self, core: &'c Core) -> Result<usize, Errno> {
        let Some(first) = components(&self.rest).next().map(|part| part.start) else { return Ok(0) };
        let fits = |part: &Range<usize>| part.end - first < CALL_BYTES;
        let mut parts: Vec<Range<usize>> = components(&self.rest).take(STRIDE + 1).take_while(fits).collect();
        parts.pop();
        if parts.is_empty() {
            return Ok(0);
        }
        let (mut good, mut bad, mut extra) = (0, parts.len() + 1, 0);
        let mut reached = None;
        // All of it at once; if there is a link, up to that.
        let mut next = parts.len();
        while good + 1 < bad {
            let text = &self.rest[first..parts[next - 1].end];
            match walk::open(core, &self.at, text, OFlags::PATH | OFlags::DIRECTORY, Mode::empty(), &mut extra) {
                Ok(fd) => (good, reached) = (next, Some(fd)),
                Err(Errno::LOOP) => bad = next,
                Err(e) => return Err(e),
            }
            next = good.midpoint(bad);
        }
        let walked = match reached {
            Some(fd) => {
                self.at = Dir::Own(fd);
                self.rest.drain(..parts[good - 1].end);
                good
            }
            None => 0,
        };
        if bad <= parts.len() {
            self.follow(core)?;
        }
        // And the way down again, where `..` led above where the stride began.
        Ok(walked + usize::from(bad <= parts.len()) + extra)
    }

    /// Puts what the link that is next says in its place.
    pub fn follow(&mut self, core: &'c Core) -> Result<(), Errno> {
        let Some(part) = components(&self.rest).next() else { return Ok(()) };
        if self.links == SYMLINK_FOLLOW_MAX || fstatvfs(&core.root)?.f_flag.bits() & NO_LINKS != 0 {
            return Err(Errno::LOOP);
        }
        let text = match readlinkat(self.at.as_fd(), &self.rest[part.clone()], Vec::new()) {
            Ok(text) => text.into_bytes(),
            // Another program has put something else there meanwhile.
            Err(rustix::io::Errno::INVAL) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        if text.first() == Some(&b'/') {
            self.at = Dir::Start(Start::root(core));
        }
        self.links += 1;
        self.rest.splice(..part.end, text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_lie_between_slashes() {
        let of = |text: &'static str| components(text.as_bytes()).map(|r| &text[r]).collect::<Vec<_>>();
        assert_eq!(of("//a/../bc//d/"), ["a", "..", "bc", "d"]);
        assert_eq!((of(""), of("//")), (vec![], vec![]));
    }
}
