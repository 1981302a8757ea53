//! Changes of one file in a straight line: `write`, `append_checksum_write`, `read_modify_write` and `set_attr` of a
//! file that a handle names, several of these at once (`merged`), and (`create`) `open_write_close` of a new one, on
//! media that a processor writes to directly, where nothing has to be waited for. On others the former, of so few bytes
//! that they go into the record.
//!
//! What they do is what their micro-ops do over a [`super::Txn`], to the byte
//! (`storagefs/device/tests/device/two_ways.rs` holds the one to the other); but a command of one file that changes its
//! content once needs nothing of what makes a transaction: no staged view that later micro-ops read, no names, no
//! steps. What is not so plain, and whatever goes wrong, gives `None`: nothing was done, and the command runs over a
//! transaction.

mod create;
mod merged;

use super::Hold;
use super::bounds::{LOG_BASE, LOG_PER_BLOCK, held_blocks};
use super::stage::{BLOCK, BLOCK_BYTES, SLICE_BYTES};
use super::txn::OpCounters;
use super::{FILE_BYTES_MAX, OpenFile, SessionView, perm};
use smallvec::SmallVec;
use weldfs_ciscops::{
    Access, At, ChecksumKind, Command, Errno, Handle, InodeNo, Life, Op, OpenFlags, Outcome, SharedBytes, SharedRegion,
    TxnMode, interp,
};
use weldfs_functions::crc32c;
use weldfs_journal::{BlockNo, IoWrite};
use weldfs_media::{crc32c_join, crc32c_then_zeros};
use weldfs_store::alloc::Run;
use weldfs_store::effect::{AttrDelta, BlockState, Effect, attr};
use weldfs_store::error::FsResult;
use weldfs_store::limits::WINDOW_BLOCKS;
use weldfs_store::record::Time;
use weldfs_store::scratch::BlockBuf;
use weldfs_store::tails::Tail;
use weldfs_store::{Around, BlockKind, Need, Plan, Store};

/// Bytes of a checksum behind its payload.
const TRAILER: usize = 4;

pub use create::plan_create;
pub use merged::{Joined, may_join, plan_merged};

/// The handle of the file that a command changes, its content or attributes, and what it asks of that; `None` when it
/// is no such command.
#[inline]
pub fn concerned(op: &Op) -> Option<(Handle, Access)> {
    match *op {
        Op::Write { h, .. } | Op::WriteVerified { h, .. } | Op::AppendChecksumWrite { h, .. } => {
            Some((h, Access::WRITE))
        }
        Op::ReadModifyWrite { h, .. } => Some((h, Access::READ | Access::WRITE)),
        Op::SetAttr { h, .. } => Some((h, Access::empty())),
        _ => None,
    }
}

/// Whether nothing that a command writes has to reach the medium before its record is complete: of a file that a handle
/// names, on media that are written to directly, or so few bytes that they go into the record.
#[inline]
pub fn waits_for_nothing(store: &Store, op: &Op) -> bool {
    concerned(op).is_some() && (store.writes_directly() || payload(op) <= store.inline_max())
}

/// A change that is ready to be committed.
pub struct Changed<'a> {
    /// Its effects, to be committed as one record.
    pub plan: Plan<'a>,
    /// What its completion says.
    pub outcome: Outcome,
    /// What it did.
    pub counters: OpCounters,
    /// The description's new offset.
    pub cursor: Option<(Handle, u64)>,
}

/// Whether it is to commit step by step, whatever it is.
fn in_steps(cmd: &Command) -> bool {
    cmd.mode != TxnMode::Default && cmd.commits_in_steps() && cmd.op.changes_in_steps()
}

