//! Log bytes onto a byte-addressable medium, and the flush of any.

use crate::canary::{Canary, planted};
use crate::limits::RECORD_HEADER_BYTES;
use crate::record::RawHeader;
use crate::{JournalError, LogArea, Lsn, Medium};
use zerocopy::IntoBytes;

/// Records up to this size are assembled on the stack and stored in one call, bytes.
const SMALL_RECORD: usize = 1024;

pub(crate) fn store_record(
    medium: &dyn Medium,
    off: u64,
    header: &RawHeader,
    parts: &[&[u8]],
) -> Result<(), JournalError> {
    match header.length.get() as usize + RECORD_HEADER_BYTES {
        0..=256 => store_small::<256>(medium, off, header, parts),
        257..=SMALL_RECORD => store_small::<SMALL_RECORD>(medium, off, header, parts),
        _ => {
            medium.store(off, header.as_bytes())?;
            let mut at = off + RECORD_HEADER_BYTES as u64;
            for p in parts {
                medium.store(at, p)?;
                at += p.len() as u64;
            }
            Ok(())
        }
    }
}

/// A record of at most `N` bytes, in one call.
fn store_small<const N: usize>(
    medium: &dyn Medium,
    off: u64,
    header: &RawHeader,
    parts: &[&[u8]],
) -> Result<(), JournalError> {
    let mut small = [0u8; N];
    small[..RECORD_HEADER_BYTES].copy_from_slice(header.as_bytes());
    let mut at = RECORD_HEADER_BYTES;
    for p in parts {
        small[at..at + p.len()].copy_from_slice(p);
        at += p.len();
    }
    Ok(medium.store(off, &small[..at])?)
}

/// Write-back of the log between two positions at most a lap apart (nothing on block media).
pub(crate) fn persist_range(medium: &dyn Medium, area: &LogArea, from: Lsn, to: Lsn) -> Result<(), crate::MediumError> {
    if planted(Canary::FlushSkipped) {
        return Ok(());
    }
    let mut at = from;
    while at < to {
        let stop = area.next_lap(at).min(to);
        medium.persist(area.physical(at), stop.0 - at.0)?;
        at = stop;
    }
    Ok(())
}

/// The one place that issues the journal's flushes.
pub(crate) fn barrier(medium: &dyn Medium) -> Result<(), crate::MediumError> {
    if planted(Canary::FlushSkipped) { Ok(()) } else { medium.barrier() }
}
