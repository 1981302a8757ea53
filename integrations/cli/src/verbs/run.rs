//! `weldfs run`: an unmodified program with its files in a device.
//!
//! The device runs in this process (or is one that already serves), the program runs as a child with the preload
//! library, and with a mount where there can be one. Signals go to the program, its exit status comes back, and the
//! device ends cleanly after it.

mod folder;
mod ground;
mod mounted;

use crate::device::{say_what_is_gone, socket_at};
use crate::failure::{Doing, Failure, Outcome};
use crate::find;
use crate::machine;
use crate::output::{plain, say};
use crate::preload::Library;
use folder::Folder;
use mounted::{Mounted, Namespace, Wanted};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::Instant;
use weldfs_kernel_shim::relay::{Relay, exit_code};
use weldfs_kernel_shim::{ServeConfig, ServeError, Server, Source, Stopper};

/// Exit codes of a shell for a command that cannot be run, and for one that is not there.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Arguments of `weldfs run`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Keep the files in this image (attaches to its device if it is being served)
    #[arg(long, value_name = "IMAGE", group = "where")]
    image: Option<PathBuf>,
    /// Attach to the device that listens here
    #[arg(long, value_name = "SOCKET", group = "where")]
    socket: Option<PathBuf>,
    /// Keep the files in memory, gone when the program ends
    #[arg(long, value_name = "SIZE", group = "where", default_value = "1G", value_parser = crate::output::parse_bytes)]
    ram: u64,
    /// Let programs of other users use the device, too: while CMD runs, every user may connect who is told where.
    /// Without it the device's folder and socket are for this user alone
    #[arg(long, conflicts_with = "socket")]
    share: bool,
    /// Where the program finds the device's root
    #[arg(long, value_name = "DIR", default_value = "/weld")]
    prefix: PathBuf,
    /// Mount the files at the prefix, too, for what is not hooked: programs that are linked statically, libraries that
    /// are loaded from there. As root only CMD and what it starts see it
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    mount: Wanted,
    /// The program and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Where a device is, and who runs it: its program knows the socket's path alone, and another user may have that by the
/// time it attaches.
struct Spot {
    socket: PathBuf,
    user: u32,
}

impl Spot {
    /// Of the device that serves `image`, or of the socket that this is.
    fn of(image: &Path, socket: &Path) -> Result<Spot, Failure> {
        let wait = find::wait()?;
        let user = find::connector(image, socket).and_then(|c| c.device_user(wait));
        let user = user.map_err(|e| find::cannot_attach(socket, &e))?;
        Ok(Spot { socket: socket.canonicalize().doing("attach to", socket)?, user })
    }
}

/// A device in this process, for as long as the program runs.
struct Hosted {
    stopper: Stopper,
    thread: JoinHandle<Result<(), ServeError>>,
    _folder: Folder,
}

impl Hosted {
    /// Starts it; the socket is ready on return.
    fn start(source: Source, share: bool) -> Result<Result<(Hosted, Spot), ServeError>, Failure> {
        let folder = Folder::make(share)?;
        let socket = folder.socket();
        let image = if let Source::Image(image) = &source { Some(image.clone()) } else { None };
        let mut config = ServeConfig::new(source, &socket);
        config.signals = false;
        config.stoppable = false;
        config.socket.mode = if share { 0o666 } else { 0o600 };
        Ok(Server::bind(config).map(|server| {
            if let Some(image) = &image {
                say_what_is_gone(image, &server.opened().recovery);
            }
            let stopper = server.stopper();
            let thread = std::thread::spawn(move || server.run());
            let user = rustix::process::geteuid().as_raw();
            (Hosted { stopper, thread, _folder: folder }, Spot { socket, user })
        }))
    }

    /// Ends it: checkpoint, clean flag.
    fn end(self) -> Result<(), Failure> {
        self.stopper.stop();
        match self.thread.join() {
            Ok(result) => result.map_err(|e| Failure::new(e.to_string())),
            Err(_) => Err(Failure::new("the device ended in a panic")),
        }
    }
}

/// How much a process may keep of what it reads where nothing else is said: as the library has it, and at most.
const KEPT: std::ops::RangeInclusive<u64> = 8 << 20..=64 << 20;
/// What part of the memory that this process may have each one of the run's may keep at most.
const KEPT_PART: u64 = 200;

/// What `WELDFS_CACHE` is to be for the programs of the run, if the user has not set it and there is memory for more
/// than the library takes by itself.
fn kept() -> Option<String> {
    if std::env::var_os("WELDFS_CACHE").is_some_and(|set| !set.is_empty()) {
        return None;
    }
    kept_of(machine::memory_allowed()?)
}

fn kept_of(memory: u64) -> Option<String> {
    let part = (memory / KEPT_PART).min(*KEPT.end());
    (part > *KEPT.start()).then(|| format!("{}K", part >> 10))
}

/// The program, told where its device is.
fn program(args: &Args, library: &Path, device: &Spot, mount: Result<&Mounted, &str>) -> Command {
    let mut preload = library.as_os_str().to_owned();
    if let Some(more) = std::env::var_os("LD_PRELOAD").filter(|m| !m.is_empty()) {
        preload.push(":");
        preload.push(more);
    }
    let mut command = Command::new(&args.command[0]);
    command
        .args(&args.command[1..])
        .env("LD_PRELOAD", preload)
        .env("WELDFS_PRELOAD", library)
        .env("WELDFS_SOCKET", &device.socket)
        .env(weldfs::DEVICE_USER_VARIABLE, device.user.to_string())
        .env("WELDFS_PREFIX", &args.prefix)
        .env_remove("WELDFS_CWD");
    if let Some(kept) = kept() {
        command.env("WELDFS_CACHE", kept);
    }
    match mount {
        Ok(mounted) => command
            .env("WELDFS_MOUNT", &args.prefix)
            .env("WELDFS_MAPPED", mounted.registry())
            .env_remove("WELDFS_UNMOUNTED"),
        Err(why) => {
            command.env_remove("WELDFS_MOUNT").env_remove("WELDFS_MAPPED").env("WELDFS_UNMOUNTED", &*plain(why))
        }
    };
    command
}

