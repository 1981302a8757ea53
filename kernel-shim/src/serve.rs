//! A device behind a Unix socket.
//!
//! One control thread polls the listener, the sessions and the signals. A session that hangs up is ended: the device
//! executes what it had published, then closes its handles and frees its memory. SIGHUP, SIGINT, SIGTERM and a request
//! to stop end everything in the same order, checkpoint and set the clean flag.
//!
//! A process that attaches finds the file system as if the calls of those that ended before it were over, as on any
//! file system: it is answered when the user's sessions that are ending then are gone, their changes made and their
//! locks given back. Not those of other users, whose backlog would be its delay; and it waits for ten seconds at
//! most.
//!
//! The order of a start: the image's lock, its announcement, the socket, then the mount. So whoever comes while the
//! image is recovered waits in the socket's backlog, and is served when the device is.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use weldfs_ciscops::Errno;
use weldfs_ciscops::attach::{Reply, kind};
use weldfs_device::{Device, DeviceConfig, LogRate};
use weldfs_locks::Mutex;

use crate::ServeError;
use crate::announce::{Announcement, device_of};
use crate::closer::{Closer, UNCLOSED_MAX};
use crate::connection::{Connection, Turn, Waits, send};
use crate::creds::{self, StopRight};
use crate::image::{Opened, Source, Taken};
use crate::lanes::Lanes;
use crate::listener::{Listener, SocketAt};
use crate::protocol::{Answer, Conversation, Making};
use crate::served::Served;
use crate::signals::Signals;

/// Connections of one user that have not attached, and of all users, at most.
const UNATTACHED_PER_USER_MAX: usize = 64;
const UNATTACHED_MAX: usize = 448;
/// Newcomers that are let in before those there are get their turn.
const NEWCOMERS_PER_TURN: usize = 8;
/// What one user's requests may take of the thread that answers all users, before others get their turn.
const USER_TURN: Duration = Duration::from_micros(500);
/// Descriptors kept free for queue pairs and placeholders when the limit of open files is near.
const SPARE_FDS: u64 = 64;

/// How long a process that attaches is kept waiting by sessions of its user that are ending.
const DEPARTURE_MAX: Duration = Duration::from_secs(10);

/// How often an image in use is tried again.
const LOCK_RETRY: Duration = Duration::from_millis(10);
/// How long an end waits for what still holds the image in this process, which is nothing unless a caller kept it.
const LET_GO_MAX: Duration = Duration::from_secs(2);
/// Between two looks at that.
const LET_GO_LOOK: Duration = Duration::from_millis(1);

/// What to serve, and how.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// What the device runs on.
    pub source: Source,
    /// Where to listen, and for whom.
    pub socket: SocketAt,
    /// The device.
    pub device: DeviceConfig,
    /// Whether SIGHUP, SIGTERM and SIGINT end `run` (else only a [`Stopper`] and requests do).
    pub signals: bool,
    /// Whether root, the user that runs the device and the owner of its image may ask it to end.
    pub stoppable: bool,
    /// How long to wait for a process that has the image open in passing, as verbs do. One that serves it is not waited
    /// for.
    pub lock_wait: Duration,
}

impl ServeConfig {
    /// With defaults for everything but the essentials.
    pub fn new(source: Source, socket: impl Into<PathBuf>) -> ServeConfig {
        ServeConfig {
            source,
            socket: SocketAt::open_to_all(socket),
            device: DeviceConfig::default(),
            signals: true,
            stoppable: true,
            lock_wait: Duration::ZERO,
        }
    }

    fn stop_right(&self) -> StopRight {
        match self.stoppable {
            false => StopRight::Nobody,
            true => {
                let meta = self.source.image().and_then(|image| std::fs::metadata(image).ok());
                StopRight::Governors { owner: meta.map(|meta| meta.uid()) }
            }
        }
    }
}

