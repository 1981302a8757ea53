"""Section 5, names: directories, listings, links, extended attributes."""

import wire
from case import case, same, true, want

G = "names"
NOREPLACE, EXCHANGE = 1, 2


@case(G, "mkdir and rmdir")
def directories(c):
    want(c.call("mkdir", a=c.at("d"), aux=0o750 << 16))
    same((c.stat("d")["mode"], c.stat("d")["nlink"] >= 1), (0o040750, True))
    want(c.call("mkdir", a=c.at("d"), aux=0o750 << 16), "EEXIST")
    c.put("d/f")
    want(c.call("rmdir", a=c.at("d")), "ENOTEMPTY")
    want(c.call("rmdir", a=c.at("d/f")), "ENOTDIR")
    want(c.call("unlink", a=c.at("d")), "EISDIR")
    want(c.call("unlink", a=c.at("d/f")))
    want(c.call("rmdir", a=c.at("d/.")), "EINVAL")
    want(c.call("rmdir", a=c.at("d/..")), "ENOTEMPTY")
    want(c.call("rmdir", a=c.at("d")))
    want(c.call("rmdir", a=c.at("d")), "ENOENT")


@case(G, "the root cannot be removed: EBUSY, or what is said of `.` and `..` everywhere")
def root(c):
    for path in (b"/", b"//", b"///"):
        want(c.call("rmdir", a=path), "EBUSY")
    for path in (b"/..", b"/../..", b"/../"):
        want(c.call("rmdir", a=path), "ENOTEMPTY")
    want(c.call("rmdir", a=b"/."), "EINVAL")
    want(c.call("unlink", a=b"/"), "EISDIR")
    want(c.call("mkdir", a=b"/"), "EEXIST")


@case(G, "rename: replace, keep, exchange, and what cannot be")
def renames(c):
    def rename(a, b, flags=0):
        return c.call("rename", a=c.at(a), b=c.at(b), aux=flags)

    c.put("a", b"a")
    c.put("b", b"b")
    want(rename("a", "b", NOREPLACE), "EEXIST")
    want(rename("a", "b", EXCHANGE))
    same((c.read("a"), c.read("b")), (b"b", b"a"))
    want(rename("a", "b"))
    same((c.exists("a"), c.read("b")), (False, b"b"))
    want(rename("a", "x"), "ENOENT")
    want(rename("b", "x", EXCHANGE), "ENOENT")
    want(rename("b", "x", NOREPLACE | EXCHANGE), "EINVAL")
    want(rename("b", "x", 4), "EINVAL")
    want(rename("b", "x", NOREPLACE))
    want(c.call("mkdir", a=c.at("d"), aux=0o755 << 16))
    want(c.call("mkdir", a=c.at("e"), aux=0o755 << 16))
    want(rename("d", "d/sub"), "EINVAL")
    want(rename("x", "d"), "EISDIR")
    want(rename("d", "x"), "ENOTDIR")
    c.put("e/f")
    want(rename("d", "e"), "ENOTEMPTY")
    for name in (b"/", b"/..", c.dir + b"/."):
        want(c.call("rename", a=name, b=c.at("r")), "EBUSY")
        want(c.call("rename", a=c.at("x"), b=name), "EBUSY")
        want(c.call("rename", a=c.at("x"), b=name, aux=NOREPLACE), "EEXIST")


@case(G, "link: one more name of the same file")
def links(c):
    c.put("f", b"one")
    want(c.call("link", a=c.at("f"), b=c.at("g")))
    same((c.stat("f")["ino"], c.stat("g")["nlink"]), (c.stat("g")["ino"], 2))
    want(c.call("link", a=c.at("f"), b=c.at("g")), "EEXIST")
    want(c.call("link", a=c.dir, b=c.at("d")), "EPERM")
    want(c.call("link", a=c.at("no"), b=c.at("d")), "ENOENT")
    want(c.call("symlink", a=c.at("s"), b=b"f"))
    want(c.call("link", a=c.at("s"), b=c.at("s2")))
    same(c.stat("s2", nofollow=True)["mode"] & 0o170000, 0o120000, "type, not followed")
    want(c.call("link", a=c.at("s"), b=c.at("s3"), aux=1 << 31))
    same(c.stat("s3", nofollow=True)["ino"], c.stat("f")["ino"], "followed")


