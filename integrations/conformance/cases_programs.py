"""Section 6: programs."""

import struct

import body
import sums
import wire
from body import Program, Reg, fold, integer
from case import case, same, want

G = "programs"
R, W, C = wire.READ, wire.WRITE, wire.CREATE
MICRO = wire.MICRO


def run(c, program, **fields):
    raw = program if isinstance(program, bytes) else program.bytes()
    # A directory of the host does the steps one by one, and says so: the mode is asked for.
    return c.call("program", a=raw, flags=fields.pop("flags", MICRO if c.hostdir else 0), **fields)


@case(G, "open, write, read, close; registers that the completion reports")
def first(c):
    p = Program(0, 1, buffers=[100])
    p.open(0, c.at("f"), R | W | C, 0o640, created=2)
    p.write(0, p.text(b"hello"), at=3, sum=fold(0, 1))
    p.read(0, 0, 50, (body.BUFFER, 0), count=0)
    p.step(26, a=0)
    want(run(c, p), result=5, result2=sums.crc32c(b"hello"), done=4)
    same((c.read("f"), c.stat("f")["mode"]), (b"hello", 0o100640))


@case(G, "places: at a value, at the end, right behind the last write")
def places(c):
    p = Program(0, 1)
    p.open(0, c.at("f"), W | C, 0o644)
    p.write(0, p.text(b"ab"), offset=3, at=0)
    p.write(0, p.text(b"cd"), place=2)
    p.write(0, p.text(b"e"), place=1, at=1)
    want(run(c, p), result=3, result2=7)
    same(c.read("f"), b"\0\0\0abcde")


@case(G, "ranges of the pool: written from, read into, given to")
def pool(c):
    c.put("f", b"0123456789")
    c.q.put(1 << 20, b"poolbytes")
    p = Program(0, 1, buffers=[16])
    source, out, given = p.range(1 << 20, 4), p.range((1 << 20) + 64, 6), p.range((1 << 20) + 128, 16)
    p.use(0, 3, c.open("f"))
    p.read(0, 2, 6, (body.RANGE, out), count=0)
    p.write(0, (body.RANGE, source), offset=0)
    p.read(0, 0, 5, (body.BUFFER, 0))
    p.fill(0, p.text(b"!"), append=1)
    p.give(0, given, count=1)
    want(run(c, p), result=6, result2=6)
    same((c.q.get((1 << 20) + 64, 6), c.q.get((1 << 20) + 128, 6)), (b"234567", b"pool4!"))


@case(G, "arithmetic wraps, without sign")
def arithmetic(c):
    top = (1 << 64) - 1
    for operation, x, y, wanted in ((0, top, 2, 1), (1, 1, 2, top), (2, 1 << 63, 2, 0), (3, 12, 10, 8), (4, 12, 10, 14),
                                    (5, 12, 10, 6), (6, 3, 4, 48), (7, 48, 4, 3), (8, 7, top, 7), (9, 7, top, top)):
        p = Program(0, 1)
        p.arith(0, 1, x, 0).arith(operation, 0, Reg(1), y)
        want(run(c, p), result=wanted, result2=x)


@case(G, "guards: relations, and what follows: fail, end, skip")
def guards(c):
    for relation, x, y, holds in ((0, 1, 1, 1), (0, 1, 2, 0), (1, 1, 2, 1), (2, 1, 2, 1), (2, 2, 2, 0), (3, 2, 2, 1),
                                  (4, 3, 2, 1), (5, 1, 2, 0)):
        p = Program(0)
        p.arith(0, 0, 1, 0).guard(relation, x, y, body.FAIL, 61).arith(0, 0, 7, 0)
        want(run(c, p), "OK" if holds else "ENODATA", result=7 if holds else 1, failed=0 if holds else 2)
    p = Program(0)
    p.arith(0, 0, 1, 0).guard(0, 0, 1, body.END).arith(0, 0, 7, 0)
    want(run(c, p), result=1)
    p = Program(0)
    p.arith(0, 0, 1, 0).guard(0, 0, 1, body.SKIP, 1).arith(0, 0, 7, 0).arith(0, 0, Reg(0), 10)
    want(run(c, p), result=11)
    p = Program(0, buffers=[8])
    p.fill(0, p.text(b"abc"))
    p.step(17, a=0, b=8, c=body.FAIL, d=5, x=1, y=body.STRING | p.string(b"bc") << 8)
    want(run(c, p))


