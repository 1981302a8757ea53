//! `weldfs info`: what an image is, from its superblock; `--log` prints its log instead; of a socket, what is
//! served there. Takes no lock and changes nothing. Exit codes: 0 printed; 4 printed, and the log is corrupt (`--log`);
//! 1 could not be read; 2 usage.

use crate::device::{self, socket_at};
use crate::entry::{ImageName, path_text};
use crate::failure::{Doing, Failure, Outcome};
use crate::find;
use crate::output::{self, say};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use weldfs::Durability;
use weldfs_ciscops::attach::medium;
use weldfs_logview::{Ending, ImageFile, Item, Verdict};
use weldfs_media::{ImageKind, OpenMode};
use weldfs_store::superblock::Superblock;

/// Exit code when the log is corrupt: that of fsck for what it leaves uncorrected.
const DAMAGED: u8 = 4;

/// Arguments of `weldfs info`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The image, or the socket of a running device, or a directory that is served
    #[arg(value_name = "SOCKET|IMAGE|DIR")]
    image: PathBuf,
    /// Print the log instead: segments, records with what they say, the tail and what lies above it; exit code 4 if
    /// it is corrupt
    #[arg(long)]
    log: bool,
    /// Print the facts as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Facts {
    #[serde(flatten)]
    image: ImageName,
    #[serde(skip)]
    place: PathBuf,
    label: String,
    uuid: String,
    format: String,
    features_compat: String,
    features_ro_compat: String,
    features_incompat: String,
    medium: &'static str,
    clean: bool,
    served: bool,
    /// Where its device listens, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    socket: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    socket_hex: Option<String>,
    #[serde(skip)]
    listens: Option<PathBuf>,
    size_bytes: u64,
    block_bytes: u32,
    blocks: u64,
    group_blocks: u32,
    metadata_chunk_pages: u32,
    sequence: u64,
    log_start_bytes: u64,
    log_bytes: u64,
    log_align_bytes: u32,
    log_segments: usize,
    /// First LSN of each.
    log_segments_from: Vec<u64>,
    checkpoint_lsn: u64,
    tree_height: u8,
    next_inode: u64,
    next_transaction: u64,
    inline_max_bytes: u32,
    free_bytes_at_checkpoint: u64,
    inodes_at_checkpoint: u64,
    mounts: u32,
    made: String,
    writer: String,
    warnings: Vec<String>,
}

/// The usual text form.
pub fn uuid(bytes: &[u8; 16]) -> String {
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn text(padded: &[u8]) -> String {
    let end = padded.iter().position(|b| *b == 0).unwrap_or(padded.len());
    String::from_utf8_lossy(&padded[..end]).into_owned()
}

/// The medium an image was made for.
pub fn medium_name(kind: u16) -> &'static str {
    match kind {
        1 => "block",
        2 => "pmem",
        3 => "ram",
        _ => "unknown",
    }
}

/// What a device says it runs on.
pub fn medium_of(medium: u8) -> &'static str {
    match medium {
        medium::RAM => "ram",
        medium::PMEM => "pmem",
        medium::BLOCK => "block",
        medium::HOSTDIR => "hostdir",
        _ => "unknown",
    }
}

/// Reads the superblock of an image, served or not.
pub fn superblock(image: &std::path::Path) -> Result<(Superblock, Vec<String>), Failure> {
    let medium =
        weldfs_media::open(image, ImageKind::Block, OpenMode::Snapshot).map_err(|e| Failure::new(e.to_string()))?;
    let (sb, warnings) = Superblock::load(&*medium).map_err(|e| Failure::new(format!("{}: {e}", image.display())))?;
    Ok((sb, warnings.iter().map(ToString::to_string).collect()))
}

/// What answers at a socket.
#[derive(Serialize)]
struct Served {
    socket: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    socket_hex: Option<String>,
    label: String,
    uuid: String,
    medium: &'static str,
    served: bool,
    durability: &'static str,
    power_safe: bool,
    read_only: bool,
    profile_name: String,
}

