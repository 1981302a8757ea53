//! Facts go to stdout (as JSON on request), progress to a terminal on stderr, everything else to the log.
//!
//! A closed pipe is met in one place: [`facts`] turns it into [`Failure::reader_gone`], which every verb passes on with
//! `?` like any failure. So a verb that streams ends at its next line, devices in this process are closed in order on
//! the way out, and `main` says nothing. A verb that still has something to do, or whose exit code is a verdict, writes
//! through [`even_unread`]. SIGPIPE stays ignored: it would end a device in the middle of its work.

use crate::failure::{Doing, FAILED, Failure, USAGE};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// Writes facts to stdout.
///
/// # Errors
/// [`Failure::reader_gone`] when nothing reads them any more; what else keeps them from being written.
pub fn facts(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let done = write(&mut out).and_then(|()| out.flush());
    // What a failed write left behind must not be tried again.
    let _ = out.into_parts();
    match done {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(Failure::reader_gone()),
        done => done.doing("write to", "stdout"),
    }
}

/// For a verb that goes on after it has printed, or whose exit code says what it found: it does so even if nothing
/// reads what it prints.
pub fn even_unread(done: Result<(), Failure>) -> Result<(), Failure> {
    match done {
        Err(failure) if failure.is_reader_gone() => Ok(()),
        done => done,
    }
}

/// Sleeps, or notices within that time that nothing reads stdout any more; true then. (What only writes now and then
/// would notice with its next line.)
pub fn wait_or_reader_gone(time: Duration) -> bool {
    let stdout = io::stdout();
    // Asked for nothing: only what cannot be refused is reported, an error among it. That of a pipe means no reader.
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    match poll(&mut fds, Some(&timeout)) {
        Ok(0) => false,
        Ok(_) if fds[0].revents().contains(PollFlags::ERR) => true,
        // A terminal that hung up, or a closed stdout: its writes say so.
        _ => {
            std::thread::sleep(time);
            false
        }
    }
}

/// Says something on stderr, if anything reads that.
macro_rules! say {
    ($($arg:tt)*) => { $crate::output::tell(format_args!($($arg)*)) };
}
pub(crate) use say;

/// What [`say!`] calls. It is one line whatever names are in it.
pub fn tell(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{}", plain(&what.to_string()));
}

/// A text with control characters written out, as `\n` and `\u{1b}`: names are others' and may hold what moves a
/// terminal's cursor, or begins a line that looks like a message.
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if c.is_control() { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown.into()
}

/// Does something with each of what was named. A failure of one is a line on stderr and keeps the others from nothing;
/// returned is how many there were.
///
/// # Errors
/// What would be wrong for each of them: the command line, or that nothing reads what is printed any more.
pub fn each<T>(all: &[T], mut one: impl FnMut(&T) -> Result<(), Failure>) -> Result<u64, Failure> {
    let mut failed = 0;
    for named in all {
        match one(named) {
            Err(failure) if failure.is_reader_gone() || failure.code == USAGE => return Err(failure),
            Err(failure) => {
                say!("weldfs: {failure}");
                failed += 1;
            }
            Ok(()) => {}
        }
    }
    Ok(failed)
}

/// The exit code when so much of what was asked for could not be done, each with a line on stderr.
pub fn exit_code(failed: u64) -> u8 {
    if failed == 0 { 0 } else { FAILED }
}

/// Prints one JSON value and a newline.
pub fn json(value: &impl serde::Serialize) -> Result<(), Failure> {
    facts(|out| {
        serde_json::to_writer_pretty(&mut *out, value)?;
        out.write_all(b"\n")
    })
}

/// A bar over `bytes` (with `None`: a count that grows); silent where stderr is not a terminal.
pub fn progress(bytes: Option<u64>) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = match bytes {
        Some(bytes) => ProgressBar::new(bytes),
        None => ProgressBar::new_spinner(),
    };
    let shape = if bytes.is_some() { "{wide_bar} {bytes}/{total_bytes} {msg}" } else { "{spinner} {bytes} {msg}" };
    match ProgressStyle::with_template(shape) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// `1536` as `1.5K`, in powers of 1024.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { bytes.to_string() } else { format!("{value:.1}{}", UNITS[unit]) }
}

/// `10M`, `1.5G`, `4096`: bytes in powers of 1024, for arguments.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let lower = lower.strip_suffix("ib").or_else(|| lower.strip_suffix('b')).unwrap_or(&lower);
    let (digits, shift) = match lower.char_indices().last() {
        Some((at, unit @ ('k' | 'm' | 'g' | 't'))) => {
            (&lower[..at], 10 * (1 + "kmgt".find(unit).expect("one of the four just matched")))
        }
        _ => (lower, 0),
    };
    let bad = || format!("'{text}' is not a size: say 4096, 64M or 1.5G");
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or_else(bad);
    }
    let value: f64 = digits.parse().map_err(|_| bad())?;
    let bytes = value * (1u64 << shift) as f64;
    if bytes.is_finite() && (0.0..9.0e18).contains(&bytes) { Ok(bytes as u64) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_and_print_in_powers_of_1024() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("64M"), Ok(64 << 20));
        assert_eq!(parse_bytes("1.5GiB"), Ok(3 << 29));
        assert!(parse_bytes("lots").is_err() && parse_bytes("-1").is_err() && parse_bytes("99999999999T").is_err());
        assert_eq!((human_bytes(1000).as_str(), human_bytes(1536).as_str()), ("1000", "1.5K"));
    }
}
