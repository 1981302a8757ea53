//! A device process of its own, started, killed and restarted by the demo.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weldfs::Client;

/// How long a device may take until it answers: recovery of a full log included.
const START_MAX: Duration = Duration::from_secs(60);

/// A running `weldfs serve` over one image.
pub struct Device {
    image: PathBuf,
    socket: PathBuf,
    child: Child,
}

impl Device {
    /// Starts a device over `image` and waits until it answers.
    pub fn start(image: &Path) -> io::Result<Device> {
        let socket = image.with_extension("sock");
        let child = spawn(image, &socket)?;
        let mut device = Device { image: image.to_owned(), socket, child };
        device.wait_ready()?;
        Ok(device)
    }

    /// The socket to attach to.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// A new attachment.
    pub fn connect(&self) -> io::Result<Client> {
        Client::connect(&self.socket)
    }

    /// SIGKILL: no warning, no flush, no goodbye.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(|_| ())
    }

    /// Starts it again after `kill`; returns how long it took until it answered, recovery included.
    pub fn restart(&mut self) -> io::Result<Duration> {
        let start = Instant::now();
        self.child = spawn(&self.image, &self.socket)?;
        self.wait_ready()?;
        Ok(start.elapsed())
    }

    /// SIGTERM and wait: the device checkpoints and marks the image clean.
    pub fn stop(mut self) -> io::Result<()> {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        }
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("the device ended with {status}"))) }
    }

    fn wait_ready(&mut self) -> io::Result<()> {
        let start = Instant::now();
        loop {
            if let Ok(client) = self.connect() {
                return client.raw().nop().map_err(io::Error::from);
            }
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("the device ended with {status} before it answered")));
            }
            if start.elapsed() > START_MAX {
                return Err(io::Error::other("the device did not answer in time"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Already gone in every good end; in a bad one nothing may be left running.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(image: &Path, socket: &Path) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    // The demo's device is as it says, whatever weldfs.toml there is.
    command.env("WELDFS_CONFIG", "");
    command.arg("serve").arg(image).arg("--socket").arg(socket).stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn()
}
