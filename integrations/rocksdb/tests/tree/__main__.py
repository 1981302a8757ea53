"""RocksDB that was built from its source with the plug-in in its tree: its tools by themselves, nothing loaded before
them, and the plug-in's own test program over that library.

    python3 integrations/rocksdb/tests/tree --weldfs FILE --built DIR [--short] [--only WORD]

`--built` is what testing/engine_sources.py makes. Exit code 1: something failed."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

from testing import cases  # noqa: E402
from testing.cases import PATIENCE, Rig, expect  # noqa: E402


class Tree(Rig):
    def __init__(self, weldfs, built, work, short):
        super().__init__(weldfs, work, short, wait="30")
        self.built = built
        # No path of a library is written into programs that link it by its name. What ends tells its counters.
        self.env.update(LD_LIBRARY_PATH=str(built.parent / "prefix" / "lib"), WELDFS_ROCKSDB_LOG="1")
        self.env.pop("LD_PRELOAD", None)

    def run(self, program, *args, code=0):
        """Runs what must end with this code: everything that it printed."""
        command = [self.built / program, *map(str, args)]
        done = subprocess.run(command, env=self.env, cwd=self.work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=4 * PATIENCE)
        said = done.stdout.decode(errors="replace")
        expect(done.returncode == code, f"{' '.join(map(str, command))}: exit {done.returncode}\n{said[-3000:]}")
        return said

    def bench(self, target, names, *args):
        return self.run("build/db_bench", f"--fs_uri=weldfs://{target}", "--compression_type=none",
                        f"--benchmarks={names}", *args)

    def ldb(self, target, *args, code=0):
        return self.run("build/tools/ldb", f"--fs_uri=weldfs://{target}", "--db=/bench", *args, code=code)


def counted(said, what):
    """A number of the line that the plug-in prints at its end."""
    found = re.search(rf"weldfs-rocksdb: .*?\b{what} (\d+)", said)
    expect(found is not None, f"no counter `{what}`: {said[-500:]}")
    return int(found[1])


def tools(rig, target):
    count = 2000 if rig.short else 50000
    said = rig.bench(target, "fillseq,readrandom", f"--num={count}", "--db=/bench")
    expect(re.search(r"^fillseq +: +[0-9.]+ micros/op", said, re.M), f"fillseq: {said}")
    expect(f"({count} of {count} found)" in said, f"readrandom does not find all of {count}: {said}")
    # Of a thousandth of so many keys.
    said = rig.bench(target, "fillsync", "--num=300000", "--writes=300", "--db=/synced")
    # Each is the command that appends it, but for the first one of a log. Beside them are those of the manifest.
    durable, syncs = counted(said, "durable appends"), counted(said, "done before")
    expect(299 <= durable <= 320 and syncs >= 299, f"300 synced writes: {durable} appends durable, {syncs} syncs "
           f"done before: {said}")
    said = rig.ldb(target, "scan", "--max_keys=5", "--hex")
    expect(len(re.findall(r"^0x\w+ : 0x\w+$", said, re.M)) == 5, f"scan: {said}")
    expect(re.search(r"^OK", rig.ldb(target, "checkconsistency"), re.M), "checkconsistency")
    # The plug-in's line comes with everything, so what is looked for is a line of its own.
    expect(re.search(r"^OK", rig.ldb(target, "put", "key", "value"), re.M), "put")
    expect(re.search(r"^value$", rig.ldb(target, "get", "key"), re.M), "get")
    rig.ldb(target, "compact")
    said = rig.run("build/tools/sst_dump", f"--fs_uri=weldfs://{target}", "--file=/bench", "--command=verify")
    expect("The file is ok" in said, f"sst_dump: {said}")
    expect("bench" in rig.verb("ls", f"{target}:/").decode().split(), "the database is not in the device")
    return f"{count} of {count} found, {durable} durable appends of 300 synced writes"


def its_tools_on_an_image_pmem(rig):
    image = rig.image("disk.img", "pmem")
    said = tools(rig, image)
    rig.checked(image)
    return said


def its_tools_on_an_image_block(rig):
    image = rig.image("disk.img", "block")
    said = tools(rig, image)
    rig.checked(image)
    return said


def its_tools_on_a_device(rig):
    image = rig.image("disk.img", "block")
    device, socket = rig.serve(image)
    said = tools(rig, socket)
    commands = sum(sum(tenant["commands_by_opcode"].values()) for tenant in rig.stats(socket)["tenants"])
    expect(commands > 0, "the device has seen no command")
    rig.stop(device)
    rig.checked(image)
    return said


def a_uri_that_leads_nowhere(rig):
    said = rig.ldb(rig.work / "missing.img", "scan", code=1)
    expect("missing.img" in said, said)


def part(rig, name, medium, served, *args):
    image = rig.image(f"{name}-{medium}-{served}.img", medium, size="256M")
    device, target = rig.serve(image) if served else (None, image)
    said = rig.run("engine", name, target, *args)
    if device is not None:
        rig.stop(device)
    rig.checked(image)
    return said


def every_call_of_the_file_system(rig):
    part(rig, "files", "pmem", False, "always-durable")
    part(rig, "files", "block", True)


def checksums_are_handed_over(rig):
    """Those of the log, tables and manifest that match, and wrong ones; counted by the program itself."""
    for medium, served in (("pmem", False), ("block", False), ("pmem", True)):
        part(rig, "handoffs", medium, served)


def a_database_is_used(rig):
    part(rig, "engine", "block", False)
    part(rig, "engine", "pmem", True)


def random_operations(rig):
    """With checksums handed over, against a state that is kept beside."""
    state = rig.work / "state"
    image = rig.image("disk.img", "block", size="256M")
    operations = 1000 if rig.short else 10000
    said = rig.run("engine", "random", image, state, 1, operations)
    rig.checked(image)
    return f"{operations}: {counted(said, 'handoffs')} handed over" if "handoffs" in said else ""


def a_killed_process_loses_no_synced_write(rig):
    acknowledged = []
    for number in range(2 if rig.short else 8):
        image = rig.image(f"{number}.img", "block")
        with (rig.work / f"{number}.out").open("wb") as out:
            writer = rig.start([rig.built / "engine", "write", image], stdout=out, stderr=subprocess.DEVNULL)
        until = time.monotonic() + PATIENCE
        while (rig.work / f"{number}.out").read_bytes().count(b"\n") < 5 + 37 * number:
            expect(writer.poll() is None and time.monotonic() < until, "nothing is committed")
            time.sleep(0.002)
        writer.kill()
        expect(writer.wait() == -signal.SIGKILL, "the writer ended by itself")
        # What is not a whole line was not said.
        rows = (rig.work / f"{number}.out").read_bytes().split(b"\n")[:-1]
        rig.run("engine", "verify", image, rows[-1].decode())
        rig.checked(image)
        acknowledged.append(rows[-1].decode())
    return f"rows at each kill: {' '.join(acknowledged)}"


CASES = [
    its_tools_on_an_image_pmem,
    its_tools_on_an_image_block,
    its_tools_on_a_device,
    a_uri_that_leads_nowhere,
    every_call_of_the_file_system,
    checksums_are_handed_over,
    a_database_is_used,
    random_operations,
    a_killed_process_loses_no_synced_write,
]

sys.exit(cases.main("rocksdb-source", __doc__, CASES, CASES, "built", Tree))
