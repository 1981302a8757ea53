"""SQLite that was built from its source with SQLITE_ENABLE_BATCH_ATOMIC_WRITE: its shell with the extension, commits
that are one command and have no journal, and what another SQLite makes of the database.

    python3 integrations/sqlite/tests/batch --weldfs FILE --built DIR [--short] [--only WORD]

`--built` has its shell and library (testing/engine_sources.py); the extension is beside `weldfs`. Exit code 1:
something failed."""

import os
import pty
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

from testing import cases  # noqa: E402
from testing.cases import PATIENCE, Rig, Skipped, expect  # noqa: E402

OTHER = "sqlite3"  # the system's
# A row on each page, so that what is changed is as many pages, none beside another.
FILL = """create table t(x integer primary key, y);
insert into t select x, zeroblob(3000) from
    (with recursive s(x) as (select 1 union all select x + 1 from s where x < 900) select x from s);"""
# An update of 60 pages is a transaction of the device, and one of 400 beyond what it takes at once.
SCATTERED = "update t set y = randomblob(3000) where x % 2 = 1 and x <= {};"


class Shells(Rig):
    """Shells on databases of this case's folder."""

    def __init__(self, weldfs, built, work, short):
        super().__init__(weldfs, work, short, wait="30")
        self.shell = built / "sqlite3"
        self.starts = built / "starts"

    def started(self, shell, name, stdin=subprocess.PIPE, stdout=subprocess.PIPE):
        """A shell that has opened a database and reads what it is to do."""
        command = [shell, "-batch", "-init", "/dev/null", "-cmd", f".load {self.weldfs.with_name('libweldfs_sqlite')}"]
        command += ["-cmd", ".timeout 60000", "-cmd", f".open file:{name}?vfs=weldfs", "-cmd", ".timeout 60000"]
        return self.start(list(map(str, command)), cwd=self.work, stdin=stdin, stdout=stdout,
                          stderr=subprocess.PIPE)

    def did(self, process, sql=""):
        """What it printed, line by line, when it has done this and ended well."""
        said, complaint = process.communicate(f".bail on\n{sql}\n".encode(), timeout=PATIENCE)
        expect(process.returncode == 0, f"exit {process.returncode}: {complaint.decode()[-2000:]}\n{sql[-300:]}")
        return said.decode().split()

    def run(self, name, sql, shell=None):
        return self.did(self.started(shell or self.shell, name), sql)

    def other(self):
        """The system's shell, which is to be one without batch commits."""
        if not shutil.which(OTHER):
            raise Skipped(f"{OTHER} is not installed")
        options = subprocess.run([OTHER, ":memory:", "pragma compile_options"], capture_output=True, text=True)
        if "ENABLE_BATCH_ATOMIC_WRITE" in options.stdout:
            raise Skipped(f"{OTHER} of this system has batch commits itself")
        return OTHER

    def whole(self, name, shell=None):
        expect(self.run(name, "pragma integrity_check;", shell) == ["ok"], f"{name}: integrity_check")

    def counted(self, socket, work):
        """What the device has counted while `work` was done: commands by kind, and flushes."""
        def now():
            stats = self.stats(socket)
            kinds = {"flushes": stats["log"]["flushes"]}
            for tenant in stats["tenants"]:
                for kind, count in tenant["commands_by_opcode"].items():
                    kinds[kind] = kinds.get(kind, 0) + count
            return kinds

        before = now()
        work()
        return {kind: count - before.get(kind, 0) for kind, count in now().items() if count != before.get(kind, 0)}


def a_commit_is_one_command_without_a_journal(rig):
    said = []
    rows = "".join(f"insert into t(y) values('row {row}');\n" for row in range(100))
    for medium in ("block", "pmem"):
        device, socket = rig.serve(rig.image(f"{medium}.img", medium))
        rig.run(f"{socket}:/a.db", "create table t(x integer primary key, y); pragma synchronous = full;")
        kinds = rig.counted(socket, lambda: rig.run(f"{socket}:/a.db", rows))
        # No write beside the command, no file made or removed; it opens the database, and looks for a journal.
        changes = {"write", "unlink", "truncate", "rename"}
        expect(kinds.get("program") == 100 and not changes & set(kinds), f"{kinds}")
        expect(kinds.get("open", 0) == 1 and kinds["flushes"] <= 102, f"{medium}: {kinds}")
        expect(medium == "pmem" or kinds["flushes"] >= 100, f"{medium}: not durable: {kinds}")
        said.append(f"{medium}: 100 commits, {kinds['program']} commands that write, {kinds['flushes']} flushes")
        # The one without it keeps its journal: the same, but for a look for that before each one.
        if shutil.which(OTHER):
            kept = rig.counted(socket, lambda: rig.run(f"{socket}:/a.db", rows, rig.other()))
            expect(kept.get("program") == 100 and not changes & set(kept), f"{medium}, with a journal: {kept}")
            expect(kept["stat_path"] >= kinds["stat_path"] + 100, f"{medium}: {kept}, in batches {kinds}")
        rig.whole(f"{socket}:/a.db")
        rig.stop(device)
    return "; ".join(said)


