//! grep against the standard library's search in strings of bytes.

use crate::support::{self, End};
use proptest::prelude::*;
use weldfs_fpga::kernel::run;

fn params(needle: &[u8]) -> Vec<u32> {
    let mut words = vec![needle.len() as u32];
    for part in needle.chunks(4) {
        let mut word = [0; 4];
        word[..part.len()].copy_from_slice(part);
        words.push(u32::from_le_bytes(word));
    }
    words
}

fn oracle(params: &[u32], input: &[u8]) -> End {
    let needle: Vec<u8> = params[1..].iter().flat_map(|w| w.to_le_bytes()).take(params[0] as usize).collect();
    let mut out = Vec::new();
    for (number, row) in input.split(|b| *b == b'\n').enumerate() {
        if let Some(column) = row.windows(needle.len()).position(|w| w == needle) {
            out.extend((number as u32).to_le_bytes());
            out.extend((column as u32).to_le_bytes());
        }
    }
    End::Out(out)
}

#[test]
fn tails() {
    let mut kernel = crate::builtin("grep");
    for needle in [&b"a"[..], b"ab", b"aab", b"abaab", b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", b"\0"] {
        for values in [&b"ab\n"[..], b"aaaaaaab", b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n", b"\0\n"] {
            support::tails(kernel.as_mut(), &params(needle), |n| support::of_few(values, n as u64, n), oracle);
        }
    }
}

#[test]
fn a_row_gives_its_first_match_and_no_match_spans_rows() {
    let mut kernel = crate::builtin("grep");
    for (text, rows) in [
        (&b"needle needle\nneedle"[..], vec![(0u32, 0u32), (1, 0)]),
        (b"nee\ndle\n\n\n  needle\n", vec![(4, 2)]),
        (b"nneedleedle", vec![(0, 1)]),
        (b"neneedle", vec![(0, 2)]),
        (b"", vec![]),
        (b"\n", vec![]),
    ] {
        let expected: Vec<u8> = rows.iter().flat_map(|(r, c)| [r.to_le_bytes(), c.to_le_bytes()].concat()).collect();
        support::agrees(kernel.as_mut(), &params(b"needle"), text, &End::Out(expected));
    }
}

#[test]
fn parameters() {
    let mut kernel = crate::builtin("grep");
    let bad: [&[u32]; 9] = [
        &[],
        &[0],
        &[0, 0],
        &[33, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[1],
        &[1, 0x61, 0x61],
        &[5, 0x6161_6161],
        &[1, u32::from(b'\n')],
        &[1, 0x6161],
    ];
    support::refuses(kernel.as_mut(), &bad, &params(b"a"));
    let text = support::of_few(b"ab\n", 3, 130);
    for needle in [&b"a"[..], b"ab", b"bba"] {
        support::agrees(kernel.as_mut(), &params(needle), &text, &oracle(&params(needle), &text));
    }
}

#[test]
fn packets_in_a_row_and_resets() {
    let mut kernel = crate::builtin("grep");
    let packets: Vec<Vec<u8>> = (0..40).map(|n| support::of_few(b"aab\n", n, n as usize * 3)).collect();
    support::in_a_row(kernel.as_mut(), &params(b"aba"), &packets, oracle);
    let (begun, text) = (b"ab\naba", b"aaba\nab");
    support::reset_in_the_middle(kernel.as_mut(), (&params(b"aba"), begun), (&params(b"a"), text), oracle);
    support::reset_in_the_middle(kernel.as_mut(), (&params(b"a"), begun), (&params(b"aba"), text), oracle);
}

#[test]
fn peek_counts_rows_and_matches() {
    let mut kernel = crate::builtin("grep");
    kernel.reset(&params(b"x")).unwrap();
    for (text, rows, matches) in [(&b"x\na\nxx"[..], 3, 2), (b"", 0, 0), (b"a\n", 1, 0), (b"\n\nx\n", 3, 1)] {
        run(kernel.as_mut(), text, 2, 3).unwrap();
        assert_eq!((kernel.peek(0), kernel.peek(1), kernel.peek(2)), (Some(rows), Some(matches), None), "{text:?}");
    }
}

proptest! {
    #[test]
    fn any_text(
        needle in "[ab]{1,6}",
        text in "[ab\n]{0,300}",
        piece in 1usize..80,
        room in 1usize..80,
    ) {
        let mut kernel = crate::builtin("grep");
        let params = params(needle.as_bytes());
        let got = support::packet(kernel.as_mut(), &params, text.as_bytes(), (piece, room));
        prop_assert_eq!(got, oracle(&params, text.as_bytes()));
    }

    #[test]
    fn any_bytes(needle in proptest::collection::vec(any::<u8>(), 1..=32), at in 0usize..400, piece in 1usize..300) {
        prop_assume!(!needle.contains(&b'\n'));
        let mut text = support::bytes(at as u64, 500);
        text[at..at + needle.len()].copy_from_slice(&needle);
        let mut kernel = crate::builtin("grep");
        let params = params(&needle);
        prop_assert_eq!(support::packet(kernel.as_mut(), &params, &text, (piece, 64)), oracle(&params, &text));
    }
}
