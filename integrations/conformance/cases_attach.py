"""Section 1: attaching, and the requests on the socket."""

import fcntl
import json
import mmap
import os
import stat
import struct

import link
import wire
from case import Skip, case, closes, refused, same, true, want

G = "attach"
F_GET_SEALS, SHRINK, GROW, SEAL = 1034, 2, 4, 1
PLACEHOLDERS = struct.Struct("<II16I")


def raw(c, **fields):
    """A connection on which nothing was said yet."""
    return c.another(hello=False, **fields)


@case(G, "Welcome says what the page lists")
def welcome(c):
    s = c.session
    same((s.version, s.features, s.zeros), (1, 0, (0, 0, 0, 0)))
    true(any(s.uuid) or c.hostdir, "the UUID is zero")
    true(s.number > 0 and s.medium <= 3 and s.power_safe <= 1 and s.durability in (1, 2) and s.read_only == 0,
         "a field has no meaning")
    most = {"queue_depth": 1024, "pool_bytes": 64 << 20, "queues": 64, "handles": 65536, "atomic_write": 1 << 20,
            "modify": 65536, "placeholders": 16}
    true(all(0 < s.limits[name] <= n for name, n in most.items()), f"limits {s.limits} above those of section 7")
    true("eventfd" in os.readlink(f"/proc/self/fd/{s.doorbell}"), "the doorbell is no eventfd")


@case(G, "the highest version that both speak, or EPROTO")
def versions(c):
    refused(raw(c).hello(versions=(2, 9))[0], "EPROTO")
    refused(raw(c).hello(versions=(0, 0))[0], "EPROTO")
    s = raw(c)
    error, body, fds = s.hello(versions=(0, 9))
    refused(error, "OK")
    s.welcome(body, fds)
    same(s.version, 1)


@case(G, "unknown features: required are refused, wanted are ignored")
def features(c):
    for bit in (0, 17, 63):
        refused(raw(c).hello(required=1 << bit)[0], "EOPNOTSUPP")
    same(c.another(wanted=(1 << 64) - 1).features, 0)


@case(G, "reserved bytes of Hello and unsound prefixes are EINVAL")
def hello_fields(c):
    refused(raw(c).hello(reserved=b"\0\0\0\0\0\0\0\1")[0], "EINVAL")
    refused(raw(c).hello(prefix=b"/a\0b")[0], "EINVAL")
    refused(raw(c).hello(prefix=b"/" * 4096)[0], "EINVAL")


@case(G, "a refused Hello may be followed by another one")
def hello_again(c):
    s = raw(c)
    refused(s.hello(versions=(7, 9))[0], "EPROTO")
    refused(s.hello()[0], "OK")


@case(G, "the first request is hello, and only the first")
def order(c):
    for kind in (wire.NEW_QUEUE, wire.STATS, wire.DETACH):
        s = raw(c)
        body = struct.pack("<II", 8, 4096) if kind == wire.NEW_QUEUE else b""
        closes(s, lambda s=s, kind=kind, body=body: s.ask(kind, body))
    s = c.another()
    closes(s, s.hello)
    s = c.another()
    closes(s, lambda: s.ask(wire.JOIN, bytes(16)))


@case(G, "join with a token of no tenant is EACCES and the end", hostdir=False)
def join(c):
    s = raw(c)
    refused(s.ask(wire.JOIN, b"\1" * 16)[0], "EACCES")
    closes(s, s.hello)


@case(G, "an unknown kind is ENOSYS and the session goes on")
def unknown_kind(c):
    refused(raw(c).ask(99)[0], "ENOSYS")
    s = c.another()
    for kind in (0, 15, 0x7FFF):
        refused(s.ask(kind)[0], "ENOSYS")
    refused(s.text(wire.STATS)[0], "OK")


