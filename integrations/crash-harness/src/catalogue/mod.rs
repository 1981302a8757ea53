//! The catalogue of fused operations as one table: what each operation is given, the command that asks for it, what it
//! must change and what it must answer, worked out here and not by the device. Tests and crash workloads run the table,
//! and one of them fails for an operation that is missing.
//!
//! * `rows.rs`, `moves.rs`: the table. `run.rs`: performs a row on anything that takes commands.
//! * `steps.rs`: the same by single operations, micro-op by micro-op. `world.rs`: trees of files, for comparison.
//!   `wrong.rs`: malformed commands.

mod moves;
mod rows;
mod run;
pub mod steps;
mod world;
pub mod wrong;

pub use run::{Answer, Machine, Ops, Pool, command, keys, make, open_all, perform};
pub use world::{Thing, World, apply, file, picture};

use weldfs_ciscops::functions::cipher::{Key, KeyKind};
use weldfs_ciscops::program::Body;
use weldfs_ciscops::{At, Errno, Handle, Op, OpenFlags, Placement, PoolRange};

/// Bytes of the two keys that every machine is given: one for data units, one for records.
pub(crate) const KEY_BYTES: [u8; 32] = {
    let (mut bytes, mut i) = ([0; 32], 0);
    while i < 32 {
        bytes[i] = i as u8 + 1;
        i += 1;
    }
    bytes
};

/// The key for data units, as the device has it.
///
/// # Panics
/// Never: the bytes are right.
pub(crate) fn unit_key() -> Key {
    Key::new(KeyKind::Xts128, &KEY_BYTES).expect("32 bytes with different halves")
}

/// The key for records, as the device has it.
///
/// # Panics
/// Never: the bytes are right.
pub(crate) fn record_key() -> Key {
    Key::new(KeyKind::Gcm256, &KEY_BYTES).expect("32 bytes")
}

/// What a row is given.
pub struct Given {
    /// A file that exists.
    pub a: String,
    /// Another one.
    pub b: String,
    /// A name in the same directory that nothing has.
    pub c: String,
    /// An offset, bytes.
    pub off: u64,
    /// The payload.
    pub data: Vec<u8>,
    /// What the machine calls its keys: units, records.
    pub keys: [u64; 2],
    /// What stands there.
    pub world: World,
}

impl Given {
    /// Content of a file; nothing where there is none.
    pub fn content(&self, path: &str) -> Vec<u8> {
        match self.world.get(path) {
            Some(Thing::File(bytes)) => bytes.clone(),
            _ => Vec::new(),
        }
    }

    fn size(&self, path: &str) -> u64 {
        self.content(path).len() as u64
    }

    fn len(&self) -> u32 {
        self.data.len() as u32
    }
}

/// How a write finds its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// It is there.
    Existing,
    /// It is not.
    New,
    /// It is emptied first.
    Trunc,
}

/// What one micro-op changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Bytes of a file.
    Write {
        /// Which.
        path: String,
        /// How it is found.
        how: How,
        /// Where: an offset, or the end.
        at: Option<u64>,
        /// The bytes.
        data: Vec<u8>,
    },
    /// A sealed record at the end of a file: its nonce is not known before.
    Sealed {
        /// Which file.
        path: String,
        /// What the record holds.
        plain: Vec<u8>,
    },
    /// A name replaces another.
    Rename {
        /// The one that goes.
        from: String,
        /// The one that stays.
        to: String,
    },
    /// A directory.
    Mkdir {
        /// Its path.
        path: String,
    },
    /// A symbolic link.
    Symlink {
        /// What it says.
        target: String,
        /// Its path.
        path: String,
    },
}

/// Permission bits of everything that the table makes.
pub const MODE: u16 = 0o750;

/// A range of the pool that a single command works on.
pub enum Range {
    /// Bytes that it takes.
    In(Vec<u8>),
    /// Room for bytes that it gives.
    Out(u32),
}

/// Makes an operation of handles and ranges.
pub type OpOf = Box<dyn Fn(&[Handle], &[PoolRange]) -> Op>;
/// Makes a program of handles.
pub type BodyOf = Box<dyn Fn(&[Handle]) -> Result<Body, Errno>>;

/// A command with an opcode of its own.
pub struct Single {
    /// Its ranges.
    pub ranges: Vec<Range>,
    /// The operation.
    pub op: OpOf,
}

/// How an operation is asked for.
pub enum Form {
    /// By a command with an opcode of its own.
    One(Single),
    /// By a program; the payloads, in the order of its ranges.
    Program(Vec<Vec<u8>>, BodyOf),
    /// By one command that stands for several.
    Batch(Vec<Single>),
    /// By a transaction that the session collects: handle, place and bytes of each write; whether it is committed.
    Transaction(Vec<(usize, At, Vec<u8>)>, bool),
}

