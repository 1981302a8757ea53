//! parse against a reader of whole lines with the standard library's conversions.

use crate::support::{self, End};
use proptest::prelude::*;
use weldfs_fpga::kernel::run;

const ROW_MAX: usize = 64 << 10;

fn column(kind: u32, field: &[u8]) -> Option<Vec<u8>> {
    // What the standard library takes beyond the grammar: the signs of u32, and names.
    let text = || str::from_utf8(field).ok().filter(|t| t.bytes().all(|b| b"0123456789+-.eE".contains(&b)));
    Some(match kind {
        0 => vec![],
        1 => text().filter(|t| !t.starts_with('+'))?.parse::<u32>().ok()?.to_le_bytes().to_vec(),
        2 => text()?.parse::<i64>().ok()?.to_le_bytes().to_vec(),
        3 => text()?.parse::<f64>().ok()?.to_le_bytes().to_vec(),
        _ => field.iter().copied().chain([0; 16]).take(16).collect(),
    })
}

fn oracle(params: &[u32], input: &[u8]) -> End {
    let (delimiter, kinds) = (params[0] as u8, &params[2..]);
    let mut out = Vec::new();
    let mut rows: Vec<&[u8]> = input.split(|b| *b == b'\n').collect();
    rows.pop_if(|last| last.is_empty());
    for row in rows.into_iter().filter(|row| row.len() <= ROW_MAX) {
        let row = row.strip_suffix(b"\r").unwrap_or(row);
        let fields: Vec<&[u8]> = row.split(|b| *b == delimiter).collect();
        let columns = kinds.iter().enumerate().map(|(i, kind)| column(*kind, fields.get(i)?));
        out.extend(columns.collect::<Option<Vec<_>>>().unwrap_or_default().concat());
    }
    End::Out(out)
}

fn params(delimiter: u8, kinds: &[u32]) -> Vec<u32> {
    [u32::from(delimiter), kinds.len() as u32].iter().chain(kinds).copied().collect()
}

#[test]
fn tails() {
    let mut kernel = crate::builtin("parse");
    for kinds in [&[1][..], &[4], &[0], &[2, 4], &[1, 3], &[0, 0, 2]] {
        for values in [&b"1234567890,,\n"[..], b"12-.e,,,\n\r", b"7\n", b",", b"abc,\n"] {
            let params = params(b',', kinds);
            support::tails(kernel.as_mut(), &params, |n| support::of_few(values, n as u64, n), oracle);
        }
    }
}

#[test]
fn rows_as_they_are_and_rows_that_are_dropped() {
    let mut kernel = crate::builtin("parse");
    let row =
        |a: u32, b: i64, c: f64, d: &[u8; 16]| [&a.to_le_bytes()[..], &b.to_le_bytes(), &c.to_le_bytes(), d].concat();
    let hello = row(7, -8, 9.25, b"hello, wide worl");
    let params = params(b'|', &[1, 0, 2, 3, 4]);
    for (text, expected) in [
        (&b"7|skipped|-8|9.25|hello, wide world"[..], Some(hello.clone())),
        (b"7||-8|9.25|hello, wide world|more|than|that\n", Some(hello.clone())),
        (b"7|x|-8|925e-2|hello, wide world\r\n", Some(hello)),
        (b"0|x|+0|-.5E1|\n", Some(row(0, 0, -5.0, &[0; 16]))),
        (b"7|x|-8|9.25\n", None),
        (b"7|x|-8|9.25x|hello\n", None),
        (b" 7|x|-8|9.25|hello\n", None),
        (b"+7|x|-8|9.25|hello\n", None),
        (b"7|x|--8|9.25|hello\n", None),
        (b"7|x|-8|nan|hello\n", None),
        (b"7|x|-8|.|hello\n", None),
        (b"7|x|-8|1e|hello\n", None),
        (b"7|x|-8|1e+|hello\n", None),
        (b"\n", None),
        (b"a header|b|c|d|e\n", None),
    ] {
        support::agrees(kernel.as_mut(), &params, text, &End::Out(expected.unwrap_or_default()));
    }
}

#[test]
fn numbers_at_their_ends() {
    let mut kernel = crate::builtin("parse");
    let long = format!("{}1", "0".repeat(40));
    for (kind, text) in [
        (1, "4294967295"),
        (1, "4294967296"),
        (1, "18446744073709551617"),
        (1, &long),
        (2, "9223372036854775807"),
        (2, "9223372036854775808"),
        (2, "-9223372036854775808"),
        (2, "-9223372036854775809"),
        (2, "-18446744073709551615"),
        (3, "9007199254740993"),
        (3, "9007199254740992.5"),
        (3, "0.1"),
        (3, "123456789012345678901234567890"),
        (3, "1.7976931348623159e308"),
        (3, "1e400"),
        (3, "-4.9e-324"),
        (3, "2.2250738585072011e-308"),
        (3, "0.00000000000000000000000000000000001"),
        (3, "1.0000000000000000000000000000000000000001"),
        (3, "-0"),
        (3, &long),
    ] {
        let params = params(b',', &[kind]);
        support::agrees(kernel.as_mut(), &params, text.as_bytes(), &oracle(&params, text.as_bytes()));
    }
}

