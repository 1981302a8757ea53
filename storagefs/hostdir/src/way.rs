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
use super::namelock;
use super::txn::HostTxn;
use super::walk::{self, Dir, Place, Start};
use super::work::{Progress, Work};

/// Components that one call walks.
const STRIDE: usize = 32;

/// Bytes of path in one call: the host takes no more than `PATH_MAX`, and what a link says comes before the rest.
const CALL_BYTES: usize = 2048;

/// Components that the thread which looks at rings walks for one command.
const LOOKING: u32 = 128;

/// `ST_NOSYMFOLLOW`: no link of this file system is followed.
const NO_LINKS: u64 = 0x2000;

/// A path of the command by its address, which stays the same, and what it starts from.
type Name = (Handle, usize, usize);

fn name_of(base: Handle, path: &[u8]) -> Name {
    (base, path.as_ptr() as usize, path.len())
}

/// A long way along a path, to the directory in which its last component is looked up. Such a walk was not of one
/// moment, so it is not made again to learn where it leads at another one: not while others wait for the names.
struct Long {
    from: (usize, usize, usize),
    at: Rc<OwnedFd>,
    rest: Vec<u8>,
    links: usize,
    components: usize,
}

/// How far the paths of one command have led.
pub(super) struct Way {
    /// Components looked up.
    spent: u32,
    /// It is not to be left: another thread looks at rings, or something has been done already.
    pub stays: bool,
    /// Components from which on it lets names go and walks in turn.
    short: u32,
    /// Directories that a program's names led to when it got its place. They lead there as long as it holds names and
    /// moves none itself. They count as they did.
    known: Vec<(Name, Result<Rc<OwnedFd>, Errno>, u32)>,
    /// Where long ways of the command have led.
    long: Vec<Long>,
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

    fn spend(&mut self, components: usize) -> Result<(), Errno> {
        self.spent = self.spent.saturating_add(components as u32);
        if self.spent > PATH_COMPONENTS_MAX { Err(Errno::LOOP) } else { Ok(()) }
    }
}

/// The components of a text: where each lies.
fn components(text: &[u8]) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let from = at + text.get(at..)?.iter().position(|b| *b != b'/')?;
        at = text[from..].iter().position(|b| *b == b'/').map_or(text.len(), |n| from + n);
        Some(from..at)
    })
}

/// A walk under way.
struct Walking<'c> {
    /// Where it stands.
    at: Dir<'c>,
    /// What is to be walked from there.
    rest: Vec<u8>,
    links: usize,
}

