"""The drivers of storage engines, and `weldfs bench engines` that runs them.

    python3 integrations/engines/tests --weldfs FILE --build DIR [--short] [--only WORD]

`--build` is where CMake built the drivers; the extension of SQLite lies beside the command line. A driver that could not
be built here, for want of its engine, is printed as skipped. Exit code 1: something failed."""

import json
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[2])]

from testing import cases  # noqa: E402
from testing.cases import PATIENCE, Rig, Skipped, expect  # noqa: E402

KEYS = "3000"
# The driver of an SQLite with batch atomic writes, which is built where there is the source of one.
BATCH = "sqlite-batch"
# Commands that change nothing: SQLite locks, and looks for what other connections may have done.
LOOKS = {"lock", "nop", "read", "stat", "stat_path"}
# A workload of each engine that loads and reads, and one that is durable.
WORKLOADS = {"rocksdb": ["fillsync", "ycsb-f"], "leveldb": ["fillsync", "ycsb-f"], "sqlite": ["one-row", "mixed"]}


class Bench(Rig):
    def __init__(self, weldfs, build, work, short):
        super().__init__(weldfs, work, short, wait="30")
        self.build = build

    def driver(self, engine):
        path = self.build / f"weldfs-drive-{engine}"
        if not path.exists():
            what = "no source of an SQLite was given" if engine == BATCH else "its headers or library are not there"
            raise Skipped(f"no driver of {engine}: {what}")
        return path

    def drive(self, engine, target, workload, *args):
        """Runs a driver on a database of 3,000 records: exit code, its answer, what it complained of."""
        command = [self.driver(engine), "--target", target, "--db", "/db", "--workload", workload, "--keys", KEYS,
                   "--cache", "65536", *args]
        if engine.startswith("sqlite"):
            command += ["--extension", self.weldfs.parent / "libweldfs_sqlite.so"]
        done = subprocess.run(list(map(str, command)), env=self.env, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=PATIENCE)
        return done.returncode, json.loads(done.stdout or "{}"), done.stderr.strip()

    def bench(self, *args, drivers=None):
        """Runs `weldfs bench engines`: exit code, its report (none if it wrote none), what it complained of."""
        report = self.work / "report.json"
        command = [self.weldfs, "bench", "engines", "--quick", "--drivers", drivers or self.build, "--json", report]
        done = subprocess.run(list(map(str, [*command, *args])), env=self.env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=2 * PATIENCE)
        return done.returncode, json.loads(report.read_text()) if report.exists() else None, done.stderr.strip()


def measured(rig, engine):
    """Every workload on every system: operations were done, values checked, nothing failed, nothing left behind."""
    rig.driver(engine)
    disk = rig.work / "disk"
    disk.mkdir()
    workloads = WORKLOADS[engine] if rig.short else []
    code, report, said = rig.bench("--engines", engine, "--peer", f"disk={disk}", "--dir", disk, "--medium",
                                   "pmem" if rig.short else "pmem,block", *["--workloads=" + w for w in workloads])
    expect(code == 0, f"exit {code}: {said}")
    expect(report["failed"] == [] and not report["interrupted"], report["failed"])
    rows = report["rows"]
    for row in rows:
        expect(row["ops"] > 0 and row["verified"] > 0 and row["ops_per_s"] > 0, row)
    systems = {row["system"] for row in rows}
    expect(systems == {"inline", "served", "preload", "disk"}, systems)
    expect({row["workload"] for row in rows} >= set(workloads), workloads)
    expect(list(disk.iterdir()) == [], f"left behind: {list(disk.iterdir())}")
    for row in rows:
        inside = row["way"] in ("inline", "served")
        expect((row["device_commands"] is not None) == inside, f"counters of a device: {row}")
        if inside and row["written_bytes"] > 0:
            expect(row["write_amplification"] > 0 and row["amplified_by"] in ("disk", "device"), row)
    return rows, report["skipped"], f"{len(rows)} rows"


def rocksdb_is_measured(rig):
    return measured(rig, "rocksdb")[-1]


def leveldb_is_measured(rig):
    return measured(rig, "leveldb")[-1]


