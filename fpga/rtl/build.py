#!/usr/bin/env python3
"""Makes of each kernel in `kernels/` a shared object of `fpga/include/weldfs_kernel.h`, by Verilator.

    fpga/rtl/build.py [--out FOLDER] [--optimise 1] [--jobs 2] [NAME...]

The result is FOLDER/librtl_NAME.so (default: target/kernels of the source tree). What is up to date is left
alone: beside each library lies a stamp of its sources, of the tools' versions and of the flags.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

RTL = Path(__file__).resolve().parent
ROOT = RTL.parent.parent
HEADER = ROOT / "fpga" / "include" / "weldfs_kernel.h"
COMMON = sorted((RTL / "common").glob("*.v"))
WAIVERS = RTL / "lint.vlt"
INCLUDED = sorted((RTL / "kernels").glob("*.vh"))
HARNESS = [RTL / "harness" / "verilated.cpp", RTL / "harness" / "exports.map", HEADER]
VERILATE = ["--cc", "--trace", "--x-initial", "unique", "-O3", "--output-split", "0", "-Wall", f"-I{RTL / 'kernels'}"]
# No symbol is shared with another library of the same process, whose Verilated model may be another.
COMPILE = ["-std=c++17", "-fPIC", "-fno-gnu-unique", "-w", "-DVM_TRACE=1", "-DVM_COVERAGE=0",
           "-DVM_SC=0", "-DVM_TRACE_FST=0", "-DVM_TRACE_VCD=1", "-faligned-new", "-fcf-protection=none"]
# The parts of Verilator's run-time library that a model with VCD needs.
RUNTIME = ["verilated.cpp", "verilated_vcd_c.cpp", "verilated_threads.cpp"]


class Broken(Exception):
    """A tool refused; the text is what it said."""


def kernels():
    """Names of the kernels, as their packages have them."""
    return sorted(file.stem.removeprefix("weld_").replace("_", "-") for file in (RTL / "kernels").glob("weld_*.v"))


def top(name):
    """The top module of a kernel."""
    return "weld_" + name.replace("-", "_")


def source(name):
    return RTL / "kernels" / f"{top(name)}.v"


def tool(*command, cwd=None):
    """Runs a tool; what it prints."""
    done = subprocess.run(list(map(str, command)), cwd=cwd, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise Broken(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}")
    return done.stdout


def stamp(sources, *facts):
    """What a result depends on."""
    digest = hashlib.sha256()
    for fact in facts:
        digest.update(repr(fact).encode())
    for file in sources:
        digest.update(file.name.encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def fresh(file, value):
    """Whether the file is there and was made from this."""
    beside = file.with_suffix(".stamp")
    return file.exists() and beside.exists() and beside.read_text() == value


def lint(name):
    """Verilator's lint with all warnings, each of which is an error."""
    tool("verilator", "--lint-only", "-Wall", f"-I{RTL / 'kernels'}", "--top-module", top(name), WAIVERS, *COMMON,
         source(name))


class Builder:
    def __init__(self, out, optimise, compiler=None):
        self.out, self.work = out, out / "rtl"
        self.work.mkdir(parents=True, exist_ok=True)
        self.compiler = compiler or os.environ.get("CXX") or "c++"
        self.flags = [*COMPILE, f"-O{optimise}"]
        self.versions = [tool("verilator", "--version"), tool(self.compiler, "--version"), self.flags, VERILATE]
        share = Path(tool("verilator", "--getenv", "VERILATOR_ROOT").strip())
        self.include = share / "include"

    def runtime(self):
        """Verilator's own run-time library, compiled once for all kernels."""
        objects = []
        for name in RUNTIME:
            file = (self.work / name).with_suffix(".o")
            value = stamp([self.include / name], self.versions)
            if not fresh(file, value):
                tool(self.compiler, *self.flags, f"-I{self.include}", f"-I{self.include / 'vltstd'}", "-c",
                     self.include / name, "-o", file)
                file.with_suffix(".stamp").write_text(value)
            objects.append(file)
        return objects

    def kernel(self, name, objects):
        """Builds one; how many seconds it took, or None if it was up to date."""
        library = self.out / f"librtl_{name}.so"
        value = stamp([WAIVERS, *COMMON, *INCLUDED, *HARNESS, source(name)], self.versions)
        if fresh(library, value):
            return None
        start = time.monotonic()
        folder = self.work / name
        shutil.rmtree(folder, ignore_errors=True)
        tool("verilator", *VERILATE, "--top-module", top(name), "--Mdir", folder, WAIVERS, *COMMON, source(name))
        whole = folder / "whole.cpp"
        parts = sorted(folder.glob(f"V{top(name)}*.cpp"))
        whole.write_text("".join(f'#include "{part.name}"\n' for part in parts) + f'#include "{HARNESS[0]}"\n')
        made = folder / library.name
        tool(self.compiler, *self.flags, "-shared", f"-I{folder}", f"-I{self.include}", f"-I{HEADER.parent}",
             f"-DWELD_TOP=V{top(name)}", f'-DWELD_TOP_HEADER="V{top(name)}.h"', whole, *objects,
             f"-Wl,--version-script={HARNESS[1]}", "-Wl,-Bsymbolic", "-Wl,-z,defs", "-pthread", "-o", made)
        # By renaming: a reader never finds half a library.
        made.replace(library)
        library.with_suffix(".stamp").write_text(value)
        return time.monotonic() - start


def build(out, names=None, optimise=1, jobs=2):
    """Builds these, or all."""
    builder = Builder(Path(out), optimise)
    start = time.monotonic()
    objects = builder.runtime()
    names = names or kernels()
    with ThreadPoolExecutor(jobs) as pool:
        for name, took in zip(names, pool.map(lambda n: builder.kernel(n, objects), names)):
            print(f"{name:14} " + ("up to date" if took is None else f"{took:5.1f} s"), flush=True)
    print(f"{len(names)} kernels in {time.monotonic() - start:.1f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
    parser.add_argument("--out", type=Path, default=target / "kernels")
    parser.add_argument("--optimise", default="2", choices=["0", "1", "2", "3"])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_intermixed_args()
    unknown = sorted(set(args.names) - set(kernels()))
    if unknown:
        sys.exit(f"no such kernel: {' '.join(unknown)} (there are: {' '.join(kernels())})")
    try:
        build(args.out.resolve(), args.names, args.optimise, args.jobs)
    except Broken as what:
        sys.exit(str(what))


if __name__ == "__main__":
    main()
