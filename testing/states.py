"""Crash states through `weldfs crash`: the gate is their number and that none is bad, never time."""

import json
import subprocess
import tempfile
from pathlib import Path

from .report import Failed

MEDIA = ("block", "pmem")
# The sets as they are now; fewer would mean that workloads have been lost.
ONE_OP_LEAST = 2500


def crash(weldfs, args, json_file):
    """One run of the verb; its report."""
    command = [weldfs, "crash", *args, "--json", json_file]
    code = subprocess.run(command, stdin=subprocess.DEVNULL).returncode
    report = json.loads(Path(json_file).read_text()) if Path(json_file).exists() else {}
    if code != 0 or report.get("bad", 1) != 0 or report.get("interrupted", True):
        raise Failed(f"weldfs crash {' '.join(args)}: exit {code}, {report.get('bad', '?')} bad")
    return report


def sets(weldfs, workload, limit, seed, least_different):
    """A set of workloads on both media, all of it or `limit` drawn by the seed."""
    keys = ("workloads", "states", "unique_states", "recovery_states", "middles", "seconds")
    total = dict.fromkeys(keys, 0)
    with tempfile.TemporaryDirectory(prefix="weldfs-states-") as work:
        for medium in MEDIA:
            args = ["--workload", workload, "--medium", medium, "--seed", str(seed)]
            args += ["--limit", str(limit)] if limit else []
            report = crash(weldfs, args, f"{work}/{medium}")
            wanted = limit or ONE_OP_LEAST
            if report["workloads"] < wanted or report["unique_states"] > report["states"]:
                raise Failed(f"{workload} on {medium}: {report['workloads']} workloads, at least {wanted} were expected")
            for key in keys:
                total[key] += report[key]
    print("in all: %(workloads)d workloads, %(states)d states, %(unique_states)d different, %(recovery_states)d of crashed "
          "recoveries, %(middles)d middles shown read-only, 0 bad, %(seconds).0f s" % total)
    if total["unique_states"] < least_different or total["middles"] == 0:
        raise Failed(f"{total['unique_states']} different states, at least {least_different} were expected")


def large(weldfs):
    """What needs a larger medium than the sets run on: every state of it."""
    with tempfile.TemporaryDirectory(prefix="weldfs-states-") as work:
        for medium in MEDIA:
            for name in ("concat", "log_recover.copy"):
                for mode in ("macro", "micro"):
                    trace = f"fused {name} foo A/foo 100 512 {mode} durable"
                    crash(weldfs, ["--medium", medium, "--trace", trace], f"{work}/{medium}-{name}-{mode}")
