//! lz4 against the codec that the device's cores run, and against the command-line tool.

use crate::support::{self, End};
use proptest::prelude::*;
use std::io::Write;
use std::process::{Command, Stdio};
use weldfs_functions::codec::Codec;

const COMPRESS: u32 = 0;
const DECOMPRESS: u32 = 1;
/// More than any output here.
const LIMIT: usize = 1 << 20;

fn announced(len: usize) -> Vec<u32> {
    vec![COMPRESS, len as u32, (len as u64 >> 32) as u32]
}

/// What a core makes of it; content that is not announced differs in the header only, and has no oracle of its own
/// here.
fn oracle(params: &[u32], input: &[u8]) -> End {
    let codec = Codec::Lz4;
    if params[0] == DECOMPRESS {
        return codec.decompress(input, LIMIT).map_or(End::Data, End::Out);
    }
    assert_eq!(params, announced(input.len()));
    End::Out(codec.compress(input, LIMIT).unwrap())
}

/// Text that compresses, with some that does not in between.
fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut content = Vec::new();
    while content.len() < len {
        let n = content.len() as u64;
        content.extend(support::of_few(b"abc", seed ^ n, 3000));
        content.extend(b"the same again and again ".repeat(400));
        content.extend(support::bytes(seed ^ n, 70_000));
    }
    content.truncate(len);
    content
}

fn out(end: End) -> Vec<u8> {
    let End::Out(out) = end else { panic!("{end:?}") };
    out
}

#[test]
fn tails_are_compressed_as_on_a_core_and_come_back() {
    let mut kernel = crate::builtin("lz4");
    for len in 0..=support::TAIL_MAX {
        let input = support::of_few(b"aab", len as u64, len);
        let frame = oracle(&announced(len), &input);
        support::agrees(kernel.as_mut(), &announced(len), &input, &frame);
        support::agrees(kernel.as_mut(), &[DECOMPRESS], &out(frame), &End::Out(input.clone()));
        let plain = support::packet(kernel.as_mut(), &[COMPRESS], &input, (7, 7));
        assert_eq!(Codec::Lz4.decompress(&out(plain), LIMIT).unwrap(), input);
    }
}

#[test]
fn blocks_do_not_depend_on_the_cut() {
    let mut kernel = crate::builtin("lz4");
    for len in [65_535, 65_536, 65_537, 131_072, 300_000] {
        let input = content(len as u64, len);
        let frame = out(oracle(&announced(len), &input));
        for cut in [(1000, 999), (65_536, 65_536), (65_537, 100_000), (len, 1)] {
            assert_eq!(support::packet(kernel.as_mut(), &announced(len), &input, cut), End::Out(frame.clone()));
            assert_eq!(support::packet(kernel.as_mut(), &[DECOMPRESS], &frame, cut), End::Out(input.clone()));
        }
    }
}

#[test]
fn several_frames_are_one_content() {
    let mut kernel = crate::builtin("lz4");
    let parts = [content(1, 100_000), vec![], content(2, 10), content(3, 70_000)];
    let frames: Vec<u8> = parts.iter().flat_map(|p| out(oracle(&announced(p.len()), p))).collect();
    for cut in [(1, 1000), (64, 64), (frames.len(), 1 << 20)] {
        assert_eq!(support::packet(kernel.as_mut(), &[DECOMPRESS], &frames, cut), End::Out(parts.concat()));
    }
}

#[test]
fn damaged_and_cut_frames_are_faults_as_on_a_core() {
    let mut kernel = crate::builtin("lz4");
    let input = content(5, 3000);
    let frame = out(oracle(&announced(3000), &input));
    for len in 0..frame.len() {
        assert_eq!(
            support::packet(kernel.as_mut(), &[DECOMPRESS], &frame[..len], (100, 100)),
            End::Data,
            "{len} bytes"
        );
    }
    let mut harmless = 0;
    for bit in (0..frame.len() * 8).step_by(3) {
        let mut damaged = frame.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let got = support::packet(kernel.as_mut(), &[DECOMPRESS], &damaged, (100, 1000));
        assert!(got == oracle(&[DECOMPRESS], &damaged), "bit {bit}: not as on a core");
        // A match that begins at other bytes which are the same does no harm.
        assert!(got == End::Data || got == End::Out(input.clone()), "bit {bit}: other content");
        harmless += usize::from(got != End::Data);
    }
    assert!(harmless < frame.len() / 10, "{harmless} bits of {} bytes were not noticed", frame.len());
    let skippable = [&0x184d_2a50u32.to_le_bytes()[..], &[1, 0, 0, 0, 9], &frame].concat();
    let legacy = [&0x184c_2102u32.to_le_bytes()[..], &[1, 0, 0, 0, 9]].concat();
    for bad in [&[&frame[..], b"x"].concat(), &[&frame[..], &frame[..9]].concat(), &skippable, &legacy] {
        support::agrees(kernel.as_mut(), &[DECOMPRESS], bad, &End::Data);
        assert_eq!(oracle(&[DECOMPRESS], bad), End::Data, "on a core as well");
    }
}

