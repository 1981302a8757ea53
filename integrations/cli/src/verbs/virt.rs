//! `weldfs virt`: names that stream other files through a kernel in the drive: add, list, remove.

use crate::device;
use crate::entry::path_text;
use crate::failure::{Doing, Failure, Outcome, reason};
use crate::kernels::Card;
use crate::output::{self, each, exit_code, plain};
use crate::place::{self, Place, one_image};
use crate::walk::{Walk, When};
use crate::words::Words;
use clap::builder::{ValueParser, ValueParserFactory};
use serde::Serialize;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use weldfs::{Client, Direction, Errno, VirtRange, VirtSpec};
use weldfs_ciscops::limits::FILE_OFFSET_MAX;
use weldfs_ciscops::virt::TO_END;

/// Arguments of `weldfs virt`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// Make a virtual file: reading it gives what a kernel makes of ranges of other files
    Add(Box<Add>),
    /// List virtual files, with their specs
    Ls(Ls),
    /// Remove virtual files, and nothing else
    Rm(Rm),
}

#[derive(clap::Args, Debug)]
#[command(
    after_help = "--param is one or more of the kernel's 32-bit parameters: a number (12, 0x1f, -1); text:STRING, its\n\
length in bytes and then the bytes, four to a word (what grep and others take as a needle);\n\
hex:DIGITS and file:FILE, the bytes alone. @OFFSET+LENGTH behind a file names a part of it (K, M, G are\n\
powers of 1024), @OFFSET what is behind there; @0 keeps a name that ends in such digits as it is.\n\
The files are looked for when the virtual file is opened, with the rights of who opens it.\n\n\
Examples:\n  weldfs virt add disk.img:/.virt/errors --parents --kernel grep --param text:error disk.img:/logs/today\n  \
weldfs cat disk.img:/.virt/errors"
)]
struct Add {
    /// Its name
    #[arg(value_name = "IMAGE:/name")]
    name: Place,
    /// The kernel, or the kernel and its back-end (grep, crc32c:rtl)
    #[arg(short, long, value_name = "KERNEL")]
    kernel: String,
    /// Parameters, in order
    #[arg(short, long = "param", value_name = "PARAM", allow_hyphen_values = true, value_parser = Words::of)]
    params: Vec<Words>,
    /// What is written to it goes through the kernel into the one range
    #[arg(short, long)]
    write: bool,
    /// With --write: the file ends where what was written ended
    #[arg(short, long, requires = "write")]
    truncate: bool,
    /// Permission bits, octal; the umask takes some away
    #[arg(short, long, value_name = "MODE", default_value = "644", value_parser = mode)]
    mode: u32,
    /// Make missing directories above the name, too
    #[arg(long)]
    parents: bool,
    /// The real files, in the order in which they are streamed
    #[arg(value_name = "IMAGE:/path[@OFFSET[+LENGTH]]", required = true)]
    ranges: Vec<Ranged>,
}

#[derive(clap::Args, Debug)]
struct Ls {
    /// Virtual files, or directories that have some; all of a directory's tree is looked at
    #[arg(value_name = "IMAGE:/path", required = true)]
    places: Vec<Place>,
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
struct Rm {
    /// Virtual files; what is named and is none stays
    #[arg(value_name = "IMAGE:/path", required = true)]
    places: Vec<Place>,
}

/// A range of a file of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ranged {
    place: Place,
    offset: u64,
    length: u64,
}

/// Adds, lists or removes.
pub fn run(args: &Args) -> Outcome {
    match &args.what {
        What::Add(args) => add(args),
        What::Ls(args) => ls(args),
        What::Rm(args) => rm(args),
    }
}

fn add(args: &Add) -> Outcome {
    let image = one_image(args.ranges.iter().map(|r| &r.place).chain([&args.name]))?;
    let spec = VirtSpec {
        kernel: args.kernel.clone(),
        params: Words::all(&args.params),
        direction: if args.write { Direction::Write { cut: args.truncate } } else { Direction::Read },
        ranges: args.ranges.iter().map(Ranged::to_spec).collect(),
    };
    spec.encode().map_err(|e| Failure::usage(refused(&spec, e)))?;
    let device = device::open(&image, device::Want::Write)?;
    let client = device.client();
    if let Some(dir) = args.name.path.parent().filter(|_| args.parents) {
        client.create_dir_all(dir).doing("make directory", dir)?;
    }
    client.virt_register(&args.name.path, args.mode, &spec).map_err(|e| {
        let why = match e.raw_os_error().map(Errno) {
            Some(Errno::OPNOTSUPP) => "a directory of the host has no virtual files, only an image does".to_owned(),
            Some(Errno::NOENT) => "there is no directory for it (--parents makes one)".to_owned(),
            Some(Errno::EXIST) => "something with this name exists (weldfs virt rm removes a virtual file)".to_owned(),
            _ => reason(&e),
        };
        Failure::new(format!("cannot make virtual file {}: {why}", args.name))
    })?;
    // It may be made before its kernel is there.
    if let Some(why) = Card::of(client).and_then(|card| card.absent("its kernel", &args.kernel)) {
        output::say!("{} cannot be opened yet: {why}", args.name);
    }
    device.finish()
}

