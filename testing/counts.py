"""Machine instructions, counted by callgrind within a drill: no clock, so the same on a busy machine."""

import re
import subprocess
import tempfile

from . import road
from .build import drill
from .report import Failed

# A pick and its charge with 10,000 runnable inode queues (scheduler/benches/drill/mod.rs says what the cases are): the
# bounds are a seventh above what was counted when they were set.
PICKS = {
    ("rr", "stays"): 185, ("rr", "moves"): 320, ("rr", "empties"): 340,
    ("cfs", "stays"): 430, ("cfs", "moves"): 1290, ("cfs", "empties"): 1460,
    ("eevdf", "stays"): 500, ("eevdf", "moves"): 1470, ("eevdf", "empties"): 2270,
}


def count(command, work):
    """Instructions within the drill."""
    tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={work}/out", "--toggle-collect=*drill*work*"]
    done = subprocess.run([*tool, *map(str, command)], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"callgrind: {done.stderr[-2000:]}")
    with open(f"{work}/out") as out:
        return int(re.search(r"^totals: (\d+)", out.read(), re.M).group(1))


def each(command, few, many, work):
    """Instructions of one operation: the difference of two counts is free of start-up."""
    return (count([*command, many], work) - count([*command, few], work)) // (many - few)


def instructions():
    """Counts all, prints all, and fails if one is above its bound (or the drill was not found)."""
    program, bad = drill("picks"), []
    with tempfile.TemporaryDirectory(prefix="weldfs-counts-") as work:
        for case, most in PICKS.items():
            n = each([program, *case], 100, 1000, work)
            print(f"{' '.join(case):24} {n:6} instructions, at most {most}")
            bad += [] if 20 < n <= most else [" ".join(case)]
    bad += road.check()
    if bad:
        raise Failed(f"over a bound, or beside it: {', '.join(bad)}")
