//! `weldfs ls`: names in a directory of an image.

use crate::device;
use crate::failure::{Doing, Failure, Outcome};
use crate::output;
use crate::place::Place;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use weldfs::{Client, Metadata};

/// Arguments of `weldfs ls`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// What to list
    #[arg(value_name = "IMAGE:/path", required = true)]
    places: Vec<Place>,
    /// Show type, permissions, links, owner, size and time
    #[arg(short, long)]
    long: bool,
    /// List directories below, too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

/// One line of the listing.
#[derive(Debug, Serialize)]
pub struct Row {
    path: PathBuf,
    kind: &'static str,
    ino: u64,
    mode: String,
    nlink: u32,
    uid: u32,
    gid: u32,
    size: u64,
    mtime: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<PathBuf>,
}

/// Lists.
pub fn run(args: &Args) -> Outcome {
    let mut rows = Vec::new();
    for place in &args.places {
        let device = device::open(&place.image, device::Want::Read)?;
        let client = device.client();
        let meta = client.symlink_metadata(&place.path).doing("list", place.to_string())?;
        if meta.is_dir() {
            walk(client, place, &place.path, Path::new(""), args.recursive, &mut rows)?;
        } else {
            rows.push(row(client, &place.path, place.path.clone(), &meta));
        }
        device.close()?;
    }
    if args.json {
        output::json(&rows)?;
    } else {
        output::facts(|out| print(out, &rows, args.long))?;
    }
    Ok(0)
}

fn walk(
    client: &Client,
    place: &Place,
    dir: &Path,
    shown: &Path,
    recursive: bool,
    rows: &mut Vec<Row>,
) -> Result<(), Failure> {
    let open = client.open_dir(dir).doing("list", place.to_string())?;
    let entries = open.entries().collect::<std::io::Result<Vec<_>>>().doing("list", place.to_string())?;
    let mut names: Vec<_> = entries.into_iter().map(|entry| entry.name).collect();
    names.sort();
    for name in names {
        let (path, label) = (dir.join(&name), shown.join(&name));
        // A name that went away since the listing is no error.
        let Ok(meta) = client.symlink_metadata(&path) else { continue };
        rows.push(row(client, &path, label.clone(), &meta));
        if recursive && meta.is_dir() {
            walk(client, place, &path, &label, recursive, rows)?;
        }
    }
    Ok(())
}

fn row(client: &Client, path: &Path, shown: PathBuf, meta: &Metadata) -> Row {
    let body = meta.body();
    Row {
        path: shown,
        kind: kind(meta),
        ino: meta.ino(),
        mode: format!("{:04o}", meta.permissions()),
        nlink: meta.nlink(),
        uid: meta.uid(),
        gid: meta.gid(),
        size: meta.len(),
        mtime: body.mtime.sec as f64 + f64::from(body.mtime.nsec) / 1e9,
        target: meta.is_symlink().then(|| client.read_link(path).ok()).flatten(),
    }
}

/// The type in one word.
pub fn kind(meta: &Metadata) -> &'static str {
    match meta.mode() & 0o170000 {
        0o040000 => "directory",
        0o100000 => "file",
        0o120000 => "symlink",
        0o010000 => "fifo",
        0o140000 => "socket",
        0o020000 | 0o060000 => "device",
        _ => "unknown",
    }
}

fn print(out: &mut dyn Write, rows: &[Row], long: bool) -> std::io::Result<()> {
    for row in rows {
        if long {
            let letter = match row.kind {
                "directory" => 'd',
                "symlink" => 'l',
                "file" => '-',
                _ => '?',
            };
            let (mode, nlink, uid, gid) = (&row.mode, row.nlink, row.uid, row.gid);
            write!(out, "{letter}{mode} {nlink:>3} {uid:>5} {gid:>5} {:>12} {:>16.3} ", row.size, row.mtime)?;
        }
        match &row.target {
            Some(target) if long => writeln!(out, "{} -> {}", row.path.display(), target.display())?,
            _ => writeln!(out, "{}", row.path.display())?,
        }
    }
    Ok(())
}
