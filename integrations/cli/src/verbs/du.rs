//! `weldfs du`: space that files and trees take. As with du(1), what has several names, or is named several times,
//! counts once.

use crate::device::{self, Device};
use crate::entry::{allocated, path_text, write_name};
use crate::failure::{Failure, Outcome};
use crate::output::{self, each, exit_code, human_bytes};
use crate::place::Place;
use crate::walk::{Walk, When};
use serde::Serialize;
use std::collections::HashSet;
use std::io::Write;
use std::path::PathBuf;
use weldfs::Metadata;

/// Arguments of `weldfs du`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Files and trees
    #[arg(value_name = "IMAGE:/path", required = true)]
    places: Vec<Place>,
    /// Show files, too, not only directories
    #[arg(short, long, conflicts_with = "summarize")]
    all: bool,
    /// Show only what is named
    #[arg(short, long)]
    summarize: bool,
    /// Show what is at most so far below what is named
    #[arg(short = 'd', long, value_name = "N", conflicts_with = "summarize")]
    max_depth: Option<usize>,
    /// A total of everything at the end
    #[arg(short = 'c', long)]
    total: bool,
    /// Add up the sizes of files, not what is allocated to them
    #[arg(long)]
    apparent_size: bool,
    /// Whole bytes instead of K, M, G (powers of 1024)
    #[arg(short, long)]
    bytes: bool,
    /// Print one JSON array: both sums, and the number of files, of each
    #[arg(long)]
    json: bool,
}

/// What a file or tree takes.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Sum {
    allocated_bytes: u64,
    size_bytes: u64,
    /// Inodes counted.
    inodes: u64,
}

impl Sum {
    fn of(meta: &Metadata) -> Sum {
        // The size of a directory is no content.
        let size_bytes = if meta.is_dir() { 0 } else { meta.len() };
        Sum { allocated_bytes: allocated(meta), size_bytes, inodes: 1 }
    }

    fn add(&mut self, other: Sum) {
        // An image can claim any size.
        self.allocated_bytes = self.allocated_bytes.saturating_add(other.allocated_bytes);
        self.size_bytes = self.size_bytes.saturating_add(other.size_bytes);
        self.inodes += other.inodes;
    }
}

#[derive(Debug)]
struct Line {
    path: PathBuf,
    sum: Sum,
}

#[derive(Serialize)]
struct Json {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    #[serde(flatten)]
    sum: Sum,
}

/// Adds up.
pub fn run(args: &Args) -> Outcome {
    let (mut lines, mut all, mut misses) = (Vec::new(), Sum::default(), 0);
    // By image: names of one file in several places that are named count once, too.
    let mut seen: Vec<(PathBuf, HashSet<u64>)> = Vec::new();
    let failed = each(&args.places, |place| {
        let device = device::open(&place.image, device::Want::Read)?;
        let at = seen.iter().position(|(image, _)| device::same(image, &place.image)).unwrap_or_else(|| {
            seen.push((place.image.clone(), HashSet::new()));
            seen.len() - 1
        });
        let (sum, missed) = add_up(args, place, &device, &mut seen[at].1, &mut lines)?;
        all.add(sum);
        misses += missed;
        device.close()
    })?;
    if args.total {
        lines.push(Line { path: "total".into(), sum: all });
    }
    if args.json {
        let json = |line: &Line| {
            let (path, path_hex) = path_text(&line.path);
            Json { path, path_hex, sum: line.sum }
        };
        output::json(&lines.iter().map(json).collect::<Vec<_>>())?;
    } else {
        output::facts(|out| lines.iter().try_for_each(|line| print(out, args, line)))?;
    }
    Ok(exit_code(failed + misses))
}

fn add_up(
    args: &Args,
    place: &Place,
    device: &Device,
    seen: &mut HashSet<u64>,
    lines: &mut Vec<Line>,
) -> Result<(Sum, u64), Failure> {
    let depth_max = if args.summarize { 0 } else { args.max_depth.unwrap_or(usize::MAX) };
    // Of the directories that the walk is in, and the place as a whole at the bottom.
    let mut open = vec![Sum::default()];
    // What can be met a second time.
    let many = |meta: &Metadata| args.places.len() > 1 || meta.nlink() > 1 && !meta.is_dir();
    let mut walk = Walk::new(device.client(), &place.image);
    walk.tree(&place.path, false, &mut |when, step| {
        let shown = step.depth <= depth_max;
        let mut add = |sum: Sum| open.last_mut().into_iter().for_each(|last| last.add(sum));
        match when {
            When::Found if many(step.meta) && !seen.insert(step.meta.ino()) => return Ok(false),
            When::Found if step.meta.is_dir() => open.push(Sum::of(step.meta)),
            When::Found => {
                let sum = Sum::of(step.meta);
                add(sum);
                if shown && (args.all || step.depth == 0) {
                    lines.push(Line { path: step.path.to_owned(), sum });
                }
            }
            When::Left => {
                let sum = open.pop().unwrap_or_default();
                open.last_mut().into_iter().for_each(|last| last.add(sum));
                if shown {
                    lines.push(Line { path: step.path.to_owned(), sum });
                }
            }
        }
        Ok(true)
    })?;
    Ok((open.pop().unwrap_or_default(), walk.failed))
}

fn print(out: &mut dyn Write, args: &Args, line: &Line) -> std::io::Result<()> {
    let bytes = if args.apparent_size { line.sum.size_bytes } else { line.sum.allocated_bytes };
    if args.bytes {
        write!(out, "{bytes}\t")?;
    } else {
        write!(out, "{}\t", human_bytes(bytes))?;
    }
    write_name(out, &line.path)?;
    writeln!(out)
}
