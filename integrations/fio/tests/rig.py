"""Runs of fio."""

import json
import subprocess

from testing.cases import PATIENCE, Rig, expect


class Fio(Rig):
    def __init__(self, weldfs, engine, work, short):
        super().__init__(weldfs, work, short, wait="20")
        self.engine = engine
        self.env["WELDFS_FIO"] = str(engine)

    def fio(self, *args):
        """Runs fio; its exit code, its report and what it complained of."""
        command = ["fio", "--output-format=json", f"--output={self.work / 'report'}", *map(str, args)]
        done = subprocess.run(command, env=self.env, cwd=self.work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=PATIENCE)
        report = (self.work / "report").read_text() if (self.work / "report").exists() else ""
        (self.work / "report").unlink(missing_ok=True)
        start = report.find("{")
        whole = json.loads(report[start:]) if start >= 0 and report.rstrip().endswith("}") else None
        return done.returncode, whole, done.stdout + (report if whole is None else report[:start])

    def engines(self, target, mode, **options):
        """Runs one job of the engine: exit code, report and complaints."""
        options = {"name": "job", "thread": 1, "bs": "4k", **options}
        args = [f"--ioengine=external:{self.engine}", f"--weldfs_mode={mode}"]
        args += [f"--weldfs_target={target}"] if target else []
        return self.fio(*(f"--{key}={value}" for key, value in options.items()), *args)

    def job(self, target, mode, **options):
        """Runs one that must succeed: its part of the report."""
        options = {"size": "2m" if self.short else "16m", **options}
        code, report, said = self.engines(target, mode, **options)
        expect(code == 0 and report, f"{options}: exit {code}: {said[-3000:]}")
        return report["jobs"][0]

    def refused(self, target, mode, word, **options):
        """The same with one that must not; its report, if there is one."""
        options = {"size": "1m", **options}
        code, report, said = self.engines(target, mode, **options)
        expect(code != 0, f"{options}: fio says that all is well")
        expect(code > 0, f"{options}: fio was ended by signal {-code}: {said[-3000:]}")
        expect(word in said, f"{options}: nothing of {word}: {said[-3000:]}")
        return report
