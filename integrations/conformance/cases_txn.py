"""Transactions of several commands, and detectable execution."""

import os
import struct
import time

import wire
from case import case, same, true, want

G = "transactions"


def begin(q):
    return want(q.call("txn_begin")).result


def write(q, txn, h, data, offset=0, at=0):
    return q.call("txn_write", handle=txn, imm=struct.pack("<Q", h), offset=offset, aux=at << 28, a=data)


@case(G, "several writes to several files: unseen before the commit, all there after it", hostdir=False)
def commits(c):
    c.put("a", b"0123")
    c.put("b", b"")
    a, b = c.open("a"), c.open("b")
    t = begin(c.q)
    want(write(c.q, t, a, b"XX", 1), result=2, result2=1)
    want(write(c.q, t, a, b"Y", 2), result=1, result2=2)
    want(write(c.q, t, b, b"end", at=2), result=3, result2=3)
    same((c.read("a"), c.read("b")), (b"0123", b""))
    want(c.call("txn_commit", handle=t), result=6)
    same((c.read("a"), c.read("b")), (b"0XY3", b"end"))
    for op in ("txn_commit", "txn_abort"):
        want(c.call(op, handle=t), "EBADF")


@case(G, "abort, and a commit that fails, leave nothing", hostdir=False)
def aborts(c):
    a = c.open("a")
    t = begin(c.q)
    want(write(c.q, t, a, b"x"))
    want(c.call("txn_abort", handle=t))
    t = begin(c.q)
    want(write(c.q, t, a, b"x"))
    want(write(c.q, t, a, b"x", 1 << 44))
    want(c.call("txn_commit", handle=t), "EFBIG")
    same(c.stat("a")["size"], 0, "size")
    want(c.call("txn_abort", handle=t), "EBADF")


@case(G, "what a transaction refuses", hostdir=False)
def refusals(c):
    a, r = c.open("a"), c.open("a", wire.READ)
    t = begin(c.q)
    want(write(c.q, t, a, b"x", at=1), "EINVAL")
    want(write(c.q, t, r, b"x"), "EBADF")
    want(write(c.q, t, 1 << 33 | 0xFFF9, b"x"), "EBADF")
    # Files and transactions are numbered each for themselves: one may have the number of another's kind.
    file = next(h for h in (a, r) if h != t)
    want(write(c.q, file, a, b"x"), "EBADF")
    q = c.another().queue()
    want(q.call("txn_commit", handle=t), "EBADF")
    want(q.call("read", handle=begin(q), a=1), "EBADF")
    for i in range(256):
        want(write(c.q, t, a, b"x", i))
    want(write(c.q, t, a, b"x"), "E2BIG")
    want(c.call("txn_abort", handle=t))
    some = [begin(q) for _ in range(63)]
    want(q.call("txn_begin"), "EMFILE")
    want(q.call("txn_abort", handle=some[0]))
    begin(q)


@case(G, "more files than one command holds are E2BIG at the commit, and nothing is written", hostdir=False)
def too_many(c):
    t = begin(c.q)
    for i in range(17):
        want(write(c.q, t, c.open(f"f{i}"), b"x"))
    want(c.call("txn_commit", handle=t), "E2BIG")
    true(all(c.stat(f"f{i}")["size"] == 0 for i in range(17)), "something was written")


@case(G, "begun by a device; a host's directory says that it has neither these nor outcomes")
def supported(c):
    wanted = "EOPNOTSUPP" if c.hostdir else "OK"
    want(c.another().queue().call("txn_begin"), wanted)
    want(c.call("outcome", a=64), wanted)
    want(c.call("mkdir", a=c.at("d"), aux=0o755 << 16, flags=wire.DETECTABLE), wanted)
    same(c.exists("d"), not c.hostdir)


def outcome(q, client, queue, sequence):
    body = want(q.call("outcome", imm=client, aux=queue, offset=sequence, a=64), result=64).a
    state, status, done, failed, of, result, result2 = struct.unpack_from("<B3xiHHH2xQQ", body)
    true(not any(body[1:4] + body[14:16] + body[32:]), "bytes that are to be zero")
    return state, status, done, failed, of, result, result2


@case("outcomes", "of a detectable command: done, with what its completion said", hostdir=False)
def outcomes(c):
    client = os.urandom(16)
    s = c.another(client=client)
    s.queue()
    q = s.queue()
    # Growing over all sessions, or what older ones left would be called expired.
    s.sequence = time.time_ns()
    aux = wire.WRITE | wire.CREATE | 0o644 << 16
    done = want(q.call("open_write_close", a=c.at("f"), b=b"12345", aux=aux, flags=wire.DETECTABLE | wire.DURABLE))
    failed = want(q.call("mkdir", a=c.at("no/d"), flags=wire.DETECTABLE), "ENOENT")
    s.close()
    c.extra.remove(s)
    q = c.another(client=client).queue()
    found = outcome(q, client, 1, done.sequence)
    same((found[0], found[1], found[2], found[3], found[5], found[6]), (2, 0, done.done, 0, 5, done.result2))
    found = outcome(q, client, 1, failed.sequence)
    same((found[0], found[1], found[3]), (2, 2, failed.failed))
    same(outcome(q, client, 1, time.time_ns())[0], 0, "state of what was never sent")
    same(outcome(q, client, 0, done.sequence)[0], 0, "state on another queue pair")
    same(outcome(q, os.urandom(16), 1, done.sequence)[0], 0, "state of another client")


@case("outcomes", "of other users are as if they never were", hostdir=False)
def foreign_outcomes(c):
    client = os.urandom(16)
    q = c.another(client=client).queue()
    q.session.sequence = time.time_ns()
    done = want(q.call("mkdir", a=c.at("d"), aux=0o755 << 16, flags=wire.DETECTABLE))
    same(outcome(q, client, 0, done.sequence)[0], 2)
    other = c.stranger(client=client).queue()
    same(outcome(other, client, 0, done.sequence)[0], 0)
