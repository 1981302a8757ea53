//! Reads that are answered by what earlier ones brought: no program can tell, whoever changes the file, and a device is
//! asked less often.

use crate::merging::{over_served, with_each_setting};
use crate::programs::weldfs_run;

/// Files that are read in order, here and there, and again, while they are changed by their own process and others.
const CHANGING: &str = r#"
import os, random, subprocess, threading
random.seed(5)
p, n = "/weld/f", 300_001
data = bytearray(random.randbytes(n))
def put(name, bytes):
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for at in range(0, len(bytes), 50_000): os.write(fd, bytes[at:at + 50_000])
    os.close(fd)
put(p, data)
def all_of(fd, size):
    out = b""
    while part := os.read(fd, size): out += part
    return out
out = []
for size in (100, 4096, 5000, 16_384, 32_768, 65_536, 200_000):
    fd = os.open(p, os.O_RDONLY)
    assert all_of(fd, size) == data, size
    out.append((os.lseek(fd, 0, 1), os.read(fd, 10), os.lseek(fd, -5, 2), os.read(fd, 10), os.lseek(fd, 7, 0)))
    assert os.read(fd, 9000) == data[7:9007] and os.lseek(fd, 100, 1) == 9107 and os.read(fd, 50) == data[9107:9157]
    os.close(fd)
assert open(p, "rb").read() == data and b"".join(open(p, "rb", buffering=777).readlines()) == data
fd = os.open(p, os.O_RDONLY)
def same(tag):
    for _ in range(40):
        at, k = random.randrange(n + 5000), random.choice([1, 10, 4096, 20_000, 40_000])
        assert os.pread(fd, k, at) == data[at:at + k], (tag, at, k)
same("nothing")
# By descriptors that are closed: as long as one may write, nothing is kept where writes do not wait.
for i in range(200):
    at, piece = random.randrange(n - 30_000), random.randbytes(random.choice([1, 100, 30_000]))
    w = os.open(p, os.O_WRONLY); os.pwrite(w, piece, at); os.close(w); data[at:at + len(piece)] = piece
    for _ in range(5): assert os.pread(fd, min(len(piece), 9000), at) == piece[:9000], i
    if i % 20 == 0: same("closed")
w = os.open(p, os.O_RDWR)
for i in range(60):
    at, piece = random.randrange(n - 30_000), random.randbytes(random.choice([1, 100, 30_000]))
    os.pwrite(w, piece, at); data[at:at + len(piece)] = piece
    assert os.pread(fd, len(piece), at) == piece
    same("another descriptor")
os.close(w)
for i in range(8):
    at, piece = random.randrange(n - 4000), b"%04d" % i
    subprocess.run(["dd", "of=" + p, "bs=1", f"seek={at}", "conv=notrunc", "status=none"], input=piece, check=True)
    data[at:at + 4] = piece
    assert os.pread(fd, 4, at) == piece
    same("another process")
# What another one has done when it says so is there.
r, w = os.pipe(); r2, w2 = os.pipe()
pid = os.fork()
if pid == 0:
    f = os.open(p, os.O_WRONLY)
    for i in range(400):
        os.pwrite(f, b"%08d" % i, 120_000); os.write(w, b"x"); os.read(r2, 1)
    os._exit(0)
for i in range(400):
    os.read(r, 1)
    for _ in range(4): assert os.pread(fd, 8, 120_000) == b"%08d" % i, i
    os.write(w2, b"x")
os.waitpid(pid, 0); data[120_000:120_008] = b"%08d" % 399
same("a child")
# An offset is one for all that share it.
os.lseek(fd, 0, 0); twin = os.dup(fd)
assert os.read(fd, 1000) + os.read(twin, 1000) + os.read(fd, 5000) == data[:7000]
if os.fork() == 0: os.read(fd, 50); os._exit(0)
os.wait(); assert os.lseek(twin, 0, 1) == 7050 and os.read(twin, 4096) == data[7050:11_146]
out.append(subprocess.run(["head", "-c", "20"], stdin=fd, capture_output=True).stdout == data[11_146:11_166])
# Cut, grown, punched, appended to; a name that is another file's.
os.truncate(p, 50_000); data[50_000:] = b""; n = 50_000; same("cut")
os.truncate(p, 70_000); data += bytes(20_000); n = 70_000; same("grown")
a = os.open(p, os.O_WRONLY | os.O_APPEND); tail = os.open(p, os.O_RDONLY); assert all_of(tail, 4096) == data
for i in range(100):
    os.write(a, b"%d," % i); data += b"%d," % i; assert os.read(tail, 4096) == b"%d," % i and os.read(tail, 10) == b""
