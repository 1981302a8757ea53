//! What the experiment found: for people and as JSON.

use super::apps::App;
use super::chip::{self, Budget};
use super::count::Counted;
use super::forms::{Form, Ran};
use super::model::{Breakdown, Drive, Intensity, Modelled, breakdown, intensity, time};
use super::paper::{self, Facts};
use super::tables;
use super::timeline::{Timeline, WITHIN};
use crate::report::Machine;
use serde::Serialize;
use std::io::{self, Write};

/// Lines of code without empty lines and comments.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Lines {
    /// The host's program where it does all.
    pub host: usize,
    /// The host's program where a kernel helps.
    pub rest: usize,
    /// The kernel, in Rust, without its tests.
    pub kernel: usize,
    /// The kernel, as RTL or HLS C++.
    pub built: usize,
}

/// Times that passed here, milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Wall {
    /// All of it.
    pub total_ms: f64,
    /// Inside calls that move data; in the drive the kernel's time, too.
    pub moving_ms: f64,
    /// The host's own work.
    pub host_ms: f64,
}

/// A form of an application.
#[derive(Clone, Debug, Serialize)]
pub struct FormReport {
    /// Which.
    pub form: Form,
    /// On this machine.
    pub wall: Wall,
    /// On each of the modelled drives.
    pub modelled: Vec<Modelled>,
    /// How many times faster than POSIX on the same drive, modelled.
    pub speedup: Vec<f64>,
    /// Bytes of the medium, counted.
    pub drive_bytes: u64,
    /// Bytes over the link, both ways: counted by the device, but for POSIX, where they are the bytes moved.
    pub link_bytes: u64,
    /// Cycles of the slots, counted.
    pub cycles: u64,
    /// What the device counted.
    pub counted: Counted,
}

/// An application in the drive with a back-end that is built apart, over less data.
#[derive(Clone, Debug, Serialize)]
pub struct BuiltReport {
    /// `rtl` or `hls`.
    pub backend: &'static str,
    /// What it found, and the host in the same data.
    pub answer: String,
    /// Bytes that the host moved over the link for it (bypass).
    pub host_link_bytes: u64,
    /// The run; its speed-up is by rate, since POSIX moved more data.
    pub run: FormReport,
}

/// The runs of such a form: by the host, and in the drive.
pub(super) struct BuiltRun {
    /// `rtl` or `hls`.
    pub backend: &'static str,
    /// Bypass.
    pub host: Ran,
    /// In the drive.
    pub ran: Ran,
}

/// A back-end that did not run.
#[derive(Clone, Debug, Serialize)]
pub struct Skipped {
    /// Of which application.
    pub app: &'static str,
    /// Which.
    pub backend: &'static str,
    /// Why.
    pub why: String,
}

/// An application.
#[derive(Clone, Debug, Serialize)]
pub struct AppReport {
    /// Its name.
    pub app: &'static str,
    /// The kernel.
    pub kernel: &'static str,
    /// What its data is.
    pub data: &'static str,
    /// What all forms found.
    pub answer: String,
    /// The forms.
    pub forms: Vec<FormReport>,
    /// The kernel as RTL or HLS C++, in the drive, if that is built.
    pub built: Option<BuiltReport>,
    /// Which of the two it can be.
    pub built_kind: &'static str,
    /// The speed-up's factors, on each drive.
    pub breakdown: Vec<Breakdown>,
    /// EISC's numbers, on each drive.
    pub intensity: Vec<Intensity>,
    /// Lines of code.
    pub lines: Lines,
    /// Limits of its parts of a chip, if it is RTL.
    pub budget: Option<Budget>,
    /// What the paper prints of it.
    pub paper: Option<&'static Facts>,
}

