"""Jobs that must fail, and say why."""

from rig import expect


def targets(rig):
    image = rig.image("disk.img", "block")
    rig.refused(None, "plain", "weldfs_target", rw="write")
    rig.refused(rig.work / "none.img", "plain", "ENOENT", rw="write")
    rig.refused(rig.work, "plain", "directory", rw="write")
    rig.refused(image, "neither", "neither", rw="write")


def block_sizes(rig):
    image = rig.image("disk.img", "block")
    rig.refused(image, "fused", "one block size", rw="randrw", bsrange="4k-8k", filename="/f")
    rig.refused(image, "fused", "one block size", rw="randrw", bs="4k,8k", filename="/f")
    rig.refused(image, "fused", "no trims", rw="trim", filename="/f")
    rig.refused(image, "fused", "one command", rw="write", bs="1m", size="2m", filename="/f")
    rig.refused(image, "plain", "one command", rw="write", bs="2m", size="4m", iodepth=4, filename="/f")


def a_full_image(rig):
    for mode in ("plain", "fused"):
        for depth in (1, 8):
            image = rig.image(f"{mode}-{depth}.img", "block", "16M")
            rig.refused(image, mode, "No space left", rw="write", size="64m", iodepth=depth)


def a_device_that_dies(rig):
    """The job ends with an error, at any depth, and does not hang."""
    for mode in ("plain", "fused"):
        for depth in (1, 8):
            image = rig.image(f"{mode}-{depth}.img", "block")
            device, socket = rig.serve(image)
            killer = f"--exec_prerun=sh -c '(sleep 1; kill -9 {device.pid}) >/dev/null 2>&1 &'"
            code, report, said = rig.fio(
                f"--ioengine=external:{rig.engine}", f"--weldfs_target={socket}", f"--weldfs_mode={mode}", "--name=job",
                "--thread=1", "--rw=write", "--bs=4k", "--size=32m", f"--iodepth={depth}", "--time_based",
                "--runtime=20", killer)
            expect(code != 0, f"{mode}, depth {depth}: fio says that all is well")
            expect(report is None or report["jobs"][0]["job_runtime"] < 15000, f"it went on: {said[-2000:]}")


CASES = [targets, block_sizes, a_full_image, a_device_that_dies]
