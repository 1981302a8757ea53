//! Calls that open, make and remove names.

use std::sync::atomic::Ordering;

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RawDir, SeekFrom, StatxFlags, linkat, mkdirat, openat, readlinkat, renameat_with, seek,
    statx, symlinkat, unlinkat,
};
use weldfs_ciscops::dirent::DirentWriter;
use weldfs_ciscops::{Access, Errno, Handle, Op, OpenFlags, Opened, RenameFlags, Sink};
use weldfs_scheduler::Mode as Ticket;

use super::attr::kind;
use super::txn::{FileRef, Held, HostTxn};
use super::walk::{self, Place, Start, by_proc};

/// What the host is told of how a file is opened. Appending and synchronous writing are this side's business: the one
/// needs the offset it got, the other waits without the inode.
pub(super) fn host_flags(flags: OpenFlags) -> OFlags {
    if flags.contains(OpenFlags::PATH) {
        let mut how = OFlags::PATH;
        how.set(OFlags::NOFOLLOW, flags.contains(OpenFlags::NOFOLLOW));
        how.set(OFlags::DIRECTORY, flags.contains(OpenFlags::DIRECTORY));
        return how;
    }
    let mut how = match (flags.contains(OpenFlags::READ), flags.contains(OpenFlags::WRITE)) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        _ => OFlags::RDONLY,
    };
    // A pipe or a terminal must not hold the thread up before it is seen to be one.
    how |= OFlags::NONBLOCK | OFlags::NOCTTY;
    how.set(OFlags::NOFOLLOW, flags.contains(OpenFlags::NOFOLLOW));
    how.set(OFlags::DIRECTORY, flags.contains(OpenFlags::DIRECTORY));
    how.set(OFlags::NOATIME, flags.contains(OpenFlags::NOATIME));
    if flags.contains(OpenFlags::TMPFILE) {
        how |= OFlags::TMPFILE;
        how.set(OFlags::EXCL, flags.contains(OpenFlags::EXCL));
    }
    how
}

impl<'c> HostTxn<'c> {
    /// Opens as the flags say.
    pub(super) async fn open_core(
        &mut self,
        base: Handle,
        path: &[u8],
        flags: OpenFlags,
        mode: u32,
    ) -> Result<Opened<FileRef>, Errno> {
        let start = walk::start(self.core, self.session(), base, path)?;
        let access = if flags.contains(OpenFlags::PATH) { Access::empty() } else { flags.access() };
        let (fd, created) = match self.open_found(base, path, flags) {
            Some(found) => (found?, false),
            None => self.open_or_create(start, path, flags, mode)?,
        };
        if created {
            self.note_directory(base, path, flags);
        }
        let single = matches!(self.work.cmd.op, Op::Open { .. });
        if created && !single {
            // Nothing can reach it before this command gives the names back: no ticket is needed.
            let file = self.keep(Held::Own(fd), access);
            return Ok(Opened { file, created, mode: 0 });
        }
        let stat = rustix::fs::fstat(&fd)?;
        if !flags.contains(OpenFlags::PATH) && !matches!(stat.st_mode & kind::MASK, kind::FILE | kind::DIR) {
            return Err(Errno::NXIO);
        }
        if flags.contains(OpenFlags::CREATE) && stat.st_mode & kind::MASK == kind::DIR {
            return Err(Errno::ISDIR);
        }
        let key = self.core.key(stat.st_dev, stat.st_ino);
        let file = self.keep(Held::Own(fd), access);
        let writes = flags.contains(OpenFlags::TRUNC) || (!single && flags.contains(OpenFlags::WRITE));
        self.hold_one(key, if writes { Ticket::Exclusive } else { Ticket::Shared }).await;
        if flags.contains(OpenFlags::TRUNC) && !created {
            self.scratch.turn = None;
            match flags.contains(OpenFlags::WRITE) {
                true => rustix::fs::ftruncate(self.fd(file), 0)?,
                // Needs the right to write that the descriptor does not have.
                false => drop(openat(CWD, by_proc(self.fd(file)), OFlags::WRONLY | OFlags::TRUNC, Mode::empty())?),
            }
            self.changed(file);
        }
        Ok(Opened { file, created, mode: stat.st_mode })
    }

