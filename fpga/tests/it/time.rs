//! What takes time: reconfiguration, the drive, the watchdog; and what is charged.

use crate::rig::{Gate, add, catalogue, config, gate, manifest, once, until, wait, want};
use std::time::Duration;
use weldfs_fpga::card::Card;
use weldfs_fpga::clock::Clock;
use weldfs_fpga::config::{CardConfig, Reconfigure, Want, WhenFull};
use weldfs_fpga::kernel::{Fault, Model};
use weldfs_fpga::status::SlotState;

#[test]
fn reconfiguration_takes_the_modelled_time_once_and_not_where_the_kernel_is_loaded() {
    let clock = Clock::manual();
    let reconfigure = Reconfigure { base_ns: 1000, per_lut_ns: 2 };
    let base = config(1);
    let takes = reconfigure.ns(&base.slots[0]);
    let card = Card::new(CardConfig { reconfigure, clock: clock.clone(), ..base }, catalogue()).expect("a card");
    let mut opening = card.open(want("add", 1, 1));
    assert!(once(&mut opening).is_pending());
    clock.advance(takes - 1);
    card.tick();
    std::thread::sleep(Duration::from_millis(20));
    assert!(once(&mut opening).is_pending(), "1 ns early");
    assert_eq!(card.status().slots[1].state, SlotState::Loading);
    clock.advance(1);
    card.tick();
    drop(wait(opening).expect("open"));
    drop(wait(card.open(want("add", 2, 2))).expect("it is loaded"));
    let slot = &card.status().slots[1];
    assert_eq!((slot.reconfigurations, slot.reconfigure_ns, slot.sessions), (1, takes, 2));
}

#[test]
fn the_drive_gives_what_it_has_and_no_more() {
    let clock = Clock::manual();
    let slow = CardConfig {
        drive_bytes_per_s: 1_000_000_000,
        clock: clock.clone(),
        credit_bytes: 1 << 10,
        credits: 4,
        ..config(2)
    };
    let card = Card::new(slow, catalogue()).expect("a card");
    let sessions = [1, 3].map(|weight| wait(card.open(Want { weight, ..want("add", 1, 1) })).expect("open"));
    let mut packets: Vec<_> = sessions.iter().map(|s| Box::pin(s.run(vec![1; 1 << 20], 1 << 20))).collect();
    assert!(packets.iter_mut().all(|p| once(p).is_pending()));
    let taken = || card.status().slots[1..].iter().map(|s| s.bytes_in).collect::<Vec<_>>();
    for step in 1..=400u64 {
        clock.advance(1024);
        card.tick();
        // Whatever has arrived is computed, and its credits are back, before time moves on.
        until(|| (taken().iter().sum::<u64>() == step * 1024).then_some(()));
    }
    let bytes = sessions.iter().map(|s| s.usage().bytes_in).collect::<Vec<_>>();
    assert_eq!(bytes.iter().sum::<u64>(), 400 * 1024, "1 GB/s");
    let share = bytes[1] as f64 / bytes[0] as f64;
    assert!((2.9..=3.1).contains(&share), "weights 1 and 3 got {bytes:?}");
}

#[test]
fn slot_time_is_cycles_over_the_kernels_clock_and_is_the_tenants() {
    let mut kernels = catalogue();
    kernels.add_builtin(manifest("slow", "add", 1, 100), add).expect("added");
    let card = Card::new(config(2), kernels).expect("a card");
    let mut expected = [0u64; 2];
    for (i, (kernel, mhz)) in [("add", 250), ("slow", 100), ("add", 250)].into_iter().enumerate() {
        let session = wait(card.open(want(kernel, 1, i as u64 % 2))).expect("open");
        for len in [1usize, 64, 1000, 333_333] {
            let ran = wait(session.run(vec![0; len], len)).expect("ran");
            let ideal = 2 * len.div_ceil(64) as u64 * 1000 / mhz;
            expected[i % 2] += ideal;
            assert!(ran.usage.slot_ns.abs_diff(ideal) * 50 <= ideal, "{} ns, not {ideal}", ran.usage.slot_ns);
        }
    }
    let status = card.status();
    for (tenant, ideal) in status.tenants.iter().zip(expected) {
        assert!(tenant.usage.slot_ns.abs_diff(ideal) * 50 <= ideal, "{tenant:?}, not {ideal}");
    }
    let slots: u64 = status.slots.iter().map(|s| s.busy_ns).sum();
    assert_eq!(slots, status.tenants.iter().map(|t| t.usage.slot_ns).sum::<u64>());
    let json = serde_json::to_value(&status).expect("JSON");
    assert_eq!(json["tenants"][0]["slot_ns"].as_u64(), Some(status.tenants[0].usage.slot_ns));
    assert_eq!(json["slots"][1]["state"], "idle");
}

