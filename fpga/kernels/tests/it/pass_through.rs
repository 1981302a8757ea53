//! pass-through: what goes in comes out.

use crate::support::{self, End};

fn oracle(_: &[u32], input: &[u8]) -> End {
    End::Out(input.to_vec())
}

#[test]
fn tails() {
    let mut kernel = crate::builtin("pass-through");
    support::tails(kernel.as_mut(), &[], |n| support::bytes(n as u64, n), oracle);
}

#[test]
fn parameters_packets_and_resets() {
    let mut kernel = crate::builtin("pass-through");
    support::refuses(kernel.as_mut(), &[&[0], &[1, 2]], &[]);
    let packets: Vec<Vec<u8>> = (0..40).map(|n| support::bytes(n, n as usize * 37)).collect();
    support::in_a_row(kernel.as_mut(), &[], &packets, oracle);
    let (begun, whole) = (support::bytes(3, 140), support::bytes(4, 130));
    support::reset_in_the_middle(kernel.as_mut(), (&[], &begun), (&[], &whole), oracle);
}
