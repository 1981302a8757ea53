"""LevelDB's Env under conditions that a test inside of one process cannot make.

    python3 integrations/leveldb/tests --weldfs FILE --build DIR [--short] [--only WORD]

`--build` is where CMake built the tests (-DWELDFS_LEVELDB_TESTS=ON). Runs the suites on each kind of target, then kills
processes and devices, fills images, has two processes want one database, and gives wrong targets. A case that this
machine cannot run is printed as skipped. Exit code 1: something failed."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import kills  # noqa: E402
import refusals  # noqa: E402
import suites  # noqa: E402
from rig import Rig, Skipped, Wrong  # noqa: E402

CASES = [*suites.CASES, *kills.CASES, *refusals.CASES]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weldfs", required=True, type=Path)
    parser.add_argument("--build", required=True, type=Path)
    parser.add_argument("--short", action="store_true", help="fewer rounds and steps")
    parser.add_argument("--only", default="", help="cases with this word in their name")
    args = parser.parse_args()
    failed = ran = 0
    for case in CASES:
        if args.only not in case.__name__:
            continue
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="weldfs-leveldb-") as work:
            rig = Rig(args.weldfs.resolve(), args.build.resolve(), Path(work), args.short)
            try:
                said = case(rig) or ""
                state = "ok"
            except Skipped as why:
                said, state = why, "skipped"
            except Wrong as why:
                said, state = why, "FAILED"
                failed += 1
            finally:
                rig.end()
        ran += 1
        print(f"{state:8}{case.__name__:44}{time.monotonic() - start:7.1f} s  {said}", flush=True)
    if not ran:
        print(f"no case has {args.only} in its name")
    return 1 if failed or not ran else 0


sys.exit(main())
