"""Bodies of programs: header, micro-ops, ranges, strings, data."""

import struct
from dataclasses import dataclass

NONE = 255
BUFFER, RANGE, STRING = 1, 2, 3
EQUAL, NOT, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL = range(6)
FAIL, END, SKIP = range(3)
ADD, SUB, MUL, AND, OR, XOR, SHL, SHR, MIN, MAX = range(10)


@dataclass
class Reg:
    """A value that stands in a register."""

    number: int


def integer(log2, big=False):
    """How a number lies in bytes: 2^log2 of them, little- or big-endian."""
    return 4 + log2 + (4 if big else 0)


def fold(kind, register):
    """The checksum of what is read or stored, into a register."""
    return kind << 4 | register


class Program:
    """A body under construction; strings and ranges are numbered in the order they are first named."""

    def __init__(self, result=NONE, result2=NONE, buffers=()):
        self.results = (result, result2)
        self.capacities = [*buffers, *[0] * (8 - len(buffers))]
        self.steps, self.ranges, self.strings, self.data = [], [], [], b""
        self.version, self.zero, self.zeros = 1, 0, bytes(20)

    def string(self, text):
        self.strings.append((len(self.data), len(text)))
        self.data += text
        return len(self.strings) - 1

    def range(self, offset, length):
        self.ranges.append((offset, length))
        return len(self.ranges) - 1

    def step(self, kind, a=0, b=0, c=0, d=0, e=0, f=0, x=0, y=0, z=0):
        modes, words = 0, []
        for bit, word in enumerate((x, y, z)):
            modes |= isinstance(word, Reg) << bit
            words.append(word.number if isinstance(word, Reg) else word)
        self.steps.append(struct.pack("<8B3Q", kind, a, b, c, d, e, f, modes, *words))
        return self

    # The kinds that cases use.

    def open(self, slot, path, flags, mode=0, base=0, created=NONE):
        return self.step(1, a=slot, b=self.string(path), c=created, d=flags & 0xFF, e=flags >> 8, x=base, y=mode)

    def use(self, slot, access, handle):
        return self.step(2, a=slot, b=access, x=handle)

    def read(self, slot, offset, length, to=(0, 0), how=0, count=NONE, sum=NONE):
        return self.step(3, a=slot, b=how, c=count, d=to[0], e=to[1], f=sum, x=offset, y=length)

    def write(self, slot, what, offset=0, place=0, at=NONE, sum=NONE):
        return self.step(4, a=slot, b=place, c=at, d=what[0], e=what[1], f=sum, x=offset)

    def text(self, text):
        """A literal as bytes."""
        return STRING, self.string(text)

    def arith(self, operation, register, x, y):
        return self.step(10, b=operation, c=register, x=x, y=y)

    def fill(self, buffer, what, append=0):
        return self.step(11, a=buffer, b=append, d=what[0], e=what[1])

    def give(self, buffer, range_, count=NONE):
        return self.step(13, a=buffer, b=range_, c=count)

    def guard(self, relation, x, y, otherwise, number=0):
        return self.step(17, b=relation, c=otherwise, d=number & 0xFF, e=number >> 8, x=x, y=y)

    def bytes(self):
        head = struct.pack("<HBBBBBBI", self.version, len(self.steps), len(self.ranges), len(self.strings),
                           *self.results, self.zero, len(self.data)) + self.zeros
        head += struct.pack("<8I", *self.capacities)
        tables = b"".join(struct.pack("<II", *r) for r in self.ranges)
        tables += b"".join(struct.pack("<HH", *s) for s in self.strings)
        return head + b"".join(self.steps) + tables + self.data
