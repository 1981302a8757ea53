//! The other tenant: it works on files of its own, checks every byte, and writes down how long everything took. And the
//! honest neighbour, which keeps as many commands in flight as an attack does.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weldfs::{At, Client, Command, Durability, File, LockKind, LockSpace, Op, OpenOptions};
use weldfs_waiting::Slice;

use super::families::SAY;

/// Where the victim works, and what of it all may read.
pub const HOME: &str = "/victim";
pub const SECRET: &str = "/victim/secret";
pub const SHARED: &str = "/victim/shared";
/// Bytes of the file that it reads and writes, in blocks.
const BLOCKS: u64 = 16;
const BLOCK: usize = 4096;
/// Bytes of each read and write of the honest neighbour: some tens of microseconds of a core.
const PIECE: usize = 256 << 10;
const PIECES: u64 = 16;
/// Entries of a queue pair.
const QUEUE_MAX: u32 = 1024;
/// From the beginning of one command to that of the next, unless that takes longer: in every round as many begin in a
/// second. One that began as soon as the last was over would begin fewer beside whoever makes them longer, and of fewer
/// what befalls the whole machine so many times a second is a larger share.
const PACE: Duration = Duration::from_micros(250);
/// Between two attachments.
const ATTACH_PAUSE: Duration = Duration::from_millis(20);

/// What it suffered.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Suffered {
    pub commands: u64,
    /// Bytes, sizes or names that were not what it had written.
    pub wrong: u64,
    /// Commands refused that are its right, and the first of them.
    pub denied: u64,
    pub first: String,
    /// ENOSPC: no right of its own on a device that others may fill.
    pub no_room: u64,
    pub p50_us: u64,
    pub p99_us: u64,
    pub max_us: u64,
    pub attaches: u64,
    pub attach_p99_us: u64,
    pub attach_max_us: u64,
    /// Of the processors' time in the round, what the host of this virtual machine gave to others, in thousandths.
    #[serde(default)]
    pub stolen: u64,
}

impl Suffered {
    /// Of several rounds: times are medians of `timed`, which are some of them, the longest ones the longest of all,
    /// and what was counted is summed.
    pub fn of_rounds(rounds: &[&Suffered], timed: &[&Suffered]) -> Suffered {
        let sum = |of: fn(&Suffered) -> u64| rounds.iter().map(|s| of(s)).sum();
        let most = |of: fn(&Suffered) -> u64| rounds.iter().map(|s| of(s)).max().unwrap_or(0);
        let median = |of: fn(&Suffered) -> u64| {
            let mut all: Vec<u64> = timed.iter().map(|s| of(s)).collect();
            all.sort_unstable();
            quantile(&all, 0.5)
        };
        Suffered {
            commands: sum(|s| s.commands),
            wrong: sum(|s| s.wrong),
            denied: sum(|s| s.denied),
            first: rounds.iter().find(|s| !s.first.is_empty()).map_or(String::new(), |s| s.first.clone()),
            no_room: sum(|s| s.no_room),
            p50_us: median(|s| s.p50_us),
            p99_us: median(|s| s.p99_us),
            max_us: most(|s| s.max_us),
            attaches: sum(|s| s.attaches),
            attach_p99_us: median(|s| s.attach_p99_us),
            attach_max_us: most(|s| s.attach_max_us),
            stolen: median(|s| s.stolen),
        }
    }
}

/// The value at a share of an ascending list.
fn quantile(sorted: &[u64], share: f64) -> u64 {
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0)
}

struct Victim {
    client: Client,
    file: File,
    /// What each block holds.
    known: Vec<u8>,
    took: Vec<(&'static str, u64)>,
    all: Suffered,
    rng: SmallRng,
    /// When the next command begins.
    next: Instant,
}

impl Victim {
    fn new(socket: &Path) -> io::Result<Victim> {
        let client = Client::connect(socket)?.durability(Durability::Volatile);
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = client.open(SECRET, &options)?;
        client.set_permissions(SECRET, 0o600)?;
        for block in 0..BLOCKS {
            file.write_all_at(&[block as u8; BLOCK], block * BLOCK as u64)?;
        }
        client.open(SHARED, &options)?.write_all_at(&[7; 4096], 0)?;
        client.set_permissions(SHARED, 0o644)?;
        let known = (0..BLOCKS as u8).collect();
        let (took, all) = Default::default();
        let next = Instant::now();
        Ok(Victim { client, file, known, took, all, rng: SmallRng::seed_from_u64(1), next })
    }

    /// Times one command, when its time has come; counts a refusal.
    fn time<T>(&mut self, what: &'static str, run: impl FnOnce(&mut Victim) -> io::Result<T>) -> Option<T> {
        std::thread::sleep(self.next.saturating_duration_since(Instant::now()));
        let start = Instant::now();
        self.next = start + PACE;
        let done = run(self);
        self.took.push((what, start.elapsed().as_micros() as u64));
        self.all.commands += 1;
        match done {
            Ok(value) => Some(value),
            Err(e) if e.raw_os_error() == Some(libc::ENOSPC) => {
                self.all.no_room += 1;
                None
            }
            Err(e) => {
                self.denied(&format!("{what}: {e}"));
                None
            }
        }
    }

    fn denied(&mut self, what: &str) {
        self.all.denied += 1;
        if self.all.first.is_empty() {
            self.all.first = what.to_owned();
        }
    }

