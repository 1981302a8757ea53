//! Streams of virtual files that are not gone on with, or that are many, leave slots to others; who reads on gets what
//! it would have got, or is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::virt::{READ, WRITE, drain, errno, put, spec, user};
use weldfs::{Client, Direction, Errno, OpenFlags, OpenOptions, Placement, VirtFile};
use weldfs_ciscops::virt::TO_END;
use weldfs_device::DeviceConfig;
use weldfs_fpga::config::{CardConfig, Reconfigure};
use weldfs_kernel_shim::{Embedded, Source};

/// Bytes of the file behind the streams, and how often each has it.
const FILE: usize = 4 << 20;
const TIMES: usize = 16;

fn device(slots: usize) -> (Embedded, Client) {
    let card = CardConfig { reconfigure: Reconfigure::NONE, ..CardConfig::with_slots(slots) };
    let embedded = Embedded::open(&Source::Ram(96 << 20), DeviceConfig { card, ..DeviceConfig::default() }).unwrap();
    let client = Client::with(Arc::new(embedded.clone())).unwrap();
    client.set_permissions("/", 0o777).unwrap();
    let bytes: Vec<u8> = (0..FILE).map(|i| (i * 7 + i / 251) as u8).collect();
    put(&client, "/f", &bytes);
    // Sums of pairs of numbers: 16 bytes for 8.
    let ranges = [("/f", 0, TO_END); TIMES];
    client.virt_register("/v", 0o644, &spec("statistics", vec![2], Direction::Read, &ranges)).unwrap();
    client.virt_register("/sum", 0o644, &spec("crc32c", vec![], Direction::Read, &[("/f", 0, TO_END)])).unwrap();
    (embedded, client)
}

/// What the stream gives, from its beginning on.
fn expected(client: &Client, bytes: usize) -> Vec<u8> {
    let file = client.read("/f").unwrap();
    let row = |pair: &[u8]| {
        let [a, b] = [0, 4].map(|at| u32::from_le_bytes(pair[at..at + 4].try_into().unwrap()));
        let sum = u64::from(a) + u64::from(b);
        [&a.max(b).to_le_bytes()[..], &a.min(b).to_le_bytes(), &sum.to_le_bytes()].concat()
    };
    file.chunks(8).cycle().take(bytes.div_ceil(16)).flat_map(row).take(bytes).collect()
}

/// Reads so many bytes.
fn some(file: &VirtFile, bytes: usize) -> std::io::Result<Vec<u8>> {
    let (mut all, mut at) = (vec![0; bytes], 0);
    while at < bytes {
        let n = file.vread(&mut all[at..])?;
        assert!(n > 0, "the stream ends early");
        at += n;
    }
    Ok(all)
}

fn replays(embedded: &Embedded) -> u64 {
    embedded.device().stats().total.virtual_replays
}

#[test]
fn idle_streams_of_one_user_leave_slots_to_others_and_are_read_on() {
    let (embedded, client) = device(3);
    let (alice, bob) = (user(&embedded, 1001), user(&embedded, 1002));
    let streams: Vec<VirtFile> = (0..3).map(|_| alice.vopen("/v", READ).unwrap()).collect();
    let expected = expected(&client, 3 << 20);
    for stream in &streams {
        assert!(some(stream, 5000).unwrap() == expected[..5000]);
    }
    assert_eq!(replays(&embedded), 0);
    // More than the three slots at a time.
    let others: Vec<VirtFile> = (0..4).map(|_| bob.vopen("/v", READ).unwrap()).collect();
    for other in &others {
        assert!(some(other, 1 << 20).unwrap() == expected[..1 << 20]);
    }
    let file = bob.open("/log", &OpenOptions::new().write(true).create(true)).unwrap();
    let raw = file.raw().placement(Placement::Slot);
    raw.append_checksum_write(file.handle(), b"payload").unwrap();
    assert_eq!(bob.metadata("/log").unwrap().len(), 11);
    for stream in &streams {
        assert!(some(stream, 2 << 20).unwrap() == expected[5000..][..2 << 20]);
    }
    assert!(replays(&embedded) >= 3);
}

