//! A card that takes its modelled time, on a clock that stands still: nothing here depends on how fast this machine is.

use crate::rig::{add, catalogue, config, manifest, once, until, wait, want};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use weldfs_fpga::card::Card;
use weldfs_fpga::clock::Clock;
use weldfs_fpga::config::{CardConfig, Pace, Reconfigure, Want, WhenFull};
use weldfs_fpga::error::CardError;
use weldfs_fpga::kernel::{Fault, Kernel, Step};
use weldfs_fpga::status::SlotStatus;

/// Bytes of a packet that takes 1000 ns: the test's kernel takes two cycles for 64 bytes, at 250 MHz.
const MICROSECOND: usize = 8000;

fn timed(slots: usize) -> (Arc<Card>, Clock) {
    let clock = Clock::manual();
    let card = CardConfig { timed: true, clock: clock.clone(), ..config(slots) };
    (Card::new(card, catalogue()).expect("a card"), clock)
}

fn pass(card: &Card, clock: &Clock, ns: u64) {
    clock.advance(ns);
    card.tick();
}

/// Until so many bytes have been computed, whether or not their time has come.
fn computed(card: &Card, bytes: u64) {
    until(|| (card.status().slots.iter().map(|s| s.bytes_in).sum::<u64>() >= bytes).then_some(()));
}

/// Whether it is still pending a while later: a thread that would answer early has had the time to.
fn waits<T>(future: &mut Pin<Box<impl Future<Output = T>>>) -> bool {
    std::thread::sleep(std::time::Duration::from_millis(20));
    once(future).is_pending()
}

#[test]
fn a_packet_is_held_back_until_its_modelled_time_has_passed() {
    let (card, clock) = timed(1);
    let session = wait(card.open(want("add", 3, 1))).expect("open");
    for (n, bytes) in [MICROSECOND, 2 * MICROSECOND].into_iter().enumerate() {
        let before = card.status().slots[1].bytes_in;
        let mut packet = Box::pin(session.run(vec![1; bytes], bytes));
        assert!(once(&mut packet).is_pending());
        computed(&card, before + bytes as u64);
        pass(&card, &clock, 1000 * (n as u64 + 1) - 1);
        assert!(waits(&mut packet), "1 ns early");
        pass(&card, &clock, 1);
        let ran = wait(packet).expect("ran");
        assert_eq!((ran.output, ran.usage.slot_ns), (vec![4; bytes], 1000 * (n as u64 + 1)));
    }
    drop(session);
}

#[test]
fn a_stream_comes_out_as_fast_as_the_modelled_kernel_makes_it() {
    let (card, clock) = timed(1);
    let session = wait(card.open(want("add", 1, 1))).expect("open");
    let mut total = 0;
    for piece in 1..=4u64 {
        wait(session.push(vec![0; MICROSECOND], piece == 4)).expect("room");
        computed(&card, piece * MICROSECOND as u64);
        let mut pull = Box::pin(session.pull(usize::MAX));
        assert!(once(&mut pull).is_pending());
        pass(&card, &clock, 999);
        assert!(waits(&mut pull), "1 ns early");
        pass(&card, &clock, 1);
        total += wait(pull).expect("made").bytes.len();
        assert_eq!(total, piece as usize * MICROSECOND);
    }
    // What comes after a pause begins then.
    pass(&card, &clock, 50_000);
    let mut packet = Box::pin(session.run(vec![0; MICROSECOND], MICROSECOND));
    assert!(once(&mut packet).is_pending());
    computed(&card, 5 * MICROSECOND as u64);
    pass(&card, &clock, 999);
    assert!(waits(&mut packet), "a pause saves nothing up");
    pass(&card, &clock, 1);
    wait(packet).expect("ran");
}

#[test]
fn a_session_that_goes_while_its_packet_is_held_back_frees_the_slot_at_once() {
    let (card, _clock) = timed(1);
    let session = wait(card.open(want("add", 1, 1))).expect("open");
    let mut packet = Box::pin(session.run(vec![1; 1 << 20], 1 << 20));
    assert!(once(&mut packet).is_pending());
    computed(&card, 1);
    drop(packet);
    wait(session.send_params(vec![2])).expect("no time passes");
    drop(session);
    drop(wait(card.open(want("plus", 1, 2))).expect("the slot is free"));
    let used = card.status().tenants[0].usage;
    assert!(used.slot_ns > 0, "what was computed is charged: {used:?}");
}

