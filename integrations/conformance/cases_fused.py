"""Section 5: the fused operations with an opcode of their own."""

import struct

import sums
import wire
from case import case, same, want

G = "fused"
R, W, C = wire.READ, wire.WRITE, wire.CREATE
PATCH, ADD, XOR, XOR_IMM, SWAP = range(5)


@case(G, "open_write_close: creates, writes at an offset or the end, says where")
def owc(c):
    def owc_(data, aux=0, **fields):
        return c.call("open_write_close", a=c.at("f"), b=data, aux=W | aux, **fields)

    want(owc_(b"x"), "ENOENT", failed=1)
    want(owc_(b"01234", C | 0o640 << 16), result=5, result2=1 << 63, done=3)
    same(c.stat("f")["mode"], 0o100640, "mode")
    want(owc_(b"ab", offset=1), result=2, result2=1)
    want(owc_(b"end", 2 << 28), result=3, result2=5)
    want(owc_(b"more", wire.APPEND), result2=8)
    same(c.read("f"), b"0ab34endmore")
    want(owc_(b"new", wire.TRUNC), result2=0)
    same(c.read("f"), b"new")
    want(owc_(b"x", C | wire.EXCL), "EEXIST")
    for mode in (wire.MACRO, wire.MICRO):
        want(owc_(b"m", C | wire.TRUNC, flags=(mode if not c.hostdir else wire.MICRO) | wire.DURABLE), result=1)


@case(G, "open_read_close: from an offset, short at the end")
def orc(c):
    c.put("f", b"0123456789")
    done = want(c.call("open_read_close", a=c.at("f"), b=100, aux=R, offset=4), result=6, done=3)
    same(done.b[:6], b"456789")
    want(c.call("open_read_close", a=c.at("f"), b=100, aux=R, offset=10), result=0)
    want(c.call("open_read_close", a=c.at("no"), b=100, aux=R), "ENOENT", done=0, failed=1)
    want(c.call("open_read_close", a=c.dir, b=100, aux=R), "EISDIR")


@case(G, "open_read_write_close: the old bytes, then the new ones")
def orwc(c):
    def orwc_(room, data, aux=0, off=0, **fields):
        return c.call("open_read_write_close", a=c.at("f"), b=room, c=data, aux=R | W | aux,
                      imm=bytes(8) + struct.pack("<Q", off), **fields)

    want(orwc_(9, b"first", C | 0o600 << 16), result=0, result2=1 << 63)
    done = want(orwc_(9, b"XY", off=1), result=5, result2=1, done=4)
    same((done.b[:5], c.read("f")), (b"first", b"fXYst"))
    done = want(orwc_(2, b"!", 2 << 28, offset=3), result=2, result2=5)
    same((done.b, c.read("f")), (b"st", b"fXYst!"))
    want(orwc_(9, b"cut", wire.TRUNC), result=0)
    same(c.read("f"), b"cut")


@case(G, "append_checksum_write and read_checksum_verify")
def checksums(c):
    h, data = c.open("f"), b"some record" * 30
    want(c.call("write", handle=h, a=b"head"))
    want(c.call("append_checksum_write", handle=h, a=data), result=4, result2=sums.crc32c(data))
    same(c.read("f"), b"head" + data + struct.pack("<I", sums.crc32c(data)))
    want(c.call("read", handle=h, aux=1 << 28, a=2), result2=0)
    want(c.call("append_checksum_write", handle=h, aux=1, a=data), "EINVAL")
    want(c.call("append_checksum_write", handle=h, a=(0, wire.ATOMIC_WRITE_MAX - 3)), "E2BIG")
    want(c.call("append_checksum_write", handle=c.open("f", R), a=b"x"), "EBADF")

    def verify(n, room, off=4):
        return c.call("read_checksum_verify", handle=h, offset=off, imm=struct.pack("<I", n), a=room)

    done = want(verify(len(data), len(data)), result=len(data), result2=sums.crc32c(data), done=4)
    same(done.a, data)
    want(verify(len(data), 0), result=len(data))
    want(verify(len(data), len(data) - 1), "EINVAL")
    want(c.call("write", handle=h, offset=10, a=b"?"))
    done = want(verify(len(data), len(data)), "EBADMSG", result=len(data), failed=4)
    same((done.a[6:7], done.result2), (b"?", sums.crc32c(done.a)))
    want(verify(len(data) + 1, 0), "ENODATA")


@case(G, "read_modify_write: patch, add, xor, compare and swap")
def rmw(c):
    c.put("f", b"\xff\0\0\0" + b"abcd")
    h = c.open("f")

    def change(kind, n, off=0, a=b"", room=0, imm=bytes(16), **fields):
        return c.call("read_modify_write", handle=h, offset=off, aux=kind | n << 8, a=a, b=room, imm=imm, **fields)

    done = want(change(ADD, 4, room=4, imm=struct.pack("<Q", 2)), result=4, done=4)
    same((done.b, c.read("f", 4)), (b"\xff\0\0\0", b"\1\1\0\0"))
    want(change(PATCH, 2, 4, b"XY"), result=2)
    want(change(XOR, 2, 6, b"\x20\x20"), result=2)
    same(c.read("f"), b"\1\1\0\0XYCD")
    want(change(XOR_IMM, 2, 6, imm=b"\x20\x20" + bytes(14)), result=2)
    same(c.read("f")[4:], b"XYcd")
    done = c.call("read_modify_write", handle=h, offset=4, aux=SWAP | 2 << 8, a=b"XY", b=2, c=b"pq")
    want(done, result=2)
    done = c.call("read_modify_write", handle=h, offset=4, aux=SWAP | 2 << 8, a=b"XY", b=2, c=b"..")
    want(done, "ECANCELED", result=2, failed=3)
    same((done.b, c.read("f")[4:6]), (b"pq", b"pq"))
    want(change(PATCH, 4, 6, b"long"), result=2)
    same(c.read("f")[4:], b"pqlong")
    for kind, n, fields in ((5, 1, {"a": b"x"}), (ADD, 3, {}), (ADD, 16, {}), (PATCH, 0, {}), (PATCH, 2, {"a": b"x"}),
                            (XOR_IMM, 17, {}), (XOR_IMM, 1, {"imm": b"ab" + bytes(14)}),
                            (PATCH, 1, {"a": b"x", "room": 2}),
                            (ADD, 1, {"a": b"x"})):
        want(change(kind, n, **fields), "EINVAL")
    want(change(PATCH, 65537, a=(0, 65537)), "E2BIG")
    want(change(PATCH, 65536, a=(0, 65536)), result=10)
    want(c.call("read_modify_write", handle=c.open("f", W), aux=1 << 8, a=b"x"), "EBADF")
    want(c.call("read_modify_write", handle=c.open("f", R), aux=1 << 8, a=b"x"), "EBADF")


@case(G, "a step that fails: nothing of a MacroTx, the steps before it of a MicroTx", hostdir=False)
def steps(c):
    def fail(mode):
        aux = W | C | 0o644 << 16
        return c.call("open_write_close", a=c.at("f"), b=b"x", aux=aux, offset=1 << 44, flags=mode)

    want(fail(wire.MACRO), "EFBIG", done=0, failed=2)
    same(c.exists("f"), False, "there after a MacroTx that failed")
    want(fail(wire.MICRO), "EFBIG", done=1, failed=2)
    same(c.stat("f")["size"], 0, "size after a MicroTx that failed")
