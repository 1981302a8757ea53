"""Section 5, files: open, close, read, write, truncate, fallocate, seek, locks, flags, attributes."""

import struct
import time

import wire
from case import case, same, true, want

G = "files"
R, W, C = wire.READ, wire.WRITE, wire.CREATE
PUNCH, ZERO, ZERO_KEEP = 2, 3, 4


@case(G, "open creates, opens, refuses, and says what it found")
def opens(c):
    done = want(c.call("open", a=c.at("f"), aux=R | W | C | wire.EXCL | 0o640 << 16))
    same((done.result2 & 0xFFFFFFFF, done.result2 >> 63), (0o100640, 1), "mode and whether it was created")
    same(want(c.call("open", a=c.at("f"), aux=R | W | C)).result2 >> 63, 0, "created again")
    want(c.call("open", a=c.at("f"), aux=R | W | C | wire.EXCL), "EEXIST")
    want(c.call("open", a=c.at("no"), aux=R), "ENOENT")
    want(c.call("open", a=c.dir, aux=W), "EISDIR")
    want(c.call("open", a=c.at("f"), aux=R | wire.DIRECTORY), "ENOTDIR")
    want(c.call("symlink", a=c.at("s"), b=b"f"))
    want(c.call("open", a=c.at("s"), aux=R | wire.NOFOLLOW), "ELOOP")
    want(c.call("open", a=c.at("s"), aux=R))
    want(c.call("open", a=c.at("f"), aux=wire.PATH))


@case(G, "close gives a handle up; the root cannot be closed")
def closes(c):
    h = c.open("f")
    want(c.call("close", handle=h))
    want(c.call("close", handle=h), "EBADF")
    want(c.call("close", handle=0), "EBADF")
    want(c.call("stat", handle=0, a=256))


@case(G, "read and write: at offsets, at the description's own, at the end; holes are zeros")
def transfers(c):
    h = c.open("f")
    want(c.call("write", handle=h, offset=5, a=b"fives"), result=5, result2=5)
    want(c.call("write", handle=h, aux=2 << 28, a=b"end"), result=3, result2=10)
    want(c.call("write", handle=h, aux=1 << 28, a=b"ab"), result=2, result2=0)
    done = want(c.call("read", handle=h, aux=1 << 28, a=100), result=11, result2=2)
    same(done.a[:11], b"\0\0\0fivesend")
    want(c.call("read", handle=h, offset=13, a=4), result=0, result2=13)
    want(c.call("write", handle=h, offset=1 << 20, a=b"far"), result=3)
    same(want(c.call("read", handle=h, offset=5000, a=100)).a, bytes(100), "a hole")
    want(c.call("read", handle=h, a=0), result=0)
    want(c.call("write", handle=h, a=b""), result=0)


@case(G, "posting: who is published after it finds it; without a lease the flag changes nothing")
def posts(c):
    done = want(c.call("open", a=c.at("f"), aux=R | W | C | 0o644 << 16, flags=wire.POSTED))
    h, leased = done.result, done.result2 >> 62 & 1
    true(leased or not done.result2 >> 60 & 3, "rights without a lease")
    true(not (leased and c.hostdir), "a directory of the host grants no lease")
    other = c.another().queue()
    for n in range(1, 50):
        sent = [c.q.entry("write", handle=h, aux=1 << 28, a=b"%07d." % n, flags=wire.POSTED, at=64)[0],
                c.q.entry("set_attr", handle=h, a=wire.set_attr(1, mode=n), flags=wire.POSTED, at=256)[0]]
        for entry in sent:
            c.q.push(entry)
        if leased:
            found = wire.stat_of(want(other.call("stat_path", a=c.at("f"), b=256), result=256).b)
            same((found["size"], found["mode"] & 0o777), (8 * n, n), "what another session finds")
        # In whichever order they are answered: of a directory of the host several threads do that.
        answers = [c.q.reap() for _ in sent]
        same(sorted(done.sequence for done in answers), sorted(entry.sequence for entry in sent), "whose answers")
        for done in answers:
            want(done)
    c.q.push(c.q.entry("close", handle=h, flags=wire.POSTED)[0])
    want(c.q.reap())
    want(c.call("write", handle=h, a=b"x", flags=wire.POSTED), "EBADF")
    want(c.call("open", a=c.at("f"), aux=W, flags=wire.POSTED | wire.DURABLE), "EINVAL")
    want(c.call("read", handle=h, a=1, flags=wire.POSTED), "EINVAL")