@case(G, "a packet that is none ends the connection without an answer")
def malformed(c):
    good = c.session.packet(wire.STATS)
    for packet in (b"WELD", b"DLEW" + good[4:], good[:8] + b"\1\0\0\0" + good[12:], good + b"x"):
        s = c.another()
        s.send(packet)
        closes(s, s.receive)
    for kind, body in ((wire.NEW_QUEUE, bytes(7)), (wire.PLACEHOLDERS, bytes(9)), (wire.TRACE, b""), (wire.STATS, b"x"),
                       (wire.DETACH, b"x"), (wire.TENANTS, b"x"), (wire.STOP, b"x"), (wire.CLAIM, b"x")):
        s = c.another()
        closes(s, lambda s=s, kind=kind, body=body: s.ask(kind, body))
    s = raw(c)
    closes(s, lambda: s.ask(wire.HELLO, bytes(47)))


@case(G, "descriptors with another request than claim end the connection")
def stray_descriptors(c):
    s = c.another()
    closes(s, lambda: s.ask(wire.STATS, b"", [0]))
    refused(c.another().ask(wire.CLAIM)[0], "EBADF")


@case(G, "an errno in a request ends the connection; the version in its header is not looked at")
def header_fields(c):
    s = c.another()
    s.send(s.packet(wire.TENANTS, error=5))
    closes(s, s.receive)
    s = c.another()
    s.send(s.packet(wire.TENANTS, version=2))
    refused(s.receive()[1], "OK")


@case(G, "requests sent ahead are answered in their order")
def pipelined(c):
    s = c.another()
    for kind in (wire.STATS, wire.TENANTS, 77):
        s.send(s.packet(kind))
    answers = [s.receive() for _ in range(3)]
    for _, _, _, fds in answers:
        for fd in fds:
            os.close(fd)
    same([a[0] & 0x7FFF for a in answers], [wire.STATS, wire.TENANTS, 77])


@case(G, "stats, with inode queues too, are JSON")
def stats(c):
    for body in (b"", struct.pack("<I", 0), struct.pack("<I", 1)):
        error, text = c.session.text(wire.STATS, body)
        refused(error, "OK")
        true(isinstance(json.loads(text), dict), "no object")
    refused(c.session.text(wire.STATS, struct.pack("<I", 2))[0], "EINVAL")


@case(G, "tune lists settings, sets one, and says what is wrong with others", hostdir=False)
def tune(c):
    error, text = c.session.text(wire.TUNE)
    refused(error, "OK")
    settings = json.loads(text)
    true(settings and all({"key", "value", "range", "what"} <= set(s) for s in settings), "an entry lacks a field")
    refused(c.session.ask(wire.TUNE, b"no setting")[0], "EINVAL")
    refused(c.session.ask(wire.TUNE, b"\xff=1")[0], "EINVAL")
    refused(c.session.ask(wire.TUNE, b"there.is.none=1")[0], "ENOENT")
    numbers = [s for s in settings if str(s["value"]).isdigit()]
    true(numbers, "no setting is a number")
    one = numbers[0]
    refused(c.session.ask(wire.TUNE, f"{one['key']}={10 ** 18}".encode())[0], "ERANGE")
    refused(c.session.ask(wire.TUNE, f"{one['key']}={one['value']}".encode())[0], "OK")
    same(json.loads(c.session.text(wire.TUNE)[1]), settings, "the settings after a tune of no effect")


@case(G, "tenants are listed; a token of no tenant is ENOENT", hostdir=False)
def tenants(c):
    error, text = c.session.text(wire.TENANTS)
    refused(error, "OK")
    true(isinstance(json.loads(text), list), "no array")
    refused(c.session.ask(wire.TOKEN, b"no such tenant")[0], "ENOENT")


