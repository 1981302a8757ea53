//! The kinds of checksum, each computed over a stream of chunks.

/// What `Crc32cMasked` adds after rotating, so that a checksum stored among the bytes that are summed up again does not
/// cancel itself out.
const MASK_DELTA: u32 = 0xa282_ead8;

/// Which checksum. Each is 32 bits wide.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Kind {
    /// CRC-32C (Castagnoli), as iSCSI, ext4 and Btrfs use it.
    #[default]
    Crc32c,
    /// The CRC-32 of IEEE 802.3, as gzip, zip and PNG use it.
    Crc32,
    /// CRC-32C, rotated right by 15 bits plus a constant: what LevelDB, RocksDB and the snappy framing format store.
    Crc32cMasked,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 3] = [Kind::Crc32c, Kind::Crc32, Kind::Crc32cMasked];

    /// The checksum of `bytes`.
    #[inline]
    pub fn of(self, bytes: &[u8]) -> u32 {
        let mut sum = Checksum::new(self);
        sum.update(bytes);
        sum.value()
    }
}

/// The masked form of a CRC-32C.
pub const fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(MASK_DELTA)
}

/// The CRC-32C behind its masked form.
#[cfg(test)]
const fn unmask(masked: u32) -> u32 {
    masked.wrapping_sub(MASK_DELTA).rotate_left(15)
}

/// A checksum of some kind being computed over a stream of chunks. Plain numbers: it may be kept and resumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksum {
    kind: Kind,
    /// Of the bytes so far, never masked.
    crc: u32,
    len: u64,
}

impl Checksum {
    /// Of no bytes yet.
    pub const fn new(kind: Kind) -> Checksum {
        Checksum { kind, crc: 0, len: 0 }
    }

    /// Which kind.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Folds in the next bytes.
    #[inline]
    pub fn update(&mut self, chunk: &[u8]) {
        self.crc = match self.kind {
            Kind::Crc32c | Kind::Crc32cMasked => crate::crc32c_append(self.crc, chunk),
            Kind::Crc32 => {
                let mut hasher = crc32fast::Hasher::new_with_initial(self.crc);
                hasher.update(chunk);
                hasher.finalize()
            }
        };
        self.len += chunk.len() as u64;
    }

    /// Bytes folded in so far.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing was folded in.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The checksum, masked if the kind says so.
    pub const fn value(&self) -> u32 {
        match self.kind {
            Kind::Crc32cMasked => mask(self.crc),
            _ => self.crc,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "123456789", the string of every catalogue of CRCs; and the vectors of RFC 3720, appendix B.4.
    #[test]
    fn check_values() {
        assert_eq!(Kind::Crc32c.of(b"123456789"), 0xe306_9283);
        assert_eq!(Kind::Crc32.of(b"123456789"), 0xcbf4_3926);
        assert_eq!(Kind::Crc32cMasked.of(b"123456789"), mask(0xe306_9283));
        let rising: Vec<u8> = (0..32).collect();
        let falling: Vec<u8> = (0..32).rev().collect();
        assert_eq!(Kind::Crc32c.of(&[0; 32]), 0x8a91_36aa);
        assert_eq!(Kind::Crc32c.of(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(Kind::Crc32c.of(&rising), 0x46dd_794e);
        assert_eq!(Kind::Crc32c.of(&falling), 0x113f_db5c);
    }

    #[test]
    fn masking_is_what_the_formats_say() {
        assert_eq!(mask(0xe306_9283), 0xc78a_b0e5, "((crc >> 15) | (crc << 17)) + 0xa282ead8");
        for crc in [0u32, 1, 0xe306_9283, u32::MAX, 0x8000_0000] {
            assert_eq!(unmask(mask(crc)), crc);
            assert_ne!(mask(crc), crc);
        }
    }

    #[test]
    fn any_chunking_gives_the_same_checksum() {
        let data: Vec<u8> = (0..10_000u32).map(|i| (i * 7 + i / 13) as u8).collect();
        for kind in Kind::ALL {
            for cut in [0, 1, 63, 4096, 9_999, 10_000] {
                let (a, b) = data.split_at(cut);
                let mut sum = Checksum::new(kind);
                sum.update(a);
                sum.update(b"");
                sum.update(b);
                assert_eq!((sum.value(), sum.len()), (kind.of(&data), 10_000));
            }
        }
    }
}
