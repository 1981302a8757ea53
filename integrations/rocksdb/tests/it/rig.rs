//! The plug-in and the test program, built once, and run.

pub use crate::served::{PATIENCE, Served, fsck, image, last_number, other_version};

use crate::served::built;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Where the plug-in and the test program are built: beside the folder of the C library, as the Makefile expects it.
fn made() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let built = built();
        let profile = built.file_name().unwrap().to_owned();
        let out = built.parent().unwrap().join("rocksdb").join(&profile);
        let mut make = Command::new("make");
        make.arg("-C").arg(env!("CARGO_MANIFEST_DIR")).args(["-s", "-j2", "CXXFLAGS=-O1 -g"]);
        make.arg(format!("PROFILE={}", profile.display())).arg(format!("OUT={}", out.display()));
        make.arg(format!("CARGO_OUT={}", built.display())).arg(out.join("engine"));
        let output = make.output().unwrap();
        assert!(output.status.success(), "{make:?}\n{}", String::from_utf8_lossy(&output.stderr));
        out
    })
}

/// Whether RocksDB, its tools and a compiler are there; a skip is written down.
pub fn is_there(test: &str) -> bool {
    let header = Path::new("/usr/include/rocksdb/file_system.h").exists();
    let has = |program| Command::new(program).arg("--version").output().is_ok();
    let there = header && ["c++", "make", "db_bench", "ldb"].into_iter().all(has);
    if !there {
        super::skips::skip(&format!("rocksdb: {test}"), "librocksdb-dev, rocksdb-tools, make or c++ is not installed");
    }
    there
}

/// A part of the test program on a target, run in a folder.
pub fn engine(dir: &Path, part: &str, target: &str) -> Command {
    let mut engine = Command::new(made().join("engine"));
    engine.current_dir(dir).args([part, target]).stdin(Stdio::null());
    engine
}

/// One of RocksDB's tools with the plug-in, in a folder.
pub fn tool(dir: &Path, name: &str, target: &str) -> Command {
    let mut tool = Command::new(name);
    tool.current_dir(dir).env("LD_PRELOAD", made().join("libweldfs_rocksdb.so"));
    tool.arg(format!("--fs_uri=weldfs://{target}")).stdin(Stdio::null());
    tool
}

/// Runs what must go well: what it prints.
pub fn run(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, all(&output));
    all(&output)
}

/// Everything that was printed.
pub fn all(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A program whose output goes to files of the folder, so that it is there whatever becomes of the program.
pub fn start(dir: &Path, mut command: Command) -> Child {
    let file = |name| std::fs::File::create(dir.join(name)).unwrap();
    command.stdout(file("out")).stderr(file("err")).spawn().unwrap()
}

/// What a program has printed so far.
pub fn printed(dir: &Path, name: &str) -> String {
    let mut text = String::new();
    std::fs::File::open(dir.join(name)).unwrap().read_to_string(&mut text).unwrap();
    text
}

/// Waits until a program has ended: its exit code, if it was not killed.
pub fn end(child: &mut Child, what: &str) -> Option<i32> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(start.elapsed() < PATIENCE, "{what} hangs");
        std::thread::sleep(Duration::from_millis(5));
    }
}
