//! From a command's paths to descriptors: it walks in strides, and gives way to others between them (`way`).

use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::fs::{Mode, OFlags};
use weldfs_ciscops::{Errno, Handle};

use super::namelock;
use super::txn::HostTxn;
use super::walk::{self, Dir, Place, Start};
use super::way::{LOOKING, Long, STRIDE, Walking, components, name_of};

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
