//! Compression, encryption and log recovery as fused ops, end to end on an embedded device and on the caller's
//! processor.

use std::sync::Arc;
use weldfs::catalogue::{Codec, Encryption, Frame, Key, KeyKind, LogRecord, Order, SumKind, SumPlace, Summing};
use weldfs::{At, Client, Errno, File, OpenOptions, Placement, Raw};
use weldfs_ciscops::functions::{checksum::Kind, cipher, codec};
use weldfs_ciscops::program::{Int, Width};
use weldfs_device::DeviceConfig;
use weldfs_kernel_shim::{Embedded, Source};

const BOTH: [Placement; 2] = [Placement::Device, Placement::Host];
const CODECS: [Codec; 3] = [Codec::Lz4, Codec::Zstd, Codec::Snappy];

fn device() -> (Embedded, Client) {
    let embedded = Embedded::open(&Source::Ram(64 << 20), DeviceConfig::default()).expect("device");
    let client = Client::with(Arc::new(embedded.clone())).expect("attach");
    (embedded, client)
}

fn open(client: &Client, path: &str) -> File {
    client.open(path, &OpenOptions::new().read(true).write(true).create(true)).expect("open")
}

fn raw(file: &File, placement: Placement) -> Raw<'_> {
    file.raw().placement(placement)
}

fn function(codec: Codec) -> codec::Codec {
    match codec {
        Codec::Lz4 => codec::Codec::Lz4,
        Codec::Zstd => codec::Codec::Zstd,
        Codec::Snappy => codec::Codec::Snappy,
    }
}

fn key_bytes(kind: KeyKind) -> Vec<u8> {
    (0..kind.bytes() as u8).map(|i| i.wrapping_mul(91) ^ 0x35).collect()
}

fn key(client: &Client, kind: KeyKind) -> Key {
    client.key(kind, &key_bytes(kind)).unwrap()
}

#[test]
fn frames_are_the_formats_and_come_back() {
    let (_device, client) = device();
    let text = b"one command: open, write, close\n".repeat(5_000);
    for codec in CODECS {
        for placement in BOTH {
            let path = format!("/{codec:?}{placement:?}");
            let file = open(&client, &path);
            for content in [&b""[..], b"a", &text[..4096], &text] {
                let at = file.metadata().unwrap().len();
                let frame = raw(&file, placement).compress_write(file.handle(), At::End, codec, content).unwrap();
                assert_eq!(frame.offset, at);
                let stored = client.read(&path).unwrap()[at as usize..].to_vec();
                assert_eq!(stored.len(), frame.len as usize);
                assert!(content.len() < 4096 || stored.len() < content.len() / 4, "it did shrink");
                assert!(function(codec).decompress(&stored, content.len()).unwrap() == content);
                for reader in BOTH {
                    let mut room = vec![0xee; content.len() + 10];
                    let n = raw(&file, reader).read_decompress(file.handle(), frame, codec, &mut room).unwrap();
                    assert!(room[..n] == *content && room[n..] == [0xee; 10], "and no byte more");
                }
            }
            let frame = raw(&file, placement).compress_write(file.handle(), At::Offset(3), codec, b"x").unwrap();
            assert_eq!(frame.offset, 3);
        }
    }
}

#[test]
fn damaged_frames_and_bombs_are_refused() {
    let (_device, client) = device();
    let file = open(&client, "/f");
    let h = file.handle();
    for placement in BOTH {
        let raw = raw(&file, placement);
        for codec in CODECS {
            let frame = raw.compress_write(h, At::Offset(0), codec, &vec![0; 1_000_000]).unwrap();
            let mut room = vec![0; 999_999];
            assert_eq!(raw.read_decompress(h, frame, codec, &mut room), Err(Errno::TOOBIG), "it does not fit");
            let cut = Frame { len: frame.len - 1, ..frame };
            assert_eq!(raw.read_decompress(h, cut, codec, &mut vec![0; 1_000_000]), Err(Errno::BADMSG));
            let past = Frame { offset: file.metadata().unwrap().len() - 5, ..frame };
            assert_eq!(raw.read_decompress(h, past, codec, &mut room), Err(Errno::NODATA));
            let other = CODECS[(codec as usize + 1) % 3];
            assert_eq!(raw.read_decompress(h, frame, other, &mut vec![0; 1_000_000]), Err(Errno::BADMSG));
        }
        let frame = Frame { offset: 0, len: 0 };
        assert_eq!(raw.read_decompress(h, frame, Codec::Zstd, &mut [0; 10]), Err(Errno::BADMSG), "no frame at all");
        let big = vec![1; 1 << 20];
        assert_eq!(raw.compress_write(h, At::End, Codec::Lz4, &big).map(|_| ()), Err(Errno::TOOBIG));
        assert_eq!(raw.compress_write(h, At::Current, Codec::Lz4, b"x").map(|_| ()), Err(Errno::INVAL));
    }
}

