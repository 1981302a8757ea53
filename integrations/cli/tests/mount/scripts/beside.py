"""Programs that write to a file by calls while another one maps and unmaps it, and changes other bytes of the same
pages: none of their bytes is lost. `beside.py FOLDER ROUNDS [churn]`; churn: appends, too, beside a mapping that
begins and ends all the time."""

import mmap
import os
import sys
import threading

folder, rounds, churn = sys.argv[1], int(sys.argv[2]), sys.argv[3:] == ["churn"]
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


def appended(round):
    """Two writers append, in each way there is; the mapping changes the head, in the page where the file ends."""
    each = 200

    def append(mark, how):
        def go(path):
            file = os.open(path, os.O_WRONLY | (os.O_APPEND if how != "flag" else 0))
            for n in range(each):
                line = b"%c%06d\n" % (mark, n)
                if how == "write":
                    os.write(file, line)
                elif how == "vector":
                    os.writev(file, [line[:3], line[3:]])
                else:
                    os.pwritev(file, [line], 0, os.RWF_APPEND)
        return go

    def change(mapped, times):
        mapped[times % 64] = times % 256

    ways = [("write", "flag"), ("vector", "write")][round % 2]
    writers = [append(ord("a") + n, how) for n, how in enumerate(ways)]
    found = while_mapped("end%d" % round, bytes(64), change, writers, whole=not churn)
    lines = found[64:].split(b"\n")
    for mark in b"ab":
        mine = [line for line in lines if line[:1] == b"%c" % mark]
        lost = sorted({b"%c%06d" % (mark, n) for n in range(each)} - set(mine))
        holes = [(at, found[at - 8 : at + 16]) for at in range(64, len(found), 8) if b"\0" in found[at : at + 8]]
        assert mine == [b"%c%06d" % (mark, n) for n in range(each)], ("appended", ways, len(found), lost, holes)
    assert len(found) == 64 + 2 * each * 8, len(found)


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
    appended(round)
    both(round)
print("none is lost")