/// Why a server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// A signal, by name.
    Signal(&'static str),
    /// This user asked for it.
    Request(u32),
    /// A [`Stopper`].
    Stopper,
    /// There is nothing more to be had from the device.
    Failure,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Signal(name) => f.write_str(name),
            Cause::Request(uid) => write!(f, "a request of user {uid}"),
            Cause::Stopper => f.write_str("the program that runs it"),
            Cause::Failure => f.write_str("a failure of the device"),
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
    announcement: Option<Announcement>,
}

/// A socket and whoever comes to it.
pub(crate) struct Reception {
    listener: Listener,
    served: Served,
    stop: Arc<OwnedFd>,
    stop_right: StopRight,
    signals: Option<Signals>,
    log: LogRate,
}

/// Connections in the order in which they get their turn: those behind the one that had it last come first.
fn in_turn(mut ready: Vec<u64>, last: u64) -> Vec<u64> {
    ready.sort_unstable();
    let next = ready.partition_point(|id| *id <= last);
    ready.rotate_left(next);
    ready
}

/// How much of one turn each user has had.
#[derive(Default)]
struct UserTurns {
    had: HashMap<u32, Duration>,
    /// When the connection that has its turn got it.
    begun: Option<Instant>,
}

impl UserTurns {
    /// Until when a connection of this user may go on; none: its user has had its turn.
    fn until(&mut self, uid: u32) -> Option<Instant> {
        let now = Instant::now();
        let left = USER_TURN.saturating_sub(self.had.get(&uid).copied().unwrap_or_default());
        self.begun = Some(now);
        (!left.is_zero()).then(|| now + left)
    }

    /// That connection has had its turn.
    fn is_over(&mut self, uid: u32) {
        let took = self.begun.take().map_or(Duration::ZERO, |begun| begun.elapsed());
        *self.had.entry(uid).or_default() += took;
    }
}

/// How a reception ended.
pub(crate) struct Ending {
    /// Why.
    pub cause: Cause,
    /// Who asked for it, and is to be told when it is done.
    asked: Option<OwnedFd>,
}

/// How many descriptors go to those who have no session: few, where the process may have few.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Room {
    /// Connections that have not attached,
    unattached: usize,
    /// of one user.
    per_user: usize,
    /// Descriptors of one user that wait to be closed.
    unclosed: usize,
}

impl Room {
    /// Of a process that may have so many.
    fn of(descriptors: usize) -> Room {
        let unattached = (descriptors / 32).clamp(4, UNATTACHED_MAX);
        let unclosed = (descriptors / 32).clamp(4, UNCLOSED_MAX);
        Room { unattached, per_user: (unattached / 4).clamp(2, UNATTACHED_PER_USER_MAX), unclosed }
    }

    fn of_this_process() -> Room {
        let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        Room::of(most.map_or(1 << 20, |n| n as usize))
    }
}

/// What there is to do next.
enum News {
    End(Cause),
    Turn { ready: Vec<u64>, accept: bool },
}

/// Answers of what was made beside, and the bell that says so.
struct Made {
    answers: Mutex<Vec<(u64, Answer)>>,
    bell: OwnedFd,
}

/// What a thread beside makes for a connection.
struct Job {
    connection: u64,
    making: Making,
    made: Arc<Made>,
}

impl Job {
    fn run(self) {
        let answer = self.making.run();
        self.made.answers.lock().push((self.connection, answer));
        // A counter that is full has been rung already.
        let _ = rustix::io::write(&self.made.bell, &1u64.to_ne_bytes());
    }
}

impl Made {
    fn new() -> Result<Made, ServeError> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| ServeError::system("eventfd")(e.into()))?;
        Ok(Made { answers: Mutex::default(), bell })
    }

    fn collect(&self) -> Vec<(u64, Answer)> {
        // Read first: what comes after that rings again.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        std::mem::take(&mut *self.answers.lock())
    }
}

