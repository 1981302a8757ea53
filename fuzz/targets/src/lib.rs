//! What is fuzzed: a function over bytes per target, which panics where something is wrong, and the seeds it starts
//! from.
//!
//! * `wire`: what a client can put in front of a device: `sqe`, `ring`, `program`, `text`, `attach`, `commands`.
//! * `media`: what can lie on a medium: `superblock`, `log`, `page`, `values`, `frames`, `image`.
//! * `boundary`: what a C program can hand to the client library: `capi`.
//! * `corpus`: where inputs are kept, `cursor`: how bytes are taken for an input.
//!
//! The fuzzer (`fuzz/run`) runs these functions under libFuzzer; `tests/replay.rs` runs every kept input once, with
//! nothing but an ordinary build. A new target: a file here, a line in `TARGETS`, its seeds by `fuzz/run --seeds`.

pub mod boundary;
pub mod corpus;
pub mod cursor;
pub mod media;
pub mod wire;

/// One target.
pub struct Target {
    /// Its name, and that of its folders in `fuzz/corpus/` and `fuzz/regressions/`.
    pub name: &'static str,
    /// What it feeds to what.
    pub about: &'static str,
    /// Runs one input. Panics where something is wrong; any bytes may come.
    pub run: fn(&[u8]),
    /// Inputs to start from: names and bytes. The same at each call.
    pub seeds: fn() -> Vec<Seed>,
    /// Bytes of the longest input that makes sense.
    pub len_max: usize,
}

/// An input to start from: its name, its bytes.
pub type Seed = (String, Vec<u8>);

/// All targets, in the order of the path of a command, from the wire to the medium.
pub const TARGETS: &[Target] = &[
    wire::sqe::TARGET,
    wire::ring::TARGET,
    wire::attach::TARGET,
    wire::program::TARGET,
    wire::text::TARGET,
    wire::commands::TARGET,
    boundary::capi::TARGET,
    media::frames::TARGET,
    media::values::TARGET,
    media::superblock::TARGET,
    media::page::TARGET,
    media::log::TARGET,
    media::image::TARGET,
];

/// The target of a name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|t| t.name == name)
}
