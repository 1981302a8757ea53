"""Images, devices and runs of fio."""

import json
import os
import subprocess
import time

PATIENCE = 300


class Wrong(Exception):
    """What should hold does not."""


def expect(holds, what):
    if not holds:
        raise Wrong(what)


class Rig:
    def __init__(self, weldfs, engine, work, short):
        self.weldfs, self.engine, self.work, self.short = weldfs, engine, work, short
        self.devices = []
        self.env = {**os.environ, "WELDFS_WAIT": "20", "WELDFS_FIO": str(engine)}

    def image(self, name, medium, size="256M"):
        path = self.work / name
        command = [self.weldfs, "mkfs", path, "--size", size, "--medium", medium]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)
        return path

    def serve(self, image):
        """Serves it; the device and its socket, once that answers."""
        socket = image.with_name(image.name + ".sock")
        log = (self.work / "serve.log").open("ab")
        device = subprocess.Popen([self.weldfs, "serve", image, "--socket", socket], stdout=log, stderr=log)
        self.devices.append(device)
        until = time.monotonic() + 60
        probe = [self.weldfs, "stats", socket]
        while subprocess.run(probe, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 0:
            expect(device.poll() is None and time.monotonic() < until, "the device did not come up")
            time.sleep(0.02)
        return device, socket

    def fio(self, *args, **options):
        """Runs fio; its exit code, its report and what it complained of."""
        command = ["fio", "--output-format=json", f"--output={self.work / 'report'}", *map(str, args)]
        command += [f"--{key}={value}" for key, value in options.items()]
        done = subprocess.run(command, env=self.env, cwd=self.work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=PATIENCE)
        report = (self.work / "report").read_text() if (self.work / "report").exists() else ""
        start = report.find("{")
        whole = json.loads(report[start:]) if start >= 0 and report.rstrip().endswith("}") else None
        return done.returncode, whole, done.stdout + (report if whole is None else report[:start])

    def job(self, target, mode, **options):
        """Runs one job of the engine that must succeed: its part of the report."""
        options = {"name": "job", "thread": 1, "bs": "4k", "size": "2m" if self.short else "16m", **options}
        args = [f"--ioengine=external:{self.engine}", f"--weldfs_target={target}", f"--weldfs_mode={mode}"]
        code, report, said = self.fio(*(f"--{key}={value}" for key, value in options.items()), *args)
        expect(code == 0 and report, f"{options}: exit {code}: {said[-3000:]}")
        return report["jobs"][0]

    def refused(self, target, mode, word, **options):
        """The same with one that must not."""
        options = {"name": "job", "thread": 1, "bs": "4k", "size": "1m", **options}
        args = [f"--ioengine=external:{self.engine}", f"--weldfs_mode={mode}"]
        args += [f"--weldfs_target={target}"] if target else []
        code, _, said = self.fio(*(f"--{key}={value}" for key, value in options.items()), *args)
        expect(code != 0, f"{options}: fio says that all is well")
        expect(word in said, f"{options}: nothing of {word}: {said[-3000:]}")

    def end(self):
        for device in self.devices:
            device.kill()
            device.wait()