os.close(a); n = len(data); same("appended to")
put(p + "2", b"other" * 9000); before = bytes(data); os.rename(p + "2", p); same("replaced")
assert all_of(os.open(p, os.O_RDONLY), 4096) == b"other" * 9000 and bytes(data) == before
os.close(tail); os.close(twin); os.close(fd)
# Of threads that read one descriptor each gets other bytes, and all of them are read.
put(p, bytes(i % 251 for i in range(200_000)))
fd = os.open(p, os.O_RDONLY); lock, got = threading.Lock(), []
def take():
    while part := os.read(fd, 1000):
        with lock: got.append(part)
ts = [threading.Thread(target=take) for _ in range(4)]; [t.start() for t in ts]; [t.join() for t in ts]
parts = sorted(bytes(j % 251 for j in range(i, i + 1000)) for i in range(0, 200_000, 1000))
out.append((len(got), sorted(got) == parts))
d = os.open("/weld", os.O_RDONLY)
for call in (lambda: os.read(d, 10), lambda: os.pread(d, 10, 0), lambda: os.pread(fd, 10, -1)):
    try: call()
    except OSError as e: out.append(e.errno)
print(out)
"#;

#[test]
fn what_reads_brought_is_what_the_file_is() {
    let posted = with_each_setting(CHANGING);
    assert!(posted > 1000, "{posted}");
    let (_, _, report) = over_served("pmem", ("read", ""), &|_| CHANGING.to_owned());
    let read =
        |line: &str| line.contains("not waited for: read").then(|| line.split_whitespace().last()?.parse::<u64>().ok());
    let answered: u64 = report.lines().filter_map(read).flatten().sum();
    assert!(answered > 1000, "{answered} of these were answered by what reads had brought\n{report}");
}

/// Commands that a script needs which begins behind the line `#`, and its report.
fn commands(setting: &str, cache: &str, script: &str) -> (u64, String) {
    let (before, after, report) = over_served("pmem", (setting, cache), &|_| script.to_owned());
    let reads = |stats: &serde_json::Value| stats["total"]["commands_by_opcode"]["read"].as_u64().unwrap_or(0);
    (reads(&after) - reads(&before), report)
}

#[test]
fn a_file_that_is_read_in_order_or_again_is_asked_for_in_few_pieces() {
    let script = |then: &str| {
        format!(
            r#"
import os, random
p, n = "/weld/f", 2 << 20
fd = os.open(p, os.O_WRONLY | os.O_CREAT); data = os.urandom(n)
for at in range(0, n, 65536): os.pwrite(fd, data[at:at + 65536], at)
os.close(fd); fd = os.open(p, os.O_RDONLY)
{then}
"#
        )
    };
    let in_order = script("for at in range(0, n, 4096): assert os.read(fd, 4096) == data[at:at + 4096]");
    let again = script(
        "random.seed(3)
for _ in range(4000): at = random.randrange(n); assert os.pread(fd, 4096, at) == data[at:at + 4096]",
    );
    // 128 reads, three in a piece. Heads of 12 bytes and what follows them, anywhere: two in a row, and never a third.
    let pairs = script(
        "random.seed(3)
for _ in range(2000):
    at = random.randrange(n)
    assert os.pread(fd, 12, at) + os.pread(fd, 300, at + 12) == data[at:at + 312]",
    );
    let behind_a_head = script(
        "assert os.read(fd, 4) == data[:4]
for at in range(4, n - 16384, 16384): assert os.read(fd, 16384) == data[at:at + 16384]",
    );
    for (script, cache, least, most) in [
        // 512 reads; some 40 pieces, and more where this process stood still for as long as it may rely on one.
        (&in_order, "", 32, 200),
        (&in_order, "64K", 32, 200),
        (&in_order, "0", 512, 600),
        // 4,000 reads; 128 chunks that each are asked for once or so.
        (&again, "", 100, 800),
        // A quarter of what fits is all that is kept of it: then each is asked for.
        (&again, "1M", 4_000, 4_100),
        (&again, "0", 4_000, 4_100),
        (&pairs, "64K", 3_500, 4_100),
        (&behind_a_head, "1M", 35, 90),
    ] {
        let (asked, report) = commands("on", cache, script);
        assert!((least..=most).contains(&asked), "WELDFS_CACHE={cache}: {asked} reads\n{script}\n{report}");
    }
    let (asked, _) = commands("off", "", &in_order);
    assert!((512..=600).contains(&asked), "{asked}");
}

