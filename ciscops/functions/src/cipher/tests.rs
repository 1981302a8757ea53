//! What holds of keys, data units and records as a whole. The vectors of XTS itself stand beside it.

use super::*;

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hex")).collect()
}

fn key(kind: KeyKind) -> Key {
    let bytes: Vec<u8> = (0..kind.bytes() as u8).map(|i| i.wrapping_mul(37) ^ 0x5a).collect();
    Key::new(kind, &bytes).expect("a sound key")
}

/// NIST SP 800-38D's companion vectors (McGrew and Viega, test cases 1 to 4 and 13 to 16).
#[test]
fn gcm_vectors() {
    let (long, iv) = ("feffe9928665731c6d6a8f9467308308", "cafebabefacedbaddecaf888");
    let zero = "00".repeat(16);
    let plain = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
                 1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255";
    let bound = "feedfacedeadbeeffeedfacedeadbeefabaddad2";
    let cut = &plain[..120];
    let c128 = "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e\
                21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091473f5985";
    let c256 = "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa\
                8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662898015ad";
    let none = "00".repeat(12);
    let (zero2, long2) = (zero.repeat(2), long.repeat(2));
    let cases: [(&str, &str, &str, &str, &str, &str); 8] = [
        (&zero, &none, "", "", "", "58e2fccefa7e3061367f1d57a4e7455a"),
        (&zero, &none, "", &zero, "0388dace60b6a392f328c2b971b2fe78", "ab6e47d42cec13bdf53a67b21257bddf"),
        (long, iv, "", plain, c128, "4d5c2af327cd64a62cf35abd2ba6fab4"),
        (long, iv, bound, cut, &c128[..120], "5bc94fbc3221a5db94fae95ae7121a47"),
        (&zero2, &none, "", "", "", "530f8afbc74536b9a963b4f1c4cb738b"),
        (&zero2, &none, "", &zero, "cea7403d4d606b6e074ec5d3baf39d18", "d0d1c8a799996bf0265b98b5d48ab919"),
        (&long2, iv, "", plain, c256, "b094dac5d93471bdec1a502270e3cc6c"),
        (&long2, iv, bound, cut, &c256[..120], "76fc6ece0f4e1768cddf8853bb2d551b"),
    ];
    for (key, iv, bound, plain, cipher, tag) in cases {
        let kind = if key.len() == 32 { KeyKind::Gcm128 } else { KeyKind::Gcm256 };
        let key = Key::new(kind, &unhex(key)).expect("a key");
        let (plain, bound) = (unhex(plain), unhex(bound));
        let mut record = Vec::new();
        key.seal(unhex(iv).try_into().expect("12 bytes"), &bound, &plain, &mut record).expect("sealed");
        assert_eq!(record, unhex(&format!("{iv}{cipher}{tag}")));
        let mut opened = b"before".to_vec();
        key.open(&bound, &record, &mut opened).expect("authentic");
        assert_eq!(opened, [&b"before"[..], &plain].concat());
    }
}

#[test]
fn a_changed_record_is_refused_whole() {
    for kind in [KeyKind::Gcm128, KeyKind::Gcm256] {
        let (key, mut record) = (key(kind), Vec::new());
        key.seal([7; 12], b"at 4096", b"a record", &mut record).expect("sealed");
        assert_eq!(record.len(), 8 + RECORD_OVERHEAD);
        let mut out = Vec::new();
        for bit in 0..record.len() * 8 {
            let mut bad = record.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(key.open(b"at 4096", &bad, &mut out), Err(Error::Corrupt));
        }
        for len in 0..record.len() {
            assert_eq!(key.open(b"at 4096", &record[..len], &mut out), Err(Error::Corrupt));
        }
        assert_eq!(key.open(b"at 8192", &record, &mut out), Err(Error::Corrupt));
        assert!(out.is_empty(), "nothing of what is not authentic comes out");
        key.open(b"at 4096", &record, &mut out).expect("authentic");
        assert_eq!(out, b"a record");
    }
}

