"""Engines built from the sources of their packages, each in `target/engine-sources/NAME_VERSION`: RocksDB with the
plug-in in its tree, LevelDB with the Env's patch, SQLite with batch commits. What is there is not built anew."""

import os
import shutil
import subprocess

from . import plugins, sources
from .build import BUILD, ROOT, target_dir
from .report import Failed

# As quickly as it compiles: nothing is measured. Debug keeps the engines' own assertions.
UNOPTIMISED = ("-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0", "--log-level=WARNING")
# The engine's functions are tested by its own tests, and these build none.
LEVELDB = ("-DBUILD_SHARED_LIBS=ON", "-DLEVELDB_BUILD_TESTS=OFF", "-DLEVELDB_BUILD_BENCHMARKS=OFF",
           "-DLEVELDB_INSTALL=OFF")
# The library is compiled in pieces of twenty files: a header is parsed once for each, which is most of the work.
ROCKSDB = ("-DROCKSDB_PLUGINS=weldfs", "-DROCKSDB_BUILD_SHARED=OFF", "-DWITH_TESTS=OFF", "-DWITH_TOOLS=OFF",
           "-DWITH_TRACE_TOOLS=OFF", "-DWITH_LIBURING=OFF", "-DPORTABLE=ON", "-DFAIL_ON_WARNINGS=OFF",
           "-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=20")
ROCKSDB_MAKE = ("ROCKSDB_PLUGINS=weldfs", "DEBUG_LEVEL=0", "OPTIMIZE_LEVEL=-O0", "PORTABLE=1", "V=1")
SQLITE = ("-O1", "-DSQLITE_ENABLE_BATCH_ATOMIC_WRITE", "-DSQLITE_USE_URI=1", "-DSQLITE_THREADSAFE=1")


def place(source):
    folder = target_dir() / "engine-sources" / source.name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def prefix():
    """The C library of the debug build as an installation has it, for pkg-config; its environment."""
    BUILD.make()
    folder = target_dir() / "engine-sources" / "prefix"
    (folder / "lib" / "pkgconfig").mkdir(parents=True, exist_ok=True)
    library = target_dir() / "debug" / "libweldfs.so"
    for at, to in (("include", ROOT / "userlib" / "include"), ("lib/libweldfs.so", library),
                   ("lib/libweldfs.so.0", library)):
        if not (folder / at).exists():
            (folder / at).symlink_to(to)
    text = (ROOT / "userlib" / "capi" / "weldfs.pc.in").read_text()
    for name, value in (("prefix", str(folder)), ("libdir", "lib"), ("version", "0")):
        text = text.replace(f"@{name}@", value)
    (folder / "lib" / "pkgconfig" / "weldfs.pc").write_text(text)
    return folder


def logged(log, *command, env=None):
    """Runs a command whose output is of interest only when it fails; the output."""
    with log.open("w") as out:
        done = subprocess.run(list(map(str, command)), cwd=log.parent, env={**os.environ, **(env or {})},
                              stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
    said = log.read_text(errors="replace")
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}: exit {done.returncode}, see {log}\n{said[-3000:]}")
    return said


def copied(source, name, change):
    """A copy of a source that `change` has changed; made anew when that fails."""
    tree = place(source) / name
    if not tree.exists():
        work = tree.with_name(f"{name}-unfinished")
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(source, work, symlinks=True)
        change(work)
        work.rename(tree)
    return tree


def rocksdb():
    """RocksDB with the plug-in in its tree: library, `db_bench`, `ldb` and `sst_dump`, and the plug-in's own test
    program linked with that library. The folder of all of it."""
    source = sources.source("librocksdb-dev")
    folder, installed = place(source), prefix()
    env = {"PKG_CONFIG_PATH": str(installed / "lib" / "pkgconfig")}
    plugin = ROOT / "integrations" / "rocksdb" / "plugin" / "weldfs"
    tree = copied(source, "tree", lambda work: (work / "plugin" / "weldfs").symlink_to(plugin))
    rocksdb_by_make(folder, tree, installed, env)
    build = folder / "build"
    logged(folder / "cmake.log", "cmake", "-S", tree, "-B", build, *UNOPTIMISED, *ROCKSDB, env=env)
    logged(folder / "build.log", "cmake", "--build", build, "--parallel", "2", "--target", "db_bench", "ldb",
           "sst_dump", env=env)
    rocksdb_engine(folder, tree, installed)
    return folder


