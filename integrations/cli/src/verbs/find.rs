//! `weldfs find`: names in trees of an image, by what they are called and what they are.

mod filter;

use crate::device;
use crate::entry::{Entry, write_name};
use crate::failure::{Failure, Outcome};
use crate::output::{self, each, exit_code, say};
use crate::place::Place;
use crate::walk::{Step, Walk, When};
use filter::Filter;
use std::os::unix::ffi::OsStrExt;
use std::time::{SystemTime, UNIX_EPOCH};
use weldfs::Client;

/// Arguments of `weldfs find`.
#[derive(clap::Args, Debug)]
#[command(after_help = "All that is asked for must hold. N is a number, +N more than that, -N less.\n\n\
Examples:\n  weldfs find disk.img:/ --name '*.log' --size +1M\n  weldfs find disk.img:/ --inode 4711\n  \
weldfs find disk.img:/src --type f --print0 | xargs -0 -n1 -I{} weldfs cat disk.img:{}")]
pub struct Args {
    /// Where to look
    #[arg(value_name = "IMAGE:/path", required = true)]
    places: Vec<Place>,
    #[command(flatten)]
    filter: Filter,
    /// At most so far below what is named
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    max_depth: Option<usize>,
    /// At least so far below what is named
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = 0)]
    min_depth: usize,
    /// End each name with a zero byte instead of a line end
    #[arg(short = '0', long, conflicts_with = "json")]
    print0: bool,
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

/// Looks, and prints what it finds as it finds it.
pub fn run(args: &Args) -> Outcome {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    let (mut entries, mut misses) = (Vec::new(), 0);
    let failed = each(&args.places, |place| {
        let device = device::open(&place.image, device::Want::Read)?;
        let client = device.client();
        let mut walk = Walk::new(client, &place.image);
        let done = walk.tree(&place.path, false, &mut |when, step| {
            if when == When::Found && step.depth >= args.min_depth {
                match args.filter.holds(client, step, now) {
                    Ok(true) => found(args, client, step, &mut entries)?,
                    Ok(false) => {}
                    Err(failure) => {
                        say!("weldfs: {failure}");
                        misses += 1;
                    }
                }
            }
            Ok(args.max_depth.is_none_or(|max| step.depth < max))
        });
        misses += walk.failed;
        done.and(device.close())
    })?;
    if args.json {
        output::json(&entries)?;
    }
    Ok(exit_code(failed + misses))
}

fn found(args: &Args, client: &Client, step: &Step<'_>, entries: &mut Vec<Entry>) -> Result<(), Failure> {
    if args.json {
        entries.push(Entry::new(client, step.path, step.path, step.meta));
        return Ok(());
    }
    output::facts(|out| {
        if args.print0 {
            out.write_all(step.path.as_os_str().as_bytes())?;
            return out.write_all(b"\0");
        }
        write_name(out, step.path)?;
        out.write_all(b"\n")
    })
}
