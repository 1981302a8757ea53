//! Criterion benches of single commands through the whole device, embedded, on memory.
//!
//! Hypothesis: the cost of a command is the ring round trip plus its own work. Unit: time per command at depth 1.
//! Medium: `ram`; class: durable, which costs `ram` nothing but the bookkeeping; profile: default, no modelled delay.
//! The device has a thread of its own: on fewer than two idle cores the figures say little.
//!
//! `cargo bench -p weldfs-benches`

use criterion::{Criterion, criterion_group, criterion_main};
use std::sync::Arc;
use weldfs::{At, Client, OpenFlags, OpenOptions};
use weldfs_device::DeviceConfig;
use weldfs_kernel_shim::{Embedded, Source};

fn device() -> Client {
    let embedded = Embedded::open(&Source::Ram(1 << 30), DeviceConfig::default()).expect("memory suffices");
    Client::with(Arc::new(embedded)).expect("an embedded device takes clients")
}

fn commands(c: &mut Criterion) {
    let (client, data) = (device(), vec![0x5a; 4096]);
    c.bench_function("nop", |b| b.iter(|| client.raw().nop()));
    let options = OpenOptions::new().read(true).write(true).create(true);
    let file = client.open("/file", &options).expect("a new file");
    c.bench_function("overwrite 4 KiB", |b| b.iter(|| file.write_at(&data[..], 0).expect("a write")));
    let mut room = vec![0; 4096];
    c.bench_function("read 4 KiB", |b| b.iter(|| file.read_at(&mut room[..], 0).expect("a read")));
    let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNC;
    c.bench_function("open_write_close 4 KiB, replacing", |b| {
        b.iter(|| client.open_write_close("/small", flags, 0o644, At::Offset(0), &data[..]).expect("a fused write"));
    });
    c.bench_function("open_read_close 4 KiB", |b| {
        b.iter(|| client.open_read_close("/small", OpenFlags::READ, 0, &mut room[..]).expect("a fused read"));
    });
    c.bench_function("stat", |b| b.iter(|| client.metadata("/small").expect("it is there")));
}

criterion_group!(benches, commands);
criterion_main!(benches);
