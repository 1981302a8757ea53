//! `weldfs bench insider`: the seven applications of INSIDER (USENIX ATC 2019), on the host and in the drive.
//!
//! Hypothesis: a kernel in the drive wins by what does not cross the link, by computing while it reads, and by not
//! passing through the host's stack. Each application runs in four forms over the same generated data: on the host with
//! POSIX calls, on the host through WeldFS's queues (bypass), the same computing while it reads, and in the drive: a
//! virtual file of a device, read or written to its end, while the host does the rest. All forms must give the same
//! answer, or the run fails. Where the kernel is built as RTL or HLS C++, too, it runs as the slot's kernel once more,
//! over less data, since a simulated cycle takes a microsecond.
//!
//! Two kinds of time, never in one column. *Wall* is what passed on this machine, where the drive is memory and the
//! kernel a program on a processor. *Modelled* is computed: bytes that the device counted over bandwidths of the
//! modelled drive, cycles that its slots counted over their clock, and the host's work as measured (see `model`).
//!
//! * `apps` the applications; `forms` how they run on the host, `drive` in the drive, with back-ends from `backends`;
//!   `count` what a device counts; `model` modelled time; `timeline` three kernels at once; `cat` a text through grep;
//!   `paper` what the paper prints; `lines` lines of code; `chip` what kernels take of one; `report` all of it, as text
//!   and JSON, `tables` its tables, of which `markdown` and `page` (HTML) are made.

mod apps;
mod backends;
pub mod cat;
mod chip;
mod count;
mod drive;
mod forms;
mod lines;
mod markdown;
mod model;
mod page;
mod paper;
mod report;
mod tables;
mod timeline;

use crate::micro::Watch;
use crate::report::Machine;
use apps::{APPS, App};
use forms::{Form, Places, Ran};
use model::{Drive, median};
pub use report::InsiderReport;
use report::{AppReport, BuiltRun, Lines, Skipped};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weldfs::Client;
use weldfs_device::{CardConfig, DeviceConfig};
use weldfs_fpga::config::Reconfigure;
use weldfs_kernel_shim::{Embedded, Source};

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
/// Data of the back-ends that are simulated cycle by cycle, at most, bytes.
const BUILT_BYTES: usize = 16 << 20;

/// Runs all of it. Errors: what a file or a device says, a kernel that fails, a back-end that cannot be loaded, answers
/// that differ, and a device that counts something else than what was moved.
pub fn run(options: &Options, watch: &mut dyn Watch) -> io::Result<InsiderReport> {
    let drives = Drive::both().map_err(|e| io::Error::other(e.to_string()))?;
    let dir = tempfile::Builder::new()
        .prefix("weldfs-insider-")
        .tempdir_in(&options.place)
        .map_err(|e| io::Error::new(e.kind(), format!("no folder can be made in {}: {e}", options.place.display())))?;
    let source = Source::Ram(2 * options.scale.bytes() as u64 + BESIDE);
    // Loading a kernel is no part of a run, as in the paper (section 5.2.1): an application would wait for it once.
    let card = CardConfig { reconfigure: Reconfigure::NONE, ..CardConfig::default() };
    let config = DeviceConfig { card, ..DeviceConfig::default() };
    let embedded = Embedded::open(&source, config).map_err(|e| io::Error::other(e.to_string()))?;
    let client = Client::with(Arc::new(embedded.clone()))?;
    let places = Places { dir: dir.path(), client: &client, device: embedded.device() };
    let offered = offer(&client, dir.path())?;
    let built = offered.iter().filter(|o| o.is_ok()).count();
    let samples = ((APPS.len() * Form::ALL.len() + built) * options.rounds) as u64;
    watch.plan(samples, options.scale.bytes() as f64 / 1e9);
    let (mut apps, mut interrupted) = (Vec::new(), false);
    for (app, offered) in APPS.iter().zip(&offered) {
        let Some(runs) = forms_of(app, options, &places, watch)? else {
            interrupted = true;
            break;
        };
        let built = match offered {
            Ok(()) => built_of(app, options, &places, watch)?,
            Err(_) => None,
        };
        interrupted = offered.is_ok() && built.is_none();
        apps.push(AppReport::new(app, &drives, &runs, built, lines_of(app)));
        if interrupted {
            break;
        }
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
        skipped: offered.into_iter().filter_map(Result::err).collect(),
        timeline: timeline::run(),
        interrupted,
    })
}

