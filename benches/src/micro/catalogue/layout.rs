//! The files of these operations: made before the clock starts, and looked at after it has stopped.

use super::*;
use crate::micro::cell::Cell;
use crate::micro::files::{Tree, name, payload, records};
use std::io;

/// Bytes of a file that records are in.
const DATA: u64 = 4 << 20;

/// Where an operation works.
pub(in crate::micro) struct Shape {
    /// What its folder is called.
    pub folder: &'static str,
    /// Whether it is made for each run and removed after it.
    pub fresh: bool,
    /// Names of the files that are open.
    pub open: Vec<String>,
}

/// The folder and open files of an operation.
pub(in crate::micro) fn shape(op: MicroOp) -> Shape {
    let parts = || (0..PARTS).map(name);
    let of = |folder, fresh, open: Vec<String>| Shape { folder, fresh, open };
    match op {
        MicroOp::CopyRange => of("copy", true, vec!["data".into(), "copy".into()]),
        MicroOp::Concat => of("concat", true, std::iter::once("log".to_owned()).chain(parts()).collect()),
        MicroOp::CompressWrite | MicroOp::EncryptWrite => of("packed", true, vec!["data".into()]),
        MicroOp::AppendToRecord => of("grown", true, vec!["data".into()]),
        MicroOp::MultiWrite => of("parts", true, parts().collect()),
        MicroOp::AppendAndRotate => of("logs", true, Vec::new()),
        MicroOp::CreateTree => of("trees", true, Vec::new()),
        MicroOp::LogRecover => of("torn", false, vec!["data".into()]),
        MicroOp::IndexWalk => of("index", false, vec!["data".into()]),
        // As those that are opened by name.
        _ => of("set", false, Vec::new()),
    }
}

/// Makes the files in a folder that was just made.
pub(in crate::micro) fn fill(tree: &dyn Tree, folder: &str, cell: &Cell, run: u64) -> io::Result<()> {
    let (size, at) = (cell.size, |name: &str| format!("{folder}/{name}"));
    let zeros = |bytes: u64| vec![0; bytes as usize];
    match cell.op {
        MicroOp::CopyRange => {
            let all: Vec<u8> = (0..records(size)).flat_map(|i| payload(size, i, run)).collect();
            tree.put(&at("data"), &all)?;
            tree.put(&at("copy"), &zeros(DATA))
        }
        MicroOp::Concat => {
            tree.put(&at("log"), &[])?;
            (0..PARTS).try_for_each(|i| tree.put(&at(&name(i)), &payload(size, i, run)))
        }
        MicroOp::MultiWrite => (0..PARTS).try_for_each(|i| tree.put(&at(&name(i)), &zeros(DATA / PARTS))),
        MicroOp::CompressWrite | MicroOp::EncryptWrite | MicroOp::AppendToRecord => tree.put(&at("data"), &zeros(DATA)),
        MicroOp::LogRecover => tree.put(&at("data"), &log(size, run)),
        MicroOp::IndexWalk => tree.put(&at("data"), &index(size)),
        MicroOp::CreateTree => Ok(()),
        // Each one was put aside once, so that every rotation replaces a log.
        MicroOp::AppendAndRotate => (0..LOGS).try_for_each(|log| {
            tree.put(&at(&name(log)), &zeros(filled(log) * u64::from(size)))?;
            tree.put(&at(&aside(log)), &zeros(FULL * u64::from(size)))
        }),
        _ => (0..FILES).try_for_each(|i| tree.put(&at(&name(i)), &payload(size, i, run))),
    }
}

/// A log of whole records and a torn one: length, CRC-32C of the payload, payload.
fn log(size: u32, run: u64) -> Vec<u8> {
    let record = |i: u64| {
        let data = payload(size, i, run);
        let head = [size.to_le_bytes(), weldfs_functions::crc32c(&data).to_le_bytes()].concat();
        [head, data].concat()
    };
    let mut all: Vec<u8> = (0..=log_records(size)).flat_map(record).collect();
    all.pop();
    all
}

/// Nodes that hold where the next one lies, and their number; behind the last one there is room for a record.
fn index(size: u32) -> Vec<u8> {
    let mut all = vec![0; (NODES * NODE) as usize + size as usize];
    for node in 0..NODES {
        let at = (node * NODE) as usize;
        all[at..at + 8].copy_from_slice(&(next_node(node) * NODE).to_le_bytes());
        all[at + 8..at + 16].copy_from_slice(&node.to_le_bytes());
    }
    all
}

/// Where the `i`th record of a multi-write goes.
pub(in crate::micro) fn part_offset(i: u64, size: u32) -> u64 {
    pick(i, (records(size) / PARTS).max(1)) * u64::from(size)
}

fn wrong(what: &str) -> io::Error {
    io::Error::other(format!("the work was not done: {what}"))
}