/// Says how the program reaches its files, where that is asked for: on a terminal, and beside counts of calls.
fn say_mode(args: &Args, mount: Result<&Mounted, &str>) {
    if !std::io::stderr().is_terminal() && std::env::var_os("WELDFS_REPORT").is_none_or(|v| v != "1") {
        return;
    }
    let prefix = args.prefix.display();
    match mount {
        Ok(_) => say!("weldfs: {prefix} is preloaded, and mounted"),
        Err(why) => say!("weldfs: {prefix} is preloaded; nothing is mounted: {why}"),
    }
}

fn run_program(args: &Args, library: &Path, device: &Spot, (relay, namespace): (&Relay, Namespace)) -> Outcome {
    let mounted = mounted::start(args.mount, namespace, &args.prefix, device)?;
    let at = mounted.as_ref().map_err(String::as_str);
    say_mode(args, at);
    let outcome = run_child(args, library, device, (relay, at));
    if let Ok(mounted) = mounted {
        mounted.end();
    }
    outcome
}

fn run_child(args: &Args, library: &Path, device: &Spot, (relay, mount): (&Relay, Result<&Mounted, &str>)) -> Outcome {
    let name = Path::new(&args.command[0]);
    let mut child = relay.spawn(&mut program(args, library, device, mount)).map_err(|e| {
        let code = if e.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN };
        Failure::new(format!("cannot run {}: {}", name.display(), crate::failure::reason(&e))).code(code)
    })?;
    relay.wait(&mut child).map(exit_code).doing("wait for", name)
}

fn check_prefix(prefix: &Path) -> Result<(), Failure> {
    let plain = prefix.components().skip(1).all(|part| matches!(part, std::path::Component::Normal(_)));
    if !prefix.is_absolute() || prefix == Path::new("/") || !plain {
        return Err(Failure::usage("--prefix must be an absolute path other than /, without . or .."));
    }
    if prefix.read_dir().is_ok_and(|mut entries| entries.next().is_some_and(|entry| entry.is_ok())) {
        tracing::warn!("{} exists on the host; the program will not see what is in it", prefix.display());
    }
    Ok(())
}

/// The device to use.
enum Reached {
    /// One that serves the image already.
    Served(Spot),
    /// One of our own.
    Own(Hosted, Spot),
}

/// Finds the device of the image or starts one. A process that has the image open in passing, and a device that is
/// starting, are waited for.
fn reach(args: &Args) -> Result<Reached, Failure> {
    let until = Instant::now() + find::wait()?;
    let source = args.image.clone().map_or(Source::Ram(args.ram), Source::Image);
    loop {
        if let Some(image) = &args.image
            && find::client_of(image, until)?.is_some()
        {
            return Spot::of(image, &socket_at(image)).map(Reached::Served);
        }
        match Hosted::start(source.clone(), args.share)? {
            Ok((device, at)) => return Ok(Reached::Own(device, at)),
            Err(ServeError::InUse(_)) if Instant::now() < until => std::thread::sleep(find::PAUSE),
            Err(e) => return Err(Failure::new(e.to_string())),
        }
    }
}

/// Runs the program; its exit code is ours.
pub fn run(args: &Args) -> Outcome {
    check_prefix(&args.prefix)?;
    let library = Library::find()?;
    // Before any thread: the device's threads must not take the program's signals, and are to see its mount.
    let relay = Relay::install().doing("hold back", "signals")?;
    let how = (&relay, mounted::separate(args.mount));
    if let Some(socket) = &args.socket {
        // Without a device the program would run, and its files go nowhere.
        find::wait()?;
        weldfs::Client::connect(socket).map_err(|e| find::cannot_attach(socket, &e))?;
        return run_program(args, library.path(), &Spot::of(socket, socket)?, how);
    }
    let (device, at) = match reach(args)? {
        Reached::Served(at) => return run_program(args, library.path(), &at, how),
        Reached::Own(device, at) => (device, at),
    };
    let outcome = run_program(args, library.path(), &at, how);
    device.end()?;
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_how_much_they_may_keep() {
        let args = Args {
            image: None,
            socket: None,
            ram: 0,
            share: false,
            prefix: "/weld".into(),
            mount: Wanted::Never,
            command: vec!["true".into()],
        };
        let spot = Spot { socket: "/s".into(), user: 0 };
        let command = program(&args, Path::new("/l"), &spot, Err("why"));
        let told = command.get_envs().find(|(name, _)| *name == "WELDFS_CACHE");
        let told = told.and_then(|(_, value)| Some(value?.to_str().expect("text").to_owned()));
        assert_eq!(told, kept(), "with {:?} bytes of memory", machine::memory_allowed());
    }

    #[test]
    fn what_a_process_keeps_is_a_part_of_the_memory_within_bounds() {
        assert_eq!(kept_of(1 << 30), None, "as the library has it");
        assert_eq!(kept_of(5 << 30).as_deref(), Some("26214K"));
        assert_eq!(kept_of(64 << 30).as_deref(), Some("65536K"));
    }
}