#[test]
fn a_row_that_is_too_long_is_dropped_wherever_it_is_cut() {
    let mut kernel = crate::builtin("parse");
    let params = params(b',', &[1]);
    for (len, kept) in [(ROW_MAX, true), (ROW_MAX + 1, false), (3 * ROW_MAX, false)] {
        for end in [&b"\n"[..], b"\n3\n", b""] {
            let mut text = b"1\n2,".to_vec();
            text.resize(2 + len, b'x');
            text.extend_from_slice(end);
            let expected = oracle(&params, &text);
            assert!(matches!(&expected, End::Out(out) if out.len() == 4 + 4 * usize::from(kept) + 2 * (end.len() & 2)));
            for cut in [(1000, 10), (2 + len, 10), (text.len(), 10)] {
                assert_eq!(support::packet(kernel.as_mut(), &params, &text, cut), expected, "{len} bytes, {cut:?}");
            }
        }
    }
}

#[test]
fn parameters_packets_and_resets() {
    let mut kernel = crate::builtin("parse");
    let good = params(b'\t', &[4, 1]);
    let bad = [
        vec![],
        vec![44],
        vec![44, 0],
        vec![44, 1],
        vec![44, 1, 5],
        vec![44, 1, 1, 1],
        vec![256, 1, 1],
        params(b'\n', &[1]),
        params(b'5', &[1]),
        params(b'-', &[1]),
        params(b'e', &[1]),
        params(b',', &[1; 65]),
    ];
    let bad: Vec<&[u32]> = bad.iter().map(|p| &p[..]).collect();
    support::refuses(kernel.as_mut(), &bad, &good);
    let widest = params(0, &[4; 64]);
    let text = [vec![b'x'; 5], vec![0; 63], b"\n".to_vec()].concat();
    support::agrees(kernel.as_mut(), &widest, &text, &oracle(&widest, &text));
    let packets: Vec<Vec<u8>> = (0..40).map(|n| support::of_few(b"12\t\t\n", n, n as usize * 5)).collect();
    support::in_a_row(kernel.as_mut(), &good, &packets, oracle);
    let (begun, whole) = (b"a\t1\nbcd\t5\nxx", b"12\n3,4\n\n5");
    support::reset_in_the_middle(kernel.as_mut(), (&good, begun), (&params(b',', &[1]), whole), oracle);
}

#[test]
fn peek_counts_rows_and_those_that_were_dropped() {
    let mut kernel = crate::builtin("parse");
    kernel.reset(&params(b',', &[1])).unwrap();
    for (text, rows, dropped) in [(&b"1\nx\n\n4"[..], 4, 2), (b"", 0, 0), (b"5\n", 1, 0), (b"-", 1, 1)] {
        run(kernel.as_mut(), text, 2, 3).unwrap();
        assert_eq!((kernel.peek(0), kernel.peek(1), kernel.peek(2)), (Some(rows), Some(dropped), None), "{text:?}");
    }
}

proptest! {
    #[test]
    fn any_rows(
        text in "([0-9]{1,21}|-?[0-9]{0,3}\\.?[0-9]{0,18}(e-?[0-9]{1,3})?|[a-z+.]{0,20}|;|\r?\n|;){0,60}",
        kinds in proptest::collection::vec(0u32..5, 1..6),
        piece in 1usize..100,
        room in 1usize..100,
    ) {
        let params = params(b';', &kinds);
        let mut kernel = crate::builtin("parse");
        let got = support::packet(kernel.as_mut(), &params, text.as_bytes(), (piece, room));
        prop_assert_eq!(got, oracle(&params, text.as_bytes()));
    }

    #[test]
    fn any_number(number: u64, double: f64, short in "-?[0-9]{1,9}(\\.[0-9]{1,9})?", kind in 1u32..4) {
        let signed = (number as i64).to_string();
        for text in [number.to_string(), signed, double.to_string(), format!("{double:e}"), short] {
            let params = params(b',', &[kind, kind]);
            let text = format!("{text},{text}\n");
            let mut kernel = crate::builtin("parse");
            let got = support::packet(kernel.as_mut(), &params, text.as_bytes(), (64, 64));
            prop_assert_eq!(got, oracle(&params, text.as_bytes()));
        }
    }
}
