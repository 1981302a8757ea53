# needs: /usr/bin/python3
# Files that one process maps shared while others read, write, cut and rename them by calls.
cd "$D" || exit 1
cat > "$T/other.py" <<'END'
import os, sys
def astray(to):
    """Closes what a library has of the mapped file beside this program's own descriptors, and uses its number."""
    for number in os.listdir("/proc/self/fd"):
        try:
            if ".weldfs-" in os.readlink("/proc/self/fd/" + number):
                os.dup2(to, int(number))
        except OSError:
            pass
for line in sys.stdin:
    try:
        said = eval(line)
    except OSError as e:
        said = os.strerror(e.errno)
    print(repr(said), flush=True)
END
/usr/bin/python3 - "$T/other.py" <<'END'
import mmap, os, subprocess, sys, tempfile
other = subprocess.Popen([sys.executable, sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def there(what):
    other.stdin.write(what + "\n"); other.stdin.flush()
    return eval(other.stdout.readline())
def check(got, want):
    assert got == want, (got, want)
def equal(what, want):
    check(there(what), want)

kind = subprocess.run(["stat", "-f", "-c", "%t", "."], stdout=subprocess.PIPE, text=True).stdout.strip()
alone = kind == "65735546" and "WELDFS_SOCKET" not in os.environ  # a mount, without the library
f = os.open("f", os.O_RDWR | os.O_CREAT, 0o644)
os.write(f, b"." * 20000)
# The other has it open, with an offset, before anyone maps it.
equal("globals().update(g=os.open('f', os.O_RDWR), a=os.open('f', os.O_WRONLY | os.O_APPEND))", None)
equal("os.read(g, 3)", b"...")
m = mmap.mmap(f, 20000)
m[0:8] = b"mapped-1"; m[9000:9004] = b"deep"
equal("os.pread(g, 8, 0)", b"mapped-1")
equal("os.read(g, 5)", b"ped-1")
equal("os.lseek(g, 0, 1)", 8)
equal("os.readv(g, [bytearray(992), bytearray(3)])", 995)
equal("os.preadv(g, [bytearray(2), bytearray(2)], 9000)", 4)
equal("os.pwrite(g, b'WRITE', 9002)", 5)
check(m[9000:9008], b"deWRITE.")
m[9007:9010] = b"MAP"
equal("os.pread(g, 10, 9000)", b"deWRITEMAP")
equal("[os.lseek(g, 100, 0), os.write(g, b'here'), os.lseek(g, 0, 1)]", [100, 4, 104])
check(m[100:105], b"here.")
equal("[os.write(a, b'at the end'), os.lseek(a, 0, 1), os.fstat(g).st_size]", [10, 20010, 20010])
check(os.pread(f, 20, 19995), b".....at the end")
equal("open('f', 'rb').read()[9000:9010]", b"deWRITEMAP")
m[1:4] = b"AST"
equal("__import__('shutil').copyfile('f', 'copy') and open('copy', 'rb').read(8)", b"mASTed-1")
# Numbers that the program never got are closed, and given to another file: no byte goes astray.
equal("globals().update(h=os.open('h', os.O_RDWR | os.O_CREAT)) or astray(h)", None)
equal("[os.pwrite(g, b'astray?', 200), os.pread(g, 7, 200), os.fstat(h).st_size]", [7, b"astray?", 0])
check(m[200:207], b"astray?")
# What the file is called does not matter.
os.rename("f", "renamed")
m[300:303] = b"ren"
equal("os.pread(g, 3, 300)", b"ren")
os.unlink("renamed")
m[400:404] = b"gone"
equal("[os.pread(g, 4, 400), os.pwrite(g, b'GO', 400), os.fstat(g).st_nlink]", [b"gone", 2, 0])
check(m[400:404], b"GOne")
# A descriptor that was passed on.
m[500:503] = b"fd:"
os.lseek(f, 500, 0)
check(subprocess.run(["head", "-c", "3"], stdin=f, stdout=subprocess.PIPE).stdout, b"fd:")
# A child shares mapping and offset.
os.lseek(f, 0, 0)
if os.fork() == 0:
    m[600:605] = b"child"
    check(os.read(f, 4), b"mAST")
    os._exit(0)
os.wait()
check((m[600:605], os.read(f, 4)), (b"child", b"ed-1"))
# Cut: pages beyond the end do not come back.
m[16000:16004] = b"tail"
equal("os.ftruncate(g, 12000)", None)
equal("[os.fstat(g).st_size, os.ftruncate(g, 20000), os.pread(g, 4, 16000)]", [12000, None, b"\0\0\0\0"])
check(m[16000:16004], b"\0\0\0\0")
m[700:704] = b"last"
m.close(); os.close(f)
equal("[os.pread(g, 4, 700), os.fsync(g), os.pread(g, 8, 0), os.close(g), os.close(a)]", [b"last", None, b"mASTed-1", None, None])
# Without a name from the start; read-only beside a writer; opened anew with O_TRUNC.
with tempfile.TemporaryFile(dir=".") as t:
    t.truncate(8192)
    n = mmap.mmap(t.fileno(), 8192)
    n[5000:5004] = b"temp"
    check(os.pread(t.fileno(), 4, 5000), b"temp")
with open("w", "wb") as w:
    w.write(b"old" * 2000)
r = os.open("w", os.O_RDONLY)
view = mmap.mmap(r, 6000, prot=mmap.PROT_READ)
check(view[0:3], b"old")
equal("[globals().update(w=os.open('w', os.O_RDWR)), os.pwrite(w, b'new', 0)]", [None, 3])
check(view[0:3], b"new")
equal("open('w', 'r+b').truncate(3)", 3)
equal("open('w', 'wb').write(b'fresh') and os.stat('w').st_size", 5)
check(os.pread(r, 100, 0), b"fresh")
view.close()
equal("open('w', 'rb').read()", b"fresh")
# A mapping of a descriptor that appends is written back where it lies; reads go on from the offset.
x = os.open("x", os.O_RDWR | os.O_CREAT | os.O_APPEND)
os.write(x, b"0" * 8192)
p = mmap.mmap(x, 8192)
p[10:12] = b"in"; p.flush()
check((os.fstat(x).st_size, os.lseek(x, 8, 0), os.read(x, 4), os.read(x, 2), os.lseek(x, 0, 1)), (8192, 8, b"00in", b"00", 14))
equal("[globals().update(x=os.open('x', os.O_RDWR)), os.pwritev(x, [b'at', b'end'], -1, os.RWF_APPEND), os.lseek(x, 0, 1)]", [None, 5, 8197])
equal("[os.pwritev(x, [b'!'], 3, os.RWF_APPEND), os.write(x, b'?'), os.fstat(x).st_size]", [1, 1, 8198])
check(os.pread(x, 10, 8190), b"00atend?")
# Cut by the name of a descriptor, at an open, and grown again: nothing of the old comes back.
p[5000:5004] = b"gone"
equal("[os.close(os.open('/dev/fd/%d' % x, os.O_WRONLY | os.O_TRUNC)), os.ftruncate(x, 8192), os.pread(x, 4, 5000)]", [None, None, b"\0" * 4])
p[6000:6004] = b"gone"
equal("[os.truncate('/dev/fd/%d' % x, 100), os.ftruncate(x, 8192), os.pread(x, 4, 6000)]", [None, None, b"\0" * 4])
check((p[5000:5004], p[6000:6004]), (b"\0" * 4,) * 2)
# What only a mapping has filled is no hole.
with open("sparse", "w+b") as h:
    h.truncate(1 << 20)
    q = mmap.mmap(h.fileno(), 1 << 20)
    q[512 << 10:(512 << 10) + 5] = b"found"
    if alone: q.flush()
    equal("[globals().update(s=os.open('sparse', os.O_RDONLY)), os.lseek(s, 0, os.SEEK_DATA)]", [None, 512 << 10])
    os.system("cp sparse copied; tar -S -cf - sparse | tar -xOf - > extracted; cmp copied extracted")
    check(open("extracted", "rb").read()[512 << 10:][:5], b"found")
# Processes that share an offset write one behind the other, whoever maps the file.
log = os.open("log", os.O_RDWR | os.O_CREAT)
os.ftruncate(log, 4096)
seen = mmap.mmap(log, 4096)
os.lseek(log, 0, 0)
line = "import os\nfor i in range(50): os.write(1, b'%s' * 9 + b'\\n')"
both = [subprocess.Popen([sys.executable, "-c", line % who], stdout=log) for who in "ab"]
for one in both: one.wait()
lines = seen[:1000].split(b"\n")
check((sorted(lines[:100]), os.lseek(log, 0, 1)), ([b"a" * 9] * 50 + [b"b" * 9] * 50, 1000))
# Many threads come upon one mapped file at once.
import threading
many = [os.open("log", os.O_RDWR) for i in range(150)]
wrong = []
def touch(fd):
    try:
        if os.pread(fd, 4, 0) not in (b"aaaa", b"bbbb"): wrong.append("bytes")
    except OSError as e: wrong.append(e)
threads = [threading.Thread(target=touch, args=[fd]) for fd in many]
for t in threads: t.start()
for t in threads: t.join()
check(wrong, [])
for fd in many: os.close(fd)
# One maps and unmaps while another writes: no byte is lost.
import select
def beside(name, flags, writes):
    """Maps a page or more again and again, and changes it, until the other has done its writes; what the file has."""
    file = os.open(name, os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, 65536)
    other.stdin.write("[globals().update(r=os.open('%s', os.O_RDWR | %s))] and [%s] and None\n" % (name, flags, writes))
    other.stdin.flush()
    while not select.select([other.stdout], [], [], 0)[0]:
        w = mmap.mmap(file, 65536)
        for i in range(8, 65536, 4096): w[i] = 0x79
        w.close()
    other.stdout.readline()
    size = os.fstat(file).st_size
    return os.pread(file, size, 0)
# (What a mount by itself does not promise: docs/MOUNT.md.)
if not alone:
  data = beside("race", 0, "os.pwrite(r, b'x', i * 16) for i in range(4000)")
  check([i for i in range(4000) if data[i * 16] != 0x78], [])
data = beside("appended", os.O_APPEND, "os.write(r, b'%03d,' % (i % 1000)) for i in range(3000)")
check([(i, data[65536 + i * 4:][:4]) for i in range(3000) if data[65536 + i * 4:][:3] != b"%03d" % (i % 1000)][:3], [])
check(len(data), 65536 + 12000)
other.stdin.close(); other.wait()
print("agreed")
END
[ $? = 0 ] && rm -f race && ls && sha256sum < copy
