"""Sections 3 and 4: what is refused before it does anything."""

import struct

import wire
from case import Failed, case, same, want

G = "refusals"
NO_TRANSACTION = {0, 2, 8, 9, 10, 16, 17, *range(19, 27), 28, 46}


def filled(c, name, at=0):
    """An entry of an operation in which every range and number is sound by itself."""
    places = wire.PLACES[name]
    ranges, imm = {}, bytearray(16)
    samples = {"path": b"no-such", "path?": b"no-such", "target": b"t", "name": b"user.n", "bytes": bytes(64),
               "32?": 32}
    for letter in "ABC":
        if letter in places:
            what = places[letter]
            ranges[letter.lower()] = samples.get(what, what)
    if name == "set_key":
        ranges["a"] = 16
    aux = 0
    if name == "set_key":
        aux = 2
    if name in ("open", "open_write_close", "open_read_write_close", "open_read_close"):
        aux = wire.READ | wire.WRITE if name != "open_read_close" else wire.READ
    if name in ("append_checksum_write", "read_checksum_verify"):
        imm[:4] = struct.pack("<I", 64) if name == "read_checksum_verify" else bytes(4)
    if name == "read_modify_write":
        aux = 64 << 8
    if name == "lock":
        ranges.pop("a")
        aux = 1 | 2 << 4
    return c.q.entry(name, aux=aux, imm=bytes(imm), at=at, **ranges)


@case(G, "every bit that an operation does not name is zero, or EINVAL")
def unnamed_bits(c):
    sent = 0
    for name, places in wire.PLACES.items():
        spare = []
        aux = places.get("aux", 0)
        spare += [("aux", 1 << bit) for bit in range(32) if not aux >> bit & 1]
        for field in ("handle", "offset"):
            if field not in places:
                spare += [(field, 1 << bit) for bit in (0, 31, 63)]
        if "A" not in places:
            spare += [("length", 1), ("length", 1 << 31), ("pool_off", 1), ("pool_off", 1 << 31)]
        if "B" not in places:
            spare += [("length2", 1), ("length2", 1 << 31), ("pool_off2", 1), ("pool_off2", 1 << 31)]
        taken = set(places.get("imm", ())) | set(range(8) if "C" in places else ())
        spare += [("imm", at) for at in range(16) if at not in taken]
        for field, bit in spare:
            entry, _, _ = filled(c, name)
            if field == "imm":
                imm = bytearray(entry.imm)
                imm[bit] = 0x80
                entry.imm = bytes(imm)
            else:
                setattr(entry, field, getattr(entry, field) | bit)
            done = c.q.send(entry)
            if done.name != "EINVAL":
                raise Failed(f"{name} with {field} {bit:#x} is {done.name}")
            sent += 1
    same(sent > 1000, True, f"{sent} entries")


@case(G, "unknown opcodes are ENOSYS")
def unknown_opcodes(c):
    for op in (30, 31, 47, 50, 63, 71, 72, 255, 256, 0x4000, 0xFFFF):
        want(c.call(op), "ENOSYS", done=0, failed=1, result=0, result2=0)
    # Before anything else of the entry.
    want(c.call(71, flags=3, aux=1, handle=9), "ENOSYS")


@case(G, "flags: values that have no meaning, and what version 1 does not do")
def flags(c):
    for bits, wanted in ((3, "EINVAL"), (3 << 2, "EINVAL"), (2 << 4, "EOPNOTSUPP"), (3 << 4, "EOPNOTSUPP"),
                         (1 << 7, "EINVAL"), (1 << 8, "EINVAL"), (1 << 9, "EINVAL"), (1 << 15, "EINVAL"), (1 << 4, "OK"),
                         *[(life << 12 | priority << 10, "OK" if life < 5 else "EINVAL")
                           for life in range(8) for priority in range(4)],
                         (wire.VOLATILE, "OK"), (wire.DURABLE, "OK"), (wire.MACRO, "OK"), (wire.MICRO, "OK"),
                         (wire.AFTER_DURABLE, "OK")):
        want(c.call("nop", flags=bits), wanted)


@case(G, "detectable with an operation without a transaction is EINVAL")
def detectable(c):
    for name, op in wire.OPCODES.items():
        entry, _, _ = filled(c, name)
        entry.flags = wire.DETECTABLE
        if op in NO_TRANSACTION:
            want(c.q.send(entry), "EINVAL")


