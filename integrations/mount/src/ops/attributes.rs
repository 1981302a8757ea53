//! Attributes, extended attributes, and questions about the whole.

use crate::channel::{Request, name};
use crate::fs::{Fs, Out, Said};
use crate::session::Session;
use crate::wire::{self, SxTime, fattr};
use std::sync::Arc;
use weldfs::{AccessMask, SetAttrMask, WireTime, XattrFlags};
use weldfs_ciscops::{Errno, SetAttrBody, StatBody};

/// What statx(2) is told: the basic ones, and the birth time.
const STATX_KNOWN: u32 = libc::STATX_BASIC_STATS | libc::STATX_BTIME;

impl Fs {
    /// Attributes, through the open file that the kernel names, if it names one.
    fn stat_of(&self, node: u64, fh: Option<u64>, session: &Arc<Session>) -> Result<StatBody, Errno> {
        match fh.and_then(|fh| self.files.get(fh).ok()) {
            Some(file) => file.session.raw().stat(file.handle),
            None => self.stat(session, node),
        }
    }

    pub(crate) fn getattr(&self, request: &Request<'_>, session: &Arc<Session>, out: &mut Out) -> Result<Said, Errno> {
        let getattr: wire::Getattr = request.fixed()?;
        let fh = (getattr.flags & wire::GETATTR_FH != 0).then_some(getattr.fh);
        let stat = self.stat_of(request.head.nodeid, fh, session)?;
        out.put(&self.attributes(&stat))
    }

    pub(crate) fn statx(&self, request: &Request<'_>, session: &Arc<Session>, out: &mut Out) -> Result<Said, Errno> {
        let statx: wire::StatxIn = request.fixed()?;
        let fh = (statx.getattr_flags & wire::GETATTR_FH != 0).then_some(statx.fh);
        let stat = self.told(&self.stat_of(request.head.nodeid, fh, session)?);
        let time = |t: WireTime| SxTime { sec: t.sec, nsec: t.nsec, reserved: 0 };
        let valid = self.keeping.attributes;
        out.put(&wire::StatxOut {
            attr_valid: valid.as_secs(),
            attr_valid_nsec: valid.subsec_nanos(),
            mask: STATX_KNOWN,
            blksize: stat.blksize,
            nlink: stat.nlink,
            uid: stat.uid,
            gid: stat.gid,
            mode: stat.mode as u16,
            ino: stat.ino,
            size: stat.size,
            blocks: stat.blocks512,
            atime: time(stat.atime),
            btime: time(stat.btime),
            ctime: time(stat.ctime),
            mtime: time(stat.mtime),
            ..wire::StatxOut::default()
        })
    }

    pub(crate) fn setattr(&self, request: &Request<'_>, session: &Arc<Session>, out: &mut Out) -> Result<Said, Errno> {
        let set: wire::Setattr = request.fixed()?;
        let node = request.head.nodeid;
        let (mut mask, body) = changes(&set);
        // ftruncate: the file's own right to write counts, not the permission bits of now. A file that cannot be
        // written to comes here by an open with O_RDONLY and O_TRUNC, for which they do count.
        if set.valid & fattr::FH != 0 && mask.contains(SetAttrMask::SIZE) {
            let file = self.files.get(set.fh)?;
            if file.flags as i32 & libc::O_ACCMODE != libc::O_RDONLY {
                file.session.raw().truncate(file.handle, set.size)?;
                mask.remove(SetAttrMask::SIZE);
            }
        }
        if !mask.is_empty() {
            // A size is set by the permission bits: by a name, for a handle brings the grant that it was opened with.
            let place = match mask.contains(SetAttrMask::SIZE) {
                true => match self.place_by_name(session, node) {
                    Err(Errno::STALE) => self.place(session, node)?,
                    named => named?,
                },
                false => self.place(session, node)?,
            };
            let body = SetAttrBody { mask: mask.bits(), ..body };
            let done = session.raw().set_attr_at(place.handle, &place.name, true, &body);
            let emptied = mask == SetAttrMask::SIZE && set.size == 0 && done == Err(Errno::OPNOTSUPP);
            // A virtual file has no bytes to cut: `> file` opens it and begins a stream.
            if !emptied || !session.raw().is_virtual(place.handle, &place.name, true) {
                done?;
            }
        }
        let stat = self.stat(session, node)?;
        let mut told = self.attributes(&stat);
        let mapped = self.handing.as_ref().is_some_and(|handing| handing.listing().lists(stat.ino));
        if self.keeping.attributes.is_zero() && !mapped {
            // The kernel takes the time that it is told here for one that it knew, and asks for none before a change by
            // a descriptor. If another session has changed the file since it looked, its pages are not what the file
            // has: the next look must find another time, and no look is answered with this one.
            told.attr.mtimensec ^= 1;
        }
        out.put(&told)
    }

