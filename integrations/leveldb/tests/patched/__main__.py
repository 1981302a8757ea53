"""LevelDB built from its source twice, as it is and with patches/blocks.patch, and what becomes of one's tables in the
other.

    python3 integrations/leveldb/tests/patched --weldfs FILE --builds DIR [--short] [--only WORD]

`--builds` holds the Env built against each: `env-as-it-is` and `env-patched` (testing/engine_sources.py). Exit code 1:
something failed."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[3])]

from rig import Driven  # noqa: E402
from testing import cases  # noqa: E402
from testing.cases import expect  # noqa: E402

AS_IT_IS, PATCHED = "env-as-it-is", "env-patched"
# What a table has beside its blocks of data: its index, and the index of its other blocks.
BLOCKS_BESIDE = 2


class Both(Driven):
    """The driver of either build."""

    def __init__(self, weldfs, builds, work, short):
        super().__init__(weldfs, builds / AS_IT_IS, work, short)
        self.builds = builds

    def of(self, build):
        """From now on the driver is that of this build."""
        self.drive = self.builds / build / "weldfs_leveldb_drive"
        return self

    def must(self, *args):
        """Runs the driver, which must succeed; what it printed."""
        code, out, err = self.run(*args, env={"WELDFS_WAIT": "30"})
        expect(code == 0, f"{self.drive} {' '.join(map(str, args))}: exit {code}: {err}")
        return out

    def tables(self, target, db):
        names = self.verb("ls", f"{target}:{db}").decode().split()
        return sorted(name for name in names if name.endswith((".ldb", ".sst")))


def summed_up(rig, socket):
    """Commands so far that had the device make a checksum of what it appended. LevelDB's form of it, masked, is a
    program; the Env has no other programs."""
    return sum(tenant["commands_by_opcode"].get("program", 0) for tenant in rig.stats(socket)["tenants"])


def tables_made(rig, build, socket, db):
    """Makes tables of values of a block each: how many tables and blocks, and how many checksums the device made."""
    before, count = summed_up(rig, socket), 700
    for turn in range(3):
        # Less than LevelDB keeps in memory: what is in the log becomes one table when the database is opened next.
        rig.of(build).must("put", socket, db, turn * count, count, "nosync", 5000)
    rig.must("open", socket, db)
    tables = len(rig.tables(socket, db))
    return tables, 3 * count + BLOCKS_BESIDE * tables, summed_up(rig, socket) - before


def every_block_of_a_table_is_summed_up_by_the_device(rig):
    said = []
    for medium in ("pmem", "block"):
        device, socket = rig.serve(rig.image(f"{medium}.img", medium))
        tables, _, made = tables_made(rig, AS_IT_IS, socket, "/as-it-is")
        expect(tables == 3 and made == 0, f"{medium}, as it is: {tables} tables, {made} checksums of the device")
        tables, blocks, made = tables_made(rig, PATCHED, socket, "/patched")
        expect(tables == 3 and made == blocks, f"{medium}: {tables} tables of {blocks} blocks, {made} checksums")
        said.append(f"{medium}: {made} checksums for {tables} tables")
        rig.stop(device)
    return "; ".join(said)


def read_by_the_other(rig, target, writer, reader):
    """What one build wrote the other one audits, adds to, and the first one audits again."""
    half = 4000 if rig.short else 12000
    rig.of(writer).must("write", target, "/db", 0, half, "nosync")
    tables = rig.tables(target, "/db")
    expect(len(tables) >= 2, f"{tables} of {half} values")
    for build in (reader, writer):
        there = int(rig.of(build).must("audit", target, "/db"))
        expect(there == half, f"{build}: {there} of the {half} values of {writer}")
    rig.of(reader).must("write", target, "/db", half, half, "sync")
    for build in (writer, reader):
        there = int(rig.of(build).must("audit", target, "/db"))
        expect(there == 2 * half, f"{build}: {there} of {2 * half} values of both")
    return f"{len(tables)} tables, {2 * half} values"


def tables_of_the_patched_one_are_read_by_the_other(rig):
    return read_by_the_other(rig, rig.image("disk.img", "pmem"), PATCHED, AS_IT_IS)


def tables_of_the_other_are_read_by_the_patched_one(rig):
    return read_by_the_other(rig, rig.serve(rig.image("disk.img", "block"))[1], AS_IT_IS, PATCHED)


def damage_in_a_table_is_found_by_both(rig):
    """The checksums that the device made are those that LevelDB looks at: one bit of a block is enough."""
    image = rig.image("disk.img", "pmem")
    rig.of(PATCHED).must("write", image, "/db", 0, 1500, "nosync")
    name = rig.tables(image, "/db")[0]
    copy = rig.work / name
    rig.verb("get", f"{image}:/db/{name}", copy)
    whole = copy.read_bytes()
    said = []
    # In a block, its type and checksum included; the end of the table has its indexes.
    for at in (0, 1000, len(whole) // 2):
        copy.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
        rig.verb("put", copy, f"{image}:/db/{name}")
        for build in (AS_IT_IS, PATCHED):
            code, out, err = rig.of(build).run("audit", image, "/db", env={"WELDFS_WAIT": "30"})
            expect(code != 0 and "Corruption" in err, f"{build}, byte {at}: exit {code}: {out}{err}")
            said.append(err)
    copy.write_bytes(whole)
    rig.verb("put", copy, f"{image}:/db/{name}")
    for build in (AS_IT_IS, PATCHED):
        expect(int(rig.of(build).must("audit", image, "/db")) == 1500, f"{build}: not as it was")
    return said[0]


CASES = [
    every_block_of_a_table_is_summed_up_by_the_device,
    tables_of_the_patched_one_are_read_by_the_other,
    tables_of_the_other_are_read_by_the_patched_one,
    damage_in_a_table_is_found_by_both,
]

sys.exit(cases.main("leveldb-source", __doc__, CASES, CASES, "builds", Both))
