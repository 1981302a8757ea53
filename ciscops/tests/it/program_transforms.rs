//! Programs that compress and encrypt: what one writes another reads back, any other decoder or key does not, and what
//! does not fit or is not authentic has its errno.

use crate::support::*;
use weldfs_ciscops::program::*;
use weldfs_ciscops::*;
use weldfs_functions::cipher::RECORD_OVERHEAD;
use weldfs_functions::codec;

const LEN: u32 = 20_000;
const SRC: PoolRange = PoolRange::new(SRC_AT, LEN);
const OUT: PoolRange = PoolRange::new(OUT_AT, LEN);

/// A file, and `src` in the pool.
fn toy(src: &[u8]) -> Toy {
    let mut toy = Toy::new();
    toy.open(b"a", OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE).unwrap();
    toy.put(SRC_AT, src);
    toy
}

fn open(b: &mut Builder) -> FileSlot {
    b.open(Handle::ROOT, b"a", OpenFlags::READ | OpenFlags::WRITE, 0)
}

/// Writes what `how` makes of the payload; the result is where it begins.
fn write(how: Transform, room: u32) -> Body {
    let mut b = Builder::new();
    let (file, payload) = (open(&mut b), b.pool(LEN));
    let (plain, made) = (b.buffer(LEN), b.buffer(room));
    b.push(Micro::Fill { buf: plain, from: Bytes::Pool(payload), append: false });
    b.push(Micro::Transform { buf: made, from: plain, how });
    let at = b.write(file, Place::End, Bytes::Buffer(made));
    b.results(Some(at), None);
    b.finish().unwrap()
}

/// Reads the whole file, undoes it, and hands the bytes back; the result is how many.
fn read(how: Transform, stored: u32, room: u32) -> Body {
    let mut b = Builder::new();
    let (file, out) = (open(&mut b), b.pool(LEN));
    let (made, plain) = (b.buffer(stored), b.buffer(room));
    b.read(file, Value::Imm(0), Value::Imm(stored.into()), To::Buffer(made));
    b.push(Micro::Transform { buf: plain, from: made, how });
    let n = b.register();
    b.push(Micro::Give { buf: plain, to: out, count: Some(n) });
    b.results(Some(n), None);
    b.finish().unwrap()
}

fn payload() -> Vec<u8> {
    (0..LEN).map(|i| (i % 97) as u8 ^ (i / 4096) as u8).collect()
}

#[test]
fn what_is_compressed_is_a_frame_of_its_format_and_comes_back() {
    for (codec, function) in
        [(Codec::Lz4, codec::Codec::Lz4), (Codec::Zstd, codec::Codec::Zstd), (Codec::Snappy, codec::Codec::Snappy)]
    {
        let mut toy = toy(&payload());
        let o = toy.run_program(&write(Transform::Compress(codec), LEN), &[SRC], TxnMode::Default);
        assert_eq!((o.status, o.micro_done), (0, 4), "{codec:?}");
        let stored = toy.state.files[0].clone();
        assert!(stored.len() < LEN as usize / 2);
        assert_eq!(function.decompress(&stored, LEN as usize).unwrap(), payload());
        let back = read(Transform::Decompress(codec), stored.len() as u32, LEN);
        let o = toy.run_program(&back, &[OUT], TxnMode::Default);
        assert_eq!((o.status, o.result), (0, LEN.into()));
        assert_eq!(toy.get(OUT_AT, LEN as usize), payload());

        let short = read(Transform::Decompress(codec), stored.len() as u32, LEN - 1);
        let o = toy.run_program(&short, &[OUT], TxnMode::Default);
        assert_eq!((o.status, o.micro_failed), (Errno::TOOBIG.0, 3), "{codec:?}: no room for the plaintext");
        let o = toy.run_program(&write(Transform::Compress(codec), 64), &[SRC], TxnMode::Default);
        assert_eq!((o.status, o.micro_failed), (Errno::TOOBIG.0, 3), "{codec:?}: no room for the frame");
        toy.state.files[0][0] ^= 0xff;
        let o = toy.run_program(&back, &[OUT], TxnMode::Default);
        assert_eq!((o.status, o.micro_failed), (Errno::BADMSG.0, 3), "{codec:?}: no frame");
    }
}

