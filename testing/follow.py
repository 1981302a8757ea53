"""The files that docs/ARCHITECTURE.md lists for a reader of three commands, held against the files that run."""

import functools
import platform
import re

from .build import ROOT
from .report import Failed

PAGE = ROOT / "docs/ARCHITECTURE.md"
HEADING = "## Three commands, file by file"
# Files of a list, at most.
FILES_MAX = 25
# Command: the part of the instructions of our own code, in per cent, that run in its listed files at least. What another
# compiler takes into other files may move a few per cent; a file that is forgotten moves more.
LEAST = {"read": 88, "append_checksum_write": 82, "open_write_close": 74}
MARK = "x"


@functools.cache
def folders():
    """The folders of the workspace's crates, without that of the drills."""
    members = re.search(r"^members = \[(.*?)\]", (ROOT / "Cargo.toml").read_text(), re.M | re.S).group(1)
    return {name.split("/")[0] for name in re.findall(r'"([^"]+)"', members)} - {"benches"}


def listed():
    """The files of each command, as the table of the page has them: `file`, what it does, and a mark for each."""
    section = PAGE.read_text().split(HEADING + "\n", 1)[-1].split("\n## ", 1)[0]
    rows = [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in section.splitlines() if line[:1] == "|"]
    names = [name.strip("`") for name in rows[0]] if len(rows) > 2 else []
    if not set(LEAST) <= set(names):
        raise Failed(f"{PAGE.name} has no table with {', '.join(LEAST)} under {HEADING!r}")
    return {kind: [row[0].strip("`") for row in rows[2:] if row[names.index(kind)] == MARK] for kind in LEAST}


def check(files):
    """Prints what each list holds; the lists that are too long, or do not hold what runs."""
    bad = []
    for kind, names in listed().items():
        ran = files[kind]
        if not ran:
            raise Failed("what runs names no file of this checkout: it was built elsewhere, or its paths are mapped")
        inside = 100 * sum(ran[name] for name in set(names)) / sum(ran.values())
        print(f"{kind}: {len(names)} files to read hold {inside:.1f} % of the instructions in {len(ran)} files, at "
              f"least {LEAST[kind]} %")
        idle = [name for name in names if not ran[name]]
        if idle:
            print(f"  nothing is counted in {', '.join(idle)}")
        if len(names) > FILES_MAX:
            bad.append(f"{PAGE.name} lists {len(names)} files of {kind}, at most {FILES_MAX}")
        # Elsewhere checksums are made by other instructions.
        if inside < LEAST[kind] and platform.machine() == "x86_64":
            bad.append(f"{PAGE.name}: the files of {kind} hold less than they should")
    return bad