#[test]
fn who_asks_without_waiting_gets_the_slot_of_an_idle_stream() {
    let (embedded, client) = device(1);
    let (alice, bob) = (user(&embedded, 1001), user(&embedded, 1002));
    let stream = alice.vopen("/v", READ).unwrap();
    some(&stream, 100).unwrap();
    let eager = bob.vopen("/sum", READ | OpenFlags::NONBLOCK).unwrap();
    let mut tries = 0;
    let sum = loop {
        match drain(&eager, 10) {
            Err(e) if e.raw_os_error() == Some(Errno::BUSY.0) && tries < 2000 => {
                tries += 1;
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            other => break other.unwrap(),
        }
    };
    assert_eq!(sum.len(), 4);
    assert!(some(&stream, 100).unwrap() == expected(&client, 200)[100..]);
    assert_eq!(replays(&embedded), 1);
}

#[test]
fn a_stream_whose_files_have_changed_is_stale_and_begins_anew_where_it_is_asked_to() {
    let (embedded, client) = device(1);
    let stream = client.vopen("/v", READ).unwrap();
    let first = some(&stream, 100).unwrap();
    assert_eq!(drain(&client.vopen("/sum", READ).unwrap(), 10).unwrap().len(), 4);
    let file = client.open("/f", &OpenOptions::new().write(true)).unwrap();
    file.write_all_at(b"changed", 0).unwrap();
    assert_eq!(errno(some(&stream, 100)), Some(Errno::STALE));
    assert_eq!(errno(some(&stream, 100)), Some(Errno::STALE));
    stream.rewind().unwrap();
    let anew = some(&stream, 100).unwrap();
    assert!(anew == expected(&client, 100) && anew != first);
    assert_eq!(replays(&embedded), 1);
}

#[test]
fn a_writer_that_stands_still_while_others_wait_is_told_that_its_time_is_over() {
    let (embedded, client) = device(1);
    let (alice, bob) = (user(&embedded, 1001), user(&embedded, 1002));
    put(&alice, "/to", b"0123");
    let into = spec("rle", vec![], Direction::Write { cut: false }, &[("/to", 0, TO_END)]);
    alice.virt_register("/w", 0o644, &into).unwrap();
    let writer = alice.vopen("/w", WRITE).unwrap();
    writer.vwrite(b"\x01a\x01").unwrap();
    assert_eq!(drain(&bob.vopen("/sum", READ).unwrap(), 10).unwrap().len(), 4);
    assert_eq!(errno(writer.vwrite(b"b")), Some(Errno::TIMEDOUT));
    assert_eq!(errno(writer.vsync()), Some(Errno::TIMEDOUT));
    assert_eq!(errno(writer.vclose()), Some(Errno::TIMEDOUT));
    assert_eq!(client.read("/to").unwrap(), b"0123");
    // One whose packet has ended has no slot, and nothing to lose.
    let writer = alice.vopen("/w", WRITE).unwrap();
    writer.vwrite(b"\x01a").unwrap();
    assert_eq!(writer.vsync().unwrap(), 1);
    assert_eq!(drain(&bob.vopen("/sum", READ).unwrap(), 10).unwrap().len(), 4);
    writer.vwrite(b"\x01b").unwrap();
    assert_eq!(writer.vclose().unwrap(), 2);
    assert_eq!(client.read("/to").unwrap(), b"ab23");
}

#[test]
fn a_stream_that_is_read_without_a_pause_takes_turns_with_other_users() {
    let (embedded, client) = device(1);
    let (alice, bob) = (user(&embedded, 1001), user(&embedded, 1002));
    let expected = expected(&client, TIMES * FILE * 2);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let stream = alice.vopen("/v", READ).unwrap();
            let (mut at, mut room) = (0, [0; 512]);
            while !done.load(Ordering::Acquire) {
                let n = stream.vread(&mut room[..]).unwrap();
                assert!(n > 0, "no one else has had the slot");
                assert!(room[..n] == expected[at..at + n], "at {at}");
                at += n;
            }
            assert!(some(&stream, 10_000).unwrap() == expected[at..][..10_000]);
        });
        while embedded.device().card().status().slots[1].tenant.is_none() {
            std::thread::yield_now();
        }
        let sum = drain(&bob.vopen("/sum", READ).unwrap(), 10).unwrap();
        done.store(true, Ordering::Release);
        assert_eq!(sum.len(), 4);
        reader.join().unwrap();
    });
    assert!(replays(&embedded) >= 1);
}

/// What is written cannot begin anew, and a writer that goes on keeps its slot: so not all of them are for writers.
#[test]
fn writers_that_never_pause_leave_a_slot_to_readers_and_commands() {
    let (embedded, client) = device(3);
    let (alice, bob) = (user(&embedded, 1001), user(&embedded, 1002));
    let writer = |name: &str, flags| {
        let (to, through) = (format!("/to-{name}"), format!("/w-{name}"));
        put(&alice, &to, b"");
        let into = spec("rle", vec![], Direction::Write { cut: true }, &[(&to, 0, TO_END)]);
        alice.virt_register(&through, 0o644, &into).unwrap();
        alice.vopen(&through, flags).unwrap()
    };
    let (first, second) = (writer("1", WRITE), writer("2", WRITE));
    let third = writer("3", WRITE | OpenFlags::NONBLOCK);
    let write = |to: &VirtFile| to.vwrite(&b"\x05a".repeat(500)).unwrap();
    write(&first);
    write(&second);
    assert_eq!(errno(third.vwrite(b"\x01a")), Some(Errno::BUSY));
    // More of others than there are slots, for longer than a writer may pause.
    std::thread::scope(|scope| {
        let others: Vec<_> = (0..3)
            .map(|i| {
                let bob = &bob;
                scope.spawn(move || {
                    let log = bob.open(format!("/log-{i}"), &OpenOptions::new().write(true).create(true)).unwrap();
                    for _ in 0..5 {
                        assert_eq!(drain(&bob.vopen("/sum", READ).unwrap(), 10).unwrap().len(), 4);
                        let raw = log.raw().placement(Placement::Slot);
                        raw.append_checksum_write(log.handle(), b"payload").unwrap();
                        std::thread::sleep(std::time::Duration::from_millis(500));
                    }
                })
            })
            .collect();
        let mut writes = 1;
        while others.iter().any(|o| !o.is_finished()) {
            write(&first);
            write(&second);
            writes += 1;
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        for (to, name) in [(&first, "1"), (&second, "2")] {
            assert_eq!(to.vsync().unwrap(), writes * 2500);
            assert!(client.read(format!("/to-{name}")).unwrap().iter().all(|byte| *byte == b'a'));
        }
    });
    third.vwrite(b"\x01a").unwrap();
    assert_eq!(third.vclose().unwrap(), 1);
}
