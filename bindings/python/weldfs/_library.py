"""The C library: where it is, its structures, its prototypes.

The structures are held against userlib/include/weldfs.h by tests/test_layout.py.
"""

import ctypes
import ctypes.util
import os
import shutil
from ctypes import (
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_int,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path

#: Names the library's file, before every other place.
ENVIRONMENT = "WELDFS_LIBRARY"
#: As installed, then as cargo leaves it in its target folder.
NAMES = ("libweldfs.so.0", "libweldfs.so", "libweldfs_c.so")


class Options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("client_id", c_uint8 * 16),
        ("depth", c_uint32),
        ("pool_bytes", c_uint32),
        ("durability", c_uint32),
        ("flags", c_uint32),
        ("umask", c_uint32),
        ("reserved0", c_uint32),
        ("token", c_char_p),
        ("memory_bytes", c_uint64),
        ("reserved", c_uint64 * 5),
    ]


class CInfo(Structure):
    _fields_ = [
        ("session", c_uint64),
        ("uuid", c_uint8 * 16),
        ("label", c_char * 64),
        ("profile", c_char * 64),
        ("payload_max", c_uint32),
        ("durability", c_uint32),
        ("power_safe", c_uint8),
        ("read_only", c_uint8),
        ("embedded", c_uint8),
        ("medium", c_uint8),
        ("reserved0", c_uint8 * 4),
        ("reserved", c_uint64 * 11),
    ]


class CSpace(Structure):
    _fields_ = [
        ("block_bytes", c_uint64),
        ("blocks", c_uint64),
        ("blocks_free", c_uint64),
        ("blocks_avail", c_uint64),
        ("files", c_uint64),
        ("files_free", c_uint64),
        ("fsid", c_uint64),
        ("name_max", c_uint32),
        ("reserved0", c_uint32),
        ("uuid", c_uint8 * 16),
        ("reserved", c_uint64 * 6),
    ]


class CTime(Structure):
    _fields_ = [("sec", c_int64), ("nsec", c_uint32), ("reserved", c_uint32)]


class CStat(Structure):
    _fields_ = [
        ("ino", c_uint64),
        ("generation", c_uint64),
        ("dev", c_uint64),
        ("rdev", c_uint64),
        ("bytes", c_uint64),
        ("blocks", c_uint64),
        ("mode", c_uint32),
        ("nlink", c_uint32),
        ("uid", c_uint32),
        ("gid", c_uint32),
        ("blksize", c_uint32),
        ("reserved0", c_uint32),
        ("atime", CTime),
        ("mtime", CTime),
        ("ctime", CTime),
        ("btime", CTime),
        ("version", c_uint64),
        ("reserved", c_uint64 * 14),
    ]


class CEntry(Structure):
    _fields_ = [
        ("ino", c_uint64),
        ("next", c_uint64),
        ("kind", c_uint8),
        ("reserved", c_uint8 * 7),
        ("name", c_char * 256),
    ]


class CWritten(Structure):
    _fields_ = [("offset", c_uint64), ("created", c_uint8), ("reserved", c_uint8 * 7)]


class CName(Structure):
    _fields_ = [("name", c_char_p), ("len", c_size_t), ("key", c_void_p), ("reserved", c_uint64 * 2)]


class COperand(Structure):
    _fields_ = [("data", c_void_p), ("len", c_size_t), ("filled", c_size_t), ("reserved", c_uint64)]


class COutcome(Structure):
    _fields_ = [
        ("value", c_uint64),
        ("value2", c_uint64),
        ("done", c_uint32),
        ("failed", c_uint32),
        ("reserved", c_uint64 * 2),
    ]


class CWriteItem(Structure):
    _fields_ = [
        ("file", c_void_p),
        ("from_", c_void_p),
        ("len", c_size_t),
        ("offset", c_uint64),
        ("reserved", c_uint64),
    ]


class CVirtRange(Structure):
    _fields_ = [("path", c_char_p), ("offset", c_uint64), ("length", c_uint64), ("reserved", c_uint64 * 2)]


class CVirtSpec(Structure):
    _fields_ = [
        ("kernel", c_char_p),
        ("params", POINTER(c_uint32)),
        ("param_count", c_size_t),
        ("ranges", POINTER(CVirtRange)),
        ("range_count", c_size_t),
        ("flags", c_uint32),
        ("reserved0", c_uint32),
        ("reserved", c_uint64 * 4),
    ]


_OUT = POINTER(c_void_p)
_N = POINTER(c_uint64)
_U = POINTER(c_uint32)

