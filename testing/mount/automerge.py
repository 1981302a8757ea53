"""What calls that do not wait are worth: programs under `weldfs run` with WELDFS_AUTOMERGE on and off, and on the host.

    python3 testing/mount/automerge.py WELDFS [--rounds 5] [--files 5000] [--host ext4=DIR] [--only tar_x]

Each round runs each program once at each place, one place right after the other; a figure is the median of the rounds.
With two busy processes beside it (or as many as there are processors) in the second half. Images lie in memory (pmem
in /dev/shm), made anew for each round; the program's own time in the device's files is measured, not the run's start.
Calls, commands and what became of them are for each file (or call); the calls are counted in a run that is not timed.
docs/AUTOMERGE.md has what was measured with it.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("weldfs", help="the program, with its preload library beside it")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--files", type=int, default=5000, help="of the archive and the tree")
parser.add_argument("--host", action="append", default=[], metavar="NAME=DIR", help="a directory of the host to compare")
known = "tar_x, cp_r, git_clone, git_checkout, maildir, writes, tar_c, grep_r, git_add, find, cp_within"
parser.add_argument("--only", action="append", default=[], help=f"of {known}")
parser.add_argument("--medium", default="pmem", choices=["pmem", "block"], help="of the image, in memory")
parser.add_argument("--busy", type=int, default=2, help="busy processes in the second half; 0: no second half")
args = parser.parse_args()
weldfs = os.path.abspath(args.weldfs)
work = tempfile.mkdtemp(prefix="weldfs-automerge-")

MAILDIR = """
import os, sys
body = os.urandom(2000)
for i in range(int(sys.argv[2])):
    tmp = os.path.join(sys.argv[1], f"t{i}")
    fd = os.open(tmp, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    os.write(fd, body)
    os.fsync(fd)
    os.close(fd)
    os.rename(tmp, os.path.join(sys.argv[1], f"n{i}"))
"""
WRITES = """
import os, sys
fd = os.open(os.path.join(sys.argv[1], "log"), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
line = b"x" * 100
for _ in range(int(sys.argv[2])):
    os.write(fd, line)
os.close(fd)
"""


def prepare():
    tree = os.path.join(work, "tree")
    for i in range(args.files):
        folder = os.path.join(tree, f"d{i // 100}")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"f{i}"), "wb") as f:
            f.write(os.urandom(i * 2654435761 % 8192))
    subprocess.run(["tar", "-C", work, "-cf", os.path.join(work, "a.tar"), "tree"], check=True)
    repository = os.path.join(work, "repository")
    if shutil.which("git"):
        git = ["git", "-C", repository, "-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", "init", "-q", repository], check=True)
        for i in range(1000):
            folder = os.path.join(repository, f"d{i // 50}")
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, f"f{i}.txt"), "w", encoding="ascii") as f:
                f.write(f"line {i} of many\n" * (i % 200 + 1))
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-q", "-m", "all"], check=True)
    for name, text in (("maildir.py", MAILDIR), ("writes.py", WRITES)):
        with open(os.path.join(work, name), "w", encoding="ascii") as f:
            f.write(text)


def programs():
    """Name: commands below a directory, files (or calls) of the last one, which is measured."""
    fill = ["cp", "-r", f"{work}/tree", "{}/tree"]
    every = {
        "tar_x": ([["tar", "-C", "{}", "-xf", f"{work}/a.tar"]], args.files),
        "cp_r": ([["cp", "-r", f"{work}/tree", "{}/copy"]], args.files),
        "git_clone": ([["git", "clone", "-q", "--no-local", f"{work}/repository", "{}/clone"]], 1000),
        "git_checkout": (
            [
                ["git", "clone", "-q", "--no-local", "--no-checkout", f"{work}/repository", "{}/clone"],
                ["git", "-C", "{}/clone", "checkout", "-q", "HEAD", "."],
            ],
            1000,
        ),
        "maildir": ([[sys.executable, f"{work}/maildir.py", "{}", "500"]], 500),
        "writes": ([[sys.executable, f"{work}/writes.py", "{}", "20000"]], 20000),
        "tar_c": ([fill, ["tar", "-C", "{}", "-cf", "/dev/shm/weldfs-automerge.tar", "tree"]], args.files),
        "grep_r": ([fill, ["sh", "-c", "grep -rc weld {}/tree > /dev/null; true"]], args.files),
        "find": ([fill, ["sh", "-c", "find {}/tree -size +7k > /dev/null"]], args.files),
        "cp_within": ([fill, ["cp", "-r", "{}/tree", "{}/copy"]], args.files),
        "git_add": (
            [["cp", "-r", f"{work}/repository", "{}/r"], ["sh", "-c", "cd {}/r && touch */* && git add . && git status -s"]],
            1000,
        ),
    }
    return {k: v for k, v in every.items() if (not args.only or k in args.only) and shutil.which(v[0][-1][0])}


INSIDE = """
import json, os, subprocess, sys, time
commands, weldfs = json.loads(sys.argv[1]), sys.argv[2]
def total():
    env = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD",)}
    out = subprocess.run([weldfs, "stats", os.environ["WELDFS_SOCKET"], "--json"], env=env, capture_output=True)
    return json.loads(out.stdout)["total"]
def calls(said):
    rows = [line.split() for line in said.splitlines() if line.startswith("weldfs:   ") and "of th" not in line]
    return sum(int(row[2]) for row in rows if len(row) == 5 and row[2].isdigit())
for command in commands[:-1]:
    subprocess.run(command, check=True)
    # What that leaves for later is over then.
    time.sleep(2)
before = total()
report = sys.argv[3] == "report"
env = os.environ | ({"WELDFS_REPORT": "1"} if report else {})
start = time.perf_counter()
ran = subprocess.run(commands[-1], check=True, env=env, stderr=subprocess.PIPE if report else None, text=True)
took = time.perf_counter() - start
after = total()
joined = ("merged_writes", "merged_places", "merged_attributes")
told = {k: after[k] - before[k] for k in ("commands", "posted", "doorbells", *joined)}
told["joined"] = sum(told[k] for k in joined)
print(json.dumps({"ms": took * 1e3, "calls": calls(ran.stderr) if report else 0} | told))
"""


def in_device(commands, merge, how="timed"):
    image = tempfile.mktemp(prefix="weldfs-automerge-", suffix=".img", dir="/dev/shm")
    subprocess.run([weldfs, "mkfs", image, "--medium", args.medium, "--size", "1G"], check=True, stdout=subprocess.DEVNULL)
    env = os.environ | {"WELDFS_AUTOMERGE": merge}
    inside = [sys.executable, "-c", INSIDE, json.dumps([[part.format("/weld") for part in c] for c in commands]), weldfs, how]
    run = [weldfs, "run", "--mount", "never", "--image", image, "--", *inside]
    out = subprocess.run(run, env=env, check=True, stdout=subprocess.PIPE)
    os.unlink(image)
    return json.loads(out.stdout.splitlines()[-1])


def on_host(commands, parent):
    folder = tempfile.mkdtemp(dir=parent)
    for command in commands:
        start = time.perf_counter()
        subprocess.run([part.format(folder) for part in command], check=True)
    took = time.perf_counter() - start
    shutil.rmtree(folder)
    return {"ms": took * 1e3}


def main():
    hosts = dict(h.split("=", 1) for h in args.host) or {"tmpfs": "/dev/shm", "disk": work}
    print(f"{args.files} files; {args.rounds} rounds; hosts: {', '.join(f'{k} {v}' for k, v in hosts.items())}")
    names = ["off", "on", *hosts]
    figures = ["off : on", "calls", "commands", "not waited for", "in another's record", "bells off, on"]
    print("| program | busy |", " | ".join(names + figures), "|")
    print("|---|---:|" + "---:|" * (len(names) + len(figures)))
    for busy in sorted({0, args.busy}):
        beside = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
        for name, (commands, count) in programs().items():
            got = {place: [] for place in names}
            for n in range(args.rounds):
                for merge in ("off", "on") if n % 2 == 0 else ("on", "off"):
                    got[merge].append(in_device(commands, merge))
                for host, folder in hosts.items():
                    got[host].append(on_host(commands, folder))
            mid = {p: statistics.median(r["ms"] for r in runs) for p, runs in got.items()}
            counted = ("commands", "posted", "joined", "doorbells")
            each = {k: statistics.median(r[k] for r in got["on"]) / count for k in counted}
            asked = in_device(commands, "on", "report")["calls"] / count
            rung = statistics.median(r["doorbells"] for r in got["off"]) / count
            figures = " | ".join(f"{mid[p]:.0f}" for p in names)
            print(
                f"| {name} | {busy} | {figures} | {mid['off'] / mid['on']:.2f} | {asked:.2f} | {each['commands']:.2f} |"
                f" {each['posted']:.2f} | {each['joined']:.2f} | {rung:.2f}, {each['doorbells']:.2f} |",
                flush=True,
            )
        for process in beside:
            process.kill()
            process.wait()


try:
    prepare()
    main()
finally:
    shutil.rmtree(work)
    if os.path.exists("/dev/shm/weldfs-automerge.tar"):
        os.unlink("/dev/shm/weldfs-automerge.tar")
