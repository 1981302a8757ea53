"""What only the device has: checksummed appends, counters, atomic replacement, transactions, programs."""

import errno
import os
import threading

import weldfs

from rig import InMemory


def crc32c(data):
    """By its definition, bit by bit."""
    crc = 0xFFFF_FFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F6_3B78 if crc & 1 else 0)
    return crc ^ 0xFFFF_FFFF


class Fused(InMemory):
    def test_a_checksummed_record_is_found_damaged(self):
        with self.fs.open("/log", "w+b") as log:
            first = log.append_checksum_write(b"one record", durable=True)
            second = log.append_checksum_write(b"another")
            self.assertEqual(first, (0, crc32c(b"one record")))
            self.assertEqual(second, (14, crc32c(b"another")))
            self.assertEqual(log.read_checksum_verify(10, 0), b"one record")
            self.assertEqual(log.verify(7, 14), crc32c(b"another"))
            self.assertEqual(log.checksum(0, 10), (10, crc32c(b"one record")))
            log.pwrite(b"X", 3)
            with self.assertRaises(weldfs.ChecksumError) as caught:
                log.read_checksum_verify(10, 0)
            self.assertEqual((caught.exception.errno, caught.exception.filename), (errno.EBADMSG, "/log"))
            with self.assertRaises(OSError) as caught:
                log.verify(100, 14)
            self.assertEqual(caught.exception.errno, errno.ENODATA)

    def test_what_does_not_match_its_checksum_is_not_written(self):
        with self.fs.open("/log", "w+b") as log:
            self.assertEqual(log.pwrite_verified(b"one", crc32c(b"one"), durable=True), 0)
            self.assertEqual(log.pwrite_verified(b"two", crc32c(b"two")), 3)
            for at in (weldfs.END, 0):
                with self.assertRaises(weldfs.ChecksumError) as caught:
                    log.pwrite_verified(b"off", crc32c(b"one"), at)
                self.assertEqual((caught.exception.errno, caught.exception.filename), (errno.EBADMSG, "/log"))
            self.assertEqual(log.pwrite_verified(b"T", crc32c(b"T"), 3), 3)
            self.assertEqual(log.pread(100, 0), b"oneTwo")

    def test_hints_go_along_with_commands(self):
        def counts():
            total = self.fs.stats()["total"]
            return [total[name] for name in ("prioritized", "lives")]

        with self.fs.open("/hinted", "w+b") as file:
            start = counts()
            file.write(b"plain")
            file.set_hints(priority="low", life="short")
            file.write(b"both")
            file.set_hints(life="extreme")
            file.append(b"life")
            file.set_hints(priority="high")
            self.assertEqual(file.pread(5, 0), b"plain")
            file.set_hints()
            file.pread(5, 0)
            with self.fs.transaction(durable=True, priority="medium", life="long") as change:
                change.write(file, b"PLAIN", 0)
            self.assertEqual([now - then for now, then in zip(counts(), start)], [3, 3])
            for wrong in ({"priority": "urgent"}, {"life": 1}, {"priority": []}):
                with self.assertRaises(ValueError):
                    file.set_hints(**wrong)
                with self.assertRaises(ValueError):
                    self.fs.transaction(**wrong)

    def test_a_checksum_is_computed_where_it_is_asked_for(self):
        def counts():
            total = self.fs.stats()["total"]
            return [total[name] for name in ("slot_packets", "slot_fallbacks")]

        def moved(before):
            return [now - then for now, then in zip(counts(), before)]

        data, records = bytes(range(256)) * 20, []
        with self.fs.open("/log", "w+b") as log:
            for place, packets in ((None, 0), ("device", 0), ("host", 0), ("slot", 1), ("slot-or-core", 1)):
                before = counts()
                offset, crc = log.append_checksum_write(data, placement=place)
                records.append(log.pread(len(data) + 4, offset))
                self.assertEqual((crc, moved(before)), (crc32c(data), [packets, 0]), place)
                self.assertEqual(log.read_checksum_verify(len(data), offset, placement=place), data)
                self.assertEqual(log.verify(len(data), offset, placement=place), crc)
                self.assertEqual(moved(before), [3 * packets, 0], place)
            self.assertEqual(set(records), {data + crc32c(data).to_bytes(4, "little")})
            log.pwrite(b"X", 3)
            with self.assertRaises(weldfs.ChecksumError):
                log.verify(len(data), 0, placement="slot")
            with self.assertRaises(ValueError):
                log.verify(len(data), 0, placement="fpga")
        before = counts()
        text = "open /log w; append @IN; crc32{} @IN -> c; close"
        done = self.fs.exec(text.format("c"), {"IN": b"123456789"}, results=("c",), placement="slot")
        self.assertEqual((done["c"], moved(before)), (0xE306_9283, [1, 0]))
        with self.assertRaises(weldfs.ProgramError) as caught:
            self.fs.exec(text.format(""), {"IN": b"123456789"}, results=("c",), placement="slot")
        self.assertEqual(caught.exception.errno, errno.EOPNOTSUPP)
        done = self.fs.exec(text.format(""), {"IN": b"123456789"}, results=("c",), placement="slot-or-core")
        self.assertEqual((done["c"], moved(before)), (0xCBF4_3926, [1, 1]))

    def test_a_counter_is_atomic(self):
        self.fs.write_bytes("/count", bytes(8))
        with self.fs.open("/count", "r+b") as file:
            threads = [
                threading.Thread(target=lambda: [file.fetch_add(0, 1, durable=False) for _ in range(100)])
                for _ in range(4)
            ]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            self.assertEqual(file.fetch_add(0, -400), 400)
            self.assertEqual(file.pread(8, 0), bytes(8))

    def test_atomic_replace_is_a_new_file_under_the_old_name(self):
        self.fs.atomic_replace("/f", b"old")
        before = self.fs.stat("/f")
        self.fs.atomic_replace("/f", b"the new content")
        self.assertEqual(self.fs.read_bytes("/f"), b"the new content")
        self.assertNotEqual((before.st_ino, before.generation), (self.fs.stat("/f").st_ino, self.fs.stat("/f").generation))
        self.assertEqual(self.fs.listdir("/"), ["f"])

    def test_a_log_is_put_aside_when_it_would_become_too_long(self):
        self.assertEqual(self.fs.append_and_rotate("/log", b"first ", "/log.1", 12), (0, False))
        self.assertEqual(self.fs.append_and_rotate("/log", b"second", "/log.1", 12, durable=True), (6, False))
        self.assertEqual(self.fs.append_and_rotate("/log", b"third", "/log.1", 12), (0, True))
        self.assertEqual((self.fs.read_bytes("/log"), self.fs.read_bytes("/log.1")), (b"third", b"first second"))
        with self.assertRaises(FileNotFoundError):
            self.fs.append_and_rotate("/none/log", b"x", "/none/log.1", 12)

    def test_a_transaction_happens_as_a_whole(self):
        self.fs.write_bytes("/a", b"aaaa")
        self.fs.write_bytes("/b", b"bbbb")
        with self.fs.open("/a", "r+b") as a, self.fs.open("/b", "r+b") as b:
            with self.assertRaises(RuntimeError), self.fs.transaction() as txn:
                txn.write(a, b"XX", 0)
                raise RuntimeError("changed my mind")
            self.assertEqual(self.fs.read_bytes("/a"), b"aaaa")
            with self.fs.transaction(durable=True) as txn:
                txn.write(a, b"XX", 0)
                txn.write(b, b"YY")
                self.assertEqual(self.fs.read_bytes("/a"), b"aaaa", "not visible before the commit")
            with self.assertRaises(ValueError):
                txn.write(a, b"", 0)
            self.assertEqual((self.fs.read_bytes("/a"), self.fs.read_bytes("/b")), (b"XXaa", b"bbbbYY"))
            self.fs.multi_write([(a, b"1", 0), (b, b"2", weldfs.END)], durable=True)
        self.assertEqual((self.fs.read_bytes("/a"), self.fs.read_bytes("/b")), (b"1Xaa", b"bbbbYY2"))

    def test_copies_stay_in_the_device(self):
        self.fs.write_bytes("/from", b"0123456789" * 1000)
        with self.fs.open("/from", "rb") as source, self.fs.open("/to", "wb") as target:
            before = self.fs.stats()["session"]["payload_bytes_out"]
            self.assertEqual(source.copy_range(5, 100, target, 0), 100)
            self.assertEqual(self.fs.stats()["session"]["payload_bytes_out"], before)
        self.assertEqual(self.fs.read_bytes("/to"), (b"0123456789" * 11)[5:105])


