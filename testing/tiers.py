"""The tiers: what each runs, in the gate (short) and in full."""

import glob
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from . import counts, engine_sources, kernels_cli, kernels_hls, kernels_rtl, mounts, plugins, programs, sources, states
from .build import BUILD, ROOT, cargo, release
from .report import Failed, Skip

# Sizes of the gate; what is not named here, and everything in `full`, has the size that the test itself says.
SHORT = {
    "WELDFS_POWER_CUTS": "2000",
    "WELDFS_KILLS": "8",
    "WELDFS_TWO_OPS": "600",
    "WELDFS_MODEL_CASES": "96",
    "WELDFS_FULL_ROUNDS": "1200",
    "WELDFS_DIFF_SEEDS": "6",
    "WELDFS_SQLITE_CUTS": "60",
    "WELDFS_ROCKSDB_KILLS": "1",
    "WELDFS_FSX_OPS": "100000",
    "WELDFS_STRESS_SECONDS": "3",
    "WELDFS_PROGRAM_MOUNTS": "shared",
    "WELDFS_DOORS_PROGRAMS": "60",
    "WELDFS_MERGED_PROGRAMS": "60",
    "WELDFS_API_OPS": "60000",
}
# Programs that measure what tenants and cores get: they run with nothing beside them.
ALONE = ["storagefs/device device", "scheduler it"]
# Programs that have a tier of their own.
OWN = (
    "integrations/cli", "integrations/crash-harness", "integrations/hostile", "integrations/rocksdb",
    "integrations/sqlite", "storagefs/device canary",
    "storagefs/media canary", "tidy", *ALONE,
)


def sized(full):
    return {} if full else SHORT


def apt(tools, packages, libraries=()):
    """Has the tools and libraries, after installing their packages where that is possible; otherwise the tier is
    skipped."""

    def wanting():
        return [tool for tool in tools if not shutil.which(tool)] + [file for file in libraries if not glob.glob(file)]

    missing = wanting()
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"installing: {' '.join(packages)}")
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-qq"], env=env)
        subprocess.run(["apt-get", "install", "-y", "-qq", *packages], env=env, stdout=subprocess.DEVNULL)
        missing = wanting()
    if missing:
        raise Skip(f"missing: {' '.join(missing)} (packages: {' '.join(packages)})")


# What single tests of `integrations/cli` drive, by the file that shows whether it is there.
DRIVEN = {
    "libjemalloc2": "/usr/lib/*/libjemalloc.so.2",
    "libxrt-dev": "/usr/lib/*/libxrt_coreutil.so.2",
    "libmimalloc2.0": "/usr/lib/*/libmimalloc.so.2*",
    "libtcmalloc-minimal4": "/usr/lib/*/libtcmalloc_minimal.so.4",
    "libleveldb-dev": "/usr/include/leveldb/c.h",
    "librocksdb-dev": "/usr/include/rocksdb/file_system.h",
    "redis-server": "/usr/bin/redis-server",
    "rocksdb-tools": "/usr/bin/db_bench",
    "sqlite3": "/usr/bin/sqlite3",
}


def driven(packages=None):
    """Installs them where that is possible, one by one: not every release has each. A test without its own is a skip."""
    missing = [package for package, files in (packages or DRIVEN).items() if not glob.glob(files)]
    if not missing or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    print(f"installing: {' '.join(missing)}")
    # No server is to be started by its installation.
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    subprocess.run(["apt-get", "update", "-qq"], env=env)
    for package in missing:
        subprocess.run(["apt-get", "install", "-y", "-qq", package], env=env, stdout=subprocess.DEVNULL)


