//! Calls on the attributes of files.

use std::os::fd::BorrowedFd;

use rustix::fs::{
    Access as HostAccess, AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags, Timespec, Timestamps, UTIME_NOW,
    UTIME_OMIT, XattrFlags as HostXattrFlags, accessat, chmod, chownat, fchmod, fstat, fstatvfs, ftruncate, getxattr,
    listxattr, makedev, removexattr, setxattr, statx, utimensat,
};
use rustix::process::{Gid, Uid};
use weldfs_ciscops::limits::XATTR_NAME_MAX;
use weldfs_ciscops::{
    Access, AccessMask, Errno, Handle, InodeNo, SetAttrBody, SetAttrMask, Sink, StatBody, StatfsBody, WireTime,
    XattrFlags,
};
use weldfs_scheduler::Mode as Ticket;

use super::txn::{FileRef, Held, HostTxn};
use super::walk::{self, by_proc};

/// Types of files as st_mode has them.
pub(super) mod kind {
    use rustix::fs::FileType;
    use weldfs_ciscops::dirent::dtype;

    /// All bits of the type.
    pub const MASK: u32 = 0o170_000;
    /// Directory.
    pub const DIR: u32 = 0o040_000;
    /// Symbolic link.
    pub const LINK: u32 = 0o120_000;
    /// Regular file.
    pub const FILE: u32 = 0o100_000;

    /// As directory entries have them.
    pub fn dirent(of: FileType) -> u8 {
        match of {
            FileType::RegularFile => dtype::REG,
            FileType::Directory => dtype::DIR,
            FileType::Symlink => dtype::LNK,
            FileType::Fifo => dtype::FIFO,
            FileType::Socket => dtype::SOCK,
            FileType::CharacterDevice => dtype::CHR,
            FileType::BlockDevice => dtype::BLK,
            FileType::Unknown => dtype::UNKNOWN,
        }
    }
}

/// An object named by a handle, or by a path from it: base, path, and whether a link in the last place is meant itself.
type Name<'p> = (Handle, &'p [u8], bool);

