//! The transaction's face to the interpreter: each method runs a synchronous core, and fetches what it misses.

use super::inode_set::Hold;
use super::perm::{self, IFLNK};
use super::stage::{BLOCK_BYTES, SLICE_BYTES};
use super::txn::{OpenedInfo, Txn};
use std::sync::Arc;
use weldfs_ciscops::dirent::DirentWriter;
use weldfs_ciscops::{
    Access, AccessMask, At, ChecksumState, Cursor, Errno, FallocMode, Handle, InodeNo, Kept, Kernel, OpenFlags, Opened,
    Quiet, Registers, RenameFlags, SetAttrBody, Sink, Source, StatBody, StatfsBody, Taken, Target, Whence, Written,
    XattrFlags,
};
use weldfs_functions::cipher::Key;
use weldfs_store::error::FsError;

/// An inode authorised within one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRef {
    /// The inode.
    pub ino: InodeNo,
    /// What the command may do with it.
    pub access: Access,
}

/// Runs a core until it does not miss, stride by stride.
macro_rules! cold {
    ($txn:ident, $core:expr) => {{
        if $txn.lent {
            $txn.take_back().await?;
        }
        $txn.quiet = None;
        let value = loop {
            match $core {
                Err(FsError::Miss(m)) => {
                    if let Err(e) = $txn.session.fetch(m).await {
                        $txn.strides.over();
                        return Err($txn.fail(e));
                    }
                }
                Err(FsError::Turn) => {
                    if let Err(e) = $txn.make_way().await {
                        $txn.strides.over();
                        return Err(e);
                    }
                }
                Err(e) => {
                    $txn.strides.over();
                    return Err($txn.fail(e));
                }
                Ok(v) => break v,
            }
            $txn.strides.again();
        };
        $txn.strides.over();
        value
    }};
}

/// So often a piece is read whose blocks must all be in memory at once; what follows is read block by block. A cold
/// piece takes at most one try for each of its 16 blocks, and some for the tree. More are needed only where others'
/// blocks push out its own meanwhile, and it theirs: with little memory left that would go on for ever.
const TRIES_MAX: u32 = 64;

fn allow(f: FileRef, need: Access) -> Result<(), Errno> {
    if f.access.contains(need) { Ok(()) } else { Err(Errno::BADF) }
}

impl Txn<'_> {
    /// Lets others have the core, if the slicer says so. EINTR when the command is no more to be gone on with.
    async fn make_way(&mut self) -> Result<(), Errno> {
        let Some(slicer) = self.slicer else { return Ok(()) };
        let due = slicer.due();
        if let Some(how) = self.quiet.filter(|_| !self.lent) {
            self.lent = slicer.lends(how, due);
        }
        if due {
            super::give_way().await;
        }
        if slicer.is_cancelled() { Err(Errno::INTR) } else { Ok(()) }
    }
}

