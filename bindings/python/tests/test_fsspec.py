"""weldfs:// through fsspec, which finds the package by its entry point."""

import unittest

try:
    import fsspec
except ImportError:
    fsspec = None

import weldfs

from rig import InMemory


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
        import tempfile
        from pathlib import Path

        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "in/sub").mkdir(parents=True)
            (Path(folder) / "in/sub/f").write_bytes(b"through")
            self.spec.put(f"{folder}/in", "/in", recursive=True)
            self.assertEqual(self.fs.read_bytes("/in/sub/f"), b"through")
            self.spec.get("/in", f"{folder}/out", recursive=True)
            self.assertEqual((Path(folder) / "out/sub/f").read_bytes(), b"through")