impl<'c> Walking<'c> {
    /// Walks on, but not along the last component: how many of them, 0 when it has come to that.
    fn stride(&mut self, core: &'c Core) -> Result<usize, Errno> {
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
    fn follow(&mut self, core: &'c Core) -> Result<(), Errno> {
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

impl<'c> HostTxn<'c> {
    /// Opens what `path` names from `start`.
    pub(super) fn open_path(
        &mut self,
        start: Start<'c>,
        path: &[u8],
        flags: OFlags,
        mode: Mode,
    ) -> Result<OwnedFd, Errno> {
        let (core, few, spent) = (self.core, components(path).take(STRIDE + 1).count(), self.way.spent);
        let mut walking = Walking { at: Dir::Start(start), rest: Vec::new(), links: 0 };
        if few <= STRIDE {
            let mut extra = 0;
            let opened = walk::open(core, &walking.at, path, flags, mode, &mut extra);
            match opened {
                // A link on its way, or one that is not to be followed, at its end.
                Err(Errno::LOOP) => {}
                other => {
                    self.way.spend(few + extra)?;
                    return other;
                }
            }
        }
        self.way.again(spent);
        let from = (walking.at.start_id(), path.as_ptr() as usize, path.len());
        match self.way.long.iter().find(|long| long.from == from) {
            Some(long) => {
                let components = long.components;
                (walking.at, walking.links) = (Dir::Known(long.at.clone()), long.links);
                walking.rest.clone_from(&long.rest);
                self.way.spend(components)?;
            }
            None => walking.rest = path.to_vec(),
        }
        self.lead(&mut walking)?;
        // The place of its last component, and not of what a link there says: others of the command may not follow it.
        self.remember(from, spent, &mut walking);
        loop {
            let (last, mut extra) = (components(&walking.rest).next(), 0);
            // Nothing but slashes: where it stands.
            let name = last.clone().map_or(&b"."[..], |last| &walking.rest[last.start..]);
            let opened = walk::open(core, &walking.at, name, flags, mode, &mut extra);
            self.way.spend(1 + extra)?;
            let followed = last.is_some() && (name.ends_with(b"/") || !flags.contains(OFlags::NOFOLLOW));
            match opened {
                Err(Errno::LOOP) if followed => walking.follow(core)?,
                other => return other,
            }
            self.lead(&mut walking)?;
        }
    }

    /// Keeps in mind where a long way has led.
    fn remember(&mut self, from: (usize, usize, usize), before: u32, walking: &mut Walking<'c>) {
        let components = (self.way.spent - before) as usize;
        if components <= LOOKING as usize || !matches!(walking.at, Dir::Own(_)) {
            return;
        }
        let Dir::Own(fd) = std::mem::replace(&mut walking.at, Dir::Start(Start::root(self.core))) else { return };
        let at = Rc::new(fd);
        walking.at = Dir::Known(at.clone());
        self.way.long.retain(|long| long.from != from);
        let (rest, links) = (walking.rest.clone(), walking.links);
        self.way.long.push(Long { from, at, rest, links, components });
    }

    /// Walks all but the last component.
    fn lead(&mut self, walking: &mut Walking<'c>) -> Result<(), Errno> {
        let in_turn = self.scratch.turn.is_some();
        // Whether names were held when it let them go, and how.
        let mut names = None;
        let led = loop {
            if !self.way.stays && self.way.spent > LOOKING {
                self.way.left = true;
                break Err(Errno::AGAIN);
            }
            match self.stride(walking, names) {
                Ok(0) => break Ok(()),
                Ok(n) => {
                    if let Err(e) = self.way.spend(n) {
                        break Err(e);
                    }
                }
                Err(e) => break Err(e),
            }
            if self.way.keeps || self.is_placed() {
                continue;
            }
            // The thread that looks at rings waits for no turn: it leaves the walk.
            if self.way.stays && self.way.spent > self.way.short {
                let held = self.names_unless_placed().map(|held| held.is_alone());
                names = names.or(held);
                self.walk_in_turn();
            }
            self.pass_names();
            self.breathe();
        };
        // Others may wait for what follows.
        if !in_turn || self.scratch.turn.as_ref().is_some_and(|turn| turn.yields) {
            self.scratch.turn = None;
        }
        if let Some(alone) = names {
            self.hold_names(alone);
        }
        led
    }

    /// Walks on, with names in hand only where it cannot be done without: the host cannot say where `..` leads while
    /// others give directories other names, one after the other.
    fn stride(&mut self, walking: &mut Walking<'c>, names: Option<bool>) -> Result<usize, Errno> {
        match walking.stride(self.core) {
            Err(Errno::AGAIN) if names.is_some() => {
                self.scratch.turn = None;
                self.hold_names(false);
                let walked = walking.stride(self.core);
                self.let_names_go();
                walked
            }
            other => other,
        }
    }

    /// A long way takes a processor as computing does: no more threads walk at a time than may compute. What they walk
    /// is not of one moment, so they keep no names from others meanwhile.
    fn walk_in_turn(&mut self) {
        self.let_names_go();
        self.way.let_go = true;
        self.scratch.renew_turn(self.core, self.work);
        if self.scratch.turn.is_none() {
            self.scratch.take_turn(self.core, self.work, true);
        }
    }

    /// Lets others have the names that wait for them. Not while the command has tickets: its turn has come, and names
    /// are to stay as they are.
    fn pass_names(&mut self) {
        if self.names_unless_placed().is_some_and(|names| names.is_wanted()) {
            self.scratch.turn = None;
            let passed = self.names_unless_placed().is_some_and(namelock::Guard::pass);
            self.way.let_go |= passed;
        }
    }

    /// The directory of the last component of `path`, and that component.
    pub(super) fn parent<'p>(&mut self, base: Handle, path: &'p [u8]) -> Result<Place<'c, 'p>, Errno> {
        let of = name_of(base, path);
        let known = self.way.known.iter().find(|(name, ..)| *name == of);
        let known = known.map(|(_, dir, components)| (dir.clone(), *components));
        let from = walk::start(self.core, self.session(), base, path)?;
        self.way.spend(1)?;
        let end = path.iter().rposition(|b| *b != b'/').map_or(0, |at| at + 1);
        if end == 0 {
            // Nothing but slashes: the root itself.
            return Ok(Place { dir: Dir::Start(from), name: b"." });
        }
        let cut = path[..end].iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
        let (before, name) = path.split_at(cut);
        if before.iter().all(|b| *b == b'/') {
            return Ok(Place { dir: Dir::Start(from), name });
        }
        let dir = match known {
            Some((known, components)) => {
                self.way.spend(components as usize)?;
                Dir::Known(known?)
            }
            None => Dir::Own(self.open_path(from, before, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?),
        };
        Ok(Place { dir, name })
    }

    /// The same, of a program that is to know it again: what led there, and what is too long a way.
    pub(super) fn learn<'p>(&mut self, base: Handle, path: &'p [u8]) -> Result<Place<'c, 'p>, Errno> {
        let before = self.way.spent;
        let found = self.parent(base, path);
        // But for the last one, which is looked up again.
        let components = (self.way.spent - before).saturating_sub(1);
        match found {
            Ok(Place { dir: Dir::Own(fd), name }) => {
                let fd = Rc::new(fd);
                self.way.known.push((name_of(base, path), Ok(fd.clone()), components));
                Ok(Place { dir: Dir::Known(fd), name })
            }
            Err(Errno::LOOP) => {
                self.way.known.push((name_of(base, path), Err(Errno::LOOP), components));
                Err(Errno::LOOP)
            }
            other => other,
        }
    }

    /// What a name in a directory leads to, as a place only.
    pub(super) fn look_at(
        &mut self,
        place: &Place<'_, '_>,
        (base, path): (Handle, &[u8]),
        nofollow: bool,
    ) -> Result<OwnedFd, Errno> {
        let mut how = OFlags::PATH;
        how.set(OFlags::NOFOLLOW, nofollow);
        let start = walk::start(self.core, self.session(), base, path)?;
        if place.is_plain() {
            match walk::open(self.core, &place.dir, place.name, how, Mode::empty(), &mut 0) {
                Err(Errno::LOOP) => {}
                other => return other,
            }
        }
        self.open_path(start, path, how, Mode::empty())
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
