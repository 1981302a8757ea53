//! What stands behind a socket or inside a process: a device, or a directory of the host. One conversation and one
//! embedded transport serve both.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use weldfs_ciscops::attach::{Reply, Request, Token, Welcome, medium};
use weldfs_ciscops::{Cqe, Errno, Handle, Sqe};
use weldfs_device::{Claimed, Departures, Device, DeviceFacts, Identity, QueueParts, Seated, Session};
use weldfs_hostdir::{HostDir, HostSession};
use weldfs_journal::MediumKind;

/// What is served. Cloning shares it.
#[derive(Clone)]
pub enum Served {
    /// A device over a medium.
    Device(Arc<Device>),
    /// A directory of the host.
    HostDir(Arc<HostDir>),
}

/// A session with it; dropping it ends the session.
pub enum ServedSession {
    /// Of a device.
    Device(Session),
    /// Of a host directory.
    HostDir(HostSession),
}

macro_rules! either {
    ($of:expr, $inner:ident => $call:expr) => {
        match $of {
            Self::Device($inner) => $call,
            Self::HostDir($inner) => $call,
        }
    };
}

impl ServedSession {
    /// Its number.
    pub fn id(&self) -> u64 {
        either!(self, s => s.id())
    }

    /// The doorbell to hand to the client.
    pub fn doorbell(&self) -> &Arc<OwnedFd> {
        either!(self, s => s.doorbell())
    }

    /// A queue pair in a sealed memfd.
    pub fn new_queue(&self, depth: u32, pool_bytes: u32) -> Result<QueueParts, Errno> {
        either!(self, s => s.new_queue(depth, pool_bytes))
    }

    /// A queue pair in memory of this process.
    pub fn new_queue_local(&self, depth: u32, pool_bytes: u32) -> Result<QueueParts, Errno> {
        either!(self, s => s.new_queue_local(depth, pool_bytes))
    }

    /// Fresh placeholders.
    pub fn placeholders(&self, count: u32) -> Result<Vec<(u32, OwnedFd)>, Errno> {
        either!(self, s => s.placeholders(count))
    }

    /// A handle for what `fd` stands for.
    /// See [`weldfs_device::Session::share`].
    pub fn share(&self, open: &[Handle]) -> Result<Vec<(u32, OwnedFd)>, Errno> {
        either!(self, s => s.share(open))
    }

    /// See [`weldfs_device::Session::claim`].
    pub fn claim(&self, fd: impl AsFd, anew: bool) -> Result<Claimed, Errno> {
        either!(self, s => s.claim(fd, anew))
    }

    /// Starts a recording. EOPNOTSUPP: a host directory has no slices to record.
    pub fn trace_start(&self, limit: u32) -> Result<(), Errno> {
        match self {
            ServedSession::Device(s) => s.trace_start(limit),
            ServedSession::HostDir(_) => Err(Errno::OPNOTSUPP),
        }
    }

    /// Ends it.
    pub fn trace_stop(&self) -> Result<Vec<u8>, Errno> {
        match self {
            ServedSession::Device(s) => s.trace_stop(),
            ServedSession::HostDir(_) => Err(Errno::OPNOTSUPP),
        }
    }

    /// The number of its tenant; a host directory's sessions have no card, and 0.
    fn tenant(&self) -> u64 {
        match self {
            ServedSession::Device(s) => s.tenant(),
            ServedSession::HostDir(_) => 0,
        }
    }

    /// Counters as JSON.
    pub fn stats_json(&self, detail: u32) -> String {
        match self {
            ServedSession::Device(s) => s.stats_json(detail),
            ServedSession::HostDir(s) => s.stats_json(),
        }
    }

    /// Ends it now, whatever else holds it.
    pub fn end(&self) {
        either!(self, s => s.end());
    }

    /// True once it is ending.
    pub fn is_closing(&self) -> bool {
        either!(self, s => s.is_closing())
    }
}

impl Served {
    /// Whether commands run on the threads of this process that wait for them.
    pub fn is_inline(&self) -> bool {
        match self {
            Served::Device(d) => d.is_inline(),
            Served::HostDir(_) => false,
        }
    }

    /// Runs it on the calling thread until `done`, if commands do.
    pub fn run_here(&self, done: &mut dyn FnMut() -> bool) -> Seated {
        match self {
            Served::Device(d) => d.run_here(done),
            Served::HostDir(_) => Seated::None,
        }
    }

    /// Runs one command on the calling thread, past its ring, if commands do and nothing is in the way.
    pub fn call_here(&self, pair: (u64, u32), entry: &Sqe) -> Option<Cqe> {
        match self {
            Served::Device(d) => d.call_here(pair, entry),
            Served::HostDir(_) => None,
        }
    }

