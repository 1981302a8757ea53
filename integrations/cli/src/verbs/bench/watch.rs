//! Looking on while an experiment runs: a bar on a terminal, a line now and then elsewhere, and Ctrl-C.

use crate::interrupt::Interrupt;
use crate::output::say;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use weldfs_benches::micro::Watch;

/// Between two lines where there is no terminal.
const PAUSE: Duration = Duration::from_secs(10);

/// Looks on, under a name that its lines begin with.
pub(in crate::verbs) struct Watcher {
    name: &'static str,
    interrupt: Interrupt,
    bar: Option<ProgressBar>,
    said: Option<Instant>,
    done: u64,
    all: u64,
    /// When the first sample began, and how long one was thought to take.
    begun: Option<Instant>,
    each: f64,
    /// What is under way.
    what: String,
}

/// A length of time as people say it.
fn span(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round() as u64;
    match minutes {
        0 | 1 => format!("{} s", seconds.round()),
        2..120 => format!("{minutes} min"),
        _ => format!("{} h {:02} min", minutes / 60, minutes % 60),
    }
}

/// Places of the bar that says how far one sample is.
const PLACES: usize = 10;

/// A share from 0 to 1 as a bar.
fn part_of(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * PLACES as f64).round() as usize;
    format!("[{}{}] {:3.0} % ", "=".repeat(full), " ".repeat(PLACES - full), share * 100.0)
}

/// Part of the samples after which what they took says more than what they were thought to take.
const TELLING: f64 = 0.02;

impl Watcher {
    pub(in crate::verbs) fn new(name: &'static str) -> io::Result<Watcher> {
        let interrupt = Interrupt::catch().map_err(|e| io::Error::other(e.to_string()))?;
        let bar = io::stderr().is_terminal().then(ProgressBar::new_spinner);
        Ok(Watcher { name, interrupt, bar, said: None, done: 0, all: 0, begun: None, each: 0.0, what: String::new() })
    }

    /// Takes the bar away: what was watched is over, and the caller goes on.
    pub(in crate::verbs) fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    /// Seconds that are left, about.
    fn left(&self) -> f64 {
        let (done, all) = (self.done as f64, self.all as f64);
        let taken = self.begun.map_or(0.0, |at| at.elapsed().as_secs_f64());
        let each = if done > all * TELLING && done >= 3.0 { taken / done } else { self.each };
        each * (all - done).max(0.0)
    }
}

impl Watch for Watcher {
    fn plan(&mut self, samples: u64, seconds: f64) {
        (self.all, self.each) = (samples, seconds);
        say!("{}: {samples} samples, about {}", self.name, span(self.left()));
        if let Some(bar) = &self.bar {
            bar.set_length(samples);
            if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {wide_msg}") {
                bar.set_style(style);
            }
        }
    }

    fn at(&mut self, what: &str, is_sample: bool) {
        what.clone_into(&mut self.what);
        if is_sample {
            self.begun.get_or_insert_with(Instant::now);
        }
        let far = format!("about {} left: ", span(self.left()));
        if let Some(bar) = &self.bar {
            bar.set_message(if self.all > 0 { format!("{far}{what}") } else { what.to_owned() });
            bar.set_position(self.done);
        } else if !is_sample || self.said.is_none_or(|at| at.elapsed() > PAUSE) {
            self.said = Some(Instant::now());
            let far = if self.all > 0 { format!("{} of {}, {far}", self.done, self.all) } else { String::new() };
            say!("{}: {far}{what}", self.name);
        }
        self.done += u64::from(is_sample);
    }

    fn part(&mut self, share: f64) {
        let part = part_of(share);
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{part}about {} left: {}", span(self.left()), self.what));
        } else if self.said.is_none_or(|at| at.elapsed() > PAUSE) {
            self.said = Some(Instant::now());
            say!("{}: {part}{}", self.name, self.what);
        }
    }

    fn stop(&self) -> bool {
        self.interrupt.flag().load(Relaxed)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_a_sample_is_is_a_bar_of_one_length() {
        assert_eq!([0.0, 0.5, 1.0].map(part_of), ["[          ]   0 % ", "[=====     ]  50 % ", "[==========] 100 % "]);
    }

    #[test]
    fn times_are_said_as_people_say_them() {
        assert_eq!([4.4, 95.0, 600.0, 19_800.0].map(span), ["4 s", "2 min", "10 min", "5 h 30 min"]);
    }
}
