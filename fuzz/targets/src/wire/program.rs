//! Bodies of fused programs: what is believed is what its own bytes say, and what is printed of it parses to the same.

use super::text::SAMPLES;
use crate::{Seed, Target};
use weldfs_ciscops::program::{Program, text};
use weldfs_ciscops::{OPS, PoolRange};

/// Bytes of the pool its ranges must lie in.
const POOL: u32 = 1 << 20;

/// See the module.
pub const TARGET: Target = Target {
    name: "program",
    about: "the body of a fused program, to decoder, verifier and printer",
    run,
    seeds,
    len_max: 4096,
};

fn run(data: &[u8]) {
    let Ok(program) = Program::decode(data, POOL) else { return };
    let body = program.encode();
    assert_eq!(body, data, "a program that is believed has one encoding");
    let _ = (program.scratch_bytes(), program.write_bytes(), program.is_durable());
    let printed = text::print(&program);
    match text::parse(&printed, &[]) {
        Ok(parsed) => assert_eq!(text::print(parsed.body.program()), printed, "parsed to another program"),
        Err(e) => panic!("what was printed is no program: {e}\n{printed}"),
    }
}

fn seeds() -> Vec<Seed> {
    debug_assert!(OPS.len() > 20);
    let body = |(i, source): (usize, &&str)| {
        let parsed = text::parse_with_keys(source, &[("in", 64)], &[("k", 3)]).expect("a sample is a program");
        let ranges: Vec<PoolRange> = (0..parsed.body.pools())
            .map(|p| PoolRange::new(4096 * p as u32, parsed.body.pool_len(weldfs_ciscops::program::Pool(p as u8))))
            .collect();
        (format!("sample-{i:02}"), parsed.body.bind(&ranges).expect("as many ranges as it has"))
    };
    SAMPLES.iter().enumerate().map(body).collect()
}
