//! Verilated RTL against the references. The shared objects are made by `fpga/rtl/build.py`.

use std::path::{Path, PathBuf};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use weldfs_fpga::kernel::{Kernel, run};

use crate::compare::Subject;
use crate::shared_object::{SharedObject, folder};

fn object(name: &str) -> PathBuf {
    folder().join(format!("librtl_{name}.so"))
}

/// Packets of a comparison: more of them in the long form of the tests.
fn packets() -> usize {
    std::env::var("WELDFS_RTL_PACKETS").map_or(400, |n| n.parse().expect("a number"))
}

/// Bytes, all values alike.
fn any(rng: &mut SmallRng, _: &[u32], len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.random()).collect()
}

/// So many bytes; of a longer packet mostly a multiple of `unit`.
fn whole(rng: &mut SmallRng, len: usize, unit: usize) -> usize {
    if len > 130 && rng.random_bool(0.9) { len - len % unit } else { len }
}

#[test]
#[ignore = "needs what fpga/rtl/build.py makes"]
fn pass_through() {
    let object = object("pass-through");
    let (name, good, bad) = ("pass-through", vec![vec![]], vec![vec![0], vec![1, 2]]);
    Subject { name, object: &object, good, bad, packet: any, longest: 6000, ports: 2 }.compare(1, packets());
}

#[test]
#[ignore = "needs what fpga/rtl/build.py makes"]
fn crc32c() {
    let object = object("crc32c");
    let good = vec![vec![], vec![0], vec![0xdead_beef], vec![u32::MAX]];
    let bad = vec![vec![0, 0], vec![1, 2, 3]];
    Subject { name: "crc32c", object: &object, good, bad, packet: any, longest: 6000, ports: 2 }.compare(2, packets());
}

/// The parameters of a needle.
fn needle(bytes: &[u8]) -> Vec<u32> {
    let words = bytes.chunks(4).map(|c| c.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte)));
    std::iter::once(bytes.len() as u32).chain(words).collect()
}

/// Text of few letters, so that parts of the needle, the whole of it and newlines are all frequent.
fn text(rng: &mut SmallRng, params: &[u32], len: usize) -> Vec<u8> {
    let needle: Vec<u8> = params[1..].iter().flat_map(|w| w.to_le_bytes()).take(params[0] as usize).collect();
    let lines = rng.random_range(0..200);
    let mut text = Vec::new();
    while text.len() < len {
        match rng.random_range(0..400) {
            n if n < lines => text.push(b'\n'),
            n if n < 300 => text.push(b"ab"[rng.random_range(0..2)]),
            n if n < 340 => text.extend_from_slice(&needle[..rng.random_range(0..=needle.len())]),
            n if n < 360 => text.extend_from_slice(&needle),
            _ => text.push(rng.random()),
        }
    }
    text.truncate(len);
    text
}

#[test]
#[ignore = "needs what fpga/rtl/build.py makes"]
fn grep() {
    let object = object("grep");
    let whole: Vec<u8> = (0..32).map(|i| b"ab"[usize::from(i % 3 == 0)]).collect();
    let mut good: Vec<_> = [1, 2, 3, 4, 5, 8, 13, 31, 32].iter().map(|n| needle(&whole[..*n])).collect();
    good.extend([needle(b"\0"), needle(b"\0a"), needle(&[b'a'; 32]), needle(&[0xff, 0xfe, 0x0b])]);
    let bad = vec![
        vec![],
        vec![0],
        vec![1],
        vec![1, 0x61, 0],
        vec![5, 0x61],
        vec![33; 10],
        vec![u32::MAX, 1],
        vec![0x101, 0x61],
        needle(b"a\nb"),
        vec![2, 0x616161],
        [needle(&[b'a'; 32]), vec![0]].concat(),
    ];
    Subject { name: "grep", object: &object, good, bad, packet: text, longest: 6000, ports: 3 }.compare(3, packets());
}

/// Records whose years are mostly digits.
fn scores(rng: &mut SmallRng, _: &[u32], len: usize) -> Vec<u8> {
    let mut byte = |i: usize| match i % 32 {
        30 | 31 if rng.random_bool(0.9) => rng.random_range(b'0'..=b'9'),
        _ => rng.random(),
    };
    (0..len).map(&mut byte).collect()
}

