"""The suites of one process, on each kind of target; the C interface; and what is counted in the device."""

import subprocess

from testing.cases import PATIENCE, Wrong, expect

def suite(rig, target):
    steps = 4000 if rig.short else 60000
    env = {**rig.env, "WELDFS_TEST_TARGET": str(target), "WELDFS_LEVELDB_STEPS": str(steps)}
    command = [rig.build / "weldfs_leveldb_test", "--gtest_brief=1"]
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=4 * PATIENCE)
    if done.returncode != 0:
        raise Wrong(f"exit {done.returncode}\n{done.stdout[-8000:]}")
    c = subprocess.run([rig.build / "weldfs_leveldb_c", target], env=rig.env, stdin=subprocess.DEVNULL,
                       capture_output=True, text=True, timeout=PATIENCE)
    expect(c.returncode == 0, f"the C interface: {c.stderr}")
    return done.stdout.strip().splitlines()[-1]


def embedded(rig, medium):
    image = rig.image("disk.img", medium)
    said = suite(rig, image)
    rig.checked(image)
    return said


def served(rig, medium):
    image = rig.image("disk.img", medium)
    device, socket = rig.serve(image)
    said = suite(rig, socket)
    rig.stop(device)
    rig.checked(image)
    return said


def suite_in_this_process_pmem(rig):
    return embedded(rig, "pmem")


def suite_in_this_process_block(rig):
    return embedded(rig, "block")


def suite_served_pmem(rig):
    return served(rig, "pmem")


def suite_served_block(rig):
    return served(rig, "block")


def counted(rig, socket, how, few, many, size):
    """Commands and flushes of a put: of many of them, less those of a few and of what is made once."""
    def stats():
        all_of_it = rig.stats(socket)
        return all_of_it["crossings"]["commands"], all_of_it["log"]["flushes"]

    def cost(start, count):
        before = stats()
        code, _, err = rig.run("put", socket, f"/{how}-{size}-{start}", 0, count, how, size)
        expect(code == 0, err)
        return [after - at for after, at in zip(stats(), before)]

    first, second = cost(1, few), cost(2, many)
    return [(b - a) / (many - few) for a, b in zip(first, second)]


def a_synced_put_is_one_command(rig):
    said = []
    for medium in ("pmem", "block"):
        device, socket = rig.serve(rig.image(f"{medium}.img", medium))
        for how, flushes in (("sync", medium == "block"), ("nosync", False)):
            commands, flushed = counted(rig, socket, how, 100, 500, 100)
            said.append(f"{medium} {how}: {commands:.3f} commands")
            expect(0.9 < commands < 1.1, f"{medium}, {how}: {commands} commands a put")
            # Other flushes (every 5 s, a checkpoint) are few.
            most = 1.1 if how == "sync" else 0.1
            expect((0.9 if flushes else 0) <= flushed < most, f"{medium}, {how}: {flushed} flushes a put")
            # A record in ten fragments, each of which LevelDB flushes.
            large, _ = counted(rig, socket, how, 2, 10, 300000)
            expect(0.9 < large < 1.2, f"{medium}, {how}: {large} commands a large put")
        rig.stop(device)
    return "; ".join(said)


CASES = [
    suite_in_this_process_pmem,
    suite_in_this_process_block,
    suite_served_pmem,
    suite_served_block,
    a_synced_put_is_one_command,
]
