//! `weldfs serve`: runs a device over an image, or a directory in its place, until SIGTERM or SIGINT.

use crate::device::socket_of;
use crate::failure::{Failure, Outcome};
use crate::output;
use std::path::{Path, PathBuf};
use weldfs::Durability;
use weldfs_kernel_shim::{HostDirServer, ServeConfig, Server, Source};
use weldfs_storagefs::device::hostdir::{HostDirConfig, THREADS};
use weldfs_storagefs::device::{CostModel, DeviceConfig, PolicyKind, Profile, TenantsConfig};

/// What calls get that do not choose.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Visible at once, persistent within 5 s, at fsync, or with the next durable change
    Volatile,
    /// Persistent before a call returns
    Durable,
}

/// Arguments of `weldfs serve`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The image, made by mkfs
    #[arg(required_unless_present_any = ["ram", "hostdir"], conflicts_with_all = ["ram", "hostdir"])]
    image: Option<PathBuf>,
    /// Serve fresh memory of this size instead, gone at the end
    #[arg(long, value_name = "SIZE", value_parser = output::parse_bytes, requires = "socket")]
    ram: Option<u64>,
    /// Serve a directory of the host's own file system instead: the same commands over its calls; fused commands are
    /// not atomic over crashes, and other programs on the host are not held off
    #[arg(long, value_name = "DIR", conflicts_with_all = ["ram", "no_flush", "cores", "memory", "profile", "policy",
        "quantum", "cost", "tenants"])]
    hostdir: Option<PathBuf>,
    /// Threads that call the host, with --hostdir; 4 by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Where to listen; IMAGE.sock or DIR.sock by default
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Device threads; by default what the profile says, else 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    cores: Option<u16>,
    /// Memory for caches and changes not yet checkpointed, say 1G; by default what the profile says, else 512M
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    memory: Option<u64>,
    /// Emulated hardware: a TOML file; the default adds no delay
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// What calls get that do not choose: durable on pmem and memory, volatile on block and DIR by default
    #[arg(long, value_enum)]
    durability: Option<Class>,
    /// Which command runs next: cfs and eevdf share the device between tenants by weight; rr and fifo are for
    /// comparison
    #[arg(long, value_name = "fifo|rr|cfs|eevdf", default_value_t)]
    policy: PolicyKind,
    /// Device time after which a running command gives way to others, microseconds
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    quantum: Option<u64>,
    /// What a command is charged: measured (device time) or constant (a number by its kind, for comparison)
    #[arg(long, value_name = "MODEL", default_value_t)]
    cost: CostModel,
    /// Tenants with weights, limits and memory: a TOML file; by default each user is a tenant, all alike
    #[arg(long, value_name = "FILE")]
    tenants: Option<PathBuf>,
    /// Use a pmem image without write-back and fence instructions (for comparisons; nothing is durable)
    #[arg(long, conflicts_with = "ram")]
    no_flush: bool,
}

/// Less than this holds no cache at all.
const MEMORY_MIN: u64 = 1 << 20;

fn parse_memory(text: &str) -> Result<u64, String> {
    match output::parse_bytes(text)? {
        bytes if bytes < MEMORY_MIN => Err(format!("{bytes} bytes are too few: at least 1M")),
        bytes => Ok(bytes),
    }
}

fn config(args: &Args) -> Result<DeviceConfig, Failure> {
    let mut config = DeviceConfig { policy: args.policy, cost: args.cost, ..DeviceConfig::default() };
    if let Some(us) = args.quantum {
        config.quantum_ns = us * 1000;
    }
    if let Some(path) = &args.profile {
        config.profile = Profile::load(path).map_err(|e| Failure::new(e.to_string()))?;
    }
    if let Some(path) = &args.tenants {
        config.tenants = TenantsConfig::load(path).map_err(|e| Failure::new(e.to_string()))?;
    }
    match (args.cores, config.profile.core.count) {
        (Some(cores), _) => config.cores = cores.into(),
        (None, 0) => {}
        (None, cores) => config.cores = cores as usize,
    }
    match (args.memory, config.profile.memory_bytes) {
        (Some(bytes), _) => config.memory_bytes = bytes,
        (None, 0) => {}
        (None, bytes) => config.memory_bytes = bytes,
    }
    config.durability = match args.durability {
        None => Durability::Default,
        Some(Class::Volatile) => Durability::Volatile,
        Some(Class::Durable) => Durability::Durable,
    };
    Ok(config)
}

