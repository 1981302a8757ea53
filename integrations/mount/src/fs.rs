//! The mount as the kernel sees it: one thread takes a request, has the device do it, and answers.
//!
//! An object is reached through the caller's session: a directory through a handle that names it (and goes on to name
//! it after any rename), anything else through its name in such a directory, or through an open file of it.

use crate::channel::{Channel, Request};
use crate::files::{Files, OpenFile};
use crate::handing::Handing;
use crate::locks::Locks;
use crate::nodes::{Identity, Nodes};
use crate::session::{Held, Session, Sessions};
use crate::who::Who;
use crate::wire::{Attr, AttrOut, EntryOut, InHeader, ROOT, op};
use std::sync::Arc;
use std::time::Duration;
use weldfs_ciscops::{Errno, Handle, StatBody};
use weldfs_locks::Mutex;
use zerocopy::{Immutable, IntoBytes};

/// What becomes of a request that did not fail.
pub enum Said {
    /// It is answered with what stands in the worker's room.
    Now,
    /// It is answered later, or never.
    Nothing,
}

/// A worker's room for one answer.
pub struct Out {
    room: Box<[u8]>,
    len: usize,
}

impl Out {
    pub fn new(bytes: usize) -> Out {
        Out { room: vec![0; bytes].into(), len: 0 }
    }

    /// Puts a body behind what is there.
    pub fn put(&mut self, body: &(impl IntoBytes + Immutable)) -> Result<Said, Errno> {
        let bytes = body.as_bytes();
        self.room.get_mut(self.len..self.len + bytes.len()).ok_or(Errno::RANGE)?.copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(Said::Now)
    }

    /// Room for `len` bytes, at most; `fill` says how many it put there.
    pub fn fill(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) -> Result<Said, Errno> {
        let len = len.min(self.room.len());
        self.len = fill(&mut self.room[..len])?;
        Ok(Said::Now)
    }

    pub fn clear(&mut self) {
        self.len = 0;
    }

    pub fn bytes(&self) -> &[u8] {
        &self.room[..self.len]
    }
}

/// What is kept by the kernel, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Keeping {
    /// Names.
    pub entries: Duration,
    /// Attributes.
    pub attributes: Duration,
}

impl Keeping {
    /// What the kernel is told of an object, and how long that holds.
    pub fn entry(&self, node: u64, stat: &StatBody) -> EntryOut {
        let Keeping { entries, attributes } = self;
        EntryOut {
            nodeid: node,
            generation: 0,
            entry_valid: entries.as_secs(),
            attr_valid: attributes.as_secs(),
            entry_valid_nsec: entries.subsec_nanos(),
            attr_valid_nsec: attributes.subsec_nanos(),
            attr: attr(stat),
        }
    }
}

/// The mount.
pub struct Fs {
    pub channel: Arc<Channel>,
    pub sessions: Sessions,
    pub nodes: Mutex<Nodes>,
    pub files: Files,
    pub locks: Locks,
    pub keeping: Keeping,
    /// What preloaded programs hand to the kernel; none in a mount that is not theirs.
    pub handing: Option<Handing>,
    /// Whether the kernel sees to it that what is mapped and what passes its page cache agree.
    pub direct_mapped: bool,
}

/// Where an object is reached: a handle, and a name in it; an empty name is what the handle names.
pub struct Place {
    pub handle: Handle,
    pub name: Box<[u8]>,
    /// Keeps the handle.
    _held: Option<Arc<Held>>,
    _open: Option<Arc<OpenFile>>,
}

impl Fs {
    /// The session of a request's caller.
    pub fn caller(&self, head: &InHeader) -> Result<Arc<Session>, Errno> {
        if self.sessions.is_privileged() { self.sessions.of(Who::of(head)) } else { self.sessions.own() }
    }

