//! Writes to several files, all or nothing: as one command where they are few, else collected by the device until they
//! are committed.

use crate::buf::Payload;
use crate::catalogue::Operand;
use crate::client::Client;
use crate::file::File;
use crate::raw::Raw;
use weldfs_ciscops::flags::Access;
use weldfs_ciscops::program::{Body, Builder, Bytes, FileSlot, Micro, Place, Value};
use weldfs_ciscops::{At, Cqe, Durability, Errno, Handle, Hints, Op, PoolRange};

/// A transaction that the device collects: begin, write (and write again over what was written), commit or abort.
/// `Send` and `Sync`; writes of several threads are collected in the order in which they arrive.
///
/// Nothing of it is seen before the commit, or waited for. It is of one session: gone with it, and
/// with this object if that is dropped before the commit. Memory for what is collected counts as the tenant's pool
/// memory.
#[derive(Debug)]
#[must_use = "dropping it aborts the transaction"]
pub struct Transaction {
    client: Client,
    epoch: u64,
    durability: Durability,
    hints: Hints,
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
            hints: Hints::NONE,
            handle: Handle::from_wire(handle),
            over: false,
        })
    }
}

impl Transaction {
    fn raw(&self) -> Raw<'_> {
        Raw::new(&self.client, self.epoch, self.durability).hints(self.hints)
    }

    /// The same where the commit has these hints: their life is that of all that it writes.
    pub fn hints(mut self, hints: Hints) -> Transaction {
        self.hints = hints;
        self
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

    /// Its handle, and the session that it is of.
    pub(crate) fn of(&self) -> (Handle, u64) {
        (self.handle, self.epoch)
    }

    /// What its commit is to be.
    pub(crate) fn wishes(&self) -> (Durability, Hints) {
        (self.durability, self.hints)
    }

    /// Lets go of it: a command of its handle ends it.
    pub fn into_handle(mut self) -> Handle {
        self.over = true;
        self.handle
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
        Ok(self.multi_write_by_item(writes)?)
    }

    /// `multi_write` with a failure that says which of the writes is to blame, where one is.
    pub fn multi_write_by_item(&self, writes: &[(Handle, At, &[u8])]) -> Result<(), ItemFault> {
        let Some(one) = one_program(writes, self.parts().0.payload_max())? else { return Ok(()) };
        let mut operands: Vec<_> = one.data.iter().map(|data| Operand::In((*data).into())).collect();
        let cqe = self.program(&one.body, &mut operands, |_, _| 0)?;
        cqe.ok().map(drop).map_err(|errno| ItemFault { item: self.item_to_blame(writes, &one.steps, &cqe), errno })
    }

    /// The device names the step that failed; what went wrong before the first step is reported as the first, too. That
    /// is the whole command's (ENOSPC), but for EBADF: then a handle is gone, and it is asked which.
    fn item_to_blame(&self, writes: &[(Handle, At, &[u8])], steps: &[usize], cqe: &Cqe) -> Option<usize> {
        if cqe.micro_failed > 1 {
            return steps.get(usize::from(cqe.micro_failed) - 1).copied();
        }
        if cqe.status != Errno::BADF.0 {
            return None;
        }
        let gone = |item: &usize| self.stat(writes[*item].0).err() == Some(Errno::BADF);
        steps.iter().copied().find(gone).or_else(|| steps.first().copied())
    }
}

/// Several writes as one program.
pub(crate) struct OneProgram<'d> {
    pub(crate) body: Body,
    /// The bytes for its ranges.
    pub(crate) data: Vec<&'d [u8]>,
    /// For each step, the write that it is for.
    steps: Vec<usize>,
}

/// Makes it; none: there is nothing to write.
pub(crate) fn one_program<'d>(
    writes: &[(Handle, At, &'d [u8])],
    payload_max: usize,
) -> Result<Option<OneProgram<'d>>, ItemFault> {
    let mut builder = Builder::new();
    let mut files: Vec<(Handle, FileSlot)> = Vec::new();
    let (mut all, mut steps) = (Vec::new(), Vec::new());
    for (item, (h, at, data)) in writes.iter().enumerate().filter(|(_, (_, _, data))| !data.is_empty()) {
        let bad = |errno| ItemFault { item: Some(item), errno };
        if data.len() > payload_max {
            return Err(bad(Errno::TOOBIG));
        }
        let file = match files.iter().find(|(known, _)| known == h) {
            Some((_, file)) => *file,
            None => {
                let file = builder.take(*h, Access::WRITE);
                files.push((*h, file));
                steps.push(item);
                file
            }
        };
        let place = match *at {
            At::Offset(off) => Place::At(Value::Imm(off)),
            At::End => Place::End,
            At::Current => return Err(bad(Errno::INVAL)),
        };
        let from = Bytes::Pool(builder.pool(u32::try_from(data.len()).map_err(|_| bad(Errno::TOOBIG))?));
        builder.push(Micro::Write { file, place, from, fold: None, at: None });
        steps.push(item);
        all.push(*data);
    }
    if all.is_empty() {
        return Ok(None);
    }
    let body = builder.finish().map_err(|fault| ItemFault {
        item: fault.micro.and_then(|micro| steps.get(usize::from(micro)).copied()),
        errno: fault.errno,
    })?;
    Ok(Some(OneProgram { body, data: all, steps }))
}

/// Why several writes that were one command failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ItemFault {
    /// The write to blame, from 0; `None`: the command as a whole.
    pub item: Option<usize>,
    /// The error.
    pub errno: Errno,
}

impl std::fmt::Display for ItemFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.item {
            Some(item) => write!(f, "item {item}: {}", self.errno),
            None => write!(f, "{}", self.errno),
        }
    }
}

impl std::error::Error for ItemFault {}

impl From<ItemFault> for std::io::Error {
    fn from(fault: ItemFault) -> std::io::Error {
        fault.errno.into()
    }
}

impl From<Errno> for ItemFault {
    fn from(errno: Errno) -> ItemFault {
        ItemFault { item: None, errno }
    }
}

impl From<ItemFault> for Errno {
    fn from(fault: ItemFault) -> Errno {
        fault.errno
    }
}