@case(G, "placement in a slot: what has a compute stage has it, a core in its place is for slots only")
def placement(c):
    SLOT, OR_CORE = 3 << 4, 1 << 9
    h = c.open("f")
    for bits in (OR_CORE, 1 << 4 | OR_CORE):
        want(c.call("append_checksum_write", handle=h, a=b"payload", flags=bits), "EINVAL")
    for bits in (2 << 4, 2 << 4 | OR_CORE):
        want(c.call("append_checksum_write", handle=h, a=b"payload", flags=bits), "EOPNOTSUPP")
    for bits in (SLOT, SLOT | OR_CORE):
        want(c.call("write", handle=h, a=b"payload", flags=bits), "EOPNOTSUPP")
        done = c.call("append_checksum_write", handle=h, a=b"payload", flags=bits)
        want(done, "EOPNOTSUPP" if c.hostdir else "OK")


@case(G, "a range that does not lie in the pool is EFAULT")
def ranges(c):
    size = c.q.pool_bytes
    fields = {"A": ("pool_off", "length"), "B": ("pool_off2", "length2")}
    for name, places in wire.PLACES.items():
        for letter in "ABC":
            if letter not in places or (name, letter) == ("lock", "A"):
                continue
            entry, _, _ = filled(c, name)
            for off in (size, 0xFFFFFFFF, size - 1):
                if letter == "C":
                    length = struct.unpack_from("<I", entry.imm, 4)[0]
                    if length < 2:
                        continue
                    entry.imm = struct.pack("<I", off) + entry.imm[4:]
                else:
                    place, length = fields[letter]
                    if getattr(entry, length) < 2:
                        setattr(entry, length, 2)
                    setattr(entry, place, off)
                done = c.q.send(entry)
                if done.name != "EFAULT":
                    raise Failed(f"{name} with range {letter} at {off:#x} is {done.name}")


@case(G, "lengths of ranges: paths, targets, names, payload, bodies")
def lengths(c):
    big = wire.ATOMIC_WRITE_MAX + 1
    h = c.open("f")
    for name, places in wire.PLACES.items():
        entry, _, _ = filled(c, name)
        if places.get("A") == "path":
            for n, wanted in ((0, "ENOENT"), (4096, "ENAMETOOLONG")):
                entry.length = n
                want(c.q.send(entry), wanted)
        elif places.get("A") == "path?":
            entry.length = 4096
            want(c.q.send(entry), "ENAMETOOLONG")
        elif isinstance(places.get("A"), int):
            for n in (0, places["A"] - 1, places["A"] + 1):
                entry.length = n
                want(c.q.send(entry), "EINVAL")
        if isinstance(places.get("B"), int):
            entry, _, _ = filled(c, name)
            entry.length2 = places["B"] + 1
            want(c.q.send(entry), "EINVAL")
        if places.get("C") == "name":
            for n in (0, 256):
                entry, _, _ = filled(c, name)
                entry.imm = struct.pack("<II", 0, n) + bytes(8)
                want(c.q.send(entry), "ERANGE")
    for op in ("read", "write", "read_dir", "read_dir_plus"):
        want(c.call(op, handle=h, a=(0, big)), "E2BIG")
    want(c.call("open_write_close", a=c.at("f"), aux=wire.WRITE, b=(0, big)), "E2BIG")
    want(c.call("symlink", a=c.at("s"), b=b""), "ENOENT")
    want(c.call("symlink", a=c.at("s"), b=b"t" * 4096), "ENAMETOOLONG")
    want(c.call("lock", handle=h, aux=0, a=31), "EINVAL")


@case(G, "paths: NUL, long components, nothing, and what is no directory")
def paths(c):
    c.put("f")
    for path, wanted in ((b"a\0b", "EINVAL"), (b"n" * 256, "ENAMETOOLONG"), (c.at("f") + b"/x", "ENOTDIR"),
                         (c.at("no/x"), "ENOENT"), (b"x/" * 2040 + b"y", "ENOENT")):
        want(c.call("stat_path", a=path, b=256), wanted)
        want(c.call("unlink", a=path), wanted)
    want(c.call("stat_path", a=b"/" + b"n" * 255, b=256), "ENOENT")
    want(c.call("stat_path", handle=1 << 40 | 77, a=b"f", b=256), "EBADF")
    want(c.call("stat_path", handle=c.open("f"), a=b"x", b=256), "ENOTDIR")
    same(wire.stat_of(want(c.call("stat_path", a=b"/../../..", b=256)).b)["ino"], 1 if not c.hostdir else
         wire.stat_of(want(c.call("stat_path", a=b"/", b=256)).b)["ino"], "inode of /..")


