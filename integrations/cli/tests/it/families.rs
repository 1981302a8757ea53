//! Every family of calls that the preload library has, from C: what a call gives in a device must be what it gives on
//! ext4, with good input and with bad. And what is said of them: counts, refusals, programs that are passed over.

use super::skips::skip;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const PARTS: &[&str] = &["main", "io", "fs", "more"];
/// Warnings about what the program does on purpose.
const FLAGS: &[&str] = &[
    "-O1",
    "-g",
    "-Wall",
    "-Wno-nonnull",
    "-Wno-stringop-overflow",
    "-Wno-stringop-overread",
    "-Wno-unused-result",
    "-Wno-deprecated-declarations",
];
/// Magic number of ext2, ext3 and ext4 (statfs(2)).
const EXT4: u64 = 0xef53;

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/families")
}

fn compile(files: &[&str], to: &Path, flags: &[&str]) {
    let files = files.iter().map(|name| sources().join(name).with_extension("c"));
    let mut cc = Command::new("cc");
    cc.args(FLAGS).args(flags).arg("-o").arg(to).args(files);
    let output = cc.output().expect("a C compiler");
    assert!(output.status.success(), "{cc:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn weldfs_run(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weldfs"));
    command.args(["run", "--mount", "never", "--ram", "256M", "--", "timeout", "--signal=KILL", "60"]).args(args);
    command.current_dir("/").stdin(Stdio::null()).env("LC_ALL", "C").env_remove("TMPDIR");
    for name in ["WELDFS_REPORT", "WELDFS_BYPASS", "WELDFS_DEBUG"] {
        command.env_remove(name);
    }
    command
}

fn streams(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// What a shell script under the library prints, and what it says on standard error.
fn said(script: &str, set: &[(&str, &str)]) -> (String, String) {
    let output = weldfs_run(&["bash", "-c", script]).envs(set.iter().copied()).output().expect("runs");
    assert!(output.status.success(), "{script}: {}: {:?}", output.status, streams(&output));
    streams(&output)
}

/// A folder of the host that lies on ext4; what other file systems answer is not what this compares with.
fn ext4(test: &str) -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    if rustix::fs::statfs(folder.path()).expect("statfs").f_type as u64 == EXT4 {
        return Some(folder);
    }
    skip(test, "the build's target directory is not on ext4");
    None
}

/// A crash of the program in the middle shows as well: the rest of its lines is missing.
#[test]
fn every_call_gives_what_it_gives_on_ext4() {
    const NAME: &str = "families: every_call_gives_what_it_gives_on_ext4";
    let Some(folder) = ext4(NAME) else { return };
    let program = folder.path().join("families");
    let (library, needed) = (folder.path().join("libfamily.so"), folder.path().join("libfamneeded.so"));
    compile(PARTS, &program, &["-D_GNU_SOURCE"]);
    compile(&["needed"], &needed, &["-shared", "-fPIC", "-Wl,-soname,libfamneeded.so"]);
    let beside = needed.to_str().expect("text");
    compile(&["library"], &library, &["-shared", "-fPIC", "-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed", beside]);
    let program = program.to_str().expect("text");
    let host_dir = folder.path().join("d");
    std::fs::create_dir(&host_dir).expect("mkdir");
    let mut host = Command::new("timeout");
    host.args(["--signal=KILL", "60", program]).arg(&host_dir).current_dir("/").stdin(Stdio::null());
    host.env("LIBRARY", folder.path()).env("LC_ALL", "C").env_remove("TMPDIR");
    let host = host.output().expect("runs");
    let mut inner = weldfs_run(&["sh", "-c", "mkdir /weld/d && exec \"$0\" /weld/d", program]);
    let inner = inner.env("LIBRARY", folder.path()).output().expect("runs");
    let ((want, _), (got, complaints)) = (streams(&host), streams(&inner));
    for (number, (got, want)) in got.lines().zip(want.lines()).enumerate() {
        assert_eq!(got, want, "line {}: in the device (left) and on ext4 (right)\n{complaints}", number + 1);
    }
    assert_eq!(got.lines().count(), want.lines().count(), "lines\n{complaints}");
    assert_eq!(inner.status.code(), host.status.code(), "{complaints}");
    assert!(want.lines().count() > 1300, "{} lines", want.lines().count());
}

