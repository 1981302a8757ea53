//! Slots that are added, taken away and resized, and credits that change, while the card works.

use crate::rig::{Gate, add, catalogue, config, gate, manifest, once, until, wait, want};
use std::sync::Arc;
use weldfs_fpga::card::Card;
use weldfs_fpga::clock::Clock;
use weldfs_fpga::config::{CardConfig, Pace, Reconfigure, SLOTS_MAX, Want, WhenFull};
use weldfs_fpga::error::CardError;
use weldfs_fpga::kernel::Model;
use weldfs_fpga::manifest::Region;
use weldfs_fpga::status::SlotState;

/// Room for the kernel `add` of the tests (100 look-up tables), and for `large` (1000).
const SMALL: Region = Region { lut: 100, ff: 1, bram: 0, dsp: 0 };
const LARGE: Region = Region { lut: 1000, ff: 1, bram: 0, dsp: 0 };

fn card(slots: &[Region]) -> Arc<Card> {
    let mut kernels = catalogue();
    kernels.add_builtin(manifest("large", "add", 1000, 250), add).expect("added");
    Card::new(CardConfig { slots: slots.to_vec(), ..config(1) }, kernels).expect("a card")
}

fn waiting(kernel: &str) -> Want {
    Want { when_full: WhenFull::Wait, ..want(kernel, 1, 2) }
}

fn sum(card: &Card, kernel: &str) -> Vec<u8> {
    let session = wait(card.open(waiting(kernel))).expect("open");
    wait(session.run(vec![1; 40_000], 40_000)).expect("ran").output
}

#[test]
fn slots_come_and_go_while_others_work() {
    let card = card(&[SMALL]);
    let first = wait(card.open(want("add", 1, 1))).expect("open");
    let mut second = card.open(waiting("plus"));
    assert!(once(&mut second).is_pending());
    card.set_slots(&[SMALL; 3]).expect("two more");
    let second = wait(second).expect("it waited for one");
    assert_eq!(wait(second.run(vec![1; 40_000], 40_000)).expect("ran").output, vec![2; 40_000]);
    assert_eq!(card.status().slots.len(), 4);
    // What is in use stays, and what is asked for at the same time does not happen.
    for regions in [&[SMALL][..], &[LARGE, SMALL, SMALL], &[SMALL, LARGE, SMALL, SMALL]] {
        let refused = card.set_slots(regions).expect_err("in use");
        assert!(matches!(&refused, CardError::Busy(why) if why.contains("is in use")), "{refused}");
        assert_eq!(card.slots(), [SMALL; 3]);
    }
    // One that is taken while its owner rests leaves a session behind that is of no slot.
    second.rest(weldfs_fpga::lend::Rest { idle: std::time::Duration::ZERO, turn: None });
    let third = wait(card.open(waiting("sum"))).expect("open");
    let fourth = wait(card.open(waiting("sum"))).expect("the second's");
    assert!(!second.resume());
    drop((third, fourth));
    card.set_slots(&[SMALL]).expect("nothing uses the others");
    assert_eq!(card.status().slots.len(), 2);
    assert!(wait(second.run(vec![1], 1)).is_err() && wait(second.push(vec![1], true)).is_err());
    assert_eq!((second.peek(0), second.fifo_bytes()), (None, 0));
    drop(second);
    assert_eq!(wait(first.run(vec![1; 40_000], 40_000)).expect("unharmed").output, vec![2; 40_000]);
    card.set_slots(&[SMALL; 2]).expect("one more, again");
    assert_eq!(sum(&card, "plus"), vec![2; 40_000]);
    assert_eq!(card.status().slots[2].state, SlotState::Idle);
    assert!(matches!(card.set_slots(&[]), Err(CardError::Config(_))));
    assert!(matches!(card.set_slots(&[SMALL; SLOTS_MAX + 1]), Err(CardError::Config(_))));
    assert!(matches!(card.set_slots(&[Region::default()]), Err(CardError::Config(_))));
    card.set_slots(&[SMALL; SLOTS_MAX]).expect("as many as there may be");
    let all: Vec<_> = (1..SLOTS_MAX).map(|_| wait(card.open(want("add", 1, 1))).expect("open")).collect();
    assert!(wait(card.open(want("add", 1, 1))).is_err(), "{} and the first are all", all.len());
}