#: Function: result, arguments.
PROTOTYPES = {
    "weldfs_version": (c_uint32, []),
    "weldfs_strerror": (c_char_p, [c_int]),
    "weldfs_last_error": (c_char_p, []),
    "weldfs_attach": (c_int, [c_char_p, POINTER(Options), _OUT]),
    "weldfs_detach": (None, [c_void_p]),
    "weldfs_reconnect": (c_int, [c_void_p]),
    "weldfs_get_info": (c_int, [c_void_p, POINTER(CInfo)]),
    "weldfs_get_space": (c_int, [c_void_p, POINTER(CSpace)]),
    "weldfs_stats_json": (c_int64, [c_void_p, c_void_p, c_size_t]),
    "weldfs_sync": (c_int, [c_void_p]),
    "weldfs_open": (c_int, [c_void_p, c_char_p, c_int, c_uint32, _OUT]),
    "weldfs_close": (c_int, [c_void_p]),
    "weldfs_read": (c_int64, [c_void_p, c_void_p, c_size_t]),
    "weldfs_pread": (c_int64, [c_void_p, c_void_p, c_size_t, c_uint64]),
    "weldfs_write": (c_int64, [c_void_p, c_void_p, c_size_t, c_uint32]),
    "weldfs_pwrite": (c_int64, [c_void_p, c_void_p, c_size_t, c_uint64, c_uint32, _N]),
    "weldfs_set_hints": (c_int, [c_void_p, c_uint32]),
    "weldfs_lseek": (c_int64, [c_void_p, c_int64, c_int]),
    "weldfs_ftruncate": (c_int, [c_void_p, c_uint64]),
    "weldfs_fsync": (c_int, [c_void_p]),
    "weldfs_fdatasync": (c_int, [c_void_p]),
    "weldfs_fstat": (c_int, [c_void_p, POINTER(CStat)]),
    "weldfs_flock": (c_int, [c_void_p, c_int]),
    "weldfs_stat_path": (c_int, [c_void_p, c_char_p, POINTER(CStat)]),
    "weldfs_lstat_path": (c_int, [c_void_p, c_char_p, POINTER(CStat)]),
    "weldfs_truncate": (c_int, [c_void_p, c_char_p, c_uint64]),
    "weldfs_chmod": (c_int, [c_void_p, c_char_p, c_uint32]),
    "weldfs_lchown": (c_int, [c_void_p, c_char_p, c_uint32, c_uint32]),
    "weldfs_mkdir": (c_int, [c_void_p, c_char_p, c_uint32]),
    "weldfs_rmdir": (c_int, [c_void_p, c_char_p]),
    "weldfs_unlink": (c_int, [c_void_p, c_char_p]),
    "weldfs_rename": (c_int, [c_void_p, c_char_p, c_char_p, c_uint32]),
    "weldfs_link": (c_int, [c_void_p, c_char_p, c_char_p]),
    "weldfs_symlink": (c_int, [c_void_p, c_char_p, c_char_p]),
    "weldfs_readlink": (c_int64, [c_void_p, c_char_p, c_void_p, c_size_t]),
    "weldfs_opendir": (c_int, [c_void_p, c_char_p, _OUT]),
    "weldfs_readdir": (c_int, [c_void_p, POINTER(CEntry)]),
    "weldfs_readdir_plus": (c_int, [c_void_p, POINTER(CEntry), POINTER(CStat), POINTER(c_int)]),
    "weldfs_closedir": (None, [c_void_p]),
    "weldfs_open_write_close": (
        c_int64,
        [c_void_p, c_char_p, c_int, c_uint32, c_void_p, c_size_t, c_uint64, c_uint32, POINTER(CWritten)],
    ),
    "weldfs_open_read_close": (c_int64, [c_void_p, c_char_p, c_int, c_void_p, c_size_t, c_uint64]),
    "weldfs_append_checksum_write": (c_int, [c_void_p, c_void_p, c_size_t, c_uint32, _N, _U]),
    "weldfs_pwrite_verified": (c_int64, [c_void_p, c_void_p, c_size_t, c_uint64, c_uint32, c_uint32, _N]),
    "weldfs_read_checksum_verify": (c_int, [c_void_p, c_void_p, c_uint32, c_uint64, _U]),
    "weldfs_append_checksum": (c_int, [c_void_p, c_uint32, c_void_p, c_size_t, c_uint32, _N, _U]),
    "weldfs_verify_checksum": (c_int, [c_void_p, c_uint64, c_uint32, c_void_p, c_uint32, c_uint32, _U]),
    "weldfs_checksum_range": (c_int64, [c_void_p, c_uint64, c_uint64, _U]),
    "weldfs_fetch_add": (c_int, [c_void_p, c_uint64, c_uint64, c_uint32, c_uint32, c_uint32, _N]),
    "weldfs_copy_range": (c_int64, [c_void_p, c_uint64, c_uint64, c_void_p, c_uint64, c_uint32]),
    "weldfs_atomic_replace": (c_int, [c_void_p, c_char_p, c_char_p, c_uint32, c_void_p, c_size_t]),
    "weldfs_append_and_rotate": (
        c_int,
        [c_void_p, c_char_p, c_char_p, c_uint64, c_uint32, c_void_p, c_size_t, c_uint32, _N, POINTER(c_int)],
    ),
    "weldfs_multi_write": (c_int, [POINTER(CWriteItem), c_size_t, c_uint32]),
    "weldfs_txn_begin": (c_int, [c_void_p, _OUT]),
    "weldfs_txn_write": (c_int64, [c_void_p, c_void_p, c_void_p, c_size_t, c_uint64]),
    "weldfs_txn_commit": (c_int64, [c_void_p, c_uint32]),
    "weldfs_txn_abort": (c_int, [c_void_p]),
    "weldfs_set_key": (c_int, [c_void_p, c_uint32, c_void_p, c_size_t, _OUT]),
    "weldfs_forget_key": (None, [c_void_p]),
    "weldfs_program_parse": (c_int, [c_char_p, POINTER(CName), c_size_t, _OUT, c_void_p, c_size_t]),
    "weldfs_program_destroy": (None, [c_void_p]),
    "weldfs_program_find": (c_int, [c_void_p, c_char_p]),
    "weldfs_program_text": (c_int64, [c_void_p, c_void_p, c_size_t]),
    "weldfs_program_run": (c_int, [c_void_p, c_void_p, POINTER(COperand), c_size_t, c_uint32, POINTER(COutcome)]),
    "weldfs_virt_register": (c_int, [c_void_p, c_char_p, c_uint32, POINTER(CVirtSpec)]),
    "weldfs_virt_describe": (c_int64, [c_void_p, c_char_p, POINTER(CVirtSpec), c_void_p, c_size_t]),
    "weldfs_virt_remove": (c_int, [c_void_p, c_char_p]),
    "weldfs_virt_list": (c_int, [c_void_p, c_char_p, _OUT]),
    "weldfs_virt_next": (c_int, [c_void_p, POINTER(c_char_p), POINTER(CVirtSpec)]),
    "weldfs_virt_end": (None, [c_void_p]),
    "weldfs_vopen": (c_int, [c_void_p, c_char_p, c_int, _OUT]),
    "weldfs_vread": (c_int64, [c_void_p, c_void_p, c_size_t]),
    "weldfs_vwrite": (c_int64, [c_void_p, c_void_p, c_size_t]),
    "weldfs_vsync": (c_int64, [c_void_p]),
    "weldfs_vclose": (c_int64, [c_void_p]),
    "weldfs_vrewind": (c_int, [c_void_p]),
    "weldfs_send_params": (c_int, [c_void_p, POINTER(c_uint32), c_size_t]),
    "weldfs_kernels_json": (c_int64, [c_void_p, c_void_p, c_size_t]),
    "weldfs_kernel_load": (c_int64, [c_void_p, c_char_p, c_void_p, c_size_t]),
    "weldfs_kernel_activate": (c_int, [c_void_p, c_char_p]),
    "weldfs_kernel_deactivate": (c_int, [c_void_p, c_char_p]),
    "weldfs_kernel_unload": (c_int, [c_void_p, c_char_p]),
    "weldfs_kernel_prefer": (c_int, [c_void_p, c_char_p, c_char_p]),
    "weldfs_kernel_peek": (c_int, [c_void_p, c_char_p, c_uint32, _U]),
}


