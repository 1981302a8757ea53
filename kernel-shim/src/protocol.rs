//! One client's conversation with the control plane: request packet in, reply packet and descriptors out.
//!
//! The state machine of a connection: nothing but Stop, Join and Hello before the session exists, and neither of the
//! latter two after. A packet that is not this protocol ends the connection, and so does a wrong token; any other
//! request that cannot be granted is answered with its errno.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use weldfs_ciscops::attach::{
    Claimed, Hello, NewQueue, PlaceholdersReply, QueueReply, Reply, Request, Welcome, feature, negotiate,
};
use weldfs_ciscops::{Errno, Handle};
use weldfs_device::Identity;

use crate::creds::{StopRight, governs};
use crate::served::{Served, ServedSession};

/// Bytes of a report inside the message itself; longer ones come in a memfd.
const STATS_INLINE_MAX: usize = weldfs_ciscops::limits::ATTACH_MESSAGE_MAX - 64;

/// Pools of so many bytes are made beside the thread that talks to all clients: smaller ones take it less time than the
/// way there and back.
const MADE_BESIDE: u32 = 1 << 20;

/// A descriptor to send: owned ones are closed here once sent.
pub enum Rider {
    /// Given away.
    Owned(OwnedFd),
    /// Shared with the session.
    Shared(Arc<OwnedFd>),
}

impl AsFd for Rider {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Rider::Owned(fd) => fd.as_fd(),
            Rider::Shared(fd) => fd.as_fd(),
        }
    }
}

/// What to do after a packet.
#[derive(Default)]
pub struct Answer {
    /// Packet to send, empty for none.
    pub packet: Vec<u8>,
    /// Descriptors that are attached.
    pub riders: Vec<Rider>,
    /// Close the connection afterwards.
    pub close: bool,
    /// End the device, and answer this connection when that is done.
    pub stop: bool,
    /// It asks for a session: `Conversation::enter` answers.
    pub attaches: bool,
    /// What is to be made before there is an answer, by a thread that no other user waits for.
    pub making: Option<Making>,
}

/// What takes long.
pub enum Making {
    /// A queue pair: its memory is given to it page by page, which takes long where it is large.
    Queue(Arc<ServedSession>, NewQueue),
    /// A change of the card's kernels, by one that governs the device: foreign code is started and asked, for as long
    /// as the watchdog lets it.
    Kernels(Served, Arc<ServedSession>, Request),
}

impl Making {
    /// Makes it.
    pub fn run(self) -> Answer {
        let (kind, made) = match self {
            Making::Queue(session, queue) => (Request::NewQueue(queue).kind(), new_queue(&session, queue)),
            Making::Kernels(served, session, request) => {
                (request.kind(), serve(&served, &session, true, request, &mut Vec::new()))
            }
        };
        match made {
            Ok((reply, riders)) => Answer::reply(kind, &reply, riders),
            Err(errno) => Answer::error(kind, errno),
        }
    }
}

impl Answer {
    fn reply(kind: u16, reply: &Reply, riders: Vec<Rider>) -> Answer {
        Answer { packet: reply.encode(kind), riders, ..Answer::default() }
    }

    fn error(kind: u16, errno: Errno) -> Answer {
        Answer { packet: Reply::encode_error(kind, errno), ..Answer::default() }
    }

    fn stop() -> Answer {
        Answer { stop: true, ..Answer::default() }
    }

    fn attaches() -> Answer {
        Answer { attaches: true, ..Answer::default() }
    }

    fn goodbye() -> Answer {
        Answer { close: true, ..Answer::default() }
    }
}

/// One connection.
pub struct Conversation {
    served: Served,
    who: Identity,
    stop: StopRight,
    session: Option<Arc<ServedSession>>,
    /// What it asked for a session with, until it has one.
    asked: Option<(Hello, Vec<u8>)>,
}

impl Conversation {
    /// With a peer whose identity the kernel vouched for.
    pub fn new(served: Served, who: Identity, stop: StopRight) -> Conversation {
        Conversation { served, who, stop, session: None, asked: None }
    }

    /// The peer's user.
    pub fn uid(&self) -> u32 {
        self.who.cred.uid
    }

    /// Whether there is a session.
    pub fn attached(&self) -> bool {
        self.session.is_some()
    }

    /// Answers one packet; `fds` came with it. One that was claimed is closed, as a placeholder is at once; whatever
    /// else they are stays in there, for to close it may take long.
    pub fn packet(&mut self, bytes: &[u8], fds: &mut Vec<OwnedFd>) -> Answer {
        let kind_claimed = bytes.get(6..8).map_or(0, |k| u16::from_le_bytes([k[0], k[1]]));
        let request = match Request::decode(bytes) {
            Ok(request) => request,
            Err(Errno::PROTO) => return Answer::goodbye(),
            Err(_) if !fds.is_empty() => return Answer::goodbye(),
            Err(errno) => return Answer::error(kind_claimed, errno),
        };
        let kind = request.kind();
        if !matches!(request, Request::Claim { .. }) && !fds.is_empty() {
            return Answer::goodbye();
        }
        let result = match (request, &self.session) {
            (Request::Stop, _) => match self.stop.of(self.who.cred.uid) {
                Ok(()) => return Answer::stop(),
                Err(errno) => Err(errno),
            },
            (Request::Hello { hello, prefix }, None) => {
                self.asked = Some((hello, prefix));
                return Answer::attaches();
            }
            (Request::Join(token), None) => match self.served.join(&mut self.who, &token.0) {
                Ok(()) => Ok((Reply::Done, Vec::new())),
                // No second guess, and no client goes on as another.
                Err(errno) => return Answer { close: true, ..Answer::error(kind, errno) },
            },
            (Request::Hello { .. } | Request::Join(_), Some(_)) | (_, None) => return Answer::goodbye(),
            (Request::Detach, Some(_)) => {
                self.session = None;
                return Answer { packet: Reply::Done.encode(kind), close: true, ..Answer::default() };
            }
            (Request::NewQueue(queue), Some(session)) if queue.pool_bytes >= MADE_BESIDE => {
                return Answer { making: Some(Making::Queue(session.clone(), queue)), ..Answer::default() };
            }
            (Request::Kernels(verb), Some(session)) if !verb.is_empty() && governs(self.who.cred.uid) => {
                let making = Making::Kernels(self.served.clone(), session.clone(), Request::Kernels(verb));
                return Answer { making: Some(making), ..Answer::default() };
            }
            (other, Some(session)) => serve(&self.served, session, governs(self.who.cred.uid), other, fds),
        };
        match result {
            Ok((reply, riders)) => Answer::reply(kind, &reply, riders),
            Err(errno) => Answer::error(kind, errno),
        }
    }

