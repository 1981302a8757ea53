"""Attaching, and a queue pair: the socket, the region in shared memory, the two rings, the two ways to sleep."""

import array
import ctypes
import errno
import mmap
import os
import platform
import select
import socket
import struct
import time

import wire

LIBC = ctypes.CDLL(None, use_errno=True)
FUTEX_CALL = {"x86_64": 202, "aarch64": 98, "riscv64": 98}[platform.machine()]
FUTEX_WAIT, FUTEX_WAKE, FUTEX_PRIVATE = 0, 1, 128
# How long anything may take before a case fails: far above what a slow, busy machine needs.
PATIENCE = 10.0


class Closed(Exception):
    """The device has closed the connection, or the queue."""


class Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


FENCE_WORD = ctypes.c_uint32(0)


def fence():
    """A full barrier: Python has none, so a system call that has one (futex(2) orders its look for waiters)."""
    LIBC.syscall(FUTEX_CALL, ctypes.byref(FENCE_WORD), FUTEX_WAKE | FUTEX_PRIVATE, 1, None, None, 0)


class Session:
    """A connection to a device, and what it said in Welcome."""

    def __init__(self, path, hello=True, **fields):
        self.path = path
        self.queues = []
        self.sequence = 0
        self.doorbell = -1
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(path)
        if hello:
            status, body, fds = self.hello(**fields)
            if status:
                raise OSError(status, os.strerror(status))
            self.welcome(body, fds)

    def welcome(self, body, fds):
        """Takes in what Welcome says."""
        if len(body) != 256 or len(fds) != 1:
            raise ValueError(f"Welcome of {len(body)} bytes with {len(fds)} descriptors")
        self.doorbell = fds[0]
        self.number, self.features = struct.unpack_from("<QQ", body)
        self.credential, self.uuid = body[16:32], body[32:48]
        names = "queue_depth pool_bytes queues handles atomic_write inline modify placeholders".split()
        words = struct.unpack_from("<12I", body, 48)
        self.limits = dict(zip(names, words))
        self.zeros = words[8:]
        self.version, self.medium, self.power_safe, self.durability, self.read_only = struct.unpack_from("<HBBBB", body,
                                                                                                       192)

    def hello(self, versions=(1, 1), prefix=b"", required=0, wanted=0, client=bytes(16), reserved=bytes(8)):
        body = struct.pack("<HHIQQ16s8s", *versions, len(prefix), required, wanted, client, reserved)
        return self.ask(wire.HELLO, body + prefix)

    def send(self, packet, fds=()):
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([packet], rights)

    def packet(self, kind, body=b"", version=wire.VERSION, error=0):
        return wire.HEADER.pack(wire.MAGIC, version, kind, len(body), error) + body

    def receive(self):
        """(kind, errno, body, descriptors) of the next packet."""
        try:
            data, ancillary, _, _ = self.socket.recvmsg(1 << 17, socket.CMSG_SPACE(64 * 4), socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError as e:
            raise Closed("the connection was reset") from e
        fds = array.array("i")
        for level, kind, rights in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(rights[:len(rights) - len(rights) % 4])
        if not data:
            raise Closed("end of the connection")
        magic, version, kind, length, error = wire.HEADER.unpack_from(data)
        body = data[wire.HEADER.size:]
        if magic != wire.MAGIC or version != wire.VERSION or length != len(body) or (error and body):
            raise ValueError(f"not a packet: {data[:32]!r}")
        return kind, error, body, list(fds)

    def ask(self, kind, body=b"", fds=()):
        """One request: (errno, body, descriptors)."""
        try:
            self.send(self.packet(kind, body), fds)
        except (BrokenPipeError, ConnectionResetError) as e:
            raise Closed("the connection is gone") from e
        back, error, answer, received = self.receive()
        if back != kind | 0x8000:
            raise ValueError(f"the answer to {kind} is of kind {back:#x}")
        return error, answer, received

    def text(self, kind, body=b""):
        """(errno, text): from the packet, or from the memfd that came instead."""
        error, answer, fds = self.ask(kind, body)
        if not error and not answer and fds:
            with os.fdopen(fds[0], "rb", closefd=True) as file:
                file.seek(0)
                return error, file.read()
        return error, answer

    def queue(self, depth=8, pool=1 << 16):
        return Queue(self, depth, pool)

    def hung_up(self, wait=0.0):
        poll = select.poll()
        poll.register(self.socket, select.POLLIN | select.POLLHUP | select.POLLRDHUP)
        return any(events & (select.POLLHUP | select.POLLRDHUP) for _, events in poll.poll(wait * 1000))

    def close(self):
        for queue in self.queues:
            queue.close()
        self.queues = []
        self.socket.close()
        if self.doorbell >= 0:
            os.close(self.doorbell)
            self.doorbell = -1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def pages(n):
    return (n + 4095) // 4096 * 4096


def layout(depth, pool):
    """(sq_off, cq_off, pool_off, total) as computed from depth and pool."""
    cq = 4096 + pages(depth * 64)
    data = cq + pages(depth * 32)
    return 4096, cq, data, data + pool


class Queue:
    """A queue pair. Ranges of a command are laid out one after the other from the start of the pool."""

    WORDS = {"sq_tail": 128, "sq_head": 256, "device_sleeping": 384, "watches": 392, "cq_tail": 512, "cq_head": 640,
             "client_sleeping": 768, "device_closed": 896}

    def __init__(self, session, depth, pool):
        error, body, fds = session.ask(wire.NEW_QUEUE, struct.pack("<II", depth, pool))
        if error:
            raise OSError(error, os.strerror(error))
        self.session, self.depth, self.pool_bytes = session, depth, pool
        self.index, zero = struct.unpack_from("<II", body)
        self.layout = wire.LAYOUT.unpack_from(body, 8)
        magic, said_depth, said_pool, *places = self.layout
        if (magic, said_depth, said_pool, tuple(places)) != (b"WELDQP\0\1", depth, pool, layout(depth, pool)) or zero:
            raise ValueError(f"the region is laid out as {self.layout}")
        self.sq_off, self.cq_off, self.pool_off, self.total = places
        self.memory_fd = fds[0]
        self.map = mmap.mmap(self.memory_fd, self.total, mmap.MAP_SHARED)
        self.map.madvise(mmap.MADV_DONTFORK)
        self.word = {name: ctypes.c_uint32.from_buffer(self.map, at) for name, at in self.WORDS.items()}
        self.tail = self.taken = 0
        self.rung = None
        session.queues.append(self)

    def close(self):
        self.word = {}
        self.map.close()
        os.close(self.memory_fd)

    # The pool.

    def put(self, at, data):
        self.map[self.pool_off + at: self.pool_off + at + len(data)] = data

    def get(self, at, n):
        return self.map[self.pool_off + at: self.pool_off + at + n]

    # Submitting.

    def push(self, *entries):
        """Puts entries in, publishes them at once, rings if the device sleeps."""
        for entry in entries:
            raw = entry if isinstance(entry, bytes) else entry.bytes()
            at = self.sq_off + self.tail % self.depth * 64
            self.map[at: at + 64] = raw
            self.tail = (self.tail + 1) & 0xFFFFFFFF
        self.publish(self.tail)

    def publish(self, tail):
        self.word["sq_tail"].value = tail
        fence()
        ticket = self.word["device_sleeping"].value
        if ticket and ticket != self.rung:
            self.rung = ticket
            try:
                os.write(self.session.doorbell, struct.pack("<Q", 1))
            except BlockingIOError:
                # As full as can be: the device does not empty it. Whoever rings does, and rings again.
                os.read(self.session.doorbell, 8)
                os.write(self.session.doorbell, struct.pack("<Q", 1))

    # Completing.

    def ready(self):
        return self.word["cq_tail"].value != self.taken

    def take(self):
        """The next completion, if there is one."""
        if not self.ready():
            return None
        at = self.cq_off + self.taken % self.depth * 32
        done = wire.Done(*wire.CQE.unpack(self.map[at: at + 32]))
        self.taken = (self.taken + 1) & 0xFFFFFFFF
        self.word["cq_head"].value = self.taken
        return done

    def sleep(self, seconds):
        """Sleeps as the page says, until there is a completion or the time is over."""
        self.word["client_sleeping"].value = (self.taken << 1 | 1) & 0xFFFFFFFF
        fence()
        if not self.ready():
            limit = Timespec(int(seconds), int(seconds % 1 * 1e9))
            word = ctypes.byref(self.word["cq_tail"])
            LIBC.syscall(FUTEX_CALL, word, FUTEX_WAIT, ctypes.c_uint32(self.taken), ctypes.byref(limit), None, 0)
        self.word["client_sleeping"].value = 0

    def reap(self, patience=PATIENCE):
        """The next completion, however long it takes within reason."""
        end = time.monotonic() + patience
        while True:
            done = self.take()
            if done:
                return done
            if self.word["device_closed"].value:
                raise Closed(errno.errorcode.get(self.word["device_closed"].value, "closed"))
            if self.session.hung_up():
                raise Closed("the device is gone")
            if time.monotonic() > end:
                raise TimeoutError("no completion")
            self.sleep(0.25)

    # One command at a time.

    def entry(self, op, handle=0, offset=0, aux=0, flags=0, imm=bytes(16), a=None, b=None, c=None, at=0):
        """An entry with its ranges laid out from `at` on: bytes go in, a number is room for so many, a pair is taken as
        it is. Also where the ranges lie, to read them afterwards."""
        where = {}
        for name, given in (("a", a), ("b", b), ("c", c)):
            if given is None:
                continue
            if isinstance(given, tuple):
                where[name] = given
                continue
            length = given if isinstance(given, int) else len(given)
            where[name] = (at, length)
            self.put(at, bytes(length) if isinstance(given, int) else given)
            at += (length + 7) // 8 * 8
        self.session.sequence += 1
        entry = wire.Entry(op if isinstance(op, int) else wire.OPCODES[op], flags, aux, self.session.sequence, handle,
                           offset % (1 << 64))
        entry.imm = imm.ljust(16, b"\0")
        if "a" in where:
            entry.pool_off, entry.length = where["a"]
        if "b" in where:
            entry.pool_off2, entry.length2 = where["b"]
        if "c" in where:
            entry.imm = struct.pack("<II", *where["c"]) + entry.imm[8:]
        return entry, where, at

    def call(self, op, **fields):
        """Sends one command and waits for it."""
        entry, where, _ = self.entry(op, **fields)
        return self.send(entry, where)

    def send(self, entry, where=()):
        self.push(entry)
        done = self.reap()
        if done.sequence != entry.sequence:
            raise ValueError(f"the completion of {done.sequence} came for {entry.sequence}")
        for name in where:
            place, length = where[name]
            if place + length <= self.pool_bytes:
                setattr(done, name, self.get(place, length))
        return done
