//! Rings over memory that the other side writes at any moment. The device's ends take at most `depth` entries at a
//! time, in order, or find a fault; the client's ends never panic whatever a device writes.

use crate::cursor::Cursor;
use crate::{Seed, Target};
use weldfs_ciscops::{
    CqConsumer, CqProducer, Cqe, QueueLayout, QueueMemory, SharedRegion, SqConsumer, SqProducer, Sqe,
};

/// Entries of the rings.
const DEPTH: u32 = 4;
/// Bytes from the start of the region that are written: header page and both rings.
const WRITTEN: u16 = 3 * 4096;

/// See the module.
pub const TARGET: Target = Target {
    name: "ring",
    about: "a script of writes into shared memory and of calls, to both ends of both rings",
    run,
    seeds,
    len_max: 512,
};

struct Ends {
    region: SharedRegion,
    sq: SqConsumer,
    cq: CqProducer,
    client_sq: SqProducer,
    client_cq: CqConsumer,
    /// Entries taken and not given back: never more than the ring has.
    held: u32,
    reserved: u32,
}

fn run(data: &[u8]) {
    let layout = QueueLayout::new(DEPTH, 4096).expect("within the limits");
    let region = SharedRegion::heap(layout.total_bytes as usize);
    let memory = QueueMemory::format(region.clone(), &layout).expect("the region is long enough");
    let mut ends = Ends {
        region,
        sq: SqConsumer::new(memory.clone()),
        cq: CqProducer::new(memory.clone()),
        client_sq: SqProducer::new(memory.clone()),
        client_cq: CqConsumer::new(memory),
        held: 0,
        reserved: 0,
    };
    let mut data = Cursor(data);
    while !data.is_empty() {
        if step(&mut ends, &mut data).is_err() {
            // The device closes a queue that is faulty; nothing is taken from it any more.
            return;
        }
    }
}

fn step(ends: &mut Ends, data: &mut Cursor<'_>) -> Result<(), weldfs_ciscops::QueueFault> {
    match data.u8() % 14 {
        0 => write(ends, data.u16() % WRITTEN, data.short()),
        // An index word: which, and by how much it moves.
        1 => {
            let at = 128 * (1 + u16::from(data.u8() % 7));
            let word = data.u32();
            write(ends, at, &word.to_le_bytes());
        }
        2 => assert!(ends.sq.poll()? <= DEPTH, "more entries wait than the ring has"),
        3 => assert!(ends.sq.poll_now()? <= DEPTH, "more entries wait than the ring has"),
        4 => {
            let before = ends.sq.taken();
            let taken = ends.sq.take().is_some();
            assert_eq!(ends.sq.taken().wrapping_sub(before), u32::from(taken));
        }
        5 => ends.sq.release(),
        6 => {
            ends.sq.prepare_sleep();
            ends.sq.recheck()?;
            ends.sq.awake();
        }
        7 => {
            ends.reserved += u32::from(ends.cq.reserve()?);
            assert!(ends.reserved <= DEPTH, "more completions are promised than the ring has");
        }
        8 if ends.reserved > 0 => {
            ends.reserved -= 1;
            ends.cq.post(&Cqe::default());
        }
        9 => drop(ends.cq.publish()),
        _ => client(ends, data),
    }
    Ok(())
}

/// The client's ends, over what a device writes.
fn client(ends: &mut Ends, data: &mut Cursor<'_>) {
    match data.u8() % 5 {
        0 => drop(ends.client_sq.push(&Sqe::default())),
        1 => ends.client_sq.publish(),
        2 => drop(ends.client_sq.needs_doorbell()),
        3 => {
            let before = ends.client_cq.taken();
            let popped = ends.client_cq.pop().is_some();
            assert_eq!(ends.client_cq.taken().wrapping_sub(before), u32::from(popped));
            ends.client_cq.release();
        }
        _ => {
            let _ = (ends.client_cq.available(), ends.client_cq.closed(), ends.client_cq.prepare_sleep());
            ends.client_cq.awake();
        }
    }
    ends.held = 0;
}

fn write(ends: &Ends, at: u16, bytes: &[u8]) {
    let n = bytes.len().min(ends.region.len() - usize::from(at));
    if let Ok(place) = ends.region.bytes(at.into(), n) {
        place.copy_from(&bytes[..n]);
    }
}

fn seeds() -> Vec<Seed> {
    let tail = |n: u32| [&[1, 0][..], &n.to_le_bytes()].concat();
    let named = |name: &str, parts: &[&[u8]]| (name.to_owned(), parts.concat());
    vec![
        named("a-command-comes-and-goes", &[&tail(1), &[2, 4, 5, 7, 8, 9]]),
        named("a-full-ring", &[&tail(4), &[2, 4, 4, 4, 4, 5, 6], &tail(6), &[3, 4, 4, 5]]),
        named("a-tail-too-far", &[&tail(5), &[3, 4]]),
        named("completions-without-room", &[&[7, 7, 7, 7, 7, 8, 8, 8, 8, 9, 7]]),
        named("the-client", &[&[10, 0, 10, 1, 10, 2, 2, 4, 5, 7, 8, 9, 10, 3, 10, 4]]),
        named("entries-of-any-bytes", &[&[0, 0, 16, 64], &[0xa5; 64], &tail(1), &[2, 4]]),
    ]
}