def _candidates():
    """Files to try, in this order; the bare name last is for ld.so's own search (LD_LIBRARY_PATH, ldconfig)."""
    named = os.environ.get(ENVIRONMENT)
    if named:
        # Asked for by name: no other one in its place.
        yield named
        return
    folders = [Path(__file__).resolve().parent]
    program = shutil.which("weldfs")
    if program:
        beside = Path(program).resolve().parent
        folders += [beside, beside.parent / "lib", beside.parent / "lib" / "x86_64-linux-gnu"]
    for folder in folders:
        for name in NAMES:
            if (folder / name).is_file():
                yield str(folder / name)
    found = ctypes.util.find_library("weldfs")
    if found:
        yield found
    yield NAMES[0]


_loaded = None


def load():
    """The library, loaded once. OSError, which says where it was looked for, when there is none."""
    global _loaded
    if _loaded is not None:
        return _loaded[0]
    why = []
    for path in _candidates():
        try:
            lib = ctypes.CDLL(path)
        except OSError as error:
            why.append(f"{path}: {error}")
            continue
        for name, (result, arguments) in PROTOTYPES.items():
            function = getattr(lib, name, None)
            if function is None:
                raise OSError(f"{path} has no {name}: it is another version of libweldfs")
            function.restype, function.argtypes = result, arguments
        _loaded = (lib, path)
        return lib
    raise OSError(
        f"libweldfs was not found; set {ENVIRONMENT} to its file, or install it where ld.so looks. Tried: "
        + "; ".join(why)
    )


def library_path():
    """The file (or the name given to ld.so) of the library in use."""
    load()
    return _loaded[1]


def version():
    """The library's version: (major, minor, patch)."""
    number = load().weldfs_version()
    return number // 1_000_000, number // 1000 % 1000, number % 1000
