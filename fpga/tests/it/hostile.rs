//! Shared objects that are after the card, its other kernels or the machine. What is only bad is in `process`.

use crate::process::{compile_file, host, launch, package_of};
use crate::rig::{catalogue, config, wait, want};
use landlock::{ABI, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr};
use std::sync::Arc;
use std::time::Duration;
use weldfs_fpga::card::Card;
use weldfs_fpga::config::CardConfig;
use weldfs_fpga::kernel::{Fault, Kernel, run};

/// A card with that kernel, and `add`. None, said, without a C compiler.
fn card(behaviour: &str) -> Option<Arc<Card>> {
    let library = compile_file("hostile.c", behaviour)?;
    let config = CardConfig { host: host(), watchdog: Duration::from_secs(2), ..config(2) };
    let card = Card::new(config, catalogue()).expect("a card");
    let package = package_of(behaviour, &library);
    let name = package.manifest().name.clone();
    card.load(package).expect("loaded");
    card.activate(&name).expect("activated");
    Some(card)
}

/// What a packet comes to, twice; another tenant's kernel beside it computes on.
fn lost(behaviour: &str, says: &[&str]) {
    let Some(card) = card(behaviour) else { return };
    let name = behaviour.to_lowercase().replace('_', "-");
    let add = wait(card.open(want("add", 5, 1))).expect("open");
    for _ in 0..2 {
        let session = wait(card.open(want(&name, 1, 2))).expect("open");
        match wait(session.run(vec![1; 300_000], 1 << 20)) {
            Err(Fault::Lost(why)) => assert!(says.iter().any(|s| why.contains(s)), "{behaviour}: {why}"),
            other => panic!("{behaviour}: {other:?}"),
        }
        assert_eq!(wait(add.run(vec![1; 100_000], 100_000)).expect("unharmed").output, vec![6; 100_000]);
    }
}

#[test]
fn system_calls_that_reach_out_of_the_process_are_refused() {
    let Some(library) = compile_file("hostile.c", "ATTEMPTS") else { return };
    let mut kernel = launch(&library).start().expect("started");
    kernel.reset(&[1]).expect("reset");
    assert_eq!(run(&mut kernel, b"abc", 3, 3).expect("ran").0, b"abc");
    assert_eq!(kernel.peek(0), Some(0), "bits as in tests/kernels/hostile.c, `attempts`");
}

/// Nor is it left with what its constructor has opened.
#[test]
fn the_memory_of_the_device_is_opened_by_no_constructor_and_what_one_opens_is_closed() {
    let Some(library) = compile_file("hostile.c", "KEEPS") else { return };
    let strict = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let landlocked = strict.handle_access(AccessFs::from_write(ABI::V1)).and_then(|r| r.create()).is_ok();
    if !landlocked && !rustix::process::geteuid().is_root() {
        // As docs/SLOTS.md says: neither capabilities nor Landlock keep a constructor from it.
        println!(
            "SKIP: whether a constructor opens the memory of the device is not tested: no Landlock, no capabilities"
        );
        return;
    }
    let mut kernel = launch(&library).start().expect("started");
    kernel.reset(&[1]).expect("reset");
    assert_eq!(run(&mut kernel, b"abc", 3, 3).expect("ran").0, b"abc");
    // It knew its parent, and could read its own.
    assert_eq!(kernel.peek(0), Some(0b1100 << 16), "bits as in tests/kernels/hostile.c, `keep` and `readable`");
}

#[test]
fn a_constructor_that_exchanges_descriptors_is_not_loaded() {
    let Some(library) = compile_file("hostile.c", "EXCHANGES") else { return };
    assert!(launch(&library).start().is_err());
}

#[test]
fn calls_by_the_numbers_of_another_abi_end_the_process() {
    lost("OTHER_ABI", &["its process ended"]);
}