@case(G, "a guard fails with a number from 1 to 4095; another one is EINVAL")
def guard_numbers(c):
    for number, wanted in ((1, "EPERM"), (131, "ENOTRECOVERABLE"), (4095, "4095")):
        p = Program()
        p.guard(0, 0, 1, body.FAIL, number)
        want(run(c, p), wanted, failed=1)
    for number in (0, 4096, 65535):
        p = Program()
        p.guard(0, 0, 1, body.FAIL, number)
        want(run(c, p), "EINVAL")


@case(G, "integers: loaded, changed, stored, of every width and both ends first")
def integers(c):
    for log2 in range(4):
        for big in (False, True):
            n = 1 << log2
            data = bytes(range(1, n + 1))
            order = "big" if big else "little"
            c.put("f", data)
            p = Program(0, buffers=[16])
            p.use(0, 3, c.open("f"))
            p.read(0, 0, n, (body.BUFFER, 0))
            p.step(9, a=0, c=0, d=integer(log2, big), x=0)
            p.step(8, a=0, b=1, d=integer(log2, big), x=0, y=1)
            p.write(0, (body.BUFFER, 0))
            value = int.from_bytes(data, order)
            want(run(c, p), result=value)
            same(c.read("f"), ((value + 1) % (1 << 8 * n)).to_bytes(n, order))
    p = Program()
    p.arith(0, 3, 0x0102030405060708, 0)
    p.open(0, c.at("g"), W | C, 0o644)
    p.write(0, (integer(2, True), 3)).write(0, (integer(1), 3), place=2)
    want(run(c, p))
    same(c.read("g"), b"\5\6\7\x08\x08\7")


@case(G, "changes of a buffer, slices, lengths")
def changes(c):
    for change, data, wanted in ((0, b"XY", b"aXYd"), (2, b"\xdf\xdf", b"aBCd"), (3, b"\x04\x04", b"afgd"),
                                 (4, b"\x20\x20", b"aBCd")):
        p = Program(0, 1, buffers=[8, 8])
        p.fill(0, p.text(b"abcd"))
        p.step(8, a=0, b=change, d=body.STRING, e=p.string(data), x=1)
        p.step(12, a=1, b=0, x=1, y=2)
        p.step(27, a=1, c=0)
        p.open(0, c.at("f"), W | C | wire.TRUNC, 0o644)
        p.write(0, (body.BUFFER, 0))
        want(run(c, p), result=2)
        same(c.read("f"), wanted)
    p = Program(buffers=[8])
    p.fill(0, p.text(b"abcd"))
    p.step(8, a=0, b=5, d=body.STRING, e=p.string(b"bc"), x=1, y=body.STRING | p.string(b"XY") << 8)
    p.step(8, a=0, b=5, d=body.STRING, e=p.string(b"bc"), x=1, y=body.STRING | p.string(b"..") << 8)
    want(run(c, p), "ECANCELED", failed=3)


@case(G, "checksums: CRC-32C, CRC-32, masked")
def checksums(c):
    for kind, of in enumerate((sums.crc32c, sums.crc32, sums.masked)):
        p = Program(0, 1)
        p.step(7, b=kind, c=0, d=body.STRING, e=p.string(b"123456789"))
        p.open(0, c.at("f"), W | C | wire.TRUNC, 0o644)
        p.write(0, p.text(b"other"), sum=fold(kind, 1))
        want(run(c, p), result=of(b"123456789"), result2=of(b"other"))


@case(G, "names: mkdir, symlink, link, rename, set_attr, unlink, rmdir in one command")
def names(c):
    p = Program()
    p.step(20, b=p.string(c.at("d")), d=0o755 & 0xFF, e=0o755 >> 8)
    p.open(0, c.at("d/f"), W | C | wire.EXCL, 0o600)
    p.write(0, p.text(b"in it")).step(26, a=0)
    p.step(21, b=p.string(c.at("d/f")), c=p.string(c.at("f")))
    p.step(22, b=p.string(c.at("f")), c=p.string(c.at("g")))
    p.step(23, b=p.string(c.at("s")), c=p.string(b"g"))
    p.step(24, b=p.string(c.at("f")), c=1 | 2, y=0o640, z=2)
    p.step(18, b=p.string(c.at("f")))
    p.step(19, b=p.string(c.at("d"))).step(25)
    want(run(c, p), done=11)
    same((c.read("s"), c.stat("g")["mode"], c.exists("f"), c.exists("d")), (b"in", 0o100640, False, False))


