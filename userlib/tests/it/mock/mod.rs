//! A device of a few lines: it takes commands off the rings and answers them without any file system. Enough to test
//! rings, waiting, fork and death from the client's side.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use weldfs::{
    AttachOptions, Claimed, Command, Connector, Cqe, Errno, Op, Placeholder, QueueParts, SessionInfo, Transport,
};
use weldfs_ciscops::attach::Welcome;
use weldfs_ciscops::flags::Whence;
use weldfs_ciscops::ring::{CqProducer, QueueLayout, QueueMemory, SqConsumer};
use weldfs_ciscops::{Handle, SessionLimits, SharedRegion, validate};

/// What the mock does with commands.
#[derive(Default)]
pub struct Behaviour {
    /// Commands are taken and never answered.
    pub mute: AtomicBool,
    /// Commands are left in the ring.
    pub paused: AtomicBool,
    /// The control connection looks broken.
    pub hung_up: AtomicBool,
    /// The next completion carries a sequence that was not asked for.
    pub lie: AtomicBool,
    /// Nanoseconds each command takes.
    pub delay_ns: AtomicU64,
    /// Commands answered.
    pub answered: AtomicU64,
    /// Doorbells heard.
    pub rings: AtomicU64,
    /// Looks at the rings.
    pub turns: AtomicU64,
    /// Queue pairs made.
    pub queues: AtomicU64,
    /// Reads of bytes from here on fail with EIO (0 = none).
    pub unreadable_from: AtomicU64,
    /// Queue pairs granted at most (0 = the usual number).
    pub queues_max: AtomicU64,
}

struct End {
    sq: SqConsumer,
    cq: CqProducer,
    pool: SharedRegion,
}

/// Connects to a mock device, a fresh one per attach.
pub struct Mock {
    pub behaviour: Arc<Behaviour>,
}

impl Mock {
    pub fn new() -> Arc<Mock> {
        Arc::new(Mock { behaviour: Arc::default() })
    }

    /// Returns when whatever was set in `behaviour` is in force.
    pub fn heard(&self) {
        let before = self.behaviour.turns.load(Ordering::Relaxed);
        while self.behaviour.turns.load(Ordering::Relaxed) < before + 2 {
            std::thread::yield_now();
        }
    }
}

impl Connector for Mock {
    fn attach(&self, _: &AttachOptions) -> io::Result<Box<dyn Transport>> {
        let ends: Arc<Mutex<Vec<End>>> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let doorbell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let device = Device {
            ends: ends.clone(),
            stop: stop.clone(),
            behaviour: self.behaviour.clone(),
            doorbell: doorbell.clone(),
            files: HashMap::new(),
            offsets: HashMap::new(),
        };
        let mut welcome = Welcome { session: 7, ..Welcome::default() };
        match self.behaviour.queues_max.load(Ordering::Relaxed) {
            0 => {}
            n => welcome.limits.queues_max = n as u32,
        }
        let thread = std::thread::spawn(move || device.run());
        let info = SessionInfo::from(&welcome);
        Ok(Box::new(MockTransport {
            info,
            ends,
            stop,
            doorbell,
            behaviour: self.behaviour.clone(),
            thread: Some(thread),
        }))
    }
}

