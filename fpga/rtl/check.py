#!/usr/bin/env python3
"""Checks of the RTL that need no simulation of the whole kernel.

    fpga/rtl/check.py lint             Verilator's warnings, and Icarus as a second reader, in its Verilog-2005 mode
    fpga/rtl/check.py generated        files written by a program are what that program writes
    fpga/rtl/check.py icarus           pass-through and crc32c against vectors, in Icarus
    fpga/rtl/check.py formal           FIFO and credits: proofs by induction, and a planted fault that is found
    fpga/rtl/check.py resources [--jobs N] [NAME...]
                                       what Yosys counts for xc7 and xcup, against budget.toml; no timing is proven

Results of Yosys are kept in target/kernels/yosys, and used again while sources and Yosys are the same.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from build import COMMON, INCLUDED, ROOT, RTL, Broken, kernels, lint, source, stamp, tool, top

TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
# (R, C, LOG) for which FIFO and credits are proven, and one that has more credits than room, where the proof must fail.
SIZES = [(2, 4, 3), (3, 2, 3), (1, 1, 1)]
PLANTED = (3, 4, 3)
FAMILIES = ("xc7", "xcup")
# Look-up tables that a cell with memory takes (UG474, UG574); blocks of memory in units of 36 Kbit.
LUTS = {"RAM32M": 4, "RAM64M": 4, "RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4, "RAM256X1S": 4, "RAM32M16": 8,
        "RAM64M8": 8, "SRL16E": 1, "SRLC32E": 1}
BLOCKS = {"RAMB18E1": 0.5, "RAMB18E2": 0.5, "RAMB36E1": 1, "RAMB36E2": 1}


def quiet(*command):
    """Runs a tool, whose warnings are errors here."""
    said = tool(*command)
    if said.strip():
        raise Broken(f"{' '.join(map(str, command))}:\n{said}")


def lints():
    for name in kernels():
        lint(name)
        quiet("iverilog", "-g2005", "-Wall", "-Wno-timescale", "-t", "null", "-I", RTL / "kernels", "-s", top(name),
              *COMMON, source(name))
    quiet("verilator", "--lint-only", "-Wall", "--top-module", "weld_ingress", RTL / "lint.vlt", *COMMON)
    print(f"{len(kernels())} kernels and the common modules: no warning")


def generated():
    for file in sorted(RTL.glob("gen_*.py")):
        tool(sys.executable, file, "--check")
        print(f"{file.name}: what it writes is what is there")


def crc32c(data):
    """Bit by bit, which is another way than the matrices."""
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (0x82F63B78 if state & 1 else 0)
    return (state ^ 0xFFFFFFFF).to_bytes(4, "little")


def flits(packets):
    """Lines for $readmemh."""
    for packet in packets:
        pieces = [packet[at:at + 64] for at in range(0, len(packet), 64)] or [b""]
        for i, piece in enumerate(pieces):
            head = len(piece) | (0x80 if i + 1 == len(pieces) else 0)
            yield f"{head << 512 | int.from_bytes(piece, 'little'):0130x}"


def icarus():
    draw = random.Random(1)
    packets = [draw.randbytes(size) for size in [*range(131), 1000, 4096]]
    for name, function in (("pass-through", bytes), ("crc32c", crc32c)):
        with tempfile.TemporaryDirectory(prefix="weldfs-icarus-") as folder:
            feed, want = list(flits(packets)), list(flits(map(function, packets)))
            (Path(folder) / "feed.hex").write_text("\n".join(feed) + "\n")
            (Path(folder) / "want.hex").write_text("\n".join(want) + "\n")
            tool("iverilog", "-g2005", f"-DTOP={top(name)}", f"-Pbench.FLITS_IN={len(feed)}",
                 f"-Pbench.FLITS_OUT={len(want)}", "-I", RTL / "kernels", "-s", "bench", "-o", "bench.vvp", *COMMON,
                 source(name), RTL / "icarus" / "bench.v", cwd=folder)
            said = tool("vvp", "-n", "bench.vvp", cwd=folder)
        if not said.endswith(f"{len(want)} flits, 0 wrong\n"):
            raise Broken(f"{name} in Icarus:\n{said}")
        print(f"{name}: {len(packets)} packets, {len(want)} flits as they should be")


def proof(folder, size):
    """Whether both halves of the induction go through."""
    r, c, log = size
    files = [RTL / "common" / f"weld_{name}.v" for name in ("fifo", "credit", "ingress")]
    files.append(RTL / "formal" / "ingress_check.v")
    model = folder / "model.smt2"
    tool("yosys", "-q", "-p",
         f"read_verilog -formal {' '.join(map(str, files))};"
         f" chparam -set R {r} -set C {c} -set LOG {log} ingress_check; prep -top ingress_check -flatten; memory_map -formal; opt; async2sync; dffunmap; write_smt2 -wires {model}")
    for step in (["-t", "10"], ["-i", "-t", "6"]):
        done = subprocess.run(["yosys-smtbmc", "-s", "z3", *step, model], stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if "Status: PASSED" not in done.stdout:
            # What the solver did not say is not an answer.
            if "Assert failed" not in done.stdout:
                raise Broken(f"yosys-smtbmc: exit {done.returncode}\n{done.stdout}")
            return False
    return True


def formal():
    with tempfile.TemporaryDirectory(prefix="weldfs-formal-") as folder:
        for size in SIZES:
            if not proof(Path(folder), size):
                raise Broken(f"FIFO and credits: no proof for R, C, LOG = {size}")
            print(f"R, C, LOG = {size}: no word refused, lost or changed; no credit lost")
        if proof(Path(folder), PLANTED):
            raise Broken(f"FIFO and credits: a proof for {PLANTED}, where credits are worth more than there is room")
        print(f"R, C, LOG = {PLANTED}: refuted, as it must be")


def counted(text):
    """LUT, FF, BRAM (36 Kbit), DSP of what `stat` prints; where a module is kept apart, of all of its instances."""
    text = text.split("=== design hierarchy ===")[-1]
    sums = {"lut": 0, "ff": 0, "bram": 0, "dsp": 0}
    for cell, count in re.findall(r"^ +([A-Z0-9_]+) +(\d+)$", text, re.M):
        count = int(count)
        if re.fullmatch(r"LUT[1-6]|INV", cell):
            sums["lut"] += count
        elif cell in LUTS:
            sums["lut"] += count * LUTS[cell]
        elif cell in BLOCKS:
            sums["bram"] += count * BLOCKS[cell]
        elif re.fullmatch(r"FD[CPRS]E", cell):
            sums["ff"] += count
        elif cell.startswith("DSP"):
            sums["dsp"] += count
        elif not re.fullmatch(r"CARRY[48]|MUXF[789]|[IO]?BUFG?", cell):
            raise Broken(f"a cell that is not counted: {cell}")
    return sums


def synthesise(name, family):
    """What a kernel takes of a family."""
    folder = TARGET / "kernels" / "yosys"
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"{name}-{family}.json"
    value = stamp([*COMMON, *INCLUDED, source(name)], tool("yosys", "-V"), family)
    if kept.exists():
        old = json.loads(kept.read_text())
        if old["stamp"] == value:
            return old["sums"]
    files = " ".join(str(file) for file in [*COMMON, source(name)])
    with tempfile.NamedTemporaryFile("r", prefix="weldfs-yosys-") as said:
        tool("yosys", "-q", "-p",
             f"read_verilog -I{RTL / 'kernels'} {files}; synth_xilinx -family {family} -flatten -top {top(name)};"
             f" tee -q -o {said.name} stat")
        sums = counted(said.read())
    kept.write_text(json.dumps({"stamp": value, "sums": sums}))
    return sums


def resources(names, jobs):
    budget = tomllib.loads((RTL / "budget.toml").read_text())
    names, over = names or kernels(), []
    for name in names:
        if why := budget.get(name, {}).get("not_counted"):
            print(f"{name}: not counted: {why}")
    pairs = [(name, family) for name in names for family in FAMILIES if "not_counted" not in budget.get(name, {})]
    print(f"{'kernel':14} {'family':6} {'LUT':>7} {'FF':>7} {'BRAM':>6} {'DSP':>5}")
    with ThreadPoolExecutor(jobs) as pool:
        for (name, family), sums in zip(pairs, pool.map(lambda pair: synthesise(*pair), pairs)):
            print(f"{name:14} {family:6} {sums['lut']:7} {sums['ff']:7} {sums['bram']:6} {sums['dsp']:5}", flush=True)
            allowed = budget.get(name, {}).get(family)
            if allowed is None:
                over.append(f"{name} {family}: no budget")
            else:
                over += [f"{name} {family}: {sums[kind]} {kind}, budget {allowed[kind]}"
                         for kind in sums if sums[kind] > allowed[kind]]
    if over:
        raise Broken("above budget.toml:\n" + "\n".join(over))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["lint", "generated", "icarus", "formal", "resources"])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_intermixed_args()
    if args.names and args.what != "resources":
        parser.error("only `resources` takes names")
    unknown = sorted(set(args.names) - set(kernels()))
    if unknown:
        parser.error(f"no such kernel: {' '.join(unknown)}")
    try:
        if args.what == "resources":
            resources(args.names, args.jobs)
        else:
            {"lint": lints, "generated": generated, "icarus": icarus, "formal": formal}[args.what]()
    except Broken as what:
        sys.exit(str(what))


if __name__ == "__main__":
    main()