/// The bytes at an offset are these.
fn holds(tree: &dyn Tree, path: &str, offset: u64, due: &[u8]) -> io::Result<()> {
    let mut found = vec![0; due.len()];
    tree.get(path, offset, &mut found)?;
    if found == due { Ok(()) } else { Err(wrong(&format!("{path} at {offset} holds something else"))) }
}

/// Looks whether the operation `i` of `count` was done.
pub(in crate::micro) fn verify(
    tree: &dyn Tree,
    folder: &str,
    cell: &Cell,
    run: u64,
    (i, count): (u64, u64),
) -> io::Result<()> {
    let (size, wide, at) = (cell.size, u64::from(cell.size), |name: &str| format!("{folder}/{name}"));
    let record = pick(i, records(size));
    match cell.op {
        MicroOp::AtomicReplace => {
            let (number, entries) = (pick(i, FILES), tree.count(folder)?);
            if entries != FILES {
                return Err(wrong(&format!("{entries} files instead of {FILES}: a temporary one is left")));
            }
            holds(tree, &at(&name(number)), 0, &payload(size, number, run))
        }
        MicroOp::CopyRange => holds(tree, &at("copy"), record * wide, &payload(size, record, run)),
        MicroOp::Concat => {
            let found = tree.size(&at("log"))?;
            if found != count * PARTS * wide {
                return Err(wrong(&format!("the log has {found} bytes instead of {}", count * PARTS * wide)));
            }
            (0..PARTS).try_for_each(|k| holds(tree, &at("log"), (i * PARTS + k) * wide, &payload(size, k, run)))
        }
        MicroOp::MultiWrite => {
            let (offset, record) = (part_offset(i, size), pick(i, (records(size) / PARTS).max(1)));
            (0..PARTS).try_for_each(|k| holds(tree, &at(&name(k)), offset, &payload(size, record, run)))
        }
        MicroOp::CompressWrite => holds(tree, &at("data"), record * wide, &compressed(&mixed(size, record, run))?),
        MicroOp::EncryptWrite => {
            let (number, offset) = encrypted(i, size);
            let mut due = payload(size, number, run);
            encrypt(&own_key()?, offset, &mut due)?;
            holds(tree, &at("data"), offset, &due)
        }
        MicroOp::AppendToRecord => {
            let grown = (0..count).filter(|j| pick(*j, records(size)) == record).count() as u32 * GROWTH;
            holds(tree, &at("data"), record * wide, &grown.to_le_bytes())?;
            holds(tree, &at("data"), record * wide + LENGTH, &payload(GROWTH, record, run))
        }
        MicroOp::AppendAndRotate => rotated(tree, folder, cell, run, (i, count)),
        MicroOp::CreateTree => (0..LEAVES.len()).try_for_each(|which| {
            let path = at(&String::from_utf8_lossy(&leaf(i, which)));
            if tree.size(&path)? != wide {
                return Err(wrong(&format!("{path} has another size")));
            }
            holds(tree, &path, 0, &payload(size, i, run))
        }),
        // Every answer was compared when it came.
        _ => Ok(()),
    }
}

/// Where a log is put aside.
fn aside(log: u64) -> String {
    let mut old = [0; NAME];
    temporary(log, &mut old);
    String::from_utf8_lossy(&old).into_owned()
}

/// Looks at the log of the `i`th append: it was put aside as often as it was full, and no payload was lost but with the
/// log before the last one.
fn rotated(tree: &dyn Tree, folder: &str, cell: &Cell, run: u64, (i, count): (u64, u64)) -> io::Result<()> {
    let (log, wide) = (pick(i, LOGS), u64::from(cell.size));
    let appends = |until: u64| (0..until).filter(|j| pick(*j, LOGS) == log).count() as u64;
    let (payload_at, all) = (filled(log) + appends(i), filled(log) + appends(count));
    let (times, last) = ((all - 1) / FULL, (all - 1) % FULL + 1);
    let (path, old) = (format!("{folder}/{}", name(log)), format!("{folder}/{}", aside(log)));
    let found = tree.size(&path)?;
    if found != last * wide {
        return Err(wrong(&format!("{path} has {found} bytes instead of {}", last * wide)));
    }
    if tree.size(&old)? != FULL * wide {
        return Err(wrong(&format!("{old} is not a full log")));
    }
    // What is there from the start is zeros.
    let mut first = [0];
    tree.get(&old, 0, &mut first)?;
    if times == 0 && first != [0] {
        return Err(wrong(&format!("{path} was put aside before it was full")));
    }
    let (offset, due) = (payload_at % FULL * wide, payload(cell.size, i, run));
    match times - payload_at / FULL {
        0 => holds(tree, &path, offset, &due),
        1 => holds(tree, &old, offset, &due),
        _ => Ok(()),
    }
}

/// The record that the `i`th operation encrypts, and where it goes: to the beginning of a data unit.
pub(in crate::micro) fn encrypted(i: u64, size: u32) -> (u64, u64) {
    let step = size.max(UNIT);
    let number = pick(i, records(step));
    (number, number * u64::from(step))
}
