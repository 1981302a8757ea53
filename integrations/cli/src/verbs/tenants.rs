//! `weldfs tenants`: who is charged by a running device, with limits and what each holds; and the way to a token.

use crate::device;
use crate::failure::{Failure, Outcome, reason};
use crate::output::{self, human_bytes};
use std::path::PathBuf;
use weldfs::Errno;
use weldfs_device::TenantReport;

/// Arguments of `weldfs tenants`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "A process started with WELDFS_TENANT_TOKEN=TOKEN in its environment belongs to the tenant that\n\
the token was minted for. Tokens hold until the device ends; only root and the user that runs the\n\
device can ask for them. docs/SERVING.md describes the tenants file."
)]
pub struct Args {
    /// The device's socket, or the image or directory that it serves
    #[arg(value_name = "SOCKET|IMAGE|DIR")]
    image: PathBuf,
    /// Print the token of this tenant, and nothing else
    #[arg(long, value_name = "NAME", conflicts_with = "json")]
    token: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Lists tenants, or prints a token.
pub fn run(args: &Args) -> Outcome {
    let client = device::running(&args.image)?;
    if let Some(name) = &args.token {
        let token = client.tenant_token(name).map_err(|e| no_token(name, &e))?;
        output::facts(|out| writeln!(out, "{token}"))?;
        return Ok(0);
    }
    let text = client.tenants_json().map_err(|e| Failure::new(format!("cannot list tenants: {}", reason(&e))))?;
    let tenants: Vec<TenantReport> =
        serde_json::from_str(&text).map_err(|e| Failure::new(format!("the device's list of tenants: {e}")))?;
    if args.json {
        output::json(&tenants)?;
        return Ok(0);
    }
    output::facts(|out| {
        writeln!(
            out,
            "{:<24} {:>6} {:>5}  {:>12} {:>12} {:>13} {:>14} {:>13}",
            "tenant", "weight", "token", "in flight", "sessions", "queue pairs", "handles", "pools"
        )?;
        tenants.iter().try_for_each(|t| {
            let (u, l) = (&t.usage, &t.limits);
            writeln!(
                out,
                "{:<24} {:>6} {:>5}  {:>12} {:>12} {:>13} {:>14} {:>13}",
                t.name,
                t.weight,
                if t.token { "yes" } else { "no" },
                format!("{}/{}", u.in_flight, l.in_flight),
                format!("{}/{}", u.sessions, l.sessions),
                format!("{}/{}", u.queue_pairs, l.queue_pairs),
                format!("{}/{}", u.handles, l.handles),
                format!("{}/{}", human_bytes(u.pool_bytes), human_bytes(l.pool_bytes)),
            )
        })
    })?;
    Ok(0)
}

fn no_token(name: &str, e: &std::io::Error) -> Failure {
    let why = match e.raw_os_error().map(Errno) {
        Some(Errno::NOENT) => "there is no such tenant".to_owned(),
        Some(Errno::OPNOTSUPP) => "the tenants file gives it none (token = true)".to_owned(),
        Some(Errno::PERM) => "only root and the user that runs the device may ask for it".to_owned(),
        _ => reason(e),
    };
    Failure::new(format!("no token for tenant {name}: {why}"))
}
