//! An image, its mount, and what runs there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

pub const BINARY: &str = env!("CARGO_BIN_EXE_weldfs");
/// A user without rights of its own.
pub const NOBODY: u32 = 65534;
/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// Whether mounts can be tested here; else says why not.
pub fn usable(test: &str) -> bool {
    let fuse = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let why = match fuse {
        _ if !rustix::process::geteuid().is_root() => "needs root, to mount for other users",
        Err(_) => "needs a /dev/fuse",
        Ok(_) => return true,
    };
    crate::skips::skip(test, why);
    false
}

pub fn weldfs<const N: usize>(args: [&str; N]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(args).env("WELDFS_CONFIG", "").env_remove("WELDFS_WAIT").env_remove("NOTIFY_SOCKET");
    command
}

/// What it prints; it must succeed.
pub fn ok(command: &mut Command) -> String {
    let out = command.stdin(Stdio::null()).output().expect("runs");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command:?}: {}: {said}{}", out.status, String::from_utf8_lossy(&out.stdout));
    String::from_utf8(out.stdout).expect("text")
}

/// Exit code and what is said; it must fail.
pub fn fails(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command.stdin(Stdio::null()).output().expect("runs");
    let said = String::from_utf8_lossy(&stderr).into_owned();
    assert!(!status.success() && !said.contains("panicked"), "{command:?}: {status}: {said}");
    (status.code(), said)
}

/// Waits until it is so.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A folder with an image, and where it is mounted. What is mounted is unmounted with it, whatever became of the test.
pub struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub fn new(size: &str) -> Place {
        let dir = tempfile::tempdir().expect("a temporary folder");
        fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).expect("chmod");
        let place = Place { dir };
        ok(weldfs(["mkfs", "--size", size]).arg(place.image()));
        fs::create_dir(place.root()).expect("mkdir");
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn image(&self) -> PathBuf {
        self.path("a.img")
    }

    /// Where it is mounted.
    pub fn root(&self) -> PathBuf {
        self.path("mnt")
    }

    /// A file there.
    pub fn at(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// A name inside of the image.
    pub fn inside(&self, name: &str) -> String {
        format!("{}:{name}", self.image().display())
    }

    /// Mounts the image, in a process whose end is waited for.
    pub fn mount(&self, options: &[&str]) -> Mounted {
        self.mount_of(&self.image(), options)
    }

    /// Mounts an image or a socket.
    pub fn mount_of(&self, source: &Path, options: &[&str]) -> Mounted {
        let mut command = weldfs(["mount", "--foreground"]);
        command.args(options).arg(source).arg(self.root()).stdin(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("starts");
        let mounted = Mounted { child, root: self.root() };
        until("mounting", || self.is_mounted());
        mounted
    }

    pub fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        mounts.contains(&format!(" {} ", self.root().display()))
    }

    /// The image, when nothing has it open, is clean.
    pub fn is_clean(&self) {
        let said = ok(weldfs(["fsck"]).arg(self.image()));
        assert!(said.contains("clean"), "{said}");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        while self.is_mounted() {
            if rustix::mount::unmount(self.root(), rustix::mount::UnmountFlags::DETACH).is_err() {
                break;
            }
        }
    }
}

/// The process of a mount.
pub struct Mounted {
    child: Child,
    root: PathBuf,
}

impl Mounted {
    /// Unmounts as a user does; its process must end well.
    pub fn unmount(mut self) {
        ok(weldfs(["umount"]).arg(&self.root));
        assert_eq!(self.ends(), Some(0));
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("signal");
    }

    /// Its exit code.
    pub fn ends(&mut self) -> Option<i32> {
        let mut status = None;
        until("the end of the mount's process", || {
            status = self.child.try_wait().expect("wait");
            status.is_some()
        });
        status.and_then(|status| status.code())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A shell's command as another user, with these groups.
pub fn shell_as(uid: u32, groups: &str, script: &str) -> Command {
    let mut command = Command::new("setpriv");
    let (uid, groups) = (uid.to_string(), format!("--groups={groups}"));
    let groups = if groups == "--groups=" { "--clear-groups".to_owned() } else { groups };
    command.args(["--reuid", &uid, "--regid", &uid, &groups, "sh", "-c", script]).current_dir("/");
    command
}

/// A device that serves the image, in a process of its own.
pub struct Served(Child);

impl Served {
    pub fn start(place: &Place) -> Served {
        let mut command = weldfs(["serve"]);
        command.arg(place.image()).stdin(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let served = Served(command.spawn().expect("starts"));
        ok(weldfs(["wait"]).arg(place.image()));
        served
    }

    /// As a crash ends it.
    pub fn kill(mut self) {
        self.0.kill().expect("kill");
        self.0.wait().expect("wait");
    }

    pub fn stop(mut self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).expect("signal");
        assert!(self.0.wait().expect("wait").success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
