"""Times, skips and failures of a run, and the summary at its end."""

import os
import sys
import tempfile
import time


class Skip(Exception):
    """A tier that could not run here; the text says why."""


class Failed(Exception):
    """A tier found something; the text says what."""


def say(text):
    print(f"\n== {text}", flush=True)


class Report:
    """What ran so far."""

    def __init__(self):
        self.start = time.monotonic()
        self.passed, self.failed, self.skipped, self.times = [], [], [], []
        # Tests that find something missing write a line here: `name: why`.
        handle, self.skips = tempfile.mkstemp(prefix="weldfs-skips-")
        os.close(handle)
        os.environ["WELDFS_TEST_SKIPS"] = self.skips

    def run(self, name, work):
        """Runs one tier; whatever it does, the next one runs as well."""
        say(name)
        start = time.monotonic()
        try:
            work()
            self.passed.append(name)
        except Skip as why:
            self.skipped.append(f"{name}: {why}")
            print(f"skipped: {why}")
        except Failed as what:
            self.failed.append(f"{name}: {what}")
            print(f"FAILED: {what}")
        self.times.append((time.monotonic() - start, name))

    def end(self):
        """Prints the summary; the exit code."""
        with open(self.skips) as file:
            self.skipped += sorted({line.strip() for line in file if line.strip()})
        os.unlink(self.skips)
        say("summary")
        for seconds, name in self.times:
            print(f"{seconds / 60:6.1f} min  {name}")
        print(f"{(time.monotonic() - self.start) / 60:6.1f} min  in all")
        for title, lines in (("skipped: ", self.skipped), ("FAILED:  ", self.failed)):
            for line in lines:
                print(title + line)
        print(f"{len(self.passed)} passed, {len(self.failed)} failed, {len(self.skipped)} skipped")
        sys.stdout.flush()
        return 0 if self.passed and not self.failed else 1
