//! Chains in slots: what they are made of, their life cycle, and stages that are lost.

use crate::process::{host, package};
use crate::rig::{catalogue, config, wait, want};
use std::time::Duration;
use weldfs_fpga::card::Card;
use weldfs_fpga::config::{CardConfig, Want};
use weldfs_fpga::error::CardError;
use weldfs_fpga::kernel::Fault;
use weldfs_fpga::manifest::Manifest;
use weldfs_fpga::package::Package;

/// A chain of these stages, in TOML.
fn chain(name: &str, stages: &str, lut: u32) -> Package {
    let id: String = name.bytes().chain(std::iter::repeat(5)).take(16).map(|b| format!("{b:02x}")).collect();
    let text = format!(
        "name = \"{name}\"\nid = \"{id}\"\nversion = \"1.0.0\"\nlicence = \"Apache-2.0\"\nabout = \"A test\"\n\
         clock_mhz = 250\ncycles_per_flit = 2.0\nregion = {{ lut = {lut}, ff = 100, bram = 0, dsp = 0 }}\n\
         [params]\nmin = 0\nmax = 9\n[ports]\npeek = [\"first\", \"second\"]\n[backend.model]\nchain = [{stages}]\n"
    );
    Package::builtin(Manifest::parse(&text).expect("a good manifest")).expect("a package")
}

fn plain(kernel: &str, params: &[u32]) -> Want {
    Want { params: params.to_vec(), ..want(kernel, 0, 1) }
}

#[test]
fn a_chain_in_a_slot_computes_all_of_its_stages_and_charges_the_slowest() {
    let card = Card::new(config(1), catalogue()).expect("a card");
    card.load(chain("both", "{ kernel = \"add\", params = [7] }, { kernel = \"plus:model\" }", 200)).expect("loaded");
    card.activate("both").expect("activated");
    let input: Vec<u8> = (0..200_000u32).map(|n| n as u8).collect();
    for len in [0, 1, 100, 16_384, 200_000] {
        let session = wait(card.open(plain("both", &[3]))).expect("open");
        let ran = wait(session.run(input[..len].to_vec(), len)).expect("ran");
        assert!(ran.output.iter().zip(&input).all(|(out, byte)| *out == byte.wrapping_add(10)), "{len} bytes");
        assert_eq!((ran.output.len(), ran.usage.cycles), (len, (2 * len.div_ceil(64) as u64).max(1)), "{len} bytes");
    }
    let status = card.status();
    assert_eq!(status.slots[1].kernel.as_deref(), Some("both"));
    let listed = status.kernels.iter().find(|k| k.name == "both").expect("listed");
    assert_eq!(listed.stages, ["add", "plus:model"]);
}

#[test]
fn a_chain_that_cannot_be_is_refused_with_the_reason() {
    let card = Card::new(config(1), catalogue()).expect("a card");
    let refused = |package: Package| {
        let error = card.load(package).expect_err("refused");
        (error.errno().name(), error.to_string())
    };
    let add = "{ kernel = \"add\" }";
    assert_eq!(refused(chain("a", &format!("{add}, {{ kernel = \"none\" }}"), 200)).0, "ENOENT");
    assert_eq!(refused(chain("a", &format!("{add}, {{ kernel = \"plus:rtl\" }}"), 200)).0, "ENOENT");
    let (errno, said) = refused(chain("a", &format!("{add}, {{ kernel = \"plus\" }}"), 199));
    assert!(errno == "EINVAL" && said.contains("200 LUT"), "{errno}: {said}");
    card.load(chain("inner", &format!("{add}, {add}"), 200)).expect("loaded");
    card.activate("inner").expect("activated");
    let (errno, said) = refused(chain("outer", &format!("{add}, {{ kernel = \"inner\" }}"), 900));
    assert!(errno == "EINVAL" && said.contains("inner is a chain"), "{errno}: {said}");
    let itself = refused(chain("itself", &format!("{add}, {{ kernel = \"itself\" }}"), 900));
    assert!(itself.0 == "EINVAL" && itself.1.contains("stage of itself"), "{itself:?}");
}

