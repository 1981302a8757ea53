//! `WELDFS_ATOMIC`: what a program renames between two syncs is there together, or is not.

use crate::images::{Bench, Served};
use crate::programs::weldfs_run;
use std::process::{Command, Output, Stdio};
use weldfs::{Client, OpenFlags};

/// How a program saves its files: each beside its name, renamed over it.
const SAVE: &str = r#"
import os, sys
D = "/weld/d/"
def save(name, text):
    fd = os.open(D + name + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(fd, text); os.close(fd)
    os.rename(D + name + ".tmp", D + name)
def sync(): fd = os.open(D + "log", os.O_WRONLY | os.O_CREAT, 0o600); os.fsync(fd); os.close(fd)
def names(): return sorted(os.listdir(D))
def saved(n, text): [save("f%d" % i, text) for i in range(n)]
"#;

/// What a program has at hand before it saves any: a working directory, descriptors, a lock, another process that
/// looks.
const LOOKER: &str = r#"
import ctypes, fcntl, struct, subprocess, sys, threading, time
os.chdir(D); d = os.open(D, os.O_RDONLY); m = os.stat("f1", dir_fd=d).st_mtime_ns; t = os.stat(d).st_mtime_ns
x = os.open("/weld/x", os.O_RDWR | os.O_CREAT); os.write(x, b"x"); fcntl.lockf(x, fcntl.LOCK_EX); sizes = []
syscall = ctypes.CDLL(None, use_errno=True).syscall
def look(): sizes.append(os.stat(D + "f2").st_size)
def openat2(name):
    how = struct.pack("QQQ", os.O_RDONLY, 0, 8)
    return syscall(437, d, name.encode(), how, len(how))
ask, asked = os.pipe()[::-1]; answered, answer = os.pipe()
if os.fork() == 0:
    os.close(ask)
    while name := os.read(asked, 100): os.write(answer, open(D + name.decode(), "rb").read())
    os._exit(0)
def seen(name): os.write(ask, name.encode()); return os.read(answered, 100)
assert seen("f1") == b"old"
"#;

/// A served device with a directory for files, of which five are there.
struct Saved {
    bench: Bench,
    served: Served,
    client: Client,
}

impl Saved {
    fn new() -> Saved {
        let bench = Bench::new();
        let image = bench.image("disk.img", "pmem");
        let served = Served::start(&image);
        let client = Client::connect(bench.path("disk.img.sock")).expect("attaches");
        client.create_dir("/d").expect("a directory");
        for i in 0..5 {
            client.write(format!("/d/f{i}"), b"old").expect("a file");
        }
        Saved { bench, served, client }
    }

    fn command(&self, script: &str) -> Command {
        let mut run = Command::new(env!("CARGO_BIN_EXE_weldfs"));
        run.args(["run", "--mount", "never", "--image"]).arg(self.bench.path("disk.img"));
        run.args(["--", "python3", "-c"]).arg(format!("{SAVE}{script}")).current_dir("/").stdin(Stdio::null());
        run.env("WELDFS_ATOMIC", "/weld/d").env("WELDFS_REPORT", "1");
        run
    }

    fn run(&self, script: &str) -> Output {
        let output = self.command(script).output().unwrap();
        let report = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !report.contains("one by one"), "{report}");
        output
    }

    /// How many of the files have this content.
    fn with(&self, text: &[u8]) -> usize {
        let has = |i: &i32| {
            let mut found = [0; 16];
            let path = format!("/d/f{i}");
            let read = self.client.open_read_close(path, OpenFlags::READ, 0, &mut found[..]);
            read.is_ok_and(|n| found[..n] == *text)
        };
        (0..16).filter(has).count()
    }

    fn end(self) {
        drop(self.client);
        self.served.term();
        crate::images::ok(["fsck".as_ref(), "-n".as_ref(), self.bench.path("disk.img").as_os_str()]);
    }
}

/// Renames and transactions that the program's report tells of.
fn told(output: &Output) -> [u64; 2] {
    let report = String::from_utf8_lossy(&output.stderr);
    let of = |what: &str| {
        let line = |line: &str| line.contains(what).then(|| line.split_whitespace().last()?.parse::<u64>().ok())?;
        report.lines().filter_map(line).sum()
    };
    [of("renames kept"), of("transactions that made them")]
}

