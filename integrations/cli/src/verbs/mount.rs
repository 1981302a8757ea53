//! `weldfs mount` and `weldfs umount`: a device's files under a directory, for every program.
//!
//! A process serves the mount until it is unmounted. An image that no device serves gets one in that process.

mod options;
mod served;

use crate::device::Want;
use crate::failure::{Doing, Failure, Outcome, reason};
use crate::find;
use crate::output::say;
use options::Options;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::mount::MountFlags;
use served::Behind;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use weldfs_kernel_shim::Signals;
use weldfs_kernel_shim::ready::ReadyFd;
use weldfs_mount::{Config, How, Mount, MountFlagSet, mounted_at, unmount};

/// For how long names and attributes are kept where no other session can change them.
const KEPT_ALONE: Duration = Duration::from_secs(3600);
/// Threads that take requests, at least: one that waits for a flush of the medium answers nothing else.
const THREADS_MIN: usize = 8;

/// Arguments of `weldfs mount`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
OPTIONS of -o, separated by commas: ro rw allow_other exclusive keep=SECONDS threads=N suid nosuid exec noexec nodev\n\
remount; what mount(8) itself means (defaults auto noauto user nofail _netdev x-...) is let through.\n\n\
A mount by root acts for each caller with his user and groups, and the device decides; without --allow-other only\n\
root gets in. One by another user acts as that user only. docs/MOUNT.md has all.")]
pub struct Args {
    /// The image, or the socket of the device that serves it
    source: PathBuf,
    /// The directory at which it is mounted
    dir: PathBuf,
    /// Change nothing; of an image that no device serves, leave to read it is enough
    #[arg(long)]
    read_only: bool,
    /// Let other users than the one that mounts in, with their own rights
    #[arg(long)]
    allow_other: bool,
    /// No other process gets at the image meanwhile, and the kernel may keep what it has seen
    #[arg(long)]
    exclusive: bool,
    /// Serve the mount in this process, until it is unmounted
    #[arg(long)]
    foreground: bool,
    /// As mount(8) has them
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// When the files can be used, write a line to this open descriptor (the directory) and close it
    #[arg(long, value_name = "FD")]
    ready_fd: Option<i32>,
}

/// Arguments of `weldfs umount`.
#[derive(clap::Args, Debug)]
pub struct UmountArgs {
    /// The directory at which it is mounted
    dir: PathBuf,
    /// Take it out of the tree of names at once; it ends with the last process that uses it
    #[arg(long, short)]
    lazy: bool,
}

/// A directory by its full name, also where a mount at it answers nothing any more.
fn full(dir: &Path) -> Result<PathBuf, Failure> {
    let whole: PathBuf = dir.components().collect();
    match (whole.parent(), whole.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Ok(parent.canonicalize().doing("find", parent)?.join(name))
        }
        _ => dir.canonicalize().doing("find", dir),
    }
}

/// Mounts.
pub fn mount(args: &Args) -> Outcome {
    // First of all, while every descriptor is one that was handed to this process.
    let ready = args.ready_fd.map(ReadyFd::take).transpose();
    let ready = ready.map_err(|e| Failure::usage(format!("--ready-fd: not an open descriptor: {}", reason(&e))))?;
    let options = Options::of(args)?;
    let dir = args.dir.canonicalize().doing("mount at", &args.dir)?;
    if !dir.is_dir() {
        return Err(Failure::new(format!("cannot mount at {}: it is no directory", dir.display())));
    }
    if options.remount {
        return remount(&dir, &options);
    }
    let source = args.source.canonicalize().doing("mount", &args.source)?;
    if source.is_dir() {
        return Err(Failure::new(format!("{}: a directory, and no image", source.display())));
    }
    if !args.foreground {
        return in_background(args, &source, &dir);
    }
    serve(&source, &dir, &options, ready)
}

/// Makes a mount read-only, or writable again, as the kernel sees it.
fn remount(dir: &Path, options: &Options) -> Outcome {
    let mut flags = MountFlags::NODEV;
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NOEXEC, options.no_exec);
    rustix::mount::mount_remount(dir, flags, c"").doing("remount", dir)?;
    Ok(0)
}

/// Starts a process of its own that serves it, and returns when it does.
fn in_background(args: &Args, source: &Path, dir: &Path) -> Outcome {
    let program = std::env::current_exe().doing("find", "this program")?;
    let (told, tell) = rustix::pipe::pipe().doing("make", "a pipe")?;
    rustix::io::fcntl_setfd(&told, rustix::io::FdFlags::CLOEXEC).doing("make", "a pipe")?;
    let mut command = Command::new(program);
    command.arg("mount").args([source, dir]).args(["--foreground", "--ready-fd"]).arg(tell.as_raw_fd().to_string());
    for (set, flag) in
        [(args.read_only, "--read-only"), (args.allow_other, "--allow-other"), (args.exclusive, "--exclusive")]
    {
        if set {
            command.arg(flag);
        }
    }
    for options in &args.options {
        command.args(["-o", options]);
    }
    let mut child = command.stdin(Stdio::null()).spawn().doing("start", "the process of the mount")?;
    drop(tell);
    let mut line = String::new();
    std::io::Read::read_to_string(&mut std::fs::File::from(told), &mut line).doing("wait for", "the mount")?;
    if !line.is_empty() {
        return Ok(0);
    }
    // It has said why.
    let status = child.wait().doing("wait for", "the mount")?;
    Ok(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1).max(1))
}