@case(G, "one recording at a time; its end gives a sealed file", hostdir=False)
def trace(c):
    on, off = struct.pack("<II", 1, 100), struct.pack("<II", 0, 0)
    a, b = c.another(), c.another()
    refused(a.ask(wire.TRACE, off)[0], "EINVAL")
    refused(a.ask(wire.TRACE, struct.pack("<II", 0, 1))[0], "EINVAL")
    refused(a.ask(wire.TRACE, struct.pack("<II", 2, 1))[0], "EINVAL")
    refused(a.ask(wire.TRACE, on)[0], "OK")
    refused(b.ask(wire.TRACE, on)[0], "EBUSY")
    refused(b.ask(wire.TRACE, off)[0], "EINVAL")
    error, _, fds = a.ask(wire.TRACE, off)
    refused(error, "OK")
    same(len(fds), 1, "descriptors")
    true(fcntl.fcntl(fds[0], F_GET_SEALS) & (SHRINK | GROW), "the recording is not sealed")
    os.close(fds[0])


@case(G, "tune, token and trace are not for strangers: EPERM", hostdir=False)
def strangers(c):
    s = c.stranger()
    refused(s.ask(wire.TUNE, b"a=1")[0], "EPERM")
    refused(s.ask(wire.TOKEN, b"t")[0], "EPERM")
    refused(s.ask(wire.TRACE, struct.pack("<II", 1, 10))[0], "EPERM")
    refused(s.ask(wire.TRACE, struct.pack("<II", 0, 0))[0], "EPERM")
    refused(s.text(wire.TUNE)[0], "OK")
    refused(s.text(wire.TENANTS)[0], "OK")
    refused(s.ask(wire.STOP)[0], "EPERM")


@case(G, "detach is answered, then the connection ends")
def detach(c):
    s = c.another()
    q = s.queue()
    want(q.call("nop"))
    refused(s.ask(wire.DETACH)[0], "OK")
    closes(s, s.receive)


@case(G, "queue pairs within the limits, their regions sealed and laid out as said")
def regions(c):
    s = c.another()
    for depth, pool in ((3, 4096), (1, 4096), (0, 4096), (2048, 4096), (8, 0), (8, 4097), (8, (64 << 20) + 4096)):
        refused(s.ask(wire.NEW_QUEUE, struct.pack("<II", depth, pool))[0], "EINVAL")
    for depth, pool in ((2, 4096), (128, 8192), (1024, 4096)):
        q = s.queue(depth, pool)
        seals = fcntl.fcntl(q.memory_fd, F_GET_SEALS)
        same(seals & (SHRINK | GROW | SEAL), SHRINK | GROW | SEAL, "seals")
        found = os.fstat(q.memory_fd)
        same((found.st_size, stat.S_IMODE(found.st_mode)), (q.total, 0o600), "length and mode of the region")
        same(wire.LAYOUT.unpack(q.map[:32]), q.layout, "the layout at byte 0")
        want(q.call("nop"))


@case(G, "EMFILE for one queue pair too many")
def too_many_queues(c):
    s = c.another()
    for _ in range(s.limits["queues"]):
        error, _, fds = s.ask(wire.NEW_QUEUE, struct.pack("<II", 2, 4096))
        refused(error, "OK")
        os.close(fds[0])
    refused(s.ask(wire.NEW_QUEUE, struct.pack("<II", 2, 4096))[0], "EMFILE")


def placeholders(s, count):
    error, body, fds = s.ask(wire.PLACEHOLDERS, struct.pack("<II", count, 0))
    refused(error, "OK")
    words = PLACEHOLDERS.unpack(body)
    same((words[0], words[1], len(fds)), (count, 0, count), "count, zero, descriptors")
    ids = words[2:]
    true(all(ids[:count]) and not any(ids[count:]), f"ids {ids}")
    return ids[:count], fds


@case(G, "placeholders: as many as asked for, and refusals")
def placeholder_requests(c):
    s = c.another()
    for count, zero in ((0, 0), (17, 0), (1, 1)):
        refused(s.ask(wire.PLACEHOLDERS, struct.pack("<II", count, zero))[0], "EINVAL")
    ids, fds = placeholders(s, 16)
    same(len(set(ids)), 16, "different ids")
    for fd in fds:
        os.close(fd)


