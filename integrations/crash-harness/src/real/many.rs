//! Several operations of the model as one command of the store.

use super::{Real, at};
use crate::model;
use weldfs_ciscops::program::{Body, Builder, Bytes, FileSlot, Micro, Place, Value};
use weldfs_ciscops::{Command, Cqe, Errno, Handle, Op, OpenFlags, PoolRange, RenameFlags, Sqe};
use zerocopy::IntoBytes;

/// Flags of an open for writing.
fn writing(flags: i32) -> OpenFlags {
    OpenFlags::from_linux(flags & !libc::O_ACCMODE | libc::O_WRONLY)
}

impl Real {
    /// As a program.
    pub fn program(&mut self, ops: &[model::Op]) -> Result<(), i32> {
        self.used = 0;
        let (mut b, mut ranges) = (Builder::new(), Vec::new());
        for op in ops {
            match op {
                model::Op::OpenWriteClose { name, flags, mode, at: place, data } => {
                    let (file, path) = (FileSlot(0), b.string(&name.path));
                    let (base, flags, mode) = (Handle::ROOT, writing(*flags), *mode as u16);
                    b.push(Micro::Open { file, base, path, flags, mode, created: None });
                    let place = match *place {
                        model::At::Offset(off) => Place::At(Value::Imm(off)),
                        _ => Place::End,
                    };
                    let from = Bytes::Pool(b.pool(data.len() as u32));
                    b.push(Micro::Write { file, place, from, fold: None, at: None });
                    b.push(Micro::Close { file });
                    ranges.push(self.put(data));
                }
                model::Op::Rename { from, to, .. } => {
                    let (from, to, base) = (b.string(&from.path), b.string(&to.path), Handle::ROOT);
                    let flags = RenameFlags::empty();
                    b.push(Micro::Rename { from_base: base, from, to_base: base, to, flags });
                }
                _ => return Err(libc::ENOSYS),
            }
        }
        let body = b.finish().map_err(|fault| fault.errno.0)?;
        let at = self.put(&body.bind(&ranges).map_err(|e| e.0)?);
        self.run(Body::op(at)).map(drop)
    }

    /// As elements of a batch; what each of them said.
    pub fn batch(&mut self, ops: &[model::Op]) -> Vec<Result<(), i32>> {
        self.used = 0;
        let count = ops.len() as u32;
        let results = self.put(&vec![0; ops.len() * Cqe::SIZE]);
        let mut entries = Vec::new();
        for (i, op) in ops.iter().enumerate() {
            let model::Op::OpenWriteClose { name, flags, mode, at: place, data } = op else {
                return vec![Err(libc::ENOSYS)];
            };
            let ((base, path), src) = (self.name(name), self.put(data));
            let (flags, mode, at) = (writing(*flags), *mode, at(*place));
            let op = Op::OpenWriteClose { base, path, flags, mode, at, src };
            entries.extend_from_slice(Command::new(i as u64, op).encode().as_bytes());
        }
        let items = self.put(&entries);
        if let Err(e) = self.run(Op::Batch { items, results }) {
            return vec![Err(e)];
        }
        debug_assert_eq!(items.len, count * Sqe::SIZE as u32);
        let one = |i: u32| {
            let mut cqe = Cqe::default();
            let range = PoolRange::new(results.off + i * Cqe::SIZE as u32, Cqe::SIZE as u32);
            cqe.as_mut_bytes().copy_from_slice(&self.direct.take(range));
            if cqe.status == 0 { Ok(()) } else { Err(cqe.status) }
        };
        (0..count).map(one).collect()
    }

    /// As a transaction that is collected and committed.
    pub fn transaction(&mut self, ops: &[model::Op]) -> Result<(), i32> {
        self.used = 0;
        let txn = Handle::from_wire(self.run(Op::TxnBegin)?.result);
        let mut handles = Vec::new();
        let collected = ops.iter().try_for_each(|op| {
            let model::Op::OpenWriteClose { name, flags, at: place, data, .. } = op else {
                return Err(Errno::NOSYS.0);
            };
            let (base, path) = self.name(name);
            let flags = writing(*flags);
            let h = self.run(Op::open(base, path, flags, 0))?.result;
            let h = Handle::from_wire(h);
            handles.push(h);
            let src = self.put(data);
            self.run(Op::TxnWrite { txn, h, at: at(*place), src }).map(drop)
        });
        let ended = match collected {
            Ok(()) => self.run(Op::TxnCommit { txn }).map(drop),
            Err(e) => self.run(Op::TxnAbort { txn }).and(Err(e)),
        };
        handles.into_iter().try_for_each(|h| self.run(Op::Close { h }).map(drop))?;
        ended
    }
}
