"""What docs/COMMANDS.md says of numbers and layouts, written out again."""

import errno
import struct
from dataclasses import dataclass

MAGIC = b"WELD"
VERSION = 1
HELLO, NEW_QUEUE, PLACEHOLDERS, CLAIM, STATS, TUNE, DETACH, JOIN, TRACE, TENANTS, TOKEN, STOP = range(1, 13)
SHARE = 14
HEADER = struct.Struct("<4sHHIi")

ATOMIC_WRITE_MAX = 1 << 20
POOL_BYTES_MAX = 64 << 20
INT64_MAX = (1 << 63) - 1

# Open flags.
READ, WRITE, CREATE, EXCL, TRUNC, APPEND, DIRECTORY, NOFOLLOW = (1 << bit for bit in range(8))
TMPFILE, PATH, SYNC, DSYNC, NOATIME, NONBLOCK, DIRECT = (1 << bit for bit in range(8, 15))

# Where a transfer goes: at the offset, at the description's own offset, at the end.
AT, CURRENT, END = 0, 1, 2

# Flags of an entry.
VOLATILE, DURABLE, MACRO, MICRO = 1, 2, 1 << 2, 2 << 2
AFTER_DURABLE, POSTED, DETECTABLE = 1 << 6, 1 << 7, 1 << 8

OPCODES = {
    "nop": 0, "open": 1, "close": 2, "read": 3, "write": 4, "truncate": 5, "fallocate": 6, "seek": 7, "fsync": 8,
    "fdatasync": 9, "syncfs": 10, "stat": 11, "stat_path": 12, "set_attr": 13, "set_attr_path": 14, "read_dir": 15,
    "lock": 16, "set_flags": 17, "statfs": 18, "outcome": 19, "checksum_range": 20, "batch": 21, "read_dir_plus": 22,
    "set_key": 23, "drop_key": 24, "txn_begin": 25, "txn_write": 26, "txn_commit": 27, "txn_abort": 28,
    "write_verified": 29, "mkdir": 32, "rmdir": 33, "unlink": 34, "rename": 35, "link": 36, "symlink": 37,
    "readlink": 38, "access": 39, "get_xattr": 40, "set_xattr": 41, "list_xattr": 42, "remove_xattr": 43,
    "virt_register": 44, "virt_spec": 45, "virt_params": 46, "open_write_close": 64, "open_read_close": 65,
    "open_read_write_close": 66, "append_checksum_write": 67, "read_checksum_verify": 68, "read_modify_write": 69,
    "program": 70,
}

# What each operation names, beside opcode, flags and sequence: every other bit of its entry is zero. `aux` is a mask of
# bits, `imm` the bytes of the last word that count; A, B and C say what a range holds.
PLACES = {
    "nop": {},
    "open": {"handle": 1, "A": "path", "aux": 0x0FFFFFFF, "imm": range(8), "B": "bytes"},
    "close": {"handle": 1},
    "read": {"handle": 1, "offset": 1, "aux": 3 << 28, "A": "bytes", "imm": range(4)},
    "write": {"handle": 1, "offset": 1, "aux": 3 << 28, "A": "bytes"},
    "truncate": {"handle": 1, "offset": 1},
    "fallocate": {"handle": 1, "offset": 1, "aux": 0xFF, "imm": range(8)},
    "seek": {"handle": 1, "offset": 1, "aux": 0xFF},
    "fsync": {"handle": 1},
    "fdatasync": {"handle": 1},
    "syncfs": {},
    "stat": {"handle": 1, "A": 256},
    "stat_path": {"handle": 1, "A": "path?", "aux": 1 << 31, "B": 256},
    "set_attr": {"handle": 1, "A": 64},
    "set_attr_path": {"handle": 1, "A": "path?", "aux": 1 << 31, "B": 64},
    "read_dir": {"handle": 1, "offset": 1, "A": "bytes"},
    "lock": {"handle": 1, "offset": 1, "aux": 0xFFF, "imm": range(16), "A": "32?"},
    "set_flags": {"handle": 1, "aux": 0xFFFF},
    "statfs": {"A": 128},
    "outcome": {"imm": range(16), "aux": 0xFFFF, "offset": 1, "A": 64},
    "checksum_range": {"handle": 1, "offset": 1, "aux": 0xFF, "imm": range(8)},
    "batch": {"A": "bytes", "B": "bytes"},
    "read_dir_plus": {"handle": 1, "offset": 1, "A": "bytes", "imm": range(4)},
    "set_key": {"aux": 0xFF, "A": "bytes"},
    "drop_key": {"imm": range(8)},
    "txn_begin": {},
    "txn_write": {"handle": 1, "imm": range(8), "aux": 3 << 28, "offset": 1, "A": "bytes"},
    "txn_commit": {"handle": 1},
    "txn_abort": {"handle": 1},
    "write_verified": {"handle": 1, "offset": 1, "aux": 3 << 28 | 0xFF, "imm": range(4), "A": "bytes"},
    "mkdir": {"handle": 1, "A": "path", "aux": 0xFFF << 16},
    "rmdir": {"handle": 1, "A": "path"},
    "unlink": {"handle": 1, "A": "path"},
    "rename": {"handle": 1, "A": "path", "imm": range(8), "B": "path", "aux": 0xFF},
    "link": {"handle": 1, "A": "path?", "imm": range(8), "B": "path", "aux": 1 << 31},
    "symlink": {"handle": 1, "A": "path", "B": "target"},
    "readlink": {"handle": 1, "A": "path?", "B": "bytes"},
    "access": {"handle": 1, "A": "path?", "aux": 1 << 31 | 0xFF},
    "get_xattr": {"handle": 1, "A": "path?", "aux": 1 << 31, "C": "name", "B": "bytes"},
    "set_xattr": {"handle": 1, "A": "path?", "aux": 1 << 31 | 0xFF, "C": "name", "B": "bytes"},
    "list_xattr": {"handle": 1, "A": "path?", "aux": 1 << 31, "B": "bytes"},
    "remove_xattr": {"handle": 1, "A": "path?", "aux": 1 << 31, "C": "name"},
    "virt_register": {"handle": 1, "A": "path", "aux": 0xFFF << 16, "B": "bytes"},
    "virt_spec": {"handle": 1, "A": "path?", "aux": 1 << 31, "B": "bytes"},
    "virt_params": {"handle": 1, "A": "bytes"},
    "open_write_close": {"handle": 1, "A": "path", "aux": 0x3FFFFFFF, "offset": 1, "B": "bytes"},
    "open_read_close": {"handle": 1, "A": "path", "aux": 0xFFFF, "offset": 1, "B": "bytes"},
    "open_read_write_close": {
        "handle": 1, "A": "path", "aux": 0x3FFFFFFF, "offset": 1, "B": "bytes", "imm": range(8, 16), "C": "bytes"},
    "append_checksum_write": {"handle": 1, "aux": 0xFF, "A": "bytes"},
    "read_checksum_verify": {"handle": 1, "aux": 0xFF, "offset": 1, "imm": range(4), "A": "bytes"},
    "read_modify_write": {"handle": 1, "offset": 1, "aux": 0xFFFFFFFF, "A": "bytes", "imm": range(16), "B": "bytes"},
    "program": {"A": "bytes"},
}

