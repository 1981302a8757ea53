"""A device process of a program's own."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from .client import Client

#: Names the `weldfs` program, before PATH.
PROGRAM = "WELDFS_PROGRAM"


class Device:
    """Starts `weldfs serve` over `image` (made by `weldfs mkfs`), or over fresh memory of `ram` bytes, say "64M", which
    is gone at the end. For tests and for programs that want no shared device; a `with` stops it cleanly.

    It ends with `stop`, or when this object is collected. A parent that is killed leaves it running.
    """

    def __init__(self, image=None, ram=None, program=None, arguments=(), timeout=60.0):
        if (image is None) == (ram is None):
            raise ValueError("a device is over an image, or over memory (ram=SIZE)")
        self.program = os.fspath(program or os.environ.get(PROGRAM) or shutil.which("weldfs") or "weldfs")
        self._folder = tempfile.TemporaryDirectory(prefix="weldfs-")
        self.socket = str(Path(self._folder.name) / "device.sock")
        self._log = open(Path(self._folder.name) / "log", "w+", encoding="utf-8", errors="replace")
        what = ["--ram", str(ram)] if image is None else [os.fspath(image)]
        command = [self.program, "serve", *what, "--socket", self.socket, *arguments]
        self._child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._log
        )
        try:
            self._wait(timeout)
        except BaseException:
            self.kill()
            raise

    def _wait(self, timeout):
        end = time.monotonic() + timeout
        while True:
            try:
                Client(self.socket).close()
                return
            except OSError as error:
                if self._child.poll() is not None:
                    raise OSError(f"the device ended with {self._child.returncode}: {self._said()}") from error
                if time.monotonic() > end:
                    raise TimeoutError(f"the device did not answer in {timeout} s") from error
            time.sleep(0.005)

    def _said(self):
        self._log.seek(0)
        return self._log.read().strip()

    @property
    def pid(self):
        """The device's process."""
        return self._child.pid

    def client(self, **options):
        """A new attachment."""
        return Client(self.socket, **options)

    def stop(self):
        """SIGTERM, and waits: the device writes a checkpoint and leaves the image clean. OSError if it did not."""
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
        code, said = self._child.wait(), self._said()
        self._tidy()
        if code != 0:
            raise OSError(f"the device ended with {code}: {said}")

    def kill(self):
        """SIGKILL: what a crash of the device is."""
        self._child.kill()
        self._child.wait()
        self._tidy()

    def _tidy(self):
        self._log.close()
        self._folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if not self._log.closed:
            if kind is None:
                self.stop()
            else:
                self.kill()

    def __del__(self):
        if getattr(self, "_child", None) is not None and self._child.poll() is None:
            self._child.terminate()