    /// Opens what a name led to when the program got its place, if it is one that keeps it: with the rights to what is
    /// opened that there are now.
    pub(super) fn open_found(
        &self,
        base: Handle,
        path: &[u8],
        flags: OpenFlags,
    ) -> Option<Result<std::os::fd::OwnedFd, Errno>> {
        if !self.settled || flags.contains(OpenFlags::EXCL) {
            return None;
        }
        let found = self.way.found(base, path, flags.contains(OpenFlags::NOFOLLOW))?;
        let how = host_flags(flags).difference(OFlags::NOFOLLOW) | OFlags::CLOEXEC;
        Some(match found {
            // Where it may make no names, its caller is told so.
            Err(Errno::NOENT) if flags.contains(OpenFlags::CREATE) => Err(Errno::ACCES),
            Err(e) => Err(e),
            Ok(place) => match rustix::fs::readlinkat(&place, "", Vec::new()) {
                // It was not to be followed.
                Ok(_) if !flags.contains(OpenFlags::PATH) => Err(Errno::LOOP),
                Ok(_) if flags.contains(OpenFlags::DIRECTORY) => Err(Errno::NOTDIR),
                Ok(_) => rustix::io::fcntl_dupfd_cloexec(&*place, 0).map_err(Errno::from),
                Err(_) => openat(CWD, by_proc(&*place), how, Mode::empty()).map_err(Errno::from),
            },
        })
    }

    /// Opens, and creates where the flags say so and it is missing.
    fn open_or_create(
        &mut self,
        start: Start<'c>,
        path: &[u8],
        flags: OpenFlags,
        mode: u32,
    ) -> Result<(std::os::fd::OwnedFd, bool), Errno> {
        let (how, bits) = (host_flags(flags), Mode::from_raw_mode(mode & 0o7777));
        if self.withholds_names() && flags.contains(OpenFlags::CREATE) {
            // It may make no name there, so it holds none alone.
            return match self.open_path(start, path, how, Mode::empty()) {
                Ok(_) if flags.contains(OpenFlags::EXCL) => Err(Errno::EXIST),
                Ok(fd) => Ok((fd, false)),
                Err(Errno::NOENT) => Err(Errno::ACCES),
                Err(e) => Err(e),
            };
        }
        if !flags.contains(OpenFlags::CREATE) {
            self.hold_names(false);
            let temporary = flags.contains(OpenFlags::TMPFILE);
            let bits = if temporary { bits } else { Mode::empty() };
            return Ok((self.open_path(start, path, how, bits)?, temporary));
        }
        let (create, excl) = (how | OFlags::CREATE, how | OFlags::CREATE | OFlags::EXCL);
        if flags.contains(OpenFlags::EXCL) || path.ends_with(b"/") {
            self.hold_names(true);
            let asked = if flags.contains(OpenFlags::EXCL) { excl } else { create };
            return Ok((self.open_path(start, path, asked, bits)?, true));
        }
        // Whether it is there is known only by trying; what was the case last time is tried first.
        let (session, spent) = (self.session(), self.way.spent());
        if !session.makes_new.load(Ordering::Relaxed) {
            self.hold_names(false);
            match self.open_path(start.clone(), path, how, Mode::empty()) {
                Err(Errno::NOENT) => session.makes_new.store(true, Ordering::Relaxed),
                other => return Ok((other?, false)),
            }
            self.way.again(spent);
        }
        self.hold_names(true);
        match self.open_path(start.clone(), path, excl, bits) {
            Err(Errno::EXIST) => session.makes_new.store(false, Ordering::Relaxed),
            other => return Ok((other?, true)),
        }
        self.way.again(spent);
        match self.open_path(start.clone(), path, how, Mode::empty()) {
            // A link that leads nowhere: what it names is made.
            Err(Errno::NOENT) => {
                self.way.again(spent);
                Ok((self.open_path(start, path, create, bits)?, true))
            }
            other => Ok((other?, false)),
        }
    }

