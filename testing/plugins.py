"""Plug-ins in C and C++: built by CMake against the libraries of the debug build, then run by their own tests."""

import subprocess
import sys

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


def tests(name, full, *options, part="."):
    """Runs the tests of a plug-in, which are a Python program in its folder, or in a folder of that."""
    short = [] if full else ["--short"]
    run(sys.executable, ROOT / "integrations" / name / "tests" / part, "--weldfs", BUILD.weldfs(), *options, *short)
