"""The tier of the RTL kernels: simulated against their references, linted, proven in part, counted."""

import subprocess
import sys

from . import programs
from .build import ROOT, target_dir
from .report import Failed

# Those that Yosys maps in seconds; the others take minutes.
SMALL = ["pass-through", "sql"]


def run(script, *args):
    """Runs a script of `fpga/rtl`."""
    done = subprocess.run([sys.executable, ROOT / "fpga" / "rtl" / script, *args], stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise Failed(f"fpga/rtl/{script} {' '.join(map(str, args))}: exit {done.returncode}")


def rtl(full):
    """RTL kernels: Verilated against their references, lint, Icarus, proofs of FIFO and credits, sizes by Yosys"""
    from .tiers import apt  # there this tier has its place among the others

    apt(["verilator", "iverilog", "yosys", "yosys-smtbmc", "z3", "c++"],
        ["verilator", "iverilog", "yosys", "z3", "g++"])
    for what in ("lint", "generated", "icarus", "formal"):
        run("check.py", what)
    out = target_dir() / "kernels"
    # What the gate simulates is over before more of the compiler's work would pay.
    run("build.py", "--out", out, "--optimise", "2" if full else "1")
    env = {"WELDFS_KERNELS": str(out), "WELDFS_RTL_PACKETS": "20000" if full else "400"}
    programs.run(["fpga/kernels it"], args=["--ignored", "rtl::"], env=env)
    run("check.py", "resources", *([] if full else SMALL))
