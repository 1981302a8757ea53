"""A device over an image: what survives, and what the end of a device looks like to its clients."""

import errno
import os
import unittest

import weldfs

from rig import image


class Survival(unittest.TestCase):
    def test_what_was_durable_is_there_after_a_kill(self):
        path = image(self)
        device = weldfs.Device(path)
        self.addCleanup(lambda: device._child.poll() is None and device.kill())
        fs = device.client()
        with fs.open("/log", "ab") as log:
            for number in range(20):
                log.append_checksum_write(b"record %02d" % number, durable=True)
            device.kill()
            with self.assertRaises(OSError) as caught:
                log.append_checksum_write(b"too late")
            self.assertIn(caught.exception.errno, (errno.EIO, errno.ENODEV))
        with weldfs.Device(path) as again, again.client() as fs2, fs2.open("/log", "rb") as log:
            self.assertEqual(log.stat().size, 20 * 13)
            for number in range(20):
                self.assertEqual(log.read_checksum_verify(9, number * 13), b"record %02d" % number)

    def test_a_client_reconnects_to_a_device_that_was_restarted(self):
        path = image(self)
        socket = f"{path}.sock"
        first = weldfs.Device(path)
        os.symlink(first.socket, socket)
        fs = weldfs.Client(socket, durable=True)
        fs.write_bytes("/f", b"kept")
        first.stop()
        with self.assertRaises(OSError):
            fs.read_bytes("/f")
        with weldfs.Device(path) as second:
            os.unlink(socket)
            os.symlink(second.socket, socket)
            fs.reconnect()
            self.assertEqual(fs.read_bytes("/f"), b"kept")
            fs.close()

    def test_a_device_that_cannot_start_says_why(self):
        with self.assertRaises(OSError) as caught:
            weldfs.Device("/nowhere/at/all.img")
        self.assertIn("/nowhere/at/all.img", str(caught.exception))
        with self.assertRaises(ValueError):
            weldfs.Device()
