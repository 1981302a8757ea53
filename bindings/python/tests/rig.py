"""What the tests have in common: a device in memory, or over an image."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import weldfs


class InMemory(unittest.TestCase):
    """A device for the class, a client for each test, and nothing left in the root from the test before."""

    @classmethod
    def setUpClass(cls):
        cls.device = weldfs.Device(ram="64M")
        cls.addClassCleanup(cls.device.stop)

    def setUp(self):
        self.fs = self.device.client()
        self.addCleanup(self.fs.close)
        for entry in list(self.fs.scandir("/")):
            (self.fs.rmtree if entry.stat.is_dir() else self.fs.unlink)(entry.path)


class Forged:
    """The library, but for what is in directories: the names and the errors given, as a device over a damaged or a
    forged image might have let them pass. `below`: only in directories of this name."""

    def __init__(self, fs, entries, below=None):
        self._lib, self._entries, self._below, self._left = fs._lib, entries, below, None
        fs._lib = self

    def __getattr__(self, name):
        return getattr(self._lib, name)

    def weldfs_opendir(self, client, path, directory):
        forged = self._below is None or path == self._below
        self._left = iter(self._entries) if forged else None
        return self._lib.weldfs_opendir(client, path, directory)

    def weldfs_readdir(self, directory, entry):
        return self._lib.weldfs_readdir(directory, entry) if self._left is None else self._next(entry._obj)

    def weldfs_readdir_plus(self, directory, entry, stat, error):
        if self._left is None:
            return self._lib.weldfs_readdir_plus(directory, entry, stat, error)
        return self._next(entry._obj, stat._obj, error._obj)

    def _next(self, entry, stat=None, error=None):
        given = next(self._left, None)
        if given is None:
            return 0
        entry.name = given[0]
        if stat is not None:
            stat.mode, error.value = 0 if given[1] else 0o100644, -given[1]
        return 1


def image(case, size="64M"):
    """A fresh image that goes with the test."""
    folder = tempfile.TemporaryDirectory(prefix="weldfs-test-")
    case.addCleanup(folder.cleanup)
    path = Path(folder.name) / "disk.img"
    program = os.environ.get("WELDFS_PROGRAM", "weldfs")
    subprocess.run([program, "mkfs", path, "--size", size], check=True, stdout=subprocess.DEVNULL)
    return path
