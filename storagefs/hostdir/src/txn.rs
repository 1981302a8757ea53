//! A command's transaction: the files it has opened, the tickets and the names it holds, what is to be made durable.
//!
//! What is done is done at once: there is nothing to commit and nothing to roll back. Names come before tickets: a
//! command that has tickets never waits for names.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{fdatasync, fstat, fsync, syncfs};
use smallvec::SmallVec;
use weldfs_ciscops::{Access, Errno, Handle, InodeNo, Op, OpenFlags, Outcome};
use weldfs_scheduler::{Mode, Token};

use super::core::Core;
use super::foresight::Foresight;
use super::namelock;
use super::scratch::Scratch;
use super::session::{HostFile, SessionState};
use super::way::Way;
use super::work::{Done, Work};
use weldfs_session::ofd::Description;
use weldfs_session::sets::{Members, Tickets, members};

/// A file of the command, by its place in the command's list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FileRef {
    at: u16,
    pub access: Access,
}

/// Whose descriptor it is.
pub(super) enum Held {
    /// Opened by this command, closed with it.
    Own(OwnedFd),
    /// Of a description, which outlives the command.
    Open(Arc<Description<HostFile>>),
    /// The directory that is served.
    Root,
    /// A file that a rehearsal would have made, by its number there.
    Imagined(usize),
}

/// What a program does not hold alone although it would change it.
#[derive(Default)]
pub(super) struct Withheld {
    pub names: bool,
    pub files: Vec<InodeNo>,
}

/// What is to be made durable, at the end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sync {
    /// Content of a file.
    Data(FileRef),
    /// Content and attributes; the entries of a directory.
    Whole(FileRef),
    /// Everything.
    All,
}

/// See the module.
pub(super) struct HostTxn<'c> {
    pub core: &'c Core,
    pub work: &'c Work,
    pub scratch: &'c mut Scratch,
    pub counted: Done,
    /// How far its paths have led.
    pub way: Way,
    /// Of a program that computes.
    pub foresight: Option<Foresight>,
    /// It may have done something that others see.
    pub done: bool,
    /// Of a program: what it would hold alone, were it allowed to change it.
    pub withheld: Withheld,
    /// Of a program: it has its place, keeps what its names led to, and holds none.
    pub settled: bool,
    files: SmallVec<[Held; 2]>,
    pub(super) tickets: Option<Tickets<'c>>,
    exclusive: bool,
    pub(super) names: Option<namelock::Guard<'c>>,
    durable: bool,
    sync: SmallVec<[Sync; 4]>,
    /// The handle that the command has given its client, if it goes well.
    installed: Option<Handle>,
}

impl<'c> HostTxn<'c> {
    pub fn new(core: &'c Core, work: &'c Work, scratch: &'c mut Scratch, durable: bool) -> HostTxn<'c> {
        HostTxn {
            core,
            work,
            scratch,
            counted: Done::from(Outcome::default()),
            way: Way::of(work),
            foresight: None,
            done: false,
            withheld: Withheld::default(),
            settled: false,
            files: SmallVec::new(),
            tickets: None,
            exclusive: false,
            names: None,
            durable,
            sync: SmallVec::new(),
            installed: None,
        }
    }

    /// Where it takes long: lets the thread that looks at rings have a processor.
    pub fn breathe(&mut self) {
        if self.work.away {
            self.scratch.breathe(self.core);
        }
    }

    pub fn session(&self) -> &'c SessionState {
        &self.work.queue.session
    }

    /// The key of what is behind a handle.
    pub fn key_of(&self, h: Handle) -> Result<InodeNo, Errno> {
        if h == Handle::ROOT {
            return Ok(self.core.key(self.core.root_id.0, self.core.root_id.1));
        }
        self.session().handles.with(h, |d| d.ino)
    }

    /// Places tickets, lets go of names, and waits its turn. Nothing while the command has tickets already.
    pub async fn hold(&mut self, set: Members) {
        if self.tickets.is_some() {
            return;
        }
        self.place(set);
        // The next command of the ring may follow.
        self.core.settle(self.work);
        // Its place is fixed: names may change.
        self.names = None;
        self.turn().await;
    }

    pub(super) fn place(&mut self, set: Members) {
        self.exclusive = set.iter().any(|(_, mode)| *mode == Mode::Exclusive);
        if self.exclusive {
            self.core.exclusive.0.fetch_add(1, Ordering::SeqCst);
        }
        let sets = &self.core.sets;
        self.tickets = Some(sets.place(sets.arrive(), Token(0), set));
    }