@case(G, "looks: what comes along is what the file is, until the bit says otherwise")
def looks(c):
    watch = lambda n: struct.pack("<II", 0, n)
    stands = lambda n: not c.q.word["watches"].value >> n - 1 & 1
    other = c.another().queue()
    c.put("f", b"0123456789")
    for change in ({"op": "write", "offset": 3, "a": b"x"}, {"op": "truncate", "offset": 4},
                   {"op": "set_attr", "a": wire.set_attr(1, mode=0o600)}):
        mine = want(other.call("open", a=c.at("f"), aux=R | W)).result
        done = want(c.call("open", a=c.at("f"), aux=R, b=4096, imm=watch(3)))
        granted, whole = done.result2 >> 59 & 1, done.result2 >> 58 & 1
        true(not (granted and c.hostdir), "a directory of the host grants no looks")
        true(granted or not whole, "content without attributes")
        if granted:
            same(done.b[:256], want(c.call("stat", handle=done.result, a=256)).a, "attributes")
            same(done.b[256: 256 + c.stat("f")["size"]], c.read("f"), "content")
            true(stands(3), "the watch")
        want(other.call(change.pop("op"), handle=mine, **change))
        true(not granted or not stands(3), "the watch ends with the change")
        want(c.call("close", handle=done.result))
    done = want(c.call("open", a=c.at("f"), aux=W, b=4096, imm=watch(32)))
    true(not done.result2 >> 58 & 1, "content for a handle that cannot read")
    for b, n in ((255, 1), (256, 33), (0, 1), (256, 0), (16385, 1)):
        want(c.call("open", a=c.at("f"), aux=R, imm=watch(n), **({"b": b} if b else {})), "EINVAL")
    d = want(c.call("open", a=c.dir, aux=R | wire.DIRECTORY)).result
    done = want(c.call("read_dir_plus", handle=d, a=8192, imm=struct.pack("<I", 5)))
    if done.result >> 59 & 1:
        true(stands(5), "the listing's watch")
        want(other.call("unlink", a=c.at("f")))
        true(not stands(5), "it ends with a name in it")
    want(c.call("read_dir_plus", handle=d, a=8192, imm=struct.pack("<I", 33)), "EINVAL")


@case(G, "reads are watched: what they brought is what the file has, until the bit says otherwise")
def watched_reads(c):
    stands = lambda n: not c.q.word["watches"].value >> n - 1 & 1
    other = c.another().queue()
    c.put("f", bytes(range(200)) * 100)
    h, mine = c.open("f", R), want(other.call("open", a=c.at("f"), aux=W)).result
    def read(offset, n=5, **more):
        done = want(c.call("read", handle=h, offset=offset, a=100, imm=struct.pack("<I", n), **more))
        return done.a[:done.result], done.result2 >> 59 & 1, done.result2 >> 58 & 1
    bytes_of, watched, anew = read(0)
    same(bytes_of, bytes(range(100)), "bytes")
    true(not (watched and c.hostdir), "a directory of the host watches nothing")
    true(watched or not anew, "a watch that begins is one")
    if watched:
        true(anew and stands(5), "the first begins")
        _, watched, anew = read(19_950)
        true(watched and not anew and stands(5), "the second goes on")
        want(other.call("write", handle=mine, offset=10, a=b"x"))
        true(not stands(5), "the change ends it")
        bytes_of, watched, anew = read(0)
        same(bytes_of[10:11], b"x", "what was written")
        true(anew or not watched, "nothing is said of what was read before")
    want(c.call("read", handle=h, a=100, imm=struct.pack("<I", 33)), "EINVAL")


