//! Compression and encryption on the way to the file and back, and the recovery of logs.

use super::keys::Key;
use super::run::Operand;
use super::sums::length;
use crate::buf::{Payload, Room};
use crate::raw::{Raw, Written};
use weldfs_ciscops::catalogue::{
    Cipher, CompressWrite, EncryptWrite, LogRecover, ReadDecompress, ReadDecrypt, ReadEncryptWrite, Template, units_fit,
};
use weldfs_ciscops::program::{Codec, Record};
use weldfs_ciscops::{At, Errno, Handle};

/// A compressed payload in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Where it begins, bytes.
    pub offset: u64,
    /// Its bytes.
    pub len: u32,
}

/// How bytes are encrypted.
#[derive(Debug, Clone, Copy)]
pub enum Encryption<'k> {
    /// AES-XTS by data units of 512, 1024, 2048 or 4096 bytes: the file is as long as its plaintext.
    Units {
        /// An XTS key.
        key: &'k Key,
        /// Bytes of a unit.
        unit: u32,
    },
    /// AES-GCM, a record of its own with a random nonce, 28 bytes longer than its plaintext, refused when it was
    /// changed.
    Record {
        /// A GCM key.
        key: &'k Key,
    },
}

impl Encryption<'_> {
    /// For a call of `raw`. ENOKEY when the key is of another session: its name may be another key's there.
    fn cipher(self, raw: &Raw<'_>) -> Result<Cipher, Errno> {
        let (client, epoch, _) = raw.parts();
        let session = if epoch == 0 { client.epoch()? } else { epoch };
        let (Encryption::Units { key, .. } | Encryption::Record { key }) = self;
        if key.session() != session {
            return Err(Errno::NOKEY);
        }
        Ok(match self {
            Encryption::Units { key, unit } => Cipher::Units { key: key.name(), unit },
            Encryption::Record { key } => Cipher::Record { key: key.name() },
        })
    }
}

/// What the sound beginning of a log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovered {
    /// Good records.
    pub records: u64,
    /// Where the last of them ends, bytes.
    pub end: u64,
}

