"""The tier of the HLS kernels: compiled as programs, against oracles and references, with stalls on both sides."""

from . import programs
from .build import target_dir


def kernels_hls(full):
    """HLS C++ kernels: built against open ap_int headers, the same bytes as the references, however cut and stalled"""
    from .tiers import apt, script  # there this tier has its place among the others

    # Headers come by pip, gunzip is a peer.
    apt(["g++", "pip3", "gzip"], ["g++", "python3-pip", "gzip"])
    out = target_dir() / "kernels"
    script("fpga/hls/build.py", "--out", out)
    env = {"WELDFS_KERNELS": str(out), "WELDFS_HLS_ROUNDS": "300" if full else "6"}
    programs.run(["fpga/kernels it"], args=["--ignored", "hls::"], env=env)
