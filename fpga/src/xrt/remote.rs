//! The helper, seen from this process: a kernel whose end is a fault.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::place::Place;
use super::wire::{self, DONE, ERRNO, FAILED, NO_CARD, OPEN, Patient, RESET, RUN};
use crate::error::CardError;
use crate::flit::{FLIT_BYTES, flits};
use crate::host::{self, Process};
use crate::kernel::{Fault, Kernel, Step};
use crate::package::Package;

/// XRT's library with the C interface.
const LIBRARY: &str = "libxrt_coreutil.so.2";
/// Bytes of a packet, and of its output, at most: both lie in the card's memory as a whole.
const PACKET_MAX: usize = 256 << 20;
/// Room for output that every packet gets at least, bytes.
const ROOM_MIN: usize = 1 << 20;
/// Bytes of what the helper writes on standard error that are kept: the last ones.
const SAID_MAX: usize = 2048;

/// How long an end that has begun is waited for.
const END: Duration = Duration::from_secs(1);

/// The variable that says to the helper that it is one, and which library to load.
pub(crate) const XRT: &str = "WELDFS_KERNEL_XRT";

/// How a helper is started, and what it opens.
#[derive(Clone, Debug)]
pub struct Config {
    /// The program that runs kernels, and its arguments; empty: found as for shared objects.
    pub program: Vec<PathBuf>,
    /// XRT's library.
    pub library: PathBuf,
    /// Which card, from 0.
    pub card: u32,
    /// The image (xclbin) for the card.
    pub image: PathBuf,
    /// The kernel's name in the image.
    pub kernel: String,
    /// Cycles of a flit of input: the card's own clock is not ours to count.
    pub cycles_per_flit: f64,
    /// How long opening the card and loading the image may take.
    pub opening: Duration,
    /// How long the helper may be without an answer from then on before it is killed.
    pub watchdog: Duration,
    /// Once set, the helper is not waited for any longer.
    pub given_up: Arc<AtomicBool>,
    /// While set, what it computes is of no use any longer: it is killed if it does not answer within 20 ms.
    pub left: Arc<AtomicBool>,
}

impl Config {
    /// For a package's image, on the card of a place. No library is loaded here.
    ///
    /// # Errors
    /// [`CardError::NoCard`]; [`CardError::Package`] where the package has no image, or its file is not there.
    pub fn of(package: &Package, place: &Place) -> Result<Config, CardError> {
        let (manifest, image) = (package.manifest(), package.image()?);
        Ok(Config {
            program: Vec::new(),
            library: place.ready()?,
            card: place.card,
            image,
            kernel: format!("weld_{}", manifest.name.replace('-', "_")),
            cycles_per_flit: manifest.cycles_per_flit,
            opening: place.opening,
            watchdog: Duration::from_secs(60),
            given_up: Arc::default(),
            left: Arc::default(),
        })
    }
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
    process: Process,
    socket: UnixStream,
    said: Arc<Mutex<VecDeque<u8>>>,
    listener: JoinHandle<()>,
    patience: Duration,
    given_up: Arc<AtomicBool>,
    left: Arc<AtomicBool>,
    cycles_per_flit: f64,
    /// The folder that XILINX_XRT names to the helper.
    _tree: TempDir,
    input: Vec<u8>,
    output: Option<Vec<u8>>,
    given: usize,
}

fn lost(why: impl Into<String>) -> Fault {
    Fault::Lost(why.into())
}

impl Remote {
    /// Starts a helper that opens the kernel. Blocks until it has, or for `opening`.
    ///
    /// # Errors
    /// [`CardError::NoCard`]: XRT opens no card of this number. [`CardError::Fault`] ([`Fault::Lost`]) with a sentence:
    /// the helper cannot be started, ended, or took too long; what XRT refused.
    pub fn open(config: &Config) -> Result<Remote, CardError> {
        let mut remote = Remote::start(config).map_err(|e| lost(format!("XRT's helper does not start: {e}")))?;
        let name = config.kernel.as_bytes();
        let image = config.image.as_os_str().as_bytes();
        let body: [&[u8]; 4] = [&config.card.to_le_bytes(), name, &[0], image];
        match remote.exchange(OPEN, &body) {
            Ok((NO_CARD, sentence)) => Err(CardError::NoCard(String::from_utf8_lossy(&sentence).into_owned())),
            answer => {
                remote.answered(answer)?;
                remote.patience = config.watchdog;
                Ok(remote)
            }
        }
    }

