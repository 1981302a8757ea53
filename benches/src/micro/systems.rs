//! The systems of a run: devices are started, peers mounted, and what cannot be measured is written down with its
//! reason.

use super::cell::{Cell, Class, Phase};
use super::files::host_tree;
use super::posix::Posix;
use super::uring::Uring;
use super::weld::{Device, WeldFs};
use super::{Options, System, Watch};
use crate::chosen::{Chosen, with_article};
use crate::peers::{self, Ground, LoopMount, Peer};
use crate::served::{ServeOptions, Served};
use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use weldfs::Client;
use weldfs_device::DeviceConfig;
use weldfs_kernel_shim::{Embedded, Source};

/// Bytes of the log in the steady phase: so small that ten log lengths do not take long.
const STEADY_LOG: u64 = 4 << 20;
/// Bytes of a prepared file system.
const MOUNT_BYTES: u64 = 2 << 30;

/// All systems of a run. Dropped in this order: systems, then the mounts they stand on.
pub(super) struct Systems {
    all: Vec<Box<dyn System>>,
    peers: Vec<(Peer, Ground)>,
    skipped: Vec<String>,
    _mounts: Vec<LoopMount>,
}

/// A device for each phase that is run.
struct Devices {
    burst: Option<Rc<RefCell<Device>>>,
    steady: Option<Rc<RefCell<Device>>>,
}

/// WeldFS with a device for each phase.
struct Phased {
    name: String,
    burst: Option<WeldFs>,
    steady: Option<WeldFs>,
    /// What the device stands on, where that is a directory of the host.
    ground: Option<Ground>,
}

impl Phased {
    fn boxed(name: &str, devices: &Devices, fused: bool, ground: Option<Ground>) -> Box<dyn System> {
        let weld = |d: &Option<Rc<RefCell<Device>>>| d.as_ref().map(|d| WeldFs::new(name, d, fused));
        Box::new(Phased { name: name.to_owned(), burst: weld(&devices.burst), steady: weld(&devices.steady), ground })
    }

    fn any(&self) -> Option<&WeldFs> {
        self.burst.as_ref().or(self.steady.as_ref())
    }
}

impl System for Phased {
    fn name(&self) -> &str {
        &self.name
    }

    fn medium(&self) -> String {
        match &self.ground {
            Some(ground) => ground.describe(),
            None => self.any().map_or_else(String::new, System::medium),
        }
    }

    fn power_safe(&self) -> bool {
        match &self.ground {
            Some(ground) => ground.power_safe(),
            None => self.any().is_some_and(System::power_safe),
        }
    }

    fn takes(&self, cell: &Cell) -> bool {
        let keeps = cell.class == Class::Volatile || self.ground.as_ref().is_none_or(Ground::keeps);
        let device = if cell.phase == Phase::Burst { &self.burst } else { &self.steady };
        keeps && device.as_ref().is_some_and(|d| d.takes(cell))
    }

    fn log(&self) -> u64 {
        self.steady.as_ref().map_or(0, System::log)
    }

    fn run(&mut self, cell: &Cell, run: u64, count: u64) -> io::Result<super::Sample> {
        let device = if cell.phase == Phase::Burst { &mut self.burst } else { &mut self.steady };
        device.as_mut().ok_or_else(|| io::Error::other("no device for this phase"))?.run(cell, run, count)
    }

    fn rest(&mut self) -> io::Result<()> {
        [&mut self.burst, &mut self.steady].into_iter().flatten().try_for_each(System::rest)
    }
}

/// Whether `weldfs serve` of this build can serve a host directory.
fn has_hostdir(program: &Path) -> io::Result<bool> {
    let help = Command::new(program).args(["serve", "--help"]).stdin(Stdio::null()).output()?;
    Ok(String::from_utf8_lossy(&help.stdout).contains("--hostdir"))
}

