"""File system calls in the mount that is named, and what they must give."""

import ctypes
import errno
import mmap
import os
import stat
import struct
import sys

root = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, AT_SYMLINK_FOLLOW = -100, 0x400


def at(name):
    return os.path.join(root, name)


def fails(code, call, *args, **more):
    try:
        call(*args, **more)
    except OSError as e:
        assert e.errno == code, f"{call.__name__}{args}: {e}, and not {errno.errorcode[code]}"
    else:
        raise AssertionError(f"{call.__name__}{args} did not fail")


def call(name, *args):
    done = getattr(libc, name)(*args)
    if done < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return done


def put(name, data=b""):
    with open(at(name), "wb") as f:
        f.write(data)


def get(name):
    with open(at(name), "rb") as f:
        return f.read()


def names():
    os.umask(0o022)
    os.mkdir(at("d"), 0o771)
    assert stat.S_IMODE(os.stat(at("d")).st_mode) == 0o751
    gone = os.open(at("d"), os.O_RDONLY)
    os.rmdir(at("d"))
    assert os.fstat(gone).st_nlink == 0 and os.listdir(gone) == []
    fails(errno.ENOENT, os.open, "x", os.O_CREAT | os.O_WRONLY, dir_fd=gone)
    os.close(gone)
    os.mkdir(at("d"), 0o771)
    put("d/a", b"1")
    os.link(at("d/a"), at("d/b"))
    assert os.stat(at("d/a")).st_nlink == 2 and os.path.samefile(at("d/a"), at("d/b"))
    os.symlink("a", at("d/l"))
    assert os.readlink(at("d/l")) == "a" and get("d/l") == b"1"
    os.rename(at("d/b"), at("c"))
    assert os.listdir(at("d")) in (["a", "l"], ["l", "a"])
    fails(errno.EEXIST, os.mkdir, at("d"))
    fails(errno.ENOTEMPTY, os.rmdir, at("d"))
    fails(errno.ENOTDIR, os.stat, at("c/x"))
    fails(errno.EISDIR, os.open, at("d"), os.O_WRONLY)
    fails(errno.ENAMETOOLONG, os.stat, at("n" * 256))
    put("n" * 255)
    fails(errno.EPERM, os.mkfifo, at("fifo"))
    put("x", b"x")
    put("y", b"y")
    renameat2 = 316
    fails(errno.EEXIST, call, "syscall", renameat2, AT_FDCWD, at("x").encode(), AT_FDCWD, at("y").encode(), 1)
    call("syscall", renameat2, AT_FDCWD, at("x").encode(), AT_FDCWD, at("y").encode(), 2)
    assert (get("x"), get("y")) == (b"y", b"x"), "exchanged"
    fails(errno.EINVAL, call, "syscall", renameat2, AT_FDCWD, at("x").encode(), AT_FDCWD, at("y").encode(), 4)


def deep():
    """Directories that together have a longer name than one path may have."""
    here = os.open(root, os.O_RDONLY)
    for _ in range(40):
        os.mkdir("p" * 200, dir_fd=here)
        here, old = os.open("p" * 200, os.O_RDONLY, dir_fd=here), here
        os.close(old)
    f = os.open("file", os.O_CREAT | os.O_RDWR, dir_fd=here)
    os.write(f, b"deep")
    os.close(f)
    assert os.stat("file", dir_fd=here).st_size == 4
    os.unlink("file", dir_fd=here)
    os.close(here)


def many():
    """A listing longer than one answer, while names come and go."""
    os.mkdir(at("many"))
    for i in range(3000):
        put(f"many/{i:05}-{'x' * 40}")
    seen = []
    with os.scandir(at("many")) as entries:
        for i, entry in enumerate(entries):
            seen.append(entry.name)
            assert entry.is_file()
            if i < 500:
                os.unlink(at(f"many/{entry.name}"))
    assert len(seen) == len(set(seen)) == 3000
    assert len(os.listdir(at("many"))) == 2500


