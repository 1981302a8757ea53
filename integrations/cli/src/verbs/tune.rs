//! `weldfs tune`: changes settings of a running device, or lists them.

use crate::device;
use crate::failure::{Failure, Outcome, reason};
use crate::output;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use weldfs::{Client, Errno};

/// Arguments of `weldfs tune`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Without a setting, all of them are listed with value and range. Changes hold until the device\n\
ends; only root and the user that runs the device can make them.\n\n\
Examples:\n  weldfs tune disk.img scheduler.policy=eevdf scheduler.quantum_us=50\n  \
weldfs tune disk.img tenant.web.weight=400\n  \
weldfs tune disk.img link.bandwidth=4GB/s link.latency=900ns\n  \
weldfs tune disk.img slots.count=5 slots.clock=125MHz\n\n\
docs/PROFILES.md has what is modelled: link.*, media.*, core.* and slots.*."
)]
pub struct Args {
    /// The device's socket, or the image or directory that it serves
    #[arg(value_name = "SOCKET|IMAGE|DIR")]
    image: PathBuf,
    /// Settings to change, in this order
    #[arg(value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// List as JSON
    #[arg(long, conflicts_with = "settings")]
    json: bool,
}

/// Where there is nothing to set.
const HOSTDIR: &str = "a directory of the host is served there, which has no settings";

#[derive(Serialize, Deserialize)]
struct Setting {
    key: String,
    value: String,
    range: String,
    what: String,
}

/// Changes or lists.
pub fn run(args: &Args) -> Outcome {
    let client = device::running(&args.image)?;
    for setting in &args.settings {
        change(&client, setting)?;
    }
    if !args.settings.is_empty() {
        return Ok(0);
    }
    let all = list(&client)?;
    if args.json {
        output::json(&all)?;
        return Ok(0);
    }
    output::facts(|out| {
        let wide = |of: fn(&Setting) -> usize| all.iter().map(of).max().unwrap_or(0);
        let (keys, values, ranges) = (wide(|s| s.key.len()), wide(|s| s.value.len()), wide(|s| s.range.len()));
        all.iter().try_for_each(|s| {
            writeln!(out, "{:<keys$} = {:<values$}  {:<ranges$}  {}", s.key, s.value, s.range, s.what)
        })
    })?;
    Ok(0)
}

fn list(client: &Client) -> Result<Vec<Setting>, Failure> {
    let text = client.settings_json().map_err(|e| match e.raw_os_error().map(Errno) {
        Some(Errno::OPNOTSUPP) => Failure::new(HOSTDIR),
        _ => Failure::new(format!("cannot list settings: {}", reason(&e))),
    })?;
    serde_json::from_str(&text).map_err(|e| Failure::new(format!("the device's list of settings: {e}")))
}

/// Changes one; what has been changed before it stays.
fn change(client: &Client, setting: &str) -> Result<(), Failure> {
    let Err(e) = client.tune(setting) else { return Ok(()) };
    let (key, value) = setting.split_once('=').map_or((setting, ""), |(k, v)| (k.trim(), v.trim()));
    Err(match e.raw_os_error().map(Errno) {
        Some(Errno::INVAL) => Failure::usage(format!("'{setting}' is not of the form KEY=VALUE")),
        Some(Errno::NOENT) if key.starts_with("media.") => Failure::new(format!(
            "{key}: no medium is modelled there: serve it with a profile that has a [media] table (docs/PROFILES.md)"
        )),
        Some(Errno::NOENT) => {
            Failure::new(format!("there is no setting '{key}' (without settings, this verb lists all)"))
        }
        Some(Errno::RANGE) => {
            let range = list(client).ok().and_then(|all| all.into_iter().find(|s| s.key == key));
            let range = range.map_or_else(|| "something else".to_owned(), |s| s.range);
            Failure::new(format!("{key} cannot be '{value}': it is {range}"))
        }
        Some(Errno::BUSY) => Failure::new(format!(
            "{key} cannot change now: a slot that it would take away or resize is in use (weldfs stats shows which)"
        )),
        Some(Errno::OPNOTSUPP) => Failure::new(HOSTDIR),
        Some(Errno::PERM) => Failure::new(format!("{key}: only root and the user that runs the device may change it")),
        _ => Failure::new(format!("cannot set {setting}: {}", reason(&e))),
    })
}
