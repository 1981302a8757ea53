"""LevelDB on images in a directory, in this process and served, and on the directory itself.

    python3 integrations/leveldb/compare.py --dir DIR [--build DIR] [--rounds N] [--count N] [--patched DIR]

Needs the release builds of `weldfs` and `weldfs-capi`, and the driver (`cmake --build BUILD --target
weldfs_leveldb_drive`). In each round all systems take their turn, one right after the other, in an order that turns;
printed are microseconds of an operation, the median of the rounds and the least and the most of them. `block` and the
directory are on the same disk; `pmem` is a mapped file that survives the process, not the power. `--patched` is a
second build, against a LevelDB with patches/blocks.patch: only the two are compared then, on an image."""

import argparse
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WELDFS = ROOT / "target" / "release" / "weldfs"


class System:
    def __init__(self, name, target, folder, build):
        self.name, self.target, self.folder, self.build = name, target, folder, build

    def run(self, database, workload, count):
        command = [self.build / "weldfs_leveldb_drive", "bench", self.target, f"{self.folder}{database}", workload]
        done = subprocess.run([*map(str, command), str(count)], check=True, capture_output=True, text=True)
        return float(done.stdout)

    def remove(self, database):
        """Frees the space of a database that is measured no more."""
        if self.target == "host":
            return shutil.rmtree(f"{self.folder}{database}")
        name = f"{self.target}:{self.folder}{database}"
        subprocess.run([WELDFS, "rm", "-r", name], check=True, stdout=subprocess.DEVNULL)


def image(work, name, medium):
    path = work / name
    subprocess.run([WELDFS, "mkfs", path, "--size", "1G", "--medium", medium], check=True, stdout=subprocess.DEVNULL)
    return path


def served(path, devices):
    devices.append(subprocess.Popen([WELDFS, "serve", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    socket = f"{path}.sock"
    while subprocess.run([WELDFS, "stats", socket], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        time.sleep(0.05)
    return socket


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="a directory on the disk to compare with")
    parser.add_argument("--build", type=Path, default=ROOT / "target" / "leveldb")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=20000, help="operations of a sample; a tenth of it for fillsync")
    parser.add_argument("--patched", type=Path)
    args = parser.parse_args()
    devices, samples = [], {}
    with tempfile.TemporaryDirectory(prefix="weldfs-compare-", dir=args.dir) as work:
        work = Path(work)
        if args.patched:
            target = image(work, "pmem.img", "pmem")
            systems = [System("as it is", target, "/", args.build)]
            systems += [System("patched", target, "/patched-", args.patched)]
            workloads = ["fillrandom", "overwrite"]
        else:
            systems = [System("directory", "host", f"{work}/", args.build)]
            systems += [System(m, image(work, f"{m}.img", m), "/", args.build) for m in ("block", "pmem")]
            systems += [System(f"{m}, served", served(image(work, f"{m}-served.img", m), devices), "/", args.build)
                        for m in ("block", "pmem")]
            workloads = ["fillsync", "fillrandom", "overwrite", "readrandom"]
        try:
            for turn in range(args.rounds):
                for workload in workloads:
                    at = turn % len(systems)
                    for system in systems[at:] + systems[:at]:
                        database = f"sync-{turn}" if workload == "fillsync" else f"db-{turn}"
                        count = args.count // 10 if workload == "fillsync" else args.count
                        samples.setdefault((workload, system.name), []).append(system.run(database, workload, count))
                for system in systems:
                    for database in [f"db-{turn}"] + ([f"sync-{turn}"] if "fillsync" in workloads else []):
                        system.remove(database)
        finally:
            for device in devices:
                device.terminate()
                device.wait()
    print(f"{'workload':14}{'system':16}{'median us':>10}{'least':>10}{'most':>10}")
    for (workload, name), us in samples.items():
        print(f"{workload:14}{name:16}{statistics.median(us):10.2f}{min(us):10.2f}{max(us):10.2f}")


main()