    /// A new name is durable only with its directory.
    fn note_directory(&mut self, base: Handle, path: &[u8], flags: OpenFlags) {
        if self.is_durable() && !flags.contains(OpenFlags::TMPFILE) {
            // It has been made: the way is gone to its end now, again.
            self.way.stays = true;
            self.way.again(0);
            match self.parent(base, path) {
                Ok(place) => self.note_place(&place),
                Err(_) => self.changed_whole(None),
            }
        }
    }

    /// The entries of this directory have changed.
    fn note_place(&mut self, place: &Place<'_, '_>) {
        if !self.is_durable() {
            return;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // A directory that may be searched and not read: everything instead.
        let dir = openat(place.dir(), ".", flags, Mode::empty()).ok();
        let dir = dir.map(|fd| self.keep(Held::Own(fd), Access::empty()));
        self.changed_whole(dir);
    }

    /// Whether a way that is known may lead through this name: it is a directory's or a link's.
    fn leads_on(&self, place: &Place<'_, '_>) -> bool {
        self.way.knows()
            && match statx(place.dir(), place.name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE) {
                Ok(found) => matches!(u32::from(found.stx_mode) & kind::MASK, kind::DIR | kind::LINK),
                Err(e) => e != rustix::io::Errno::NOENT,
            }
    }

    /// Runs a call on the names of one directory, alone among all that use names.
    fn change_names(
        &mut self,
        base: Handle,
        path: &[u8],
        makes: bool,
        call: impl FnOnce(&Place<'_, '_>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.hold_names(true);
        let place = self.parent(base, path)?;
        self.withheld(&place, makes)?;
        // A new name is on no way that has led somewhere.
        let leads = !makes && self.leads_on(&place);
        call(&place)?;
        if leads {
            self.way.forget();
        }
        self.note_place(&place);
        Ok(())
    }

    pub(super) fn mkdir_core(&mut self, base: Handle, path: &[u8], mode: u32) -> Result<(), Errno> {
        let bits = Mode::from_raw_mode(mode & 0o1777);
        self.change_names(base, path, true, |at| Ok(mkdirat(at.dir(), at.name, bits)?))
    }

    pub(super) fn remove_core(&mut self, base: Handle, path: &[u8], dir: bool) -> Result<(), Errno> {
        // The host would be asked for `.` of the root, and say that this is no name.
        if path.iter().all(|b| *b == b'/') && !path.is_empty() {
            return Err(if dir { Errno::BUSY } else { Errno::ISDIR });
        }
        let how = if dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        self.change_names(base, path, false, |at| Ok(unlinkat(at.dir(), at.name, how)?))
    }

    pub(super) fn symlink_core(&mut self, target: &[u8], base: Handle, path: &[u8]) -> Result<(), Errno> {
        self.change_names(base, path, true, |at| Ok(symlinkat(target, at.dir(), at.name)?))
    }

    pub(super) fn rename_core(
        &mut self,
        from: (Handle, &[u8]),
        to: (Handle, &[u8]),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        self.hold_names(true);
        let old = self.parent(from.0, from.1)?;
        let new = self.parent(to.0, to.1)?;
        self.withheld(&old, false)?;
        self.withheld(&new, false)?;
        let mut how = rustix::fs::RenameFlags::empty();
        how.set(rustix::fs::RenameFlags::NOREPLACE, flags.contains(RenameFlags::NOREPLACE));
        how.set(rustix::fs::RenameFlags::EXCHANGE, flags.contains(RenameFlags::EXCHANGE));
        let leads = self.leads_on(&old) || self.leads_on(&new);
        renameat_with(old.dir(), old.name, new.dir(), new.name, how)?;
        if leads {
            self.way.forget();
        }
        self.note_place(&old);
        self.note_place(&new);
        Ok(())
    }

    pub(super) fn link_core(&mut self, from: (Handle, &[u8]), to: (Handle, &[u8]), follow: bool) -> Result<(), Errno> {
        self.hold_names(true);
        if from.1.is_empty() {
            let file = self.by_handle(from.0)?;
            let new = self.parent(to.0, to.1)?;
            self.withheld(&new, true)?;
            linkat(CWD, by_proc(self.fd(file)), new.dir(), new.name, AtFlags::SYMLINK_FOLLOW)?;
            self.note_place(&new);
            return Ok(());
        }
        // What is linked is looked up first, and its errors come first.
        let spent = self.way.spent();
        let old = self.parent(from.0, from.1)?;
        let named = if old.is_plain() && !follow {
            statx(old.dir(), old.name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE)?;
            None
        } else {
            let mut how = OFlags::PATH;
            how.set(OFlags::NOFOLLOW, !follow);
            let start = walk::start(self.core, self.session(), from.0, from.1)?;
            self.way.again(spent);
            Some(self.open_path(start, from.1, how, Mode::empty())?)
        };
        let new = self.parent(to.0, to.1)?;
        self.withheld(&new, true)?;
        match named {
            None => linkat(old.dir(), old.name, new.dir(), new.name, AtFlags::empty())?,
            Some(file) => linkat(CWD, by_proc(&file), new.dir(), new.name, AtFlags::SYMLINK_FOLLOW)?,
        }
        self.note_place(&new);
        Ok(())
    }

    pub(super) fn readlink_core(
        &mut self,
        base: Handle,
        path: &[u8],
        room: u64,
        mut sink: Sink<'_>,
    ) -> Result<u64, Errno> {
        if room == 0 {
            return Err(Errno::INVAL);
        }
        let target = if path.is_empty() {
            let file = self.by_handle(base)?;
            // Of an open file the host says ENOENT: it is no link.
            readlinkat(self.fd(file), "", Vec::new()).map_err(|e| match e {
                rustix::io::Errno::NOENT => Errno::INVAL,
                other => other.into(),
            })?
        } else {
            self.hold_names(false);
            let spent = self.way.spent();
            let at = self.parent(base, path)?;
            if at.is_plain() {
                readlinkat(at.dir(), at.name, Vec::new())?
            } else {
                let start = walk::start(self.core, self.session(), base, path)?;
                self.way.again(spent);
                drop(self.open_path(start, path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())?);
                // `.`, `..` and what a slash follows are directories.
                return Err(Errno::INVAL);
            }
        };
        let n = target.as_bytes().len().min(room as usize);
        sink.put(0, &target.as_bytes()[..n]);
        Ok(n as u64)
    }

    pub(super) fn read_dir_core(&mut self, h: Handle, cookie: u64, out: &mut DirentWriter<'_>) -> Result<u64, Errno> {
        if h == Handle::ROOT {
            // Opened anew with the rights of whoever asks; and its position is its own.
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let fd = openat(&self.core.root, ".", flags, Mode::empty())?;
            return self.entries(&fd, true, cookie, out);
        }
        let d = self.session().description(h)?;
        if d.flags().contains(OpenFlags::PATH) {
            return Err(Errno::BADF);
        }
        // A directory cannot be open without the right to read it.
        if d.body.mode & kind::MASK != kind::DIR {
            return Err(Errno::NOTDIR);
        }
        let root = self.core.key(self.core.root_id.0, self.core.root_id.1) == d.ino;
        let _alone = d.body.walk.lock();
        self.entries(&d.body.fd, root, cookie, out)
    }

    /// Entries from a cookie on, which is the host's own. What is above the served directory is the directory itself.
    fn entries(
        &mut self,
        fd: &std::os::fd::OwnedFd,
        root: bool,
        cookie: u64,
        out: &mut DirentWriter<'_>,
    ) -> Result<u64, Errno> {
        seek(fd, SeekFrom::Start(cookie))?;
        let own = self.core.root_id.1;
        let mut next = cookie;
        let mut listing = RawDir::new(fd, &mut self.scratch.entries);
        while let Some(entry) = listing.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let ino = if root && name == b".." { own } else { entry.ino() };
            let dtype = kind::dirent(entry.file_type());
            if !out.push(ino, entry.next_entry_cookie(), dtype, name) {
                return if out.entries() == 0 { Err(Errno::INVAL) } else { Ok(next) };
            }
            next = entry.next_entry_cookie();
        }
        Ok(next)
    }
}
