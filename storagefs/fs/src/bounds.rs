//! What the needs of commands and programs are reckoned with.

use weldfs_ciscops::InodeNo;
use weldfs_store::error::FsResult;
use weldfs_store::{BlockKind, Store};

/// Log bytes of the effects of any command, apart from names, payload and block maps.
pub(super) const LOG_BASE: usize = 1536;
/// Log bytes per block: the effect that maps it, if it lies alone.
pub(super) const LOG_PER_BLOCK: usize = 48;
/// Log bytes of a begin record beside content and groups: the command and what it was resolved to.
pub(super) const LOG_BEGIN: usize = 192;
/// Log bytes of a commit that creates or truncates, apart from names.
pub(super) const LOG_OPEN: usize = 1024;
/// Log bytes of a commit that writes: registers, attributes, an input adopted or a trailer patched.
pub(super) const LOG_COMMIT: usize = 384;

/// Counts, among `count` blocks from `blk` on, those that the file holds already.
pub(super) fn held_blocks(store: &Store, ino: InodeNo, blk: u64, count: u64) -> FsResult<u64> {
    if count == 1 {
        return Ok(store.holds(ino, blk)?.into());
    }
    let mut held = 0;
    store.block_map(ino, blk, count, &mut |_, view| {
        held += u64::from(view.kind != BlockKind::Hole);
        true
    })?;
    Ok(held)
}
