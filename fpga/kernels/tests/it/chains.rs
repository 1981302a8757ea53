//! Chains against their stages, each run on its own.

use crate::support::{self, End};
use weldfs_fpga::kernel::run;

/// What a kernel makes of a packet; how many cycles it takes.
fn alone(name: &str, params: &[u32], input: &[u8]) -> (Vec<u8>, u64) {
    let mut kernel = crate::builtin(name);
    kernel.reset(params).unwrap();
    run(kernel.as_mut(), input, 4096, 1 << 20).unwrap()
}

const NEEDLE: [u32; 3] = [6, u32::from_le_bytes(*b"needle".first_chunk().unwrap()), u32::from_le_bytes(*b"le\0\0")];

fn text(rows: usize) -> Vec<u8> {
    let row = |n: usize| match n % 7 {
        3 => format!("row {n} has a needle in it\n"),
        _ => format!("row {n} {}\n", "has none ".repeat(n % 5)),
    };
    (0..rows).map(row).collect::<String>().into_bytes()
}

#[test]
fn lz4_grep_finds_in_a_frame_what_grep_finds_in_its_content() {
    let mut chain = crate::builtin("lz4-grep");
    for rows in [0, 1, 4, 200, 20_000] {
        let content = text(rows);
        let (frame, _) = alone("lz4", &[0], &content);
        let (found, cycles) = alone("grep", &NEEDLE, &content);
        assert_eq!(found.len(), (0..rows).filter(|n| n % 7 == 3).count() * 8);
        let (_, decompressing) = alone("lz4", &[1], &frame);
        support::agrees(chain.as_mut(), &NEEDLE, &frame, &End::Out(found));
        chain.reset(&NEEDLE).unwrap();
        let (_, both) = run(chain.as_mut(), &frame, 4096, 4096).unwrap();
        assert_eq!(both, cycles.max(decompressing), "{rows} rows: the slower stage sets the pace");
        assert_eq!((chain.peek(0), chain.peek(2)), (Some(rows as u32), None));
    }
    let (frame, _) = alone("lz4", &[0], &text(200));
    for cut in [1, 7, frame.len() / 2, frame.len() - 1] {
        support::agrees(chain.as_mut(), &NEEDLE, &frame[..cut], &End::Data);
    }
    support::agrees(chain.as_mut(), &[0], &frame, &End::Params);
}

#[test]
fn parse_select_gives_the_columns_of_the_rows_that_count() {
    // Name (16 bytes), year and points, of which those from 2020 on count.
    let parse = [u32::from(b','), 3, 4, 1, 1];
    let select = [24, 1, 16 | 4 << 16 | 5 << 24, 2020, 0, 0, 2, 16 << 16, 20 | 4 << 16];
    let params: Vec<u32> = [&[5][..], &parse, &[9], &select].concat();
    let mut chain = crate::builtin("parse-select");
    for rows in [0, 1, 3, 1000] {
        let row = |n: usize| match n % 10 {
            9 => "not a row\n".to_owned(),
            _ => format!("player {n},{},{}\n", 2000 + n % 41, n * 3),
        };
        let csv = (0..rows).map(row).collect::<String>().into_bytes();
        let expected = alone("select", &select, &alone("parse", &parse, &csv).0).0;
        let kept = (0..rows).filter(|n| n % 10 != 9 && n % 41 >= 20).count();
        assert_eq!(expected.len(), kept * 20);
        support::agrees(chain.as_mut(), &params, &csv, &End::Out(expected));
        let ports: Vec<u32> = (0..4).map_while(|port| chain.peek(port)).collect();
        let good = rows - rows / 10;
        assert_eq!(ports, [rows, rows / 10, good, kept].map(|n| n as u32), "{rows} rows");
    }
    for bad in [&params[1..], &params[..14], &[params.as_slice(), &[0]].concat()] {
        support::agrees(chain.as_mut(), bad, b"a,1,2\n", &End::Params);
    }
}