impl Server {
    /// Opens the image (taking its lock), binds the socket, mounts and starts the device. Who connects meanwhile waits.
    pub fn bind(config: ServeConfig) -> Result<Server, ServeError> {
        raise_fd_limit();
        let signals = config.signals.then(Signals::install).transpose().map_err(ServeError::system("signals"))?;
        let taken = take(&config, signals.as_ref())?;
        let announcement = config.source.image().and_then(|image| announce(image, &config.socket.path));
        // On a failure from here on the image is as it was, or as its recovery leaves it.
        let listener = Listener::bind(&config.socket)?;
        let stop_right = config.stop_right();
        let opened = taken.modelled(&config.device.profile).mount(config.device.memory_bytes)?;
        let device = Device::start(opened.store.clone(), opened.device_config(config.device))
            .map_err(ServeError::system("device threads"))?;
        let device = Arc::new(device);
        let reception = Reception::new(listener, Served::Device(device.clone()), stop_right, signals)?;
        Ok(Server { reception, opened, device, announcement })
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

    /// Serves until a signal, a request or the stopper; then ends sessions, checkpoints, and sets the clean flag. An
    /// error also when the device fails meanwhile.
    pub fn run(self) -> Result<(), ServeError> {
        self.run_telling(|_| {})
    }

    /// As `run`; `ending` is told why it ends before anything is ended.
    pub fn run_telling(self, ending: impl FnOnce(Cause)) -> Result<(), ServeError> {
        let Server { reception, opened, device, announcement } = self;
        reception.run(ending, move || {
            device.shutdown();
            let failed = device.is_abandoned();
            // Whoever asked for the end is answered after this: the image's lock goes with the last of these.
            drop(device);
            let store = Arc::downgrade(&opened.store);
            let closed = if failed { Err(ServeError::Failed) } else { opened.close() };
            let start = Instant::now();
            while store.strong_count() > 0 && start.elapsed() < LET_GO_MAX {
                std::thread::sleep(LET_GO_LOOK);
            }
            drop(announcement);
            closed
        })
    }
}

/// Takes what is to be served, waiting for whoever has it open in passing.
fn take(config: &ServeConfig, signals: Option<&Signals>) -> Result<Taken, ServeError> {
    let start = Instant::now();
    let mut said = false;
    loop {
        let e = match Taken::take(&config.source) {
            Err(ServeError::InUse(e)) => e,
            other => return other,
        };
        if let Some(found) = config.source.image().and_then(|image| device_of(image).ok().flatten()) {
            return Err(ServeError::InUse(format!("{e}, which serves it at {}", found.socket.display())));
        }
        if start.elapsed() >= config.lock_wait {
            return Err(ServeError::InUse(e));
        }
        if !said && start.elapsed() >= LOCK_RETRY * 50 {
            tracing::warn!("{e}: waiting for it");
            said = true;
        }
        std::thread::sleep(LOCK_RETRY);
        if let Some(name) = signals.and_then(Signals::first) {
            return Err(ServeError::Interrupted(name));
        }
    }
}

/// A device that cannot be found by its image can still be reached by its socket.
fn announce(image: &Path, socket: &Path) -> Option<Announcement> {
    Announcement::start(image, socket)
        .map_err(|e| tracing::warn!("{}: its device cannot be found by it: {e}", image.display()))
        .ok()
}

impl Reception {
    /// No client is answered before `run`.
    pub fn new(
        listener: Listener,
        served: Served,
        stop_right: StopRight,
        signals: Option<Signals>,
    ) -> Result<Reception, ServeError> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| ServeError::system("eventfd")(e.into()))?;
        Ok(Reception { listener, served, stop: Arc::new(stop), stop_right, signals, log: LogRate::default() })
    }

    /// A way to end `run`.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.stop.clone())
    }

    /// Answers until a signal, a request or the stopper. Then `ending` is told why, every session ends, `end` ends what
    /// was served, and who asked for it gets an answer. Signals are caught until all that is done.
    pub fn run(
        mut self,
        ending: impl FnOnce(Cause),
        end: impl FnOnce() -> Result<(), ServeError>,
    ) -> Result<(), ServeError> {
        let signals = self.signals.take();
        let Ending { cause, asked } = self.answer(signals.as_ref(), ending)?;
        let ended = end();
        if let Some(socket) = asked {
            let stop = kind::STOP;
            let packet = if ended.is_ok() { Reply::Done.encode(stop) } else { Reply::encode_error(stop, Errno::IO) };
            // Whoever does not listen any more has had his wish.
            let _ = send(&socket, &Answer { packet, close: true, ..Answer::default() });
        }
        tracing::debug!("ended: {cause}");
        ended
    }

    /// Every session has ended on return, or is about to.
    fn answer(self, signals: Option<&Signals>, ending: impl FnOnce(Cause)) -> Result<Ending, ServeError> {
        let mut connections: HashMap<u64, Connection> = HashMap::new();
        let (mut next, mut last) = (0, 0);
        let room = Room::of_this_process();
        let closer = Closer::new(room.unclosed);
        // It makes what is small itself, in pieces between which those that serve get a processor.
        let _short = weldfs_waiting::ShortSleeps::begin();
        let (makers, made) = (Lanes::new("weldfs-maker", Job::run), Arc::new(Made::new()?));
        // Beside those: a kernel that hangs keeps none of its user's from a queue pair.
        let loaders = Lanes::new("weldfs-loader", Job::run);
        let (cause, asked) = 'serving: loop {
            let patience = self.patience(&mut connections);
            let (ready, accept) = match self.wait(signals, &connections, &made, patience)? {
                News::End(cause) => break (cause, None),
                News::Turn { ready, accept } => (ready, accept),
            };
            for (id, answer) in made.collect() {
                deliver(&mut connections, id, &answer, &closer);
            }
            for id in self.done_waiting(&mut connections) {
                welcome(&mut connections, id, &closer);
            }
            let (mut turns, mut skipped) = (UserTurns::default(), false);
            for id in in_turn(ready, last) {
                let Some(c) = connections.get_mut(&id) else { continue };
                let uid = c.talk.uid();
                let Some(until) = turns.until(uid) else {
                    // What it has sent stays where it is, and is news again; it is among the first then.
                    skipped = true;
                    continue;
                };
                if !skipped {
                    last = id;
                }
                match c.turn(&closer, until) {
                    Turn::Stays => {}
                    Turn::Attaches => self.arrive(&mut connections, id, &closer),
                    Turn::Makes(making) => {
                        c.busy = true;
                        let beside = if matches!(making, Making::Kernels(..)) { &loaders } else { &makers };
                        let job = Job { connection: id, making, made: made.clone() };
                        beside.take(c.talk.uid(), [job]);
                    }
                    Turn::Over => {
                        if let Some(c) = connections.remove(&id) {
                            c.part(&closer);
                        }
                    }
                    Turn::Stop => {
                        let asked = connections.remove(&id);
                        let uid = asked.as_ref().map_or(0, |c| c.talk.uid());
                        break 'serving (Cause::Request(uid), asked.map(|c| c.socket));
                    }
                }
                turns.is_over(uid);
            }
            if accept {
                (0..NEWCOMERS_PER_TURN).all(|_| self.accept(&mut connections, &mut next, &closer, room));
            }
        };
        ending(cause);
        // No newcomer finds a socket without an answer.
        closer.retire(self.listener);
        for c in connections.into_values() {
            c.part(&closer);
        }
        Ok(Ending { cause, asked })
    }

    /// Blocks until something happens, or for so long.
    fn wait(
        &self,
        signals: Option<&Signals>,
        connections: &HashMap<u64, Connection>,
        made: &Made,
        patience: Option<Timespec>,
    ) -> Result<News, ServeError> {
        let ids: Vec<u64> = connections.iter().filter(|(_, c)| !c.busy).map(|(id, _)| *id).collect();
        let mut fds = vec![PollFd::new(&*self.stop, PollFlags::IN)];
        fds.push(PollFd::from_borrowed_fd(self.served.failure(), PollFlags::IN));
        if let Some(s) = signals {
            fds.push(PollFd::new(s.bell(), PollFlags::IN));
        }
        let ends = fds.len();
        fds.push(PollFd::new(self.listener.fd(), PollFlags::IN));
        fds.push(PollFd::new(&made.bell, PollFlags::IN));
        fds.push(PollFd::from_borrowed_fd(self.served.departures().bell(), PollFlags::IN));
        fds.extend(ids.iter().map(|id| PollFd::new(&connections[id].socket, PollFlags::IN | PollFlags::RDHUP)));
        match poll(&mut fds, patience.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(ServeError::system("poll")(e.into())),
        }
        let news = |f: &PollFd<'_>| !f.revents().is_empty();
        if let Some(which) = fds[..ends].iter().position(news) {
            return Ok(News::End(match which {
                0 => Cause::Stopper,
                1 => Cause::Failure,
                _ => Cause::Signal(signals.and_then(Signals::first).unwrap_or("a signal")),
            }));
        }
        if news(&fds[ends + 2]) {
            self.served.departures().heard();
        }
        let accept = news(&fds[ends]);
        let ready = ids.into_iter().zip(&fds[ends + 3..]).filter(|(_, f)| news(f)).map(|(id, _)| id);
        Ok(News::Turn { ready: ready.collect(), accept })
    }

    /// One asks for a session: it has one now, or when those sessions of its user are gone that are ending. Those are
    /// among them whose process has ended, though this was not looked at yet.
    fn arrive(&self, connections: &mut HashMap<u64, Connection>, id: u64, closer: &Closer) {
        let Some(uid) = connections.get(&id).map(|c| c.talk.uid()) else { return };
        let same = connections.iter().filter(|(_, c)| c.talk.attached() && c.talk.uid() == uid);
        let (ids, mut fds): (Vec<u64>, Vec<_>) =
            same.map(|(id, c)| (*id, PollFd::new(&c.socket, PollFlags::RDHUP))).unzip();
        let over: Vec<u64> = match poll(&mut fds, Some(&Timespec::default())) {
            Ok(n) if n > 0 => {
                ids.into_iter().zip(&fds).filter(|(_, f)| !f.revents().is_empty()).map(|(id, _)| id).collect()
            }
            _ => Vec::new(),
        };
        for c in over.iter().filter_map(|id| connections.remove(id)) {
            c.part(closer);
        }
        let departing = self.served.departing(uid);
        if departing.is_empty() {
            return welcome(connections, id, closer);
        }
        if let Some(c) = connections.get_mut(&id) {
            c.busy = true;
            c.waits = Some(Waits { sessions: departing, until: Instant::now() + DEPARTURE_MAX });
        }
    }

    /// How long to poll for: as long as those that wait for others' ends may have to.
    fn patience(&self, connections: &mut HashMap<u64, Connection>) -> Option<Timespec> {
        let until = connections.values().filter_map(|c| c.waits.as_ref()).map(|w| w.until).min()?;
        // Told of what goes from here on; what has gone before is looked at.
        self.served.departures().await_next();
        let over = connections.values_mut().filter_map(|c| c.waits.as_mut()).any(|w| w.is_over(&self.served));
        let left = if over { Duration::ZERO } else { until.saturating_duration_since(Instant::now()) };
        Some(Timespec::try_from(left).unwrap_or_default())
    }

    /// Those that have waited for others' ends, and need to no more.
    fn done_waiting(&self, connections: &mut HashMap<u64, Connection>) -> Vec<u64> {
        let now = Instant::now();
        let mut done = Vec::new();
        for (id, c) in connections {
            let Some(waits) = &mut c.waits else { continue };
            let over = waits.is_over(&self.served);
            if !over && waits.until > now {
                continue;
            }
            if !over && self.log.permits() {
                let uid = c.talk.uid();
                tracing::warn!("user {uid} attaches though commands of a process that ended are still being executed");
            }
            (c.busy, c.waits) = (false, None);
            done.push(*id);
        }
        done
    }

    /// Lets one newcomer in; false when there is none.
    fn accept(&self, connections: &mut HashMap<u64, Connection>, next: &mut u64, closer: &Closer, room: Room) -> bool {
        match self.listener.accept() {
            Ok(None) => return false,
            Ok(Some(socket)) => match creds::of_peer(&socket) {
                Ok(who) if closer.is_full(who.cred.uid) => closer.part(who.cred.uid, socket),
                Ok(who) => {
                    *next += 1;
                    make_way(connections, who.cred.uid, closer, room);
                    let talk = Conversation::new(self.served.clone(), who, self.stop_right);
                    connections.insert(*next, Connection::new(socket, talk));
                }
                Err(e) if self.log.permits() => tracing::warn!("a connection without credentials was refused: {e}"),
                Err(_) => {}
            },
            Err(e) => {
                // Out of descriptors, most likely: the client waits in the backlog; do not spin meanwhile.
                if self.log.permits() {
                    tracing::warn!("accept: {e}");
                }
                std::thread::sleep(std::time::Duration::from_millis(20));
                return false;
            }
        }
        true
    }
}

