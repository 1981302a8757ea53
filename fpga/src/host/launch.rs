//! How a kernel's process is started.

use super::memory;
use super::process::Process;
use super::wire::{Code, Reply};
use super::{Child, child};
use crate::error::CardError;
use crate::kernel::Fault;
use crate::manifest::PackageError;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The variables that tell the process what to do. Nothing else is in its environment.
pub(super) const LIBRARY: &str = "WELDFS_KERNEL_LIBRARY";
pub(super) const DRAM: &str = "WELDFS_KERNEL_DRAM";
pub(super) const STALL: &str = "WELDFS_KERNEL_STALL";
pub(super) const WAVE: &str = "WELDFS_KERNEL_WAVE";
/// The variable that says which program runs kernels.
const HOST: &str = "WELDFS_KERNEL_HOST";

/// Random stalls of a kernel, for tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stall {
    /// Which ones; 0: none.
    pub seed: u64,
    /// Cycles in a thousand in which the input stalls.
    pub in_permille: u32,
    /// Cycles in a thousand in which the output stalls.
    pub out_permille: u32,
}

/// A kernel's process that is to be started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program that runs [`super::serve`], and its arguments; empty: it is looked for.
    pub program: Vec<PathBuf>,
    /// The shared object.
    pub library: PathBuf,
    /// Cycles of a flit of input, for a kernel that counts none.
    pub cycles_per_flit: f64,
    /// Memory that the kernel needs beside what any process does, bytes.
    pub dram_bytes: u64,
    /// How long it may be without progress.
    pub watchdog: Duration,
    /// For tests: its FIFOs stall. [`PackageError::Symbol`] where the kernel cannot do that.
    pub stall: Option<Stall>,
    /// For tests: where a waveform is written. The process may write files then, and keeps the descriptors that loading
    /// needs. [`PackageError::Symbol`] where the kernel cannot do that.
    pub wave: Option<PathBuf>,
    /// Once set, the process is not waited for any longer: whatever it is asked for is lost.
    pub given_up: Arc<AtomicBool>,
    /// While set, what it computes is of no use any longer: it is killed if it does not answer within 20 ms.
    pub left: Arc<AtomicBool>,
}

/// The program that runs kernels: as the environment says, where it names one; this program or one beside
/// it, if that is `weldfs`; or as PATH finds it. With the verb.
pub(crate) fn program() -> Vec<PathBuf> {
    if let Some(host) = std::env::var_os(HOST).filter(|host| !host.is_empty()) {
        return vec![host.into(), "kernel-host".into()];
    }
    let this = std::env::current_exe().unwrap_or_default();
    let beside = this.with_file_name("weldfs");
    let program = if this.file_name().is_some_and(|n| n == "weldfs") {
        this
    } else if beside.is_file() {
        beside
    } else {
        PathBuf::from("weldfs")
    };
    vec![program, "kernel-host".into()]
}

impl Launch {
    /// A process for a shared object, found and watched as usual.
    pub fn of(library: &Path) -> Launch {
        Launch {
            program: Vec::new(),
            library: library.into(),
            cycles_per_flit: 1.0,
            dram_bytes: 0,
            watchdog: Duration::from_secs(10),
            stall: None,
            wave: None,
            given_up: Arc::default(),
            left: Arc::default(),
        }
    }

    /// Starts it. Waits until the shared object is loaded.
    ///
    /// # Errors
    /// [`CardError::Package`]: the file is no shared object, lacks a symbol, or has another version of the interface.
    /// [`CardError::Fault`] ([`Fault::Lost`]): the process cannot be started or confined, or crashed.
    pub fn start(&self) -> Result<Child, CardError> {
        let lost = |e: &dyn std::fmt::Display| CardError::Fault(Fault::Lost(format!("its process did not start: {e}")));
        let host = if self.program.is_empty() { program() } else { self.program.clone() };
        let (first, rest) = host.split_first().ok_or_else(|| lost(&"no program"))?;
        let (file, shared) = memory::create().map_err(|e| lost(&e))?;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).map_err(|e| lost(&e))?;
        let mut command = Command::new(first);
        command.args(rest).env_clear().current_dir("/").env(LIBRARY, &self.library);
        command.env(DRAM, self.dram_bytes.to_string());
        if let Some(stall) = &self.stall {
            command.env(STALL, format!("{},{},{}", stall.seed, stall.in_permille, stall.out_permille));
        }
        if let Some(wave) = &self.wave {
            command.env(WAVE, wave);
        }
        command.stdin(Stdio::from(theirs)).stdout(Stdio::from(file)).stderr(Stdio::null());
        let process = command.spawn().map_err(|e| lost(&format!("{}: {e}", first.display())))?;
        // The command holds the other end of the socket: without it, the end of the process is seen as such.
        drop(command);
        let mut child = Child::new(child::Parts { process: Process::new(process), socket: ours, shared }, self);
        let ready = child.ready()?;
        match ready.code {
            Code::Good => Ok(child),
            _ => Err(self.refused(ready)),
        }
    }

    fn refused(&self, reply: Reply) -> CardError {
        let path = self.library.display().to_string();
        match reply.code {
            Code::File => PackageError::Object { path, why: reply.text }.into(),
            Code::Symbol => PackageError::Symbol { path, symbol: reply.text }.into(),
            Code::Abi => {
                let found = u32::try_from(reply.taken).unwrap_or(u32::MAX);
                PackageError::Abi { path, found, expected: 1 }.into()
            }
            Code::Sandbox => CardError::Fault(Fault::Lost(format!("its process cannot be confined: {}", reply.text))),
            _ => CardError::Fault(Fault::Lost(reply.text)),
        }
    }
}
