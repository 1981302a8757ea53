//! WeldFS as a system: fused commands, or the same steps as single commands, over polled rings with the payload in
//! pool buffers. One device may be measured both ways.

use super::System;
use super::catalogue;
use super::cell::{Cell, Class, MicroOp};
use super::files::Place;
use super::lane::Lane;
use super::sample::{Counts, Sample, Seen};
use crate::apart;
use crate::settle::settle;
use std::any::Any;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use weldfs::{Client, Handle, OpenOptions};

/// A device and the queue pairs to it.
pub(super) struct Device {
    // Before the host, so that sessions end before their device.
    lanes: Vec<Lane>,
    client: Client,
    /// What runs it: a process, or threads of this one with their image.
    _host: Box<dyn Any>,
    medium: String,
    power_safe: bool,
    /// Bytes of its log; 0 where it has none.
    log: u64,
    /// How long to wait for rest before a clock starts.
    calm: Duration,
}

impl Device {
    pub(super) fn new(host: Box<dyn Any>, client: Client, medium: String, log: u64) -> io::Result<Device> {
        let power_safe = client.info()?.power_safe;
        Ok(Device { lanes: Vec::new(), client, _host: host, medium, power_safe, log, calm: Duration::ZERO })
    }

    /// The same; its clocks wait so long for rest.
    pub(super) fn calmly(self, calm: Duration) -> Device {
        Device { calm, ..self }
    }

    pub(super) fn log(&self) -> u64 {
        self.log
    }

    /// Queue pairs for so many threads.
    fn lanes(&mut self, threads: u32) -> io::Result<&mut [Lane]> {
        while self.lanes.len() < threads as usize {
            self.lanes.push(Lane::new(&self.client)?);
        }
        Ok(&mut self.lanes[..threads as usize])
    }

    fn run(&mut self, cell: &Cell, fused: bool, run: u64, count: u64) -> io::Result<Sample> {
        let client = self.client.clone();
        let each = (count / u64::from(cell.threads)).max(1).next_multiple_of(cell.op.group());
        let places = (0..cell.threads).map(|t| Place::prepare(&client, cell, t, run, each));
        let places = places.collect::<io::Result<Vec<_>>>()?;
        if cell.class == Class::Durable {
            // What earlier runs left in the log is not this one's to persist.
            client.sync()?;
        }
        let restless = u64::from(!settle(self.calm));
        // Commands of a run that failed may still be under way: their queue pairs are not used again.
        let mut sample = self.timed(&client, cell, fused, &places).inspect_err(|_| self.lanes.clear())?;
        (sample.ops, sample.restless) = (each * u64::from(cell.threads), restless);
        for place in &places {
            place.verify(&client, "WeldFS", cell)?;
            place.clear(&client)?;
        }
        Ok(sample)
    }

    fn timed(&mut self, client: &Client, cell: &Cell, fused: bool, places: &[Place]) -> io::Result<Sample> {
        let targets = places.iter().map(|p| Target::open(client, cell, p)).collect::<io::Result<Vec<_>>>()?;
        // A run without waits for rest measures nothing.
        let measures = !self.calm.is_zero();
        let lanes = self.lanes(cell.threads)?;
        let before = Seen::now(client)?;
        let barrier = Barrier::new(lanes.len());
        let results: Vec<io::Result<Run>> = std::thread::scope(|s| {
            let started = lanes.iter_mut().zip(places).zip(&targets).map(|((lane, place), target)| {
                let barrier = &barrier;
                s.spawn(move || {
                    if measures {
                        apart::client(cell.threads);
                    }
                    one(lane, cell, fused, place, target, barrier)
                })
            });
            let started: Vec<_> = started.collect();
            let panicked = || Err(io::Error::other("a client thread panicked"));
            started.into_iter().map(|t| t.join().unwrap_or_else(|_| panicked())).collect()
        });
        let counts = before.until(&Seen::now(client)?);
        let runs = results.into_iter().collect::<io::Result<Vec<_>>>()?;
        Ok(merge(runs, counts))
    }
}

/// What one thread did.
pub(super) struct Run {
    pub start: Instant,
    pub end: Instant,
    pub latencies: Vec<u32>,
    pub counts: Counts,
}

