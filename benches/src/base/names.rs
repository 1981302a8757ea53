//! Does a name cost the same in a large directory as in a small one?

use super::drive::Driver;
use super::{Options, Samples, row, start};
use crate::report::{Ratio, median};
use std::io;
use weldfs::{Client, Command, Durability, Handle, Op, OpenFlags, PoolRange};

/// Names touched per sample: enough to time, few against the directory's size.
const TOUCHED: u64 = 500;
const SAMPLES: usize = 15;

fn fill(client: &Client, folder: &str, count: u64) -> io::Result<()> {
    let mut driver = Driver::new(client, &[])?;
    each(&mut driver, folder, 0..count, 32, |path| {
        let flags = OpenFlags::WRITE | OpenFlags::CREATE;
        Op::OpenWriteClose {
            base: Handle::ROOT,
            path,
            flags,
            mode: 0o644,
            at: weldfs::At::Offset(0),
            src: PoolRange::EMPTY,
        }
    })
    .map(|_| ())
}

/// Runs one op per name `folder/NUMBER`; nanoseconds per op.
fn each(
    driver: &mut Driver,
    folder: &str,
    numbers: std::ops::Range<u64>,
    depth: u64,
    make: impl Fn(PoolRange) -> Op,
) -> io::Result<f64> {
    let width = folder.len() + 11;
    let queue = driver.queue();
    let names = (0..64).map(|_| queue.alloc(width as u32)).collect::<Result<Vec<_>, _>>()?;
    let pool = queue.pool().clone();
    let first = numbers.start;
    let ns = driver.run(numbers.end - first, depth, |i, _| {
        let path = names[(i % 64) as usize];
        if let Ok(room) = pool.slice(path) {
            room.copy_from(format!("{folder}/{:010}", first + i).as_bytes());
        }
        Command::new(0, make(path)).with_durability(Durability::Volatile)
    })?;
    names.into_iter().for_each(|n| driver.queue().free(n));
    Ok(ns)
}

fn create(path: PoolRange) -> Op {
    let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCL;
    Op::OpenWriteClose {
        base: Handle::ROOT,
        path,
        flags,
        mode: 0o644,
        at: weldfs::At::Offset(0),
        src: PoolRange::EMPTY,
    }
}

fn lookup(path: PoolRange) -> Op {
    Op::Access { base: Handle::ROOT, path, mask: weldfs::AccessMask::empty(), nofollow: true }
}

fn unlink(path: PoolRange) -> Op {
    Op::Unlink { base: Handle::ROOT, path }
}

/// Fills both directories, then touches each in turn.
pub(super) fn directories(options: &Options, samples: &mut Samples) -> io::Result<Vec<Ratio>> {
    let served = start(options, "on", "4G")?;
    let client = served.connect()?;
    let sizes = [("1k", 1_000u64), ("1M", 1_000_000u64)];
    for (name, size) in sizes {
        client.create_dir(format!("/{name}"))?;
        fill(&client, &format!("/{name}"), size)?;
    }
    client.sync()?;
    let mut driver = Driver::new(&client, &[])?;
    let mut all: Vec<(String, Vec<f64>)> = Vec::new();
    for round in 0..SAMPLES as u64 {
        for (name, size) in sizes {
            let folder = format!("/{name}");
            // Names all over the directory, so that the large one cannot live off a few cached pages.
            let near = (round * 7919 * TOUCHED) % size.saturating_sub(TOUCHED).max(1);
            let fresh = size..size + TOUCHED;
            for (what, ns) in [
                ("create", each(&mut driver, &folder, fresh.clone(), 1, create)?),
                ("lookup", each(&mut driver, &folder, near..near + TOUCHED, 1, lookup)?),
                ("unlink", each(&mut driver, &folder, fresh.clone(), 1, unlink)?),
            ] {
                let bench = format!("{what} in {name} entries");
                samples.add(row(&bench, "weldfs", 1, "emulated pmem", "volatile"), ns);
                match all.iter_mut().find(|(b, _)| *b == bench) {
                    Some((_, list)) => list.push(ns),
                    None => all.push((bench, vec![ns])),
                }
            }
        }
    }
    let figure = |what: &str, name: &str| {
        let bench = format!("{what} in {name} entries");
        all.iter().find(|(b, _)| *b == bench).map_or(f64::NAN, |(_, list)| median(list))
    };
    let ratio = |what| {
        Ratio::at_most(&format!("{what}: 1,000,000 entries over 1,000"), figure(what, "1M"), figure(what, "1k"), 1.5)
    };
    Ok(["create", "lookup", "unlink"].map(ratio).into())
}
