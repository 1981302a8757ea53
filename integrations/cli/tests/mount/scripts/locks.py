"""Advisory locks between processes in the mount that is named."""

import errno
import fcntl
import os
import signal
import struct
import sys
import time

path = os.path.join(sys.argv[1], "locked")
LOCK = "hhqqi4x"


def child(work):
    """Runs it in a process of its own, which must end well."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as e:  # noqa: BLE001
            print(f"{work.__name__}: {e!r}", file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return pid


def well(pid):
    assert os.waitpid(pid, 0)[1] == 0


def refused(take, *args):
    try:
        take(*args)
    except BlockingIOError:
        return
    raise AssertionError("the lock was given twice")


def posix():
    f = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.lockf(f, fcntl.LOCK_EX, 10, 0)
    fcntl.lockf(f, fcntl.LOCK_SH, 10, 100)

    def other():
        mine = os.open(path, os.O_RDWR)
        # Through its own description, and through the one that it shares with its parent.
        for fd in (mine, f):
            refused(fcntl.lockf, fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 5)
        fcntl.lockf(mine, fcntl.LOCK_SH | fcntl.LOCK_NB, 5, 100)
        fcntl.lockf(mine, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 10)
        said = fcntl.fcntl(mine, fcntl.F_GETLK, struct.pack(LOCK, fcntl.F_WRLCK, 0, 0, 0, 0))
        assert struct.unpack(LOCK, said) == (fcntl.F_WRLCK, 0, 0, 10, os.getppid()), struct.unpack(LOCK, said)

    well(child(other))
    # Any descriptor of the file that is closed takes the locks of its process with it, and no other's.
    os.close(os.open(path, os.O_RDONLY))

    def free():
        fcntl.lockf(os.open(path, os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB, 0, 0)

    well(child(free))
    fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 0, 0)
    well(child(lambda: os.close(os.open(path, os.O_RDONLY))))
    well(child(lambda: refused(fcntl.lockf, os.open(path, os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB, 0, 0)))
    fcntl.lockf(f, fcntl.LOCK_UN)
    well(child(free))
    os.close(f)


def waiting(take, give):
    """A lock that is waited for: it comes, it can be interrupted, and whoever waits can be killed."""
    f = os.open(path, os.O_RDWR | os.O_CREAT)
    take(f, fcntl.LOCK_EX)

    def interrupted():
        def ring(*_):
            raise TimeoutError

        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            take(os.open(path, os.O_RDWR), fcntl.LOCK_EX)
        except TimeoutError:
            return
        raise AssertionError("the lock was given twice")

    well(child(interrupted))
    killed = child(lambda: take(os.open(path, os.O_RDWR), fcntl.LOCK_EX))
    time.sleep(0.2)
    os.kill(killed, signal.SIGKILL)
    assert os.waitpid(killed, 0)[1] == signal.SIGKILL
    waits = child(lambda: take(os.open(path, os.O_RDWR), fcntl.LOCK_EX))
    time.sleep(0.2)
    assert os.waitpid(waits, os.WNOHANG) == (0, 0), "it did not wait"
    give(f)
    well(waits)
    # With its process every lock has gone.
    deadline = time.monotonic() + 30
    while True:
        try:
            take(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    os.close(f)


def of_descriptions():
    """F_OFD_SETLK: two descriptions of one process are two owners."""
    ofd_setlk = 37
    one, two = os.open(path, os.O_RDWR | os.O_CREAT), os.open(path, os.O_RDWR)
    lock = struct.pack(LOCK, fcntl.F_WRLCK, 0, 0, 10, 0)
    fcntl.fcntl(one, ofd_setlk, lock)
    refused(fcntl.fcntl, two, ofd_setlk, lock)
    # The close of another descriptor takes none of it.
    os.close(os.open(path, os.O_RDONLY))
    refused(fcntl.fcntl, two, ofd_setlk, lock)
    os.close(one)
    deadline = time.monotonic() + 30
    while True:
        try:
            fcntl.fcntl(two, ofd_setlk, lock)
            break
        except BlockingIOError:
            assert time.monotonic() < deadline, errno.EAGAIN
            time.sleep(0.01)
    os.close(two)


def nameless():
    """A question holds nothing: a file without a name has one owner of ranges, and it is not the one that asked."""
    ofd_setlk, gone = 37, path + "-gone"
    f = os.open(gone, os.O_RDWR | os.O_CREAT)
    os.unlink(gone)
    lock = struct.pack(LOCK, fcntl.F_WRLCK, 0, 0, 10, 0)
    assert struct.unpack(LOCK, fcntl.fcntl(f, fcntl.F_GETLK, lock))[0] == fcntl.F_UNLCK
    fcntl.fcntl(f, ofd_setlk, lock)
    os.close(f)


posix()
nameless()
waiting(fcntl.lockf, lambda f: fcntl.lockf(f, fcntl.LOCK_UN))
waiting(fcntl.flock, lambda f: fcntl.flock(f, fcntl.LOCK_UN))
of_descriptions()
