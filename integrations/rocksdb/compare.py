#!/usr/bin/env python3
"""db_bench on the host's file system and on WeldFS, embedded: microseconds of an operation, rounds interleaved.

    cargo build --release -p weldfs-cli -p weldfs-capi && make -C integrations/rocksdb
    python3 integrations/rocksdb/compare.py --dir DIR

DIR is on the file system to compare with; the images lie there, too.
"""

import argparse
import os
import re
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Operations of each benchmark: synced writes take long.
BENCHMARKS = {"fillsync": 1000, "fillrandom": 100000, "readrandom": 100000}
LINE = re.compile(r"^(\w+)\s*:\s*([\d.]+) micros/op", re.M)


def bench(place, fresh, name, num):
    """One run in a process of its own: microseconds of an operation."""
    command = ["db_bench", f"--benchmarks={name}", f"--num={num}", f"--use_existing_db={int(not fresh)}", *place["args"]]
    # Zstd and others need not be in every build; the content is not what is compared.
    command += ["--compression_type=none", "--histogram=0", "--cache_size=8388608"]
    env = {**os.environ, **place["env"]}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return float(dict(LINE.findall(done.stdout + done.stderr))[name])


def main():
    """Prints one line for each benchmark and place: the median, the least and the most."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", required=True, type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--plugin", type=Path, default=ROOT / "target/rocksdb/release/libweldfs_rocksdb.so")
    parser.add_argument("--weldfs", type=Path, default=ROOT / "target/release/weldfs")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.dir) as work:
        places = {"host": {"args": [f"--db={work}/db"], "env": {}}}
        for medium in ("block", "pmem"):
            image = f"{work}/{medium}.img"
            subprocess.run([args.weldfs, "mkfs", image, "--size", "1G", "--medium", medium], check=True,
                           stdout=subprocess.DEVNULL)
            places[medium] = {"args": [f"--fs_uri=weldfs://{image}", "--db=/db"],
                              "env": {"LD_PRELOAD": str(args.plugin)}}
        seen = {(name, where): [] for name in BENCHMARKS for where in places}
        for _ in range(args.rounds):
            for name, num in BENCHMARKS.items():
                for where, place in places.items():
                    seen[name, where].append(bench(place, name != "readrandom", name, num))
    for (name, where), micros in seen.items():
        print(f"{name:12} {where:6} {statistics.median(micros):8.1f} ({min(micros):.1f} to {max(micros):.1f})")


if __name__ == "__main__":
    main()