impl Raw<'_> {
    /// Compresses a payload into one frame (lz4 frame, zstd frame, snappy framed stream, as `lz4`, `zstd` and snappy
    /// tools read them) and writes that; returns where it lies and its length, which the frame does not say. E2BIG
    /// from some 1,040,000 bytes on. EOPNOTSUPP on the host without the feature `compute`.
    pub fn compress_write<'p>(
        &self,
        h: Handle,
        at: At,
        codec: Codec,
        data: impl Into<Payload<'p>>,
    ) -> Result<Frame, Errno> {
        let data = data.into();
        let template = CompressWrite { h, at, codec, len: length(&data)? };
        if self.computes_on_host() {
            template.body()?;
            let frame = host::compress(codec, &data)?;
            let offset = self.write(h, at, &frame)?.offset;
            return Ok(Frame { offset, len: frame.len() as u32 });
        }
        let (offset, len) = self.fused(&template, &mut [Operand::In(data)])?;
        Ok(Frame { offset, len: len as u32 })
    }

    /// Reads a frame and decompresses it; returns the bytes of content. E2BIG when there are more than the room holds,
    /// EBADMSG when the frame is damaged or of another format, ENODATA when the file ends within it.
    pub fn read_decompress(&self, h: Handle, frame: Frame, codec: Codec, room: &mut [u8]) -> Result<usize, Errno> {
        let size = u32::try_from(room.len()).map_err(|_| Errno::TOOBIG)?;
        let template = ReadDecompress { h, offset: frame.offset, len: frame.len, codec, room: size };
        if self.computes_on_host() {
            template.body()?;
            let stored = self.read_whole(h, frame.offset, frame.len as usize)?;
            let content = host::decompress(codec, &stored, room.len())?;
            room[..content.len()].copy_from_slice(&content);
            return Ok(content.len());
        }
        Ok(self.fused(&template, &mut [Operand::Out(Room::Bytes(room))])? as usize)
    }

    /// Encrypts a payload and writes the ciphertext; plaintext and key are never on the medium. Units: at an offset
    /// that is a multiple of the unit, and the last unit is whole or has 16 bytes at least; a short one is the end of
    /// its file, which must not go on behind it nor end in a short unit before it (EINVAL, nothing is written). Not for
    /// handles opened with APPEND. ENOKEY when the key is of another session, EINVAL when it is for the other cipher,
    /// E2BIG above 1 MiB.
    pub fn encrypt_write<'p>(
        &self,
        h: Handle,
        at: At,
        how: Encryption<'_>,
        data: impl Into<Payload<'p>>,
    ) -> Result<Written, Errno> {
        let data = data.into();
        let len = data.len();
        let template = EncryptWrite { h, at, len: length(&data)?, cipher: how.cipher(self)? };
        if self.computes_on_host() {
            template.body()?;
            self.units_fit(h, at, len, how)?;
            let stored = host::encrypt(how, at, super::sums::owned(&data)?)?;
            return Ok(Written { len, offset: self.write(h, at, &stored)?.offset });
        }
        let offset = self.fused(&template, &mut [Operand::In(data)])?;
        Ok(Written { len, offset })
    }

    /// Reads what [`Raw::encrypt_write`] wrote; returns the bytes of plaintext. Units: any bytes from any offset,
    /// fewer only where the file ends; what was changed comes out as something else. A record: the room has the
    /// plaintext's length, and EBADMSG says that the record was changed or the key is another; ENODATA when the file
    /// ends within it.
    pub fn read_decrypt(&self, h: Handle, offset: u64, how: Encryption<'_>, room: &mut [u8]) -> Result<usize, Errno> {
        let len = u32::try_from(room.len()).map_err(|_| Errno::TOOBIG)?;
        let template = ReadDecrypt { h, offset, len, cipher: how.cipher(self)? };
        if self.computes_on_host() {
            template.body()?;
            let plain = match how {
                Encryption::Record { .. } => {
                    let stored = self.read_whole(h, offset, template.cipher.stored(len) as usize)?;
                    host::decrypt(how, 0, stored)?
                }
                Encryption::Units { unit, .. } => {
                    let skip = offset % u64::from(unit);
                    let around = (skip + u64::from(len)).next_multiple_of(unit.into());
                    let mut stored = vec![0; around as usize];
                    let n = self.read(h, At::Offset(offset - skip), &mut stored)?;
                    stored.truncate(n);
                    let mut plain = host::decrypt(how, (offset - skip) / u64::from(unit), stored)?;
                    plain.drain(..n.min(skip as usize));
                    plain.truncate(len as usize);
                    plain
                }
            };
            room[..plain.len()].copy_from_slice(&plain);
            return Ok(plain.len());
        }
        Ok(self.fused(&template, &mut [Operand::Out(Room::Bytes(room))])? as usize)
    }

    /// Reads up to `len` bytes of plaintext from a file, encrypts them, and writes the ciphertext to another file or,
    /// with units, in its place. Returns the bytes of plaintext, and where the ciphertext went. Errors as of
    /// [`Raw::encrypt_write`].
    pub fn read_encrypt_write(
        &self,
        from: Handle,
        offset: u64,
        len: u32,
        (to, at): (Handle, At),
        how: Encryption<'_>,
    ) -> Result<(u32, u64), Errno> {
        let template = ReadEncryptWrite { from, offset, len, to, at, cipher: how.cipher(self)? };
        if self.computes_on_host() {
            template.body()?;
            let mut plain = vec![0; len as usize];
            let n = self.read(from, At::Offset(offset), &mut plain)?;
            plain.truncate(n);
            self.units_fit(to, at, n, how)?;
            let stored = host::encrypt(how, at, plain)?;
            return Ok((n as u32, self.write(to, at, &stored)?.offset));
        }
        let (n, at) = self.fused(&template, &mut [])?;
        Ok((n as u32, at))
    }

    /// Walks over the records of a log, at most 8 MiB (E2BIG) and 65,536 records from `offset` on, and stops at the
    /// first that is cut, empty or does not match its checksum. `offsets` gets where the good ones begin; when it is
    /// full (and not empty) the walk ends. With `copy` the good ones are then written to another file, in the same
    /// command. EINVAL when `record` describes none. There is no host form: EOPNOTSUPP.
    pub fn log_recover(
        &self,
        h: Handle,
        (offset, len): (u64, u64),
        record: Record,
        offsets: &mut [u64],
        copy: Option<(Handle, At)>,
    ) -> Result<Recovered, Errno> {
        if self.computes_on_host() {
            return Err(Errno::OPNOTSUPP);
        }
        let count = u32::try_from(offsets.len()).map_err(|_| Errno::TOOBIG)?;
        let template = LogRecover { h, offset, len, record, offsets: count, copy };
        let mut room = vec![0; offsets.len() * 8];
        let mut operands = Vec::new();
        if count > 0 {
            operands.push(Operand::Out(Room::Bytes(&mut room)));
        }
        let (records, end) = self.fused(&template, &mut operands)?;
        for (out, bytes) in offsets.iter_mut().zip(room.chunks_exact(8)).take(records as usize) {
            *out = u64::from_le_bytes(bytes.try_into().map_err(|_| Errno::INVAL)?);
        }
        Ok(Recovered { records, end })
    }

    /// What the device asks in the same command; here another client may get in between.
    fn units_fit(&self, h: Handle, at: At, len: usize, how: Encryption<'_>) -> Result<(), Errno> {
        let (Encryption::Units { unit, .. }, At::Offset(off)) = (how, at) else { return Ok(()) };
        units_fit(self.stat(h)?.size, off, len as u64, unit)
    }

    /// All `len` bytes; ENODATA when the file ends first.
    fn read_whole(&self, h: Handle, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; len];
        if self.read(h, At::Offset(offset), &mut bytes)? < len { Err(Errno::NODATA) } else { Ok(bytes) }
    }
}

