//! What the interpreter needs of a file system: one command's transaction. Reads see the store plus what this command
//! has staged; nothing staged is seen by others before the command ends well, and nothing of it stays if it does not.

use crate::bodies::{SetAttrBody, StatBody, StatfsBody};
use crate::command::At;
use crate::dirent::DirentWriter;
use crate::flags::{Access, AccessMask, FallocMode, OpenFlags, RenameFlags, Whence, XattrFlags};
use crate::interp::Registers;
use crate::{Errno, Handle, SharedBytes};
use weldfs_functions::ChecksumState;

/// Where written bytes come from.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// The client's pool: copy once, then trust only the copy.
    Shared(SharedBytes<'a>),
    /// Memory of the device.
    Private(&'a [u8]),
    /// The client's bytes, copied out of the pool before: what a slot has summed up is what is stored.
    Taken(&'a [u8]),
    /// What a begin record names: bytes that lie on the medium already. Only during recovery.
    Adopted {
        /// Which input of the begin record.
        input: u16,
        /// Bytes.
        len: u32,
    },
}

impl Source<'_> {
    /// Bytes.
    pub fn len(&self) -> usize {
        match self {
            Source::Shared(s) => s.len(),
            Source::Private(s) | Source::Taken(s) => s.len(),
            Source::Adopted { len, .. } => *len as usize,
        }
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether they are the client's bytes.
    pub fn is_payload(&self) -> bool {
        matches!(self, Source::Shared(_) | Source::Taken(_))
    }

    /// Copies the bytes from `off` on into `dst`, whole.
    ///
    /// # Panics
    /// When the bytes are adopted: they are not here to be copied.
    pub fn copy_to(&self, off: usize, dst: &mut [u8]) {
        match self {
            Source::Shared(s) => s.sub(off, dst.len()).copy_to(dst),
            Source::Private(s) | Source::Taken(s) => dst.copy_from_slice(&s[off..off + dst.len()]),
            Source::Adopted { .. } => panic!("adopted bytes lie on the medium"),
        }
    }
}

/// Where read bytes go.
#[derive(Debug)]
pub enum Sink<'a> {
    /// The client's pool.
    Shared(SharedBytes<'a>),
    /// Memory of the device.
    Private(&'a mut [u8]),
    /// Nowhere: only the checksum is wanted.
    Discard,
}

impl Sink<'_> {
    /// Puts `src` at `off`; the part past the room is dropped by `Discard` only, else a panic.
    pub fn put(&mut self, off: usize, src: &[u8]) {
        match self {
            Sink::Shared(s) => s.sub(off, src.len()).copy_from(src),
            Sink::Private(s) => s[off..off + src.len()].copy_from_slice(src),
            Sink::Discard => {}
        }
    }

    /// The part of the sink that begins at `off` and has room for `len` bytes.
    ///
    /// # Panics
    /// When it is not inside.
    pub fn part(&mut self, off: usize, len: usize) -> Sink<'_> {
        match self {
            Sink::Shared(s) => Sink::Shared(s.sub(off, len)),
            Sink::Private(s) => Sink::Private(&mut s[off..off + len]),
            Sink::Discard => Sink::Discard,
        }
    }

    /// The same sink for a shorter life.
    pub fn reborrow(&mut self) -> Sink<'_> {
        match self {
            Sink::Shared(s) => Sink::Shared(*s),
            Sink::Private(s) => Sink::Private(s),
            Sink::Discard => Sink::Discard,
        }
    }
}

/// A file opened within the command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened<F> {
    /// The inode, authorised for what the flags said.
    pub file: F,
    /// Whether this command created it.
    pub created: bool,
    /// st_mode: type and permission bits.
    pub mode: u32,
}

/// State of the open file description behind a handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cursor {
    /// Its offset in bytes.
    pub offset: u64,
    /// Whether APPEND is set now.
    pub append: bool,
}