    /// The session that was asked for.
    pub fn enter(&mut self) -> Answer {
        let Some((hello, prefix)) = self.asked.take() else { return Answer::goodbye() };
        let kind = Request::Hello { hello, prefix: Vec::new() }.kind();
        match self.hello(&hello, &prefix) {
            Ok((reply, riders)) => Answer::reply(kind, &reply, riders),
            Err(errno) => Answer::error(kind, errno),
        }
    }

    /// Ends the session, if there is one: also while something is being made for it.
    pub fn end(self) {
        if let Some(session) = self.session {
            session.end();
        }
    }

    fn hello(&mut self, hello: &Hello, prefix: &[u8]) -> Result<(Reply, Vec<Rider>), Errno> {
        let (version, features) = negotiate(hello, feature::KNOWN)?;
        let session = self.served.attach(self.who.clone(), hello.client_id, prefix)?;
        let welcome = Welcome { version, features, ..self.served.welcome(&session) };
        let doorbell = Rider::Shared(session.doorbell().clone());
        self.session = Some(Arc::new(session));
        Ok((Reply::Welcome(Box::new(welcome)), vec![doorbell]))
    }
}

fn new_queue(session: &ServedSession, q: NewQueue) -> Result<(Reply, Vec<Rider>), Errno> {
    let parts = session.new_queue(q.depth, q.pool_bytes)?;
    let memfd = parts.memfd.ok_or(Errno::IO)?;
    let reply = QueueReply { index: parts.index, reserved: 0, layout: parts.layout };
    Ok((Reply::Queue(reply), vec![Rider::Owned(memfd)]))
}

fn serve(
    served: &Served,
    session: &ServedSession,
    governs: bool,
    request: Request,
    fds: &mut Vec<OwnedFd>,
) -> Result<(Reply, Vec<Rider>), Errno> {
    match request {
        Request::NewQueue(queue) => new_queue(session, queue),
        Request::Placeholders { count } => Ok(placeholders(session.placeholders(count)?)),
        Request::Share(share) => {
            let open: Vec<Handle> =
                share.handles.iter().take(share.count as usize).map(|h| Handle::from_wire(*h)).collect();
            Ok(placeholders(session.share(&open)?))
        }
        Request::Claim { anew } => {
            let [fd] = fds.as_slice() else { return Err(Errno::BADF) };
            let c = session.claim(fd, anew)?;
            fds.clear();
            let reply = Claimed {
                handle: c.handle.to_wire(),
                flags: u32::from(c.flags.bits()),
                mode: c.mode,
                placeholder: c.placeholder,
                reserved: 0,
            };
            Ok((Reply::Claimed(reply), Vec::new()))
        }
        Request::Trace { .. } if !governs => Err(Errno::PERM),
        Request::Trace { start: Some(limit) } => session.trace_start(limit).map(|()| (Reply::Done, Vec::new())),
        Request::Trace { start: None } => Ok((Reply::Done, vec![memfd("weldfs-trace", &session.trace_stop()?)?])),
        Request::Hello { .. } | Request::Join(_) | Request::Stop | Request::Detach => Err(Errno::PROTO),
        other => match served.control(session, governs, &other)? {
            Reply::Text(text) if text.len() > STATS_INLINE_MAX => {
                Ok((Reply::Text(Vec::new()), vec![memfd("weldfs-text", &text)?]))
            }
            reply => Ok((reply, Vec::new())),
        },
    }
}

/// The answer that has these with it.
fn placeholders(made: Vec<(u32, OwnedFd)>) -> (Reply, Vec<Rider>) {
    let mut reply = PlaceholdersReply { count: made.len() as u32, ..PlaceholdersReply::default() };
    let mut riders = Vec::new();
    for (slot, (id, fd)) in reply.ids.iter_mut().zip(made) {
        *slot = id;
        riders.push(Rider::Owned(fd));
    }
    (Reply::Placeholders(reply), riders)
}

/// A sealed memfd with these bytes, to send.
fn memfd(name: &str, bytes: &[u8]) -> Result<Rider, Errno> {
    use rustix::fs::SealFlags;
    use std::io::Write;
    use weldfs_ciscops::private_memfd;
    let fd = private_memfd(name)?;
    let mut file = std::fs::File::from(fd);
    file.write_all(bytes).map_err(|e| Errno(e.raw_os_error().unwrap_or(Errno::IO.0)))?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(Rider::Owned(file.into()))
}
