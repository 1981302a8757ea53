//! Slots, sessions and the life cycle of kernels.

use crate::rig::{add, card, catalogue, config, once, wait, want};
use std::task::Poll;
use weldfs_fpga::card::Card;
use weldfs_fpga::config::{Want, WhenFull};
use weldfs_fpga::error::CardError;
use weldfs_fpga::kernel::Fault;
use weldfs_fpga::status::SlotState;

fn plus(bytes: &[u8], n: u8) -> Vec<u8> {
    bytes.iter().map(|b| b.wrapping_add(n)).collect()
}

#[test]
fn packets_of_every_size_come_back_computed_on_the_callers_thread_and_on_the_slots() {
    let card = card(1);
    let session = wait(card.open(want("add", 3, 7))).expect("open");
    for len in [0, 1, 63, 64, 65, 130, 4096, 16 << 10, (16 << 10) + 1, 300_000, 5_000_000] {
        let input: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        let ran = wait(session.run(input.clone(), len)).expect("ran");
        assert_eq!(ran.output, plus(&input, 3), "{len} bytes");
        let flits = (len as u64).div_ceil(64);
        assert_eq!((ran.usage.cycles, ran.usage.slot_ns), ((2 * flits).max(1), (2 * flits).max(1) * 4));
        assert_eq!((ran.usage.bytes_in, ran.usage.bytes_out), (len as u64, len as u64));
        if len > 0 {
            assert_eq!(wait(session.run(input, len - 1)), Err(Fault::TooLong(len - 1)), "{len} bytes");
        }
    }
    let slot = &card.status().slots[session.slot()];
    assert_eq!((slot.state, slot.tenant, slot.sessions), (SlotState::Held, Some(7), 1));
    drop(session);
    let status = card.status();
    assert_eq!(status.slots[1].state, SlotState::Idle);
    assert_eq!(status.tenants[0].usage.cycles, status.slots[1].cycles);
}

#[test]
fn a_stream_is_cut_anywhere_and_packets_stay_apart() {
    let card = card(1);
    let session = wait(card.open(want("add", 1, 7))).expect("open");
    wait(async {
        for bytes in [&b"ab"[..], b"", b"cde"] {
            session.push(bytes.to_vec(), false).await.expect("push");
        }
        let mut got = Vec::new();
        while got.len() < 5 {
            let pulled = session.pull(2).await.expect("pull");
            assert!(!pulled.eop && !pulled.bytes.is_empty());
            got.extend(pulled.bytes);
        }
        assert_eq!(got, b"bcdef");
        session.push(b"x".to_vec(), true).await.expect("push");
        session.push(Vec::new(), true).await.expect("an empty packet");
        session.push(b"12".to_vec(), true).await.expect("push");
        let (mut packets, mut packet) = (Vec::new(), Vec::new());
        while packets.len() < 3 {
            let pulled = session.pull(100).await.expect("pull");
            packet.extend(pulled.bytes);
            if pulled.eop {
                packets.push(std::mem::take(&mut packet));
            }
        }
        assert_eq!(packets, [b"y".to_vec(), vec![], b"23".to_vec()]);
        session.send_params(vec![2]).await.expect("parameters");
        session.push(b"12".to_vec(), true).await.expect("push");
        assert_eq!(session.pull(100).await.expect("pull").bytes, b"34");
        assert!(matches!(session.send_params(vec![256]).await, Err(Fault::Params(_))));
    });
}

#[test]
fn a_full_card_is_busy_or_waits_and_idle_kernels_make_room_in_the_order_of_their_last_use() {
    let card = card(2);
    let first = wait(card.open(want("add", 1, 1))).expect("open");
    let second = wait(card.open(want("plus", 1, 2))).expect("open");
    assert_ne!(first.slot(), second.slot());
    assert!(matches!(wait(card.open(want("sum", 1, 3))), Err(CardError::Busy(_))));
    let mut waiting = card.open(Want { when_full: WhenFull::Wait, ..want("sum", 1, 3) });
    assert!(once(&mut waiting).is_pending());
    assert_eq!(card.status().waiting, 1);
    let freed = second.slot();
    drop(second);
    let third = wait(waiting).expect("it got a slot");
    assert_eq!(third.slot(), freed);
    let (a, b) = (first.slot(), third.slot());
    drop(first);
    drop(third);
    assert_eq!(wait(card.open(want("sum", 1, 3))).expect("open").slot(), b, "an idle kernel is used where it is");
    assert_eq!(wait(card.open(want("plus", 1, 3))).expect("open").slot(), a, "add was not used for longest");
    let status = card.status();
    assert_eq!(status.slots.iter().map(|s| s.reconfigurations).sum::<u64>(), 4);
    assert_eq!(status.kernels.iter().find(|k| k.name == "add").map(|k| k.slots.clone()), Some(vec![]));
}

#[test]
fn a_kernel_that_panics_is_lost_and_only_that_one() {
    let card = card(2);
    let good = wait(card.open(want("add", 2, 1))).expect("open");
    let bad = wait(card.open(want("add", 1, 2))).expect("open");
    for len in [10, 100_000] {
        assert!(matches!(wait(bad.run(vec![255; len], len)), Err(Fault::Lost(why)) if why.contains("too large")));
        assert_eq!(wait(bad.run(vec![254; len], len)), Err(Fault::Data("254".into())));
        assert_eq!(wait(good.run(vec![255; len], len)).expect("unharmed").output, vec![1; len]);
        assert_eq!(wait(bad.run(vec![1; len], len)).expect("it begins anew").output, vec![2; len]);
    }
    assert_eq!(card.status().slots.iter().map(|s| s.faults).sum::<u64>(), 2);
    assert!(matches!(once(&mut card.open(want("none", 1, 1))), Poll::Ready(Err(CardError::NoKernel(_)))));
}

#[test]
fn a_back_end_that_the_card_only_knows_by_name_is_no_kernel_of_its() {
    let manifest = weldfs_fpga::manifest::Manifest::parse(include_str!("../../packages/grep/kernel.toml"));
    let mut catalogue = catalogue();
    catalogue.add_builtin(manifest.expect("a manifest"), add).expect("added");
    let card = Card::new(config(1), catalogue).expect("a card");
    let params = vec![1, 65];
    let error = wait(card.open(Want { params, ..want("grep:rtl", 0, 1) }));
    assert_eq!(error.expect_err("it has no library").errno().name(), "ENOENT");
    assert_eq!(card.status().slots[1].state, SlotState::Empty, "no slot was used");
}
