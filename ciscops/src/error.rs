//! `Errno`: the one error type of the contract. Every failure reaches the caller as the errno POSIX names.

use core::fmt;

/// A POSIX error number (Linux numbering), always positive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Errno(pub i32);

macro_rules! errno_table {
    (
        given: $($short:ident = $libc:ident : $text:literal),* ;
        passed_on: $($other:ident : $other_text:literal),* $(,)?
    ) => {
        impl Errno {
            $(#[doc = $text] pub const $short: Errno = Errno(libc::$libc);)*

            /// The symbolic name (`ENOENT`); `E?` for a number that Linux has no error for.
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $(libc::$libc => stringify!($libc),)*
                    $(libc::$other => stringify!($other),)*
                    _ => "E?",
                }
            }

            /// One short sentence.
            pub const fn text(self) -> &'static str {
                match self.0 { $(libc::$libc => $text,)* $(libc::$other => $other_text,)* _ => "unknown error" }
            }
        }
    };
}

// `given`: what a device or the library itself answers with. `passed_on`: the rest of what Linux has, for the kernel's
// own answers (a socket without a listener) are passed on and must have a name, too.
errno_table! {
    given:
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
    KEYEXPIRED = EKEYEXPIRED: "the key was used as often as is safe";

    passed_on:
    ESRCH: "no such process",
    ENOEXEC: "not a program that can be executed",
    ECHILD: "no child process",
    ENOTBLK: "not a block device",
    EDOM: "argument outside the domain of the function",
    ENOMSG: "no message of that type",
    EIDRM: "identifier removed",
    ECHRNG: "channel number out of range",
    EL2NSYNC: "level 2 not synchronised",
    EL3HLT: "level 3 halted",
    EL3RST: "level 3 reset",
    ELNRNG: "link number out of range",
    EUNATCH: "protocol driver not attached",
    ENOCSI: "no CSI structure available",
    EL2HLT: "level 2 halted",
    EBADE: "invalid exchange",
    EBADR: "invalid request descriptor",
    EXFULL: "exchange full",
    ENOANO: "no anode",
    EBADRQC: "invalid request code",
    EBADSLT: "invalid slot",
    EBFONT: "bad font file format",
    ENOSTR: "not a stream",
    ETIME: "timer expired",
    ENOSR: "out of streams resources",
    ENONET: "machine is not on the network",
    ENOPKG: "package not installed",
    EREMOTE: "object is remote",
    ENOLINK: "link has been severed",
    EADV: "advertise error",
    ESRMNT: "srmount error",
    ECOMM: "communication error on send",
    EMULTIHOP: "multihop attempted",
    EDOTDOT: "RFS specific error",
    ENOTUNIQ: "name not unique on the network",
    EBADFD: "descriptor in a bad state",
    EREMCHG: "remote address changed",
    ELIBACC: "cannot access a needed shared library",
    ELIBBAD: "a shared library is corrupted",
    ELIBSCN: ".lib section corrupted",
    ELIBMAX: "too many shared libraries",
    ELIBEXEC: "a shared library cannot be executed",
    EILSEQ: "invalid byte sequence",
    ERESTART: "the call should be restarted",
    ESTRPIPE: "streams pipe error",
    EUSERS: "too many users",
    ENOTSOCK: "not a socket",
    EDESTADDRREQ: "destination address required",
    EMSGSIZE: "message too long",
    EPROTOTYPE: "wrong protocol for this kind of socket",
    ENOPROTOOPT: "protocol not available",
    EPROTONOSUPPORT: "protocol not supported",
    ESOCKTNOSUPPORT: "kind of socket not supported",
    EPFNOSUPPORT: "protocol family not supported",
    EAFNOSUPPORT: "address family not supported",
    EADDRINUSE: "address already in use",
    EADDRNOTAVAIL: "address not available",
    ENETDOWN: "network is down",
    ENETUNREACH: "network is unreachable",
    ENETRESET: "connection dropped by the network",
    ECONNABORTED: "connection aborted",
    ECONNRESET: "connection reset by the other side",
    ENOBUFS: "no buffer space available",
    EISCONN: "already connected",
    ENOTCONN: "not connected",
    ESHUTDOWN: "the socket was shut down",
    ETOOMANYREFS: "too many references",
    ECONNREFUSED: "connection refused: no device listens there",
    EHOSTDOWN: "host is down",
    EHOSTUNREACH: "no route to the host",
    EALREADY: "already in progress",
    EINPROGRESS: "in progress now",
    EUCLEAN: "structure needs cleaning",
    ENOTNAM: "not a XENIX named type file",
    ENAVAIL: "no XENIX semaphores available",
    EISNAM: "is a named type file",
    EREMOTEIO: "remote input/output error",
    ENOMEDIUM: "no medium found",
    EMEDIUMTYPE: "wrong kind of medium",
    EKEYREVOKED: "the key was revoked",
    EKEYREJECTED: "the key was rejected",
    EOWNERDEAD: "the owner died",
    ENOTRECOVERABLE: "state not recoverable",
    ERFKILL: "not possible because of an RF kill switch",
    EHWPOISON: "the memory page has a hardware error",
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            "E?" => write!(f, "{} ({})", self.text(), self.0),
            name => write!(f, "{} ({name})", self.text()),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// libc's own table says which numbers are errors.
    #[test]
    fn every_error_of_linux_has_a_name_and_a_sentence() {
        let mut names = std::collections::BTreeSet::new();
        for n in 1..=4095 {
            let known = !std::io::Error::from_raw_os_error(n).to_string().starts_with("Unknown error");
            let errno = Errno(n);
            assert_eq!(known, errno.name() != "E?", "{n}");
            assert_eq!(known, errno.text() != "unknown error", "{n}");
            assert!(!known || names.insert(errno.name()), "{n}: {} twice", errno.name());
        }
        assert_eq!(Errno(libc::ECONNREFUSED).to_string(), "connection refused: no device listens there (ECONNREFUSED)");
        assert_eq!((Errno(4000).to_string(), Errno(0).name()), ("unknown error (4000)".to_owned(), "E?"));
    }
}
