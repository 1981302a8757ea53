//! What a program holds: everything that it may touch, from its start on.
//!
//! What its names lead to when it begins, and the names themselves to its end, so that they go on leading there. What
//! is not there then cannot be reached by others while names are held. What other programs of the host rename
//! meanwhile is not held off, here as elsewhere.
//!
//! A program that only opens what is there, and would change no other names than its caller may not change, holds no
//! names: it keeps what they led to.
//!
//! Names are all or nothing, so who waits must not hold them: a program that does not have its turn at once gives them
//! back, waits, and looks again whether its names lead where they did. And what its caller may not change is not held
//! alone for it: neither files, nor names if it may change none.

use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::fs::{Access as HostAccess, AtFlags, CWD, StatxFlags, accessat, fstat, statx};
use rustix::process::geteuid;
use weldfs_ciscops::program::{Micro, Program, Str};
use weldfs_ciscops::{Access, Errno, Handle, OpenFlags};
use weldfs_scheduler::Mode;

use super::txn::{FileRef, HostTxn, Withheld};
use super::walk::{Place, by_proc};
use weldfs_session::sets::{Members, members};

/// How often a program that has waited for its turn looks whether it has names, too, before it keeps others from them
/// while it waits.
const TRIES: usize = 16;
/// How long it waits for names while it holds files: they may wait for each other.
const NAMES_WAIT: Duration = Duration::from_millis(1);

/// Whether the caller may change the entries of a directory, or the content of a file.
fn may(fd: BorrowedFd<'_>, how: HostAccess) -> bool {
    !matches!(
        accessat(CWD, by_proc(fd), how, AtFlags::EACCESS),
        Err(rustix::io::Errno::ACCESS | rustix::io::Errno::ROFS)
    )
}

/// Whether it is the caller's own, or as good as that.
fn owns(fd: BorrowedFd<'_>) -> bool {
    let caller = geteuid();
    caller.is_root() || fstat(fd).is_ok_and(|stat| stat.st_uid == caller.as_raw())
}

/// What a program's names need.
#[derive(Default)]
struct Need {
    any: bool,
    alone: bool,
    /// It needs no names any more once it has its place.
    settled: bool,
    withheld: Withheld,
    set: Vec<(u64, Mode)>,
}

