//! `weldfs top`: who uses a running device, as it happens.

mod interval;
mod screen;
mod table;

use crate::device::running;
use crate::failure::{Doing, Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::observe::{parse_seconds, sleep_while_read, stats};
use crate::output;
use interval::{Interval, Sort};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use screen::{Asked, Screen};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use weldfs::Client;
use weldfs_ciscops::attach::detail;
use weldfs_device::DeviceStats;

/// Arguments of `weldfs top`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Keys: q ends, s changes the order, p stops the picture, i shows inode queues, arrows scroll.\n\
Without a terminal: a table per interval, until Ctrl-C. docs/OBSERVABILITY.md explains the columns."
)]
pub struct Args {
    /// The device's socket, or the image or directory that it serves
    #[arg(value_name = "SOCKET|IMAGE|DIR")]
    device: PathBuf,
    /// Seconds between looks
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "1")]
    interval: Duration,
    /// One interval as text, then end
    #[arg(long)]
    once: bool,
    /// JSON instead of text: one object with --once, else one per line and interval
    #[arg(long)]
    json: bool,
    /// The order of tenants
    #[arg(long, value_enum, default_value = "share")]
    sort: Sort,
    /// The inode queues, too
    #[arg(long)]
    inodes: bool,
}

/// Longest wait for a key: how late a signal is noticed.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// Runs the verb. Without a terminal: a table per interval, until Ctrl-C.
pub fn run(args: &Args) -> Outcome {
    let client = running(&args.device)?;
    let dumb = std::env::var_os("TERM").is_none_or(|t| t.is_empty() || t == "dumb");
    if args.once || args.json || dumb || !std::io::stdout().is_terminal() {
        return lines(args, &client);
    }
    interactive(args, &client)
}

fn look(args: &Args, client: &Client, inodes: bool) -> Result<DeviceStats, Failure> {
    stats(client, &args.device, if inodes { detail::INODE_QUEUES } else { 0 })
}

fn lines(args: &Args, client: &Client) -> Outcome {
    let interrupt = Interrupt::catch()?;
    let mut before = look(args, client, args.inodes)?;
    loop {
        if !sleep_while_read(Instant::now() + args.interval, interrupt.flag()) {
            return Ok(0);
        }
        let now = look(args, client, args.inodes)?;
        let mut interval = Interval::between(&before, &now);
        if args.json && args.once {
            args.sort.apply(&mut interval.tenants);
            output::json(&interval)?;
        } else {
            output::facts(|out| {
                if !args.json {
                    return table::plain(out, &interval, args.sort);
                }
                serde_json::to_writer(&mut *out, &interval)?;
                out.write_all(b"\n")
            })?;
        }
        if args.once {
            return Ok(0);
        }
        before = now;
    }
}

/// The terminal in the state that a screen needs; as it was before when this is dropped, and when the process panics.
struct Prepared(ratatui::DefaultTerminal);

impl Prepared {
    fn new() -> Result<Prepared, Failure> {
        ratatui::try_init().map(Prepared).doing("draw on", "the terminal")
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn interactive(args: &Args, client: &Client) -> Outcome {
    // Caught before the terminal is changed: a signal that comes meanwhile leaves it as it was.
    let interrupt = Interrupt::catch()?;
    let mut terminal = Prepared::new()?;
    let mut screen = Screen { sort: args.sort, inodes: args.inodes, ..Screen::default() };
    watch(args, client, &mut terminal.0, &mut screen, interrupt.flag())?;
    Ok(0)
}

fn watch(
    args: &Args,
    client: &Client,
    terminal: &mut ratatui::DefaultTerminal,
    screen: &mut Screen,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let mut before = look(args, client, screen.inodes)?;
    let mut next = Instant::now() + args.interval;
    let mut draw = true;
    while !stop.load(Relaxed) {
        if draw {
            terminal.draw(|frame| screen.draw(frame)).doing("draw on", "the terminal")?;
            draw = false;
        }
        let wait = next.saturating_duration_since(Instant::now()).min(KEY_WAIT);
        if event::poll(wait).doing("read keys from", "the terminal")? {
            match event::read().doing("read keys from", "the terminal")? {
                Event::Key(key) if key.kind == KeyEventKind::Press => match screen.key(key) {
                    Asked::Quit => return Ok(()),
                    Asked::Draw => draw = true,
                    Asked::Nothing => {}
                },
                Event::Resize(..) => draw = true,
                _ => {}
            }
        }
        if Instant::now() >= next {
            next = Instant::now() + args.interval;
            let now = look(args, client, screen.inodes)?;
            if !screen.paused {
                screen.interval = Some(Interval::between(&before, &now));
                draw = true;
            }
            before = now;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
