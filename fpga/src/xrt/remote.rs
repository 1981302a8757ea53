//! The helper, seen from this process: a kernel whose end is a fault.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;

use super::wire::{self, DONE, ERRNO, FAILED, OPEN, RUN};
use crate::flit::flits;
use crate::kernel::{Fault, Kernel, Step};

/// XRT's library with the C interface.
const LIBRARY: &str = "libxrt_coreutil.so.2";
/// Bytes of a packet, and of its output, at most: both lie in the card's memory as a whole.
const PACKET_MAX: usize = 256 << 20;
/// Room for output that every packet gets at least, bytes.
const ROOM_MIN: usize = 1 << 20;
/// Bytes of what the helper writes on standard error that are kept: the last ones.
const SAID_MAX: usize = 2048;

/// How a helper is started, and what it opens.
#[derive(Clone, Debug)]
pub struct Config {
    /// The program that has the verb `kernel-host`: `weldfs`.
    pub program: PathBuf,
    /// XRT's library: see [`library_file`].
    pub library: PathBuf,
    /// Which card, from 0.
    pub card: u32,
    /// The image (xclbin) for the card.
    pub image: PathBuf,
    /// The kernel's name in the image.
    pub kernel: String,
    /// How long the helper may take for one answer before it is killed.
    pub patience: Duration,
}

/// The file of XRT's library: below `XILINX_XRT` where that is set, else where XRT's own packages and those of
/// distributions put it. `None`: it is not installed.
pub fn library_file() -> Option<PathBuf> {
    let own = std::env::var_os("XILINX_XRT").map(|at| PathBuf::from(at).join("lib"));
    let multiarch = PathBuf::from(format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH));
    let usual = ["/opt/xilinx/xrt/lib", "/usr/lib64", "/usr/lib", "/usr/local/lib"].map(PathBuf::from);
    let folders = own.into_iter().chain([multiarch]).chain(usual);
    folders.map(|f| f.join(LIBRARY)).find(|f| f.is_file())
}

/// A kernel on a card. It takes a packet as a whole, and runs it when it has ended.
pub struct Remote {
    child: Child,
    socket: UnixStream,
    said: Arc<Mutex<VecDeque<u8>>>,
    listener: Option<JoinHandle<()>>,
    patience: Duration,
    /// The folder that XILINX_XRT names to the helper.
    _tree: TempDir,
    params: Vec<u32>,
    input: Vec<u8>,
    output: Option<Vec<u8>>,
    given: usize,
}

fn lost(why: impl Into<String>) -> Fault {
    Fault::Lost(why.into())
}

impl Remote {
    /// Starts a helper that opens the kernel. Blocks until it has, or for `patience`.
    ///
    /// # Errors
    /// [`Fault::Lost`] with a sentence: the helper cannot be started, ended, or took too long; what XRT refused.
    pub fn open(config: &Config) -> Result<Remote, Fault> {
        let mut remote = Remote::start(config).map_err(|e| lost(format!("XRT's helper does not start: {e}")))?;
        let name = config.kernel.as_bytes();
        let image = config.image.as_os_str().as_bytes();
        let body: [&[u8]; 4] = [&config.card.to_le_bytes(), name, &[0], image];
        remote.call(OPEN, &body)?;
        Ok(remote)
    }

    fn start(config: &Config) -> io::Result<Remote> {
        let tree = tree(&config.library)?;
        let (socket, theirs) = UnixStream::pair()?;
        socket.set_read_timeout(Some(config.patience))?;
        socket.set_write_timeout(Some(config.patience))?;
        let mut child = Command::new(&config.program)
            .args(["kernel-host", "--xrt"])
            .arg(&config.library)
            .env("XILINX_XRT", tree.path())
            // Emulation is not looked for: it ends the process that asks for it.
            .env_remove("XCL_EMULATION_MODE")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let said = Arc::default();
        let listener = child.stderr.take().map(|from| {
            let said = Arc::clone(&said);
            std::thread::spawn(move || listen(from, &said))
        });
        let (params, input) = (Vec::new(), Vec::new());
        let patience = config.patience;
        Ok(Remote { child, socket, said, listener, patience, _tree: tree, params, input, output: None, given: 0 })
    }