/// Sends a connection, if it is still there, what was made for it.
fn deliver(connections: &mut HashMap<u64, Connection>, id: u64, answer: &Answer, closer: &Closer) {
    let Some(c) = connections.get_mut(&id) else { return };
    c.busy = false;
    if send(&c.socket, answer).is_err()
        && let Some(c) = connections.remove(&id)
    {
        c.part(closer);
    }
}

/// Gives one that has asked for it its session.
fn welcome(connections: &mut HashMap<u64, Connection>, id: u64, closer: &Closer) {
    if let Some(c) = connections.get_mut(&id) {
        let answer = c.talk.enter();
        deliver(connections, id, &answer, closer);
    }
}

/// Closes the oldest connections that have not attached, where their user has too many of them, or all have: whoever
/// connects to attach does so at once, and no other is kept out by those who do not.
fn make_way(connections: &mut HashMap<u64, Connection>, uid: u32, closer: &Closer, room: Room) {
    let idle = |of: Option<u32>| {
        let all = connections.iter().filter(move |(_, c)| !c.talk.attached() && of.is_none_or(|u| u == c.talk.uid()));
        all.map(|(id, _)| *id)
    };
    let crowded = idle(Some(uid)).count() >= room.per_user;
    let full = idle(None).count() >= room.unattached;
    let oldest = if crowded { idle(Some(uid)).min() } else { idle(None).min().filter(|_| full) };
    if let Some(c) = oldest.and_then(|id| connections.remove(&id)) {
        c.part(closer);
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closer::{RIGHTS_MAX, unclosed_of_all};

    #[test]
    fn a_user_whose_requests_have_taken_long_waits_for_the_next_turn_and_others_do_not() {
        let mut turns = UserTurns::default();
        let before = Instant::now();
        let until = turns.until(1).unwrap();
        assert!(until >= before + USER_TURN && until <= Instant::now() + USER_TURN);
        turns.is_over(1);
        assert!(turns.until(1).is_some(), "it has had little of it");
        std::thread::sleep(USER_TURN);
        turns.is_over(1);
        assert!(turns.until(1).is_none());
        assert!(turns.until(2).is_some());
        assert!(UserTurns::default().until(1).is_some());
        // Of its connections those come first next time that did not get to it.
        assert_eq!(in_turn(vec![9, 1, 4, 7], 4), [7, 9, 1, 4]);
        assert_eq!(in_turn(vec![9, 1], 9), [1, 9]);
    }

    #[test]
    fn those_without_a_session_have_a_part_of_the_descriptors_and_no_more() {
        let usual = Room { unattached: UNATTACHED_MAX, per_user: UNATTACHED_PER_USER_MAX, unclosed: UNCLOSED_MAX };
        assert_eq!(Room::of(1 << 20), usual);
        // What sessions and placeholders leave of them (a third, or two thousand), for a user that sends as many along
        // as one message holds, and others.
        for descriptors in [1024, 4096, 8192, 65_536, 1 << 20] {
            let room = Room::of(descriptors);
            let taken = room.unattached + unclosed_of_all(room.unclosed) + RIGHTS_MAX;
            assert!(taken + 8 <= (descriptors / 3).min(2000), "{room:?} of {descriptors}");
        }
    }
}