/// The rows of every table on standard error: program, function, accelerated, promoted, refused.
fn rows(errors: &str) -> Vec<(String, String, [u64; 3])> {
    let (mut program, mut all) = (String::new(), Vec::new());
    for line in errors.lines().filter_map(|line| line.strip_prefix("weldfs: ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [name, _, "accelerated", "promoted", "refused"] => program = name.to_owned(),
            [call, a, p, r] => {
                let counts = [a, p, r].map(|n| n.parse().expect("a count"));
                all.push((program.clone(), call.to_owned(), counts));
            }
            _ => {}
        }
    }
    all
}

fn count(errors: &str, program: &str, call: &str) -> [u64; 3] {
    let found = rows(errors).into_iter().filter(|row| row.0 == program && row.1 == call).map(|row| row.2);
    found.fold([0; 3], |sum, row| [sum[0] + row[0], sum[1] + row[1], sum[2] + row[2]])
}

#[test]
fn a_report_has_the_calls_of_every_process_as_what_became_of_them() {
    let python = "
import os
for i in range(7): os.mkdir(f'/weld/d{i}')
for i in range(3):
    try: os.mkfifo('/weld/fifo')
    except OSError: pass
os.stat('/etc')
pid = os.fork()
if pid == 0:
    os.rmdir('/weld/d0'); os._exit(0)
os.wait()
";
    let script = format!("python3 -c \"{python}\"; exec cat /dev/null");
    let (_, errors) = said(&script, &[("WELDFS_REPORT", "1")]);
    assert_eq!(count(&errors, "python3", "mkdir"), [7, 0, 0], "{errors}");
    assert_eq!(count(&errors, "python3", "mkfifo"), [0, 0, 3], "{errors}");
    assert_eq!(count(&errors, "python3", "rmdir"), [1, 0, 0], "the child that ends by _exit: {errors}");
    assert_eq!(rows(&errors).iter().filter(|row| row.0 == "cat").count(), 0, "nothing there: {errors}");
    // What a program did before it executed another, what streams write at the end, and a closed standard error.
    let script = "printf x > /weld/f; exec sh -c 'exec sed -n 1p > /weld/g; true' < /weld/f";
    let (_, errors) = said(script, &[("WELDFS_REPORT", "1")]);
    assert!(count(&errors, "bash", "open")[0] + count(&errors, "bash", "openat")[0] >= 2, "{errors}");
    assert!(count(&errors, "sed", "write")[0] + count(&errors, "sed", "fflush")[0] >= 1, "{errors}");
    // A file that the program has opened as its number 2 is not written to.
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("data");
    let own = "import os, sys
os.close(2)
assert os.open(sys.argv[1], os.O_CREAT | os.O_RDWR) == 2
os.mkdir('/weld/d')";
    let output = weldfs_run(&["python3", "-c", own]).arg(&file).env("WELDFS_REPORT", "1").output().expect("runs");
    assert!(output.status.success(), "{:?}", streams(&output));
    assert_eq!(std::fs::read(&file).expect("read"), b"");
    assert_eq!(count(&streams(&output).1, "python3", "mkdir"), [1, 0, 0]);
    // coreutils close their standard error before they end; and one that is in the device is written to there.
    assert_eq!(count(&said("mkdir /weld/d", &[("WELDFS_REPORT", "1")]).1, "mkdir", "mkdir"), [1, 0, 0]);
    let inside = "exec 2> /weld/errors; mkdir /weld/d; cat /weld/errors > /dev/stdout";
    assert_eq!(count(&said(inside, &[("WELDFS_REPORT", "1")]).0, "mkdir", "mkdir"), [1, 0, 0]);
    let (_, errors) = said("mkdir /weld/d", &[]);
    assert_eq!(errors, "", "nothing is said unless it is asked for");
}

