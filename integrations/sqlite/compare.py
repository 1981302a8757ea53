"""One-row transactions at synchronous=FULL: SQLite on images in a directory, and on the directory itself.

    python3 integrations/sqlite/compare.py --dir DIR [--rows N] [--rounds N]

Needs the release build of `weldfs` and `weldfs-sqlite`, and a python3 whose sqlite3 loads extensions. In each round all
systems take their turn, one right after the other, in an order that turns; printed are microseconds of a transaction,
the median of the rounds and the least and the most of them. `block` and the directory are on the same disk; `pmem` is a
mapped file that survives the process, not the power."""

import argparse
import sqlite3
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

RELEASE = Path(__file__).resolve().parents[2] / "target" / "release"
MODES = ("delete", "truncate", "wal")


def transactions(uri, mode, rows):
    """Microseconds of each."""
    db = sqlite3.connect(uri, uri=True, isolation_level=None)
    db.execute(f"pragma journal_mode = {mode}")
    db.execute("pragma synchronous = full")
    db.execute("create table if not exists t(x integer primary key, y)")
    # The first ones make files, and on a WAL the shared memory.
    for _ in range(5):
        db.execute("insert into t(y) values('before the clock')")
    start = time.perf_counter()
    for _ in range(rows):
        db.execute("insert into t(y) values('a row of some forty bytes, more or less.')")
    spent = time.perf_counter() - start
    whole = db.execute("pragma quick_check").fetchone()[0]
    db.close()
    if whole != "ok":
        raise SystemExit(f"{uri}: {whole}")
    return spent / rows * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="a directory on the disk to compare with")
    parser.add_argument("--rows", type=int, default=200, help="transactions of a sample")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    first = sqlite3.connect(":memory:")
    first.enable_load_extension(True)
    first.load_extension(str(RELEASE / "libweldfs_sqlite"))
    with tempfile.TemporaryDirectory(prefix="weldfs-compare-", dir=args.dir) as work:
        systems = [("directory", f"file:{work}/host-{{}}.db?vfs=unix")]
        for medium in ("block", "pmem"):
            image = f"{work}/{medium}.img"
            mkfs = [RELEASE / "weldfs", "mkfs", image, "--size", "512M", "--medium", medium]
            subprocess.run(mkfs, check=True, stdout=subprocess.DEVNULL)
            systems.append((medium, f"file:{image}:/{{}}.db?vfs=weldfs"))
        samples = {}
        for turn in range(args.rounds):
            for mode in MODES:
                for name, uri in systems[turn % 3:] + systems[:turn % 3]:
                    samples.setdefault((mode, name), []).append(transactions(uri.format(mode), mode, args.rows))
    print(f"{'journal_mode':14}{'system':12}{'median us':>10}{'least':>10}{'most':>10}")
    for (mode, name), us in sorted(samples.items()):
        print(f"{mode:14}{name:12}{statistics.median(us):10.0f}{min(us):10.0f}{max(us):10.0f}")


main()
