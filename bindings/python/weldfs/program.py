"""Fused programs: text that the device runs as one command. docs/COMMANDS.md has the grammar."""

import ctypes
import errno
import re
from dataclasses import dataclass, field

from . import _library
from ._memory import Bytes, Room
from .errors import ProgramError, check, durability, failure
from .errors import placement as placed

_KINDS = {"xts128": 0, "xts256": 1, "gcm128": 2, "gcm256": 3}
_STEP_BY_STEP = 128


class Key:
    """A key that the device keeps for this session; its bytes are on no medium and in no log. A `with` forgets it."""

    def __init__(self, client, kind, data):
        if kind not in _KINDS:
            raise ValueError(f"a key is one of {', '.join(_KINDS)}, not {kind!r}")
        self._lib, self._handle, memory = _library.load(), ctypes.c_void_p(), Bytes(data)
        check(
            self._lib.weldfs_set_key(
                client._use(), _KINDS[kind], memory.pointer, memory.len, ctypes.byref(self._handle)
            )
        )

    def forget(self):
        """The device and the library overwrite it."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            self._lib.weldfs_forget_key(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.forget()


@dataclass
class Outcome:
    """What a run did: registers asked for, bytes by the name of their range, steps done."""

    values: dict = field(default_factory=dict)
    outputs: dict = field(default_factory=dict)
    done: int = 0

    def __getitem__(self, name):
        return self.outputs[name] if name in self.outputs else self.values[name]


class Program:
    """A program, checked once and run any number of times, by one thread at a time.

    `ranges` says for each @NAME of the text how long it is, or gives bytes of that length; for each `key NAME` the Key.
    A range that the program fills needs no entry if the text says its length. `results` names at most two registers
    whose values a run reports. What a `read` or `give` puts in a range is as long as what was there, as long as one of
    the two is left to count it (or it is the register of its `count`); else as long as the room, with zeros behind.
    """

    def __init__(self, text, ranges=None, results=()):
        self._lib, self._handle = _library.load(), ctypes.c_void_p()
        if len(results) > 2:
            raise ValueError("a run reports at most two registers")
        names = self._names(ranges or {})
        if results:
            text = f"{text}\nresult {' '.join(results)}"
        why = ctypes.create_string_buffer(512)
        array = (_library.CName * max(len(names), 1))(*names)
        code = self._lib.weldfs_program_parse(
            text.encode(), array, len(names), ctypes.byref(self._handle), why, len(why)
        )
        if code < 0:
            raise ProgramError(-code, why.value.decode("utf-8", "replace") or "not a program")
        self._results = tuple(results)
        self._ranges = self._named(text)

    def _names(self, ranges):
        names, self._keys = [], []
        for name, value in ranges.items():
            key = None
            if isinstance(value, Key):
                self._keys.append(value)
                key, length = value._handle, 0
            else:
                length = value if isinstance(value, int) else memoryview(value).nbytes
            names.append(_library.CName(name.lstrip("@").encode(), length, key))
        return names

    def _named(self, text):
        """The program's ranges, in the order of their numbers."""
        found = {}
        for word in _words(text):
            number = self._lib.weldfs_program_find(self._handle, b"@" + word.encode())
            if number >= 0:
                found[number] = word
        if sorted(found) != list(range(len(found))):
            self.close()
            raise ProgramError(errno.EINVAL, "ranges are to be numbered without a gap, from @p0 on")
        return [found[number] for number in sorted(found)]

    def text(self):
        """One step a line, with numbers for names, as the device gets it."""
        size = check(self._lib.weldfs_program_text(self._use(), None, 0))
        room = ctypes.create_string_buffer(size + 1)
        check(self._lib.weldfs_program_text(self._use(), room, size + 1))
        return room.value.decode()

    def _use(self):
        if self._handle is None:
            raise ValueError("the program was given back")
        return self._handle

    def run(self, client, ranges=None, durable=None, step_by_step=False, placement=None):
        """Runs it as one command: all of it happens or nothing (or with `step_by_step` the steps before a failure).

        `ranges` has for each range the bytes that the program takes, or the length of the room it fills. `placement`:
        where checksums and codecs are computed, as File.append_checksum_write has it, but for "host". Errors: those of
        the step that failed, or of a guard, as ProgramError (FileNotFoundError and kin are not raised).
        """
        ranges = {name.lstrip("@"): value for name, value in (ranges or {}).items()}
        rooms, operands = {}, (_library.COperand * max(len(self._ranges), 1))()
        for at, name in enumerate(self._ranges):
            if name not in ranges:
                raise ValueError(f"nothing is given for @{name}")
            value = ranges[name]
            rooms[name] = memory = Room(value) if isinstance(value, int) else Bytes(value)
            operands[at] = _library.COperand(memory.pointer, memory.len)
        how = durability(durable) | placed(placement) | (_STEP_BY_STEP if step_by_step else 0)
        raw = _library.COutcome()
        code = self._lib.weldfs_program_run(
            self._use(), client._use(), operands, len(self._ranges), how, ctypes.byref(raw)
        )
        if code < 0:
            error = failure(code, kind=ProgramError)
            error.step = raw.failed
            raise error
        outputs = {
            name: rooms[name].bytes(operands[at].filled)
            for at, name in enumerate(self._ranges)
            if isinstance(rooms[name], Room)
        }
        values = dict(zip(self._results, (raw.value, raw.value2)))
        return Outcome(values, outputs, raw.done)

    def close(self):
        """Gives it back."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            self._lib.weldfs_program_destroy(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _words(text):
    """Every NAME of an @NAME in the text. What stands in a string may be among them: the library is asked."""
    return dict.fromkeys(re.findall(r"@([A-Za-z0-9_]+)", text))