@case(G, "grants: READ for reading, WRITE for writing, neither with PATH")
def grants(c):
    c.put("f", b"x")
    r, w, p = c.open("f", R), c.open("f", W), c.open("f", wire.PATH)
    want(c.call("read", handle=w, a=1), "EBADF")
    want(c.call("write", handle=r, a=b"x"), "EBADF")
    for op, fields in (("read", {"a": 1}), ("write", {"a": b"x"}), ("truncate", {}), ("seek", {}),
                       ("checksum_range", {"imm": struct.pack("<Q", 1)})):
        want(c.call(op, handle=p, **fields), "EBADF")
    want(c.call("truncate", handle=r), "EBADF")
    want(c.call("fallocate", handle=r, imm=struct.pack("<Q", 1)), "EBADF")
    want(c.call("stat", handle=p, a=256))
    d = want(c.call("open", a=c.dir, aux=R)).result
    want(c.call("read", handle=d, a=1), "EISDIR")


@case(G, "APPEND goes to the end, whatever At says")
def append(c):
    c.put("f", b"0123")
    h = c.open("f", W | wire.APPEND)
    want(c.call("write", handle=h, offset=1, a=b"x"), result2=4)
    same(c.read("f"), b"0123x")


@case(G, "TRUNC, TMPFILE, and what is unlinked lives on until its last handle is closed")
def lives(c):
    c.put("f", b"content")
    h = c.open("f", R | W | wire.TRUNC)
    same(c.stat("f")["size"], 0, "size")
    want(c.call("write", handle=h, a=b"still"))
    want(c.call("unlink", a=c.at("f")))
    same(want(c.call("read", handle=h, a=9)).a[:5], b"still")
    same(wire.stat_of(want(c.call("stat", handle=h, a=256)).a)["nlink"], 0, "links")
    t = want(c.call("open", a=c.dir, aux=W | wire.TMPFILE | 0o600 << 16)).result
    want(c.call("write", handle=t, a=b"nameless"))
    want(c.call("link", handle=t, a=b"", b=c.at("named")))
    same(c.read("named"), b"nameless")
    t = want(c.call("open", a=c.dir, aux=W | wire.TMPFILE | wire.EXCL | 0o600 << 16)).result
    want(c.call("link", handle=t, a=b"", b=c.at("never")), "ENOENT")


@case(G, "truncate cuts and grows")
def truncates(c):
    c.put("f", b"0123456789")
    h = c.open("f")
    want(c.call("truncate", handle=h, offset=4))
    want(c.call("truncate", handle=h, offset=6))
    same(c.read("f"), b"0123\0\0")


@case(G, "a file holds 16 TiB and no byte more", hostdir=False)
def largest(c):
    h, end = c.open("f"), 1 << 44
    want(c.call("write", handle=h, offset=end - 1, a=b"x"))
    want(c.call("write", handle=h, offset=end, a=b"x"), "EFBIG")
    want(c.call("write", handle=h, aux=2 << 28, a=b"x"), "EFBIG")
    want(c.call("truncate", handle=h, offset=end + 1), "EFBIG")
    want(c.call("fallocate", handle=h, offset=end, imm=struct.pack("<Q", 1)), "EFBIG")
    want(c.call("read", handle=h, offset=end, a=1), result=0)
    same(c.stat("f")["size"], end, "size")


@case(G, "fallocate: reserve, keep the size, punch, zero")
def fallocates(c):
    h = c.open("f")

    def fallocate(mode, off, length):
        return c.call("fallocate", handle=h, aux=mode, offset=off, imm=struct.pack("<Q", length))

    want(fallocate(0, 0, 8192))
    same(c.stat("f")["size"], 8192, "size")
    want(fallocate(1, 8192, 8192))
    same(c.stat("f")["size"], 8192, "size kept")
    want(c.call("write", handle=h, a=b"x" * 8192))
    want(fallocate(PUNCH, 100, 200))
    same(c.read("f", 400), b"x" * 100 + bytes(200) + b"x" * 100)
    want(fallocate(ZERO, 8190, 10))
    same((c.stat("f")["size"], c.read("f")[-12:]), (8200, b"xx" + bytes(10)))
    want(fallocate(ZERO_KEEP, 8199, 100))
    same(c.stat("f")["size"], 8200, "size kept")
    want(fallocate(5, 0, 1), "EINVAL")
    want(fallocate(0, 0, 0), "EINVAL")
    want(fallocate(PUNCH, 0, 1 << 43))
    want(fallocate(PUNCH, 0, wire.INT64_MAX), ("OK", "EFBIG") if c.hostdir else "EFBIG")
    if not c.hostdir:
        # A small image says first that there is no room.
        want(fallocate(0, 0, (1 << 30) + 1), ("E2BIG", "ENOSPC"))
    d = want(c.call("open", a=c.dir, aux=R)).result
    # What changes a file needs WRITE, which no handle of a directory has.
    want(c.call("fallocate", handle=d, imm=struct.pack("<Q", 1)), "EBADF")


