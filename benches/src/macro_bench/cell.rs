//! One cell: a personality with some threads on one system, on a fresh set of files that is checked and removed.

use super::host::{Posix, Uring};
use super::model::{Model, Step};
use super::personality::{Personality, Sequence};
use super::store::{LOG, Names, Store, stamp};
use super::weld::Weld;
use crate::apart;
use crate::micro::files::{HostTree, Tree};
use crate::micro::sample::{Counts, Seen};
use crate::micro::{Watch, interrupted};
use crate::settle::settle;
use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use weldfs::Client;

/// Bytes that the log may reach before it is cut.
const LOG_MAX: u64 = 256 << 20;
/// Files of each thread that are looked at afterwards.
const LOOKED_AT: usize = 200;

/// Who does it.
pub(super) enum Way {
    /// Commands, fused or single.
    Weld { client: Client, fused: bool },
    /// Calls on a directory, plain or linked.
    Host { tree: HostTree, uring: bool },
}

/// What to do.
#[derive(Clone, Copy)]
pub(super) struct Job {
    pub personality: Personality,
    pub threads: u64,
    pub files: u64,
    pub seed: u64,
    pub time: Duration,
    /// How long to wait for rest before the clock starts.
    pub calm: Duration,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Filebench's operations.
    pub operations: u64,
    pub wall_ns: u64,
    /// Nanoseconds of each turn of each thread.
    pub turns: Vec<u32>,
    pub counts: Counts,
    /// Bytes of the files at the start.
    pub bytes: u64,
    /// Whether it began while the machine had other work.
    pub restless: bool,
}

const ROOT: &str = "/macro";

impl Way {
    fn tree(&self) -> &dyn Tree {
        match self {
            Way::Weld { client, .. } => client,
            Way::Host { tree, .. } => tree,
        }
    }

    fn sync(&self) -> io::Result<()> {
        match self {
            Way::Weld { client, .. } => client.sync(),
            Way::Host { tree, .. } => Ok(rustix::fs::syncfs(std::fs::File::open(&tree.0)?)?),
        }
    }

    /// To be called in the thread that uses it.
    fn store(&self, names: Names) -> io::Result<Box<dyn Store>> {
        Ok(match self {
            Way::Weld { client, fused } => Box::new(Weld::new(client, ROOT, names, *fused)?),
            Way::Host { tree, uring: false } => Box::new(Posix::new(&tree.path(ROOT), names)?),
            Way::Host { tree, uring: true } => Box::new(Uring::new(&tree.path(ROOT), names)?),
        })
    }

    fn seen(&self) -> io::Result<Option<Seen>> {
        match self {
            Way::Weld { client, .. } => Seen::now(client).map(Some),
            Way::Host { .. } => Ok(None),
        }
    }

    /// Runs a cell.
    pub(super) fn run(&self, job: &Job, watch: &dyn Watch) -> io::Result<Outcome> {
        let names = Names { width: job.personality.width() };
        let tree = self.tree();
        if tree.exists(ROOT) {
            tree.remove_all(ROOT)?;
        }
        tree.make_dir(ROOT)?;
        for folder in 0..job.files.div_ceil(names.width) {
            tree.make_dir(&format!("{ROOT}/{}", names.folder(folder * names.width)))?;
        }
        tree.put(&format!("{ROOT}/{LOG}"), &[])?;
        let mut models: Vec<Model> =
            (0..job.threads).map(|t| Model::new(job.personality, job.files, job.seed, t, job.threads)).collect();
        let bytes = models.iter().flat_map(Model::existing).map(|(_, size)| size).sum();
        self.threads(&mut models, watch, &|model, halt, _| self.fill(model, names, halt))?;
        self.sync()?;
        let restless = !settle(job.calm);
        let parts =
            self.threads(&mut models, watch, &|model, halt, barrier| self.measured(model, names, job, halt, barrier))?;
        let mut outcome = Outcome { bytes, restless, ..Outcome::default() };
        for part in parts {
            outcome.operations += part.operations;
            outcome.wall_ns = outcome.wall_ns.max(part.wall_ns);
            outcome.turns.extend(part.turns);
            outcome.counts += part.counts;
        }
        models.iter().try_for_each(|model| self.verify(model, names))?;
        self.verify_whole(&models, names, job)?;
        tree.remove_all(ROOT)?;
        self.sync()?;
        Ok(outcome)
    }

    /// One thread per model; they start together, and end early when `watch` says so.
    fn threads(
        &self,
        models: &mut [Model],
        watch: &dyn Watch,
        each: &(dyn Fn(&mut Model, &AtomicBool, &Barrier) -> io::Result<Outcome> + Sync),
    ) -> io::Result<Vec<Outcome>> {
        let (halt, barrier) = (AtomicBool::new(false), Barrier::new(models.len()));
        let results = std::thread::scope(|s| {
            let started = models.iter_mut().map(|model| {
                let (halt, barrier) = (&halt, &barrier);
                s.spawn(move || each(model, halt, barrier))
            });
            let started: Vec<_> = started.collect();
            while started.iter().any(|t| !t.is_finished()) {
                halt.fetch_or(watch.stop(), Relaxed);
                std::thread::sleep(Duration::from_millis(10));
            }
            let panicked = || Err(io::Error::other("a thread panicked"));
            started.into_iter().map(|t| t.join().unwrap_or_else(|_| panicked())).collect::<Vec<_>>()
        });
        if watch.stop() {
            return Err(interrupted());
        }
        results.into_iter().collect()
    }

