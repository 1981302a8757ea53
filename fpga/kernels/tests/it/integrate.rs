//! integrate against its two stages written as loops over all pairs.

use crate::support::{self, End};
use proptest::prelude::*;
use weldfs_fpga::kernel::run;

fn oracle(params: &[u32], input: &[u8]) -> End {
    let (q, p) = (params[0] as usize, params[1] as usize);
    let query: Vec<u8> = params[2..].iter().flat_map(|w| w.to_le_bytes()).collect();
    let stays = |record: &&[u8]| {
        let near = query[..p].iter().any(|b| record[..p].contains(b));
        let pairs: usize = query.iter().map(|a| record[..32].iter().filter(|b| *b == a).count()).sum();
        near && pairs > 32 - q
    };
    End::Out(input.chunks_exact(64).filter(stays).collect::<Vec<_>>().concat())
}

fn params(q: u32, p: u32, query: &[u8]) -> Vec<u32> {
    [q, p].into_iter().chain(query.as_chunks().0.iter().map(|w| u32::from_le_bytes(*w))).collect()
}

const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz012345";

#[test]
fn tails() {
    let mut kernel = crate::builtin("integrate");
    for (q, p) in [(0, 1), (0, 32), (5, 3), (16, 8), (32, 1), (32, 32)] {
        let params = params(q, p, &support::of_few(LETTERS, 4, 32));
        support::tails(kernel.as_mut(), &params, |n| support::of_few(LETTERS, n as u64, n), oracle);
    }
}

#[test]
fn the_threshold_is_exact() {
    let mut kernel = crate::builtin("integrate");
    // A query of 32 different bytes; each byte of a record that is one of them makes one pair.
    let query: Vec<u8> = (100..132).collect();
    let records: Vec<u8> = (0..=32usize).flat_map(|n| [&query[..n], &vec![1; 32 - n], &[7; 32]].concat()).collect();
    for q in 0..=32 {
        let expected = oracle(&params(q, 32, &query), &records);
        let End::Out(out) = &expected else { panic!("{expected:?}") };
        // More than 32 - q of 0..=32 pairs; a record without any does not pass the first stage.
        assert_eq!(out.len(), 64 * q as usize, "the oracle itself");
        support::agrees(kernel.as_mut(), &params(q, 32, &query), &records, &expected);
    }
    // All 1,024 pairs are equal.
    support::agrees(kernel.as_mut(), &params(0, 1, &[9; 32]), &[9; 64], &End::Out(vec![9; 64]));
    // The second half of a record counts for nothing.
    let half = [[1; 32], [9; 32]].concat();
    support::agrees(kernel.as_mut(), &params(32, 32, &[9; 32]), &half, &End::Out(vec![]));
}

#[test]
fn parameters_packets_and_resets() {
    let mut kernel = crate::builtin("integrate");
    let (one, other) = (params(16, 4, &support::of_few(LETTERS, 1, 32)), params(32, 32, &[b'a'; 32]));
    let bad = [[33, 1], [0, 0], [0, 33]].map(|[q, p]| params(q, p, &[0; 32]));
    let bad: Vec<&[u32]> = bad.iter().map(|p| &p[..]).chain([&[][..], &[1], &[1, 1], &one[..9]]).collect();
    support::refuses(kernel.as_mut(), &bad, &one);
    support::refuses(kernel.as_mut(), &[&[&one[..], &[0]].concat()], &one);
    let packets: Vec<Vec<u8>> = (0..30).map(|n| support::of_few(LETTERS, n, n as usize * 29)).collect();
    support::in_a_row(kernel.as_mut(), &one, &packets, oracle);
    support::in_a_row(kernel.as_mut(), &other, &packets, oracle);
    let (begun, whole) = (support::of_few(LETTERS, 1, 140), support::of_few(LETTERS, 2, 320));
    support::reset_in_the_middle(kernel.as_mut(), (&one, &begun), (&other, &whole), oracle);
}

#[test]
fn peek_counts_records_of_each_stage() {
    let mut kernel = crate::builtin("integrate");
    kernel.reset(&params(1, 2, &[b'x'; 32])).unwrap();
    // 64 pairs; 32 pairs, one more than none of which would do; none among the first two bytes.
    let mut input = vec![b'-'; 3 * 64 + 5];
    input[..2].fill(b'x');
    input[64] = b'x';
    input[128 + 2..128 + 32].fill(b'x');
    run(kernel.as_mut(), &input, 50, 50).unwrap();
    assert_eq!([0, 1, 2, 3].map(|port| kernel.peek(port)), [Some(3), Some(2), Some(2), None]);
    run(kernel.as_mut(), &[], 50, 50).unwrap();
    assert_eq!([0, 1, 2].map(|port| kernel.peek(port)), [Some(0); 3]);
}

proptest! {
    #[test]
    fn any_records(
        seed: u64, records in 0usize..200, cut in 0usize..64, q in 0u32..=32, p in 1u32..=32, piece in 1usize..5000,
    ) {
        let seed = seed >> 1;
        let params = params(q, p, &support::of_few(LETTERS, seed, 32));
        let input = support::of_few(LETTERS, seed + 1, records * 64 + cut);
        let mut kernel = crate::builtin("integrate");
        prop_assert_eq!(support::packet(kernel.as_mut(), &params, &input, (piece, 99)), oracle(&params, &input));
    }
}
