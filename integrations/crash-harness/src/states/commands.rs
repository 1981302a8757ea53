//! What a step does, in the model's vocabulary: perhaps an open, then the commands that change something.

use super::workload::{Change, Falloc, FsOp, Opening, Place, Renaming, Workload};
use crate::catalogue::{Effect, How, MODE};
use crate::model::{self, At, Cred, Model, Modify, Name, Op, PAYLOAD_BYTES_MAX, SetAttr, SetTime, Who};

/// The slot of a step's own file; held files have the slots behind it.
pub(super) const SLOT: u32 = 0;

/// The commands of one step.
pub(super) struct Commands {
    /// Opens the file for the others; when it fails they are not run.
    pub open: Option<Op>,
    /// What changes something, in order: each is atomic by itself.
    pub ops: Vec<Op>,
    /// Whether the file stays open.
    pub keep: bool,
    /// Set where all of them are one command.
    pub many: Option<Many>,
}

/// Several operations in one command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Many {
    /// A program: atomic, or step by step.
    Program,
    /// Commands of their own.
    Batch,
    /// Writes that a session has collected: atomic.
    Transaction,
}

/// What a step of several operations in one command does.
fn many(step: usize, op: &FsOp) -> Option<(Many, Vec<Op>)> {
    let write = |at: Place, flags, place, len| Op::OpenWriteClose {
        name: name(at),
        flags,
        mode: 0o640,
        at: place,
        data: Workload::fill(step, len),
    };
    let creat = libc::O_CREAT;
    Some(match *op {
        FsOp::AtomicReplace { tmp, at, len } => {
            let rename = Op::Rename { from: name(tmp), to: name(at), noreplace: false, exchange: false };
            (Many::Program, vec![write(tmp, creat | libc::O_TRUNC, At::Offset(0), len), rename])
        }
        FsOp::Program { a, b, len } => {
            (Many::Program, vec![write(a, creat, At::End, len), write(b, creat, At::Offset(100), len)])
        }
        FsOp::MultiWrite { a, b, off, len } => {
            (Many::Transaction, vec![write(a, 0, At::Offset(off), len), write(b, 0, At::Offset(off), len)])
        }
        FsOp::Batch { a, b, len } => {
            let appended = write(b, creat, At::End, len);
            (Many::Batch, vec![write(a, creat | libc::O_TRUNC, At::Offset(0), len), appended])
        }
        _ => return None,
    })
}

fn name(at: Place) -> Name {
    named(at.path())
}

fn named(path: &str) -> Name {
    Name { base: None, path: path.as_bytes().to_vec() }
}

/// What changes a tree as an effect of the catalogue's table does; a sealed record is known only when it is there.
pub(super) fn effect(effect: &Effect, sealed: &[u8]) -> Op {
    let write = |path: &str, flags, at: Option<u64>, data: &[u8]| Op::OpenWriteClose {
        name: named(path),
        flags,
        mode: MODE.into(),
        at: at.map_or(At::End, At::Offset),
        data: data.to_vec(),
    };
    match effect {
        Effect::Write { path, how, at, data } => {
            let flags = match how {
                How::Existing => 0,
                How::New => libc::O_CREAT | libc::O_EXCL,
                How::Trunc => libc::O_TRUNC,
            };
            write(path, flags, *at, data)
        }
        Effect::Sealed { path, .. } => write(path, 0, None, sealed),
        Effect::Rename { from, to } => {
            Op::Rename { from: named(from), to: named(to), noreplace: false, exchange: false }
        }
        Effect::Mkdir { path } => Op::Mkdir { name: named(path), mode: MODE.into() },
        Effect::Symlink { target, path } => Op::Symlink { target: target.clone().into(), name: named(path) },
    }
}

/// A file's content; nothing where there is none.
pub(super) fn content(model: &Model, at: &str) -> Option<Vec<u8>> {
    let ino = model.lookup(&Cred::root(), &named(at), false).ok()?;
    model.bytes(ino, 0, u64::MAX >> 20).ok()
}

fn path(at: Place) -> Who {
    Who::Path(name(at), false)
}

fn open(at: Place, slot: u32) -> Option<Op> {
    Some(Op::Open { name: name(at), flags: libc::O_RDWR, mode: 0, slot })
}

fn key(key: u8) -> Vec<u8> {
    vec![b'u', b's', b'e', b'r', b'.', b'a' + key % 26]
}

fn opening(how: Opening) -> i32 {
    match how {
        Opening::Existing => 0,
        Opening::Create => libc::O_CREAT,
        Opening::New => libc::O_CREAT | libc::O_EXCL,
        Opening::Trunc => libc::O_CREAT | libc::O_TRUNC,
        Opening::Append => libc::O_CREAT | libc::O_APPEND,
    }
}

fn falloc(mode: Falloc) -> model::Falloc {
    match mode {
        Falloc::Reserve => model::Falloc::Reserve,
        Falloc::KeepSize => model::Falloc::KeepSize,
        Falloc::Punch => model::Falloc::Punch,
        Falloc::Zero => model::Falloc::Zero,
        Falloc::ZeroKeepSize => model::Falloc::ZeroKeepSize,
    }
}

/// The bytes a file has at `off`, zeros where it has none.
fn peek(model: &Model, at: Place, off: u64, len: u64) -> Vec<u8> {
    let found = model.lookup(&Cred::root(), &name(at), false).and_then(|ino| model.bytes(ino, off, len));
    let mut bytes = found.unwrap_or_default();
    bytes.resize(len as usize, 0);
    bytes
}

