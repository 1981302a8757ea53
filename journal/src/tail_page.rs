//! The page of the log that its tail lies in (block media): the host's kernel is handed whole pages, for it would first
//! read one that it gets a part of.

use crate::buf::{AlignedBuf, BLOCK};
use crate::{Medium, MediumError};

/// What was written of the page so far; zeros behind that.
#[derive(Default)]
pub(crate) struct TailPage {
    /// Its byte offset on the medium; `None`: what is in it is not known.
    at: Option<u64>,
    bytes: Option<AlignedBuf>,
}

/// Splits `off` into the page that it lies in and where in it.
fn place(off: u64) -> (u64, usize) {
    let within = (off % BLOCK as u64) as usize;
    (off - within as u64, within)
}

impl TailPage {
    /// Puts `bytes` behind what is in the page from `within` on, whatever was there.
    fn fill(&mut self, page: u64, within: usize, bytes: &[u8]) -> &[u8] {
        let all = self.bytes.get_or_insert_with(|| AlignedBuf::zeroed(BLOCK));
        all[within..within + bytes.len()].copy_from_slice(bytes);
        all[within + bytes.len()..].fill(0);
        self.at = Some(page);
        all
    }

    /// Takes note of records that were written at `off` by other means.
    pub fn follow(&mut self, off: u64, bytes: &[u8]) {
        let (page, within) = place(off + bytes.len() as u64);
        match bytes.len().checked_sub(within) {
            _ if within == 0 => self.at = None,
            Some(from) => {
                self.fill(page, 0, &bytes[from..]);
            }
            None if self.at == Some(page) => {
                self.fill(page, within - bytes.len(), bytes);
            }
            // Where these records begin is in the middle of a page that is not known.
            None => {}
        }
    }

    /// Hands records over that begin at `off`, in pages that are filled up with zeros: no record lies behind the tail.
    pub fn hand_over(&mut self, medium: &dyn Medium, mut off: u64, mut bytes: &[u8]) -> Result<(), MediumError> {
        let (page, within) = place(off);
        if within > 0 {
            if self.at != Some(page) {
                let all = self.bytes.get_or_insert_with(|| AlignedBuf::zeroed(BLOCK));
                medium.read(page, all)?;
            }
            let n = bytes.len().min(BLOCK - within);
            medium.hand_over(page, self.fill(page, within, &bytes[..n]))?;
            (off, bytes) = (off + n as u64, &bytes[n..]);
        }
        let whole = bytes.len() / BLOCK * BLOCK;
        if whole > 0 {
            medium.hand_over(off, &bytes[..whole])?;
            (off, bytes) = (off + whole as u64, &bytes[whole..]);
        }
        if !bytes.is_empty() {
            medium.hand_over(off, self.fill(off, 0, bytes))?;
        }
        Ok(())
    }
}
