//! Looking on while an experiment runs: a bar on a terminal, a line now and then elsewhere, and Ctrl-C.

use crate::interrupt::Interrupt;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use weldfs_benches::micro::Watch;

/// Between two lines where there is no terminal.
const PAUSE: Duration = Duration::from_secs(10);

pub(super) struct Watcher {
    interrupt: Interrupt,
    bar: Option<ProgressBar>,
    said: Option<Instant>,
    done: u64,
    all: u64,
}

impl Watcher {
    pub(super) fn new() -> io::Result<Watcher> {
        let interrupt = Interrupt::catch().map_err(|e| io::Error::other(e.to_string()))?;
        let bar = io::stderr().is_terminal().then(ProgressBar::new_spinner);
        Ok(Watcher { interrupt, bar, said: None, done: 0, all: 0 })
    }
}

impl Watch for Watcher {
    fn plan(&mut self, samples: u64) {
        self.all = samples;
        if let Some(bar) = &self.bar {
            bar.set_length(samples);
            if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {eta} {wide_msg}") {
                bar.set_style(style);
            }
        }
    }

    fn at(&mut self, what: &str, is_sample: bool) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_owned());
            bar.set_position(self.done);
        } else if !is_sample || self.said.is_none_or(|at| at.elapsed() > PAUSE) {
            self.said = Some(Instant::now());
            let far = if self.all > 0 { format!("{} of {}: ", self.done, self.all) } else { String::new() };
            eprintln!("bench: {far}{what}");
        }
        self.done += u64::from(is_sample);
    }

    fn stop(&self) -> bool {
        self.interrupt.flag().load(Relaxed)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
