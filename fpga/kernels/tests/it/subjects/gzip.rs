use rand::Rng;
use rand::rngs::SmallRng;

use super::{Subject, noise};

pub const SUBJECT: Subject = Subject {
    name: "gzip",
    params: |_, _| vec![0],
    unit: |_| 2_777,
    input,
    oracle,
    bad: || vec![vec![], vec![1], vec![0, 0]],
};

/// Text with repetitions near and far, runs, noise.
fn input(_: &[u32], len: usize, rng: &mut SmallRng) -> Vec<u8> {
    let mut input: Vec<u8> = Vec::new();
    while input.len() < len {
        let most = if rng.random_ratio(1, 20) { 2000 } else { 30 };
        let n = rng.random_range(1..most);
        match rng.random_range(0..4) {
            0 => input.extend(noise(&[], n, rng)),
            1 => input.extend(std::iter::repeat_n(rng.random_range(0..3u8), n)),
            _ if input.is_empty() => {}
            _ => {
                let back = rng.random_range(1..=input.len().min(40_000));
                let from = input.len() - back;
                (from..from + n).for_each(|i| input.push(input[i]));
            }
        }
    }
    input.truncate(len);
    input
}

/// Bits as a text of 0 and 1 in the order in which they are written.
struct Text(String);

impl Text {
    /// A number, its lowest bit first.
    fn number(&mut self, number: usize, bits: usize) {
        (0..bits).for_each(|i| self.0.push(if number >> i & 1 == 1 { '1' } else { '0' }));
    }

    /// A Huffman code, its highest bit first.
    fn code(&mut self, code: usize, bits: usize) {
        self.0 += &format!("{code:0bits$b}");
    }

    fn symbol(&mut self, symbol: usize) {
        match symbol {
            0..=143 => self.code(0b00110000 + symbol, 8),
            144..=255 => self.code(0b110010000 + symbol - 144, 9),
            256..=279 => self.code(symbol - 256, 7),
            _ => self.code(0b11000000 + symbol - 280, 8),
        }
    }

    /// RFC 1951, section 3.2.5: the first length, or distance, of each code.
    fn repeat(&mut self, len: usize, distance: usize) {
        let first = [
            3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195,
            227, 258,
        ];
        let extra = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
        let i = first.iter().rposition(|f| *f <= len).unwrap();
        self.symbol(257 + i);
        self.number(len - first[i], extra[i]);
        let first = [
            1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073,
            4097, 6145, 8193, 12289, 16385, 24577,
        ];
        let i = first.iter().rposition(|f| *f <= distance).unwrap();
        self.code(i, 5);
        self.number(distance - first[i], if i < 4 { 0 } else { i / 2 - 1 });
    }
}

fn crc(input: &[u8]) -> u32 {
    let byte = |crc: u32, b: &u8| (0..8).fold(crc ^ u32::from(*b), |c, _| c >> 1 ^ (0xEDB8_8320 * (c & 1)));
    !input.iter().fold(!0, byte)
}

/// The packet at once, position by position.
fn oracle(_: &[u32], input: &[u8]) -> Vec<u8> {
    let hash = |at: usize| {
        let word = input[at..at + 4].iter().rev().fold(0u64, |w, b| w << 8 | u64::from(*b));
        (word * 2_654_435_761 % (1 << 32)) >> 17
    };
    let hashed = input.len().saturating_sub(3);
    let hashes: Vec<u64> = (0..hashed).map(hash).collect();
    let mut text = Text("110".into());
    let (mut latest, mut filed) = (std::collections::HashMap::new(), 0);
    let mut at = 0;
    while at < input.len() {
        // All positions before the batch are in the table.
        while filed < (at - at % 8).min(hashed) {
            latest.insert(hashes[filed], filed);
            filed += 1;
        }
        let candidate = (at < hashed).then(|| latest.get(&hashes[at])).flatten().copied();
        match candidate.filter(|from| at - from <= 32_752 && input[*from..from + 4] == input[at..at + 4]) {
            Some(from) => {
                let most = (input.len() - at).min(258);
                let len = (0..most).position(|i| input[from + i] != input[at + i]).unwrap_or(most);
                text.repeat(len, at - from);
                at += len;
            }
            None => {
                text.symbol(usize::from(input[at]));
                at += 1;
            }
        }
    }
    text.symbol(256);
    let bytes = text.0.as_bytes().chunks(8).map(|bits| bits.iter().rev().fold(0, |b, bit| b << 1 | (bit - b'0')));
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    out.extend(bytes);
    out.extend(crc(input).to_le_bytes());
    out.extend((input.len() as u32).to_le_bytes());
    out
}
