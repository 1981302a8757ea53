//! Opening and closing.

use crate::channel::Request;
use crate::files::OpenFile;
use crate::fs::{Fs, Out, Said};
use crate::nodes::Identity;
use crate::session::Session;
use crate::wire::{self, fopen};
use std::sync::Arc;
use weldfs::{AccessMask, OpenFlags};
use weldfs_ciscops::{Errno, StatBody};

/// Flags of an open file that the device is told. Appending is said with each write: the pages of a mapping are
/// written back through any open file of the inode, also through one that appends.
fn told(flags: u32) -> OpenFlags {
    let mut told = OpenFlags::from_linux(flags as i32);
    told.remove(OpenFlags::APPEND | OpenFlags::NOATIME | OpenFlags::PATH);
    told | OpenFlags::NOFOLLOW
}

impl Fs {
    pub(crate) fn open(&self, request: &Request<'_>, session: &Arc<Session>, out: &mut Out) -> Result<Said, Errno> {
        let open: wire::Open = request.fixed()?;
        let mut flags = told(open.flags);
        // O_TRUNC is a change of the size that the kernel asks for after this, when it knows that no program runs from
        // the file (ETXTBSY).
        flags.remove(OpenFlags::CREATE | OpenFlags::EXCL | OpenFlags::TRUNC | OpenFlags::TMPFILE);
        let node = request.head.nodeid;
        if let Some(handed) = self.open_handed(&request.head, session, open.flags) {
            let (file, stat) = handed?;
            let mut told = self.kept(file, &stat);
            if !self.direct_mapped {
                // Past the page cache it would not find what mappings hold.
                told.open_flags &= !fopen::DIRECT_IO;
            }
            return out.put(&told);
        }
        let opened = match self.open_again(session, node, flags) {
            Ok((file, stat)) => self.opened(session, file, node, open.flags, &stat),
            Err(Errno::NOENT) => self.open_nameless(session, node, open.flags)?,
            Err(e) => return Err(e),
        };
        out.put(&opened)
    }

    /// Opens a file that has no name any more, and is open (through `/proc/self/fd`): only its open description leads
    /// to it, which is shared. ENOENT: none of this session has the access that is asked for. EACCES: by its mode.
    fn open_nameless(&self, session: &Arc<Session>, node: u64, flags: u32) -> Result<wire::OpenOut, Errno> {
        let access = |flags| OpenFlags::from_linux(flags as i32) & (OpenFlags::READ | OpenFlags::WRITE);
        let wanted = access(flags);
        let serves = |file: &Arc<OpenFile>| {
            Arc::ptr_eq(&file.session, session) && !file.is_virtual && access(file.flags).contains(wanted)
        };
        let open = self.nodes.lock().open(node);
        let of = open.into_iter().filter_map(|fh| self.files.get(fh).ok()).find(serves).ok_or(Errno::NOENT)?;
        let mut mask = AccessMask::empty();
        mask.set(AccessMask::READ, wanted.contains(OpenFlags::READ));
        mask.set(AccessMask::WRITE, wanted.contains(OpenFlags::WRITE));
        session.raw().accessat(of.handle, b"", mask, false)?;
        let stat = session.raw().stat(of.handle)?;
        Ok(self.kept(OpenFile::sharing(of, flags), &stat))
    }

