//! One tenant's process: keeps commands queued until its standard input ends.
//!
//! It sleeps between looks at its completions instead of waiting for each: the clients share the host's cores with the
//! device, and a client that spins, or is woken for every command, would be measured instead.

use super::load::{Kind, Load};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weldfs::{At, ChecksumKind, Client, Command, Durability, File, Op, OpenOptions, PoolRange, Queue};

/// Entries of the queue pair: far above every depth used, for a command that is overtaken by many keeps its entry.
const ENTRIES: u32 = 1024;
/// Pause between two looks at the completions.
const PAUSE: Duration = Duration::from_micros(250);
/// Bytes that all files of a random load hold together.
const SPAN: u64 = 16 << 20;
/// A file that is appended to begins anew at this length.
const APPENDED_MAX: u64 = 32 << 20;
/// Pieces in which files are filled.
const PIECE: usize = 256 << 10;

struct Tenant {
    load: Load,
    files: Vec<File>,
    /// Room for each command in flight.
    rooms: Vec<PoolRange>,
    appended: u64,
    random: u64,
}

impl Tenant {
    fn new(client: &Client, load: Load, prefix: &str, queue: &mut Queue) -> io::Result<Tenant> {
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(true);
        let open = |i| client.open(format!("/{prefix}-{i}"), &options);
        let files = (0..load.files).map(open).collect::<io::Result<Vec<_>>>()?;
        let rooms = if load.kind == Kind::Sum { 0 } else { u64::from(load.depth) };
        let rooms = (0..rooms).map(|i| queue.stage(&vec![i as u8; load.bytes as usize]));
        let rooms = rooms.collect::<Result<_, _>>()?;
        let tenant = Tenant { load, files, rooms, appended: 0, random: 0x9e37_79b9_7f4a_7c15 };
        tenant.files.iter().try_for_each(|f| tenant.fill(f))?;
        Ok(tenant)
    }

    /// Bytes of each file before the start.
    fn span(&self) -> u64 {
        match self.load.kind {
            Kind::Append => 0,
            Kind::Sum => u64::from(self.load.bytes),
            Kind::Random | Kind::Read => (SPAN / u64::from(self.load.files)).max(u64::from(self.load.bytes)),
        }
    }

    fn fill(&self, file: &File) -> io::Result<()> {
        let (piece, mut at) = (vec![0x5a; PIECE], 0);
        while at < self.span() {
            let n = (self.span() - at).min(PIECE as u64) as usize;
            file.write_all_at(&piece[..n], at)?;
            at += n as u64;
        }
        Ok(())
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// The next command, with the room of a position in flight.
    fn next(&mut self, place: usize) -> Command {
        let (bytes, kind) = (u64::from(self.load.bytes), ChecksumKind::Crc32c);
        let file = self.random() as usize % self.files.len();
        let h = self.files[file].handle();
        let op = match self.load.kind {
            Kind::Sum => Op::ChecksumRange { h, kind, offset: 0, len: bytes },
            Kind::Append if self.appended >= APPENDED_MAX => {
                self.appended = 0;
                Op::Truncate { h, size: 0 }
            }
            Kind::Append => {
                self.appended += bytes;
                Op::AppendChecksumWrite { h, kind, src: self.rooms[place] }
            }
            Kind::Random | Kind::Read => {
                let at = At::Offset(self.random() % (self.span() / bytes) * bytes);
                let writes = self.load.kind == Kind::Random && self.random() & 1 == 1;
                let room = self.rooms[place];
                if writes { Op::Write { h, at, src: room } } else { Op::Read { h, at, out: room, watch: 0 } }
            }
        };
        Command::new(0, op).with_durability(Durability::Volatile)
    }
}

/// The hidden role: says `ready`, begins at the first line it reads, ends with its input, and then says the median
/// and the
/// 99th percentile of the time from submitting a command to seeing its completion, in nanoseconds.
pub fn run(socket: &Path, load: &str, prefix: &str) -> io::Result<()> {
    let load: Load = load.parse().map_err(io::Error::other)?;
    let client = Client::connect(socket)?;
    let pool = load.depth * load.bytes.next_power_of_two() * 2;
    let pool = if load.kind == Kind::Sum { 4096 } else { pool.max(1 << 20) };
    let mut queue = client.queue(ENTRIES, pool)?;
    let mut tenant = Tenant::new(&client, load, prefix, &mut queue)?;
    println!("ready");
    io::stdin().read_line(&mut String::new())?;
    let stop = Arc::new(AtomicBool::new(false));
    let seen = stop.clone();
    std::thread::spawn(move || {
        // Whatever ends the input ends the load.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        seen.store(true, Ordering::Relaxed);
    });
    let mut waits = pump(&mut queue, &mut tenant, &stop)?;
    waits.sort_unstable();
    let of = |q: f64| waits.get((waits.len() as f64 * q) as usize).copied().unwrap_or(0);
    println!("{} {}", of(0.5), of(0.99));
    Ok(())
}

/// Keeps `depth` commands in flight until told to stop; gives how long each took, as the client sees it.
fn pump(queue: &mut Queue, tenant: &mut Tenant, stop: &AtomicBool) -> io::Result<Vec<u64>> {
    let depth = tenant.load.depth as usize;
    let mut free: Vec<usize> = (0..depth).collect();
    let mut flying: Vec<Option<(u64, Instant)>> = vec![None; depth];
    let mut waits = Vec::new();
    loop {
        let stopping = stop.load(Ordering::Relaxed);
        while !stopping && let Some(place) = free.pop() {
            let command = tenant.next(place);
            let ticket = queue.submit(&command)?;
            flying[place] = Some((ticket.sequence(), Instant::now()));
        }
        queue.flush();
        if free.len() == depth {
            return Ok(waits);
        }
        if depth == 1 {
            queue.await_any()?;
        } else {
            std::thread::sleep(PAUSE);
        }
        while let Some(cqe) = queue.reap()? {
            if cqe.status != 0 {
                return Err(io::Error::from_raw_os_error(cqe.status));
            }
            let place = flying.iter().position(|f| f.is_some_and(|(sequence, _)| sequence == cqe.sequence));
            if let Some((place, (_, sent))) = place.and_then(|p| Some((p, flying[p].take()?))) {
                waits.push(sent.elapsed().as_nanos() as u64);
                free.push(place);
            }
        }
    }
}
