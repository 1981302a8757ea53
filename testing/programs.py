"""Runs test programs, several at a time, and reads what they say."""

import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from .build import BUILD
from .report import Failed

RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.M)
# One program that hangs must not hang the run: far above what any of them takes on a slow, busy machine.
PATIENCE = 1800


def run_one(name, args=(), env=None):
    """Runs one program from its crate's folder: (ok, line, whole output)."""
    program = BUILD.programs.get(name)
    if program is None:
        return False, f"{name}: the build made no such program", ""
    environment = {**os.environ, "CARGO_MANIFEST_DIR": str(program.folder), "WELDFS_BUILT": "1"}
    environment.update(env or {})
    start = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as out:
        try:
            code = subprocess.run(
                [program.path, *args], cwd=program.folder, env=environment,
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, timeout=PATIENCE,
            ).returncode
        except subprocess.TimeoutExpired:
            code = f"nothing after {PATIENCE} s"
        out.seek(0)
        text = out.read()
    counts = RESULT.search(text)
    passed = int(counts.group(1)) if counts else 0
    # A filter that matches nothing, or a program without tests where some were named, proves nothing.
    ok = code == 0 and counts is not None and (passed > 0 or not args)
    line = f"{name:34} {passed:5} passed {time.monotonic() - start:6.1f} s" + ("" if ok else f"  FAILED ({code})")
    return ok, line, text


def complaint(text):
    """What a failed program said, without the names of what passed."""
    start = text.find("\nfailures:\n")
    return (text[start:] if start >= 0 else text)[-20000:] + "\n"


def run(names, jobs=2, args=(), env=None):
    """Runs programs by name, `jobs` at a time; prints a line each, and everything a failed one said."""
    BUILD.make()
    bad = []
    with ThreadPoolExecutor(jobs) as pool:
        for name, (ok, line, text) in zip(names, pool.map(lambda n: run_one(n, args, env), names)):
            print(line, flush=True)
            if not ok:
                bad.append(name)
                sys.stdout.write(complaint(text))
                sys.stdout.flush()
    if bad:
        raise Failed(", ".join(bad))