#[test]
fn others_find_all_saves_at_the_next_sync_and_none_before() {
    let saved = Saved::new();
    let script = "saved(5, b'new'); print('saved', flush=True); sys.stdin.readline()\n\
                  sync(); print('synced', flush=True); sys.stdin.readline()";
    let mut child = saved.command(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
    let (mut line, mut go) = (String::new(), child.stdin.take().unwrap());
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    assert_eq!((line.as_str(), saved.with(b"old"), saved.with(b"new")), ("saved\n", 5, 0));
    line.clear();
    std::io::Write::write_all(&mut go, b"\n").unwrap();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    assert_eq!((line.as_str(), saved.with(b"old"), saved.with(b"new")), ("synced\n", 0, 5));
    std::io::Write::write_all(&mut go, b"\n").unwrap();
    assert!(child.wait().unwrap().success());
    saved.end();
}

#[test]
fn a_program_that_is_killed_before_its_sync_has_saved_nothing() {
    let saved = Saved::new();
    let output = saved.command("saved(5, b'new'); os.kill(os.getpid(), 9)").output().unwrap();
    assert!(!output.status.success());
    assert_eq!((saved.with(b"old"), saved.with(b"new")), (5, 0));
    let output = saved.command("saved(5, b'new'); sync(); saved(5, b'more'); os.kill(os.getpid(), 9)");
    // What the first one wrote beside its names is there.
    let mut output = output;
    for i in 0..5 {
        saved.client.remove_file(format!("/d/f{i}.tmp")).unwrap();
    }
    assert!(!output.output().unwrap().status.success());
    assert_eq!((saved.with(b"new"), saved.with(b"more")), (5, 0));
    saved.end();
}

#[test]
fn the_program_itself_and_those_it_starts_find_what_it_saved() {
    let looks = [
        "assert open(D + 'f3', 'rb').read() == b'new'",
        "assert os.stat(D + 'f3').st_size == 3 and not os.path.exists(D + 'f3.tmp')",
        "assert names() == ['f0', 'f1', 'f2', 'f3', 'f4'], names()",
        "link = D + 'link'; os.symlink('f2', link); assert open(link, 'rb').read() == b'new'; os.unlink(link)",
        "os.unlink(D + 'f4'); assert names() == ['f0', 'f1', 'f2', 'f3']; save('f4', b'new')",
        "os.rename('/weld/d', '/weld/e'); assert os.stat('/weld/e/f0').st_size == 3; os.rename('/weld/e', '/weld/d')",
        "assert open('f1', 'rb').read() == b'new'",
        "assert os.stat('f1', dir_fd=d).st_mtime_ns != m, m",
        "assert os.stat(d).st_mtime_ns != t, t",
        "os.fchmod(d, 0o711); os.fchmod(d, 0o755)",
        "os.utime(d, (7, 7)); assert os.stat(D).st_mtime == 7",
        "assert openat2('f1.tmp') == -1 and openat2('f1') >= 0",
        "assert seen('f1') == b'old'",
        "os.stat('/weld/x'); os.path.exists(D + 'f9'); os.fstat(x); os.write(x, b'y'); assert seen('f1') == b'old'",
        "fcntl.flock(d, fcntl.LOCK_SH); assert seen('f1') == b'new'",
        "os.ftruncate(x, 0); assert seen('f1') == b'new'",
        "os.close(x); assert seen('f1') == b'new'",
        "os.close(os.dup(x)); assert seen('f1') == b'new'",
        "os.symlink('/weld/d', '/weld/l'); assert os.stat('/weld/l/.').st_mtime_ns != t",
        "os.rename('/weld/x', '/weld/y'); assert seen('f1') == b'new'",
        "os.unlink('/weld/x'); assert seen('f1') == b'new'",
        "open('/weld/x', 'w').close(); assert seen('f1') == b'new'",
        "time.sleep(1.1); os.path.exists('/weld/nothing'); assert seen('f1') == b'new'",
        "os.link(D + 'f0', D + 'x'); assert open(D + 'x', 'rb').read() == b'new'; os.unlink(D + 'x')",
        "assert os.system('test \"$(cat /weld/d/f1)\" = new') == 0",
        "p = os.fork()\nif p == 0: os._exit(os.stat(D + 'f1').st_size != 3)\nassert os.waitpid(p, 0)[1] == 0",
        "os.execvp('sh', ['sh', '-c', 'test \"$(cat /weld/d/f1)\" = new'])",
        "pass",
        "os._exit(0)",
        "t = threading.Thread(target=look); t.start(); t.join(); assert sizes == [3]",
        "subprocess.run(['true'], check=True); assert seen('f1') == b'new'; save('f1', b'new'); os._exit(0)",
        "syscall(231, 0)",
    ];
    for look in looks {
        let saved = Saved::new();
        let output = saved.run(&format!("{LOOKER}saved(5, b'new')\n{look}"));
        assert_eq!(saved.with(b"new"), 5, "{look}");
        assert!(told(&output)[0] >= 5, "{look}: {}", String::from_utf8_lossy(&output.stderr));
        saved.end();
    }
}

#[test]
fn a_transaction_holds_as_many_saves_as_it_says() {
    let saved = Saved::new();
    // Of a directory and two files each: sixteen inodes at most.
    let output = saved.run("saved(5, b'new'); sync(); saved(5, b'more'); saved_two = 0; sync()");
    assert_eq!((told(&output), saved.with(b"more")), ([10, 2], 5));
    let output = saved.run("saved(14, b'a'); sync()");
    // Five that replace, and nine that are new: ten inodes and one, then five more; the rest.
    assert_eq!((told(&output), saved.with(b"a")), ([14, 2], 14));
    let output = saved.run("saved(14, b'b'); sync()");
    assert_eq!((told(&output), saved.with(b"b")), ([14, 2], 14));
    // One after the other of one name: each needs the one before.
    let output = saved.run("for n in range(4): save('f0', b'%d' % n)\nsync()");
    assert_eq!((told(&output), saved.with(b"3")), ([4, 4], 1));
    saved.end();
}

#[test]
fn what_is_not_plain_is_made_at_once_and_says_itself_what_is_wrong() {
    let saved = Saved::new();
    let output = saved.run(
        r#"
import errno
def refused(a, b, *codes):
    try: os.rename(a, b)
    except OSError as e: assert e.errno in codes, (a, b, e)
    else: sys.exit("not refused: %s %s" % (a, b))
os.mkdir(D + "sub"); os.mkdir(D + "full"); open(D + "full/x", "w").close(); os.mkdir("/weld/else")
refused(D + "none", D + "f0", errno.ENOENT)
refused(D + "f0", D + "none/f0", errno.ENOENT)
refused(D + "f0", D + "sub", errno.EISDIR)
refused(D + "sub", D + "f0", errno.ENOTDIR)
refused(D + "sub", D + "full", errno.ENOTEMPTY, errno.EEXIST)
refused(D + "f0", D + "x" * 256, errno.ENAMETOOLONG)
refused(D + "f0", D + "f1/", errno.ENOTDIR)
refused(D + "f0", "/tmp/x", errno.EXDEV)
os.rename(D + "f0", "/weld/else/f0"); os.rename("/weld/else/f0", D + "f0")
os.rename(D + "sub", D + "sub2")
os.link(D + "f0", D + "twin"); os.rename(D + "f0", D + "twin")
assert os.path.exists(D + "f0"); os.unlink(D + "twin")
os.rename(D + "./f0", D + "../d/f0b"); os.rename(D + "f0b", D + "f0")
sync()
"#,
    );
    // The last rename alone is below the directory, and of plain names.
    assert_eq!(told(&output), [1, 1], "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(saved.with(b"old"), 5);
    saved.end();
}

/// Another process takes away what was found when a rename was kept.
#[test]
fn what_cannot_be_made_any_more_is_told_by_the_sync() {
    let saved = Saved::new();
    let script = "saved(3, b'new'); print('saved', flush=True); sys.stdin.readline()\n\
                  fd = os.open(D + 'log', os.O_WRONLY | os.O_CREAT, 0o600)\n\
                  try: os.fsync(fd); sys.exit('no error')\n\
                  except OSError as e: print(e.errno)\n\
                  os.fsync(fd)";
    let mut child = saved.command(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    saved.client.remove_file("/d/f1.tmp").unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"\n").unwrap();
    line.clear();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    assert_eq!((line.trim(), saved.with(b"new"), saved.with(b"old")), ("2", 2, 3));
    assert!(child.wait().unwrap().success());
    saved.end();
}

/// The device is killed in the middle of rounds of saves: each round is there or is not, and what was synced is.
#[test]
fn a_device_that_is_killed_has_whole_rounds() {
    let mut within = 0;
    for n in 0..8u32 {
        let saved = Saved::new();
        let script = "for n in range(100000):\n    saved(5, b'%d' % n); sync(); print(n, flush=True)";
        let mut child = saved.command(script).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        for _ in 0..20 + 13 * n {
            line.clear();
            std::io::BufRead::read_line(&mut said, &mut line).unwrap();
        }
        let Saved { bench, served, client } = saved;
        served.kill();
        drop(client);
        assert!(!child.wait().unwrap().success(), "nothing serves it");
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut said, &mut rest).unwrap();
        let last = |text: &str| text.lines().last().map(|line| line.parse::<u32>().unwrap());
        let synced = last(&rest).or(last(&line)).unwrap();
        let served = Served::start(&bench.path("disk.img"));
        let client = Client::connect(bench.path("disk.img.sock")).unwrap();
        let saved = Saved { bench, served, client };
        let of = |n: u32| saved.with(n.to_string().as_bytes());
        assert_eq!(
            (of(synced), of(synced + 1), of(synced.wrapping_sub(1))),
            match of(synced + 1) {
                0 => (5, 0, 0),
                _ => (0, 5, 0),
            }
        );
        within += u32::from(of(synced + 1) == 0);
        saved.end();
    }
    println!("{within} of 8 died within a round");
}

#[test]
fn a_directory_that_is_none_of_the_device_is_an_error() {
    for wrong in ["d", "/tmp", "/weld/../x", "/"] {
        let output = weldfs_run(&["--mount", "never", "--", "true"]).env("WELDFS_ATOMIC", wrong).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("WELDFS_ATOMIC must be"), "{wrong}: {said}");
    }
}
