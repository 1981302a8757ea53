"""Section 2: the region of a queue pair, its rings, sleeping and waking."""

import os
import struct
import threading
import time

import link
import wire
from case import case, same, true, want

G = "rings"


@case(G, "a completion carries the sequence of its entry")
def sequences(c):
    for sequence in (0, 1, (1 << 64) - 1):
        entry = wire.Entry(wire.OPCODES["nop"], sequence=sequence)
        want(c.q.send(entry), sequence=sequence, done=1, failed=0, result=0, result2=0)


@case(G, "the rings go round: many commands through two slots")
def round_and_round(c):
    q = c.another().queue(2, 4096)
    for _ in range(9):
        want(q.call("nop"))
    same((q.word["sq_tail"].value, q.word["sq_head"].value, q.word["cq_tail"].value), (9, 9, 9), "tail, head, tail")


@case(G, "entries published together: one completion each, of every one")
def together(c):
    q = c.another().queue(16, 4096)
    entries = [q.entry("nop")[0] for _ in range(16)]
    q.push(*entries)
    same(sorted(q.reap().sequence for _ in entries), sorted(e.sequence for e in entries), "sequences")
    true(q.take() is None, "a completion too many")


@case(G, "no entry is taken without room for its completion, and nothing is lost")
def full(c):
    q = c.another().queue(4, 4096)
    entries = [q.entry("nop")[0] for _ in range(8)]
    q.push(*entries[:4])
    limit = time.monotonic() + link.PATIENCE
    while q.word["cq_tail"].value != 4:
        true(time.monotonic() < limit, "the first four do not complete")
        time.sleep(0.001)
    q.push(*entries[4:])
    time.sleep(0.05)
    same((q.word["sq_head"].value, q.word["cq_tail"].value), (4, 4), "head and tail while the ring is full")
    same(sorted(q.reap().sequence for _ in entries), sorted(e.sequence for e in entries), "sequences")


@case(G, "commands on one inode run in the order they were submitted")
def order(c):
    h = c.open("f")
    for first in range(0, 40, 8):
        writes = []
        for i in range(8):
            entry, _, _ = c.q.entry("write", handle=h, a=bytes([first + i]) * 100, at=i * 128)
            writes.append(entry)
        c.q.push(*writes)
        for _ in writes:
            want(c.q.reap(), result=100)
        same(c.read("f"), bytes([first + 7]) * 100, "content")


@case(G, "a device that went to sleep is woken by the doorbell")
def doorbell(c):
    q = c.another().queue(2, 4096)
    tickets = set()
    limit = time.monotonic() + link.PATIENCE
    # A device wakes by itself now and then, so not every command finds it asleep.
    while len(tickets) < 3:
        true(time.monotonic() < limit, "the device does not go to sleep")
        time.sleep(0.01)
        want(q.call("nop"))
        tickets |= {q.rung} - {None}


@case(G, "a doorbell that is as full as can be wakes all the same")
def full_doorbell(c):
    s = c.another()
    q = s.queue(2, 4096)
    for _ in range(20):
        try:
            os.write(s.doorbell, struct.pack("<Q", (1 << 64) - 2))
        except BlockingIOError:
            pass
        want(q.call("nop"))


@case(G, "a client asleep on cq_tail is woken")
def client_sleep(c):
    q = c.another().queue(2, 4096)
    # Published by another thread while this one sleeps.
    entry = q.entry("nop")[0]
    later = threading.Timer(0.05, lambda: q.push(entry))
    later.start()
    start = time.monotonic()
    q.sleep(5.0)
    true(time.monotonic() - start < 4.0, "slept to the end")
    later.join()
    same(q.reap().sequence, entry.sequence)


@case(G, "what the client scribbles over the device's words and entries is not believed")
def scribbled(c):
    q = c.another().queue(4, 4096)
    for _ in range(6):
        for word in ("sq_head", "cq_tail", "device_closed"):
            q.word[word].value = 0xDEADBEEF
        q.map[:32] = b"\xff" * 32
        q.map[q.cq_off: q.cq_off + 128] = b"\xff" * 128
        entry = q.entry("nop")[0]
        q.push(entry)
        limit = time.monotonic() + link.PATIENCE
        while q.word["cq_tail"].value in (0xDEADBEEF, q.taken):
            true(time.monotonic() < limit, "no completion")
            time.sleep(0.0005)
        want(q.take(), sequence=entry.sequence)


def closed(session, q):
    """The session ends: device_closed says so, and nothing is to be had by its connection but its end."""
    limit = time.monotonic() + link.PATIENCE
    while q.word["device_closed"].value == 0:
        true(time.monotonic() < limit, "device_closed is not set")
        time.sleep(0.005)
    why = wire.name_of(q.word["device_closed"].value)
    true(why in ("EPROTO", "ENODEV"), f"device_closed is {why}")
    # What answers requests hears of it a moment after the queue pair does.
    limit = time.monotonic() + link.PATIENCE
    while True:
        answer = wire.name_of(session.ask(wire.NEW_QUEUE, struct.pack("<II", 2, 4096))[0])
        if answer == "ENODEV":
            break
        true(time.monotonic() < limit, f"a new queue pair is {answer!r}, should be 'ENODEV'")


@case(G, "an index that passes its peer closes the session")
def lying_tail(c):
    s = c.another()
    q = s.queue(4, 4096)
    q.publish(5)
    closed(s, q)


@case(G, "an index that goes back closes the session")
def tail_goes_back(c):
    s = c.another()
    q = s.queue(4, 4096)
    want(q.call("nop"))
    q.publish(0)
    closed(s, q)


@case(G, "a head beyond the completions closes the session")
def lying_head(c):
    s = c.another()
    q = s.queue(4, 4096)
    q.push(*[q.entry("nop")[0] for _ in range(4)])
    limit = time.monotonic() + link.PATIENCE
    while q.word["cq_tail"].value != 4:
        true(time.monotonic() < limit, "no completions")
    # Looked at when the completions seem to have no room.
    q.word["cq_head"].value = 7
    q.push(q.entry("nop")[0])
    closed(s, q)


@case(G, "queue pairs of one session share its handles")
def two_queues(c):
    s = c.another()
    a, b = s.queue(), s.queue()
    true(a.index != b.index, "both have one number")
    h = c.open("f", q=a)
    want(a.call("write", handle=h, a=b"seen"))
    same(want(b.call("read", handle=h, a=9)).a[:4], b"seen")
    want(c.call("read", handle=h ^ 1 << 40, a=1), "EBADF")