@case(G, "copy_range from file to file; a bound for a length that is a constant is EINVAL")
def copies(c):
    c.put("f", b"0123456789")
    c.put("g", b"----")

    def copy(length, bound, target="g"):
        p = Program(0)
        p.arith(0, 1, 4, 0)
        p.use(0, 1, c.open("f", R)).use(1, 2, c.open(target))
        p.step(15, a=0, b=1, c=0, d=0, e=bound & 0xFF, f=bound >> 8, x=3, y=2, z=length)
        return run(c, p)

    want(copy(4, 0), result=4)
    same(c.read("g"), b"--3456")
    want(copy(100, 0), result=7)
    want(copy(Reg(1), 1), result=4)
    want(copy(4, 1), "EINVAL")
    want(copy(Reg(1), 0), "E2BIG", failed=4)
    want(copy(4, 0, "f"), "EINVAL")


def record(data):
    return struct.pack("<II", len(data), sums.crc32c(data)) + data


@case(G, "scan: whole records, and why it stopped")
def scans(c):
    records = [b"one", b"the second", b"3"]
    whole = b"".join(record(r) for r in records)

    def scan(content, length=None):
        c.put("f", content)
        p = Program(0, 1)
        out = p.range(1 << 20, 64)
        p.use(0, 1, c.open("f", R))
        how = struct.pack("<8B", 8, 0, integer(2), 4, 0, 0, 8, 0)
        p.step(16, a=0, b=out, c=0, d=2, e=1, x=0, y=length or len(content) + 100, z=int.from_bytes(how, "little"))
        return run(c, p)

    want(scan(whole), result=3, result2=0)
    same(struct.unpack("<3Q", c.q.get(1 << 20, 24)), (0, 11, 29), "offsets")
    want(scan(whole + record(b"cut short")[:-3]), result=3, result2=1)
    want(scan(whole + record(b"damaged")[:-1] + b"?"), result=3, result2=2)
    want(scan(whole + bytes(50)), result=3, result2=4)
    want(scan(record(b"x") * 9), result=8, result2=3)


@case(G, "what programs fail with while they run")
def failures(c):
    c.put("f", b"0123")
    h = c.open("f")

    def one(*steps, buffers=(8, 8)):
        p = Program(buffers=buffers)
        p.arith(0, 0, 100, 0)
        for step in steps:
            step(p)
        return run(c, p)

    use = lambda p: p.use(0, 3, h)  # noqa: E731
    want(one(use, lambda p: p.read(0, 0, 8, (body.BUFFER, 0), how=1)), "ENODATA", failed=3)
    want(one(use, lambda p: p.read(0, 0, Reg(0), (body.BUFFER, 0))), "E2BIG", failed=3)
    fill = lambda p: p.fill(0, p.text(b"abcd"))  # noqa: E731
    want(one(fill, lambda p: p.step(9, a=0, c=1, d=integer(0), x=Reg(0))), "ERANGE", failed=3)
    want(one(fill, lambda p: p.step(12, a=1, b=0, x=2, y=3)), "ERANGE")
    want(one(fill, fill, lambda p: p.fill(0, p.text(b"abcde"), append=1)), "E2BIG")
    # Before anything runs: handles are looked up first. A host's directory does one step after the other.
    want(one(lambda p: p.use(0, 3, 1 << 40 | 5)), "EBADF", done=int(c.hostdir), failed=1 + c.hostdir)
    want(one(lambda p: p.use(0, 2, c.open("f", R))), "EBADF", failed=2)
    want(one(lambda p: p.open(0, c.at("no"), R)), "ENOENT", failed=2)
    want(one(fill, lambda p: p.give(0, p.range(0, 2))), "E2BIG")