    pub(crate) fn access(&self, request: &Request<'_>, session: &Arc<Session>) -> Result<Said, Errno> {
        let access: wire::Access = request.fixed()?;
        let mask = u8::try_from(access.mask).ok().and_then(AccessMask::from_bits).ok_or(Errno::INVAL)?;
        let place = self.place(session, request.head.nodeid)?;
        session.raw().accessat(place.handle, &place.name, mask, true)?;
        Ok(Said::Now)
    }

    pub(crate) fn statfs(&self, out: &mut Out) -> Result<Said, Errno> {
        let session = self.sessions.own()?;
        let s = session.raw().statfs().map_err(|e| session.told(e))?;
        out.put(&wire::StatfsOut {
            blocks: s.blocks,
            bfree: s.bfree,
            bavail: s.bavail,
            files: s.files,
            ffree: s.ffree,
            bsize: s.bsize as u32,
            namelen: s.name_max,
            frsize: s.bsize as u32,
            ..wire::StatfsOut::default()
        })
    }

    pub(crate) fn getxattr(&self, request: &Request<'_>, session: &Arc<Session>, out: &mut Out) -> Result<Said, Errno> {
        let (get, name): (wire::Getxattr, _) = request.named()?;
        let place = self.place(session, request.head.nodeid)?;
        sized(get.size, out, |room| session.raw().get_xattr(place.handle, &place.name, true, name, room))
    }

    pub(crate) fn listxattr(
        &self,
        request: &Request<'_>,
        session: &Arc<Session>,
        out: &mut Out,
    ) -> Result<Said, Errno> {
        let list: wire::Getxattr = request.fixed()?;
        let place = self.place(session, request.head.nodeid)?;
        sized(list.size, out, |room| session.raw().list_xattr(place.handle, &place.name, true, room))
    }

    pub(crate) fn setxattr(&self, request: &Request<'_>, session: &Arc<Session>) -> Result<Said, Errno> {
        let (set, rest): (wire::Setxattr, _) = request.split()?;
        let (name, value) = name(rest);
        let value = value.get(..set.size as usize).ok_or(Errno::IO)?;
        let flags = u8::try_from(set.flags).ok().and_then(XattrFlags::from_bits).ok_or(Errno::INVAL)?;
        let place = self.place(session, request.head.nodeid)?;
        session.raw().set_xattr(place.handle, &place.name, true, name, value, flags)?;
        Ok(Said::Now)
    }

    pub(crate) fn removexattr(&self, request: &Request<'_>, session: &Arc<Session>) -> Result<Said, Errno> {
        let place = self.place(session, request.head.nodeid)?;
        session.raw().remove_xattr(place.handle, &place.name, true, name(request.body).0)?;
        Ok(Said::Now)
    }
}

/// Answers with bytes, or, where none are asked for, with how many there are.
fn sized(size: u32, out: &mut Out, get: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) -> Result<Said, Errno> {
    if size == 0 {
        let size = get(&mut [])? as u32;
        return out.put(&wire::Getxattr { size, padding: 0 });
    }
    out.fill(size as usize, get)
}

/// What is to be changed, in the device's terms.
fn changes(set: &wire::Setattr) -> (SetAttrMask, SetAttrBody) {
    let has = |bit: u32| set.valid & bit != 0;
    let mut mask = SetAttrMask::empty();
    mask.set(SetAttrMask::MODE, has(fattr::MODE));
    mask.set(SetAttrMask::UID, has(fattr::UID));
    mask.set(SetAttrMask::GID, has(fattr::GID));
    mask.set(SetAttrMask::SIZE, has(fattr::SIZE));
    mask.set(SetAttrMask::ATIME_NOW, has(fattr::ATIME_NOW));
    mask.set(SetAttrMask::MTIME_NOW, has(fattr::MTIME_NOW));
    mask.set(SetAttrMask::ATIME, has(fattr::ATIME) && !has(fattr::ATIME_NOW));
    mask.set(SetAttrMask::MTIME, has(fattr::MTIME) && !has(fattr::MTIME_NOW));
    let body = SetAttrBody {
        mode: set.mode & 0o7777,
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        atime: WireTime::new(set.atime as i64, set.atimensec),
        mtime: WireTime::new(set.mtime as i64, set.mtimensec),
        ..SetAttrBody::default()
    };
    (mask, cleared(mask, body))
}

/// Fields that do not count are zero.
fn cleared(mask: SetAttrMask, mut body: SetAttrBody) -> SetAttrBody {
    if !mask.contains(SetAttrMask::ATIME) {
        body.atime = WireTime::default();
    }
    if !mask.contains(SetAttrMask::MTIME) {
        body.mtime = WireTime::default();
    }
    body
}