    /// A handle that names a directory.
    pub fn directory(&self, session: &Session, node: u64) -> Result<Arc<Held>, Errno> {
        if node == ROOT {
            return Ok(session.hold(Handle::ROOT));
        }
        if let Some(held) = session.kept(node) {
            return Ok(held);
        }
        let (identity, names) = {
            let nodes = self.nodes.lock();
            let (identity, is_directory) = nodes.identity(node).ok_or(Errno::STALE)?;
            if !is_directory {
                return Err(Errno::NOTDIR);
            }
            (identity, nodes.names(node))
        };
        let mut last = Errno::STALE;
        for (parent, name) in names {
            let found =
                self.directory(session, parent).and_then(|p| session.open_directory(p.handle(), &name, identity));
            match found {
                Ok(held) => {
                    session.keep(node, held.clone());
                    return Ok(held);
                }
                // The name leads elsewhere by now.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => last = Errno::STALE,
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// Where an object is reached. For what is no directory a name is looked at first, so that it is still this
    /// object's.
    pub fn place(&self, session: &Arc<Session>, node: u64) -> Result<Place, Errno> {
        let (identity, is_directory) = self.nodes.lock().identity(node).ok_or(Errno::STALE)?;
        if is_directory {
            let held = self.directory(session, node)?;
            return Ok(Place { handle: held.handle(), name: [].into(), _held: Some(held), _open: None });
        }
        let open = self.nodes.lock().open(node);
        let own = |file: &Arc<OpenFile>| Arc::ptr_eq(&file.session, session);
        if let Some(file) = open.into_iter().filter_map(|fh| self.files.get(fh).ok()).find(own) {
            return Ok(Place { handle: file.handle, name: [].into(), _held: None, _open: Some(file) });
        }
        self.by_name(session, node, identity).map(|(place, _)| place)
    }

    /// The same by one of its names, whatever is open. ESTALE: it has none.
    pub fn place_by_name(&self, session: &Arc<Session>, node: u64) -> Result<Place, Errno> {
        let (identity, is_directory) = self.nodes.lock().identity(node).ok_or(Errno::STALE)?;
        if is_directory {
            return self.place(session, node);
        }
        self.by_name(session, node, identity).map(|(place, _)| place)
    }

    /// The name of an object, and its attributes as of now.
    pub fn by_name(&self, session: &Arc<Session>, node: u64, identity: Identity) -> Result<(Place, StatBody), Errno> {
        let names = self.nodes.lock().names(node);
        let mut last = Errno::STALE;
        for (parent, name) in names {
            let found = self
                .directory(session, parent)
                .and_then(|held| Ok((session.raw().statat(held.handle(), &name, true)?, held)));
            match found {
                Ok((stat, held)) if Identity::of(&stat) == identity => {
                    let place = Place { handle: held.handle(), name, _held: Some(held), _open: None };
                    return Ok((place, stat));
                }
                Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// What an object's attributes are. Whoever has an inode of the kernel may ask, so any session does.
    pub fn stat(&self, session: &Arc<Session>, node: u64) -> Result<StatBody, Errno> {
        let (identity, is_directory) = self.nodes.lock().identity(node).ok_or(Errno::STALE)?;
        let open = self.nodes.lock().open(node);
        if let Some(file) = open.into_iter().find_map(|fh| self.files.get(fh).ok()) {
            return file.session.raw().stat(file.handle);
        }
        let ask = |session: &Arc<Session>| {
            if is_directory {
                return session.raw().stat(self.directory(session, node)?.handle());
            }
            self.by_name(session, node, identity).map(|(_, stat)| stat)
        };
        match ask(session) {
            // The way there is closed to the caller, who holds the object itself (as its working directory, say).
            Err(Errno::ACCES) => ask(&self.sessions.own()?),
            done => done,
        }
    }

    /// What the kernel is told of an object that it is to know from now on.
    pub fn entry(&self, node: u64, stat: &StatBody) -> EntryOut {
        self.keeping.entry(node, &self.told(stat))
    }

    /// Attributes as the kernel is told them.
    pub fn told(&self, stat: &StatBody) -> StatBody {
        self.handing.as_ref().map_or(*stat, |handing| handing.listing().told(stat))
    }

    /// Attributes as the kernel keeps them.
    pub fn attributes(&self, stat: &StatBody) -> AttrOut {
        let valid = self.keeping.attributes;
        AttrOut { valid: valid.as_secs(), valid_nsec: valid.subsec_nanos(), dummy: 0, attr: attr(&self.told(stat)) }
    }

    /// Does what a request asks for, and answers it.
    pub fn handle(&self, request: &Request<'_>, out: &mut Out) {
        out.clear();
        let unique = request.head.unique;
        match self.dispatch(request, out) {
            Ok(Said::Now) => self.channel.answer(unique, out.bytes()),
            Ok(Said::Nothing) => {}
            Err(Errno::NODEV) => self.channel.fail(unique, Errno(libc::ENOTCONN)),
            Err(e) => self.channel.fail(unique, e),
        }
    }

    fn dispatch(&self, request: &Request<'_>, out: &mut Out) -> Result<Said, Errno> {
        let own = match request.head.opcode {
            op::FORGET => return self.forget(request),
            op::BATCH_FORGET => return self.batch_forget(request),
            op::INTERRUPT => return self.interrupt(request),
            op::DESTROY => return Ok(Said::Now),
            op::READ => self.read(request, out),
            op::WRITE => self.write(request, out),
            op::RELEASE | op::RELEASEDIR => return self.release(request),
            op::FLUSH => self.flush(request),
            op::FSYNC | op::FSYNCDIR => self.fsync(request),
            op::LSEEK => self.lseek(request, out),
            op::IOCTL => self.ioctl(request, out),
            op::FALLOCATE => self.fallocate(request),
            op::COPY_FILE_RANGE => self.copy_file_range(request, out),
            op::READDIR => self.readdir(request, out),
            op::READDIRPLUS => self.readdirplus(request, out),
            op::GETLK => self.getlk(request, out),
            op::SETLK | op::SETLKW => self.setlk(request),
            op::STATFS => self.statfs(out),
            _ => {
                let session = self.caller(&request.head)?;
                return self.named(request, &session, out).map_err(|e| session.told(e));
            }
        };
        // These go through the session that opened what they are about; all begin with its number.
        own.map_err(|e| match request.fixed().and_then(|fh: u64| self.files.get(fh)) {
            Ok(file) => file.session.told(e),
            Err(_) => e,
        })
    }

    fn named(&self, request: &Request<'_>, session: &Arc<Session>, out: &mut Out) -> Result<Said, Errno> {
        match request.head.opcode {
            op::LOOKUP => self.lookup(request, session, out),
            op::GETATTR => self.getattr(request, session, out),
            op::STATX => self.statx(request, session, out),
            op::SETATTR => self.setattr(request, session, out),
            op::ACCESS => self.access(request, session),
            op::READLINK => self.readlink(request, session, out),
            op::SYMLINK => self.symlink(request, session, out),
            op::MKNOD => self.mknod(request, session, out),
            op::MKDIR => self.mkdir(request, session, out),
            op::UNLINK | op::RMDIR => self.remove(request, session),
            op::RENAME | op::RENAME2 => self.rename(request, session),
            op::LINK => self.link(request, session, out),
            op::OPEN => self.open(request, session, out),
            op::OPENDIR => self.opendir(request, session, out),
            op::CREATE | op::TMPFILE => self.create(request, session, out),
            op::GETXATTR => self.getxattr(request, session, out),
            op::SETXATTR => self.setxattr(request, session),
            op::LISTXATTR => self.listxattr(request, session, out),
            op::REMOVEXATTR => self.removexattr(request, session),
            _ => Err(Errno::NOSYS),
        }
    }

    /// Lets go of everything.
    pub fn end(&self) {
        self.locks.end();
        self.files.clear();
        if let Some(handing) = &self.handing {
            handing.end();
        }
        self.sessions.end();
    }
}

fn attr(stat: &StatBody) -> Attr {
    Attr {
        ino: stat.ino,
        size: stat.size,
        blocks: stat.blocks512,
        atime: stat.atime.sec as u64,
        mtime: stat.mtime.sec as u64,
        ctime: stat.ctime.sec as u64,
        atimensec: stat.atime.nsec,
        mtimensec: stat.mtime.nsec,
        ctimensec: stat.ctime.nsec,
        mode: stat.mode,
        nlink: stat.nlink,
        uid: stat.uid,
        gid: stat.gid,
        rdev: stat.rdev as u32,
        blksize: stat.blksize,
        flags: 0,
    }
}
