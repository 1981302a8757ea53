//! `weldfs run` as the program's parent: exit codes, signals, refusals, the library that it preloads. What programs do
//! with their files is in `tests/compatibility`.

use std::path::Path;
use std::process::{Command, Output};

pub(crate) fn weldfs_run(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weldfs"));
    command.arg("run").args(args).current_dir("/");
    command
}

fn text(output: &Output, dir: &str) -> String {
    let mut all = String::from_utf8_lossy(&output.stdout).replace(dir, "D");
    all.push_str("--- stderr\n");
    all.push_str(&String::from_utf8_lossy(&output.stderr).replace(dir, "D"));
    all
}

#[test]
fn the_exit_status_of_the_program_comes_back() {
    for (what, want) in [("exit 0", 0), ("exit 41", 41), ("kill -TERM $$", 143)] {
        assert_eq!(weldfs_run(&["--", "sh", "-c", what]).status().unwrap().code(), Some(want), "{what}");
    }
    assert_eq!(weldfs_run(&["--", "/no/such/program"]).output().unwrap().status.code(), Some(127));
    assert_eq!(weldfs_run(&["--prefix", "weld", "--", "true"]).output().unwrap().status.code(), Some(2));
}

#[test]
fn a_signal_goes_to_the_program_and_the_device_still_ends_cleanly() {
    let wait = "trap 'cat /weld/word; exit 5' TERM; echo told > /weld/word; echo ready; while :; do sleep 0.05; done";
    let mut child = weldfs_run(&["--", "sh", "-c", wait]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert_eq!(line, "ready\n");
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    line.clear();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert_eq!(line, "told\n");
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

#[test]
fn what_is_not_supported_fails_loudly_and_nothing_lands_elsewhere() {
    let try_all = r#"
import mmap, os, sys
os.chdir("/weld"); open("f", "wb").write(b"x" * 8192)
def refused(what, call):
    try: call()
    except OSError: return
    sys.exit("silently accepted: " + what)
fd = os.open("f", os.O_RDWR)
refused("shared writable mmap", lambda: mmap.mmap(fd, 4096))
refused("mkfifo", lambda: os.mkfifo("fifo"))
refused("device node", lambda: os.mknod("null", 0o20666, os.makedev(1, 3)))
refused("rename to the host", lambda: os.rename("f", "/tmp/weldfs-test-must-not-exist"))
refused("chroot", lambda: os.chroot("/weld"))
assert not os.path.exists("/tmp/weldfs-test-must-not-exist")
"#;
    let status = weldfs_run(&["--mount", "never", "--", "python3", "-c", try_all]).status().unwrap();
    assert!(status.success());
    // Another run may have a mount there, in its own namespace: then it is there, and empty.
    let on_host = Path::new("/weld").read_dir().map_or(0, Iterator::count);
    assert_eq!(on_host, 0, "files appeared on the host");
}

/// Each later call on its files was EIO.
#[test]
fn a_program_that_closes_every_number_keeps_its_files() {
    let script = r#"
import os
f = os.open("/weld/f", os.O_RDWR | os.O_CREAT); os.write(f, b"123")
os.closerange(f + 1, 4096)
assert os.pread(f, 3, 0) == b"123"
for n in range(f + 1, 2048):
    try: os.close(n)
    except OSError: pass
for i in range(50): os.close(os.open(f"/weld/f{i}", os.O_RDWR | os.O_CREAT))
print(os.pread(f, 3, 0).decode(), len(os.listdir("/weld")))
"#;
    let output = weldfs_run(&["--mount", "never", "--", "python3", "-c", script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "123 51\n", "{}", String::from_utf8_lossy(&output.stderr));
}

/// Files have placeholders only from the moment when another process may come to have them.
#[test]
fn a_child_finds_every_file_of_its_parent_also_where_numbers_are_few() {
    let script = r#"
import array, os, resource, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))
files = []
try:
    while True: files.append(os.open(f"/weld/f{len(files)}", os.O_RDWR | os.O_CREAT))
except OSError as e: assert len(files) > 370, (len(files), e)
for i, f in enumerate(files): os.write(f, b"%d" % i)
twin = os.dup2(files[9], files[-1]); [os.close(f) for f in files[-20:-1]]; del files[-20:]
wrong = lambda: sum(os.pread(f, 9, 0) != b"%d" % i for i, f in enumerate(files)) + (os.lseek(twin, 0, 1) != 1)
for _ in range(2):
    pid = os.fork()
    if pid == 0: os._exit(wrong())
    assert os.waitpid(pid, 0)[1] == 0
fresh = os.open("/weld/fresh", os.O_RDWR | os.O_CREAT); os.write(fresh, b"fresh")
os.set_inheritable(fresh, True)
assert os.spawnlp(os.P_WAIT, "python3", "python3", "-c", f"import os; assert os.pread({fresh}, 9, 0) == b'fresh'") == 0
a, b = socket.socketpair(); sent = os.open("/weld/sent", os.O_RDWR | os.O_CREAT); os.write(sent, b"sent")
pid = os.fork()
if pid == 0:
    late = os.open("/weld/late", os.O_RDWR | os.O_CREAT); os.write(late, b"late")
    a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [late]))]); os._exit(0)