/// Where a write landed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Written {
    /// Offset of the first byte.
    pub off: u64,
    /// Bytes (always all).
    pub len: u64,
}

/// State of a program that is started over. What is in it is the interpreter's business.
pub type Kept = Box<dyn core::any::Any + Send>;

/// Bytes of the client's, and their CRC-32C.
pub type Taken = std::sync::Arc<(Vec<u8>, ChecksumState)>;

/// A kernel to run, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kernel<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its parameters, 32 bits each.
    pub params: &'a [u32],
    /// A core may run it if no slot can, or if the slot is lost.
    pub or_core: bool,
}

/// Why a command needs no file for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quiet {
    /// It is between two micro-ops.
    Between,
    /// It computes, and may do so for long.
    Computes,
}

/// One command's transaction over a file system. The methods stage; whoever made the Target commits or drops it.
#[allow(async_fn_in_trait)] // used with static dispatch only; futures live in the device's own slots
pub trait Target {
    /// An inode resolved, and authorised, within this command.
    type File: Copy;

    /// Called after every micro-op that went well: in a MicroTx what was staged since the last call is a commit of its
    /// own, and `regs` is what recovery needs to go on behind it. An error is the micro-op's.
    async fn seal(&mut self, index: u16, regs: &Registers) -> Result<(), Errno> {
        let _ = (index, regs);
        Ok(())
    }
    /// Called between micro-ops, before number `index`: here, and between pieces of long reads and writes, a command
    /// may make way for others. It goes on under the same inode set. An error (its client is gone, and nothing of what
    /// it would do was promised) ends the command as if the micro-op behind the boundary had failed with it.
    async fn boundary(&mut self, index: u16) -> Result<(), Errno> {
        let _ = index;
        Ok(())
    }
    /// What follows up to the next call that touches a file or a name needs none of them. Where others wait for what
    /// the command holds, it may lend it to them meanwhile, at the next [`Target::boundary`].
    fn quiet(&mut self, how: Quiet) {
        let _ = how;
    }
    /// Whether the command is about to be started over because something that it had lent was changed.
    fn starts_over(&self) -> bool {
        false
    }
    /// State of a program that is about to be started over.
    fn keep(&mut self, state: Kept) {
        let _ = state;
    }
    /// What was kept before the program was started over.
    fn kept(&mut self) -> Option<Kept> {
        None
    }
    /// What was kept does not stand: the program is to be started over without it. Its errno until then.
    fn start_over(&mut self) -> Errno {
        Errno::AGAIN
    }
    /// Whether the program only finds out what it will compute: it changes nothing, and its client gets nothing.
    fn is_rehearsal(&self) -> bool {
        false
    }
    /// Whether it goes by what was computed in a rehearsal: [`Target::kept`] has it.
    fn foresees(&self) -> bool {
        false
    }
    /// So many bytes are to be computed, or computed with, that no rehearsal has. An error ends the program.
    fn unforeseen(&mut self, bytes: u64) -> Result<(), Errno> {
        let _ = bytes;
        Ok(())
    }
    /// Holds again what was lent. An error that starts the program over: something of it may have changed.
    async fn hold(&mut self) -> Result<(), Errno> {
        Ok(())
    }
    /// A number by which [`Target::numbered`] finds the file again, not 0.
    fn number(&self, f: Self::File) -> u64 {
        let _ = f;
        0
    }
    /// Whether two are one file, however each was opened.
    fn same_file(&self, a: Self::File, b: Self::File) -> bool {
        let number = self.number(a);
        number != 0 && number == self.number(b)
    }
    /// The file with this number, with a grant. Only during recovery.
    async fn numbered(&mut self, number: u64, access: Access) -> Result<Self::File, Errno> {
        let _ = (number, access);
        Err(Errno::NOSYS)
    }
    /// The input that holds the client's bytes of this micro-op: during recovery, when there is no client.
    fn adopted(&self, index: u16) -> Option<u16> {
        let _ = index;
        None
    }
    /// Whether an interrupted command is being finished: what it reads goes nowhere.
    fn is_recovery(&self) -> bool {
        false
    }

