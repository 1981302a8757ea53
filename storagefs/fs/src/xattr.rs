//! Extended attributes. `user.*` follows the file's permission bits, on regular files and directories only;
//! `trusted.*` is the superuser's and hidden from others; `security.*` is readable by all and set by the superuser.

use super::inode_set::Hold;
use super::perm::{self, IFDIR, IFREG, ISVTX, R, W};
use super::txn::Txn;
use std::sync::Arc;
use weldfs_ciscops::limits::{XATTR_NAME_MAX, XATTR_VALUE_MAX};
use weldfs_ciscops::{Errno, Handle, Sink, XattrFlags};
use weldfs_store::effect::Effect;
use weldfs_store::error::{FsError, FsResult};
use weldfs_store::record::{InodeRec, SPEC_NAME};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Space {
    User,
    Trusted,
    Security,
}

fn space(name: &[u8]) -> Result<Space, Errno> {
    let spaces: [(&[u8], Space); 3] =
        [(b"user.", Space::User), (b"trusted.", Space::Trusted), (b"security.", Space::Security)];
    let hit = spaces.iter().find(|(p, _)| name.len() > p.len() && name.starts_with(p));
    hit.map(|(_, s)| *s).ok_or(Errno::OPNOTSUPP)
}

impl Txn<'_> {
    /// May the caller use this name on this inode?
    fn xattr_access(&self, rec: &InodeRec, name: &[u8], write: bool) -> Result<(), Errno> {
        if name.is_empty() || name.len() > XATTR_NAME_MAX {
            return Err(Errno::RANGE);
        }
        let cred = self.session.cred();
        let refused = if write { Errno::PERM } else { Errno::NODATA };
        let kind = rec.mode & perm::IFMT;
        match space(name)? {
            Space::Security if write && cred.uid != 0 => Err(Errno::PERM),
            Space::Security => Ok(()),
            Space::Trusted if cred.uid != 0 => Err(refused),
            Space::Trusted => Ok(()),
            Space::User if kind != IFREG && kind != IFDIR => Err(refused),
            Space::User => {
                if write && kind == IFDIR && rec.mode & ISVTX != 0 && !perm::is_owner(rec, cred) {
                    return Err(Errno::PERM);
                }
                perm::check(rec, cred, if write { W } else { R })
            }
        }
    }

    pub(super) fn get_xattr_core(
        &mut self,
        base: Handle,
        path: &[u8],
        nofollow: bool,
        name: &[u8],
        room: u64,
        sink: Sink<'_>,
    ) -> FsResult<u64> {
        let rec = self.object(base, path, nofollow, Hold::Shared)?;
        self.xattr_access(&rec, name, false)?;
        let found = self.store.xattr(rec.ino, name)?.ok_or(Errno::NODATA)?;
        self.put_out(&found.value, room, sink)
    }

    /// Puts a whole answer in the sink; `room` 0 asks for its length only.
    pub(super) fn put_out(&mut self, bytes: &[u8], room: u64, mut sink: Sink<'_>) -> FsResult<u64> {
        let len = bytes.len() as u64;
        if room == 0 {
            return Ok(len);
        }
        if len > room {
            return Err(Errno::RANGE.into());
        }
        sink.put(0, bytes);
        self.counters.meta_copies += 1;
        Ok(len)
    }

    pub(super) fn set_xattr_core(
        &mut self,
        base: Handle,
        path: &[u8],
        nofollow: bool,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> FsResult<()> {
        let rec = self.object(base, path, nofollow, Hold::Exclusive)?;
        if flags.contains(XattrFlags::CREATE | XattrFlags::REPLACE) {
            return Err(Errno::INVAL.into());
        }
        if value.len() > XATTR_VALUE_MAX {
            return Err(Errno::TOOBIG.into());
        }
        self.xattr_access(&rec, name, true)?;
        let slot = match self.store.xattr(rec.ino, name)? {
            Some(_) if flags.contains(XattrFlags::CREATE) => return Err(Errno::EXIST.into()),
            None if flags.contains(XattrFlags::REPLACE) => return Err(Errno::NODATA.into()),
            Some(old) => old.slot,
            None => self.store.xattr_slot(rec.ino, name)?,
        };
        let (name, value) = (Arc::from(name), Arc::from(value));
        self.name_effects.push(Effect::PutXattr { ino: rec.ino, slot, name, value });
        self.touch_attrs(&rec);
        Ok(())
    }

    pub(super) fn list_xattr_core(
        &mut self,
        base: Handle,
        path: &[u8],
        nofollow: bool,
        room: u64,
        sink: Sink<'_>,
    ) -> FsResult<u64> {
        let rec = self.object(base, path, nofollow, Hold::Shared)?;
        let root = self.session.cred().uid == 0;
        let mut list = self.strides.take_list();
        // Some at a time: a file may have thousands.
        while let Some(from) = list.next {
            match self.store.xattrs_from(rec.ino, from) {
                Ok((some, next)) => {
                    some.iter()
                        .filter(|x| *x.name != *SPEC_NAME && (root || space(&x.name) != Ok(Space::Trusted)))
                        .for_each(|x| list.add(x, room));
                    list.next = next;
                }
                Err(e) => return self.strides.keep_list(list, e),
            }
            if list.next.is_some() {
                return self.strides.keep_list(list, FsError::Turn);
            }
        }
        if room == 0 {
            return Ok(list.bytes);
        }
        if list.bytes > room {
            return Err(Errno::RANGE.into());
        }
        self.put_out(&list.names, room, sink)
    }

    pub(super) fn remove_xattr_core(&mut self, base: Handle, path: &[u8], nofollow: bool, name: &[u8]) -> FsResult<()> {
        let rec = self.object(base, path, nofollow, Hold::Exclusive)?;
        self.xattr_access(&rec, name, true)?;
        let old = self.store.xattr(rec.ino, name)?.ok_or(Errno::NODATA)?;
        self.name_effects.push(Effect::DelXattr { ino: rec.ino, slot: old.slot });
        self.touch_attrs(&rec);
        Ok(())
    }
}