/// Plans what `cmd` changes of the file that its handle stands for, which it holds alone, at time `now`.
pub fn plan<'a>(
    store: &'a Store,
    session: &dyn SessionView,
    pool: &SharedRegion,
    cmd: &Command,
    file: OpenFile,
    now: (i64, u32),
) -> Option<Changed<'a>> {
    let (_, need) = concerned(&cmd.op)?;
    let granted = !file.flags.contains(OpenFlags::PATH) && file.flags.access().contains(need);
    if !granted || in_steps(cmd) {
        return None;
    }
    if let Op::SetAttr { .. } = cmd.op {
        return plan_merged(store, session, pool, (cmd, &mut || None), file, now).map(|alone| alone.changed);
    }
    let (size, mode, is_virtual) = store.look_at(file.ino, |rec| (rec.size, rec.mode, rec.is_virtual())).ok()?;
    if mode & perm::IFMT != perm::IFREG || is_virtual {
        return None;
    }
    let now = Time { sec: now.0, nsec: now.1 };
    let ordinary = session.cred().uid != 0;
    let inline = payload(&cmd.op) <= store.inline_max();
    let (counters, fresh) = (OpCounters::default(), false);
    let life = cmd.hints.life;
    let line = Line { store, file, size, mode, now, life, ordinary, inline, fresh, counters };
    match cmd.op {
        Op::Write { h, at, src } => line.write((h, at), pool.slice(src).ok()?, None),
        Op::WriteVerified { h, at, src, kind: ChecksumKind::Crc32c, sum } => {
            line.write((h, at), pool.slice(src).ok()?, Some(sum))
        }
        Op::AppendChecksumWrite { src, .. } => line.append_checksum_write(pool.slice(src).ok()?, &cmd.op),
        Op::ReadModifyWrite { offset, len, modify, out, .. } => {
            let mut field = BlockBuf::take();
            let (from, len) = ((offset % BLOCK_BYTES) as usize, len as usize);
            // Of one block, and there whole.
            if len == 0 || from + len > BLOCK || offset.checked_add(len as u64)? > size {
                return None;
            }
            let part = (from, from + len);
            let change = |field: &mut [u8]| interp::change(field, modify, out, pool);
            line.read_modify_write(offset / BLOCK_BYTES, part, &mut field, change, &cmd.op)
        }
        _ => None,
    }
}

/// Bytes that it writes.
fn payload(op: &Op) -> usize {
    match *op {
        Op::Write { src, .. } | Op::WriteVerified { src, .. } => src.len as usize,
        Op::AppendChecksumWrite { src, .. } => src.len as usize + TRAILER,
        Op::ReadModifyWrite { len, .. } => len as usize,
        _ => 0,
    }
}

/// Bytes of one block that are written, with what they have around them when it is on its way to the medium.
struct Part {
    blk: u64,
    from: usize,
    to: usize,
    bytes: BlockBuf,
    /// CRC32C of the bytes written; not kept of what goes into the record.
    crc: u32,
    /// Whether bytes of the client's are among them.
    payload: bool,
}

/// Where a composed block goes, its checksum, and what is known of its front.
struct Landing {
    addr: u64,
    crc: u32,
    front: Option<(usize, u32)>,
}

/// Neighbouring blocks, on the medium as in the file.
struct Blocks {
    blk: u64,
    addr: BlockNo,
    crcs: SmallVec<[u32; 4]>,
}

/// What is to be written: where its bytes are gathered.
#[derive(Default)]
struct Gathered {
    runs: SmallVec<[Blocks; 2]>,
    parts: SmallVec<[Part; 2]>,
    /// CRC32C of the payload.
    sum: u32,
}

struct Line<'a> {
    store: &'a Store,
    file: OpenFile,
    size: u64,
    mode: u32,
    now: Time,
    life: Life,
    /// Whether a change of content takes privilege bits away.
    ordinary: bool,
    /// Its bytes go into the record.
    inline: bool,
    /// It is being created: nothing lies in it.
    fresh: bool,
    counters: OpCounters,
}