/// How many bytes the device gives for reads of which two are in a row, and never three, of a file that does not fit.
#[test]
fn what_is_not_read_in_order_is_not_brought() {
    let script = r#"
import os, random
p, n = "/weld/f", 8 << 20
fd = os.open(p, os.O_WRONLY | os.O_CREAT)
for at in range(0, n, 65536): os.pwrite(fd, bytes(65536), at)
os.close(fd); fd = os.open(p, os.O_RDONLY)
for _ in range(5000): at = random.randrange(n); os.pread(fd, 12, at); os.pread(fd, 1000, at + 12)
"#;
    let (before, after, report) = over_served("pmem", ("on", "256K"), &|_| script.to_owned());
    let given = |stats: &serde_json::Value| stats["total"]["payload_bytes_out"].as_u64().unwrap();
    let (given, asked) = (given(&after) - given(&before), 5000 * 1012);
    assert!(given >= asked && given < 4 * asked, "{given} bytes for {asked}\n{report}");
}

/// Threads that share an offset take turns; where no memory is to be had for what reads bring, nothing is asked for in
/// vain; and a handler of a signal reads where its thread was reading.
#[test]
fn threads_little_memory_and_handlers_change_nothing() {
    let script = r#"
import ctypes, os, resource, signal, threading
p, n = "/weld/f", 6 << 20
data = os.urandom(n); fd = os.open(p, os.O_WRONLY | os.O_CREAT)
for at in range(0, n, 65536): os.pwrite(fd, data[at:at + 65536], at)
os.close(fd); fd = os.open(p, os.O_RDONLY); got, lock = [], threading.Lock()
def take():
    while part := os.read(fd, 8192):
        with lock: got.append(part)
ts = [threading.Thread(target=take) for _ in range(4)]; [t.start() for t in ts]; [t.join() for t in ts]
assert sorted(got) == sorted(data[at:at + 8192] for at in range(0, n, 8192))
seen, other = [0], os.open(p, os.O_RDONLY)
def handler(*_):
    at = seen[0] * 777 % (n - 5000); seen[0] += 1
    assert os.pread(other, 5000, at) == data[at:at + 5000] and os.pread(fd, 50, at) == data[at:at + 50]
signal.signal(signal.SIGALRM, handler); signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
for _ in range(3):
    os.lseek(fd, 0, 0); os.lseek(other, 0, 0)
    for at in range(0, n, 4096): assert os.read(other, 4096) == data[at:at + 4096]
signal.setitimer(signal.ITIMER_REAL, 0); assert seen[0] > 0
if os.fork() == 0:
    for at in range(0, n, 4096): assert os.pread(other, 4096, at) == data[at:at + 4096]
    os._exit(0)
assert os.wait()[1] == 0
"#;
    over_served("pmem", ("on", ""), &|_| script.to_owned());
    let little = r#"
import os, resource
resource.setrlimit(resource.RLIMIT_AS, (100 << 20, 100 << 20))
p, n = "/weld/f", 1 << 20
fd = os.open(p, os.O_WRONLY | os.O_CREAT); os.ftruncate(fd, n); os.close(fd); fd = os.open(p, os.O_RDONLY)
for at in range(0, n, 4096): assert os.read(fd, 4096) == bytes(4096)
"#;
    let (asked, report) = commands("on", "", little);
    assert!((256..=300).contains(&asked), "{asked} reads\n{report}");
    // Not for all that may be kept, but for what is kept where nothing is said.
    let (asked, report) = commands("on", "64M", &little.replace("100 <<", "200 <<"));
    assert!((16..=150).contains(&asked), "{asked} reads\n{report}");
}

/// A size that means nothing is said at once; one that means something is for the programs that are executed, too.
#[test]
fn the_size_of_what_is_kept_is_checked_and_passed_on() {
    for odd in ["1", "8MB", "-1", "1G", "lots"] {
        let mut run = weldfs_run(&["--mount", "never", "--", "true"]);
        let output = run.env("WELDFS_CACHE", odd).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("WELDFS_CACHE"), "{odd}: {said}");
    }
    let mut run = weldfs_run(&["--mount", "never", "--", "env", "-i", "/bin/sh", "-c", "echo $WELDFS_CACHE"]);
    let output = run.env("WELDFS_CACHE", "128K").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "128K\n");
    // Nothing is said: a part of the memory that there is.
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
    let kib: u64 = total.trim().trim_end_matches(" kB").parse().unwrap();
    let mut run = weldfs_run(&["--mount", "never", "--", "/bin/sh", "-c", "echo $WELDFS_CACHE"]);
    let output = run.env_remove("WELDFS_CACHE").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    // A control group may leave less than that, and of little memory nothing is said, which means 8M.
    let kept = said.strip_suffix('K').map_or(8 << 10, |kib| kib.parse::<u64>().unwrap());
    let most = (kib / 200).clamp(8 << 10, 64 << 10);
    assert!((8 << 10..=most).contains(&kept), "{said} of {kib} KiB");
}
