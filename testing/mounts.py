"""Mounts and whole programs: public suites, and what docs/COMPATIBILITY.md says of programs."""

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
    """mounts: POSIX calls, locks, users, deaths; pjdfstest and fsx over them"""
    from .tiers import apt, sized  # it names this tier

    apt(["python3", "setpriv"], ["python3", "util-linux"])
    BUILD.weldfs()
    suites()
    env = {**sized(full)}
    # Its mounts are the machine's: one test at a time says most where one fails.
    programs.run(["integrations/cli mount"], jobs=1, env=env)


# Programs of docs/COMPATIBILITY.md, by the file that shows whether they are there: small ones, which the gate has ...
SMALL = {
    "ed": "/usr/bin/ed",
    "gcc": "/usr/bin/gcc",
    "git": "/usr/bin/git",
    "liburing-dev": "/usr/include/liburing.h",
    "lmdb-utils": "/usr/bin/mdb_load",
    "make": "/usr/bin/make",
    "python3-venv": "/usr/share/doc/python3-venv",
    "rsync": "/usr/bin/rsync",
    "sqlite3": "/usr/bin/sqlite3",
}
# ... and hundreds of megabytes.
LARGE = {
    "borgbackup": "/usr/bin/borg",
    "ccache": "/usr/bin/ccache",
    "cmake": "/usr/bin/cmake",
    "cpio": "/usr/bin/cpio",
    "curl": "/usr/bin/curl",
    "default-jdk-headless": "/usr/lib/jvm/*/bin/javac",
    "emacs-nox": "/usr/bin/emacs",
    "ffmpeg": "/usr/bin/ffmpeg",
    "fio": "/usr/bin/fio",
    "g++": "/usr/bin/g++",
    "golang-go": "/usr/*/go*/bin/go",
    "mariadb-server": "/usr/sbin/mariadbd",
    "nginx-light": "/usr/sbin/nginx",
    "ninja-build": "/usr/bin/ninja",
    "nodejs": "/usr/bin/node",
    "p7zip-full": "/usr/bin/7z",
    "php-cli": "/usr/bin/php",
    "postgresql": "/usr/lib/postgresql/*/bin/initdb",
    "redis-server": "/usr/bin/redis-server",
    "restic": "/usr/bin/restic",
    "ruby": "/usr/bin/ruby",
    "squashfs-tools": "/usr/bin/mksquashfs",
    "stress-ng": "/usr/bin/stress-ng",
    "unzip": "/usr/bin/unzip",
    "vim": "/usr/bin/vim",
    "xz-utils": "/usr/bin/xz",
    "zip": "/usr/bin/zip",
    "zsh": "/usr/bin/zsh",
    "zstd": "/usr/bin/zstd",
}


def compatibility(full):
    """whole programs as docs/COMPATIBILITY.md says: on the host, under `weldfs run`, in mounts; clean afterwards"""
    from .tiers import driven, sized  # it names this tier

    driven({**SMALL, **LARGE} if full else SMALL)
    BUILD.weldfs()
    args = ["--include-ignored"] if full else []
    programs.run(["integrations/cli compatibility"], jobs=1, args=args, env={**sized(full)})
