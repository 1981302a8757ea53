//! A client that goes while a slow kernel computes for its stream.

use std::time::{Duration, Instant};

use weldfs_ciscops::virt::TO_END;
use weldfs_ciscops::{At, Command, Direction, Handle, Op, OpenFlags, PoolRange, VirtRange, VirtSpec};
use weldfs_fpga::config::{CardConfig, Reconfigure};
use weldfs_fpga::status::SlotState;

use super::super::placed::tests::{Client, with_card};
use crate::fs::Cred;

#[test]
fn a_client_that_goes_amid_a_read_of_a_slow_kernel_leaves_the_slot_at_once() {
    // The kernel gets 4 KiB at a time and takes 300 ms for them: a piece of the file would take a minute and more.
    let card =
        CardConfig { credits: 1, credit_bytes: 4096, reconfigure: Reconfigure::NONE, ..CardConfig::with_slots(1) };
    let device = with_card(card);
    let session = device.attach(Cred::root(), [0; 16], b"").unwrap();
    let mut client = Client::new(&session);
    let h = client.open("real");
    let src = client.put(0, &[7; 128 << 10]);
    for block in 0..16 {
        client.send(&Command::new(0, Op::Write { h, at: At::Offset(block * (128 << 10)), src }));
        client.listen().ok().unwrap();
    }
    let range = VirtRange { path: b"/real".to_vec(), offset: 0, length: TO_END };
    let spec = VirtSpec { kernel: "test-slow".into(), params: vec![], direction: Direction::Read, ranges: vec![range] };
    let (path, spec) = (client.put(0, b"virtual"), client.put(4096, &spec.encode().unwrap()));
    client.send(&Command::new(0, Op::VirtRegister { base: Handle::ROOT, path, mode: 0o600, spec }));
    client.listen().ok().unwrap();
    let flags = OpenFlags::READ;
    client.send(&Command::new(0, Op::Open { base: Handle::ROOT, path, flags, mode: 0, placeholder: 0 }));
    let h = Handle::from_wire(client.listen().ok().unwrap().0);
    client.send(&Command::new(0, Op::Read { h, at: At::Current, out: PoolRange::new(0, 4096) }));
    let held = || device.card().status().slots.iter().any(|s| s.state == SlotState::Held && s.slot > 0);
    // It has taken some, and waits in the middle of a piece.
    let took = || device.card().status().slots[1].bytes_in > 0;
    let start = Instant::now();
    while !took() {
        assert!(start.elapsed() < Duration::from_secs(20), "the slot is not used");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop((session, client));
    let start = Instant::now();
    while held() {
        assert!(start.elapsed() < Duration::from_secs(10), "the slot is not given back");
        std::thread::sleep(Duration::from_millis(5));
    }
    device.shutdown();
}