/// Why it is no spec.
fn refused(spec: &VirtSpec, errno: Errno) -> String {
    match errno {
        _ if spec.direction != Direction::Read && spec.ranges.len() > 1 => "--write takes one file, not several".into(),
        Errno::TOOBIG => "parameters and names are too long: a spec has 4096 bytes at most, and 64 files".into(),
        Errno::NAMETOOLONG => "the name of a file is too long".into(),
        _ => ranges_wrong(spec).unwrap_or_else(|| format!("'{}' is no kernel's name", spec.kernel)),
    }
}

/// The range that cannot be, if there is one.
fn ranges_wrong(spec: &VirtSpec) -> Option<String> {
    let end = |r: &VirtRange| if r.length == TO_END { Some(r.offset) } else { r.offset.checked_add(r.length) };
    let wrong = |r: &VirtRange| match end(r) {
        Some(end) if end <= FILE_OFFSET_MAX => (r.length == 0).then_some("a range of no bytes"),
        _ => Some("the range lies beyond the largest file (2^63 - 1 bytes)"),
    };
    spec.ranges.iter().find_map(|r| {
        let path = Path::new(OsStr::from_bytes(&r.path)).display();
        Some(format!("{path}@{}: {}", r.offset, wrong(r)?))
    })
}

/// A virtual file, as JSON has it.
#[derive(Serialize)]
struct Row {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    kernel: String,
    params: Vec<u32>,
    /// "read" or "write".
    direction: &'static str,
    truncates: bool,
    ranges: Vec<RangeRow>,
    #[serde(skip)]
    name: PathBuf,
}

#[derive(Serialize)]
struct RangeRow {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    offset_bytes: u64,
    /// None: to the end.
    length_bytes: Option<u64>,
}

impl Row {
    fn new(path: &Path, spec: VirtSpec) -> Row {
        let ranges = spec.ranges.iter().map(|r| {
            let (path, path_hex) = path_text(Path::new(OsStr::from_bytes(&r.path)));
            let length_bytes = Some(r.length).filter(|n| *n != TO_END);
            RangeRow { path, path_hex, offset_bytes: r.offset, length_bytes }
        });
        let ranges = ranges.collect();
        let (name, (path, path_hex)) = (path.to_owned(), path_text(path));
        let direction = if spec.direction == Direction::Read { "read" } else { "write" };
        let truncates = spec.direction == Direction::Write { cut: true };
        Row { path, path_hex, kernel: spec.kernel, params: spec.params, direction, truncates, ranges, name }
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        // Nothing in a name may look like the next one; --json has the names as they are.
        let name = self.name.to_string_lossy();
        write!(out, "{}  {} {}", plain(&name), self.kernel, if self.direction == "read" { "<-" } else { "->" })?;
        for r in &self.ranges {
            write!(out, " {}", plain(&r.path))?;
            match (r.offset_bytes, r.length_bytes) {
                (0, None) => {}
                (offset, None) => write!(out, "@{offset}")?,
                (offset, Some(length)) => write!(out, "@{offset}+{length}")?,
            }
        }
        writeln!(out)
    }
}

/// The spec of a file; none if it is no virtual one.
fn spec_of(client: &Client, path: &Path) -> io::Result<Option<VirtSpec>> {
    match client.virt_spec(path) {
        Ok(spec) => Ok(Some(spec)),
        // So says a directory of the host, too: it has none.
        Err(e) if matches!(e.raw_os_error().map(Errno), Some(Errno::INVAL | Errno::OPNOTSUPP)) => Ok(None),
        Err(e) => Err(e),
    }
}