#[test]
fn units_lie_where_the_plaintext_would() {
    let (_device, client) = device();
    for kind in [KeyKind::Xts128, KeyKind::Xts256] {
        let key = key(&client, kind);
        let own = if kind == KeyKind::Xts128 { cipher::KeyKind::Xts128 } else { cipher::KeyKind::Xts256 };
        let own = cipher::Key::new(own, &key_bytes(kind)).unwrap();
        for (i, unit) in [512u32, 1024, 2048, 4096].into_iter().enumerate() {
            let path = format!("/{kind:?}{unit}");
            let (file, how) = (open(&client, &path), Encryption::Units { key: &key, unit });
            let plain: Vec<u8> = (0..3 * unit + 100).map(|i| (i % 253) as u8).collect();
            let at = u64::from(unit) * 2;
            let writer = raw(&file, BOTH[i % 2]);
            let done = writer.encrypt_write(file.handle(), At::Offset(at), how, &plain).unwrap();
            assert_eq!((done.offset, done.len), (at, plain.len()));
            let stored = client.read(&path).unwrap();
            assert_eq!(stored.len() as u64, at + plain.len() as u64, "the size is the plaintext's");
            let mut want = plain.clone();
            own.encrypt_units(2, unit, &mut want).unwrap();
            assert!(stored[at as usize..] == want, "unit number 2 and on, in the way of the standard");
            // Any bytes come back, from inside a unit and over the end.
            for (off, len) in
                [(0, plain.len()), (1, 10), (unit as usize - 3, 6), (plain.len() - 5, 50), (plain.len(), 9)]
            {
                let there = plain[off..plain.len().min(off + len)].to_vec();
                for reader in BOTH {
                    let mut room = vec![0xee; len];
                    let n = raw(&file, reader).read_decrypt(file.handle(), at + off as u64, how, &mut room).unwrap();
                    assert!(room[..n] == there && n == there.len(), "{off} {len} {reader:?}");
                    assert!(room[n..].iter().all(|b| *b == 0xee), "what is behind is the caller's");
                }
            }
        }
    }
}

#[test]
fn odd_units_and_keys_are_refused() {
    let (_device, client) = device();
    let (file, xts, gcm) = (open(&client, "/f"), key(&client, KeyKind::Xts128), key(&client, KeyKind::Gcm256));
    let h = file.handle();
    for placement in BOTH {
        let raw = raw(&file, placement);
        let units = |unit| Encryption::Units { key: &xts, unit };
        let write = |at, how, data: &[u8]| raw.encrypt_write(h, at, how, data).map(|_| ());
        assert_eq!(write(At::Offset(0), units(256), b"0123456789abcdef"), Err(Errno::INVAL), "too small a unit");
        assert_eq!(write(At::Offset(100), units(512), b"0123456789abcdef"), Err(Errno::INVAL), "inside a unit");
        assert_eq!(write(At::End, units(512), b"0123456789abcdef"), Err(Errno::INVAL), "who knows where");
        assert_eq!(write(At::Offset(0), units(512), &[0; 527]), Err(Errno::INVAL), "a tail below a block");
        let crossed = Encryption::Units { key: &gcm, unit: 512 };
        assert_eq!(write(At::Offset(0), crossed, &[0; 512]), Err(Errno::INVAL), "a key for records");
        assert_eq!(write(At::End, Encryption::Record { key: &xts }, b"x"), Err(Errno::INVAL), "a key for units");
        assert_eq!(file.metadata().unwrap().len(), 0, "nothing was written");
    }
    assert_eq!(client.key(KeyKind::Xts128, &[1; 32]).map(|_| ()), Err(Errno::INVAL), "equal halves");
    assert_eq!(client.key(KeyKind::Xts128, &[1; 31]).map(|_| ()), Err(Errno::INVAL));
    let keys: Vec<Key> = (0..62).map(|_| key(&client, KeyKind::Gcm128)).collect();
    assert_eq!(client.key(KeyKind::Gcm128, &[1; 16]).map(|_| ()), Err(Errno::MFILE));
    drop(keys);
    key(&client, KeyKind::Gcm128);
}

