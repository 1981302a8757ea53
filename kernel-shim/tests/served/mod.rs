//! Images, and processes that serve them, for tests of engines: this build's `weldfs` program makes them.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use weldfs::Client;

/// Far above what anything here takes on a slow, busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The folder of programs and libraries of this build.
pub fn built() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned()
}

/// The `weldfs` program.
pub fn weldfs() -> Command {
    Command::new(built().join("weldfs"))
}

/// A folder with an image `d.img` in it.
pub fn image(size: &str, medium: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let made = weldfs().arg("mkfs").arg(dir.path().join("d.img")).args(["--size", size, "--medium", medium]).output();
    assert!(made.unwrap().status.success());
    dir
}

/// Makes `other.img` of the image of a folder: the same in another version of the format.
pub fn other_version(dir: &Path) {
    let mut bytes = std::fs::read(dir.join("d.img")).unwrap();
    for superblock in bytes.chunks_mut(4096).filter(|block| block.starts_with(b"WeldFS\x1a\n")) {
        superblock[8] = 9;
        let sum = crc32c::crc32c(&superblock[..4092]).to_le_bytes();
        superblock[4092..].copy_from_slice(&sum);
    }
    std::fs::write(dir.join("other.img"), bytes).unwrap();
}

/// Whether the image is whole, and nothing keeps it.
pub fn fsck(dir: &Path) {
    let out = weldfs().arg("fsck").arg(dir.join("d.img")).output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(out.status.success(), "fsck: {}{}", said(&out.stdout), said(&out.stderr));
}

/// The number in the last line of what a writer noted, 0 without one. A line that is cut is none.
pub fn last_number(noted: &str) -> u32 {
    noted.rsplit_once('\n').map_or(0, |(whole, _)| whole.lines().last().unwrap_or("0").parse().unwrap())
}

/// A process that serves the image of a folder.
pub struct Served {
    child: Child,
    dir: PathBuf,
}

impl Served {
    /// Serves `d.img` at `d.img.sock`, and waits until it answers.
    pub fn start(dir: &Path) -> Served {
        let mut serve = weldfs();
        serve.arg("serve").arg("d.img").current_dir(dir);
        let child = serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let served = Served { child, dir: dir.to_owned() };
        let start = Instant::now();
        while Client::connect(served.socket()).is_err() {
            assert!(start.elapsed() < PATIENCE, "no device");
            std::thread::sleep(Duration::from_millis(5));
        }
        served
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("d.img.sock")
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
