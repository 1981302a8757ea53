//! What goes for the device's time, memory and room: more commands, longer ones, more bytes.

use crate::clients::families::{Ground, HOME, forever, seed};
use std::io;
use weldfs::{At, ChecksumKind, Client, Command, Durability, File, Op, OpenFlags, OpenOptions, Queue};
use weldfs_ciscops::Cqe;
use weldfs_ciscops::program::text::parse;
use zerocopy::IntoBytes;

/// Bytes of a file without a block.
const SPARSE: u64 = 16 << 40;
/// Entries of a queue pair, and queue pairs.
const DEPTH: u32 = 1024;
const QUEUES: u32 = 4;
/// Items of a batch.
const ITEMS: usize = 256;

pub fn sparse(g: &Ground) -> io::Result<()> {
    let file = g.client.create(format!("{HOME}/sparse"))?;
    // (Sizes end at what the device takes.)
    let mut size = SPARSE;
    while file.set_len(size).is_err() {
        size /= 2;
    }
    Ok(())
}

/// Keeps a queue pair full of one command.
fn full(queue: &mut Queue, next: &mut dyn FnMut(u64) -> Op) -> io::Result<()> {
    let mut n = 0;
    loop {
        while queue.submit(&Command::new(0, next(n)).with_durability(Durability::Volatile)).is_ok() {
            n += 1;
        }
        queue.flush();
        queue.await_any()?;
        while queue.reap()?.is_some() {}
    }
}

fn sparse_file(client: &Client) -> io::Result<(File, u64)> {
    let file = client.open(format!("{HOME}/sparse"), &OpenOptions::new().read(true))?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

pub fn backlog(g: &Ground) -> io::Result<()> {
    let (file, len) = sparse_file(&g.client)?;
    let (h, kind) = (file.handle(), ChecksumKind::Crc32c);
    forever(QUEUES, |_| {
        let mut queue = g.client.queue(DEPTH, 4096)?;
        full(&mut queue, &mut |_| Op::ChecksumRange { h, kind, offset: 0, len })
    })
}

pub fn nops(g: &Ground) -> io::Result<()> {
    forever(2, |_| full(&mut g.client.queue(DEPTH, 4096)?, &mut |_| Op::Nop))
}

pub fn batches(g: &Ground) -> io::Result<()> {
    let options = OpenOptions::new().read(true).write(true).create(true);
    forever(QUEUES, |i| {
        let file = g.client.open(format!("{HOME}/batched{i}"), &options)?;
        let mut queue = g.client.queue(DEPTH / QUEUES, 1 << 20)?;
        let src = queue.stage(&[7; 4096])?;
        batch(&mut queue, |n| Op::Write { h: file.handle(), at: At::Offset(n * 4096), src })
    })
}

/// Keeps a queue pair full of batches of such commands.
fn batch(queue: &mut Queue, element: impl Fn(u64) -> Op) -> io::Result<()> {
    let mut entries = Vec::new();
    for n in 0..ITEMS as u64 {
        let command = Command::new(n, element(n)).with_durability(Durability::Volatile);
        entries.extend_from_slice(command.encode().as_bytes());
    }
    let (items, results) = (queue.stage(&entries)?, queue.alloc((ITEMS * size_of::<Cqe>()) as u32)?);
    full(queue, &mut |_| Op::Batch { items, results })
}

pub fn programs(g: &Ground) -> io::Result<()> {
    forever(QUEUES, |i| {
        let path = format!("{}/programmed{i}", &HOME[1..]);
        let text = format!("open \"{path}\" rw create as f; write f 0 \"{}\"; read f 0 64\n", "x".repeat(64));
        let bound = parse(&text, &[]).ok().and_then(|program| program.body.bind(&[]).ok());
        let program = bound.ok_or_else(|| io::Error::other("a program that is none"))?;
        let mut queue = g.client.queue(DEPTH / QUEUES, 1 << 20)?;
        let body = queue.stage(&program)?;
        batch(&mut queue, |_| Op::Program { body })
    })
}

pub fn memory(g: &Ground) -> io::Result<()> {
    let (big, len) = (format!("{HOME}/big"), 8 << 20);
    let file = g.client.open(big, &OpenOptions::new().read(true).write(true).create(true))?;
    file.write_all_at(&vec![5; len as usize], 0)?;
    let (h, kind) = (file.handle(), ChecksumKind::Crc32c);
    forever(4, |i| match i {
        0 => full(&mut g.client.queue(DEPTH, 4096)?, &mut |_| Op::ChecksumRange { h, kind, offset: 0, len }),
        1 => {
            let mut queue = g.client.queue(64, 32 << 20)?;
            let out = queue.alloc(1 << 20)?;
            full(&mut queue, &mut |n| Op::Read { h, at: At::Offset((n % 8) << 20), out, watch: 0 })
        }
        2 => g
            .client
            .raw()
            .openat(weldfs::Handle::ROOT, HOME.as_bytes(), OpenFlags::PATH, 0, 0)
            .map(drop)
            .map_err(Into::into),
        _ => g.client.create(format!("{HOME}/name-{:x}", seed())).map(std::mem::forget),
    })
}

pub fn greedy(g: &Ground) -> io::Result<()> {
    let bytes = vec![3; 1 << 20];
    forever(4, |i| {
        let path = format!("{HOME}/greedy{i}");
        let file = g.client.open(&path, &OpenOptions::new().write(true).create(true))?;
        let mut at = 0;
        while file.write_all_at(&bytes, at).is_ok() {
            at += bytes.len() as u64;
        }
        // Full: what is left goes in small pieces, then all of it again.
        while file.write_all_at(&bytes[..4096], at).is_ok() {
            at += 4096;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        file.set_len(0)
    })
}
