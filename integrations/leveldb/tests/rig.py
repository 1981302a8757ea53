"""Images, devices and programs of a case, all of them ended with it."""

import os
import select
import subprocess
import time

# What one program takes at most, on a slow machine with other work.
PATIENCE = 300
REFUSED_TO_OPEN, REFUSED_TO_WRITE = 3, 4


class Wrong(Exception):
    """What should hold does not."""


class Skipped(Exception):
    """This machine cannot run the case."""


def expect(holds, what):
    if not holds:
        raise Wrong(what)


class Rig:
    def __init__(self, weldfs, build, work, short):
        self.weldfs, self.build, self.work, self.short = weldfs, build, work, short
        self.running = []
        self.drive = build / "weldfs_leveldb_drive"
        # An image that is in use is to be refused at once, unless a case says otherwise.
        self.env = {**os.environ, "WELDFS_WAIT": "0"}

    def image(self, name, medium, size="128M"):
        path = self.work / name
        command = [self.weldfs, "mkfs", path, "--size", size, "--medium", medium]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)
        return path

    def start(self, command, **kwargs):
        process = subprocess.Popen(command, env={**self.env, **kwargs.pop("env", {})}, **kwargs)
        self.running.append(process)
        return process

    def serve(self, image, *options):
        """Serves it; returns the process and the socket, once that answers."""
        socket = image.with_name(image.name + ".sock")
        log = (self.work / "serve.log").open("ab")
        process = self.start([self.weldfs, "serve", image, "--socket", socket, *options], stdout=log, stderr=log)
        until = time.monotonic() + 60
        while True:
            probe = [self.weldfs, "stats", socket]
            if subprocess.run(probe, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
                return process, socket
            if process.poll() is not None or time.monotonic() > until:
                raise Wrong(f"the device did not come up: {(self.work / 'serve.log').read_text(errors='replace')}")
            time.sleep(0.02)

    def stop(self, process):
        """Ends a device as an operator does."""
        process.terminate()
        expect(process.wait(PATIENCE) == 0, f"the device ended with {process.returncode}")

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

    def end(self):
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


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
