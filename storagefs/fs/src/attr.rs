//! Attributes: stat, chmod, chown, utimens, access, statfs. Synchronous cores of `Txn`.

use super::Cred;
use super::inode_set::Hold;
use super::perm::{self, IFDIR, IFLNK, IFREG, ISGID, W};
use super::resolve::{self, Last};
use super::txn::Txn;
use weldfs_ciscops::limits::NAME_MAX;
use weldfs_ciscops::{AccessMask, Errno, Handle, OpenFlags, SetAttrBody, SetAttrMask, StatBody, StatfsBody, WireTime};
use weldfs_store::effect::attr;
use weldfs_store::error::FsResult;
use weldfs_store::record::{InodeRec, Time};

/// What stat reports of an inode; `dev` identifies the file system.
pub(crate) fn stat_body(rec: &InodeRec, dev: u64) -> StatBody {
    let wire = |t: Time| WireTime::new(t.sec, t.nsec);
    StatBody {
        ino: rec.ino.0,
        generation: rec.generation.into(),
        dev,
        rdev: rec.rdev,
        size: rec.size,
        blocks512: rec.blocks * 8,
        mode: rec.mode,
        nlink: rec.nlink,
        uid: rec.uid,
        gid: rec.gid,
        blksize: 4096,
        flags: 0,
        project: rec.project,
        tenant: rec.tenant,
        atime: wire(rec.atime),
        mtime: wire(rec.mtime),
        ctime: wire(rec.ctime),
        btime: wire(rec.btime),
        version: 0,
        reserved: [0; 13],
    }
}

/// The number that identifies a file system, from its UUID.
pub fn fsid(uuid: &[u8; 16]) -> u64 {
    uuid.iter().take(8).fold(0, |acc, b| acc << 8 | u64::from(*b))
}

fn time(t: WireTime) -> Result<Time, Errno> {
    if t.nsec >= 1_000_000_000 { Err(Errno::INVAL) } else { Ok(Time { sec: t.sec, nsec: t.nsec }) }
}

/// Whether `cred` may make this change to owner and group.
fn may_chown(rec: &InodeRec, cred: &Cred, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
    let owner = perm::is_owner(rec, cred);
    let uid_ok = uid.is_none_or(|u| cred.uid == 0 || (owner && u == rec.uid));
    let gid_ok = gid.is_none_or(|g| cred.uid == 0 || (owner && (g == rec.gid || cred.in_group(g))));
    if uid_ok && gid_ok { Ok(()) } else { Err(Errno::PERM) }
}

/// Whether `cred` may set these times: its own files at will, others' to now if it may write them.
fn may_utime(rec: &InodeRec, cred: &Cred, mask: SetAttrMask) -> Result<(), Errno> {
    let any = SetAttrMask::ATIME | SetAttrMask::MTIME | SetAttrMask::ATIME_NOW | SetAttrMask::MTIME_NOW;
    if !mask.intersects(any) || perm::is_owner(rec, cred) {
        return Ok(());
    }
    if mask & any != SetAttrMask::ATIME_NOW | SetAttrMask::MTIME_NOW {
        return Err(Errno::PERM);
    }
    perm::check(rec, cred, W)
}

/// A change of attributes that `set` asks for and that may be made. A new size is its maker's.
pub(super) struct Change {
    pub mask: SetAttrMask,
    uid: Option<u32>,
    gid: Option<u32>,
    permissions: u32,
    atime: Time,
    mtime: Time,
}

impl Change {
    /// # Errors
    /// EINVAL of what is no change, EPERM where `cred` may not make it, EOPNOTSUPP of a link's permissions.
    pub fn of(rec: &InodeRec, cred: &Cred, set: &SetAttrBody) -> Result<Change, Errno> {
        let mask = SetAttrMask::from_bits(set.mask).ok_or(Errno::INVAL)?;
        let (atime, mtime) = (time(set.atime)?, time(set.mtime)?);
        if mask.contains(SetAttrMask::MODE) {
            if rec.mode & perm::IFMT == IFLNK {
                return Err(Errno::OPNOTSUPP);
            }
            if !perm::is_owner(rec, cred) {
                return Err(Errno::PERM);
            }
        }
        // As chown(2): all ones leave it as it is.
        let given = |bit, id: u32| (mask.contains(bit) && id != u32::MAX).then_some(id);
        let (uid, gid) = (given(SetAttrMask::UID, set.uid), given(SetAttrMask::GID, set.gid));
        may_chown(rec, cred, uid, gid)?;
        may_utime(rec, cred, mask)?;
        Ok(Change { mask, uid, gid, permissions: set.mode & 0o7777, atime, mtime })
    }

