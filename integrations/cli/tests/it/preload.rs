//! What the preload library must not break, and must not do behind a program's back: allocators of all kinds, `sync` by
//! a process that holds nothing open, mappings of files.

use super::skips::skip;
use rustix::net;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Seconds after which a program that should take one of them counts as stuck.
const STUCK: &str = "60";

/// `weldfs run ARGS`, whose program has a limited time.
fn weldfs_run(args: &[&str]) -> Command {
    let (options, program) = args.split_at(1 + args.iter().position(|arg| *arg == "--").unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_weldfs"));
    // Within, so that a stuck program ends, too.
    command.arg("run").args(options).args(["timeout", "--signal=KILL", STUCK]).args(program).current_dir("/");
    command.stdin(Stdio::null());
    command
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn ok(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, said(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Where a program or library of the system is, by one of its paths.
fn first_of(paths: &[&str]) -> Option<PathBuf> {
    paths.iter().map(PathBuf::from).find(|path| path.exists())
}

/// Compiles a C program of `tests/c`; `None` without the compiler or what it needs.
fn compiled(name: &str, folder: &Path, flags: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name).with_extension("c");
    let program = folder.join(name);
    // The compiler must not take the program's own allocator for the one it knows.
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-g", "-Wall", "-fno-builtin", "-o"]).arg(&program).arg(source).args(flags);
    match cc.output() {
        Ok(output) if output.status.success() => Some(program),
        Ok(output) => {
            println!("{}", said(&output));
            None
        }
        Err(_) => None,
    }
}

/// A little of everything that allocates and forks: a shell's pipelines, threads, files inside and outside.
const BUSY: &str = "
set -e
mkdir /weld/d; cd /weld/d
seq 20000 | sort -r --parallel=2 -S 1M | sort -n > sorted
test $(wc -l < sorted) = 20000
for i in 1 2 3 4 5 6 7 8; do (echo $i > f$i; cat f$i) & done | sort > all
wait; test $(wc -l < all) = 8; ls > /dev/null; echo done";

fn busy_under(library: &Path) {
    let out = ok(weldfs_run(&["--ram", "64M", "--", "bash", "-c", BUSY]).env("LD_PRELOAD", library));
    assert_eq!(out, "done\n", "{}", library.display());
}

macro_rules! allocators {
    ($($test:ident, $package:literal, $paths:expr;)+) => {$(
        #[test]
        fn $test() {
            match first_of(&$paths) {
                Some(library) => busy_under(&library),
                None => skip(concat!("preload: ", stringify!($test)), concat!($package, " is not installed")),
            }
        }
    )+};
}

// jemalloc and mimalloc stopped every program at its start: they look at files while they set themselves up, and the
// hook that was called so asked for memory.
allocators! {
    programs_with_jemalloc_run, "libjemalloc2",
        ["/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", "/usr/lib64/libjemalloc.so.2"];
    programs_with_mimalloc_run, "libmimalloc2.0",
        ["/usr/lib/x86_64-linux-gnu/libmimalloc.so.2.0", "/usr/lib/x86_64-linux-gnu/libmimalloc.so.2"];
    programs_with_tcmalloc_run, "libtcmalloc-minimal4",
        ["/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4", "/usr/lib64/libtcmalloc_minimal.so.4"];
}

/// Its mmap is made of syscall(2), which went through the hook of mmap to tcmalloc's again, without end.
#[test]
fn a_program_that_maps_memory_under_tcmalloc_ends() {
    const NAME: &str = "preload: a_program_that_maps_memory_under_tcmalloc_ends";
    let library = first_of(&["/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4"]);
    let (Some(library), Some(_)) = (library, first_of(&["/usr/bin/python3"])) else {
        return skip(NAME, "libtcmalloc-minimal4 or python3 is not installed");
    };
    let script = "import mmap; m = mmap.mmap(-1, 1 << 20); m[:5] = b'plain'; print(m[:5].decode())";
    let mut command = weldfs_run(&["--ram", "64M", "--", "python3", "-c", script]);
    assert_eq!(ok(command.env("LD_PRELOAD", library)), "plain\n");
}

/// Rust's compiler is linked against jemalloc; whoever runs this test has one.
#[test]
fn rustc_and_cargo_start_and_compile_a_program_in_the_device() {
    let script = "cd /weld && echo 'fn main() { println!(\"compiled\"); }' > m.rs && rustc -C linker=cc m.rs && ./m";
    assert!(ok(&mut weldfs_run(&["--", "rustc", "--version"])).starts_with("rustc "));
    assert!(ok(&mut weldfs_run(&["--", "cargo", "--version"])).starts_with("cargo "));
    assert_eq!(ok(&mut weldfs_run(&["--ram", "256M", "--", "sh", "-c", script])), "compiled\n");
}

#[test]
fn redis_keeps_its_files_in_the_device() {
    const NAME: &str = "preload: redis_keeps_its_files_in_the_device";
    if first_of(&["/usr/bin/redis-server"]).is_none() || first_of(&["/usr/bin/redis-cli"]).is_none() {
        return skip(NAME, "redis-server is not installed");
    }
    assert!(ok(&mut weldfs_run(&["--", "redis-server", "--version"])).contains("malloc=jemalloc"));
    let folder = tempfile::tempdir().unwrap();
    // Its socket is the host's: the device has none.
    let script = format!(
        r#"set -e
cli() {{ redis-cli -s {socket} "$@"; }}
start() {{
    redis-server --port 0 --unixsocket {socket} --dir /weld --appendonly yes --save '' --daemonize no > {log} &
    for i in $(seq 300); do cli ping > /dev/null 2>&1 && return; sleep 0.1; done; cat {log}; exit 1
}}
start
for i in 1 2 3 4 5; do cli set key$i value$i > /dev/null; done
cli bgrewriteaof > /dev/null; cli save > /dev/null; cli set last one > /dev/null
cli shutdown nosave; wait
ls /weld
start
cli get key5; cli get last; cli dbsize; cli shutdown nosave; wait"#,
        socket = folder.path().join("s").display(),
        log = folder.path().join("log").display(),
    );
    let out = ok(&mut weldfs_run(&["--ram", "64M", "--", "bash", "-c", &script]));
    assert_eq!(out, "appendonlydir\ndump.rdb\nvalue5\none\n6\n");
}

/// The rule behind the programs above, for every allocator there will be.
#[test]
fn hooks_ask_for_no_memory_for_what_lies_outside_the_prefix() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled("touchy_allocator", folder.path(), &[]).expect("a C compiler");
    let program = program.to_str().unwrap();
    assert_eq!(ok(&mut weldfs_run(&["--ram", "64M", "--", program])), "sound\n");
}

/// A device in a process of its own.
struct Served {
    child: Child,
    socket: PathBuf,
}

impl Served {
    fn start(image: &Path) -> Served {
        let socket = image.with_extension("sock");
        let mut serve = Command::new(env!("CARGO_BIN_EXE_weldfs"));
        serve.arg("serve").arg(image).arg("--socket").arg(&socket).stdout(Stdio::null()).stderr(Stdio::null());
        let child = serve.spawn().unwrap();
        let start = Instant::now();
        while weldfs::Client::connect(&socket).is_err() {
            assert!(start.elapsed() < Duration::from_secs(30), "no device");
            std::thread::sleep(Duration::from_millis(5));
        }
        Served { child, socket }
    }

    /// SIGKILL.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Runs a script over a device with volatile writes, kills the device, and says which of the files `n*` are there.
fn files_after_a_kill(script: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    let weldfs = |args: &[&str]| ok(Command::new(env!("CARGO_BIN_EXE_weldfs")).args(args).arg(&image));
    weldfs(&["mkfs", "--size", "64M", "--medium", "block"]);
    let device = Served::start(&image);
    ok(&mut weldfs_run(&["--socket", device.socket.to_str().unwrap(), "--", "bash", "-c", script]));
    device.kill();
    ok(Command::new(env!("CARGO_BIN_EXE_weldfs")).arg("ls").arg(format!("{}:/", image.display())))
        .split_whitespace()
        .filter(|name| name.starts_with('n'))
        .collect::<Vec<_>>()
        .join(" ")
}

/// The shell closes the file before it starts `sync`, which holds no descriptor of the device and never did: the call
/// went to the host only, and the file was gone after a kill of the device.
#[test]
fn sync_by_a_program_that_holds_nothing_open_reaches_the_device() {
    assert_eq!(files_after_a_kill("echo 1 > /weld/n; sync"), "n");
}

#[test]
fn every_way_to_sync_reaches_the_device() {
    const NAME: &str = "preload: every_way_to_sync_reaches_the_device";
    if first_of(&["/usr/bin/python3"]).is_none() {
        return skip(NAME, "python3 is not installed");
    }
    // syncfs of a host path, sync(2) and the bare system calls (162: sync, 306: syncfs, 74: fsync).
    let calls = [
        "import os; os.sync()",
        "import ctypes, os; assert ctypes.CDLL(None).syncfs(os.open('/', 0)) == 0",
        "import ctypes; assert ctypes.CDLL(None).syscall(162) == 0",
        "import ctypes, os; assert ctypes.CDLL(None).syscall(306, os.open('/weld/n', 0)) == 0",
        "import ctypes, os; assert ctypes.CDLL(None).syscall(74, os.open('/weld/n', 0)) == 0",
    ];
    for call in calls {
        assert_eq!(files_after_a_kill(&format!("echo 1 > /weld/n; python3 -c \"{call}\"")), "n", "{call}");
    }
}

/// `syncfs` of a file system of the host may be for files of the device, and says so where these are not safe.
#[test]
fn a_sync_of_the_host_fails_where_the_device_does_not_answer() {
    let folder = tempfile::tempdir().unwrap();
    let library = Path::new(env!("CARGO_BIN_EXE_weldfs")).parent().unwrap().join("deps/libweldfs_preload.so");
    let sync = |library: &Path| {
        let mut command = Command::new("sync");
        command.args(["--file-system"]).arg(folder.path()).env("LD_PRELOAD", library);
        command.env("WELDFS_SOCKET", folder.path().join("none.sock")).env("LC_ALL", "C");
        command.output().unwrap()
    };
    let output = sync(&library);
    assert!(output.status.code() == Some(1) && said(&output).contains("the device did not answer"), "{output:?}");
    assert!(sync(Path::new("")).status.success());
}

/// Without a sync the file is lost: else the tests above would prove nothing.
#[test]
fn without_sync_a_volatile_write_is_lost_by_a_kill() {
    assert_eq!(files_after_a_kill("echo 1 > /weld/n"), "");
}

const MAPPINGS: &str = r#"
import ctypes, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
R, W, SHARED, PRIVATE, FAILED = 1, 2, 1, 2, ctypes.c_void_p(-1).value
def map(fd, prot, flags, off=0, n=8192):
    at = libc.mmap(None, n, prot, flags, fd, off)
    return os.strerror(ctypes.get_errno()) if at == FAILED else at
content = bytes(range(256)) * 24
open("/weld/f", "wb").write(content)
reader, both, writer = os.open("/weld/f", os.O_RDONLY), os.open("/weld/f", os.O_RDWR), os.open("/weld/f", os.O_WRONLY)
at = map(reader, R, SHARED)
assert ctypes.string_at(at, 8192) == content + bytes(2048), "content, then zeros to the end of the page"
# Given up and touched again: the file's bytes, not zeros. Made writable: never.
assert libc.madvise(at, 8192, 4) == 0 and ctypes.string_at(at, 6144) == content
assert libc.mprotect(at, 8192, R | W) == -1 and ctypes.get_errno() == 13
# A later write is not followed.
os.pwrite(both, b"new", 0)
assert ctypes.string_at(at, 3) == content[:3]
assert ctypes.string_at(map(reader, R, 3), 3) == b"new", "MAP_SHARED_VALIDATE"
assert ctypes.string_at(map(reader, R, SHARED, 4096, 4096), 2048) == content[4096:]
# Private: writable, and the file keeps what it has.
at = map(both, R | W, PRIVATE)
ctypes.memmove(at, b"mine", 4)
assert os.pread(both, 3, 0) == b"new" and ctypes.string_at(at, 8) == b"mine" + content[4:8]
assert mmap.mmap(reader, 0, prot=mmap.PROT_READ)[:3] == b"new", "Python's own"
# What could change the file, or expects to see changes, is refused loudly.
for fd, prot, flags in [(both, R | W, SHARED), (both, R, SHARED), (reader, R | W, SHARED), (both, R | W, 3)]:
    assert map(fd, prot, flags) == "No such device", (fd, prot, flags)
assert map(writer, R, PRIVATE) == map(writer, R, SHARED) == "Permission denied"
assert map(reader, R, SHARED, 100) == map(reader, R, SHARED, 0, 0) == map(reader, R, 0) == "Invalid argument"
print("mapped")
"#;

/// A shared mapping through a read-only descriptor was ENODEV.
#[test]
fn a_read_only_shared_mapping_is_a_copy_that_nobody_can_write_to() {
    const NAME: &str = "preload: a_read_only_shared_mapping_is_a_copy_that_nobody_can_write_to";
    if first_of(&["/usr/bin/python3"]).is_none() {
        return skip(NAME, "python3 is not installed");
    }
    assert_eq!(ok(&mut weldfs_run(&["--ram", "64M", "--mount", "never", "--", "python3", "-c", MAPPINGS])), "mapped\n");
}

/// Stock LevelDB maps its tables shared and read-only.
#[test]
fn stock_leveldb_keeps_its_store_in_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("leveldb_store", folder.path(), &["-lleveldb"]) else {
        return skip("preload: stock_leveldb_keeps_its_store_in_the_device", "libleveldb-dev is not installed");
    };
    let program = program.to_str().unwrap();
    assert_eq!(ok(&mut weldfs_run(&["--ram", "256M", "--", program, "/weld/store"])), "all keys are right\n");
}

/// Something that listens as a device does, and never answers: one that recovers a long log looks like this.
#[test]
fn programs_wait_for_a_device_as_long_as_the_environment_says() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("mute.sock");
    let mute = net::socket(net::AddressFamily::UNIX, net::SocketType::SEQPACKET, None).unwrap();
    net::bind(&mute, &net::SocketAddrUnix::new(&socket).unwrap()).unwrap();
    net::listen(&mute, 16).unwrap();
    let library = Path::new(env!("CARGO_BIN_EXE_weldfs")).parent().unwrap().join("deps/libweldfs_preload.so");
    let under = |wait: &str, script: &str| {
        let start = Instant::now();
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", STUCK, "sh", "-c", script]).stdin(Stdio::null()).env("LC_ALL", "C");
        command.env("LD_PRELOAD", &library).env("WELDFS_PRELOAD", &library);
        command.env("WELDFS_SOCKET", &socket).env("WELDFS_WAIT", wait).env_remove("WELDFS_PREFIX");
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{wait}: {}", said(&output));
        (said(&output), start.elapsed())
    };
    // An executed program is as patient, also one whose environment was cleared.
    for script in ["cat /weld/f", "exec env -i cat /weld/f"] {
        let (text, took) = under("0.5", script);
        assert!(text.contains("no answer in time") && text.contains("timed out"), "{script}: {text}");
        assert!((Duration::from_millis(500)..Duration::from_secs(15)).contains(&took), "{script}: {took:?}");
    }
    // Unless it is told otherwise.
    let (_, took) = under("86400", "exec env WELDFS_WAIT=0.2 cat /weld/f");
    assert!(took < Duration::from_secs(15), "{took:?}");
    let long = "0".repeat(40);
    for wrong in ["soon", "-1", "86401", "", &long] {
        let (text, _) = under(wrong, "cat /weld/f");
        assert!(text.contains("WELDFS_WAIT must be seconds") && text.contains("Invalid argument"), "{wrong}: {text}");
    }
}
