//! A transaction as a command's `Target`: which call each operation becomes, and what a rehearsal does instead.

use rustix::fs::fstat;
use weldfs_ciscops::dirent::DirentWriter;
use weldfs_ciscops::{
    Access, AccessMask, At, ChecksumState, Cursor, Errno, FallocMode, Handle, Kept, OpenFlags, Opened, Quiet,
    RenameFlags, SetAttrBody, Sink, Source, StatBody, StatfsBody, Target, Whence, Written, XattrFlags,
};

use super::session::HostFile;
use super::txn::{FileRef, Held, HostTxn, allow};
use weldfs_session::ofd::Description;

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
