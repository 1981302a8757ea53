"""What automatic merging costs a program that it does nothing for: such calls with WELDFS_AUTOMERGE on and off.

    python3 testing/mount/nopattern.py WELDFS [--pairs 60] [--calls 3000] [--medium pmem]

One device serves all of it. In each pair a C program runs with "on" and with "off", one right after the other and in
turns first, and times its calls: names made, renamed, looked at singly and removed; names of two directories looked at
in turns; files opened with O_SYNC, written and closed; writes and reads of 128 KiB. (Of these only that close is not
waited for with "on"; what costs is that each open asks for more, and that the library looks whether anything fits.) The
figure is the median over the pairs of on : off, with the range in which it lies with 95 % (bootstrap). Needs cc.
docs/AUTOMERGE.md has what was measured with it.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("weldfs", help="the program, with its preload library beside it")
parser.add_argument("--pairs", type=int, default=60)
parser.add_argument("--calls", type=int, default=3000, help="rounds of the calls in each program")
parser.add_argument("--medium", default="pmem", choices=["pmem", "block"], help="of the image, in memory")

PROGRAM = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char block[128 << 10];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

#define MUST(call) do { if (call) { perror(#call); return 1; } } while (0)

int main(int argc, char **argv) {
    (void)argc;
    int calls = atoi(argv[2]);
    char link[64];
    MUST(chdir(argv[1]));
    double start = now();
    for (int i = 0; i < calls; i++) {
        MUST(mkdir("d", 0700));
        MUST(rename("d", "e"));
        MUST(symlink("e", "l"));
        MUST(access("e", R_OK));
        MUST(readlink("l", link, sizeof link) != 1);
        MUST(unlink("l"));
        MUST(rmdir("e"));
    }
    double names = now() - start;
    MUST(mkdir("p", 0700) || mkdir("q", 0700) || mkdir("p/x", 0700) || mkdir("q/x", 0700));
    struct stat st;
    start = now();
    for (int i = 0; i < calls; i++) {
        MUST(stat("p/x", &st));
        MUST(stat("q/x", &st));
    }
    double stats = now() - start;
    MUST(rmdir("p/x") || rmdir("q/x") || rmdir("p") || rmdir("q"));
    start = now();
    for (int i = 0; i < calls; i++) {
        int one = open("one", O_RDWR | O_CREAT | O_SYNC, 0600);
        MUST(one < 0);
        MUST(pwrite(one, block, 100, 0) != 100);
        MUST(close(one));
    }
    double opens = now() - start;
    MUST(unlink("one"));
    int fd = open("big", O_RDWR | O_CREAT, 0600);
    MUST(fd < 0);
    start = now();
    for (int i = 0; i < calls; i++) {
        MUST(pwrite(fd, block, sizeof block, (off_t)(i % 64) * sizeof block) != sizeof block);
        MUST(pread(fd, block, sizeof block, (off_t)(i % 64) * sizeof block) != sizeof block);
    }
    double bytes = now() - start;
    MUST(close(fd));
    MUST(unlink("big"));
    printf("%.1f %.1f %.1f %.1f\n", names / calls / 7, stats / calls / 2, opens / calls / 3, bytes / calls / 2);
    return 0;
}
"""


def range_of(ratios):
    drawn = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(2000))
    return drawn[50], drawn[-51]


def inside(program, pairs, calls):
    """Runs in the device's namespace: the pairs."""
    took = {"on": [], "off": []}
    for pair in range(pairs + 1):
        for merge in ("on", "off") if pair % 2 else ("off", "on"):
            env = os.environ | {"WELDFS_AUTOMERGE": merge}
            out = subprocess.run([program, "/weld", str(calls)], env=env, check=True, stdout=subprocess.PIPE)
            # The first pair warms up.
            if pair:
                took[merge].append([float(f) for f in out.stdout.split()])
    print("| calls | on, ns | off, ns | on : off | with 95 % |")
    print("|---|---:|---:|---:|---:|")
    names = "mkdir, rename, symlink, access, readlink, unlink, rmdir"
    rows = (names, "stat in two directories", "open with O_SYNC, pwrite of 100 bytes, close", "pwrite, pread of 128 KiB")
    for column, name in enumerate(rows):
        on, off = ([one[column] for one in took[merge]] for merge in ("on", "off"))
        ratios = [a / b for a, b in zip(on, off)]
        low, high = range_of(ratios)
        mid = statistics.median(ratios)
        took_ns = f"{statistics.median(on):.0f} | {statistics.median(off):.0f}"
        print(f"| {name} | {took_ns} | {mid:.3f} | {low:.3f} to {high:.3f} |")


def main():
    args = parser.parse_args()
    weldfs = os.path.abspath(args.weldfs)
    with tempfile.TemporaryDirectory(prefix="weldfs-nopattern-", dir="/dev/shm") as work:
        source, program, image = (os.path.join(work, name) for name in ("calls.c", "calls", "a.img"))
        with open(source, "w", encoding="ascii") as f:
            f.write(PROGRAM)
        subprocess.run(["cc", "-O2", "-o", program, source], check=True)
        make = [weldfs, "mkfs", image, "--medium", args.medium, "--size", "1G"]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
        this = [sys.executable, os.path.abspath(__file__), "--inside", program, str(args.pairs), str(args.calls)]
        subprocess.run([weldfs, "run", "--mount", "never", "--image", image, "--", *this], check=True)


if sys.argv[1:2] == ["--inside"]:
    inside(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
else:
    main()