#[test]
fn content_of_another_length_than_announced_is_a_fault() {
    let mut kernel = crate::builtin("lz4");
    for (said, is) in [(10, 9), (10, 11), (0, 1), (1, 0), (65_536, 65_537)] {
        let got = support::packet(kernel.as_mut(), &announced(said), &content(1, is), (100, 100));
        assert_eq!(got, End::Data, "{said} announced, {is} came");
    }
    support::agrees(kernel.as_mut(), &[COMPRESS, 0, 1], b"not 4 GiB", &End::Data);
}

#[test]
fn parameters_packets_and_resets() {
    let mut kernel = crate::builtin("lz4");
    support::refuses(kernel.as_mut(), &[&[], &[2], &[0, 1], &[1, 0], &[1, 0, 0], &[0, 0, 0, 0]], &[0]);
    let packets: Vec<Vec<u8>> = (0..20).map(|_| content(7, 500)).collect();
    support::in_a_row(kernel.as_mut(), &announced(500), &packets, oracle);
    let frames: Vec<Vec<u8>> = (0..20).map(|n| out(oracle(&announced(n * 40), &content(8, n * 40)))).collect();
    support::in_a_row(kernel.as_mut(), &[DECOMPRESS], &frames, oracle);
    let begun = &frames[7];
    support::reset_in_the_middle(kernel.as_mut(), (&[DECOMPRESS], begun), (&announced(500), &packets[0]), oracle);
    support::reset_in_the_middle(kernel.as_mut(), (&[COMPRESS], begun), (&[DECOMPRESS], &frames[9]), oracle);
}

/// The output of a program that is given `input`; `None` where there is no such program.
fn through(program: &str, args: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let mut command = Command::new(program);
    let mut child = command.arg("-q").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let done = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(done.status.success(), "{program} {args:?}: {}", done.status);
    Some(done.stdout)
}

#[test]
fn the_command_line_tool_reads_and_is_read() {
    let mut kernel = crate::builtin("lz4");
    for len in [0, 1, 1000, 65_536, 200_000, 5_000_000] {
        let input = content(len as u64, len);
        let frame = out(support::packet(kernel.as_mut(), &[COMPRESS], &input, (1 << 16, 1 << 16)));
        let Some(read) = through("lz4", &["-d", "-c", "-"], &frame) else {
            println!("skipped: there is no lz4 command");
            return;
        };
        assert!(read == input, "{len} bytes of the kernel's, read by the tool");
        // Blocks of 64 KiB and 4 MiB, independent and linked, with checksums of blocks and with the content's length.
        for args in [&["-c"][..], &["-B4", "-BD", "-c"], &["-B7", "-BX", "-9", "-c"], &["-BD", "--content-size", "-c"]]
        {
            let frame = through("lz4", args, &input).unwrap();
            let got = support::packet(kernel.as_mut(), &[DECOMPRESS], &frame, (9999, 9999));
            assert!(got == End::Out(input.clone()), "{len} bytes by {args:?}: {}", matches!(got, End::Out(_)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_content(seed: u64, len in 0usize..200_000, piece in 1usize..100_000, room in 100usize..100_000) {
        let input = content(seed >> 1, len);
        let mut kernel = crate::builtin("lz4");
        let frame = support::packet(kernel.as_mut(), &announced(len), &input, (piece, room));
        prop_assert_eq!(&frame, &oracle(&announced(len), &input));
        prop_assert_eq!(support::packet(kernel.as_mut(), &[DECOMPRESS], &out(frame), (piece, room)), End::Out(input));
    }

    #[test]
    fn what_is_no_frame_is_as_on_a_core(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
        piece in 1usize..99,
    ) {
        for (byte, magic) in bytes.iter_mut().zip(0x184d_2204u32.to_le_bytes()) {
            *byte = magic;
        }
        let mut kernel = crate::builtin("lz4");
        let got = support::packet(kernel.as_mut(), &[DECOMPRESS], &bytes, (piece, 99));
        prop_assert_eq!(got, oracle(&[DECOMPRESS], &bytes));
    }
}