#[test]
fn a_key_is_its_sessions_alone() {
    let (device, client) = device();
    let other = Client::with(Arc::new(device.clone())).unwrap();
    let (mine, file) = (key(&client, KeyKind::Gcm128), open(&other, "/f"));
    let stolen = file.raw().encrypt_write(file.handle(), At::End, Encryption::Record { key: &mine }, &b"x"[..]);
    assert_eq!(stolen.map(|_| ()), Err(Errno::NOKEY));
    // Sessions number their keys alike: a key must not stand for another session's of the same number.
    let theirs = key(&other, KeyKind::Gcm128);
    assert_eq!(mine.name(), theirs.name());
    let how = Encryption::Record { key: &mine };
    assert_eq!(file.raw().encrypt_write(file.handle(), At::End, how, &b"x"[..]).map(|_| ()), Err(Errno::NOKEY));
    assert_eq!(other.raw().read_decrypt(file.handle(), 0, how, &mut [0; 1]), Err(Errno::NOKEY));
    assert_eq!(format!("{mine:?}"), "Key(Gcm128)");
}

#[test]
fn records_are_sealed() {
    let (_device, client) = device();
    for kind in [KeyKind::Gcm128, KeyKind::Gcm256] {
        let (key, second) = (key(&client, kind), client.key(kind, &vec![9; kind.bytes() as usize]).unwrap());
        let how = Encryption::Record { key: &key };
        for placement in BOTH {
            let path = format!("/{kind:?}{placement:?}");
            let (file, mut room) = (open(&client, &path), [0; 6]);
            let (raw, h) = (raw(&file, placement), file.handle());
            let one = raw.encrypt_write(h, At::End, how, &b"secret"[..]).unwrap();
            let two = raw.encrypt_write(h, At::End, how, &b"secret"[..]).unwrap();
            assert_eq!((one.offset, two.offset, one.len), (0, 34, 6));
            let stored = client.read(&path).unwrap();
            assert_eq!(stored.len(), 68);
            assert!(stored[..34] != stored[34..], "a nonce of its own each time");
            assert!(!stored.windows(6).any(|w| w == b"secret"));
            for reader in BOTH {
                let raw = raw.placement(reader);
                assert_eq!(raw.read_decrypt(h, 34, how, &mut room), Ok(6));
                assert_eq!(&room, b"secret");
                assert_eq!(raw.read_decrypt(h, 33, how, &mut room), Err(Errno::BADMSG));
                assert_eq!(raw.read_decrypt(h, 35, how, &mut room), Err(Errno::NODATA));
                let wrong = Encryption::Record { key: &second };
                assert_eq!(raw.read_decrypt(h, 0, wrong, &mut room), Err(Errno::BADMSG));
            }
            file.write_all_at(&[stored[20] ^ 1], 20).unwrap();
            assert_eq!(raw.read_decrypt(h, 0, how, &mut room), Err(Errno::BADMSG), "a changed record");
            raw.encrypt_write(h, At::Offset(100), how, &b""[..]).unwrap();
            assert_eq!(raw.read_decrypt(h, 100, how, &mut []), Ok(0));
        }
    }
}

