//! Calls that do not wait: no program can tell, whoever looks.

use crate::images::{Bench, Served, json, ok};
use crate::programs::weldfs_run;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

/// What a script prints with each setting, and how many of its calls did not wait with `on`.
pub fn with_each_setting(script: &str) -> u64 {
    let mut told = Vec::new();
    for setting in ["off", "on", "write,look", "attributes,close", "close", "look", "names", "read"] {
        let mut run = weldfs_run(&["--mount", "never", "--", "python3", "-c", script]);
        let output = run.env("WELDFS_AUTOMERGE", setting).env("WELDFS_REPORT", "1").output().unwrap();
        let (said, report) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{setting}: {said}{report}");
        let posted =
            |line: &str| line.contains("not waited for").then(|| line.split_whitespace().last()?.parse::<u64>().ok());
        told.push((setting, said.into_owned(), report.lines().filter_map(posted).flatten().sum::<u64>()));
    }
    for (setting, said, posted) in &told {
        assert_eq!(said, &told[0].1, "{setting}");
        let some = *posted > 0;
        assert!(some || *setting != "on", "not one call did not wait");
        assert!(!some || *setting != "off", "{posted} calls did not wait");
    }
    told[1].2
}

/// What is written is read back at once: by the process, by name, by a thread, a child, a program that is executed,
/// through a duplicate, after seeks, appends and cuts.
#[test]
fn what_did_not_wait_is_found_by_whoever_looks() {
    let posted = with_each_setting(
        r#"
import os, threading, subprocess
p = "/weld/f"
def cat(name=p): return open(name, "rb").read()
out = []
for i in range(60):
    fd = os.open(p, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    for n in range(5): os.write(fd, b"%d," % (i * n))
    os.fchmod(fd, 0o640 + i % 8); os.utime(fd, (i, 1000 + i))
    st = os.stat(p); out.append((st.st_size, oct(st.st_mode), int(st.st_mtime)))
    out.append(cat()); out.append(os.lseek(fd, 0, os.SEEK_CUR))
    os.pwrite(fd, b"head", 0); out.append(os.pread(fd, 9, 0))
    found = []
    t = threading.Thread(target=lambda: (os.write(fd, b"thread"), found.append(cat())))
    t.start(); t.join(); out.append(found)
    os.write(fd, b"again")
    if i % 6 == 0:
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(w, cat()); os.write(fd, b"child"); os._exit(0)
        os.waitpid(pid, 0); out.append(os.read(r, 1000)); out.append(cat()); os.close(r); os.close(w)
        out.append(subprocess.run(["cat", p], capture_output=True).stdout)
    os.ftruncate(fd, 7); os.write(fd, b"z"); out.append(os.fstat(fd).st_size)
    twin = os.dup(fd); os.write(twin, b"twin"); os.close(fd); os.write(twin, b"!"); os.close(twin)
    out.append(cat())
    a = os.open(p, os.O_WRONLY | os.O_APPEND); b = os.open(p, os.O_WRONLY | os.O_APPEND)
    for n in range(4): os.write(a, b"a%d" % n); os.write(b, b"b%d" % n)
    os.writev(a, [b"x", b"", b"yz"]); out.append(cat()); os.close(a); os.close(b)
    os.rename(p, p + "2"); out.append(cat(p + "2")); os.unlink(p + "2")
print(out)
"#,
    );
    assert!(posted > 1000, "{posted}");
}

/// What an open brought along is what the file is, whoever changes it; and an offset is the same for all that share it.
#[test]
fn what_came_with_an_open_is_what_the_file_is() {
    let posted = with_each_setting(
        r#"
import os, subprocess, threading
def put(name, data, flags=os.O_TRUNC):
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | flags, 0o600); os.write(fd, data); os.close(fd)
def facts(fd):
    st = os.fstat(fd)
    return st.st_size, oct(st.st_mode), st.st_nlink, os.pread(fd, 7, 0)
out = []
for i in range(60):
    p = "/weld/f%d" % (i % 7)
    put(p, (b"%d-" % i) * (1 + i * 50 % 3000))
    fd = os.open(p, os.O_RDONLY); out.append(facts(fd))
    out.append([os.read(fd, 3), os.lseek(fd, 0, 1), os.lseek(fd, -1, 2), os.read(fd, 9), os.read(fd, 9)])
    out.append(os.lseek(fd, 1, 0))
    twin = os.dup(fd); out.append([os.read(twin, 2), os.lseek(fd, 0, 1), os.read(fd, 2), os.lseek(twin, 0, 1)])
    os.close(twin)
    w = os.open(p, os.O_WRONLY); os.pwrite(w, b"WW", 1); out.append(facts(fd))
    again = os.open(p, os.O_RDONLY); os.ftruncate(w, 3); out += [facts(fd), facts(again), os.read(again, 9)]
    os.fchmod(w, 0o640 + i % 8); out.append(facts(again)); os.close(again)
    again = os.open(p, os.O_RDONLY); os.link(p, p + "l"); out.append(facts(again))
    os.unlink(p + "l"); out.append(facts(again))
    os.close(w); os.close(again); put(p, b"0123456789")
    if i % 4 == 0:
        fd2 = os.open(p, os.O_RDONLY); out.append(os.read(fd2, 2))
        out += [subprocess.run(["head", "-c", "3"], stdin=fd2, capture_output=True).stdout, os.lseek(fd2, 0, 1)]
        fd3 = os.open(p, os.O_RDONLY); out.append(os.read(fd3, 1))
        r, s = os.pipe(); pid = os.fork()
        if pid == 0: os.write(s, os.read(fd3, 4)); os._exit(0)
        os.waitpid(pid, 0); out += [os.read(r, 9), os.read(fd3, 2)]; os.close(r); os.close(s); os.close(fd3)
        fd3 = os.open(p, os.O_RDONLY); subprocess.run(["sh", "-c", "printf changed >> " + p]); out.append(facts(fd3))
        os.close(fd3); os.close(fd2)
        fd3 = os.open(p, os.O_RDONLY); got = []
        def bites():
            while (b := os.read(fd3, 1)): got.append(b)
        threads = [threading.Thread(target=bites) for _ in range(4)]
        [t.start() for t in threads]; [t.join() for t in threads]; out.append(sorted(got)); os.close(fd3)
    d = os.open("/weld", os.O_RDONLY | os.O_DIRECTORY); before = os.fstat(d).st_mtime_ns; os.mkdir("/weld/d%d" % i)
    out.append(os.fstat(d).st_mtime_ns > before); os.close(d)
    os.unlink(p); out.append(os.fstat(fd).st_nlink); os.close(fd)
print(out)
# Each setting has something to do here.
fd = os.open("/weld/g", os.O_RDWR | os.O_CREAT, 0o600); os.write(fd, b"x"); os.fchmod(fd, 0o600); os.close(fd)
"#,
    );
    assert!(posted > 600, "{posted}");
}

