//! Workloads as one line of text. Steps are separated by `;`, words by spaces: the operation, its operands, then what
//! differs from a volatile operation in its default mode with nothing after it.

use super::workload::{Background, Change, Falloc, FsOp, Mode, Opening, Place, Renaming, Step, Sync, Workload};
use crate::catalogue;
use crate::model::BLOCK;

/// Steps of one workload at most.
const STEPS_MAX: usize = 1000;
/// Bytes that one step writes or reserves at most: more than one payload.
const LEN_MAX: u64 = 1_310_720;
/// Bytes that one fused operation writes at most: one payload.
const PAYLOAD_MAX: u64 = 1 << 20;
/// Offsets and sizes at most, bytes.
const OFF_MAX: u64 = 2 << 20;
/// Bytes that all steps together may take at most: less than the 1.9 MiB that the small medium has for files.
pub(super) const ROOM_MAX: u64 = 7 << 18;
/// Bytes of an extended attribute at most.
const XATTR_MAX: u64 = 4096;
/// Owners at most: the number above says "leave it".
const ID_MAX: u32 = u32::MAX - 1;
/// Seconds at most: some time in 2106.
const SECONDS_MAX: u64 = u32::MAX as u64;
/// Permission bits.
const MODE_MAX: u32 = 0o7777;

const FALLOC: [(&str, Falloc); 5] = [
    ("reserve", Falloc::Reserve),
    ("keep-size", Falloc::KeepSize),
    ("punch", Falloc::Punch),
    ("zero", Falloc::Zero),
    ("zero-keep-size", Falloc::ZeroKeepSize),
];
const RENAME: [(&str, Renaming); 3] =
    [("over", Renaming::Over), ("noreplace", Renaming::NoReplace), ("exchange", Renaming::Exchange)];
const OPEN: [(&str, Opening); 5] = [
    ("existing", Opening::Existing),
    ("create", Opening::Create),
    ("new", Opening::New),
    ("trunc", Opening::Trunc),
    ("append", Opening::Append),
];
const CHANGE: [(&str, Change); 5] = [
    ("patch", Change::Patch),
    ("add", Change::Add),
    ("xor", Change::Xor),
    ("swap", Change::Swap),
    ("swap-fail", Change::SwapFail),
];
const MODE: [(&str, Mode); 2] = [("macro", Mode::Macro), ("micro", Mode::Micro)];
const SYNC: [(&str, Sync); 3] = [("fsync", Sync::Fsync), ("fdatasync", Sync::Fdatasync), ("syncfs", Sync::Syncfs)];
const BACKGROUND: [(&str, Background); 3] =
    [("checkpoint", Background::Checkpoint), ("reclaim", Background::Reclaim), ("remount", Background::Remount)];

