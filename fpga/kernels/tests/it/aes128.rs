//! aes128 against FIPS 197 done by the book, byte by byte, and the standards' examples.

use crate::support::{self, End};
use proptest::prelude::*;

/// The product in GF(2^8) modulo x^8 + x^4 + x^3 + x + 1 (FIPS 197, section 4.2).
fn times(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b > 0 {
        product ^= if b & 1 == 1 { a } else { 0 };
        a = (a << 1) ^ (if a & 0x80 > 0 { 0x1b } else { 0 });
        b >>= 1;
    }
    product
}

/// The substitution box (5.1.1): the inverse, then an affine map.
fn sbox() -> [u8; 256] {
    let mut table = [0; 256];
    for (x, entry) in table.iter_mut().enumerate() {
        let inverse = (1..=255).find(|y| times(x as u8, *y) == 1).unwrap_or(0);
        *entry = (0..5).fold(0x63, |sum, turn| sum ^ inverse.rotate_left(turn));
    }
    table
}

/// The eleven round keys (5.2).
fn expand(key: [u8; 16], sbox: &[u8; 256]) -> Vec<[u8; 16]> {
    let mut words: Vec<[u8; 4]> = key.as_chunks().0.to_vec();
    let mut constant = 1;
    for i in 4..44 {
        let mut word = words[i - 1];
        if i % 4 == 0 {
            word.rotate_left(1);
            word = word.map(|b| sbox[usize::from(b)]);
            word[0] ^= constant;
            constant = times(constant, 2);
        }
        words.push(std::array::from_fn(|b| word[b] ^ words[i - 4][b]));
    }
    words.as_flattened().as_chunks().0.to_vec()
}

fn mix(state: [u8; 16], by: [u8; 4]) -> [u8; 16] {
    std::array::from_fn(|i| {
        let column = &state[i / 4 * 4..][..4];
        (0..4).fold(0, |sum, row| sum ^ times(column[row], by[(4 + row - i % 4) % 4]))
    })
}

fn encrypt(keys: &[[u8; 16]], sbox: &[u8; 256], block: [u8; 16]) -> [u8; 16] {
    let add = |state: [u8; 16], round: usize| std::array::from_fn(|i| state[i] ^ keys[round][i]);
    let mut state: [u8; 16] = add(block, 0);
    for round in 1..=10 {
        // SubBytes and ShiftRows: row r of a column comes from r columns further on.
        state = std::array::from_fn(|i| sbox[usize::from(state[(i + i % 4 * 4) % 16])]);
        if round < 10 {
            state = mix(state, [2, 3, 1, 1]);
        }
        state = add(state, round);
    }
    state
}

fn decrypt(keys: &[[u8; 16]], sbox: &[u8; 256], block: [u8; 16]) -> [u8; 16] {
    let add = |state: [u8; 16], round: usize| std::array::from_fn(|i| state[i] ^ keys[round][i]);
    let mut inverse = [0; 256];
    sbox.iter().enumerate().for_each(|(x, y)| inverse[usize::from(*y)] = x as u8);
    let mut state: [u8; 16] = block;
    for round in (1..=10).rev() {
        state = add(state, round);
        if round < 10 {
            state = mix(state, [14, 11, 13, 9]);
        }
        state = std::array::from_fn(|i| inverse[usize::from(state[(i + 16 - i % 4 * 4) % 16])]);
    }
    add(state, 0)
}

fn oracle(params: &[u32], input: &[u8]) -> End {
    let (blocks, rest) = input.as_chunks::<16>();
    if !rest.is_empty() {
        return End::Data;
    }
    let key: Vec<u8> = params[1..].iter().flat_map(|w| w.to_le_bytes()).collect();
    let sbox = sbox();
    let keys = expand(key.try_into().unwrap(), &sbox);
    let one = if params[0] == 0 { encrypt } else { decrypt };
    End::Out(blocks.iter().flat_map(|block| one(&keys, &sbox, *block)).collect())
}

fn hex(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
}

fn params(direction: u32, key: &[u8]) -> Vec<u32> {
    let words = key.as_chunks().0.iter().map(|w| u32::from_le_bytes(*w));
    std::iter::once(direction).chain(words).collect()
}

/// (key, plain text, cipher text): FIPS 197, appendices B and C.1, and SP 800-38A, F.1.1.
const EXAMPLES: [(&str, &str, &str); 3] = [
    ("2b7e151628aed2a6abf7158809cf4f3c", "3243f6a8885a308d313198a2e0370734", "3925841d02dc09fbdc118597196a0b32"),
    ("000102030405060708090a0b0c0d0e0f", "00112233445566778899aabbccddeeff", "69c4e0d86a7b0430d8cdb78070b4c55a"),
    (
        "2b7e151628aed2a6abf7158809cf4f3c",
        "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51\
         30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710",
        "3ad77bb40d7a3660a89ecaf32466ef97f5d3d58503b9699de785895a96fdbaaf\
         43b1cd7f598ece23881b00e3ed0306887b0c785e27e8ad3f8223207104725dd4",
    ),
];

#[test]
fn examples_of_the_standards() {
    let mut kernel = crate::builtin("aes128");
    for (key, plain, cipher) in EXAMPLES.map(|(k, p, c)| (hex(k), hex(p), hex(c))) {
        assert_eq!(oracle(&params(0, &key), &plain), End::Out(cipher.clone()), "the oracle itself");
        support::agrees(kernel.as_mut(), &params(0, &key), &plain, &End::Out(cipher.clone()));
        support::agrees(kernel.as_mut(), &params(1, &key), &cipher, &End::Out(plain));
    }
}

#[test]
fn tails() {
    let mut kernel = crate::builtin("aes128");
    let key = support::bytes(77, 16);
    for direction in [0, 1] {
        support::tails(kernel.as_mut(), &params(direction, &key), |n| support::bytes(n as u64, n), oracle);
    }
}

#[test]
fn parameters_packets_and_resets() {
    let mut kernel = crate::builtin("aes128");
    let (one, other) = (params(0, &support::bytes(1, 16)), params(1, &support::bytes(2, 16)));
    let bad: [&[u32]; 5] = [&[], &[0], &[2, 0, 0, 0, 0], &[0, 0, 0, 0], &[0, 0, 0, 0, 0, 0]];
    support::refuses(kernel.as_mut(), &bad, &one);
    let packets: Vec<Vec<u8>> = (0..20).map(|n| support::bytes(n, n as usize * 16)).collect();
    support::in_a_row(kernel.as_mut(), &one, &packets, oracle);
    support::in_a_row(kernel.as_mut(), &other, &packets, oracle);
    let (begun, whole) = (support::bytes(3, 40), support::bytes(4, 64));
    support::reset_in_the_middle(kernel.as_mut(), (&one, &begun), (&other, &whole), oracle);
    // A fault at the end leaves nothing of the packet.
    assert_eq!(support::packet(kernel.as_mut(), &one, &begun, (7, 7)), End::Data);
    support::agrees(kernel.as_mut(), &one, &whole, &oracle(&one, &whole));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_blocks(seed: u64, blocks in 0usize..40, direction in 0u32..2, piece in 1usize..300, room in 1usize..300) {
        let (seed, input) = (seed >> 1, support::bytes(seed >> 1, blocks * 16));
        let params = params(direction, &support::bytes(seed + 1, 16));
        let mut kernel = crate::builtin("aes128");
        prop_assert_eq!(support::packet(kernel.as_mut(), &params, &input, (piece, room)), oracle(&params, &input));
    }
}