/// Errors come from the calls they come from on any file system.
#[test]
fn calls_that_are_refused_say_so_themselves() {
    with_each_setting(
        r#"
import os, errno, resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
def tried(f, *args):
    try: return f(*args)
    except OSError as e: return errno.errorcode[e.errno]
fd = os.open("/weld/f", os.O_RDWR | os.O_CREAT, 0o600); r = os.open("/weld/f", os.O_RDONLY)
out = [os.write(fd, b"x" * 100), tried(os.write, r, b"x")]
out += [tried(os.pwrite, fd, b"x", 1 << 45), tried(os.pwrite, fd, b"x", -1)]
os.lseek(fd, (1 << 44) - 3, os.SEEK_SET)
out += [tried(os.write, fd, b"12345"), tried(os.ftruncate, fd, 1 << 45)]
os.lseek(fd, 0, os.SEEK_SET)
resource.setrlimit(resource.RLIMIT_FSIZE, (150, resource.RLIM_INFINITY))
out += [os.write(fd, b"y" * 120), tried(os.write, fd, b"z" * 100), tried(os.write, fd, b"z"), os.fstat(fd).st_size]
os.close(fd); out += [tried(os.write, fd, b"x"), tried(os.close, fd), tried(os.fchmod, fd, 0o600)]
if os.geteuid() == 0:
    os.chmod("/weld", 0o777)
    own = os.open("/weld/root", os.O_RDWR | os.O_CREAT, 0o600); os.fchmod(own, 0o666); os.close(own)
    pid = os.fork()
    if pid == 0:
        os.setgid(1000); os.setuid(1000)
        fd = os.open("/weld/root", os.O_RDWR); mine = os.open("/weld/mine", os.O_RDWR | os.O_CREAT, 0o600)
        wrong = [tried(os.fchmod, fd, 0o600), tried(os.fchown, mine, 0, 0), tried(os.fchmod, mine, 0o644)]
        os._exit(0 if wrong == ["EPERM", "EPERM", None] else 1)
    out.append(os.waitpid(pid, 0)[1])
last = os.open("/weld/last", os.O_WRONLY | os.O_CREAT, 0o600); os.write(last, b"x"); os.close(last)
print(out)
"#,
    );
}