#[test]
fn units_are_stored_encrypted_and_only_their_key_and_numbers_bring_them_back() {
    let mut toy = toy(&payload());
    let (unit_log, first) = (12, Value::Imm(7));
    let write = write(Transform::EncryptUnits { key: XTS_KEY, unit_log, first }, LEN);
    assert_eq!(toy.run_program(&write, &[SRC], TxnMode::Default).status, 0);
    let stored = toy.state.files[0].clone();
    assert_eq!(stored.len(), LEN as usize, "as long as the plaintext");
    assert!(stored.chunks(16).zip(payload().chunks(16)).all(|(a, b)| a != b));
    let mut back = |key, first| {
        let body = read(Transform::DecryptUnits { key, unit_log, first: Value::Imm(first) }, LEN, LEN);
        let o = toy.run_program(&body, &[OUT], TxnMode::Default);
        (o.status, toy.get(OUT_AT, LEN as usize))
    };
    assert_eq!(back(XTS_KEY, 7), (0, payload()));
    assert_ne!(back(XTS_KEY, 8).1, payload());
    assert_eq!(back(GCM_KEY, 7).0, Errno::INVAL.0, "a key of another kind");
    assert_eq!(back(99, 7).0, Errno::NOKEY.0);
}

#[test]
fn a_sealed_record_opens_with_its_key_and_what_it_is_bound_to() {
    let mut toy = toy(&payload());
    let sealed = LEN + RECORD_OVERHEAD as u32;
    let write = write(Transform::Seal { key: GCM_KEY, bound: None }, sealed);
    assert_eq!(toy.run_program(&write, &[SRC], TxnMode::Default).status, 0);
    assert_eq!(toy.state.files[0].len(), sealed as usize);
    let back = read(Transform::Open { key: GCM_KEY, bound: None }, sealed, LEN);
    assert_eq!(toy.run_program(&back, &[OUT], TxnMode::Default).status, 0);
    assert_eq!(toy.get(OUT_AT, LEN as usize), payload());
    let first = toy.state.files[0].clone();
    toy.run_program(&write, &[SRC], TxnMode::Default);
    assert_ne!(toy.state.files[0][first.len()..], first, "no nonce is used twice");
    toy.state.files[0][20] ^= 1;
    let o = toy.run_program(&back, &[OUT], TxnMode::Default);
    assert_eq!((o.status, o.micro_failed), (Errno::BADMSG.0, 3));
}

#[test]
fn a_record_bound_to_its_place_opens_nowhere_else() {
    let mut toy = toy(b"secret");
    let mut b = Builder::new();
    let (file, payload, out) = (open(&mut b), b.pool(6), b.pool(6));
    let (plain, made, again) = (b.buffer(6), b.buffer(64), b.buffer(6));
    let (place, n) = (b.register(), b.register());
    b.push(Micro::Size { file, to: place });
    b.push(Micro::Fill { buf: plain, from: Bytes::Pool(payload), append: false });
    let bound = |reg| Some(Bytes::Int(reg, Int::U64_LE));
    b.push(Micro::Transform { buf: made, from: plain, how: Transform::Seal { key: GCM_KEY, bound: bound(place) } });
    b.push(Micro::Write { file, place: Place::End, from: Bytes::Buffer(made), fold: None, at: None });
    b.push(Micro::Transform { buf: again, from: made, how: Transform::Open { key: GCM_KEY, bound: bound(place) } });
    b.push(Micro::Give { buf: again, to: out, count: Some(n) });
    b.push(Micro::Arith { to: place, a: Value::Reg(place), op: Arith::Add, b: Value::Imm(1) });
    b.push(Micro::Transform { buf: again, from: made, how: Transform::Open { key: GCM_KEY, bound: bound(place) } });
    b.results(Some(n), None);
    let body = b.finish().unwrap();
    let ranges = [PoolRange::new(SRC_AT, 6), PoolRange::new(OUT_AT, 6)];
    let o = toy.run_program(&body, &ranges, TxnMode::Default);
    assert_eq!((o.status, o.micro_failed, o.result), (Errno::BADMSG.0, 9, 6));
    assert_eq!(toy.get(OUT_AT, 6), b"secret");
    assert!(toy.state.files[0].is_empty(), "a failed MacroTx leaves nothing");
}
