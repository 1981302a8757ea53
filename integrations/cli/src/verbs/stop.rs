//! `weldfs stop`: asks a device to end cleanly, and waits until it has.

use crate::device::socket_at;
use crate::failure::{Failure, Outcome, reason};
use crate::find;
use std::path::PathBuf;
use std::time::Duration;
use weldfs::Errno;

/// Arguments of `weldfs stop`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "When it returns 0, all sessions have ended, the image is closed, clean and free for the next use.\n\
It is allowed to root, the user that runs the device, and the owner of the image."
)]
pub struct Args {
    /// The device's socket, or the image or directory that it serves
    #[arg(value_name = "SOCKET|IMAGE|DIR")]
    device: PathBuf,
    /// How long to wait for the end, seconds
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = find::parse_timeout)]
    timeout: Duration,
}

/// Stops.
pub fn run(args: &Args) -> Outcome {
    find::wait()?;
    let name = args.device.display();
    let socket = socket_at(&args.device);
    let Err(e) = find::connector(&args.device, &socket).and_then(|c| c.stop(args.timeout)) else { return Ok(0) };
    let at = socket.display();
    let why = match e.raw_os_error().map(Errno) {
        _ if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused) => {
            format!("no device serves {name}")
        }
        Some(Errno::PERM) => {
            format!("{name}: only root, the user that runs the device at {at} and the owner of the image may stop it")
        }
        Some(Errno::OPNOTSUPP) => {
            format!("{name}: the device at {at} belongs to a program (weldfs run) and ends with it")
        }
        Some(Errno::AGAIN) => {
            let seconds = args.timeout.as_secs_f64();
            let why = "it takes no connections, and was asked nothing";
            format!("{name}: the device at {at} was not reached within {seconds} s: {why}")
        }
        Some(Errno::TIMEDOUT) => {
            let seconds = args.timeout.as_secs_f64();
            format!("{name}: the device at {at} has not ended within {seconds} s; the request is with it, and stands")
        }
        Some(Errno::NODEV) => format!(
            "{name}: the device at {at} was gone before it could answer; `weldfs info` says whether its image is clean"
        ),
        Some(Errno::IO) => format!("{name}: the device at {at} ended, and not cleanly: its log says why"),
        _ => format!("cannot stop the device at {at}: {}", reason(&e)),
    };
    Err(Failure::new(why))
}
