//! A device process for an experiment: `weldfs serve` over an image in RAM, as a user would start it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weldfs::Client;

/// A running device and its image; both go when dropped.
pub struct Served {
    child: Child,
    socket: PathBuf,
    _folder: tempfile::TempDir,
    image: PathBuf,
    program: PathBuf,
}

/// What to serve.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// "pmem" or "block".
    pub medium: &'static str,
    /// Size, as mkfs takes it.
    pub size: String,
    /// Where the image goes; RAM-backed unless a disk is measured.
    pub place: PathBuf,
    /// More arguments of `serve`.
    pub serve_args: Vec<String>,
}

impl Default for ServeOptions {
    fn default() -> Self {
        let place = PathBuf::from("/dev/shm");
        ServeOptions { medium: "pmem", size: "2G".to_owned(), place, serve_args: Vec::new() }
    }
}

impl Served {
    /// Formats an image and starts a device over it with `program` (the `weldfs` binary).
    pub fn start(program: &Path, options: &ServeOptions) -> io::Result<Served> {
        Served::start_with(program, options, &[])
    }

    /// The same with more arguments of `mkfs`.
    pub(crate) fn start_with(program: &Path, options: &ServeOptions, mkfs_args: &[String]) -> io::Result<Served> {
        let folder = tempfile::Builder::new().prefix("weldfs-bench-").tempdir_in(&options.place)?;
        let (image, socket) = (folder.path().join("image"), folder.path().join("sock"));
        let mut mkfs = Command::new(program);
        mkfs.arg("mkfs").arg(&image).args(["--size", &options.size, "--medium", options.medium]).args(mkfs_args);
        let out = mkfs.stdin(Stdio::null()).output()?;
        if !out.status.success() {
            return Err(io::Error::other(format!("mkfs: {}", String::from_utf8_lossy(&out.stderr).trim())));
        }
        let child = spawn(program, &image, &socket, &options.serve_args)?;
        let mut served = Served { child, socket, _folder: folder, image, program: program.to_owned() };
        served.wait_ready()?;
        wait_settled(served.child.id());
        Ok(served)
    }

    /// Starts a device over a directory of the host instead of an image.
    pub(crate) fn start_hostdir(program: &Path, dir: &Path) -> io::Result<Served> {
        let folder = tempfile::Builder::new().prefix("weldfs-bench-").tempdir()?;
        let socket = folder.path().join("sock");
        let mut serve = Command::new(program);
        serve.env("WELDFS_CONFIG", "").arg("serve").arg("--hostdir").arg(dir).arg("--socket").arg(&socket);
        let child = serve.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let mut served = Served { child, socket, _folder: folder, image: dir.to_owned(), program: program.to_owned() };
        served.wait_ready()?;
        Ok(served)
    }

    /// A new attachment.
    pub fn connect(&self) -> io::Result<Client> {
        Client::connect(&self.socket)
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The device's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops the device cleanly, starts it again and returns how long the start took until it answered.
    pub fn restart(&mut self) -> io::Result<Duration> {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        }
        self.child.wait()?;
        let start = Instant::now();
        self.child = spawn(&self.program, &self.image, &self.socket, &[])?;
        self.wait_ready()?;
        Ok(start.elapsed())
    }

    fn wait_ready(&mut self) -> io::Result<()> {
        let start = Instant::now();
        loop {
            if let Ok(client) = self.connect() {
                return client.raw().nop().map_err(io::Error::from);
            }
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("the device ended with {status}")));
            }
            if start.elapsed() > Duration::from_secs(60) {
                return Err(io::Error::other("the device did not answer within a minute"));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Until a process that runs a device has touched the pages of its medium, which it does beside its work: that is no
/// part of what is measured. Where it cannot be seen, half a second has to do.
pub(crate) fn wait_settled(pid: u32) {
    let resident = || -> Option<u64> {
        let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        statm.split_whitespace().nth(1)?.parse().ok()
    };
    let (start, mut before) = (Instant::now(), resident());
    while start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(100));
        let now = resident();
        if now == before && start.elapsed() > Duration::from_millis(500) {
            return;
        }
        before = now;
    }
}

fn spawn(program: &Path, image: &Path, socket: &Path, args: &[String]) -> io::Result<Child> {
    let mut serve = Command::new(program);
    // An experiment's device is as it says, whatever weldfs.toml there is.
    serve.env("WELDFS_CONFIG", "").arg("serve").arg(image).arg("--socket").arg(socket).args(args);
    serve.stdin(Stdio::null()).stdout(Stdio::null()).spawn()
}

impl Drop for Served {
    fn drop(&mut self) {
        // Nothing of an experiment's image is kept, so there is no need to be gentle.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