/// Asks whoever serves at a socket: behind it there may be no image, or one that only the device can see.
fn of_socket(args: &Args) -> Outcome {
    if args.log {
        let what = if device::is_socket(&args.image) { "a socket" } else { "a directory" };
        return Err(Failure::usage(format!("{}: {what}; a log is in an image", args.image.display())));
    }
    let info = device::running(&args.image)?.info().doing("ask", &args.image)?;
    let at = socket_at(&args.image);
    let (socket, socket_hex) = path_text(&at);
    let facts = Served {
        socket,
        socket_hex,
        label: info.label,
        uuid: uuid(&info.uuid),
        medium: medium_of(info.medium),
        served: true,
        durability: if info.durability == Durability::Durable { "durable" } else { "volatile" },
        power_safe: info.power_safe,
        read_only: info.read_only,
        profile_name: info.profile,
    };
    if args.json {
        output::json(&facts)?;
        return Ok(0);
    }
    output::facts(|out| {
        let hostdir = info.medium == medium::HOSTDIR;
        writeln!(out, "socket     {}", at.display())?;
        let label = if facts.label.is_empty() { "(none)" } else { &facts.label };
        writeln!(out, "{}{label}", if hostdir { "directory  " } else { "label      " })?;
        writeln!(out, "uuid       {}", facts.uuid)?;
        writeln!(out, "medium     {}", facts.medium)?;
        let safe = if facts.power_safe { "power-safe" } else { "not power-safe" };
        writeln!(out, "state      being served, default {}, {safe}", facts.durability)?;
        if hostdir {
            writeln!(out, "           no image: fsck, scrub and info --log do not apply")?;
        }
        Ok(())
    })?;
    Ok(0)
}

/// Reports.
pub fn run(args: &Args) -> Outcome {
    find::wait()?;
    if device::is_socket(&args.image) || args.image.is_dir() {
        return of_socket(args);
    }
    if args.log {
        return log(args);
    }
    let (sb, warnings) = superblock(&args.image)?;
    let listens = device::served_at(&args.image);
    let (socket, socket_hex) = listens.as_deref().map(path_text).unzip();
    let facts = Facts {
        image: ImageName::new(&args.image),
        place: args.image.clone(),
        label: text(&sb.label),
        uuid: uuid(&sb.uuid),
        format: format!("{}.{}", sb.format.0, sb.format.1),
        features_compat: format!("{:#x}", sb.compat),
        features_ro_compat: format!("{:#x}", sb.ro_compat),
        features_incompat: format!("{:#x}", sb.incompat),
        medium: medium_name(sb.medium_kind),
        clean: sb.clean,
        served: socket.is_some(),
        socket,
        socket_hex: socket_hex.flatten(),
        listens,
        size_bytes: sb.geometry.blocks * 4096,
        block_bytes: 4096,
        blocks: sb.geometry.blocks,
        group_blocks: sb.geometry.group_blocks,
        metadata_chunk_pages: sb.geometry.chunk_pages,
        sequence: sb.sequence,
        log_start_bytes: sb.geometry.log.start,
        log_bytes: sb.geometry.log.len,
        log_align_bytes: sb.geometry.log.align,
        log_segments: sb.segments.entries().len(),
        log_segments_from: sb.segments.entries().iter().map(|s| s.first.0).collect(),
        checkpoint_lsn: sb.cut.0,
        tree_height: sb.root.height,
        next_inode: sb.next_ino,
        next_transaction: sb.next_txn,
        inline_max_bytes: sb.inline_max,
        free_bytes_at_checkpoint: sb.free_blocks * 4096,
        inodes_at_checkpoint: sb.inodes,
        mounts: sb.mounts,
        made: format!("{}.{:09}", sb.made.0, sb.made.1),
        writer: text(&sb.writer),
        warnings,
    };
    if args.json {
        output::json(&facts)?;
        return Ok(0);
    }
    output::facts(|out| print(out, &facts))?;
    Ok(0)
}

