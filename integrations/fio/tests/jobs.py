"""Jobs that must succeed: fio compares what it reads with what it wrote."""

import re
import subprocess
from pathlib import Path

from rig import PATIENCE, expect

MODES = ("plain", "fused")


def verified(rig, target):
    """Every pattern, mode and depth, in one file each."""
    ran = 0
    for mode in MODES:
        for depth in (1, 16):
            for pattern in ("write", "randwrite", "randrw"):
                name = f"/{mode}-{depth}-{pattern}"
                # fio verifies the writes of a mixed job when they are all there.
                job = rig.job(target, mode, rw=pattern, iodepth=depth, filename=name, verify="crc32c", verify_fatal=1)
                written = job["write"]["io_bytes"]
                expect(job["error"] == 0 and written > 0, f"{name}: {written} bytes written")
                expect(job["read"]["io_bytes"] >= written, f"{name}: only {job['read']['io_bytes']} bytes read back")
                ran += 1
    return f"{ran} jobs"


def verified_on_a_device_block(rig):
    return verified(rig, rig.serve(rig.image("disk.img", "block", "1G"))[1])


def verified_in_this_process_block(rig):
    return verified(rig, rig.image("disk.img", "block", "1G"))


def verified_in_this_process_pmem(rig):
    return verified(rig, rig.image("disk.img", "pmem", "1G"))


def reads_lay_out_their_file(rig):
    """A job that only reads has its file made first; the image is whole behind it."""
    image = rig.image("disk.img", "block")
    for mode in MODES:
        for depth in (1, 8):
            job = rig.job(image, mode, rw="randread", iodepth=depth, filename=f"/{mode}", size="1m")
            expect(job["read"]["io_bytes"] == 1 << 20 and job["read"]["short_ios"] == 0, job["read"])
    ls = [rig.weldfs, "ls", "-l", f"{image}:/"]
    out = subprocess.run(ls, capture_output=True, text=True, timeout=PATIENCE).stdout
    # A record is the block and four bytes.
    expect(str(1 << 20) in out and str(256 * 4100) in out, out)
    subprocess.run([rig.weldfs, "fsck", "-n", image], check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)


def threads_and_processes(rig):
    """Several jobs at once: threads on an image in this process, processes on a device."""
    image = rig.image("disk.img", "block")
    for mode in MODES:
        rig.job(image, mode, rw="randwrite", numjobs=4, iodepth=4, verify="crc32c", group_reporting=1, size="1m")
    _, socket = rig.serve(image)
    for mode in MODES:
        rig.job(socket, mode, rw="randwrite", numjobs=4, thread=0, iodepth=4, verify="crc32c", size="1m")


def syncs_and_trims(rig):
    image = rig.image("disk.img", "block")
    job = rig.job(image, "plain", rw="write", size="1m", fsync=16, fdatasync=32)
    expect(job["sync"]["total_ios"] >= 15, job["sync"])
    rig.job(image, "plain", rw="write", size="1m", sync=1)
    for depth in (1, 8):
        job = rig.job(image, "plain", rw="randtrim", size="1m", filename="/trimmed", iodepth=depth)
        expect(job["trim"]["io_bytes"] == 1 << 20, job["trim"])
        job = rig.job(image, "plain", rw="trimwrite", size="1m", filename="/trimmed", iodepth=depth)
        expect(job["trim"]["io_bytes"] > 0 and job["write"]["io_bytes"] > 0, job)


def large_blocks(rig):
    """One by one a block may be longer than a command; it is several then."""
    rig.job(rig.image("disk.img", "block"), "plain", rw="write", bs="4m", size="16m", verify="crc32c")


def damage_is_found_by_the_device(rig):
    """A byte that was changed behind the mode's back is an error of the read, without any verify= of fio's."""
    image = rig.image("disk.img", "block")
    rig.job(image, "fused", rw="write", filename="/records", size="256k")
    rig.job(image, "fused", rw="read", filename="/records", size="256k")
    rig.job(image, "plain", rw="write", filename="/records", bs="16", size="16", offset="100000")
    for depth in (1, 8):
        rig.refused(image, "fused", "err=74", rw="read", filename="/records", size="256k", iodepth=depth)


def the_job_files(rig):
    """They run as they stand, but for their sizes and times."""
    files = sorted((Path(__file__).resolve().parents[1] / "jobs").glob("*.fio"))
    rig.env["WELDFS_TARGET"] = str(rig.image("disk.img", "block", "1G"))
    for file in files:
        short = rig.work / file.name
        text = re.sub(r"^size=.*", "size=1m", file.read_text(), flags=re.M)
        short.write_text(re.sub(r"^runtime=.*", "runtime=1", text, flags=re.M))
        code, report, said = rig.fio(short)
        well = code == 0 and report and all(job["error"] == 0 for job in report["jobs"])
        expect(well, f"{file.name}: {said[-3000:]}")
    return f"{len(files)} files"


CASES = [
    verified_on_a_device_block,
    verified_in_this_process_block,
    verified_in_this_process_pmem,
    reads_lay_out_their_file,
    threads_and_processes,
    syncs_and_trims,
    large_blocks,
    damage_is_found_by_the_device,
    the_job_files,
]
