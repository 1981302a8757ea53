//! `weldfs scrub`: reads everything an image holds and verifies every checksum. Changes nothing. Exit codes as fsck(8):
//! 0 nothing wrong, 4 damage was found, 8 could not look, 16 usage, 32 stopped by the user (36 if damage had
//! been found by then).

use crate::device::{must_be_an_image, must_not_be_served};
use crate::entry::ImageName;
use crate::failure::{Failure, Outcome};
use crate::find;
use crate::interrupt::Interrupt;
use crate::output;
use crate::verbs::info::superblock;
use indicatif::ProgressBar;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weldfs_journal::{SystemClock, SystemRandom};
use weldfs_media::{ImageKind, OpenMode};
use weldfs_store::MountOptions;
use weldfs_store::scrub::{ScrubOptions, ScrubReport, Watch, scrub, unmountable};

const DAMAGED: u8 = 4;
const NOT_CHECKED: u8 = 8;
const STOPPED: u8 = 32;
/// Bytes for overlay and caches.
const MEMORY: usize = 256 << 20;

/// Arguments of `weldfs scrub`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The image; no device may be serving it
    image: PathBuf,
    /// Read at most so many bytes per second (64M, 1.5G; not 0: without it there is no limit)
    #[arg(long, value_name = "BYTES", value_parser = parse_rate)]
    rate: Option<u64>,
    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Verdict<'a> {
    #[serde(flatten)]
    image: ImageName,
    #[serde(skip)]
    place: &'a Path,
    exit_code: u8,
    #[serde(flatten)]
    report: &'a ScrubReport,
}

/// The progress bar as the one who watches. Findings are told at the end, once, with their paths.
struct Bar(ProgressBar);

impl Watch for Bar {
    fn expect(&mut self, bytes: u64) {
        self.0.set_length(bytes);
    }

    fn reached(&mut self, bytes: u64) {
        if self.0.length().is_some_and(|len| bytes > len) {
            self.0.set_length(bytes);
        }
        self.0.set_position(bytes);
    }
}

fn parse_rate(text: &str) -> Result<u64, String> {
    match output::parse_bytes(text)? {
        0 => Err("at that rate nothing is ever read; leave it out for no limit".to_owned()),
        rate => Ok(rate),
    }
}

/// Scrubs.
pub fn run(args: &Args) -> Outcome {
    let cannot = |failure: Failure| failure.code(NOT_CHECKED);
    let interrupt = Interrupt::catch().map_err(cannot)?;
    must_be_an_image(&args.image, "scrub").map_err(cannot)?;
    must_not_be_served(&args.image).map_err(cannot)?;
    let report = unmounted(args, &interrupt).map_err(cannot)?;
    let damage = if report.finding_count > 0 { DAMAGED } else { 0 };
    let exit_code = damage + if report.complete || !report.mountable { 0 } else { STOPPED };
    let verdict = Verdict { image: ImageName::new(&args.image), place: &args.image, exit_code, report: &report };
    if args.json {
        output::even_unread(output::json(&verdict)).map_err(cannot)?;
    } else {
        output::even_unread(output::facts(|out| print(out, &verdict))).map_err(cannot)?;
    }
    Ok(exit_code)
}

/// An image that is not in use: recovered in memory, nothing is written to it.
fn unmounted(args: &Args, interrupt: &Interrupt) -> Result<ScrubReport, Failure> {
    let named = |e: &dyn std::fmt::Display| Failure::new(format!("{}: {e}", args.image.display()));
    let (sb, _) = superblock(&args.image)?;
    let kind = if sb.medium_kind == 2 { ImageKind::Pmem } else { ImageKind::Block };
    let medium = find::medium(&args.image, kind, OpenMode::ReadOnly)?;
    let options = MountOptions {
        read_only: true,
        memory: MEMORY,
        ..MountOptions::new(Arc::new(SystemClock), Arc::new(SystemRandom))
    };
    let (store, recovery) = match weldfs_fs::mount(medium, options) {
        Ok(mounted) => mounted,
        Err(e) => return unmountable(e).map_err(|e| named(&e)),
    };
    let mut bar = Bar(output::progress(Some(1)));
    let options = ScrubOptions { rate: args.rate, stop: interrupt.flag() };
    let mut report = scrub(&store, &options, &mut bar).map_err(|e| named(&e))?;
    bar.0.finish_and_clear();
    report.recovered(&recovery);
    Ok(report)
}

fn print(out: &mut dyn Write, verdict: &Verdict<'_>) -> std::io::Result<()> {
    let (r, image) = (verdict.report, verdict.place.display());
    r.warnings.iter().try_for_each(|warning| writeln!(out, "{image}: warning: {warning}"))?;
    r.notes.iter().try_for_each(|note| writeln!(out, "{image}: note: {note}"))?;
    for f in &r.findings {
        match (&f.path, f.inode) {
            (Some(path), _) => writeln!(out, "{image}:{path}: {}", f.detail)?,
            (None, Some(inode)) => writeln!(out, "{image}: inode {inode}: {}", f.detail)?,
            (None, None) => writeln!(out, "{image}: {}", f.detail)?,
        }
    }
    let unshown = r.finding_count - r.findings.len() as u64;
    if unshown > 0 {
        writeln!(out, "{image}: and {unshown} more")?;
    }
    writeln!(
        out,
        "{image}: {} data blocks, {} tree pages, {} keys, {} log records; {} in {:.1} s",
        r.data_blocks,
        r.tree_pages,
        r.keys,
        r.log_records,
        output::human_bytes(r.bytes),
        r.seconds
    )?;
    let end = match (r.complete, r.finding_count) {
        (false, _) if !r.mountable => "DAMAGED: it cannot be mounted, and nothing behind the damage was looked at",
        (false, _) => "STOPPED before the end",
        (true, 0) => "every checksum is right",
        (true, _) => "DAMAGED",
    };
    writeln!(out, "{image}: {end}")
}
