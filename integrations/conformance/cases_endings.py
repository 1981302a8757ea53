"""Section 8: what a side's death does."""

import os
import struct
import time

import link
import wire
from case import case, same, true, want

G = "endings"


def dies(c, work):
    """Runs `work` with a session of its own in a child that then dies at once, without a goodbye."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work(link.Session(c.path))
            code = 0
        finally:
            # The way of SIGKILL: nothing is closed or said, the kernel takes it all.
            os._exit(code)
    same(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0, "the child's end")


def until(fact, why):
    limit = time.monotonic() + link.PATIENCE
    while not fact():
        true(time.monotonic() < limit, why)
        time.sleep(0.01)


@case(G, "what a client had published before it died is executed")
def published(c):
    def work(session):
        q = session.queue(64, 1 << 16)
        entries, at = [], 0
        for i in range(40):
            aux = wire.WRITE | wire.CREATE | 0o644 << 16
            entry, _, at = q.entry("open_write_close", a=c.at(f"f{i}"), b=b"%d" % i, aux=aux, at=at)
            entries.append(entry)
        q.push(*entries)

    dies(c, work)
    until(lambda: c.exists("f39"), "not all of it is there")
    for i in range(40):
        until(lambda i=i: c.exists(f"f{i}"), f"f{i} is not there")
        same(c.read(f"f{i}"), b"%d" % i)


@case(G, "locks, nameless files and transactions go with their client")
def leavings(c):
    c.put("f")

    def work(session):
        q = session.queue()
        h = want(q.call("open", a=c.at("f"), aux=wire.READ | wire.WRITE)).result
        want(q.call("lock", handle=h, aux=1 | 1 << 4))
        want(q.call("lock", handle=h, aux=1 | 1 << 4 | 2 << 8))
        done = q.call("txn_begin")
        if done.status == 0:
            want(q.call("txn_write", handle=done.result, imm=struct.pack("<Q", h), a=b"never"))

    dies(c, work)
    h = c.open("f")
    until(lambda: c.call("lock", handle=h, aux=1 | 1 << 4).status == 0, "a lock is still held")
    until(lambda: c.call("lock", handle=h, aux=1 | 1 << 4 | 2 << 8).status == 0, "a flock is still held")
    same(c.stat("f")["size"], 0, "a transaction without a commit was written")


@case(G, "after detach device_closed is set and a sleeping client is woken")
def detached(c):
    s = c.another()
    q = s.queue()
    want(q.call("nop"))
    same(s.ask(wire.DETACH)[0], 0)
    start = time.monotonic()
    until(lambda: q.sleep(0.5) or q.word["device_closed"].value, "device_closed is not set")
    true(time.monotonic() - start < 5, "slept on")


@case(G, "a session that ends leaves others alone, and its handles mean nothing to them")
def others(c):
    s = c.another()
    q = s.queue()
    h = c.open("f", q=q)
    mine = c.open("f")
    want(q.call("write", handle=h, a=b"kept"))
    s.close()
    c.extra.remove(s)
    same(want(c.call("read", handle=mine, a=4)).a, b"kept")
