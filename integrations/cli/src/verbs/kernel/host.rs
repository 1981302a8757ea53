//! The kernels that are tried and run here: each in a process of its own.

use super::build::Kind;
use super::cases::Stall;
use crate::failure::Failure;
use std::path::Path;
use std::time::Duration;
use weldfs_fpga::error::CardError;
use weldfs_fpga::host::{self, Launch};
use weldfs_fpga::kernel::Kernel;
use weldfs_fpga::manifest::PackageError;
use weldfs_fpga::package::Package;
use weldfs_fpga::xrt::{Config, Place, Remote};

/// The clock of kernels that are built in, MHz.
pub const BUILTIN_MHZ: u32 = 250;

/// How long a kernel may be without progress: one that hangs is to be found while its author watches.
const WATCHDOG: Duration = Duration::from_secs(5);

/// The package of a folder.
pub fn package(folder: &Path) -> Result<Package, Failure> {
    Package::open(folder).map_err(|e| match e {
        // It names the file.
        PackageError::File { .. } => Failure::new(e.to_string()),
        _ => Failure::new(format!("{}: {e}", folder.display())),
    })
}

/// The back-end that was asked for, or the first of a package that is a shared object.
pub fn kind(package: &Package, asked: Option<&str>) -> Result<Kind, Failure> {
    let manifest = package.manifest();
    let backends = &manifest.backend;
    let found = match asked {
        Some(name) => Kind::find(name).filter(|kind| backends.library(*kind).is_some()),
        None => backends.kinds().find(|kind| backends.library(*kind).is_some()),
    };
    if found.is_none() && !backends.chain().is_empty() && asked.is_none_or(|name| name == "model") {
        let name = &manifest.name;
        return Err(Failure::new(format!("{name} is a chain of other kernels: it has no file to build or to test")));
    }
    let what = asked.map_or_else(|| "a shared object".to_owned(), |name| format!("the back-end {name}"));
    found.ok_or_else(|| Failure::new(format!("kernel.toml of {} does not have {what}", manifest.name)))
}

/// The kernel on a card.
pub fn on_card(package: &Package, card: u32) -> Result<Remote, Failure> {
    let manifest = package.manifest();
    let place = Place { card, ..Place::default() };
    let program = std::env::current_exe().map_err(|e| Failure::new(format!("where this program is: {e}")))?;
    let opened = Config::of(package, &place).and_then(|config| {
        let program = vec![program, "kernel-host".into()];
        Remote::open(&Config { program, ..config })
    });
    opened.map_err(|e| match e {
        CardError::NoCard(why) => Failure::new(format!("{}: {why} (`weldfs kernel cards` lists them)", manifest.name)),
        CardError::Package(PackageError::NoBackend { .. }) => {
            Failure::new(format!("kernel.toml of {} has no back-end xrt", manifest.name))
        }
        other => told(package, &other),
    })
}

/// A process with the kernel of a back-end; for a test with stalls, or with a waveform of everything that it does.
pub fn start(
    package: &Package,
    kind: Kind,
    stall: Option<Stall>,
    wave: Option<&Path>,
) -> Result<Box<dyn Kernel>, Failure> {
    let wave = wave.map(std::path::absolute).transpose();
    let mut launch = launch(package, kind)?;
    launch.wave = wave.map_err(|e| Failure::new(format!("where the waveform goes: {e}")))?;
    launch.stall = stall.map(lanes);
    Ok(Box::new(launch.start().map_err(|e| told(package, &e))?))
}

/// Whether a back-end can be stalled: one without a clock cannot.
pub fn stalls(package: &Package, kind: Kind) -> Result<bool, Failure> {
    let stall = Some(host::Stall { seed: 1, in_permille: 0, out_permille: 0 });
    match (Launch { stall, ..launch(package, kind)? }).start() {
        Ok(_) => Ok(true),
        Err(CardError::Package(PackageError::Symbol { symbol, .. })) if symbol.ends_with("_stall") => Ok(false),
        Err(e) => Err(told(package, &e)),
    }
}

fn lanes(stall: Stall) -> host::Stall {
    host::Stall { seed: stall.seed, in_permille: stall.input, out_permille: stall.output }
}

fn launch(package: &Package, kind: Kind) -> Result<Launch, Failure> {
    let manifest = package.manifest();
    let library = package.library(kind).map_err(|e| told(package, &e))?;
    let (cycles_per_flit, dram_bytes) = (manifest.cycles_per_flit, manifest.ports.dram_bytes);
    Ok(Launch { cycles_per_flit, dram_bytes, watchdog: WATCHDOG, ..Launch::of(&library) })
}

fn told(package: &Package, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("{}: {error}", package.manifest().name))
}