@case(G, "a placeholder stands for nothing: no read, write or mapping through the host")
def placeholder_is_empty(c):
    s = c.another()
    _, (fd,) = placeholders(s, 1)
    for what in (lambda: os.read(fd, 1), lambda: os.write(fd, b"x"), lambda: os.pread(fd, 1, 0),
                 lambda: mmap.mmap(fd, 4096), lambda: mmap.mmap(fd, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ)):
        try:
            found = what()
        except (OSError, ValueError):
            continue
        raise AssertionError(f"gave {found!r}")
    # Opened anew by its name under /proc it is a file of no bytes, which nothing can be put in.
    again = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
    same(os.read(again, 10), b"", "what is read of it")
    os.close(again)
    try:
        again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
        taken = os.write(again, b"x")
    except OSError:
        taken = 0
    same(taken, 0, "bytes that it takes")
    os.close(fd)


@case(G, "whoever has the descriptor may claim the description: offset and flags are shared")
def claim(c):
    s, q = c.session, c.q
    (number,), (fd,) = placeholders(s, 1)
    c.put("f", b"0123456789", mode=0o640)
    other = c.another()
    refused(other.ask(wire.CLAIM, b"", [fd])[0], "EBADF")
    flags = wire.READ | wire.WRITE
    opened = want(q.call("open", a=c.at("f"), aux=flags, imm=struct.pack("<I", number)))
    same(opened.result2 & 0xFFFFFFFF, 0o100640, "mode")
    want(q.call("open", a=c.at("f"), aux=flags, imm=struct.pack("<I", number)), "EINVAL")
    error, body, _ = other.ask(wire.CLAIM, b"", [fd])
    refused(error, "OK")
    handle, grant, mode, which, zero = struct.unpack("<QIIII", body)
    same((grant & 3, mode, which, zero), (flags, 0o100640, number, 0), "Claimed")
    theirs = other.queue()
    same(want(q.call("read", handle=opened.result, aux=1 << 28, a=4)).a, b"0123")
    same(want(theirs.call("read", handle=handle, aux=1 << 28, a=4)).a, b"4567", "read at the shared offset")
    want(q.call("close", handle=opened.result))
    want(theirs.call("read", handle=handle, a=4))
    os.close(fd)


@case(G, "a claim anew gives a description of its own: another offset, no append, the same access")
def claim_anew(c):
    s, q = c.session, c.q
    (number,), (fd,) = placeholders(s, 1)
    c.put("f", b"0123456789", mode=0o640)
    flags = wire.READ | wire.WRITE
    opened = want(q.call("open", a=c.at("f"), aux=flags, imm=struct.pack("<I", number)))
    want(q.call("read", handle=opened.result, aux=1 << 28, a=4))
    other = c.another()
    for body in (struct.pack("<II", 0, 0), struct.pack("<II", 2, 0), struct.pack("<II", 1, 1)):
        bad = c.another()
        closes(bad, lambda bad=bad, body=body: bad.ask(wire.CLAIM, body, [fd]))
    error, body, _ = other.ask(wire.CLAIM, struct.pack("<II", 1, 0), [fd])
    refused(error, "OK")
    handle, grant, mode, which, zero = struct.unpack("<QIIII", body)
    same((grant & 3, mode, which, zero), (flags, 0o100640, number, 0), "Claimed")
    theirs = other.queue()
    same(want(theirs.call("read", handle=handle, aux=1 << 28, a=4)).a, b"0123", "read at an offset of its own")
    same(want(q.call("read", handle=opened.result, aux=1 << 28, a=4)).a, b"4567")
    os.close(fd)
    want(q.call("close", handle=opened.result))
    same(want(theirs.call("read", handle=handle, a=4)).a, b"0123", "after the other is closed")


