//! The seam between the driver and the systems: one thread's way to do a step.

use super::model::Step;
use super::personality::Sequence;
use crate::micro::sample::Counts;
use std::io;

/// One thread's use of a system. Every method is one step of the model.
pub(super) trait Store {
    /// Does what the step says; reads compare the stamp of what they read.
    fn step(&mut self, step: &Step) -> io::Result<()>;
    /// Cuts the log to nothing.
    fn cut_log(&mut self) -> io::Result<()>;
    /// What was counted so far, where the system is one that is counted by its caller.
    fn counts(&self) -> Counts;
}

/// Names of files and of the directory each is in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    pub width: u64,
}

impl Names {
    /// The directory of a file.
    pub(super) fn folder(self, file: u64) -> String {
        format!("d{:05}", file / self.width)
    }

    /// Its path from the root of the tree.
    pub(super) fn path(self, file: u64) -> String {
        format!("{}/f{file:08}", self.folder(file))
    }

    /// The same into a buffer of [`Names::PATH`] bytes, without allocation.
    pub(super) fn write(self, file: u64, into: &mut [u8]) {
        fn digits(mut n: u64, into: &mut [u8]) {
            for digit in into.iter_mut().rev() {
                *digit = b'0' + (n % 10) as u8;
                n /= 10;
            }
        }
        into[0] = b'd';
        digits(file / self.width, &mut into[1..6]);
        into[6..8].copy_from_slice(b"/f");
        digits(file, &mut into[8..16]);
    }

    /// Bytes of a path.
    pub(super) const PATH: usize = 16;
}

/// Name of the log in the root of the tree.
pub(super) const LOG: &str = "log";

/// The first bytes of a file: its number.
pub(super) fn stamp(file: u64) -> [u8; 8] {
    file.to_le_bytes()
}

/// What was read is the file that was meant.
pub(super) fn compare(file: u64, start: &[u8]) -> io::Result<()> {
    if start == stamp(file) {
        return Ok(());
    }
    Err(io::Error::other(format!("what was read is not file {file}: it starts with {start:02x?}")))
}

/// Whether a step's effects are durable at its end.
pub(super) fn durable(what: Sequence) -> bool {
    matches!(what, Sequence::CreateAppend { sync: true } | Sequence::ReadAppendSync)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_write_a_name_agree() {
        let names = Names { width: 20 };
        for file in [0, 19, 20, 85_999] {
            let mut bytes = [0; Names::PATH];
            names.write(file, &mut bytes);
            assert_eq!(String::from_utf8_lossy(&bytes), names.path(file));
        }
        assert!(compare(7, &stamp(7)).is_ok() && compare(7, &stamp(8)).is_err());
    }
}
