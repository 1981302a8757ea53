"""What is refused: a second process, a full image, targets that are none."""

import os
import shutil
import subprocess
import time

from rig import REFUSED_TO_OPEN, REFUSED_TO_WRITE, acknowledged
from testing.cases import Skipped, expect, of_another_version


def held(rig, target):
    return rig.waiting(b"open", "hold", target, "/db")


def refused(rig, target, word, **kwargs):
    code, _, err = rig.run("open", target, "/db", **kwargs)
    expect(code == REFUSED_TO_OPEN and word in err, f"{target}: exit {code}: {err}")
    return err


def two_processes_on_a_device(rig):
    """One database has one process; its lock ends with it, however that ends. Another database is another matter."""
    _, socket = rig.serve(rig.image("disk.img", "block"))
    holder = held(rig, socket)
    why = refused(rig, socket, "already held")
    code, _, err = rig.run("open", socket, "/other")
    expect(code == 0, err)
    holder.kill()
    holder.wait()
    start = time.monotonic()
    while rig.run("open", socket, "/db")[0] != 0:
        expect(time.monotonic() - start < 5, "the lock outlives its process")
    return f"{why}; free {time.monotonic() - start:.2f} s after SIGKILL"


def two_processes_on_an_image(rig):
    image = rig.image("disk.img", "block")
    holder = held(rig, image)
    why = refused(rig, image, "IO error")
    holder.stdin.close()
    holder.wait()
    holder.stdin = None
    code, _, err = rig.run("open", image, "/db")
    expect(code == 0, err)
    return why


def an_image_that_is_served_later(rig):
    """The same name reaches the device that serves it now."""
    image = rig.image("disk.img", "block")
    expect(rig.run("write", image, "/db", 0, 50, "sync")[0] == 0, "the first process")
    device, _ = rig.serve(image)
    expect(rig.run("write", image, "/db", 50, 50, "sync")[0] == 0, "through the device")
    expect(rig.verified(image) == 100, "values of both")
    rig.stop(device)
    expect(rig.verified(image) == 100, "values of both, in this process again")


def full(rig, medium):
    """No space is an error of the put; everything before is there, and can be read and removed."""
    image = rig.image("disk.img", medium, "24M")
    ballast = rig.work / "ballast"
    ballast.write_bytes(bytes(range(256)) * (6 << 12))
    rig.verb("put", ballast, f"{image}:/ballast")
    code, out, err = rig.run("write", image, "/db", 0, 10**6, "sync")
    expect(code == REFUSED_TO_WRITE and "IO error" in err and "space" in err, f"exit {code}: {err}")
    acked = acknowledged(out.encode(), 0)
    expect(acked > 100, f"only {acked} fit")
    # LevelDB writes when it opens a database, so that may be refused, too.
    code, _, why = rig.run("open", image, "/db")
    expect(code == 0 or code == REFUSED_TO_OPEN and "space" in why, f"exit {code}: {why}")
    rig.checked(image)
    rig.verb("rm", f"{image}:/ballast")
    there = rig.verified(image)
    expect(there >= acked, f"{acked} were acknowledged, {there} are there")
    return f"{acked} were acknowledged, {there} are there"


def a_full_image_block(rig):
    return full(rig, "block")


def a_full_image_pmem(rig):
    return full(rig, "pmem")


def wrong_targets(rig):
    refused(rig, rig.work / "none.img", "none.img")
    refused(rig, rig.work, "IO error")
    text = rig.work / "text"
    text.write_text("no file system")
    refused(rig, text, "IO error")
    later = of_another_version(rig.image("small.img", "block", "16M"))
    why = refused(rig, later, "IO error")
    expect("version" in why, why)
    socket = rig.work / "dead.sock"
    image = rig.image("disk.img", "block")
    device, live = rig.serve(image)
    os.link(live, socket)
    device.kill()
    device.wait()
    refused(rig, socket, "refused")


def a_device_that_died_hides_nothing(rig):
    """CURRENT on a device that died may be there: a name is absent only where the device says so. LevelDB makes a new
    database where CURRENT is absent."""
    image = rig.image("disk.img", "block")
    device, socket = rig.serve(image)
    for name, there in (("/db/CURRENT", b"1"), ("/db/NONE", b"0"), ("/db/CURRENT/x", b"0"), ("/none/CURRENT", b"0")):
        asked, _ = rig.waiting(b"open", "exists", socket, "/db", name).communicate()
        expect(asked.strip() == there, f"{name} while the device lives: {asked}")
    asking = rig.waiting(b"open", "exists", socket, "/db", "/db/CURRENT")
    device.kill()
    device.wait()
    asked, _ = asking.communicate()
    expect(asked.strip() == b"1", f"CURRENT once the device died: {asked}")


def a_directory_of_the_host(rig):
    folder = rig.work / "folder"
    folder.mkdir()
    socket = rig.work / "folder.sock"
    rig.start([rig.weldfs, "serve", "--hostdir", folder, "--socket", socket],
              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 30
    while not socket.exists() and time.monotonic() < until:
        time.sleep(0.02)
    return refused(rig, socket, "directory of the host", env={"WELDFS_WAIT": "10"})


def no_permission(rig):
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        raise Skipped("needs root and setpriv")
    image = rig.image("disk.img", "block")
    os.chmod(rig.work, 0o755)
    os.chmod(image, 0o600)
    stranger = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    for file in (rig.drive, rig.build):
        if subprocess.run([*stranger, "test", "-x", file]).returncode != 0:
            raise Skipped(f"{file} is not reachable for other users")
    why = refused(rig, image, "IO error", prefix=stranger)
    # An image that may only be read opens no database: LevelDB writes when it opens one.
    os.chmod(image, 0o644)
    refused(rig, image, "IO error", prefix=stranger)
    return why


CASES = [
    two_processes_on_a_device,
    two_processes_on_an_image,
    an_image_that_is_served_later,
    a_full_image_block,
    a_full_image_pmem,
    wrong_targets,
    a_device_that_died_hides_nothing,
    a_directory_of_the_host,
    no_permission,
]
# Not in the short form: a full `block` image takes a flush for each put.
LONG = [a_full_image_block]
