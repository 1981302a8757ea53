//! The client's calls on names: POSIX's, and the fused ones. A path is resolved from the device's root, with or
//! without a leading slash.

use crate::buf::{Payload, Room};
use crate::client::Client;
use crate::dir::Dir;
use crate::file::File;
use crate::fused::{Done, Exchanged};
use crate::meta::Metadata;
use crate::options::OpenOptions;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use weldfs_ciscops::flags::{AccessMask, OpenFlags, RenameFlags, SetAttrMask};
use weldfs_ciscops::limits::SYMLINK_MAX;
use weldfs_ciscops::{At, Durability, Errno, Handle, SetAttrBody, StatfsBody};

const ROOT: Handle = Handle::ROOT;

/// Bytes of the device's name for a path.
fn name(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// Every method here fails with the errno that POSIX gives the call of the same kind, besides those of the device
/// itself (EIO, ENODEV). Changes have the client's durability (see [`Client::durability`]).
impl Client {
    /// Opens a file as `options` say.
    pub fn open(&self, path: impl AsRef<Path>, options: &OpenOptions) -> io::Result<File> {
        options.open(self, path)
    }

    /// Opens a file for reading and writing, emptied, made if missing.
    pub fn create(&self, path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(self, path)
    }

    /// Opens a directory.
    pub fn open_dir(&self, path: impl AsRef<Path>) -> io::Result<Dir> {
        Dir::open(self, 0, ROOT, path.as_ref())
    }

    /// A whole file. One command when it fits the first read (64 KiB).
    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; 64 << 10];
        let flags = OpenFlags::READ;
        let n = match self.raw().open_read_close(ROOT, name(path.as_ref()), flags, 0, &mut bytes) {
            // A virtual file is a stream, and its size says nothing.
            Err(Errno::OPNOTSUPP) => {
                bytes.clear();
                OpenOptions::new().read(true).open(self, path)?.read_to_end(&mut bytes)?;
                return Ok(bytes);
            }
            read => read?,
        };
        if n < bytes.len() {
            bytes.truncate(n);
            return Ok(bytes);
        }
        let file = OpenOptions::new().read(true).open(self, path)?;
        let mut done = 0;
        loop {
            let size = usize::try_from(file.metadata()?.len()).map_err(|_| Errno::FBIG)?;
            bytes.resize(size.max(done) + 1, 0);
            let n = file.read_at(&mut bytes[done..], done as u64)?;
            done += n;
            if n == 0 || done < bytes.len() {
                bytes.truncate(done);
                return Ok(bytes);
            }
        }
    }

    /// Makes or replaces a whole file. One command, and atomic, up to 1 MiB. Onto a virtual file: through its kernel,
    /// to the end of the stream.
    pub fn write(&self, path: impl AsRef<Path>, data: &[u8]) -> io::Result<()> {
        let path = path.as_ref();
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNC;
        let done = match data.len() <= self.payload_max() {
            true => self.open_write_close(path, flags, 0o666, At::Offset(0), data).map(drop).map_err(io::Error::from),
            false => self.create(path).and_then(|mut file| file.write_all(data)),
        };
        match done.as_ref().err().and_then(io::Error::raw_os_error).map(Errno) {
            // No command has all of a stream, and none is opened both ways.
            Some(Errno::OPNOTSUPP | Errno::PERM) if self.raw().is_virtual(ROOT, name(path), false) => {
                let file = self.vopen(path, OpenFlags::WRITE)?;
                file.vwrite(data)?;
                file.vclose().map(drop)
            }
            _ => done,
        }
    }

    /// Attributes; of what a final symbolic link names.
    pub fn metadata(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        Ok(self.raw().statat(ROOT, name(path.as_ref()), false)?.into())
    }

    /// Attributes; of a final symbolic link itself.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        Ok(self.raw().statat(ROOT, name(path.as_ref()), true)?.into())
    }

    /// Changes the attributes that the body's mask names, in one step.
    pub fn set_attributes(&self, path: impl AsRef<Path>, nofollow: bool, set: &SetAttrBody) -> io::Result<()> {
        Ok(self.raw().set_attr_at(ROOT, name(path.as_ref()), nofollow, set)?)
    }

    /// Sets the permission bits (chmod).
    pub fn set_permissions(&self, path: impl AsRef<Path>, mode: u32) -> io::Result<()> {
        let mask = SetAttrMask::MODE.bits();
        self.set_attributes(path, false, &SetAttrBody { mask, mode: mode & 0o7777, ..SetAttrBody::default() })
    }

    /// Sets owner and group, of a final symbolic link itself (lchown).
    pub fn set_owner(&self, path: impl AsRef<Path>, uid: u32, gid: u32) -> io::Result<()> {
        let mask = (SetAttrMask::UID | SetAttrMask::GID).bits();
        self.set_attributes(path, true, &SetAttrBody { mask, uid, gid, ..SetAttrBody::default() })
    }

    /// Sets the size (truncate).
    pub fn set_len(&self, path: impl AsRef<Path>, size: u64) -> io::Result<()> {
        let mask = SetAttrMask::SIZE.bits();
        self.set_attributes(path, false, &SetAttrBody { mask, size, ..SetAttrBody::default() })
    }

    /// Whether the caller may do what the mask says; EACCES if not. An empty mask asks whether the name exists.
    pub fn access(&self, path: impl AsRef<Path>, mask: AccessMask) -> io::Result<()> {
        Ok(self.raw().accessat(ROOT, name(path.as_ref()), mask, false)?)
    }

    /// Whether something has this name (a dangling symbolic link counts). Errors other than ENOENT are errors.
    pub fn exists(&self, path: impl AsRef<Path>) -> io::Result<bool> {
        match self.raw().statat(ROOT, name(path.as_ref()), true) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Makes a directory, with 0777 less the umask.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        Ok(self.raw().mkdirat(ROOT, name(path.as_ref()), 0o777 & !self.umask())?)
    }

    /// Makes a directory, with `mode` less the umask.
    pub fn create_dir_with(&self, path: impl AsRef<Path>, mode: u32) -> io::Result<()> {
        Ok(self.raw().mkdirat(ROOT, name(path.as_ref()), mode & !self.umask())?)
    }

    /// Makes a directory and those above it that are missing.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        match self.create_dir(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let above = path.parent().ok_or(e)?;
                self.create_dir_all(above)?;
                self.create_dir_all(path)
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && self.metadata(path)?.is_dir() => Ok(()),
            done => done,
        }
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        Ok(self.raw().rmdirat(ROOT, name(path.as_ref()))?)
    }

    /// Removes a name that is not a directory; the file lives on while it is open.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> io::Result<()> {
        Ok(self.raw().unlinkat(ROOT, name(path.as_ref()))?)
    }

    /// Removes a name and, if it is a directory, everything in it. Not atomic. EIO for a listed name that would lead
    /// out of its directory, which no file system gives that is what it should be.
    pub fn remove_all(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        if !self.symlink_metadata(path)?.is_dir() {
            return self.remove_file(path);
        }
        let entries = self.open_dir(path)?.entries().collect::<io::Result<Vec<_>>>()?;
        for entry in entries {
            if entry.name.as_bytes().contains(&b'/') {
                return Err(io::Error::from_raw_os_error(Errno::IO.0));
            }
            let inner = path.join(&entry.name);
            if entry.is_dir() { self.remove_all(inner)? } else { self.remove_file(inner)? }
        }
        self.remove_dir(path)
    }

    /// Renames, replacing what the new name was (atomically).
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        self.rename_with(from, to, RenameFlags::empty())
    }

    /// Renames with flags: NOREPLACE fails with EEXIST, EXCHANGE swaps the two.
    pub fn rename_with(&self, from: impl AsRef<Path>, to: impl AsRef<Path>, flags: RenameFlags) -> io::Result<()> {
        Ok(self.raw().renameat(ROOT, name(from.as_ref()), ROOT, name(to.as_ref()), flags)?)
    }

    /// Gives a file another name.
    pub fn hard_link(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        Ok(self.raw().linkat(ROOT, name(from.as_ref()), ROOT, name(to.as_ref()), false)?)
    }

    /// Makes a symbolic link at `path` that says `target`.
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> io::Result<()> {
        Ok(self.raw().symlinkat(name(target.as_ref()), ROOT, name(path.as_ref()))?)
    }

    /// What a symbolic link says.
    pub fn read_link(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        let mut target = vec![0; SYMLINK_MAX];
        let n = self.raw().readlinkat(ROOT, name(path.as_ref()), &mut target)?;
        target.truncate(n);
        Ok(OsString::from_vec(target).into())
    }

    /// Space and identity of the file system.
    pub fn statfs(&self) -> io::Result<StatfsBody> {
        Ok(self.raw().statfs()?)
    }

    /// Everything completed so far, by any client, is durable on return.
    pub fn sync(&self) -> io::Result<()> {
        Ok(self.raw().syncfs()?)
    }

    /// Fused, one command: see [`crate::Raw::open_write_close`]. `mode` is taken less the umask.
    pub fn open_write_close<'p>(
        &self,
        path: impl AsRef<Path>,
        flags: OpenFlags,
        mode: u32,
        at: At,
        data: impl Into<Payload<'p>>,
    ) -> Result<Done, Errno> {
        self.raw().open_write_close(ROOT, name(path.as_ref()), flags, mode & !self.umask(), at, data)
    }

    /// Fused, one command: the same, with a durability of its own.
    pub fn open_write_close_with<'p>(
        &self,
        path: impl AsRef<Path>,
        flags: OpenFlags,
        mode: u32,
        at: At,
        data: impl Into<Payload<'p>>,
        durability: Durability,
    ) -> Result<Done, Errno> {
        let raw = self.raw().durability(durability);
        raw.open_write_close(ROOT, name(path.as_ref()), flags, mode & !self.umask(), at, data)
    }

    /// Fused, one command: see [`crate::Raw::open_read_close`].
    pub fn open_read_close<'r>(
        &self,
        path: impl AsRef<Path>,
        flags: OpenFlags,
        offset: u64,
        room: impl Into<Room<'r>>,
    ) -> Result<usize, Errno> {
        self.raw().open_read_close(ROOT, name(path.as_ref()), flags, offset, room)
    }

    /// Fused, one command: see [`crate::Raw::open_read_write_close`]. `mode` is taken less the umask.
    pub fn open_read_write_close<'r, 'p>(
        &self,
        path: impl AsRef<Path>,
        flags: OpenFlags,
        mode: u32,
        read_off: u64,
        room: impl Into<Room<'r>>,
        at: At,
        data: impl Into<Payload<'p>>,
    ) -> Result<Exchanged, Errno> {
        let (path, mode) = (name(path.as_ref()), mode & !self.umask());
        self.raw().open_read_write_close(ROOT, path, flags, mode, read_off, room, at, data)
    }
}
