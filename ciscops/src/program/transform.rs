//! Codecs and ciphers in programs. The functions are those of `weldfs_functions`: part of a build that has the features
//! `codecs` and `ciphers` (a device's), and EOPNOTSUPP elsewhere. Keys and randomness come from the Target.

use super::machine::Machine;
use super::operand::{BufSlot, Transform};
use crate::Errno;
use crate::target::Target;

#[cfg(any(feature = "codecs", feature = "ciphers"))]
fn errno(e: weldfs_functions::Error) -> Errno {
    use weldfs_functions::Error;
    match e {
        Error::TooBig => Errno::TOOBIG,
        Error::Corrupt => Errno::BADMSG,
        Error::Invalid => Errno::INVAL,
        Error::KeyWornOut => Errno::KEYEXPIRED,
    }
}

impl<F: Copy> Machine<'_, F> {
    pub(super) async fn transform<T: Target<File = F>>(
        &mut self,
        buf: BufSlot,
        from: BufSlot,
        how: Transform,
        t: &mut T,
    ) -> Result<(), Errno> {
        match how {
            #[cfg(feature = "codecs")]
            Transform::Compress(codec) => self.compress(buf, from, codec, t).await,
            #[cfg(feature = "codecs")]
            Transform::Decompress(codec) => self.decompress(buf, from, codec, t).await,
            #[cfg(feature = "ciphers")]
            Transform::EncryptUnits { key, unit_log, first } => {
                self.units(buf, from, (key, 1 << unit_log, self.value(first)?), true, t).await
            }
            #[cfg(feature = "ciphers")]
            Transform::DecryptUnits { key, unit_log, first } => {
                self.units(buf, from, (key, 1 << unit_log, self.value(first)?), false, t).await
            }
            #[cfg(feature = "ciphers")]
            Transform::Seal { key, bound } => self.record(buf, from, key, bound, true, t),
            #[cfg(feature = "ciphers")]
            Transform::Open { key, bound } => self.record(buf, from, key, bound, false, t),
            #[cfg(not(all(feature = "codecs", feature = "ciphers")))]
            _ => {
                let _ = (buf, from, t);
                Err(Errno::OPNOTSUPP)
            }
        }
    }
}

#[cfg(feature = "codecs")]
mod codecs {
    use super::super::operand::Codec;
    use super::*;
    use weldfs_functions::codec::{self, Compressor, Decompressor};

    /// Bytes between two places where others may run: the slowest codec takes 0.1 ms for so many.
    const CODEC_PIECE_BYTES: usize = 16 << 10;

    fn function(codec: Codec) -> codec::Codec {
        match codec {
            Codec::Lz4 => codec::Codec::Lz4,
            Codec::Zstd => codec::Codec::Zstd,
            Codec::Snappy => codec::Codec::Snappy,
        }
    }

    impl<F: Copy> Machine<'_, F> {
        pub(super) async fn compress<T: Target<File = F>>(
            &mut self,
            buf: BufSlot,
            from: BufSlot,
            codec: Codec,
            t: &mut T,
        ) -> Result<(), Errno> {
            let (src, room) = (self.buffer(from)?, self.program.capacity(buf) as usize);
            let mut run = Compressor::new(function(codec), src.len(), room).map_err(errno)?;
            let several = src.len() > CODEC_PIECE_BYTES;
            for chunk in src.chunks(CODEC_PIECE_BYTES) {
                // Before the first of several, too: others may wait for what was held to get here.
                if several {
                    t.boundary(self.index as u16).await?;
                }
                run.update(chunk).map_err(errno)?;
            }
            let out = run.finish().map_err(errno)?;
            self.put_buffer(buf, out)
        }

        pub(super) async fn decompress<T: Target<File = F>>(
            &mut self,
            buf: BufSlot,
            from: BufSlot,
            codec: Codec,
            t: &mut T,
        ) -> Result<(), Errno> {
            let room = self.program.capacity(buf) as usize;
            let mut out = self.empty_buffer(buf)?;
            let src = self.buffer(from)?;
            if src.len() > CODEC_PIECE_BYTES {
                t.boundary(self.index as u16).await?;
            }
            let mut run = Decompressor::new(function(codec), src, room).map_err(errno)?;
            while run.step(&mut out, CODEC_PIECE_BYTES).map_err(errno)? {
                t.boundary(self.index as u16).await?;
            }
            drop(run);
            self.put_buffer(buf, out)
        }
    }
}

#[cfg(feature = "ciphers")]
mod ciphers {
    use super::super::PIECE_BYTES;
    use super::super::operand::Bytes;
    use super::*;
    use crate::target::Source;
    use weldfs_functions::cipher::{NONCE_BYTES, RECORD_OVERHEAD};

    impl<F: Copy> Machine<'_, F> {
        pub(super) async fn units<T: Target<File = F>>(
            &mut self,
            buf: BufSlot,
            from: BufSlot,
            (key, unit, first): (u64, u32, u64),
            encrypt: bool,
            t: &mut T,
        ) -> Result<(), Errno> {
            let key = t.key(key)?;
            let mut out = self.empty_buffer(buf)?;
            let src = self.buffer(from)?;
            if src.len() > self.program.capacity(buf) as usize {
                return Err(Errno::TOOBIG);
            }
            out.extend_from_slice(src);
            // A last unit that is too short is found before anything is done: pieces are whole units.
            let units = (PIECE_BYTES / unit as usize) as u64;
            let several = out.len() > PIECE_BYTES;
            for (i, part) in out.chunks_mut(PIECE_BYTES).enumerate() {
                if several {
                    t.boundary(self.index as u16).await?;
                }
                let first = first.checked_add(i as u64 * units).ok_or(Errno::INVAL)?;
                let done =
                    if encrypt { key.encrypt_units(first, unit, part) } else { key.decrypt_units(first, unit, part) };
                done.map_err(errno)?;
            }
            self.put_buffer(buf, out)
        }

        pub(super) fn record<T: Target<File = F>>(
            &mut self,
            buf: BufSlot,
            from: BufSlot,
            key: u64,
            bound: Option<Bytes>,
            seal: bool,
            t: &mut T,
        ) -> Result<(), Errno> {
            let key = t.key(key)?;
            let mut out = self.empty_buffer(buf)?;
            let (src, mut int) = (self.buffer(from)?, [0; 8]);
            let bound = match bound.map(|bound| self.source(bound, &mut int)).transpose()? {
                None => &b""[..],
                Some(Source::Private(bytes)) => bytes,
                Some(_) => return Err(Errno::INVAL),
            };
            let longest = if seal { src.len() + RECORD_OVERHEAD } else { src.len().saturating_sub(RECORD_OVERHEAD) };
            if longest > self.program.capacity(buf) as usize {
                return Err(Errno::TOOBIG);
            }
            if seal {
                let mut nonce = [0; NONCE_BYTES];
                t.random(&mut nonce)?;
                key.seal(nonce, bound, src, &mut out).map_err(errno)?;
            } else {
                key.open(bound, src, &mut out).map_err(errno)?;
            }
            self.put_buffer(buf, out)
        }
    }
}
