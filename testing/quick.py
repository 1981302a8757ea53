"""`./test quick`: what one change needs while you work, in a folder and a shape of its own that is built step by step."""

import argparse
import json
import os
import subprocess
from pathlib import Path

from .build import ROOT, cargo, target_dir
from .report import Report

# The binaries of a crate's tests that are quick enough; the others are the gate's.
QUICK_TESTS = ("it",)
# Parts of those that build programs or measure: the gate's, unless the change is in the part itself.
SLOW_PARTS = {"weldfs-cli": ("bench_insider", "bench_smoke", "documents")}
# Paths that say nothing to a test of any crate but tidy.
TEXT = (".md", ".txt", ".json", ".svg", ".html")


def changed(base):
    """Files that differ from the commit, and new ones."""
    out = []
    for command in (["diff", "--name-only", "--no-renames", base], ["ls-files", "--others", "--exclude-standard"]):
        done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True)
        out += done.stdout.split("\n")
    return [line for line in out if line]


def owners(files):
    """The workspace's crates that own these files."""
    command = ["cargo", "metadata", "--no-deps", "--format-version=1"]
    meta = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    folders = {}
    for package in meta["packages"]:
        folder = os.path.relpath(os.path.dirname(package["manifest_path"]), ROOT)
        folders[folder + "/"] = package
    found = {}
    for name in files:
        if name.endswith(TEXT):
            continue
        inside = [folder for folder in folders if name.startswith(folder)]
        if inside:
            package = folders[max(inside, key=len)]
            found[package["name"]] = package
    code = [package for package in found.values() if any(is_code(name, package) for name in files)]
    for package in dependents(code, meta["packages"]):
        found[package["name"]] = package
    return [found[name] for name in sorted(found)]


def is_code(name, package):
    """Whether a file is one of the crate's that others are built of."""
    folder = Path(package["manifest_path"]).parent
    return (ROOT / name).is_relative_to(folder) and not (ROOT / name).is_relative_to(folder / "tests")


def dependents(packages, all_packages):
    """The crates of `storagefs/`, which are the file system together, that stand on these, their tests included."""
    room = [p for p in all_packages if Path(p["manifest_path"]).parent.parent == ROOT / "storagefs"]
    names, found = {p["name"] for p in packages}, {}
    while True:
        more = [p for p in room if p["name"] not in found and any(d["name"] in names for d in p["dependencies"])]
        if not more:
            return list(found.values())
        for p in more:
            found[p["name"]] = p
            names.add(p["name"])


def left_out(package, files):
    """The parts of a crate's tests that this change does without."""
    touched = [part for name in files for part in name.replace(".rs", "").split("/")]
    return [part for part in SLOW_PARTS.get(package["name"], ()) if part not in touched]


def test(package, files, env):
    """The unit tests and the quick integration tests of one crate."""
    kinds = {(target["name"], target["kind"][0]) for target in package["targets"] if target["test"]}
    args = ["test", "-p", package["name"], "--quiet"]
    args += ["--lib"] if any(kind in ("lib", "cdylib", "staticlib", "rlib") for _, kind in kinds) else []
    args += ["--bins"] if any(kind == "bin" for _, kind in kinds) else []
    for name, kind in sorted(kinds):
        if kind == "test" and (name in QUICK_TESTS or package["name"] == "weldfs-tidy"):
            args += ["--test", name]
    slow = left_out(package, files)
    if slow:
        print(f"left to the gate: {', '.join(slow)}")
        args += ["--", *(word for part in slow for word in ("--skip", f"{part}::"))]
    if len(args) > 4:
        cargo(*args, env=env)
    else:
        print(f"{package['name']} has no tests")


def main(args):
    parser = argparse.ArgumentParser(prog="./test quick", description=(
        "Format, house rules, and the quick tests of the crates that changed. The first run builds its own folder "
        "(target/quick); the ones after that build what changed."))
    parser.add_argument("--since", default="HEAD", metavar="COMMIT", help="what counts as changed (default: HEAD)")
    base = parser.parse_args(args).since
    known = subprocess.run(["git", "rev-parse", "--verify", "--quiet", f"{base}^{{commit}}"], cwd=ROOT, stdout=subprocess.DEVNULL)
    if known.returncode != 0:
        parser.error(f"no such commit: {base}")
    env = {"CARGO_TARGET_DIR": str(target_dir() / "quick"), "CARGO_INCREMENTAL": "1"}
    env.update({"WELDFS_FULL_ROUNDS": "1200", "WELDFS_TWO_OPS": "100", "WELDFS_POWER_CUTS": "200", "WELDFS_MODEL_CASES": "24"})
    files = changed(base)
    packages = [package for package in owners(files) if package["name"] != "weldfs-tidy"]
    names = ", ".join(package["name"] for package in packages) or "no crate"
    print(f"changed since {base}: {names}")
    report = Report()
    report.run("fmt", lambda: cargo("fmt", "--all", "--check"))
    report.run("tidy", lambda: cargo("test", "-p", "weldfs-tidy", "--quiet", env=env))
    for package in packages:
        report.run(package["name"], lambda package=package: test(package, files, env))
    return report.end()