def sqlite_is_measured(rig):
    rows, skipped, said = measured(rig, "sqlite")
    journals = {row["journal"] for row in rows}
    without = [line for line in skipped if "SQLITE_AMALGAMATION" in line]
    if (rig.build / f"weldfs-drive-{BATCH}").exists():
        expect(journals == {"delete", "batch", "wal", "wal-exclusive"} and without == [], (journals, skipped))
        versions = {row["version"] for row in rows if row["journal"] == "batch"}
        expect(all("batch" in version for version in versions) and len(versions) == 1, versions)
    else:
        expect(journals == {"delete", "wal", "wal-exclusive"} and len(without) == 1, (journals, skipped))
    through = {row["journal"] for row in rows if row["system"] == "preload"}
    expect(through == journals - {"wal"} and any("wal through preload" in line for line in skipped), (through, skipped))
    return said


def what_was_counted_is_what_was_done(rig):
    """A durable put, a transaction: one flush of the device's log, in the device's own count."""
    disk = rig.work / "disk"
    disk.mkdir()
    for engine, workload in (("rocksdb", "fillsync"), ("leveldb", "fillsync"), ("sqlite", "one-row")):
        rig.driver(engine)
        code, report, said = rig.bench("--engines", engine, "--workloads", workload, "--systems", "inline,served",
                                       "--medium", "block", "--dir", disk)
        expect(code == 0, f"exit {code}: {said}")
        for row in report["rows"]:
            # Two threads share some.
            expect(0.4 < row["device_flushes"] < 1.2, f"{engine}, {row['way']}: {row['device_flushes']} flushes")
            # What is durable was written, and with it what leads to it.
            expect(row["device_bytes"] > row["written_bytes"], f"{engine}, {row['way']}: {row['device_bytes']} bytes")


def a_commit_is_one_command_and_makes_no_file(rig):
    """By the device's counters: what a row's commit changes, in a batch and with a rollback journal, which is kept in
    the process, is one program with one flush."""
    said = []
    for driver, journal in ((BATCH, "batch"), ("sqlite", "delete")):
        image = rig.image(f"{journal}.img", "pmem")
        args = ["--value-size", "100", "--journal", journal, "--seed", "1"]
        code, _, complaint = rig.drive(driver, image, "load", *args)
        expect(code == 0, f"{journal}, load: {code}: {complaint}")
        code, answer, complaint = rig.drive(driver, image, "one-row", "--operations", "500", *args)
        expect(code == 0 and answer["operations"] == 500, f"{journal}: {code}: {complaint}")
        begin, end = answer["device_begin"], answer["device_end"]
        kinds = {name: n - begin["total"]["commands_by_opcode"].get(name, 0)
                 for name, n in end["total"]["commands_by_opcode"].items()}
        made = {name: n for name, n in kinds.items() if n >= 250 and name not in LOOKS}
        flushes = end["log"]["flushes"] - begin["log"]["flushes"]
        expect(500 <= flushes <= 510, f"{journal}: {flushes} flushes")
        expect(made == {"program": 500}, f"{journal}: commands of 500 commits: {made}")
        said.append(f"{journal}: {made}")
    code, _, complaint = rig.drive("sqlite", rig.image("other.img", "pmem"), "load", "--journal", "batch")
    expect(code == 2 and "batch atomic writes" in complaint, f"another SQLite's journal: {code}: {complaint}")
    return "; ".join(said)


def a_wrong_value_is_found(rig):
    """A value that is not what was written is an error of the workload that reads it, and of the exit code."""
    said = []
    for engine in WORKLOADS:
        image = rig.image(f"{engine}.img", "pmem")
        value = ["--value-size", "100"]
        code, answer, complaint = rig.drive(engine, image, "load", *value)
        expect(code == 0 and answer["errors"] == 0, f"{engine}, load: {code}: {complaint}")
        code, answer, complaint = rig.drive(engine, image, "check", *value)
        expect(code == 0 and answer["verified"] >= int(KEYS), f"{engine}, check: {code}: {complaint}")
        code, answer, complaint = rig.drive(engine, image, "damage", *value)
        expect(code == 0, f"{engine}, damage: {code}: {complaint}")
        reads = "mixed" if engine == "sqlite" else "readrandom"
        for workload in ("check", reads):
            code, answer, complaint = rig.drive(engine, image, workload, *value)
            expect(code == 1 and answer["errors"] > 0 and "is wrong" in complaint, f"{engine}, {workload}: {code}")
        said.append(engine)
    return ", ".join(said)