    /// The key that the session calls by this name; ENOKEY when it has none.
    #[cfg(feature = "ciphers")]
    fn key(&self, name: u64) -> Result<std::sync::Arc<weldfs_functions::cipher::Key>, Errno> {
        let _ = name;
        Err(Errno::NOKEY)
    }
    /// Bytes that cannot be foreseen, for nonces.
    #[cfg(feature = "ciphers")]
    fn random(&mut self, out: &mut [u8]) -> Result<(), Errno> {
        let _ = out;
        Err(Errno::OPNOTSUPP)
    }

    /// Runs a kernel by name over `input`, one packet, with its parameters: its output, at most `out_max` bytes. In a
    /// slot; or on a core where [`Kernel::or_core`] says so and no slot can. Meanwhile others may be lent what the
    /// command holds, as while it computes itself.
    ///
    /// # Errors
    /// EOPNOTSUPP: there are no slots here. ENOENT: no kernel is called so. EINVAL: its parameters. EBADMSG: the input
    /// is not what it takes. E2BIG: more output than `out_max`. EIO: the slot was lost. EAGAIN: the kernel is loaded
    /// and not active.
    async fn kernel(&mut self, kernel: Kernel<'_>, input: Vec<u8>, out_max: usize) -> Result<Vec<u8>, Errno> {
        let _ = (kernel, input, out_max);
        Err(Errno::OPNOTSUPP)
    }
    /// The client's bytes, and their checksum, where they were taken and summed up in a slot before the command began.
    fn taken(&self) -> Option<Taken> {
        None
    }
    /// A stage of a command with a slot placement has run on a core, as the command allows.
    fn fell_back(&mut self) {}

    /// Stages all writes that the session's transaction has collected; gives their bytes.
    async fn commit_staged(&mut self, txn: Handle) -> Result<u64, Errno> {
        let _ = txn;
        Err(Errno::NOSYS)
    }

    /// Resolves `path` from `base`, creates or truncates as the flags say, checks permissions.
    async fn open(
        &mut self,
        base: Handle,
        path: &[u8],
        flags: OpenFlags,
        mode: u32,
    ) -> Result<Opened<Self::File>, Errno>;
    /// Makes a handle (and open file description) for a file opened in this command; valid once the command ends
    /// well. `placeholder` != 0 binds that placeholder descriptor to the description.
    async fn install(
        &mut self,
        opened: Opened<Self::File>,
        flags: OpenFlags,
        placeholder: u32,
    ) -> Result<Handle, Errno>;
    /// The inode behind a handle; EBADF when the handle is stale or its grant lacks `need`.
    async fn file(&mut self, h: Handle, need: Access) -> Result<Self::File, Errno>;
    /// Offset and append flag of the description behind a handle.
    async fn cursor(&mut self, h: Handle) -> Result<Cursor, Errno>;
    /// Stages a new offset for the description.
    async fn set_cursor(&mut self, h: Handle, offset: u64) -> Result<(), Errno>;