fn modify(step: usize, model: &Model, at: Place, change: Change, off: u64, len: u64) -> Modify {
    let new = Workload::fill(step, len);
    match change {
        Change::Patch => Modify::Patch(new),
        Change::Add => Modify::Add(0x0101_0101_0101_0101 * (step as u64 % 100 + 1)),
        Change::Xor => Modify::Xor(new),
        Change::Swap => Modify::CompareSwap { expect: peek(model, at, off, len), new },
        Change::SwapFail => {
            let expect = peek(model, at, off, len).iter().map(|b| b ^ 0x55).collect();
            Modify::CompareSwap { expect, new }
        }
    }
}

/// A write in pieces of at most one payload, as clients do it.
fn pieces(data: &[u8], at: impl Fn(u64) -> At) -> Vec<Op> {
    let each = |(i, chunk): (usize, &[u8])| Op::Write {
        slot: SLOT,
        at: at(i as u64 * PAYLOAD_BYTES_MAX),
        data: chunk.to_vec(),
    };
    data.chunks(PAYLOAD_BYTES_MAX as usize).enumerate().map(each).collect()
}

/// The commands of step number `step` over the tree that `model` shows.
pub(super) fn commands(step: usize, op: &FsOp, model: &Model) -> Commands {
    if let Some((many, ops)) = many(step, op) {
        return Commands { open: None, ops, keep: false, many: Some(many) };
    }
    let data = |len| Workload::fill(step, len);
    let set = |at, set| vec![Op::SetAttr { who: path(at), set }];
    let (open, ops) = match *op {
        FsOp::Creat { at } => {
            let flags = libc::O_WRONLY | libc::O_CREAT;
            (None, vec![Op::Open { name: name(at), flags, mode: 0o644, slot: SLOT }])
        }
        FsOp::Hold { at } => (open(at, SLOT + 1 + step as u32), Vec::new()),
        FsOp::Mkdir { at } => (None, vec![Op::Mkdir { name: name(at), mode: 0o755 }]),
        FsOp::Rmdir { at } => (None, vec![Op::Rmdir { name: name(at) }]),
        FsOp::Unlink { at } => (None, vec![Op::Unlink { name: name(at) }]),
        FsOp::Link { from, to } => (None, vec![Op::Link { from: Who::Path(name(from), true), to: name(to) }]),
        FsOp::Symlink { target, at } => {
            let target = target.path().as_bytes().to_vec();
            (None, vec![Op::Symlink { target, name: name(at) }])
        }
        FsOp::Rename { from, to, how } => {
            let (noreplace, exchange) = (how == Renaming::NoReplace, how == Renaming::Exchange);
            (None, vec![Op::Rename { from: name(from), to: name(to), noreplace, exchange }])
        }
        FsOp::Write { at, off, len } => (open(at, SLOT), pieces(&data(len), |from| At::Offset(off + from))),
        FsOp::Append { at, len } => (open(at, SLOT), pieces(&data(len), |_| At::End)),
        FsOp::Truncate { at, size } => (open(at, SLOT), vec![Op::Truncate { slot: SLOT, size }]),
        FsOp::Fallocate { at, mode, off, len } => {
            (open(at, SLOT), vec![Op::Fallocate { slot: SLOT, mode: falloc(mode), off, len }])
        }
        FsOp::SetXattr { at, key: k, len } => {
            let (who, key, value) = (path(at), key(k), data(len));
            (None, vec![Op::SetXattr { who, key, value, create: false, replace: false }])
        }
        FsOp::RemoveXattr { at, key: k } => (None, vec![Op::RemoveXattr { who: path(at), key: key(k) }]),
        FsOp::Chmod { at, mode } => (None, set(at, SetAttr { mode: Some(mode), ..SetAttr::NONE })),
        FsOp::Chown { at, uid, gid } => (None, set(at, SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::NONE })),
        FsOp::Utimens { at, sec } => {
            let time = SetTime::To((sec as i64, 7));
            (None, set(at, SetAttr { atime: time, mtime: time, ..SetAttr::NONE }))
        }
        FsOp::OpenWriteClose { at, how, off, len } => {
            let (name, flags, at, data) = (name(at), opening(how), At::Offset(off), data(len));
            (None, vec![Op::OpenWriteClose { name, flags, mode: 0o640, at, data }])
        }
        FsOp::OpenReadWriteClose { at, how, off, len } => {
            let (name, flags, at, data) = (name(at), opening(how), At::Offset(off), data(len));
            (None, vec![Op::OpenReadWriteClose { name, flags, mode: 0o640, off: 0, len: 64, at, data }])
        }
        FsOp::AppendChecksumWrite { at, len } => {
            (open(at, SLOT), vec![Op::AppendChecksumWrite { slot: SLOT, data: data(len) }])
        }
        FsOp::ReadModifyWrite { at, change, off, len } => {
            let modify = modify(step, model, at, change, off, len);
            (open(at, SLOT), vec![Op::ReadModifyWrite { slot: SLOT, off, len, modify }])
        }
        FsOp::AtomicReplace { .. }
        | FsOp::Program { .. }
        | FsOp::MultiWrite { .. }
        | FsOp::Batch { .. }
        | FsOp::Fused { .. } => (None, Vec::new()),
    };
    Commands { open, ops, keep: matches!(op, FsOp::Hold { .. }), many: None }
}