#[test]
fn a_refusal_is_said_once_for_each_kind() {
    let twice = "for i in 1 2; do ! /bin/true; done; python3 -c \"
import os
for i in range(3):
    for call in [lambda: os.mkfifo('/weld/f'), lambda: os.mknod('/weld/n', 0o20600, 259), lambda: os.chroot('/weld')]:
        try: call()
        except OSError as e: print(e.errno)
    for other in [lambda: os.rename('/weld', '/tmp/weldfs-no'), lambda: os.link('/etc/hostname', '/weld/h')]:
        try: other()
        except OSError as e: print(e.errno)
\"";
    let (out, errors) = said(twice, &[]);
    assert_eq!(out, "95\n1\n1\n18\n18\n".repeat(3));
    let mut lines: Vec<&str> = errors.lines().collect();
    lines.sort_unstable();
    let want =
        ["chroot", "mkfifo", "mknod of a device node"].map(|w| format!("weldfs: not supported under the prefix: {w}"));
    assert_eq!(lines, want, "those that programs expect are not said");
    let (_, errors) = said(twice, &[("WELDFS_DEBUG", "1")]);
    assert_eq!(errors.lines().count(), 15, "{errors}");
}

/// Without a mount a ring would have EBADF for each of the device's files, and MariaDB asked again for ever.
#[test]
fn without_a_mount_a_program_with_files_there_has_no_ring() {
    let script = "python3 -c \"
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def setup(number, room):
    made = libc.syscall(number, 4, room)
    if made > 0: os.close(made)
    return ctypes.get_errno() if made < 0 else 0
def both():
    ring, context = ctypes.create_string_buffer(120), ctypes.c_long(0)
    by_calls = setup(425, ring), setup(206, ctypes.byref(context))
    # The same by the names of libaio's and liburing's functions.
    context = ctypes.c_long(0)
    made = libc.io_uring_setup(4, ring)
    if made > 0: os.close(made)
    assert by_calls == (-min(made, 0), -libc.io_setup(4, ctypes.byref(context)))
    return by_calls
host = both()
file = os.open('/weld/f', os.O_RDWR | os.O_CREAT)
inside = both()
os.close(file)
beside = both()
other = os.open('/weld/f', os.O_RDWR)
os.dup2(other, 1); os.close(other)
folder = os.open('/weld', os.O_RDONLY | os.O_DIRECTORY); os.chdir('/weld')
redirected = both()
lock = os.open('/weld/lock', os.O_WRONLY | os.O_CREAT)
print(host == beside == redirected, inside, both(), file=open(2, 'w', closefd=False))
\"";
    assert_eq!(said(script, &[]).1, "True (38, 38) (38, 38)\n", "on the host, with a file, with another");
    let (_, errors) = said(script, &[("WELDFS_DEBUG", "1")]);
    let refused = "io_uring and Linux's asynchronous I/O in a program with files there";
    let line = format!("weldfs: not supported under the prefix: {refused}");
    assert_eq!(errors.lines().filter(|said| **said == *line).count(), 8, "{errors}");
    // What a program only inherits is no reason.
    let by = "exec 9> /weld/lock; exec python3 -c \"
import ctypes
context = ctypes.c_long(0)
print(ctypes.CDLL(None).io_setup(4, ctypes.byref(context)), file=open(2, 'w', closefd=False))\"";
    assert_eq!(said(by, &[]).1, said(&by.replace("exec 9> /weld/lock;", ""), &[]).1);
}

#[test]
fn programs_that_are_passed_over_do_not_see_the_prefix_and_those_that_they_start_do() {
    // The host may have a directory of the prefix's name, but not this one.
    let probe = "ls /weld/only-inside > /dev/null 2>&1 && echo sees || echo blind";
    let under = |script: &str, bypass: &str| {
        said(&format!("mkdir /weld/only-inside; {script}"), &[("WELDFS_BYPASS", bypass)]).0
    };
    assert_eq!(under(probe, "cat,stat"), "sees\n");
    assert_eq!(under(probe, "cat,ls"), "blind\n");
    let called = probe.replace("ls /weld/only-inside", "bash -c 'exec -a called ls /weld/only-inside'");
    assert_eq!(under(&called, "called"), "blind\n");
    // Kept over exec, also with a cleared environment, and the settings go on through one that is passed over.
    assert_eq!(under(&format!("exec env -i /bin/bash -c '{probe}'"), "ls"), "blind\n");
    assert_eq!(under("exec dash -c 'exec env -i /bin/ls /weld'", "dash"), "only-inside\n");
    assert_eq!(under("cd /weld/only-inside && dash -c 'bash -c pwd'", "dash"), "/weld/only-inside\n");
    assert_eq!(under("cd /weld && dash -c 'cd /tmp && bash -c pwd'", "dash"), "/tmp\n");
}
