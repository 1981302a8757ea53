//! concat: whole files, one behind the other, appended to a file.

use super::template::{Template, fault};
use crate::limits::PROGRAM_WRITE_MAX;
use crate::program::{Body, Builder, Fault, Micro, Place, Value};
use crate::{Access, Errno, Handle};

/// Files that one command appends.
pub const CONCAT_MAX: usize = 4;

/// Appends whole files, in order, to another. No pool ranges. Results: the target's size before, and after.
///
/// All of them or none. The files together may have PROGRAM_WRITE_MAX bytes, each its equal share of it: E2BIG. The
/// device asks for room for that many before it begins, whatever the files have: ENOSPC. EINVAL
/// when there are none or more than [`CONCAT_MAX`]; EBADF when a source was not opened for reading or `to` not for
/// both.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Concat<'a> {
    /// The sources.
    pub from: &'a [Handle],
    /// The target.
    pub to: Handle,
}

impl Template for Concat<'_> {
    /// The length of the target before and after, bytes.
    type Answer = (u64, u64);

    fn body(&self) -> Result<Body, Fault> {
        if self.from.is_empty() || self.from.len() > CONCAT_MAX {
            return Err(fault(Errno::INVAL, "1 to 4 files are appended at once"));
        }
        let share = PROGRAM_WRITE_MAX / self.from.len() as u64 / PIECE * PIECE;
        let mut b = Builder::new();
        let to = b.take(self.to, Access::READ | Access::WRITE);
        let (before, after, size) = (b.register(), b.register(), b.register());
        b.push(Micro::Size { file: to, to: before });
        for h in self.from {
            let from = b.take(*h, Access::READ);
            b.push(Micro::Size { file: from, to: size });
            let (off, len) = (Value::Imm(0), Value::Reg(size));
            b.push(Micro::CopyRange { from, off, len, max: share as u32, to, place: Place::End, count: None });
        }
        b.push(Micro::Size { file: to, to: after });
        b.results(Some(before), Some(after));
        b.finish()
    }

    fn answer(results: (u64, u64)) -> Self::Answer {
        results
    }
}

const PIECE: u64 = crate::program::PIECE_BYTES as u64;
