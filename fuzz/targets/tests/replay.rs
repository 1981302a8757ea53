//! Every kept input of every target, run once on stable Rust: the corpora and what once was a bug.

use std::time::Instant;
use weldfs_fuzz_targets::{TARGETS, Target, corpus, find};

/// Inputs that a target's corpus has at most, and their bytes: what is checked in stays small.
const FILES_MAX: usize = 160;
const BYTES_MAX: usize = 160 << 10;

fn replay(name: &str) {
    let target: &Target = find(name).expect("a target");
    let kept = corpus::kept(target).expect("the corpus can be read");
    let seeds = (target.seeds)();
    assert!(!seeds.is_empty(), "{name}: nothing to start from");
    let begun = Instant::now();
    for (seed, bytes) in &seeds {
        println!("seed {seed}");
        (target.run)(bytes);
    }
    for (path, bytes) in &kept {
        // Shown only when it fails.
        println!("{}", path.display());
        (target.run)(bytes);
    }
    println!("{name}: {} seeds, {} inputs in {:?}", seeds.len(), kept.len(), begun.elapsed());
}

#[test]
fn sqe() {
    replay("sqe");
}

#[test]
fn ring() {
    replay("ring");
}

#[test]
fn attach() {
    replay("attach");
}

#[test]
fn program() {
    replay("program");
}

#[test]
fn text() {
    replay("text");
}

#[test]
fn commands() {
    replay("commands");
}

#[test]
fn capi() {
    replay("capi");
}

#[test]
fn frames() {
    replay("frames");
}

#[test]
fn values() {
    replay("values");
}

#[test]
fn superblock() {
    replay("superblock");
}

#[test]
fn page() {
    replay("page");
}

#[test]
fn log() {
    replay("log");
}

#[test]
fn image() {
    replay("image");
}

#[test]
fn every_target_is_replayed_and_listed_by_the_runner() {
    let list = std::process::Command::new(corpus::home().join("run")).arg("--list").output().expect("the runner runs");
    let mut names: Vec<&str> = TARGETS.iter().map(|t| t.name).collect();
    names.sort_unstable();
    assert_eq!(String::from_utf8_lossy(&list.stdout).lines().collect::<Vec<_>>(), names);
    let here = include_str!("replay.rs");
    names.retain(|name| !here.contains(&format!("replay(\"{name}\")")));
    assert!(names.is_empty(), "not replayed: {names:?}");
}

#[test]
fn corpora_stay_small_and_inputs_as_short_as_their_targets_take() {
    for target in TARGETS {
        let kept = corpus::kept(target).expect("the corpus can be read");
        let bytes: usize = kept.iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(kept.len() <= FILES_MAX && bytes <= BYTES_MAX, "{}: {} files, {bytes} bytes", target.name, kept.len());
        for (name, bytes) in (target.seeds)() {
            assert!(bytes.len() <= target.len_max, "{}: the seed {name} has {} bytes", target.name, bytes.len());
        }
    }
}

/// What a target finds is found by an input, not by the target: noise is taken without a complaint.
#[test]
fn noise_is_taken() {
    use weldfs_journal::Random;
    let noise = weldfs_journal::SeededRandom::new(11);
    for target in TARGETS {
        for round in 0..20usize {
            let mut bytes = vec![0; (round * 37) % (target.len_max + 1)];
            noise.fill(&mut bytes);
            (target.run)(&bytes);
        }
    }
}
