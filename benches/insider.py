#!/usr/bin/env python3
"""Runs `weldfs bench insider`, and writes its tables into docs/INSIDER.md and its page into benches/results/.

    benches/insider.py WELDFS [OPTION...]      WELDFS: a release build; options as of `weldfs bench insider`
"""

import datetime
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- benches/insider.py writes from here -->\n", "<!-- to here -->\n"


def main():
    weldfs, options = sys.argv[1], sys.argv[2:]
    load = os.getloadavg()[0]
    page = next((ROOT / "benches/results").glob("*-insider.html"))
    with tempfile.TemporaryDirectory() as folder:
        tables = Path(folder) / "tables.md"
        subprocess.run([weldfs, "bench", "insider", *options, "--html", page, "--markdown", tables], check=True)
        text = tables.read_text()
    today = datetime.date.today().isoformat()
    named = page.with_name(f"{today}-insider.html")
    page.rename(named)
    document = ROOT / "docs/INSIDER.md"
    head, rest = document.read_text().split(BEGIN)
    state = f"{today}; the load average when it began was {load:.1f}. [The whole page](../benches/results/{named.name}).\n"
    document.write_text(head + BEGIN + "\n" + state + "\n" + text + "\n" + END + rest.split(END)[1])
    listing = ROOT / "benches/results/README.md"
    listing.write_text(re.sub(r"\d{4}-\d\d-\d\d-insider\.html", named.name, listing.read_text()))


if __name__ == "__main__":
    main()
