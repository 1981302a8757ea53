//! `weldfs fsck`: checks an image. Read-only unless told `-y`. Exit codes as fsck(8): 0 nothing wrong, 1 corrected,
//! 4 left uncorrected, 8 could not check, 16 usage.

use crate::device::{must_be_an_image, must_not_be_served};
use crate::entry::ImageName;
use crate::failure::{Failure, Outcome};
use crate::find;
use crate::output;
use crate::verbs::info::{medium_name, superblock};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weldfs_journal::{SystemClock, SystemRandom};
use weldfs_kernel_shim::{Opened, Source};
use weldfs_media::{ImageKind, OpenMode};
use weldfs_store::MountOptions;
use weldfs_store::fsck::{FsckReport, fsck};
use weldfs_store::mount::RecoveryReport;
use weldfs_store::superblock::Superblock;

const CORRECTED: u8 = 1;
const UNCORRECTED: u8 = 4;
const NOT_CHECKED: u8 = 8;
/// Bytes for overlay and caches while checking.
const MEMORY: usize = 512 << 20;

/// Arguments of `weldfs fsck`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The image; no device may be serving it
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// Change nothing (the default): say what recovery would do, and check what it would leave
    #[arg(short = 'n', long, conflicts_with = "yes")]
    no: bool,
    /// Recover an image that was not closed cleanly, check it, and repair superblock copies of one that is sound
    #[arg(short = 'y', long)]
    yes: bool,
    /// Verify the checksums of all data, too
    #[arg(long)]
    data: bool,
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
    medium: &'static str,
    /// Whether this run recovered the image.
    recovered: bool,
    /// Damaged or old superblock copies of a closed image that this run made whole.
    repaired_superblock_copies: usize,
    exit_code: u8,
    #[serde(flatten)]
    report: &'a FsckReport,
}

/// Checks.
pub fn run(args: &Args) -> Outcome {
    let cannot = |failure: Failure| failure.code(NOT_CHECKED);
    must_be_an_image(&args.image, "fsck").map_err(cannot)?;
    must_not_be_served(&args.image).map_err(cannot)?;
    let (sb, _) = superblock(&args.image).map_err(cannot)?;
    let kind = if sb.medium_kind == 2 { ImageKind::Pmem } else { ImageKind::Block };
    let recovered = (args.yes && !sb.clean).then(|| recover(&args.image));
    let mut report = look(args, kind).map_err(cannot)?;
    let recover = match recovered {
        None => None,
        Some(Ok(recovery)) => Some(recovery),
        // Damage that keeps it from being mounted is what the look has found, too.
        Some(Err(_)) if !report.mountable => None,
        Some(Err(failure)) => return Err(cannot(failure)),
    };
    let recovered = recover.is_some();
    if let Some(recovery) = recover {
        report.recovery = recovery;
    }
    let sound = report.problem_count == report.lost_copies;
    let repaired = if args.yes && sound { repair_copies(&args.image, kind).map_err(cannot)? } else { 0 };
    if repaired > 0 && !report.clean {
        let recovery = report.recovery;
        report = FsckReport { recovery, ..look(args, kind).map_err(cannot)? };
    }
    let exit_code = match (report.clean, recovered || repaired > 0) {
        (true, false) => 0,
        (true, true) => CORRECTED,
        (false, _) => UNCORRECTED,
    };
    let medium = medium_name(sb.medium_kind);
    let (image, place, report) = (ImageName::new(&args.image), args.image.as_path(), &report);
    let verdict = Verdict { image, place, medium, recovered, repaired_superblock_copies: repaired, exit_code, report };
    if args.json {
        output::even_unread(output::json(&verdict)).map_err(cannot)?;
    } else {
        output::even_unread(output::facts(|out| print(out, &verdict))).map_err(cannot)?;
    }
    Ok(exit_code)
}

/// Mounts the image for writing and closes it again.
fn recover(image: &Path) -> Result<RecoveryReport, Failure> {
    let name = |e: &dyn std::fmt::Display| Failure::new(e.to_string());
    let opened = Opened::open(&Source::Image(image.to_owned()), MEMORY as u64).map_err(|e| name(&e))?;
    let recovery = opened.recovery.clone();
    opened.close().map_err(|e| name(&e))?;
    Ok(recovery)
}

