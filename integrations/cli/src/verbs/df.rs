//! `weldfs df`: space of images.

use crate::device;
use crate::entry::path_text;
use crate::failure::{Doing, Failure, Outcome};
use crate::output::{self, each, exit_code, human_bytes};
use crate::place::{Place, Whole};
use crate::verbs::info::medium_of;
use serde::Serialize;
use std::io::Write;
use std::path::Path;
use weldfs::StatfsBody;

/// Arguments of `weldfs df`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Of a directory served with --hostdir: the space of the host's file system it is in.")]
pub struct Args {
    /// Images, sockets of running devices, or paths inside
    #[arg(value_name = "SOCKET|IMAGE|DIR|IMAGE:/path", required = true)]
    images: Vec<Whole>,
    /// Whole bytes instead of K, M, G (powers of 1024)
    #[arg(short, long)]
    bytes: bool,
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

/// The space of one file system.
#[derive(Debug, Serialize)]
struct Space {
    image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_hex: Option<String>,
    label: String,
    medium: &'static str,
    /// All that files and metadata can have.
    size_bytes: u64,
    /// What they have.
    used_bytes: u64,
    /// What can still be written.
    free_bytes: u64,
    used_percent: f64,
    /// Files and directories there are.
    inodes: u64,
    /// How many more there can be, if each takes no more than its metadata.
    free_inodes: u64,
}

impl Space {
    fn new(image: &Path, label: String, medium: &'static str, fs: &StatfsBody) -> Space {
        let (image, image_hex) = path_text(image);
        let bytes = |blocks: u64| blocks.saturating_mul(fs.bsize);
        let (used, free) = (fs.blocks.saturating_sub(fs.bfree), fs.bavail);
        // As df has it: of what a user can have.
        let all = used.saturating_add(free);
        let used_percent = if all == 0 { 0.0 } else { (used as f64 / all as f64 * 1000.0).ceil() / 10.0 };
        Space {
            image,
            image_hex,
            label,
            medium,
            size_bytes: bytes(fs.blocks),
            used_bytes: bytes(used),
            free_bytes: bytes(free),
            used_percent,
            inodes: fs.files.saturating_sub(fs.ffree),
            free_inodes: fs.ffree,
        }
    }
}

/// Reports.
pub fn run(args: &Args) -> Outcome {
    let mut all = Vec::new();
    let failed = each(&args.images, |whole| {
        all.push(look(whole)?);
        Ok(())
    })?;
    if args.json {
        output::json(&all)?;
    } else if !all.is_empty() {
        output::facts(|out| print(out, &all, args.bytes))?;
    }
    Ok(exit_code(failed))
}

fn look(whole: &Whole) -> Result<Space, Failure> {
    let image = &whole.image;
    let device = device::open(image, device::Want::Read)?;
    if let Some(path) = &whole.path {
        // What is named must be there.
        let place = Place { image: image.clone(), path: path.clone() };
        device.client().metadata(path).doing("look at", place.to_string())?;
    }
    let fs = device.client().statfs().doing("ask for the space of", image)?;
    let info = device.client().info().doing("ask", image)?;
    device.close()?;
    Ok(Space::new(image, info.label, medium_of(info.medium), &fs))
}

fn print(out: &mut dyn Write, all: &[Space], bytes: bool) -> std::io::Result<()> {
    let size = |n: u64| if bytes { n.to_string() } else { human_bytes(n) };
    let wide = all.iter().map(|s| s.image.chars().count()).max().unwrap_or(0).max(5);
    let number = if bytes { 16 } else { 8 };
    writeln!(
        out,
        "{:<wide$} {:>number$} {:>number$} {:>number$} {:>5} {:>10}  medium",
        "image", "size", "used", "free", "use%", "inodes"
    )?;
    for s in all {
        writeln!(
            out,
            "{:<wide$} {:>number$} {:>number$} {:>number$} {:>4.0}% {:>10}  {}",
            s.image,
            size(s.size_bytes),
            size(s.used_bytes),
            size(s.free_bytes),
            s.used_percent.ceil(),
            s.inodes,
            s.medium
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_add_up_and_nonsense_overflows_nothing() {
        let fs =
            StatfsBody { bsize: 4096, blocks: 100, bfree: 75, bavail: 75, files: 30, ffree: 20, ..Default::default() };
        let s = Space::new("a".as_ref(), String::new(), "pmem", &fs);
        assert_eq!((s.size_bytes, s.used_bytes, s.free_bytes), (409_600, 102_400, 307_200));
        assert_eq!((s.used_percent, s.inodes), (25.0, 10));
        let wild = StatfsBody { bsize: u64::MAX, blocks: 2, bfree: u64::MAX, bavail: u64::MAX, ..Default::default() };
        let s = Space::new("a".as_ref(), String::new(), "pmem", &wild);
        assert_eq!((s.used_bytes, s.free_bytes, s.inodes), (0, u64::MAX, 0));
    }
}
