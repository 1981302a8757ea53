"""Writes to any files that happen together or not at all."""

import ctypes

from . import _library
from ._memory import Bytes
from .errors import check, durability, hints
from .file import END


class Transaction:
    """Begun by Client.transaction; a `with` commits at its end, and aborts when an exception leaves it.

    Nothing of it is visible before the commit. At most 16 files, 256 writes, 4 MiB in all.
    """

    def __init__(self, client, durable=None, priority=None, life=None):
        self._client, self._lib = client, _library.load()
        self._how = durability(durable) | hints(priority, life)
        self._handle = ctypes.c_void_p()
        check(self._lib.weldfs_txn_begin(client._use(), ctypes.byref(self._handle)))

    def _use(self):
        if self._handle is None:
            raise ValueError("the transaction is over")
        return self._handle

    def write(self, file, data, offset=END):
        """Adds a write; the default offset is the file's end as it is at the commit."""
        memory = Bytes(data)
        check(
            self._lib.weldfs_txn_write(self._use(), file._use(), memory.pointer, memory.len, offset), file.name
        )

    def commit(self):
        """Makes all of it happen; gives the bytes written."""
        handle = self._use()
        self._handle = None
        return check(self._lib.weldfs_txn_commit(handle, self._how))

    def abort(self):
        """Forgets all of it. Nothing when it is over already."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            check(self._lib.weldfs_txn_abort(handle))

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None:
            self.abort()
        elif self._handle is not None:
            self.commit()
