//! The order of a ring's commands on one inode, also where one of them has to wait for room.

use std::sync::Arc;

use weldfs::{At, Client, Command, Durability, Handle, Op, PoolRange, Queue};
use weldfs_ciscops::Errno;
use weldfs_ciscops::flags::{LockAction, LockKind, LockSpace, OpenFlags};
use weldfs_device::DeviceConfig;
use weldfs_kernel_shim::{Embedded, Source};

const ROUNDS: u64 = 12;
/// One more than may be pending: the last of them waits for reclaim.
const CUTS: u64 = 17;
/// Bytes of a window of a file's map, and how many of them a cut takes away at least, beside which it could be done at
/// once.
const WINDOW: u64 = 1 << 20;
const APART: u64 = 6;

/// All of them are sent at once; how each ended.
fn together(queue: &mut Queue, ops: &[Op]) -> Vec<(i32, u64)> {
    let sent: Vec<_> = ops.iter().map(|op| queue.submit(&Command::new(0, *op)).unwrap()).collect();
    queue.flush();
    sent.into_iter().map(|ticket| queue.wait(ticket).unwrap()).map(|cqe| (cqe.status, cqe.result)).collect()
}

/// Rounds of one ring's commands on one file: so many cuts that one of them waits for reclaim, then, sent with them,
/// what must stand at the end. Returns how many commands waited for room.
fn rounds(config: DeviceConfig) -> u64 {
    let device = Embedded::open(&Source::Ram(256 << 20), config).unwrap();
    let client = Client::with(Arc::new(device.clone())).unwrap();
    let mut queue = client.queue(64, 1 << 20).unwrap();
    let (base, path) = (Handle::ROOT, queue.stage(b"f").unwrap());
    let (body, out) = (queue.stage(&[b'x'; 64]).unwrap(), queue.alloc(64).unwrap());
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    for round in 1..=ROUNDS {
        let opened = together(&mut queue, &[Op::open(base, path, flags, 0o644)]);
        let h = Handle::from_wire(opened[0].1);
        for window in 0..CUTS * APART {
            together(&mut queue, &[Op::Write { h, at: At::Offset(window * WINDOW), src: body }]);
        }
        let mut ops: Vec<_> = (0..CUTS).rev().map(|n| Op::Truncate { h, size: n * APART * WINDOW }).collect();
        let src = PoolRange { len: round as u32, ..body };
        ops.extend([Op::Write { h, at: At::Offset(0), src }, Op::Fsync { h }, Op::Close { h }]);
        // Behind the close there is nothing to lock.
        let (action, kind, space) = (LockAction::Set, LockKind::Write, LockSpace::Process);
        ops.push(Op::Lock { h, action, kind, space, start: 0, len: 0, owner: 1, out: PoolRange::EMPTY });
        ops.push(Op::OpenReadClose { base, path, flags: OpenFlags::READ, offset: 0, out });
        let over = together(&mut queue, &ops);
        for (op, (status, _)) in ops.iter().zip(&over) {
            let expected = if matches!(op, Op::Lock { .. }) { Errno::BADF.0 } else { 0 };
            assert_eq!(*status, expected, "round {round}: {op:?}");
        }
        assert_eq!(over.last().unwrap().1, round, "bytes of the file after round {round}");
    }
    let waited = device.device().stats().total.room_waits;
    device.close().unwrap();
    waited
}

/// A command that was let in, and with it the next of its ring, gives its tickets up while it waits for room: those
/// behind it must not pass.
#[test]
fn commands_of_a_ring_do_not_pass_one_that_waits_for_room() {
    for (at_once, cores) in [(true, 1), (false, 1), (true, 2)] {
        let durability = Durability::Volatile;
        let waited = rounds(DeviceConfig { durability, at_once, cores, ..DeviceConfig::default() });
        assert!(waited > 0, "no command waited for room on {cores} cores, at once: {at_once}");
    }
}
