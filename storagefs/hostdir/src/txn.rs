//! A command's `Target`: the files it has opened, the tickets and the names it holds, what is to be made durable.
//!
//! What is done is done at once: there is nothing to commit and nothing to roll back. Names come before tickets: a
//! command that has tickets never waits for names.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{fdatasync, fstat, fsync, syncfs};
use smallvec::SmallVec;
use weldfs_ciscops::dirent::DirentWriter;
use weldfs_ciscops::{
    Access, AccessMask, At, ChecksumState, Cursor, Errno, FallocMode, Handle, InodeNo, Kept, Op, OpenFlags, Opened,
    Outcome, Quiet, RenameFlags, SetAttrBody, Sink, Source, StatBody, StatfsBody, Target, Whence, Written, XattrFlags,
};
use weldfs_scheduler::{Mode, Token};

use super::core::Core;
use super::foresight::Foresight;
use super::namelock;
use super::program::Withheld;
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

    /// Takes the tickets of a command that names its file by a handle, and of a program.
    pub async fn prepare(&mut self) {
        if let Some(program) = &self.work.paths.program {
            return self.prepare_program(program).await;
        }
        if let Some((h, mode)) = by_handle(&self.work.cmd.op)
            && let Ok(key) = self.key_of(h)
        {
            self.hold(members([(key.0, mode)])).await;
        }
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
    fn describe(&mut self, f: FileRef, flags: OpenFlags, mode: u32, placeholder: u32) -> Result<Handle, Errno> {
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

/// How strongly a command that names its file by a handle holds it.
fn by_handle(op: &Op) -> Option<(Handle, Mode)> {
    match *op {
        // What moves the offset of the description runs alone, as read(2) and lseek(2) lock it.
        Op::Read { h, at: At::Current, .. } | Op::Seek { h, .. } => Some((h, Mode::Exclusive)),
        Op::Read { h, .. } | Op::ReadDir { h, .. } | Op::ReadChecksumVerify { h, .. } => Some((h, Mode::Shared)),
        Op::Write { h, .. }
        | Op::WriteVerified { h, .. }
        | Op::Truncate { h, .. }
        | Op::Fallocate { h, .. }
        | Op::SetAttr { h, .. }
        | Op::AppendChecksumWrite { h, .. }
        | Op::ReadModifyWrite { h, .. } => Some((h, Mode::Exclusive)),
        _ => None,
    }
}

/// The grant decides.
pub(super) fn allow(f: FileRef, need: Access) -> Result<(), Errno> {
    if f.access.contains(need) { Ok(()) } else { Err(Errno::BADF) }
}

impl Target for HostTxn<'_> {
    type File = FileRef;

    fn same_file(&self, a: FileRef, b: FileRef) -> bool {
        if self.is_rehearsed()
            && (matches!(self.held(a), Held::Imagined(_)) || matches!(self.held(b), Held::Imagined(_)))
        {
            return matches!((self.held(a), self.held(b)), (Held::Imagined(a), Held::Imagined(b)) if a == b);
        }
        let which = |f| fstat(self.fd(f)).map(|s| (s.st_dev, s.st_ino)).ok();
        which(a).is_some_and(|one| which(b) == Some(one))
    }

    async fn boundary(&mut self, _: u16) -> Result<(), Errno> {
        self.breathe();
        self.may_be_cut()?;
        self.compute_in_turn();
        if self.core.goes_on(self.session(), &self.work.cmd.op, true) { Ok(()) } else { Err(Errno::INTR) }
    }

    fn quiet(&mut self, how: Quiet) {
        self.note_quiet(how);
    }

    fn is_rehearsal(&self) -> bool {
        self.is_rehearsed()
    }

    fn foresees(&self) -> bool {
        self.foresight.is_some()
    }

    fn unforeseen(&mut self, bytes: u64) -> Result<(), Errno> {
        self.is_unforeseen(bytes)
    }

    fn kept(&mut self) -> Option<Kept> {
        self.take_foresight()
    }

    fn keep(&mut self, state: Kept) {
        self.keep_foresight(state);
    }

    fn key(&self, name: u64) -> Result<std::sync::Arc<weldfs_functions::cipher::Key>, Errno> {
        self.session().keys.get(name)
    }

    fn random(&mut self, out: &mut [u8]) -> Result<(), Errno> {
        weldfs_fs::keys::random(out)
    }

    async fn open(&mut self, base: Handle, path: &[u8], flags: OpenFlags, mode: u32) -> Result<Opened<FileRef>, Errno> {
        if self.is_rehearsed() {
            return self.imagine_open(base, path, flags).await;
        }
        let opened = self.open_core(base, path, flags, mode).await;
        self.done |= opened.is_ok_and(|o| o.created || flags.contains(OpenFlags::TRUNC));
        let opened = opened?;
        if flags.contains(OpenFlags::WRITE) && self.withholds(opened.file)? {
            // It was not allowed to when it got its place, and holds it as one that reads.
            return Err(Errno::ACCES);
        }
        Ok(opened)
    }

    async fn install(&mut self, opened: Opened<FileRef>, flags: OpenFlags, placeholder: u32) -> Result<Handle, Errno> {
        self.describe(opened.file, flags, opened.mode, placeholder)
    }

    async fn file(&mut self, h: Handle, need: Access) -> Result<FileRef, Errno> {
        let file = self.by_handle(h)?;
        allow(file, need)?;
        Ok(file)
    }

    async fn cursor(&mut self, h: Handle) -> Result<Cursor, Errno> {
        if h == Handle::ROOT {
            return Ok(Cursor { offset: 0, append: false });
        }
        let read = |d: &Description<HostFile>| (d.offset(), d.flags().contains(OpenFlags::APPEND));
        self.session().handles.with(h, read).map(|(offset, append)| Cursor { offset, append })
    }

    async fn set_cursor(&mut self, h: Handle, offset: u64) -> Result<(), Errno> {
        // A handle that was closed meanwhile: nothing can ask for the offset either.
        let _ = self.session().handles.with(h, |d| d.set_offset(offset));
        Ok(())
    }

    async fn size(&mut self, f: FileRef) -> Result<u64, Errno> {
        if self.is_rehearsed() { self.imagined_size(f) } else { self.size_core(f) }
    }

    async fn read(
        &mut self,
        f: FileRef,
        off: u64,
        len: u64,
        sink: Sink<'_>,
        sum: Option<&mut ChecksumState>,
    ) -> Result<u64, Errno> {
        if self.is_rehearsed() {
            return self.imagine_read(f, off, len, sink, sum);
        }
        self.read_core(f, off, len, sink, sum)
    }

    async fn write(
        &mut self,
        f: FileRef,
        at: At,
        src: Source<'_>,
        sum: Option<&mut ChecksumState>,
    ) -> Result<Written, Errno> {
        if self.is_rehearsed() {
            return self.imagine_write(f, at, src, sum);
        }
        self.done = true;
        self.write_core(f, at, src, sum)
    }

    async fn truncate(&mut self, f: FileRef, size: u64) -> Result<(), Errno> {
        if self.is_rehearsed() {
            return self.imagine_size(f, size);
        }
        self.done = true;
        self.truncate_core(f, size)
    }

    async fn fallocate(&mut self, f: FileRef, mode: FallocMode, off: u64, len: u64) -> Result<(), Errno> {
        self.fallocate_core(f, mode, off, len)
    }

    async fn seek(&mut self, h: Handle, whence: Whence, off: i64) -> Result<u64, Errno> {
        self.seek_core(h, whence, off)
    }

    async fn read_dir(&mut self, h: Handle, cookie: u64, out: &mut DirentWriter<'_>) -> Result<u64, Errno> {
        self.read_dir_core(h, cookie, out)
    }

    async fn stat(&mut self, base: Handle, path: &[u8], nofollow: bool) -> Result<StatBody, Errno> {
        self.stat_core(base, path, nofollow).await
    }

    async fn set_attr(&mut self, base: Handle, path: &[u8], nofollow: bool, set: &SetAttrBody) -> Result<(), Errno> {
        if self.is_rehearsed() {
            return Ok(());
        }
        self.done = true;
        self.set_attr_core(base, path, nofollow, set).await
    }

    async fn access(&mut self, base: Handle, path: &[u8], mask: AccessMask, nofollow: bool) -> Result<(), Errno> {
        self.access_core(base, path, mask, nofollow).await
    }

    async fn statfs(&mut self) -> Result<StatfsBody, Errno> {
        self.statfs_core()
    }

    async fn mkdir(&mut self, base: Handle, path: &[u8], mode: u32) -> Result<(), Errno> {
        if self.is_rehearsed() {
            return Ok(());
        }
        self.done = true;
        self.mkdir_core(base, path, mode)
    }

    async fn rmdir(&mut self, base: Handle, path: &[u8]) -> Result<(), Errno> {
        if self.is_rehearsed() {
            return Ok(());
        }
        self.done = true;
        self.remove_core(base, path, true)
    }

    async fn unlink(&mut self, base: Handle, path: &[u8]) -> Result<(), Errno> {
        if self.is_rehearsed() {
            self.imagine_name((base, path), None);
            return Ok(());
        }
        self.done = true;
        self.remove_core(base, path, false)
    }

    async fn rename(
        &mut self,
        from_base: Handle,
        from: &[u8],
        to_base: Handle,
        to: &[u8],
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        if self.is_rehearsed() {
            self.imagine_rename((from_base, from), (to_base, to), flags);
            return Ok(());
        }
        self.done = true;
        self.rename_core((from_base, from), (to_base, to), flags)
    }

    async fn link(
        &mut self,
        from_base: Handle,
        from: &[u8],
        to_base: Handle,
        to: &[u8],
        follow: bool,
    ) -> Result<(), Errno> {
        if self.is_rehearsed() {
            self.imagine_name((to_base, to), Some((from_base, from)));
            return Ok(());
        }
        self.done = true;
        self.link_core((from_base, from), (to_base, to), follow)
    }

    async fn symlink(&mut self, target: &[u8], base: Handle, path: &[u8]) -> Result<(), Errno> {
        if self.is_rehearsed() {
            return Ok(());
        }
        self.done = true;
        self.symlink_core(target, base, path)
    }

    async fn readlink(&mut self, base: Handle, path: &[u8], room: u64, sink: Sink<'_>) -> Result<u64, Errno> {
        self.readlink_core(base, path, room, sink)
    }

    async fn get_xattr(
        &mut self,
        base: Handle,
        path: &[u8],
        nofollow: bool,
        name: &[u8],
        room: u64,
        sink: Sink<'_>,
    ) -> Result<u64, Errno> {
        self.get_xattr_core((base, path, nofollow), name, room, sink).await
    }

    async fn set_xattr(
        &mut self,
        base: Handle,
        path: &[u8],
        nofollow: bool,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<(), Errno> {
        self.set_xattr_core((base, path, nofollow), name, value, flags).await
    }

    async fn list_xattr(
        &mut self,
        base: Handle,
        path: &[u8],
        nofollow: bool,
        room: u64,
        sink: Sink<'_>,
    ) -> Result<u64, Errno> {
        self.list_xattr_core((base, path, nofollow), room, sink).await
    }

    async fn remove_xattr(&mut self, base: Handle, path: &[u8], nofollow: bool, name: &[u8]) -> Result<(), Errno> {
        self.remove_xattr_core((base, path, nofollow), name).await
    }
}