impl Systems {
    pub(super) fn start(options: &Options, watch: &mut dyn Watch) -> io::Result<Systems> {
        let mut systems = Systems { all: Vec::new(), peers: Vec::new(), skipped: Vec::new(), _mounts: Vec::new() };
        if options.prepare {
            let bytes = if options.quick { MOUNT_BYTES / 4 } else { MOUNT_BYTES };
            let made = prepare(&options.chosen, bytes, watch)?;
            (systems._mounts, systems.peers, systems.skipped) = (made.mounts, made.peers, made.skipped);
        }
        for peer in &options.peers {
            systems.peers.push((peer.clone(), Ground::of(&peer.dir)?));
        }
        systems.devices(options, watch)?;
        let chosen = &options.chosen;
        let hostdir = has_hostdir(&options.program)?;
        for (peer, ground) in systems.peers.clone() {
            if watch.stop() {
                return Err(super::interrupted());
            }
            if !chosen.system("hostdir") {
                // Not asked for.
            } else if hostdir {
                systems.hostdir(options, &peer, &ground)?;
            } else {
                systems.skipped.push(format!("hostdir:{}: this build serves no host directories", peer.name));
            }
            if chosen.system("posix") {
                systems.all.push(Box::new(Posix::new(&peer, options.calm())?));
            }
            match Uring::new(&peer, options.calm()) {
                _ if !chosen.system("uring") => {}
                Ok(uring) => systems.all.push(Box::new(uring)),
                Err(e) => systems.skipped.push(format!("uring:{}: refused: {e}", peer.name)),
            }
            if !ground.keeps() {
                systems.skipped.push(format!("{}, durable: {} keeps nothing", peer.name, ground.fs));
            }
        }
        Ok(systems)
    }

    /// WeldFS on emulated pmem, served and embedded; and on a disk for each peer on one.
    fn devices(&mut self, options: &Options, watch: &mut dyn Watch) -> io::Result<()> {
        let chosen = &options.chosen;
        let kinds = [("weldfs-fused", true), ("weldfs-unfused", false)];
        let kinds: Vec<_> = kinds.into_iter().filter(|(kind, _)| chosen.system(kind)).collect();
        if !kinds.is_empty() {
            watch.at("starting a device over emulated pmem", false);
            let pmem = served_both(options, "pmem", Path::new("/dev/shm"))?;
            self.all.extend(kinds.iter().map(|(kind, fused)| Phased::boxed(kind, &pmem, *fused, None)));
        }
        if chosen.system("weldfs-embedded") {
            watch.at("starting an embedded device over emulated pmem", false);
            let embedded = both(options, |log| embedded(options, log))?;
            self.all.push(Phased::boxed("weldfs-embedded", &embedded, true, None));
        }
        let mut disks = self.peers.iter().filter(|(_, ground)| ground.on_disk());
        if let Some((peer, _)) = disks.next()
            && !kinds.is_empty()
        {
            watch.at("starting a device over an image on the disk", false);
            let block = served_both(options, "block", &peer.dir)?;
            self.all.extend(kinds.iter().map(|(kind, fused)| Phased::boxed(kind, &block, *fused, None)));
            let others = disks.map(|(p, _)| format!("{}: compared with an image on {}", p.name, peer.name));
            self.skipped.extend(others);
        }
        Ok(())
    }

