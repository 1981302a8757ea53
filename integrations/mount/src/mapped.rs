//! Which files the kernel has mapped, for the programs of a run: the mount's side of the board.

use std::sync::Arc;
use weldfs_ciscops::Errno;
use weldfs_ciscops::mapped::Board;
use weldfs_locks::Mutex;

/// The board, for whoever maps a file.
pub struct Listing {
    board: Arc<Mutex<Board>>,
}

impl Listing {
    pub fn new(board: Board) -> Listing {
        Listing { board: Arc::new(Mutex::new(board)) }
    }

    /// A mapping of a file. ENFILE: as many are as can be listed.
    pub fn list(&self, ino: u64) -> Result<Listed, Errno> {
        self.board.lock().add(ino)?;
        Ok(Listed { board: self.board.clone(), ino })
    }
}

/// A mapping's line on the board, for as long as the kernel has the file open for it.
pub struct Listed {
    board: Arc<Mutex<Board>>,
    ino: u64,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.board.lock().remove(self.ino);
    }
}
