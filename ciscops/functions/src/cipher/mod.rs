//! AES: XTS for data units in place, GCM for records.
//!
//! * **XTS** (IEEE 1619, NIST SP 800-38E) keeps length and place: a file's ciphertext is as long as its plaintext. It
//!   hides content, and does not tell whether it was changed. The data units of a file have all one length, a power of
//!   two from 512 to 4096; unit number n begins at byte n times that. The last may be shorter, with ciphertext
//!   stealing,
//!   but has 16 bytes at least.
//! * **GCM** (NIST SP 800-38D) makes a record of its own: nonce (12 bytes), ciphertext, tag (16 bytes). A record that
//!   was changed is refused as a whole.

mod xts;

use crate::Error;
use aes::{Aes128, Aes256};
use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes128Gcm, Aes256Gcm, Nonce, Tag};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use xts::Xts;

pub(crate) use crate::lengths::TAG_BYTES;
pub use crate::lengths::{NONCE_BYTES, RECORD_OVERHEAD, UNIT_TAIL_MIN};

/// Records that one key may seal with nonces drawn at random (NIST SP 800-38D, 8.3).
const SEALS_MAX: u64 = 1 << 32;

/// What a key is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KeyKind {
    /// AES-128 in XTS: two keys of 16 bytes, for the data and for the tweak, which must differ.
    Xts128,
    /// AES-256 in XTS: two keys of 32 bytes, which must differ.
    Xts256,
    /// AES-128 in GCM: 16 bytes.
    Gcm128,
    /// AES-256 in GCM: 32 bytes.
    Gcm256,
}

impl KeyKind {
    /// Every kind.
    pub const ALL: [KeyKind; 4] = [KeyKind::Xts128, KeyKind::Xts256, KeyKind::Gcm128, KeyKind::Gcm256];

    /// Bytes of such a key.
    pub const fn bytes(self) -> usize {
        match self {
            KeyKind::Xts128 | KeyKind::Gcm256 => 32,
            KeyKind::Xts256 => 64,
            KeyKind::Gcm128 => 16,
        }
    }

    /// Whether it is for data units rather than records.
    pub(crate) const fn is_xts(self) -> bool {
        matches!(self, KeyKind::Xts128 | KeyKind::Xts256)
    }
}

/// A key, expanded and ready. It cannot be copied, compared, printed or taken out again; its memory is overwritten with
/// zeros when it is dropped. `Send` and `Sync`.
pub struct Key {
    kind: KeyKind,
    /// Boxed, so that moving the key leaves no copy behind.
    schedule: Box<Schedule>,
    seals: AtomicU64,
}

#[allow(clippy::large_enum_variant)] // there is one per key, in a box already
// Each variant's ciphers zeroise themselves when dropped (the crates' `zeroize` features).
enum Schedule {
    Xts128(Xts<Aes128>),
    Xts256(Xts<Aes256>),
    Gcm128(Aes128Gcm),
    Gcm256(Aes256Gcm),
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", self.kind)
    }
}

impl Key {
    /// From its bytes, which the caller overwrites afterwards. [`Error::Invalid`] when their number is not the
    /// kind's, or when the halves of an XTS key are the same.
    pub fn new(kind: KeyKind, bytes: &[u8]) -> Result<Key, Error> {
        if bytes.len() != kind.bytes() {
            return Err(Error::Invalid);
        }
        let (data, tweak) = bytes.split_at(bytes.len() / 2);
        if kind.is_xts() && data == tweak {
            return Err(Error::Invalid);
        }
        let wrong = |_| Error::Invalid;
        let schedule = Box::new(match kind {
            KeyKind::Xts128 => Schedule::Xts128(Xts::new(data, tweak)?),
            KeyKind::Xts256 => Schedule::Xts256(Xts::new(data, tweak)?),
            KeyKind::Gcm128 => Schedule::Gcm128(Aes128Gcm::new_from_slice(bytes).map_err(wrong)?),
            KeyKind::Gcm256 => Schedule::Gcm256(Aes256Gcm::new_from_slice(bytes).map_err(wrong)?),
        });
        Ok(Key { kind, schedule, seals: AtomicU64::new(0) })
    }

    /// What it is for.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Encrypts data units in place: `data` begins with unit number `first`, all are `unit` bytes long, the last
    /// perhaps shorter. [`Error::Invalid`] with a GCM key, a unit that is no power of two from 512 to 4096, or a last
    /// unit below 16 bytes.
    pub fn encrypt_units(&self, first: u64, unit: u32, data: &mut [u8]) -> Result<(), Error> {
        let units = units(first, unit, data)?;
        match &*self.schedule {
            Schedule::Xts128(xts) => units.for_each(|(n, bytes)| xts.encrypt(tweak(n), bytes)),
            Schedule::Xts256(xts) => units.for_each(|(n, bytes)| xts.encrypt(tweak(n), bytes)),
            _ => return Err(Error::Invalid),
        }
        Ok(())
    }