def a_chart_over_ext4_and_company(rig):
    """A busy process beside it is in the report; over an ext4 directory on the same disk there are charts."""
    rig.driver("leveldb")
    disk, charts = rig.work / "disk", rig.work / "charts"
    disk.mkdir()
    code, report, said = rig.bench("--engines", "leveldb", "--workloads", "fillsync", "--systems", "inline,host",
                                   "--medium", "block", "--dir", disk, "--peer", f"disk={disk}", "--busy", "1",
                                   "--svg", charts)
    expect(code == 0 and report["busy"] == 1, f"exit {code}: {said}")
    expect({row["system"] for row in report["rows"]} == {"inline", "disk"}, report["rows"])
    made = sorted(charts.glob("*.svg")) if charts.exists() else []
    kind = subprocess.run(["stat", "-f", "-c", "%T", disk], capture_output=True, text=True).stdout.strip()
    if kind != "ext2/ext3":
        expect(made == [], f"charts over ext4 where there is {kind}: {made}")
        raise Skipped(f"charts are over ext4, and here is {kind}")
    expect(made, "no chart")
    for chart in made:
        expect(xml.etree.ElementTree.parse(chart).getroot().tag.endswith("svg"), f"{chart.name} is no SVG")
    return ", ".join(chart.name for chart in made)


def a_cache_that_holds_the_set_is_refused(rig):
    command = [rig.weldfs, "bench", "engines", "--drivers", rig.build, "--keys", "100000", "--cache", "8M"]
    done = subprocess.run(list(map(str, command)), env=rig.env, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=PATIENCE)
    expect(done.returncode != 0 and done.stdout == "", f"exit {done.returncode}: {done.stdout}")
    expect("not twice as large as the cache" in done.stderr and "--keys" in done.stderr, done.stderr)


def a_missing_driver_is_named(rig):
    """What was asked for and cannot be measured is an error, with what to do about it."""
    empty = rig.work / "empty"
    empty.mkdir()
    code, report, said = rig.bench("--engines", "leveldb", "--medium", "pmem", "--systems", "inline", drivers=empty)
    expect(code != 0, "an engine without its driver was a success")
    expect("weldfs-drive-leveldb" in said and "cmake" in said, said)
    expect(report["rows"] == [] and len(report["failed"]) == 1, report)


def an_interrupted_run_says_what_it_has_and_leaves_nothing(rig):
    rig.driver("leveldb")
    disk, json_file = rig.work / "disk", rig.work / "report.json"
    disk.mkdir()
    command = [rig.weldfs, "bench", "engines", "--drivers", rig.build, "--engines", "leveldb", "--workloads", "fillseq",
               "--medium", "block", "--dir", disk, "--keys", "100000", "--cache", "1M", "--seconds", "1", "--busy", "1",
               "--values", "100", "--threads", "1", "--rounds", "50", "--json", json_file]
    process = rig.start(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                        stderr=subprocess.PIPE, start_new_session=True)
    time.sleep(8)
    expect(process.poll() is None, "it ended by itself")
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    _, said = process.communicate(timeout=60)
    took = time.monotonic() - begun
    expect(process.returncode not in (0, -signal.SIGINT), f"exit {process.returncode}: {said.decode()}")
    expect(json.loads(json_file.read_text())["interrupted"], "the report does not say so")
    expect(list(disk.iterdir()) == [], f"left behind: {list(disk.iterdir())}")
    left = subprocess.run(["pgrep", "-s", str(process.pid)], capture_output=True, text=True).stdout.split()
    expect(left == [], f"processes of its session still run: {left}")
    return f"ended in {took:.1f} s"


CASES = [
    rocksdb_is_measured,
    leveldb_is_measured,
    sqlite_is_measured,
    what_was_counted_is_what_was_done,
    a_commit_is_one_command_and_makes_no_file,
    a_wrong_value_is_found,
    a_chart_over_ext4_and_company,
    a_cache_that_holds_the_set_is_refused,
    a_missing_driver_is_named,
    an_interrupted_run_says_what_it_has_and_leaves_nothing,
]

sys.exit(cases.main("engines", __doc__, CASES, CASES, "build", Bench))
