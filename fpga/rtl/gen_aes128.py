#!/usr/bin/env python3
"""Writes `kernels/aes128_boxes.vh`: the S-box of AES and its inverse (FIPS 197, section 5.1.1), as constants.

A byte's substitute is its inverse in GF(2^8), modulo x^8 + x^4 + x^3 + x + 1, through an affine map over GF(2).
"""

import sys
from pathlib import Path

FILE = Path(__file__).resolve().parent / "kernels" / "aes128_boxes.vh"


def times(a, b):
    product = 0
    while b:
        if b & 1:
            product ^= a
        a = (a << 1) ^ (0x11B if a & 0x80 else 0)
        b >>= 1
    return product


def substitute(byte):
    inverse = next((x for x in range(256) if times(byte, x) == 1), 0)
    rotated = [((inverse << n) | (inverse >> (8 - n))) & 0xFF for n in range(5)]
    out = 0x63
    for x in rotated:
        out ^= x
    return out


def constant(name, box):
    """Entry i in bits 8i and up."""
    rows = [box[at:at + 16] for at in range(240, -1, -16)]
    words = ",\n".join("        128'h" + "".join(f"{byte:02x}" for byte in reversed(row)) for row in rows)
    return f"    localparam [2047:0] {name} = {{\n{words}\n    }};\n"


def text():
    box = [substitute(byte) for byte in range(256)]
    inverse = [box.index(byte) for byte in range(256)]
    head = "    // Written by gen_aes128.py, which says what it is. Included inside of a module.\n"
    return head + constant("BOX", box) + constant("INVERSE_BOX", inverse)


def main():
    if "--check" in sys.argv:
        sys.exit(0 if FILE.read_text() == text() else f"{FILE.name} is not what gen_aes128.py writes")
    FILE.write_text(text())


if __name__ == "__main__":
    main()