/// All threads' runs as one sample; `ops` is left to the caller.
pub(super) fn merge(runs: Vec<Run>, mut counts: Counts) -> Sample {
    let (start, end) = (runs.iter().map(|r| r.start).min(), runs.iter().map(|r| r.end).max());
    let wall_ns = match (start, end) {
        (Some(start), Some(end)) => end.duration_since(start).as_nanos() as u64,
        _ => 0,
    };
    let mut latencies = Vec::new();
    for run in runs {
        latencies.extend(run.latencies);
        counts += run.counts;
    }
    Sample { ops: 0, wall_ns, latencies, counts, restless: 0 }
}

/// What the commands of one thread name: the folder and the file in it.
pub(super) struct Target {
    pub folder: Handle,
    pub file: Handle,
    /// The files that stay open, where there are several or other ones.
    pub open: Vec<Handle>,
    /// What encrypts, and what the device calls it.
    pub key: Option<weldfs::catalogue::Key>,
    _keep: (weldfs::Dir, Option<weldfs::File>, Vec<weldfs::File>),
}

impl Target {
    fn open(client: &Client, cell: &Cell, place: &Place) -> io::Result<Target> {
        let folder = client.open_dir(&place.folder)?;
        let options = OpenOptions::new().read(true).write(cell.op.writes());
        let file = place.file.map(|name| client.open(place.path(name), &options)).transpose()?;
        let handle = file.as_ref().map_or(Handle::ROOT, weldfs::File::handle);
        let more =
            place.open.iter().map(|name| client.open(place.path(name), &options)).collect::<io::Result<Vec<_>>>()?;
        let key = (cell.op == MicroOp::EncryptWrite).then(|| client.key(catalogue::KEY, &catalogue::key_bytes()));
        Ok(Target {
            folder: folder.as_file().handle(),
            file: handle,
            open: more.iter().map(weldfs::File::handle).collect(),
            key: key.transpose()?,
            _keep: (folder, file, more),
        })
    }
}

/// NOPs that wake the device before the clock starts.
const WAKE: u64 = 256;

fn one(
    lane: &mut Lane,
    cell: &Cell,
    fused: bool,
    place: &Place,
    target: &Target,
    barrier: &Barrier,
) -> io::Result<Run> {
    let fresh = lane.begin(cell, place, target, fused);
    let woken = lane.wake(WAKE);
    // Every thread comes here, whatever happened to it, or the others would wait for ever.
    barrier.wait();
    fresh?;
    woken?;
    let mut latencies = Vec::with_capacity(place.count as usize);
    let calls = lane.system_calls();
    let start = Instant::now();
    lane.drive(place.count, cell.depth, start, &mut latencies)?;
    let end = Instant::now();
    let counts = Counts { syscalls: lane.system_calls() - calls, ..Counts::default() };
    Ok(Run { start, end, latencies, counts })
}

/// One way to use a device.
pub(super) struct WeldFs {
    name: String,
    device: Rc<RefCell<Device>>,
    fused: bool,
}

impl WeldFs {
    pub(super) fn new(name: &str, device: &Rc<RefCell<Device>>, fused: bool) -> WeldFs {
        WeldFs { name: name.to_owned(), device: device.clone(), fused }
    }
}

impl System for WeldFs {
    fn name(&self) -> &str {
        &self.name
    }

    fn medium(&self) -> String {
        self.device.borrow().medium.clone()
    }

    fn power_safe(&self) -> bool {
        self.device.borrow().power_safe
    }

    fn takes(&self, cell: &Cell) -> bool {
        match cell.op {
            // The variants differ in what the host or the client copies: nothing new in single commands.
            op if op.is_variant() => self.fused,
            op => self.fused || op.fused(),
        }
    }

    fn log(&self) -> u64 {
        self.device.borrow().log()
    }

    fn run(&mut self, cell: &Cell, run: u64, count: u64) -> io::Result<Sample> {
        self.device.borrow_mut().run(cell, self.fused, run, count)
    }

    fn rest(&mut self) -> io::Result<()> {
        self.device.borrow().client.sync()
    }
}
