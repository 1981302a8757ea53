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

/// How a stream that is read rests: one that is willing has had its turn at once.
fn terms(willing: bool) -> Rest {
    Rest { idle: IDLE, turn: willing.then_some(Duration::ZERO) }
}

fn have(card: &Card, tenant: u64, willing: bool) -> Session {
    let session = wait(card.open(want("add", 1, tenant))).expect("open");
    wait(session.push(vec![tenant as u8], true)).expect("push");
    session.rest(terms(willing));
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
    session.rest(terms(false));
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
        s.rest(terms(willing));
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

/// A session of a tenant of some weight, which does nothing.
fn weighing(card: &Card, tenant: u64, weight: u32) -> Opening {
    card.open(Want { when_full: WhenFull::Wait, weight, ..want("add", 1, tenant) })
}

#[test]
fn of_two_that_take_turns_the_one_of_more_weight_has_its_slot_for_longer_up_to_ten_times() {
    const TURN: Duration = Duration::from_secs(1);
    for (weights, turns) in [([1, 1], 1), ([3, 1], 3), ([1, 3], 1), ([300, 200], 1), ([10_000, 1], 10)] {
        let exact = if weights == [300, 200] { TURN * 3 / 2 } else { TURN * turns };
        let (card, clock) = card(1);
        let holder = wait(weighing(&card, 1, weights[0])).expect("open");
        let mut waiting = weighing(&card, 2, weights[1]);
        assert!(once(&mut waiting).is_pending());
        let moment = || {
            holder.rest(Rest { idle: IDLE, turn: Some(TURN) });
            holder.resume()
        };
        clock.advance((exact - Duration::from_nanos(1)).as_nanos() as u64);
        assert!(moment(), "{weights:?}: 1 ns early");
        clock.advance(1);
        assert!(!moment(), "{weights:?}");
        drop(wait(waiting).expect("its turn"));
    }
}

#[test]
fn slots_that_change_hands_end_up_as_the_weights_say() {
    let (card, clock) = card(4);
    let mut heavy: Vec<Session> = (0..4).map(|_| wait(weighing(&card, 1, 3)).expect("open")).collect();
    // As streams that are read all the time: those that lose their slot ask for one again.
    let mut light: Vec<Session> = Vec::new();
    for round in 0..8 {
        let mut waiting = weighing(&card, 2, 1);
        let _ = once(&mut waiting);
        pass(&card, &clock, IDLE);
        heavy.retain(|s| {
            s.rest(terms(true));
            s.resume()
        });
        match round {
            0 => light.push(wait(waiting).expect("one of them")),
            _ => assert!(got(&mut waiting).is_none()),
        }
        assert_eq!(
            (heavy.len(), light.len()),
            (3, 1),
            "round {round}: a quarter of the weight, a quarter of the slots"
        );
    }
    // The other way round.
    let mut waiting = weighing(&card, 1, 3);
    assert!(once(&mut waiting).is_pending());
    pass(&card, &clock, IDLE);
    light[0].rest(terms(true));
    assert!(light[0].resume(), "it has no more than its share");
    drop(heavy);
    drop(wait(waiting).expect("a slot"));
}

/// One that cannot begin anew, as a stream that is written.
fn keeping(card: &Card, tenant: u64, when_full: WhenFull) -> Opening {
    card.open(Want { keeps: true, when_full, ..want("add", 1, tenant) })
}

#[test]
fn those_that_cannot_begin_anew_leave_one_slot_to_others() {
    let (card, clock) = card(3);
    let first = wait(keeping(&card, 1, WhenFull::Wait)).expect("open");
    let second = wait(keeping(&card, 1, WhenFull::Wait)).expect("open");
    let refused = wait(keeping(&card, 2, WhenFull::Busy)).expect_err("one slot is for others");
    assert!(refused.to_string().contains("streams which are written"), "{refused}");
    let mut third = keeping(&card, 2, WhenFull::Wait);
    assert!(once(&mut third).is_pending());
    // A reader has the last slot, rests, and does not make room for what cannot have it.
    let reader = have(&card, 3, true);
    pass(&card, &clock, 10 * IDLE);
    assert!(reader.resume() && got(&mut third).is_none());
    reader.rest(terms(true));
    let mut packet = waits(&card, 2);
    pass(&card, &clock, IDLE);
    let packet = got(&mut packet).expect("a command's");
    assert!(!reader.resume() && got(&mut third).is_none());
    drop(packet);
    // One of its kind that rests for long enough does, and so does one that ends.
    second.rest(terms(false));
    pass(&card, &clock, IDLE);
    let third = got(&mut third).expect("the second's");
    assert!(!second.resume());
    let fourth = keeping(&card, 3, WhenFull::Wait);
    drop(first);
    drop(wait(fourth).expect("the first's"));
    drop(third);
    // Where there is one slot only, there is none to leave.
    let (one, _clock) = self::card(1);
    drop(wait(keeping(&one, 1, WhenFull::Busy)).expect("open"));
}