#[test]
fn units_come_back_and_only_in_their_place() {
    for kind in [KeyKind::Xts128, KeyKind::Xts256] {
        let key = key(kind);
        for unit in [512u32, 1024, 2048, 4096] {
            for len in [0, 16, 17, 31, 511, 512, 528, 1024, 4096, 4096 + 16, 2 * 4096 + 100] {
                if (1..UNIT_TAIL_MIN).contains(&(len % unit as usize)) {
                    continue;
                }
                let plain: Vec<u8> = (0..len).map(|i| (i * 3 + i / 256) as u8).collect();
                let mut data = plain.clone();
                key.encrypt_units(9, unit, &mut data).expect("sound lengths");
                assert_eq!(data.len(), len);
                assert!(len == 0 || data != plain);
                let mut elsewhere = data.clone();
                key.decrypt_units(10, unit, &mut elsewhere).expect("sound lengths");
                assert!(len == 0 || elsewhere != plain, "the number of a unit is part of its key");
                key.decrypt_units(9, unit, &mut data).expect("sound lengths");
                assert_eq!(data, plain);
            }
        }
    }
}

#[test]
fn each_unit_stands_for_itself() {
    let key = key(KeyKind::Xts256);
    let mut whole = vec![0x11; 3 * 512 + 40];
    let mut parts = whole.clone();
    key.encrypt_units(100, 512, &mut whole).expect("sound");
    for (n, unit) in (100..).zip(parts.chunks_mut(512)) {
        key.encrypt_units(n, 512, unit).expect("sound");
    }
    assert_eq!(whole, parts);
}

#[test]
fn what_is_not_defined_is_refused() {
    for kind in KeyKind::ALL {
        for len in [0, 15, 16, 24, 31, 32, 33, 63, 64, 65] {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            assert_eq!(Key::new(kind, &bytes).is_ok(), len == kind.bytes(), "{kind:?} of {len} bytes");
        }
    }
    assert_eq!(Key::new(KeyKind::Xts128, &[1; 32]).err(), Some(Error::Invalid), "equal halves");
    let (xts, gcm) = (key(KeyKind::Xts128), key(KeyKind::Gcm128));
    for unit in [0, 1, 16, 256, 511, 513, 4095, 6144, 8192, u32::MAX] {
        assert_eq!(xts.encrypt_units(0, unit, &mut [0; 32]), Err(Error::Invalid));
        assert_eq!(xts.decrypt_units(0, unit, &mut [0; 32]), Err(Error::Invalid));
    }
    for len in [1, 15, 512 + 1, 512 + 15] {
        assert_eq!(xts.encrypt_units(0, 512, &mut vec![0; len]), Err(Error::Invalid), "a tail below a block");
    }
    assert_eq!(xts.encrypt_units(u64::MAX, 512, &mut [0; 1024]), Err(Error::Invalid), "numbers end");
    assert_eq!(gcm.encrypt_units(0, 512, &mut [0; 512]), Err(Error::Invalid));
    let mut out = Vec::new();
    assert_eq!(xts.seal([0; 12], b"", b"x", &mut out), Err(Error::Invalid));
    assert_eq!(xts.open(b"", &[0; 64], &mut out), Err(Error::Invalid));
    assert!(out.is_empty());
}

#[test]
fn a_key_wears_out() {
    let key = key(KeyKind::Gcm128);
    key.seals.store(SEALS_MAX - 1, Ordering::Relaxed);
    let mut out = Vec::new();
    assert_eq!(key.seal([0; 12], b"", b"", &mut out), Ok(()));
    for _ in 0..3 {
        assert_eq!(key.seal([1; 12], b"", b"", &mut out), Err(Error::KeyWornOut));
    }
    assert_eq!(out.len(), RECORD_OVERHEAD);
}

#[test]
fn a_key_shows_nothing_of_itself() {
    assert_eq!(format!("{:?}", key(KeyKind::Xts256)), "Key(Xts256)");
    fn zeroised<T: zeroize::ZeroizeOnDrop>() {}
    // What the schedules are made of wipes itself; this does not compile without the crates' zeroize features.
    zeroised::<Aes128>();
    zeroised::<Aes256>();
}