#[test]
fn the_pace_changes_while_the_card_works() {
    let (card, clock) = timed(1);
    let session = wait(card.open(want("add", 1, 1))).expect("open");
    let pace = card.pace();
    assert_eq!((pace.clock_hz, pace.timed), (250_000_000, true));
    let mut bytes = 0;
    for (hz, ns) in [(125_000_000, 2000), (1_000_000, 250_000), (2_000_000_000, 1000)] {
        card.set_pace(Pace { clock_hz: hz, ..pace }).expect("in range");
        let mut packet = Box::pin(session.run(vec![1; MICROSECOND], MICROSECOND));
        assert!(once(&mut packet).is_pending());
        bytes += MICROSECOND as u64;
        computed(&card, bytes);
        pass(&card, &clock, ns - 1);
        assert!(waits(&mut packet), "at {hz} Hz 1 ns early");
        pass(&card, &clock, 1);
        assert_eq!(wait(packet).expect("ran").usage.slot_ns, ns, "a kernel for 250 MHz at {hz} Hz");
    }
    assert!(matches!(card.set_pace(Pace { clock_hz: 999_999, ..pace }), Err(CardError::Config(_))));
    card.set_pace(Pace { timed: false, reconfigure: Reconfigure { base_ns: 700, per_lut_ns: 0 }, ..pace })
        .expect("good");
    assert_eq!(wait(session.run(vec![1; MICROSECOND], MICROSECOND)).expect("at once").usage.slot_ns, 1000);
    drop(session);
    let mut opening = card.open(want("plus", 1, 1));
    assert!(once(&mut opening).is_pending());
    pass(&card, &clock, 700);
    drop(wait(opening).expect("loaded"));
    assert_eq!(card.status().slots[1].reconfigure_ns, 700);
}

#[test]
fn a_late_thread_does_not_slow_the_drive_down() {
    let clock = Clock::manual();
    let drive =
        CardConfig { drive_bytes_per_s: 1_000_000_000, credit_bytes: 1 << 10, clock: clock.clone(), ..config(1) };
    let card = Card::new(drive, catalogue()).expect("a card");
    let session = wait(card.open(want("add", 1, 1))).expect("open");
    let mut packet = Box::pin(session.run(vec![1; 1 << 14], 1 << 14));
    assert!(once(&mut packet).is_pending());
    // The keeper of time sleeps through all of it.
    pass(&card, &clock, 1 << 14);
    assert_eq!(wait(packet).expect("it has all come").output.len(), 1 << 14);
}

type Running = Pin<Box<dyn Future<Output = ()>>>;