@case(G, "seek: set, current, end, data, hole")
def seeks(c):
    c.put("f", b"x" * 10)
    h = c.open("f")
    want(c.call("write", handle=h, offset=1 << 20, a=b"y"))
    end = (1 << 20) + 1
    for whence, off, wanted in ((0, 7, 7), (1, -3, 4), (2, 0, end), (2, 5, end + 5), (4, 0, None), (0, 0, 0)):
        done = want(c.call("seek", handle=h, aux=whence, offset=off))
        true(wanted is None or done.result == wanted, f"whence {whence}, {off}: {done.result}")
    hole = want(c.call("seek", handle=h, aux=4)).result
    data = want(c.call("seek", handle=h, aux=3, offset=hole)).result
    true(10 <= hole < data <= 1 << 20, f"a hole at {hole}, then data at {data}")
    want(c.call("seek", handle=h, aux=0, offset=-1), "EINVAL")
    want(c.call("seek", handle=h, aux=3, offset=end), "ENXIO")
    want(c.call("seek", handle=h, aux=4, offset=end), "ENXIO")
    want(c.call("seek", handle=h, aux=5), "EINVAL")


@case(G, "sync: of a file, of its data, of everything; with after_durable")
def syncs(c):
    h = c.open("f")
    want(c.call("write", handle=h, a=b"x", flags=wire.VOLATILE))
    for op in ("fsync", "fdatasync"):
        want(c.call(op, handle=h), result=0)
    want(c.call("syncfs"))
    want(c.call("read", handle=h, a=1, flags=wire.AFTER_DURABLE), result=1)


@case(G, "stat by handle and by path; NOFOLLOW sees the link")
def stats(c):
    c.put("f", b"12345", mode=0o604)
    want(c.call("symlink", a=c.at("s"), b=b"f"))
    by_path = c.stat("s")
    h = c.open("f", R)
    by_handle = wire.stat_of(want(c.call("stat", handle=h, a=256), result=256).a)
    same(by_path, by_handle)
    same((by_path["mode"], by_path["size"], by_path["nlink"]), (0o100604, 5, 1))
    true(not any(by_path["rest"]), "bytes behind the fields")
    link = c.stat("s", nofollow=True)
    same((link["mode"] & 0o170000, link["size"]), (0o120000, 1))
    same(wire.stat_of(want(c.call("stat_path", handle=h, a=b"", b=256)).b), by_handle, "of an empty path")
    same(by_path["version"], 0, "version")


@case(G, "set_attr: mode, size, times as given and now; nothing else changes")
def set_attrs(c):
    c.put("f", b"12345")
    h = c.open("f")
    want(c.call("set_attr", handle=h, a=wire.set_attr(1 | 8, mode=0o4711, size=3)))
    found = c.stat("f")
    same((found["mode"], found["size"]), (0o104711, 3))
    want(c.call("set_attr_path", a=c.at("f"), b=wire.set_attr(16 | 32, atime=(-5, 7), mtime=(9, 11))))
    found = c.stat("f")
    same((found["atime"], found["mtime"]), ((-5, 7), (9, 11)))
    want(c.call("set_attr_path", a=c.at("f"), b=wire.set_attr(64 | 128)))
    true(abs(c.stat("f")["mtime"][0] - time.time()) < 600, "mtime now")
    want(c.call("set_attr_path", a=c.at("f"), b=wire.set_attr(2 | 4, uid=0xFFFFFFFF, gid=0xFFFFFFFF)))
    same((c.stat("f")["uid"], c.stat("f")["gid"]), (found["uid"], found["gid"]), "owner and group")
    want(c.call("set_attr_path", a=c.dir, b=wire.set_attr(8)), "EISDIR")