#[test]
fn all_memory_that_a_kernel_can_get_is_what_its_limit_says() {
    let Some(library) = compile_file("hostile.c", "HUGE") else { return };
    let mut kernel = launch(&library).start().expect("started");
    kernel.reset(&[1]).expect("reset");
    assert_eq!(run(&mut kernel, b"abc", 3, 3).expect("it can still answer").0, b"abc");
    let gib = kernel.peek(0).expect("a value");
    assert!((1..=4).contains(&gib), "{gib} GiB");
}

#[test]
fn a_stack_that_does_not_end_ends_the_process() {
    lost("RECURSES", &["its process ended"]);
}

#[test]
fn a_kernel_that_writes_over_all_shared_memory_changes_its_own_output_at_most() {
    let Some(card) = card("SCRIBBLES") else { return };
    let session = wait(card.open(want("scribbles", 1, 2))).expect("open");
    let add = wait(card.open(want("add", 5, 1))).expect("open");
    // Of one buffer it gives the output that it wants to give.
    assert_eq!(wait(session.run(vec![7; 1000], 1000)).expect("ran").output, vec![7; 1000]);
    assert_eq!(wait(add.run(vec![1; 100_000], 100_000)).expect("unharmed").output, vec![6; 100_000]);
}

/// Replies that nothing was asked for, and garbage between the buffers while the card copies: the card takes as many
/// bytes as it gave, and when the process has read nothing for long enough, ends it. It never waits for it to read.
#[test]
fn forged_replies_and_a_socket_that_nothing_reads_hold_no_card_up() {
    let Some(card) = card("FORGES") else { return };
    let session = wait(card.open(want("forges", 1, 2))).expect("open");
    let add = wait(card.open(want("add", 5, 1))).expect("open");
    let mut outcome = None;
    for _ in 0..100_000 {
        match wait(session.run(vec![1], 10)) {
            Ok(ran) => assert_eq!(ran.output.len(), 1),
            Err(fault) => {
                outcome = Some(fault);
                break;
            }
        }
    }
    match outcome {
        Some(Fault::Lost(why)) => assert!(why.contains("does not read"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(wait(add.run(vec![1; 100_000], 100_000)).expect("unharmed").output, vec![6; 100_000]);
}

/// More replies than questions: those of one packet answer for the next ones, of the same process, and no other.
#[test]
fn surplus_replies_end_with_the_process_and_reach_no_other_session() {
    let Some(card) = card("FORGES_MORE") else { return };
    for tenant in 2..5 {
        let session = wait(card.open(want("forges-more", 1, tenant))).expect("open");
        let first = wait(session.run(vec![tenant as u8; 100], 100)).expect("ran");
        // It was answered before it was computed: what is in the buffer is the process's to say, never another's.
        assert!(first.output.iter().all(|b| [0, tenant as u8].contains(b)), "{:?}", &first.output[..4]);
        for _ in 0..100 {
            match wait(session.run(vec![1; 100], 100)) {
                Ok(ran) => assert_eq!(ran.output.len(), 100),
                Err(fault) => assert!(matches!(fault, Fault::Lost(_)), "{fault:?}"),
            }
        }
    }
}

#[test]
fn replies_that_are_none_end_the_process() {
    lost("FORGES_NONSENSE", &["does not keep to the protocol", "its process ended"]);
}

#[test]
fn a_kernel_that_closes_its_socket_is_ended_though_it_runs_on() {
    lost("CLOSES", &["its process ended"]);
}

#[test]
fn more_cycles_than_any_kernel_takes_are_not_charged() {
    lost("LIES_OF_CYCLES", &["over 4096 cycles for each flit"]);
}

#[test]
fn more_output_than_the_buffer_has_is_not_read() {
    lost("MAKES_EVERYTHING", &["more than there was room for"]);
    lost("MAKES_A_BYTE_MORE", &["more than there was room for"]);
}

#[test]
fn a_kernel_that_ignores_every_signal_and_spins_is_killed() {
    lost("IGNORES_SIGNALS", &["no progress for 2s"]);
}