fn ms(time: std::time::Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl AppReport {
    /// Of the runs of the four forms.
    pub(super) fn new(app: &App, drives: &[Drive], runs: &[Ran], built: Option<BuiltRun>, lines: Lines) -> AppReport {
        let forms: Vec<FormReport> =
            Form::ALL.iter().zip(runs).map(|(form, ran)| FormReport::new(*form, ran, &runs[0], drives)).collect();
        let (inside, host) = (&runs[runs.len() - 1], &runs[1]);
        let times = |at: usize| -> Vec<Modelled> { forms.iter().map(|form| form.modelled[at].clone()).collect() };
        AppReport {
            app: app.name,
            kernel: app.kernel,
            data: app.data,
            answer: host.answer.clone(),
            breakdown: drives
                .iter()
                .enumerate()
                .map(|(at, drive)| breakdown(drive, &times(at), inside, host))
                .collect(),
            intensity: drives.iter().map(|drive| intensity(drive, inside)).collect(),
            forms,
            built: built.map(|b| BuiltReport {
                backend: b.backend,
                answer: b.ran.answer.clone(),
                host_link_bytes: b.host.link_bytes(),
                run: FormReport::new(Form::InDrive, &b.ran, &runs[0], drives),
            }),
            built_kind: app.built,
            lines,
            budget: chip::of(app.kernel),
            paper: paper::of(app.paper),
        }
    }
}

impl FormReport {
    /// Of a run, beside the run by POSIX.
    fn new(form: Form, ran: &Ran, posix: &Ran, drives: &[Drive]) -> FormReport {
        let modelled: Vec<Modelled> = drives.iter().map(|drive| time(drive, form, ran)).collect();
        let rate = |seconds: f64, ran: &Ran| ran.drive_bytes as f64 / seconds;
        let speedup = |(drive, own): (&Drive, &Modelled)| {
            rate(own.seconds, ran) / rate(time(drive, Form::Posix, posix).seconds, posix)
        };
        FormReport {
            form,
            wall: Wall { total_ms: ms(ran.wall), moving_ms: ms(ran.moving), host_ms: ms(ran.host) },
            speedup: drives.iter().zip(&modelled).map(speedup).collect(),
            modelled,
            drive_bytes: ran.drive_bytes,
            link_bytes: ran.link_bytes(),
            cycles: ran.cycles,
            counted: ran.counted,
        }
    }
}

/// The experiment.
#[derive(Clone, Debug, Serialize)]
pub struct InsiderReport {
    /// Which machine.
    pub machine: Machine,
    /// The command line.
    pub command: String,
    /// How much data.
    pub scale: &'static str,
    /// The same in bytes, of each application.
    pub bytes: u64,
    /// Rounds behind each median.
    pub rounds: usize,
    /// Cores of the modelled host.
    pub host_cores: f64,
    /// The modelled drives.
    pub drives: Vec<Drive>,
    /// The applications.
    pub apps: Vec<AppReport>,
    /// Back-ends that did not run, and why.
    pub skipped: Vec<Skipped>,
    /// Three kernels at once.
    pub timeline: Timeline,
    /// It was stopped before its end.
    pub interrupted: bool,
}

/// Bytes as people say them.
pub(super) fn bytes(n: u64) -> String {
    match n {
        0..10_000 => format!("{n} B"),
        10_000..10_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        _ => format!("{:.1} MB", n as f64 / 1e6),
    }
}

impl InsiderReport {
    /// Prints the tables for people.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let m = &self.machine;
        let size = bytes(self.bytes);
        writeln!(out, "{} ({} cores), kernel {}, {} build", m.cpu, m.cores, m.kernel, m.build)?;
        writeln!(out, "scale {}: {size} an application, medians of {} rounds", self.scale, self.rounds)?;
        for drive in &self.drives {
            writeln!(
                out,
                "modelled drive {}: medium {:.1} GB/s, link {:.1} GB/s each way, slots {:.0} MHz; host of {} cores",
                drive.name,
                drive.media_bytes_per_s / 1e9,
                drive.link_bytes_per_s / 1e9,
                drive.clock_hz / 1e6,
                self.host_cores
            )?;
        }
        for table in tables::all(self) {
            write!(out, "\n{}\n{}", table.title, table.render(false))?;
        }
        for s in &self.skipped {
            writeln!(out, "skipped: {} as {}: {}", s.app, s.backend.to_uppercase(), s.why)?;
        }
        let holds = if self.timeline.holds() { "yes" } else { "NO" };
        writeln!(out, "every plateau within {} % of max-min: {holds}", WITHIN * 100.0)
    }

    /// Its tables as Markdown.
    pub fn markdown(&self) -> String {
        super::markdown::document(self)
    }

    /// One page that needs nothing else.
    pub fn html(&self) -> String {
        super::page::html(self)
    }
}