    /// Opens an object that the kernel knows by one of its names, and looks whether it is the one. ENOENT: it has none.
    pub(crate) fn open_again(
        &self,
        session: &Arc<Session>,
        node: u64,
        flags: OpenFlags,
    ) -> Result<(weldfs_ciscops::Handle, StatBody), Errno> {
        let (identity, names) = {
            let nodes = self.nodes.lock();
            (nodes.identity(node).ok_or(Errno::STALE)?.0, nodes.names(node))
        };
        let mut last = if names.is_empty() { Errno::NOENT } else { Errno::STALE };
        for (parent, name) in names {
            let base = match self.directory(session, parent) {
                Ok(base) => base,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(e) => {
                    last = e;
                    continue;
                }
            };
            match session.raw().openat(base.handle(), &name, flags, 0, 0) {
                Ok(opened) => {
                    let stat = session.raw().stat(opened.handle);
                    match stat {
                        Ok(stat) if Identity::of(&stat) == identity => return Ok((opened.handle, stat)),
                        _ => drop(session.hold(opened.handle)),
                    }
                }
                // A virtual file that is there, and lacks what it streams.
                Err(e @ (Errno::NOENT | Errno::LOOP)) if session.raw().is_virtual(base.handle(), &name, true) => {
                    last = e
                }
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// Keeps an open file; what the kernel is told of it.
    fn opened(
        &self,
        session: &Arc<Session>,
        handle: weldfs_ciscops::Handle,
        node: u64,
        flags: u32,
        stat: &StatBody,
    ) -> wire::OpenOut {
        // Only a file without bytes of its own can be a virtual one.
        let is_virtual =
            stat.size == 0 && stat.mode & libc::S_IFMT == libc::S_IFREG && session.raw().is_virtual(handle, b"", false);
        self.kept(OpenFile::new(session.clone(), handle, node, flags, is_virtual), stat)
    }

    /// The same of what is open already.
    fn kept(&self, file: OpenFile, stat: &StatBody) -> wire::OpenOut {
        let (node, flags, is_virtual) = (file.node, file.flags, file.is_virtual);
        // What is cached of a mapped file is the file: the programs of the run change it there.
        let mapped = self.handing.as_ref().is_some_and(|handing| handing.listing().lists(stat.ino));
        let first = file.is_first_mapping();
        let mapped = mapped && !first;
        let fh = self.files.insert(file);
        let unchanged = self.nodes.lock().opened(node, fh, stat, mapped);
        // Past the page cache, which cuts a write where it meets a page that it does not hold: two requests, between
        // which another session's append may come.
        let appends = flags as i32 & libc::O_APPEND != 0;
        let past = if is_virtual || appends { fopen::DIRECT_IO } else { 0 };
        // A first mapping begins with nothing: another open of the file, in the state that it still is in, may not have
        // come to dropping what was there before.
        let kept = mapped || (past == 0 && !first && (unchanged || !self.keeping.attributes.is_zero()));
        let open_flags = past | if kept { fopen::KEEP_CACHE } else { 0 };
        wire::OpenOut { fh, open_flags, backing_id: 0 }
    }

    pub(crate) fn opendir(&self, request: &Request<'_>, session: &Arc<Session>, out: &mut Out) -> Result<Said, Errno> {
        let node = request.head.nodeid;
        let place = self.directory(session, node)?;
        let flags = OpenFlags::READ | OpenFlags::DIRECTORY;
        let handle = match session.raw().openat(place.handle(), b".", flags, 0, 0) {
            Ok(opened) => opened.handle,
            // `.` is looked up in the directory, which takes the right to search it; to list it takes only that to read
            // it, and by its name it is opened without the other.
            Err(Errno::ACCES) if node == wire::ROOT => {
                session.raw().openat(weldfs_ciscops::Handle::ROOT, b"/", flags, 0, 0)?.handle
            }
            Err(Errno::ACCES) => match self.open_again(session, node, flags | OpenFlags::NOFOLLOW) {
                Ok((handle, _)) => handle,
                Err(Errno::NOENT | Errno::STALE) => return Err(Errno::ACCES),
                Err(e) => return Err(e),
            },
            Err(e) => return Err(e),
        };
        let fh = self.files.insert(OpenFile::new(session.clone(), handle, node, 0, false));
        // Of a directory no bytes are kept; one that was removed can be looked at through this.
        self.nodes.lock().opened(node, fh, &StatBody::default(), false);
        out.put(&wire::OpenOut { fh, open_flags: 0, backing_id: 0 })
    }

    /// Creates and opens in one step; a file without a name, too.
    pub(crate) fn create(&self, request: &Request<'_>, session: &Arc<Session>, out: &mut Out) -> Result<Said, Errno> {
        let (create, name): (wire::Create, _) = request.named()?;
        let nameless = request.head.opcode == wire::op::TMPFILE;
        let parent = self.directory(session, request.head.nodeid)?;
        let mut flags = told(create.flags);
        flags.set(OpenFlags::CREATE, !nameless);
        flags.set(OpenFlags::TMPFILE, nameless);
        flags.remove(OpenFlags::DIRECTORY);
        let name = if nameless { b"." } else { name };
        let opened = session.raw().openat(parent.handle(), name, flags, create.mode, 0)?;
        let held = session.hold(opened.handle);
        let stat = session.raw().stat(held.handle())?;
        let node = {
            let mut nodes = self.nodes.lock();
            if nameless { nodes.told(&stat) } else { nodes.found(request.head.nodeid, name, &stat) }
        };
        let file = Arc::into_inner(held).map(crate::session::Held::into_handle).ok_or(Errno::IO)?;
        let open = self.opened(session, file, node, create.flags, &stat);
        out.put(&self.entry(node, &stat))?;
        out.put(&open)
    }

    pub(crate) fn release(&self, request: &Request<'_>) -> Result<Said, Errno> {
        let release: wire::Release = request.fixed()?;
        self.locks.released(release.fh);
        if let Some(file) = self.files.remove(release.fh) {
            self.nodes.lock().closed(file.node, release.fh);
        }
        // Locks of the description went with it.
        self.locks.hurry();
        Ok(Said::Now)
    }
}
