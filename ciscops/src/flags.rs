//! The bit sets and small enumerations that operands are made of. Values are the wire's, independent of any libc.

use bitflags::bitflags;

bitflags! {
    /// How a file is opened. The wire's own bits; see `OpenFlags::from_linux`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct OpenFlags: u16 {
        /// Readable.
        const READ = 1 << 0;
        /// Writable.
        const WRITE = 1 << 1;
        /// Create when missing (O_CREAT).
        const CREATE = 1 << 2;
        /// Fail when it exists (O_EXCL).
        const EXCL = 1 << 3;
        /// Cut to zero length (O_TRUNC).
        const TRUNC = 1 << 4;
        /// Every write goes to the end (O_APPEND).
        const APPEND = 1 << 5;
        /// Must be a directory (O_DIRECTORY).
        const DIRECTORY = 1 << 6;
        /// Fail on a final symbolic link (O_NOFOLLOW).
        const NOFOLLOW = 1 << 7;
        /// Nameless file in the directory named (O_TMPFILE).
        const TMPFILE = 1 << 8;
        /// Names a place only: no read, no write (O_PATH).
        const PATH = 1 << 9;
        /// Every write durable, with metadata (O_SYNC).
        const SYNC = 1 << 10;
        /// Every write durable (O_DSYNC).
        const DSYNC = 1 << 11;
        /// Do not touch atime (O_NOATIME).
        const NOATIME = 1 << 12;
        /// Kept and reported, without effect (O_NONBLOCK).
        const NONBLOCK = 1 << 13;
        /// Kept and reported, without effect (O_DIRECT).
        const DIRECT = 1 << 14;
    }

    /// What a handle's grant must hold.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Access: u8 {
        /// Read data or entries.
        const READ = 1;
        /// Change data.
        const WRITE = 2;
    }

    /// Mask of `Op::Access`, with the bits of access(2); empty asks whether the file exists.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct AccessMask: u8 {
        /// May execute or search.
        const EXEC = 1;
        /// May write.
        const WRITE = 2;
        /// May read.
        const READ = 4;
    }

    /// renameat2(2) flags.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct RenameFlags: u8 {
        /// Fail with EEXIST when the new name exists.
        const NOREPLACE = 1;
        /// Swap the two names.
        const EXCHANGE = 2;
    }

    /// setxattr(2) flags.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct XattrFlags: u8 {
        /// Fail with EEXIST when it exists.
        const CREATE = 1;
        /// Fail with ENODATA when it does not.
        const REPLACE = 2;
    }

    /// Which fields of a `SetAttrBody` count.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct SetAttrMask: u32 {
        /// Permission bits.
        const MODE = 1;
        /// Owner.
        const UID = 2;
        /// Group.
        const GID = 4;
        /// Size, as truncate.
        const SIZE = 8;
        /// Access time as given.
        const ATIME = 16;
        /// Modification time as given.
        const MTIME = 32;
        /// Access time now (as the device's clock says).
        const ATIME_NOW = 64;
        /// Modification time now.
        const MTIME_NOW = 128;
    }
}

impl OpenFlags {
    /// Status flags that `SetFlags` may change.
    pub const SETTABLE: OpenFlags =
        OpenFlags::APPEND.union(OpenFlags::NOATIME).union(OpenFlags::NONBLOCK).union(OpenFlags::DIRECT);

    /// The grant these flags ask for.
    pub fn access(self) -> Access {
        let mut a = Access::empty();
        a.set(Access::READ, self.contains(OpenFlags::READ));
        a.set(Access::WRITE, self.contains(OpenFlags::WRITE));
        a
    }

    /// From open(2)'s `flags` of this platform. Bits without a meaning here (O_CLOEXEC, O_NOCTTY, O_LARGEFILE) drop.
    pub fn from_linux(o: i32) -> OpenFlags {
        let mut f = match o & libc::O_ACCMODE {
            libc::O_RDONLY => OpenFlags::READ,
            libc::O_WRONLY => OpenFlags::WRITE,
            _ => OpenFlags::READ | OpenFlags::WRITE,
        };
        if o & libc::O_PATH != 0 {
            f = OpenFlags::PATH;
        }
        let tmpfile = o & libc::O_TMPFILE == libc::O_TMPFILE;
        f.set(OpenFlags::TMPFILE, tmpfile);
        f.set(OpenFlags::DIRECTORY, o & libc::O_DIRECTORY != 0 && !tmpfile);
        f.set(OpenFlags::SYNC, o & libc::O_SYNC == libc::O_SYNC);
        f.set(OpenFlags::DSYNC, o & libc::O_DSYNC != 0);
        for (bit, flag) in LINUX_SIMPLE {
            f.set(flag, o & bit != 0);
        }
        f
    }

