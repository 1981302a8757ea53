//! A device behind a Unix socket.
//!
//! One control thread polls the listener, the sessions and the signals. A session that hangs up is ended: the device
//! executes what it had published, then closes its handles and frees its memory. SIGTERM and SIGINT end everything in
//! the same order, checkpoint and set the clean flag.

use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use weldfs_ciscops::limits::{ATTACH_MESSAGE_MAX, PLACEHOLDERS_MAX};
use weldfs_storagefs::device::{Device, DeviceConfig, limits::SESSIONS_MAX};

use crate::ServeError;
use crate::creds;
use crate::image::{Opened, Source};
use crate::listener::Listener;
use crate::protocol::{Answer, Conversation, Rider};
use crate::served::Served;
use crate::signals::Signals;

/// Packets taken from one connection before the next one gets its turn.
const PACKETS_PER_TURN: usize = 16;
/// Connections of one user that have not attached.
const UNATTACHED_PER_USER_MAX: usize = 64;
/// Connections of all users that have not attached.
const UNATTACHED_MAX: usize = 512;
/// Descriptors kept free for queue pairs and placeholders when the limit of open files is near.
const SPARE_FDS: u64 = 64;

/// What to serve, and how.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// What the device runs on.
    pub source: Source,
    /// Where to listen.
    pub socket: PathBuf,
    /// Permission bits of the socket file. Every process that may connect is served under its own credentials.
    pub socket_mode: u32,
    /// The device.
    pub device: DeviceConfig,
    /// Whether SIGTERM and SIGINT end `run` (else only a [`Stopper`] does).
    pub signals: bool,
}

impl ServeConfig {
    /// With defaults for everything but the essentials.
    pub fn new(source: Source, socket: impl Into<PathBuf>) -> ServeConfig {
        ServeConfig {
            source,
            socket: socket.into(),
            socket_mode: 0o666,
            device: DeviceConfig::default(),
            signals: true,
        }
    }
}

/// Ends a server from another thread. Cloneable, thread-safe.
#[derive(Clone)]
pub struct Stopper(Arc<OwnedFd>);

impl Stopper {
    /// Makes `Server::run` return after a clean end.
    pub fn stop(&self) {
        // A counter that is full has been rung already.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// A device that listens. Nothing is served before `run`.
pub struct Server {
    reception: Reception,
    opened: Opened,
    device: Arc<Device>,
}

/// A socket and whoever comes to it.
pub(crate) struct Reception {
    listener: Listener,
    served: Served,
    stop: Arc<OwnedFd>,
    signals: Option<Signals>,
}

struct Connection {
    socket: OwnedFd,
    talk: Conversation,
}

impl Server {
    /// Opens the image (taking its lock), mounts it, starts the device and binds the socket.
    pub fn bind(config: ServeConfig) -> Result<Server, ServeError> {
        raise_fd_limit();
        let opened = Opened::open(&config.source, config.device.memory_bytes)?;
        let listener = match Listener::bind(&config.socket, config.socket_mode) {
            Ok(listener) => listener,
            Err(e) => {
                // The image stays clean: nothing has happened to it.
                opened.close()?;
                return Err(e);
            }
        };
        let signals = config.signals.then(Signals::install).transpose().map_err(ServeError::system("signals"))?;
        let device = Device::start(opened.store.clone(), opened.device_config(config.device))
            .map_err(ServeError::system("device threads"))?;
        let device = Arc::new(device);
        let reception = Reception::new(listener, Served::Device(device.clone()), signals)?;
        Ok(Server { reception, opened, device })
    }

    /// The device, for reports.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// What recovery found and did when the image was mounted.
    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// A way to end `run`.
    pub fn stopper(&self) -> Stopper {
        self.reception.stopper()
    }

    /// Serves until a signal or the stopper; then ends sessions, checkpoints, and sets the clean flag. An error also
    /// when the device fails meanwhile.
    pub fn run(self) -> Result<(), ServeError> {
        let Server { reception, opened, device } = self;
        reception.run()?;
        device.shutdown();
        if device.is_abandoned() {
            return Err(ServeError::Failed);
        }
        opened.close()
    }
}

impl Reception {
    /// Nobody is answered before `run`.
    pub fn new(listener: Listener, served: Served, signals: Option<Signals>) -> Result<Reception, ServeError> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| ServeError::system("eventfd")(e.into()))?;
        Ok(Reception { listener, served, stop: Arc::new(stop), signals })
    }

