# needs: /usr/bin/python3
# Libraries that lean on the file system: temporary files, trees, archives, databases, processes with modules from here.
cd "$D" || exit 1
export PYTHONDONTWRITEBYTECODE=
cat > work.py <<'END'
import os
def task(n):
    with open("w%d" % n, "wb") as f:
        f.write(bytes([n]) * 10_000)
        os.fsync(f.fileno())
    return os.path.getsize("w%d" % n)
END
cat > main.py <<'END'
import dbm.dumb, fcntl, gzip, logging.handlers, lzma, multiprocessing as mp, os, pathlib, pickle, shelve, shutil
import subprocess, sys, tarfile, tempfile, zipfile
import work
tempfile.tempdir = os.getcwd()
def trees():
    root = pathlib.Path("tree"); (root / "a" / "b").mkdir(parents=True)
    for n in range(30): (root / "a" / ("f%d" % n)).write_text("text %d\n" % n * n)
    os.symlink("a/f3", "tree/link"); os.utime("tree/a/f4", (1, 10**9)); os.chmod("tree/a/f5", 0o640)
    shutil.copytree("tree", "copy", symlinks=True)
    assert os.path.islink("copy/link") and os.stat("copy/a/f4").st_mtime == 10**9
    assert os.stat("copy/a/f5").st_mode & 0o777 == 0o640
    for kind, name in (("gztar", "t.tar.gz"), ("zip", "t.zip"), ("xztar", "t.tar.xz")):
        assert os.path.basename(shutil.make_archive("t", kind, "tree")) == name
        shutil.unpack_archive(name, "out-" + kind)
        assert sorted(p.name for p in pathlib.Path("out-" + kind).rglob("f*")) == sorted(p.name for p in root.rglob("f*"))
    assert shutil.move("copy", "moved") == "moved" and not os.path.exists("copy")
    with open("big", "wb") as f: f.write(os.urandom(3 << 20))
    shutil.copyfile("big", "big2"); assert open("big", "rb").read() == open("big2", "rb").read()
    assert shutil.disk_usage(".").free > 0 and len(list(os.walk("tree"))) == 3
    shutil.rmtree("moved"); shutil.rmtree("tree")
def temporary():
    with tempfile.NamedTemporaryFile("w+") as n:
        n.write("kept"); n.flush(); assert open(n.name).read() == "kept"
    with tempfile.TemporaryFile() as n: n.write(b"x" * 100_000); n.seek(-3, 2); assert n.read() == b"xxx"
    with tempfile.SpooledTemporaryFile(max_size=10) as n: n.write(b"rolls over"* 3); n.seek(0); assert len(n.read()) == 30
    with tempfile.TemporaryDirectory() as d: open(d + "/x", "w").close()
    assert not os.path.exists(d)
    fd, name = tempfile.mkstemp(); os.close(fd); os.unlink(name)
def databases():
    with shelve.open("shelf") as s: s["k"] = list(range(1000))
    with shelve.open("shelf") as s: assert s["k"][999] == 999
    with dbm.dumb.open("dumb", "c") as d: d[b"a"] = b"b"
    pickle.dump({1: 2}, open("p", "wb")); assert pickle.load(open("p", "rb")) == {1: 2}
    for opener in (gzip.open, lzma.open):
        with opener("z", "wb") as f: f.write(b"z" * 50_000)
        assert opener("z").read() == b"z" * 50_000
    log = logging.handlers.RotatingFileHandler("log", maxBytes=500, backupCount=2)
    for n in range(100): log.emit(logging.makeLogRecord({"msg": "message %d" % n}))
    log.close(); assert {"log", "log.1", "log.2"} <= set(os.listdir("."))
def processes():
    tempfile.tempdir = os.environ["T"]  # a server listens there, which is the host's
    for way in ("fork", "spawn", "forkserver"):
        with mp.get_context(way).Pool(3) as pool: assert pool.map(work.task, range(9)) == [10_000] * 9
        queue = mp.get_context(way).Queue()
        child = mp.get_context(way).Process(target=put, args=(queue,)); child.start()
        assert queue.get(timeout=60) == os.getcwd(); child.join(); assert child.exitcode == 0
    with open("out", "w") as out, open("main.py") as source:
        assert subprocess.run([sys.executable, "-"], stdin=source, stdout=out, env={**os.environ, "ONLY": "1"}).returncode == 0
    assert open("out").read() == "only\n"
    with open("locked", "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        held = subprocess.run(["flock", "-n", "locked", "true"]).returncode
        assert held == 1, held
def put(queue): queue.put(os.getcwd())
if __name__ == "__main__":
    if os.environ.get("ONLY"): print("only"); sys.exit()
    for test in (trees, temporary, databases, processes): test(); print(test.__name__)
END
/usr/bin/python3 main.py || exit 1; ls __pycache__ | wc -l