    fn round(&mut self, round: u64) {
        let (to, from) = (self.rng.random_range(0..BLOCKS), self.rng.random_range(0..BLOCKS));
        let fresh = round as u8 ^ 0x55;
        let wrote = self.time("write", |v| v.file.write_all_at(&[fresh; BLOCK], to * BLOCK as u64));
        if wrote.is_some() {
            self.known[to as usize] = fresh;
        }
        let mut back = [0; BLOCK];
        let read = self.time("read", |v| v.file.read_exact_at(&mut back, from * BLOCK as u64));
        let right = back == [self.known[from as usize]; BLOCK];
        self.all.wrong += u64::from(read.is_some() && !right);
        let size = self.time("stat", |v| v.client.metadata(SECRET)).map(|m| (m.len(), m.uid()));
        let own = (BLOCKS * BLOCK as u64, rustix::process::geteuid().as_raw());
        self.all.wrong += u64::from(size.is_some_and(|s| s != own));
        let name = format!("{HOME}/n{}", round % 8);
        if self.time("create", |v| v.client.create(&name)).is_some() {
            self.time("unlink", |v| v.client.remove_file(&name));
        }
        if self.time("lock", |v| v.file.try_lock(LockKind::Write)).is_some() {
            self.time("unlock", |v| v.file.try_lock(LockKind::Unlock));
        }
        self.lock_shared();
    }

    /// A lock on a byte of the file that all may read, which no other process locks.
    fn lock_shared(&mut self) {
        let opened = self.time("open", |v| v.client.open(SHARED, &OpenOptions::new().read(true).write(true)));
        let Some(file) = opened else { return };
        let (space, at) = (LockSpace::Process, 1 << 40);
        self.time("lock of the shared file", |v| {
            Ok(v.client.raw().lock_set(file.handle(), space, LockKind::Write, at, 1, 1)?)
        });
    }
}

fn attaches(socket: &Path, stop: &AtomicBool) -> (Vec<u64>, Vec<String>) {
    let (mut took, mut failed) = (Vec::new(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        if let Err(e) = Client::connect(socket).and_then(|c| c.metadata("/")) {
            failed.push(format!("attach: {e}"));
        }
        took.push(start.elapsed().as_micros() as u64);
        std::thread::sleep(ATTACH_PAUSE);
    }
    (took, failed)
}

/// The victim's process: says `ready`, works until its standard input ends, then says what it suffered.
pub fn victim(socket: &Path) -> io::Result<()> {
    let mut victim = Victim::new(socket)?;
    let stop = Arc::new(AtomicBool::new(false));
    until_input_ends(&stop);
    let (socket, over) = (socket.to_owned(), stop.clone());
    // Before this thread comes before others: an attachment takes a processor for a millisecond, and would do so on the
    // one that the device's core has.
    let attaching = std::thread::spawn(move || attaches(&socket, &over));
    // With it the host's scheduler lets this thread run when it is woken; how often, its nice value says.
    let _short = Slice::short();
    println!("ready");
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        victim.round(round);
        round += 1;
    }
    let (mut took, failed) = attaching.join().unwrap_or_default();
    failed.iter().for_each(|what| victim.denied(what));
    took.sort_unstable();
    let mut times = BTreeMap::<_, Vec<u64>>::new();
    victim.took.iter().for_each(|(what, us)| times.entry(*what).or_default().push(*us));
    let mut every: Vec<u64> = victim.took.iter().map(|(_, us)| *us).collect();
    every.sort_unstable();
    let mut all = victim.all;
    (all.p50_us, all.p99_us) = (quantile(&every, 0.5), quantile(&every, 0.99));
    all.max_us = every.last().copied().unwrap_or(0);
    if std::env::var_os(SAY).is_some() {
        for (what, times) in &mut times {
            times.sort_unstable();
            eprintln!(
                "{what:24} {:6} times, p50 {:6} us, p99 {:6} us",
                times.len(),
                quantile(times, 0.5),
                quantile(times, 0.99)
            );
        }
    }
    (all.attaches, all.attach_p99_us) = (took.len() as u64, quantile(&took, 0.99));
    all.attach_max_us = took.last().copied().unwrap_or(0);
    println!("{}", serde_json::to_string(&all)?);
    Ok(())
}

fn until_input_ends(stop: &Arc<AtomicBool>) {
    let stop = stop.clone();
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        stop.store(true, Ordering::Relaxed);
    });
}

/// An honest neighbour's process: keeps `depth` reads and writes in flight until it is killed.
pub fn honest(socket: &Path, depth: u32) -> io::Result<()> {
    let client = Client::connect(socket)?;
    let options = OpenOptions::new().read(true).write(true).create(true);
    let file = client.open(format!("{}/honest", super::families::HOME), &options)?;
    for piece in 0..PIECES {
        file.write_all_at(&vec![1; PIECE], piece * PIECE as u64)?;
    }
    // No queue pair is full, so that each goes on while another is taken from.
    let each = depth.min(QUEUE_MAX / 2);
    let mut queues = Vec::new();
    for _ in 0..depth.div_ceil(each) {
        let mut queue = client.queue((each * 2).next_power_of_two(), 1 << 20)?;
        let room = queue.stage(&vec![9; PIECE])?;
        queues.push((queue, room, 0));
    }
    println!("ready");
    let mut n = 0u64;
    loop {
        for (queue, room, flying) in &mut queues {
            while *flying < each {
                let (h, at) = (file.handle(), At::Offset(n * 7 % PIECES * PIECE as u64));
                let op =
                    if n & 1 == 0 { Op::Read { h, at, out: *room, watch: 0 } } else { Op::Write { h, at, src: *room } };
                queue.submit(&Command::new(0, op).with_durability(Durability::Volatile))?;
                (*flying, n) = (*flying + 1, n + 1);
            }
            queue.flush();
            queue.await_any()?;
            while queue.reap()?.is_some() {
                *flying -= 1;
            }
        }
    }
}
