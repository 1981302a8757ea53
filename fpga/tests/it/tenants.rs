//! What a process keeps, and whom it holds up.

use crate::process::{compile, folder, host, package_of, process_of};
use crate::rig::{catalogue, config, wait, want};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;
use weldfs_fpga::card::Card;
use weldfs_fpga::config::CardConfig;

/// The parameter that the kernel remembers from the session before, which its reset should have forgotten; 0: none.
fn remembered(card: &Card, param: u32, tenant: u64) -> u32 {
    let session = wait(card.open(want("remembers", param, tenant))).expect("open");
    wait(session.run(b"ab".to_vec(), 2)).expect("ran");
    session.peek(0).expect("a value")
}

#[test]
fn what_a_reset_forgets_to_forget_is_seen_by_no_other_tenant() {
    let Some(library) = compile("REMEMBERS") else { return };
    let card = Card::new(CardConfig { host: host(), ..config(1) }, catalogue()).expect("a card");
    card.load(package_of("REMEMBERS", &library)).expect("loaded");
    card.activate("remembers").expect("activated");
    assert_eq!(remembered(&card, 41, 1), 0);
    let library = folder().join("REMEMBERS/lib.so").canonicalize().expect("a path");
    let process = process_of(&library);
    assert!(process.is_some(), "it waits for its next session");
    assert_eq!(remembered(&card, 42, 1), 41, "the same tenant's session has the same process");
    assert_eq!(process_of(&library), process);
    assert_eq!(remembered(&card, 43, 2), 0, "another tenant's has not");
    assert_eq!(remembered(&card, 44, 1), 0, "nor has the first one's, then");
    assert_eq!(card.status().slots[1].reconfigurations, 1, "the slot has its kernel all the time");
}

/// A debugger that does not look keeps the end of a process from being seen: whoever waits for that waits long.
#[test]
fn a_process_whose_end_takes_long_holds_no_slot_up() {
    let name = "a_process_whose_end_takes_long_holds_no_slot_up";
    let Some(library) = compile("GOOD") else { return };
    let Some(tracer) = crate::process::compile_program("seize.c") else { return };
    let card = Card::new(CardConfig { host: host(), ..config(1) }, catalogue()).expect("a card");
    card.load(package_of("LINGERS", &library)).expect("loaded");
    card.activate("lingers").expect("activated");
    drop(wait(card.open(want("lingers", 1, 1))).expect("open"));
    let library = folder().join("LINGERS/lib.so").canonicalize().expect("a path");
    let id = process_of(&library).expect("it waits for its next session");
    let mut tracer =
        Command::new(tracer).arg(&id).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a tracer");
    let mut said = String::new();
    BufReader::new(tracer.stdout.take().expect("piped")).read_line(&mut said).expect("it says something");
    if said.trim() != "ready" {
        let _ = tracer.wait();
        return println!("SKIP: {name}: no process may be traced here: {said}");
    }
    let (done, finished) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            card.deactivate("lingers").expect("deactivated");
            let add = wait(card.open(want("add", 5, 1))).expect("open");
            let output = wait(add.run(vec![1; 100_000], 100_000)).expect("ran").output;
            done.send(output).expect("sent");
        });
        let output = finished.recv_timeout(Duration::from_secs(60));
        let lingers = std::path::Path::new(&format!("/proc/{id}")).exists();
        // Its end is seen now, whatever came of it: a card that waits for it must not keep this test from failing.
        drop(tracer.stdin.take());
        let _ = tracer.wait();
        assert_eq!(output.as_deref().map(<[u8]>::len), Ok(100_000), "the card is free");
        assert!(lingers, "the process has not been waited for meanwhile");
    });
    // The one that waits for such processes sees it, too.
    for _ in 0..6000 {
        if !std::path::Path::new(&format!("/proc/{id}")).exists() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it is a zombie");
}

/// `cargo test -p weldfs-fpga --release --test it -- --ignored --exact tenants::cost --nocapture`
#[test]
#[ignore = "a measurement"]
fn cost() {
    let Some(library) = compile("GOOD") else { return };
    let card = Card::new(CardConfig { host: host(), ..config(1) }, catalogue()).expect("a card");
    card.load(package_of("COSTS", &library)).expect("loaded");
    card.activate("costs").expect("activated");
    let session = |tenant| {
        let start = std::time::Instant::now();
        let session = wait(card.open(want("costs", 1, tenant))).expect("open");
        assert_eq!(wait(session.run(b"ab".to_vec(), 2)).expect("ran").output, b"bc");
        start.elapsed()
    };
    let median = |tenant: fn(u64) -> u64| {
        let mut all: Vec<Duration> = (0..101).map(|i| session(tenant(i))).collect();
        all.sort_unstable();
        all[50]
    };
    println!("a session of a byte: {:?}; where another tenant had the process: {:?}", median(|_| 1), median(|i| i % 2));
}
