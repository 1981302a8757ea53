# needs: /usr/bin/python3
# Shared mappings that write: what a mapping changes is read, what is written is seen in mappings, also of others.
cd "$D" || exit 1
/usr/bin/python3 - <<'END'
import mmap, os
with open("f", "w+b") as f:
    f.truncate(1 << 20)
    with mmap.mmap(f.fileno(), 0) as m:
        m[100:105] = b"first"; m[-4:] = b"last"
        m.flush()
        assert os.pread(f.fileno(), 5, 100) == b"first"
        os.pwrite(f.fileno(), b"written", 5000)
        assert m[5000:5007] == b"written"
        with mmap.mmap(f.fileno(), 8192, offset=4096) as other:
            other[10:14] = b"both"
            assert m[4106:4110] == b"both"
        child = os.fork()
        if child == 0:
            m[200:205] = b"child"
            os._exit(0)
        os.waitpid(child, 0)
        assert m[200:205] == b"child"
    with mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as m:
        m[100:105] = b"mine!"
        assert os.pread(f.fileno(), 5, 100) == b"first"
    f.truncate(2 << 20)
    with mmap.mmap(f.fileno(), 0) as m:
        m[(2 << 20) - 3:] = b"end"
data = open("f", "rb").read()
assert len(data) == 2 << 20 and data[-3:] == b"end" and data[200:205] == b"child", data[195:210]
print("mapped")
END
[ $? = 0 ] && sha256sum < f