/// Sessions of one packet each, always several of each tenant that want a slot: the slot time of both in the end.
fn shared_slots(slots: usize, weights: [u32; 2], rounds: u64) -> [u64; 2] {
    const WANTING: usize = 6;
    // Packets of one tenant take three times as long: time is shared, not packets.
    const TAKES_US: [usize; 2] = [3, 1];
    let (card, clock) = timed(slots);
    let begin = |tenant: usize| -> Running {
        let card = card.clone();
        let want = Want { weight: weights[tenant], when_full: WhenFull::Wait, ..want("add", 1, tenant as u64) };
        let bytes = TAKES_US[tenant] * MICROSECOND;
        Box::pin(async move {
            let session = card.open(want).await.expect("open");
            session.run(vec![0; bytes], bytes).await.expect("ran");
        })
    };
    let mut running: Vec<(usize, Running)> = (0..2 * WANTING).map(|i| (i % 2, begin(i % 2))).collect();
    // Of each slot: the sessions that it has had, and when the last one's packet ends, us.
    let mut held = vec![(0, 0); slots + 1];
    for now in 0..rounds {
        // Until those whose time has come have made way, and all packets in slots are computed.
        let status = until(|| {
            for (tenant, packet) in &mut running {
                while once(packet).is_ready() {
                    *packet = begin(*tenant);
                }
            }
            let status = card.status();
            let begun = status.tenants.iter().map(|t| t.sessions as usize * TAKES_US[t.tenant as usize]).sum::<usize>();
            let computed = status.tenants.iter().map(|t| t.usage.bytes_in as usize).sum::<usize>();
            let moved = |(s, h): (&SlotStatus, &(u64, u64))| s.slot == 0 || h.1 > now || s.sessions > h.0;
            let settled = status.waiting == 2 * WANTING - slots && computed == begun * MICROSECOND;
            (settled && status.slots.iter().zip(&held).all(moved)).then_some(status)
        });
        for (slot, held) in status.slots.iter().zip(&mut held) {
            if let Some(tenant) = slot.tenant.filter(|_| slot.sessions > held.0) {
                *held = (slot.sessions, now + TAKES_US[tenant as usize] as u64);
            }
        }
        pass(&card, &clock, 1000);
    }
    let of = |tenant: u64| card.status().tenants.iter().find(|t| t.tenant == tenant).map_or(0, |t| t.usage.slot_ns);
    [of(0), of(1)]
}

#[test]
fn slots_are_shared_by_the_tenants_weights() {
    for (slots, weights) in [(1, [1, 3]), (2, [1, 3]), (2, [500, 300]), (1, [9000, 3000])] {
        let [a, b] = shared_slots(slots, weights, 600);
        let ideal = f64::from(weights[1]) / f64::from(weights[0]);
        let got = b as f64 / a as f64;
        assert!((got / ideal - 1.0).abs() < 0.03, "{slots} slots, weights {weights:?}: {a} and {b} ns");
        let all = (a + b) as f64 / (slots as f64 * 600e3);
        assert!((0.98..1.02).contains(&all), "{all} of the slots' time is charged");
    }
}

/// Says of each packet that it took so many cycles.
struct Claims(u64);

impl Kernel for Claims {
    fn reset(&mut self, _params: &[u32]) -> Result<(), Fault> {
        Ok(())
    }

    fn step(&mut self, input: &[u8], eop: bool, _out: &mut [u8]) -> Result<Step, Fault> {
        Ok(Step { taken: input.len(), made: 0, done: eop, cycles: self.0 })
    }
}

#[test]
fn a_kernel_that_claims_more_cycles_than_one_may_is_lost_and_charges_no_more_than_that() {
    for inline_bytes in [0, 16 << 10] {
        let mut kernels = catalogue();
        // A packet of 64 bytes without output: a flit in, one for the end of its output.
        kernels.add_builtin(manifest("most", "most", 1, 250), || Box::new(Claims(2 * 4096))).expect("added");
        kernels.add_builtin(manifest("more", "more", 1, 250), || Box::new(Claims(2 * 4096 + 1))).expect("added");
        kernels.add_builtin(manifest("days", "days", 1, 250), || Box::new(Claims(u64::MAX))).expect("added");
        kernels.add_builtin(manifest("sum2", "add", 1, 250), add).expect("added");
        let card = Card::new(CardConfig { inline_bytes, ..config(1) }, kernels).expect("a card");
        let session = wait(card.open(want("most", 1, 1))).expect("open");
        assert_eq!(wait(session.run(vec![0; 64], 1)).expect("allowed").usage.cycles, 8192);
        drop(session);
        for kernel in ["more", "days"] {
            let session = wait(card.open(want(kernel, 1, 2))).expect("open");
            for _ in 0..2 {
                let lost = wait(session.run(vec![0; 64], 1));
                assert!(matches!(&lost, Err(Fault::Lost(why)) if why.contains("4096 cycles")), "{lost:?}");
            }
            assert_eq!(session.usage().cycles, 2 * 8192);
        }
        assert_eq!(card.status().slots[1].faults, 4);
        let session = wait(card.open(want("sum2", 1, 1))).expect("others go on");
        assert_eq!(wait(session.run(vec![1], 1)).expect("ran").output, [2]);
    }
}
