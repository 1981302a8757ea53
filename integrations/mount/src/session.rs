//! Sessions with the device, one for each user with groups, and the handles on directories that each keeps.

use crate::nodes::Identity;
use crate::who::{Door, Who};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weldfs::{AttachOptions, Client, ClientOptions, OpenFlags, Raw};
use weldfs_ciscops::{Errno, Handle};
use weldfs_locks::Mutex;

/// Sessions kept at most while no file of them is open.
const SESSIONS_MAX: usize = 64;
/// Handles on directories that a session keeps.
const DIRECTORIES_MAX: usize = 4096;
/// How long a session is kept whose device has gone before another one is tried.
const REVIVE: Duration = Duration::from_millis(500);

/// A handle that is closed with its last user.
pub struct Held {
    client: Client,
    handle: Handle,
}

impl Held {
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// The handle, for another to close.
    pub fn into_handle(mut self) -> Handle {
        std::mem::replace(&mut self.handle, Handle::ROOT)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.handle != Handle::ROOT {
            // A handle whose session has ended is closed already.
            let _ = self.client.raw().close(self.handle);
        }
    }
}

/// A session that acts as one user.
pub struct Session {
    client: Client,
    directories: Mutex<HashMap<u64, (Arc<Held>, u64)>>,
    clock: AtomicU64,
    gone: AtomicBool,
    since: Instant,
    /// Threads that close what this user put in a placeholder's place.
    pub closing: Arc<AtomicUsize>,
}

impl Session {
    /// The calls of the device. Not to be made while a lock of this crate is held.
    pub fn raw(&self) -> Raw<'_> {
        self.client.raw()
    }

    /// The same session, for what outlives a borrow of it.
    pub fn hold(&self, handle: Handle) -> Arc<Held> {
        Arc::new(Held { client: self.client.clone(), handle })
    }

    /// Opens a place: a handle that names a directory, if it is that one.
    pub fn open_directory(&self, base: Handle, name: &[u8], expected: Identity) -> Result<Arc<Held>, Errno> {
        let flags = OpenFlags::PATH | OpenFlags::DIRECTORY | OpenFlags::NOFOLLOW;
        let held = self.hold(self.raw().openat(base, name, flags, 0, 0)?.handle);
        let found = self.raw().stat(held.handle())?;
        if Identity::of(&found) == expected { Ok(held) } else { Err(Errno::STALE) }
    }

    /// The handle that it keeps on a directory.
    pub fn kept(&self, node: u64) -> Option<Arc<Held>> {
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        let mut directories = self.directories.lock();
        let (held, used) = directories.get_mut(&node)?;
        *used = now;
        Some(held.clone())
    }

    /// Keeps a handle on a directory; those that were not used for the longest time go.
    pub fn keep(&self, node: u64, held: Arc<Held>) {
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        let mut gone = Vec::new();
        let mut directories = self.directories.lock();
        if directories.len() >= DIRECTORIES_MAX {
            let mut uses: Vec<u64> = directories.values().map(|(_, used)| *used).collect();
            uses.sort_unstable();
            let limit = uses[uses.len() / 4];
            gone.extend(directories.extract_if(|_, (_, used)| *used <= limit));
        }
        directories.insert(node, (held, now));
        drop(directories);
        // Closed here, without the lock.
        drop(gone);
    }

    /// Lets go of the handle on a directory.
    pub fn let_go(&self, node: u64) {
        let held = self.directories.lock().remove(&node);
        drop(held);
    }

    /// What a caller is told of an error: a device that is not there any more is what a connection would be. The
    /// library has EIO for the command that was under way when it went, and for no other.
    pub fn told(&self, errno: Errno) -> Errno {
        let gone = errno == Errno::NODEV || (errno == Errno::IO && self.raw().nop() == Err(Errno::NODEV));
        if gone {
            self.gone.store(true, Ordering::Relaxed);
            return Errno(libc::ENOTCONN);
        }
        errno
    }
}

/// All sessions of a mount.
pub struct Sessions {
    door: Arc<dyn Door>,
    /// Who this process is: the only one that it acts as, unless it is privileged.
    own: Who,
    privileged: bool,
    all: Mutex<HashMap<Who, Arc<Session>>>,
}

impl Sessions {
    pub fn new(door: Arc<dyn Door>) -> Sessions {
        let own = Who::this_process();
        Sessions { door, privileged: own.uid == 0, own, all: Mutex::default() }
    }

    /// Whether it acts as others, too.
    pub fn is_privileged(&self) -> bool {
        self.privileged
    }

    /// The session of this process itself.
    pub fn own(&self) -> Result<Arc<Session>, Errno> {
        self.of(self.own.clone())
    }

    /// The session that acts as a user. An unprivileged mount has its own only: the kernel lets no other user in.
    pub fn of(&self, who: Who) -> Result<Arc<Session>, Errno> {
        let who = if self.privileged { who } else { self.own.clone() };
        if let Some(session) = self.all.lock().get(&who).filter(|session| !Sessions::is_over(session)) {
            return Ok(session.clone());
        }
        let made = Arc::new(self.attach(&who).map_err(|e| match e.raw_os_error() {
            Some(libc::ENOENT | libc::ECONNREFUSED | libc::ENODEV) | None => Errno(libc::ENOTCONN),
            Some(code) => Errno(code),
        })?);
        let mut over = Vec::new();
        let mut all = self.all.lock();
        if all.len() >= SESSIONS_MAX {
            over.extend(all.extract_if(|_, session| Arc::strong_count(session) == 1));
        }
        if let Some(other) = all.get(&who).filter(|session| !Sessions::is_over(session)) {
            // Another thread was faster.
            return Ok(other.clone());
        }
        over.extend(all.insert(who.clone(), made.clone()).map(|session| (who, session)));
        drop(all);
        drop(over);
        Ok(made)
    }

    fn is_over(session: &Session) -> bool {
        session.gone.load(Ordering::Relaxed) && session.since.elapsed() >= REVIVE
    }

    fn attach(&self, who: &Who) -> io::Result<Session> {
        // Tokens of the environment are those of whoever mounts.
        let attach = if *who == self.own { AttachOptions::from_env()? } else { AttachOptions::default() };
        let options = ClientOptions { attach, umask: Some(0), ..ClientOptions::default() };
        let client = Client::with_options(self.door.acting_as(who), options)?;
        Ok(Session {
            client,
            directories: Mutex::default(),
            clock: AtomicU64::new(0),
            gone: AtomicBool::new(false),
            since: Instant::now(),
            closing: Arc::default(),
        })
    }

    /// Lets go of a directory that the kernel has forgotten.
    pub fn forget(&self, node: u64) {
        let all: Vec<Arc<Session>> = self.all.lock().values().cloned().collect();
        all.iter().for_each(|session| session.let_go(node));
    }

    /// Ends them.
    pub fn end(&self) {
        let all = std::mem::take(&mut *self.all.lock());
        drop(all);
    }
}