impl<'a> Line<'a> {
    /// `expected`: the CRC32C that its bytes must have, or nothing of it happens.
    fn write(mut self, (h, at): (Handle, At), src: SharedBytes<'_>, expected: Option<u32>) -> Option<Changed<'a>> {
        let off = match at {
            _ if self.file.flags.contains(OpenFlags::APPEND) => self.size,
            At::Offset(off) => off,
            At::Current => self.file.offset,
            At::End => self.size,
        };
        let mut plan = self.begin(off, src.len(), 0)?;
        let end = off + src.len() as u64;
        let cursor = (at == At::Current).then_some((h, end));
        let outcome = Outcome::ok(src.len() as u64, off);
        if self.inline && (off % BLOCK_BYTES) as usize + src.len() <= BLOCK {
            self.patch(&mut plan, off, src, expected)?;
            return self.concluded(plan, end, outcome, cursor);
        }
        let mut gathered = Gathered::default();
        self.gather(&mut plan, &mut gathered, off, src, expected.is_some()).ok()?;
        if expected.is_some_and(|sum| sum != gathered.sum) {
            return None;
        }
        self.finish(plan, gathered, end, outcome, cursor)
    }

    /// The client's bytes, all in one block, go into the record as they are.
    fn patch(&mut self, plan: &mut Plan<'a>, off: u64, src: SharedBytes<'_>, expected: Option<u32>) -> Option<()> {
        let mut bytes = SmallVec::from_elem(0, src.len());
        src.copy_to(&mut bytes);
        if expected.is_some_and(|sum| sum != crc32c(&bytes)) {
            return None;
        }
        plan.push(Effect::Patch { ino: self.file.ino, off, bytes });
        self.counters.payload_copies += 1;
        self.counters.patches += 1;
        self.counters.bytes_in += src.len() as u64;
        Some(())
    }

    fn append_checksum_write(mut self, src: SharedBytes<'_>, op: &Op) -> Option<Changed<'a>> {
        let off = self.size;
        let mut plan = self.begin(off, src.len() + TRAILER, 0)?;
        let mut gathered = Gathered::default();
        self.gather(&mut plan, &mut gathered, off, src, true).ok()?;
        let behind = off + src.len() as u64;
        gathered.trailer(behind);
        let outcome = fused(op, off, gathered.sum.into());
        self.finish(plan, gathered, behind + TRAILER as u64, outcome, None)
    }

    fn read_modify_write(
        mut self,
        blk: u64,
        (from, to): (usize, usize),
        field: &mut BlockBuf,
        change: impl FnOnce(&mut [u8]) -> Result<(), Errno>,
        op: &Op,
    ) -> Option<Changed<'a>> {
        let kind = self.store.read_part(self.file.ino, blk, field, (from, to)).ok()?;
        self.counters.blocks_read += u32::from(kind == BlockKind::Data);
        let off = blk * BLOCK_BYTES + from as u64;
        let plan = self.begin(off, to - from, 0)?;
        change(&mut field[from..to]).ok()?;
        let crc = if self.inline { 0 } else { crc32c(&field[from..to]) };
        let mut gathered = Gathered::default();
        gathered.parts.push(Part { blk, from, to, bytes: field.detach(), crc, payload: false });
        let end = off + (to - from) as u64;
        self.finish(plan, gathered, end, fused(op, (to - from) as u64, 0), None)
    }

    /// Reserves what a write of so many bytes at `off` takes at most, and so many log bytes more.
    fn begin(&self, off: u64, len: usize, more: usize) -> Option<Plan<'a>> {
        let need = self.need(off, len)?;
        let plan = self.store.begin(&Need { log_bytes: need.log_bytes + more, ..need }).ok()?;
        Some(plan.with_life(self.life))
    }

    /// What a write of so many bytes at `off` takes at most.
    fn need(&self, off: u64, len: usize) -> Option<Need> {
        let end = off.checked_add(len as u64).filter(|end| *end <= FILE_BYTES_MAX)?;
        if len == 0 || len as u64 > SLICE_BYTES {
            return None;
        }
        let first = off / BLOCK_BYTES;
        let blocks = end.div_ceil(BLOCK_BYTES) - first;
        let held = match off == self.size {
            _ if self.fresh => 0,
            // An append writes over the last block at most, if there is one: the end may lie in a hole.
            true if off.is_multiple_of(BLOCK_BYTES) => 0,
            true => held_blocks(self.store, self.file.ino, first, 1).ok()?,
            false => held_blocks(self.store, self.file.ino, first, blocks).ok()?,
        };
        let each = if self.inline { 32 } else { LOG_PER_BLOCK };
        let data_log = each * blocks as usize + if self.inline { len } else { 0 };
        let new_blocks = (blocks - held) as u32;
        Some(Need {
            log_bytes: LOG_BASE + data_log,
            new_blocks,
            overwrite_blocks: held as u32,
            meta_keys: 8 + (blocks / WINDOW_BLOCKS) as u32 + 1,
            may_fail: new_blocks > 0 || self.fresh,
            ..Need::default()
        })
    }