def nameless():
    put("u", b"still here")
    f = os.open(at("u"), os.O_RDWR)
    os.unlink(at("u"))
    assert os.fstat(f).st_nlink == 0 and os.pread(f, 100, 0) == b"still here"
    os.fchmod(f, 0o640)
    os.ftruncate(f, 5)
    assert os.fstat(f).st_size == 5 and stat.S_IMODE(os.fstat(f).st_mode) == 0o640
    os.setxattr(f, "user.k", b"v")
    assert os.getxattr(f, "user.k") == b"v"
    os.close(f)
    t = os.open(root, os.O_TMPFILE | os.O_RDWR, 0o600)
    os.write(t, b"nameless")
    call("linkat", AT_FDCWD, f"/proc/self/fd/{t}".encode(), AT_FDCWD, at("named").encode(), AT_SYMLINK_FOLLOW)
    assert get("named") == b"nameless" and os.fstat(t).st_nlink == 1
    os.close(t)
    t = os.open(root, os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o600)
    fails(errno.ENOENT, call, "linkat", AT_FDCWD, f"/proc/self/fd/{t}".encode(), AT_FDCWD, at("no").encode(), AT_SYMLINK_FOLLOW)
    os.close(t)
    # A name that another file has now is not the open one's.
    put("first", b"first")
    f = os.open(at("first"), os.O_RDWR)
    os.rename(at("first"), at("moved"))
    put("first", b"second")
    os.fchmod(f, 0o600)
    assert stat.S_IMODE(os.stat(at("moved")).st_mode) == 0o600 and stat.S_IMODE(os.stat(at("first")).st_mode) != 0o600
    os.close(f)


def data():
    f = os.open(at("data"), os.O_CREAT | os.O_RDWR)
    big = os.urandom(5 << 20)
    assert os.pwrite(f, big, 12345) == len(big)
    assert os.pread(f, len(big) + 9, 12345) == big and os.pread(f, 5, 0) == bytes(5)
    a = os.open(at("data"), os.O_WRONLY | os.O_APPEND)
    os.write(a, b"end")
    assert os.fstat(f).st_size == 12345 + len(big) + 3 and os.pread(f, 3, 12345 + len(big)) == b"end"
    os.ftruncate(f, 1 << 30)
    assert os.lseek(f, 0, os.SEEK_DATA) <= 12345 and os.lseek(f, 6 << 20, os.SEEK_HOLE) == 6 << 20
    fails(errno.ENXIO, os.lseek, f, 6 << 20, os.SEEK_DATA)
    os.ftruncate(f, 1 << 20)
    for mode, ok in [(0, True), (1, True), (3, True), (0x10, True), (0x11, True), (0x8, False), (0x20, False)]:
        args = ("fallocate", f, mode, ctypes.c_long(4096), ctypes.c_long(8192))
        call(*args) if ok else fails(errno.EOPNOTSUPP, call, *args)
    assert os.pread(f, 8192, 4096) == bytes(8192)
    call("fallocate", f, 1, ctypes.c_long(1 << 20), ctypes.c_long(1 << 20))
    assert os.fstat(f).st_size == 1 << 20
    other = os.open(at("copy"), os.O_CREAT | os.O_RDWR)
    done = 0
    while done < 1 << 20:
        done += os.copy_file_range(f, other, (1 << 20) - done, done, done)
    assert os.pread(other, 1 << 20, 0) == os.pread(f, 1 << 20, 0)
    os.utime(at("copy"), ns=(1, -5_000_000_001))
    assert (os.stat(at("copy")).st_atime_ns, os.stat(at("copy")).st_mtime_ns) == (1, -5_000_000_001)
    for fd in (f, a, other):
        os.close(fd)
    direct = os.open(at("direct"), os.O_CREAT | os.O_RDWR | os.O_DIRECT)
    page = mmap.mmap(-1, 1 << 16)
    page[:] = os.urandom(1 << 16)
    assert os.pwritev(direct, [page], 4096) == 1 << 16
    back = mmap.mmap(-1, 1 << 16)
    assert os.preadv(direct, [back], 4096) == 1 << 16 and back[:] == page[:]
    os.close(direct)