class Programs(InMemory):
    def test_a_program_takes_bytes_gives_bytes_and_reports_registers(self):
        self.fs.write_bytes("/f", b"0123456789")
        outcome = self.fs.exec(
            "open /f rw; read 2 4 -> @OUT; append @IN crc32c -> c; size -> s; close",
            {"@IN": b"tail", "OUT": 4},
            results=("c", "s"),
        )
        self.assertEqual(outcome["OUT"], b"2345")
        self.assertEqual(outcome.values, {"c": crc32c(b"tail"), "s": 14})
        self.assertEqual(self.fs.read_bytes("/f"), b"0123456789tail")

    def test_outputs_are_as_long_as_what_was_read(self):
        self.fs.write_bytes("/f", b"0123456789")
        read = lambda text, **more: self.fs.exec(text, {"OUT": 64}, **more)
        self.assertEqual(read("open /f r; read 0 64 -> @OUT; close")["OUT"], b"0123456789")
        self.assertEqual(read("open /f r; read 7 64 -> a; give a -> @OUT; close")["OUT"], b"789")
        self.assertEqual(read("open /f r; read 50 64 -> @OUT; close")["OUT"], b"")
        outcome = read("open /f r; read 6 64 -> @OUT; size -> s; close", results=("s",))
        self.assertEqual((outcome["OUT"], outcome.values), (b"6789", {"s": 10}))
        # Counted by the text itself; and no result left to count in.
        both = "open /f r; read 6 64 -> @OUT count -> n; size -> s; close"
        self.assertEqual(read(both, results=("n", "s"))["OUT"], b"6789")
        self.assertEqual(read(both, results=("s", "s"))["OUT"], b"6789" + bytes(60))

    def test_a_failed_guard_leaves_nothing_and_says_which_step(self):
        self.fs.write_bytes("/f", b"abc")
        with self.assertRaises(weldfs.ProgramError) as caught:
            self.fs.exec('open /f rw; append "xyz"; size -> s; if s == 3 else fail ECANCELED; close')
        self.assertEqual((caught.exception.errno, caught.exception.step), (errno.ECANCELED, 4))
        self.assertEqual(self.fs.read_bytes("/f"), b"abc")

    def test_text_that_is_no_program_is_refused_with_the_reason(self):
        with self.assertRaises(weldfs.ProgramError) as caught:
            self.fs.exec("open /f rw; frobnicate")
        self.assertIn("frobnicate", str(caught.exception))
        with self.assertRaises(weldfs.ProgramError):
            self.fs.exec("open /f rw; close", results=("nothing",))
        with self.assertRaises(ValueError):
            self.fs.exec("open /f rw; close", results=("a", "b", "c"))

    def test_a_program_runs_any_number_of_times(self):
        self.fs.write_bytes("/f", b"")
        with self.fs.program("open /f rw; append @IN; close", {"IN": 4}) as program:
            self.assertIn("write f0 end @p0", program.text())
            for word in (b"eins", b"zwei", b"drei"):
                program.run(self.fs, {"IN": word})
            with self.assertRaises(ValueError):
                program.run(self.fs)
            with self.assertRaises(OSError):
                program.run(self.fs, {"IN": b"five!"})
        self.assertEqual(self.fs.read_bytes("/f"), b"einszweidrei")

    def test_a_key_encrypts_and_is_forgotten(self):
        self.fs.write_bytes("/f", b"secret")
        with self.fs.key("gcm256", os.urandom(32)) as key:
            self.fs.exec(
                "open /f rw; read 0 6 -> a; seal a -> b key k; write 0 b; close", {"k": key}
            )
            sealed = self.fs.read_bytes("/f")
            self.assertNotIn(b"secret", sealed)
            outcome = self.fs.exec(
                f"open /f r; read 0 {len(sealed)} -> a; unseal a -> b key k; give b -> @OUT; close",
                {"k": key, "OUT": 6},
            )
            self.assertEqual(outcome["OUT"], b"secret")
        with self.assertRaises(ValueError):
            self.fs.key("rot13", b"")
