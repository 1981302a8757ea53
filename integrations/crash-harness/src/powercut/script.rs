//! What one client does, and what its folder looks like after each step.
//!
//! Each client works in a folder of its own, so its steps alone decide the folder's content: after a power cut the
//! folder must equal the state after one of its steps. All clients also append to one shared log.

use rand::Rng;
use rand::rngs::SmallRng;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Names that a client uses in its folder.
const NAMES: usize = 6;
/// Largest file, bytes.
const FILE_MAX: usize = 24 << 10;

/// Content of a client's folder: name to bytes.
pub type Folder = BTreeMap<String, Arc<Vec<u8>>>;

/// One step of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // operands named after what they are
pub enum Step {
    /// open_write_close, creating or replacing the whole content.
    Store { name: String, data: Vec<u8> },
    /// An append through an open file.
    Append { name: String, data: Vec<u8> },
    /// A write inside an existing file.
    Patch { name: String, off: usize, data: Vec<u8> },
    /// A new size.
    Truncate { name: String, size: usize },
    /// Rename, replacing the target if there is one.
    Rename { from: String, to: String },
    /// Unlink.
    Unlink { name: String },
    /// append_checksum_write to the shared log.
    Log { data: Vec<u8> },
    /// fsync of a file: makes everything before durable.
    Sync { name: String },
}

impl Step {
    /// Whether there is an effect to be durable. A rename to the same name has none, so that asking for it durably
    /// promises nothing about what came before.
    pub(crate) fn changes_something(&self) -> bool {
        !matches!(self, Step::Rename { from, to } if from == to)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Store { name, data } => write!(f, "store {name} {}", data.len()),
            Step::Append { name, data } => write!(f, "append {name} {}", data.len()),
            Step::Patch { name, off, data } => write!(f, "patch {name} at {off} {}", data.len()),
            Step::Truncate { name, size } => write!(f, "truncate {name} to {size}"),
            Step::Rename { from, to } => write!(f, "rename {from} to {to}"),
            Step::Unlink { name } => write!(f, "unlink {name}"),
            Step::Log { data } => write!(f, "log {}", data.len()),
            Step::Sync { name } => write!(f, "fsync {name}"),
        }
    }
}

/// A client's steps, whether each asks to be durable, and the folder before the first and after each of them.
pub struct Script {
    /// The steps in order; `true` asks for durability of the step itself.
    pub steps: Vec<(Step, bool)>,
    /// `folders[k]` is the folder after the first `k` steps.
    pub folders: Vec<Folder>,
    /// `logged[k]` is the number of log records among the first `k` steps.
    pub logged: Vec<usize>,
}

fn bytes(rng: &mut SmallRng, most: usize) -> Vec<u8> {
    // Small payloads are inline in the record, block-sized ones go to fresh blocks, odd ones need both: all matter.
    let len = match rng.random_range(0..4) {
        0 => rng.random_range(1..200),
        1 => 4096,
        2 => rng.random_range(1..=2) * 4096 + rng.random_range(0..600),
        _ => rng.random_range(1..most.max(2)),
    };
    let mut data = vec![0; len.min(most.max(1))];
    rng.fill(&mut data[..]);
    data
}

fn step(rng: &mut SmallRng, folder: &Folder) -> Step {
    let any = |rng: &mut SmallRng| format!("f{}", rng.random_range(0..NAMES));
    let existing: Vec<&String> = folder.keys().collect();
    if existing.is_empty() {
        return Step::Store { name: any(rng), data: bytes(rng, FILE_MAX) };
    }
    let name = existing[rng.random_range(0..existing.len())].clone();
    let len = folder[&name].len();
    match rng.random_range(0..16) {
        0..=3 => Step::Store { name: any(rng), data: bytes(rng, FILE_MAX) },
        4..=6 if len < FILE_MAX => Step::Append { name, data: bytes(rng, FILE_MAX - len) },
        7..=8 if len > 0 => {
            let off = rng.random_range(0..len);
            Step::Patch { name, off, data: bytes(rng, len - off) }
        }
        9 => Step::Truncate { name, size: rng.random_range(0..=FILE_MAX.min(len * 2)) },
        10 => Step::Rename { from: name, to: any(rng) },
        11 => Step::Unlink { name },
        12 => Step::Sync { name },
        _ => Step::Log { data: bytes(rng, 3000) },
    }
}

fn apply(step: &Step, folder: &mut Folder) {
    match step {
        Step::Store { name, data } => {
            folder.insert(name.clone(), Arc::new(data.clone()));
        }
        Step::Append { name, data } => change(folder, name, |f| f.extend_from_slice(data)),
        Step::Patch { name, off, data } => change(folder, name, |f| f[*off..off + data.len()].copy_from_slice(data)),
        Step::Truncate { name, size } => change(folder, name, |f| f.resize(*size, 0)),
        Step::Rename { from, to } => {
            if let Some(file) = folder.remove(from) {
                folder.insert(to.clone(), file);
            }
        }
        Step::Unlink { name } => {
            folder.remove(name);
        }
        Step::Log { .. } | Step::Sync { .. } => {}
    }
}

fn change(folder: &mut Folder, name: &str, with: impl FnOnce(&mut Vec<u8>)) {
    if let Some(file) = folder.get_mut(name) {
        with(Arc::make_mut(file));
    }
}

impl Script {
    /// `count` steps drawn from `rng`; one in `durable_one_in` asks to be durable.
    pub fn draw(rng: &mut SmallRng, count: usize, durable_one_in: u32) -> Script {
        let mut script = Script { steps: Vec::new(), folders: vec![Folder::new()], logged: vec![0] };
        for i in 0..count {
            let mut folder = script.folders[i].clone();
            let step = step(rng, &folder);
            apply(&step, &mut folder);
            script.logged.push(script.logged[i] + usize::from(matches!(step, Step::Log { .. })));
            script.steps.push((step, rng.random_ratio(1, durable_one_in)));
            script.folders.push(folder);
        }
        script
    }

    /// The payload of this client's `n`-th log record.
    pub(crate) fn log_payload(&self, n: usize) -> Option<&[u8]> {
        let mut logs =
            self.steps.iter().filter_map(|(s, _)| if let Step::Log { data } = s { Some(&data[..]) } else { None });
        logs.nth(n)
    }
}
