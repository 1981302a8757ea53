//! select against a filter that compares numbers of 128 bits.

use crate::support::{self, End};
use proptest::prelude::*;
use weldfs_fpga::kernel::run;

fn number(field: &[u8], signed: bool) -> i128 {
    let value = field.iter().rev().fold(0i128, |value, byte| value << 8 | i128::from(*byte));
    let range = 1i128 << (8 * field.len());
    if signed && value >= range / 2 { value - range } else { value }
}

fn oracle(params: &[u32], input: &[u8]) -> End {
    let (record, n) = (params[0] as usize, params[1] as usize);
    let (predicates, columns) = params[2..].split_at(4 * n);
    let holds = |record: &&[u8]| {
        predicates.chunks(4).all(|p| {
            let (offset, width, signed) = ((p[0] & 0xffff) as usize, (p[0] >> 16 & 0xff) as usize, p[0] >> 31 == 1);
            let value = number(&[p[1].to_le_bytes(), p[2].to_le_bytes()].concat(), signed);
            let field = number(&record[offset..offset + width], signed);
            match p[0] >> 24 & 0x7f {
                0 => field == value,
                1 => field != value,
                2 => field < value,
                3 => field <= value,
                4 => field > value,
                _ => field >= value,
            }
        })
    };
    let mut out = Vec::new();
    for record in input.chunks_exact(record).filter(holds) {
        for column in &columns[1..] {
            out.extend(&record[(column & 0xffff) as usize..][..(column >> 16) as usize]);
        }
    }
    End::Out(out)
}

fn predicate(offset: u32, width: u32, op: u32, signed: bool, value: i64) -> [u32; 4] {
    [offset | width << 16 | op << 24 | u32::from(signed) << 31, value as u32, (value >> 32) as u32, 0]
}

fn params(record: u32, predicates: &[[u32; 4]], columns: &[(u32, u32)]) -> Vec<u32> {
    let mut words = vec![record, predicates.len() as u32];
    words.extend(predicates.as_flattened());
    words.push(columns.len() as u32);
    words.extend(columns.iter().map(|(offset, len)| offset | len << 16));
    words
}

#[test]
fn tails() {
    let mut kernel = crate::builtin("select");
    for params in [
        params(1, &[], &[(0, 1)]),
        params(7, &[predicate(0, 1, 2, false, 128)], &[(3, 2), (5, 2), (0, 7)]),
        params(16, &[predicate(3, 2, 5, true, 0), predicate(8, 8, 1, false, 0)], &[(15, 1), (0, 4)]),
        params(64, &[predicate(0, 4, 4, true, -1)], &[(0, 64)]),
        params(100, &[predicate(90, 1, 3, false, 100)], &[(99, 1)]),
    ] {
        support::tails(kernel.as_mut(), &params, |n| support::bytes(n as u64, n), oracle);
    }
}

#[test]
fn every_comparison_of_every_width_at_its_ends() {
    let mut kernel = crate::builtin("select");
    for width in [1, 2, 4, 8] {
        let bits = 8 * width;
        let ends = [0, 1, i64::MAX >> (64 - bits), i64::MIN >> (64 - bits), -1, i64::MAX, i64::MIN, 0x7f, 0xff];
        let table: Vec<u8> =
            ends.iter().flat_map(|n| [&[9][..], &n.to_le_bytes()[..width as usize]].concat()).collect();
        for (op, signed) in (0..6).flat_map(|op| [(op, false), (op, true)]) {
            for value in ends {
                let params = params(width + 1, &[predicate(1, width, op, signed, value)], &[(1, width)]);
                let got = support::packet(kernel.as_mut(), &params, &table, (64, 64));
                assert_eq!(got, oracle(&params, &table), "width {width}, op {op}, signed {signed}, value {value}");
            }
        }
    }
}

