//! `weldfs wait`: until a device answers.

use crate::device::{is_socket, socket_of};
use crate::failure::{Failure, Outcome};
use crate::find;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Arguments of `weldfs wait`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Exit codes: 0 the device answers, so its image is recovered and mounted; 1 it did not in time,\n\
or cannot be attached to. Nothing need be there yet.\n\n\
Example:\n  weldfs serve disk.img & weldfs wait disk.img && weldfs ls disk.img:/"
)]
pub struct Args {
    /// The device's socket, or the image or directory that it serves
    #[arg(value_name = "SOCKET|IMAGE|DIR")]
    device: PathBuf,
    /// How long at most, seconds; 0: only look
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = find::parse_timeout)]
    timeout: Duration,
}

/// Waits.
pub fn run(args: &Args) -> Outcome {
    find::wait()?;
    let until = Instant::now() + args.timeout;
    loop {
        if answers(&args.device, until)? {
            return Ok(0);
        }
        if Instant::now() >= until {
            let seconds = args.timeout.as_secs_f64();
            return Err(Failure::new(format!("{}: no device answers within {seconds} s", args.device.display())));
        }
        std::thread::sleep(find::PAUSE);
    }
}

/// Whether there is an answer; a device that listens is waited for.
fn answers(device: &Path, until: Instant) -> Result<bool, Failure> {
    let socket = match find::by_lock(device) {
        _ if is_socket(device) => device.to_owned(),
        Some(found) => found.socket,
        None => socket_of(device),
    };
    match find::connect(device, &socket, until) {
        Ok(client) => Ok(client.raw().nop().is_ok()),
        Err(e) if find::is_gone(&e) || e.kind() == std::io::ErrorKind::TimedOut => Ok(false),
        // What is in the way of IMAGE.sock may be gone when the device starts.
        Err(_) if !is_socket(&socket) => Ok(false),
        Err(e) => Err(find::cannot_attach(&socket, &e)),
    }
}
