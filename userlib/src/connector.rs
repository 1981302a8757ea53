//! The seam to the control plane: who brings a session, and what a session can do besides commands.
//!
//! A [`Connector`] attaches; a [`Transport`] is one attached session. The socket one lives in `socket.rs`; the
//! embedded one (device threads in the caller's own process) lives in kernel-shim.

use crate::kept::Kept;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use weldfs_ciscops::attach::{Limits, Reply, Request, Token, Welcome};
use weldfs_ciscops::flags::OpenFlags;
use weldfs_ciscops::{Cqe, Durability, Errno, Handle, QueueLayout, SharedRegion, Sqe};

/// What a client states when it attaches.
#[derive(Debug, Clone, Default)]
pub struct AttachOptions {
    /// 128-bit identity under which outcomes can be asked for after a crash; zero lets the library draw one at random.
    pub client_id: [u8; 16],
    /// The name under which the caller shows the device's root to its user (say `/weld`); for reports only.
    pub prefix: Vec<u8>,
    /// Shown to the device at attach: the session then belongs to the tenant that the token was minted for. A wrong
    /// one is EACCES, never another tenant.
    pub token: Option<Token>,
    /// How long to wait for a device that listens and does not answer yet, because it recovers its image or has much to
    /// do; ETIMEDOUT after that. `None`: [`WAIT_DEFAULT`].
    pub wait: Option<Duration>,
}

/// The environment variable that holds a tenant's token, 32 hexadecimal digits.
pub const TOKEN_VARIABLE: &str = "WELDFS_TENANT_TOKEN";
/// The environment variable that says how long to wait for a device that is known to be starting: seconds, 0 to 86400.
pub const WAIT_VARIABLE: &str = "WELDFS_WAIT";
/// The environment variable that names a user, by number, whose device is believed by its socket's path.
pub const DEVICE_USER_VARIABLE: &str = "WELDFS_DEVICE_USER";
/// How long to wait unless something else is said.
pub const WAIT_DEFAULT: Duration = Duration::from_secs(30);
/// The longest that can be asked for, seconds.
const WAIT_MAX_SECONDS: f64 = 86_400.0;

/// Seconds as [`WAIT_VARIABLE`] holds them, such as `0`, `2.5`, `60`. EINVAL for anything else.
pub fn parse_wait(text: &str) -> Result<Duration, Errno> {
    match text.trim().parse::<f64>() {
        Ok(seconds) if (0.0..=WAIT_MAX_SECONDS).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(Errno::INVAL),
    }
}

/// What the environment says ([`WAIT_VARIABLE`]), if it says anything.
pub fn wait_from_env() -> Result<Option<Duration>, Errno> {
    match std::env::var_os(WAIT_VARIABLE) {
        None => Ok(None),
        Some(text) => text.to_str().ok_or(Errno::INVAL).and_then(parse_wait).map(Some),
    }
}

/// A user as [`DEVICE_USER_VARIABLE`] holds it, such as `1000`. EINVAL for anything else.
pub fn parse_device_user(text: &str) -> Result<u32, Errno> {
    text.trim().parse().ok().filter(|user| *user != u32::MAX).ok_or(Errno::INVAL)
}

/// What the environment says ([`DEVICE_USER_VARIABLE`]), if it says anything.
pub fn device_user_from_env() -> Result<Option<u32>, Errno> {
    match std::env::var_os(DEVICE_USER_VARIABLE) {
        None => Ok(None),
        Some(text) => text.to_str().ok_or(Errno::INVAL).and_then(parse_device_user).map(Some),
    }
}

impl AttachOptions {
    /// With token and wait of the environment ([`TOKEN_VARIABLE`], [`WAIT_VARIABLE`]), where it has them. EACCES
    /// when the one is no token, EINVAL when the other is no number of seconds.
    pub fn from_env() -> io::Result<AttachOptions> {
        let token = match std::env::var_os(TOKEN_VARIABLE) {
            None => None,
            Some(text) => Some(text.to_str().and_then(|t| t.parse().ok()).ok_or(Errno::ACCES)?),
        };
        Ok(AttachOptions { token, wait: wait_from_env()?, ..AttachOptions::default() })
    }
}

/// What the device said about itself at attach. Plain facts; they do not change during a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionInfo {
    /// The session's number in the device.
    pub session: u64,
    /// Feature bits both sides know.
    pub features: u64,
    /// Identity of the file system.
    pub uuid: [u8; 16],
    /// Bounds in force; the payload limit of one command is `limits.atomic_write_max` bytes.
    pub limits: Limits,
    /// The file system's label, as set by mkfs.
    pub label: String,
    /// The profile (emulated hardware) in force.
    pub profile: String,
    /// What the bytes persist on: a value of `weldfs_ciscops::attach::medium`.
    pub medium: u8,
    /// Whether what is durable survives a power cut (not only the end of the device process).
    pub power_safe: bool,
    /// What calls with the default durability get.
    pub durability: Durability,
    /// Whether every change is refused with EROFS.
    pub read_only: bool,
}

fn text(padded: &[u8]) -> String {
    let end = padded.iter().position(|b| *b == 0).unwrap_or(padded.len());
    String::from_utf8_lossy(&padded[..end]).into_owned()
}

impl From<&Welcome> for SessionInfo {
    fn from(w: &Welcome) -> SessionInfo {
        SessionInfo {
            session: w.session,
            features: w.features,
            uuid: w.uuid,
            limits: w.limits,
            label: text(&w.label),
            profile: text(&w.profile),
            medium: w.medium,
            power_safe: w.power_safe != 0,
            durability: if w.durability == 2 { Durability::Durable } else { Durability::Volatile },
            read_only: w.read_only != 0,
        }
    }
}