@case(G, "strangers may not change, open, search or link what is not theirs", hostdir=False)
def strangers(c):
    c.put("f", b"x", mode=0o644)
    c.put("secret", b"x", mode=0o600)
    want(c.call("mkdir", a=c.at("closed"), aux=0o700 << 16))
    q = c.stranger().queue()
    want(q.call("set_attr_path", a=c.at("f"), b=wire.set_attr(1, mode=0o777)), "EPERM")
    want(q.call("set_attr_path", a=c.at("f"), b=wire.set_attr(2, uid=65534)), "EPERM")
    want(q.call("set_attr_path", a=c.at("f"), b=wire.set_attr(8)), "EACCES")
    want(q.call("open", a=c.at("f"), aux=W), "EACCES")
    want(q.call("open", a=c.at("secret"), aux=R), "EACCES")
    want(q.call("stat_path", a=c.at("closed/x"), b=256), "EACCES")
    want(q.call("open", a=c.at("f"), aux=R | wire.NOATIME), "EPERM")
    want(q.call("open", a=c.at("f"), aux=R))
    want(q.call("link", a=c.at("secret"), b=c.at("l")), "EPERM")
    want(q.call("link", a=c.at("f"), b=c.at("l")), "EPERM")
    c.put("shared", b"x", mode=0o666)
    want(c.call("set_attr_path", a=c.at("shared"), b=wire.set_attr(1, mode=0o666)))
    want(q.call("link", a=c.at("shared"), b=c.at("l")))
    want(q.call("access", a=c.at("secret"), aux=4), "EACCES")
    want(q.call("access", a=c.at("f"), aux=4))
    same(q.session.ask(wire.DETACH)[0], 0)


@case(G, "set_flags: exactly the bits given, NOATIME only by the owner")
def set_flags(c):
    c.put("f", b"0123")
    h = c.open("f", R | W)
    bits = wire.APPEND | wire.NOATIME | wire.NONBLOCK | wire.DIRECT
    want(c.call("set_flags", handle=h, aux=bits), result=bits | R | W)
    want(c.call("write", handle=h, offset=0, a=b"x"), result2=4)
    want(c.call("set_flags", handle=h, aux=0))
    want(c.call("write", handle=h, offset=0, a=b"x"), result2=0)
    for bits in (R, W, C, wire.EXCL, wire.TRUNC, wire.DIRECTORY, wire.NOFOLLOW, wire.PATH, wire.SYNC, 1 << 15):
        want(c.call("set_flags", handle=h, aux=bits), "EINVAL")


@case(G, "set_flags with NOATIME by a stranger is EPERM", hostdir=False)
def set_noatime(c):
    c.put("f", b"0123")
    q = c.stranger().queue()
    h = want(q.call("open", a=c.at("f"), aux=R)).result
    want(q.call("set_flags", handle=h, aux=wire.NOATIME), "EPERM")
    want(q.call("set_flags", handle=h, aux=wire.APPEND))


def lock(c, h, action, kind=0, space=0, start=0, length=0, owner=1, q=None):
    room = {"a": 32} if action == 0 else {}
    aux = action | kind << 4 | space << 8
    return (q or c.q).call("lock", handle=h, aux=aux, offset=start, imm=struct.pack("<QQ", length, owner), **room)


@case(G, "byte-range locks: conflicts, get, unlock, close gives back, the session's end too")
def range_locks(c):
    h = c.open("f")
    s = c.another()
    q = s.queue()
    other = c.open("f", q=q)
    want(lock(c, h, 1, 1, 0, 10, 10, owner=7))
    want(lock(c, other, 1, 0, 0, 15, 1, q=q), "EAGAIN")
    want(lock(c, other, 1, 0, 0, 20, 1, q=q))
    found = want(lock(c, other, 0, 1, 0, 0, 0, q=q)).a
    same(struct.unpack_from("<QQQB", found), (10, 10, 7, 1), "the lock in the way")
    same((want(lock(c, other, 0, 1, 0, 0, 0, q=q)).result, want(lock(c, other, 0, 1, 0, 0, 10, q=q)).result), (1, 0))
    same(want(lock(c, other, 0, 1, 0, 0, 10, q=q)).a[24], 2, "kind where nothing conflicts")
    want(lock(c, h, 1, 2, 0, 10, 5, owner=7))
    want(lock(c, other, 1, 1, 0, 12, 1, q=q))
    second = c.open("f")
    want(c.call("close", handle=second))
    want(lock(c, other, 1, 1, 0, 15, 5, q=q))
    want(lock(c, h, 1, 1, 0, 12, 1, owner=7), "EAGAIN")
    s.close()
    c.extra.remove(s)
    for _ in range(500):
        if lock(c, h, 1, 1, 0, 0, 0, owner=7).status == 0:
            break
        time.sleep(0.01)
    want(lock(c, h, 1, 1, 0, 0, 0, owner=7))


