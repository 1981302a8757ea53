"""Jobs that must succeed: fio compares what it reads with what it wrote."""

import json
import re
from pathlib import Path

from testing.cases import expect

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


def size_and_space(rig, file):
    """Bytes of a file, and bytes that it takes in the image."""
    attributes = json.loads(rig.verb("stat", "--json", file))[0]
    return attributes["size_bytes"], attributes["allocated_bytes"]


def opcodes(rig, device):
    """How often each command was carried out."""
    total = {}
    for tenant in rig.stats(device)["tenants"]:
        for name, count in tenant["commands_by_opcode"].items():
            total[name] = total.get(name, 0) + count
    return total


def appends_keep_their_order(rig):
    """Fused writes that leave holes, or go anywhere, are done alone: only when the appends in flight are over."""
    _, socket = rig.serve(rig.image("disk.img", "block"))
    holes = {"rw": "write:4k", "size": "4m", "io_size": "2m"}
    # This one writes some blocks twice, which fio knows only without its map; it reads each once.
    anywhere = {"rw": "randwrite", "percentage_random": 20, "size": "2m", "norandommap": 1}
    for depth in (2, 16, 64):
        for number, options in enumerate((holes, anywhere)):
            name = f"/{number}-{depth}"
            # An append that lands elsewhere is an error by itself, too.
            written = rig.job(socket, "fused", iodepth=depth, filename=f"{name}-unread", **options)["write"]["io_bytes"]
            expect(written == 2 << 20, f"{name}: {written} bytes written")
            job = rig.job(socket, "fused", iodepth=depth, filename=name, verify="crc32c", verify_fatal=1, **options)
            written, read = (job[way]["io_bytes"] for way in ("write", "read"))
            well = written == 2 << 20 and (read == written or options is anywhere and read > 0)
            expect(well, f"{name}: {written} bytes written, {read} read")
    counts = opcodes(rig, socket)
    # Both kinds of writes were among them.
    expect(counts.get("append_checksum_write", 0) > 20 and counts.get("program", 0) > 20, counts)
    return f"{counts['append_checksum_write']} appends, {counts['program']} others"


def as_many_in_flight_as_iodepth(rig):
    """Whatever the size of a block: the library's buffers are powers of two."""
    _, socket = rig.serve(rig.image("disk.img", "pmem"))
    for mode, size in (("plain", "36k"), ("fused", "20k"), ("plain", "512")):
        job = rig.job(socket, mode, rw="randread", bs=size, size="9000k", iodepth=64, filename=f"/{mode}-{size}",
                      norandommap=1, number_ios=4000)
        deep = job["iodepth_level"][">=64"]
        expect(deep > 0, f"{mode}, {size}: never 64 in flight: {job['iodepth_level']}")


def latencies_are_those_of_the_command(rig):
    """A fused write that is done alone takes its time while it is done, not while it is submitted."""
    image = rig.image("disk.img", "block")
    options = {"rw": "randwrite", "filename": "/records", "size": "1m"}
    rig.job(image, "fused", **{**options, "rw": "write"})
    for depth in (1, 8):
        write = rig.job(image, "fused", iodepth=depth, **options)["write"]
        submission, command = write["slat_ns"]["mean"], write["clat_ns"]["mean"]
        expect(command > submission and command > 1000, f"depth {depth}: submitted in {submission} ns, {command} ns")


def reads_lay_out_their_file(rig):
    """A job that only reads has its file made first; the image is whole behind it."""
    image = rig.image("disk.img", "block")
    for mode in MODES:
        for depth in (1, 8):
            job = rig.job(image, mode, rw="randread", iodepth=depth, filename=f"/{mode}", size="1m")
            expect(job["read"]["io_bytes"] == 1 << 20 and job["read"]["short_ios"] == 0, job["read"])
    # A record is the block and four bytes.
    sizes = [size_and_space(rig, f"{image}:/{mode}")[0] for mode in MODES]
    expect(sizes == [1 << 20, 256 * 4100], sizes)
    rig.checked(image)


def threads_and_processes(rig):
    """Several jobs at once: threads on an image in this process, processes on a device."""
    image = rig.image("disk.img", "block")
    for mode in MODES:
        rig.job(image, mode, rw="randwrite", numjobs=4, iodepth=4, verify="crc32c", group_reporting=1, size="1m")
    _, socket = rig.serve(image)
    for mode in MODES:
        rig.job(socket, mode, rw="randwrite", numjobs=4, thread=0, iodepth=4, verify="crc32c", size="1m")