    /// The attributes that it changes.
    pub fn fields(&self) -> u16 {
        let of = |bits: SetAttrMask, fields| if self.mask.intersects(bits) { fields } else { 0 };
        let owner = if self.uid.is_some() || self.gid.is_some() { attr::UID | attr::GID | attr::MODE } else { 0 };
        let times = of(SetAttrMask::ATIME | SetAttrMask::ATIME_NOW, attr::ATIME)
            | of(SetAttrMask::MTIME | SetAttrMask::MTIME_NOW, attr::MTIME);
        owner | of(SetAttrMask::MODE, attr::MODE) | times | of(SetAttrMask::all(), attr::CTIME)
    }

    /// Makes it of the attributes as they are by then.
    pub fn make(&self, r: &mut InodeRec, cred: &Cred, now: Time) {
        let kind = r.mode & perm::IFMT;
        if self.uid.is_some() || self.gid.is_some() {
            r.uid = self.uid.unwrap_or(r.uid);
            r.gid = self.gid.unwrap_or(r.gid);
            if kind == IFREG {
                r.mode = perm::without_privileges(r.mode);
            }
        }
        if self.mask.contains(SetAttrMask::MODE) {
            r.mode = kind | self.permissions;
            if cred.uid != 0 && !cred.in_group(r.gid) {
                r.mode &= !ISGID;
            }
        }
        let pick = |given: SetAttrMask, present: SetAttrMask, t: Time| match () {
            () if self.mask.contains(present) => Some(now),
            () if self.mask.contains(given) => Some(t),
            () => None,
        };
        r.atime = pick(SetAttrMask::ATIME, SetAttrMask::ATIME_NOW, self.atime).unwrap_or(r.atime);
        r.mtime = pick(SetAttrMask::MTIME, SetAttrMask::MTIME_NOW, self.mtime).unwrap_or(r.mtime);
        r.ctime = now;
    }
}

impl Txn<'_> {
    /// What `look` makes of the object that is named, held shared: as [`Txn::object`], of a record that stays where it
    /// is.
    fn look_at<T>(
        &mut self,
        base: Handle,
        path: &[u8],
        nofollow: bool,
        look: impl FnOnce(&InodeRec) -> T,
    ) -> FsResult<T> {
        if path.is_empty() {
            return Ok(look(&self.object(base, path, nofollow, Hold::Shared)?));
        }
        let found = self.walk(base, path, if nofollow { Last::NoFollow } else { Last::Follow })?;
        let rec = resolve::named(&found)?;
        self.held(found.dir.ino, Hold::Shared)?;
        self.held(rec.ino, Hold::Shared)?;
        Ok(look(rec))
    }

    pub(super) fn stat_core(&mut self, base: Handle, path: &[u8], nofollow: bool) -> FsResult<StatBody> {
        let dev = fsid(self.store.uuid());
        let stat = self.look_at(base, path, nofollow, |rec| stat_body(rec, dev))?;
        self.counters.meta_copies += 1;
        Ok(stat)
    }

    pub(super) fn access_core(&mut self, base: Handle, path: &[u8], mask: AccessMask, nofollow: bool) -> FsResult<()> {
        let cred = self.session.cred();
        Ok(self.look_at(base, path, nofollow, |rec| perm::check(rec, cred, mask.bits().into()))??)
    }

    pub(super) fn statfs_core(&mut self) -> StatfsBody {
        let s = self.store.statfs();
        self.counters.meta_copies += 1;
        StatfsBody {
            bsize: 4096,
            blocks: s.blocks,
            bfree: s.free,
            bavail: s.free,
            files: s.inodes + s.free,
            ffree: s.free,
            fsid: s.fsid,
            name_max: NAME_MAX as u32,
            flags: 0,
            uuid: *self.store.uuid(),
            reserved: [0; 6],
        }
    }

    /// Changes attributes; all checks come before the first change.
    pub(super) fn set_attr_core(
        &mut self,
        base: Handle,
        path: &[u8],
        nofollow: bool,
        set: &SetAttrBody,
    ) -> FsResult<()> {
        let rec = self.object(base, path, nofollow, Hold::Exclusive)?;
        let cred = self.session.cred();
        let change = Change::of(&rec, cred, set)?;
        if change.mask.contains(SetAttrMask::SIZE) {
            self.may_resize(&rec, base, path)?;
            self.resize(&rec, set.size)?;
        }
        if !change.mask.is_empty() {
            let now = self.now;
            self.change(&rec, change.fields(), |r| change.make(r, cred, now));
        }
        Ok(())
    }

    /// By handle the grant decides (EBADF), by path the bits.
    fn may_resize(&self, rec: &InodeRec, base: Handle, path: &[u8]) -> FsResult<()> {
        if path.is_empty() {
            let writable = self.open_file(base)?.flags.contains(OpenFlags::WRITE);
            return if writable { Ok(()) } else { Err(Errno::BADF.into()) };
        }
        if rec.mode & perm::IFMT == IFDIR {
            return Err(Errno::ISDIR.into());
        }
        Ok(perm::check(rec, self.session.cred(), W)?)
    }
}