    /// Gives its place up.
    pub(super) fn leave(&mut self) {
        self.tickets = None;
        if std::mem::take(&mut self.exclusive) {
            self.core.exclusive.1.fetch_add(1, Ordering::SeqCst);
        }
    }

    pub(super) async fn turn(&mut self) {
        if let Some(tickets) = &mut self.tickets {
            if !tickets.running() {
                self.scratch.wait();
            }
            tickets.start().await;
        }
    }

    /// Holds one inode.
    pub async fn hold_one(&mut self, key: InodeNo, mode: Mode) {
        self.hold(members([(key.0, mode)])).await;
    }

    /// Whether no command holds anything exclusively; asked before and after a look without a ticket, it says whether
    /// the look was of one moment.
    pub fn quiet(&self) -> Option<u64> {
        let ended = self.core.exclusive.1.load(Ordering::SeqCst);
        let begun = self.core.exclusive.0.load(Ordering::SeqCst);
        (begun == ended).then_some(begun)
    }

    /// From here on names stay as they are (`alone`: but for what this command changes).
    pub fn hold_names(&mut self, alone: bool) {
        if self.settled {
            return;
        }
        match &self.names {
            Some(names) if names.is_alone() || !alone || self.withholds_names() => {}
            _ => {
                self.names = None;
                let tenant = self.session().tenant.id.0;
                self.names = self.core.names.try_take(tenant, alone).or_else(|| {
                    self.scratch.wait();
                    Some(self.core.names.take(tenant, alone))
                });
            }
        }
    }

    /// Whether names are held with others although the program would change some.
    pub fn withholds_names(&self) -> bool {
        self.is_placed() && self.withheld.names
    }

