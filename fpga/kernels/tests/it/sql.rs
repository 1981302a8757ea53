//! sql against a filter that reads years as text.

use crate::support::{self, End};
use proptest::prelude::*;
use weldfs_fpga::kernel::run;

fn oracle(params: &[u32], input: &[u8]) -> End {
    let in_range = |record: &&[u8]| {
        let year = std::str::from_utf8(&record[30..]).ok().filter(|y| y.bytes().all(|b| b.is_ascii_digit()));
        year.and_then(|y| y.parse().ok()).is_some_and(|y: u32| (params[0]..=params[1]).contains(&y))
    };
    End::Out(input.chunks_exact(32).filter(in_range).collect::<Vec<_>>().concat())
}

/// Records of years that are mostly numbers.
fn table(seed: u64, len: usize) -> Vec<u8> {
    let mut table = support::bytes(seed, len.next_multiple_of(32));
    let years = support::of_few(b"0123456789012345678901234567890123456789/:", seed + 1, table.len());
    for (record, year) in table.chunks_mut(32).zip(years.chunks(32)) {
        record[30..].copy_from_slice(&year[..2]);
    }
    table.truncate(len);
    table
}

#[test]
fn tails() {
    let mut kernel = crate::builtin("sql");
    for params in [[0, 9999], [0, 0], [30, 60], [99, 99], [100, 9999]] {
        support::tails(kernel.as_mut(), &params, |n| table(n as u64, n), oracle);
    }
    support::tails(kernel.as_mut(), &[0, 99], |n| vec![b'7'; n], oracle);
}

#[test]
fn a_year_is_two_digits() {
    let mut kernel = crate::builtin("sql");
    let mut table = Vec::new();
    for tens in 0..=255 {
        for ones in [0, 0x2f, 0x30, 0x35, 0x39, 0x3a, 0xff] {
            table.extend([[b'x'; 30].as_slice(), &[tens, ones], &[b'x'; 30], &[ones, tens]].concat());
        }
    }
    for params in [[0, 9999], [0, 9], [10, 99], [95, 95], [5, 5]] {
        let got = support::packet(kernel.as_mut(), &params, &table, (1000, 1000));
        assert_eq!(got, oracle(&params, &table));
    }
}

#[test]
fn parameters_packets_and_resets() {
    let mut kernel = crate::builtin("sql");
    support::refuses(kernel.as_mut(), &[&[], &[1], &[2, 1], &[0, 10_000], &[0, 1, 2]], &[0, 9999]);
    let packets: Vec<Vec<u8>> = (0..40).map(|n| table(n, n as usize * 13)).collect();
    support::in_a_row(kernel.as_mut(), &[20, 70], &packets, oracle);
    let (begun, whole) = (table(1, 70), table(2, 320));
    support::reset_in_the_middle(kernel.as_mut(), (&[0, 99], &begun), (&[50, 99], &whole), oracle);
}

#[test]
fn peek_counts_records_and_those_that_were_kept() {
    let mut kernel = crate::builtin("sql");
    kernel.reset(&[0, 99]).unwrap();
    for (len, seen) in [(96, 3), (95, 2), (31, 0), (0, 0), (64, 2)] {
        run(kernel.as_mut(), &vec![b'1'; len], 7, 5).unwrap();
        assert_eq!((kernel.peek(0), kernel.peek(1), kernel.peek(2)), (Some(seen), Some(seen), None));
    }
    run(kernel.as_mut(), &[b'x'; 96], 7, 5).unwrap();
    assert_eq!((kernel.peek(0), kernel.peek(1)), (Some(3), Some(0)));
}

proptest! {
    #[test]
    fn any_table(seed: u64, len in 0usize..12_000, lo in 0u32..60, width in 0u32..60, piece in 1usize..5000) {
        let (params, table) = ([lo, lo + width], table(seed >> 1, len));
        let mut kernel = crate::builtin("sql");
        prop_assert_eq!(support::packet(kernel.as_mut(), &params, &table, (piece, 100)), oracle(&params, &table));
    }
}
