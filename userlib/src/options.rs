//! How to open a file, in the manner of `std::fs::OpenOptions`.

use crate::client::Client;
use crate::file::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use weldfs_ciscops::flags::OpenFlags;
use weldfs_ciscops::{Errno, Handle};

/// Flags and permission bits of an open. `OpenOptions::new().read(true)` opens for reading.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    flags: OpenFlags,
    mode: u32,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions::new()
    }
}

macro_rules! switches {
    ($($(#[$doc:meta])* $name:ident = $flag:ident),* $(,)?) => {
        $($(#[$doc])*
        pub fn $name(mut self, on: bool) -> Self {
            self.flags.set(OpenFlags::$flag, on);
            self
        })*
    };
}

impl OpenOptions {
    /// Nothing asked for yet; new files get 0666 before the umask.
    pub fn new() -> OpenOptions {
        OpenOptions { flags: OpenFlags::empty(), mode: 0o666 }
    }

    /// From open(2)'s `flags` (`libc::O_*`) and `mode`.
    pub fn from_linux(flags: i32, mode: u32) -> OpenOptions {
        OpenOptions { flags: OpenFlags::from_linux(flags), mode }
    }

    switches! {
        /// For reading.
        read = READ,
        /// For writing.
        write = WRITE,
        /// Makes the file when it is missing (O_CREAT).
        create = CREATE,
        /// Together with `create`: fails with EEXIST when it exists (O_EXCL).
        exclusive = EXCL,
        /// Cuts it to zero bytes (O_TRUNC).
        truncate = TRUNC,
        /// Only a directory will do, else ENOTDIR (O_DIRECTORY).
        directory = DIRECTORY,
        /// A final symbolic link gives ELOOP (O_NOFOLLOW).
        no_follow = NOFOLLOW,
        /// A nameless file in the directory named (O_TMPFILE); `link` with an empty name gives it one.
        tmpfile = TMPFILE,
        /// Names a place only, for at-style calls (O_PATH).
        path_only = PATH,
        /// Every write is durable with its metadata before it returns (O_SYNC).
        sync = SYNC,
        /// Every write is durable before it returns (O_DSYNC).
        dsync = DSYNC,
    }

    /// Every write goes to the end, atomically against all other writers; implies writing (O_APPEND).
    pub fn append(mut self, on: bool) -> Self {
        self.flags.set(OpenFlags::APPEND, on);
        if on {
            self.flags |= OpenFlags::WRITE;
        }
        self
    }

    /// Makes the file; EEXIST when it exists.
    pub fn create_new(self, on: bool) -> Self {
        self.create(on).exclusive(on)
    }

    /// Permission bits of a new file, before the umask.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// The flags as the device will get them.
    pub fn flags(&self) -> OpenFlags {
        self.flags
    }

    /// Opens. Errors: open(2)'s.
    pub fn open(&self, client: &Client, path: impl AsRef<Path>) -> io::Result<File> {
        Ok(self.open_at(client, 0, Handle::ROOT, path.as_ref())?)
    }

    pub(crate) fn open_at(&self, client: &Client, epoch: u64, base: Handle, path: &Path) -> Result<File, Errno> {
        let epoch = if epoch == 0 { client.epoch()? } else { epoch };
        let mode = self.mode & !client.umask();
        let raw = crate::raw::Raw::new(client, epoch, client.default_durability());
        let opened = raw.openat(base, path.as_os_str().as_bytes(), self.flags, mode, 0)?;
        Ok(File::new(client.clone(), epoch, opened))
    }
}
