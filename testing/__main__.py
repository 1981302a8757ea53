"""The command line of `./test`. Exit codes: 0, 1 something failed, 2 wrong usage."""

import argparse
import subprocess
import sys

from . import quick, soak
from .build import ROOT
from .report import Report
from .tiers import ALWAYS, SLICES, TIERS, gate


def wrong(what):
    """Ends with the exit code of a wrong command line, as argparse has it."""
    print(what, file=sys.stderr)
    sys.exit(2)


def run(names, full):
    report = Report()
    for name in names:
        work = TIERS[name][0]
        report.run(name, lambda work=work: work(full))
    return report.end()


def slice_of(word):
    """The number of a slice: as it is, or from a commit's hash."""
    if word.isdigit() and int(word) < len(SLICES):
        return int(word)
    done = subprocess.run(["git", "rev-parse", f"{word}^{{commit}}"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        wrong(f"no such slice or commit: {word} (slices are 0 to {len(SLICES) - 1})")
    return int(done.stdout.strip()[:8], 16) % len(SLICES)


def listing():
    print("levels: gate (no argument), quick, full, slice [N|COMMIT], ci, soak")
    print("\ntiers (g: in the gate, in a short form where there is one; `./test NAME` runs one at full size)")
    for name, (work, in_gate) in TIERS.items():
        print(f"  {'g' if in_gate else ' '} {name:14} {work.__doc__}")
    print("\nslices of full")
    for number, names in enumerate(SLICES):
        print(f"  {number}  {' '.join(names)}")
    print(f"  in continuous integration, always: {' '.join(ALWAYS)}")


def main(args):
    if "--list" in args:
        return listing() if args == ["--list"] else wrong("--list stands alone")
    level = args[0] if args else "gate"
    if level == "soak":
        return soak.main(args[1:])
    if level == "quick":
        return quick.main(args[1:])
    parser = argparse.ArgumentParser(prog=f"./test {level}" if args else "./test", description="see ./test --help")
    if level in ("slice", "ci"):
        parser.add_argument("which", nargs="?", default="HEAD", help="number of a slice, or a commit (default HEAD)")
        number = slice_of(parser.parse_args(args[1:]).which)
        names = SLICES[number] if level == "slice" else ALWAYS + SLICES[number]
        print(f"slice {number} of {len(SLICES)}: {' '.join(SLICES[number])}")
        return run(names, True)
    if level in ("gate", "full"):
        parser.parse_args(args[1:])
        return run(gate() if level == "gate" else list(TIERS), level == "full")
    asked = [word for word in args if word in ("-h", "--help")]
    names = [word for word in args if word not in asked]
    for name in names:
        if name not in TIERS:
            wrong(f"no such tier: {name} (see ./test --list)")
    if asked:
        for name in names:
            print(f"usage: ./test {name}\n\n{name}: {TIERS[name][0].__doc__}, at full size; it takes no options")
        return 0
    return run(names, True)


sys.exit(main(sys.argv[1:]))