fn ls(args: &Ls) -> Outcome {
    let (mut rows, mut missed) = (Vec::new(), 0);
    let failed = each(&args.places, |place| {
        let device = device::open(&place.image, device::Want::Read)?;
        let client = device.client();
        let mut walk = Walk::new(client, &place.image);
        walk.tree(&place.path, true, &mut |when, step| {
            // A virtual file has no bytes.
            if when == When::Found && step.meta.is_file() && step.meta.is_empty() {
                let label = Place { image: place.image.clone(), path: step.path.to_owned() };
                match spec_of(client, step.path).doing("look at", label.to_string()) {
                    Ok(spec) => rows.extend(spec.map(|spec| Row::new(step.path, spec))),
                    Err(failure) if step.depth == 0 => return Err(failure),
                    Err(failure) => {
                        output::say!("weldfs: {failure}");
                        missed += 1;
                    }
                }
            }
            Ok(true)
        })?;
        missed += walk.failed;
        device.close()
    })?;
    match args.json {
        true => output::json(&rows)?,
        false => output::facts(|out| rows.iter().try_for_each(|row| row.print(out)))?,
    }
    Ok(exit_code(failed + missed))
}

fn rm(args: &Rm) -> Outcome {
    let device = device::open(&one_image(&args.places)?, device::Want::Write)?;
    let client = device.client();
    let failed = each(&args.places, |place| match client.virt_remove(&place.path) {
        Err(e) if e.raw_os_error().map(Errno) == Some(Errno::INVAL) => {
            Err(Failure::new(format!("{place} is no virtual file: `weldfs rm` removes it")))
        }
        done => done.doing("remove", place.to_string()),
    })?;
    device.finish()?;
    Ok(exit_code(failed))
}

impl Ranged {
    fn of(text: &OsStr) -> Result<Ranged, String> {
        let bytes = text.as_bytes();
        let cut = bytes.iter().rposition(|b| *b == b'@').and_then(|at| {
            let (offset, length) = range_of(std::str::from_utf8(&bytes[at + 1..]).ok()?)?;
            Some((&bytes[..at], offset, length))
        });
        let (name, offset, length) = cut.unwrap_or((bytes, 0, TO_END));
        Ok(Ranged { place: Place::of(OsStr::from_bytes(name))?, offset, length })
    }

    fn to_spec(&self) -> VirtRange {
        let path = self.place.path.as_os_str().as_bytes().to_vec();
        VirtRange { path, offset: self.offset, length: self.length }
    }
}

/// `OFFSET` or `OFFSET+LENGTH`; none if it is neither.
fn range_of(text: &str) -> Option<(u64, u64)> {
    let digits = |s: &str| s.chars().all(|c| c.is_ascii_digit());
    // More than any number has is one that no file has, and no part of a name.
    let huge =
        |s: &str| digits(s.trim_end_matches(|c: char| "kmgtib".contains(c.to_ascii_lowercase()))).then_some(u64::MAX);
    let number = |s: &str| {
        s.starts_with(|c: char| c.is_ascii_digit()).then(|| output::parse_bytes(s).ok().or_else(|| huge(s))).flatten()
    };
    match text.split_once('+') {
        // The largest number stands for the end; who writes a number means that many bytes.
        Some((offset, length)) => Some((number(offset)?, number(length)?.min(TO_END - 1))),
        None => Some((number(text)?, TO_END)),
    }
}

impl ValueParserFactory for Ranged {
    type Parser = ValueParser;

    fn value_parser() -> ValueParser {
        place::bytes(Ranged::of)
    }
}

fn mode(text: &str) -> Result<u32, String> {
    let bits = u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o777);
    bits.ok_or_else(|| format!("'{text}' is no octal number up to 777"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_what_is_behind_the_last_at_sign_if_that_is_numbers() {
        let of = |text: &str| {
            let r = Ranged::of(text.as_ref()).expect("a range");
            (r.place.path.display().to_string(), r.offset, r.length)
        };
        assert_eq!(of("i:/a"), ("/a".into(), 0, TO_END));
        assert_eq!(of("i:/a@4K"), ("/a".into(), 4096, TO_END));
        assert_eq!(of("i:/a@10+20"), ("/a".into(), 10, 20));
        assert_eq!(of("i:/a@b"), ("/a@b".into(), 0, TO_END));
        assert_eq!(of("i:/a@12@0"), ("/a@12".into(), 0, TO_END));
        assert_eq!(of("i:/a@+5"), ("/a@+5".into(), 0, TO_END));
        assert_eq!(of("i:/a@18446744073709551616"), ("/a".into(), u64::MAX, TO_END));
        assert_eq!(of("i:/a@0+18446744073709551615"), ("/a".into(), 0, TO_END - 1));
        assert_eq!(of("i:/a@99999999999999T+1"), ("/a".into(), u64::MAX, 1));
        assert_eq!(of("i:/a@9P"), ("/a@9P".into(), 0, TO_END));
        assert!(Ranged::of("a@1".as_ref()).is_err());
    }
}
