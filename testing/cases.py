"""What the tests of plug-ins share: cases that are run one by one, and the images, devices and programs of a case.

A case is a function of a rig. It returns what is worth saying, or nothing; `Wrong` is its failure, `Skipped` says that
this machine cannot run it. All that it started is ended behind it, and its folder removed."""

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

# What one program takes at most, on a slow machine with other work.
PATIENCE = 300


class Wrong(Exception):
    """What should hold does not."""


class Skipped(Exception):
    """This machine cannot run the case."""


def expect(holds, what):
    if not holds:
        raise Wrong(what)


def crc32c(data):
    """As Castagnoli's polynomial has it, bit by bit: for blocks."""
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def of_another_version(image):
    """A copy of an image of which each superblock says that a later version has made it."""
    data = bytearray(image.read_bytes())
    for at in range(0, len(data), 4096):
        if data[at:at + 8] == b"WeldFS\x1a\n":
            data[at + 8] = 9
            data[at + 4092:at + 4096] = crc32c(data[at:at + 4092]).to_bytes(4, "little")
    copy = image.with_name(f"later-{image.name}")
    copy.write_bytes(data)
    return copy


class Rig:
    """Images, devices and programs of a case, all of them ended with it. `wait` is WELDFS_WAIT of its programs."""

    def __init__(self, weldfs, work, short, wait):
        self.weldfs, self.work, self.short = weldfs, work, short
        self.running = []
        self.env = {**os.environ, "WELDFS_WAIT": wait}

    def image(self, name, medium, size="128M"):
        path = self.work / name
        self.verb("mkfs", path, "--size", size, "--medium", medium)
        return path

    def verb(self, *args):
        """Runs a verb of the command line that must succeed; what it printed. An image that was in use a moment ago is
        waited for."""
        done = subprocess.run([self.weldfs, *map(str, args)], env={**self.env, "WELDFS_WAIT": "30"},
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE)
        said = (done.stdout + done.stderr).decode(errors="replace")
        expect(done.returncode == 0, f"weldfs {' '.join(map(str, args))}: exit {done.returncode}: {said}")
        return done.stdout

    def checked(self, image):
        """The image was closed cleanly and is whole."""
        self.verb("fsck", "-n", image)

    def stats(self, device):
        """What a device has counted."""
        return json.loads(self.verb("stats", device, "--json"))

    def start(self, command, **kwargs):
        process = subprocess.Popen(command, env={**self.env, **kwargs.pop("env", {})}, **kwargs)
        self.running.append(process)
        return process

    def serve(self, image, *options):
        """Serves it; the process and the socket, once that answers."""
        socket = image.with_name(image.name + ".sock")
        with (self.work / "serve.log").open("ab") as log:
            process = self.start([self.weldfs, "serve", image, "--socket", socket, *options], stdout=log, stderr=log)
        until = time.monotonic() + 60
        probe = [self.weldfs, "stats", socket]
        while subprocess.run(probe, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 0:
            log = (self.work / "serve.log").read_text(errors="replace")
            expect(process.poll() is None and time.monotonic() < until, f"the device did not come up: {log}")
            time.sleep(0.02)
        return process, socket

    def stop(self, process):
        """Ends a device as an operator does."""
        process.terminate()
        expect(process.wait(PATIENCE) == 0, f"the device ended with {process.returncode}")

    def end(self):
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


def run_one(case, rig):
    """Runs a case: its state, and what it said."""
    try:
        return "ok", case(rig) or ""
    except Skipped as why:
        return "skipped", why
    except Wrong as why:
        return "FAILED", why
    finally:
        rig.end()


def main(plugin, doc, cases, short, built, make):
    """The command line of the tests of a plug-in: runs the cases, those of `short` only with --short; the exit code.
    `built` is the option that says where the plug-in was built, `make` gives the rig of a case. What this machine
    cannot run is counted as skipped in the summary of `./test` (report.py)."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weldfs", required=True, type=Path)
    parser.add_argument(f"--{built}", dest="built", required=True, type=Path)
    parser.add_argument("--short", action="store_true", help="fewer rounds, smaller files, the shorter cases only")
    parser.add_argument("--only", default="", help="cases with this word in their name")
    args = parser.parse_args()
    states = []
    for case in (case for case in (short if args.short else cases) if args.only in case.__name__):
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="weldfs-case-") as work:
            rig = make(args.weldfs.resolve(), args.built.resolve(), Path(work), args.short)
            state, said = run_one(case, rig)
        states.append(state)
        if state == "skipped" and os.environ.get("WELDFS_TEST_SKIPS"):
            with open(os.environ["WELDFS_TEST_SKIPS"], "a") as skips:
                skips.write(f"{plugin}: {case.__name__}: {said}\n")
        print(f"{state:8}{case.__name__:44}{time.monotonic() - start:7.1f} s  {said}", flush=True)
    if not states:
        print(f"no case has {args.only} in its name")
    return 1 if "FAILED" in states or not states else 0
