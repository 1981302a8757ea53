//! What the unit tests of this crate share.

mod medium;

use crate::error::{FsResult, MountError};
use crate::mount::RecoveryReport;
use crate::{MountOptions, Store};
use std::sync::Arc;
use weldfs_journal::Medium;

pub(crate) use medium::TestMedium;

/// Mounts what no fused command was interrupted on: finishing one takes the crate above.
pub(crate) fn mount(
    medium: Arc<dyn Medium>,
    options: MountOptions,
) -> Result<(Arc<Store>, RecoveryReport), MountError> {
    Store::mount(medium, options, none_is_open)
}

fn none_is_open(store: &Store, _: &mut RecoveryReport) -> FsResult<()> {
    assert_eq!(store.txns.len(), 0, "a transaction was interrupted: this test belongs to weldfs-fs");
    Ok(())
}
