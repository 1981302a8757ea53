"""Virtual files: names whose bytes a kernel makes in one of the drive's slots."""

import ctypes
import errno
import io
import os
from dataclasses import dataclass

from . import _library
from ._memory import Bytes, Room
from .errors import check, path_bytes

#: The length of a range that ends where its file ends when the virtual file is opened.
TO_END = 0xFFFF_FFFF_FFFF_FFFF
_WRITE, _TRUNCATE = 1, 2
_ROOM = 8192
#: Bytes of a read where all of a stream is asked for: its size is not known.
_PIECE = 1 << 20


@dataclass(frozen=True)
class VirtRange:
    """A part of a real file. `length` None: to the end that the file has when the virtual file is opened."""

    path: str
    offset: int = 0
    length: int = None


@dataclass(frozen=True)
class VirtSpec:
    """What a virtual file streams: a kernel with its parameters (32-bit words), and parts of real files.

    With `write`, what is written to the virtual file goes through the kernel into its one range; with `truncate`, too,
    the real file ends where that ended.
    """

    kernel: str
    ranges: tuple
    params: tuple = ()
    write: bool = False
    truncate: bool = False


def text_params(text):
    """A string (or bytes) as grep and others take it: its length in bytes, then the bytes, four to a word."""
    raw = os.fsencode(text)
    words = [int.from_bytes(raw[at : at + 4], "little") for at in range(0, len(raw), 4)]
    return (len(raw), *words)


def ranges_of(ranges):
    """VirtRanges of a path, a (path, offset, length), a VirtRange, or a list of these."""

    def one(given):
        if isinstance(given, VirtRange):
            return given
        return VirtRange(*given) if isinstance(given, tuple) else VirtRange(given)

    return tuple(one(given) for given in (ranges if isinstance(ranges, list) else [ranges]))


def words(params):
    """Parameters as the library takes them. OverflowError for what has no 32 bits; -1 is all of them."""
    for param in params:
        if not -(1 << 31) <= param < 1 << 32:
            raise OverflowError(f"a parameter has 32 bits, {param} has more")
    return (ctypes.c_uint32 * max(len(params), 1))(*(param & 0xFFFF_FFFF for param in params))


def register(client, path, spec, mode):
    """Makes one."""
    array = (_library.CVirtRange * max(len(spec.ranges), 1))()
    keep = [path_bytes(r.path) for r in spec.ranges]
    for at, r in enumerate(spec.ranges):
        array[at].path, array[at].offset = keep[at], r.offset
        array[at].length = TO_END if r.length is None else r.length
    params = tuple(spec.params)
    raw = _library.CVirtSpec(
        kernel=spec.kernel.encode(),
        params=words(params),
        param_count=len(params),
        ranges=array,
        range_count=len(spec.ranges),
        flags=(_WRITE if spec.write else 0) | (_TRUNCATE if spec.truncate else 0),
    )
    check(client._lib.weldfs_virt_register(client._use(), path_bytes(path), mode, ctypes.byref(raw)), path)


def _spec(raw):
    """A spec of the library's."""
    ranges = []
    for at in range(raw.range_count):
        r = raw.ranges[at]
        ranges.append(VirtRange(os.fsdecode(r.path), r.offset, None if r.length == TO_END else r.length))
    params = tuple(raw.params[at] for at in range(raw.param_count))
    return VirtSpec(
        raw.kernel.decode(), tuple(ranges), params, bool(raw.flags & _WRITE), bool(raw.flags & _TRUNCATE)
    )


def describe(client, path):
    """The spec of one."""
    raw, room = _library.CVirtSpec(), Room(_ROOM)
    code = client._lib.weldfs_virt_describe(
        client._use(), path_bytes(path), ctypes.byref(raw), room.pointer, room.len
    )
    check(code, path)
    return _spec(raw)