    /// Size in bytes.
    async fn size(&mut self, f: Self::File) -> Result<u64, Errno>;
    /// Reads `len` bytes from `off`, short at the end of file; `sum` folds in, in order, the bytes put in the sink.
    async fn read(
        &mut self,
        f: Self::File,
        off: u64,
        len: u64,
        sink: Sink<'_>,
        sum: Option<&mut ChecksumState>,
    ) -> Result<u64, Errno>;
    /// Stages a write of all of `src` at an offset or the end (never `At::Current`: the interpreter resolves that);
    /// `sum` folds in exactly the bytes stored.
    async fn write(
        &mut self,
        f: Self::File,
        at: At,
        src: Source<'_>,
        sum: Option<&mut ChecksumState>,
    ) -> Result<Written, Errno>;
    /// Stages a new size.
    async fn truncate(&mut self, f: Self::File, size: u64) -> Result<(), Errno>;
    /// Stages a reservation, hole or zero range.
    async fn fallocate(&mut self, f: Self::File, mode: FallocMode, off: u64, len: u64) -> Result<(), Errno>;
    /// Moves the description's offset and returns it; Data and Hole look at the file.
    async fn seek(&mut self, h: Handle, whence: Whence, off: i64) -> Result<u64, Errno>;
    /// Entries after `cookie` until the writer is full; returns the cookie to go on with. EINVAL when not even the
    /// first one fits.
    async fn read_dir(&mut self, h: Handle, cookie: u64, out: &mut DirentWriter<'_>) -> Result<u64, Errno>;

    /// Attributes of the object behind a handle (empty path) or of `path`.
    async fn stat(&mut self, base: Handle, path: &[u8], nofollow: bool) -> Result<StatBody, Errno>;
    /// Changes attributes, likewise.
    async fn set_attr(&mut self, base: Handle, path: &[u8], nofollow: bool, set: &SetAttrBody) -> Result<(), Errno>;
    /// Whether the caller may do `mask`, likewise; EACCES or EROFS if not.
    async fn access(&mut self, base: Handle, path: &[u8], mask: AccessMask, nofollow: bool) -> Result<(), Errno>;
    /// Space and identity of the file system.
    async fn statfs(&mut self) -> Result<StatfsBody, Errno>;

    /// Makes a directory.
    async fn mkdir(&mut self, base: Handle, path: &[u8], mode: u32) -> Result<(), Errno>;
    /// Removes an empty directory.
    async fn rmdir(&mut self, base: Handle, path: &[u8]) -> Result<(), Errno>;
    /// Removes a name that is not a directory.
    async fn unlink(&mut self, base: Handle, path: &[u8]) -> Result<(), Errno>;
    /// Renames, replaces or exchanges.
    async fn rename(
        &mut self,
        from_base: Handle,
        from: &[u8],
        to_base: Handle,
        to: &[u8],
        flags: RenameFlags,
    ) -> Result<(), Errno>;
    /// Makes a hard link; an empty `from` links the object behind `from_base` (also a nameless one).
    async fn link(
        &mut self,
        from_base: Handle,
        from: &[u8],
        to_base: Handle,
        to: &[u8],
        follow: bool,
    ) -> Result<(), Errno>;
    /// Makes a symbolic link at `path` that says `target`.
    async fn symlink(&mut self, target: &[u8], base: Handle, path: &[u8]) -> Result<(), Errno>;
    /// Puts the link's target in the sink, cut to `room` bytes; returns the bytes put.
    async fn readlink(&mut self, base: Handle, path: &[u8], room: u64, sink: Sink<'_>) -> Result<u64, Errno>;

    /// Value of an attribute; `room` 0 asks for its size only, too small a room is ERANGE.
    async fn get_xattr(
        &mut self,
        base: Handle,
        path: &[u8],
        nofollow: bool,
        name: &[u8],
        room: u64,
        sink: Sink<'_>,
    ) -> Result<u64, Errno>;
    /// Sets an attribute.
    async fn set_xattr(
        &mut self,
        base: Handle,
        path: &[u8],
        nofollow: bool,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<(), Errno>;
    /// Names, each ended by NUL; `room` as in `get_xattr`.
    async fn list_xattr(
        &mut self,
        base: Handle,
        path: &[u8],
        nofollow: bool,
        room: u64,
        sink: Sink<'_>,
    ) -> Result<u64, Errno>;
    /// Removes an attribute; ENODATA when there is none.
    async fn remove_xattr(&mut self, base: Handle, path: &[u8], nofollow: bool, name: &[u8]) -> Result<(), Errno>;
}