/// A row with its operands.
pub struct Planned {
    /// What is made before.
    pub before: Vec<Effect>,
    /// Files that the command names by handles.
    pub opens: Vec<(String, OpenFlags)>,
    /// The command.
    pub form: Form,
    /// Where its compute stages run.
    pub placement: Placement,
    /// What it changes, in order.
    pub effects: Vec<Effect>,
    /// The errno it must have; nothing changes then.
    pub errno: Option<Errno>,
    /// Its two results.
    pub results: (u64, u64),
    /// What lies in its rooms, one behind the other, as [`Row::view`] shows it.
    pub shown: Vec<u8>,
}

/// An operation of the catalogue, in one of its forms.
pub struct Row {
    /// The file of the catalogue that defines it, or what a batch or a transaction is called.
    pub op: &'static str,
    /// Which form.
    pub form: &'static str,
    /// Its command and its effect.
    pub plan: fn(&Given) -> Planned,
    /// What of its answer is compared.
    pub view: fn(&[u8]) -> Vec<u8>,
    /// Whether each of its elements counts by itself, in any mode.
    pub elements: bool,
    /// Whether a directory of the host has it (docs/HOSTDIR.md).
    pub on_host: bool,
}

impl Row {
    /// Operation and form.
    pub fn name(&self) -> String {
        if self.form.is_empty() { self.op.to_owned() } else { format!("{}.{}", self.op, self.form) }
    }
}

/// The table.
pub fn table() -> Vec<Row> {
    rows::rows().into_iter().chain(moves::rows()).collect()
}

/// The row of that name.
pub fn row(name: &str) -> Option<Row> {
    table().into_iter().find(|r| r.name() == name)
}

/// Operations beside those that `ciscops::catalogue` defines, each in a file of its own.
pub const COMPOSED: [&str; 8] = [
    "kernel",
    "batch",
    "stat_many",
    "read_dir_plus",
    "multi_write",
    "transaction",
    "open_pwrite_close",
    "write_verified",
];

fn row_of(op: &'static str, form: &'static str, plan: fn(&Given) -> Planned) -> Row {
    Row { op, form, plan, view: <[u8]>::to_vec, elements: false, on_host: true }
}

fn planned(form: Form) -> Planned {
    let (before, opens, effects) = Default::default();
    let placement = Placement::Auto;
    Planned { before, opens, form, placement, effects, errno: None, results: (0, 0), shown: Vec::new() }
}

fn one(ranges: Vec<Range>, op: impl Fn(&[Handle], &[PoolRange]) -> Op + 'static) -> Planned {
    planned(Form::One(Single { ranges, op: Box::new(op) }))
}

fn program(ins: Vec<Vec<u8>>, body: impl Fn(&[Handle]) -> Result<Body, Errno> + 'static) -> Planned {
    planned(Form::Program(ins, Box::new(body)))
}

fn write(path: &str, at: u64, data: &[u8]) -> Effect {
    Effect::Write { path: path.to_owned(), how: How::Existing, at: Some(at), data: data.to_vec() }
}

fn append(path: &str, data: &[u8]) -> Effect {
    Effect::Write { path: path.to_owned(), how: How::Existing, at: None, data: data.to_vec() }
}

fn whole(path: &str, how: How, data: &[u8]) -> Effect {
    Effect::Write { path: path.to_owned(), how, at: Some(0), data: data.to_vec() }
}

const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);

impl Planned {
    fn before(mut self, before: impl IntoIterator<Item = Effect>) -> Planned {
        self.before.extend(before);
        self
    }

    fn opens<'p>(mut self, opens: impl IntoIterator<Item = (&'p String, OpenFlags)>) -> Planned {
        self.opens.extend(opens.into_iter().map(|(path, flags)| (path.clone(), flags)));
        self
    }

    fn effects(mut self, effects: impl IntoIterator<Item = Effect>) -> Planned {
        self.effects.extend(effects);
        self
    }

    fn gives(mut self, result: u64, result2: u64) -> Planned {
        self.results = (result, result2);
        self
    }

    /// Its compute stages run in slots.
    fn in_slot(mut self) -> Planned {
        self.placement = Placement::Slot { or_core: false };
        self
    }

    /// What lies in a room of `room` bytes.
    fn shows(mut self, bytes: &[u8], room: usize) -> Planned {
        self.shown.extend(bytes);
        self.shown.resize(room, 0);
        self
    }

    /// Refused, with nothing changed.
    fn fails(mut self, errno: Option<Errno>) -> Planned {
        if errno.is_some() {
            (self.errno, self.effects, self.results) = (errno, Vec::new(), (0, 0));
        }
        self
    }
}

/// At most `len` bytes from `off` on.
fn part(bytes: &[u8], off: u64, len: usize) -> &[u8] {
    let start = bytes.len().min(off as usize);
    &bytes[start..bytes.len().min(start + len)]
}

/// `len` bytes from `off` on, zeros behind the end.
fn padded(bytes: &[u8], off: u64, len: usize) -> Vec<u8> {
    let mut part = part(bytes, off, len).to_vec();
    part.resize(len, 0);
    part
}
