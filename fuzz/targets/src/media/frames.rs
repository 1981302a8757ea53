//! Compressed frames and sealed records of any bytes: they come out right, or are refused, within the bound on the
//! output.

use crate::cursor::Cursor;
use crate::{Seed, Target};
use weldfs_functions::cipher::{Key, KeyKind};
use weldfs_functions::codec::Codec;

/// Bytes that may come out.
const LIMIT: usize = 256 << 10;

/// See the module.
pub const TARGET: Target = Target {
    name: "frames",
    about: "compressed frames and sealed records, to whoever opens them",
    run,
    seeds,
    len_max: 4096,
};

fn run(data: &[u8]) {
    let mut data = Cursor(data);
    match data.u8() % 4 {
        3 => sealed(data.rest()),
        i => frame(Codec::ALL[usize::from(i)], data.rest()),
    }
}

fn frame(codec: Codec, bytes: &[u8]) {
    if let Ok(plain) = codec.decompress(bytes, LIMIT) {
        assert!(plain.len() <= LIMIT, "more came out than the bound");
    }
    let packed = codec.compress(bytes, codec.bound(bytes.len())).expect("the bound is enough for any bytes");
    assert_eq!(codec.decompress(&packed, bytes.len()).as_deref(), Ok(bytes), "another content came out");
}

fn sealed(record: &[u8]) {
    let mut out = Vec::new();
    for (kind, bytes) in [(KeyKind::Gcm128, &[3; 16][..]), (KeyKind::Gcm256, &[4; 32])] {
        let key = Key::new(kind, bytes).expect("of the kind's length");
        assert!(key.open(b"bound", record, &mut out).is_err(), "a record that nobody sealed was opened");
    }
    let key = Key::new(KeyKind::Xts128, &std::array::from_fn::<u8, 32, _>(|i| i as u8)).expect("halves differ");
    let mut units = record.to_vec();
    if key.encrypt_units(9, 512, &mut units).is_ok() {
        key.decrypt_units(9, 512, &mut units).expect("what was encrypted");
        assert_eq!(units, record);
    }
}

fn seeds() -> Vec<Seed> {
    let text = b"what is said once is said well, what is said once is said well, and then again".repeat(9);
    let mut all = Vec::new();
    for (i, codec) in Codec::ALL.into_iter().enumerate() {
        for n in [0, 1, 700] {
            let packed = codec.compress(&text[..n], codec.bound(n)).expect("the bound is enough");
            all.push((format!("{codec:?}-{n}").to_lowercase(), [&[i as u8][..], &packed].concat()));
        }
    }
    all.push(("units".into(), [&[3][..], &text[..530]].concat()));
    all
}