def script(path, *args):
    """Runs a script of the tree; exit 77 is a skip, for the reason in its line `skipped: ...`."""
    why = "it does not say why"
    command = [ROOT / path, *map(str, args)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            if line.startswith("skipped: "):
                why = line.removeprefix("skipped: ").strip()
    if process.returncode == 77:
        raise Skip(f"{path}: {why}")
    if process.returncode != 0:
        raise Failed(f"{path}: exit {process.returncode}")


def fmt(_full):
    """rustfmt"""
    cargo("fmt", "--all", "--check")


def build(_full):
    """the one debug build that every test runs"""
    BUILD.make()


def tidy(_full):
    """the house rules"""
    # A workspace of its own: what this one adds must be in its lock file, too.
    cargo("fetch", "--locked", "--quiet", "--manifest-path", "fuzz/Cargo.toml")
    programs.run([name for name in built_names() if name.startswith("tidy")])


def built_names():
    BUILD.make()
    return sorted(BUILD.programs)


def clippy(_full):
    """no warning, in tests neither"""
    cargo("clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings")


def unit(full):
    """units, properties and integration tests of every library crate"""
    names = [name for name in built_names() if not name.startswith(OWN)]
    programs.run(names, env=sized(full))


def device(full):
    """the device and the scheduler: commands, cores, tenants, hostile and greedy clients; nothing runs beside them"""
    programs.run(ALONE, jobs=1, env=sized(full))


def doctests(_full):
    """the examples in the documents of the crates"""
    cargo("test", "--workspace", "--doc", "--quiet", env={"CARGO_INCREMENTAL": "0"})


def formats(_full):
    """compression: other programs read what the device writes, and are read"""
    apt(["zstd", "lz4", "python3"], ["zstd", "lz4", "python3", "libsnappy1v5"], ["/usr/lib/*/libsnappy.so.1"])
    BUILD.make()
    programs.run(["ciscops/functions it"], args=["--ignored", "peers"])


def loom(_full):
    """wake-ups and what cores tell each other without a lock, under every interleaving"""
    # The flag changes every crate: a folder of its own, or the other builds would be thrown away.
    env = {"RUSTFLAGS": "--cfg loom", "CARGO_TARGET_DIR": str(ROOT / "target" / "loom"), "CARGO_INCREMENTAL": "0"}
    cargo("test", "-p", "weldfs-ciscops", "--release", "--quiet", "--test", "loom", env=env)


def canary(_full):
    """planted bugs are found by the tier meant for each"""
    programs.run(["storagefs/media canary", "storagefs/device canary", "integrations/crash-harness canary"])


def programs_(full):
    """the command line with images, devices, damage; unmodified programs print and exit as on the host"""
    BUILD.weldfs()
    driven()
    # A virtual cat of 1 GiB is counted in full, of 64 MiB in the gate.
    programs.run(["integrations/cli bin", "integrations/cli it"], jobs=1, env={"WELDFS_CAT_BYTES": "1G"} if full else SHORT)


def sqlite(full):
    """SQLite's VFS: the system's shell with the extension, commits counted, kills, crash states"""
    BUILD.weldfs()
    driven()
    programs.run(["integrations/sqlite lib", "integrations/sqlite it"], env=sized(full))


def rocksdb(full):
    """RocksDB's plug-in: the system's library and tools, random operations, kills, refusals"""
    BUILD.weldfs()
    driven()
    programs.run(["integrations/rocksdb it"], jobs=1, env=sized(full))


def leveldb(full):
    """LevelDB's Env: suites in this process and on devices, kills, locks, full images, wrong targets"""
    apt(["cmake", "c++", "python3"], ["cmake", "g++", "libleveldb-dev", "libgtest-dev"],
        ["/usr/include/leveldb/env.h", "/usr/include/gtest/gtest.h"])
    folder = plugins.built("leveldb", "-DWELDFS_LEVELDB_TESTS=ON")
    plugins.tests("leveldb", full, "--build", folder)


def fio(full):
    """fio's engine: verified jobs in both modes, at any depth, from threads and processes; what is refused"""
    apt(["cmake", "cc", "fio", "dpkg-source", "make"], ["cmake", "gcc", "fio", "dpkg-dev", "make"])
    folder = plugins.built("fio", f"-DFIO_SOURCE={sources.configured('fio')}")
    plugins.tests("fio", full, "--engine", folder / "libweldfs_fio.so")


def engines(full):
    """the drivers of storage engines and `weldfs bench engines`: every engine and system, wrong values found"""
    apt(["cmake", "c++", "python3"], ["cmake", "g++", "librocksdb-dev", "libleveldb-dev", "libsqlite3-dev"],
        ["/usr/include/rocksdb/file_system.h", "/usr/include/leveldb/env.h", "/usr/include/sqlite3.h"])
    folder = plugins.built("engines", f"-DSQLITE_AMALGAMATION={plugins.amalgamation()}")
    plugins.tests("engines", full, "--build", folder)


def sqlite_source(full):
    """SQLite from its source with batch commits: commits without a journal, another SQLite beside it, kills"""
    apt(["cc", "make", "tclsh", "sqlite3", "dpkg-source"], ["gcc", "libc6-dev", "make", "tcl", "sqlite3", "dpkg-dev"])
    plugins.tests("sqlite", full, "--built", engine_sources.sqlite(), part="batch")


def leveldb_source(full):
    """LevelDB from its source, as it is and with the Env's patch: suites, the device's checksums, each other's tables"""
    apt(["cmake", "c++", "make", "patch", "dpkg-source", "python3"],
        ["cmake", "g++", "make", "patch", "dpkg-dev", "libleveldb-dev", "libgtest-dev"], ["/usr/include/gtest/gtest.h"])
    folder = engine_sources.leveldb()
    # At full size they run over the packaged library; the patch is about tables alone.
    plugins.tests("leveldb", False, "--build", folder / "env-patched")
    plugins.tests("leveldb", full, "--builds", folder, part="patched")


def rocksdb_source(full):
    """RocksDB from its source with the plug-in in its tree: its two builds, its tools, the plug-in's test program"""
    apt(["cmake", "c++", "make", "pkg-config", "dpkg-source"],
        ["cmake", "g++", "make", "pkg-config", "dpkg-dev", "librocksdb-dev", "libgflags-dev"],
        ["/usr/include/gflags/gflags.h"])
    plugins.tests("rocksdb", full, "--built", engine_sources.rocksdb(), part="tree")


def kills(full):
    """SIGKILL of real device processes, at any time and at every named crash point"""
    BUILD.weldfs()
    programs.run(["integrations/cli kills"], env=sized(full))


def crash(full):
    """the model, power cuts, fault sweeps, bit flips"""
    programs.run(["integrations/crash-harness lib", "integrations/crash-harness it"], env=sized(full))


def hostile(args, name):
    """One run of `weldfs-hostile`; its report. What it finds wrong is the tier's failure."""
    weldfs = BUILD.weldfs()
    with tempfile.TemporaryDirectory(prefix="weldfs-hostile-") as work:
        json_file = Path(work) / "report"
        command = [weldfs.with_name("weldfs-hostile"), *args, "--json", json_file]
        code = subprocess.run(command, stdin=subprocess.DEVNULL).returncode
        if code != 0:
            raise Failed(f"weldfs-hostile {name}: exit {code}")
        return json.loads(json_file.read_text())


def images(full):
    """10,000 damaged and forged images: refused, EIO or the truth; by processes with little memory"""
    programs.run(["integrations/hostile bin"])
    count = 10_000 if full else 500
    report = hostile(["images", "--count", str(count)], "images")
    # Fewer of a kind would mean that the damage no longer reaches what it is meant for.
    kinds = ("refused", "errors", "cut", "whole")
    if report["images"] != count or any(report[kind] * 500 < count for kind in kinds):
        raise Failed(f"{count} images: {report}")
    # Through the program, too: flip, burst, swap, copy, zero, truncate, mix and seal.
    if len(report["program_kinds"]) != 8 or not report["verbs_well"] or not report["verbs_failed"]:
        raise Failed(f"{count} images through the program: {report}")


def clients(full):
    """hostile clients, family by family, beside a victim of another user: wrong, denied, late, not given back"""
    args = ["clients", "--weldfs", release()] if full else ["clients", "--short"]
    # Its machines do other things beside, too: their times are nothing to gate on.
    if full and os.environ.get("CI"):
        args += ["--busy", "--seconds", "1"]
    rows = hostile(args, "clients")
    # Each family on each kind of device.
    attacks = [row for row in rows if row["family"] != "squatting"]
    families, kinds = ({row[which] for row in attacks} for which in ("family", "device"))
    if len(families) < 26 or len(kinds) != (5 if full else 1) or len(attacks) != len(kinds) * len(families):
        raise Failed(f"{len(attacks)} rows: {len(families)} families on {sorted(kinds)}")


def states_one(full):
    """crash states of workloads of one operation: all of them, or a sample with debug assertions"""
    weldfs = release() if full else BUILD.weldfs()
    states.sets(weldfs, "one-op", None if full else 250, 1, 100000 if full else 20000)


def states_two(full):
    """crash states of workloads of two operations, a sample; and of what needs a larger medium"""
    weldfs = release() if full else BUILD.weldfs()
    states.sets(weldfs, "two-op", 1000 if full else 100, 1, 100000 if full else 8000)
    if full:
        states.large(weldfs)


def demo(_full):
    """README's first command, the quick form, on the release build"""
    code = subprocess.run([release(), "demo", "--quick"], cwd=ROOT, stdin=subprocess.DEVNULL).returncode
    if code != 0:
        raise Failed(f"weldfs demo --quick: exit {code}")


def acceptance(_full):
    """the release build: a million rows through sqlite3, 5,000 files through tar"""
    for name in ("sqlite", "tar"):
        with tempfile.TemporaryDirectory(prefix="weldfs-acceptance-") as work:
            path = ROOT / "integrations/cli/tests/acceptance" / f"{name}.sh"
            command = [release(), "run", "--ram", "2G", "--", "sh", path, "/weld", work]
            code = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL).returncode
            if code != 0:
                raise Failed(f"{name}.sh: exit {code}")