/// Leaves the terminal and the folder it was started from.
fn detach() {
    // Fails for whoever leads a group, which has no terminal to leave then.
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    if let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

fn serve(source: &Path, dir: &Path, options: &Options, ready: Option<ReadyFd>) -> Outcome {
    let signals = Signals::install().doing("catch", "signals")?;
    crate::allocator::take_small_pages();
    let behind = Behind::start(source, options)?;
    let alone = behind.is_alone();
    let keep = options.keep.unwrap_or(if alone { KEPT_ALONE } else { Duration::ZERO });
    let config = Config {
        flags: MountFlagSet {
            read_only: options.read_only,
            suid: options.suid,
            no_exec: options.no_exec,
            allow_other: options.allow_other,
            // Where the kernel keeps names it must know who may use them.
            default_permissions: !keep.is_zero(),
            source: behind.shown(source).display().to_string(),
        },
        keep,
        threads: options.threads.unwrap_or_else(threads),
    };
    let mount = match Mount::start(behind.door(), dir, &config, None) {
        Ok(mount) => mount,
        Err(e) => {
            behind.end()?;
            return Err(Failure::new(format!("cannot mount at {}: {}{}", dir.display(), reason(&e), hint(&e))));
        }
    };
    match ready {
        Some(ready) => {
            ready.tell(dir).doing("tell", "--ready-fd")?;
            detach();
        }
        None => say!("weldfs: {} is mounted at {}", source.display(), dir.display()),
    }
    let over = wait(&mount, &signals, &behind, dir)?;
    let ended = match over {
        Over::Unmounted => {
            mount.join();
            behind.end()
        }
        // Its users have it until they end: they are told ENOTCONN from now on.
        Over::Left => behind.end(),
        Over::Device => Err(Failure::new("the device has failed; what is mounted answers nothing any more")),
    };
    ended.map(|()| 0)
}

/// Why a mount is over.
enum Over {
    Unmounted,
    /// It was to end, and processes use it.
    Left,
    Device,
}

fn wait(mount: &Mount, signals: &Signals, behind: &Behind, dir: &Path) -> Result<Over, Failure> {
    let mut asked = false;
    loop {
        let ended = mount.ended();
        let mut polled = vec![PollFd::new(&ended, PollFlags::IN)];
        if !asked {
            polled.push(PollFd::new(signals.bell(), PollFlags::IN));
        }
        if let Some(failed) = behind.over() {
            polled.push(PollFd::from_borrowed_fd(failed, PollFlags::IN));
        }
        match poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Failure::new(format!("cannot wait for the end of the mount: {e}"))),
        }
        let is = |at: usize| polled.get(at).is_some_and(|fd| !fd.revents().is_empty());
        if is(0) {
            return Ok(Over::Unmounted);
        }
        if is(if asked { 1 } else { 2 }) {
            return Ok(Over::Device);
        }
        if !asked && signals.first().is_some() {
            asked = true;
            if !withdraw(dir) {
                return Ok(Over::Left);
            }
        }
    }
}

/// Takes the mount out of the tree of names; whether it ends by that, because no process uses it.
fn withdraw(dir: &Path) -> bool {
    // Pages that programs wrote through mappings reach the device first.
    if let Ok(dir) = std::fs::File::open(dir) {
        let _ = rustix::fs::syncfs(&dir);
    }
    if unmount(dir, How::Idle).is_ok() {
        return true;
    }
    if let Err(e) = unmount(dir, How::Lazy) {
        say!("weldfs: cannot unmount {}: {}", dir.display(), reason(&e));
    }
    false
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get).saturating_mul(2).clamp(THREADS_MIN, 16)
}

fn hint(e: &std::io::Error) -> &'static str {
    match e.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV) => " (is there a /dev/fuse? `modprobe fuse` makes one)",
        Some(libc::EPROTO) => " (the kernel is older than Linux 5.4)",
        _ => "",
    }
}

/// Unmounts, and waits until the image is closed.
pub fn umount(args: &UmountArgs) -> Outcome {
    let dir = full(&args.dir)?;
    let Some((source, kind)) = mounted_at(&dir).doing("read", "the list of mounts")? else {
        return Err(Failure::new(format!("{}: nothing is mounted there", dir.display())));
    };
    if kind != "fuse.weldfs" {
        return Err(Failure::new(format!("{}: what is mounted there is {kind}, and no device", dir.display())));
    }
    let (how, wait) = (if args.lazy { How::Lazy } else { How::Idle }, find::wait()?);
    unmount(&dir, how).map_err(|e| match e.raw_os_error() {
        Some(libc::EBUSY) => {
            Failure::new(format!("{}: processes use it (fuser -m shows them; --lazy does not wait)", dir.display()))
        }
        _ => Failure::new(format!("cannot unmount {}: {}", dir.display(), reason(&e))),
    })?;
    if !args.lazy && !served::wait_until_closed(Path::new(&source), wait) {
        let (dir, seconds) = (dir.display(), wait.as_secs());
        return Err(Failure::new(format!(
            "{dir}: it is unmounted, but {source} is in use still after {seconds} s: the mount's process writes what \
             it has, or another one has opened it (WELDFS_WAIT says how long this waits)"
        )));
    }
    Ok(0)
}

/// What a mount does with its image.
fn want(options: &Options) -> Want {
    if options.read_only { Want::Read } else { Want::Write }
}
