//! Virtual files: names that stream other files through a kernel in one of the drive's slots.
//!
//! One is registered once and has a name, an owner and a mode like any file; any call that opens, reads, writes and
//! closes files works on it. What is here beside that: to register one, to look at its spec, to list and remove those
//! that there are, and a [`VirtFile`], which says how many bytes a write kernel's output came to and takes other
//! parameters.

use crate::buf::{Payload, Room};
use crate::client::Client;
use crate::file::File;
use crate::raw::Raw;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use weldfs_ciscops::flags::OpenFlags;
use weldfs_ciscops::limits::VIRT_SPEC_MAX;
use weldfs_ciscops::virt::VirtSpec;
use weldfs_ciscops::{At, Cqe, Errno, Handle, Op, PoolRange};

mod list;

pub use list::{VirtFound, VirtList};

/// Nothing is copied out by a call without rooms.
fn none(_: &Cqe) -> [usize; 0] {
    []
}

impl Raw<'_> {
    /// Makes a virtual file of an encoded spec; docs/VIRTUAL-FILES.md has the errors. `mode`: permission bits.
    pub fn virt_register(&self, base: Handle, path: &[u8], mode: u32, spec: &[u8]) -> Result<(), Errno> {
        let build = |[path, spec]: [PoolRange; 2], []: [PoolRange; 0]| Op::VirtRegister { base, path, mode, spec };
        self.call([path.into(), spec.into()], [], build, none)?.ok().map(drop)
    }

    /// The encoded spec of a virtual file; EINVAL when it is none. Returns its bytes; ERANGE when the room is too
    /// small.
    pub fn virt_spec(&self, base: Handle, path: &[u8], nofollow: bool, room: &mut [u8]) -> Result<usize, Errno> {
        let build = |[path]: [PoolRange; 1], [out]: [PoolRange; 1]| Op::VirtSpec { base, path, nofollow, out };
        let filled = |cqe: &Cqe| [if cqe.status == 0 { cqe.result as usize } else { 0 }];
        self.call([path.into()], [room.into()], build, filled)?.ok().map(|(n, _)| n as usize)
    }

    /// Whether a name that is there is that of a virtual file; also where that is only for writing.
    pub fn is_virtual(&self, base: Handle, path: &[u8], nofollow: bool) -> bool {
        // EACCES is for its spec alone: what is no virtual file is EINVAL before that.
        matches!(self.virt_spec(base, path, nofollow, &mut []), Ok(_) | Err(Errno::RANGE | Errno::ACCES))
    }

    /// Other parameters for the next stream of an open virtual file. EBUSY while one is under way.
    pub fn virt_params(&self, h: Handle, params: &[u32]) -> Result<(), Errno> {
        let bytes: Vec<u8> = params.iter().flat_map(|p| p.to_le_bytes()).collect();
        let build = |[params]: [PoolRange; 1], []: [PoolRange; 0]| Op::VirtParams { h, params };
        self.call([Payload::Bytes(&bytes)], [], build, none)?.ok().map(drop)
    }

    /// A call on a handle, and its first result.
    fn counted(&self, op: Op) -> Result<u64, Errno> {
        self.call([], [], |[]: [PoolRange; 0], []: [PoolRange; 0]| op, none)?.ok().map(|(n, _)| n)
    }
}

impl Client {
    /// Makes a virtual file. The files of its ranges need not exist yet: they are looked for when it is opened, with
    /// the rights of who opens it. `mode` loses the umask's bits.
    ///
    /// # Errors
    /// EINVAL and E2BIG for a spec that is none, EEXIST, those of making a file; EOPNOTSUPP on a directory of the host.
    pub fn virt_register(&self, path: impl AsRef<Path>, mode: u32, spec: &VirtSpec) -> io::Result<()> {
        let (path, spec) = (path.as_ref().as_os_str().as_bytes(), spec.encode()?);
        Ok(self.raw().virt_register(Handle::ROOT, path, mode & 0o777 & !self.umask(), &spec)?)
    }

    /// The spec of a virtual file, which the caller must be allowed to read.
    ///
    /// # Errors
    /// EINVAL when it is no virtual file, EIO when the spec is damaged, EACCES, those of paths.
    pub fn virt_spec(&self, path: impl AsRef<Path>) -> io::Result<VirtSpec> {
        let mut room = vec![0; VIRT_SPEC_MAX];
        let n = self.raw().virt_spec(Handle::ROOT, path.as_ref().as_os_str().as_bytes(), false, &mut room)?;
        Ok(VirtSpec::decode(&room[..n])?)
    }