#[test]
#[ignore = "needs what fpga/rtl/build.py makes"]
fn sql() {
    let object = object("sql");
    let good = vec![vec![0, 9999], vec![10, 50], vec![7, 7], vec![100, 200], vec![90, 99], vec![0, 0]];
    let bad = vec![vec![], vec![1], vec![2, 1], vec![0, 10_000], vec![1, 2, 3], vec![u32::MAX, u32::MAX]];
    Subject { name: "sql", object: &object, good, bad, packet: scores, longest: 6000, ports: 3 }.compare(4, packets());
}

#[test]
#[ignore = "needs what fpga/rtl/build.py makes"]
fn statistics() {
    let object = object("statistics");
    let good = [1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 100, 1000, u32::MAX].map(|n| vec![n]).to_vec();
    let bad = vec![vec![], vec![0], vec![1, 2]];
    let name = "statistics";
    Subject { name, object: &object, good, bad, packet: any, longest: 6000, ports: 3 }.compare(5, packets());
}

/// Pairs: mostly short runs, or mostly long ones, or none; sometimes cut in the middle of a pair.
fn pairs(rng: &mut SmallRng, _: &[u32], len: usize) -> Vec<u8> {
    let (len, longest) = (whole(rng, len, 2), [0, 1, 3, 8, 14, 64, 255][rng.random_range(0..7)]);
    let mut byte = |i: usize| if i.is_multiple_of(2) { rng.random_range(0..=longest) } else { rng.random() };
    (0..len).map(&mut byte).collect()
}

#[test]
#[ignore = "needs what fpga/rtl/build.py makes"]
fn rle() {
    let object = object("rle");
    let (name, good, bad) = ("rle", vec![vec![]; 4], vec![vec![0], vec![1, 2]]);
    Subject { name, object: &object, good, bad, packet: pairs, longest: 2000, ports: 2 }.compare(7, packets());
}

/// Records of few letters.
fn records(rng: &mut SmallRng, _: &[u32], len: usize) -> Vec<u8> {
    let letters = [2, 8, 30, 256][rng.random_range(0..4)];
    (0..len).map(|_| rng.random_range(0..letters) as u8).collect()
}

#[test]
#[ignore = "needs what fpga/rtl/build.py makes"]
fn integrate() {
    let object = object("integrate");
    let rng = &mut SmallRng::seed_from_u64(8);
    let mut good = Vec::new();
    for (q, p, letters) in
        [(0, 32, 2u32), (32, 1, 30), (31, 2, 30), (30, 32, 30), (0, 5, 256), (16, 8, 8), (32, 32, 256)]
    {
        let query = (0..8).map(|_| (0..4).fold(0, |word, _| word << 8 | rng.random_range(0..letters)));
        good.push([q, p].into_iter().chain(query).collect());
    }
    let with = |q: u32, p: u32, words: usize| [vec![q, p], vec![0; words]].concat();
    let bad = vec![vec![], with(1, 1, 7), with(1, 1, 9), with(33, 1, 8), with(1, 0, 8), with(1, 33, 8), with(!0, 1, 8)];
    let (name, ports) = ("integrate", 4);
    Subject { name, object: &object, good, bad, packet: records, longest: 6000, ports }.compare(9, packets());
}

fn blocks(rng: &mut SmallRng, params: &[u32], len: usize) -> Vec<u8> {
    let len = whole(rng, len, 16);
    any(rng, params, len)
}

#[test]
#[ignore = "needs what fpga/rtl/build.py makes"]
fn aes128() {
    let object = object("aes128");
    let rng = &mut SmallRng::seed_from_u64(10);
    // Appendix B of FIPS 197, and random keys.
    let mut good = vec![vec![0, 0x1615_7e2b, 0xa6d2_ae28, 0x8815_f7ab, 0x3c4f_cf09]];
    good.extend((0..7).map(|i| std::iter::once(i % 2).chain((0..4).map(|_| rng.random())).collect()));
    let bad = vec![vec![], vec![0], vec![2, 1, 2, 3, 4], vec![0, 1, 2, 3], vec![1, 1, 2, 3, 4, 5]];
    Subject { name: "aes128", object: &object, good, bad, packet: blocks, longest: 6000, ports: 1 }
        .compare(11, packets());
}

/// Flits that a packet of `flits` flits takes more than one cycle for each, by the kernel's own count.
fn cycles(name: &str, params: &[u32], packet: &[u8]) -> u64 {
    let mut kernel = SharedObject::open(&object(name)).unwrap();
    kernel.reset(params).unwrap();
    // The first packet has the cycles of the reset, too.
    run(&mut kernel, &[], 64, 1 << 16).unwrap();
    run(&mut kernel, packet, 1 << 20, 1 << 20).unwrap().1
}