#[test]
fn a_slot_of_another_size_holds_other_kernels_and_takes_another_time_to_load() {
    let card = card(&[SMALL, LARGE]);
    let pace = card.pace();
    card.set_pace(Pace { reconfigure: Reconfigure { base_ns: 0, per_lut_ns: 1 }, ..pace }).expect("good");
    assert_eq!(sum(&card, "large"), vec![2; 40_000]);
    assert_eq!(card.status().slots[2].reconfigure_ns, 1000);
    card.set_slots(&[SMALL, SMALL]).expect("idle");
    assert_eq!(card.status().slots[2].state, SlotState::Empty);
    let refused = wait(card.open(waiting("large"))).expect_err("no slot is large enough");
    assert!(matches!(refused, CardError::TooLarge(_)), "{refused}");
    card.deactivate("large").expect("nothing uses it");
    assert!(matches!(card.activate("large"), Err(CardError::TooLarge(_))));
    card.set_slots(&[LARGE, SMALL]).expect("idle");
    card.activate("large").expect("it fits again");
    assert_eq!(sum(&card, "large"), vec![2; 40_000]);
    // A slot that was the only large one goes while a session waits for it.
    let held = wait(card.open(want("large", 1, 1))).expect("open");
    let mut second = card.open(waiting("large"));
    assert!(once(&mut second).is_pending());
    drop(held);
    drop(wait(second).expect("the first's"));
    card.set_slots(&[SMALL]).expect("idle");
    assert!(matches!(wait(card.open(waiting("large"))), Err(CardError::TooLarge(_))));
}

/// What a session may have in its FIFO before pushing waits, bytes; nothing is taken out of it meanwhile.
fn fifo(card: &Card) -> usize {
    let session = wait(card.open(waiting("add"))).expect("open");
    let said = session.fifo_bytes();
    let mut pushed = 0;
    // The time stands still: nothing is computed but the first step.
    while once(&mut Box::pin(session.push(vec![0; 64], false))).is_ready() {
        pushed += 64;
    }
    assert!(pushed >= said && pushed <= 2 * said + 128, "{pushed} of {said}");
    said
}

#[test]
fn credits_change_for_sessions_that_come_and_for_no_other() {
    let clock = Clock::manual();
    let timed = CardConfig { timed: true, credits: 2, credit_bytes: 64, clock: clock.clone(), ..config(2) };
    let card = Card::new(timed, catalogue()).expect("a card");
    let old = wait(card.open(want("add", 1, 1))).expect("open");
    assert_eq!((old.fifo_bytes(), fifo(&card)), (128, 128));
    let pace = card.pace();
    card.set_pace(Pace { credits: 16, credit_bytes: 256, ..pace }).expect("good");
    assert_eq!((old.fifo_bytes(), fifo(&card)), (128, 4096));
    for bad in [(0, 64), (4097, 64), (1, 63), (1, (16 << 20) + 1)] {
        let refused = card.set_pace(Pace { credits: bad.0, credit_bytes: bad.1, ..pace });
        assert!(matches!(refused, Err(CardError::Config(_))), "{bad:?}");
    }
    card.set_pace(Pace { timed: false, ..pace }).expect("good");
    // Each computes what it is given, with whatever credits.
    for session in [&old, &wait(card.open(waiting("add"))).expect("open")] {
        wait(session.send_params(vec![3])).expect("anew");
        assert_eq!(wait(session.run(vec![1; 100_000], 100_000)).expect("ran").output, vec![4; 100_000]);
    }
}

#[test]
fn what_is_being_computed_when_time_begins_to_be_modelled_is_held_back_from_then_on() {
    let clock = Clock::manual();
    let mut kernels = catalogue();
    let make = || Box::new(Model::new(Gate(2), 1.0)) as Box<_>;
    kernels.add_builtin(manifest("gate", "gate", 1, 250), make).expect("added");
    let card = Card::new(CardConfig { inline_bytes: 0, clock: clock.clone(), ..config(1) }, kernels).expect("a card");
    clock.advance(5_000_000_000);
    let session = wait(card.open(want("gate", 1, 1))).expect("open");
    let mut packet = Box::pin(session.run(vec![0; 64_000], 1));
    assert!(once(&mut packet).is_pending());
    gate::wait_until_inside(2);
    card.set_pace(Pace { timed: true, ..card.pace() }).expect("good");
    gate::open(2);
    until(|| (card.status().slots[1].bytes_in == 64_000).then_some(()));
    // 1000 cycles of 4 ns.
    clock.advance(3999);
    card.tick();
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(once(&mut packet).is_pending(), "1 ns early");
    clock.advance(1);
    card.tick();
    wait(packet).expect("ran");
}