    fn start(config: &Config) -> io::Result<Remote> {
        let tree = tree(&config.library)?;
        let (socket, theirs) = UnixStream::pair()?;
        socket.set_nonblocking(true)?;
        let program = if config.program.is_empty() { host::program() } else { config.program.clone() };
        let (first, rest) = program.split_first().ok_or(io::ErrorKind::NotFound)?;
        let mut command = Command::new(first);
        command
            .args(rest)
            .env(XRT, &config.library)
            .env("XILINX_XRT", tree.path())
            // Emulation is not looked for: it ends the process that asks for it.
            .env_remove("XCL_EMULATION_MODE")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        // The command holds the other end of the socket: without it, the end of the helper is seen as such.
        drop(command);
        let said = Arc::default();
        let (from, keep) = (child.stderr.take(), Arc::clone(&said));
        let listener = std::thread::spawn(move || from.into_iter().for_each(|from| listen(from, &keep)));
        Ok(Remote {
            process: Process::new(child),
            socket,
            said,
            listener,
            patience: config.opening,
            given_up: config.given_up.clone(),
            left: config.left.clone(),
            cycles_per_flit: config.cycles_per_flit,
            _tree: tree,
            input: Vec::new(),
            output: None,
            given: 0,
        })
    }

    /// One message, and its answer.
    fn exchange(&mut self, kind: u8, body: &[&[u8]]) -> io::Result<(u8, Vec<u8>)> {
        let (given_up, left) = (&*self.given_up, &*self.left);
        let mut stream = Patient { socket: &self.socket, patience: self.patience, given_up, left };
        wire::send(&mut stream, kind, body)?;
        wire::receive(&mut stream)
    }

    fn call(&mut self, kind: u8, body: &[&[u8]]) -> Result<Vec<u8>, Fault> {
        let answer = self.exchange(kind, body);
        self.answered(answer)
    }

    fn answered(&mut self, answer: io::Result<(u8, Vec<u8>)>) -> Result<Vec<u8>, Fault> {
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
        let how = match error.kind() {
            _ if self.given_up.load(Ordering::Acquire) => return lost("the card is gone"),
            io::ErrorKind::ConnectionAborted => {
                self.process.kill();
                return lost("its session has ended: XRT's helper was killed");
            }
            io::ErrorKind::TimedOut => {
                self.process.kill();
                format!("took more than {} s for an answer and was killed", self.patience.as_secs_f32())
            }
            // A helper that closed its socket ends, or is told to.
            _ => self.process.ended(END).map_or_else(|| "broke off".to_owned(), ending),
        };
        self.process.kill();
        let until = Instant::now() + END;
        while !self.listener.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let said = String::from_utf8_lossy(&said.iter().copied().collect::<Vec<u8>>()).into_owned();
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).map(|l| format!("; it said: {}", l.trim()));
        lost(format!("XRT's helper {how}{}", last.unwrap_or_default()))
    }

    /// Clock cycles of a packet: what a pipeline takes of as many cycles a flit of input as the manifest says.
    fn cycles(&self, taken: usize, made: usize) -> u64 {
        let taken = (taken.div_ceil(FLIT_BYTES) as f64 * self.cycles_per_flit).ceil() as u64;
        taken.max(flits(made as u64))
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
    /// The helper keeps the parameters: one that ended meanwhile is found out here.
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
        self.input.clear();
        (self.output, self.given) = (None, 0);
        let words: Vec<u8> = params.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.call(RESET, &[&words]).map(drop)
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
            let output = self.call(RUN, &[&room.to_le_bytes(), &packet])?;
            step.cycles = self.cycles(packet.len(), output.len());
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
