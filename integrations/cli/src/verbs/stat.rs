//! `weldfs stat`: attributes of files in an image.

use crate::device;
use crate::failure::{Doing, Outcome};
use crate::output;
use crate::place::Place;
use crate::verbs::ls::kind;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use weldfs::{Metadata, WireTime};

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

#[derive(Serialize)]
struct Facts {
    path: PathBuf,
    kind: &'static str,
    ino: u64,
    generation: u64,
    mode: String,
    nlink: u32,
    uid: u32,
    gid: u32,
    size_bytes: u64,
    allocated_bytes: u64,
    atime: String,
    mtime: String,
    ctime: String,
    btime: String,
}

/// Seconds since 1970 with nine decimals; exact, unlike a float.
fn seconds(t: WireTime) -> String {
    format!("{}.{:09}", t.sec, t.nsec)
}

fn facts(path: PathBuf, meta: &Metadata) -> Facts {
    let body = meta.body();
    Facts {
        path,
        kind: kind(meta),
        ino: body.ino,
        generation: body.generation,
        mode: format!("{:04o}", meta.permissions()),
        nlink: body.nlink,
        uid: body.uid,
        gid: body.gid,
        size_bytes: body.size,
        allocated_bytes: body.blocks512 * 512,
        atime: seconds(body.atime),
        mtime: seconds(body.mtime),
        ctime: seconds(body.ctime),
        btime: seconds(body.btime),
    }
}

/// Reports.
pub fn run(args: &Args) -> Outcome {
    let mut all = Vec::new();
    for place in &args.places {
        let device = device::open(&place.image, device::Want::Read)?;
        let client = device.client();
        let meta = if args.dereference { client.metadata(&place.path) } else { client.symlink_metadata(&place.path) };
        all.push(facts(place.path.clone(), &meta.doing("stat", place.to_string())?));
        device.close()?;
    }
    if args.json {
        output::json(&all)?;
        return Ok(0);
    }
    output::facts(|out| all.iter().try_for_each(|f| print(out, f)))?;
    Ok(0)
}

fn print(out: &mut dyn Write, f: &Facts) -> std::io::Result<()> {
    writeln!(out, "  path: {}\n  type: {}  inode: {}  generation: {}", f.path.display(), f.kind, f.ino, f.generation)?;
    writeln!(out, "  size: {} bytes, {} allocated", f.size_bytes, f.allocated_bytes)?;
    writeln!(out, "  mode: {}  links: {}  uid: {}  gid: {}", f.mode, f.nlink, f.uid, f.gid)?;
    writeln!(out, " atime: {}\n mtime: {}\n ctime: {}\n btime: {}", f.atime, f.mtime, f.ctime, f.btime)
}
