//! `Errno`: the one error type of the contract. Every failure reaches the caller as the errno POSIX names.

use core::fmt;

/// A POSIX error number (Linux numbering), always positive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Errno(pub i32);

macro_rules! errno_table {
    ($($short:ident = $libc:ident : $text:literal),* $(,)?) => {
        impl Errno {
            $(#[doc = $text] pub const $short: Errno = Errno(libc::$libc);)*

            /// The symbolic name (`ENOENT`), or `E?` for a number outside the table.
            pub const fn name(self) -> &'static str {
                match self.0 { $(libc::$libc => stringify!($libc),)* _ => "E?" }
            }

            /// One short sentence.
            pub const fn text(self) -> &'static str {
                match self.0 { $(libc::$libc => $text,)* _ => "unknown error" }
            }
        }
    };
}

errno_table! {
    PERM = EPERM: "operation not permitted",
    NOENT = ENOENT: "no such file or directory",
    INTR = EINTR: "interrupted",
    IO = EIO: "input/output error",
    NXIO = ENXIO: "no such device or address",
    TOOBIG = E2BIG: "argument too big for one command",
    BADF = EBADF: "bad handle",
    AGAIN = EAGAIN: "try again",
    NOMEM = ENOMEM: "out of memory",
    ACCES = EACCES: "permission denied",
    FAULT = EFAULT: "bad address",
    BUSY = EBUSY: "busy",
    EXIST = EEXIST: "file exists",
    XDEV = EXDEV: "crosses devices",
    NODEV = ENODEV: "no such device",
    NOTDIR = ENOTDIR: "not a directory",
    ISDIR = EISDIR: "is a directory",
    INVAL = EINVAL: "invalid argument",
    NFILE = ENFILE: "too many open files in the device",
    MFILE = EMFILE: "too many open files",
    NOTTY = ENOTTY: "not a terminal",
    TXTBSY = ETXTBSY: "text file busy",
    FBIG = EFBIG: "file too large",
    NOSPC = ENOSPC: "no space left",
    SPIPE = ESPIPE: "illegal seek",
    ROFS = EROFS: "read-only file system",
    MLINK = EMLINK: "too many links",
    PIPE = EPIPE: "broken pipe",
    RANGE = ERANGE: "result does not fit",
    DEADLK = EDEADLK: "deadlock",
    NAMETOOLONG = ENAMETOOLONG: "name too long",
    NOLCK = ENOLCK: "no locks available",
    NOSYS = ENOSYS: "unknown operation",
    NOTEMPTY = ENOTEMPTY: "directory not empty",
    LOOP = ELOOP: "too many symbolic links",
    NODATA = ENODATA: "no data",
    PROTO = EPROTO: "protocol error",
    BADMSG = EBADMSG: "checksum of the record does not match",
    OVERFLOW = EOVERFLOW: "value too large",
    OPNOTSUPP = EOPNOTSUPP: "not supported",
    TIMEDOUT = ETIMEDOUT: "timed out",
    STALE = ESTALE: "stale handle",
    DQUOT = EDQUOT: "quota exceeded",
    CANCELED = ECANCELED: "condition not met",
    NOKEY = ENOKEY: "no such key",
    KEYEXPIRED = EKEYEXPIRED: "the key was used as often as is safe",
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text(), self.name())
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl std::error::Error for Errno {}

impl From<Errno> for std::io::Error {
    fn from(e: Errno) -> Self {
        std::io::Error::from_raw_os_error(e.0)
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(e: rustix::io::Errno) -> Self {
        Errno(e.raw_os_error())
    }
}
