//! append_and_rotate: append a payload to a log by its name; a log that would become too long is put aside first.

use super::template::Template;
use crate::Handle;
use crate::flags::{OpenFlags, RenameFlags};
use crate::program::{Arith, Body, Builder, Bytes, Cond, Else, Fault, Micro, Place, Relation, Value};

/// Appends a payload to the file called `path`, which is made if it is not there. If the file has bytes, and would have
/// more than `limit` afterwards, it is renamed to `old` first (what was called so is gone), and the payload is the
/// beginning of a new file. Pool ranges: the payload. Results: its offset, and 1 if the file was renamed, else 0.
///
/// A MacroTx: others, and recovery after a crash, see all of it or nothing; so any number of processes append to one
/// log, and none of them has to be told that it was put aside. (Not on a directory of the host, which takes nothing
/// back.) Handles on the old file go on naming that. ELOOP when `path` is a symbolic link; when it is to be put aside,
/// EEXIST if both names are the same file's, and EACCES for a caller that may write the log and not its directory; else
/// the errors of open, write and rename.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppendAndRotate<'a> {
    /// Directory to start from.
    pub base: Handle,
    /// The log.
    pub path: &'a [u8],
    /// What it is called when it has been put aside.
    pub old: &'a [u8],
    /// Bytes that it has at most, unless one payload alone is longer.
    pub limit: u64,
    /// Permission bits of a file that is made, after the umask.
    pub mode: u16,
    /// Bytes of the payload.
    pub len: u32,
}

/// What [`AppendAndRotate`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// Where the payload begins in the file, bytes.
    pub offset: u64,
    /// Whether it is the beginning of a new file, and the one before has been put aside.
    pub rotated: bool,
}

impl Template for AppendAndRotate<'_> {
    type Answer = Appended;

    fn body(&self) -> Result<Body, Fault> {
        let mut b = Builder::new();
        let (base, mode) = (self.base, self.mode);
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::NOFOLLOW;
        let file = b.open(base, self.path, flags, mode);
        let (size, rotated) = (b.register(), b.register());
        b.push(Micro::Size { file, to: size });
        let put = |n| Micro::Arith { to: rotated, a: Value::Imm(n), op: Arith::Add, b: Value::Imm(0) };
        b.push(put(0));
        // More than the limit afterwards; and not of an empty file, however long the payload is.
        let fits = self.limit.saturating_sub(self.len.into());
        let too_long = Cond::Compare(Value::Reg(size), Relation::Gt, Value::Imm(fits));
        b.guard(too_long, Else::Skip(4));
        let (from, to) = (b.string(self.path), b.string(self.old));
        b.push(Micro::Rename { from_base: base, from, to_base: base, to, flags: RenameFlags::empty() });
        b.push(Micro::Close { file });
        b.push(Micro::Open { file, base, path: from, flags: flags | OpenFlags::EXCL, mode, created: None });
        b.push(put(1));
        let payload = Bytes::Pool(b.pool(self.len));
        let at = b.write(file, Place::End, payload);
        b.results(Some(at), Some(rotated));
        b.finish()
    }

    fn answer((offset, rotated): (u64, u64)) -> Appended {
        Appended { offset, rotated: rotated != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Errno;
    use crate::limits::ATOMIC_WRITE_MAX;

    const OP: AppendAndRotate<'_> =
        AppendAndRotate { base: Handle::ROOT, path: b"log", old: b"log.1", limit: 100, mode: 0o640, len: 7 };

    #[test]
    fn what_is_passed_by_is_what_puts_the_log_aside() {
        let body = OP.body().unwrap();
        let [_, _, _, Micro::Guard { cond, otherwise: Else::Skip(4) }, aside @ .., Micro::Write { .. }] =
            body.program().micros()
        else {
            panic!("{:?}", body.program().micros())
        };
        assert!(matches!(cond, Cond::Compare(Value::Reg(_), Relation::Gt, Value::Imm(93))), "{cond:?}");
        let [Micro::Rename { .. }, Micro::Close { .. }, Micro::Open { flags, .. }, Micro::Arith { .. }] = aside else {
            panic!("{aside:?}")
        };
        assert!(flags.contains(OpenFlags::EXCL), "what is written to is new");
        assert!(!body.program().is_durable(), "unless it is asked for");
    }

    #[test]
    fn odd_operands_are_refused_by_name_or_are_a_program() {
        let errno = |op: AppendAndRotate<'_>| op.body().err().map(|fault| fault.errno);
        for limit in [0, 6, 7, u64::MAX] {
            assert_eq!(errno(AppendAndRotate { limit, ..OP }), None);
        }
        assert_eq!(errno(AppendAndRotate { len: 0, ..OP }), None);
        assert_eq!(errno(AppendAndRotate { len: ATOMIC_WRITE_MAX, ..OP }), None);
        assert_eq!(errno(AppendAndRotate { len: ATOMIC_WRITE_MAX + 1, ..OP }), Some(Errno::TOOBIG));
        assert_eq!(errno(AppendAndRotate { path: b"", ..OP }), Some(Errno::NOENT));
        assert_eq!(errno(AppendAndRotate { old: b"", ..OP }), Some(Errno::NOENT));
        assert_eq!(errno(AppendAndRotate { old: b"a\0b", ..OP }), Some(Errno::INVAL));
        assert_eq!(errno(AppendAndRotate { old: &[b'x'; 256], ..OP }), Some(Errno::NAMETOOLONG));
        assert_eq!(errno(AppendAndRotate { mode: 0o10000, ..OP }), Some(Errno::INVAL));
    }
}
