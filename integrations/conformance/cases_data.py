"""Section 5: checksums of ranges, keys, batches."""

import struct

import sums
import wire
from case import case, same, true, want

G = "data"


@case(G, "checksum_range: CRC-32C, short at the end, holes as zeros")
def checksum_range(c):
    data = bytes(range(256)) * 9
    c.put("f", data)
    h = c.open("f")

    def of(off, length, kind=0):
        return c.call("checksum_range", handle=h, aux=kind, offset=off, imm=struct.pack("<Q", length))

    want(of(0, len(data)), result=len(data), result2=sums.crc32c(data))
    want(of(100, 50), result=50, result2=sums.crc32c(data[100:150]))
    want(of(2000, wire.INT64_MAX - 2000), result=304, result2=sums.crc32c(data[2000:]))
    want(of(9999, 10), result=0, result2=0)
    want(of(0, 10, kind=1), "EINVAL")
    want(of(10, wire.INT64_MAX), "EFBIG")
    want(c.call("truncate", handle=h, offset=5000))
    want(of(2304, 2696), result=2696, result2=sums.crc32c(bytes(2696)))
    d = want(c.call("open", a=c.dir, aux=wire.READ)).result
    want(c.call("checksum_range", handle=d, imm=struct.pack("<Q", 1)), "EISDIR")


@case(G, "keys: names, lengths, and bytes overwritten in the pool")
def keys(c):
    q = c.another().queue(8, 4096)
    names = set()
    for kind, n in ((0, 32), (1, 64), (2, 16), (3, 32)):
        key = bytes(range(n))
        done = want(q.call("set_key", aux=kind, a=key))
        names.add(done.result)
        same(done.a, bytes(n), "the key in the pool afterwards")
        want(q.call("set_key", aux=kind, a=key[:-1]), "EINVAL")
    want(q.call("set_key", aux=0, a=b"k" * 32), "EINVAL")
    want(q.call("set_key", aux=4, a=bytes(16)), "EINVAL")
    same(len(names), 4, "different names")
    for name in names:
        want(q.call("drop_key", imm=struct.pack("<Q", name)))
        want(q.call("drop_key", imm=struct.pack("<Q", name)), "ENOKEY")
    fresh = {want(q.call("set_key", aux=2, a=bytes(16))).result for _ in range(64)}
    true(not fresh & names, "a name was used again")
    want(q.call("set_key", aux=2, a=bytes(16)), "EMFILE")


def batch(c, entries, flags=0, at=1 << 20, room=None, results=None):
    """Sends entries as one batch: its own completion, and those of the elements."""
    raw = b"".join(e if isinstance(e, bytes) else e.bytes() for e in entries)
    out = room if room is not None else 32 * len(entries)
    done = c.q.call("batch", flags=flags, a=raw, b=results or out, at=at)
    found = [wire.Done(*wire.CQE.unpack_from(done.b, i)) for i in range(0, len(done.b) // 32 * 32, 32)]
    return done, found


@case(G, "a batch runs its elements in their order, each for itself")
def batches(c):
    one, _, at = c.q.entry("open_write_close", a=c.at("f"), b=b"one", aux=wire.WRITE | wire.CREATE | 0o644 << 16)
    two, _, at = c.q.entry("mkdir", a=c.at("no/d"), aux=0o755 << 16, at=at)
    three, where, at = c.q.entry("open_read_close", a=c.at("f"), b=9, aux=wire.READ, at=at)
    four = wire.Entry(wire.OPCODES["batch"], sequence=4)
    five = wire.Entry(60, sequence=5)
    done, found = batch(c, [one, two, three, four, five])
    want(done, result=5, result2=3)
    same([d.name for d in found], ["OK", "ENOENT", "OK", "EINVAL", "ENOSYS"])
    same([d.sequence for d in found], [one.sequence, two.sequence, three.sequence, 4, 5])
    same((found[2].result, c.q.get(*where["b"])[:3]), (3, b"one"))


@case(G, "what cannot be a batch")
def batch_refusals(c):
    nop = wire.Entry(0)
    want(batch(c, [])[0], "EINVAL")
    want(batch(c, [nop.bytes()[:-1]], room=32)[0], "EINVAL")
    want(batch(c, [nop, nop], room=32)[0], "EINVAL")
    want(batch(c, [nop, nop], results=((1 << 20) + 64, 64))[0], "EINVAL")
    want(batch(c, [nop] * 257)[0], "E2BIG")
    want(batch(c, [nop] * 256)[0], result=256, result2=0)


@case(G, "a durable batch, and one whose elements write one file")
def batch_writes(c):
    h = c.open("f")
    writes, at = [], 0
    for i in range(20):
        entry, _, at = c.q.entry("write", handle=h, aux=2 << 28, a=b"%02d" % i, at=at)
        writes.append(entry)
    done, found = batch(c, writes, flags=wire.DURABLE | wire.AFTER_DURABLE)
    want(done, result=20, result2=0)
    same([d.result2 for d in found], [2 * i for i in range(20)], "offsets")
    same(c.read("f"), b"".join(b"%02d" % i for i in range(20)))


@case(G, "write_verified: a write with the right checksum, EBADMSG and nothing with another")
def write_verified(c):
    c.put("f", b"0123456789")
    h, r = c.open("f"), c.open("f", wire.READ)

    def of(data, handle=h, change=0, **fields):
        imm = struct.pack("<I", sums.crc32c(data) ^ change)
        return c.call("write_verified", handle=handle, a=data, imm=imm, **fields)

    want(of(b"abc", offset=2), result=3, result2=2)
    want(of(b"end", aux=wire.END << 28), result=3, result2=10)
    want(of(b"x" * 9000, change=1, offset=4), "EBADMSG", done=0, failed=1)
    want(of(b"xy", change=1 << 31, aux=wire.END << 28), "EBADMSG")
    want(of(b"x", aux=1), "EINVAL")
    want(of(b"x", handle=r, change=1), "EBADF")
    same(c.read("f"), b"01abc56789end")
    long = bytes(range(256)) * 300
    want(of(long, offset=1), result=len(long), result2=1)
    whole = struct.pack("<Q", len(long))
    want(c.call("checksum_range", handle=h, offset=1, imm=whole), result=len(long), result2=sums.crc32c(long))