    /// Back to open(2)'s bits, as fcntl(F_GETFL) reports them.
    pub fn to_linux(self) -> i32 {
        let mut o = match (self.contains(OpenFlags::READ), self.contains(OpenFlags::WRITE)) {
            (true, true) => libc::O_RDWR,
            (false, true) => libc::O_WRONLY,
            _ => libc::O_RDONLY,
        };
        let wide = [
            (libc::O_PATH, OpenFlags::PATH),
            (libc::O_TMPFILE, OpenFlags::TMPFILE),
            (libc::O_DIRECTORY, OpenFlags::DIRECTORY),
            (libc::O_SYNC, OpenFlags::SYNC),
            (libc::O_DSYNC, OpenFlags::DSYNC),
        ];
        for (bit, flag) in wide.into_iter().chain(LINUX_SIMPLE) {
            if self.contains(flag) {
                o |= bit;
            }
        }
        o
    }
}

const LINUX_SIMPLE: [(i32, OpenFlags); 8] = [
    (libc::O_CREAT, OpenFlags::CREATE),
    (libc::O_EXCL, OpenFlags::EXCL),
    (libc::O_TRUNC, OpenFlags::TRUNC),
    (libc::O_APPEND, OpenFlags::APPEND),
    (libc::O_NOFOLLOW, OpenFlags::NOFOLLOW),
    (libc::O_NOATIME, OpenFlags::NOATIME),
    (libc::O_NONBLOCK, OpenFlags::NONBLOCK),
    (libc::O_DIRECT, OpenFlags::DIRECT),
];

macro_rules! wire_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $value:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant = $value),* }
        impl $name {
            /// Every value.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];
            /// From its wire value.
            #[inline]
            pub const fn from_wire(v: u64) -> Option<$name> {
                match v { $($value => Some($name::$variant),)* _ => None }
            }
        }
    };
}

wire_enum! {
    /// What fallocate does with the range.
    FallocMode {
        /// Reserve blocks; the size grows to cover the range.
        Reserve = 0,
        /// Reserve blocks, also past the end; the size stays.
        KeepSize = 1,
        /// Make a hole; the size stays.
        Punch = 2,
        /// Read as zeros, blocks reserved; the size grows to cover the range.
        Zero = 3,
        /// Read as zeros, blocks reserved; the size stays.
        ZeroKeepSize = 4,
    }
}
wire_enum! {
    /// lseek(2)'s whence.
    Whence {
        /// From the start.
        Set = 0,
        /// From the current offset.
        Cur = 1,
        /// From the end.
        End = 2,
        /// Next data at or after the offset.
        Data = 3,
        /// Next hole at or after the offset.
        Hole = 4,
    }
}
wire_enum! {
    /// What a Lock command does.
    LockAction {
        /// Report the first lock that would conflict.
        Get = 0,
        /// Set or (kind `Unlock`) remove; never waits.
        Set = 1,
    }
}
wire_enum! {
    /// Kind of advisory lock.
    LockKind {
        /// Shared.
        Read = 0,
        /// Exclusive.
        Write = 1,
        /// None.
        Unlock = 2,
    }
}
wire_enum! {
    /// Whose the lock is, and which table it lives in.
    LockSpace {
        /// POSIX byte range, owned by (session, owner).
        Process = 0,
        /// Byte range owned by the open file description (F_OFD_*).
        OpenFile = 1,
        /// flock(2): whole file, owned by the open file description.
        Flock = 2,
    }
}
wire_enum! {
    /// Checksum kinds.
    ChecksumKind {
        /// CRC-32C (Castagnoli), 4-byte little-endian trailer.
        Crc32c = 0,
    }
}
wire_enum! {
    /// What a key is for.
    KeyKind {
        /// AES-128 in XTS: two keys of 16 bytes, which must differ.
        Xts128 = 0,
        /// AES-256 in XTS: two keys of 32 bytes, which must differ.
        Xts256 = 1,
        /// AES-128 in GCM.
        Gcm128 = 2,
        /// AES-256 in GCM.
        Gcm256 = 3,
    }
}

impl KeyKind {
    /// Bytes of such a key.
    pub const fn bytes(self) -> u32 {
        match self {
            KeyKind::Xts128 | KeyKind::Gcm256 => 32,
            KeyKind::Xts256 => 64,
            KeyKind::Gcm128 => 16,
        }
    }
}

wire_enum! {
    /// What the device knows of a detectable command.
    OutcomeState {
        /// Nothing: nothing of it took effect, and nothing will if the device that had it is gone.
        NotStarted = 0,
        /// A MicroTx that has begun and not ended.
        InProgress = 1,
        /// It ended; the status says how.
        Done = 2,
        /// Its outcome is too old to be kept (or never was: an outcome this old would not be).
        Expired = 3,
    }
}
