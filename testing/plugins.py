"""Plug-ins in C and C++: built by CMake against the libraries of the debug build, then run by their own tests."""

import json
import subprocess
import sys
from pathlib import Path

from .build import BUILD, ROOT, target_dir
from .report import Failed


def run(*command):
    done = subprocess.run(list(map(str, command)), cwd=ROOT, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}: exit {done.returncode}")


def built(name, *options):
    """Builds `integrations/NAME` in a folder of its own; returns that."""
    return built_in(target_dir() / "plugins" / name, name, *options)


def built_in(folder, name, *options, target="all"):
    """Builds `integrations/NAME`, or one target of it, in this folder."""
    BUILD.make()
    library = f"-DWELDFS_LIBRARY={target_dir() / 'debug' / 'libweldfs.so'}"
    include = f"-DWELDFS_INCLUDE={ROOT / 'userlib' / 'include'}"
    source = ROOT / "integrations" / name
    run("cmake", "-S", source, "-B", folder, "--log-level=WARNING", library, include, *options)
    run("cmake", "--build", folder, "--parallel", "2", "--target", target, "--", "--no-print-directory", "-s")
    return folder


def amalgamation():
    """The folder with the source of the SQLite that tests of the workspace are built with: cargo has it."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"cargo metadata: {done.stderr}")
    found = [package for package in json.loads(done.stdout)["packages"] if package["name"] == "libsqlite3-sys"]
    return Path(found[0]["manifest_path"]).parent / "sqlite3"


def tests(name, full, *options, part="."):
    """Runs the tests of a plug-in, which are a Python program in its folder, or in a folder of that."""
    short = [] if full else ["--short"]
    run(sys.executable, ROOT / "integrations" / name / "tests" / part, "--weldfs", BUILD.weldfs(), *options, *short)
