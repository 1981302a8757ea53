"""fio with the engine: what it writes is read back and compared, in both modes; what is refused.

    python3 integrations/fio/tests --weldfs FILE --engine FILE [--short] [--only WORD]

Exit code 1: something failed."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import jobs  # noqa: E402
import wrong  # noqa: E402
from rig import Rig, Wrong  # noqa: E402

CASES = [*jobs.CASES, *wrong.CASES]
SHORT = [jobs.verified_in_this_process_pmem, jobs.damage_is_found_by_the_device, jobs.threads_and_processes,
         wrong.targets, wrong.block_sizes]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weldfs", required=True, type=Path)
    parser.add_argument("--engine", required=True, type=Path)
    parser.add_argument("--short", action="store_true", help="smaller files, and the shorter cases only")
    parser.add_argument("--only", default="", help="cases with this word in their name")
    args = parser.parse_args()
    failed = ran = 0
    for case in (case for case in (SHORT if args.short else CASES) if args.only in case.__name__):
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="weldfs-fio-") as work:
            rig = Rig(args.weldfs.resolve(), args.engine.resolve(), Path(work), args.short)
            try:
                said, state = case(rig) or "", "ok"
            except Wrong as why:
                said, state = why, "FAILED"
                failed += 1
            finally:
                rig.end()
        ran += 1
        print(f"{state:8}{case.__name__:44}{time.monotonic() - start:7.1f} s  {said}", flush=True)
    return 1 if failed or not ran else 0


sys.exit(main())