@case(G, "locks of descriptions and flock; a PATH handle has none")
def description_locks(c):
    h = c.open("f")
    other = c.open("f")
    want(lock(c, h, 1, 1, 1, 0, 10, owner=0))
    want(lock(c, other, 1, 1, 1, 5, 1, owner=0), "EAGAIN")
    want(c.call("close", handle=h))
    want(lock(c, other, 1, 1, 1, 5, 1, owner=0))
    h = c.open("f", R)
    want(lock(c, h, 1, 1, 2, owner=0))
    want(lock(c, other, 1, 0, 2, owner=0), "EAGAIN")
    want(lock(c, h, 1, 0, 2, owner=0))
    want(lock(c, other, 1, 0, 2, owner=0))
    path = c.open("f", wire.PATH)
    for space in (0, 1, 2):
        want(lock(c, path, 1, 0, space, owner=0), "EBADF")
    for space in (0, 1):
        want(lock(c, path, 0, 0, space, owner=0), "EBADF")


@case(G, "locks: grants, and what cannot be")
def lock_refusals(c):
    c.put("f")
    r, w = c.open("f", R), c.open("f", W)
    want(lock(c, r, 1, 1), "EBADF")
    want(lock(c, w, 1, 0), "EBADF")
    for action, kind, space in ((2, 0, 0), (1, 3, 0), (1, 0, 3), (0, 0, 2)):
        want(lock(c, r, action, kind, space), "EINVAL")
    want(lock(c, r, 1, 0, 2, start=1), "EINVAL")
    want(lock(c, r, 1, 0, 2, length=1), "EINVAL")
    want(c.call("lock", handle=r, aux=1, a=32), "EINVAL")
    want(lock(c, r, 1, 0, 0, start=wire.INT64_MAX, length=2), "EOVERFLOW")


@case(G, "result and result2 are 0 where the page says nothing of them")
def results(c):
    c.put("f")
    h = c.open("f")
    value = {"c": b"user.a", "b": b"v"}
    for op, fields in (("truncate", {"handle": h, "offset": 9}),
                       ("fallocate", {"handle": h, "imm": struct.pack("<Q", 4)}),
                       ("fsync", {"handle": h}), ("fdatasync", {"handle": h}), ("syncfs", {}),
                       ("set_attr", {"handle": h, "a": wire.set_attr(1, mode=0o600)}),
                       ("set_attr_path", {"a": c.at("f"), "b": wire.set_attr(1, mode=0o644)}),
                       ("access", {"a": c.at("f")}), ("set_xattr", {"a": c.at("f"), **value}),
                       ("remove_xattr", {"a": c.at("f"), "c": b"user.a"}), ("mkdir", {"a": c.at("d"), "aux": 7 << 22}),
                       ("rename", {"a": c.at("d"), "b": c.at("e")}), ("rmdir", {"a": c.at("e")}),
                       ("symlink", {"a": c.at("s"), "b": b"f"}), ("link", {"a": c.at("f"), "b": c.at("g")}),
                       ("unlink", {"a": c.at("g")}), ("lock", {"handle": h, "aux": 1 | 1 << 4}),
                       ("close", {"handle": h})):
        done = c.call(op, **fields)
        same((op, done.name, done.result, done.result2, done.done), (op, "OK", 0, 0, 1))


@case(G, "statfs and access")
def statfs(c):
    body = want(c.call("statfs", a=128), result=128).a
    bsize, blocks, bfree, bavail, files, ffree, _, name_max, _ = struct.unpack_from("<7QII", body)
    true(bsize and blocks >= bfree >= bavail and files >= ffree and name_max == 255, "counters")
    c.put("f", mode=0o600)
    want(c.call("access", a=c.at("f"), aux=6))
    want(c.call("access", a=c.at("f"), aux=0))
    want(c.call("access", a=c.at("f"), aux=8), "EINVAL")
    want(c.call("access", a=c.at("no"), aux=0), "ENOENT")