#[test]
fn a_stage_is_in_use_while_its_chain_is_and_is_needed_when_the_chain_opens() {
    let card = Card::new(config(2), catalogue()).expect("a card");
    card.load(chain("both", "{ kernel = \"add\" }, { kernel = \"plus\" }", 200)).expect("loaded");
    card.activate("both").expect("activated");
    let session = wait(card.open(plain("both", &[1, 1, 1, 2]))).expect("open");
    assert!(matches!(card.deactivate("plus"), Err(CardError::Busy(_))));
    drop(session);
    card.deactivate("plus").expect("deactivated");
    assert!(card.status().slots[1].kernel.is_none(), "the chain has left its slot with its stage");
    let refused = wait(card.open(plain("both", &[1, 1, 1, 2]))).expect_err("a stage is not active");
    assert_eq!(refused.errno().name(), "ENODEV");
    card.activate("plus").expect("activated");
    for bad in [&[1, 1, 1][..], &[], &[1, 1, 1, 256]] {
        assert_eq!(wait(card.open(plain("both", bad))).expect_err("refused").errno().name(), "EINVAL", "{bad:?}");
    }
    wait(card.open(plain("both", &[1, 1, 1, 2]))).expect("open");
}

#[test]
fn a_stage_that_is_lost_is_named_and_the_next_session_has_new_ones() {
    let card = Card::new(config(1), catalogue()).expect("a card");
    card.load(chain("both", "{ kernel = \"plus\", params = [0] }, { kernel = \"add\", params = [1] }", 200))
        .expect("loaded");
    card.activate("both").expect("activated");
    let session = wait(card.open(plain("both", &[]))).expect("open");
    let fault = wait(session.run(vec![255], 9)).expect_err("the second stage panics");
    assert!(matches!(&fault, Fault::Lost(why) if why.contains("panicked")), "{fault}");
    let fault = wait(session.run(vec![254], 9)).expect_err("the second stage does not take it");
    assert!(matches!(&fault, Fault::Data(why) if why.contains("stage add")), "{fault}");
    assert_eq!(wait(session.run(vec![5], 9)).expect("it goes on").output, [6]);
}

#[test]
fn stages_may_be_processes_and_those_that_crash_or_hang_take_the_packet_with_them() {
    let config = CardConfig { host: host(), watchdog: Duration::from_millis(500), ..config(1) };
    let card = Card::new(config, catalogue()).expect("a card");
    for behaviour in ["GOOD", "CRASHES", "HANGS"] {
        let Some(package) = package(behaviour) else { return };
        card.load(package).expect("loaded");
        card.activate(&behaviour.to_lowercase()).expect("activated");
    }
    let input: Vec<u8> = (0..2_000_000u32).map(|n| (n / 3) as u8).collect();
    for (name, stages) in [
        ("mixed", "{ kernel = \"good\" }, { kernel = \"add\", params = [2] }"),
        ("processes", "{ kernel = \"good\" }, { kernel = \"good\", params = [2] }"),
    ] {
        card.load(chain(name, stages, 200)).expect("loaded");
        card.activate(name).expect("activated");
        for round in 0..3 {
            let session = wait(card.open(plain(name, &[3]))).expect("open");
            let ran = wait(session.run(input.clone(), input.len())).expect("ran");
            let right = ran.output.iter().zip(&input).all(|(out, byte)| *out == byte.wrapping_add(5));
            assert!(ran.output.len() == input.len() && right, "{name}, round {round}");
        }
    }
    for bad in ["crashes", "hangs"] {
        let name = format!("with-{bad}");
        let stages = format!("{{ kernel = \"good\", params = [0] }}, {{ kernel = \"{bad}\", params = [0] }}");
        card.load(chain(&name, &stages, 200)).expect("loaded");
        card.activate(&name).expect("activated");
        let session = wait(card.open(plain(&name, &[]))).expect("open");
        let fault = wait(session.run(vec![66; 1000], 1000)).expect_err("it is lost");
        assert!(matches!(&fault, Fault::Lost(why) if why.contains(&format!("stage {bad}"))), "{fault}");
        drop(session);
        let session = wait(card.open(plain("mixed", &[3]))).expect("the slot is of use again");
        assert_eq!(wait(session.run(vec![1], 9)).expect("ran").output, [6]);
    }
}