    /// Readable once there is nothing more to be had from it.
    pub fn failure(&self) -> BorrowedFd<'_> {
        either!(self, d => d.failure())
    }

    /// Whoever shows this token belongs to the tenant it was minted for. EACCES: unknown; a host directory mints none.
    pub fn join(&self, who: &mut Identity, token: &[u8; 16]) -> Result<(), Errno> {
        match self {
            Served::Device(device) => device.join(who, token),
            Served::HostDir(_) => Err(Errno::ACCES),
        }
    }

    /// A session for a client whose identity the kernel vouches for. `prefix` is for a device only: links of a host
    /// directory mean what they mean below it.
    pub fn attach(&self, who: Identity, client_id: [u8; 16], prefix: &[u8]) -> Result<ServedSession, Errno> {
        Ok(match self {
            Served::Device(device) => ServedSession::Device(device.attach(who, client_id, prefix)?),
            Served::HostDir(dir) => ServedSession::HostDir(dir.attach(who, client_id)?),
        })
    }

    /// The sessions of a user that are ending: what their clients had published is still being executed.
    pub fn departing(&self, uid: u32) -> Vec<u64> {
        either!(self, d => d.departing(uid))
    }

    /// Whether a session is there, if only to end.
    pub fn has_session(&self, id: u64) -> bool {
        either!(self, d => d.has_session(id))
    }

    /// Tells when sessions have gone.
    pub fn departures(&self) -> &Departures {
        either!(self, d => d.departures())
    }

    fn facts(&self) -> DeviceFacts {
        either!(self, d => d.facts())
    }

    /// What it says about itself to a new session.
    pub fn welcome(&self, session: &ServedSession) -> Welcome {
        let facts = self.facts();
        let mut credential = [0; 16];
        // Names the session for audit and grants nothing: without entropy it stays zero.
        let _ = getrandom::fill(&mut credential);
        let mut w = Welcome {
            session: session.id(),
            credential,
            label: padded(&facts.label),
            profile: padded(&facts.profile.name),
            power_safe: u8::from(facts.power_safe),
            durability: if facts.durability == "durable" { 2 } else { 1 },
            ..Welcome::default()
        };
        match self {
            Served::Device(device) => {
                let store = device.store();
                w.uuid = *store.uuid();
                w.medium = match store.medium().info().kind {
                    MediumKind::Ram => medium::RAM,
                    MediumKind::Pmem => medium::PMEM,
                    MediumKind::Block => medium::BLOCK,
                };
                w.read_only = u8::from(store.is_read_only());
                w.limits.inline_max = store.inline_max() as u32;
                w.limits.handles_max = device.handles_max();
            }
            Served::HostDir(dir) => {
                w.uuid = dir.uuid();
                w.medium = medium::HOSTDIR;
                w.limits.handles_max = dir.handles_max();
            }
        }
        w
    }

    /// What is asked beside files. Settings and tokens are for those who govern it: EPERM. A host directory has none:
    /// EOPNOTSUPP.
    pub fn control(&self, session: &ServedSession, governs: bool, request: &Request) -> Result<Reply, Errno> {
        let text = |text: &[u8]| std::str::from_utf8(text).map(str::to_owned).map_err(|_| Errno::INVAL);
        match (request, self) {
            (Request::Stats { detail }, _) => Ok(Reply::Text(session.stats_json(*detail).into_bytes())),
            (Request::Tenants, _) => json(&either!(self, d => d.tenants())),
            (Request::Tune(_) | Request::Token(_) | Request::Kernels(_), Served::HostDir(_)) => Err(Errno::OPNOTSUPP),
            (Request::Kernels(verb), Served::Device(device)) if verb.is_empty() => {
                let status = device.card().status();
                json(&status.seen_by(session.tenant()))
            }
            (Request::Tune(key), Served::Device(device)) if key.is_empty() => json(&device.settings()),
            (Request::Tune(_) | Request::Token(_) | Request::Kernels(_), _) if !governs => Err(Errno::PERM),
            (Request::Kernels(verb), Served::Device(device)) => {
                device.kernels(verb).map(|s| Reply::Text(s.into_bytes()))
            }
            (Request::Tune(setting), Served::Device(device)) => match device.tune(&text(setting)?) {
                Ok(()) => Ok(Reply::Text(Vec::new())),
                Err(e) => Err(Errno::from(&e)),
            },
            (Request::Token(name), Served::Device(device)) => Ok(Reply::Token(Token(device.token(&text(name)?)?))),
            _ => Err(Errno::PROTO),
        }
    }
}

fn json(value: &impl serde::Serialize) -> Result<Reply, Errno> {
    serde_json::to_vec(value).map(Reply::Text).map_err(|_| Errno::IO)
}

fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut out = [0; N];
    let len = text.len().min(N - 1);
    out[..len].copy_from_slice(&text.as_bytes()[..len]);
    out
}
