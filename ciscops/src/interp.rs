//! The interpreter: runs a command over a Target, micro-op by micro-op, operands flowing between them. A single op is
//! a program of one. Nothing here knows how files are kept.

use crate::bodies::SetAttrBody;
use crate::catalogue::{self, From, Micro, Span, Spot, To};
use crate::command::{At, Command, Modify, Op};
use crate::dirent::DirentWriter;
use crate::flags::{Access, ChecksumKind, SetAttrMask};
use crate::limits::FILE_OFFSET_MAX;
use crate::paths::Paths;
use crate::program;
use crate::target::{Opened, Sink, Source, Target, Written};
use crate::{Cqe, Errno, Handle, PoolRange, SharedBytes, SharedRegion};
use smallvec::SmallVec;
use weldfs_functions::ChecksumState;
use zerocopy::{FromZeros, IntoBytes};

/// Bit 63 of result2 of the ops that open: this command created the file.
pub const CREATED: u64 = 1 << 63;
/// Bit of an open's second result: the ring has the file's write lease.
pub const LEASED: u64 = 1 << 62;
/// With it: the session may change the file's mode and times (it owns it); and, as root, its owner, too.
pub const OWNED: u64 = 1 << 61;
/// See [`OWNED`].
pub const ROOT_HERE: u64 = 1 << 60;

/// Bit of an open's second result: its attributes are in the range that the command named, and the watch that it named
/// tells when they are not those of the file any more.
pub const WATCHED: u64 = 1 << 59;
/// With it: the file's content follows, all of it.
pub const WHOLE: u64 = 1 << 58;
/// With [`WATCHED`], of a read's second result: the watch begins with this read, and says nothing of bytes that were
/// read before.
pub const ANEW: u64 = 1 << 58;

/// Bit of a posted command's second result: what it changed is in the record of a command before it.
pub const MERGED: u64 = 1 << 57;

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// 0 or a positive errno.
    pub status: i32,
    /// Micro-ops that stand: all, or after a failure those before it (0 when a MacroTx failed).
    pub micro_done: u16,
    /// 0, or 1 + the index of the micro-op that failed.
    pub micro_failed: u16,
    /// First result.
    pub result: u64,
    /// Second result.
    pub result2: u64,
}

impl Outcome {
    /// A single op that went well.
    pub fn ok(result: u64, result2: u64) -> Outcome {
        Outcome { status: 0, micro_done: 1, micro_failed: 0, result, result2 }
    }

    /// A command that failed before or in its first micro-op.
    pub fn failed(errno: Errno) -> Outcome {
        Outcome { status: errno.0, micro_done: 0, micro_failed: 1, result: 0, result2: 0 }
    }

    /// Whether the command's effects stand.
    pub fn is_ok(&self) -> bool {
        self.status == 0
    }

    /// The CQE that reports it.
    pub fn to_cqe(&self, sequence: u64) -> Cqe {
        Cqe {
            sequence,
            status: self.status,
            micro_done: self.micro_done,
            micro_failed: self.micro_failed,
            result: self.result,
            result2: self.result2,
        }
    }
}

impl Op {
    /// Whether its client may go on without its answer (docs/COMMANDS.md, "Posting"); of an open, ask for the right.
    pub(crate) fn may_be_posted(&self) -> bool {
        matches!(self, Op::Open { .. } | Op::Write { .. } | Op::SetAttr { .. } | Op::Close { .. })
    }

    /// Whether the session answers this op without a Target: `run` refuses it with ENOSYS.
    pub fn is_session_level(&self) -> bool {
        use Op::*;
        matches!(
            self,
            Nop | Close { .. }
                | Fsync { .. }
                | Fdatasync { .. }
                | Syncfs
                | Lock { .. }
                | SetFlags { .. }
                | Outcome { .. }
                | ChecksumRange { .. }
                | Batch { .. }
                | ReadDirPlus { .. }
                | SetKey { .. }
                | DropKey { .. }
                | TxnBegin
                | TxnWrite { .. }
                | TxnAbort { .. }
                | VirtParams { .. }
        )
    }
}