SQE = struct.Struct("<HHIQQQIIII16s")
CQE = struct.Struct("<QiHHQQ")
LAYOUT = struct.Struct("<8sIIIIII")
STAT = struct.Struct("<QQQQQQIIIIIIII" + "qII" * 4 + "Q")


def name_of(number):
    """An errno by the name that the page uses: Linux has two for one of them."""
    names = {0: "OK", errno.EOPNOTSUPP: "EOPNOTSUPP", errno.EAGAIN: "EAGAIN"}
    return names.get(number) or errno.errorcode.get(number, str(number))


@dataclass
class Entry:
    """A submission queue entry, field by field."""

    op: int
    flags: int = 0
    aux: int = 0
    sequence: int = 0
    handle: int = 0
    offset: int = 0
    length: int = 0
    pool_off: int = 0
    pool_off2: int = 0
    length2: int = 0
    imm: bytes = bytes(16)

    def bytes(self):
        return SQE.pack(self.op, self.flags, self.aux, self.sequence, self.handle, self.offset, self.length,
                        self.pool_off, self.pool_off2, self.length2, self.imm)


@dataclass
class Done:
    """A completion, and what was put in the ranges of its command."""

    sequence: int
    status: int
    done: int
    failed: int
    result: int
    result2: int
    a: bytes = b""
    b: bytes = b""
    c: bytes = b""

    @property
    def name(self):
        return name_of(self.status)


def stat_of(body):
    """The fields of a StatBody that cases look at."""
    names = ("ino generation dev rdev size blocks mode nlink uid gid blksize flags project tenant").split()
    values = STAT.unpack_from(body)
    fields = dict(zip(names, values))
    for at, which in enumerate(("atime", "mtime", "ctime", "btime")):
        fields[which] = values[14 + 3 * at: 16 + 3 * at]
    fields["version"] = values[26]
    fields["rest"] = body[STAT.size:]
    return fields


def set_attr(mask, mode=0, uid=0, gid=0, size=0, atime=(0, 0), mtime=(0, 0)):
    """A SetAttrBody."""
    return struct.pack("<IIIIQqIIqIIQ", mask, mode, uid, gid, size, *atime, 0, *mtime, 0, 0)


def listing(stream, attributes=False):
    """The entries of a directory stream: (ino, next cookie, type, name), with the status and body of each if asked."""
    entries, at = [], 0
    while at < len(stream):
        ino, cookie, reclen, kind, length = struct.unpack_from("<QQHBB", stream, at)
        body = at + 20
        extra = ()
        if attributes:
            status = struct.unpack_from("<i", stream, body)[0]
            extra = (status, stat_of(stream[body + 4: body + 260]))
            body += 260
        name = stream[body: body + length]
        padding = stream[body + length: at + reclen]
        if reclen % 8 or reclen < body + length - at or any(padding):
            raise ValueError(f"an entry of {reclen} bytes for the name {name!r}")
        entries.append((ino, cookie, kind, name, *extra))
        at += reclen
    return entries
