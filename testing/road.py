"""A command's whole way through the device, from its ring to its completion, counted by callgrind on the real loop."""

import re
import subprocess
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from . import follow
from .build import ROOT, drill
from .report import Failed

# Kind, commands in flight, where the metadata lies: at most so many instructions, locked instructions, allocations, and
# calls that copy memory for each operation, and KiB of code that it touches (in lines of 64 bytes). `warm`: as the
# operations before it left it; `tree`: the image was mounted again; `inline`: warm, from the call to its result, on an
# embedded device whose commands the calling thread runs. The bounds are a seventh above what was counted when they were
# set.
BOUNDS = {
    ("nop", 1, "warm"): (1000, 4, 1, 1, 8),
    ("read", 1, "warm"): (4650, 11, 1, 1, 21),
    ("append", 1, "warm"): (9460, 35, 2, 11, 56),
    ("append_checksum_write", 1, "warm"): (15860, 46, 3, 20, 71),
    ("append_checksum_write_slot", 1, "warm"): (34770, 120, 7, 50, 150),
    ("read_checksum_verify", 1, "warm"): (12960, 13, 1, 5, 30),
    ("read_checksum_verify_slot", 1, "warm"): (23840, 56, 5, 21, 82),
    ("open_write_close", 1, "warm"): (16800, 54, 9, 33, 82),
    ("open_read_close", 1, "warm"): (5410, 13, 1, 2, 24),
    ("read_modify_write", 1, "warm"): (12230, 38, 4, 18, 62),
    ("stat", 1, "warm"): (2870, 11, 1, 2, 19),
    ("stat_many", 1, "warm"): (132000, 471, 3, 84, 40),
    ("readdir_plus", 1, "warm"): (101000, 460, 15, 315, 75),
    ("index_walk", 1, "warm"): (47000, 50, 3, 40, 63),
    ("log_recover", 1, "warm"): (150000, 82, 13, 100, 104),
    ("read", 32, "warm"): (4190, 7, 1, 1, 21),
    ("append_checksum_write", 32, "warm"): (15400, 50, 3, 20, 71),
    ("open_write_close", 32, "warm"): (16390, 56, 9, 33, 83),
    ("read", 1, "tree"): (4940, 13, 1, 1, 22),
    ("open_read_close", 1, "tree"): (5660, 15, 1, 2, 26),
    ("stat", 1, "tree"): (2920, 11, 1, 2, 19),
    ("readdir_plus", 1, "tree"): (153000, 460, 93, 394, 79),
    ("nop", 1, "inline"): (800, 5, 1, 1, 6),
    ("read", 1, "inline"): (4600, 12, 1, 1, 18),
    ("append_checksum_write", 1, "inline"): (15820, 55, 3, 20, 69),
    ("append_checksum_write", 32, "inline"): (15920, 50, 3, 20, 76),
    ("open_write_close", 1, "inline"): (17330, 61, 9, 33, 81),
    ("stat", 1, "inline"): (2045, 10, 1, 1, 13),
}
# What a command of 4 KiB with its checksum from a slot (`_slot`) may take more instructions than with one from a core,
# where the kernel is built in: an eighth above what was counted. It takes the way of commands that wait, where one with
# its checksum from a core runs to completion, an append in a straight line; of an append's, 1,900 are the checksum,
# which a core has of the block that it writes anyway.
SLOT_MORE = {"append_checksum_write": 18700, "read_checksum_verify": 11400}
FEW, MANY = 320, 960
# What takes ten times a command of 4 KiB, and more: these operations.
LONG = {"stat_many": (64, 192), "readdir_plus": (64, 192), "log_recover": (64, 192), "index_walk": (160, 480)}
LINE = 64
COPIES = re.compile(r"mem(cpy|move)")
ALLOCATIONS = re.compile(r"^(malloc|calloc|realloc|posix_memalign|aligned_alloc)$")
LOCKED = re.compile(r"^\s*([0-9a-f]+):\s+(lock |xchg .*\()", re.M)