/// What flows between the micro-ops of one command, as plain numbers: recovery goes on from them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Registers {
    /// The file of the command, as [`Target::number`] calls it; 0: not named yet.
    pub file: u64,
    /// Whether this command created it.
    pub created: bool,
    /// Bytes of the first micro-read.
    pub read: Option<u64>,
    /// The first micro-write.
    pub first: Option<Written>,
    /// The last micro-write.
    pub last: Written,
    /// The running checksum.
    pub sum: ChecksumState,
}

/// Runs `cmd`. On a status other than 0 the caller drops what the target staged since its last `seal`, in a MacroTx
/// all of it.
pub async fn run<T: Target>(cmd: &Command, paths: &Paths, pool: &SharedRegion, t: &mut T) -> Outcome {
    resume(cmd, Registers::default(), 0, paths, pool, t).await
}

/// Runs `cmd` from its micro-op `from_step` on, with the registers as they stood when it was reached. A fused program
/// runs from its start only, ENOSYS otherwise: what it keeps is more than registers.
pub async fn resume<T: Target>(
    cmd: &Command,
    regs: Registers,
    from_step: u16,
    paths: &Paths,
    pool: &SharedRegion,
    t: &mut T,
) -> Outcome {
    let Some(program) = catalogue::expand(&cmd.op) else {
        if let (Some(body), 0) = (&paths.program, from_step) {
            // Boxed: what a program keeps while it runs is not for every command to carry.
            return Box::pin(program::run(cmd, body, pool, t)).await;
        }
        return match single(&cmd.op, paths, pool, t).await {
            Ok((result, result2)) => Outcome::ok(result, result2),
            Err(e) => Outcome::failed(e),
        };
    };
    let mut machine = Machine { paths, pool, regs, file: None, index: from_step, scratch: SmallVec::new() };
    if from_step > 0
        && let Some(first) = program.first()
        && let Err(e) = machine.rejoin(first, t).await
    {
        return machine.failed(cmd, e);
    }
    for micro in program.iter().skip(usize::from(from_step)) {
        if let Err(e) = machine.step(micro, t).await {
            return machine.failed(cmd, e);
        }
        if let Err(e) = t.seal(machine.index, &machine.regs).await {
            return machine.failed(cmd, e);
        }
        machine.index += 1;
        if usize::from(machine.index) < program.len()
            && let Err(e) = t.boundary(machine.index).await
        {
            return machine.failed(cmd, e);
        }
    }
    let (result, result2) = results(&cmd.op, &machine.regs);
    Outcome { status: 0, micro_done: program.len() as u16, micro_failed: 0, result, result2 }
}

/// Micro-ops of a command; of a fused program `Program::micros` has the number.
pub fn steps(op: &Op) -> u16 {
    catalogue::expand(op).map_or(1, |program| program.len() as u16)
}

/// Runs micro-op `index` of a fused command, and no other, with the registers as they stood when it was reached; gives
/// the registers after it. For recovery, which commits each before it runs the next.
pub async fn step<T: Target>(
    cmd: &Command,
    regs: Registers,
    index: u16,
    paths: &Paths,
    pool: &SharedRegion,
    t: &mut T,
) -> Result<Registers, Errno> {
    let program = catalogue::expand(&cmd.op).ok_or(Errno::NOSYS)?;
    let (Some(first), Some(micro)) = (program.first(), program.get(usize::from(index))) else {
        return Err(Errno::INVAL);
    };
    let mut machine = Machine { paths, pool, regs, file: None, index, scratch: SmallVec::new() };
    if index > 0 {
        machine.rejoin(first, t).await?;
    }
    machine.step(micro, t).await?;
    Ok(machine.regs)
}

