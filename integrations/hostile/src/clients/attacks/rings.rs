//! What goes for the shared memory of a queue pair: rings, cursors and buffers.

use crate::clients::families::{Ground, forever, seed};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weldfs::{AttachOptions, Connector, QueueParts, SocketConnector, Transport};
use weldfs_ciscops::ring::{CqConsumer, QueueMemory, SqProducer, word};
use weldfs_ciscops::{OPS, SharedRegion, Sqe};

const DEPTH: u32 = 256;
const POOL: u32 = 1 << 20;
/// How long one session is flipped in.
const LIFE: Duration = Duration::from_millis(150);

/// The client's ends of a queue pair, without the client library's care.
struct Raw {
    sq: SqProducer,
    cq: CqConsumer,
    memory: QueueMemory,
    pool: SharedRegion,
    doorbell: Arc<OwnedFd>,
}

impl Raw {
    fn new(parts: QueueParts) -> io::Result<Raw> {
        let memory = QueueMemory::new(parts.region, &parts.layout).map_err(|_| io::Error::other("no such layout"))?;
        let pool = memory.pool(&parts.layout).map_err(|_| io::Error::other("no such pool"))?;
        let (sq, cq) = (SqProducer::new(memory.clone()), CqConsumer::new(memory.clone()));
        Ok(Raw { sq, cq, memory, pool, doorbell: parts.doorbell })
    }

    fn ring(&self) {
        let _ = rustix::io::write(&*self.doorbell, &1u64.to_ne_bytes());
    }

    /// Publishes what fits of an entry, takes completions, at most a ring's length: what flips bytes hits this side,
    /// too.
    fn turn(&mut self, mut next: impl FnMut() -> Sqe) {
        for _ in 0..DEPTH / 2 {
            if self.sq.push(&next()).is_err() {
                break;
            }
        }
        self.sq.publish();
        if self.sq.needs_doorbell() {
            self.ring();
        }
        for _ in 0..DEPTH {
            if self.cq.pop().is_none() {
                break;
            }
        }
        self.cq.release();
    }

    fn word(&self, at: usize, value: u32) {
        if let Ok(bytes) = self.memory.region().bytes(at, 4) {
            bytes.copy_from(&value.to_le_bytes());
        }
    }
}

fn attach(g: &Ground) -> io::Result<(Arc<dyn Transport>, Raw)> {
    let transport: Arc<dyn Transport> = Arc::from(SocketConnector::new(&g.socket).attach(&AttachOptions::default())?);
    let raw = Raw::new(transport.new_queue(DEPTH, POOL)?)?;
    Ok((transport, raw))
}

/// Names that exist, names that do not, and rubbish.
fn fill(pool: &SharedRegion, rng: &mut SmallRng) {
    let mut bytes = vec![0u8; POOL as usize];
    for chunk in bytes.chunks_mut(64) {
        match rng.random_range(0..4) {
            0 => rng.fill_bytes(chunk),
            1 => chunk[..14].copy_from_slice(b"/victim/secret"),
            2 => chunk.iter_mut().for_each(|b| *b = b'a' + rng.random_range(0..3u8)),
            _ => chunk.iter_mut().enumerate().for_each(|(i, b)| *b = if i % 3 == 0 { b'/' } else { b'b' }),
        }
    }
    if let Ok(all) = pool.bytes(0, bytes.len()) {
        all.copy_from(&bytes);
    }
}

/// An entry of a real operation with every other field anything, or near what it may be.
fn entry(rng: &mut SmallRng) -> Sqe {
    let mut words = [0u64; 8];
    words.iter_mut().for_each(|w| *w = rng.random());
    let mut sqe = Sqe::from_words(words);
    sqe.opcode = OPS[rng.random_range(0..OPS.len())].opcode as u16;
    if rng.random() {
        sqe.flags &= 3;
        sqe.handle = 0;
        sqe.length = rng.random_range(0..512);
        sqe.pool_off = rng.random_range(0..POOL / 64) * 64;
        sqe.pool_off2 = if rng.random() { rng.random() } else { rng.random_range(0..POOL / 64) * 64 };
    }
    sqe
}

pub fn entries(g: &Ground) -> io::Result<()> {
    forever(2, |i| {
        let mut rng = SmallRng::seed_from_u64(u64::from(i) ^ seed());
        let (transport, mut raw) = attach(g)?;
        fill(&raw.pool, &mut rng);
        while raw.cq.closed().is_none() && !transport.hung_up() {
            raw.turn(|| entry(&mut rng));
        }
        Ok(())
    })
}

pub fn flips(g: &Ground) -> io::Result<()> {
    forever(2, |_| {
        let mut rng = SmallRng::seed_from_u64(seed());
        let (transport, mut raw) = attach(g)?;
        fill(&raw.pool, &mut rng);
        let (stop, region) = (AtomicBool::new(false), raw.memory.region().clone());
        std::thread::scope(|scope| {
            let (stop, mut flip) = (&stop, SmallRng::seed_from_u64(seed()));
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let mut at = flip.random_range(0..region.len());
                    // Cursors now and then only, or no session would live long enough to race anything.
                    at += if at < 4096 && flip.random_range(0..64) != 0 { 4096 } else { 0 };
                    let Ok(byte) = region.bytes(at.min(region.len() - 1), 1) else { continue };
                    let mut b = [0];
                    byte.copy_to(&mut b);
                    byte.copy_from(&[b[0] ^ (1 << flip.random_range(0..8))]);
                }
            });
            let start = Instant::now();
            while start.elapsed() < LIFE && raw.cq.closed().is_none() {
                raw.turn(|| entry(&mut rng));
            }
            stop.store(true, Ordering::Relaxed);
        });
        transport.detach();
        Ok(())
    })
}

pub fn cursors(g: &Ground) -> io::Result<()> {
    forever(2, |_| {
        let mut rng = SmallRng::seed_from_u64(seed());
        let (transport, mut raw) = attach(g)?;
        raw.turn(Sqe::default);
        let at = if rng.random() { word::SQ_TAIL } else { word::CQ_HEAD };
        raw.word(at, rng.random_range(DEPTH * 2..u32::MAX - DEPTH * 2));
        raw.ring();
        let start = Instant::now();
        while raw.cq.closed().is_none() && start.elapsed() < Duration::from_millis(20) {
            std::thread::sleep(Duration::from_micros(200));
        }
        transport.detach();
        Ok(())
    })
}

/// Publishes entries and takes them back while the device reads them.
pub fn taken_back(g: &Ground) -> io::Result<()> {
    forever(2, |_| {
        let mut rng = SmallRng::seed_from_u64(seed());
        let (transport, mut raw) = attach(g)?;
        let mut tail = 0u32;
        while raw.cq.closed().is_none() && !transport.hung_up() {
            raw.turn(|| entry(&mut rng));
            tail = tail.wrapping_add(DEPTH / 2);
            raw.word(word::SQ_TAIL, tail.wrapping_sub(rng.random_range(0..DEPTH)));
            raw.ring();
        }
        Ok(())
    })
}
