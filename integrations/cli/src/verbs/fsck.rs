//! `weldfs fsck`: checks an image. Read-only unless told `-y`. Exit codes as fsck(8): 0 nothing wrong, 1 corrected,
//! 4 left uncorrected, 8 could not check, 16 usage.

use crate::device::socket_of;
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::verbs::info::{medium_name, superblock};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use weldfs_journal::{SystemClock, SystemRandom};
use weldfs_kernel_shim::{Opened, Source};
use weldfs_storagefs::fsck::{FsckReport, fsck};
use weldfs_storagefs::media::{self, ImageKind, OpenMode};
use weldfs_storagefs::store::MountOptions;

const CORRECTED: u8 = 1;
const UNCORRECTED: u8 = 4;
const NOT_CHECKED: u8 = 8;
/// Bytes for overlay and caches while checking.
const MEMORY: usize = 512 << 20;

/// Arguments of `weldfs fsck`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The image
    image: PathBuf,
    /// Change nothing (the default): say what recovery would do, and check what it would leave
    #[arg(short = 'n', long, conflicts_with = "yes")]
    no: bool,
    /// Recover an image that was not closed cleanly, then check it
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
    image: &'a PathBuf,
    medium: &'static str,
    /// Whether this run recovered the image.
    recovered: bool,
    exit_code: u8,
    #[serde(flatten)]
    report: &'a FsckReport,
}

/// Checks.
pub fn run(args: &Args) -> Outcome {
    let cannot = |failure: Failure| failure.code(NOT_CHECKED);
    if crate::device::served(&args.image).map_err(cannot)?.is_some() {
        let socket = socket_of(&args.image);
        let sentence = format!("{}: being served at {}; stop it first", args.image.display(), socket.display());
        return Err(Failure::new(sentence).code(NOT_CHECKED));
    }
    let (sb, _) = superblock(&args.image).map_err(cannot)?;
    let recover = args.yes && !sb.clean;
    let mut recovered = None;
    if recover {
        let name = |e: &dyn std::fmt::Display| Failure::new(e.to_string()).code(NOT_CHECKED);
        let opened = Opened::open(&Source::Image(args.image.clone()), MEMORY as u64).map_err(|e| name(&e))?;
        recovered = Some(opened.recovery.clone());
        opened.close().map_err(|e| name(&e))?;
    }
    let kind = if sb.medium_kind == 2 { ImageKind::Pmem } else { ImageKind::Block };
    let medium = media::open(&args.image, kind, OpenMode::ReadOnly).map_err(|e| cannot(Failure::new(e.to_string())))?;
    let options = MountOptions {
        read_only: true,
        memory: MEMORY,
        ..MountOptions::new(Arc::new(SystemClock), Arc::new(SystemRandom))
    };
    let mut report =
        fsck(medium, options, args.data).map_err(|e| cannot(Failure::new(format!("{}: {e}", args.image.display()))))?;
    if let Some(recovery) = recovered {
        report.recovery = recovery;
    }
    let exit_code = match (report.clean, recover) {
        (true, false) => 0,
        (true, true) => CORRECTED,
        (false, _) => UNCORRECTED,
    };
    let medium = medium_name(sb.medium_kind);
    let verdict = Verdict { image: &args.image, medium, recovered: recover, exit_code, report: &report };
    if args.json {
        output::json(&verdict).map_err(cannot)?;
    } else {
        output::facts(|out| print(out, &verdict)).map_err(cannot)?;
    }
    Ok(exit_code)
}

fn print(out: &mut dyn Write, verdict: &Verdict<'_>) -> std::io::Result<()> {
    let (r, image) = (verdict.report, verdict.image.display());
    if verdict.recovered {
        writeln!(out, "{image}: was not closed cleanly; recovered")?;
    } else if !r.recovery.clean {
        let (records, bytes) = (r.recovery.records, r.recovery.log_bytes);
        writeln!(
            out,
            "{image}: was not closed cleanly; recovery would replay {records} records ({bytes} bytes of log)"
        )?;
        if let Some((from, to)) = r.recovery.discarded {
            writeln!(out, "{image}: recovery would discard a torn tail of {} bytes, LSN {from}..{to}", to - from)?;
        }
    }
    r.recovery.txns.iter().try_for_each(|txn| writeln!(out, "{image}: {txn}"))?;
    writeln!(
        out,
        "{image}: {} inodes, {} directories, {} entries, {} data blocks ({} verified), {} tree pages, {} free blocks",
        r.inodes, r.directories, r.entries, r.blocks, r.verified_blocks, r.pages, r.free_blocks
    )?;
    r.recovery.warnings.iter().try_for_each(|warning| writeln!(out, "{image}: warning: {warning}"))?;
    r.problems.iter().try_for_each(|problem| writeln!(out, "{image}: {problem}"))?;
    let unshown = r.problem_count - r.problems.len() as u64;
    if unshown > 0 {
        writeln!(out, "{image}: and {unshown} more")?;
    }
    writeln!(out, "{image}: {}", if r.clean { "clean" } else { "DAMAGED" })
}
