//! What a system cost the medium while the clock ran: the host's counters of the whole disk, and the device's own.
//!
//! The host counts requests by disk, not by file or process: what other programs do on the same disk is in them, too.
//! A loop device counts like a disk. Where a directory is on no block device, nothing is counted.

use crate::micro::sample::{Counts, Seen};
use rustix::fs::{major, minor};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weldfs::Client;

/// Bytes of the sectors that the counters count, whatever the disk's own are.
const SECTOR: u64 = 512;

/// Counters of a disk at one moment (Documentation/admin-guide/iostats of the kernel).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Disk {
    pub(super) flushes: u64,
    pub(super) written: u64,
}

/// Where the disk that a directory lies on is counted; none where it is on no block device.
pub(super) fn of(dir: &Path) -> Option<PathBuf> {
    let device = dir.metadata().ok()?.dev();
    let folder = PathBuf::from(format!("/sys/dev/block/{}:{}", major(device), minor(device)));
    // Flushes are counted for the whole disk only.
    let disk =
        if folder.join("partition").exists() { folder.canonicalize().ok()?.parent()?.to_owned() } else { folder };
    let stat = disk.join("stat");
    parse(&std::fs::read_to_string(&stat).ok()?)?;
    Some(stat)
}

/// Writes are the fifth to the eighth number of the line, flushes the 16th; kernels before 5.5 have none of these.
fn parse(stat: &str) -> Option<Disk> {
    let numbers: Vec<u64> = stat.split_whitespace().map_while(|n| n.parse().ok()).collect();
    Some(Disk { flushes: *numbers.get(15)?, written: numbers.get(6)? * SECTOR })
}

/// What was counted at one moment.
pub(super) struct Look {
    disk: Option<Disk>,
    device: Option<Seen>,
}

/// What was counted in a sample.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    pub(super) disk: Option<Disk>,
    pub(super) device: Option<Counts>,
}

impl Look {
    pub(super) fn now(stat: Option<&Path>, client: Option<&Client>) -> io::Result<Look> {
        let disk = stat.map(std::fs::read_to_string).transpose()?.and_then(|text| parse(&text));
        Ok(Look { disk, device: client.map(Seen::now).transpose()? })
    }

    pub(super) fn until(&self, later: &Look) -> Cost {
        let disk = self.disk.zip(later.disk).map(|(a, b)| Disk {
            flushes: b.flushes.saturating_sub(a.flushes),
            written: b.written.saturating_sub(a.written),
        });
        Cost { disk, device: self.device.as_ref().zip(later.device.as_ref()).map(|(a, b)| a.until(b)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "  64 9 80 14 4510017 53 1430381325 85 0 257 238 736 99 391 198 1315976 156146\n";

    #[test]
    fn flushes_and_bytes_are_taken_from_their_places() {
        assert_eq!(parse(LINE), Some(Disk { flushes: 1_315_976, written: 1_430_381_325 * 512 }));
        assert_eq!(parse("1 2 3 4 5 6 7 8 9 10 11"), None, "an old kernel");
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_cost_is_a_difference_and_nothing_where_nothing_is_counted() {
        let look = |flushes, written| Look { disk: Some(Disk { flushes, written }), device: None };
        let cost = look(10, 1000).until(&look(13, 9000));
        assert_eq!(cost.disk, Some(Disk { flushes: 3, written: 8000 }));
        let none = Look { disk: None, device: None };
        assert!(none.until(&look(13, 9000)).disk.is_none());
        assert_eq!(of(Path::new("/proc")), None);
    }
}
