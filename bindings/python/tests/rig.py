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


def image(case, size="64M"):
    """A fresh image that goes with the test."""
    folder = tempfile.TemporaryDirectory(prefix="weldfs-test-")
    case.addCleanup(folder.cleanup)
    path = Path(folder.name) / "disk.img"
    program = os.environ.get("WELDFS_PROGRAM", "weldfs")
    subprocess.run([program, "mkfs", path, "--size", size], check=True, stdout=subprocess.DEVNULL)
    return path
