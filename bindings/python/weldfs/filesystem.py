"""fsspec: `fsspec.open("weldfs:///data/a.csv", socket="disk.img.sock")`, and with it pandas, dask, zarr and others."""

import io
import os

from fsspec.spec import AbstractFileSystem

from .client import Client

#: The device's socket where no storage option says it.
SOCKET = "WELDFS_SOCKET"


def _passes_over(error):
    if not isinstance(error, (FileNotFoundError, NotADirectoryError, PermissionError)):
        raise error


class WeldFileSystem(AbstractFileSystem):
    """A device's files under weldfs:// URLs. Storage options: `socket` (else the environment's WELDFS_SOCKET), and
    `durable` (None, True, False) for every write. Copies and moves happen inside the device."""

    protocol = "weldfs"
    root_marker = "/"

    def __init__(self, socket=None, durable=None, **options):
        super().__init__(socket=socket, durable=durable, **options)
        socket = socket or os.environ.get(SOCKET)
        if not socket:
            raise ValueError(f"which device? Give socket=PATH as a storage option, or set {SOCKET}")
        self.client = Client(socket, durable)

    @classmethod
    def _strip_protocol(cls, path):
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = os.fspath(path)
        for start in ("weldfs://", "weldfs:"):
            if path.startswith(start):
                path = path[len(start) :]
                break
        parts = [part for part in path.split("/") if part not in ("", ".")]
        return "/" + "/".join(parts)

    @property
    def fsid(self):
        return f"weldfs_{self.client.info().uuid}"

    def _fact(self, path, stat):
        kind = "directory" if stat.is_dir() else "file" if stat.is_file() else "link" if stat.is_symlink() else "other"
        fact = {"name": path, "size": stat.st_size, "type": kind, "mode": stat.st_mode, "ino": stat.st_ino}
        fact.update(uid=stat.st_uid, gid=stat.st_gid, nlink=stat.st_nlink, mtime=stat.st_mtime)
        fact["created"], fact["islink"] = stat.st_birthtime, stat.is_symlink()
        return fact

    def info(self, path, **_):
        path = self._strip_protocol(path)
        link = self.client.stat(path, follow_symlinks=False)
        if not link.is_symlink():
            return self._fact(path, link)
        try:
            fact = self._fact(path, self.client.stat(path))
        except FileNotFoundError:
            fact = self._fact(path, link)
        fact.update(islink=True, destination=self.client.readlink(path))
        return fact

    def ls(self, path, detail=True, **_):
        path = self._strip_protocol(path)
        if not self.client.stat(path).is_dir():
            facts = [self.info(path)]
        else:
            facts = [
                self.info(entry.path) if entry.stat.is_symlink() else self._fact(entry.path, entry.stat)
                for entry in self.client.scandir(path)
            ]
            facts.sort(key=lambda fact: fact["name"])
        return facts if detail else [fact["name"] for fact in facts]

    def walk(self, path, maxdepth=None, topdown=True, on_error=None, above=None, **options):
        """fsspec's, which passes over every folder that cannot be listed, unless `on_error` says otherwise. Here only
        those that are gone or not the caller's to see: `get`, `find` and `du` go by it, and a copy that lacks a damaged
        folder should not look whole."""
        on_error = on_error or above or _passes_over
        # fsspec asks for the folders below with the other options alone: what holds above is to hold there, too.
        return super().walk(path, maxdepth=maxdepth, topdown=topdown, on_error=on_error, above=on_error, **options)

    def exists(self, path, **_):
        return self.client.exists(self._strip_protocol(path))

    def mkdir(self, path, create_parents=True, **_):
        path = self._strip_protocol(path)
        if create_parents:
            self.client.makedirs(self._parent(path), exist_ok=True)
        self.client.mkdir(path)

    def makedirs(self, path, exist_ok=False):
        self.client.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path):
        self.client.rmdir(self._strip_protocol(path))

    def rm_file(self, path):
        self.client.unlink(self._strip_protocol(path))

    _rm = rm_file

    def rm(self, path, recursive=False, maxdepth=None):
        for one in [path] if isinstance(path, (str, os.PathLike)) else path:
            one = self._strip_protocol(one)
            if self.client.stat(one, follow_symlinks=False).is_dir():
                if not recursive:
                    raise IsADirectoryError(f"{one} is a directory: recursive=True removes it")
                self.client.rmtree(one)
            else:
                self.client.unlink(one)

    def cp_file(self, path1, path2, **_):
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.client.stat(path1).is_dir():
            self.mkdirs(path2, exist_ok=True)
            return
        with self.client.open(path1, "rb") as source, self.client.open(path2, "wb") as target:
            at, size = 0, source.stat().size
            while at < size:
                copied = source.copy_range(at, size - at, target, at)
                if copied == 0:
                    return  # it was truncated meanwhile
                at += copied

    def mv(self, path1, path2, recursive=False, maxdepth=None, **_):
        self.client.rename(self._strip_protocol(path1), self._strip_protocol(path2))

    def created(self, path):
        return self._time(self.client.stat(self._strip_protocol(path)).st_birthtime)

    def modified(self, path):
        return self._time(self.client.stat(self._strip_protocol(path)).st_mtime)

    @staticmethod
    def _time(seconds):
        import datetime

        return datetime.datetime.fromtimestamp(seconds, tz=datetime.timezone.utc)

    def cat_file(self, path, start=None, end=None, **_):
        path = self._strip_protocol(path)
        if (start or 0) < 0 or (end or 0) < 0:
            size = self.client.stat(path).size
            start = size + start if start is not None and start < 0 else start
            end = size + end if end is not None and end < 0 else end
        start = start or 0
        return self.client.read_bytes(path, None if end is None else max(end - start, 0), start)

    def pipe_file(self, path, value, mode="overwrite", **_):
        path = self._strip_protocol(path)
        if mode == "create" and self.client.exists(path):
            raise FileExistsError(path)
        self.client.write_bytes(path, value)

    def _open(self, path, mode="rb", block_size=None, autocommit=True, cache_options=None, **_):
        if not autocommit:
            raise NotImplementedError("fsspec's transactions: use weldfs.Client.transaction")
        file = self.client.open(path, mode if "b" in mode else mode + "b")
        if file.readable() and file.writable():
            return io.BufferedRandom(file)
        return (io.BufferedReader if file.readable() else io.BufferedWriter)(file)