    /// Removes a virtual file, and nothing else; its real files stay, and streams of it that are open go on. Who may
    /// remove the name need not be able to read what it names. The look at it and its removal are two commands: what
    /// another client puts in its place between them is removed.
    ///
    /// # Errors
    /// EINVAL for what is no virtual file (a symbolic link to one is none), those of removing a name.
    pub fn virt_remove(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let looked = self.raw().virt_spec(Handle::ROOT, path.as_os_str().as_bytes(), true, &mut []);
        match looked {
            Ok(_) | Err(Errno::RANGE | Errno::ACCES | Errno::IO) => self.remove_file(path),
            // A directory of the host has none.
            Err(Errno::OPNOTSUPP) => Err(Errno::INVAL.into()),
            Err(e) => Err(e.into()),
        }
    }

    /// The virtual files of a tree, or that one file itself. Symbolic links are followed at the top only. Only files
    /// of size 0 are asked whether they are ones, a directory at a time, in the device's order: what comes and goes
    /// meanwhile may be seen or not.
    pub fn virt_list(&self, top: impl AsRef<Path>) -> VirtList {
        VirtList::new(self, top.as_ref())
    }

    /// Opens a virtual file: `OpenFlags::READ` or `OpenFlags::WRITE`, as its spec has it; with `OpenFlags::NONBLOCK`
    /// reads and writes are EBUSY while no slot is free, else they wait. Any other file opens, too, and is read and
    /// written as such.
    ///
    /// # Errors
    /// EINVAL for flags that make a file, EPERM for the other direction; those of its real files (see
    /// docs/VIRTUAL-FILES.md).
    pub fn vopen(&self, path: impl AsRef<Path>, flags: OpenFlags) -> io::Result<VirtFile> {
        if flags.intersects(OpenFlags::CREATE | OpenFlags::TMPFILE) {
            return Err(Errno::INVAL.into());
        }
        let epoch = self.epoch()?;
        let raw = Raw::new(self, epoch, self.default_durability());
        let opened = raw.openat(Handle::ROOT, path.as_ref().as_os_str().as_bytes(), flags, 0, 0)?;
        let file = File::new(self.clone(), epoch, opened);
        Ok(VirtFile { file })
    }
}

/// An open virtual file. Its stream belongs to the open file description: it begins with the first read or write, has
/// a slot from then on, and ends with the last close.
#[derive(Debug)]
pub struct VirtFile {
    file: File,
}

impl VirtFile {
    /// The same as a file, for what any open file has: attributes, locks.
    pub fn as_file(&self) -> &File {
        &self.file
    }

    /// The next bytes that the kernel makes; 0 at the end.
    ///
    /// # Errors
    /// EBUSY (no slot is free, with NONBLOCK), EINVAL (the kernel refuses its parameters), EBADMSG (or the data), EIO
    /// (the kernel was lost; [`VirtFile::rewind`] begins anew).
    pub fn vread<'r>(&self, room: impl Into<Room<'r>>) -> io::Result<usize> {
        Ok(self.file.raw().read(self.file.handle(), At::Current, room)?)
    }

    /// Hands bytes to the kernel; what it makes goes to the real file. Returns the bytes taken: all of them.
    ///
    /// # Errors
    /// As [`VirtFile::vread`], and those of writing the real file, of which EFBIG when the range has no more room.
    pub fn vwrite(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.file.raw().write(self.file.handle(), At::Current, bytes)?.len)
    }

    /// Ends the packet that was written: what the kernel makes of it is in the real file, and durable. Returns the
    /// bytes that it came to, since the open. Of a file that is read: 0.
    ///
    /// # Errors
    /// As [`VirtFile::vwrite`].
    pub fn vsync(&self) -> io::Result<u64> {
        Ok(self.file.raw().counted(Op::Fsync { h: self.file.handle() })?)
    }

    /// Ends the packet as [`VirtFile::vsync`] does, but for making it durable, and closes.
    ///
    /// # Errors
    /// As [`VirtFile::vwrite`]; it is closed all the same.
    pub fn vclose(self) -> io::Result<u64> {
        let VirtFile { file } = self;
        let (client, session) = (file.client().clone(), file.session());
        let h = file.into_handle();
        Ok(Raw::new(&client, session, client.default_durability()).counted(Op::Close { h })?)
    }

    /// Other parameters than the spec's, for the next stream.
    ///
    /// # Errors
    /// EBUSY while one is under way, E2BIG above 4096 words.
    pub fn send_params(&self, params: &[u32]) -> io::Result<()> {
        Ok(self.file.raw().virt_params(self.file.handle(), params)?)
    }

    /// Begins to read anew: the slot is given back.
    pub fn rewind(&self) -> io::Result<()> {
        self.file.raw().seek(self.file.handle(), weldfs_ciscops::Whence::Set, 0)?;
        Ok(())
    }
}

impl Read for VirtFile {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.vread(buf)
    }
}

impl Write for VirtFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.vwrite(buf)
    }

    /// Nothing is held back on the way to the kernel; what that holds back [`VirtFile::vsync`] brings out.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
