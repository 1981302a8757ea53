//! Recordings of what slots did.

use crate::rig::{card, catalogue, config, wait, want};
use std::sync::Arc;
use weldfs_ciscops::trace::{SlotSpan, slot_flag, slot_kind};
use weldfs_fpga::card::Card;
use weldfs_fpga::clock::Clock;
use weldfs_fpga::config::{CardConfig, Reconfigure, Want, WhenFull};
use weldfs_fpga::quick::Packet;
use weldfs_fpga::record::{Recording, SlotFacts};

/// The asker's clock at the start of each recording, ns.
const NOW: u64 = 1_000_000_000_000;

fn of(recording: &Recording, kind: u8) -> Vec<SlotSpan> {
    recording.spans.iter().filter(|s| s.kind == kind).copied().collect()
}

fn packet(card: &Card, input: &[u8]) {
    let ran = card.at_once(&Packet { kernel: "add", params: &[1], tenant: 9, weight: 1, input, out_max: input.len() });
    assert!(ran.is_some(), "the kernel is there");
}

/// A stream, packets that compute at once, one that fails, one kernel that makes room for another.
fn work(card: &Arc<Card>) {
    let session = wait(card.open(want("add", 1, 7))).expect("open");
    wait(async {
        for at in 0..40 {
            session.push(vec![at; 100_000], at == 39).await.expect("push");
            let mut got = 0;
            while got < 100_000 {
                got += session.pull(1 << 20).await.expect("pull").bytes.len();
            }
        }
    });
    drop(session);
    packet(card, &[3; 4096]);
    packet(card, &[254]);
    drop(wait(card.open(want("plus", 1, 8))).expect("open"));
}

#[test]
fn a_recording_and_the_card_tell_the_same_of_sessions_steps_and_loading() {
    let card = card(1);
    card.record(1000, NOW);
    work(&card);
    let recording = card.recorded();
    let status = card.status();
    assert_eq!(recording.kernels, ["add", "plus"]);
    let (sessions, steps, loads) =
        (of(&recording, slot_kind::SESSION), of(&recording, slot_kind::STEP), of(&recording, slot_kind::LOAD));
    let slot = &status.slots[1];
    let sum = |spans: &[SlotSpan], of: fn(&SlotSpan) -> u64| spans.iter().map(of).sum::<u64>();
    assert_eq!((sessions.len() as u64, loads.len() as u64), (slot.sessions, slot.reconfigurations));
    assert_eq!(sum(&sessions, |s| s.slot_ns), slot.busy_ns);
    assert_eq!(sum(&sessions, |s| s.cycles), slot.cycles);
    assert_eq!((sum(&sessions, |s| s.bytes_in), sum(&sessions, |s| s.bytes_out)), (slot.bytes_in, slot.bytes_out));
    let facts = SlotFacts { sessions: slot.sessions, slot_ns: slot.busy_ns, dropped: 0 };
    assert_eq!(recording.slots, [SlotFacts::default(), facts]);
    let tenants: Vec<u32> = sessions.iter().map(|s| s.tenant).collect();
    assert_eq!(tenants, [7, 9, 9, 8]);
    let whose: Vec<_> = loads.iter().map(|s| (s.session, s.tenant)).collect();
    let first_of = |kernel| sessions.iter().find(|s| s.kernel == kernel).map(|s| (s.session, s.tenant));
    assert_eq!(whose, [first_of(0).unwrap(), first_of(1).unwrap()], "loaded for the session that got the slot");
    let failed: Vec<bool> = sessions.iter().map(|s| s.flags & slot_flag::FAILED != 0).collect();
    assert_eq!(failed, [false, false, true, false]);
    // What the stream's steps took is what its session took, and they lie in it one after the other.
    let first = sessions[0];
    assert!(steps.len() >= 40 && steps.iter().all(|s| s.session == first.session && s.kernel == first.kernel));
    assert_eq!(sum(&steps, |s| s.slot_ns), first.slot_ns);
    assert_eq!((sum(&steps, |s| s.bytes_in), sum(&steps, |s| s.cycles)), (first.bytes_in, first.cycles));
    assert!(steps.windows(2).all(|w| w[0].end_ns <= w[1].start_ns));
    assert!(steps.iter().all(|s| first.start_ns <= s.start_ns && s.end_ns <= first.end_ns));
    assert!(sessions.windows(2).all(|w| w[0].end_ns <= w[1].start_ns), "a slot has one session at a time");
    assert!(recording.spans.iter().all(|s| NOW <= s.start_ns && s.slot == 1), "on the asker's clock");
    assert_eq!(card.recorded(), Recording::default(), "it is over");
}

#[test]
fn what_has_no_room_is_counted_and_what_began_earlier_is_not_recorded() {
    let card = card(1);
    let early = wait(card.open(want("add", 1, 7))).expect("open");
    card.record(3, NOW);
    drop(early);
    assert_eq!(card.recorded().spans, []);
    card.record(3, NOW);
    (0..5).for_each(|_| packet(&card, b"abc"));
    let recording = card.recorded();
    assert_eq!(recording.spans.len(), 3);
    assert_eq!((recording.slots[1].sessions, recording.slots[1].dropped), (5, 2));
    assert_eq!(recording.slots[1].slot_ns, 5 * recording.spans[0].slot_ns, "those without room included");
}

/// The clock stands still but where it is moved: waiting for a slot, loading and waiting for credits are of that
/// length.
#[test]
fn waits_are_as_long_as_they_were() {
    let clock = Clock::manual();
    let reconfigure = Reconfigure { base_ns: 5_000, per_lut_ns: 0 };
    let config = CardConfig { clock: clock.clone(), reconfigure, credits: 1, credit_bytes: 64, ..config(1) };
    let card = Card::new(config, catalogue()).expect("a card");
    card.record(1000, NOW);
    let pass = |ns| {
        clock.advance(ns);
        card.tick();
    };
    let mut first = Box::pin(card.open(want("add", 1, 7)));
    assert!(crate::rig::once(&mut first).is_pending(), "it is loaded");
    pass(5_000);
    let first = wait(first).expect("open");
    let mut second = Box::pin(card.open(Want { when_full: WhenFull::Wait, ..want("add", 1, 8) }));
    assert!(crate::rig::once(&mut second).is_pending(), "the slot is taken");
    pass(700);
    // Two flits of output have room, and no one fetches them: the third waits for a credit.
    wait(first.push(vec![1; 640], true)).expect("push");
    crate::rig::until(|| (card.status().slots[1].bytes_in >= 64).then_some(()));
    std::thread::sleep(std::time::Duration::from_millis(50));
    pass(3_000);
    let mut got = 0;
    while got < 640 {
        got += wait(first.pull(640)).expect("pull").bytes.len();
    }
    drop(first);
    drop(wait(second).expect("open"));
    let recording = card.recorded();
    let (sessions, loads) = (of(&recording, slot_kind::SESSION), of(&recording, slot_kind::LOAD));
    assert_eq!((loads.len(), loads[0].slot_ns, loads[0].end_ns - loads[0].start_ns), (1, 5_000, 5_000));
    assert_eq!(sessions.iter().map(|s| s.waited_ns).collect::<Vec<_>>(), [0, 3_700]);
    assert_eq!(sessions.iter().map(|s| s.credit_wait_ns).collect::<Vec<_>>(), [3_000, 0]);
    assert_eq!(sessions[0].end_ns, NOW + 8_700);
}
