//! A short packet by itself, on the caller's thread: as a session of its own would have it.

use crate::rig::{card, catalogue, config, until, wait, want};
use weldfs_fpga::card::Card;
use weldfs_fpga::config::{CardConfig, Pace};
use weldfs_fpga::kernel::Fault;
use weldfs_fpga::quick::{AtOnce, Packet};
use weldfs_fpga::status::{SlotState, Usage};

fn packet<'a>(params: &'a [u32], input: &'a [u8]) -> Packet<'a> {
    Packet { kernel: "add", params, tenant: 7, weight: 1, input, out_max: input.len() }
}

/// A card that has run `add` in a slot before, which is idle.
fn warm(config: CardConfig) -> std::sync::Arc<Card> {
    let card = Card::new(config, catalogue()).expect("a card");
    assert_eq!(card.at_once(&packet(&[3], b"abc")), None, "nothing is loaded");
    drop(wait(card.open(want("add", 3, 7))).expect("open"));
    card
}

fn usage(card: &Card) -> Usage {
    let s = &card.status().slots[1];
    Usage { slot_ns: s.busy_ns, cycles: s.cycles, bytes_in: s.bytes_in, bytes_out: s.bytes_out }
}

#[test]
fn a_short_packet_at_once_gives_and_costs_what_a_session_does() {
    let (quick, slow) = (warm(config(1)), warm(config(1)));
    for len in [0, 1, 63, 64, 65, 130, 4096, 16 << 10] {
        let input: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        let AtOnce { output, usage, .. } = quick.at_once(&packet(&[3], &input)).expect("it is short");
        let session = wait(slow.open(want("add", 3, 7))).expect("open");
        let ran = wait(session.run(input, len)).expect("ran");
        assert_eq!((output, usage), (Ok(ran.output), Some(ran.usage)), "{len} bytes");
    }
    assert_eq!(usage(&quick), usage(&slow));
    let (quick, slow) = (quick.status(), slow.status());
    assert_eq!(quick.tenants, slow.tenants);
    let of = |s: &weldfs_fpga::status::CardStatus| (s.slots[1].state, s.slots[1].sessions, s.slots[1].faults);
    assert_eq!((of(&quick), of(&slow)), ((SlotState::Idle, 9, 0), (SlotState::Idle, 9, 0)));
}

#[test]
fn what_goes_wrong_in_it_is_said_and_leaves_an_idle_slot() {
    let card = warm(config(1));
    let at_once = |params: &[u32], input: &[u8], out_max| {
        card.at_once(&Packet { out_max, ..packet(params, input) }).expect("it is short")
    };
    let AtOnce { output, usage, .. } = at_once(&[1], &[1, 254], 9);
    assert!(matches!(output, Err(Fault::Data(_))) && usage.is_some(), "{output:?}");
    let AtOnce { output, usage, .. } = at_once(&[256], &[1], 9);
    assert!(matches!(output, Err(Fault::Params(_))) && usage.is_none(), "{output:?}");
    assert_eq!(at_once(&[3], b"abc", 2).output, Err(Fault::TooLong(2)));
    let AtOnce { output, .. } = at_once(&[1], &[255], 9);
    assert!(matches!(&output, Err(Fault::Lost(why)) if why.contains("too large")), "{output:?}");
    let slot = &card.status().slots[1];
    assert_eq!((slot.state, slot.faults, slot.tenant), (SlotState::Idle, 1, None));
    assert_eq!(at_once(&[3], b"abc", 3).output, Ok(b"def".to_vec()));
}

#[test]
fn what_is_not_short_or_not_there_goes_the_whole_way() {
    let card = warm(config(1));
    let short = vec![1; 16 << 10];
    assert!(card.at_once(&packet(&[3], &short)).is_some());
    let none = |packet: Packet<'_>, why: &str| assert_eq!(card.at_once(&packet), None, "{why}");
    none(packet(&[3], &vec![1; (16 << 10) + 1]), "longer");
    none(packet(&[], b"abc"), "too few parameters");
    none(Packet { kernel: "plus", ..packet(&[3], b"abc") }, "another kernel than the one that is loaded");
    none(Packet { kernel: "nothing", ..packet(&[3], b"abc") }, "no such kernel");
    none(Packet { kernel: "add:rtl", ..packet(&[3], b"abc") }, "no such back-end");
    let session = wait(card.open(want("add", 3, 8))).expect("open");
    none(packet(&[3], b"abc"), "its slot is taken");
    drop(session);
    let pace = card.pace();
    for modelled in [Pace { timed: true, ..pace }, Pace { drive_bytes_per_s: 1 << 30, ..pace }] {
        card.set_pace(modelled).expect("in range");
        none(packet(&[3], b"abc"), "time is modelled");
    }
    card.set_pace(pace).expect("in range");
    assert!(card.at_once(&packet(&[3], b"abc")).is_some());
    card.deactivate("add").expect("it is idle");
    none(packet(&[3], b"abc"), "it is not active");
    let never = warm(CardConfig { inline_bytes: 0, ..config(1) });
    assert_eq!(
        never.at_once(&packet(&[3], b"")),
        Some(AtOnce { output: Ok(vec![]), usage: Some(one_cycle()), slot: 1 })
    );
    assert_eq!(never.at_once(&packet(&[3], b"a")), None, "none is short");
}

/// What an empty packet takes.
fn one_cycle() -> Usage {
    Usage { slot_ns: 4, cycles: 1, bytes_in: 0, bytes_out: 0 }
}

/// A card that no session was seen on for a while sleeps, and what comes first wakes it: from then on, short packets
/// go the short way again, and the watchdog looks at them.
#[test]
fn a_card_that_slept_is_woken_by_the_long_way() {
    let card = warm(CardConfig { watchdog: std::time::Duration::from_millis(40), ..config(1) });
    until(|| {
        // It sleeps once two looks, 10 ms apart, have seen no session.
        std::thread::sleep(std::time::Duration::from_millis(100));
        card.at_once(&packet(&[3], b"abc")).is_none().then_some(())
    });
    drop(wait(card.open(want("add", 3, 7))).expect("open"));
    assert!(card.at_once(&packet(&[3], b"abc")).is_some());
}

#[test]
fn many_threads_at_once_get_their_own_answers() {
    let card = card(3);
    drop(wait(card.open(want("add", 3, 7))).expect("open"));
    std::thread::scope(|scope| {
        for n in 1..=4_u8 {
            let card = &card;
            scope.spawn(move || {
                for round in 0..500_u32 {
                    let input = vec![n; 1 + (round % 300) as usize];
                    let Some(ran) = card.at_once(&packet(&[round % 200], &input)) else { continue };
                    let plus = n.wrapping_add((round % 200) as u8);
                    assert_eq!(ran.output, Ok(vec![plus; input.len()]));
                }
            });
        }
    });
    let status = card.status();
    assert!(status.slots.iter().all(|s| s.faults == 0 && s.state != SlotState::Held), "{:?}", status.slots);
}