/// The two results of a fused command that went well, from the registers after its last micro-op.
pub fn results(op: &Op, regs: &Registers) -> (u64, u64) {
    let (first, read) = (regs.first.unwrap_or_default(), regs.read.unwrap_or(0));
    let created = if regs.created { CREATED } else { 0 };
    match op {
        Op::OpenWriteClose { .. } => (first.len, first.off | created),
        Op::OpenReadWriteClose { .. } => (read, first.off | created),
        Op::AppendChecksumWrite { .. } => (first.off, regs.sum.value() as u64),
        Op::ReadChecksumVerify { .. } => (read, regs.sum.value() as u64),
        // The rest read only, or write where they were told: the bytes that were there.
        _ => (read, 0),
    }
}

/// One command being run.
struct Machine<'a, F> {
    paths: &'a Paths,
    pool: &'a SharedRegion,
    regs: Registers,
    file: Option<F>,
    /// The micro-op being run.
    index: u16,
    scratch: SmallVec<[u8; 64]>,
}

impl<F: Copy> Machine<'_, F> {
    fn file(&self) -> Result<F, Errno> {
        self.file.ok_or(Errno::BADF)
    }

    fn name_file<T: Target<File = F>>(&mut self, file: F, t: &T) {
        (self.file, self.regs.file) = (Some(file), t.number(file));
    }

    /// Takes the file of a command that was interrupted, with the grant that its first micro-op gave.
    async fn rejoin<T: Target<File = F>>(&mut self, first: &Micro, t: &mut T) -> Result<(), Errno> {
        let access = match *first {
            Micro::Open { flags, .. } => flags.access(),
            Micro::Use { need, .. } => need,
            _ => return Err(Errno::INVAL),
        };
        self.file = Some(t.numbered(self.regs.file, access).await?);
        Ok(())
    }

    /// The outcome when the current micro-op fails: in a MacroTx nothing stands, in a MicroTx what came before does.
    fn failed(&self, cmd: &Command, errno: Errno) -> Outcome {
        let (result, result2) = self.results_on_error(&cmd.op, errno);
        let micro_done = if cmd.commits_in_steps() { self.index } else { 0 };
        Outcome { status: errno.0, micro_done, micro_failed: self.index + 1, result, result2 }
    }

    async fn step<T: Target<File = F>>(&mut self, micro: &Micro, t: &mut T) -> Result<(), Errno> {
        match *micro {
            Micro::Open { base, flags, mode } => {
                let opened = t.open(base, &self.paths.a, flags, mode).await?;
                self.name_file(opened.file, t);
                self.regs.created = opened.created;
                Ok(())
            }
            Micro::Use { h, need } => {
                let file = t.file(h, need).await?;
                self.name_file(file, t);
                Ok(())
            }
            Micro::Read { span, to, sum } => self.read(span, to, sum, t).await,
            Micro::Write { spot, from, sum } => self.write(spot, from, sum, t).await,
            Micro::Change { modify, old } => change(&mut self.scratch[..], modify, old, self.pool),
            Micro::Verify => {
                if self.scratch[..] == self.regs.sum.value().to_le_bytes() {
                    Ok(())
                } else {
                    Err(Errno::BADMSG)
                }
            }
            // Nothing was installed: the description dies with the command.
            Micro::Close => Ok(()),
        }
    }

    async fn read<T: Target<File = F>>(&mut self, span: Span, to: To, sum: bool, t: &mut T) -> Result<(), Errno> {
        let file = self.file()?;
        let state = if sum { Some(&mut self.regs.sum) } else { None };
        let sink = match to {
            To::Pool(_) if t.is_recovery() => Sink::Discard,
            To::Pool(range) => Sink::Shared(self.pool.slice(range)?),
            To::Discard => Sink::Discard,
            To::Scratch => {
                self.scratch.clear();
                self.scratch.resize(span.len as usize, 0);
                Sink::Private(&mut self.scratch)
            }
        };
        let n = t.read(file, span.off, span.len as u64, sink, state).await?;
        self.regs.read.get_or_insert(n);
        if span.whole && n < span.len as u64 { Err(Errno::NODATA) } else { Ok(()) }
    }

    async fn write<T: Target<File = F>>(&mut self, spot: Spot, from: From, sum: bool, t: &mut T) -> Result<(), Errno> {
        let file = self.file()?;
        let at = match spot {
            Spot::At(at) => at,
            Spot::AfterWrite => At::Offset(self.regs.last.off + self.regs.last.len),
        };
        let trailer = self.regs.sum.value().to_le_bytes();
        let src = match from {
            From::Pool(range) => match t.adopted(self.index) {
                Some(input) => Source::Adopted { input, len: range.len },
                None => {
                    if let Some(taken) = t.taken() {
                        self.regs.sum = taken.1;
                        self.regs.last = t.write(file, at, Source::Taken(&taken.0), None).await?;
                        self.regs.first.get_or_insert(self.regs.last);
                        return Ok(());
                    }
                    Source::Shared(self.pool.slice(range)?)
                }
            },
            From::Scratch => Source::Private(&self.scratch),
            From::Sum => Source::Private(&trailer),
        };
        let state = if sum { Some(&mut self.regs.sum) } else { None };
        self.regs.last = t.write(file, at, src, state).await?;
        self.regs.first.get_or_insert(self.regs.last);
        Ok(())
    }

    /// Errors that say more than their number.
    fn results_on_error(&self, op: &Op, errno: Errno) -> (u64, u64) {
        let read = self.regs.read.unwrap_or(0);
        match (op, errno) {
            (Op::ReadChecksumVerify { .. }, Errno::BADMSG) => (read, self.regs.sum.value() as u64),
            (Op::ReadModifyWrite { .. }, Errno::CANCELED) => (read, 0),
            _ => (0, 0),
        }
    }
}