    /// A way to end `run`.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.stop.clone())
    }

    /// Answers until a signal or the stopper; then every session has ended, or is about to.
    pub fn run(self) -> Result<(), ServeError> {
        let mut connections: HashMap<u64, Connection> = HashMap::new();
        let mut next = 0u64;
        while let Some((ready, accept)) = self.wait(&connections)? {
            for id in ready {
                let Some(c) = connections.get_mut(&id) else { continue };
                if !c.turn() {
                    connections.remove(&id);
                }
            }
            if accept {
                self.accept(&mut connections, &mut next);
            }
        }
        // No newcomer finds a socket that nobody answers.
        drop(self.listener);
        connections.clear();
        Ok(())
    }

    /// Blocks until something happens; `None` when it is time to end. Else: connections with news, and whether a new
    /// one waits.
    fn wait(&self, connections: &HashMap<u64, Connection>) -> Result<Option<(Vec<u64>, bool)>, ServeError> {
        let ids: Vec<u64> = connections.keys().copied().collect();
        let mut fds = vec![PollFd::new(&*self.stop, PollFlags::IN)];
        fds.push(PollFd::from_borrowed_fd(self.served.failure(), PollFlags::IN));
        if let Some(s) = &self.signals {
            fds.push(PollFd::new(s.bell(), PollFlags::IN));
        }
        let ends = fds.len();
        fds.push(PollFd::new(self.listener.fd(), PollFlags::IN));
        fds.extend(ids.iter().map(|id| PollFd::new(&connections[id].socket, PollFlags::IN | PollFlags::RDHUP)));
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(ServeError::system("poll")(e.into())),
        }
        let news = |f: &PollFd<'_>| !f.revents().is_empty();
        if fds[..ends].iter().any(news) {
            return Ok(None);
        }
        let accept = news(&fds[ends]);
        let ready = ids.into_iter().zip(&fds[ends + 1..]).filter(|(_, f)| news(f)).map(|(id, _)| id).collect();
        Ok(Some((ready, accept)))
    }

    fn accept(&self, connections: &mut HashMap<u64, Connection>, next: &mut u64) {
        match self.listener.accept() {
            Ok(None) => {}
            Ok(Some(socket)) => match creds::of_peer(&socket) {
                Ok(who) => {
                    *next += 1;
                    make_way(connections, who.cred.uid);
                    let talk = Conversation::new(self.served.clone(), who);
                    connections.insert(*next, Connection { socket, talk });
                }
                Err(e) => tracing::warn!("a connection without credentials was refused: {e}"),
            },
            Err(e) => {
                // Out of descriptors, most likely: the client waits in the backlog; do not spin meanwhile.
                tracing::warn!("accept: {e}");
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
    }
}

/// Closes the oldest connections that have not attached, where their user has too many of them, or all have: whoever
/// connects to attach does so at once, and nobody else is kept out by those who do not.
fn make_way(connections: &mut HashMap<u64, Connection>, uid: u32) {
    let idle = |of: Option<u32>| {
        let all = connections.iter().filter(move |(_, c)| !c.talk.attached() && of.is_none_or(|u| u == c.talk.uid()));
        all.map(|(id, _)| *id)
    };
    let crowded = idle(Some(uid)).count() >= UNATTACHED_PER_USER_MAX;
    let full = connections.len() >= SESSIONS_MAX + UNATTACHED_MAX;
    let oldest = if crowded { idle(Some(uid)).min() } else { idle(None).min().filter(|_| full) };
    if let Some(id) = oldest {
        connections.remove(&id);
    }
}

impl Connection {
    /// Handles what has arrived; false when the connection is over.
    fn turn(&mut self) -> bool {
        for _ in 0..PACKETS_PER_TURN {
            match receive(&self.socket) {
                Ok(None) => return true,
                Ok(Some((bytes, fds))) => {
                    let answer = self.talk.packet(&bytes, fds);
                    if !answer.packet.is_empty() && send(&self.socket, &answer).is_err() {
                        return false;
                    }
                    if answer.close {
                        return false;
                    }
                }
                Err(()) => return false,
            }
        }
        true
    }
}

/// A message and the descriptors that came with it.
type Packet = (Vec<u8>, Vec<OwnedFd>);

/// The next packet with its descriptors; `None` when there is none; `Err` when the peer is gone or sent nonsense.
fn receive(socket: &OwnedFd) -> Result<Option<Packet>, ()> {
    let mut bytes = vec![0; ATTACH_MESSAGE_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PLACEHOLDERS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got = match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
        Ok(got) => got,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(None),
        Err(_) => return Err(()),
    };
    let fds: Vec<OwnedFd> = control
        .drain()
        .flat_map(|m| match m {
            RecvAncillaryMessage::ScmRights(fds) => fds.collect::<Vec<_>>(),
            _ => Vec::new(),
        })
        .collect();
    let cut = rustix::net::ReturnFlags::TRUNC | rustix::net::ReturnFlags::CTRUNC;
    if got.bytes == 0 || got.flags.intersects(cut) {
        return Err(());
    }
    bytes.truncate(got.bytes);
    Ok(Some((bytes, fds)))
}

/// Sends a reply; a peer that does not read its replies is cut off.
fn send(socket: &OwnedFd, answer: &Answer) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PLACEHOLDERS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let riders: Vec<BorrowedFd<'_>> = answer.riders.iter().map(Rider::as_fd).collect();
    if !riders.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&riders)) {
        return Err(rustix::io::Errno::NOMEM);
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[IoSlice::new(&answer.packet)], &mut control, flags).map(drop)
}

/// Placeholders and queue pairs are descriptors: take as many as the hard limit allows.
pub(crate) fn raise_fd_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|now| limit.maximum.is_none_or(|max| now + SPARE_FDS < max)) {
        limit.current = limit.maximum;
        if let Err(e) = setrlimit(Resource::Nofile, limit) {
            tracing::debug!("the limit of open files stays: {e}");
        }
    }
}