#[test]
fn parameters_packets_and_resets() {
    let mut kernel = crate::builtin("select");
    let good = params(9, &[predicate(1, 4, 2, false, 1 << 31)], &[(5, 4), (0, 1)]);
    let five = [predicate(0, 1, 1, false, 0); 5];
    let mut reserved = good.clone();
    reserved[5] = 1;
    let bad = [
        vec![],
        vec![8],
        vec![8, 0],
        vec![8, 0, 0],
        params(0, &[], &[(0, 1)]),
        params(4097, &[], &[(0, 1)]),
        params(8, &five, &[(0, 1)]),
        params(8, &[], &[]),
        params(8, &[], &[(0, 1); 17]),
        params(8, &[], &[(0, 0)]),
        params(8, &[], &[(8, 1)]),
        params(8, &[], &[(1, 8)]),
        params(8, &[predicate(5, 4, 0, false, 0)], &[(0, 1)]),
        params(8, &[predicate(0, 3, 0, false, 0)], &[(0, 1)]),
        params(8, &[predicate(0, 0, 0, false, 0)], &[(0, 1)]),
        params(8, &[predicate(0, 1, 6, false, 0)], &[(0, 1)]),
        reserved,
        good[..good.len() - 1].to_vec(),
        [&good[..], &[0]].concat(),
        vec![8, u32::MAX],
    ];
    let bad: Vec<&[u32]> = bad.iter().map(|p| &p[..]).collect();
    support::refuses(kernel.as_mut(), &bad, &good);
    support::refuses(kernel.as_mut(), &[], &params(4096, &five[..4], &[(4095, 1); 16]));
    let packets: Vec<Vec<u8>> = (0..40).map(|n| support::bytes(n, n as usize * 5)).collect();
    support::in_a_row(kernel.as_mut(), &good, &packets, oracle);
    let (begun, whole) = (support::bytes(1, 60), support::bytes(2, 300));
    let other = params(13, &[], &[(2, 11)]);
    support::reset_in_the_middle(kernel.as_mut(), (&good, &begun), (&other, &whole), oracle);
}

#[test]
fn peek_counts_records_and_those_that_were_put_out() {
    let mut kernel = crate::builtin("select");
    kernel.reset(&params(2, &[predicate(0, 1, 0, false, 7)], &[(1, 1)])).unwrap();
    for (input, seen, kept) in [(&[7, 1, 8, 2, 7, 3, 7][..], 3, 2), (&[7], 0, 0), (&[], 0, 0), (&[7, 7], 1, 1)] {
        run(kernel.as_mut(), input, 3, 1).unwrap();
        assert_eq!((kernel.peek(0), kernel.peek(1), kernel.peek(2)), (Some(seen), Some(kept), None), "{input:?}");
    }
}

prop_compose! {
    fn any_predicate(record: u32)(
        width in proptest::sample::select(vec![1u32, 2, 4, 8]),
        place: u32, op in 0u32..6, signed: bool, value in prop_oneof![any::<i64>(), -300i64..300],
    ) -> [u32; 4] {
        predicate(place % (record - width + 1), width, op, signed, value)
    }
}

prop_compose! {
    fn any_params()(record in 8u32..200)(
        predicates in proptest::collection::vec(any_predicate(record), 0..=4),
        columns in proptest::collection::vec((0..record, 1..=record), 1..=16),
        record in Just(record),
    ) -> Vec<u32> {
        let columns: Vec<(u32, u32)> = columns.iter().map(|(o, len)| (*o, (*len).min(record - o))).collect();
        params(record, &predicates, &columns)
    }
}

proptest! {
    #[test]
    fn any_table(params in any_params(), seed: u64, len in 0usize..20_000, piece in 1usize..5000) {
        let input = support::bytes(seed >> 1, len);
        let mut kernel = crate::builtin("select");
        prop_assert_eq!(support::packet(kernel.as_mut(), &params, &input, (piece, 500)), oracle(&params, &input));
    }
}