def listed(client, top):
    """(path, spec) of each in a tree; what cannot be looked at is (path, OSError)."""
    walk = ctypes.c_void_p()
    check(client._lib.weldfs_virt_list(client._use(), path_bytes(top), ctypes.byref(walk)), top)
    try:
        name, raw = ctypes.c_char_p(), _library.CVirtSpec()
        while True:
            more = client._lib.weldfs_virt_next(walk, ctypes.byref(name), ctypes.byref(raw))
            if more == 0:
                return
            path = None if name.value is None else os.fsdecode(name.value)
            if more > 0:
                yield path, _spec(raw)
                continue
            try:
                check(more, path)
            except OSError as error:
                if path is None:
                    raise
                yield path, error
    finally:
        client._lib.weldfs_virt_end(walk)


class VirtFile(io.RawIOBase):
    """An open virtual file: a stream, which gets one of the drive's slots with the first read or write.

    It is read to the end or written from the beginning on; where it ends is not known before. Any number of threads
    may use it, and take turns.
    """

    def __init__(self, client, handle, path, mode):
        super().__init__()
        self._handle, self._lib = handle, _library.load()
        self.name, self.mode = path, mode
        #: Bytes that had got to the real file at the last sync or close.
        self.written = 0

    def _use(self):
        if self.closed:
            raise ValueError("I/O operation on closed file")
        return self._handle

    def readable(self):
        return self.mode == "rb"

    def writable(self):
        return self.mode == "wb"

    def readinto(self, buffer):
        room = Room(buffer)
        return check(self._lib.weldfs_vread(self._use(), room.pointer, room.len), self.name)

    def read(self, size=-1):
        """The next bytes that the kernel makes, at most `size`: as many as there are without much delay; b"" at the
        end. All to the end for -1."""
        if size is None or size < 0:
            return self.readall()
        room = Room(size)
        return room.bytes(check(self._lib.weldfs_vread(self._use(), room.pointer, room.len), self.name))

    def readall(self):
        """All to the end."""
        parts = []
        while part := self.read(_PIECE):
            parts.append(part)
        return b"".join(parts)

    def write(self, data):
        """Hands bytes to the kernel, whose output goes to the real file."""
        memory = Bytes(data)
        return check(self._lib.weldfs_vwrite(self._use(), memory.pointer, memory.len), self.name)

    def sync(self):
        """Ends the packet: what the kernel makes of what was written is in the real file, and persistent. Gives the
        bytes that have got there since the open; of a file that is read 0."""
        self.written = check(self._lib.weldfs_vsync(self._use()), self.name)
        return self.written

    def rewind(self):
        """Begins to read anew: the real files are read again."""
        check(self._lib.weldfs_vrewind(self._use()), self.name)

    def send_params(self, *params):
        """Other parameters than the spec's, for the next stream. OSError EBUSY while one is under way."""
        check(self._lib.weldfs_send_params(self._use(), words(params), len(params)), self.name)

    def close(self):
        """Ends the packet as `sync` does, but for making it persistent, and closes; `written` says then how many bytes
        have got to the real file. That the device or the session is gone is an error only where something was to be
        written."""
        if not self.closed:
            super().close()
            handle, self._handle = self._handle, None
            result = self._lib.weldfs_vclose(handle)
            if result >= 0:
                self.written = result
            elif self.writable() or -result not in (errno.ENODEV, errno.EBADF):
                check(result, self.name)

    def __repr__(self):
        state = "closed " if self.closed else ""
        return f"<{state}weldfs.VirtFile {self.name!r} mode={self.mode!r}>"


def opened(client, path, mode, wait):
    """Opens one."""
    try:
        flags = {"rb": os.O_RDONLY, "wb": os.O_WRONLY}[mode]
    except KeyError:
        raise ValueError(f"a virtual file is opened 'rb' or 'wb', not {mode!r}") from None
    handle = ctypes.c_void_p()
    flags |= 0 if wait else os.O_NONBLOCK
    check(client._lib.weldfs_vopen(client._use(), path_bytes(path), flags, ctypes.byref(handle)), path)
    return VirtFile(client, handle, path, mode)