    /// Decrypts what `encrypt_units` made, with the same numbers.
    pub fn decrypt_units(&self, first: u64, unit: u32, data: &mut [u8]) -> Result<(), Error> {
        let units = units(first, unit, data)?;
        match &*self.schedule {
            Schedule::Xts128(xts) => units.for_each(|(n, bytes)| xts.decrypt(tweak(n), bytes)),
            Schedule::Xts256(xts) => units.for_each(|(n, bytes)| xts.decrypt(tweak(n), bytes)),
            _ => return Err(Error::Invalid),
        }
        Ok(())
    }

    /// Appends a record to `out`: nonce, `plain` encrypted, tag. The tag covers `bound`, too: bytes that are not in the
    /// record and that whoever opens it must know. The nonce must be drawn at random for this one record: two records
    /// with the same give the plaintext away. [`Error::KeyWornOut`] after 2^32 records, [`Error::Invalid`] with an XTS
    /// key.
    pub fn seal(&self, nonce: [u8; NONCE_BYTES], bound: &[u8], plain: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        if self.kind.is_xts() {
            return Err(Error::Invalid);
        }
        if self.seals.fetch_add(1, Ordering::Relaxed) >= SEALS_MAX {
            self.seals.store(SEALS_MAX, Ordering::Relaxed);
            return Err(Error::KeyWornOut);
        }
        let start = out.len();
        out.reserve(plain.len() + RECORD_OVERHEAD);
        out.extend_from_slice(&nonce);
        out.extend_from_slice(plain);
        let text = &mut out[start + NONCE_BYTES..];
        let nonce = Nonce::from(nonce);
        let sealed = match &*self.schedule {
            Schedule::Gcm128(gcm) => gcm.encrypt_inout_detached(&nonce, bound, text.into()),
            Schedule::Gcm256(gcm) => gcm.encrypt_inout_detached(&nonce, bound, text.into()),
            _ => return Err(Error::Invalid),
        };
        match sealed {
            Ok(tag) => out.extend_from_slice(&tag),
            // Only a plaintext of 64 GiB and more.
            Err(_) => {
                out.truncate(start);
                return Err(Error::TooBig);
            }
        }
        Ok(())
    }

    /// Appends the plaintext of `record` to `out`. [`Error::Corrupt`] (and nothing is appended) when the record or
    /// `bound` is not what was sealed with this key; [`Error::Invalid`] with an XTS key.
    pub fn open(&self, bound: &[u8], record: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        if self.kind.is_xts() {
            return Err(Error::Invalid);
        }
        let (nonce, rest) = record.split_at_checked(NONCE_BYTES).ok_or(Error::Corrupt)?;
        let at = rest.len().checked_sub(TAG_BYTES).ok_or(Error::Corrupt)?;
        let (text, tag) = rest.split_at(at);
        let nonce = <&Nonce<_>>::try_from(nonce).map_err(|_| Error::Corrupt)?;
        let tag = <&Tag>::try_from(tag).map_err(|_| Error::Corrupt)?;
        let start = out.len();
        out.extend_from_slice(text);
        let opened = match &*self.schedule {
            Schedule::Gcm128(gcm) => gcm.decrypt_inout_detached(nonce, bound, (&mut out[start..]).into(), tag),
            Schedule::Gcm256(gcm) => gcm.decrypt_inout_detached(nonce, bound, (&mut out[start..]).into(), tag),
            _ => return Err(Error::Invalid),
        };
        opened.map_err(|_| {
            out.truncate(start);
            Error::Corrupt
        })
    }
}

/// The number of a data unit as the tweak's bytes.
fn tweak(number: u64) -> [u8; 16] {
    u128::from(number).to_le_bytes()
}

/// The data units of `data` with their numbers.
fn units(first: u64, unit: u32, data: &mut [u8]) -> Result<impl Iterator<Item = (u64, &mut [u8])>, Error> {
    let unit = unit as usize;
    let tail = data.len().checked_rem(unit).ok_or(Error::Invalid)?;
    let sound = unit.is_power_of_two() && (512..=4096).contains(&unit) && !(1..UNIT_TAIL_MIN).contains(&tail);
    if !sound || first.checked_add((data.len() / unit) as u64).is_none() {
        return Err(Error::Invalid);
    }
    Ok((first..).zip(data.chunks_mut(unit)))
}

#[cfg(test)]
mod tests;