    /// Makes the files that exist at first.
    fn fill(&self, model: &Model, names: Names, halt: &AtomicBool) -> io::Result<Outcome> {
        let mut store = self.store(names)?;
        for (file, len) in model.existing() {
            store.step(&Step { what: Sequence::CreateWhole, file, size: 0, len })?;
            if halt.load(Relaxed) {
                return Err(interrupted());
            }
        }
        Ok(Outcome::default())
    }

    /// The measured part of one thread. All start and end together; one of them looks at the device's counters when
    /// all are ready and when all are done, so that nothing else is counted.
    fn measured(
        &self,
        model: &mut Model,
        names: Names,
        job: &Job,
        halt: &AtomicBool,
        barrier: &Barrier,
    ) -> io::Result<Outcome> {
        if let (Way::Weld { .. }, false) = (self, job.calm.is_zero()) {
            apart::client(job.threads as u32);
        }
        let mut store = self.store(names);
        // Every thread comes to every barrier, whatever happened to it, or the others would wait for ever.
        let leads = barrier.wait().is_leader();
        let before = if leads { self.seen() } else { Ok(None) };
        barrier.wait();
        let outcome = match &mut store {
            Ok(store) => turns(&mut **store, model, job, halt),
            Err(_) => Ok(Outcome::default()),
        };
        barrier.wait();
        let after = if leads { self.seen() } else { Ok(None) };
        barrier.wait();
        store?;
        let mut outcome = outcome?;
        if let (Some(before), Some(after)) = (before?, after?) {
            outcome.counts += before.until(&after);
        }
        Ok(outcome)
    }

    /// The files are there, as long as they should be, and each is itself.
    fn verify(&self, model: &Model, names: Names) -> io::Result<()> {
        let tree = self.tree();
        let all: Vec<(u64, u64)> = model.existing().collect();
        for (file, size) in all.iter().step_by((all.len() / LOOKED_AT).max(1)) {
            let path = format!("{ROOT}/{}", names.path(*file));
            let (found, mut start) = (tree.size(&path)?, [0; 8]);
            tree.get(&path, 0, &mut start)?;
            if found != *size || start != stamp(*file) {
                return Err(undone(&format!("{path} has {found} bytes instead of {size}, or is another file")));
            }
        }
        let gone: Vec<u64> = model.missing().collect();
        for file in gone.iter().step_by((gone.len() / LOOKED_AT).max(1)) {
            let path = format!("{ROOT}/{}", names.path(*file));
            if tree.exists(&path) {
                return Err(undone(&format!("{path} was deleted, or never made, and is there")));
            }
        }
        Ok(())
    }

    /// There are as many files as there should be, and the log is as long as it should be.
    fn verify_whole(&self, models: &[Model], names: Names, job: &Job) -> io::Result<()> {
        let tree = self.tree();
        let due = models.iter().flat_map(Model::existing).count() as u64;
        let mut found = 0;
        for folder in 0..job.files.div_ceil(names.width) {
            found += tree.count(&format!("{ROOT}/{}", names.folder(folder * names.width)))?;
        }
        if found != due {
            return Err(undone(&format!("there are {found} files instead of {due}")));
        }
        let (log, (least, most)) = (tree.size(&format!("{ROOT}/{LOG}"))?, Model::log_bytes(models));
        if log < least || log > most {
            return Err(undone(&format!("the log has {log} bytes instead of {least} to {most}")));
        }
        Ok(())
    }
}

fn undone(what: &str) -> io::Error {
    io::Error::other(format!("the work was not done: {what}"))
}

/// Turn after turn until the time is over.
fn turns(store: &mut dyn Store, model: &mut Model, job: &Job, halt: &AtomicBool) -> io::Result<Outcome> {
    let (mut outcome, before) = (Outcome::default(), store.counts());
    let start = Instant::now();
    let mut last = start;
    while last.duration_since(start) < job.time && !halt.load(Relaxed) {
        for sequence in job.personality.turn() {
            if let Some(step) = model.next(*sequence) {
                store.step(&step)?;
                outcome.operations += sequence.operations();
            }
        }
        if model.log_is_long(LOG_MAX) {
            store.cut_log()?;
        }
        let now = Instant::now();
        outcome.turns.push(u32::try_from(now.duration_since(last).as_nanos()).unwrap_or(u32::MAX));
        last = now;
    }
    outcome.wall_ns = last.duration_since(start).as_nanos() as u64;
    outcome.counts = store.counts().since(&before);
    Ok(outcome)
}
