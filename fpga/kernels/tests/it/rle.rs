//! rle against an expansion of one pair at a time.

use crate::support::{self, End};
use proptest::prelude::*;
use weldfs_fpga::kernel::{Fault, run};

fn oracle(_: &[u32], input: &[u8]) -> End {
    if input.len() % 2 == 1 {
        return End::Data;
    }
    End::Out(input.chunks(2).flat_map(|pair| vec![pair[1]; usize::from(pair[0])]).collect())
}

#[test]
fn tails() {
    let mut kernel = crate::builtin("rle");
    for values in [&(0..=255).collect::<Vec<u8>>()[..], &[0, 1], &[0], &[31, 32, 33], &[254, 255]] {
        support::tails(kernel.as_mut(), &[], |n| support::of_few(values, n as u64, n), oracle);
    }
}

#[test]
fn every_count_and_every_value() {
    let mut kernel = crate::builtin("rle");
    let up: Vec<u8> = (0..=255).flat_map(|b| [b, 255 - b]).collect();
    support::agrees(kernel.as_mut(), &[], &up, &oracle(&[], &up));
    let longest = [255, 9].repeat(1000);
    support::agrees(kernel.as_mut(), &[], &longest, &oracle(&[], &longest));
}

#[test]
fn a_count_without_a_value_is_a_fault_after_the_output() {
    let mut kernel = crate::builtin("rle");
    kernel.reset(&[]).unwrap();
    let mut out = [0; 16];
    let step = kernel.step(&[3, b'a', 9], false, &mut out).unwrap();
    assert_eq!((step.taken, &out[..step.made]), (3, &b"aaa"[..]));
    assert_eq!(kernel.step(&[], true, &mut out), Err(Fault::Data("the last count has no value".into())));
    // It is of use again after a reset.
    support::agrees(kernel.as_mut(), &[], &[1, b'x'], &End::Out(b"x".to_vec()));
}

#[test]
fn parameters_packets_and_resets() {
    let mut kernel = crate::builtin("rle");
    support::refuses(kernel.as_mut(), &[&[0], &[1, 2]], &[]);
    let packets: Vec<Vec<u8>> = (0..40).map(|n| support::bytes(n, n as usize * 6)).collect();
    support::in_a_row(kernel.as_mut(), &[], &packets, oracle);
    support::reset_in_the_middle(kernel.as_mut(), (&[], b"\x09a\x05b\x01"), (&[], b"\x03x\x02y"), oracle);
    kernel.reset(&[]).unwrap();
    run(kernel.as_mut(), &[0, 1, 2, 3], 1, 1).unwrap();
    assert_eq!((kernel.peek(0), kernel.peek(1)), (Some(2), None));
}

proptest! {
    #[test]
    fn any_pairs(input in proptest::collection::vec(any::<u8>(), 0..900), piece in 1usize..300, room in 1usize..300) {
        let mut kernel = crate::builtin("rle");
        prop_assert_eq!(support::packet(kernel.as_mut(), &[], &input, (piece, room)), oracle(&[], &input));
    }
}
