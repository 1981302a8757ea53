//! A device's files under a directory of the host: every program reaches them there, whatever it is linked with.
//!
//! What lives here, from the kernel to the device:
//! * `wire`: the kernel's FUSE protocol; `channel`: mounting, requests in, answers out. No other module knows of
//!   `/dev/fuse`.
//! * `fs`: one request at a time, and where an object is reached; `ops/`: what each request does.
//! * `nodes`: the kernel's inodes; `files`: its open files; `locks`: advisory locks, and who waits for them.
//! * `handing`: files that preloaded programs hand to the kernel; `mapped`: which of them are mapped.
//! * `who`: on whose behalf a request is; `session`: sessions with the device that act as that user.
//!
//! What flows through: a request is one or a few commands of a session that has the caller's user and groups. Nothing
//! here decides about permission, size or content, and nothing is kept but names and handles: by default the kernel
//! asks for every name and attribute again, so what other sessions change is seen at once.
//!
//! The protocol is spoken here, and not through a library: those for Rust that need no libfuse leave out what a lock
//! needs (who waits can be interrupted, flock is told from fcntl), nameless files, and the time of birth.

mod channel;
mod files;
mod fs;
mod handing;
mod locks;
mod mapped;
mod nodes;
mod ops;
mod session;
mod who;
mod wire;

use channel::{Channel, IO_MAX, REQUEST_MAX};
use fs::{Fs, Keeping, Out};
use locks::Locks;
use nodes::{Identity, Nodes};
use rustix::event::{EventfdFlags, eventfd};
use session::Sessions;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use weldfs_ciscops::Errno;
use weldfs_locks::Mutex;
use wire::{InitIn, InitOut, init};

pub use channel::{How, MountFlagSet, mounted_at, unmount};
pub use who::{Door, SocketDoor, Who};

/// The stack of a worker: the way to a directory is walked up by recursion.
const STACK_BYTES: usize = 16 << 20;
/// Requests that the kernel may send without waiting for answers (read-ahead, pages written back).
const BACKGROUND_MAX: u16 = 64;

/// What is mounted, and how.
#[derive(Clone, Debug)]
pub struct Config {
    /// What the kernel is told at the mount.
    pub flags: MountFlagSet,
    /// For how long the kernel keeps names and attributes without asking again. Zero: what other sessions change is
    /// seen at once.
    pub keep: Duration,
    /// Threads that take requests.
    pub threads: usize,
}

/// The registry on which the mount says which files are mapped, for programs that talk to the device themselves. With
/// one, such programs may hand their open files to the kernel.
pub use weldfs_ciscops::mapped::Registry;

/// A mount that is served by threads of this process.
pub struct Mount {
    fs: Arc<Fs>,
    workers: Vec<JoinHandle<()>>,
    asker: JoinHandle<()>,
    ended: Arc<OwnedFd>,
}

impl Mount {
    /// Attaches to the device behind `door`, mounts it at `dir` and serves it. Errors: those of attaching, mount(2) and
    /// of fusermount3.
    pub fn start(door: Arc<dyn Door>, dir: &Path, config: &Config, registry: Option<Registry>) -> io::Result<Mount> {
        let sessions = Sessions::new(door);
        let root = sessions.own()?.raw().stat(weldfs_ciscops::Handle::ROOT)?;
        let channel = Arc::new(Channel::mount(dir, &config.flags)?);
        let direct_mapped = greet(&channel, !config.keep.is_zero())?;
        let fs = Arc::new(Fs {
            channel: channel.clone(),
            sessions,
            nodes: Mutex::new(Nodes::new(Identity::of(&root))),
            files: files::Files::default(),
            locks: Locks::new(channel),
            keeping: Keeping { entries: config.keep, attributes: config.keep },
            handing: registry.map(handing::Handing::new),
            direct_mapped,
        });
        let ended = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let left = Arc::new(AtomicUsize::new(config.threads.max(1)));
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES);
        let mut workers = Vec::new();
        for _ in 0..config.threads.max(1) {
            let (fs, ended, left) = (fs.clone(), ended.clone(), left.clone());
            workers.push(thread("weldfs-mount").spawn(move || {
                work(&fs);
                if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                    // A counter that is full has been rung already.
                    let _ = rustix::io::write(&*ended, &1u64.to_ne_bytes());
                }
            })?);
        }
        let asker = fs.clone();
        let asker = thread("weldfs-locks").spawn(move || asker.locks.run())?;
        Ok(Mount { fs, workers, asker, ended })
    }

    /// Readable once the mount is over, because it was unmounted.
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// Waits until it is over, and lets go of the device.
    pub fn join(self) {
        for worker in self.workers {
            if worker.join().is_err() {
                tracing::error!("a thread of the mount ended in a panic");
            }
        }
        self.fs.end();
        let _ = self.asker.join();
    }
}

/// Takes requests until the mount is over.
fn work(fs: &Fs) {
    let mut buffer = vec![0; REQUEST_MAX];
    let mut out = Out::new(IO_MAX);
    loop {
        match fs.channel.next(&mut buffer) {
            Ok(Some(request)) => fs.handle(&request, &mut out),
            Ok(None) => return,
            Err(e) => {
                tracing::error!("the kernel cannot be read from any more: {e}");
                return;
            }
        }
    }
}

/// Agrees with the kernel on version and features; whether it has files that are read and written past the page cache,
/// and mapped (Linux 6.6). EPROTO: it is too old.
fn greet(channel: &Channel, keeps: bool) -> io::Result<bool> {
    let mut buffer = vec![0; REQUEST_MAX];
    let request = channel.next(&mut buffer)?.ok_or(Errno::NODEV)?;
    let (hello, rest): (InitIn, _) = request.split()?;
    if request.head.opcode != wire::op::INIT || hello.major != wire::MAJOR || hello.minor < wire::MINOR_MIN {
        channel.fail(request.head.unique, Errno::PROTO);
        return Err(Errno::PROTO.into());
    }
    let offered = match rest.first_chunk::<4>() {
        Some(more) if u64::from(hello.flags) & init::INIT_EXT != 0 => {
            u64::from(hello.flags) | u64::from(u32::from_ne_bytes(*more)) << 32
        }
        _ => hello.flags.into(),
    };
    let mut wanted = init::ASYNC_READ
        | init::POSIX_LOCKS
        | init::BIG_WRITES
        | init::FLOCK_LOCKS
        | init::AUTO_INVAL_DATA
        | init::ASYNC_DIO
        | init::PARALLEL_DIROPS
        | init::MAX_PAGES
        | init::HANDLE_KILLPRIV_V2
        | init::INIT_EXT
        | init::DIRECT_IO_ALLOW_MMAP;
    if keeps {
        wanted |= init::DO_READDIRPLUS | init::READDIRPLUS_AUTO | init::CACHE_SYMLINKS;
    }
    let flags = offered & wanted;
    let answer = InitOut {
        major: wire::MAJOR,
        minor: wire::MINOR.min(hello.minor),
        max_readahead: hello.max_readahead,
        flags: flags as u32,
        max_background: BACKGROUND_MAX,
        congestion_threshold: BACKGROUND_MAX / 4 * 3,
        max_write: IO_MAX as u32,
        time_gran: 1,
        max_pages: (IO_MAX / rustix::param::page_size()) as u16,
        flags2: (flags >> 32) as u32,
        ..InitOut::default()
    };
    channel.answer(request.head.unique, zerocopy::IntoBytes::as_bytes(&answer));
    Ok(flags & init::DIRECT_IO_ALLOW_MMAP != 0)
}
