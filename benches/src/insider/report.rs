//! What the experiment found: for people and as JSON.

use super::apps::App;
use super::forms::{Form, Ran};
use super::model::{Breakdown, Drive, Intensity, Modelled, breakdown, intensity, time};
use super::paper::{self, Facts};
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
}

/// Times that passed here, milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Wall {
    /// All of it.
    pub total_ms: f64,
    /// Inside calls that move data.
    pub moving_ms: f64,
    /// The host's own work.
    pub host_ms: f64,
    /// The kernel's model.
    pub kernel_ms: f64,
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
    /// Bytes over the link, counted.
    pub link_bytes: u64,
    /// Cycles of the kernel, counted.
    pub cycles: u64,
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
    /// The speed-up's factors, on each drive.
    pub breakdown: Vec<Breakdown>,
    /// EISC's numbers, on each drive.
    pub intensity: Vec<Intensity>,
    /// Lines of code.
    pub lines: Lines,
    /// What the paper prints of it.
    pub paper: Option<&'static Facts>,
}

fn ms(time: std::time::Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl AppReport {
    /// Of the runs of the four forms.
    pub(super) fn new(app: &App, drives: &[Drive], runs: &[Ran], lines: Lines) -> AppReport {
        let on = |drive: &Drive| -> Vec<Modelled> {
            Form::ALL.iter().zip(runs).map(|(form, ran)| time(drive, *form, ran)).collect()
        };
        let times: Vec<Vec<Modelled>> = drives.iter().map(on).collect();
        let form = |(at, (form, ran)): (usize, (&Form, &Ran))| FormReport {
            form: *form,
            wall: Wall {
                total_ms: ms(ran.wall),
                moving_ms: ms(ran.moving),
                host_ms: ms(ran.host),
                kernel_ms: ms(ran.kernel),
            },
            modelled: times.iter().map(|of| of[at].clone()).collect(),
            speedup: times.iter().map(|of| of[0].seconds / of[at].seconds).collect(),
            drive_bytes: ran.drive_bytes,
            link_bytes: ran.link_bytes,
            cycles: ran.cycles,
        };
        let (inside, host) = (&runs[runs.len() - 1], &runs[0]);
        AppReport {
            app: app.name,
            kernel: app.kernel,
            data: app.data,
            answer: host.answer.clone(),
            forms: Form::ALL.iter().zip(runs).enumerate().map(form).collect(),
            breakdown: drives
                .iter()
                .zip(&times)
                .map(|(drive, times)| breakdown(drive, times, inside, host.link_bytes))
                .collect(),
            intensity: drives.iter().map(|drive| intensity(drive, inside)).collect(),
            lines,
            paper: paper::of(app.paper),
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
        for (at, drive) in self.drives.iter().enumerate() {
            self.print_modelled(out, at, drive)?;
        }
        self.print_wall(out)?;
        self.print_rest(out)?;
        self.print_timeline(out)
    }

    fn print_modelled(&self, out: &mut dyn Write, at: usize, drive: &Drive) -> io::Result<()> {
        writeln!(
            out,
            "\nmodelled on {}: medium {:.1} GB/s, link {:.1} GB/s, slots {:.0} MHz, host of {} cores",
            drive.name,
            drive.media_bytes_per_s / 1e9,
            drive.link_bytes_per_s / 1e9,
            drive.clock_hz / 1e6,
            self.host_cores
        )?;
        let heads = ["app", "form", "modelled ms", "speed-up", "over link", "cycles", "bottleneck"];
        let [a, f, t, s, l, c, b] = heads;
        writeln!(out, "{a:<11} {f:<20} {t:>12} {s:>9} {l:>11} {c:>11}  {b}")?;
        for app in &self.apps {
            for form in &app.forms {
                let (time, name) = (&form.modelled[at], form.form.name());
                let (milli, link) = (time.seconds * 1e3, bytes(form.link_bytes));
                let (speedup, cycles, bottleneck) = (form.speedup[at], form.cycles, &time.bottleneck);
                writeln!(
                    out,
                    "{:<11} {name:<20} {milli:>12.3} {speedup:>8.2}x {link:>11} {cycles:>11}  {bottleneck}",
                    app.app
                )?;
            }
        }
        writeln!(out, "\nfactors of the speed-up on {}, and EISC's numbers (gamma, delta)", drive.name)?;
        let heads = ["app", "stack", "pipelining", "offloading", "reduction", "gamma", "delta", "helps"];
        let [a, s, p, o, r, g, d, h] = heads;
        writeln!(out, "{a:<11} {s:>8} {p:>11} {o:>11} {r:>10} {g:>9} {d:>6}  {h}")?;
        for app in &self.apps {
            let (b, i) = (&app.breakdown[at], &app.intensity[at]);
            let helps = if i.helps { "yes" } else { "no" };
            write!(out, "{:<11} {:>7.2}x {:>10.2}x", app.app, b.stack, b.pipelining)?;
            write!(out, " {:>10.2}x {:>9.2}x", b.offloading, b.reduction)?;
            writeln!(out, " {:>9.1} {:>6.2}  {helps}", i.gamma, i.delta)?;
        }
        Ok(())
    }

    fn print_wall(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "\nwall time on this machine, one core of the host; the drive is memory, the kernel a Rust model"
        )?;
        let heads = ["app", "form", "wall ms", "moving", "host", "kernel"];
        let [a, f, w, m, h, k] = heads;
        writeln!(out, "{a:<11} {f:<20} {w:>10} {m:>10} {h:>10} {k:>10}")?;
        for app in &self.apps {
            for form in &app.forms {
                let (w, name) = (&form.wall, form.form.name());
                writeln!(
                    out,
                    "{:<11} {name:<20} {:>10.3} {:>10.3} {:>10.3} {:>10.3}",
                    app.app, w.total_ms, w.moving_ms, w.host_ms, w.kernel_ms
                )?;
            }
        }
        Ok(())
    }

    fn print_rest(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "\nlines of code (counted), the paper's beside them, and its table 6: LUT / FF / BRAM / DSP")?;
        let heads = ["app", "all on host", "rest on host", "kernel", "paper: host", "drive", "resources"];
        let [a, h, r, k, ph, pd, t] = heads;
        writeln!(out, "{a:<11} {h:>11} {r:>12} {k:>7} {ph:>12} {pd:>6}  {t}")?;
        for app in &self.apps {
            let l = app.lines;
            write!(out, "{:<11} {:>11} {:>12} {:>7}", app.app, l.host, l.rest, l.kernel)?;
            match app.paper {
                Some(p) => {
                    let [lut, ff, bram, dsp] = p.resources;
                    writeln!(out, " {:>12} {:>6}  {lut} / {ff} / {bram} / {dsp}", p.host_lines, p.drive_lines)?;
                }
                None => writeln!(out)?,
            }
        }
        Ok(())
    }

    fn print_timeline(&self, out: &mut dyn Write) -> io::Result<()> {
        let t = &self.timeline;
        writeln!(
            out,
            "\nthree kernels on {} GB/s, simulated time; GB/s each got, and its max-min share",
            t.drive / 1e9
        )?;
        for p in &t.plateaus {
            write!(out, "{:.1} to {:.1} s:", p.from, p.to)?;
            for ((load, got), ideal) in t.loads.iter().zip(&p.got).zip(&p.ideal).filter(|(_, ideal)| **ideal > 0.0) {
                write!(out, "  {} {:.2} ({:.2})", load.name, got / 1e9, ideal / 1e9)?;
            }
            writeln!(out, "  off by {:.2} %", p.off * 100.0)?;
        }
        let holds = if t.holds() { "yes" } else { "NO" };
        writeln!(out, "every plateau within {} % of max-min: {holds}", WITHIN * 100.0)
    }

    /// One page that needs nothing else.
    pub fn html(&self) -> String {
        super::page::html(self)
    }
}