fn look(fd: BorrowedFd<'_>, name: &[u8], flags: AtFlags) -> Result<Statx, Errno> {
    Ok(statx(fd, name, flags | AtFlags::NO_AUTOMOUNT, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?)
}

fn device(s: &Statx) -> u64 {
    makedev(s.stx_dev_major, s.stx_dev_minor)
}

fn body(s: &Statx) -> StatBody {
    let time = |t: rustix::fs::StatxTimestamp| WireTime::new(t.tv_sec, t.tv_nsec);
    StatBody {
        ino: s.stx_ino,
        dev: device(s),
        rdev: makedev(s.stx_rdev_major, s.stx_rdev_minor),
        size: s.stx_size,
        blocks512: s.stx_blocks,
        mode: s.stx_mode.into(),
        nlink: s.stx_nlink,
        uid: s.stx_uid,
        gid: s.stx_gid,
        blksize: s.stx_blksize,
        atime: time(s.stx_atime),
        mtime: time(s.stx_mtime),
        ctime: time(s.stx_ctime),
        btime: time(s.stx_btime),
        ..StatBody::default()
    }
}

/// Whether a name of an attribute is of a space that the device has, too.
fn known_space(name: &[u8]) -> bool {
    [b"user.".as_slice(), b"trusted.", b"security."].iter().any(|p| name.len() > p.len() && name.starts_with(p))
}

fn check_xattr(name: &[u8]) -> Result<(), Errno> {
    match name {
        _ if name.is_empty() || name.len() > XATTR_NAME_MAX => Err(Errno::RANGE),
        _ if known_space(name) => Ok(()),
        _ => Err(Errno::OPNOTSUPP),
    }
}

impl HostTxn<'_> {
    /// The object, held as `mode` says: attributes change under its ticket, whatever becomes of its name.
    async fn object(&mut self, (base, path, nofollow): Name<'_>, mode: Ticket) -> Result<FileRef, Errno> {
        if path.is_empty() {
            let key = self.key_of(base)?;
            let file = self.by_handle(base)?;
            self.hold_one(key, mode).await;
            return Ok(file);
        }
        self.hold_names(false);
        let start = walk::start(self.core, self.session(), base, path)?;
        let mut how = OFlags::PATH;
        how.set(OFlags::NOFOLLOW, nofollow);
        let fd = self.open_path(start, path, how, Mode::empty())?;
        let stat = fstat(&fd)?;
        let key = self.core.key(stat.st_dev, stat.st_ino);
        let file = self.keep(Held::Own(fd), Access::empty());
        self.hold_one(key, mode).await;
        Ok(file)
    }

    /// Looks once without a ticket, which is enough while no command holds anything alone; else again with one.
    pub(super) async fn stat_core(&mut self, base: Handle, path: &[u8], nofollow: bool) -> Result<StatBody, Errno> {
        let quiet = self.quiet();
        let core = self.core;
        let of = |s: &Statx| core.key(device(s), s.stx_ino);
        if path.is_empty() {
            let file = self.by_handle(base)?;
            let first = look(self.fd(file), b"", AtFlags::EMPTY_PATH)?;
            if self.settled(quiet, of(&first)).await {
                return Ok(body(&first));
            }
            return Ok(body(&look(self.fd(file), b"", AtFlags::EMPTY_PATH)?));
        }
        self.hold_names(false);
        let spent = self.way.spent();
        let at = self.parent(base, path)?;
        if at.is_plain() {
            let first = look(at.dir(), at.name, AtFlags::SYMLINK_NOFOLLOW)?;
            let link = FileType::from_raw_mode(u32::from(first.stx_mode)) == FileType::Symlink;
            if nofollow || !link {
                if self.settled(quiet, of(&first)).await {
                    return Ok(body(&first));
                }
                // The name may lead elsewhere by now; what was there when the command had its place is gone with it.
                return Ok(body(&look(at.dir(), at.name, AtFlags::SYMLINK_NOFOLLOW)?));
            }
        }
        self.way.again(spent);
        let file = self.object((base, path, nofollow), Ticket::Shared).await?;
        Ok(body(&look(self.fd(file), b"", AtFlags::EMPTY_PATH)?))
    }

    /// Whether what was seen since `quiet` was asked for is of one moment. If not, holds the inode.
    async fn settled(&mut self, quiet: Option<u64>, key: InodeNo) -> bool {
        if quiet.is_some() && self.quiet() == quiet {
            return true;
        }
        self.hold_one(key, Ticket::Shared).await;
        false
    }

    /// Changes attributes one after the other; the first that fails ends it.
    pub(super) async fn set_attr_core(
        &mut self,
        base: Handle,
        path: &[u8],
        nofollow: bool,
        set: &SetAttrBody,
    ) -> Result<(), Errno> {
        let mask = SetAttrMask::from_bits(set.mask).ok_or(Errno::INVAL)?;
        let file = self.object((base, path, nofollow), Ticket::Exclusive).await?;
        let by_path = !path.is_empty();
        if nofollow && mask.contains(SetAttrMask::MODE) {
            let stat = fstat(self.fd(file))?;
            if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
                return Err(Errno::OPNOTSUPP);
            }
        }
        if mask.contains(SetAttrMask::SIZE) {
            self.resize(file, by_path, set.size)?;
        }
        let fd = self.fd(file);
        // As chown(2): all ones leave it as it is.
        let given = |bit, id: u32| mask.contains(bit) && id != u32::MAX;
        let uid = given(SetAttrMask::UID, set.uid).then(|| Uid::from_raw(set.uid));
        let gid = given(SetAttrMask::GID, set.gid).then(|| Gid::from_raw(set.gid));
        if uid.is_some() || gid.is_some() {
            chownat(fd, "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if mask.contains(SetAttrMask::MODE) {
            let bits = Mode::from_raw_mode(set.mode & 0o7777);
            match fchmod(fd, bits) {
                // A descriptor that only names a place.
                Err(rustix::io::Errno::BADF) => chmod(by_proc(fd), bits)?,
                other => other?,
            }
        }
        set_times(fd, mask, set)?;
        if !mask.is_empty() {
            self.changed_whole(Some(file));
        }
        Ok(())
    }

    /// By handle the grant decides (EBADF), by path the bits.
    fn resize(&mut self, file: FileRef, by_path: bool, size: u64) -> Result<(), Errno> {
        // One call of the host that may take however long.
        self.scratch.turn = None;
        if !by_path {
            if !file.access.contains(Access::WRITE) {
                return Err(Errno::BADF);
            }
            return Ok(ftruncate(self.fd(file), size)?);
        }
        let stat = fstat(self.fd(file))?;
        match stat.st_mode & kind::MASK {
            kind::FILE => {}
            kind::DIR => return Err(Errno::ISDIR),
            _ => return Err(Errno::INVAL),
        }
        let fd = rustix::fs::open(by_proc(self.fd(file)), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(ftruncate(fd, size)?)
    }

    pub(super) async fn access_core(
        &mut self,
        base: Handle,
        path: &[u8],
        mask: AccessMask,
        nofollow: bool,
    ) -> Result<(), Errno> {
        let file = self.object((base, path, nofollow), Ticket::Shared).await?;
        let mut how = HostAccess::EXISTS;
        how.set(HostAccess::READ_OK, mask.contains(AccessMask::READ));
        how.set(HostAccess::WRITE_OK, mask.contains(AccessMask::WRITE));
        how.set(HostAccess::EXEC_OK, mask.contains(AccessMask::EXEC));
        Ok(accessat(CWD, by_proc(self.fd(file)), how, AtFlags::EACCESS)?)
    }

    pub(super) fn statfs_core(&mut self) -> Result<StatfsBody, Errno> {
        let s = fstatvfs(&self.core.root)?;
        Ok(StatfsBody {
            bsize: s.f_frsize,
            blocks: s.f_blocks,
            bfree: s.f_bfree,
            bavail: s.f_bavail,
            files: s.f_files,
            ffree: s.f_ffree,
            fsid: s.f_fsid,
            name_max: s.f_namemax as u32,
            flags: s.f_flag.bits() as u32,
            uuid: self.core.uuid(),
            reserved: [0; 6],
        })
    }

    pub(super) async fn get_xattr_core(
        &mut self,
        of: Name<'_>,
        name: &[u8],
        room: u64,
        sink: Sink<'_>,
    ) -> Result<u64, Errno> {
        let file = self.object(of, Ticket::Shared).await?;
        check_xattr(name)?;
        let mut value = std::mem::take(&mut self.scratch.piece);
        let result = getxattr(by_proc(self.fd(file)), name, &mut value[..]);
        let result = result.map_err(Errno::from).and_then(|n| put(&value[..n], room, sink));
        self.scratch.piece = value;
        result
    }

    pub(super) async fn set_xattr_core(
        &mut self,
        of: Name<'_>,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<(), Errno> {
        let file = self.object(of, Ticket::Exclusive).await?;
        check_xattr(name)?;
        let mut how = HostXattrFlags::empty();
        how.set(HostXattrFlags::CREATE, flags.contains(XattrFlags::CREATE));
        how.set(HostXattrFlags::REPLACE, flags.contains(XattrFlags::REPLACE));
        setxattr(by_proc(self.fd(file)), name, value, how)?;
        self.changed_whole(Some(file));
        Ok(())
    }

    pub(super) async fn list_xattr_core(&mut self, of: Name<'_>, room: u64, sink: Sink<'_>) -> Result<u64, Errno> {
        let file = self.object(of, Ticket::Shared).await?;
        let mut names = std::mem::take(&mut self.scratch.piece);
        let listed = listxattr(by_proc(self.fd(file)), &mut names[..]);
        let result = listed.map_err(Errno::from).and_then(|n| {
            let known = names[..n].split_inclusive(|b| *b == 0).filter(|name| known_space(name));
            put(&known.flatten().copied().collect::<Vec<u8>>(), room, sink)
        });
        self.scratch.piece = names;
        result
    }

    pub(super) async fn remove_xattr_core(&mut self, of: Name<'_>, name: &[u8]) -> Result<(), Errno> {
        let file = self.object(of, Ticket::Exclusive).await?;
        check_xattr(name)?;
        removexattr(by_proc(self.fd(file)), name)?;
        self.changed_whole(Some(file));
        Ok(())
    }
}

/// Puts a whole answer in the sink; `room` 0 asks for its length only.
fn put(bytes: &[u8], room: u64, mut sink: Sink<'_>) -> Result<u64, Errno> {
    let len = bytes.len() as u64;
    if room == 0 {
        return Ok(len);
    }
    if len > room {
        return Err(Errno::RANGE);
    }
    sink.put(0, bytes);
    Ok(len)
}

fn set_times(fd: BorrowedFd<'_>, mask: SetAttrMask, set: &SetAttrBody) -> Result<(), Errno> {
    let pick = |given: SetAttrMask, present: SetAttrMask, t: WireTime| match () {
        () if mask.contains(present) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        () if mask.contains(given) => Timespec { tv_sec: t.sec, tv_nsec: t.nsec.into() },
        () => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
    };
    let any = SetAttrMask::ATIME | SetAttrMask::ATIME_NOW | SetAttrMask::MTIME | SetAttrMask::MTIME_NOW;
    if !mask.intersects(any) {
        return Ok(());
    }
    let times = Timestamps {
        last_access: pick(SetAttrMask::ATIME, SetAttrMask::ATIME_NOW, set.atime),
        last_modification: pick(SetAttrMask::MTIME, SetAttrMask::MTIME_NOW, set.mtime),
    };
    Ok(utimensat(fd, "", &times, AtFlags::EMPTY_PATH)?)
}
