//! What a slot costs a short command: the same fused commands with their checksum from a core and from a slot.
//!
//! Hypothesis: a built-in kernel in a slot costs a command of 4 KiB at most 1 us more than a core does. Unit: time per
//! command at depth 1. Rounds are interleaved: in each, a core and a slot do the same commands one right after the
//! other, in an order that turns; a figure is the median of the rounds, and so is the difference. Medium: `ram`;
//! volatile; no modelled delay but loading, which is before the clock. Embedded on the calling thread, and served: over
//! a socket and shared memory, by a device with a thread of its own, of this process.
//!
//! `cargo bench -p weldfs-benches --bench slots`

use std::sync::Arc;
use std::time::Instant;
use weldfs::{Client, Durability, File, OpenOptions, Placement};
use weldfs_device::DeviceConfig;
use weldfs_kernel_shim::{Embedded, ServeConfig, Server, Source};

/// Rounds, and commands of each kind and placement in one of them.
const ROUNDS: usize = 101;
const COMMANDS: u64 = 200;
const PAYLOAD: usize = 4096;
const RECORD: u64 = PAYLOAD as u64 + weldfs::fused::TRAILER_BYTES;

/// Nanoseconds for each command.
fn timed(commands: u64, mut one: impl FnMut(u64)) -> f64 {
    let start = Instant::now();
    (0..commands).for_each(&mut one);
    start.elapsed().as_nanos() as f64 / commands as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn append(file: &File, placement: Placement, data: &[u8]) {
    file.raw().placement(placement).append_checksum_write(file.handle(), data).expect("an append");
}

/// One sample of a kind of command with one placement.
fn sample(file: &File, kind: &str, placement: Placement, data: &[u8], room: &mut [u8]) -> f64 {
    match kind {
        "append_checksum_write" => {
            // What is appended lies in the same blocks, and the file is as long, each time.
            file.set_len(0).expect("it is cut");
            append(file, Placement::Device, data);
            timed(COMMANDS, |_| append(file, placement, data))
        }
        _ => timed(COMMANDS, |n| {
            let raw = file.raw().placement(placement);
            let (at, len) = (n % COMMANDS * RECORD, PAYLOAD as u32);
            raw.read_checksum_verify(file.handle(), at, len, Some((&mut *room).into())).expect("a record");
        }),
    }
}

fn measure(client: &Client, how: &str) {
    let client = client.clone().durability(Durability::Volatile);
    let options = OpenOptions::new().read(true).write(true).create(true);
    let file = client.open("/records", &options).expect("a new file");
    let (data, mut room) = (vec![0x5a; PAYLOAD], vec![0; PAYLOAD]);
    for kind in ["append_checksum_write", "read_checksum_verify"] {
        let (mut core, mut slot, mut more) = (Vec::new(), Vec::new(), Vec::new());
        (0..=COMMANDS).for_each(|_| append(&file, Placement::Slot, &data));
        for round in 0..ROUNDS {
            let mut of = |placement| sample(&file, kind, placement, &data, &mut room);
            let (a, b) = match round % 2 {
                0 => {
                    let a = of(Placement::Device);
                    (a, of(Placement::Slot))
                }
                _ => {
                    let b = of(Placement::Slot);
                    (of(Placement::Device), b)
                }
            };
            core.push(a);
            slot.push(b);
            more.push(b - a);
        }
        println!("| {how} | {kind} | {:.0} | {:.0} | {:+.0} |", median(core), median(slot), median(more));
    }
}

fn main() {
    println!("4 KiB, depth 1, ns per command, medians of {ROUNDS} rounds of {COMMANDS}");
    println!("| device | command | core | slot | slot - core |\n|---|---|---|---|---|");
    let embedded = Embedded::open(&Source::Ram(1 << 30), DeviceConfig::default()).expect("memory suffices");
    measure(&Client::with(Arc::new(embedded)).expect("an embedded device takes clients"), "embedded");
    let folder = tempfile::tempdir().expect("a folder for the socket");
    let socket = folder.path().join("socket");
    let mut serve = ServeConfig::new(Source::Ram(1 << 30), &socket);
    serve.signals = false;
    let server = Server::bind(serve).expect("memory suffices");
    let stopper = server.stopper();
    let thread = std::thread::spawn(move || server.run());
    measure(&Client::connect(&socket).expect("it takes clients"), "served");
    stopper.stop();
    thread.join().expect("it ends").expect("in order");
}