/// A program that ends in whatever way has written what its calls said.
#[test]
fn what_did_not_wait_is_done_though_the_program_ends() {
    with_each_setting(
        r#"
import os, signal, sys
out = []
def child(end, n):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        fd = os.open("/weld/f%d" % n, os.O_WRONLY | os.O_CREAT, 0o600)
        for i in range(30): os.write(fd, b"%02d" % i)
        os.write(w, b"x")
        end(fd)
        os._exit(0)
    os.read(r, 1); os.close(r); os.close(w)
    if end is stay: os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return len(open("/weld/f%d" % n, "rb").read())
def stay(fd): signal.pause()
ends = [lambda fd: os._exit(3), lambda fd: os.kill(os.getpid(), signal.SIGKILL), lambda fd: os.close(fd), stay,
        lambda fd: os.execvp("true", ["true"]), lambda fd: os.abort(), lambda fd: sys.exit(0)]
for n in range(70): out.append(child(ends[n % len(ends)], n))
print(out)
fd = os.open("/weld/a", os.O_WRONLY | os.O_CREAT, 0o600); os.write(fd, b"x"); os.close(fd)
"#,
    );
}

/// Many threads that open, write, close and look, each with its own files and with one of all.
#[test]
fn threads_that_write_one_file_and_their_own_lose_nothing() {
    with_each_setting(
        r#"
import os, threading
shared = os.open("/weld/shared", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
wrong = []
def work(t):
    for i in range(40):
        name = "/weld/t%d-%d" % (t, i)
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, b"%d" % i * 100); os.write(shared, b"%02d;" % t); os.close(fd)
        if open(name, "rb").read() != b"%d" % i * 100: wrong.append(name)
        os.unlink(name)
threads = [threading.Thread(target=work, args=(t,)) for t in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
data = open("/weld/shared", "rb").read().split(b";")[:-1]
print(wrong, sorted(set(data)), len(data), all(data.count(b"%02d" % t) == 40 for t in range(8)))
os.write(shared, b"x"); os.close(shared)
"#,
    );
}

/// A setting that means nothing is said at once.
#[test]
fn a_setting_that_means_nothing_is_an_error() {
    let mut run = weldfs_run(&["--mount", "never", "--", "true"]);
    let output = run.env("WELDFS_AUTOMERGE", "writes").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("WELDFS_AUTOMERGE"), "{said}");
}

/// What a device says of its work since its start.
fn stats(image: &Path) -> serde_json::Value {
    json(&ok([OsStr::new("stats"), "--json".as_ref(), image.as_ref()]))
}