got = array.array("i"); got.frombytes(b.recvmsg(1, 64)[1][0][2][:4]); os.waitpid(pid, 0)
print(wrong(), os.pread(got[0], 9, 0).decode())
"#;
    let output = weldfs_run(&["--mount", "never", "--", "python3", "-c", script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 late\n", "{}", String::from_utf8_lossy(&output.stderr));
}

/// A process that was waited for had its locks for a moment longer: the device had not heard of its end yet.
#[test]
fn a_process_that_has_ended_has_no_locks() {
    let script = r#"
import fcntl, os, sys
f = os.open("/weld/f", os.O_RDWR | os.O_CREAT); os.write(f, b"x" * 10)
def child(lock):
    pid = os.fork()
    if pid == 0:
        try: lock(os.open("/weld/f", os.O_RDWR))
        except OSError: os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]
def posix(fd): fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 8)
def whole(fd): fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
wrong = []
for i in range(60):
    for lock in (posix, whole):
        if child(lock): wrong.append((i, lock.__name__, "refused to a child"))
        try: lock(f)
        except OSError: wrong.append((i, lock.__name__, "refused after its end")); continue
        if not child(lock): wrong.append((i, lock.__name__, "given twice"))
        fcntl.lockf(f, fcntl.LOCK_UN, 1, 8); fcntl.flock(f, fcntl.LOCK_UN)
print(wrong)
"#;
    let output = weldfs_run(&["--mount", "never", "--", "python3", "-c", script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "[]\n");
}

#[test]
fn files_outlive_the_program_in_a_served_device() {
    let second = "sh -c 'cat /weld/kept && rm /weld/kept'";
    let both = format!("echo kept > /weld/kept; {second}; test ! -e /weld/kept && echo gone");
    let output = weldfs_run(&["--", "bash", "-c", &both]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "kept\ngone\n");
}

/// The library that cargo built with the program.
fn library() -> std::path::PathBuf {
    Path::new(env!("CARGO_BIN_EXE_weldfs")).parent().unwrap().join("deps/libweldfs_preload.so")
}

/// The dynamic linker splits LD_PRELOAD at spaces and colons: it warned, and the program ran on the host.
#[test]
fn a_library_in_a_folder_whose_name_the_linker_would_split_is_preloaded() {
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join("a b:c");
    std::fs::create_dir(&odd).unwrap();
    std::os::unix::fs::symlink(library(), odd.join("lib.so")).unwrap();
    let mut command = weldfs_run(&["--", "sh", "-c", "echo in > /weld/x && cat /weld/x"]);
    let output = command.env("WELDFS_PRELOAD", odd.join("lib.so")).output().unwrap();
    assert_eq!(text(&output, "no such text"), "in\n--- stderr\n");
}

#[test]
fn a_library_that_is_not_there_is_an_error_and_the_program_is_not_started() {
    let mut command = weldfs_run(&["--", "echo", "started"]);
    let output = command.env("WELDFS_PRELOAD", "/no/such/library.so").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output, "no such text");
    assert!(!said.contains("started") && said.contains("/no/such/library.so"), "{said}");
}

#[test]
fn folders_of_runs_that_were_killed_are_taken_away_by_the_next_and_no_others() {
    let temporary = tempfile::tempdir().unwrap();
    let begun = || {
        let mut command = weldfs_run(&["--mount", "never", "--ram", "64M", "--", "sh", "-c", "echo up; read end"]);
        command.env("TMPDIR", temporary.path()).stdin(std::process::Stdio::piped());
        let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
        assert_eq!(line, "up\n");
        child
    };
    let folders = || {
        let names = temporary.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    let mut killed = begun();
    let dead = folders();
    assert_eq!(dead.len(), 1, "{dead:?}");
    let mut live = begun();
    let lives: Vec<_> = folders().difference(&dead).cloned().collect();
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(folders().len(), 2, "nobody was there to take it away");
    // What has such a name and is no folder of a dead run's.
    let kept = temporary.path().join("weldfs-run-kept");
    std::fs::create_dir(&kept).unwrap();
    std::fs::write(kept.join("file"), "precious").unwrap();
    let aim = temporary.path().join("aim");
    std::fs::create_dir(&aim).unwrap();
    std::fs::write(aim.join("weldfs.sock"), "precious").unwrap();
    std::os::unix::fs::symlink(&aim, temporary.path().join("weldfs-run-link")).unwrap();
    let theirs = temporary.path().join("weldfs-run-theirs");
    std::fs::create_dir(&theirs).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        std::os::unix::fs::chown(&theirs, Some(65534), None).unwrap();
    }
    let next = weldfs_run(&["--mount", "never", "--", "true"]).env("TMPDIR", temporary.path()).status().unwrap();
    assert!(next.success());
    assert!(dead.is_disjoint(&folders()) && folders().contains(&lives[0]), "{:?}", folders());
    assert_eq!(std::fs::read(kept.join("file")).unwrap(), b"precious");
    assert_eq!(std::fs::read(aim.join("weldfs.sock")).unwrap(), b"precious");
    assert!(temporary.path().join("weldfs-run-link").is_symlink());
    assert_eq!(theirs.exists(), is_root, "one of this user's that nobody holds is taken for a dead run's");
    drop(live.stdin.take());
    assert!(live.wait().unwrap().code().is_some());
    assert!(!folders().contains(&lives[0]));
}