def instructions(_full):
    """machine instructions of a pick and of operations from ring to completion, within their bounds, in the files that
    ARCHITECTURE lists"""
    counts.instructions()


def doc(_full):
    """the documentation of the crates builds without warnings"""
    cargo("doc", "--workspace", "--no-deps", "--quiet", env={"RUSTDOCFLAGS": "-D warnings"})


def fuzz(full):
    """coverage-guided fuzzing, 60 s for each target"""
    script("fuzz/run", "--seconds", 60 if full else 5)


def install(_full):
    """what cargo install, install.sh and make install put somewhere works there, engines too, and is removed whole"""
    try:
        # The engines' packages are those of docs/ENGINES.md.
        apt(["zsh", "fish", "mandoc", "systemd-analyze", "sqlite3", "db_bench", "c++", "make", "cmake", "fio", "dpkg-source"],
            ["zsh", "fish", "mandoc", "systemd", "sqlite3", "rocksdb-tools", "librocksdb-dev", "libleveldb-dev",
             "libsqlite3-dev", "g++", "make", "cmake", "fio", "dpkg-dev"],
            ["/usr/include/rocksdb/file_system.h", "/usr/include/leveldb/env.h", "/usr/include/sqlite3.h"])
    except Skip:
        pass  # the script lists what it could not look at
    script("packaging/test-install.sh")