def beyond_a_command_it_is_a_transaction_and_then_a_journal(rig):
    device, socket = rig.serve(rig.image("disk.img", "block"))
    name = f"{socket}:/a.db"
    rig.run(name, FILL)
    said = []
    for rows, commits, removed in ((60, 1, 0), (800, 0, 1)):
        kinds = rig.counted(socket, lambda: rig.run(name, SCATTERED.format(rows)))
        found = kinds.get("txn_commit", 0), kinds.get("unlink", 0)
        expect(found == (commits, removed), f"{rows // 2} pages: {kinds}")
        said.append(f"{rows // 2} pages: {found[0]} transactions, {found[1]} journals")
        rig.whole(name)
    expect(rig.run(name, "select count(*), sum(length(y)) from t;") == ["900|2700000"], "rows")
    # One of more bytes than either takes.
    kinds = rig.counted(socket, lambda: rig.run(name, "insert into t values(1000, randomblob(6000000));"))
    expect((kinds.get("txn_commit", 0), kinds.get("unlink", 0)) == (0, 1), f"6 MB: {kinds}")
    rig.whole(name)
    rig.stop(device)
    return "; ".join(said)


ROLLBACKS = f"""
pragma cache_size = 5;
begin; delete from t where x > 10; rollback;
begin; {SCATTERED.format(800)} rollback;
begin; savepoint a; delete from t where x <= 400; rollback to a; delete from t where x > 800; commit;
begin; {SCATTERED.format(60)} savepoint b; {SCATTERED.format(800)} rollback to b; commit;
select count(*), sum(x), sum(length(y)) from t;
create index i on t(y); delete from t where x > 700; vacuum;
pragma journal_mode = wal; insert into t values(3001, 1); pragma journal_mode = delete;
select count(*), sum(x) from t;
pragma integrity_check;
"""
ANSWERS = ["800|320400|2400000", "wal", "delete", "701|248351", "ok"]


def rolled_back(rig, target):
    """What was rolled back was never there, spilled pages and savepoints included; the other SQLite sees the same."""
    rig.run(f"{target}:/a.db", FILL)
    said = rig.run(f"{target}:/a.db", ROLLBACKS)
    expect(said == ANSWERS, f"{said}")
    names = rig.verb("ls", f"{target}:/").decode().split()
    expect(names == ["a.db"], f"left behind: {names}")
    rows = "select count(*), sum(x) from t; pragma integrity_check;"
    for shell in (rig.shell, rig.other()):
        said = rig.run(f"{target}:/a.db", rows, shell)
        expect(said == ["701|248351", "ok"], f"{shell}: {said}")


def rollbacks_on_an_image(rig):
    image = rig.image("disk.img", "pmem")
    rolled_back(rig, image)
    rig.checked(image)


def rollbacks_on_a_device(rig):
    image = rig.image("disk.img", "block")
    device, socket = rig.serve(image)
    rolled_back(rig, socket)
    rig.stop(device)
    rig.checked(image)


def the_other_sqlite_reads_it_and_writes_it_by_turns(rig):
    image, other = rig.image("disk.img", "block"), rig.other()
    name = f"{image}:/a.db"
    rig.run(name, "create table t(x integer primary key, y); create table n(rows); insert into n values(0);")
    step = "begin; insert into t(y) values(hex(randomblob(2000))); update n set rows = rows + 1; commit;\n"
    for turn in range(1, 7):
        rig.run(name, step * 20, other if turn % 2 == 0 else rig.shell)
        for shell in (other, rig.shell):
            said = rig.run(name, "select count(*), max(x), (select rows from n) from t; pragma integrity_check;", shell)
            expect(said == ["|".join([str(20 * turn)] * 3), "ok"], f"{shell}, turn {turn}: {said}")
    rig.checked(image)


def two_shells_at_once(rig):
    """Writers with and without batch commits, and a reader, which sees whole commits."""
    image = rig.image("disk.img", "block")
    device, socket = rig.serve(image)
    name, turns = f"{socket}:/a.db", 40 if rig.short else 200
    other = shutil.which(OTHER) or rig.shell
    for first, second in ((rig.shell, rig.shell), (rig.shell, other)):
        rig.run(name, "drop table if exists t; create table t(a, b); insert into t values(0, 0);")
        step = "begin immediate; update t set a = a + 1; update t set b = b + 1; commit;\n"
        look = "select case when a = b then '' else 'torn' end from t;\n"
        scripts = (first, step * turns), (second, step * turns), (rig.shell, look * turns * 2)
        shells = [rig.started(shell, name) for shell, _ in scripts]
        # They read while the others do; each has its script before the first one is waited for.
        for shell, (_, script) in zip(shells, scripts):
            shell.stdin.write(f".bail on\n{script}".encode())
            shell.stdin.flush()
        for shell in shells:
            said = rig.did(shell)
            expect(said == [], f"{said[:3]}")
        said = rig.run(name, "select a, b from t; pragma integrity_check;")
        expect(said == [f"{2 * turns}|{2 * turns}", "ok"], f"{said}")
    rig.stop(device)
    rig.checked(image)
    return f"{2 * turns} commits of two, twice"


