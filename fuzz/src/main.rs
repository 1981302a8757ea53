//! The fuzzer. `WELDFS_FUZZ_TARGET` names the target; arguments are libFuzzer's. `fuzz/run` starts it.
#![no_main]

use cap::Cap;
use libfuzzer_sys::{Corpus, fuzz_target};
use std::alloc::System;
use std::sync::OnceLock;
use weldfs_fuzz_targets::{Target, corpus, find};

/// Bytes that the process may have allocated at one time, all that an input needs included: beyond that allocations
/// fail, which aborts, and libFuzzer keeps the input.
const MEMORY_MAX: usize = 512 << 20;

#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, MEMORY_MAX);

fn chosen() -> &'static Target {
    static CHOSEN: OnceLock<&Target> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let name = std::env::var("WELDFS_FUZZ_TARGET").expect("WELDFS_FUZZ_TARGET names a target");
        find(&name).unwrap_or_else(|| panic!("no such target: {name}"))
    })
}

/// Writes the seeds and ends, when it is asked for that.
fn begin() {
    if let Some(into) = std::env::var_os("WELDFS_FUZZ_SEEDS") {
        corpus::write_seeds(into.as_ref()).expect("the folder can be written");
        std::process::exit(0);
    }
}

fuzz_target!(init: begin(), |data: &[u8]| -> Corpus {
    let target = chosen();
    if data.len() > target.len_max {
        return Corpus::Reject;
    }
    (target.run)(data);
    Corpus::Keep
});
