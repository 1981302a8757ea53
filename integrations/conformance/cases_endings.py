"""Section 8: what a side's death does."""

import errno
import os
import signal
import struct
import time
import traceback

import link
import wire
from body import Program, fold
from case import Failed, case, closes, refused, same, true, want
from cases_attach import placeholders
from cases_txn import outcome

G = "endings"
R, W, C = wire.READ, wire.WRITE, wire.CREATE
# A file that is one hole: the checksum of all of it takes minutes.
HOLE = 1 << 40
# What must be over in a moment has this long, on a machine that has much else to do. Hello waits for ten seconds.
SOON = 5.0


def dies(c, work, **fields):
    """Runs `work` with a session of its own in a child, which is killed when that is done: it closes nothing and says
    nothing, the kernel takes it all. Gives the moment before that."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reads)
            work(link.Session(c.path, **fields))
            os.write(writes, b"!%.6f" % time.monotonic())
            os.kill(os.getpid(), signal.SIGKILL)
        except BaseException:
            os.write(writes, traceback.format_exc().encode())
        finally:
            os._exit(1)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        said = pipe.read()
    ended = os.waitpid(child, 0)[1]
    true(said[:1] == b"!", f"the child: {said.decode()}")
    same((os.WIFSIGNALED(ended), os.WTERMSIG(ended)), (True, signal.SIGKILL), "the child's end")
    return float(said[1:])


def until(fact, why):
    limit = time.monotonic() + link.PATIENCE
    while not fact():
        true(time.monotonic() < limit, why)
        time.sleep(0.01)


def newcomer(c):
    """A session that comes after one that died: when it is there, that is over, for every session. Gives its queue pair
    and the moment its hello was answered."""
    session = c.another()
    answered = time.monotonic()
    return session.queue(), answered


def unreaped(q):
    """Completions that nobody takes, as many as there is room for: what is published from now on is not begun as long
    as the session lives (section 2)."""
    q.push(*[q.entry("nop")[0] for _ in range(q.depth)])
    until(lambda: q.word["cq_tail"].value == q.taken + q.depth, "the ring of completions does not get full")


def entries(q, commands, at=0):
    """Entries whose ranges lie one behind the other. A list is a batch of what is in it."""
    made = []
    for command in commands:
        if isinstance(command, list):
            elements, at = entries(q, command, at)
            raw = b"".join(e.bytes() for e in elements)
            command = ("batch", {"a": raw, "b": 32 * len(elements)})
        op, fields = command
        entry, _, at = q.entry(op, at=at, **fields)
        made.append(entry)
    return made, at


def publish(q, *commands):
    made, _ = entries(q, commands)
    q.push(*made)
    return made


def creates(path, data, **more):
    return "open_write_close", {"a": path, "b": data, "aux": W | C | 0o644 << 16, **more}


def sums_up(h):
    return "checksum_range", {"handle": h, "imm": struct.pack("<Q", HOLE)}


def program(c, p, **more):
    # A directory of the host does the steps one by one, and the mode says so.
    mode = wire.MICRO if c.hostdir else 0
    return "program", {"a": p.bytes(), "flags": mode | more.pop("flags", 0), **more}


@case(G, "what a client had published before it was killed is there for whoever attaches then")
def published(c):
    dies(c, lambda session: publish(session.queue(64, 1 << 16),
                                    *[creates(c.at(f"f{i}"), b"%d" % i) for i in range(40)]))
    newcomer(c)
    for i in range(40):
        same(c.read(f"f{i}"), b"%d" % i)


@case(G, "published and not begun: what changes something is done, batches are dropped")
def not_begun(c):
    for name in ("f", "old", "gone", "cut"):
        c.put(name, b"0123456789")

    def work(session):
        q = session.queue(16, 1 << 16)
        f, cut = c.open("f", R | W, q=q), c.open("cut", R | W, q=q)
        unreaped(q)
        publish(q, creates(c.at("written"), b"whole"), [creates(c.at("in a batch"), b"never"),
                                                        ("mkdir", {"a": c.at("in a batch, too")})],
                ("write", {"handle": f, "offset": 2, "a": b"XX"}), ("truncate", {"handle": cut, "offset": 3}),
                ("mkdir", {"a": c.at("made"), "aux": 0o750 << 16}), ("rename", {"a": c.at("old"), "b": c.at("new")}),
                ("unlink", {"a": c.at("gone")}), ("symlink", {"a": c.at("s"), "b": b"target"}),
                ("link", {"a": c.at("f"), "b": c.at("l")}), [("unlink", {"a": c.at("f")})],
                ("set_attr_path", {"a": c.at("f"), "b": wire.set_attr(1, mode=0o604)}), ("syncfs", {}),
                ("append_checksum_write", {"handle": f, "a": b"record"}),
                # What only answers, and what cannot be, are in the way of nothing.
                ("read", {"handle": f, "a": 100}), ("rmdir", {"a": c.at("none")}), creates(c.at("last"), b""))

    dies(c, work)
    newcomer(c)
    same(c.read("written"), b"whole")
    same((c.exists("in a batch"), c.exists("in a batch, too"), c.exists("f")), (False, False, True), "done of batches")
    same((c.read("f")[:10], c.stat("f")["size"], c.read("cut")), (b"01XX456789", 20, b"012"))
    same((c.stat("f")["mode"], c.stat("f")["nlink"], c.stat("made")["mode"]), (0o100604, 2, 0o040750))
    same([c.exists(n) for n in ("old", "new", "gone", "last")], [False, True, False, True], "old, new, gone, last")
    same(want(c.call("readlink", a=c.at("s"), b=9)).result, 6)


@case(G, "a transaction whose commit was published is committed, but for one that may lack what was dropped",
      hostdir=False)
def transactions(c):
    def commits(before, names):
        def work(session):
            q = session.queue(8, 1 << 16)
            handles = [c.open(name, q=q) for name in names]
            t = want(q.call("txn_begin")).result
            for h in handles:
                want(q.call("txn_write", handle=t, imm=struct.pack("<Q", h), a=b"both"))
            unreaped(q)
            publish(q, *before, ("txn_commit", {"handle": t}))

        dies(c, work)
        newcomer(c)
        return [c.read(name) for name in names]

    same(commits([creates(c.at("x"), b"")], ("a", "b")), [b"both", b"both"])
    # The batch might have held a part of it.
    same(commits([[("nop", {})]], ("d", "e")), [b"", b""])


@case(G, "a published program is begun within a second of its client's end, and done whole")
def late_program(c):
    def work(session):
        q = session.queue(4, 1 << 16)
        unreaped(q)
        p = Program()
        p.step(20, b=p.string(c.at("d")), d=0o755 & 0xFF, e=0o755 >> 8)
        p.open(0, c.at("d/f"), W | C, 0o644).write(0, p.text(b"first")).write(0, p.text(b", second"), place=2)
        p.step(23, b=p.string(c.at("s")), c=p.string(b"d/f"))
        publish(q, program(c, p))

    died = dies(c, work)
    _, answered = newcomer(c)
    there = [c.exists(name) for name in ("d", "d/f", "s")]
    # Only a machine that stood still has had no time for it.
    true(all(there) or (answered - died > 1 and (c.hostdir or not any(there))), f"d, d/f, s: {there}")
    same(c.read("d/f") if there[1] else None, b"first, second" if all(there) else None)


@case(G, "what only answers is dropped with its client, however long it would have taken")
def answers(c):
    want(c.call("truncate", handle=c.open("hole"), offset=HOLE))

    def work(session):
        for n in range(2):
            q = session.queue(8, 1 << 16)
            h = c.open("hole", R, q=q)
            publish(q, sums_up(h), [sums_up(h) for _ in range(20)], sums_up(h), creates(c.at(f"kept{n}"), b"kept"))
        # Some of it is under way then.
        time.sleep(0.2)

    died = dies(c, work)
    _, answered = newcomer(c)
    true(answered - died < SOON, f"its session ended after {answered - died:.1f} s")
    same((c.read("kept0"), c.read("kept1")), (b"kept", b"kept"))


@case(G, "elements of a batch go on for a second after their client's end: each of them whole, or not at all")
def batch_under_way(c):
    """Each is a program that appends to one file, reads for long, and appends to another."""
    total, queues, client, first = 250, 4, os.urandom(16), time.time_ns()
    c.put("a")
    c.put("b")
    want(c.call("truncate", handle=c.open("hole"), offset=1 << 30))
    p = Program()
    p.open(0, c.at("a"), W).open(1, c.at("b"), W).open(2, c.at("hole"), R).write(0, p.text(b"x"), place=1)
    for i in range(11):
        p.read(2, i << 23, 1 << 23, sum=fold(0, 0))
    p.write(1, p.text(b"x"), place=1)

    def size(q, name):
        return wire.stat_of(want(q.call("stat_path", a=c.at(name), b=256)).b)["size"]

    def work(session):
        looks = session.queue()
        for _ in range(queues):
            q = session.queue(2, 1 << 20)
            # What they are called is known to whoever asks for their outcomes.
            session.sequence = first + q.index * 1000
            long = program(c, p, flags=0 if c.hostdir else wire.DETECTABLE)
            publish(q, [long] * total + [("mkdir", {"a": c.at(f"late{q.index}")})])
        until(lambda: size(looks, "a") >= 2, "the batch does not begin")

    died = dies(c, work, client=client)
    q, answered = newcomer(c)
    true(answered - died < SOON, f"its session ended after {answered - died:.1f} s")
    a, b = size(q, "a"), size(q, "b")
    true(2 <= a < total * queues, f"{a} of {total * queues} were done, which takes longer than a second")
    # What is short is begun for as long as any other element.
    same([n for n in range(2 * queues) if c.exists(f"late{n}")], [], "batches whose last element was begun")
    if c.hostdir:
        # Of one that was cut off the steps stand that it had done.
        true(b <= a <= b + queues, f"{a} bytes in one file, {b} in the other")
        return
    same(a, b, "bytes in the second file, of as many as in the first")
    ends = [outcome(q, client, 1 + at // total, first + (1 + at // total) * 1000 + 1 + at % total)[:2]
            for at in range(total * queues)]
    same(ends.count((2, 0)), a, "outcomes that say done, of as many as there are bytes")
    true(set(ends) <= {(2, 0), (0, 0), (2, errno.EINTR)}, f"outcomes {set(ends)}")


@case(G, "outcomes tell what became of a dead client's commands: done, or not started", hostdir=False)
def outcomes(c):
    client, first = os.urandom(16), time.time_ns()

    def work(session):
        q = session.queue(8, 1 << 16)
        unreaped(q)
        session.sequence = first
        flags = {"flags": wire.DETECTABLE}
        publish(q, creates(c.at("f"), b"12345", **flags), [creates(c.at("never"), b"x", **flags)],
                ("mkdir", {"a": c.at("no/d"), **flags}))

    dies(c, work, client=client)
    q, _ = newcomer(c)
    state, status, done, failed, _, result, result2 = outcome(q, client, 0, first + 1)
    same((state, status, done, failed, result, result2), (2, 0, 3, 0, 5, 1 << 63), "of what was done")
    same(outcome(q, client, 0, first + 2)[0], 0, "state of an element of a batch that was dropped")
    same(outcome(q, client, 0, first + 4)[:4], (2, errno.ENOENT, 0, 1), "of what failed")
    same((c.exists("f"), c.exists("never")), (True, False))


@case(G, "hello is answered when the changes of those that ended before it are made and their locks free")
def succession(c):
    pieces, piece = 40, 256 << 10
    c.put("f")

    def work(session):
        q = session.queue(64, 1 << 20)
        h = c.open("f", R | W, q=q)
        want(q.call("lock", handle=h, aux=1 | 1 << 4))
        want(q.call("lock", handle=h, aux=1 | 1 << 4 | 2 << 8))
        unreaped(q)
        write = ("write", {"handle": h, "aux": wire.END << 28, "a": (1 << 16, piece), "flags": wire.DURABLE})
        publish(q, *[write] * pieces)

    for round_ in range(1, 5):
        died = dies(c, work)
        q, answered = newcomer(c)
        h = c.open("f", R | W, q=q)
        found = [q.call("lock", handle=h, aux=1 | 1 << 4), q.call("lock", handle=h, aux=1 | 1 << 4 | 2 << 8)]
        same([done.name for done in found], ["OK", "OK"], "the dead client's locks, at once")
        size = c.stat("f")["size"]
        # What has not begun within five seconds is dropped.
        true(size == pieces * piece or (answered - died > 5 and size % piece == 0), f"{size} bytes in round {round_}")
        want(q.call("truncate", handle=h))
        c.extra.pop().close()


@case(G, "a transaction without a commit goes with its client", hostdir=False)
def leavings(c):
    c.put("f")

    def work(session):
        q = session.queue()
        h = c.open("f", R | W, q=q)
        t = want(q.call("txn_begin")).result
        want(q.call("txn_write", handle=t, imm=struct.pack("<Q", h), a=b"never"))

    dies(c, work)
    newcomer(c)
    same(c.stat("f")["size"], 0, "size")


@case(G, "a description and its flock outlive their session as long as a placeholder stands for it")
def legacy(c):
    c.put("f", b"0123456789")
    s = c.another()
    q = s.queue()
    (number,), (fd,) = placeholders(s, 1)
    h = want(q.call("open", a=c.at("f"), aux=R | W, imm=struct.pack("<I", number))).result
    want(q.call("read", handle=h, aux=wire.CURRENT << 28, a=4))
    flock = {"aux": 1 | 1 << 4 | 2 << 8}
    want(q.call("lock", handle=h, **flock))
    s.close()
    c.extra.remove(s)
    q, _ = newcomer(c)
    mine = c.open("f", R | W, q=q)
    want(q.call("lock", handle=mine, **flock), "EAGAIN")
    error, answer, _ = q.session.ask(wire.CLAIM, b"", [fd])
    refused(error, "OK")
    claimed = struct.unpack_from("<Q", answer)[0]
    same(want(q.call("read", handle=claimed, aux=wire.CURRENT << 28, a=3)).a, b"456", "read at the offset it had")
    os.close(fd)
    want(q.call("lock", handle=mine, **flock), "EAGAIN")
    want(q.call("close", handle=claimed))
    until(lambda: q.call("lock", handle=mine, **flock).status == 0, "the flock is still held")


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


@case(G, "stop is answered when all has ended: changes made, batches dropped, sessions closed, nobody listening",
      ends=True)
def stop(c):
    # Whoever runs this looks for these two names afterwards.
    s = c.another()
    q = s.queue(8, 1 << 16)
    unreaped(q)
    publish(q, creates(b"/kept", b"until the end"), [creates(b"/dropped", b"")])
    asks = c.another(hello=False)
    refused(asks.ask(wire.STOP)[0], "OK")
    closes(asks, asks.receive)
    true(s.hung_up() and c.session.hung_up(), "the connection of a session is still open")
    true(q.word["device_closed"].value and c.q.word["device_closed"].value, "device_closed is not set")
    try:
        link.Session(c.path).close()
    except (ConnectionRefusedError, FileNotFoundError):
        return
    raise Failed("another session was given after the end")
