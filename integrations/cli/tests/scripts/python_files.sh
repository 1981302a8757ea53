python3 - <<'END'
import os, shutil, tempfile, json, hashlib, subprocess, glob, pathlib, fcntl, mmap, csv, errno, zipfile
d = os.environ["D"]; os.chdir(d)
assert os.getcwd() == d, os.getcwd()
with open("f", "w") as f: f.write("text\n" * 1000)
assert open("f").read() == "text\n" * 1000
with open("f", "r+b") as f:
    f.seek(10); f.write(b"XYZ"); f.seek(0); assert f.read(16) == b"text\ntext\nXYZt\nt"
    f.truncate(100); assert os.fstat(f.fileno()).st_size == 100
with open("f", "ab") as f: assert f.tell() == 100; f.write(b"end")
assert os.path.getsize("f") == 103
os.makedirs("a/b/c"); open("a/b/c/x", "w").close(); os.rename("a/b/c/x", "a/y")
assert sorted(os.listdir("a")) == ["b", "y"]
assert sorted(e.name for e in os.scandir("a") if e.is_dir()) == ["b"]
assert [len(x[2]) for x in os.walk(".")] and sum(len(x[2]) for x in os.walk(".")) == 2
os.symlink("a/y", "link"); assert os.readlink("link") == "a/y" and os.path.islink("link")
os.link("f", "hard"); assert os.stat("hard").st_nlink == 2 and os.path.samefile("f", "hard")
assert os.path.realpath("link") == d + "/a/y"
os.utime("f", ns=(1_000_000_001, 2_000_000_002)); assert os.stat("f").st_mtime_ns == 2_000_000_002
os.chmod("f", 0o640); assert os.stat("f").st_mode & 0o777 == 0o640
shutil.copytree("a", "a2"); shutil.copy2("f", "g"); shutil.move("g", "a2/g"); shutil.rmtree("a2"); assert not os.path.exists("a2")
with tempfile.TemporaryDirectory(dir=".") as t:
    with tempfile.NamedTemporaryFile(dir=t) as n: n.write(b"q"); n.flush(); assert os.path.exists(n.name)
    with tempfile.TemporaryFile(dir=t) as n: n.write(b"q"); n.seek(0); assert n.read() == b"q"
json.dump({"k": [1, 2]}, open("j", "w")); assert json.load(open("j")) == {"k": [1, 2]}
assert subprocess.check_output(["cat", "j"]) == b'{"k": [1, 2]}'
assert subprocess.run("echo sub > s; cat s", shell=True, capture_output=True).stdout == b"sub\n"
with open("out", "w") as o: subprocess.run(["echo", "child"], stdout=o)
assert open("out").read() == "child\n"
assert subprocess.run(["cat"], stdin=open("out"), capture_output=True, cwd=d + "/a").stdout == b"child\n"
assert subprocess.check_output(["pwd"], cwd="a").decode().strip() == d + "/a"
assert sorted(glob.glob("*.nothing") + glob.glob("ha*")) == ["hard"]
p = pathlib.Path("p"); p.write_bytes(b"\0\1" * 70000); assert p.read_bytes() == b"\0\1" * 70000
fd = os.open("raw", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
assert os.write(fd, b"0123456789") == 10 and os.pread(fd, 4, 3) == b"3456" and os.pwrite(fd, b"AB", 1) == 2
assert os.lseek(fd, 0, os.SEEK_END) == 10 and os.readv(fd, [bytearray(4)]) == 0
assert os.writev(fd, [b"xx", b"yy"]) == 4; os.fsync(fd); os.fdatasync(fd)
d2 = os.dup(fd); os.lseek(d2, 0, 0); assert os.read(fd, 3) == b"0AB"; os.close(d2)
fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB); fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 4, 2)
pid = os.fork()
if pid == 0:
    code = 0
    try:
        g = os.open("raw", os.O_RDWR)
        try: fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 3); code |= 1
        except OSError as e: assert e.errno in (errno.EAGAIN, errno.EACCES)
        fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 8)
        try: fcntl.flock(g, fcntl.LOCK_EX | fcntl.LOCK_NB); code |= 2
        except OSError as e: assert e.errno == errno.EWOULDBLOCK
        assert os.write(fd, b"!") == 1
    except BaseException as e:
        print("child", repr(e)); code |= 4
    os._exit(code)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert os.lseek(fd, 0, os.SEEK_CUR) == 4, "the offset is shared with the child"
os.close(fd)
m = mmap.mmap(os.open("p", os.O_RDONLY), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ); assert m[:4] == b"\0\1\0\1" and len(m) == 140000
dirfd = os.open("a", os.O_RDONLY | os.O_DIRECTORY); assert os.stat("y", dir_fd=dirfd).st_size == 0
os.mkdir("viafd", dir_fd=dirfd); os.rmdir("viafd", dir_fd=dirfd); os.fchdir(dirfd); assert os.getcwd() == d + "/a"; os.chdir("..")
for bad, want in ((lambda: open("nope"), errno.ENOENT), (lambda: os.mkdir("a"), errno.EEXIST), (lambda: os.rmdir("a"), errno.ENOTEMPTY),
                  (lambda: os.listdir("f"), errno.ENOTDIR), (lambda: open("a", "w"), errno.EISDIR), (lambda: os.open("f", os.O_CREAT | os.O_EXCL), errno.EEXIST),
                  (lambda: os.rename("f", "/tmp/weldfs-no"), errno.EXDEV) if d.startswith("/weld") else (lambda: open("nope"), errno.ENOENT),
                  (lambda: open("x" * 300, "w"), errno.ENAMETOOLONG)):
    try: bad(); raise SystemExit("no error for %r" % want)
    except OSError as e: assert e.errno == want, (e, want)
with zipfile.ZipFile("z.zip", "w") as z: z.write("p")
assert zipfile.ZipFile("z.zip").read("p") == p.read_bytes()
import concurrent.futures as cf
def work(i):
    with open("th%d" % i, "wb") as f:
        for k in range(50): f.write(bytes([i]) * 1000)
    return os.path.getsize("th%d" % i)
with cf.ThreadPoolExecutor(8) as ex: assert set(ex.map(work, range(32))) == {50000}
import multiprocessing as mp
with mp.get_context("fork").Pool(4) as pool: assert set(pool.map(work, range(16))) == {50000}
print("python ok", hashlib.sha256(p.read_bytes()).hexdigest()[:8])
END
cd "$D" && python3 -c 'print("script in the device")' > s.txt && cat s.txt && echo 'import os; print(sorted(os.listdir("."))[:2])' > mod.py && python3 mod.py && python3 -c 'import mod' && ls __pycache__ | wc -l
