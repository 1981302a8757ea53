"""An attachment to a device: names, whole files, programs."""

import ctypes
import errno
import io
import json
import os
import stat as modes
from dataclasses import dataclass

from . import _library, virtual
from ._memory import Bytes, Room
from .errors import check, durability, failure, path_bytes
from .file import END, File
from .program import Key, Program
from .transaction import Transaction

_EXCHANGE, _NOREPLACE = 2, 1
_KINDS = {4: modes.S_IFDIR, 8: modes.S_IFREG, 10: modes.S_IFLNK}


class Stat:
    """What stat says, with the names of os.stat_result; `version` goes up with every change."""

    __slots__ = (
        "st_mode st_ino st_dev st_nlink st_uid st_gid st_size st_blocks st_blksize st_rdev "
        "st_atime_ns st_mtime_ns st_ctime_ns st_birthtime_ns generation version"
    ).split()

    def __init__(self, raw):
        def ns(time):
            return time.sec * 1_000_000_000 + time.nsec

        self.st_mode, self.st_ino, self.st_dev, self.st_nlink = raw.mode, raw.ino, raw.dev, raw.nlink
        self.st_uid, self.st_gid, self.st_size, self.st_blocks = raw.uid, raw.gid, raw.bytes, raw.blocks
        self.st_blksize, self.st_rdev = raw.blksize, raw.rdev
        self.st_atime_ns, self.st_mtime_ns = ns(raw.atime), ns(raw.mtime)
        self.st_ctime_ns, self.st_birthtime_ns = ns(raw.ctime), ns(raw.btime)
        self.generation, self.version = raw.generation, raw.version

    size = property(lambda self: self.st_size)
    st_atime = property(lambda self: self.st_atime_ns / 1e9)
    st_mtime = property(lambda self: self.st_mtime_ns / 1e9)
    st_ctime = property(lambda self: self.st_ctime_ns / 1e9)
    st_birthtime = property(lambda self: self.st_birthtime_ns / 1e9)

    def is_dir(self):
        return modes.S_ISDIR(self.st_mode)

    def is_file(self):
        return modes.S_ISREG(self.st_mode)

    def is_symlink(self):
        return modes.S_ISLNK(self.st_mode)

    def __repr__(self):
        return f"<weldfs.Stat {modes.filemode(self.st_mode)} {self.st_size} bytes, inode {self.st_ino}>"


@dataclass(frozen=True)
class Entry:
    """A name in a directory, with the attributes of what it names (of a symbolic link itself)."""

    name: str
    path: str
    stat: Stat


@dataclass(frozen=True)
class Info:
    """What the device said at attach. `durability` is what a call gets that does not choose."""

    session: int
    uuid: str
    label: str
    profile: str
    payload_max: int
    durability: str
    power_safe: bool
    read_only: bool


@dataclass(frozen=True)
class Space:
    """Space of the file system, bytes, and inodes still possible."""

    block: int
    total: int
    free: int
    available: int
    files_free: int
    name_max: int


def _flags(mode):
    """O_ bits, and whether it is text, of a mode as open() takes it."""
    kinds = [c for c in mode if c in "rwax"]
    if len(kinds) != 1 or len(set(mode)) != len(mode) or set(mode) - set("rwax+bt") or {"b", "t"} <= set(mode):
        raise ValueError(f"not a mode: {mode!r}")
    kind, both = kinds[0], "+" in mode
    access = os.O_RDWR if both else os.O_RDONLY if kind == "r" else os.O_WRONLY
    more = {"r": 0, "w": os.O_CREAT | os.O_TRUNC, "a": os.O_CREAT | os.O_APPEND, "x": os.O_CREAT | os.O_EXCL}
    return access | more[kind], "b" not in mode


def _sound(raw, path):
    """A name as it was listed. Who copies a tree joins it to a path of the host, and one that leads elsewhere (a forged
    image has it, say) would take the copy out of its target: OSError EIO, whatever a device lets pass."""
    if raw in (b"", b".", b"..") or b"/" in raw or b"\0" in raw:
        raise OSError(errno.EIO, f"an entry is called {raw!r}, which is no name", os.fspath(path))
    return os.fsdecode(raw)


