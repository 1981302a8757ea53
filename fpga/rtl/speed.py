#!/usr/bin/env python3
"""How fast the Verilated kernels simulate: cycles and input bytes per second of processor time, one kernel at a time.

    fpga/rtl/speed.py [--from FOLDER] [--seconds 1] [NAME...]

That is time of the simulator. What a kernel would take in hardware is its cycles divided by its clock.
"""

import argparse
import ctypes
import os
import random
import struct
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BYTES = 1 << 20


class Step(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("taken", "made", "cycles")]
    _fields_ += [("done", ctypes.c_uint32), ("reserved", ctypes.c_uint32)]


def workloads():
    """For each kernel its parameters, and a packet that is typical of it."""
    draw = random.Random(1)
    noise = draw.randbytes(BYTES)
    years = (b"090909%02d" % draw.randrange(100) for _ in range(BYTES // 32))
    scores = b"".join(noise[32 * i:32 * i + 24] + year for i, year in enumerate(years))
    lines = bytes(10 if byte < 3 else 97 + byte % 26 for byte in noise)
    runs = b"".join(bytes((draw.randrange(1, 28), byte)) for byte in noise[:BYTES // 16])
    needle = b"needle of thirty-two bytes, that"
    return {
        "aes128": ([0, 1, 2, 3, 4], noise),
        "crc32c": ([], noise),
        "grep": ([32, *struct.unpack("<8I", needle)], lines),
        "integrate": ([20, 8, *struct.unpack("<8I", noise[:32])], noise),
        "pass-through": ([], noise),
        "rle": ([], runs),
        "sql": ([20, 29], scores),
        "statistics": ([4096], noise),
    }


def measure(library, params, packet, seconds):
    """(cycles per second, input bytes per second, cycles per flit of input)"""
    kernel_new = library.weldfs_kernel_new
    kernel_new.restype = ctypes.c_void_p
    kernel = ctypes.c_void_p(kernel_new())
    words = (ctypes.c_uint32 * max(1, len(params)))(*params)
    if library.weldfs_kernel_reset(kernel, words, ctypes.c_size_t(len(params))):
        sys.exit("parameters refused")
    room = ctypes.create_string_buffer(16 * BYTES)
    step, cycles, taken = Step(), 0, 0
    start = time.process_time()
    while True:
        code = library.weldfs_kernel_step_run(kernel, packet, ctypes.c_size_t(len(packet)), 1, room,
                                              ctypes.c_size_t(len(room)), ctypes.byref(step))
        if code or not step.done:
            sys.exit(f"a step returned {code}")
        cycles, taken = cycles + step.cycles, taken + step.taken
        took = time.process_time() - start
        if took >= seconds:
            break
    library.weldfs_kernel_free(kernel)
    return cycles / took, taken / took, cycles / (taken / 64)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
    parser.add_argument("--from", dest="folder", type=Path, default=target / "kernels")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_intermixed_args()
    loads = workloads()
    print(f"{'kernel':14} {'Mcycle/s':>9} {'MB/s in':>9} {'cycles/flit':>12}")
    for name in args.names or loads:
        library = ctypes.CDLL(str(args.folder.resolve() / f"librtl_{name}.so"))
        hertz, speed, per_flit = measure(library, *loads[name], args.seconds)
        print(f"{name:14} {hertz / 1e6:9.2f} {speed / 1e6:9.1f} {per_flit:12.2f}")


if __name__ == "__main__":
    main()
