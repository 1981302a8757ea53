"""weldfs:// through fsspec, which finds the package by its entry point."""

import errno
import tempfile
import unittest
from pathlib import Path

try:
    import fsspec
except ImportError:
    fsspec = None

import weldfs

from rig import Forged, InMemory


@unittest.skipIf(fsspec is None, "fsspec is not installed")
class Fsspec(InMemory):
    def setUp(self):
        super().setUp()
        self.spec = fsspec.filesystem("weldfs", socket=self.device.socket, skip_instance_cache=True)
        self.addCleanup(self.spec.client.close)

    def test_the_entry_point_is_found_and_a_url_opens(self):
        self.assertEqual(type(self.spec).__name__, "WeldFileSystem")
        with fsspec.open("weldfs:///a.txt", "w", socket=self.device.socket) as file:
            file.write("line one\nline two\n")
        with fsspec.open("weldfs:///a.txt", "r", socket=self.device.socket) as file:
            self.assertEqual(file.readline(), "line one\n")
        with fsspec.open("weldfs:///z.gz", "wb", compression="gzip", socket=self.device.socket) as file:
            file.write(b"x" * 10_000)
        with fsspec.open("weldfs:///z.gz", "rb", compression="infer", socket=self.device.socket) as file:
            self.assertEqual(file.read(), b"x" * 10_000)

    def test_listing_finding_and_globbing(self):
        self.spec.makedirs("/d/e")
        self.spec.pipe({"/d/1.csv": b"1", "/d/2.csv": b"22", "/d/e/3.csv": b"333"})
        self.assertEqual(self.spec.ls("weldfs:///d", detail=False), ["/d/1.csv", "/d/2.csv", "/d/e"])
        facts = {fact["name"]: fact for fact in self.spec.ls("/d")}
        self.assertEqual((facts["/d/2.csv"]["size"], facts["/d/e"]["type"]), (2, "directory"))
        self.assertEqual(sorted(self.spec.glob("/d/**/*.csv")), ["/d/1.csv", "/d/2.csv", "/d/e/3.csv"])
        self.assertEqual(self.spec.du("/d"), 6)
        self.assertTrue(self.spec.isfile("/d/1.csv") and self.spec.isdir("/d/e") and not self.spec.exists("/no"))
        with self.assertRaises(FileNotFoundError):
            self.spec.info("/no")
        self.assertEqual(self.spec.cat("/d/e/3.csv"), b"333")
        self.assertEqual(self.spec.cat_file("/d/e/3.csv", 1, 2), b"3")
        self.assertEqual(self.spec.cat_file("/d/2.csv", -1), b"2")

    def test_copy_move_and_remove(self):
        self.spec.pipe("/a", b"content" * 50_000)
        self.spec.cp("/a", "/b")
        self.spec.mv("/a", "/c")
        self.assertEqual(sorted(self.fs.listdir("/")), ["b", "c"])
        self.assertEqual(self.spec.cat("/b"), b"content" * 50_000)
        self.spec.mkdir("/d/e/f")
        with self.assertRaises(OSError):
            self.spec.rm("/d")
        self.spec.rm(["/d", "/b", "/c"], recursive=True)
        self.assertEqual(self.fs.listdir("/"), [])

    def test_a_file_reads_in_pieces_and_seeks(self):
        self.spec.pipe("/f", bytes(range(256)) * 1000)
        with self.spec.open("/f", "rb") as file:
            file.seek(255_990)
            self.assertEqual(file.read(), bytes(range(246, 256)))
            file.seek(1)
            self.assertEqual(file.read(2), b"\1\2")

    def test_a_device_must_be_named(self):
        with self.assertRaises(ValueError):
            fsspec.filesystem("weldfs", skip_instance_cache=True)

    def test_a_host_folder_goes_in_and_comes_out(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "in/sub").mkdir(parents=True)
            (Path(folder) / "in/sub/f").write_bytes(b"through")
            self.spec.put(f"{folder}/in", "/in", recursive=True)
            self.assertEqual(self.fs.read_bytes("/in/sub/f"), b"through")
            self.spec.get("/in", f"{folder}/out", recursive=True)
            self.assertEqual((Path(folder) / "out/sub/f").read_bytes(), b"through")

    def test_a_copy_that_cannot_be_whole_or_would_leave_its_target_fails(self):
        self.spec.makedirs("/in/d")
        self.spec.pipe({"/in/d/f": b"inside", "/in/g": b"beside"})
        client, lib = self.spec.client, self.spec.client._lib
        for entries in ([(b"f", 0), (b"..", 0)], [(b"f", 0), (b"x/../../../out", 0)], [(b"f", 0), (b"bad", errno.EIO)]):
            Forged(client, entries, below=b"/in/d")
            for ask in (self.spec.find, self.spec.du, lambda path: list(self.spec.walk(path))):
                with self.assertRaises(OSError) as caught:
                    ask("/in")
                self.assertEqual(caught.exception.errno, errno.EIO)
            with tempfile.TemporaryDirectory() as folder:
                with self.assertRaises(OSError):
                    self.spec.get("/in", f"{folder}/a/b/target", recursive=True)
                self.assertEqual([str(p) for p in Path(folder).rglob("*") if p.is_file()], [])
            # Who wants what there is says so, and what is gone is no error.
            self.assertEqual([folder for folder, _, _ in self.spec.walk("/in", on_error="omit")], ["/in"])
            client._lib = lib
        self.assertEqual((list(self.spec.walk("/nothing")), self.spec.find("/nothing")), ([], []))
        self.assertEqual(self.spec.find("/in"), ["/in/d/f", "/in/g"])