/// The table of README.md: cycles per flit where neither side stalls, and what comes on top of them for a packet.
#[test]
#[ignore = "needs what fpga/rtl/build.py makes"]
fn a_flit_takes_the_cycles_of_the_table() {
    let rng = &mut SmallRng::seed_from_u64(6);
    let (flits, spare) = (1000, 16);
    let packet = any(rng, &[], 64 * flits);
    let lines: Vec<u8> = (0..64 * flits).map(|i| if i % 64 == 63 { b'\n' } else { b"ab"[i % 2] }).collect();
    let short_runs: Vec<u8> = (0..64 * flits).map(|i| (i % 2) as u8).collect();
    for (name, params, packet, per_flit) in [
        ("pass-through", vec![], &packet, 1),
        ("crc32c", vec![], &packet, 1),
        ("sql", vec![0, 99], &packet, 1),
        ("statistics", vec![16], &packet, 1),
        ("statistics", vec![160], &packet, 1),
        ("statistics", vec![4], &packet, 4),
        ("grep", needle(b"abababab"), &lines, 1),
        ("grep", needle(&[b'x'; 32]), &lines, 1),
        ("integrate", [vec![20, 32], vec![0x0403_0201; 8]].concat(), &packet, 1),
        ("aes128", vec![0; 5], &packet, 1),
        ("aes128", vec![1; 5], &packet, 1),
        ("rle", vec![], &short_runs, 4),
    ] {
        let found = cycles(name, &params, packet);
        let least = (per_flit * flits) as u64;
        assert!((least..=least + spare).contains(&found), "{name} {params:?}: {found} cycles for {flits} flits");
    }
}

/// What the model counts, with the number of the manifest, against what the RTL takes on what a kernel is made for:
/// within 2 %.
#[test]
#[ignore = "needs what fpga/rtl/build.py makes"]
fn a_model_counts_the_cycles_of_its_rtl() {
    let rng = &mut SmallRng::seed_from_u64(12);
    let packet = any(rng, &[], 64_000);
    let lines: Vec<u8> = (0..64_000).map(|i| if i % 64 == 63 { b'\n' } else { b"ab"[i % 2] }).collect();
    let mut byte = |i: usize| if i.is_multiple_of(2) { rng.random_range(8..=20) } else { rng.random() };
    let bitmap: Vec<u8> = (0..64_000).map(&mut byte).collect();
    let empty_runs = vec![0; 64_000];
    for (name, params, packet) in [
        ("pass-through", vec![], &packet),
        ("crc32c", vec![], &packet),
        ("sql", vec![0, 99], &packet),
        ("statistics", vec![4096], &packet),
        ("grep", needle(b"abababab"), &lines),
        ("integrate", [vec![20, 32], vec![0x0403_0201; 8]].concat(), &packet),
        ("aes128", vec![0; 5], &packet),
        ("aes128", vec![1; 5], &packet),
        ("rle", vec![], &bitmap),
        ("rle", vec![], &empty_runs),
    ] {
        let mut model = crate::builtin(name);
        model.reset(&params).unwrap();
        let counted = run(&mut *model, packet, 1 << 20, 1 << 20).unwrap().1;
        let found = cycles(name, &params, packet);
        let apart = found.abs_diff(counted) * 100;
        assert!(apart <= 2 * counted, "{name} {params:?}: RTL {found} cycles, model {counted}");
    }
}

#[test]
#[ignore = "needs what fpga/rtl/build.py makes"]
fn a_waveform_has_the_stream() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wave.vcd");
    let mut kernel = SharedObject::open(&object("pass-through")).unwrap();
    assert!(kernel.wave(Some(&file)));
    assert!(!kernel.wave(Some(Path::new("/nowhere/wave.vcd"))));
    assert!(kernel.wave(Some(&file)));
    kernel.reset(&[]).unwrap();
    run(&mut kernel, &[0x5a; 130], 64, 64).unwrap();
    assert!(kernel.wave(None));
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("s_data") && text.contains(&"01011010".repeat(8)), "{} bytes of VCD", text.len());
}

#[test]
#[ignore = "needs what fpga/rtl/build.py makes"]
fn what_is_not_a_kernel_is_refused() {
    let missing = SharedObject::open(Path::new("/nowhere/librtl_none.so"));
    assert!(missing.is_err_and(|e| e.contains("librtl_none.so")));
    let mut kernel = SharedObject::open(&object("pass-through")).unwrap();
    assert!(kernel.step(&[1], true, &mut [0; 64]).is_err(), "a step before the first reset");
    assert!(!kernel.stall(1, 1000, 0), "a side that never moves");
}
