//! crc32c against the definition, bit by bit, and the examples of RFC 3720.

use crate::support::{self, End};
use proptest::prelude::*;

/// The remainder of division by the reversed polynomial, one bit at a time.
fn crc(seed: u32, input: &[u8]) -> u32 {
    let mut crc = !seed;
    for byte in input {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (if crc & 1 == 1 { 0x82f6_3b78 } else { 0 });
        }
    }
    !crc
}

fn oracle(params: &[u32], input: &[u8]) -> End {
    End::Out(crc(params.first().copied().unwrap_or(0), input).to_le_bytes().to_vec())
}

#[test]
fn examples_of_rfc_3720() {
    let mut kernel = crate::builtin("crc32c");
    let up: Vec<u8> = (0..32).collect();
    let down: Vec<u8> = (0..32).rev().collect();
    let mut read = vec![0; 48];
    (read[0], read[1], read[16], read[22], read[23], read[27], read[31], read[32], read[40]) =
        (1, 0xc0, 0x14, 4, 0, 0x14, 0x18, 0x28, 2);
    for (input, expected) in [
        (vec![0; 32], 0x8a91_36aau32),
        (vec![0xff; 32], 0x62a8_ab43),
        (up, 0x46dd_794e),
        (down, 0x113f_db5c),
        (read, 0xd996_3a56),
        (b"123456789".to_vec(), 0xe306_9283),
    ] {
        support::agrees(kernel.as_mut(), &[], &input, &End::Out(expected.to_le_bytes().to_vec()));
    }
}

#[test]
fn tails() {
    let mut kernel = crate::builtin("crc32c");
    for params in [&[][..], &[0], &[0xdead_beef]] {
        support::tails(kernel.as_mut(), params, |n| support::bytes(n as u64, n), oracle);
    }
}

#[test]
fn a_seed_goes_on_from_the_bytes_before() {
    let mut kernel = crate::builtin("crc32c");
    let text = support::bytes(5, 1000);
    let all = crc(0, &text);
    for cut in [0, 1, 63, 500, 1000] {
        let seed = crc(0, &text[..cut]);
        support::agrees(kernel.as_mut(), &[seed], &text[cut..], &End::Out(all.to_le_bytes().to_vec()));
    }
}

#[test]
fn parameters_packets_and_resets() {
    let mut kernel = crate::builtin("crc32c");
    support::refuses(kernel.as_mut(), &[&[0, 0], &[1, 2, 3]], &[7]);
    let packets: Vec<Vec<u8>> = (0..40).map(|n| support::bytes(n, n as usize * 5)).collect();
    support::in_a_row(kernel.as_mut(), &[], &packets, oracle);
    support::in_a_row(kernel.as_mut(), &[9], &packets, oracle);
    support::reset_in_the_middle(kernel.as_mut(), (&[3], b"begun"), (&[], b"whole"), oracle);
    kernel.reset(&[]).unwrap();
    kernel.step(b"123456789", false, &mut [0; 4]).unwrap();
    assert_eq!((kernel.peek(0), kernel.peek(1)), (Some(0xe306_9283), None));
}

proptest! {
    #[test]
    fn any_bytes(input in proptest::collection::vec(any::<u8>(), 0..600), seed: u32, piece in 1usize..300) {
        let mut kernel = crate::builtin("crc32c");
        prop_assert_eq!(support::packet(kernel.as_mut(), &[seed], &input, (piece, 3)), oracle(&[seed], &input));
    }
}