#[test]
fn files_are_encrypted_in_place_and_elsewhere() {
    let (_device, client) = device();
    let (units, record) = (key(&client, KeyKind::Xts256), key(&client, KeyKind::Gcm128));
    for placement in BOTH {
        let (a, b) = (open(&client, &format!("/a{placement:?}")), open(&client, &format!("/b{placement:?}")));
        let raw = raw(&a, placement);
        let plain: Vec<u8> = (0..10_000u32).map(|i| (i / 3) as u8).collect();
        a.write_all_at(&plain, 0).unwrap();
        let how = Encryption::Record { key: &record };
        assert_eq!(raw.read_encrypt_write(a.handle(), 9_000, 5_000, (b.handle(), At::End), how), Ok((1_000, 0)));
        let mut room = vec![0; 1_000];
        raw.read_decrypt(b.handle(), 0, how, &mut room).unwrap();
        assert!(room == plain[9_000..]);
        let how = Encryption::Units { key: &units, unit: 4096 };
        let place = (a.handle(), At::Offset(0));
        assert_eq!(raw.read_encrypt_write(a.handle(), 0, 1 << 20, place, how), Ok((10_000, 0)));
        let stored = client.read(format!("/a{placement:?}")).unwrap();
        assert!(stored.len() == 10_000 && stored[..4096] != plain[..4096]);
        let mut room = vec![0; 10_000];
        assert_eq!(raw.read_decrypt(a.handle(), 0, how, &mut room), Ok(10_000));
        assert!(room == plain);
        a.set_len(4096 + 7).unwrap();
        let short = raw.read_encrypt_write(a.handle(), 0, 8192, place, how);
        assert_eq!(short, Err(Errno::INVAL), "a last unit of seven bytes");
    }
}

/// length u16, checksum of the payload u32, payload.
fn log_record(order: Order) -> LogRecord {
    LogRecord {
        head: 6,
        len_at: 0,
        len: Int { width: Width::W2, order },
        sum_at: Some(2),
        sum_order: order,
        sum: SumKind::Crc32cMasked,
        covers: 6,
    }
}

fn log_entry(order: Order, payload: &[u8]) -> Vec<u8> {
    let (len, sum) = (payload.len() as u16, Kind::Crc32cMasked.of(payload));
    match order {
        Order::Little => [&len.to_le_bytes()[..], &sum.to_le_bytes(), payload].concat(),
        Order::Big => [&len.to_be_bytes()[..], &sum.to_be_bytes(), payload].concat(),
    }
}

#[test]
fn a_log_is_recovered_up_to_its_first_bad_record() {
    let (_device, client) = device();
    for order in [Order::Little, Order::Big] {
        let (log, copy) = (open(&client, &format!("/log{order:?}")), open(&client, &format!("/copy{order:?}")));
        let (raw, h, record) = (log.raw(), log.handle(), log_record(order));
        let (mut content, mut starts) = (b"header!!".to_vec(), Vec::new());
        for n in 1..=200usize {
            starts.push(content.len() as u64);
            content.extend(log_entry(order, &vec![n as u8; n * 7]));
        }
        log.write_all_at(&content, 0).unwrap();
        let mut offsets = [0; 300];
        let found = raw.log_recover(h, (8, 1 << 20), record, &mut offsets, None).unwrap();
        assert_eq!((found.records, found.end), (200, content.len() as u64));
        assert_eq!(offsets[..200], starts[..]);
        assert_eq!(offsets[200..], [0; 100]);
        // A flipped bit in the 150th: the 149 before it are what there is.
        log.write_all_at(b"\xff", starts[149] + 20).unwrap();
        let at = Some((copy.handle(), At::Offset(3)));
        let found = raw.log_recover(h, (8, 1 << 20), record, &mut [], at).unwrap();
        assert_eq!((found.records, found.end), (149, starts[149]));
        let copied = client.read(format!("/copy{order:?}")).unwrap();
        assert!(copied[3..] == content[8..starts[149] as usize]);
        // Cut within the third, a room for two, from the second on, nothing there, nothing sound.
        log.set_len(starts[2] + 9).unwrap();
        assert_eq!(raw.log_recover(h, (8, 1 << 20), record, &mut offsets, None).unwrap().records, 2);
        assert_eq!(raw.log_recover(h, (8, 1 << 20), record, &mut offsets[..1], None).unwrap().end, starts[1]);
        assert_eq!(raw.log_recover(h, (starts[1], 1 << 20), record, &mut [], None).unwrap().records, 1);
        assert_eq!(raw.log_recover(h, (1 << 30, 1 << 20), record, &mut [], None).unwrap().records, 0);
        let found = raw.log_recover(h, (0, 1 << 20), record, &mut [], None).unwrap();
        assert_eq!((found.records, found.end), (0, 0));
        let odd = LogRecord { len_at: 6, ..record };
        assert_eq!(raw.log_recover(h, (8, 100), odd, &mut [], None), Err(Errno::INVAL));
        assert_eq!(raw.log_recover(h, (8, 9 << 20), record, &mut [], None), Err(Errno::TOOBIG));
        assert_eq!(raw.log_recover(h, (8, u64::MAX), record, &mut [], None), Err(Errno::FBIG));
    }
}