impl Target for Txn<'_> {
    type File = FileRef;

    async fn boundary(&mut self, index: u16) -> Result<(), Errno> {
        if let Some(s) = self.slicer {
            s.micro(index);
        }
        self.make_way().await
    }

    fn quiet(&mut self, how: Quiet) {
        self.quiet = Some(how);
    }

    fn starts_over(&self) -> bool {
        self.aborted()
    }

    fn keep(&mut self, state: Kept) {
        self.kept = Some(state);
    }

    fn kept(&mut self) -> Option<Kept> {
        self.kept.take()
    }

    fn start_over(&mut self) -> Errno {
        self.stale = true;
        self.fail(FsError::SetChanged)
    }

    async fn hold(&mut self) -> Result<(), Errno> {
        if self.lent { self.take_back().await } else { Ok(()) }
    }

    async fn seal(&mut self, index: u16, regs: &Registers) -> Result<(), Errno> {
        // What was sealed before it lent what it holds is all that is staged; and one record needs no seals.
        if self.lent || self.steps.is_none() {
            return Ok(());
        }
        cold!(self, self.seal_core(index, regs));
        Ok(())
    }

    fn number(&self, f: FileRef) -> u64 {
        f.ino.0
    }

    async fn numbered(&mut self, number: u64, access: Access) -> Result<FileRef, Errno> {
        self.rejoined(number, access)
    }

    fn adopted(&self, index: u16) -> Option<u16> {
        self.input_of(index)
    }

    fn key(&self, name: u64) -> Result<Arc<Key>, Errno> {
        self.session.key(name)
    }

    async fn kernel(&mut self, kernel: Kernel<'_>, input: Vec<u8>, out_max: usize) -> Result<Vec<u8>, Errno> {
        let Some(slicer) = self.slicer else { return Err(Errno::OPNOTSUPP) };
        // It may wait for a slot, and none is to wait for what it holds meanwhile.
        if let Some(how) = self.quiet.filter(|_| !self.lent) {
            self.lent = slicer.lends(how, true);
        }
        slicer.kernel(kernel, input, out_max).await
    }

    fn taken(&self) -> Option<Taken> {
        self.taken.clone()
    }

    fn fell_back(&mut self) {
        if let Some(slicer) = self.slicer {
            slicer.fell_back();
        }
    }

    async fn commit_staged(&mut self, txn: Handle) -> Result<u64, Errno> {
        self.write_staged(txn).await
    }

    fn random(&mut self, out: &mut [u8]) -> Result<(), Errno> {
        crate::keys::random(out)
    }

    fn is_recovery(&self) -> bool {
        self.again.is_some()
    }

    async fn open(&mut self, base: Handle, path: &[u8], flags: OpenFlags, mode: u32) -> Result<Opened<FileRef>, Errno> {
        let (rec, created) = cold!(self, self.open_core(base, path, flags, mode));
        let access = if flags.contains(OpenFlags::PATH) { Access::empty() } else { flags.access() };
        self.note_flags(flags);
        self.opens_virtual = rec.is_virtual() && !flags.contains(OpenFlags::PATH);
        Ok(Opened { file: FileRef { ino: rec.ino, access }, created, mode: rec.mode })
    }

    async fn install(&mut self, opened: Opened<FileRef>, flags: OpenFlags, placeholder: u32) -> Result<Handle, Errno> {
        let handle = self.session.reserve_handle()?;
        let is_virtual = self.opens_virtual;
        self.set_opened(OpenedInfo { handle, ino: opened.file.ino, flags, placeholder, is_virtual });
        Ok(handle)
    }

    async fn file(&mut self, h: Handle, need: Access) -> Result<FileRef, Errno> {
        let open = self.open_file(h).map_err(|e| self.fail(e))?;
        let access = if open.flags.contains(OpenFlags::PATH) { Access::empty() } else { open.flags.access() };
        let file = FileRef { ino: open.ino, access };
        allow(file, need)?;
        self.note_flags(open.flags);
        Ok(file)
    }

    async fn cursor(&mut self, h: Handle) -> Result<Cursor, Errno> {
        let open = self.open_file(h).map_err(|e| self.fail(e))?;
        Ok(Cursor { offset: open.offset, append: open.flags.contains(OpenFlags::APPEND) })
    }

    async fn set_cursor(&mut self, h: Handle, offset: u64) -> Result<(), Errno> {
        self.set_offset(h, offset);
        Ok(())
    }

    async fn size(&mut self, f: FileRef) -> Result<u64, Errno> {
        let rec = cold!(self, super::resolve::live(&*self, f.ino));
        Ok(rec.size)
    }

    async fn read(
        &mut self,
        f: FileRef,
        off: u64,
        len: u64,
        mut sink: Sink<'_>,
        sum: Option<&mut ChecksumState>,
    ) -> Result<u64, Errno> {
        allow(f, Access::READ)?;
        let mut state = sum.as_deref().copied();
        let (copies, mut most, mut done, mut tries) = (self.counters.payload_copies, 0, 0, 0);
        // In pieces: the set is held all along, so they are of one moment.
        let n = loop {
            tries = if tries > TRIES_MAX { tries } else { 0 };
            let (n, after, piece) = cold!(self, {
                let mut state = state;
                tries += 1;
                let (most, ahead) =
                    if tries > TRIES_MAX { (BLOCK_BYTES, BLOCK_BYTES) } else { (SLICE_BYTES, len - done) };
                let piece = (len - done).min(most);
                let mut part = sink.part(done as usize, piece as usize);
                self.read_core(f.ino, off + done, (piece, ahead), &mut part, &mut state).map(|n| (n, state, piece))
            });
            state = after;
            done += n;
            // Each byte was copied as often as those of the piece copied most often.
            most = most.max(self.counters.payload_copies - copies);
            self.counters.payload_copies = copies;
            if n < piece || done == len {
                break done;
            }
            self.make_way().await?;
        };
        self.counters.payload_copies = copies + most;
        if let (Some(sum), Some(state)) = (sum, state) {
            *sum = state;
        }
        Ok(n)
    }

    async fn write(
        &mut self,
        f: FileRef,
        at: At,
        src: Source<'_>,
        mut sum: Option<&mut ChecksumState>,
    ) -> Result<Written, Errno> {
        allow(f, Access::WRITE)?;
        let mut progress = 0;
        loop {
            if let Some(written) = cold!(self, self.write_core(f.ino, at, src, &mut sum, &mut progress)) {
                return Ok(written);
            }
            self.make_way().await?;
        }
    }

    async fn truncate(&mut self, f: FileRef, size: u64) -> Result<(), Errno> {
        allow(f, Access::WRITE)?;
        cold!(self, self.regular(f.ino).and_then(|rec| self.resize(&rec, size)));
        Ok(())
    }

    async fn fallocate(&mut self, f: FileRef, mode: FallocMode, off: u64, len: u64) -> Result<(), Errno> {
        allow(f, Access::WRITE)?;
        cold!(self, self.fallocate_core(f.ino, mode, off, len));
        Ok(())
    }

    async fn seek(&mut self, h: Handle, whence: Whence, off: i64) -> Result<u64, Errno> {
        let open = self.open_file(h).map_err(|e| self.fail(e))?;
        if open.flags.contains(OpenFlags::PATH) {
            return Err(Errno::BADF);
        }
        let to = cold!(self, self.seek_core(open.ino, open.offset, whence, off));
        self.set_offset(h, to);
        Ok(to)
    }

    async fn read_dir(&mut self, h: Handle, cookie: u64, out: &mut DirentWriter<'_>) -> Result<u64, Errno> {
        Ok(cold!(self, self.read_dir_core(h, cookie, out)))
    }

    async fn stat(&mut self, base: Handle, path: &[u8], nofollow: bool) -> Result<StatBody, Errno> {
        Ok(cold!(self, self.stat_core(base, path, nofollow)))
    }

    async fn set_attr(&mut self, base: Handle, path: &[u8], nofollow: bool, set: &SetAttrBody) -> Result<(), Errno> {
        cold!(self, self.set_attr_core(base, path, nofollow, set));
        Ok(())
    }

    async fn access(&mut self, base: Handle, path: &[u8], mask: AccessMask, nofollow: bool) -> Result<(), Errno> {
        cold!(self, self.access_core(base, path, mask, nofollow));
        Ok(())
    }

    async fn statfs(&mut self) -> Result<StatfsBody, Errno> {
        Ok(self.statfs_core())
    }

    async fn mkdir(&mut self, base: Handle, path: &[u8], mode: u32) -> Result<(), Errno> {
        cold!(self, self.mkdir_core(base, path, mode));
        Ok(())
    }

    async fn rmdir(&mut self, base: Handle, path: &[u8]) -> Result<(), Errno> {
        cold!(self, self.rmdir_core(base, path));
        Ok(())
    }

    async fn unlink(&mut self, base: Handle, path: &[u8]) -> Result<(), Errno> {
        cold!(self, self.unlink_core(base, path));
        Ok(())
    }

    async fn rename(
        &mut self,
        from_base: Handle,
        from: &[u8],
        to_base: Handle,
        to: &[u8],
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        cold!(self, self.rename_core((from_base, from), (to_base, to), flags));
        Ok(())
    }

    async fn link(
        &mut self,
        from_base: Handle,
        from: &[u8],
        to_base: Handle,
        to: &[u8],
        follow: bool,
    ) -> Result<(), Errno> {
        cold!(self, self.link_core((from_base, from), (to_base, to), follow));
        Ok(())
    }

    async fn symlink(&mut self, target: &[u8], base: Handle, path: &[u8]) -> Result<(), Errno> {
        cold!(self, self.symlink_core(target, base, path));
        Ok(())
    }

    async fn readlink(&mut self, base: Handle, path: &[u8], room: u64, mut sink: Sink<'_>) -> Result<u64, Errno> {
        if room == 0 {
            return Err(Errno::INVAL);
        }
        let rec = cold!(self, self.object(base, path, true, Hold::Shared));
        if rec.mode & perm::IFMT != IFLNK {
            return Err(Errno::INVAL);
        }
        let target = rec.target.as_deref().unwrap_or(&[]);
        let n = target.len().min(room as usize);
        sink.put(0, &target[..n]);
        self.counters.meta_copies += 1;
        Ok(n as u64)
    }

    async fn get_xattr(
        &mut self,
        base: Handle,
        path: &[u8],
        nofollow: bool,
        name: &[u8],
        room: u64,
        mut sink: Sink<'_>,
    ) -> Result<u64, Errno> {
        Ok(cold!(self, self.get_xattr_core(base, path, nofollow, name, room, sink.reborrow())))
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
        cold!(self, self.set_xattr_core(base, path, nofollow, name, value, flags));
        Ok(())
    }

    async fn list_xattr(
        &mut self,
        base: Handle,
        path: &[u8],
        nofollow: bool,
        room: u64,
        mut sink: Sink<'_>,
    ) -> Result<u64, Errno> {
        Ok(cold!(self, self.list_xattr_core(base, path, nofollow, room, sink.reborrow())))
    }

    async fn remove_xattr(&mut self, base: Handle, path: &[u8], nofollow: bool, name: &[u8]) -> Result<(), Errno> {
        cold!(self, self.remove_xattr_core(base, path, nofollow, name));
        Ok(())
    }

    async fn virt_register(&mut self, base: Handle, path: &[u8], mode: u32, spec: &[u8]) -> Result<(), Errno> {
        cold!(self, self.virt_register_core(base, path, mode, spec));
        Ok(())
    }

    async fn virt_spec(
        &mut self,
        base: Handle,
        path: &[u8],
        nofollow: bool,
        room: u64,
        mut sink: Sink<'_>,
    ) -> Result<u64, Errno> {
        Ok(cold!(self, self.virt_spec_core(base, path, nofollow, room, sink.reborrow())))
    }
}
