//! Other programs read what this crate writes, and the other way round: the command-line tools `zstd` and `lz4` and
//! Google's snappy library, whose tests are ignored unless asked for (`./test formats` installs the programs; nothing
//! here does), and a reader of snappy's framing written here from the format's description.

use std::io::Write;
use std::process::{Command, Stdio};
use weldfs_functions::checksum::Kind;
use weldfs_functions::codec::Codec;

/// Texts with and without structure, shorter and longer than one block of any of the formats.
fn contents() -> Vec<Vec<u8>> {
    let mut noise = 0x9e37_79b9u32;
    let mut random = |n: usize| {
        let next = || {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (noise >> 24) as u8
        };
        std::iter::repeat_with(next).take(n).collect::<Vec<u8>>()
    };
    vec![
        vec![],
        b"a".to_vec(),
        b"one command: open, write, close\n".repeat(40),
        random(1_000),
        random(200_000),
        [random(70_000), vec![0; 300_000], random(10)].concat(),
        (0..1u32 << 18).flat_map(|i| (i / 7).to_le_bytes()).collect(),
    ]
}

/// Standard output of `tool` with `input` on standard input.
fn through(tool: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new(tool[0])
        .args(&tool[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{} does not start: {e}", tool[0]));
    let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_vec());
    // A tool may fill its output before it has read all of its input.
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "{tool:?}: {}", output.status);
    output.stdout
}

/// Both directions between a codec and a tool.
fn tool_agrees(codec: Codec, compress: &[&str], decompress: &[&str]) {
    for content in contents() {
        let ours = codec.compress(&content, usize::MAX).unwrap();
        assert!(through(decompress, &ours) == content, "{decompress:?} reads ours of {} bytes", content.len());
        let theirs = through(compress, &content);
        assert!(codec.decompress(&theirs, content.len()).unwrap() == content, "ours reads {compress:?}");
    }
}

#[test]
#[ignore = "needs zstd"]
fn zstd_reads_ours_and_we_read_its() {
    for level in ["-1", "-19"] {
        tool_agrees(Codec::Zstd, &["zstd", "-q", "-c", level], &["zstd", "-q", "-d", "-c"]);
    }
}

#[test]
#[ignore = "needs lz4"]
fn lz4_reads_ours_and_we_read_its() {
    for blocks in ["-B4", "-B7", "-BD"] {
        tool_agrees(Codec::Lz4, &["lz4", "-q", "-c", blocks, "-9"], &["lz4", "-q", "-d", "-c"]);
    }
}

#[test]
#[ignore = "needs python3 and libsnappy"]
fn googles_snappy_reads_ours_and_we_read_its() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/framing.py");
    tool_agrees(Codec::Snappy, &["python3", script, "-c"], &["python3", script, "-d"]);
}

/// The framing format as its description says: chunks of type (1), length (3), and for data a masked CRC-32C (4).
fn read_framing(mut stream: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    assert!(stream.starts_with(b"\xff\x06\x00\x00sNaPpY"), "the stream identifier comes first");
    while !stream.is_empty() {
        let len = u32::from_le_bytes([stream[1], stream[2], stream[3], 0]) as usize;
        let (kind, body) = (stream[0], &stream[4..4 + len]);
        stream = &stream[4 + len..];
        let data = match kind {
            0xff => continue,
            0x00 => snap::raw::Decoder::new().decompress_vec(&body[4..]).unwrap(),
            0x01 => body[4..].to_vec(),
            other => panic!("a chunk of type {other:#x}"),
        };
        assert!(data.len() <= 65_536);
        assert_eq!(u32::from_le_bytes(body[..4].try_into().unwrap()), Kind::Crc32cMasked.of(&data));
        content.extend(data);
    }
    content
}

#[test]
fn snappy_streams_are_in_the_framing_format() {
    for content in contents() {
        let stream = Codec::Snappy.compress(&content, usize::MAX).unwrap();
        assert!(read_framing(&stream) == content, "{} bytes", content.len());
    }
    // A stream put together by hand: an unframed padding chunk between two others.
    let mut stream = b"\xff\x06\x00\x00sNaPpY".to_vec();
    let chunk = |kind: u8, body: &[u8]| [&[kind][..], &(body.len() as u32).to_le_bytes()[..3], body].concat();
    let data = |text: &[u8]| [&Kind::Crc32cMasked.of(text).to_le_bytes()[..], text].concat();
    stream.extend(chunk(0x01, &data(b"plain, ")));
    stream.extend(chunk(0xfe, &[0; 20]));
    stream.extend(chunk(0x01, &data(b"behind padding")));
    assert_eq!(Codec::Snappy.decompress(&stream, 100).unwrap(), b"plain, behind padding");
}
