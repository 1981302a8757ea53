"""Runs of the driver (drive.cc), and what it prints."""

import os
import select
import subprocess
import time

from testing.cases import PATIENCE, Rig, Wrong, expect

REFUSED_TO_OPEN, REFUSED_TO_WRITE = 3, 4


class Driven(Rig):
    def __init__(self, weldfs, build, work, short):
        # An image that is in use is to be refused soon, unless a case says otherwise. None at all would leave a device
        # on a busy machine no time to answer.
        super().__init__(weldfs, work, short, wait="3")
        self.build = build
        self.drive = build / "weldfs_leveldb_drive"

    def run(self, *args, env=None, stdin=subprocess.DEVNULL, prefix=()):
        """Runs the driver: exit code, what it printed, what it complained of."""
        done = subprocess.run([*prefix, self.drive, *map(str, args)], env={**self.env, **(env or {})}, stdin=stdin,
                              capture_output=True, text=True, timeout=PATIENCE)
        return done.returncode, done.stdout, done.stderr.strip()

    def verified(self, target, db="/db"):
        """How many values are there, in order and whole. An image that was in use a moment ago is waited for."""
        code, out, err = self.run("verify", target, db, env={"WELDFS_WAIT": "30"})
        expect(code == 0, f"verify {target}: exit {code}: {err}")
        return int(out)

    def writer(self, target, start, how, count=10**9, db="/db"):
        return self.start([self.drive, "write", target, db, str(start), str(count), how], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={"WELDFS_WAIT": "30"})

    def waiting(self, word, *args):
        """The driver with a verb that says a word and then waits for the end of its input; once it has said it."""
        process = self.start([self.drive, *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        said = lines_until(process, 1)
        expect(said == word + b"\n", f"{args}: {said}")
        return process


def lines_until(process, count, seconds=60):
    """Reads the output of a process until it has `count` more lines, or ends: what was read."""
    got, until = b"", time.monotonic() + seconds
    while got.count(b"\n") < count:
        ready, _, _ = select.select([process.stdout], [], [], max(0, until - time.monotonic()))
        if not ready:
            raise Wrong(f"only {got.count(10)} of {count} lines after {seconds} s")
        piece = os.read(process.stdout.fileno(), 65536)
        if not piece:
            break
        got += piece
    return got


def rest(process):
    """Everything that it still printed, and its end."""
    got = process.stdout.read()
    process.wait(PATIENCE)
    return got


def acknowledged(output, before):
    """One more than the last number that was printed as a whole line."""
    lines = output.split(b"\n")[:-1]
    return int(lines[-1]) + 1 if lines else before
