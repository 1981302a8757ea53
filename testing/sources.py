"""Sources of Debian packages, for what no package has headers of: through apt, from the machine's own archives.

    python3 -m testing.sources [--there] PACKAGE     prints where the configured source is; --there: fetches nothing"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from .build import target_dir
from .report import Failed, Skip

APT = Path("/etc/apt")


def source_lists():
    """What the machine takes packages from, as lines that have apt take sources from there."""
    lists = [file for file in (APT / "sources.list", *sorted((APT / "sources.list.d").glob("*.list"))) if file.exists()]
    one_line = "\n".join(file.read_text() for file in lists)
    lines = [re.sub(r"^deb\b", "deb-src", line) for line in one_line.splitlines() if re.match(r"deb\s", line)]
    stanzas = []
    for file in sorted((APT / "sources.list.d").glob("*.sources")):
        stanzas.append(re.sub(r"^Types:.*$", "Types: deb-src", file.read_text(), flags=re.M))
    return "\n".join(lines) + "\n", "\n\n".join(stanzas) + "\n"


def source(package, fetch=True):
    """The folder with the source of the version of a package that is installed. Nothing of the system is changed."""
    query = ["dpkg-query", "-W", "-f", "${source:Package} ${source:Version}", package]
    known = subprocess.run(query, capture_output=True, text=True) if shutil.which(query[0]) else None
    if known is None or known.returncode != 0:
        raise Skip(f"{package} is not installed as a package")
    name, version = known.stdout.split()
    folder = target_dir() / "sources" / f"{name}_{version.replace(':', '-')}"
    if folder.exists():
        return folder
    if not fetch:
        raise Skip(f"the source of {name} {version} is not there")
    if not shutil.which("apt-get") or not shutil.which("dpkg-source"):
        raise Skip("no apt-get and dpkg-source (package dpkg-dev) to get sources with")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="weldfs-source-", dir=folder.parent) as work:
        work = Path(work)
        one_line, stanzas = source_lists()
        for place in ("lists/partial", "cache", "parts"):
            (work / place).mkdir(parents=True)
        (work / "sources.list").write_text(one_line)
        (work / "parts" / "weldfs.sources").write_text(stanzas)
        options = {
            "Dir::Etc::sourcelist": work / "sources.list", "Dir::Etc::sourceparts": work / "parts",
            "Dir::State::lists": work / "lists", "Dir::Cache": work / "cache", "APT::Sandbox::User": "",
        }
        apt = ["apt-get", "-qq", *(word for key, value in options.items() for word in ("-o", f"{key}={value}"))]
        quiet = dict(cwd=work, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C"})
        subprocess.run([*apt, "update"], **quiet)
        if subprocess.run([*apt, "source", f"{name}={version}"], **quiet).returncode != 0:
            raise Skip(f"no source of {name} {version} from this machine's archives")
        found = [path for path in work.iterdir() if path.is_dir() and path.name.startswith(name + "-")]
        if len(found) != 1:
            raise Failed(f"apt-get source {name}: {found}")
        found[0].rename(folder)
    return folder


def configured(package, fetch=True):
    """The same, with its `configure` run."""
    folder = source(package, fetch)
    if not (folder / "config-host.h").exists():
        log = folder / "configure.log"
        with log.open("w") as out:
            done = subprocess.run(["./configure", "--disable-native"], cwd=folder, stdin=subprocess.DEVNULL, stdout=out,
                                  stderr=subprocess.STDOUT)
        if done.returncode != 0:
            raise Failed(f"configure of {package}: see {log}")
    return folder


def main():
    parser = argparse.ArgumentParser(prog="python3 -m testing.sources", description="Where the configured source is.")
    parser.add_argument("--there", action="store_true", help="fetch nothing")
    parser.add_argument("package")
    args = parser.parse_args()
    try:
        print(configured(args.package, fetch=not args.there))
    except (Skip, Failed) as why:
        sys.exit("" if args.there else str(why))


if __name__ == "__main__":
    main()
