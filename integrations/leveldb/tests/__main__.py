"""LevelDB's Env under conditions that a test inside of one process cannot make.

    python3 integrations/leveldb/tests --weldfs FILE --build DIR [--short] [--only WORD]

`--build` is where CMake built the tests (-DWELDFS_LEVELDB_TESTS=ON). Runs the suites on each kind of target, then kills
processes and devices, fills images, has two processes want one database, and gives wrong targets. A case that this
machine cannot run is printed as skipped. Exit code 1: something failed."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2])]

import kills  # noqa: E402
import refusals  # noqa: E402
import suites  # noqa: E402
from rig import Driven  # noqa: E402
from testing import cases  # noqa: E402

CASES = [*suites.CASES, *kills.CASES, *refusals.CASES]
SHORT = [case for case in CASES if case not in refusals.LONG]

sys.exit(cases.main("leveldb", __doc__, CASES, SHORT, "build", Driven))