/// Serves a directory of the host.
fn serve_dir(args: &Args, dir: &Path) -> Outcome {
    // Beside the directory, whatever slashes it is written with.
    let socket = args.socket.clone().unwrap_or_else(|| socket_of(&dir.components().collect::<PathBuf>()));
    let mut config = HostDirConfig::new(dir);
    config.threads = args.threads.map_or(THREADS, usize::from);
    if args.durability == Some(Class::Durable) {
        config.durability = Durability::Durable;
    }
    let server = HostDirServer::bind(config, &socket, true).map_err(|e| Failure::new(e.to_string()))?;
    let facts = server.dir().facts();
    let whom =
        if rustix::process::geteuid().is_root() { "everybody, each with his own rights" } else { "its user only" };
    eprintln!(
        "weldfs: serving the directory {} at {} (default {}, {}, {} thread(s), for {whom})",
        dir.display(),
        socket.display(),
        facts.durability,
        if facts.power_safe { "power-safe" } else { "not power-safe" },
        facts.cores,
    );
    server.run().map_err(|e| Failure::new(e.to_string()))?;
    Ok(0)
}

/// Serves.
pub fn run(args: &Args) -> Outcome {
    if let Some(dir) = &args.hostdir {
        return serve_dir(args, dir);
    }
    if args.threads.is_some() {
        return Err(Failure::usage("--threads is for --hostdir; a device has --cores"));
    }
    let (source, name) = match (&args.image, args.ram) {
        (Some(image), _) if args.no_flush => (Source::ImageNoFlush(image.clone()), image.display().to_string()),
        (Some(image), _) => (Source::Image(image.clone()), image.display().to_string()),
        (None, Some(bytes)) => (Source::Ram(bytes), "memory".to_owned()),
        (None, None) => return Err(Failure::usage("neither an image nor --ram nor --hostdir is given")),
    };
    let socket = match (&args.socket, &args.image) {
        (Some(socket), _) => socket.clone(),
        (None, Some(image)) => socket_of(image),
        (None, None) => return Err(Failure::usage("--ram needs --socket")),
    };
    let mut serve = ServeConfig::new(source, &socket);
    serve.device = config(args)?;
    let server = Server::bind(serve).map_err(|e| Failure::new(e.to_string()))?;
    let recovery = &server.opened().recovery;
    if !recovery.clean {
        let (records, bytes) = (recovery.records, recovery.log_bytes);
        let ns = recovery.open_ns + recovery.replay_ns + recovery.finish_ns + recovery.ready_ns;
        let ms = ns as f64 / 1e6;
        eprintln!(
            "weldfs: {name} was not closed cleanly; recovered in {ms:.1} ms: {records} records, {bytes} bytes of log"
        );
    }
    recovery.txns.iter().for_each(|txn| eprintln!("weldfs: {name}: {txn}"));
    if let Some((from, to)) = recovery.discarded {
        eprintln!("weldfs: {name}: a torn tail of {} bytes was discarded, LSN {from}..{to}", to - from);
    }
    let facts = server.device().facts();
    eprintln!(
        "weldfs: serving {name} at {} ({}, default {}, {}, profile {}, {} core(s), policy {})",
        socket.display(),
        facts.medium,
        facts.durability,
        if facts.power_safe { "power-safe" } else { "not power-safe" },
        facts.profile.name,
        facts.cores,
        facts.policy
    );
    server.run().map_err(|e| Failure::new(e.to_string()))?;
    Ok(0)
}
