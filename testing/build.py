"""The builds that tests run: one debug shape for all of them, and release."""

import json
import os
import subprocess
import time
from pathlib import Path

from .report import Failed

ROOT = Path(__file__).resolve().parent.parent


def target_dir():
    """Where cargo builds."""
    return Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").resolve()


def cargo(*args, env=None):
    """Runs cargo; a failure is the tier's."""
    done = subprocess.run(["cargo", *args], cwd=ROOT, env={**os.environ, **(env or {})})
    if done.returncode != 0:
        raise Failed(f"cargo {' '.join(args)}: exit {done.returncode}")


class Program:
    """One test program that the build made."""

    def __init__(self, message):
        self.folder = Path(message["manifest_path"]).parent
        self.path = message["executable"]
        name, kind = message["target"]["name"], message["target"]["kind"][0]
        crate = self.folder.relative_to(ROOT).as_posix()
        # `storagefs/device device`, `storagefs/store lib`, `integrations/cli bin`
        self.name = f"{crate} {name if kind == 'test' else 'bin' if kind == 'bin' else 'lib'}"


class Build:
    """The debug build of the whole workspace: made once, at the first need."""

    def __init__(self):
        self.programs = None

    def make(self):
        """Builds libraries, programs and tests in one go, so that no feature set differs between them."""
        if self.programs is not None:
            return
        command = ["cargo", "build", "--workspace", "--lib", "--bins", "--tests", "--examples"]
        command += ["--message-format=json-render-diagnostics"]
        env = dict(os.environ)
        # Nothing here is built twice; a third of the time goes into being able to.
        env.setdefault("CARGO_INCREMENTAL", "0")
        start, found = time.monotonic(), []
        with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                message = json.loads(line)
                if message.get("reason") == "compiler-artifact" and message.get("executable"):
                    if message["profile"]["test"]:
                        found.append(Program(message))
        if process.returncode != 0:
            raise Failed("the debug build failed")
        self.programs = {program.name: program for program in found}
        print(f"built {len(found)} test programs in {time.monotonic() - start:.0f} s")

    def weldfs(self):
        """The debug `weldfs`, with the preload library beside it."""
        self.make()
        return target_dir() / "debug" / "weldfs"


BUILD = Build()
RELEASE = {}


def release():
    """The release `weldfs`, as a user builds it."""
    if "weldfs" not in RELEASE:
        cargo("build", "--release", "--quiet")
        RELEASE["weldfs"] = target_dir() / "release" / "weldfs"
    return RELEASE["weldfs"]


def drill(name):
    """A program whose instructions are counted. Together with the release `weldfs` and its library: with the features
    of these, and with what a library needs for its link-time optimisation, nothing is built twice."""
    cargo("build", "--release", "--quiet", "-p", "weldfs-cli", "-p", "weldfs-preload", "-p", "weldfs-drills")
    return target_dir() / "release" / name