    /// Takes the client's bytes: whole blocks go to the medium in one pass, what else there is into private blocks.
    /// `summed`: the sum of all is asked for.
    fn gather(
        &mut self,
        plan: &mut Plan<'a>,
        to: &mut Gathered,
        off: u64,
        src: SharedBytes<'_>,
        summed: bool,
    ) -> FsResult<()> {
        let mut at = 0;
        while at < src.len() {
            let (blk, within) = ((off + at as u64) / BLOCK_BYTES, ((off + at as u64) % BLOCK_BYTES) as usize);
            let whole = if within == 0 && !self.inline { (src.len() - at) / BLOCK } else { 0 };
            self.counters.payload_copies += 1;
            if whole > 0 {
                let run = plan.alloc(whole as u32, self.file.ino)?;
                self.counters.blocks_written += run.count;
                let (len, mut crcs) = (run.count as usize * BLOCK, SmallVec::from_elem(0, run.count as usize));
                self.store.medium().ingest(run.addr.0 * BLOCK_BYTES, src.sub(at, len), &mut crcs)?;
                if summed {
                    to.sum = crcs.iter().fold(to.sum, |sum, crc| crc32c_join(sum, *crc, BLOCK));
                }
                to.runs.push(Blocks { blk, addr: run.addr, crcs });
                at += len;
                continue;
            }
            let len = (BLOCK - within).min(src.len() - at);
            let sum = |bytes: &[u8]| if self.inline && !summed { 0 } else { crc32c(bytes) };
            let (end, before) = (within + len, to.part_that_ends(blk, within));
            let crc = match before {
                Some(part) => {
                    src.sub(at, len).copy_to(&mut part.bytes[within..end]);
                    let crc = sum(&part.bytes[within..end]);
                    (part.to, part.crc) = (end, crc32c_join(part.crc, crc, len));
                    crc
                }
                None => {
                    let mut bytes = BlockBuf::take();
                    src.sub(at, len).copy_to(&mut bytes[within..end]);
                    let crc = sum(&bytes[within..end]);
                    to.parts.push(Part { blk, from: within, to: end, bytes, crc, payload: true });
                    crc
                }
            };
            to.sum = crc32c_join(to.sum, crc, len);
            at += len;
        }
        self.counters.bytes_in += src.len() as u64;
        Ok(())
    }