#[test]
fn a_built_in_kernel_that_hangs_takes_its_slot_out_of_service_until_it_returns() {
    let clock = Clock::manual();
    let mut kernels = catalogue();
    let make = || Box::new(Model::new(Gate(0), 1.0)) as Box<_>;
    kernels.add_builtin(manifest("gate", "gate", 1, 250), make).expect("added");
    let hasty = CardConfig { watchdog: Duration::from_secs(1), inline_bytes: 0, clock: clock.clone(), ..config(2) };
    let card = Card::new(hasty, kernels).expect("a card");
    let good = wait(card.open(want("add", 1, 1))).expect("open");
    let bad = wait(card.open(want("gate", 1, 2))).expect("open");
    let slot = bad.slot();
    let mut packet = Box::pin(bad.run(vec![1], 1));
    assert!(once(&mut packet).is_pending());
    gate::wait_until_inside(0);
    clock.advance(999_999_999);
    card.tick();
    assert!(once(&mut packet).is_pending());
    clock.advance(1);
    card.tick();
    assert!(matches!(wait(packet), Err(Fault::Lost(why)) if why.contains("no progress")));
    assert_eq!(card.status().slots[slot].state, SlotState::Stuck);
    assert!(matches!(wait(bad.run(vec![1], 1)), Err(Fault::Lost(_))), "still stuck");
    drop(bad);
    assert_eq!(wait(good.run(vec![1], 1)).expect("unharmed").output, [2]);
    let mut waiting = card.open(Want { when_full: WhenFull::Wait, ..want("plus", 1, 3) });
    assert!(once(&mut waiting).is_pending(), "the slot is out of service");
    gate::open(0);
    let session = wait(waiting).expect("the slot is back");
    assert_eq!((session.slot(), card.status().slots[slot].faults), (slot, 1));
    assert_eq!(wait(session.run(vec![1], 1)).expect("ran").output, [2]);
}

#[test]
fn a_packet_that_was_given_up_inside_a_hung_kernel_ends_with_a_fault_and_the_session_works_again_later() {
    let clock = Clock::manual();
    let mut kernels = catalogue();
    let make = || Box::new(Model::new(Gate(1), 1.0)) as Box<_>;
    kernels.add_builtin(manifest("gate", "gate", 1, 250), make).expect("added");
    let hasty = CardConfig { watchdog: Duration::from_secs(1), inline_bytes: 0, clock: clock.clone(), ..config(1) };
    let card = Card::new(hasty, kernels).expect("a card");
    let session = wait(card.open(want("gate", 1, 2))).expect("open");
    let mut packet = Box::pin(session.run(vec![1], 1));
    assert!(once(&mut packet).is_pending());
    gate::wait_until_inside(1);
    drop(packet);
    let mut params = Box::pin(session.send_params(vec![2]));
    assert!(once(&mut params).is_pending(), "the kernel has not come back");
    clock.advance(1_000_000_000);
    card.tick();
    assert!(matches!(wait(params), Err(Fault::Lost(why)) if why.contains("no progress")));
    assert_eq!(card.status().slots[1].state, SlotState::Stuck);
    assert!(matches!(wait(session.send_params(vec![2])), Err(Fault::Lost(_))), "nothing is waited for");
    assert!(matches!(wait(session.push(vec![1], true)), Err(Fault::Lost(_))));
    assert!(matches!(wait(session.run(vec![1], 1)), Err(Fault::Lost(_))));
    gate::open(1);
    until(|| (card.status().slots[1].state == SlotState::Held).then_some(()));
    wait(session.send_params(vec![3])).expect("it begins anew");
    assert!(wait(session.run(vec![1], 1)).expect("ran").output.is_empty());
    let slot = &card.status().slots[1];
    assert_eq!((slot.faults, slot.bytes_in), (1, 1), "what hung is not charged");
}
