//! The data writes of an append_checksum_write of 4 KiB and nothing else: what no journal could make cheaper.

use std::io;
use std::time::Instant;
use weldfs_ciscops::{PoolRange, SharedRegion};
use weldfs_media::{ImageKind, create};

/// Blocks gone through in turn: more than the caches hold.
const BLOCKS: u64 = 16_384;

/// Nanoseconds per payload of 4 KiB copied with its checksum to a block, the trailer stored behind it, one fence.
pub(super) fn run(count: u64) -> io::Result<f64> {
    let folder = tempfile::Builder::new().prefix("weldfs-bench-").tempdir_in("/dev/shm")?;
    let path = folder.path().join("data");
    let medium = create(&path, ImageKind::Pmem, (BLOCKS + 1) * 4096, true).map_err(io::Error::other)?;
    let pool = SharedRegion::heap(4096);
    let payload = pool.slice(PoolRange::new(0, 4096))?;
    payload.copy_from(&[0x5a; 4096]);
    let failed = |e: weldfs_journal::MediumError| io::Error::other(e);
    let mut sums = [0];
    // Once through, so that no page is touched for the first time in the measured part.
    for block in 0..=BLOCKS {
        medium.ingest(block * 4096, payload, &mut sums).map_err(failed)?;
    }
    let start = Instant::now();
    for i in 0..count {
        let at = i % BLOCKS * 4096;
        medium.ingest(at, payload, &mut sums).map_err(failed)?;
        medium.store(at + 4096, &sums[0].to_le_bytes()).map_err(failed)?;
        medium.persist(at + 4096, 4).map_err(failed)?;
        medium.barrier().map_err(failed)?;
    }
    Ok(start.elapsed().as_nanos() as f64 / count as f64)
}