/// The change that a `read_modify_write` makes to its field; `old` gets the bytes that were there, unless it is empty.
///
/// # Errors
/// ECANCELED when it compares, and they differ; EFAULT for a range outside of the pool.
pub fn change(field: &mut [u8], modify: Modify, old: PoolRange, pool: &SharedRegion) -> Result<(), Errno> {
    if !old.is_empty() {
        pool.slice(old)?.copy_from(field);
    }
    match modify {
        Modify::Patch(range) => pool.slice(range)?.copy_to(field),
        Modify::Add(v) => add(field, v),
        Modify::Xor(range) => xor(field, &pool.slice(range)?.to_vec()),
        Modify::XorImm(imm) => xor(field, &imm),
        Modify::CompareSwap { expect, new } => {
            if pool.slice(expect)?.to_vec() != *field {
                return Err(Errno::CANCELED);
            }
            pool.slice(new)?.copy_to(field);
        }
    }
    Ok(())
}

/// Little-endian wrapping add; the field is at most 8 bytes.
fn add(field: &mut [u8], v: u64) {
    let mut wide = [0u8; 8];
    wide[..field.len()].copy_from_slice(field);
    let sum = u64::from_le_bytes(wide).wrapping_add(v).to_le_bytes();
    field.copy_from_slice(&sum[..field.len()]);
}

fn xor(field: &mut [u8], with: &[u8]) {
    field.iter_mut().zip(with).for_each(|(a, b)| *a ^= b);
}

