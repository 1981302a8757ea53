//! Names: look-up, making, removing, renaming, links; and forgetting.

use crate::channel::{Request, name};
use crate::fs::{Fs, Out, Said};
use crate::nodes::{Identity, is_directory};
use crate::session::{Held, Session};
use crate::wire;
use std::sync::Arc;
use weldfs::{OpenFlags, RenameFlags};
use weldfs_ciscops::Errno;
use weldfs_ciscops::limits::SYMLINK_MAX;

impl Fs {
    pub(crate) fn lookup(&self, request: &Request<'_>, session: &Arc<Session>, out: &mut Out) -> Result<Said, Errno> {
        if let Some(said) = self.handed(&request.head, name(request.body).0, session, out) {
            return said;
        }
        let parent = self.directory(session, request.head.nodeid)?;
        self.found(request.head.nodeid, &parent, name(request.body).0, session, out)
    }

    /// Tells the kernel of the object that a name leads to.
    fn found(&self, parent: u64, held: &Held, name: &[u8], session: &Session, out: &mut Out) -> Result<Said, Errno> {
        let stat = match session.raw().statat(held.handle(), name, true) {
            Ok(stat) => stat,
            Err(e) => {
                if e == Errno::NOENT {
                    self.nodes.lock().unbind(parent, name);
                }
                return Err(e);
            }
        };
        let node = self.nodes.lock().found(parent, name, &stat);
        out.put(&self.entry(node, &stat))
    }

    pub(crate) fn forget(&self, request: &Request<'_>) -> Result<Said, Errno> {
        let forget: wire::Forget = request.fixed()?;
        self.forget_node(request.head.nodeid, forget.nlookup);
        Ok(Said::Nothing)
    }

    pub(crate) fn batch_forget(&self, request: &Request<'_>) -> Result<Said, Errno> {
        let (batch, mut rest): (wire::BatchForget, _) = request.split()?;
        for _ in 0..batch.count {
            let Ok((one, more)) = <wire::ForgetOne as zerocopy::FromBytes>::read_from_prefix(rest) else { break };
            self.forget_node(one.nodeid, one.nlookup);
            rest = more;
        }
        Ok(Said::Nothing)
    }

    fn forget_node(&self, node: u64, times: u64) {
        let (was_directory, gone) = {
            let mut nodes = self.nodes.lock();
            let was_directory = nodes.identity(node).is_some_and(|(_, directory)| directory);
            (was_directory, nodes.forget(node, times))
        };
        if gone && was_directory {
            self.sessions.forget(node);
        }
    }

    pub(crate) fn readlink(&self, request: &Request<'_>, session: &Arc<Session>, out: &mut Out) -> Result<Said, Errno> {
        let place = self.place(session, request.head.nodeid)?;
        out.fill(SYMLINK_MAX, |room| session.raw().readlinkat(place.handle, &place.name, room))
    }

    pub(crate) fn symlink(&self, request: &Request<'_>, session: &Session, out: &mut Out) -> Result<Said, Errno> {
        let (link, rest) = name(request.body);
        let (target, _) = name(rest);
        let parent = self.directory(session, request.head.nodeid)?;
        session.raw().symlinkat(target, parent.handle(), link)?;
        self.found(request.head.nodeid, &parent, link, session, out)
    }

    /// Regular files only: a device has neither pipes nor sockets nor device nodes, and mknod(2) has EPERM for that.
    pub(crate) fn mknod(&self, request: &Request<'_>, session: &Session, out: &mut Out) -> Result<Said, Errno> {
        let (mknod, name): (wire::Mknod, _) = request.named()?;
        if mknod.mode & libc::S_IFMT != libc::S_IFREG {
            return Err(Errno::PERM);
        }
        let parent = self.directory(session, request.head.nodeid)?;
        let flags = OpenFlags::READ | OpenFlags::CREATE | OpenFlags::EXCL | OpenFlags::NOFOLLOW;
        let made = session.raw().openat(parent.handle(), name, flags, mknod.mode, 0)?;
        drop(session.hold(made.handle));
        self.found(request.head.nodeid, &parent, name, session, out)
    }

    pub(crate) fn mkdir(&self, request: &Request<'_>, session: &Session, out: &mut Out) -> Result<Said, Errno> {
        let (mkdir, name): (wire::Mkdir, _) = request.named()?;
        let parent = self.directory(session, request.head.nodeid)?;
        session.raw().mkdirat(parent.handle(), name, mkdir.mode)?;
        self.found(request.head.nodeid, &parent, name, session, out)
    }

    pub(crate) fn remove(&self, request: &Request<'_>, session: &Session) -> Result<Said, Errno> {
        let name = name(request.body).0;
        let parent = self.directory(session, request.head.nodeid)?;
        match request.head.opcode {
            wire::op::RMDIR => session.raw().rmdirat(parent.handle(), name)?,
            _ => session.raw().unlinkat(parent.handle(), name)?,
        }
        self.nodes.lock().unbind(request.head.nodeid, name);
        Ok(Said::Now)
    }

    pub(crate) fn rename(&self, request: &Request<'_>, session: &Session) -> Result<Said, Errno> {
        let (to_node, flags, rest) = match request.head.opcode {
            wire::op::RENAME2 => {
                let (rename, rest): (wire::Rename2, _) = request.split()?;
                (rename.newdir, rename.flags, rest)
            }
            _ => {
                let (rename, rest): (wire::Rename, _) = request.split()?;
                (rename.newdir, 0, rest)
            }
        };
        let flags = u8::try_from(flags).ok().and_then(RenameFlags::from_bits).ok_or(Errno::INVAL)?;
        let (from, rest) = name(rest);
        let (to, _) = name(rest);
        let from_node = request.head.nodeid;
        let (from_base, to_base) = (self.directory(session, from_node)?, self.directory(session, to_node)?);
        session.raw().renameat(from_base.handle(), from, to_base.handle(), to, flags)?;
        let mut nodes = self.nodes.lock();
        if flags.contains(RenameFlags::EXCHANGE) {
            nodes.exchanged((from_node, from), (to_node, to));
        } else {
            nodes.moved((from_node, from), (to_node, to));
        }
        Ok(Said::Now)
    }

    pub(crate) fn link(&self, request: &Request<'_>, session: &Arc<Session>, out: &mut Out) -> Result<Said, Errno> {
        let (link, name): (wire::Link, _) = request.named()?;
        let (identity, _) = self.nodes.lock().identity(link.oldnodeid).ok_or(Errno::STALE)?;
        // By the name where there is one: that is what link(2) has the right to.
        let from = match self.by_name(session, link.oldnodeid, identity) {
            Ok((place, _)) => place,
            Err(_) => self.place(session, link.oldnodeid)?,
        };
        let parent = self.directory(session, request.head.nodeid)?;
        session.raw().linkat(from.handle, &from.name, parent.handle(), name, false)?;
        let stat = session.raw().statat(parent.handle(), name, true)?;
        if Identity::of(&stat) != identity || is_directory(&stat) {
            return Err(Errno::STALE);
        }
        let node = self.nodes.lock().found(request.head.nodeid, name, &stat);
        out.put(&self.entry(node, &stat))
    }
}