def mapped():
    f = os.open(at("map"), os.O_CREAT | os.O_RDWR)
    os.ftruncate(f, 1 << 16)
    shared = mmap.mmap(f, 1 << 16)
    shared[5000:5005] = b"given"
    shared.flush()
    assert os.pread(f, 5, 5000) == b"given"
    os.pwrite(f, b"taken", 9000)
    assert shared[9000:9005] == b"taken"
    private = mmap.mmap(f, 1 << 16, flags=mmap.MAP_PRIVATE)
    private[5000:5005] = b"mine!"
    assert os.pread(f, 5, 5000) == b"given"
    again = os.open(at("map"), os.O_RDWR)
    twice = mmap.mmap(again, 1 << 16)
    if os.fork() == 0:
        twice[0:4] = b"fork"
        os._exit(0)
    os.wait()
    assert shared[0:4] == b"fork"
    # Written back through a description that appends: it stays where it is.
    os.close(f)
    os.close(again)
    del shared, private, twice
    f = os.open(at("map"), os.O_RDWR | os.O_APPEND)
    shared = mmap.mmap(f, 1 << 16)
    shared[100:103] = b"abc"
    shared.flush()
    assert os.fstat(f).st_size == 1 << 16 and os.pread(f, 3, 100) == b"abc"
    os.close(f)


def attributes():
    put("x1", b"1")
    os.setxattr(at("x1"), "user.one", b"1" * 4096)
    fails(errno.EEXIST, os.setxattr, at("x1"), "user.one", b"2", os.XATTR_CREATE)
    fails(errno.ENODATA, os.setxattr, at("x1"), "user.two", b"2", os.XATTR_REPLACE)
    assert os.listxattr(at("x1")) == ["user.one"] and os.getxattr(at("x1"), "user.one") == b"1" * 4096
    fails(errno.E2BIG, os.setxattr, at("x1"), "user.big", b"2" * 4097)
    os.removexattr(at("x1"), "user.one")
    fails(errno.ENODATA, os.getxattr, at("x1"), "user.one")
    vfs = os.statvfs(root)
    assert vfs.f_namemax == 255 and vfs.f_blocks > vfs.f_bfree > 0
    # statx(2): the time of birth, which a change leaves alone.
    body = ctypes.create_string_buffer(256)

    def born():
        call("statx", AT_FDCWD, at("x1").encode(), 0, 0x800, body)
        assert struct.unpack_from("I", body.raw)[0] & 0x800, "no time of birth"
        return struct.unpack_from("qI", body.raw, 80)

    first = born()
    put("x1", b"again")
    assert born() == first and first[0] > 1_600_000_000
    os.chmod(at("x1"), 0o4755)
    assert os.stat(at("x1")).st_mode & 0o7777 == 0o4755
    assert os.access(at("x1"), os.X_OK) and not os.access(at("none"), os.F_OK)
    os.fsync(os.open(at("x1"), os.O_RDONLY))
    os.fsync(os.open(root, os.O_RDONLY))


def executed():
    """A program is not cut, nor written to, while it runs."""
    import shutil
    import subprocess

    shutil.copy("/bin/sleep", at("sleep"))
    os.chmod(at("sleep"), 0o755)
    running = subprocess.Popen([at("sleep"), "60"])
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC):
        fails(errno.ETXTBSY, os.open, at("sleep"), flags)
    assert os.stat(at("sleep")).st_size == os.stat("/bin/sleep").st_size
    assert running.poll() is None
    running.kill()
    running.wait()


def resized():
    """A size that is set by name is a matter of permission bits, whatever the caller has open."""

    def by_name():
        reading = os.open(at("sized"), os.O_RDONLY)
        fails(errno.EINVAL, os.ftruncate, reading, 1)
        os.truncate(at("sized"), 3)
        assert os.fstat(reading).st_size == 3 and os.pread(reading, 9, 0) == b"123"
        os.close(os.open(at("sized"), os.O_RDONLY | os.O_TRUNC))
        assert os.fstat(reading).st_size == 0
        os.close(reading)

    put("sized", b"12345")
    by_name()
    put("sized", b"12345")
    os.chmod(at("sized"), 0o666)
    # And as a user whom the device lets do no more than the bits say.
    child = os.fork()
    if child == 0:
        os.setresuid(65534, 65534, 65534)
        by_name()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    reading = os.open(at("sized"), os.O_RDONLY)
    # The grant of an open file outlasts the bits, for that file only.
    writing = os.open(at("sized"), os.O_RDWR)
    os.chmod(at("sized"), 0o444)
    os.ftruncate(writing, 7)
    assert os.fstat(reading).st_size == 7
    os.close(reading)
    os.close(writing)


for check in (names, deep, many, nameless, data, mapped, attributes, executed, resized):
    check()
