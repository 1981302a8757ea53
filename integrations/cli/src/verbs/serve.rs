//! `weldfs serve`: runs a device over an image, or a directory in its place, until it is stopped: by a signal or by
//! `weldfs stop`.

mod file;
mod settings;
mod telling;

use crate::device::socket_of;
use crate::failure::{Failure, Outcome};
use crate::find;
use crate::output::{self, say};
use settings::{Class, Settings};
use std::path::{Path, PathBuf};
use telling::Telling;
use weldfs::Durability;
use weldfs_device::{CardConfig, DeviceConfig, Profile, TenantsConfig};
use weldfs_hostdir::{HostDirConfig, THREADS};
use weldfs_kernel_shim::{HostDirServer, ServeConfig, Server, SocketAt, Source};

/// Arguments of `weldfs serve`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
SIGHUP, SIGINT, SIGTERM and `weldfs stop` end the device cleanly. SIGINT or SIGTERM again, a second or more later,\n\
ends it at once: the next use recovers the image then.\n\n\
Each setting can be given in a file, too: --config FILE, else $WELDFS_CONFIG (empty: no file), else\n\
~/.config/weldfs/weldfs.toml ($XDG_CONFIG_HOME), else /etc/weldfs/weldfs.toml; flags win. docs/SERVING.md has all.")]
pub struct Args {
    #[command(flatten)]
    settings: Settings,
    /// Take settings from this file, a weldfs.toml
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the settings that flags and file come to, as such a file, and serve nothing
    #[arg(long)]
    print_config: bool,
    /// When clients are served, write a line to this open descriptor (the socket's path) and close it
    #[arg(long, value_name = "FD")]
    ready_fd: Option<i32>,
}

fn config(settings: &Settings) -> Result<DeviceConfig, Failure> {
    let mut config = DeviceConfig {
        policy: settings.policy.unwrap_or_default(),
        cost: settings.cost.unwrap_or_default(),
        at_rest: Some(crate::allocator::give_back),
        ..DeviceConfig::default()
    };
    if let Some(us) = settings.quantum {
        config.quantum_ns = us.0 * 1000;
    }
    if let Some(path) = &settings.profile {
        config.profile = Profile::load(path).map_err(|e| Failure::new(e.to_string()))?;
    }
    if let Some(path) = &settings.tenants {
        config.tenants = TenantsConfig::load(path).map_err(|e| Failure::new(e.to_string()))?;
    }
    match (settings.cores, config.profile.core.count) {
        (Some(cores), _) => config.cores = cores.0.into(),
        (None, 0) => {}
        (None, cores) => config.cores = cores as usize,
    }
    if let Some(slots) = settings.slots {
        let profile = &mut config.profile.slots;
        if !profile.regions.is_empty() && profile.count != u32::from(slots.0) {
            let sizes = profile.count;
            return Err(Failure::new(format!("--slots {}: the profile says the sizes of {sizes} slots", slots.0)));
        }
        profile.count = slots.0.into();
        config.card.slots = CardConfig::with_slots(slots.0.into()).slots;
    }
    match (settings.memory, config.profile.memory_bytes) {
        (Some(bytes), _) => config.memory_bytes = bytes.0,
        (None, 0) => {}
        (None, bytes) => config.memory_bytes = bytes,
    }
    config.durability = match settings.durability {
        None => Durability::Default,
        Some(Class::Volatile) => Durability::Volatile,
        Some(Class::Durable) => Durability::Durable,
    };
    Ok(config)
}

/// Where to listen, and for whom.
fn socket(settings: &Settings, path: PathBuf) -> SocketAt {
    let group = settings.socket_group.map(|group| group.0);
    let open = SocketAt::open_to_all(path);
    SocketAt { mode: settings.socket_mode.map_or(open.mode, |mode| mode.0), group, ..open }
}

/// Serves a directory of the host.
fn serve_dir(settings: &Settings, dir: &Path, telling: Telling) -> Outcome {
    if !dir.exists() {
        return Err(Failure::new(format!("{}: no such directory, and serve makes none", dir.display())));
    }
    let path = settings.socket.clone().unwrap_or_else(|| socket_of(dir));
    has_place(&path)?;
    let mut config = HostDirConfig::new(dir);
    config.at_rest = Some(crate::allocator::give_back);
    config.threads = settings.threads.map_or(THREADS, |threads| threads.0.into());
    if settings.durability == Some(Class::Durable) {
        config.durability = Durability::Durable;
    }
    let server = HostDirServer::bind(config, &socket(settings, path.clone()), true).map_err(failed)?;
    let facts = server.dir().facts();
    let whom =
        if rustix::process::geteuid().is_root() { "everybody, each with his own rights" } else { "its user only" };
    say!(
        "weldfs: serving the directory {} at {} (default {}, {}, {} thread(s), for {whom})",
        dir.display(),
        path.display(),
        facts.durability,
        if facts.power_safe { "power-safe" } else { "not power-safe" },
        facts.cores,
    );
    let stopping = telling.ready(&path, &dir.display().to_string())?;
    server.run_telling(|cause| stopping.stopping(cause)).map_err(failed)?;
    Ok(0)
}