/// Prints the log as the written format has it, by a reader of its own that shares nothing with the device's.
fn log(args: &Args) -> Outcome {
    let image = ImageFile::open(&args.image).doing("read", &args.image)?;
    if device::served_at(&args.image).is_some() {
        say!("weldfs: {}: is being served; the log may change while it is read", args.image.display());
    }
    let (mut walked, mut corrupt) = (Ok(()), false);
    let shown = output::facts(|out| {
        let (mut failed, mut list) = (Ok(()), Lists::default());
        walked = weldfs_logview::walk(&image, &mut |item| {
            corrupt |= matches!(&item, Item::Tail(tail) if matches!(tail.ending, Ending::Corrupt(_)));
            let shown = if args.json { list.json(out, &item) } else { weldfs_logview::print(out, &item) };
            match shown {
                Ok(()) => Verdict::Go,
                Err(e) => {
                    failed = Err(e);
                    Verdict::Stop
                }
            }
        });
        failed
    });
    output::even_unread(shown)?;
    walked.map_err(|e| Failure::new(format!("{}: {e}", args.image.display())))?;
    Ok(if corrupt { DAMAGED } else { 0 })
}

/// One JSON object over items that come one at a time.
#[derive(Default)]
struct Lists {
    records: u64,
    above: u64,
}

impl Lists {
    fn json(&mut self, out: &mut dyn Write, item: &Item<'_>) -> std::io::Result<()> {
        let comma = |n: u64| if n > 0 { ",\n" } else { "\n" };
        match item {
            Item::Superblock(sb) => {
                write!(out, "{{\"superblock\": ")?;
                serde_json::to_writer(&mut *out, sb)?;
                write!(out, ",\n\"records\": [")
            }
            Item::Record(record) => {
                write!(out, "{}", comma(self.records))?;
                self.records += 1;
                Ok(serde_json::to_writer(&mut *out, record)?)
            }
            Item::Above(above) => {
                write!(out, "{}", if self.above > 0 { ",\n" } else { "],\n\"above\": [\n" })?;
                self.above += 1;
                Ok(serde_json::to_writer(&mut *out, above)?)
            }
            Item::Tail(tail) => {
                write!(out, "{}", if self.above > 0 { "],\n\"tail\": " } else { "],\n\"above\": [],\n\"tail\": " })?;
                serde_json::to_writer(&mut *out, tail)?;
                writeln!(out, "}}")
            }
        }
    }
}

fn print(out: &mut dyn Write, facts: &Facts) -> std::io::Result<()> {
    writeln!(out, "image      {}", facts.place.display())?;
    writeln!(out, "label      {}", if facts.label.is_empty() { "(none)" } else { &facts.label })?;
    writeln!(out, "uuid       {}", facts.uuid)?;
    writeln!(out, "format     {}, written by {}", facts.format, facts.writer)?;
    writeln!(
        out,
        "features   compat {}, read-only compat {}, incompat {}",
        facts.features_compat, facts.features_ro_compat, facts.features_incompat
    )?;
    writeln!(out, "medium     {}", facts.medium)?;
    writeln!(out, "state      {}", state(facts))?;
    writeln!(out, "size       {} ({} bytes)", output::human_bytes(facts.size_bytes), facts.size_bytes)?;
    writeln!(out, "log        {}, {} segment(s) in use", output::human_bytes(facts.log_bytes), facts.log_segments)?;
    writeln!(
        out,
        "free       {} and {} inodes in use, at the last checkpoint",
        output::human_bytes(facts.free_bytes_at_checkpoint),
        facts.inodes_at_checkpoint
    )?;
    facts.warnings.iter().try_for_each(|w| writeln!(out, "warning    {w}"))
}

fn state(facts: &Facts) -> String {
    match (&facts.listens, facts.clean) {
        (Some(socket), _) => format!("being served at {}", socket.display()),
        (None, true) => "clean".to_owned(),
        (None, false) => "not closed cleanly: the next use recovers it".to_owned(),
    }
}
