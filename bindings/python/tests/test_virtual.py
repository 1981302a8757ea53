"""Virtual files and kernels, against a device in memory."""

import errno
import io
import struct
import tempfile
from pathlib import Path

import weldfs

from rig import InMemory

#: A chain of two kernels that every device has: a package that is its manifest alone.
TWICE = """
name = "twice"
id = "0123456789abcdef0123456789abcde0"
version = "1.0.0"
licence = "Apache-2.0"
about = "Runs of runs"
clock_mhz = 250
cycles_per_flit = 1.0
region = { lut = 130000, ff = 30000, bram = 0, dsp = 0 }
[backend.model]
chain = [{ kernel = "rle", params = [] }, { kernel = "rle" }]
"""


class Virtual(InMemory):
    def fails(self, number, call, *arguments, **named):
        with self.assertRaises(OSError) as caught:
            call(*arguments, **named)
        self.assertEqual(caught.exception.errno, number, caught.exception)
        return caught.exception

    def test_one_is_made_read_looked_at_and_removed(self):
        self.fs.write_bytes("/log", b"one error\nnone\nanother error\n")
        self.fs.virt_register("/errors", "grep", "/log", weldfs.text_params("error"), mode=0o640)
        hits = struct.pack("<4I", 0, 4, 2, 8)
        self.assertEqual(self.fs.read_bytes("/errors"), hits)
        with self.fs.open("/errors", "rb") as file:
            self.assertEqual((file.read(3), file.readall()), (hits[:3], hits[3:]))
        with self.fs.vopen("/errors", wait=False) as file:
            self.assertEqual((file.read(5), file.read(), file.read()), (hits[:5], hits[5:], b""))
            file.send_params(*weldfs.text_params("none"))
            file.rewind()
            self.assertEqual(file.read(4), struct.pack("<I", 1))
            self.fails(errno.EBUSY, file.send_params, 1)
            self.fails(errno.ETXTBSY, self.fs.truncate, "/log", 0)
            self.assertEqual([self.fs.peek_kernel("grep", port) for port in (0, 1)], [3, 1])
        self.assertIn("closed", repr(file))
        with self.assertRaises(ValueError):
            file.read(1)
        stat = self.fs.stat("/errors")
        self.assertEqual((stat.size, stat.st_mode & 0o777, stat.is_file()), (0, 0o640, True))
        spec = self.fs.virt_spec("/errors")
        self.assertEqual((spec.kernel, spec.params), ("grep", weldfs.text_params("error")))
        self.assertEqual((spec.ranges, spec.write), ((weldfs.VirtRange("/log"),), False))
        self.fails(errno.EINVAL, self.fs.virt_spec, "/log")
        self.assertEqual(self.fails(errno.EINVAL, self.fs.virt_remove, "/log").filename, "/log")
        self.fs.virt_remove("/errors")
        self.assertTrue(self.fs.exists("/log") and not self.fs.exists("/errors"))

    def test_a_stream_is_a_file_of_io(self):
        text = b"".join(b"line %d\n" % number for number in range(50_000))
        self.fs.write_bytes("/text", text)
        self.fs.virt_register("/same", "pass-through", "/text")
        with self.fs.vopen("/same") as file:
            self.assertEqual(io.BufferedReader(file, 1 << 16).readlines(), text.splitlines(keepends=True))
        self.assertEqual(self.fs.read_bytes("/same"), text)
        with self.fs.open("/same") as file:
            self.assertEqual(sum(1 for _ in file), 50_000)

    def test_parts_of_files_are_one_stream(self):
        self.fs.write_bytes("/a", b"0123456789")
        self.fs.write_bytes("/b", b"abcdef")
        parts = [("/a", 2, 3), weldfs.VirtRange("/b", 4), ("/b", 0, 2), "/a"]
        self.fs.virt_register("/v", "pass-through", parts)
        self.assertEqual(self.fs.read_bytes("/v"), b"234" b"ef" b"ab" b"0123456789")
        ranges = (("/a", 2, 3), ("/b", 4, None), ("/b", 0, 2), ("/a", 0, None))
        self.assertEqual(self.fs.virt_spec("/v").ranges, tuple(weldfs.VirtRange(*r) for r in ranges))

    def test_what_is_written_goes_through_the_kernel(self):
        self.fs.write_bytes("/out", b"something longer")
        self.fs.virt_register("/in", "rle", "/out", write=True, truncate=True)
        with self.fs.vopen("/in", "wb") as file:
            self.assertEqual(file.write(b"\3a\2b"), 4)
            self.assertEqual((file.sync(), self.fs.read_bytes("/out")), (5, b"aaabb"))
            file.write(b"\1c")
            self.fails(errno.EBADF, file.read, 1)
        self.assertEqual((file.written, self.fs.read_bytes("/out")), (6, b"aaabbc"))
        for pairs in (b"\4d", b"\1e" * (1 << 20)):
            self.fs.write_bytes("/in", pairs)
            self.assertEqual(self.fs.read_bytes("/out"), b"dddd" if len(pairs) == 2 else b"e" * (1 << 20))
        self.fails(errno.EPERM, self.fs.vopen, "/in", "rb")
        with self.assertRaises(ValueError):
            self.fs.vopen("/in", "ab")
        # What the close finds wrong is an error of the close.
        self.fs.virt_register("/short", "rle", ("/out", 0, 1), write=True)
        file = self.fs.vopen("/short", "wb")
        file.write(b"\2x")
        self.fails(errno.EFBIG, file.close)
        self.assertTrue(file.closed)

    def test_who_does_not_wait_for_a_slot_is_told_that_there_is_none(self):
        files = []
        for name in ("/a", "/b", "/c"):
            self.fs.write_bytes(name, b"")
            self.fs.virt_register(name + ".rle", "rle", name, write=True)
            files.append(self.fs.vopen(name + ".rle", "wb", wait=False))
        # Of three slots streams that are written may have two.
        first, second, third = files
        first.write(b"\1x")
        second.write(b"\1x")
        self.fails(errno.EBUSY, third.write, b"\1x")
        first.close()
        self.assertEqual(third.write(b"\1x"), 2)
        for file in (second, third):
            file.close()

    def test_a_session_that_is_gone_is_an_error_of_what_was_to_be_written_only(self):
        self.fs.write_bytes("/f", b"bytes")
        self.fs.virt_register("/out", "pass-through", "/f")
        self.fs.virt_register("/in", "rle", "/f", write=True)
        reader, writer = self.fs.vopen("/out"), self.fs.vopen("/in", "wb")
        self.assertEqual((reader.read(2), writer.write(b"\1x")), (b"by", 2))
        self.fs.reconnect()
        reader.close()
        self.fails(errno.EBADF, writer.close)
        self.assertTrue(reader.closed and writer.closed)

    def test_those_of_a_tree_are_listed(self):
        self.fs.makedirs("/d/e")
        self.fs.write_bytes("/d/empty", b"")
        for path in ("/d/v", "/d/e/w"):
            self.fs.virt_register(path, "pass-through", "/d/empty")
        self.fs.symlink("v", "/d/link")
        found = dict(self.fs.virt_list("/d"))
        self.assertEqual(set(found), {"/d/v", "/d/e/w"})
        self.assertEqual(found["/d/e/w"].ranges, (weldfs.VirtRange("/d/empty"),))
        self.assertEqual([path for path, _ in self.fs.virt_list("/d/link")], ["/d/link"])
        self.fails(errno.EINVAL, self.fs.virt_remove, "/d/link")
        [(path, why)] = self.fs.virt_list("/none")
        self.assertEqual((path, why.errno, why.filename), ("/none", errno.ENOENT, "/none"))

    def test_what_is_no_spec_is_refused(self):
        for kernel, ranges, named in (
            ("Grep", "/a", {}),
            ("grep", [], {}),
            ("grep", "a", {}),
            ("grep", ("/a", 0, 0), {}),
            ("rle", ["/a", "/b"], {"write": True}),
            ("rle", "/a", {"truncate": True}),
        ):
            self.fails(errno.EINVAL, self.fs.virt_register, "/v", kernel, ranges, **named)
        self.fails(errno.E2BIG, self.fs.virt_register, "/v", "grep", "/a", range(2000))
        with self.assertRaises(OverflowError):
            self.fs.virt_register("/v", "grep", "/a", [1 << 32])
        self.fs.virt_register("/v", "no-such-kernel", "/a")
        self.fails(errno.ENOENT, self.fs.read_bytes, "/v")
        self.fs.virt_register("/w", "knn", "/a", [-1])
        self.assertEqual(self.fs.virt_spec("/w").params, (0xFFFF_FFFF,))

    def test_a_kernel_is_loaded_used_and_unloaded(self):
        def known():
            return {kernel["name"]: kernel["active"] for kernel in self.fs.kernels()["kernels"]}

        self.assertTrue(known()["grep"])
        with tempfile.TemporaryDirectory(prefix="weldfs-kernel-") as folder:
            self.fails(errno.ENOENT, self.fs.load_kernel, folder)
            (Path(folder) / "kernel.toml").write_text(TWICE)
            self.assertEqual(self.fs.load_kernel(folder), "twice")
            self.assertTrue(known()["twice"])
            self.fs.deactivate_kernel("twice")
            self.fs.unload_kernel("twice")
            self.assertEqual(self.fs.load_kernel(folder, activate=False), "twice")
        self.fs.write_bytes("/pairs", b"\1\2\1z")
        self.fs.virt_register("/v", "twice", "/pairs")
        self.assertFalse(known()["twice"])
        self.fails(errno.ENODEV, self.fs.vopen, "/v")
        self.fs.activate_kernel("twice")
        self.fs.prefer_kernel("twice", "model")
        self.fails(errno.EINVAL, self.fs.prefer_kernel, "twice", "rtl")
        with self.fs.vopen("/v") as file:
            self.assertEqual(file.read(1), b"z")
            self.fails(errno.EBUSY, self.fs.unload_kernel, "twice")
        self.fs.deactivate_kernel("twice")
        self.fs.unload_kernel("twice")
        self.assertNotIn("twice", known())
        self.fails(errno.ENOENT, self.fs.unload_kernel, "twice")
        self.fails(errno.EPERM, self.fs.unload_kernel, "grep")
