"""Programs that write to a file by calls while another one maps and unmaps it, and changes other bytes of the same
pages: none of their bytes is lost. `beside.py FOLDER ROUNDS`."""

import mmap
import os
import sys
import threading

folder, rounds = sys.argv[1], int(sys.argv[2])
PAGES = 4


def writer(go):
    """Forks; the child's number."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            go()
            code = 0
        finally:
            os._exit(code)
    return child


def while_mapped(name, before, change, writers, whole=False):
    """The bytes of a file that is mapped and changed again and again until all writers are done; `whole`: by one
    mapping all along, of a file that others read meanwhile."""
    path = os.path.join(folder, name)
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    os.pwrite(file, before, 0)
    children = [writer(lambda go=go: go(path)) for go in writers]
    running = threading.Thread(target=lambda: codes.extend(os.waitpid(child, 0)[1] for child in children))
    codes, times = [], 0
    running.start()
    mapped, goes = None, True
    while goes:
        goes = running.is_alive()
        mapped = mapped or mmap.mmap(file, os.fstat(file).st_size)
        if whole:
            os.pread(file, 64, 0)
        change(mapped, times)
        if not whole:
            mapped = mapped.close()
        times += 1
    running.join()
    if mapped:
        mapped.close()
    assert codes == [0] * len(writers), codes
    found = os.pread(file, os.fstat(file).st_size, 0)
    os.close(file)
    os.unlink(path)
    return found


def in_place(round):
    """Two writers, each with its bytes of every sixteen; the mapping changes another one."""
    size = PAGES * 4096

    def put(first, how):
        def go(path):
            file = os.open(path, os.O_RDWR)
            for at in range(first, size, 16):
                how(file, at)
        return go

    def plain(file, at):
        os.pwrite(file, b"x", at)

    def vector(file, at):
        os.lseek(file, at, os.SEEK_SET)
        os.writev(file, [b"y", b"z"])

    def change(mapped, times):
        for at in range(8, size, 4096):
            mapped[at] = times % 256

    found = while_mapped("place%d" % round, bytes(size), change, [put(0, plain), put(2, vector)])
    lost = [at for at in range(0, size, 16) if found[at : at + 4] != b"x\0yz"]
    assert not lost, ("in place", round, len(lost), lost[:5])


def both(round):
    """One writes in place and one appends, to a file that stays mapped; the mapping changes other bytes."""
    size = 4096

    def put(path):
        file = os.open(path, os.O_RDWR)
        for at in range(0, size, 16):
            os.pwrite(file, b"x", at)

    def append(path):
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        for n in range(100):
            os.write(file, b"%07d\n" % n)

    def change(mapped, times):
        mapped[8 + times % 64 * 16] = times % 256

    found = while_mapped("both%d" % round, bytes(size), change, [put, append], whole=True)
    lost = [at for at in range(0, size, 16) if found[at] != ord("x")]
    assert not lost, ("both", round, len(lost), lost[:5])
    lines = [b"%07d" % n for n in range(100)]
    assert found[size:].split(b"\n")[:-1] == lines, ("both", round, found[size:][:200])


for round in range(rounds):
    in_place(round)
    both(round)
print("none is lost")
