"""An open file."""

import ctypes
import errno
import fcntl
import io
import os

from . import _library
from ._memory import Bytes, Room
from .errors import check, durability, hints
from .errors import placement as placed

#: An offset that means the end of the file: an append, atomic against every other writer.
END = 0xFFFF_FFFF_FFFF_FFFF
#: A checksum's form, as the header's WELDFS_CRC32C.
_CRC32C = 0
_ORDERS = {"little": 0, "big": 16}


class File(io.RawIOBase):
    """An open file: Python's raw binary file, unbuffered, so that each call is one command to the device, and besides
    that the device's own operations on it. Any number of threads may use it at the same time.

    `durable` of a method is None (what the file was opened with, else the client's durability), False (visible when
    the call returns, persistent with the next sync, the next durable change, or within 5 s) or True (persistent when
    it returns).
    """

    def __init__(self, client, handle, path, mode, readable, writable, durable=None):
        super().__init__()
        self._client, self._handle, self._lib = client, handle, _library.load()
        self.name, self.mode = path, mode
        self._readable, self._writable, self._durable = readable, writable, durable

    def _use(self):
        if self.closed:
            raise ValueError("I/O operation on closed file")
        return self._handle

    def _how(self, durable):
        return durability(self._durable if durable is None else durable)

    # What io wants.

    def readable(self):
        return self._readable

    def writable(self):
        return self._writable

    def seekable(self):
        return True

    def readinto(self, buffer):
        room = Room(buffer)
        return check(self._lib.weldfs_read(self._use(), room.pointer, room.len), self.name)

    def read(self, size=-1):
        """Bytes from the file's offset on; all of them for -1. Fewer than asked for only at the end of the file."""
        if size is None or size < 0:
            return self.readall()
        room = Room(size)
        return room.bytes(check(self._lib.weldfs_read(self._use(), room.pointer, room.len), self.name))

    def readall(self):
        # A virtual file says size 0, and has more.
        size = self.stat().size
        left = max(size - self.tell(), 0) + 1 if size else 1 << 20
        parts = []
        while part := self.read(min(left, 1 << 24)):
            parts.append(part)
        return b"".join(parts)

    def write(self, data):
        """Writes at the file's offset (its end in mode "a"). One atomic command up to the device's payload limit."""
        memory = Bytes(data)
        return check(
            self._lib.weldfs_write(self._use(), memory.pointer, memory.len, self._how(None)), self.name
        )

    def seek(self, offset, whence=os.SEEK_SET):
        return check(self._lib.weldfs_lseek(self._use(), offset, whence), self.name)

    def tell(self):
        return self.seek(0, os.SEEK_CUR)

    def truncate(self, size=None):
        size = self.tell() if size is None else size
        if size < 0:
            raise ValueError("a negative size")
        check(self._lib.weldfs_ftruncate(self._use(), size), self.name)
        return size

    def close(self):
        """Gives the file back. Nothing becomes persistent by it: that is what `durable` and `sync` are for. That the
        device or the session is gone is no error here, for then so is the file."""
        if not self.closed:
            super().close()
            handle, self._handle = self._handle, None
            result = self._lib.weldfs_close(handle)
            if -result not in (errno.ENODEV, errno.EBADF):
                check(result, self.name)

    def __repr__(self):
        state = "closed " if self.closed else ""
        return f"<{state}weldfs.File {self.name!r} mode={self.mode!r}>"

    # What files of a host have under other names.

    def pread(self, size, offset):
        """`size` bytes at `offset`; fewer only at the end of the file."""
        room = Room(size)
        return room.bytes(check(self._lib.weldfs_pread(self._use(), room.pointer, room.len, offset), self.name))

    def pwrite(self, data, offset, durable=None):
        """Writes at `offset`, or with END appends; gives where the first byte went."""
        memory, where = Bytes(data), ctypes.c_uint64()
        check(
            self._lib.weldfs_pwrite(
                self._use(), memory.pointer, memory.len, offset, self._how(durable), ctypes.byref(where)
            ),
            self.name,
        )
        return where.value

    def append(self, data, durable=None):
        """Appends, atomically against every other writer; gives where the first byte went."""
        return self.pwrite(data, END, durable)

    def sync(self, data_only=False):
        """Content and attributes (or with `data_only` content and size) are persistent on return."""
        call = self._lib.weldfs_fdatasync if data_only else self._lib.weldfs_fsync
        check(call(self._use()), self.name)

    def stat(self):
        """What stat says of it."""
        from .client import Stat

        raw = _library.CStat()
        check(self._lib.weldfs_fstat(self._use(), ctypes.byref(raw)), self.name)
        return Stat(raw)

    def set_hints(self, priority=None, life=None):
        """Chooses the hints of later calls through this object; they change no result. `priority` ("low", "medium",
        None, "high") is among the commands of the same tenant, which gets as much in all; `life` (None, "short",
        "medium", "long", "extreme") is how long what is written will stay, as fcntl's F_SET_RW_HINT says it."""
        check(self._lib.weldfs_set_hints(self._use(), hints(priority, life)), self.name)

    def lock(self, kind=fcntl.LOCK_EX):
        """flock without waiting: fcntl.LOCK_SH, LOCK_EX or LOCK_UN. BlockingIOError when another file holds it."""
        check(self._lib.weldfs_flock(self._use(), kind), self.name)

    # What only the device has: each is one command.

    def append_checksum_write(self, data, durable=None, placement=None):
        """Appends `data` and right behind it its CRC-32C (4 bytes, little-endian). Gives (offset, checksum).

        `placement`, here and below, is where the checksum is computed: None (as the device chooses), "device" (a core),
        "slot" (an FPGA slot; OSError EIO when it is lost, ENODEV when there is no kernel for it), "slot-or-core" (a
        core does what no slot can), or "host" (this process, before or after plain commands).
        """
        memory, offset, sum_ = Bytes(data), ctypes.c_uint64(), ctypes.c_uint32()
        handle, how, into = self._use(), self._how(durable), (ctypes.byref(offset), ctypes.byref(sum_))
        if placement is None:
            result = self._lib.weldfs_append_checksum_write(handle, memory.pointer, memory.len, how, *into)
        else:
            how |= placed(placement)
            result = self._lib.weldfs_append_checksum(handle, _CRC32C, memory.pointer, memory.len, how, *into)
        check(result, self.name)
        return offset.value, sum_.value

    def pwrite_verified(self, data, checksum, offset=END, durable=None):
        """Writes at `offset`, or with END appends, if the CRC-32C of what the device stores is `checksum`: else
        ChecksumError, and nothing has happened. Gives where the first byte went."""
        memory, where = Bytes(data), ctypes.c_uint64()
        check(
            self._lib.weldfs_pwrite_verified(
                self._use(), memory.pointer, memory.len, offset, checksum, self._how(durable), ctypes.byref(where)
            ),
            self.name,
        )
        return where.value

    def _verify(self, pointer, size, offset, placement):
        sum_ = ctypes.c_uint32()
        handle, into = self._use(), ctypes.byref(sum_)
        if placement is None:
            result = self._lib.weldfs_read_checksum_verify(handle, pointer, size, offset, into)
        else:
            how = placed(placement)
            result = self._lib.weldfs_verify_checksum(handle, offset, _CRC32C, pointer, size, how, into)
        check(result, self.name)
        return sum_.value

    def read_checksum_verify(self, size, offset, placement=None):
        """The `size` bytes at `offset`, held by the device against the CRC-32C behind them.

        ChecksumError when they do not match; OSError ENODATA when the file ends too early.
        """
        room = Room(size)
        self._verify(room.pointer, size, offset, placement)
        return room.bytes(size)

    def verify(self, size, offset, placement=None):
        """As read_checksum_verify, but only the verdict crosses the link. Gives the checksum."""
        return self._verify(None, size, offset, placement)

    def checksum(self, offset=0, size=None):
        """CRC-32C of a range (to the end for None), summed up by the device. Gives (bytes there were, checksum)."""
        sum_ = ctypes.c_uint32()
        size = 0xFFFF_FFFF_FFFF_FFFF if size is None else size
        count = check(self._lib.weldfs_checksum_range(self._use(), offset, size, ctypes.byref(sum_)), self.name)
        return count, sum_.value

    def fetch_add(self, offset, by=1, width=8, order="little", durable=None):
        """Adds to the number of `width` bytes (1, 2, 4, 8) at `offset`, atomically; gives what it was."""
        before = ctypes.c_uint64()
        check(
            self._lib.weldfs_fetch_add(
                self._use(),
                offset,
                by & 0xFFFF_FFFF_FFFF_FFFF,
                width,
                _ORDERS[order],
                self._how(durable),
                ctypes.byref(before),
            ),
            self.name,
        )
        return before.value

    def copy_range(self, offset, size, to, at=END, durable=None):
        """Copies to another file of the same client inside the device; gives the bytes copied."""
        return check(
            self._lib.weldfs_copy_range(self._use(), offset, size, to._use(), at, self._how(durable)), self.name
        )