@case(G, "bodies that are none: nothing runs, 0 done and failed 1")
def refusals(c):
    def sound():
        p = Program(0, 1, buffers=[8])
        p.open(0, c.at("made"), W | C, 0o644)
        return p

    broken = []
    for change, wanted in (
            (lambda p: setattr(p, "version", 2), "EOPNOTSUPP"), (lambda p: setattr(p, "zero", 1), "EINVAL"),
            (lambda p: setattr(p, "zeros", b"\1" + bytes(19)), "EINVAL"), (lambda p: setattr(p, "steps", []), "EINVAL"),
            (lambda p: setattr(p, "results", (8, 0)), "EINVAL"), (lambda p: p.step(0), "ENOSYS"),
            (lambda p: p.step(29), "ENOSYS"), (lambda p: p.step(25, a=1), "EINVAL"),
            (lambda p: p.step(5, a=1, c=0), "EINVAL"), (lambda p: p.step(5, a=9, c=0), "EINVAL"),
            (lambda p: p.step(5, a=0, c=8), "EINVAL"), (lambda p: p.read(0, 0, 4, (body.BUFFER, 0)), "EBADF"),
            (lambda p: p.write(0, (body.STRING, 9)), "EINVAL"), (lambda p: p.write(0, (body.BUFFER, 0)), "EINVAL"),
            (lambda p: p.write(0, (body.RANGE, p.range(4 << 20, 1))), "EFAULT"),
            (lambda p: p.fill(0, p.text(b"more than eight")), "E2BIG"), (lambda p: p.arith(10, 0, 1, 1), "EINVAL"),
            (lambda p: p.arith(0, 0, Reg(1), 1), "EINVAL"), (lambda p: p.guard(0, 0, 1, body.SKIP, 1), "EINVAL"),
            (lambda p: p.guard(0, 0, 1, 3, 1), "EINVAL"), (lambda p: p.open(1, b"", R), "ENOENT"),
            (lambda p: p.open(1, b"a\0b", R), "EINVAL"), (lambda p: p.open(1, b"n" * 256, R), "ENAMETOOLONG"),
            (lambda p: p.truncate_at(1 << 63), "EINVAL")):
        p = sound()
        if change.__code__.co_names[:1] == ("truncate_at",):
            p.step(6, a=0, x=1 << 63)
        else:
            change(p)
        broken.append((p.bytes(), wanted))
    p = sound()
    for _ in range(16):
        p.step(25)
    broken += [(p.bytes(), "E2BIG"), (sound().bytes() + b"\0", "EINVAL"), (sound().bytes()[:-1], "EINVAL"),
               (bytes(63), "EINVAL"), (bytes(16385), "E2BIG")]
    for raw, wanted in broken:
        want(run(c, raw), wanted, done=0, failed=1)
    same(c.exists("made"), False, "something ran")


@case(G, "a step that fails undoes a MacroTx, and keeps what was before it in a MicroTx", hostdir=False)
def modes(c):
    def failing():
        p = Program()
        p.step(20, b=p.string(c.at("d")), d=0o755 & 0xFF, e=0o755 >> 8)
        p.step(19, b=p.string(c.at("no")))
        return p

    want(run(c, failing(), flags=wire.MACRO), "ENOENT", done=0, failed=2)
    same(c.exists("d"), False, "there after a MacroTx")
    want(run(c, failing(), flags=MICRO), "ENOENT", done=1, failed=2)
    same(c.exists("d"), True, "there after a MicroTx")


@case(G, "compressing and encrypting, there and back; a damaged record is EBADMSG")
def transforms(c):
    data = b"the same again and " * 20
    q = c.q
    key = want(q.call("set_key", aux=2, a=bytes(range(16)))).result
    for codec in range(3):
        p = Program(0, buffers=[1000, 1000, 1000])
        out = p.range(1 << 20, 1000)
        p.fill(0, p.text(data))
        p.step(14, a=1, b=0, c=codec, e=0).step(14, a=2, b=1, c=codec, e=1).step(27, a=1, c=0).give(2, out)
        done = run(c, p)
        if done.name == "EOPNOTSUPP":
            continue
        want(done)
        same((q.get(1 << 20, len(data)), done.result < len(data)), (data, True))
    p = Program(0, buffers=[1000, 1000, 1000])
    out = p.range(1 << 20, 1000)
    p.fill(0, p.text(data))
    p.step(14, a=1, b=4, e=0, y=key).step(14, a=2, b=5, e=1, y=key).step(27, a=1, c=0).give(2, out)
    # Eight bytes: the record's nonce is drawn anew, and one byte of it is what it is replaced with once in 256 runs.
    p.step(8, a=1, b=0, d=body.STRING, e=p.string(b"damaged!"), x=20).step(14, a=0, b=5, e=1, y=key)
    done = run(c, p)
    if done.name != "EOPNOTSUPP":
        want(done, "EBADMSG", failed=7, result=len(data) + 28)
        same(q.get(1 << 20, len(data)), data)
        p = Program(buffers=[64, 64])
        p.fill(0, p.text(b"x")).step(14, a=1, b=4, e=0, y=key + 999)
        want(run(c, p), "ENOKEY", failed=2)
    want(q.call("drop_key", imm=struct.pack("<Q", key)))
