"""Mounts: public suites and whole programs over them."""

import os
import shutil
import subprocess

from . import programs
from .build import BUILD, ROOT, target_dir

# Crates with a program each, and the versions that the lists in testing/mount are for.
SUITES = {"pjdfstest": "0.2.2", "fsx": "0.3.2"}


def suites():
    """Has the suites in target/tools; what cannot be fetched or built is a skip of its test, which says so."""
    tools = ROOT / "target" / "tools"
    for name, version in SUITES.items():
        if (tools / "bin" / name).exists() or shutil.which(name):
            continue
        print(f"building {name} {version} into target/tools")
        command = ["cargo", "install", name, "--version", version, "--locked", "--quiet", "--root", tools]
        env = {**os.environ, "CARGO_TARGET_DIR": str(target_dir() / "suites")}
        if subprocess.run(command, cwd=ROOT, env=env).returncode != 0:
            print(f"{name} could not be built")


def mount(full):
    """mounts: POSIX calls, locks, users, deaths, programs; pjdfstest and fsx over them"""
    from .tiers import apt, sized  # it names this tier

    apt(["git", "sqlite3", "tar", "gcc", "make", "python3", "setpriv"],
        ["git", "sqlite3", "tar", "gcc", "make", "python3", "util-linux"])
    BUILD.weldfs()
    suites()
    env = {**sized(full)}
    # Its mounts are the machine's: one test at a time says most where one fails.
    programs.run(["integrations/cli mount"], jobs=1, env=env)
