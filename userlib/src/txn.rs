//! Writes to several files, all or nothing: as one command where they are few, else collected by the device until they
//! are committed.

use crate::buf::Payload;
use crate::catalogue::Operand;
use crate::client::Client;
use crate::file::File;
use crate::raw::Raw;
use weldfs_ciscops::flags::Access;
use weldfs_ciscops::program::{Builder, Bytes, FileSlot, Micro, Place, Value};
use weldfs_ciscops::{At, Cqe, Durability, Errno, Handle, Op, PoolRange};

/// A transaction that the device collects: begin, write (and write again over what was written), commit or abort.
/// `Send` and `Sync`; writes of several threads are collected in the order in which they arrive.
///
/// Nobody sees anything of it before the commit, and it holds up nobody. It is of one session: gone with it, and
/// with this object if that is dropped before the commit. Memory for what is collected counts as the tenant's pool
/// memory.
#[derive(Debug)]
#[must_use = "dropping it aborts the transaction"]
pub struct Transaction {
    client: Client,
    epoch: u64,
    durability: Durability,
    handle: Handle,
    over: bool,
}

/// No room comes back.
fn none(_: &Cqe) -> [usize; 0] {
    []
}

impl Client {
    /// Begins a transaction, with this client's durability. EMFILE when the session has 64 of them.
    pub fn transaction(&self) -> Result<Transaction, Errno> {
        let epoch = self.epoch()?;
        let raw = Raw::new(self, epoch, self.default_durability());
        let (handle, _) = raw.call([], [], |[]: [PoolRange; 0], []: [PoolRange; 0]| Op::TxnBegin, none)?.ok()?;
        Ok(Transaction {
            client: self.clone(),
            epoch,
            durability: self.default_durability(),
            handle: Handle::from_wire(handle),
            over: false,
        })
    }
}

impl Transaction {
    fn raw(&self) -> Raw<'_> {
        Raw::new(&self.client, self.epoch, self.durability)
    }

    /// Logs a write: `at` is an offset or the end (as it is at the commit, which is also where a file opened with
    /// APPEND gets all of its writes). A later write over an earlier one counts in its place. The file may be closed
    /// before the commit. Returns how many writes are logged; data above 1 MiB is several.
    ///
    /// Errors: EBADF (not opened for writing, or of another session), E2BIG (256 writes, 4 MiB in all; nothing of this
    /// one is logged then, except whole pieces of data above 1 MiB), ENOMEM.
    pub fn write(&self, file: &File, at: At, data: &[u8]) -> Result<u64, Errno> {
        if file.session() != self.epoch {
            return Err(Errno::BADF);
        }
        self.write_to(file.handle(), at, data)
    }

    /// The same by handle, unchecked: of this session.
    pub fn write_to(&self, h: Handle, at: At, data: &[u8]) -> Result<u64, Errno> {
        let txn = self.handle;
        let mut logged = 0;
        let mut send = |at: At, piece: &[u8]| {
            let build = |[src]: [PoolRange; 1], []: [PoolRange; 0]| Op::TxnWrite { txn, h, at, src };
            (_, logged) = self.raw().call([Payload::Bytes(piece)], [], build, none)?.ok()?;
            Ok::<_, Errno>(())
        };
        let most = self.client.payload_max();
        if data.len() <= most {
            send(at, data)?;
            return Ok(logged);
        }
        for (i, piece) in data.chunks(most).enumerate() {
            let at = match at {
                At::Offset(off) => At::Offset(off.checked_add((i * most) as u64).ok_or(Errno::FBIG)?),
                moving => moving,
            };
            send(at, piece)?;
        }
        Ok(logged)
    }

    /// Makes all of it happen, in the order in which it was written: visible at once, and as durable as the client
    /// says. Returns the bytes written. It is over then, whatever comes of it.
    ///
    /// Errors: those of write, and E2BIG when it is more than 16 files or than fits the log. An error leaves nothing.
    pub fn commit(self) -> Result<u64, Errno> {
        let durability = self.durability;
        self.commit_with(durability)
    }

    /// The same with a durability of its own.
    pub fn commit_with(mut self, durability: Durability) -> Result<u64, Errno> {
        self.over = true;
        let txn = self.handle;
        let raw = self.raw().durability(durability);
        let (bytes, _) =
            raw.call([], [], |[]: [PoolRange; 0], []: [PoolRange; 0]| Op::TxnCommit { txn }, none)?.ok()?;
        Ok(bytes)
    }

    /// Forgets all of it.
    pub fn abort(mut self) -> Result<(), Errno> {
        self.over = true;
        self.end()
    }

    fn end(&self) -> Result<(), Errno> {
        let txn = self.handle;
        let build = |[]: [PoolRange; 0], []: [PoolRange; 0]| Op::TxnAbort { txn };
        self.raw().call([], [], build, none)?.ok().map(drop)
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if !self.over {
            // A session that has gone has forgotten it already.
            let _ = self.end();
        }
    }
}

impl Raw<'_> {
    /// Writes to several files as one command: all of it or nothing, seen together. Each write is at an offset or the
    /// end (in the order given), of at most 1 MiB.
    ///
    /// E2BIG when files (at most 8) and writes together are more than 16: then use a [`Transaction`]. EBADF when one
    /// was not opened for writing. There is nothing to compute: it always runs in the device.
    pub fn multi_write(&self, writes: &[(Handle, At, &[u8])]) -> Result<(), Errno> {
        let mut builder = Builder::new();
        let mut files: Vec<(Handle, FileSlot)> = Vec::new();
        let mut operands = Vec::new();
        for (h, at, data) in writes.iter().filter(|(_, _, data)| !data.is_empty()) {
            let file = match files.iter().find(|(known, _)| known == h) {
                Some((_, file)) => *file,
                None => {
                    let file = builder.take(*h, Access::WRITE);
                    files.push((*h, file));
                    file
                }
            };
            let place = match *at {
                At::Offset(off) => Place::At(Value::Imm(off)),
                At::End => Place::End,
                At::Current => return Err(Errno::INVAL),
            };
            let from = Bytes::Pool(builder.pool(u32::try_from(data.len()).map_err(|_| Errno::TOOBIG)?));
            builder.push(Micro::Write { file, place, from, fold: None, at: None });
            operands.push(Operand::In((*data).into()));
        }
        if operands.is_empty() {
            return Ok(());
        }
        let body = builder.finish()?;
        self.program(&body, &mut operands, |_, _| 0)?.ok().map(drop)
    }
}