def flushes(rig, target, **options):
    """Flushes of the medium during a job of 128 writes."""
    before = rig.stats(target)["log"]["flushes"]
    job = rig.job(target, "plain", rw="write", size="512k", filename="/synced", **options)
    return rig.stats(target)["log"]["flushes"] - before, job


def syncs(rig):
    """Each sync is a flush of the medium, and without any there is hardly one: every 5 s, and for a checkpoint."""
    _, socket = rig.serve(rig.image("disk.img", "block"))
    said = []
    for depth in (1, 8):
        none, _ = flushes(rig, socket, iodepth=depth)
        expect(none < 8, f"depth {depth}: {none} flushes without a sync")
        for options, least in (({"fsync": 1}, 127), ({"fdatasync": 4}, 31), ({"end_fsync": 1}, 1)):
            some, job = flushes(rig, socket, iodepth=depth, **options)
            # Syncs in flight at the same time may share a flush.
            least = least if depth == 1 else max(1, least // depth)
            expect(some >= least and some < 200, f"depth {depth}, {options}: {some} flushes")
            expect("end_fsync" in options or job["sync"]["lat_ns"]["N"] >= least, job["sync"])
            said.append(some)
        some, _ = flushes(rig, socket, iodepth=depth, sync=1)
        least = 128 if depth == 1 else 16
        expect(some >= least, f"depth {depth}, sync=1: {some} flushes")
        said.append(some)
    return f"flushes of 128 writes: {said}"


def trims(rig):
    """What is trimmed reads as zeros and takes no space; the rest stays."""
    _, socket = rig.serve(rig.image("disk.img", "block"))
    options = {"filename": "/trimmed", "size": "1m"}
    for depth in (1, 8):
        rig.job(socket, "plain", rw="write", iodepth=depth, **options)
        size, space = size_and_space(rig, f"{socket}:/trimmed")
        expect(size == 1 << 20 and space >= 1 << 20, f"written: {size} bytes in {space}")
        job = rig.job(socket, "plain", rw="randtrim", iodepth=depth, **{**options, "size": "512k"})
        expect(job["trim"]["io_bytes"] == 1 << 19, job["trim"])
        content = rig.verb("cat", f"{socket}:/trimmed")
        expect(len(content) == 1 << 20 and not any(content[: 1 << 19]), f"depth {depth}: half of it, trimmed")
        expect(all(any(content[at : at + 4096]) for at in range(1 << 19, 1 << 20, 4096)), "the rest was not")
        rig.job(socket, "plain", rw="randtrim", iodepth=depth, **options)
        content, (size, space) = rig.verb("cat", f"{socket}:/trimmed"), size_and_space(rig, f"{socket}:/trimmed")
        expect(size == 1 << 20 and space == 0, f"depth {depth}: {size} bytes in {space}")
        expect(content == bytes(1 << 20), f"depth {depth}: it reads other than zeros")
        job = rig.job(socket, "plain", rw="trimwrite", iodepth=depth, **options)
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


def the_fused_job_file_appends(rig):
    """Both writers append, in each run, whatever the readers had laid out."""
    _, socket = rig.serve(rig.image("disk.img", "block"))
    rig.env["WELDFS_TARGET"] = str(socket)
    file = Path(__file__).resolve().parents[1] / "jobs" / "fused.fio"
    short = rig.work / file.name
    short.write_text(re.sub(r"^size=.*", "size=1m", file.read_text(), flags=re.M))
    for number in (1, 2):
        code, _, said = rig.fio(short)
        expect(code == 0, said[-3000:])
        counts = opcodes(rig, socket)
        expect(counts.get("append_checksum_write", 0) == number * 256, counts)
        # Those are the records that were laid out for the reader.
        expect(counts.get("program", 0) == 256, counts)
        names = rig.verb("ls", f"{socket}:/").decode().split()
        expect(names == ["fio-fused-read", "fio-plain-read"], names)


CASES = [
    appends_keep_their_order,
    as_many_in_flight_as_iodepth,
    latencies_are_those_of_the_command,
    verified_on_a_device_block,
    verified_in_this_process_block,
    verified_in_this_process_pmem,
    reads_lay_out_their_file,
    threads_and_processes,
    syncs,
    trims,
    large_blocks,
    damage_is_found_by_the_device,
    the_job_files,
    the_fused_job_file_appends,
]
SHORT = [
    appends_keep_their_order,
    latencies_are_those_of_the_command,
    verified_in_this_process_pmem,
    threads_and_processes,
    trims,
    damage_is_found_by_the_device,
]
