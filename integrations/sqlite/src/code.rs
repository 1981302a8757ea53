//! SQLite's result codes, flags and numbers, as `sqlite3.h` has them.

use std::ffi::c_int;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:expr;)*) => { $($(#[$doc])* pub const $name: c_int = $value;)* };
}

/// An extended code of an I/O error.
const fn ioerr(n: c_int) -> c_int {
    IOERR | n << 8
}

codes! {
    OK = 0;
    BUSY = 5;
    READONLY = 8;
    IOERR = 10;
    NOTFOUND = 12;
    FULL = 13;
    CANTOPEN = 14;
    MISUSE = 21;
    IOERR_READ = ioerr(1);
    IOERR_SHORT_READ = ioerr(2);
    IOERR_WRITE = ioerr(3);
    IOERR_FSYNC = ioerr(4);
    IOERR_TRUNCATE = ioerr(6);
    IOERR_FSTAT = ioerr(7);
    IOERR_UNLOCK = ioerr(8);
    IOERR_RDLOCK = ioerr(9);
    IOERR_DELETE = ioerr(10);
    IOERR_NOMEM = ioerr(12);
    IOERR_ACCESS = ioerr(13);
    IOERR_CHECKRESERVEDLOCK = ioerr(14);
    IOERR_LOCK = ioerr(15);
    IOERR_CLOSE = ioerr(16);
    IOERR_SHMOPEN = ioerr(18);
    IOERR_SHMSIZE = ioerr(19);
    IOERR_SHMLOCK = ioerr(20);
    IOERR_SHMMAP = ioerr(21);
    IOERR_DELETE_NOENT = ioerr(23);
    IOERR_BEGIN_ATOMIC = ioerr(29);
    IOERR_COMMIT_ATOMIC = ioerr(30);
    CANTOPEN_NOTEMPDIR = CANTOPEN | 1 << 8;
    CANTOPEN_ISDIR = CANTOPEN | 2 << 8;
    CANTOPEN_FULLPATH = CANTOPEN | 3 << 8;
    CANTOPEN_SYMLINK = CANTOPEN | 6 << 8;
    READONLY_DIRECTORY = READONLY | 6 << 8;
    OK_LOAD_PERMANENTLY = 1 << 8;
    OK_SYMLINK = 2 << 8;

    OPEN_READONLY = 0x1;
    OPEN_READWRITE = 0x2;
    OPEN_CREATE = 0x4;
    OPEN_DELETEONCLOSE = 0x8;
    OPEN_EXCLUSIVE = 0x10;
    OPEN_MAIN_DB = 0x100;
    OPEN_MAIN_JOURNAL = 0x800;
    OPEN_SUPER_JOURNAL = 0x4000;
    OPEN_WAL = 0x80000;

    ACCESS_EXISTS = 0;
    ACCESS_READWRITE = 1;

    FCNTL_LOCKSTATE = 1;
    FCNTL_LAST_ERRNO = 4;
    FCNTL_SIZE_HINT = 5;
    FCNTL_CHUNK_SIZE = 6;
    FCNTL_PERSIST_WAL = 10;
    FCNTL_VFSNAME = 12;
    FCNTL_POWERSAFE_OVERWRITE = 13;
    FCNTL_PRAGMA = 14;
    FCNTL_HAS_MOVED = 20;
    FCNTL_SYNC = 21;
    FCNTL_BEGIN_ATOMIC_WRITE = 31;
    FCNTL_COMMIT_ATOMIC_WRITE = 32;
    FCNTL_ROLLBACK_ATOMIC_WRITE = 33;

    IOCAP_ATOMIC_512_TO_64K = 0x1fe;
    IOCAP_SAFE_APPEND = 0x200;
    IOCAP_SEQUENTIAL = 0x400;
    IOCAP_POWERSAFE_OVERWRITE = 0x1000;
    IOCAP_BATCH_ATOMIC = 0x4000;

    SHM_UNLOCK = 1;
    SHM_EXCLUSIVE = 8;
}