/// The compute part on the caller's processor.
#[cfg(feature = "compute")]
mod host {
    use super::*;
    use crate::catalogue::sums::owned;
    use weldfs_ciscops::functions::{Error, cipher, codec};

    fn errno(e: Error) -> Errno {
        match e {
            Error::TooBig => Errno::TOOBIG,
            Error::Corrupt => Errno::BADMSG,
            Error::Invalid => Errno::INVAL,
            Error::KeyWornOut => Errno::KEYEXPIRED,
        }
    }

    fn function(codec: Codec) -> codec::Codec {
        match codec {
            Codec::Lz4 => codec::Codec::Lz4,
            Codec::Zstd => codec::Codec::Zstd,
            Codec::Snappy => codec::Codec::Snappy,
        }
    }

    pub fn compress(codec: Codec, data: &Payload<'_>) -> Result<Vec<u8>, Errno> {
        let bytes = owned(data)?;
        let most = weldfs_ciscops::catalogue::compressed_max(bytes.len() as u32) as usize;
        function(codec).compress(&bytes, most).map_err(errno)
    }

    pub fn decompress(codec: Codec, frame: &[u8], room: usize) -> Result<Vec<u8>, Errno> {
        function(codec).decompress(frame, room).map_err(errno)
    }

    pub fn encrypt(how: Encryption<'_>, at: At, mut plain: Vec<u8>) -> Result<Vec<u8>, Errno> {
        match how {
            Encryption::Units { key, unit } => {
                let At::Offset(offset) = at else { return Err(Errno::INVAL) };
                key.own().encrypt_units(offset / u64::from(unit), unit, &mut plain).map_err(errno)?;
                Ok(plain)
            }
            Encryption::Record { key } => {
                let (mut nonce, mut record) = ([0; cipher::NONCE_BYTES], Vec::new());
                getrandom::fill(&mut nonce).map_err(|_| Errno::IO)?;
                key.own().seal(nonce, b"", &plain, &mut record).map_err(errno)?;
                Ok(record)
            }
        }
    }

    pub fn decrypt(how: Encryption<'_>, first: u64, mut stored: Vec<u8>) -> Result<Vec<u8>, Errno> {
        match how {
            Encryption::Units { key, unit } => {
                key.own().decrypt_units(first, unit, &mut stored).map_err(errno)?;
                Ok(stored)
            }
            Encryption::Record { key } => {
                let mut plain = Vec::new();
                key.own().open(b"", &stored, &mut plain).map_err(errno)?;
                Ok(plain)
            }
        }
    }
}

/// A client that was built light computes no codecs and ciphers.
#[cfg(not(feature = "compute"))]
mod host {
    use super::*;

    pub fn compress(_: Codec, _: &Payload<'_>) -> Result<Vec<u8>, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    pub fn decompress(_: Codec, _: &[u8], _: usize) -> Result<Vec<u8>, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    pub fn encrypt(_: Encryption<'_>, _: At, _: Vec<u8>) -> Result<Vec<u8>, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    pub fn decrypt(_: Encryption<'_>, _: u64, _: Vec<u8>) -> Result<Vec<u8>, Errno> {
        Err(Errno::OPNOTSUPP)
    }
}
