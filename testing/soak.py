"""`./test soak`: crash states, power cuts, kills and fuzzing, by turns, until the time is over.

A round of a kind has a number, and the number is its seed: a soak that is interrupted goes on with the next round, two
soaks over the same folder do not do the same again, and a round that failed is repeated by the command in the report.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from . import programs
from .build import BUILD, ROOT, release, target_dir
from .report import Failed

FIRST_SEED = 1000


def states(seed, work):
    """One of four kinds of workloads, by turns, in the release build."""
    kind = (("one-op", 400), ("two-op", 400), ("three-op", 200), ("random", 60))[seed % 4]
    medium = ("block", "pmem")[seed // 4 % 2]
    args = ["crash", "--workload", kind[0], "--limit", str(kind[1]), "--medium", medium, "--seed", str(seed)]
    path = work / "states.json"
    path.unlink(missing_ok=True)
    code = subprocess.run([release(), *args, "--json", path], stdin=subprocess.DEVNULL).returncode
    report = json.loads(path.read_text()) if path.exists() else {}
    again = f"weldfs {' '.join(args)}"
    return code == 0 and report.get("bad") == 0, {"states": report.get("states", 0)}, again


def program(name, args, env, counts):
    """A test program with its size and seed in the environment."""
    BUILD.make()
    ok, line, text = programs.run_one(name, args, env)
    print(line)
    if not ok:
        print(text[-8000:])
    crate = BUILD.programs[name].folder.name
    words = " ".join(f"{key}={value}" for key, value in env.items())
    return ok, counts, f"{words} cargo test -p weldfs-{crate} --test {name.split()[-1]} {' '.join(args)}"


def powercuts(seed, _work):
    """2 x 5,000 power cuts under four clients, a tenth of them cut again in recovery."""
    env = {"WELDFS_POWER_CUTS": "5000", "WELDFS_SEED": str(seed)}
    return program("integrations/crash-harness it", ["power_cut::"], env, {"power cuts": 10000})


def kills(seed, _work):
    """2 x 10 SIGKILLs of a device under clients, and every named crash point."""
    BUILD.weldfs()
    return program("integrations/cli kills", ["--test-threads=2"], {"WELDFS_KILLS": "10"}, {"kills": 20})


def fuzz(seed, _work):
    """One target for two minutes; a target after the other."""
    done = subprocess.run([ROOT / "fuzz/run", "--list"], capture_output=True, text=True)
    targets = done.stdout.split()
    if not targets:
        return False, {}, "fuzz/run --list"
    args = ["--seconds", "120", targets[seed % len(targets)]]
    code = subprocess.run([ROOT / "fuzz/run", *args], stdin=subprocess.DEVNULL).returncode
    if code == 2:
        raise Failed("fuzz/run: the fuzzer cannot be built or run")
    return code == 0, {"fuzzed seconds": 120}, f"fuzz/run {' '.join(args)}"


KINDS = {"states": states, "powercuts": powercuts, "kills": kills, "fuzz": fuzz}


class State:
    """What was done so far, on disk after each round."""

    def __init__(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self.folder = folder / "state.json", folder
        self.data = {"next": {}, "rounds": {}, "counts": {}, "failures": [], "seconds": 0.0}
        if self.path.exists():
            try:
                self.data = json.loads(self.path.read_text())
            except ValueError as e:
                sys.exit(f"{self.path}: {e}; remove it to begin anew")

    def begin(self, kind):
        """The seed of the next round of a kind. It is taken even if the round does not end."""
        seed = self.data["next"].get(kind, FIRST_SEED)
        self.data["next"][kind] = seed + 1
        self.write()
        return seed

    def end(self, kind, counts, seconds, failure):
        data = self.data
        data["rounds"][kind] = data["rounds"].get(kind, 0) + 1
        for key, value in counts.items():
            data["counts"][key] = data["counts"].get(key, 0) + value
        data["seconds"] += seconds
        data["failures"] += [failure] if failure else []
        self.write()

    def write(self):
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.data, indent=1) + "\n")
        os.replace(new, self.path)
        lines = [f"{self.data['seconds'] / 3600:.2f} hours"]
        lines += [f"{self.data['rounds'][kind]} rounds of {kind}" for kind in sorted(self.data["rounds"])]
        lines += [f"{self.data['counts'][key]:,} {key}" for key in sorted(self.data["counts"])]
        lines += [f"{len(self.data['failures'])} failures"]
        lines += [f"FAILED: {failure['kind']}, round {failure['seed']}: {failure['again']}" for failure in self.data["failures"]]
        (self.folder / "report.txt").write_text("\n".join(lines) + "\n")
        return lines


def main(args):
    parser = argparse.ArgumentParser(prog="./test soak", description="Exit code 1 if any round of this state failed.")
    parser.add_argument("--hours", type=float, required=True, help="how long; a round that began is ended")
    parser.add_argument("--only", default=",".join(KINDS), metavar="KIND,...", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--state", type=Path, default=None, metavar="DIR",
                        help="what was done so far, and report.txt (default: target/soak)")
    given = parser.parse_args(args)
    kinds = given.only.split(",")
    if given.hours <= 0 or any(kind not in KINDS for kind in kinds):
        parser.error(f"--hours is above 0 and --only is of {', '.join(KINDS)}")
    state = State(given.state or target_dir() / "soak")
    ended = []
    # The round at hand goes down with the signal (it has the same terminal, or is told here); the report stands.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    end = time.monotonic() + given.hours * 3600
    try:
        while time.monotonic() < end:
            for kind in kinds:
                if time.monotonic() >= end:
                    break
                seed, start = state.begin(kind), time.monotonic()
                print(f"\n== {kind}, round {seed}", flush=True)
                # What cannot be built or run at all (`Failed`) ends the soak: nothing of it was tested.
                ok, counts, again = KINDS[kind](seed, state.folder)
                failure = None if ok else {"kind": kind, "seed": seed, "again": again}
                state.end(kind, counts if ok else {}, time.monotonic() - start, failure)
    except KeyboardInterrupt:
        ended.append("interrupted; the next soak goes on")
    except Failed as what:
        print(f"\n{what}\n" + "\n".join(state.write()))
        return 1
    print("\n== soak\n" + "\n".join(state.write() + ended + [f"report: {state.folder / 'report.txt'}"]))
    return 1 if state.data["failures"] else 130 if ended else 0
