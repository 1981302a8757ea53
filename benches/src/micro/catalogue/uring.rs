//! Linked requests, where there is a request for each step: a copy is a read and a write, what is computed is computed
//! before. Operations whose next step depends on what the last one read are left to plain calls.

use super::*;
use crate::micro::cell::{Cell, Class};
use crate::micro::chains::{Chains, On, Step};
use crate::micro::files::{self, records};
use crate::micro::posix::MODE;
use rustix::fs::OFlags;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Whether there are requests for it.
pub(in crate::micro) fn takes(op: MicroOp) -> bool {
    use MicroOp::*;
    matches!(op, AtomicReplace | CopyRange | Concat | CompressWrite | EncryptWrite | StatMany | MultiWrite)
}

/// What a thread has open.
pub(in crate::micro) struct Work<'a> {
    pub cell: &'a Cell,
    pub run: u64,
    pub folder: &'a OwnedFd,
    pub open: &'a [OwnedFd],
    pub key: Option<&'a Key>,
    /// Payload with room for its stamp.
    pub data: &'a mut [u8],
}

fn name(number: u64) -> [u8; NAME] {
    let mut name = [0; NAME];
    name_of(number, &mut name);
    name
}

impl Work<'_> {
    fn sync(&self, steps: &mut Vec<Step>, file: On, data_only: bool) {
        if self.cell.class == Class::Durable {
            steps.push(Step::Sync { file, data_only });
        }
    }

    /// The requests of operation `i`, with the chain's names and buffer set.
    pub(in crate::micro) fn steps(&mut self, chains: &mut Chains, c: usize, i: u64) -> io::Result<Vec<Step>> {
        let (len, wide, dir) = (self.cell.size, u64::from(self.cell.size), self.folder.as_raw_fd());
        let (record, file) = (pick(i, records(len)), |k: usize| On::Fd(self.open[k].as_raw_fd()));
        let mut steps = Vec::with_capacity(10);
        let write = |file, offset, len| Step::Write { file, from: 0, len, offset };
        match self.cell.op {
            MicroOp::AtomicReplace => {
                let (mut new, number) = ([0; NAME], pick(i, FILES));
                temporary(i, &mut new);
                chains.name(c, &new);
                chains.other_name(c, &name(number));
                files::stamp(chains.buffer(c), number, self.run);
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
                steps.push(Step::Open { dir, flags: flags.bits() as i32, mode: MODE.bits() });
                steps.push(write(On::Opened, 0, len));
                self.sync(&mut steps, On::Opened, false);
                steps.extend([Step::Close, Step::Rename { dir }]);
                self.sync(&mut steps, On::Fd(dir), false);
            }
            MicroOp::CopyRange => {
                steps.push(Step::Read { file: file(0), len, offset: record * wide });
                steps.push(write(file(1), record * wide, len));
                self.sync(&mut steps, file(1), true);
            }
            MicroOp::Concat => {
                for k in 0..PARTS {
                    steps.push(Step::Read { file: file(1 + k as usize), len, offset: 0 });
                    steps.push(write(file(0), (i * PARTS + k) * wide, len));
                }
                self.sync(&mut steps, file(0), true);
            }
            MicroOp::CompressWrite => {
                files::stamp(self.data, record, self.run);
                let frame = compressed(self.data)?;
                chains.buffer(c)[..frame.len()].copy_from_slice(&frame);
                steps.push(write(file(0), record * wide, frame.len() as u32));
                self.sync(&mut steps, file(0), true);
            }
            MicroOp::EncryptWrite => {
                let (number, offset) = layout::encrypted(i, len);
                files::stamp(self.data, number, self.run);
                let room = &mut chains.buffer(c)[..len as usize];
                room.copy_from_slice(self.data);
                encrypt(self.key.ok_or(Errno::INVAL)?, offset, room)?;
                steps.push(write(file(0), offset, len));
                self.sync(&mut steps, file(0), true);
            }
            MicroOp::MultiWrite => {
                files::stamp(chains.buffer(c), pick(i, (records(len) / PARTS).max(1)), self.run);
                let at = layout::part_offset(i, len);
                steps.extend((0..self.open.len()).map(|k| write(file(k), at, len)));
                (0..self.open.len()).for_each(|k| self.sync(&mut steps, file(k), true));
            }
            MicroOp::StatMany => {
                chains.name(c, &name(pick(i, FILES)));
                steps.push(Step::Stat { dir });
            }
            op => return Err(io::Error::new(io::ErrorKind::Unsupported, op.name())),
        }
        Ok(steps)
    }

    /// Whether what a chain answered is what it should be.
    pub(in crate::micro) fn look(&self, chains: &Chains, c: usize) -> io::Result<()> {
        let wide = u64::from(self.cell.size);
        match self.cell.op {
            MicroOp::StatMany if chains.stat_size(c) != wide => Err(io::Error::other("a name has another size")),
            _ => Ok(()),
        }
    }
}

/// Copies of names per operation.
pub(in crate::micro) fn names(op: MicroOp) -> u64 {
    match op {
        MicroOp::AtomicReplace => 3,
        // The name, and the attributes.
        MicroOp::StatMany => 2,
        _ => 0,
    }
}