    /// What was gathered becomes effects, with those on the file's attributes. Its content ends at `end` at least.
    fn finish(
        mut self,
        mut plan: Plan<'a>,
        gathered: Gathered,
        end: u64,
        outcome: Outcome,
        cursor: Option<(Handle, u64)>,
    ) -> Option<Changed<'a>> {
        self.content(&mut plan, gathered).ok()?;
        self.concluded(plan, end, outcome, cursor)
    }

    /// The effect on the file's attributes; then that was all of it.
    fn concluded(
        self,
        mut plan: Plan<'a>,
        end: u64,
        outcome: Outcome,
        cursor: Option<(Handle, u64)>,
    ) -> Option<Changed<'a>> {
        let mut change = AttrDelta { mtime: self.now, ctime: self.now, ..AttrDelta::new(self.file.ino) };
        change.mask = attr::MTIME | attr::CTIME;
        if end > self.size {
            (change.size, change.mask) = (end, change.mask | attr::SIZE);
        }
        if self.ordinary && self.mode & (perm::ISUID | perm::ISGID) != 0 {
            (change.mode, change.mask) = (perm::without_privileges(self.mode), change.mask | attr::MODE);
        }
        plan.push(Effect::SetAttr(change));
        Some(Changed { plan, outcome, counters: self.counters, cursor })
    }

    /// The effects of what was gathered.
    fn content(&mut self, plan: &mut Plan<'a>, gathered: Gathered) -> FsResult<()> {
        let ino = self.file.ino;
        let Gathered { mut runs, parts, .. } = gathered;
        if self.inline {
            for part in parts {
                let bytes = SmallVec::from_slice(&part.bytes[part.from..part.to]);
                plan.push(Effect::Patch { ino, off: part.blk * BLOCK_BYTES + part.from as u64, bytes });
                self.counters.patches += 1;
            }
        } else if !parts.is_empty() {
            self.compose(plan, &mut runs, parts)?;
        }
        for Blocks { blk, addr, crcs } in runs {
            let (count, state) = (crcs.len() as u32, BlockState::Written);
            plan.push(Effect::Map { ino, blk, addr, count, state, crcs });
        }
        Ok(())
    }

    /// Completes blocks that are written in part with what lies around, and writes them to fresh places.
    fn compose(
        &mut self,
        plan: &mut Plan<'a>,
        runs: &mut SmallVec<[Blocks; 2]>,
        mut parts: SmallVec<[Part; 2]>,
    ) -> FsResult<()> {
        let (mut room, mut left) = (None::<Run>, parts.len() as u32);
        let mut landing: SmallVec<[Landing; 2]> = SmallVec::new();
        for part in &mut parts {
            let (crc, front) = self.complete(part)?;
            let run = match room.take() {
                Some(run) => run,
                None => plan.alloc(left, self.file.ino)?,
            };
            left -= 1;
            room = (run.count > 1).then(|| Run { addr: BlockNo(run.addr.0 + 1), count: run.count - 1 });
            self.counters.payload_copies += u32::from(part.payload);
            self.counters.blocks_written += 1;
            landing.push(Landing { addr: run.addr.0, crc, front });
        }
        let placed = parts.iter().zip(&landing);
        let writes = placed.map(|(part, at)| IoWrite { off: at.addr * BLOCK_BYTES, buf: &part.bytes[..] });
        self.store.medium().write_batch(&writes.collect::<SmallVec<[IoWrite<'_>; 2]>>())?;
        for (part, Landing { addr, crc, front }) in parts.into_iter().zip(landing) {
            match runs.last_mut() {
                Some(last) if last.goes_on_with(part.blk, addr) => last.crcs.push(crc),
                _ => runs.push(Blocks { blk: part.blk, addr: BlockNo(addr), crcs: SmallVec::from_slice(&[crc]) }),
            }
            if let Some((len, crc)) = front {
                plan.tail(Tail { ino: self.file.ino.0, blk: part.blk, addr, bytes: part.bytes, len, crc });
            }
        }
        if runs.len() > 1 {
            runs.sort_by_key(|run| run.blk);
        }
        Ok(())
    }

    /// Fills a block up; its CRC32C, and what is known of its front if nothing but zeros lies behind that.
    fn complete(&mut self, part: &mut Part) -> FsResult<(u32, Option<(usize, u32)>)> {
        let Part { blk, from, to, bytes, crc, .. } = part;
        let (from, to) = (*from, *to);
        if (from, to) == (0, BLOCK) {
            return Ok((*crc, None));
        }
        // Behind its end a file reads as zeros, whatever is reserved there.
        let around = match self.fresh || *blk * BLOCK_BYTES >= self.size {
            true => {
                bytes[..from].fill(0);
                bytes[to..].fill(0);
                Around { kind: BlockKind::Hole, front: None, zeros: true }
            }
            false => self.store.read_around(self.file.ino, *blk, bytes, (from, to))?,
        };
        self.counters.blocks_read += u32::from(around.kind == BlockKind::Data);
        let front = match around.front {
            Some((len, crc)) => crc32c_join(crc, crc32c(&bytes[len..from]), from - len),
            None => crc32c(&bytes[..from]),
        };
        let front = crc32c_join(front, *crc, to - from);
        let zeros = around.zeros || bytes[to..].iter().fold(0, |all, b| all | b) == 0;
        let whole = match zeros {
            true => crc32c_then_zeros(front, BLOCK - to),
            false => crc32c_join(front, crc32c(&bytes[to..]), BLOCK - to),
        };
        Ok((whole, (zeros && to < BLOCK).then_some((to, front))))
    }
}

impl Blocks {
    /// Blocks of a run that composed ones still join.
    const JOINED_MAX: u64 = super::stage::JOINED_MAX;

    fn goes_on_with(&self, blk: u64, addr: u64) -> bool {
        let len = self.crcs.len() as u64;
        len < Blocks::JOINED_MAX && (self.blk + len, self.addr.0 + len) == (blk, addr)
    }
}

impl Gathered {
    /// The bytes of a block that were gathered up to `at`, if any were.
    fn part_that_ends(&mut self, blk: u64, at: usize) -> Option<&mut Part> {
        if at == 0 {
            return None;
        }
        self.parts.iter_mut().rev().find(|part| (part.blk, part.to) == (blk, at))
    }

    /// The payload's checksum at `off`, right behind it.
    fn trailer(&mut self, off: u64) {
        let (trailer, mut done) = (self.sum.to_le_bytes(), 0);
        while done < TRAILER {
            let at = off + done as u64;
            let (blk, from) = (at / BLOCK_BYTES, (at % BLOCK_BYTES) as usize);
            let piece = &trailer[done..(done + BLOCK - from).min(TRAILER)];
            let (to, crc) = (from + piece.len(), crc32c(piece));
            match self.parts.last_mut() {
                Some(last) if (last.blk, last.to) == (blk, from) => {
                    last.bytes[from..to].copy_from_slice(piece);
                    (last.to, last.crc) = (to, crc32c_join(last.crc, crc, piece.len()));
                }
                _ => {
                    let mut bytes = BlockBuf::take();
                    bytes[from..to].copy_from_slice(piece);
                    self.parts.push(Part { blk, from, to, bytes, crc, payload: false });
                }
            }
            done += piece.len();
        }
    }
}

/// How a fused command ends that went well.
fn fused(op: &Op, result: u64, result2: u64) -> Outcome {
    Outcome { status: 0, micro_done: interp::steps(op), micro_failed: 0, result, result2 }
}
