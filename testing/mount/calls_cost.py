"""What calls cost below a directory, of a mount or of anything else: microseconds of a call, the best of three rounds.

    python3 testing/mount/calls_cost.py DIR [CALLS]

docs/MOUNT.md has what was measured with it.
"""

import os
import sys
import time

root = os.path.join(sys.argv[1], "calls-cost")
calls = int(sys.argv[2]) if len(sys.argv) > 2 else 20000
os.makedirs(root, exist_ok=True)
path, big, page = os.path.join(root, "file"), os.path.join(root, "big"), os.urandom(4096)
with open(path, "wb") as f:
    f.write(os.urandom(1 << 20))
fd = os.open(path, os.O_RDWR)


def stat(_):
    os.stat(path)


def open_read_close(_):
    f = os.open(path, os.O_RDONLY)
    os.read(f, 4096)
    os.close(f)


def read(i):
    os.pread(fd, 4096, i * 7919 % 256 * 4096)


def write(i):
    os.pwrite(fd, page, i * 7919 % 256 * 4096)


def create_write_close(i):
    f = os.open(os.path.join(root, f"n{i}"), os.O_CREAT | os.O_WRONLY, 0o644)
    os.write(f, page)
    os.close(f)


def measure(name, call, count, after=lambda i: None):
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        for i in range(count):
            call(i)
        best = min(best, (time.perf_counter() - start) / count * 1e6)
        for i in range(count):
            after(i)
    print(f"{name}\t{best:.1f} us", flush=True)


def megabytes(name, call):
    start = time.perf_counter()
    for i in range(128):
        call(i)
    print(f"{name}\t{128 / (time.perf_counter() - start):.0f} MiB/s", flush=True)


measure("getattr", stat, calls)
measure("open, read 4 KiB, close", open_read_close, calls // 2)
measure("read 4 KiB", read, calls)
measure("write 4 KiB", write, calls)
measure("create, write 4 KiB, close", create_write_close, calls // 10, lambda i: os.unlink(os.path.join(root, f"n{i}")))
chunk = os.urandom(1 << 20)
f = os.open(big, os.O_CREAT | os.O_RDWR)
megabytes("write 1 MiB", lambda i: os.pwrite(f, chunk, i << 20))
os.close(f)
f = os.open(big, os.O_RDONLY)
megabytes("read 1 MiB", lambda i: os.pread(f, 1 << 20, i << 20))