/// Runs a script of Python's, made for the device's process, over a served image with reports on: what the device says
/// before and after it, and the report.
pub fn over_served(
    medium: &str,
    (setting, cache): (&str, &str),
    script: &dyn Fn(u32) -> String,
) -> (serde_json::Value, serde_json::Value, String) {
    let bench = Bench::new();
    let image = bench.image("disk.img", medium);
    let served = Served::start(&image);
    let before = stats(&image);
    let mut run = Command::new(env!("CARGO_BIN_EXE_weldfs"));
    run.args(["run", "--mount", "never", "--image"]).arg(&image).args(["--", "python3", "-c", &script(served.pid())]);
    run.current_dir("/").stdin(Stdio::null()).env("WELDFS_AUTOMERGE", setting).env("WELDFS_REPORT", "1");
    run.env("WELDFS_CACHE", cache);
    let output = run.output().unwrap();
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}{report}", String::from_utf8_lossy(&output.stdout));
    let after = stats(&image);
    served.term();
    (before, after, report)
}

/// SQLite with a rollback journal asks four times for each of its commits: of the journal, of its directory, of the
/// journal with its header, and of the database. The directory has nothing then that is not durable already.
#[test]
fn sqlite_needs_fewer_flushes_than_it_asks_for() {
    let script = r#"
import sqlite3
db = sqlite3.connect("/weld/a.db", isolation_level=None)
db.execute("pragma journal_mode=delete"); db.execute("pragma synchronous=full")
db.execute("create table t(x)")
for i in range(100): db.execute("insert into t values(?)", ("x" * 100,))
assert db.execute("pragma integrity_check").fetchone() == ("ok",)
"#;
    for setting in ["on", "off"] {
        let (before, after, report) = over_served("block", (setting, ""), &|_| script.to_owned());
        let flushes = |stats: &serde_json::Value| stats["log"]["flushes"].as_u64().unwrap();
        let called = |line: &str| {
            let mut words = line.split_whitespace().skip(1);
            let name = words.next()?;
            ["fsync", "fdatasync"].contains(&name).then(|| words.next()?.parse::<u64>().ok())?
        };
        let (asked, had) = (report.lines().filter_map(called).sum::<u64>(), flushes(&after) - flushes(&before));
        println!("{setting}: {had} flushes, {asked} calls");
        assert!(asked >= 400 && had * 100 <= asked * 80, "{setting}: {had} flushes for {asked} calls\n{report}");
    }
}

/// Where a device is behind its client, what was posted becomes few records, and the client is told.
#[test]
fn writes_of_a_program_that_does_not_wait_share_records() {
    // The device stands still while they are posted.
    let script = |device: u32| {
        format!(
            r#"
import os, signal
fd = os.open("/weld/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
def stop(device):
    os.kill(device, signal.SIGSTOP)
    tasks = f"/proc/{{device}}/task"
    # It stands still when its threads have heard of it.
    while any(open(f"{{tasks}}/{{t}}/stat").read().rsplit(")", 1)[1].split()[0] != "T" for t in os.listdir(tasks)): pass
for r in range(50):
    if {device}: stop({device})
    for i in range(30): os.write(fd, b"%06d\n" % (r * 30 + i))
    if {device}: os.kill({device}, signal.SIGCONT)
    os.fsync(fd)
data = open("/weld/log", "rb").read()
assert data == b"".join(b"%06d\n" % i for i in range(1500))
"#
        )
    };
    let (before, after, report) = over_served("pmem", ("on", ""), &script);
    let of = |name: &str| {
        let count = |stats: &serde_json::Value| stats["total"][name].as_u64().unwrap();
        count(&after) - count(&before)
    };
    let records = after["log"]["records"].as_u64().unwrap() - before["log"]["records"].as_u64().unwrap();
    assert!(of("posted") >= 1500 && of("merged_writes") >= 50 * 20, "{report}");
    assert!(records <= 1500 - of("merged_writes") + 60, "{records} records");
    let told = |line: &str| {
        let line = line.contains("in one record with others").then_some(line)?;
        line.split_whitespace().last()?.parse::<u64>().ok()
    };
    let told: Vec<u64> = report.lines().filter_map(told).collect();
    assert_eq!(told, [of("merged_writes")], "{report}");
    let (before, after, _) = over_served("pmem", ("off", ""), &|_| script(0));
    assert_eq!(before["total"]["merged_writes"], after["total"]["merged_writes"]);
}