def deb(_full):
    """the Debian packages, installed into a clean root, and the lines of docs/ENGINES.md there"""
    script("packaging/test-deb.sh")


# name: (what it runs, whether the gate runs it)
TIERS = {
    "fmt": (fmt, True),
    "build": (build, True),
    "tidy": (tidy, True),
    "clippy": (clippy, True),
    "unit": (unit, True),
    "device": (device, True),
    "formats": (formats, True),
    "canary": (canary, True),
    "programs": (programs_, True),
    "mount": (mounts.mount, True),
    "compatibility": (mounts.compatibility, True),
    "kernels-rtl": (kernels_rtl.rtl, True),
    "kernels-hls": (kernels_hls.kernels_hls, True),
    "kernel-tutorial": (kernels_cli.kernel_tutorial, True),
    "sqlite": (sqlite, True),
    "rocksdb": (rocksdb, True),
    "leveldb": (leveldb, True),
    "fio": (fio, True),
    "engines": (engines, True),
    "kills": (kills, True),
    "crash": (crash, True),
    "images": (images, True),
    "hostile": (clients, True),
    "states-one": (states_one, True),
    "states-two": (states_two, True),
    "doctests": (doctests, False),
    "loom": (loom, False),
    "doc": (doc, False),
    "demo": (demo, False),
    "acceptance": (acceptance, False),
    "instructions": (instructions, False),
    "fuzz": (fuzz, False),
    "install": (install, False),
    "deb": (deb, False),
    "sqlite-source": (sqlite_source, False),
    "leveldb-source": (leveldb_source, False),
    "rocksdb-source": (rocksdb_source, False),
}
# `full` in pieces of about ten minutes on two slow processors. Each tier that is longer in full than in the gate, or not
# in the gate, is in exactly one of them; what stands in ALWAYS runs in continuous integration every time.
ALWAYS = ["demo", "instructions", "doctests", "doc"]
SLICES = [
    ["states-one"],
    ["states-two", "loom", "images"],
    ["crash", "kills", "sqlite", "rocksdb"],
    ["leveldb", "fio", "engines", "sqlite-source", "leveldb-source"],
    ["rocksdb-source"],
    ["unit", "device", "acceptance"],
    ["fuzz"],
    ["install", "deb", "formats"],
    ["hostile"],
    ["mount"],
    ["compatibility"],
    ["kernels-rtl", "kernels-hls"],
]


def gate():
    return [name for name, (_, in_gate) in TIERS.items() if in_gate]
