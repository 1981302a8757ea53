"""Files, names and whole files, against a device in memory."""

import errno
import threading
import zlib

import weldfs

from rig import Forged, InMemory


class Files(InMemory):
    def test_text_and_binary_modes_are_those_of_open(self):
        with self.fs.open("/a", "w") as file:
            file.write("eins\nzwei\n")
        with self.fs.open("/a") as file:
            self.assertEqual(file.readlines(), ["eins\n", "zwei\n"])
        with self.fs.open("/a", "ab") as file:
            self.assertEqual(file.write(b"3"), 1)
        with self.fs.open("/a", "rb") as file:
            self.assertEqual(file.read(), b"eins\nzwei\n3")
            self.assertEqual(file.read(1), b"")
            file.seek(-1, 2)
            self.assertEqual((file.tell(), file.read(5)), (10, b"3"))
        with self.fs.open("/a", "r+b") as file:
            file.truncate(4)
            self.assertEqual(file.pread(100, 1), b"ins")
        with self.assertRaises(FileExistsError):
            self.fs.open("/a", "xb")
        for wrong in ("", "rw", "rbt", "q", "r++"):
            with self.assertRaises(ValueError):
                self.fs.open("/a", wrong)

    def test_a_long_file_comes_back_whole(self):
        data = bytes(range(256)) * 12_000
        with self.fs.open("/long", "wb") as file:
            self.assertEqual(file.write(data), len(data))
        self.assertEqual(self.fs.read_bytes("/long"), data)
        self.assertEqual(self.fs.read_bytes("/long", 5, 300), data[300:305])
        self.fs.write_bytes("/longer", data + b"x")
        self.assertEqual(self.fs.read_bytes("/longer"), data + b"x")
        self.assertEqual(self.fs.stat("/longer").size, len(data) + 1)

    def test_errors_are_oserrors_with_errno_and_name(self):
        with self.assertRaises(FileNotFoundError) as caught:
            self.fs.open("/nothing/there")
        error = caught.exception
        self.assertEqual((error.errno, error.filename), (errno.ENOENT, "/nothing/there"))
        self.assertIn("weldfs_open", error.strerror)
        self.fs.mkdir("/d")
        self.fs.write_bytes("/d/f", b"")
        with self.assertRaises(OSError) as caught:
            self.fs.rmdir("/d")
        self.assertEqual(caught.exception.errno, errno.ENOTEMPTY)
        with self.assertRaises(IsADirectoryError):
            self.fs.open("/d", "wb")
        with self.fs.open("/d/f", "rb") as file:
            with self.assertRaises(OSError) as caught:
                file.write(b"x")
            self.assertEqual(caught.exception.errno, errno.EBADF)
        with self.assertRaises(ValueError):
            file.read(1)
        with self.assertRaises(ValueError):
            self.fs.stat("/a\0b")

    def test_no_device_is_an_oserror_that_names_the_socket(self):
        with self.assertRaises(FileNotFoundError) as caught:
            weldfs.Client("/nowhere/at/all.sock")
        self.assertEqual(caught.exception.filename, "/nowhere/at/all.sock")

    def test_names(self):
        self.fs.makedirs("/a/b/c")
        self.fs.makedirs("/a/b/c", exist_ok=True)
        with self.assertRaises(FileExistsError):
            self.fs.makedirs("/a/b/c")
        self.fs.write_bytes("/a/f", b"12345", permissions=0o640)
        self.fs.link("/a/f", "/a/g")
        self.fs.symlink("f", "/a/s")
        self.assertEqual(self.fs.readlink("/a/s"), "f")
        self.assertEqual(sorted(self.fs.listdir("/a")), ["b", "f", "g", "s"])
        entries = {entry.name: entry for entry in self.fs.scandir("/a")}
        self.assertTrue(entries["b"].stat.is_dir() and entries["s"].stat.is_symlink())
        self.assertEqual((entries["f"].stat.st_nlink, entries["f"].path), (2, "/a/f"))
        self.assertEqual(self.fs.stat("/a/s").st_ino, self.fs.stat("/a/g").st_ino)
        self.assertNotEqual(self.fs.stat("/a/s", follow_symlinks=False).st_ino, self.fs.stat("/a/g").st_ino)
        self.fs.rename("/a/f", "/a/h")
        with self.assertRaises(FileExistsError):
            self.fs.rename("/a/h", "/a/g", replace=False)
        self.fs.chmod("/a/h", 0o600)
        self.assertEqual(self.fs.stat("/a/h").st_mode & 0o777, 0o600)
        self.fs.truncate("/a/h", 2)
        self.assertEqual(self.fs.read_bytes("/a/h"), b"12")
        self.assertFalse(self.fs.exists("/a/s"))
        walked = {folder: (sorted(dirs), sorted(files)) for folder, dirs, files in self.fs.walk("/a")}
        self.assertEqual(walked["/a"], (["b"], ["g", "h", "s"]))
        self.assertIn("/a/b/c", walked)
        with self.assertRaises(ValueError):
            self.fs.rmtree("/.")
        self.fs.rmtree("/a")
        self.assertEqual(self.fs.listdir("/"), [])

    def test_a_directory_of_many_names_is_listed_whole(self):
        self.fs.mkdir("/many")
        names = {f"n{number:04}" for number in range(700)}
        for name in names:
            self.fs.append_bytes(f"/many/{name}", b"x", durable=False)
        self.assertEqual(set(self.fs.listdir("/many")), names)
        self.assertEqual(len(list(self.fs.scandir("/many"))), 700)

    def test_a_listed_name_that_leads_elsewhere_is_an_error(self):
        for name in (b"", b".", b"..", b"a/b", b"/x", b"../../x", b"x/"):
            with self.subTest(name=name):
                lib = self.fs._lib
                Forged(self.fs, [(b"sound", 0), (name, 0), (b"after", 0)])
                seen = []
                for listing in (self.fs.scandir, self.fs.walk, self.fs.listdir):
                    with self.assertRaises(OSError) as caught:
                        seen += [entry for entry in listing("/")]
                    self.assertEqual((caught.exception.errno, caught.exception.filename), (errno.EIO, "/"))
                self.fs._lib = lib
        # What only looks like one of those is a name.
        odd = [b"...", b"..a", b". ", b"\xff", b"a\\b"]
        Forged(self.fs, [(name, 0) for name in odd])
        self.assertEqual([name.encode("utf-8", "surrogateescape") for name in self.fs.listdir("/")], odd)

    def test_an_entry_whose_attributes_are_damaged_is_an_error_and_only_one_that_is_gone_is_left_out(self):
        Forged(self.fs, [(b"a", 0), (b"gone", errno.ENOENT), (b"b", 0)])
        self.assertEqual([entry.path for entry in self.fs.scandir("/")], ["/a", "/b"])
        self.assertEqual(list(self.fs.walk("/")), [("/", [], ["a", "b"])])
        for number in (errno.EIO, errno.EACCES, errno.ENOMEM):
            self.fs._lib = self.fs._lib._lib
            Forged(self.fs, [(b"a", 0), (b"bad", number), (b"b", 0)])
            for listing in (self.fs.scandir, self.fs.walk):
                with self.assertRaises(OSError) as caught:
                    list(listing("/"))
                self.assertEqual((caught.exception.errno, caught.exception.filename), (number, "/bad"))
            # Names alone have no attributes.
            self.assertEqual(self.fs.listdir("/"), ["a", "bad", "b"])

    def test_threads_share_a_file_and_appends_do_not_mix(self):
        with self.fs.open("/shared", "ab") as file:

            def work(number):
                for _ in range(50):
                    file.append(bytes([number]) * 100, durable=False)

            threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
        content = self.fs.read_bytes("/shared")
        self.assertEqual(len(content), 4 * 50 * 100)
        for at in range(0, len(content), 100):
            self.assertEqual(len(set(content[at : at + 100])), 1)

    def test_facts_of_the_device(self):
        info, space = self.fs.info(), self.fs.space()
        self.assertEqual(info.payload_max, 1 << 20)
        self.assertFalse(info.power_safe or info.read_only)
        self.assertTrue(0 < space.free <= space.total and space.name_max == 255)
        self.assertGreater(self.fs.stats()["total"]["commands"], 0)

    def test_buffers_of_all_kinds_are_taken(self):
        for data in (b"abc", bytearray(b"abc"), memoryview(b"xabcx")[1:4], memoryview(bytearray(b"abc"))):
            self.fs.write_bytes("/buffer", data)
            self.assertEqual(self.fs.read_bytes("/buffer"), b"abc")
        self.fs.write_bytes("/empty", b"")
        self.assertEqual(self.fs.read_bytes("/empty"), b"")
        into = bytearray(5)
        with self.fs.open("/buffer", "rb") as file:
            self.assertEqual((file.readinto(into), bytes(into)), (3, b"abc\0\0"))

    def test_zlib_reads_through_a_file(self):
        self.fs.write_bytes("/z", zlib.compress(b"content" * 1000))
        with self.fs.open("/z", "rb") as file:
            self.assertEqual(zlib.decompress(file.readall()), b"content" * 1000)