/// One POSIX-like op; gives the two results.
async fn single<T: Target>(op: &Op, paths: &Paths, pool: &SharedRegion, t: &mut T) -> Result<(u64, u64), Errno> {
    let (a, b) = (&paths.a[..], &paths.b[..]);
    match *op {
        Op::Open { base, flags, mode, placeholder, .. } => {
            let opened: Opened<T::File> = t.open(base, a, flags, mode).await?;
            let handle = t.install(opened, flags, placeholder).await?;
            let created = if opened.created { CREATED } else { 0 };
            Ok((handle.to_wire(), opened.mode as u64 | created))
        }
        Op::Read { h, at, out, .. } => read(h, at, out, pool, t).await,
        Op::Write { h, at, src } => write(h, at, Source::Shared(pool.slice(src)?), t).await,
        Op::WriteVerified { h, at, src, kind: ChecksumKind::Crc32c, sum } => {
            t.file(h, Access::WRITE).await?;
            let (bytes, stored) = taken(pool.slice(src)?, t).await?;
            if stored.value() != sum {
                return Err(Errno::BADMSG);
            }
            write(h, at, Source::Taken(&bytes), t).await
        }
        Op::Truncate { h, size } => {
            let file = t.file(h, Access::WRITE).await?;
            t.truncate(file, size).await.map(none)
        }
        Op::Fallocate { h, mode, off, len } => {
            let file = t.file(h, Access::WRITE).await?;
            t.fallocate(file, mode, off, len).await.map(none)
        }
        Op::Seek { h, whence, off } => t.seek(h, whence, off).await.map(|at| (at, 0)),
        Op::ReadDir { h, cookie, out } => {
            let mut writer = DirentWriter::new(pool.slice(out)?);
            let next = t.read_dir(h, cookie, &mut writer).await?;
            Ok((writer.used() as u64, next))
        }
        Op::Mkdir { base, mode, .. } => t.mkdir(base, a, mode).await.map(none),
        Op::Rmdir { base, .. } => t.rmdir(base, a).await.map(none),
        Op::Unlink { base, .. } => t.unlink(base, a).await.map(none),
        Op::Rename { from_base, to_base, flags, .. } => t.rename(from_base, a, to_base, b, flags).await.map(none),
        Op::Link { from_base, to_base, follow, .. } => t.link(from_base, a, to_base, b, follow).await.map(none),
        Op::Symlink { base, .. } => t.symlink(b, base, a).await.map(none),
        Op::TxnCommit { txn } => t.commit_staged(txn).await.map(|n| (n, 0)),
        Op::Readlink { base, out, .. } => {
            let sink = Sink::Shared(pool.slice(out)?);
            t.readlink(base, a, out.len as u64, sink).await.map(|n| (n, 0))
        }
        _ => attribute(op, a, b, pool, t).await,
    }
}

/// The client's bytes, copied once, and their sum: what was summed up is what is written. Makes way between pieces.
async fn taken<T: Target>(src: SharedBytes<'_>, t: &mut T) -> Result<(Vec<u8>, ChecksumState), Errno> {
    let (mut bytes, mut sum) = (Vec::with_capacity(src.len()), ChecksumState::new());
    while bytes.len() < src.len() {
        let done = bytes.len();
        if done > 0 {
            t.boundary(0).await?;
        }
        src.sub(done, (src.len() - done).min(program::PIECE_BYTES)).append_to(&mut bytes);
        sum.update(&bytes[done..]);
    }
    Ok((bytes, sum))
}

/// The ops on attributes, by handle or by path.
async fn attribute<T: Target>(
    op: &Op,
    a: &[u8],
    b: &[u8],
    pool: &SharedRegion,
    t: &mut T,
) -> Result<(u64, u64), Errno> {
    match *op {
        Op::Stat { h, out } => {
            let body = t.stat(h, b"", false).await?;
            put_body(pool, out, &body)
        }
        Op::StatPath { base, nofollow, out, .. } => {
            let body = t.stat(base, a, nofollow).await?;
            put_body(pool, out, &body)
        }
        Op::SetAttr { h, set } => {
            let body = take_set_attr(pool, set)?;
            t.set_attr(h, b"", false, &body).await.map(none)
        }
        Op::SetAttrPath { base, nofollow, set, .. } => {
            let body = take_set_attr(pool, set)?;
            t.set_attr(base, a, nofollow, &body).await.map(none)
        }
        Op::Statfs { out } => {
            let body = t.statfs().await?;
            put_body(pool, out, &body)
        }
        Op::Access { base, mask, nofollow, .. } => t.access(base, a, mask, nofollow).await.map(none),
        Op::GetXattr { base, nofollow, out, .. } => {
            let sink = Sink::Shared(pool.slice(out)?);
            t.get_xattr(base, a, nofollow, b, out.len as u64, sink).await.map(|n| (n, 0))
        }
        Op::SetXattr { base, nofollow, value, flags, .. } => {
            let value = pool.slice(value)?.to_vec();
            t.set_xattr(base, a, nofollow, b, &value, flags).await.map(none)
        }
        Op::ListXattr { base, nofollow, out, .. } => {
            let sink = Sink::Shared(pool.slice(out)?);
            t.list_xattr(base, a, nofollow, out.len as u64, sink).await.map(|n| (n, 0))
        }
        Op::RemoveXattr { base, nofollow, .. } => t.remove_xattr(base, a, nofollow, b).await.map(none),
        Op::VirtRegister { base, mode, spec, .. } => {
            let spec = pool.slice(spec)?.to_vec();
            t.virt_register(base, a, mode, &spec).await.map(none)
        }
        Op::VirtSpec { base, nofollow, out, .. } => {
            let sink = Sink::Shared(pool.slice(out)?);
            t.virt_spec(base, a, nofollow, out.len as u64, sink).await.map(|n| (n, 0))
        }
        _ => Err(Errno::NOSYS),
    }
}

