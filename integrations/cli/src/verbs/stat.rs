//! `weldfs stat`: attributes of files in an image.

use crate::dates::Dates;
use crate::device;
use crate::entry::{Entry, letters, write_name};
use crate::failure::{Doing, Outcome};
use crate::output::{self, each, exit_code};
use crate::place::Place;
use std::io::Write;
use std::path::Path;
use weldfs::Metadata;

/// Arguments of `weldfs stat`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// What to look at
    #[arg(value_name = "IMAGE:/path", required = true)]
    places: Vec<Place>,
    /// Look at what a symbolic link names, not at the link
    #[arg(short = 'L', long)]
    dereference: bool,
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

/// Reports.
pub fn run(args: &Args) -> Outcome {
    let mut all = Vec::new();
    let failed = each(&args.places, |place| {
        let device = device::open(&place.image, device::Want::Read)?;
        let client = device.client();
        let meta = if args.dereference { client.metadata(&place.path) } else { client.symlink_metadata(&place.path) };
        let meta = meta.doing("stat", place.to_string())?;
        all.push((Entry::new(client, &place.path, &place.path, &meta), meta, place.path.clone()));
        device.close()
    })?;
    if args.json {
        output::json(&all.iter().map(|(entry, ..)| entry).collect::<Vec<_>>())?;
        return Ok(exit_code(failed));
    }
    let dates = Dates::new();
    output::facts(|out| all.iter().try_for_each(|(entry, meta, path)| print(out, &dates, entry, meta, path)))?;
    Ok(exit_code(failed))
}

fn print(out: &mut dyn Write, dates: &Dates, e: &Entry, meta: &Metadata, path: &Path) -> std::io::Result<()> {
    write!(out, "  path: ")?;
    write_name(out, path)?;
    if let Some(target) = &e.target_path {
        write!(out, " -> ")?;
        write_name(out, target)?;
    }
    writeln!(out, "\n  type: {}  inode: {}  generation: {}", e.kind, e.inode, e.generation)?;
    writeln!(out, "  size: {} bytes, {} allocated", e.size_bytes, e.allocated_bytes)?;
    writeln!(out, "  mode: {} {}  links: {}  uid: {}  gid: {}", e.mode, letters(meta), e.nlink, e.uid, e.gid)?;
    let body = meta.body();
    for (name, time) in [("atime", body.atime), ("mtime", body.mtime), ("ctime", body.ctime), ("btime", body.btime)] {
        writeln!(out, " {name}: {}", dates.long(time))?;
    }
    Ok(())
}
