"""SIGKILL for the process with the database, and for its device."""

import random
import signal
import time

from rig import REFUSED_TO_WRITE, acknowledged, lines_until, rest
from testing.cases import expect


def rounds(rig):
    return 2 if rig.short else 25


def process_killed(rig, target, how):
    """What was acknowledged, synced or not, is there after the process was killed, again and again."""
    there = 0
    for number in range(rounds(rig)):
        writer = rig.writer(target, there, how)
        output = lines_until(writer, random.Random(number).randrange(1, 400))
        time.sleep(random.Random(number).random() * 0.02)
        writer.kill()
        acked = acknowledged(output + rest(writer), there)
        complaint = writer.stderr.read().decode()
        expect(writer.returncode == -signal.SIGKILL, f"the writer ended with {writer.returncode}: {complaint}")
        expect(acked > there, f"round {number}: nothing was acknowledged beyond the {there} that were there")
        there = rig.verified(target)
        expect(there >= acked, f"round {number}: {acked} {how} puts were acknowledged, {there} are there")
    return f"{there} values after {rounds(rig)} kills"


def process_killed_in_this_process_pmem_synced(rig):
    return process_killed(rig, rig.image("disk.img", "pmem"), "sync")


def process_killed_in_this_process_pmem_unsynced(rig):
    return process_killed(rig, rig.image("disk.img", "pmem"), "nosync")


def process_killed_in_this_process_block_synced(rig):
    return process_killed(rig, rig.image("disk.img", "block"), "sync")


def process_killed_in_this_process_block_unsynced(rig):
    return process_killed(rig, rig.image("disk.img", "block"), "nosync")


def process_killed_served_block_synced(rig):
    return process_killed(rig, rig.serve(rig.image("disk.img", "block"))[1], "sync")


def process_killed_served_block_unsynced(rig):
    return process_killed(rig, rig.serve(rig.image("disk.img", "block"))[1], "nosync")


def a_large_append_survives_its_process(rig):
    """A file of the program's own, in the process: what was flushed or closed is there after a SIGKILL, whatever the
    size of the appends."""
    for how in ("flush", "close"):
        for size in (1 << 10, 1 << 20, 5 << 19, (1 << 20) - 1):
            image = rig.image(f"{how}-{size}.img", "block")
            program = rig.waiting(b"written", "append", image, "/own", size, how)
            program.kill()
            program.wait()
            content = rig.verb("cat", f"{image}:/own")
            expect(content == b"x" * 2 * size, f"{how} of two appends of {size}: {len(content)} bytes are there")


def device_killed(rig, medium, how):
    """The device dies under the database: an error, not silence; what was synced is there after its restart."""
    image = rig.image("disk.img", medium)
    device, socket = rig.serve(image)
    there = 100
    code, _, err = rig.run("write", socket, "/db", 0, there, "sync")
    expect(code == 0, err)
    rig.stop(device)
    for number in range(rounds(rig)):
        device, socket = rig.serve(image)
        writer = rig.writer(socket, there, how)
        output = lines_until(writer, random.Random(number).randrange(1, 300))
        device.kill()
        device.wait()
        acked = acknowledged(output + rest(writer), there)
        complaint = writer.stderr.read().decode()
        expect(writer.returncode == REFUSED_TO_WRITE, f"the writer ended with {writer.returncode}: {complaint}")
        expect("IO error" in complaint, complaint)
        expect(acked > there, f"round {number}: nothing was acknowledged beyond the {there} that were there")
        device, socket = rig.serve(image)
        found = rig.verified(socket)
        if how == "sync" or medium == "pmem":
            expect(found >= acked, f"round {number}: {acked} puts were acknowledged, {found} are there")
        expect(found >= there, f"round {number}: {there} were seen before, {found} are there")
        there = found
        rig.stop(device)
    return f"{there} values after {rounds(rig)} kills"


def device_killed_pmem_synced(rig):
    return device_killed(rig, "pmem", "sync")


def device_killed_pmem_unsynced(rig):
    return device_killed(rig, "pmem", "nosync")


def device_killed_block_synced(rig):
    return device_killed(rig, "block", "sync")


def device_killed_block_unsynced(rig):
    return device_killed(rig, "block", "nosync")


CASES = [
    process_killed_in_this_process_pmem_synced,
    process_killed_in_this_process_pmem_unsynced,
    process_killed_in_this_process_block_synced,
    process_killed_in_this_process_block_unsynced,
    process_killed_served_block_synced,
    process_killed_served_block_unsynced,
    a_large_append_survives_its_process,
    device_killed_pmem_synced,
    device_killed_pmem_unsynced,
    device_killed_block_synced,
    device_killed_block_unsynced,
]
