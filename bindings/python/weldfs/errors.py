"""Failures: OSError with errno, message and file name."""

import errno
import os

from . import _library


class ChecksumError(OSError):
    """A checksum does not match what is there (EBADMSG)."""


class ProgramError(OSError):
    """A fused program failed. `step` is the number of the step, from 1; 0 when nothing ran."""

    step = 0


def path_bytes(path):
    """A path for the library: str, bytes or os.PathLike, from the device's root, without NUL."""
    raw = os.fsencode(path)
    if b"\0" in raw:
        raise ValueError("a path with a NUL in it")
    return raw


def failure(result, path=None, path2=None, kind=None):
    """The exception for a negative result of the call that this thread has just made."""
    lib, number = _library.load(), -int(result)
    message = lib.weldfs_last_error().decode("utf-8", "replace")
    if kind is None:
        kind = ChecksumError if number == errno.EBADMSG else OSError
    name = None if path is None else os.fspath(path)
    return kind(number, message, name, None, None if path2 is None else os.fspath(path2))


def check(result, path=None, path2=None):
    """The result, if it is none of a failure."""
    if result < 0:
        raise failure(result, path, path2)
    return result


#: Numbers of the header's WELDFS_DEFAULT, WELDFS_VOLATILE and WELDFS_DURABLE.
_DURABILITY = {None: 0, "default": 0, False: 1, "volatile": 1, True: 2, "durable": 2}


#: Numbers of the header's WELDFS_ON_DEVICE, WELDFS_ON_HOST, WELDFS_IN_SLOT and WELDFS_OR_CORE.
_PLACEMENT = {None: 0, "device": 16, "host": 32, "slot": 48, "slot-or-core": 48 | 512}


def placement(value):
    """None: as the device chooses; "device", "host", "slot" or "slot-or-core"."""
    try:
        return _PLACEMENT[value]
    except (KeyError, TypeError):
        raise ValueError(f"placement is None, 'device', 'host', 'slot' or 'slot-or-core', not {value!r}") from None


#: Numbers of the header's WELDFS_PRIORITY_ and WELDFS_LIFE_.
_PRIORITY = {None: 0, "low": 1024, "medium": 2048, "high": 3072}
_LIFE = {None: 0, "short": 4096, "medium": 8192, "long": 12288, "extreme": 16384}


def hints(priority, life):
    """How urgent a command is, and how long what it writes will be there: bits beside a durability."""
    try:
        return _PRIORITY[priority] | _LIFE[life]
    except (KeyError, TypeError):
        raise ValueError(
            "priority is None, 'low', 'medium' or 'high', and life None, 'short', 'medium', 'long' or 'extreme', "
            f"not {priority!r} and {life!r}"
        ) from None


def durability(value):
    """None: the client's; False or "volatile"; True or "durable"."""
    try:
        return _DURABILITY[value]
    except (KeyError, TypeError):
        raise ValueError(f"durability is None, True, False, 'durable' or 'volatile', not {value!r}") from None
