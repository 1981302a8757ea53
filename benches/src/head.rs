//! What a crash leaves in the superblock copies and the log, to be put back as often as a mount is measured.

use std::io;
use weldfs_journal::Medium;
use weldfs_store::superblock::Superblock;

/// Superblock copies and log.
pub struct Head(Vec<(u64, Vec<u8>)>);

impl Head {
    /// As they are now.
    pub fn of(medium: &dyn Medium) -> io::Result<Head> {
        let (sb, _) = Superblock::load(medium).map_err(|e| io::Error::other(e.to_string()))?;
        let copies = sb.geometry.superblocks().map(|b| (b.0 * 4096, 4096));
        let mut parts = Vec::new();
        for (off, len) in copies.into_iter().chain([(sb.geometry.log.start, sb.geometry.log.len)]) {
            let mut bytes = vec![0; len as usize];
            medium.read(off, &mut bytes).map_err(|e| io::Error::other(e.to_string()))?;
            parts.push((off, bytes));
        }
        Ok(Head(parts))
    }

    /// Puts them back.
    pub(crate) fn lay(&self, medium: &dyn Medium) -> io::Result<()> {
        self.0
            .iter()
            .try_for_each(|(off, bytes)| medium.write(*off, bytes))
            .map_err(|e| io::Error::other(e.to_string()))
    }
}