/// Bytes of a socket's address, and what is left of them for a name behind `/proc/self/fd/123456/`: so a longer path is
/// said to the system.
const ADDRESS_MAX: usize = 107;
const NAME_MAX: usize = 86;

/// Known before the image is taken, so that nothing else is said.
fn has_place(socket: &Path) -> Result<(), Failure> {
    let name = socket.file_name().map_or(0, |name| name.len());
    if socket.as_os_str().len() > ADDRESS_MAX && name > NAME_MAX {
        let socket = socket.display();
        let sentence = format!("{socket}: a socket's name can have {NAME_MAX} bytes, not {name}: say --socket");
        return Err(Failure::new(sentence));
    }
    match socket.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.exists() => {
            let (socket, folder) = (socket.display(), folder.display());
            Err(Failure::new(format!(
                "{socket}: cannot make the socket: there is no folder {folder}, and serve makes none"
            )))
        }
        _ => Ok(()),
    }
}

fn failed(e: weldfs_kernel_shim::ServeError) -> Failure {
    Failure::new(e.to_string())
}

/// Flags, and a file for what they leave open.
fn settle(args: &Args) -> Result<Settings, Failure> {
    let flags = args.settings.clone();
    flags.check(flag).map_err(Failure::usage)?;
    let Some(file) = file::load(args.config.as_deref())? else { return Ok(flags) };
    if args.config.is_none() {
        say!("weldfs: settings of {}", file.path.display());
    }
    let settings = flags.over(file.settings);
    let both = |e| Failure::usage(format!("{e} (together with {})", file.path.display()));
    settings.check(flag).map_err(both)?;
    Ok(settings)
}

fn flag(key: &str) -> String {
    if key == "image" { "IMAGE".to_owned() } else { format!("--{key}") }
}

/// Serves.
pub fn run(args: &Args) -> Outcome {
    // First of all, while every descriptor is one that was handed to this process.
    let telling = Telling::begin(args.ready_fd)?;
    let settings = settle(args)?;
    if args.print_config {
        let text = file::print(&settings)?;
        return output::facts(|out| out.write_all(text.as_bytes())).map(|()| 0);
    }
    crate::allocator::take_small_pages();
    if let Some(dir) = &settings.hostdir {
        return serve_dir(&settings, dir, telling);
    }
    if settings.threads.is_some() {
        return Err(Failure::usage("--threads is for --hostdir; a device has --cores"));
    }
    let (source, name) = match (&settings.image, settings.ram) {
        (Some(image), _) if settings.no_flush == Some(true) => {
            (Source::ImageNoFlush(image.clone()), image.display().to_string())
        }
        (Some(image), _) => (Source::Image(image.clone()), image.display().to_string()),
        (None, Some(bytes)) => (Source::Ram(bytes.0), "memory".to_owned()),
        (None, None) => {
            return Err(Failure::usage("neither an image nor --ram nor --hostdir is given (see weldfs serve --help)"));
        }
    };
    let path = match (&settings.socket, &settings.image) {
        (Some(path), _) => path.clone(),
        (None, Some(image)) => socket_of(image),
        (None, None) => return Err(Failure::usage("--ram needs --socket")),
    };
    has_place(&path)?;
    let mut serve = ServeConfig::new(source, &path);
    serve.socket = socket(&settings, path.clone());
    serve.device = config(&settings)?;
    serve.lock_wait = find::wait()?;
    let server = Server::bind(serve).map_err(failed)?;
    introduce(&server, &name, &path);
    let stopping = telling.ready(&path, &name)?;
    server.run_telling(|cause| stopping.stopping(cause)).map_err(failed)?;
    Ok(0)
}

/// Says what recovery did, and what is served.
fn introduce(server: &Server, name: &str, socket: &Path) {
    let recovery = &server.opened().recovery;
    if !recovery.clean {
        let (records, bytes) = (recovery.records, recovery.log_bytes);
        let ns = recovery.open_ns + recovery.replay_ns + recovery.finish_ns + recovery.ready_ns;
        let ms = ns as f64 / 1e6;
        say!("weldfs: {name} was not closed cleanly; recovered in {ms:.1} ms: {records} records, {bytes} bytes of log");
    }
    recovery.txns.iter().for_each(|txn| say!("weldfs: {name}: {txn}"));
    if let Some(end) = recovery.end_of_log() {
        say!("weldfs: {name}: {end}");
    }
    if let Some(tail) = recovery.torn_tail() {
        say!("weldfs: {name}: recovery dropped {tail}");
    }
    let facts = server.device().facts();
    say!(
        "weldfs: serving {name} at {} ({}, default {}, {}, profile {}, {} core(s), policy {})",
        socket.display(),
        facts.medium,
        facts.durability,
        if facts.power_safe { "power-safe" } else { "not power-safe" },
        facts.profile.name,
        facts.cores,
        facts.policy
    );
}
