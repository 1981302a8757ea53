"""fio with the engine: what it writes is read back and compared, in both modes; what is refused.

    python3 integrations/fio/tests --weldfs FILE --engine FILE [--short] [--only WORD]

Exit code 1: something failed."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2])]

import jobs  # noqa: E402
import wrong  # noqa: E402
from rig import Fio  # noqa: E402
from testing import cases  # noqa: E402

CASES = [*jobs.CASES, *wrong.CASES]
SHORT = [*jobs.SHORT, *wrong.SHORT]

sys.exit(cases.main("fio", __doc__, CASES, SHORT, "engine", Fio))
