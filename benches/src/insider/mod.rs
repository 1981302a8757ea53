//! `weldfs bench insider`: the seven applications of INSIDER (USENIX ATC 2019), on the host and in the drive.
//!
//! Hypothesis: a kernel in the drive wins by what does not cross the link, by computing while it reads, and by not
//! passing through the host's stack. Each application runs in four forms over the same generated data: on the host with
//! POSIX calls, on the host through WeldFS's queues (bypass), the same computing while it reads, and with a kernel in
//! the drive, where the host does the rest. All forms must give the same answer, or the run fails.
//!
//! Two kinds of time, never in one column. *Wall* is what passed on this machine, where the drive is memory and the
//! kernel a Rust model on a processor. *Modelled* is computed: bytes that were counted over bandwidths of the modelled
//! drive, cycles that were counted over the clock, and the host's work as measured (see `model`).
//!
//! * `apps` the applications; `forms` how they run; `model` modelled time; `timeline` three kernels at once; `paper`
//!   what the paper prints; `lines` lines of code; `report` all of it, as text and JSON; `page` as HTML.

mod apps;
mod forms;
mod lines;
mod model;
mod page;
mod paper;
mod report;
mod timeline;

use crate::micro::Watch;
use crate::report::Machine;
use apps::{APPS, App};
use forms::{Form, Places, Ran};
use model::{Drive, median};
pub use report::InsiderReport;
use report::{AppReport, Lines};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use weldfs::Client;
use weldfs_kernel_shim::{Embedded, Source};
use weldfs_storagefs::device::DeviceConfig;

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How much data.
    pub scale: Scale,
    /// Rounds behind each median.
    pub rounds: usize,
    /// A directory of the host for the POSIX form.
    pub place: PathBuf,
    /// The command line, for the report.
    pub command: String,
}

/// Bytes of data of an application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Shows that everything works, and no figures.
    Small,
    /// Seconds.
    Medium,
    /// A minute or more, and gigabytes of memory.
    Large,
}

impl Scale {
    /// All of them.
    pub const ALL: [Scale; 3] = [Scale::Small, Scale::Medium, Scale::Large];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Scale::Small => "small",
            Scale::Medium => "medium",
            Scale::Large => "large",
        }
    }

    /// Bytes of an application's data.
    pub fn bytes(self) -> usize {
        match self {
            Scale::Small => 512 << 10,
            Scale::Medium => 64 << 20,
            Scale::Large => 512 << 20,
        }
    }
}

/// What the store needs beside the data, bytes.
const BESIDE: u64 = 128 << 20;

/// Runs all of it. Errors: what a file or a device says, a kernel that fails, and answers that differ.
pub fn run(options: &Options, watch: &mut dyn Watch) -> io::Result<InsiderReport> {
    let drives = Drive::both().map_err(|e| io::Error::other(e.to_string()))?;
    let dir = tempfile::Builder::new().prefix("weldfs-insider-").tempdir_in(&options.place)?;
    let source = Source::Ram(2 * options.scale.bytes() as u64 + BESIDE);
    let embedded = Embedded::open(&source, DeviceConfig::default()).map_err(|e| io::Error::other(e.to_string()))?;
    let client = Client::with(Arc::new(embedded))?;
    let places = Places { dir: dir.path(), client: &client };
    let samples = (APPS.len() * Form::ALL.len() * options.rounds) as u64;
    watch.plan(samples, options.scale.bytes() as f64 / 1e9);
    let (mut apps, mut interrupted) = (Vec::new(), false);
    for app in &APPS {
        let Some(runs) = forms_of(app, options, &places, watch)? else {
            interrupted = true;
            break;
        };
        apps.push(AppReport::new(app, &drives, &runs, lines_of(app)));
    }
    Ok(InsiderReport {
        machine: Machine::here(),
        command: options.command.clone(),
        scale: options.scale.name(),
        bytes: options.scale.bytes() as u64,
        rounds: options.rounds,
        host_cores: model::HOST_CORES,
        drives: drives.to_vec(),
        apps,
        timeline: timeline::run(),
        interrupted,
    })
}

/// All forms of an application, each the median of its rounds; `None` when it was interrupted.
fn forms_of(app: &App, options: &Options, places: &Places<'_>, watch: &mut dyn Watch) -> io::Result<Option<Vec<Ran>>> {
    watch.at(&format!("{}: data", app.name), false);
    let data = (app.generate)(options.scale.bytes());
    forms::prepare(app, places, &data)?;
    let mut all: Vec<Vec<Ran>> = Form::ALL.iter().map(|_| Vec::new()).collect();
    for _ in 0..options.rounds {
        for (form, runs) in Form::ALL.iter().zip(&mut all) {
            if watch.stop() {
                return Ok(None);
            }
            watch.at(&format!("{}: {}", app.name, form.name()), true);
            runs.push(forms::run(app, *form, places, &data)?);
        }
    }
    forms::clear(app, places)?;
    same_answers(app, &all)?;
    Ok(Some(all.iter().map(|runs| middle(runs)).collect()))
}

/// An error where a form found something else than the first one.
fn same_answers(app: &App, all: &[Vec<Ran>]) -> io::Result<()> {
    let expected = &all[0][0].answer;
    for (form, runs) in Form::ALL.iter().zip(all) {
        if let Some(other) = runs.iter().find(|r| r.answer != *expected) {
            let (name, form) = (app.name, form.name());
            return Err(io::Error::other(format!(
                "{name}: answers differ: '{expected}' by {}, '{}' by {form}",
                Form::Posix.name(),
                other.answer
            )));
        }
    }
    Ok(())
}

/// Medians of the times of several runs; what was counted is the same in all.
fn middle(runs: &[Ran]) -> Ran {
    let of = |time: fn(&Ran) -> std::time::Duration| median(runs.iter().map(time).collect());
    Ran {
        wall: of(|r| r.wall),
        moving: of(|r| r.moving),
        host: of(|r| r.host),
        kernel: of(|r| r.kernel),
        ..runs[0].clone()
    }
}

fn lines_of(app: &App) -> Lines {
    let items = |names| lines::items(app.source, names) + lines::items(apps::SHARED, names);
    Lines { host: items(app.host_items), rest: items(app.rest_items), kernel: lines::code(app.kernel_source) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_answer_fails_the_run() {
        let ran = |answer: &str| Ran { answer: answer.into(), ..Ran::default() };
        let mut all = vec![vec![ran("7 rows")]; 4];
        same_answers(&APPS[0], &all).expect("all are equal");
        all[3].push(ran("6 rows"));
        let e = same_answers(&APPS[0], &all).expect_err("one is not");
        assert_eq!(e.to_string(), "grep: answers differ: '7 rows' by host, POSIX, '6 rows' by in drive");
    }
}