@case(G, "offsets and At: beyond the largest, ends that are none")
def offsets(c):
    h = c.open("f")
    huge = 1 << 63
    for op, more in (("read", {"a": 1}), ("write", {"a": b"x"})):
        want(c.call(op, handle=h, offset=huge, **more), "EINVAL")
        want(c.call(op, handle=h, offset=huge - 1, **more), "EFBIG")
        want(c.call(op, handle=h, aux=3 << 28, **more), "EINVAL")
        want(c.call(op, handle=h, aux=1 << 28, offset=1, **more), "EINVAL")
        want(c.call(op, handle=h, aux=2 << 28, offset=1, **more), "EINVAL")
    want(c.call("read", handle=h, aux=2 << 28, a=1), "EINVAL")
    want(c.call("truncate", handle=h, offset=huge), "EINVAL")
    want(c.call("open_read_close", a=c.at("f"), aux=wire.READ, offset=huge, b=1), "EINVAL")


@case(G, "open flags that do not go together")
def open_flags(c):
    w = wire
    for bits in (0, w.CREATE, w.PATH | w.READ, w.PATH | w.WRITE, w.PATH | w.CREATE, w.PATH | w.TRUNC,
                 w.PATH | w.TMPFILE, w.TMPFILE | w.READ, w.TMPFILE | w.WRITE | w.CREATE,
                 w.TMPFILE | w.WRITE | w.DIRECTORY, w.CREATE | w.WRITE | w.DIRECTORY, w.READ | 1 << 15):
        want(c.call("open", a=c.at("f"), aux=bits), "EINVAL")
    for bits in (w.READ, w.WRITE | w.PATH, w.WRITE | w.DIRECTORY, w.WRITE | w.TMPFILE):
        want(c.call("open_write_close", a=c.at("f"), b=b"x", aux=bits), "EINVAL")
    want(c.call("open_write_close", a=c.at("f"), b=b"x", aux=w.WRITE | w.CREATE | 1 << 28), "EINVAL")
    for bits in (w.CREATE, w.EXCL, w.TRUNC, w.PATH, w.DIRECTORY, w.TMPFILE):
        want(c.call("open_read_close", a=c.at("f"), b=1, aux=w.READ | bits), "EINVAL")
    for bits in (w.READ, w.WRITE, w.READ | w.WRITE | w.DIRECTORY):
        want(c.call("open_read_write_close", a=c.at("f"), b=1, c=b"x", aux=bits), "EINVAL")


@case(G, "bodies: masks, times, reserved bytes")
def bodies(c):
    c.put("f")
    bad = [wire.set_attr(1 << 8), wire.set_attr(1 << 31), wire.set_attr(1 << 4 | 1 << 6),
           wire.set_attr(1 << 5 | 1 << 7),
           wire.set_attr(1, mode=0o10000), wire.set_attr(8, size=1 << 63), wire.set_attr(16, atime=(0, 10 ** 9)),
           wire.set_attr(1, mode=0o644)[:-1] + b"\1"]
    times = bytearray(wire.set_attr(16))
    times[36] = 1
    for body in (*bad, bytes(times)):
        want(c.call("set_attr_path", a=c.at("f"), b=body), "EINVAL")


@case(G, "stale and unknown handles are EBADF")
def handles(c):
    h = c.open("f")
    want(c.call("close", handle=h))
    for dead in (h, 1, 0xFFFFFFFF, (1 << 64) - 1, h + (1 << 32)):
        for op, fields in (("close", {}), ("read", {"a": 1}), ("write", {"a": b"x"}), ("truncate", {}), ("fsync", {}),
                           ("fdatasync", {}), ("stat", {"a": 256}), ("set_attr", {"a": wire.set_attr(0)}),
                           ("read_dir", {"a": 4096}), ("read_dir_plus", {"a": 4096}), ("seek", {}), ("set_flags", {}),
                           ("lock", {"aux": 1}), ("checksum_range", {}), ("fallocate", {"imm": b"\1"}),
                           ("append_checksum_write", {"a": b"x"}), ("read_modify_write", {"aux": 1 << 8, "a": b"x"}),
                           ("txn_write", {"a": b"x"}), ("txn_commit", {}), ("txn_abort", {})):
            done = c.call(op, handle=dead, **fields)
            if done.name != ("EOPNOTSUPP" if c.hostdir and op.startswith("txn") else "EBADF"):
                raise Failed(f"{op} with the handle {dead:#x} is {done.name}")