fn none(_: ()) -> (u64, u64) {
    (0, 0)
}

async fn read<T: Target>(
    h: Handle,
    at: At,
    out: PoolRange,
    pool: &SharedRegion,
    t: &mut T,
) -> Result<(u64, u64), Errno> {
    let file = t.file(h, Access::READ).await?;
    let off = match at {
        At::Offset(off) => off,
        At::Current => t.cursor(h).await?.offset,
        At::End => return Err(Errno::INVAL),
    };
    let len = (out.len as u64).min(FILE_OFFSET_MAX.saturating_sub(off));
    let n = t.read(file, off, len, Sink::Shared(pool.slice(out)?), None).await?;
    if at == At::Current && n > 0 {
        t.set_cursor(h, off + n).await?;
    }
    Ok((n, off))
}

async fn write<T: Target>(h: Handle, at: At, src: Source<'_>, t: &mut T) -> Result<(u64, u64), Errno> {
    let file = t.file(h, Access::WRITE).await?;
    let cursor = t.cursor(h).await?;
    let place = match at {
        _ if cursor.append => At::End,
        At::Current if cursor.offset > FILE_OFFSET_MAX - src.len() as u64 => return Err(Errno::FBIG),
        At::Current => At::Offset(cursor.offset),
        other => other,
    };
    let written = t.write(file, place, src, None).await?;
    // POSIX leaves open whether an append of no bytes moves the offset to the end; Linux leaves it where it is.
    if at == At::Current && written.len > 0 {
        t.set_cursor(h, written.off + written.len).await?;
    }
    Ok((written.len, written.off))
}

fn put_body(
    pool: &SharedRegion,
    out: PoolRange,
    body: &(impl IntoBytes + zerocopy::Immutable),
) -> Result<(u64, u64), Errno> {
    let bytes = body.as_bytes();
    pool.slice(out)?.copy_from(bytes);
    Ok((bytes.len() as u64, 0))
}

/// The body, copied out once and believed: known bits, sound times, permission bits only, a size that a file can have.
pub fn take_set_attr(pool: &SharedRegion, range: PoolRange) -> Result<SetAttrBody, Errno> {
    let mut body = SetAttrBody::new_zeroed();
    let bytes = pool.slice(range)?;
    if bytes.len() != size_of::<SetAttrBody>() {
        return Err(Errno::INVAL);
    }
    bytes.copy_to(body.as_mut_bytes());
    let mask = SetAttrMask::from_bits(body.mask).ok_or(Errno::INVAL)?;
    let times_clash = mask.contains(SetAttrMask::ATIME | SetAttrMask::ATIME_NOW)
        || mask.contains(SetAttrMask::MTIME | SetAttrMask::MTIME_NOW);
    let sound = body.atime.nsec < 1_000_000_000
        && body.mtime.nsec < 1_000_000_000
        && body.atime.reserved | body.mtime.reserved == 0
        && body.reserved == 0
        && body.mode & !0o7777 == 0
        && body.size <= FILE_OFFSET_MAX;
    if times_clash || !sound { Err(Errno::INVAL) } else { Ok(body) }
}
