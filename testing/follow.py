"""The files that docs/ARCHITECTURE.md lists for a reader of three commands, held against the files that run."""

import re

from .build import ROOT
from .report import Failed

PAGE = ROOT / "docs/ARCHITECTURE.md"
HEADING = "## Three commands, file by file"
# Files of a list, at most.
FILES_MAX = 25
# Command: the part of the instructions of our own code, in per cent, that run in its listed files at least.
LEAST = {"read": 90, "append_checksum_write": 84, "open_write_close": 77}


def listed():
    """The files of each command, as the table of the page has them: `file`, what it does, and a mark for each."""
    section = PAGE.read_text().split(HEADING + "\n", 1)[-1].split("\n## ", 1)[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    if len(rows) < 3:
        raise Failed(f"{PAGE.name} has no table under {HEADING!r}")
    columns = {re.sub(r"`", "", name): at for at, name in enumerate(rows[0])}
    return {kind: {row[0].strip("`") for row in rows[2:] if row[columns[kind]]} for kind in LEAST}


def check(files):
    """Prints what each list holds; the lists that are too long, or do not hold what runs."""
    bad = []
    for kind, names in listed().items():
        ran = files[kind]
        inside = 100 * sum(n for name, n in ran.items() if name in names) / max(sum(ran.values()), 1)
        print(f"{kind}: {len(names)} files to read, {inside:.1f} % of {len(ran)} files' instructions, at least "
              f"{LEAST[kind]} %")
        idle = sorted(name for name in names if not ran[name])
        if len(names) > FILES_MAX or inside < LEAST[kind] or idle:
            bad.append(f"the files of {kind} in {PAGE.name}" + (f": {', '.join(idle)} run nothing" if idle else ""))
    return bad
