#!/usr/bin/env python3
"""Compiles the HLS C++ of this folder into shared objects that run as slots: libhls_NAME.so, one a kernel.

    build.py [--out FOLDER] [--jobs N] [NAME...]

FOLDER is `target/kernels` of the source tree where nothing is said. The headers of ap_int are looked for in AP_INCLUDE;
without that they are taken from the Python package hls4ml (Apache-2.0), which is downloaded once and kept in
`FOLDER/ap_types`. Exit 77: g++ or the headers are missing, which a line `skipped: ...` says.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HLS = Path(__file__).resolve().parent
FPGA = HLS.parent
KERNELS = ("convolve", "equalise", "gzip", "knn", "relief", "smith-waterman", "stencil")
PACKAGE = "hls4ml==1.3.0"
# Of the package only these: each says Apache-2.0 in its first lines. Its hls_stream.h and ap_shift_reg.h are proprietary.
HEADERS = (
    "ap_common.h", "ap_decl.h", "ap_fixed.h", "ap_fixed_base.h", "ap_fixed_ref.h", "ap_fixed_special.h", "ap_int.h",
    "ap_int_base.h", "ap_int_ref.h", "ap_int_special.h", "etc/ap_private.h",
)
# The headers leave a value uninitialised that they mask; loops have labels for the reports of Vitis.
FLAGS = (
    "-std=c++17", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-gnu-unique", "-Wall", "-Wextra",
    "-Wno-unknown-pragmas",
    "-Wno-unused-label", "-Wno-uninitialized", "-Wno-maybe-uninitialized",
)


def skip(why):
    print(f"skipped: {why}", flush=True)
    sys.exit(77)


def ap_include(out):
    """The folder with ap_int.h."""
    named = os.environ.get("AP_INCLUDE")
    if named:
        if not (Path(named) / "ap_int.h").is_file():
            skip(f"AP_INCLUDE={named} has no ap_int.h")
        return Path(named)
    kept = out / "ap_types"
    if all((kept / header).is_file() for header in HEADERS):
        return kept
    with tempfile.TemporaryDirectory(dir=out) as work:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
        done = subprocess.run([*pip, "--dest", work, PACKAGE], stdin=subprocess.DEVNULL)
        wheels = list(Path(work).glob("*.whl"))
        if done.returncode != 0 or not wheels:
            skip(f"pip cannot download {PACKAGE}; AP_INCLUDE may name a folder with ap_int.h")
        with zipfile.ZipFile(wheels[0]) as wheel:
            for header in HEADERS:
                text = wheel.read(f"hls4ml/templates/vivado/ap_types/{header}")
                if b"Licensed under the Apache License, Version 2.0" not in text[:1000]:
                    sys.exit(f"{PACKAGE}: {header} does not say that it is under Apache-2.0")
                (kept / header).parent.mkdir(parents=True, exist_ok=True)
                (kept / header).write_bytes(text)
    return kept


def build(compiler, include, out, name):
    """Compiles one, if it is older than what it is made of. Its output, and whether it went well."""
    source, library = HLS / f"{name.replace('-', '_')}.cpp", out / f"libhls_{name}.so"
    parts = [source, Path(__file__), FPGA / "include/weldfs_kernel.h", *HLS.glob("*.h"), *HLS.glob("sim/*.h")]
    if library.exists() and library.stat().st_mtime > max(part.stat().st_mtime for part in parts):
        return "", True
    fresh = library.with_suffix(f".{os.getpid()}")
    folders = [f"-I{HLS / 'sim'}", f"-I{FPGA / 'include'}", "-isystem", include]
    done = subprocess.run([*compiler, *FLAGS, *folders, source, "-o", fresh], capture_output=True, text=True)
    if done.returncode == 0:
        fresh.rename(library)
    return done.stdout + done.stderr, done.returncode == 0


def main():
    parser = argparse.ArgumentParser(description="compiles the HLS C++ into shared objects")
    parser.add_argument("--out", type=Path, default=FPGA.parent / "target/kernels")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"kernels: {', '.join(KERNELS)}; all where none is named")
    args = parser.parse_args()
    names = args.names or KERNELS
    unknown = [name for name in names if name not in KERNELS]
    if unknown:
        parser.error(f"no such kernel: {', '.join(unknown)}")
    compiler = os.environ.get("CXX", "g++").split()
    if not shutil.which(compiler[0]):
        skip(f"there is no {compiler[0]}")
    args.out.mkdir(parents=True, exist_ok=True)
    include = ap_include(args.out)
    with ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(lambda name: build(compiler, include, args.out, name), names))
    for name, (said, good) in zip(names, results):
        print(said, end="")
        if not good:
            print(f"{name}: not built")
    sys.exit(0 if all(good for _, good in results) else 1)


if __name__ == "__main__":
    main()