    /// One message, and its answer.
    fn call(&mut self, kind: u8, body: &[&[u8]]) -> Result<Vec<u8>, Fault> {
        let answer = wire::send(&mut self.socket, kind, body).and_then(|()| wire::receive(&mut self.socket));
        match answer {
            Ok((DONE, body)) => Ok(body),
            Ok((FAILED, body)) => Err(lost(String::from_utf8_lossy(&body))),
            Ok((ERRNO, body)) => {
                let errno = body.first_chunk().map_or(0, |b| i32::from_le_bytes(*b));
                Err(match rustix::io::Errno::from_raw_os_error(errno) {
                    rustix::io::Errno::INVAL => Fault::Params("the kernel on the card does not take them".into()),
                    rustix::io::Errno::BADMSG => Fault::Data("not what the kernel on the card takes".into()),
                    _ => lost(format!("the kernel on the card says {errno}")),
                })
            }
            Ok((kind, _)) => Err(lost(format!("XRT's helper answers with message {kind}"))),
            Err(e) => Err(self.ended(&e)),
        }
    }

    /// What became of the helper, as a sentence; it does not live on.
    fn ended(&mut self, error: &io::Error) -> Fault {
        let slow = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        if slow {
            let _ = self.child.kill();
        }
        // A helper that closed its socket ends, or is told to.
        let status = self.wait();
        let how = match status {
            _ if slow => format!("took more than {} s for an answer and was killed", self.patience.as_secs_f32()),
            Some(status) => ending(status),
            None => "broke off".to_owned(),
        };
        let _ = self.listener.take().map(JoinHandle::join);
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let said = String::from_utf8_lossy(&said.iter().copied().collect::<Vec<u8>>()).into_owned();
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).map(|l| format!("; it said: {}", l.trim()));
        lost(format!("XRT's helper {how}{}", last.unwrap_or_default()))
    }

    /// Waits for the end of the helper a second, then kills it.
    fn wait(&mut self) -> Option<ExitStatus> {
        for _ in 0..100 {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                Err(_) => return None,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        None
    }
}

/// `ended with signal 6`, `exited with code 1`.
fn ending(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was ended by signal {signal}"),
        (None, Some(code)) => format!("exited with code {code}"),
        (None, None) => "ended".to_owned(),
    }
}

/// XRT asks XILINX_XRT where it is installed, and aborts where that has no `lib`; distributions put it elsewhere.
fn tree(library: &Path) -> io::Result<TempDir> {
    let tree = tempfile::Builder::new().prefix("weldfs-xrt-").tempdir()?;
    let folder = library.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::os::unix::fs::symlink(folder.canonicalize()?, tree.path().join("lib"))?;
    Ok(tree)
}

/// Keeps the last of what the helper says.
fn listen(mut from: impl Read, said: &Mutex<VecDeque<u8>>) {
    let mut buffer = [0; 1024];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.extend(&buffer[..n]);
        let over = said.len().saturating_sub(SAID_MAX);
        said.drain(..over);
    }
}

impl Kernel for Remote {
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
        self.input.clear();
        (self.output, self.given) = (None, 0);
        self.params = params.to_vec();
        Ok(())
    }

    fn step(&mut self, input: &[u8], eop: bool, out: &mut [u8]) -> Result<Step, Fault> {
        let mut step = Step::default();
        if self.output.is_none() {
            if self.input.len() + input.len() > PACKET_MAX {
                return Err(lost(format!("a card takes packets of at most {PACKET_MAX} bytes")));
            }
            self.input.extend_from_slice(input);
            step.taken = input.len();
            if !eop {
                return Ok(step);
            }
            let packet = std::mem::take(&mut self.input);
            let room = (packet.len() * 2).clamp(ROOM_MIN, PACKET_MAX) as u64;
            let words: Vec<u8> = self.params.iter().flat_map(|w| w.to_le_bytes()).collect();
            let count = self.params.len() as u32;
            let output = self.call(RUN, &[&room.to_le_bytes(), &count.to_le_bytes(), &words, &packet])?;
            // The card's clock is not ours to count: what a pipeline takes at one flit a cycle.
            step.cycles = flits(packet.len() as u64).max(flits(output.len() as u64));
            self.output = Some(output);
        }
        let output = self.output.as_deref().unwrap_or_default();
        step.made = out.len().min(output.len() - self.given);
        out[..step.made].copy_from_slice(&output[self.given..self.given + step.made]);
        self.given += step.made;
        if self.given == output.len() {
            (step.done, self.output, self.given) = (true, None, 0);
        }
        Ok(step)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // A helper in a call of the library's may not come back from it.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.listener.take().map(JoinHandle::join);
    }
}