class Client:
    """An attachment to the device that listens at `socket` (IMAGE.sock, unless `weldfs serve --socket` said another).

    `durable` is what every change gets that does not say: None (the device's default), True or False. Any number of
    threads may use it. A `with` gives it back. After the device died every call fails with ENODEV until `reconnect`.
    """

    def __init__(self, socket, durable=None, token=None, umask=None):
        self._lib, self._handle = _library.load(), None
        self.socket = os.fspath(socket)
        options = _library.Options(size=ctypes.sizeof(_library.Options), durability=durability(durable))
        if token is not None:
            options.token = token.encode()
        if umask is not None:
            options.flags, options.umask = 1, umask
        handle = ctypes.c_void_p()
        code = self._lib.weldfs_attach(path_bytes(socket), ctypes.byref(options), ctypes.byref(handle))
        if code < 0:
            raise failure(code, socket)
        self._handle = handle

    def _use(self):
        if self._handle is None:
            raise ValueError("the client was closed")
        return self._handle

    def close(self):
        """Gives the attachment back; the session ends when its files are closed, too."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            self._lib.weldfs_detach(handle)

    def reconnect(self):
        """Attaches again, to a device that was restarted for example. Files opened before fail with EBADF."""
        check(self._lib.weldfs_reconnect(self._use()), self.socket)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return f"<weldfs.Client {self.socket!r}{'' if self._handle else ' closed'}>"

    # The device.

    def info(self):
        """Label, default durability, whether that survives a power cut, largest payload."""
        raw = _library.CInfo()
        check(self._lib.weldfs_get_info(self._use(), ctypes.byref(raw)))
        default = {1: "volatile", 2: "durable"}.get(raw.durability, "default")
        text = (raw.label.decode("utf-8", "replace"), raw.profile.decode("utf-8", "replace"))
        uuid = bytes(raw.uuid).hex()
        return Info(raw.session, uuid, *text, raw.payload_max, default, bool(raw.power_safe), bool(raw.read_only))

    def space(self):
        """Bytes and inodes, free and in all."""
        raw = _library.CSpace()
        check(self._lib.weldfs_get_space(self._use(), ctypes.byref(raw)))
        block = raw.block_bytes
        sizes = (raw.blocks * block, raw.blocks_free * block, raw.blocks_avail * block)
        return Space(block, *sizes, raw.files_free, raw.name_max)

    def stats(self):
        """The device's counters, as `weldfs stats --json` shows them."""
        return self._json(self._lib.weldfs_stats_json)

    def _json(self, call):
        size = 1 << 16
        while True:
            room = ctypes.create_string_buffer(size)
            needed = check(call(self._use(), room, size))
            if needed < size:
                return json.loads(room.raw[:needed])
            size = needed + 4096

    def sync(self):
        """Everything completed before, by any client, is persistent on return."""
        check(self._lib.weldfs_sync(self._use()))

    # Names.

    def open(self, path, mode="r", durable=None, permissions=0o666, encoding=None, errors=None, newline=None):
        """Opens a file, with the modes of Python's own open().

        A binary mode gives a weldfs.File: unbuffered, each call one command. A text mode gives io.TextIOWrapper over
        it. `durable` is for every write to the file; `permissions`, less the umask, for a new one.
        """
        flags, text = _flags(mode)
        handle = ctypes.c_void_p()
        code = self._lib.weldfs_open(self._use(), path_bytes(path), flags, permissions, ctypes.byref(handle))
        check(code, path)
        access = flags & os.O_ACCMODE
        file = File(self, handle, path, mode, access != os.O_WRONLY, access != os.O_RDONLY, durable)
        if not text:
            return file
        both, reads = access == os.O_RDWR, access == os.O_RDONLY
        buffered = (io.BufferedRandom if both else io.BufferedReader if reads else io.BufferedWriter)(file)
        return io.TextIOWrapper(buffered, encoding or "utf-8", errors, newline)

    def stat(self, path, follow_symlinks=True):
        """What stat says; with follow_symlinks=False of a final symbolic link itself."""
        raw = _library.CStat()
        call = self._lib.weldfs_stat_path if follow_symlinks else self._lib.weldfs_lstat_path
        check(call(self._use(), path_bytes(path), ctypes.byref(raw)), path)
        return Stat(raw)

    def exists(self, path):
        """Whether there is something (a dangling symbolic link is nothing)."""
        try:
            self.stat(path)
            return True
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return False
            raise

    def listdir(self, path="/"):
        """Names in a directory, in the device's order, without . and .. ones."""
        return [name for name, _, _ in self._entries(path, plus=False)]

    def scandir(self, path="/"):
        """Entries with their attributes, many of them in one crossing. One that goes meanwhile is left out; one whose
        attributes cannot be had otherwise is an OSError."""
        folder = os.fsdecode(path).rstrip("/")
        for name, raw, error in self._entries(path, plus=True):
            where = f"{folder}/{name}"
            if error == -errno.ENOENT:
                continue
            if error != 0:
                # To leave it out would call a listing whole that is not, and so the copy made by it.
                raise OSError(-error, os.strerror(-error), where)
            yield Entry(name, where, Stat(raw))

    def _entries(self, path, plus):
        """(name, attributes, 0 or the negative errno of those)."""
        directory = ctypes.c_void_p()
        check(self._lib.weldfs_opendir(self._use(), path_bytes(path), ctypes.byref(directory)), path)
        try:
            entry, raw, error = _library.CEntry(), _library.CStat(), ctypes.c_int()
            where = (directory, ctypes.byref(entry), ctypes.byref(raw), ctypes.byref(error))
            while True:
                more = self._lib.weldfs_readdir_plus(*where) if plus else self._lib.weldfs_readdir(*where[:2])
                if not check(more, path):
                    return
                yield _sound(entry.name, path), raw, error.value
        finally:
            self._lib.weldfs_closedir(directory)

    def walk(self, top="/"):
        """(folder, names of folders, names of other things), parents first, as os.walk; links are not followed."""
        folders, others = [], []
        for entry in self.scandir(top):
            (folders if entry.stat.is_dir() else others).append(entry.name)
        yield os.fsdecode(top), folders, others
        for name in folders:
            yield from self.walk(f"{os.fsdecode(top).rstrip('/')}/{name}")

    def mkdir(self, path, mode=0o777):
        check(self._lib.weldfs_mkdir(self._use(), path_bytes(path), mode), path)

    def makedirs(self, path, mode=0o777, exist_ok=False):
        """The directory and those above it that are missing."""
        parts, at = [p for p in os.fsdecode(path).split("/") if p], ""
        for number, part in enumerate(parts):
            at, last = f"{at}/{part}", number + 1 == len(parts)
            try:
                self.mkdir(at, mode)
            except FileExistsError:
                if last and not (exist_ok and self.stat(at).is_dir()):
                    raise

    def rmdir(self, path):
        check(self._lib.weldfs_rmdir(self._use(), path_bytes(path)), path)

    def unlink(self, path):
        check(self._lib.weldfs_unlink(self._use(), path_bytes(path)), path)

    remove = unlink

    def rmtree(self, path):
        """A directory with all below it. ValueError for the root."""
        if not os.fsdecode(path).strip("/."):
            raise ValueError("refusing to remove the root")
        for entry in list(self.scandir(path)):
            (self.rmtree if entry.stat.is_dir() else self.unlink)(entry.path)
        self.rmdir(path)

    def rename(self, old, new, replace=True, exchange=False):
        """Atomic. `replace=False`: FileExistsError where `new` exists; `exchange`: both names change places."""
        flags = _EXCHANGE if exchange else 0 if replace else _NOREPLACE
        check(self._lib.weldfs_rename(self._use(), path_bytes(old), path_bytes(new), flags), old, new)

    def link(self, old, new):
        check(self._lib.weldfs_link(self._use(), path_bytes(old), path_bytes(new)), old, new)

    def symlink(self, target, path):
        check(self._lib.weldfs_symlink(self._use(), path_bytes(target), path_bytes(path)), path)

    def readlink(self, path):
        room = ctypes.create_string_buffer(4096)
        count = check(self._lib.weldfs_readlink(self._use(), path_bytes(path), room, len(room)), path)
        return os.fsdecode(room.raw[:count])

    def chmod(self, path, mode):
        check(self._lib.weldfs_chmod(self._use(), path_bytes(path), mode), path)

    def chown(self, path, uid=-1, gid=-1):
        """-1 leaves owner or group as it is; of a final symbolic link itself."""
        ids = (uid & 0xFFFF_FFFF, gid & 0xFFFF_FFFF)
        check(self._lib.weldfs_lchown(self._use(), path_bytes(path), *ids), path)

    def truncate(self, path, size):
        check(self._lib.weldfs_truncate(self._use(), path_bytes(path), size), path)

    # Whole files: one command up to the device's payload limit.

    def read_bytes(self, path, size=None, offset=0):
        """Opens, reads, closes. All of it for None, in several commands where it is longer than one carries."""
        limit = self.info().payload_max
        if size is not None and size <= limit:
            return self._read_once(path, size, offset)
        try:
            first = self._read_once(path, limit if size is None else min(limit, size), offset)
        except OSError as error:
            # A virtual file is a stream, and no command has all of it.
            if error.errno != errno.EOPNOTSUPP or size is not None or offset != 0:
                raise
            with self.vopen(path) as file:
                return file.readall()
        if len(first) < limit:
            return first
        with self.open(path, "rb") as file:
            file.seek(offset + len(first))
            return first + (file.readall() if size is None else file.read(size - len(first)))

    def _read_once(self, path, size, offset):
        room = Room(size)
        count = self._lib.weldfs_open_read_close(
            self._use(), path_bytes(path), os.O_RDONLY, room.pointer, room.len, offset
        )
        return room.bytes(check(count, path))

    def write_bytes(self, path, data, durable=None, permissions=0o666):
        """Creates or empties a file, writes, closes. Atomic up to the payload limit: all of it or the old content. What
        is written to a virtual file goes through its kernel, to the end of the stream."""
        try:
            self._write_whole(path, data, durable, permissions)
        except OSError as error:
            # No command has all of a stream, and where it is a virtual file's the size of the data does not matter.
            if error.errno != errno.EOPNOTSUPP:
                raise
            with self.vopen(path, "wb") as file:
                file.write(data)

    def _write_whole(self, path, data, durable, permissions):
        memory = Bytes(data)
        if memory.len > self.info().payload_max:
            with self.open(path, "wb", durable, permissions) as file:
                view, done = memoryview(data).cast("B"), 0
                while done < memory.len:
                    done += file.write(view[done:])
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        self._write_once(path, flags, permissions, memory, 0, durable)

    def append_bytes(self, path, data, durable=None, permissions=0o666):
        """Opens or creates a file, appends, closes, as one command; gives where the first byte went."""
        flags = os.O_WRONLY | os.O_CREAT
        return self._write_once(path, flags, permissions, Bytes(data), END, durable)

    def _write_once(self, path, flags, permissions, memory, offset, durable):
        written = _library.CWritten()
        code = self._lib.weldfs_open_write_close(
            self._use(),
            path_bytes(path),
            flags,
            permissions,
            memory.pointer,
            memory.len,
            offset,
            durability(durable),
            ctypes.byref(written),
        )
        check(code, path)
        return written.offset

    def atomic_replace(self, path, data, permissions=0o666):
        """Gives a file new content, durably and as a whole: after a crash the old content is there or the new."""
        memory = Bytes(data)
        check(
            self._lib.weldfs_atomic_replace(
                self._use(), path_bytes(path), None, permissions, memory.pointer, memory.len
            ),
            path,
        )

    def append_and_rotate(self, path, data, old, limit, permissions=0o666, durable=None):
        """Appends to a log by its name, as one command: if it would have more than `limit` bytes, it is renamed to
        `old` first. Returns where the bytes went, and whether it was renamed."""
        if limit < 0:
            raise ValueError("a limit is a number of bytes")
        memory, offset, rotated = Bytes(data), ctypes.c_uint64(), ctypes.c_int()
        check(
            self._lib.weldfs_append_and_rotate(
                self._use(),
                path_bytes(path),
                path_bytes(old),
                limit,
                permissions,
                memory.pointer,
                memory.len,
                durability(durable),
                ctypes.byref(offset),
                ctypes.byref(rotated),
            ),
            path,
        )
        return offset.value, bool(rotated.value)

    # Several files, and programs.

    def multi_write(self, writes, durable=None):
        """Writes to several files as one command, all or none: (file, bytes, offset) each, at most 16 in all."""
        memories = [(file, Bytes(data), offset) for file, data, offset in writes]
        items = (_library.CWriteItem * max(len(memories), 1))()
        for at, (file, memory, offset) in enumerate(memories):
            items[at] = _library.CWriteItem(file._use(), memory.pointer, memory.len, offset)
        check(self._lib.weldfs_multi_write(items, len(memories), durability(durable)))

    def transaction(self, durable=None, priority=None, life=None):
        """Writes to up to 16 files that happen together; a `with` commits at its end. Hints as of File.set_hints."""
        return Transaction(self, durable, priority, life)

    def key(self, kind, data):
        """Gives the device a key: "xts128", "xts256", "gcm128" or "gcm256"."""
        return Key(self, kind, data)

    def program(self, text, ranges=None, results=()):
        """Checks a fused program, to be run any number of times."""
        return Program(text, ranges, results)

    def exec(self, text, ranges=None, results=(), durable=None, step_by_step=False, placement=None):
        """Runs a fused program once, as one command. `ranges`: for @NAME bytes to take, or the length of a room to
        fill; for `key NAME` a Key. `results`: at most two registers. The rest is Program.run's. Gives an
        Outcome."""
        ranges = {name.lstrip("@"): value for name, value in (ranges or {}).items()}
        memory = {name: value for name, value in ranges.items() if not isinstance(value, Key)}
        with Program(text, ranges, results) as program:
            return program.run(self, memory, durable, step_by_step, placement)

    # Virtual files.

    def virt_register(self, path, kernel, ranges, params=(), write=False, truncate=False, mode=0o644):
        """Makes a virtual file: reading it gives what `kernel` makes of `ranges`, in one of the drive's slots. With
        `write`, what is written to it goes through the kernel into its one range, and with `truncate` the real file
        ends where that ended.

        `ranges`: a path, a (path, offset, length), a VirtRange, or a list of these; `params`: the kernel's 32-bit
        words (see weldfs.text_params); `mode`: permission bits, less the umask. The real files are looked for when it
        is opened, with the rights of who opens it.
        """
        spec = virtual.VirtSpec(kernel, virtual.ranges_of(ranges), tuple(params), write, truncate)
        virtual.register(self, path, spec, mode)

    def virt_spec(self, path):
        """The VirtSpec of a virtual file. OSError EINVAL when it is none."""
        return virtual.describe(self, path)

    def virt_remove(self, path):
        """Removes a virtual file, and nothing else; its real files stay."""
        check(self._lib.weldfs_virt_remove(self._use(), path_bytes(path)), path)

    def virt_list(self, top="/"):
        """(path, VirtSpec) of the virtual files of a tree; (path, OSError) for what cannot be looked at."""
        return virtual.listed(self, top)

    def vopen(self, path, mode="rb", wait=True):
        """Opens a virtual file, "rb" or "wb" as its spec has it: a VirtFile. While no slot is free its calls wait, or
        with wait=False are OSError EBUSY."""
        return virtual.opened(self, path, mode, wait)

    # Kernels. Only root and the user that runs the device may change them.

    def kernels(self):
        """The device's slots, kernels and what tenants used of them, as `weldfs kernel ls --json` shows them."""
        return self._json(self._lib.weldfs_kernels_json)

    def load_kernel(self, folder, activate=True):
        """Loads a kernel's package, a folder of the host that the device can read; gives the kernel's name."""
        room = ctypes.create_string_buffer(64)
        where = os.path.abspath(os.fspath(folder))
        check(self._lib.weldfs_kernel_load(self._use(), path_bytes(where), room, len(room)), folder)
        name = room.value.decode()
        if activate:
            self.activate_kernel(name)
        return name

    def activate_kernel(self, name):
        """From now on it can be used."""
        check(self._lib.weldfs_kernel_activate(self._use(), path_bytes(name)), name)

    def deactivate_kernel(self, name):
        """From now on it cannot be used. OSError EBUSY: something uses it."""
        check(self._lib.weldfs_kernel_deactivate(self._use(), path_bytes(name)), name)

    def unload_kernel(self, name):
        """Takes one that was loaded, and is not active, out of the list. OSError EBUSY: it is active."""
        check(self._lib.weldfs_kernel_unload(self._use(), path_bytes(name)), name)

    def prefer_kernel(self, name, backend):
        """Which back-end ("model", "rtl", "hls", "xrt") runs where none is named."""
        check(self._lib.weldfs_kernel_prefer(self._use(), path_bytes(name), path_bytes(backend)), name)

    def peek_kernel(self, name, port):
        """The value of a debug port, by its number, of a kernel that is in a slot."""
        value = ctypes.c_uint32()
        check(self._lib.weldfs_kernel_peek(self._use(), path_bytes(name), port, ctypes.byref(value)), name)
        return value.value