def rocksdb_by_make(folder, tree, installed, env):
    """RocksDB's other build takes the plug-in up: compiles its files, without a warning, and links it. All of RocksDB
    would take as long again, so the rest is what make says that it would do."""
    out = folder / "make"
    make = ["make", "-C", tree, *ROCKSDB_MAKE, f"OBJ_DIR={out}"]
    objects = [out / "plugin" / "weldfs" / f"{file.stem}.o" for file in (tree / "plugin" / "weldfs").glob("*.cc")]
    logged(folder / "make.log", *make, "-j2", *objects, env=env)
    said = logged(folder / "make-bench.log", *make, "-n", "db_bench", env=env)
    archived = [line for line in said.splitlines() if "librocksdb.a" in line and "ar " in line]
    if not any(all(str(file) in line for file in objects) for line in archived):
        raise Failed(f"make would leave the plug-in out of RocksDB's library: see {folder / 'make-bench.log'}")
    linked = [line for line in said.splitlines() if "-o db_bench" in line]
    wanted = (f"-L{installed / 'lib'}", "-lweldfs", "-u weldfs_filesystem_reg")
    if not any(all(word in line for word in wanted) for line in linked):
        raise Failed(f"make would link db_bench without the plug-in: see {folder / 'make-bench.log'}")


def rocksdb_engine(folder, tree, installed):
    """The program of `./test rocksdb`, over the library that has the plug-in in it."""
    tests = ROOT / "integrations" / "rocksdb" / "tests" / "cpp"
    # As CMake compiles and links db_bench: the library's classes differ with its flags, and it has found the rest.
    bench = folder / "build" / "CMakeFiles" / "db_bench.dir"
    lines = [line.partition("=") for line in (bench / "flags.make").read_text().splitlines()]
    flags = [word for name, _, words in lines if name.startswith("CXX_") for word in words.split()]
    flags.append(f"-I{tree / 'plugin' / 'weldfs'}")
    words = (bench / "link.txt").read_text().split()
    libraries = words[words.index("librocksdb.a") + 1:]
    logged(folder / "engine.log", "c++", *flags, *sorted(tests.glob("*.cc")), "-o", folder / "engine",
           "-Wl,-u,weldfs_filesystem_reg", folder / "build" / "librocksdb.a", f"-L{installed / 'lib'}", *libraries)


def leveldb():
    """LevelDB as it is and with the Env's patch, and the Env against each. The folder of all of it."""
    source = sources.source("libleveldb-dev")
    folder = place(source)
    BUILD.make()
    patch = ROOT / "integrations" / "leveldb" / "patches" / "blocks.patch"

    def change(work):
        logged(folder / "patch.log", "patch", "-p1", "-d", work, "-i", patch)
        shutil.copy(patch, work)

    patched = folder / "tree-patched"
    if patched.exists() and (patched / patch.name).read_bytes() != patch.read_bytes():
        shutil.rmtree(patched)
    # The patched one as LevelDB's own build makes it, which Debian changes: without run-time type information.
    for name, tree, flags in (("as-it-is", source, ""), ("patched", copied(source, patched.name, change), "-fno-rtti")):
        build = folder / name
        logged(folder / f"{name}.log", "cmake", "-S", tree, "-B", build, *UNOPTIMISED, *LEVELDB,
               f"-DCMAKE_CXX_FLAGS={flags}")
        logged(folder / f"{name}.log", "cmake", "--build", build, "--parallel", "2", "--target", "leveldb")
        # The Env's tests run over the patched one; of the other one the driver is enough.
        is_patched = "ON" if name == "patched" else "OFF"
        options = [f"-DLEVELDB_INCLUDE={tree / 'include'}", f"-DLEVELDB_LIBRARY={build / 'libleveldb.so'}",
                   f"-DWELDFS_LEVELDB_BLOCKS={is_patched}", f"-DWELDFS_LEVELDB_TESTS={is_patched}"]
        plugins.built_in(folder / f"env-{name}", "leveldb", *options, *UNOPTIMISED,
                         target="all" if name == "patched" else "weldfs_leveldb_drive")
    return folder


def sqlite():
    """SQLite's library and its shell with batch commits. The folder of both."""
    source = sources.source("sqlite3")
    folder = place(source)
    BUILD.make()
    if not (folder / "Makefile").exists():
        logged(folder / "configure.log", source / "configure", "--disable-tcl", "--disable-readline")
    logged(folder / "make.log", "make", "sqlite3.c", "shell.c")
    library = folder / "libsqlite3.so.0"
    if not library.exists():
        logged(folder / "library.log", "cc", *SQLITE, "-fPIC", "-shared", "-Wl,-soname,libsqlite3.so.0", "sqlite3.c",
               "-o", library, "-lpthread", "-ldl", "-lm")
    here = ("-L.", "-l:libsqlite3.so.0", "-Wl,-rpath,$ORIGIN")
    if not (folder / "sqlite3").exists():
        logged(folder / "shell.log", "cc", *SQLITE, "shell.c", "-o", "sqlite3", *here)
    extension = target_dir() / "debug"
    example = ROOT / "examples" / "c" / "sqlite.c"
    logged(folder / "starts.log", "cc", "-I.", f"-I{ROOT / 'integrations' / 'sqlite' / 'include'}", example, "-o",
           "starts", f"-L{extension}", "-lweldfs_sqlite", f"-Wl,-rpath,{extension}", *here)
    return folder
