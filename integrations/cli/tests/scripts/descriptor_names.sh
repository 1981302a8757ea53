# Names that mean an open descriptor: /dev/stdin, /dev/fd/N, /proc/self/fd/N.
cd "$D" || exit 1
printf '%s\n' one two three > f
cat /dev/stdin < f
cat /proc/self/fd/0 < f
cat /dev/fd/7 7< f
wc -c /dev/fd/0 < f
sed -n 2p /dev/stdin < f
sort -r /dev/stdin < f
cmp /dev/stdin f < f && echo same
cp /dev/stdin copy < f; cat copy
stat -L -c '%s %F' /dev/stdin < f
echo 'echo "script $1"; echo done' > s; bash /dev/stdin arg < s; sh /dev/stdin arg < s
echo text | tee /dev/stderr 2> e > o; cat e o
sort -r -o /dev/stdout f > g; cat g
(test -f /dev/stdin && test -s /dev/fd/0 && test -r /dev/stdin && echo regular) < f
exec 3< f; rm f; cat /dev/fd/3; exec 3<&-
# The shell opened these itself: what its names open is a new open file at offset 0.
printf '%s\n' one two > f
exec 3< f; read -r a <&3; exec 4< /dev/fd/3; read -r b <&4; read -r c <&3; echo "$a $b $c"; exec 3<&- 4<&-
(echo a; echo b >> /dev/stdout; echo c) > y; cat y
(echo long line; echo x > /dev/stdout) > z; cat z
python3 - <<'END'
import errno, os
d = os.environ["D"]; os.chdir(d)
def refused(want, call):
    try: call(); raise SystemExit("no error for %r" % want)
    except OSError as e: assert e.errno == want, (e, want)
fd = os.open("p", os.O_RDWR | os.O_CREAT, 0o640); os.write(fd, b"0123456789")
for name in "/dev/fd/%d" % fd, "/proc/self/fd/%d" % fd, "/proc/%d/fd/%d" % (os.getpid(), fd):
    assert open(name, "rb").read() == b"0123456789", name
    assert os.stat(name).st_ino == os.fstat(fd).st_ino and os.path.samefile(name, "p")
    assert os.readlink(name) == d + "/p" and os.path.islink(name)
    assert os.access(name, os.R_OK | os.W_OK)
    new = os.open(name, os.O_RDONLY | os.O_CLOEXEC); assert not os.get_inheritable(new)
    assert os.lseek(new, 3, 0) == 3 and os.lseek(fd, 0, 1) == 10; refused(errno.EBADF, lambda: os.write(new, b"x"))
    os.close(new)
    refused(errno.ELOOP, lambda: os.open(name, os.O_RDONLY | os.O_NOFOLLOW))
    refused(errno.EEXIST, lambda: os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    refused(errno.ENOTDIR, lambda: os.open(name, os.O_RDONLY | os.O_DIRECTORY))
os.chmod("/dev/fd/%d" % fd, 0o600); os.truncate("/proc/self/fd/%d" % fd, 4); os.utime("/dev/fd/%d" % fd, ns=(0, 5))
s = os.stat("p"); assert (s.st_mode & 0o777, s.st_size, s.st_mtime_ns) == (0o600, 4, 5)
with open("/dev/fd/%d" % fd, "ab") as f: f.write(b"end")
assert os.pread(fd, 20, 0) == b"0123end"
with open("/dev/fd/%d" % fd, "wb") as f: f.write(b"new"); f.flush(); assert os.pread(fd, 20, 0) == b"new"
os.rename("p", "moved"); assert os.stat("/dev/fd/%d" % fd).st_size == 3
os.unlink("moved"); assert os.stat("/dev/fd/%d" % fd).st_nlink == 0; os.lseek(fd, 0, 0)
assert open("/dev/fd/%d" % fd, "rb").read() == b"new"
os.close(os.open("/dev/fd/%d" % fd, os.O_WRONLY | os.O_TRUNC)); assert os.fstat(fd).st_size == 0
os.mkdir("dir"); open("dir/in", "w").close(); dirfd = os.open("dir", os.O_RDONLY)
assert os.listdir("/proc/self/fd/%d" % dirfd) == ["in"]
again = os.open("/dev/fd/%d" % dirfd, os.O_RDONLY | os.O_DIRECTORY); assert os.listdir(again) == ["in"]
refused(errno.EISDIR, lambda: os.open("/dev/fd/%d" % dirfd, os.O_WRONLY))
# Of two names one starts at a closed descriptor, or at one of no directory: that counts before what lies apart.
null, closed = os.open("/dev/null", os.O_RDONLY), os.dup(dirfd); os.close(closed); open("two", "w").close()
for call in os.rename, os.link:
    for want, base in (errno.EBADF, closed), (errno.ENOTDIR, null):
        refused(want, lambda: call("two", "new", src_dir_fd=base)); refused(want, lambda: call("two", "new", dst_dir_fd=base))
print("python ok")
END