impl HostTxn<'_> {
    /// Holds all of it.
    pub(super) async fn prepare_program(&mut self, program: &Program) {
        // One that makes itself allowed to change something of its caller's own is not asked whether it is.
        let insists = program.micros().iter().any(|m| matches!(m, Micro::SetAttr { mode: Some(_), .. }));
        let (mut any, mut changes) = (false, false);
        for m in program.micros().iter().filter(|m| names_of(m, program).next().is_some()) {
            (any, changes) = (true, changes || renames(m));
        }
        for round in 0..TRIES {
            // What it needed in the round before may not be what it needs now.
            if any {
                self.hold_names(changes);
            }
            (self.way.let_go, self.way.keeps) = (false, round + 1 == TRIES);
            let need = self.need(program, insists);
            if self.way.left {
                return;
            }
            if !need.alone {
                self.share_names();
            }
            let alone = need.alone;
            self.withheld = need.withheld;
            let (settled, wanted) = (need.settled, members(need.set));
            self.place(wanted.clone());
            // What was found is what there is, unless others have had the names meanwhile.
            let at_once = self.tickets.as_ref().is_none_or(|t| t.running()) && !self.way.let_go;
            if round + 1 == TRIES || at_once {
                self.settle_names(settled);
                break;
            }
            self.names = None;
            self.turn().await;
            if !any || self.leads_there(program, insists, alone, &wanted) {
                break;
            }
            self.leave();
        }
        // The same ways again, and what is done on them.
        self.way.again(0);
        self.way.stays = true;
        // The next command of the ring may follow.
        self.core.settle(self.work);
        self.turn().await;
    }

    /// Takes names, with files in hand: whether they still lead to these files.
    fn leads_there(&mut self, program: &Program, insists: bool, alone: bool, wanted: &Members) -> bool {
        self.scratch.wait();
        self.names = self.core.names.try_take_for(self.session().tenant.id.0, alone, NAMES_WAIT);
        if self.names.is_some() {
            let need = self.need(program, insists);
            if need.alone == alone && members(need.set) == *wanted {
                self.withheld = need.withheld;
                self.settle_names(need.settled);
                return true;
            }
        }
        self.names = None;
        false
    }

    /// It has its place. Others may change names, if it needs none any more.
    fn settle_names(&mut self, settled: bool) {
        self.settled = settled;
        if settled {
            self.names = None;
        }
    }

    /// Others may look at names, too, which are what they were.
    fn share_names(&mut self) {
        if let Some(names) = &mut self.names {
            names.share();
        }
    }

    /// Looks where its names lead.
    fn need(&mut self, program: &Program, insists: bool) -> Need {
        let mut need = Need { settled: true, ..Need::default() };
        self.way.forget_short();
        self.way.again(0);
        for (i, m) in program.micros().iter().enumerate() {
            if let Micro::Use { h, .. } | Micro::SetAttr { base: h, path: None, .. } = *m
                && let Ok(key) = self.key_of(h)
            {
                let sets = matches!(m, Micro::SetAttr { .. });
                let writes = (sets || program.changes_file_of(i)) && self.may_by(h, sets);
                need.set.push((key.0, if writes { Mode::Exclusive } else { Mode::Shared }));
            }
            for (base, path, nofollow) in names_of(m, program) {
                self.need_name((i, m, program, insists), (base, path, nofollow), &mut need);
                if self.way.left {
                    return need;
                }
            }
        }
        need.withheld.names = need.any && !need.alone;
        need.settled &= !need.alone;
        need
    }

    /// Whether what is behind a handle may be written through it, or have its attributes set.
    fn may_by(&self, h: Handle, sets: bool) -> bool {
        let fd = |fd: BorrowedFd<'_>| sets && (owns(fd) || may(fd, HostAccess::WRITE_OK));
        if h == Handle::ROOT {
            return fd(self.core.root.as_fd());
        }
        let Ok(d) = self.session().description(h) else { return false };
        d.flags().access().contains(Access::WRITE) || fd(d.body.fd.as_fd())
    }

    fn need_name(
        &mut self,
        (i, m, program, insists): (usize, &Micro, &Program, bool),
        (base, path, nofollow): (Handle, &[u8], bool),
        need: &mut Need,
    ) {
        // An open that makes nothing where there is something keeps what it leads to; what may not be changed is not.
        let opens = match m {
            Micro::Open { flags, .. } => Some(*flags),
            _ => None,
        };
        let made = OpenFlags::EXCL | OpenFlags::TMPFILE;
        let keeps = opens.is_some_and(|flags| !flags.intersects(made) && !path.ends_with(b"/"));
        let renames = renames(m);
        need.any |= renames;
        need.settled &= keeps || renames;
        let place = match self.learn(base, path) {
            Ok(place) => place,
            Err(e) => {
                need.alone |= renames;
                if keeps {
                    self.way.find((base, path, nofollow), Err(e));
                }
                return;
            }
        };
        let dir = place.dir();
        let allowed = may(dir, HostAccess::WRITE_OK | HostAccess::EXEC_OK) || insists && owns(dir);
        let found = self.look_at(&place, (base, path), nofollow).map(Rc::new);
        let makes = renames && !(keeps && found.is_ok());
        need.alone |= makes && allowed;
        if keeps {
            self.way.find((base, path, nofollow), found.clone());
        }
        let Ok(fd) = found else { return };
        let Ok(stat) = fstat(&fd) else { return };
        let key = self.core.key(stat.st_dev, stat.st_ino);
        let changes = match *m {
            Micro::Open { flags, .. } => flags.contains(OpenFlags::TRUNC) || program.changes_file_of(i),
            _ => true,
        };
        let withheld = changes
            && !match m {
                Micro::SetAttr { .. } => owns(fd.as_fd()) || may(fd.as_fd(), HostAccess::WRITE_OK),
                _ if opens.is_some() => may(fd.as_fd(), HostAccess::WRITE_OK) || insists && owns(fd.as_fd()),
                _ => allowed,
            };
        if withheld && opens.is_some() {
            need.withheld.files.push(key);
        }
        need.set.push((key.0, if changes && !withheld { Mode::Exclusive } else { Mode::Shared }));
    }

    /// Whether a file is held with others although the program would change it.
    pub(super) fn withholds(&self, f: FileRef) -> Result<bool, Errno> {
        if self.withheld.files.is_empty() {
            return Ok(false);
        }
        let stat = fstat(self.fd(f))?;
        Ok(self.withheld.files.contains(&self.core.key(stat.st_dev, stat.st_ino)))
    }

    /// What the host would say of a change of this name that the caller may not make; nothing where names are held for
    /// one that it may make.
    pub(super) fn withheld(&self, place: &Place<'_, '_>, makes: bool) -> Result<(), Errno> {
        if !self.withholds_names() {
            return Ok(());
        }
        let there = statx(place.dir(), place.name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE);
        Err(match (makes, there) {
            (true, Ok(_)) => Errno::EXIST,
            (true, Err(rustix::io::Errno::NOENT)) | (false, Ok(_)) => Errno::ACCES,
            (_, Err(e)) => e.into(),
        })
    }
}

/// Whether a micro-op may change what a name leads to.
fn renames(m: &Micro) -> bool {
    match m {
        Micro::Open { flags, .. } => flags.contains(OpenFlags::CREATE),
        Micro::SetAttr { .. } => false,
        _ => m.changes() && m.changes_file().is_none(),
    }
}

/// The names by which a micro-op reaches objects that exist: base, path, and whether a final link is meant itself.
fn names_of<'p>(m: &Micro, program: &'p Program) -> impl Iterator<Item = (Handle, &'p [u8], bool)> {
    let of = |base: Handle, path: Str, nofollow: bool| Some((base, program.string(path), nofollow));
    let (one, two) = match *m {
        Micro::Open { base, path, flags, .. } => {
            // One that must make it follows no link to what it would make.
            let nofollow = flags.contains(OpenFlags::NOFOLLOW) || flags.contains(OpenFlags::CREATE | OpenFlags::EXCL);
            (of(base, path, nofollow), None)
        }
        Micro::Unlink { base, path } | Micro::Rmdir { base, path } => (of(base, path, true), None),
        Micro::Mkdir { base, path, .. } | Micro::Symlink { base, path, .. } => (of(base, path, true), None),
        Micro::Rename { from_base, from, to_base, to, .. } => (of(from_base, from, true), of(to_base, to, true)),
        Micro::Link { from_base, from, to_base, to, follow } => {
            (from.and_then(|from| of(from_base, from, !follow)), of(to_base, to, true))
        }
        Micro::SetAttr { base, path: Some(path), nofollow, .. } => (of(base, path, nofollow), None),
        _ => (None, None),
    };
    one.into_iter().chain(two)
}