class Counted:
    """One run: what was executed within the drill."""

    def __init__(self, path):
        self.at, self.calls, self.files = Counter(), Counter(), Counter()
        obj, source, callee, after_call = "", "", "", False
        with open(path, errors="replace") as out:
            for line in out:
                if line.startswith("ob="):
                    obj = line[3:].strip()
                elif line.startswith(("fl=", "fi=", "fe=")):
                    source = line[3:].strip()
                elif line.startswith("cfn="):
                    callee = line[4:].strip()
                elif line.startswith("calls="):
                    self.calls[callee] += int(line[6:].split()[0])
                    after_call = True
                elif line.startswith("0x"):
                    if not after_call:
                        address, _, cost = line.split()
                        self.at[obj, int(address, 16)] += int(cost)
                        self.files[source] += int(cost)
                    after_call = False

    def sums(self, locked):
        """Instructions, locked ones, allocations, copies."""
        called = lambda which: sum(n for name, n in self.calls.items() if which.search(name.split("@")[0]))
        return (sum(self.at.values()), sum(n for at, n in self.at.items() if at in locked), called(ALLOCATIONS),
                called(COPIES))

    def code(self):
        """Bytes of code touched, in whole lines."""
        return len({(obj, at // LINE) for obj, at in self.at}) * LINE

    def own(self):
        """Instructions by file, of files of this project's crates, those that drive the drill aside."""
        own = Counter()
        for name, n in self.files.items():
            name = name.removeprefix(f"{ROOT}/")
            if name.split("/")[0] in follow.folders():
                own[name] += n
        return own


def count(program, kind, depth, where, operations):
    with tempfile.TemporaryDirectory(prefix="weldfs-road-") as work:
        tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={work}/out", "--toggle-collect=*drill*work*",
                "--dump-instr=yes", "--compress-pos=no", "--compress-strings=no"]
        command = [program, kind, str(depth), str(operations), where]
        done = subprocess.run([*tool, *map(str, command)], capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"callgrind: {kind}: {done.stderr[-2000:]}")
        return Counted(f"{work}/out")


def locked_in(program):
    """Addresses of instructions that lock the bus or a cache line."""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", program], capture_output=True, text=True, check=True)
    return {(str(program), int(at, 16)) for at, _ in LOCKED.findall(text.stdout)}


def row(program, locked, case):
    """What one operation of a case takes, the difference of two runs, which is free of what stands around; and files."""
    fewer, more = LONG.get(case[0], (FEW, MANY))
    few, many = (count(program, *case, operations) for operations in (fewer, more))
    each = [(b - a) / (more - fewer) for a, b in zip(few.sums(locked), many.sums(locked))]
    return (*each, many.code() / 1024), many.own()


def measure(cases):
    """The rows of all cases."""
    program = drill("drills")
    locked = locked_in(program)
    with ThreadPoolExecutor(2) as pool:
        return list(zip(cases, pool.map(lambda case: row(program, locked, case), cases)))


def check():
    """Counts all, prints all; the cases that are over a bound."""
    bad, of, files = [], {}, {}
    print(f"{'from ring to completion':38} {'instructions':>15} {'locked':>10} {'allocations':>12} {'copies':>10} {'code KiB':>11}")
    for case, (counted, own) in measure(list(BOUNDS)):
        most = BOUNDS[case]
        kind, depth, where = case
        if (depth, where) == (1, "warm"):
            files[kind] = own
        of[case] = counted[0]
        cells = [f"{n:.0f}/{bound}" if bound > 99 else f"{n:.1f}/{bound}" for n, bound in zip(counted, most)]
        print(f"{kind + ', depth ' + str(depth) + ', ' + where:38} {cells[0]:>15} {cells[1]:>10} {cells[2]:>12} "
              f"{cells[3]:>10} {cells[4]:>11}")
        # A drill that was not found counts nothing.
        if counted[0] < 100 or any(n > bound for n, bound in zip(counted, most)):
            bad.append(f"{kind}, depth {depth}, {where}")
    for kind, most in SLOT_MORE.items():
        more = of[kind + "_slot", 1, "warm"] - of[kind, 1, "warm"]
        print(f"{kind + ': a slot more than a core':50} {more:8.0f}/{most}")
        bad += [f"{kind}: a slot more than a core"] if more > most else []
    return bad + follow.check(files)