@case(G, "share gives placeholders of files that are open, once each")
def share(c):
    s, q = c.session, c.q
    opened = []
    for name in ("one", "two"):
        c.put(name, name.encode())
        opened.append(want(q.call("open", a=c.at(name), aux=wire.READ, imm=struct.pack("<I", 0))).result)
    ask = lambda count, *handles, zero=0: s.ask(wire.SHARE, struct.pack("<II16Q", count, zero, *handles, *[0] * (16 - len(handles))))
    for bad in ((0,), (17, *opened), (1, *opened), (2, *opened, 7)):
        refused(ask(*bad)[0], "EINVAL")
    refused(ask(1, opened[0], zero=1)[0], "EINVAL")
    refused(ask(2, opened[0], 1 << 40 | 77)[0], "EBADF")
    error, body, fds = ask(2, *opened)
    refused(error, "OK")
    count, zero, *ids = struct.unpack("<II16I", body)
    same((count, zero, len(fds), ids[2:]), (2, 0, 2, [0] * 14), "PlaceholdersReply")
    refused(ask(1, opened[1])[0], "EEXIST")
    other = c.another()
    for fd, number, data in zip(fds, ids, (b"one", b"two")):
        error, body, _ = other.ask(wire.CLAIM, b"", [fd])
        refused(error, "OK")
        handle, _, _, which, _ = struct.unpack("<QIIII", body)
        same(which, number, "its id")
        same(want(other.queue().call("read", handle=handle, a=3)).a, data)
    # One that got lost with every copy of it counts no more.
    for fd in fds:
        os.close(fd)
    error, body, fds = ask(1, opened[0])
    refused(error, "OK")
    os.close(fds[0])


@case(G, "claim of what is no placeholder is EBADF")
def claim_of_others(c):
    a, b = os.pipe()
    refused(c.session.ask(wire.CLAIM, b"", [a])[0], "EBADF")
    refused(c.session.ask(wire.CLAIM, b"", [c.q.memory_fd])[0], "EBADF")
    # Nor are two of them one.
    ids, fds = placeholders(c.session, 2)
    want(c.call("open", a=c.dir, aux=wire.READ, imm=struct.pack("<I", ids[0])))
    refused(c.session.ask(wire.CLAIM, b"", fds)[0], "EBADF")
    refused(c.session.ask(wire.CLAIM, b"", fds[:1])[0], "OK")
    for fd in fds:
        os.close(fd)
    os.close(a)
    os.close(b)


@case(G, "an id of no placeholder is EINVAL")
def foreign_id(c):
    want(c.call("open", a=c.at("f"), aux=wire.WRITE | wire.CREATE, imm=struct.pack("<I", 0xFFFF)), "EINVAL")
    ids, fds = placeholders(c.another(), 1)
    want(c.call("open", a=c.at("g"), aux=wire.WRITE | wire.CREATE, imm=struct.pack("<I", ids[0])), "EINVAL")
    os.close(fds[0])


@case(G, "absolute links that begin with the session's prefix lead to the root, others are EXDEV", hostdir=False)
def prefix(c):
    c.put("f", b"found")
    want(c.call("symlink", a=c.at("in"), b=b"/weld" + c.at("f")))
    want(c.call("symlink", a=c.at("out"), b=c.at("f")))
    q = c.another(prefix=b"/weld").queue()
    same(want(q.call("open_read_close", a=c.at("in"), aux=wire.READ, b=9)).result, 5)
    want(q.call("open_read_close", a=c.at("out"), aux=wire.READ, b=9), "EXDEV")
    want(c.call("open_read_close", a=c.at("out"), aux=wire.READ, b=9), result=5)
    want(c.call("open_read_close", a=c.at("in"), aux=wire.READ, b=9), "ENOENT")


@case(G, "identity is as of connect")
def identity(c):
    q = c.stranger().queue() if not c.hostdir else None
    if q is None:
        raise Skip("a server may serve its own user only (docs/HOSTDIR.md)")
    want(q.call("open_write_close", a=c.at("f"), b=b"x", aux=wire.WRITE | wire.CREATE | 0o600 << 16))
    same(c.stat("f")["uid"], 65534, "owner")
    c.put("mine", b"x", mode=0o600)
    want(q.call("open_read_close", a=c.at("mine"), aux=wire.READ, b=1), "EACCES")