/// Gives the device the back-ends that are built; what is not is skipped, and said.
fn offer(client: &Client, dir: &Path) -> io::Result<Vec<Result<(), Skipped>>> {
    let scratch = dir.join("packages");
    let one = |app: &App| {
        let Some(library) = backends::library(app.kernel, app.built) else {
            let maker = backends::KINDS.iter().find(|(kind, _)| *kind == app.built).map_or("", |(_, maker)| maker);
            let why = format!("lib{}_{}.so is not built ({maker})", app.built, app.kernel);
            return Ok(Err(Skipped { app: app.name, backend: app.built, why }));
        };
        backends::offer(client, &scratch, app.kernel, app.built, &library).map(Ok)
    };
    APPS.iter().map(one).collect()
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
            runs.push(forms::run(app, *form, "model", places, &data)?);
        }
    }
    forms::clear(app, places)?;
    same_answers(app, &Form::ALL.map(|form| form.name().to_owned()), &all)?;
    Ok(Some(all.iter().map(|runs| middle(runs)).collect()))
}

/// The form in the drive with the back-end that is built, over less data; `None` when it was interrupted.
fn built_of(app: &App, options: &Options, places: &Places<'_>, watch: &mut dyn Watch) -> io::Result<Option<BuiltRun>> {
    let data = (app.generate)(options.scale.bytes().min(BUILT_BYTES));
    forms::prepare(app, places, &data)?;
    let mut all = [vec![forms::run(app, Form::Bypass, "model", places, &data)?], Vec::new()];
    let name = format!("{}, {}", Form::InDrive.name(), app.built.to_uppercase());
    for _ in 0..options.rounds {
        if watch.stop() {
            return Ok(None);
        }
        watch.at(&format!("{}: {name}", app.name), true);
        all[1].push(forms::run(app, Form::InDrive, app.built, places, &data)?);
    }
    forms::clear(app, places)?;
    same_answers(app, &[Form::Bypass.name().to_owned(), name], &all)?;
    Ok(Some(BuiltRun { backend: app.built, host: all[0][0].clone(), ran: middle(&all[1]) }))
}

/// An error where a form found something else than the first one.
fn same_answers(app: &App, names: &[String], all: &[Vec<Ran>]) -> io::Result<()> {
    let expected = &all[0][0].answer;
    for (form, runs) in names.iter().zip(all) {
        if let Some(other) = runs.iter().find(|r| r.answer != *expected) {
            let (name, first) = (app.name, &names[0]);
            return Err(io::Error::other(format!(
                "{name}: answers differ: '{expected}' by {first}, '{}' by {form}",
                other.answer
            )));
        }
    }
    Ok(())
}

/// Medians of the times of several runs; what was counted is the same in all.
fn middle(runs: &[Ran]) -> Ran {
    let of = |time: fn(&Ran) -> std::time::Duration| median(runs.iter().map(time).collect());
    Ran { wall: of(|r| r.wall), moving: of(|r| r.moving), host: of(|r| r.host), ..runs[0].clone() }
}

fn lines_of(app: &App) -> Lines {
    let items = |names| lines::items(app.source, names) + lines::items(apps::SHARED, names);
    Lines {
        host: items(app.host_items),
        rest: items(app.rest_items),
        kernel: lines::code(app.kernel_source),
        built: lines::code(app.built_source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_answer_fails_the_run() {
        let ran = |answer: &str| Ran { answer: answer.into(), ..Ran::default() };
        let (names, mut all) = (["host".to_owned(), "drive".to_owned()], vec![vec![ran("7 rows")]; 2]);
        same_answers(&APPS[0], &names, &all).expect("all are equal");
        all[1].push(ran("6 rows"));
        let e = same_answers(&APPS[0], &names, &all).expect_err("one is not");
        assert_eq!(e.to_string(), "grep: answers differ: '7 rows' by host, '6 rows' by drive");
    }
}
