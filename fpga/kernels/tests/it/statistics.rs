//! statistics against the iterators of the standard library.

use crate::support::{self, End};
use proptest::prelude::*;
use weldfs_fpga::kernel::run;

fn oracle(params: &[u32], input: &[u8]) -> End {
    let numbers: Vec<u32> = input.chunks(4).filter_map(|c| c.try_into().ok()).map(u32::from_le_bytes).collect();
    let mut out = Vec::new();
    for row in numbers.chunks(params[0] as usize) {
        out.extend(row.iter().max().unwrap().to_le_bytes());
        out.extend(row.iter().min().unwrap().to_le_bytes());
        out.extend(row.iter().map(|n| u64::from(*n)).sum::<u64>().to_le_bytes());
    }
    End::Out(out)
}

#[test]
fn tails() {
    let mut kernel = crate::builtin("statistics");
    for per_row in [1, 2, 3, 7, 16, 17, 32, 1000, u32::MAX] {
        support::tails(kernel.as_mut(), &[per_row], |n| support::bytes(n as u64, n), oracle);
    }
}

#[test]
fn sums_of_the_greatest_numbers_do_not_wrap() {
    let mut kernel = crate::builtin("statistics");
    let input = vec![0xff; 4 * 100_003];
    for per_row in [100_003, 65_537, u32::MAX] {
        support::agrees(kernel.as_mut(), &[per_row], &input[..4 * 20_000], &oracle(&[per_row], &input[..4 * 20_000]));
        let got = support::packet(kernel.as_mut(), &[per_row], &input, (1 << 20, 1 << 20));
        assert_eq!(got, oracle(&[per_row], &input));
    }
}

#[test]
fn parameters_packets_and_resets() {
    let mut kernel = crate::builtin("statistics");
    support::refuses(kernel.as_mut(), &[&[], &[0], &[1, 1]], &[5]);
    let packets: Vec<Vec<u8>> = (0..40).map(|n| support::bytes(n, n as usize * 7)).collect();
    for per_row in [1, 5, 100] {
        support::in_a_row(kernel.as_mut(), &[per_row], &packets, oracle);
    }
    let (begun, whole) = (support::bytes(1, 23), support::bytes(2, 90));
    support::reset_in_the_middle(kernel.as_mut(), (&[3], &begun), (&[2], &whole), oracle);
}

#[test]
fn peek_counts_rows_and_what_made_no_number() {
    let mut kernel = crate::builtin("statistics");
    kernel.reset(&[2]).unwrap();
    for (len, rows, dropped) in [(19, 2, 3), (16, 2, 0), (1, 0, 1), (0, 0, 0), (13, 2, 1)] {
        run(kernel.as_mut(), &vec![1; len], 3, 5).unwrap();
        assert_eq!((kernel.peek(0), kernel.peek(1), kernel.peek(2)), (Some(rows), Some(dropped), None), "{len} bytes");
    }
}

proptest! {
    #[test]
    fn any_numbers(input in proptest::collection::vec(any::<u8>(), 0..900), per_row in 1u32..40, piece in 1usize..300) {
        let mut kernel = crate::builtin("statistics");
        prop_assert_eq!(support::packet(kernel.as_mut(), &[per_row], &input, (piece, 9)), oracle(&[per_row], &input));
    }
}