#[test]
fn checksummed_frames_are_compositions() {
    // The catalogue's ops compose: a frame, and its checksum over what lies in the file.
    let (_device, client) = device();
    let file = open(&client, "/f");
    let (raw, h) = (file.raw(), file.handle());
    let frame = raw.compress_write(h, At::End, Codec::Zstd, b"content").unwrap();
    let mut stored = vec![0; frame.len as usize];
    file.read_exact_at(&mut stored, frame.offset).unwrap();
    let form = Summing { kind: SumKind::Crc32, order: Order::Big, place: SumPlace::Header };
    let done = raw.append_checksum(h, form, &stored).unwrap();
    let frame = Frame { offset: done.offset + 4, ..frame };
    let mut room = [0; 7];
    assert_eq!(raw.read_decompress(h, frame, Codec::Zstd, &mut room), Ok(7));
    assert_eq!(&room, b"content");
}

#[test]
fn a_short_last_unit_is_the_end_of_its_file_or_refused() {
    let (_device, client) = device();
    let key = client.key(KeyKind::Xts128, &key_bytes(KeyKind::Xts128)).unwrap();
    let how = Encryption::Units { key: &key, unit: 4096 };
    let long: Vec<u8> = (0..20_000u32).map(|i| (i % 249) as u8).collect();
    for placement in [Placement::Device, Placement::Host] {
        let file = open(&client, &format!("/{placement:?}"));
        let (raw, h) = (file.raw().placement(placement), file.handle());
        let source = open(&client, "/source");
        source.write_all_at(&long, 0).unwrap();
        let check = |len: usize| {
            let mut room = vec![0; len];
            assert_eq!(raw.read_decrypt(h, 0, how, &mut room), Ok(len));
            assert!(room == long[..len], "{placement:?}");
        };
        raw.encrypt_write(h, At::Offset(0), how, &long[..8192 + 100]).unwrap();
        check(8192 + 100);
        // In front of what is left of the unit it would replace, it could not be read again.
        assert_eq!(raw.encrypt_write(h, At::Offset(0), how, &long[..100]).map(drop), Err(Errno::INVAL));
        assert_eq!(raw.encrypt_write(h, At::Offset(4096), how, &long[4096..8000]).map(drop), Err(Errno::INVAL));
        let inside = raw.read_encrypt_write(source.handle(), 0, 4100, (h, At::Offset(0)), how);
        assert_eq!(inside, Err(Errno::INVAL));
        // Behind a short unit, zeros would fill that one up.
        assert_eq!(raw.encrypt_write(h, At::Offset(12_288), how, &long[..4096]).map(drop), Err(Errno::INVAL));
        let behind = raw.read_encrypt_write(source.handle(), 12_288, 4096, (h, At::Offset(12_288)), how);
        assert_eq!(behind, Err(Errno::INVAL));
        check(8192 + 100);
        // The end is replaced by a longer one, and the file goes on from there.
        raw.encrypt_write(h, At::Offset(8192), how, &long[8192..12_288]).unwrap();
        raw.encrypt_write(h, At::Offset(4096), how, &long[4096..8192]).unwrap();
        let rest = raw.read_encrypt_write(source.handle(), 12_288, 10_000, (h, At::Offset(12_288)), how);
        assert_eq!(rest, Ok((20_000 - 12_288, 12_288)));
        check(20_000);
        raw.encrypt_write(h, At::Offset(16_384), how, &long[16_384..20_000]).unwrap();
        check(20_000);
    }
}
