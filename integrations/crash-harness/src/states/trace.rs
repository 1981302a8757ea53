//! Workloads as one line of text. Steps are separated by `;`, words by spaces: the operation, its operands, then what
//! differs from a volatile operation in its default mode with nothing after it.

use super::workload::{Background, Change, Falloc, FsOp, Mode, Opening, Place, Renaming, Step, Sync, Workload};

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
        steps.push(read_step(part).map_err(|e| format!("step {} ({part}): {e}", i + 1))?);
    }
    Ok(Workload { steps })
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
                    return Err(format!("{w} is not known here"));
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
        Place::of(w).ok_or_else(|| format!("{w} is not one of the names of the tiny tree"))
    }

    fn number<T: std::str::FromStr>(&mut self) -> Result<T, String> {
        let w = self.next()?;
        w.parse().map_err(|_| format!("{w} is not a number that fits"))
    }

    fn octal(&mut self) -> Result<u32, String> {
        let w = self.next()?;
        u32::from_str_radix(w, 8).map_err(|_| format!("{w} is not an octal number"))
    }

    fn one_of<T: Copy>(&mut self, table: &[(&'static str, T)]) -> Result<T, String> {
        let w = self.next()?;
        known(table, w).ok_or_else(|| format!("{w} is not known here"))
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
        "write" => FsOp::Write { at: w.place()?, off: w.number()?, len: w.number()? },
        "append" => FsOp::Append { at: w.place()?, len: w.number()? },
        "truncate" => FsOp::Truncate { at: w.place()?, size: w.number()? },
        "fallocate" => FsOp::Fallocate { at: w.place()?, mode: w.one_of(&FALLOC)?, off: w.number()?, len: w.number()? },
        "setxattr" => FsOp::SetXattr { at: w.place()?, key: w.number()?, len: w.number()? },
        "removexattr" => FsOp::RemoveXattr { at: w.place()?, key: w.number()? },
        "chmod" => FsOp::Chmod { at: w.place()?, mode: w.octal()? },
        "chown" => FsOp::Chown { at: w.place()?, uid: w.number()?, gid: w.number()? },
        "utimens" => FsOp::Utimens { at: w.place()?, sec: w.number()? },
        "open_write_close" => {
            FsOp::OpenWriteClose { at: w.place()?, how: w.one_of(&OPEN)?, off: w.number()?, len: w.number()? }
        }
        "open_read_write_close" => {
            FsOp::OpenReadWriteClose { at: w.place()?, how: w.one_of(&OPEN)?, off: w.number()?, len: w.number()? }
        }
        "append_checksum_write" => FsOp::AppendChecksumWrite { at: w.place()?, len: w.number()? },
        "read_modify_write" => {
            FsOp::ReadModifyWrite { at: w.place()?, change: w.one_of(&CHANGE)?, off: w.number()?, len: w.number()? }
        }
        other => return Err(format!("{other} is not an operation")),
    })
}