struct MockTransport {
    info: SessionInfo,
    ends: Arc<Mutex<Vec<End>>>,
    stop: Arc<AtomicBool>,
    doorbell: Arc<OwnedFd>,
    behaviour: Arc<Behaviour>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for MockTransport {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Transport for MockTransport {
    fn info(&self) -> &SessionInfo {
        &self.info
    }

    fn new_queue(&self, depth: u32, pool_bytes: u32) -> io::Result<QueueParts> {
        let layout = QueueLayout::new(depth, pool_bytes)?;
        let (fd, memory) = QueueMemory::create(&layout)?;
        let pool = memory.pool(&layout)?;
        let end = End { sq: SqConsumer::new(memory.clone()), cq: CqProducer::new(memory), pool };
        self.ends.lock().expect("mock").push(end);
        let index = self.behaviour.queues.fetch_add(1, Ordering::Relaxed) as u32;
        let region = SharedRegion::map(&fd, layout.total_bytes as usize)?;
        rustix::io::write(&self.doorbell, &1u64.to_ne_bytes())?;
        Ok(QueueParts { index, layout, region, doorbell: self.doorbell.clone() })
    }

    fn placeholders(&self, _: u32) -> Result<Vec<Placeholder>, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    fn share(&self, _: &[Handle]) -> Result<Vec<Placeholder>, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    fn claim(&self, _: BorrowedFd<'_>, _: bool) -> Result<Claimed, Errno> {
        Err(Errno::BADF)
    }

    fn stats_json(&self, _: u32) -> Result<String, Errno> {
        Ok("{}".into())
    }

    fn hung_up(&self) -> bool {
        self.behaviour.hung_up.load(Ordering::Relaxed)
    }

    fn detach(&self) {
        self.stop.store(true, Ordering::Release);
    }
}

struct Device {
    ends: Arc<Mutex<Vec<End>>>,
    stop: Arc<AtomicBool>,
    behaviour: Arc<Behaviour>,
    doorbell: Arc<OwnedFd>,
    /// Content by handle, so that what is written can be read back.
    files: HashMap<u64, Vec<u8>>,
    /// Where reads without an offset go on, by handle.
    offsets: HashMap<u64, u64>,
}

impl Device {
    fn run(mut self) {
        let mut idle = 0;
        while !self.stop.load(Ordering::Acquire) {
            idle = if self.turn() { 0 } else { idle + 1 };
            if idle > 2_000 {
                self.sleep();
            }
        }
    }

    fn turn(&mut self) -> bool {
        let ends = self.ends.clone();
        let mut busy = false;
        self.behaviour.turns.fetch_add(1, Ordering::Relaxed);
        if self.behaviour.paused.load(Ordering::Relaxed) {
            return false;
        }
        for end in ends.lock().expect("mock").iter_mut() {
            while end.sq.poll().expect("sound client") > 0 && end.cq.reserve().expect("sound client") {
                busy = true;
                let raw = end.sq.take().expect("polled");
                end.sq.release();
                if self.behaviour.mute.load(Ordering::Relaxed) {
                    continue;
                }
                let limits = SessionLimits { pool_bytes: end.pool.len() as u32 };
                let mut cqe = match validate(&raw, &limits) {
                    Ok(command) => self.answer(&command, &end.pool),
                    Err(e) => Cqe { sequence: raw.0.sequence, status: e.0, ..Cqe::default() },
                };
                if self.behaviour.lie.swap(false, Ordering::Relaxed) {
                    cqe.sequence += 1_000;
                }
                self.behaviour.answered.fetch_add(1, Ordering::Relaxed);
                end.cq.post(&cqe);
                if end.cq.publish() {
                    end.cq.wake();
                }
            }
        }
        busy
    }

    fn sleep(&mut self) {
        {
            let mut ends = self.ends.lock().expect("mock");
            ends.iter_mut().for_each(|end| end.sq.prepare_sleep());
            if ends.iter_mut().any(|end| end.sq.recheck().expect("sound client")) {
                ends.iter_mut().for_each(|end| end.sq.awake());
                return;
            }
        }
        let mut fds = [PollFd::from_borrowed_fd(self.doorbell.as_fd(), PollFlags::IN)];
        let nap = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        let _ = poll(&mut fds, Some(&nap));
        let mut count = [0; 8];
        if rustix::io::read(&self.doorbell, &mut count).is_ok() {
            self.behaviour.rings.fetch_add(1, Ordering::Relaxed);
        }
        self.ends.lock().expect("mock").iter_mut().for_each(|end| end.sq.awake());
    }

    fn answer(&mut self, command: &Command, pool: &SharedRegion) -> Cqe {
        let delay = self.behaviour.delay_ns.load(Ordering::Relaxed);
        if delay > 0 {
            std::thread::sleep(Duration::from_nanos(delay));
        }
        let done = |result, result2| Cqe { sequence: command.seq, result, result2, ..Cqe::default() };
        let fail = |e: Errno| Cqe { sequence: command.seq, status: e.0, ..Cqe::default() };
        match command.op {
            Op::Nop | Op::Close { .. } => done(0, 0),
            Op::Open { path, .. } => done(u64::from(path.len), 0o100644),
            Op::Write { h, at, src } => {
                let bytes = pool.slice(src).expect("validated").to_vec();
                let file = self.files.entry(h.to_wire()).or_default();
                let off = match at {
                    weldfs::At::Offset(off) => off as usize,
                    _ => file.len(),
                };
                file.resize(file.len().max(off + bytes.len()), 0);
                file[off..off + bytes.len()].copy_from_slice(&bytes);
                done(bytes.len() as u64, off as u64)
            }
            Op::Read { h, at, out, .. } => {
                let moving = self.offsets.entry(h.to_wire()).or_default();
                let off = if let weldfs::At::Offset(off) = at { off } else { *moving };
                let file = self.files.entry(h.to_wire()).or_default();
                let from = file.get(off as usize..).unwrap_or(&[]);
                let from = &from[..from.len().min(out.len as usize)];
                let bad = self.behaviour.unreadable_from.load(Ordering::Relaxed);
                if bad > 0 && off + from.len() as u64 > bad {
                    return fail(Errno::IO);
                }
                if at == weldfs::At::Current {
                    *moving += from.len() as u64;
                }
                pool.slice(out).expect("validated").copy_from(from);
                done(from.len() as u64, off)
            }
            Op::Seek { h, whence: Whence::Cur, off } => {
                let moving = self.offsets.entry(h.to_wire()).or_default();
                *moving = moving.checked_add_signed(off).expect("within a file");
                done(*moving, 0)
            }
            Op::Unlink { .. } => fail(Errno::NOENT),
            _ => fail(Errno::NOSYS),
        }
    }
}
