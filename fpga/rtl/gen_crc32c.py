#!/usr/bin/env python3
"""Writes `kernels/crc32c_matrix.vh`: CRC-32C of 64 bytes at a time as matrices over GF(2).

A step of a CRC by one bit is linear in state and data, so a step by 512 bits is a matrix of each: every bit of the
result is the parity of chosen bits. A packet that ends within a flit is filled up with zero bytes, whose effect is undone
afterwards by the inverse matrices for 1, 2, 4, ... 64 bytes (the polynomial has a constant term, so there are some).
Polynomial: RFC 3720, section 12.1, reflected.
"""

import sys
from pathlib import Path

POLY = 0x82F63B78
FILE = Path(__file__).resolve().parent / "kernels" / "crc32c_matrix.vh"


def forth(state, bits):
    for _ in range(bits):
        state = (state >> 1) ^ (POLY if state & 1 else 0)
    return state


def back(state, bits):
    for _ in range(bits):
        low = state >> 31
        state = (((state ^ (POLY if low else 0)) << 1) | low) & 0xFFFFFFFF
    return state


def rows(columns):
    """Row i has the columns that bit i depends on."""
    return [sum(((column >> i) & 1) << j for j, column in enumerate(columns)) for i in range(32)]


def function(name, width, columns):
    lines = [f"function [31:0] {name};", f"    input [{width - 1}:0] x;", "    begin"]
    for i, row in enumerate(rows(columns)):
        if width == 32:
            lines.append(f"        {name}[{i}] = ^(x & 32'h{row:08x});")
        else:
            parts = [(row >> at) & ((1 << 128) - 1) for at in (384, 256, 128, 0)]
            words = [f"128'h{part:032x}" for part in parts]
            lines.append(f"        {name}[{i}] = ^(x & {{{words[0]}, {words[1]},")
            lines.append(f"            {words[2]}, {words[3]}}});")
    return "\n".join(lines + ["    end", "endfunction", ""])


def text():
    head = "// Written by gen_crc32c.py, which says what it is. Included inside of a module.\n"
    units = [1 << i for i in range(32)]
    parts = [
        "// What 64 bytes add to the state.",
        # The bit that comes at cycle t of 512 is entered in the lowest bit, and goes through what is left.
        function("crc_of_data", 512, [forth(1, 512 - at) for at in range(512)]),
        "// The state after 64 bytes.",
        function("crc_after_flit", 32, [forth(unit, 512) for unit in units]),
    ]
    for power in range(7):
        parts.append(f"// The state before {1 << power} zero bytes.")
        parts.append(function(f"crc_before_{1 << power}", 32, [back(unit, 8 << power) for unit in units]))
    return head + "\n" + "\n".join(parts)


def main():
    if "--check" in sys.argv:
        sys.exit(0 if FILE.read_text() == text() else f"{FILE.name} is not what gen_crc32c.py writes")
    FILE.write_text(text())


if __name__ == "__main__":
    main()
