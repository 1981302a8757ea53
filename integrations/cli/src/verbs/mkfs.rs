//! `weldfs mkfs`: makes an image.

use crate::device::{must_be_an_image, must_not_be_served};
use crate::entry::ImageName;
use crate::failure::{Failure, Outcome};
use crate::output;
use serde::Serialize;
use std::path::PathBuf;
use weldfs_journal::{SystemClock, SystemRandom};
use weldfs_media::ImageKind;
use weldfs_store::error::ImageError;
use weldfs_store::geometry::{Geometry, GeometryOptions};
use weldfs_store::limits::{LOG_LEN_MAX, LOG_LEN_MIN};
use weldfs_store::mount::{MkfsOptions, format};
use weldfs_store::superblock::Superblock;

/// What the image stands for.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// A disk: direct I/O, flushes
    Block,
    /// Byte-addressable persistent memory: mapped, cache lines written back
    Pmem,
}

/// Arguments of `weldfs mkfs`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// File (or block device) to make the file system in
    image: PathBuf,
    /// Its size, say 512M; all of it is allocated now
    #[arg(long, value_name = "N", value_parser = output::parse_bytes)]
    size: u64,
    /// What the image stands for
    #[arg(long, value_enum, default_value = "block")]
    medium: Medium,
    /// Volume label, up to 64 bytes
    #[arg(long, default_value = "")]
    label: String,
    /// Overwrite what is there
    #[arg(long)]
    force: bool,
    /// Bytes of the log, say 64M; by default in proportion to the size
    #[arg(long, value_name = "N", value_parser = output::parse_bytes)]
    log_size: Option<u64>,
    /// Print the facts as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Facts {
    #[serde(flatten)]
    image: ImageName,
    uuid: String,
    label: String,
    medium: &'static str,
    size_bytes: u64,
    log_bytes: u64,
    free_bytes: u64,
}

/// Makes the image.
pub fn run(args: &Args) -> Outcome {
    let image = args.image.display();
    if args.label.len() > 64 {
        return Err(Failure::usage(format!("the label has {} bytes, more than 64", args.label.len())));
    }
    if !args.force && args.image.exists() {
        return Err(Failure::new(format!("{image}: exists already; --force overwrites it")));
    }
    if args.force && args.image.exists() {
        must_be_an_image(&args.image, "mkfs")?;
        must_not_be_served(&args.image)?;
    }
    let size = args.size / 4096 * 4096;
    let kind = if args.medium == Medium::Pmem { ImageKind::Pmem } else { ImageKind::Block };
    let mut options = MkfsOptions { label: args.label.clone(), ..MkfsOptions::default() };
    options.geometry.log_len = args.log_size.map(|bytes| bytes / 4096 * 4096);
    options.owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // Known to be possible before anything that exists is overwritten.
    let layout = GeometryOptions { log_align: 4096, ..options.geometry };
    Geometry::plan(size, &layout).map_err(|e| no_layout(args, size, &e))?;
    let bar = if kind == ImageKind::Block { output::progress(Some(size)) } else { indicatif::ProgressBar::hidden() };
    let made =
        weldfs_media::create_showing(&args.image, kind, size, args.force, &mut |zeroed| bar.set_position(zeroed));
    bar.finish_and_clear();
    let medium = made.map_err(|e| Failure::new(e.to_string()))?;
    let made = format(&medium, &options, &SystemClock, &SystemRandom);
    if let Err(e) = made {
        if !args.force {
            // Ours, and of no use.
            let _ = std::fs::remove_file(&args.image);
        }
        return Err(Failure::new(format!("{image}: {e}")));
    }
    let (sb, _) = Superblock::load(&*medium).map_err(|e| Failure::new(format!("{image}: {e}")))?;
    let facts = Facts {
        image: ImageName::new(&args.image),
        uuid: super::info::uuid(&sb.uuid),
        label: args.label.clone(),
        medium: if args.medium == Medium::Pmem { "pmem" } else { "block" },
        size_bytes: sb.geometry.blocks * 4096,
        log_bytes: sb.geometry.log.len,
        free_bytes: sb.free_blocks * 4096,
    };
    if args.json {
        output::json(&facts)?;
    } else {
        let (size, log) = (output::human_bytes(facts.size_bytes), output::human_bytes(facts.log_bytes));
        output::facts(|out| {
            writeln!(out, "{image}: {} file system of {size}, log {log}, UUID {}", facts.medium, facts.uuid)
        })?;
    }
    Ok(0)
}

/// Why there is no such layout, with what there could be.
fn no_layout(args: &Args, size: u64, error: &ImageError) -> Failure {
    let image = args.image.display();
    let plan =
        |log_len| Geometry::plan(size, &GeometryOptions { log_len, log_align: 4096, ..GeometryOptions::default() });
    // Alone, the size is possible: it is the log that is not.
    let (Some(_), Ok(default)) = (args.log_size, plan(None)) else {
        return Failure::new(format!("{image}: {error}"));
    };
    // The shortest log fits; one as long as the medium does not.
    let (mut fits, mut not) = (LOG_LEN_MIN.min(default.log.len) / 4096, LOG_LEN_MAX.min(size) / 4096 + 1);
    while not - fits > 1 {
        let middle = fits.midpoint(not);
        if plan(Some(middle * 4096)).is_ok() { fits = middle } else { not = middle }
    }
    let [least, most, size] = [LOG_LEN_MIN, fits * 4096, size].map(output::human_bytes);
    Failure::usage(format!("{image}: --log-size must be {least} to {most} on {size}"))
}
