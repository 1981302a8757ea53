//! The board of the run's mount: which files the kernel has mapped (`weldfs_ciscops::mapped`).

use crate::{config, mount, report, sys};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use weldfs_ciscops::mapped::BoardView;

static BOARD: OnceLock<Option<BoardView>> = OnceLock::new();

/// Finds the board, when this process comes to the device (under the lock of that).
pub fn begin() {
    let Some(config) = config::get().filter(|_| mount::at_prefix()) else { return };
    let Some(path) = config.board.as_ref().and_then(|path| std::ffi::CString::new(&path[..]).ok()) else { return };
    let view = sys::open(&path, libc::O_RDONLY).and_then(|fd| BoardView::open(fd.as_fd()).map_err(|_| libc::EIO));
    if view.is_err() {
        report::warn(&["files that other programs map are not seen: cannot read WELDFS_MAPPED"]);
    }
    let _ = BOARD.set(view.ok());
}

/// The board, if there is one.
#[inline]
pub fn board() -> Option<&'static BoardView> {
    BOARD.get()?.as_ref()
}

/// As of when it is known what is mapped; 0 without a board.
#[inline]
pub fn stamp() -> u64 {
    board().map_or(0, BoardView::stamp)
}

/// Whether any file is mapped.
pub fn any() -> bool {
    board().is_some_and(BoardView::any)
}
