"""Kernels of the user's own: the page that leads through them."""

from . import programs
from .build import BUILD


def kernel_tutorial(_full):
    """docs/KERNELS.md: every command in its order, with Verilator and cargo, on a device"""
    from .tiers import apt  # it names this tier

    apt(["make", "verilator", "c++", "python3"], ["make", "verilator", "g++", "python3"])
    BUILD.weldfs()
    programs.run(["integrations/cli it"], args=["--ignored", "documents::kernels"])
