//! `weldfs ls`: names in directories of an image.

use crate::dates::Dates;
use crate::device;
use crate::entry::{Entry, letters, write_name};
use crate::failure::{Doing, Failure, Outcome};
use crate::output::{self, each, exit_code};
use crate::place::Place;
use crate::walk::{Step, Walk, When};
use std::io::{self, Write};
use std::path::PathBuf;
use weldfs::{Client, Metadata};

/// Arguments of `weldfs ls`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// What to list
    #[arg(value_name = "IMAGE:/path", required = true)]
    places: Vec<Place>,
    /// Show type, permissions, links, owner, size and date
    #[arg(short, long)]
    long: bool,
    /// List directories below, too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// List directories themselves, not what is in them
    #[arg(short, long, conflicts_with = "recursive")]
    directory: bool,
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

/// One line of the listing.
struct Row {
    name: PathBuf,
    meta: Metadata,
    entry: Entry,
}

/// Lines under one heading; those of files that were named have none.
struct Section {
    heading: Option<PathBuf>,
    rows: Vec<Row>,
}

/// Lists: files that were named first, then each directory.
pub fn run(args: &Args) -> Outcome {
    let (mut named, mut below) = (Vec::new(), Vec::new());
    let mut misses = 0;
    let failed = each(&args.places, |place| {
        let device = device::open(&place.image, device::Want::Read)?;
        misses += list(args, place, device.client(), &mut named, &mut below)?;
        device.close()
    })?;
    let mut sections = vec![Section { heading: None, rows: named }];
    sections.append(&mut below);
    sections.retain(|section| section.heading.is_some() || !section.rows.is_empty());
    if args.json {
        let entries: Vec<&Entry> = sections.iter().flat_map(|s| &s.rows).map(|row| &row.entry).collect();
        output::json(&entries)?;
    } else {
        output::facts(|out| print(out, args, &sections))?;
    }
    Ok(exit_code(failed + misses))
}

fn is_no_way(e: &std::io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::EACCES))
}

/// Lists one place; how much of it could not be.
fn list(
    args: &Args,
    place: &Place,
    client: &Client,
    named: &mut Vec<Row>,
    below: &mut Vec<Section>,
) -> Result<u64, Failure> {
    let meta = client.symlink_metadata(&place.path).doing("list", place.to_string())?;
    // As in ls: a link is followed to list a directory, unless its own attributes are asked for.
    let dir = match meta.is_symlink() && !args.long {
        false => meta.is_dir(),
        true => match client.metadata(&place.path) {
            // It leads nowhere, or not where this user may go: the link is what there is to list.
            Err(e) if is_no_way(&e) => false,
            behind => behind.doing("list", place.to_string())?.is_dir(),
        },
    };
    if !dir || args.directory {
        let entry = Entry::new(client, &place.path, &place.path, &meta);
        named.push(Row { name: place.path.clone(), meta, entry });
        return Ok(0);
    }
    let mut walk = Walk::new(client, &place.image);
    // The sections of the directories that the walk is in.
    let mut open: Vec<usize> = Vec::new();
    walk.tree(&place.path, true, &mut |when, step| {
        if when == When::Left {
            return Ok(true);
        }
        open.truncate(step.depth);
        if let Some(at) = open.last().copied() {
            below[at].rows.push(row(client, place, step));
        }
        if step.depth == 0 || args.recursive && step.meta.is_dir() {
            open.push(below.len());
            below.push(Section { heading: Some(step.path.to_owned()), rows: Vec::new() });
        }
        Ok(step.depth == 0 || args.recursive)
    })?;
    Ok(walk.failed)
}

/// Of what was found in a directory. JSON has its path from the place that was named.
fn row(client: &Client, place: &Place, step: &Step<'_>) -> Row {
    let shown = step.path.strip_prefix(&place.path).unwrap_or(step.path);
    let entry = Entry::new(client, step.path, shown, step.meta);
    Row { name: step.path.file_name().unwrap_or_default().into(), meta: *step.meta, entry }
}

fn print(out: &mut dyn Write, args: &Args, sections: &[Section]) -> io::Result<()> {
    let headings = args.recursive || args.places.len() > 1;
    let dates = Dates::new();
    for (i, section) in sections.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        if let Some(heading) = section.heading.as_ref().filter(|_| headings) {
            write_name(out, heading)?;
            writeln!(out, ":")?;
        }
        match args.long {
            true => print_long(out, &section.rows, &dates)?,
            false => section.rows.iter().try_for_each(|row| {
                write_name(out, &row.name)?;
                writeln!(out)
            })?,
        }
    }
    Ok(())
}

fn print_long(out: &mut dyn Write, rows: &[Row], dates: &Dates) -> io::Result<()> {
    let wide = |of: fn(&Metadata) -> u64| rows.iter().map(|row| of(&row.meta).to_string().len()).max().unwrap_or(0);
    let (links, size) = (wide(|m| m.nlink().into()), wide(Metadata::len));
    let (uid, gid) = (wide(|m| m.uid().into()), wide(|m| m.gid().into()));
    for Row { name, meta, entry } in rows {
        write!(out, "{} {:>links$} {:>uid$} {:>gid$} ", letters(meta), meta.nlink(), meta.uid(), meta.gid())?;
        write!(out, "{:>size$} {} ", meta.len(), dates.short(meta.body().mtime))?;
        write_name(out, name)?;
        if let Some(target) = &entry.target_path {
            write!(out, " -> ")?;
            write_name(out, target)?;
        }
        writeln!(out)?;
    }
    Ok(())
}
