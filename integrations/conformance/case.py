"""Cases: how they are registered, what they are given, and how they say what they expect."""

import os

import link
import wire

CASES = []
# Those after which there is no device.
LAST = []
NOBODY = 65534


class Failed(AssertionError):
    """The device did another thing than the page says."""


class Skip(Exception):
    """The case cannot be put to this device, and why."""


def case(group, title, hostdir=True, ends=False):
    """Registers a case. `hostdir`: it holds for a directory of the host, too. `ends`: the device is gone after it."""

    def register(function):
        (LAST if ends else CASES).append((group, title, function, hostdir))
        return function

    return register


def true(fact, why):
    if not fact:
        raise Failed(why)


def same(found, wanted, what="value"):
    if found != wanted:
        raise Failed(f"{what} is {found!r}, should be {wanted!r}")


def codes(error):
    return wire.name_of(error)


def want(completion, status="OK", **fields):
    """A completion has this status, and these fields."""
    found, wanted = completion, status if isinstance(status, tuple) else (status,)
    if found.name not in wanted:
        steps = f"{found.done} done, failed {found.failed}"
        raise Failed(f"status is {found.name}, should be {' or '.join(wanted)} ({steps})")
    for name, value in fields.items():
        same(getattr(found, name), value, name)
    return found


def refused(error, wanted):
    """An answer on the socket has this errno."""
    same(codes(error), wanted, "errno")


def closes(session, ask):
    """What `ask` does ends the connection, without an answer."""
    try:
        answer = ask()
    except link.Closed:
        return
    raise Failed(f"was answered with {answer!r}, should have ended the connection")


class Context:
    """What a case works with: a session, a queue pair, a directory of its own."""

    def __init__(self, path):
        self.path = path
        self.session = link.Session(path)
        self.q = self.session.queue(64, 4 << 20)
        self.top = b"/conformance-%d" % os.getpid()
        self.dir = self.top
        self.number = 0
        want(self.q.call("mkdir", a=self.top, aux=0o777 << 16))
        self.extra = []

    @property
    def hostdir(self):
        return self.session.medium == 3

    def begin(self):
        self.number += 1
        self.dir = self.top + b"/%d" % self.number
        want(self.q.call("mkdir", a=self.dir, aux=0o755 << 16))
        # Another user is to reach what is in it, whatever the umask of anything is.
        want(self.q.call("set_attr_path", a=self.dir, b=wire.set_attr(1, mode=0o777)))

    def end(self):
        for session in self.extra:
            session.close()
        self.extra = []
        try:
            self.call("nop")
        except (link.Closed, TimeoutError, ValueError):
            self.session.close()
            self.session = link.Session(self.path)
            self.q = self.session.queue(64, 4 << 20)
        self.remove(self.dir)

    def remove(self, directory):
        """Removes a directory and all in it."""
        opened = self.call("open", a=directory, aux=wire.READ | wire.DIRECTORY)
        if opened.status:
            return
        names, cookie = [], 0
        while True:
            part = want(self.call("read_dir", handle=opened.result, offset=cookie, a=1 << 16))
            if part.result == 0:
                break
            names += [e for e in wire.listing(part.a[:part.result]) if e[3] not in (b".", b"..")]
            cookie = part.result2
        self.call("close", handle=opened.result)
        for _, _, kind, name in names:
            path = directory + b"/" + name
            if kind == 4:
                self.remove(path)
            else:
                want(self.call("unlink", a=path))
        want(self.call("rmdir", a=directory))

    # Shorter ways to say what most cases do.

    def call(self, op, **fields):
        return self.q.call(op, **fields)

    def at(self, name):
        name = name if isinstance(name, bytes) else name.encode()
        return self.dir + b"/" + name

    def put(self, name, data=b"", mode=0o644, **fields):
        aux = wire.WRITE | wire.CREATE | wire.TRUNC | mode << 16
        return want(self.call("open_write_close", a=self.at(name), b=data, aux=aux, **fields))

    def read(self, name, n=1 << 16):
        done = want(self.call("open_read_close", a=self.at(name), b=n, aux=wire.READ))
        return done.b[:done.result]

    def open(self, name, flags=wire.READ | wire.WRITE | wire.CREATE, mode=0o644, q=None):
        done = (q or self.q).call("open", a=self.at(name), aux=flags | mode << 16)
        return want(done).result

    def stat(self, name, nofollow=False):
        done = want(self.call("stat_path", a=self.at(name), b=256, aux=nofollow << 31), result=256)
        return wire.stat_of(done.b)

    def exists(self, name):
        return self.call("stat_path", a=self.at(name), b=256, aux=1 << 31).name == "OK"

    def another(self, **fields):
        """A session of its own, closed after the case."""
        session = link.Session(self.path, **fields)
        self.extra.append(session)
        return session

    def stranger(self, **fields):
        """A session of a user without rights. Identity is as of connect(2), so ours is back when it stands."""
        if os.geteuid() != 0:
            raise Skip("needs root, to become another user")
        groups = os.getgroups()
        os.setgroups([])
        os.setegid(NOBODY)
        os.seteuid(NOBODY)
        try:
            return self.another(**fields)
        finally:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(groups)