/// The check itself: nothing is written.
fn look(args: &Args, kind: ImageKind) -> Result<FsckReport, Failure> {
    let medium = find::medium(&args.image, kind, OpenMode::ReadOnly)?;
    let options = MountOptions {
        read_only: true,
        memory: MEMORY,
        ..MountOptions::new(Arc::new(SystemClock), Arc::new(SystemRandom))
    };
    fsck(medium, options, args.data).map_err(|e| Failure::new(format!("{}: {e}", args.image.display())))
}

/// Makes the damaged or old superblock copies of a closed image equal to the one that counts; says how many.
fn repair_copies(image: &Path, kind: ImageKind) -> Result<usize, Failure> {
    let name = |e: &dyn std::fmt::Display| Failure::new(format!("{}: {e}", image.display()));
    let medium = find::medium(image, kind, OpenMode::ReadOnly)?;
    let (_, stale) = Superblock::load(&*medium).map_err(|e| name(&e))?;
    drop(medium);
    if stale.is_empty() {
        return Ok(0);
    }
    let medium = find::medium(image, kind, OpenMode::ReadWrite)?;
    let (sb, stale) = Superblock::load(&*medium).map_err(|e| name(&e))?;
    if !sb.clean || sb.read_only() {
        return Ok(0);
    }
    sb.repair(&*medium, &stale).map_err(|e| name(&e))?;
    Ok(stale.len())
}

fn print(out: &mut dyn Write, verdict: &Verdict<'_>) -> std::io::Result<()> {
    let (r, image) = (verdict.report, verdict.place.display());
    if verdict.recovered {
        writeln!(out, "{image}: was not closed cleanly; recovered")?;
    } else if r.mountable && !r.recovery.clean {
        let (records, bytes) = (r.recovery.records, r.recovery.log_bytes);
        writeln!(
            out,
            "{image}: was not closed cleanly; recovery would replay {records} records ({bytes} bytes of log)"
        )?;
    }
    if let Some(end) = r.recovery.end_of_log() {
        writeln!(out, "{image}: {end}")?;
    }
    if let Some(tail) = r.recovery.torn_tail() {
        let drops = if verdict.recovered { "dropped" } else { "would drop" };
        writeln!(out, "{image}: recovery {drops} {tail}")?;
    }
    print_looked(out, &image, r)?;
    r.recovery.warnings.iter().try_for_each(|warning| writeln!(out, "{image}: warning: {warning}"))?;
    r.problems.iter().try_for_each(|problem| writeln!(out, "{image}: {problem}"))?;
    let unshown = r.problem_count - r.problems.len() as u64;
    if unshown > 0 {
        writeln!(out, "{image}: and {unshown} more")?;
    }
    let copies = verdict.repaired_superblock_copies;
    if copies > 0 {
        writeln!(out, "{image}: {copies} superblock copies repaired")?;
    }
    let end = match (r.clean, r.mountable) {
        (true, _) => "clean",
        (false, true) => "DAMAGED",
        (false, false) => "DAMAGED: it cannot be mounted, and nothing behind the damage was looked at",
    };
    writeln!(out, "{image}: {end}")
}

/// What was seen: transactions, then counts.
fn print_looked(out: &mut dyn Write, image: &std::path::Display<'_>, r: &FsckReport) -> std::io::Result<()> {
    if !r.mountable {
        return Ok(());
    }
    let t = &r.recovery;
    if t.txns_seen > 0 {
        let open = t.txns.len() as u64 - t.txns_finished - t.txns_cut;
        writeln!(
            out,
            "{image}: {} transactions of several records seen: {} replayed to their end, {} finished, {} cut, \
             {open} open",
            t.txns_seen, t.txns_replayed, t.txns_finished, t.txns_cut
        )?;
    }
    t.txns.iter().try_for_each(|txn| writeln!(out, "{image}: {txn}"))?;
    writeln!(
        out,
        "{image}: {} inodes, {} directories, {} entries, {} data blocks ({} verified), {} tree pages, {} free blocks",
        r.inodes, r.directories, r.entries, r.blocks, r.verified_blocks, r.pages, r.free_blocks
    )
}
