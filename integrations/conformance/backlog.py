"""Work that a device has before it when it is told to end, for many seconds.

Usage: python3 integrations/conformance/backlog.py SOCKET

Makes the durable file /durable, publishes writes that begin only when the session ends, says `ready`, and stays until
its input ends.
"""

import sys

import link
import wire
from case import want
from cases_endings import creates, entries, unreaped

QUEUES, DEPTH, PIECE = 24, 1024, 1 << 20


def main():
    session = link.Session(sys.argv[1])
    for number in range(QUEUES):
        q = session.queue(DEPTH, PIECE + 4096)
        if number == 0:
            op, fields = creates(b"/durable", b"kept", flags=wire.DURABLE)
            want(q.call(op, **fields))
        unreaped(q)
        q.put(4096, b"x" * PIECE)
        (write,), _ = entries(q, [creates(b"/work", (4096, PIECE), flags=wire.VOLATILE)])
        q.push(*[write.bytes()] * DEPTH)
    print("ready", flush=True)
    sys.stdin.read()


main()