    /// The hold on names, as long as the command has no tickets.
    pub fn names_unless_placed(&mut self) -> Option<&mut namelock::Guard<'c>> {
        if self.tickets.is_some() { None } else { self.names.as_mut() }
    }

    /// Keeps a descriptor for the command.
    pub fn keep(&mut self, held: Held, access: Access) -> FileRef {
        self.files.push(held);
        FileRef { at: (self.files.len() - 1) as u16, access }
    }

    /// The descriptor of a file of the command.
    pub fn fd(&self, f: FileRef) -> BorrowedFd<'_> {
        match &self.files[usize::from(f.at)] {
            Held::Own(fd) => fd.as_fd(),
            Held::Open(d) => d.body.fd.as_fd(),
            // Of one that is imagined the host is asked nothing.
            Held::Root | Held::Imagined(_) => self.core.root.as_fd(),
        }
    }

    /// What a file of the command is.
    pub fn held(&self, f: FileRef) -> &Held {
        &self.files[usize::from(f.at)]
    }

    /// Those of a rehearsal are of no use in earnest.
    pub fn forget_files(&mut self) {
        self.files.clear();
        self.way.again(0);
    }

    /// Whether it has its place among those of its inodes.
    pub fn is_placed(&self) -> bool {
        self.tickets.is_some()
    }

    /// Names may change.
    pub fn let_names_go(&mut self) {
        if self.tickets.is_none() {
            self.names = None;
        }
    }

    /// What is behind a handle, whatever its grant.
    pub fn by_handle(&mut self, h: Handle) -> Result<FileRef, Errno> {
        if h == Handle::ROOT {
            return Ok(self.keep(Held::Root, Access::READ));
        }
        let d = self.session().description(h)?;
        let flags = d.flags();
        let access = if flags.contains(OpenFlags::PATH) { Access::empty() } else { flags.access() };
        Ok(self.keep(Held::Open(d), access))
    }

    fn note(&mut self, what: Sync) {
        if self.durable && !self.sync.contains(&what) {
            self.sync.push(what);
        }
    }

    /// Content of this file has changed.
    pub fn changed(&mut self, f: FileRef) {
        self.note(Sync::Data(f));
    }

    /// Attributes of this file, or entries of this directory, have changed. A descriptor that names a place only
    /// cannot be made durable by itself: then everything is.
    pub fn changed_whole(&mut self, f: Option<FileRef>) {
        self.note(f.map_or(Sync::All, Sync::Whole));
    }

    /// Whether what changes must be durable at the end.
    pub fn is_durable(&self) -> bool {
        self.durable
    }

    /// Gives everything back, makes durable what is to be, and says how it ended.
    pub fn end(mut self, mut outcome: Outcome) -> Done {
        self.leave();
        self.names = None;
        let stands = outcome.is_ok() || outcome.micro_done > 0;
        let after = self.work.cmd.after_durable;
        if stands && (!self.sync.is_empty() || after) {
            self.core.settle(self.work);
            self.scratch.wait();
            self.counted.synced = true;
            if let Err(e) = self.make_durable(after)
                && outcome.is_ok()
            {
                // All of it stands, and no step of it has failed: what is not sure is how long it stands.
                outcome = Outcome { status: Errno::from(e).0, result: 0, result2: 0, ..outcome };
            }
        }
        if let Some(handle) = self.installed.take().filter(|_| !outcome.is_ok()) {
            // It will never be asked for.
            if self.session().handles.close(handle).unwrap_or(false) {
                self.core.watch_placeholders();
            }
        }
        let replies = match self.work.cmd.op {
            Op::Stat { .. } | Op::StatPath { .. } | Op::Statfs { .. } | Op::ReadDir { .. } | Op::Readlink { .. } => {
                self.counted.metadata += 1;
                outcome.result
            }
            _ => 0,
        };
        let paths = &self.work.paths;
        let names = u64::from(!paths.a.is_empty()) + u64::from(!paths.b.is_empty());
        Done {
            outcome,
            bytes_out: self.counted.bytes_out + replies,
            metadata: self.counted.metadata + names,
            ..self.counted
        }
    }

    fn make_durable(&mut self, after: bool) -> rustix::io::Result<()> {
        #[cfg(test)]
        self.core.faults.sync()?;
        if after && self.sync.is_empty() {
            // What it has read may belong to any client.
            self.sync.push(Sync::All);
        }
        for what in std::mem::take(&mut self.sync) {
            self.core.flushes.fetch_add(1, Ordering::Relaxed);
            match what {
                Sync::Data(f) => fdatasync(self.fd(f))?,
                Sync::Whole(f) => match fsync(self.fd(f)) {
                    Err(rustix::io::Errno::BADF) => syncfs(&self.core.root)?,
                    other => other?,
                },
                Sync::All => syncfs(&self.core.root)?,
            }
        }
        Ok(())
    }

    /// Makes a file opened by this command a description of the session.
    pub(super) fn describe(
        &mut self,
        f: FileRef,
        flags: OpenFlags,
        mode: u32,
        placeholder: u32,
    ) -> Result<Handle, Errno> {
        let session = self.session();
        if placeholder != 0 && !session.handles.has_placeholder(placeholder) {
            return Err(Errno::INVAL);
        }
        let (core, stat) = (self.core, fstat(self.fd(f))?);
        let handle = session.handles.reserve()?;
        let key = core.key(stat.st_dev, stat.st_ino);
        let passing = OpenFlags::CREATE | OpenFlags::EXCL | OpenFlags::TRUNC | OpenFlags::NOFOLLOW;
        // It stays the command's file as long as it may not be the description's: what was changed is synced by it.
        let described = core.files.describe_with(key, flags.difference(passing), || {
            self.take(f).map(|fd| HostFile { fd, mode, walk: Default::default() })
        });
        let description = match described {
            Ok(d) => d,
            Err(e) => {
                let _ = session.handles.close(handle);
                return Err(e);
            }
        };
        self.files[usize::from(f.at)] = Held::Open(description.clone());
        if let Some(p) = session.handles.take_placeholder(placeholder) {
            self.core.files.bind(p, &description);
        }
        session.handles.fill(handle, description);
        self.installed = Some(handle);
        Ok(handle)
    }

    /// Takes a descriptor that this command opened out of its list.
    fn take(&mut self, f: FileRef) -> Result<OwnedFd, Errno> {
        match std::mem::replace(&mut self.files[usize::from(f.at)], Held::Root) {
            Held::Own(fd) => Ok(fd),
            other => {
                self.files[usize::from(f.at)] = other;
                Err(Errno::BADF)
            }
        }
    }
}

impl Drop for HostTxn<'_> {
    fn drop(&mut self) {
        // A command that panicked holds nothing any more, either.
        if self.exclusive {
            self.core.exclusive.1.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// The grant decides.
pub(super) fn allow(f: FileRef, need: Access) -> Result<(), Errno> {
    if f.access.contains(need) { Ok(()) } else { Err(Errno::BADF) }
}
