//! Sessions that rest make room for others, on their terms and no others.

use crate::rig::{catalogue, config, once, wait, want};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use weldfs_fpga::card::{Card, Opening};
use weldfs_fpga::clock::Clock;
use weldfs_fpga::config::{CardConfig, Want, WhenFull};
use weldfs_fpga::error::CardError;
use weldfs_fpga::lend::Rest;
use weldfs_fpga::session::Session;

const IDLE: Duration = Duration::from_millis(100);

fn card(slots: usize) -> (Arc<Card>, Clock) {
    let clock = Clock::manual();
    let config = CardConfig { clock: clock.clone(), ..config(slots) };
    (Card::new(config, catalogue()).expect("a card"), clock)
}

fn waits(card: &Card, tenant: u64) -> Opening {
    let mut opening = card.open(Want { when_full: WhenFull::Wait, ..want("add", 1, tenant) });
    assert!(once(&mut opening).is_pending());
    opening
}

fn have(card: &Card, tenant: u64, willing: bool) -> Session {
    let session = wait(card.open(want("add", 1, tenant))).expect("open");
    wait(session.push(vec![tenant as u8], true)).expect("push");
    session.rest(Rest { idle: IDLE, willing });
    session
}

fn got(opening: &mut Opening) -> Option<Session> {
    match once(opening) {
        Poll::Ready(session) => Some(session.expect("open")),
        Poll::Pending => None,
    }
}

/// Time passes, and the card has looked at it.
fn pass(card: &Card, clock: &Clock, time: Duration) {
    clock.advance(time.as_nanos() as u64);
    card.tick();
    std::thread::sleep(Duration::from_millis(20));
}

#[test]
fn one_that_rests_for_long_enough_makes_room_for_who_waits_and_learns_of_it() {
    let (card, clock) = card(2);
    let (first, second) = (have(&card, 1, false), have(&card, 1, false));
    pass(&card, &clock, IDLE);
    assert!(second.resume(), "no one waited");
    let want = Want { when_full: WhenFull::Wait, ..want("add", 1, 1) };
    drop(wait(card.open(want)).expect("the first makes room, whoever asks"));
    assert!(!first.resume() && second.resume());
    assert_eq!(card.status().slots.iter().map(|s| s.taken).sum::<u64>(), 1);
    assert_eq!(wait(second.pull(9)).expect("it is unharmed").bytes, [2]);
    assert_eq!(first.usage().bytes_in, 1, "what it used is known");
    assert!(wait(first.pull(9)).is_err());
    drop(first);
    assert!(second.resume());
}

#[test]
fn one_that_works_keeps_its_slot_and_one_that_rests_keeps_it_for_its_time() {
    let (card, clock) = card(1);
    let session = have(&card, 1, false);
    assert!(session.resume());
    let mut waiting = waits(&card, 2);
    pass(&card, &clock, 10 * IDLE);
    assert!(got(&mut waiting).is_none(), "it works");
    session.rest(Rest { idle: IDLE, willing: false });
    pass(&card, &clock, IDLE - Duration::from_nanos(1));
    assert!(got(&mut waiting).is_none(), "1 ns early");
    assert!(matches!(wait(card.open(want("add", 1, 2))), Err(CardError::Busy(_))));
    pass(&card, &clock, Duration::from_nanos(1));
    drop(wait(waiting).expect("its time is over"));
    assert!(!session.resume());
}

#[test]
fn who_does_not_wait_gets_the_slot_of_one_that_has_rested() {
    let (card, clock) = card(1);
    let session = have(&card, 1, false);
    assert!(matches!(wait(card.open(want("add", 1, 1))), Err(CardError::Busy(_))));
    pass(&card, &clock, IDLE);
    drop(wait(card.open(want("add", 1, 1))).expect("open"));
    assert!(!session.resume());
}

#[test]
fn a_tenant_without_a_slot_gets_one_of_a_willing_one_and_not_more_than_its_share() {
    let (card, clock) = card(3);
    let sessions = [1, 1, 1].map(|tenant| have(&card, tenant, true));
    sessions.iter().for_each(|s| assert!(s.resume()));
    let (mut other, mut own) = (waits(&card, 2), waits(&card, 1));
    pass(&card, &clock, IDLE);
    // Between two calls, for no time at all.
    let moment = |s: &Session, willing| {
        s.rest(Rest { idle: IDLE, willing });
        s.resume()
    };
    assert!(moment(&sessions[0], false), "not willing");
    assert!(!moment(&sessions[0], true));
    let others = wait(async { (&mut other).await }).expect("another tenant's");
    assert!(moment(&sessions[1], true) && got(&mut own).is_none(), "its own tenant has enough");
    let mut second = waits(&card, 2);
    pass(&card, &clock, IDLE);
    assert!(moment(&sessions[1], true) && got(&mut second).is_none(), "two and one is fair");
    drop(own);
    drop(others);
    drop(wait(second).expect("a slot is free"));
}
