//! Payloads with a checksum beside them.

use super::run::Operand;
use super::{Placement, SumPlace, Summing};
use crate::buf::{Payload, Room};
use crate::raw::Raw;
use std::io::IoSlice;
use weldfs_ciscops::catalogue::{AppendChecksum, SUM_BYTES, VerifyChecksum, WriteChecksum};
use weldfs_ciscops::{At, Cqe, Errno, Handle, functions};

/// A payload with its checksum in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Where the record begins in the file, bytes: at its checksum if that is the header, else at its payload.
    pub offset: u64,
    /// The checksum.
    pub checksum: u32,
}

impl Raw<'_> {
    /// Appends a payload with its checksum, of any kind, in either byte order, before or behind it. EBADF when the
    /// handle was not opened for writing, E2BIG above 1 MiB. For the usual form [`Raw::append_checksum_write`] is
    /// faster.
    pub fn append_checksum<'p>(&self, h: Handle, sum: Summing, data: impl Into<Payload<'p>>) -> Result<Record, Errno> {
        let data = data.into();
        if self.computes_on_host() {
            return self.write_record(h, At::End, sum, &data);
        }
        let template = AppendChecksum { h, len: length(&data)?, sum };
        self.fused(&template, &mut [Operand::In(data)]).map(record)
    }

    /// Writes a payload with its checksum at `offset`. A handle opened with APPEND gets it at the end all the same.
    /// Errors as of [`Raw::append_checksum`].
    pub fn write_checksum<'p>(
        &self,
        h: Handle,
        offset: u64,
        sum: Summing,
        data: impl Into<Payload<'p>>,
    ) -> Result<Record, Errno> {
        let data = data.into();
        if self.computes_on_host() {
            return self.write_record(h, At::Offset(offset), sum, &data);
        }
        let template = WriteChecksum { h, offset, len: length(&data)?, sum };
        self.fused(&template, &mut [Operand::In(data)]).map(record)
    }

    /// Reads the record of `len` payload bytes that begins at `offset`, and compares. Returns the checksum. With a
    /// room (of `len` bytes) the payload comes along; without, only the verdict crosses the link. EBADMSG when the
    /// bytes do not match (the room holds them all the same), ENODATA when the file ends within the record.
    pub fn verify_checksum(
        &self,
        h: Handle,
        offset: u64,
        len: u32,
        sum: Summing,
        room: Option<Room<'_>>,
    ) -> Result<u32, Errno> {
        if room.as_ref().is_some_and(|room| room.len() != len as usize) {
            return Err(Errno::INVAL);
        }
        if self.computes_on_host() {
            return self.read_record(h, offset, len, sum, room);
        }
        let template = VerifyChecksum { h, offset, len, sum, show: room.is_some() };
        let shown = |cqe: &Cqe| match cqe.status {
            0 => len as usize,
            s if s == Errno::BADMSG.0 => len as usize,
            _ => 0,
        };
        let mut operands: Vec<Operand<'_>> = room.into_iter().map(Operand::Out).collect();
        let (_, checksum) = self.template(&template, &mut operands, shown)?.ok()?;
        Ok(checksum as u32)
    }

    /// Payload and checksum as one plain write.
    fn write_record(&self, h: Handle, at: At, sum: Summing, data: &Payload<'_>) -> Result<Record, Errno> {
        let bytes = owned(data)?;
        let checksum = kind(sum).of(&bytes);
        let stored = sum.int().put(checksum.into());
        let stored = &stored[..SUM_BYTES as usize];
        let parts = match sum.place {
            SumPlace::Trailer => [IoSlice::new(&bytes), IoSlice::new(stored)],
            SumPlace::Header => [IoSlice::new(stored), IoSlice::new(&bytes)],
        };
        let written = self.write(h, at, Payload::Gather(&parts))?;
        Ok(Record { offset: written.offset, checksum })
    }

    /// Payload and checksum in one plain read.
    fn read_record(
        &self,
        h: Handle,
        offset: u64,
        len: u32,
        sum: Summing,
        room: Option<Room<'_>>,
    ) -> Result<u32, Errno> {
        let mut record = vec![0; len as usize + SUM_BYTES as usize];
        if self.read(h, At::Offset(offset), &mut record)? < record.len() {
            return Err(Errno::NODATA);
        }
        let (payload, stored) = match sum.place {
            SumPlace::Trailer => record.split_at(len as usize),
            SumPlace::Header => {
                let (stored, payload) = record.split_at(SUM_BYTES as usize);
                (payload, stored)
            }
        };
        if let Some(room) = room {
            fill(room, payload)?;
        }
        let checksum = kind(sum).of(payload);
        if sum.int().get(stored) == u64::from(checksum) { Ok(checksum) } else { Err(Errno::BADMSG) }
    }

    /// Whether the compute part is the caller's.
    pub(super) fn computes_on_host(&self) -> bool {
        self.parts().2.placement == Placement::Host
    }

    /// The same of arithmetic: EOPNOTSUPP in a slot, there is no kernel for it.
    pub(super) fn changes_on_host(&self) -> Result<bool, Errno> {
        if self.parts().2.placement == Placement::Slot { Err(Errno::OPNOTSUPP) } else { Ok(self.computes_on_host()) }
    }
}

fn kind(sum: Summing) -> functions::checksum::Kind {
    use functions::checksum::Kind;
    use weldfs_ciscops::program::SumKind;
    match sum.kind {
        SumKind::Crc32c => Kind::Crc32c,
        SumKind::Crc32 => Kind::Crc32,
        SumKind::Crc32cMasked => Kind::Crc32cMasked,
    }
}

fn record((offset, checksum): (u64, u32)) -> Record {
    Record { offset, checksum }
}

pub(super) fn length(data: &Payload<'_>) -> Result<u32, Errno> {
    u32::try_from(data.len()).map_err(|_| Errno::TOOBIG)
}

/// A payload in ordinary memory.
pub(super) fn owned(data: &Payload<'_>) -> Result<Vec<u8>, Errno> {
    Ok(match data {
        Payload::Bytes(bytes) => bytes.to_vec(),
        Payload::Gather(parts) => parts.iter().flat_map(|part| part.iter().copied()).collect(),
        Payload::Pool(buf, range) => buf.bytes().get(range.clone()).ok_or(Errno::INVAL)?.to_vec(),
    })
}

/// Bytes into a room, which may be longer.
pub(super) fn fill(room: Room<'_>, bytes: &[u8]) -> Result<(), Errno> {
    if bytes.len() > room.len() {
        return Err(Errno::TOOBIG);
    }
    match room {
        Room::Bytes(out) => out[..bytes.len()].copy_from_slice(bytes),
        Room::Pool(buf) => buf.put(0, bytes)?,
        Room::Scatter(parts) => {
            let mut rest = bytes;
            for part in parts.iter_mut() {
                let (now, later) = rest.split_at(rest.len().min(part.len()));
                part[..now.len()].copy_from_slice(now);
                rest = later;
            }
        }
    }
    Ok(())
}