def heard(terminal):
    """What came next; nothing when its other end is gone."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def stream_of_commits(rig, name, start, seed):
    """A shell that commits row after row, two statements each, and says each number behind its commit; killed in the
    middle. The last number that it said."""
    draw = random.Random(seed)
    row = "begin; insert into t values({0}, hex(randomblob({1}))); update n set rows = {0}; commit; select {0};\n"
    script = rig.work / "stream.sql"
    script.write_text("".join(row.format(start + i, draw.choice((20, 2000, 40000))) for i in range(20000)))
    ours, its = pty.openpty()
    with script.open() as stdin, os.fdopen(ours, "rb", 0):
        # To a terminal it prints line by line.
        shell = rig.started(rig.shell, name, stdin=stdin, stdout=its)
        os.close(its)
        wanted, output, until = draw.randrange(2, 150), b"", time.monotonic() + PATIENCE
        while output.count(b"\n") < wanted:
            piece = heard(ours)
            expect(piece and time.monotonic() < until, f"only {output[-300:]} of {wanted} lines")
            output += piece
        time.sleep(draw.random() * 0.02)
        shell.kill()
        expect(shell.wait() == -signal.SIGKILL, f"the shell ended with {shell.returncode}")
        while piece := heard(ours):
            output += piece
    # What is not a whole line was not said.
    return int(output.split(b"\n")[:-1][-1])


def killed(rig, target):
    name, there, said = f"{target}:/a.db", 0, []
    rig.run(name, "create table t(x integer primary key, y); create table n(rows); insert into n values(0);")
    for turn in range(4 if rig.short else 25):
        acknowledged = stream_of_commits(rig, name, there + 1, turn)
        # Every other time the system's SQLite is the first to look.
        shell = shutil.which(OTHER) if turn % 2 == 1 else None
        found = rig.run(name, "select count(*), max(x), (select rows from n) from t; pragma integrity_check;", shell)
        expect(found[1] == "ok" and len(set(found[0].split("|"))) == 1, f"turn {turn}: half a commit: {found}")
        there = int(found[0].split("|")[0])
        expect(there in (acknowledged, acknowledged + 1), f"turn {turn}: {acknowledged} acknowledged, {there} there")
        said.append(str(there))
    return f"rows after each kill: {' '.join(said)}"


def a_killed_shell_loses_nothing_on_an_image_pmem(rig):
    image = rig.image("disk.img", "pmem", size="256M")
    said = killed(rig, image)
    rig.checked(image)
    return said


def a_killed_shell_loses_nothing_on_an_image_block(rig):
    image = rig.image("disk.img", "block", size="256M")
    said = killed(rig, image)
    rig.checked(image)
    return said


def a_killed_shell_loses_nothing_on_a_device(rig):
    image = rig.image("disk.img", "block", size="256M")
    device, socket = rig.serve(image)
    said = killed(rig, socket)
    rig.stop(device)
    rig.checked(image)
    return said


def a_program_with_that_library(rig):
    """The example in C, linked with it: its commits have no journal either."""
    device, socket = rig.serve(rig.image("disk.img", "block"))

    def started(count):
        done = subprocess.run([rig.starts, f"{socket}:/app.db"], env=rig.env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=PATIENCE)
        expect(done.stdout == f"started {count} times\n", f"exit {done.returncode}: {done.stdout}{done.stderr}")

    started(1)
    kinds = rig.counted(socket, lambda: started(2))
    expect(kinds.get("program") == 1 and not {"write", "unlink"} & set(kinds), f"{kinds}")
    rig.stop(device)


CASES = [
    a_commit_is_one_command_without_a_journal,
    beyond_a_command_it_is_a_transaction_and_then_a_journal,
    rollbacks_on_an_image,
    rollbacks_on_a_device,
    the_other_sqlite_reads_it_and_writes_it_by_turns,
    two_shells_at_once,
    a_killed_shell_loses_nothing_on_an_image_pmem,
    a_killed_shell_loses_nothing_on_an_image_block,
    a_killed_shell_loses_nothing_on_a_device,
    a_program_with_that_library,
]

sys.exit(cases.main("sqlite-source", __doc__, CASES, CASES, "built", Shells))