fn word<T: PartialEq>(table: &[(&'static str, T)], of: &T) -> Option<&'static str> {
    table.iter().find(|(_, v)| v == of).map(|(w, _)| *w)
}

fn known<T: Copy>(table: &[(&'static str, T)], word: &str) -> Option<T> {
    table.iter().find(|(w, _)| *w == word).map(|(_, v)| *v)
}

pub(super) fn write(workload: &Workload) -> String {
    let steps: Vec<String> = workload.steps.iter().map(step).collect();
    steps.join("; ")
}

fn step(step: &Step) -> String {
    let durable = if step.durable { Some("durable") } else { None };
    let extra = [word(&MODE, &step.mode), durable, word(&SYNC, &step.sync), word(&BACKGROUND, &step.then)];
    let mut line = operation(&step.op);
    for w in extra.into_iter().flatten() {
        line.push(' ');
        line.push_str(w);
    }
    line
}

fn operation(op: &FsOp) -> String {
    match op {
        FsOp::Creat { at } => format!("creat {at:?}"),
        FsOp::Mkdir { at } => format!("mkdir {at:?}"),
        FsOp::Rmdir { at } => format!("rmdir {at:?}"),
        FsOp::Unlink { at } => format!("unlink {at:?}"),
        FsOp::Hold { at } => format!("hold {at:?}"),
        FsOp::Link { from, to } => format!("link {from:?} {to:?}"),
        FsOp::Symlink { target, at } => format!("symlink {target:?} {at:?}"),
        FsOp::Rename { from, to, how } => format!("rename {from:?} {to:?} {}", must(&RENAME, how)),
        FsOp::Write { at, off, len } => format!("write {at:?} {off} {len}"),
        FsOp::Append { at, len } => format!("append {at:?} {len}"),
        FsOp::Truncate { at, size } => format!("truncate {at:?} {size}"),
        FsOp::Fallocate { at, mode, off, len } => format!("fallocate {at:?} {} {off} {len}", must(&FALLOC, mode)),
        FsOp::SetXattr { at, key, len } => format!("setxattr {at:?} {key} {len}"),
        FsOp::RemoveXattr { at, key } => format!("removexattr {at:?} {key}"),
        FsOp::Chmod { at, mode } => format!("chmod {at:?} {mode:o}"),
        FsOp::Chown { at, uid, gid } => format!("chown {at:?} {uid} {gid}"),
        FsOp::Utimens { at, sec } => format!("utimens {at:?} {sec}"),
        FsOp::OpenWriteClose { at, how, off, len } => {
            format!("open_write_close {at:?} {} {off} {len}", must(&OPEN, how))
        }
        FsOp::OpenReadWriteClose { at, how, off, len } => {
            format!("open_read_write_close {at:?} {} {off} {len}", must(&OPEN, how))
        }
        FsOp::AppendChecksumWrite { at, len } => format!("append_checksum_write {at:?} {len}"),
        FsOp::AtomicReplace { tmp, at, len } => format!("atomic_replace {tmp:?} {at:?} {len}"),
        FsOp::Program { a, b, len } => format!("program {a:?} {b:?} {len}"),
        FsOp::MultiWrite { a, b, off, len } => format!("multi_write {a:?} {b:?} {off} {len}"),
        FsOp::Batch { a, b, len } => format!("batch {a:?} {b:?} {len}"),
        FsOp::Fused { row, a, b, off, len } => {
            let name = catalogue::table().get(usize::from(*row)).map(catalogue::Row::name).unwrap_or_default();
            format!("fused {name} {a:?} {b:?} {off} {len}")
        }
        FsOp::ReadModifyWrite { at, change, off, len } => {
            format!("read_modify_write {at:?} {} {off} {len}", must(&CHANGE, change))
        }
    }
}

fn must<T: PartialEq>(table: &[(&'static str, T)], of: &T) -> &'static str {
    word(table, of).expect("every value of the type stands in its table")
}

pub(super) fn read(line: &str) -> Result<Workload, String> {
    let mut steps = Vec::new();
    for (i, part) in line.split(';').map(str::trim).filter(|p| !p.is_empty()).enumerate() {
        if i == STEPS_MAX {
            return Err(format!("more than {STEPS_MAX} steps"));
        }
        steps.push(read_step(part).map_err(|e| format!("step {} ({}): {e}", i + 1, start_of(part)))?);
    }
    if steps.is_empty() {
        return Err("a workload has at least one step".to_owned());
    }
    let total: u64 = steps.iter().map(|s| room(&s.op)).sum();
    if total > ROOM_MAX {
        return Err(format!("the steps may take {total} bytes, more than the {ROOM_MAX} that there is room for"));
    }
    Ok(Workload { steps })
}

/// As much of a step as fits a sentence.
fn start_of(part: &str) -> &str {
    part.char_indices().nth(80).map_or(part, |(at, _)| &part[..at])
}

/// Bytes that an operation may take on the medium: what stood there before counts as if it stayed.
pub(super) fn room(op: &FsOp) -> u64 {
    let blocks = |off: u64, len: u64| (off % BLOCK + len).div_ceil(BLOCK) * BLOCK;
    match *op {
        FsOp::Write { off, len, .. }
        | FsOp::Fallocate { off, len, .. }
        | FsOp::OpenWriteClose { off, len, .. }
        | FsOp::OpenReadWriteClose { off, len, .. }
        | FsOp::ReadModifyWrite { off, len, .. } => blocks(off, len),
        // The end may lie anywhere in a block, and a checksum follows.
        FsOp::Append { len, .. } | FsOp::AppendChecksumWrite { len, .. } => blocks(BLOCK - 1, len),
        FsOp::SetXattr { len, .. } => len,
        FsOp::AtomicReplace { len, .. } => blocks(0, len),
        FsOp::Program { len, .. } | FsOp::Batch { len, .. } => 2 * blocks(BLOCK - 1, len),
        FsOp::MultiWrite { off, len, .. } => 2 * blocks(off, len),
        // What it needs beforehand, and two files at most, one of them put together of two.
        FsOp::Fused { off, len, .. } => 4 * blocks(off, len + BLOCK) + (64 << 10),
        _ => 0,
    }
}

fn read_step(part: &str) -> Result<Step, String> {
    let mut words = Words { words: part.split_whitespace() };
    let mut step = Step::new(read_operation(&mut words)?);
    for w in words.words {
        match w {
            "durable" => step.durable = true,
            "volatile" => step.durable = false,
            _ => {
                if let Some(mode) = known(&MODE, w) {
                    step.mode = mode;
                } else if let Some(sync) = known(&SYNC, w) {
                    step.sync = sync;
                } else if let Some(then) = known(&BACKGROUND, w) {
                    step.then = then;
                } else {
                    return Err(format!("{} is not known here", start_of(w)));
                }
            }
        }
    }
    Ok(step)
}

struct Words<'a> {
    words: std::str::SplitWhitespace<'a>,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Result<&'a str, String> {
        self.words.next().ok_or_else(|| "a word is missing".to_owned())
    }

    fn place(&mut self) -> Result<Place, String> {
        let w = self.next()?;
        Place::of(w).ok_or_else(|| format!("{} is not one of the names of the tiny tree", start_of(w)))
    }

    /// A number up to `max`.
    fn number<T: std::str::FromStr + PartialOrd + std::fmt::Display>(&mut self, max: T) -> Result<T, String> {
        let w = self.next()?;
        let decimal = w.bytes().all(|b| b.is_ascii_digit());
        match w.parse() {
            Ok(n) if n <= max => Ok(n),
            Err(_) if !decimal => Err(format!("{} is not a number", start_of(w))),
            _ => Err(format!("{} is more than {max}, the most that is taken here", start_of(w))),
        }
    }

    fn off(&mut self) -> Result<u64, String> {
        self.number(OFF_MAX)
    }

    /// Bytes of one of several payloads of a command, some.
    fn payload(&mut self) -> Result<u64, String> {
        match self.number(PAYLOAD_MAX / 8)? {
            0 => Err("nothing is written".to_owned()),
            len => Ok(len),
        }
    }

    fn octal(&mut self) -> Result<u32, String> {
        let w = self.next()?;
        match u32::from_str_radix(w, 8) {
            Ok(n) if n <= MODE_MAX => Ok(n),
            Ok(_) => Err(format!("{} is more than {MODE_MAX:o}, the permission bits", start_of(w))),
            Err(_) => Err(format!("{} is not an octal number up to {MODE_MAX:o}", start_of(w))),
        }
    }

    fn one_of<T: Copy>(&mut self, table: &[(&'static str, T)]) -> Result<T, String> {
        let w = self.next()?;
        known(table, w).ok_or_else(|| format!("{} is not known here", start_of(w)))
    }
}

fn read_operation(w: &mut Words<'_>) -> Result<FsOp, String> {
    Ok(match w.next()? {
        "creat" => FsOp::Creat { at: w.place()? },
        "mkdir" => FsOp::Mkdir { at: w.place()? },
        "rmdir" => FsOp::Rmdir { at: w.place()? },
        "unlink" => FsOp::Unlink { at: w.place()? },
        "hold" => FsOp::Hold { at: w.place()? },
        "link" => FsOp::Link { from: w.place()?, to: w.place()? },
        "symlink" => FsOp::Symlink { target: w.place()?, at: w.place()? },
        "rename" => FsOp::Rename { from: w.place()?, to: w.place()?, how: w.one_of(&RENAME)? },
        "write" => FsOp::Write { at: w.place()?, off: w.off()?, len: w.number(LEN_MAX)? },
        "append" => FsOp::Append { at: w.place()?, len: w.number(LEN_MAX)? },
        "truncate" => FsOp::Truncate { at: w.place()?, size: w.off()? },
        "fallocate" => {
            FsOp::Fallocate { at: w.place()?, mode: w.one_of(&FALLOC)?, off: w.off()?, len: w.number(LEN_MAX)? }
        }
        "setxattr" => FsOp::SetXattr { at: w.place()?, key: w.number(u8::MAX)?, len: w.number(XATTR_MAX)? },
        "removexattr" => FsOp::RemoveXattr { at: w.place()?, key: w.number(u8::MAX)? },
        "chmod" => FsOp::Chmod { at: w.place()?, mode: w.octal()? },
        "chown" => FsOp::Chown { at: w.place()?, uid: w.number(ID_MAX)?, gid: w.number(ID_MAX)? },
        "utimens" => FsOp::Utimens { at: w.place()?, sec: w.number(SECONDS_MAX)? },
        "open_write_close" => {
            FsOp::OpenWriteClose { at: w.place()?, how: w.one_of(&OPEN)?, off: w.off()?, len: w.number(PAYLOAD_MAX)? }
        }
        "open_read_write_close" => FsOp::OpenReadWriteClose {
            at: w.place()?,
            how: w.one_of(&OPEN)?,
            off: w.off()?,
            len: w.number(PAYLOAD_MAX)?,
        },
        "append_checksum_write" => FsOp::AppendChecksumWrite { at: w.place()?, len: w.number(PAYLOAD_MAX)? },
        "atomic_replace" => FsOp::AtomicReplace { tmp: w.place()?, at: w.place()?, len: w.payload()? },
        "program" => FsOp::Program { a: w.place()?, b: w.place()?, len: w.payload()? },
        "multi_write" => FsOp::MultiWrite { a: w.place()?, b: w.place()?, off: w.off()?, len: w.payload()? },
        "fused" => {
            let name = w.next()?;
            let row = catalogue::table().iter().position(|row| row.name() == name);
            let row = row.ok_or_else(|| format!("{} is not in the catalogue's table", start_of(name)))? as u8;
            FsOp::Fused { row, a: w.place()?, b: w.place()?, off: w.off()?, len: w.payload()? }
        }
        "batch" => FsOp::Batch { a: w.place()?, b: w.place()?, len: w.payload()? },
        "read_modify_write" => {
            let (at, change, off) = (w.place()?, w.one_of(&CHANGE)?, w.off()?);
            let len = w.number(PAYLOAD_MAX)?;
            if change == Change::Add && len != 8 {
                return Err(format!("add takes a number of 8 bytes, not of {len}"));
            }
            FsOp::ReadModifyWrite { at, change, off, len }
        }
        other => return Err(format!("{} is not an operation", start_of(other))),
    })
}