/// One queue pair as the device made it: shared memory, its layout, and how to wake the device.
pub struct QueueParts {
    /// The device's number for this queue pair within the session.
    pub index: u32,
    /// Where rings and pool lie in `region`.
    pub layout: QueueLayout,
    /// The mapped memory. Mapped so that a forked child does not inherit it.
    pub region: SharedRegion,
    /// Eventfd to write to when the ring says that the device sleeps.
    pub doorbell: Arc<OwnedFd>,
}

/// A descriptor that stands for an open file description in the device until it is claimed.
#[derive(Debug)]
pub struct Placeholder {
    /// The number to name in an open command.
    pub id: u32,
    /// The descriptor is the library's until this goes with the rest.
    _kept: Kept,
    /// The descriptor. Reading, writing or mapping it fails; sending it to the device claims what it stands for.
    pub fd: OwnedFd,
}

impl Placeholder {
    /// As the device made it.
    pub fn new(id: u32, fd: OwnedFd) -> Placeholder {
        Placeholder { id, _kept: Kept::new(&fd), fd }
    }

    /// The descriptor, for the program.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

/// An open file description taken over through its placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claimed {
    /// This session's handle for it.
    pub handle: Handle,
    /// The flags it carries now.
    pub flags: OpenFlags,
    /// Type and permission bits of the file, as st_mode.
    pub mode: u32,
    /// The id of the placeholder.
    pub placeholder: u32,
}

/// Brings sessions. Thread-safe.
pub trait Connector: Send + Sync {
    /// Attaches to the device. Errors: ENOENT / ECONNREFUSED (no device serves there), EPROTO (the other side does not
    /// speak this protocol), EACCES (unknown token), EMFILE (too many sessions), ENODEV (the device is gone), ETIMEDOUT
    /// (it did not answer within [`AttachOptions::wait`]).
    fn attach(&self, options: &AttachOptions) -> io::Result<Box<dyn Transport>>;
}

/// What came of asking an embedded device to run on the calling thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Here {
    /// It ran.
    Ran,
    /// Another thread runs it, commands of this one, too.
    Taken,
    /// Its commands run on threads of its own.
    Elsewhere,
}

/// One attached session. Thread-safe: every method may be called from any thread.
pub trait Transport: Send + Sync {
    /// What the device said at attach.
    fn info(&self) -> &SessionInfo;

    /// A new queue pair of `depth` commands and `pool_bytes` bytes of buffers. Errors: EMFILE, ENOMEM, EINVAL, ENODEV.
    fn new_queue(&self, depth: u32, pool_bytes: u32) -> io::Result<QueueParts>;

    /// `count` fresh placeholders. Errors: EMFILE, ENODEV, EOPNOTSUPP where the device makes none.
    fn placeholders(&self, count: u32) -> Result<Vec<Placeholder>, Errno>;

    /// Placeholders of files that are open in this session, 1 to 16 of them. Errors: EBADF, EEXIST (one came with a
    /// placeholder), EMFILE, ENODEV, EOPNOTSUPP where the device makes none.
    fn share(&self, open: &[Handle]) -> Result<Vec<Placeholder>, Errno>;

    /// Takes over the open file description that `fd` stands for. Errors: EBADF (not a placeholder of this device, or
    /// nothing is open on it any more), EMFILE, ENODEV.
    fn claim(&self, fd: BorrowedFd<'_>, anew: bool) -> Result<Claimed, Errno>;

    /// The device's counters as one JSON object, of which the `session` member is this session's own share. `detail`:
    /// bits of `weldfs_ciscops::attach::detail`.
    fn stats_json(&self, detail: u32) -> Result<String, Errno>;

    /// Starts a recording of at most so many slices, or ends it (`None`) and returns its bytes, as
    /// `weldfs_ciscops::trace::decode` reads them. Errors: EPERM (not for every user), EBUSY (another one runs),
    /// EINVAL (none runs, or the limit is out of range), EOPNOTSUPP where the device records nothing.
    fn trace(&self, start: Option<u32>) -> Result<Vec<u8>, Errno> {
        let _ = start;
        Err(Errno::OPNOTSUPP)
    }

    /// What concerns the device and not its files: Tune, Tenants, Token, Kernels, Trace. Text is in the reply, whatever
    /// its length. Errors: EPERM for settings, tokens and recordings unless root or the device's owner asks; EOPNOTSUPP
    /// where there is no such thing.
    fn control(&self, _request: &Request) -> Result<Reply, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Whether commands run on the threads that wait for them ([`Transport::run_here`]). Never changes.
    fn is_inline(&self) -> bool {
        false
    }

    /// Whether this thread was interrupted while it ran the device: a command of a signal handler would wait for ever.
    fn is_inside(&self) -> bool {
        false
    }

    /// Runs the device on the calling thread until `done` or until it has nothing to do, if it is one that commands run
    /// on, and no other thread is doing so.
    fn run_here(&self, _done: &mut dyn FnMut() -> bool) -> Here {
        Here::Elsewhere
    }

    /// Runs a command of this queue pair on the calling thread, past its ring, if it is over at once and nothing waits.
    /// `None`: nothing has happened, and it is to be put into the ring. Its commands before it were answered.
    fn call_here(&self, _queue: u32, _entry: &Sqe) -> Option<Cqe> {
        None
    }

    /// True once the device is known to be gone. Cheap enough to ask before every sleep (one system call).
    fn hung_up(&self) -> bool;

    /// Ends the session: handles are closed in the device. Idempotent; every later call fails with ENODEV.
    fn detach(&self);

    /// Called once in a forked child: let go of the descriptors inherited from the parent without saying a word to
    /// the device, for the session is still the parent's. Must not block; leaking is allowed.
    fn abandon(&self) {}
}
