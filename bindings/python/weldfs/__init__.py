"""WeldFS from Python: files that live inside the storage device, and fused operations on them.

    import weldfs

    with weldfs.Client("disk.img.sock") as fs, fs.open("/log", "ab") as log:
        log.append_checksum_write(b"one record", durable=True)     # one command: bytes, CRC-32C, persistent

A client attaches to a device that `weldfs serve` runs; `weldfs.Device` starts one for a program of its own. Every
failure is an OSError with errno, message and file name.
"""

from ._library import ENVIRONMENT, library_path, version
from .client import Client, Entry, Info, Space, Stat
from .device import Device
from .errors import ChecksumError, ProgramError
from .file import END, File
from .program import Key, Outcome, Program
from .transaction import Transaction
from .virtual import VirtFile, VirtRange, VirtSpec, text_params

__all__ = [
    "END",
    "ENVIRONMENT",
    "ChecksumError",
    "Client",
    "Device",
    "Entry",
    "File",
    "Info",
    "Key",
    "Outcome",
    "Program",
    "ProgramError",
    "Space",
    "Stat",
    "Transaction",
    "VirtFile",
    "VirtRange",
    "VirtSpec",
    "library_path",
    "text_params",
    "version",
]
__version__ = "0.1.0"