    fn hostdir(&mut self, options: &Options, peer: &Peer, ground: &Ground) -> io::Result<()> {
        let name = format!("hostdir:{}", peer.name);
        let (folder, tree) = host_tree(&peer.dir)?;
        match Served::start_hostdir(&options.program, &tree.0) {
            Ok(served) => {
                let client = served.connect()?;
                options.keep_apart(served.pid());
                let device =
                    Device::new(Box::new((served, folder)), client, ground.describe(), 0)?.calmly(options.calm());
                let device = Rc::new(RefCell::new(device));
                let devices = Devices { burst: Some(device.clone()), steady: Some(device) };
                self.all.push(Phased::boxed(&name, &devices, true, Some(ground.clone())));
            }
            Err(e) => self.skipped.push(format!("{name}: {e}")),
        }
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get(&self, at: usize) -> &dyn System {
        &*self.all[at]
    }

    pub(super) fn get_mut(&mut self, at: usize) -> &mut dyn System {
        &mut *self.all[at]
    }

    pub(super) fn peers(&self) -> Vec<(String, Ground)> {
        self.peers.iter().map(|(p, g)| (p.name.clone(), g.clone())).collect()
    }

    pub(super) fn skipped(&self) -> Vec<String> {
        self.skipped.clone()
    }
}

/// File systems that were mounted for a run, and why some were not.
pub(crate) struct Prepared {
    pub(crate) mounts: Vec<LoopMount>,
    pub(crate) peers: Vec<(Peer, Ground)>,
    pub(crate) skipped: Vec<String>,
}

/// An xfs is at least so large.
const XFS_BYTES_MIN: u64 = 512 << 20;

/// Mounts an ext4, an xfs and a tmpfs of so many bytes over RAM, in mounts of this process's own.
pub(crate) fn prepare(chosen: &Chosen, bytes: u64, watch: &mut dyn Watch) -> io::Result<Prepared> {
    if !rustix::process::geteuid().is_root() {
        let why = "--prepare mounts file systems, which only root may do; name directories with --peer instead";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    peers::mounts_of_our_own().map_err(|e| io::Error::new(e.kind(), format!("cannot get mounts of our own: {e}")))?;
    let mut made = Prepared { mounts: Vec::new(), peers: Vec::new(), skipped: Vec::new() };
    for fs in chosen.prepared() {
        if watch.stop() {
            return Err(super::interrupted());
        }
        watch.at(&format!("making {} over RAM", with_article(fs)), false);
        match LoopMount::make(fs, if fs == "xfs" { bytes.max(XFS_BYTES_MIN) } else { bytes }) {
            Ok(mount) => {
                let peer = Peer { name: fs.into(), dir: mount.dir().to_owned(), medium: format!("{fs} over RAM") };
                let ground = Ground::of(&peer.dir)?;
                made.peers.push((peer, ground));
                made.mounts.push(mount);
            }
            Err(_) if watch.stop() => return Err(super::interrupted()),
            Err(e) => made.skipped.push(format!("{fs}: {e}")),
        }
    }
    Ok(made)
}

/// A device for each phase of the matrix, made with this length of log; none is the usual one.
fn both(options: &Options, make: impl Fn(Option<u64>) -> io::Result<Device>) -> io::Result<Devices> {
    let has = |phase| options.matrix.phases.contains(&phase);
    let device = |log| make(log).map(|d| Rc::new(RefCell::new(d.calmly(options.calm()))));
    Ok(Devices {
        burst: has(Phase::Burst).then(|| device(None)).transpose()?,
        steady: has(Phase::Steady).then(|| device(Some(STEADY_LOG))).transpose()?,
    })
}

fn log_args(log: Option<u64>) -> Vec<String> {
    log.map_or_else(Vec::new, |bytes| vec!["--log-size".to_owned(), bytes.to_string()])
}

fn served_both(options: &Options, medium: &'static str, place: &Path) -> io::Result<Devices> {
    both(options, |log| {
        let serve =
            ServeOptions { medium, size: options.image.clone(), place: place.to_owned(), serve_args: Vec::new() };
        let served = Served::start_with(&options.program, &serve, &log_args(log))?;
        let client = served.connect()?;
        options.keep_apart(served.pid());
        let name = if medium == "pmem" { "emulated pmem" } else { "block image on a disk" };
        Device::new(Box::new(served), client, name.to_owned(), log.unwrap_or(0))
    })
}

fn embedded(options: &Options, log: Option<u64>) -> io::Result<Device> {
    let folder = tempfile::Builder::new().prefix("weldfs-bench-").tempdir_in("/dev/shm")?;
    let image = folder.path().join("image");
    let mut mkfs = Command::new(&options.program);
    mkfs.arg("mkfs").arg(&image).args(["--size", &options.image, "--medium", "pmem"]).args(log_args(log));
    let out = mkfs.stdin(Stdio::null()).output()?;
    if !out.status.success() {
        return Err(io::Error::other(format!("mkfs: {}", String::from_utf8_lossy(&out.stderr).trim())));
    }
    let device = Embedded::open(&Source::Image(image), DeviceConfig::default()).map_err(io::Error::other)?;
    options.keep_apart(std::process::id());
    let client = Client::with(Arc::new(device.clone()))?;
    crate::served::wait_settled(std::process::id());
    Device::new(Box::new((device, folder)), client, "emulated pmem".to_owned(), log.unwrap_or(0))
}