@case(G, "symbolic links: stored as given, read cut, followed 40 times")
def symlinks(c):
    want(c.call("symlink", a=c.at("s"), b=b"no/where"))
    same(want(c.call("readlink", a=c.at("s"), b=100), result=8).b[:8], b"no/where")
    same(want(c.call("readlink", a=c.at("s"), b=3), result=3).b, b"no/")
    want(c.call("readlink", a=c.at("s"), b=0), "EINVAL")
    want(c.call("readlink", a=c.dir, b=9), "EINVAL")
    want(c.call("symlink", a=c.at("s"), b=b"x"), "EEXIST")
    want(c.call("symlink", a=c.at("n"), b=b"a\0b"), "EINVAL")
    c.put("end", b"end")
    want(c.call("symlink", a=c.at("l1"), b=b"end"))
    for i in range(2, 42):
        want(c.call("symlink", a=c.at(f"l{i}"), b=b"l%d" % (i - 1)))
    same(c.read("l40"), b"end")
    want(c.call("open_read_close", a=c.at("l41"), b=9, aux=wire.READ), "ELOOP")
    want(c.call("symlink", a=c.at("loop"), b=b"loop"))
    want(c.call("open_read_close", a=c.at("loop"), b=9, aux=wire.READ), "ELOOP")


@case(G, "listings: every name once, `.` and `..` first, whatever the room; cookies stay valid")
def listings(c):
    wanted = {b"n%d" % i for i in range(100)}
    for name in wanted:
        c.put(name)
    h = want(c.call("open", a=c.dir, aux=wire.READ | wire.DIRECTORY)).result
    for room in (64, 333, 1 << 16):
        seen, cookie = [], 0
        while True:
            done = want(c.call("read_dir", handle=h, offset=cookie, a=room))
            if done.result == 0:
                break
            entries = wire.listing(done.a[:done.result])
            seen += [e[3] for e in entries]
            same(entries[-1][1], done.result2, "the cookie to go on with")
            cookie = done.result2
        true(c.hostdir or seen[:2] == [b".", b".."], f"the first two are {seen[:2]}")
        same(sorted(seen), sorted(wanted | {b".", b".."}), f"names with room for {room} bytes")
    want(c.call("read_dir", handle=h, a=8), "EINVAL")
    want(c.call("read_dir", handle=c.open("n0"), a=100), "ENOTDIR")


@case(G, "listings with attributes")
def listings_plus(c):
    for i in range(30):
        c.put(f"n{i}", b"x" * i)
    h = want(c.call("open", a=c.dir, aux=wire.READ | wire.DIRECTORY)).result
    seen, cookie = {}, 0
    while True:
        done = want(c.call("read_dir_plus", handle=h, offset=cookie, a=2000))
        if done.result == 0:
            break
        for _, _, kind, name, status, found in wire.listing(done.a[:done.result], attributes=True):
            same(status, 0, f"status of {name}")
            seen[name] = (kind, found["size"], found["ino"])
        cookie = done.result2
    for i in range(30):
        same(seen[b"n%d" % i], (8, i, c.stat(f"n{i}")["ino"]))
    true({b".", b".."} < set(seen), "the two that stand for directories")


@case(G, "extended attributes: set, get, list, remove")
def xattrs(c):
    c.put("f")

    def put(name, value, flags=0):
        return c.call("set_xattr", a=c.at("f"), c=name, b=value, aux=flags)

    def get(name, room):
        return c.call("get_xattr", a=c.at("f"), c=name, b=room)

    want(put(b"user.one", b"value"))
    want(put(b"user.one", b"other", 1), "EEXIST")
    want(put(b"user.two", b"other", 2), "ENODATA")
    want(put(b"user.two", b"x", 3), "EINVAL")
    want(put(b"user.one", b"changed", 2))
    same(want(get(b"user.one", 100), result=7).b[:7], b"changed")
    want(get(b"user.one", 0), result=7)
    want(get(b"user.one", 3), "ERANGE")
    want(get(b"user.no", 100), "ENODATA")
    want(put(b"user.empty", b""))
    want(get(b"user.empty", 10), result=0)
    want(put(b"nonsense", b"x"), "EOPNOTSUPP")
    want(put(b"user.big", b"x" * 4097), "E2BIG")
    done = want(c.call("list_xattr", a=c.at("f"), b=1000))
    names = set(done.b[:done.result].split(b"\0")[:-1])
    true({b"user.one", b"user.empty"} <= names, f"names {names}")
    want(c.call("list_xattr", a=c.at("f"), b=0), result=done.result)
    want(c.call("list_xattr", a=c.at("f"), b=3), "ERANGE")
    want(c.call("remove_xattr", a=c.at("f"), c=b"user.one"))
    want(c.call("remove_xattr", a=c.at("f"), c=b"user.one"), "ENODATA")
