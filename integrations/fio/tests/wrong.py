"""Jobs that must fail, and say why."""

import errno
import signal
import threading

from testing.cases import PATIENCE, expect, of_another_version


def targets(rig):
    image = rig.image("disk.img", "block")
    rig.refused(None, "plain", "weldfs_target", rw="write")
    rig.refused(rig.work / "none.img", "plain", "ENOENT", rw="write")
    rig.refused(rig.work, "plain", "a directory, and no image", rw="write")
    rig.refused(image, "neither", "neither", rw="write")
    rig.refused(of_another_version(rig.image("small.img", "block", "16M")), "plain", "version", rw="write")


def block_sizes(rig):
    image = rig.image("disk.img", "block")
    rig.refused(image, "fused", "one block size", rw="randrw", bsrange="4k-8k", filename="/f")
    rig.refused(image, "fused", "one block size", rw="randrw", bs="4k,8k", filename="/f")
    rig.refused(image, "fused", "no trims", rw="trim", filename="/f")
    rig.refused(image, "fused", "one command", rw="write", bs="1m", size="2m", filename="/f")
    rig.refused(image, "plain", "one command", rw="write", bs="2m", size="4m", iodepth=4, filename="/f")


def depths(rig):
    """More in flight than a queue holds; and what just fits."""
    image = rig.image("disk.img", "block")
    rig.refused(image, "plain", "at most 1024", rw="write", iodepth=1025, filename="/f")
    rig.refused(image, "plain", "at most 64 MiB", rw="write", bs="260k", size="4m", iodepth=129, filename="/f")
    rig.refused(image, "fused", "at most 64 MiB", rw="write", bs="68k", size="4m", iodepth=1024, filename="/f")
    rig.job(image, "plain", rw="write", iodepth=1024, filename="/f", bs="64k", size="8m")
    rig.job(image, "plain", rw="write", iodepth=128, filename="/g", bs="512k", size="8m")


def a_job_that_does_not_begin(rig):
    """It leaves the file that it was to remove behind it, and ends as any other."""
    image = rig.image("disk.img", "block")
    rig.job(image, "fused", rw="write", filename="/f", size="1m")
    rig.refused(image, "fused", "one block size", rw="write", bsrange="4k-8k", filename="/f", unlink=1)
    rig.refused(rig.work / "none.img", "fused", "ENOENT", rw="write", filename="/f", unlink=1)
    names = rig.verb("ls", f"{image}:/").decode().split()
    expect(names == ["f"], names)
    rig.job(image, "fused", rw="write", filename="/f", size="1m", unlink=1)
    expect(not rig.verb("ls", f"{image}:/"), "a job that ran has not removed it")


def a_full_image(rig):
    for mode in ("plain", "fused"):
        for depth in (1, 8):
            image = rig.image(f"{mode}-{depth}.img", "block", "16M")
            rig.refused(image, mode, "No space left", rw="write", size="64m", iodepth=depth)


def killed_behind_a_write(rig, device, socket, over):
    """Ends the device once it has carried out writes."""
    while not over.is_set() and device.poll() is None:
        log = rig.stats(socket)["log"]
        if log["records"] > 100:
            device.kill()
        over.wait(0.1)


def a_device_that_dies(rig):
    """The job ends with an error, at any depth, and does not hang."""
    said = []
    for mode in ("plain", "fused"):
        for depth in (1, 8):
            device, socket = rig.serve(rig.image(f"{mode}-{depth}.img", "block"))
            over = threading.Event()
            killer = threading.Thread(target=killed_behind_a_write, args=(rig, device, socket, over))
            killer.start()
            try:
                report = rig.refused(socket, mode, "", rw="write", size="32m", iodepth=depth, time_based=1, runtime=60)
            finally:
                over.set()
                killer.join(PATIENCE)
            expect(device.poll() == -signal.SIGKILL, f"{mode}, depth {depth}: the device was not killed")
            expect(report, f"{mode}, depth {depth}: no report")
            job = report["jobs"][0]
            # EIO where it died during a command, ENODEV before one.
            expect(job["error"] in (errno.EIO, errno.ENODEV), f"{mode}, depth {depth}: error {job['error']}")
            expect(job["write"]["io_bytes"] > 0, f"{mode}, depth {depth}: nothing was written")
            expect(job["job_runtime"] < 30000, f"{mode}, depth {depth}: it went on for {job['job_runtime']} ms")
            said.append(job["error"])
    return f"errors {said}"


CASES = [targets, block_sizes, depths, a_job_that_does_not_begin, a_full_image, a_device_that_dies]
SHORT = [targets, block_sizes, a_job_that_does_not_begin]
